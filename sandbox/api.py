"""The HTTP API of the rollout service: what `openapi` documents, over the store."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sandbox import openapi
from sandbox.errors import InputError
from sandbox.store import ENDED, Rollout, StoreFull

if TYPE_CHECKING:
    from sandbox.service import RolloutService

MAX_LEASE_BYTES = 1 << 30  # of one answer; a trajectory of 100,000 tokens of the 122B model is 40 MB


def rollout_seed(seed: int, attempt: int) -> int:
    """The seed of one attempt of a group, in 0 .. 2**31 - 1."""
    digest = hashlib.sha256(f"rollout/{seed}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


class Api:
    """The handlers; `app` serves them."""

    def __init__(self, service: RolloutService) -> None:
        self._service = service
        self._store = service.store
        self._document = openapi.document()
        self.app = web.Application(client_max_size=64 << 20, middlewares=[_errors])
        self.app.add_routes(
            [
                web.post("/v1/groups", self._post_groups),
                web.get("/v1/groups/{group_id:.+}", self._get_group),
                web.post("/v1/lease", self._post_lease),
                web.post("/v1/ack", self._post_ack),
                web.post("/v1/cancel", self._post_cancel),
                web.get("/v1/status", self._get_status),
                web.get("/v1/openapi.json", self._get_document),
                web.get("/health", self._get_health),
            ]
        )

    async def _post_groups(self, request: web.Request) -> web.Response:
        rollouts: list[Rollout] = []
        seen: set[str] = set()
        groups = _get(await _body(request), "groups", list)
        for index, group in enumerate(groups):
            where = f"groups[{index}]"
            if not isinstance(group, dict):
                raise InputError(f"{where}: expected an object with group_id, task, attempts, seed")
            new = self._rollouts(group, where)
            if new[0].group_id in seen:
                raise InputError(
                    f"{where}.group_id: {new[0].group_id!r} is there twice, expected distinct groups"
                )
            seen.add(new[0].group_id)
            rollouts += new
        accepted = await self._store.add(rollouts, self._service.config.max_pending)
        self._service.wake()
        return web.json_response({"accepted": accepted, "known": len(rollouts) - accepted})

    def _rollouts(self, group: dict[str, Any], where: str) -> list[Rollout]:
        group_id, path = _get(group, "group_id", str, where), _get(group, "task", str, where)
        attempts, seed = _get(group, "attempts", int, where), _get(group, "seed", int, where, 0)
        temperature = _get(group, "temperature", (int, float), where, 1.0)
        min_version = _get(group, "min_version", int, where, -1)
        if attempts < 1 or temperature < 0:
            raise InputError(
                f"{where}: attempts {attempts}, temperature {temperature}, expected >= 1 and >= 0"
            )
        if "\0" in group_id or not -(2**63) <= seed < 2**63 or not -1 <= min_version < 2**63:
            raise InputError(f"{where}: expected a group_id without NUL, seed and min_version in 64 bits")
        self._service.task(path)
        return [
            Rollout(
                rollout_id=f"{group_id}/{attempt}",
                group_id=group_id,
                task=path,
                seed=rollout_seed(seed, attempt),
                temperature=float(temperature),
                min_version=min_version,
            )
            for attempt in range(attempts)
        ]

    async def _get_group(self, request: web.Request) -> web.Response:
        group_id = request.match_info["group_id"]
        rows = await self._store.rows(group_id)
        if not rows:
            return web.json_response({"error": f"group {group_id!r}: not known"}, status=404)
        names = ("rollout_id", "state", "reason", "claims", "oldest_version")
        return web.json_response(
            {
                "group_id": group_id,
                "complete": all(row["state"] in ENDED for row in rows),
                "rollouts": [{name: row[name] for name in names} for row in rows],
            }
        )

    async def _post_lease(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        count, wait = _get(body, "max", int, default=64), _get(body, "wait_seconds", (int, float), default=0)
        min_version = _get(body, "min_version", int, default=-1)
        if count < 1 or wait < 0:
            raise InputError(f"body: max {count}, wait_seconds {wait}, expected >= 1 and >= 0")
        seconds = self._service.config.lease_seconds
        deadline = time.monotonic() + wait
        while True:
            seen = self._service.episodes
            frames = await self._store.lease(
                count, seconds, min_version=min_version, limit_bytes=MAX_LEASE_BYTES
            )
            left = deadline - time.monotonic()
            if frames or left <= 0 or self._service.stopping:
                break
            # Leases that run out wake nobody, nor does what another service ends: hence the short waits.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._service.change(seen), min(left, seconds, self._service.poll_seconds)
                )
        response = web.StreamResponse(headers={"X-Rollouts": str(len(frames))})
        response.content_type = "application/octet-stream"
        response.content_length = sum(map(len, frames))
        await response.prepare(request)
        for rollout in frames:
            await response.write(rollout)
        await response.write_eof()
        return response

    async def _post_ack(self, request: web.Request) -> web.Response:
        acked = await self._store.ack(_ids(await _body(request), "rollout_ids"))
        self._service.wake()  # there is room for further ones
        return web.json_response({"acked": acked})

    async def _post_cancel(self, request: web.Request) -> web.Response:
        body = await _body(request)
        reason = _get(body, "reason", str, default="cancelled by the learner")
        cancelled = await self._store.cancel(_ids(body, "group_ids"), reason)
        self._service.abandon(cancelled)
        return web.json_response({"cancelled": len(cancelled), "rollout_ids": cancelled})

    async def _get_status(self, _: web.Request) -> web.Response:
        status = {"version": openapi.VERSION, "states": await self._store.counts()}
        return web.json_response(status | self._service.rates())

    async def _get_document(self, _: web.Request) -> web.Response:
        return web.json_response(self._document)

    async def _get_health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise InputError(f"{request.path}: the body is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise InputError(f"{request.path}: the body is not a JSON object")
    return body


def _get(body: dict[str, Any], key: str, kind: Any, where: str = "body", default: Any = None) -> Any:
    value = body.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise InputError(f"{where}.{key}: {value!r}, expected {' or '.join(k.__name__ for k in kinds)}")
    return value


def _ids(body: dict[str, Any], key: str) -> list[str]:
    ids = _get(body, key, list)
    if not all(isinstance(name, str) and "\0" not in name for name in ids):
        raise InputError(f"body.{key}: expected a list of strings")
    return ids


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A caller's mistake is answered with 400 and one line, a full queue with 429; never with a traceback."""
    try:
        return await handler(request)
    except InputError as error:
        return web.json_response({"error": str(error)}, status=400)
    except StoreFull as error:
        return web.json_response({"error": str(error)}, status=429, headers={"Retry-After": "1"})
