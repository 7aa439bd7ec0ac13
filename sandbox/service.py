"""The rollout service: plays episodes against an engine, many at a time, and hands trajectories out over
HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import signal
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from aiohttp import web

from sandbox.agent import SYSTEM_PROMPT, EpisodeLimits, run_episode
from sandbox.backends import BACKENDS
from sandbox.engine_client import EnginePolicy, RouteShape
from sandbox.errors import InputError
from sandbox.store import Rollout, Store
from sandbox.task import Task
from sandbox.trajectory import Trajectory
from sandbox.transcript import ChatFormat

if TYPE_CHECKING:
    from sandbox.backends import Backend
    from sandbox.policy import Policy

logger = logging.getLogger(__name__)
MAX_LEASE_BYTES = 1 << 30  # of one answer; a trajectory of 100,000 tokens of the 122B model is 40 MB


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """The `rollout` command. `checkpoint` gives the chat format (and the width of routes); times are in
    seconds.
    """

    checkpoint: str
    engine_url: str = "http://127.0.0.1:30000"
    store: str = "runs/rollout/store.sqlite"
    host: str = "127.0.0.1"
    port: int = 30100
    concurrency: int = 16
    backend: str = "bubblewrap"
    system_prompt: str = SYSTEM_PROMPT
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    record_routes: bool = True
    lease_seconds: float = 600.0
    engine_patience: float = 300.0


class RolloutService:
    """Dispatches queued rollouts to at most `config.concurrency` concurrent episodes, and answers the
    learner.

    `run` serves until `stop` is called. Episodes share one engine client; the store is written once when an
    episode starts and once when it ends, never per turn.
    """

    def __init__(
        self, config: RolloutConfig, store: Store, chat: ChatFormat, policy: Policy, backend: Backend
    ) -> None:
        self.config = config
        self._store = store
        self._chat = chat
        self._policy = policy
        self._backend = backend
        self._tasks: dict[str, Task] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._work = asyncio.Event()  # there may be something to start
        self._ended = asyncio.Condition()  # something may be leased
        self._episodes = 0
        self._stopping = asyncio.Event()
        self._started = time.monotonic()
        # (end, turns, sampled tokens) of the episodes that the status' rates are taken over
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=4096)
        self._endings: Counter[str] = Counter()
        self.app = web.Application(client_max_size=64 << 20, middlewares=[_input_errors])
        self.app.add_routes(
            [
                web.post("/v1/groups", self._post_groups),
                web.post("/v1/lease", self._post_lease),
                web.post("/v1/ack", self._post_ack),
                web.post("/v1/cancel", self._post_cancel),
                web.get("/v1/status", self._get_status),
                web.get("/health", self._get_health),
            ]
        )

    def stop(self) -> None:
        """Ask `run` to end: running episodes are stopped and queued again."""
        self._stopping.set()
        self._work.set()

    async def run(self) -> None:
        """Dispatch until stopped."""
        self._work.set()
        try:
            while not self._stopping.is_set():
                await self._work.wait()
                self._work.clear()
                free = self.config.concurrency - len(self._running)
                if self._stopping.is_set() or free <= 0:
                    continue
                for rollout in await self._store.claim(free):
                    task = asyncio.create_task(self._episode(rollout), name=rollout.rollout_id)
                    self._running[rollout.rollout_id] = task
                    task.add_done_callback(self._left)
        finally:
            await self._announce()  # waiting learners get their empty answer before the server closes
            running = dict(self._running)
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)
            await self._store.requeue(list(running))

    def _left(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task.get_name(), None)
        self._work.set()

    async def _episode(self, rollout: Rollout) -> None:
        reason = ""
        try:
            trajectory = await run_episode(
                self._task(rollout.task),
                self._policy,
                self._chat,
                self._backend,
                self.config.limits,
                rollout_id=rollout.rollout_id,
                group_id=rollout.group_id,
                seed=rollout.seed,
                temperature=rollout.temperature,
                system_prompt=self.config.system_prompt,
            )
        except InputError as error:
            # The task cannot be played (its folder changed, its prompt is too long). The learner still gets a
            # frame.
            reason = str(error)
        except Exception as error:
            # One episode's unforeseen fault must not stop the others, nor come back with every restart.
            logger.exception("rollout %s failed", rollout.rollout_id)
            reason = f"internal error: {error!r}"
        if reason:
            trajectory = _empty(rollout, reason)
        data = await asyncio.to_thread(trajectory.encode)
        if await self._store.finish(rollout.rollout_id, data, reason=reason):
            self._endings[trajectory.ending] += 1
            self._recent.append((time.monotonic(), len(trajectory.turns), int(trajectory.loss_mask.sum())))
            await self._announce()

    async def _announce(self) -> None:
        async with self._ended:
            self._episodes += 1
            self._ended.notify_all()

    async def _change(self, seen: int) -> None:
        """Return once more episodes have ended than the `seen` ones."""
        async with self._ended:
            await self._ended.wait_for(lambda: self._episodes != seen)

    def _task(self, path: str) -> Task:
        if path not in self._tasks:
            self._tasks[path] = Task.load(Path(path))
        return self._tasks[path]

    async def _post_groups(self, request: web.Request) -> web.Response:
        rollouts: list[Rollout] = []
        seen: set[str] = set()
        groups = _get(await _body(request), "groups", list)
        for index, group in enumerate(groups):
            where = f"groups[{index}]"
            if not isinstance(group, dict):
                raise InputError(f"{where}: expected an object with group_id, task, attempts, seed")
            group_id, path = _get(group, "group_id", str, where), _get(group, "task", str, where)
            attempts, seed = _get(group, "attempts", int, where), _get(group, "seed", int, where, 0)
            temperature = _get(group, "temperature", (int, float), where, 1.0)
            if attempts < 1 or temperature < 0:
                raise InputError(
                    f"{where}: attempts {attempts}, temperature {temperature}, expected >= 1 and >= 0"
                )
            if group_id in seen:
                raise InputError(f"{where}.group_id: {group_id!r} is there twice, expected distinct groups")
            seen.add(group_id)
            self._task(path)
            rollouts += [
                Rollout(
                    rollout_id=f"{group_id}/{attempt}",
                    group_id=group_id,
                    task=path,
                    seed=rollout_seed(seed, attempt),
                    temperature=float(temperature),
                )
                for attempt in range(attempts)
            ]
        accepted = await self._store.add(rollouts)
        self._work.set()
        return web.json_response({"accepted": accepted, "known": len(rollouts) - accepted})

    async def _post_lease(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        count, wait = _get(body, "max", int, default=64), _get(body, "wait_seconds", (int, float), default=0)
        deadline = time.monotonic() + wait
        while True:
            seen = self._episodes
            frames = await self._store.lease(count, self.config.lease_seconds, limit_bytes=MAX_LEASE_BYTES)
            left = deadline - time.monotonic()
            if frames or left <= 0 or self._stopping.is_set():
                break
            # Leases that run out wake nobody, hence a wait is not longer than a lease.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._change(seen), min(left, self.config.lease_seconds))
        response = web.StreamResponse(headers={"X-Rollouts": str(len(frames))})
        response.content_type = "application/octet-stream"
        response.content_length = sum(8 + len(frame) for frame in frames)
        await response.prepare(request)
        for frame in frames:
            await response.write(len(frame).to_bytes(8, "little"))
            await response.write(frame)
        await response.write_eof()
        return response

    async def _post_ack(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"acked": await self._store.ack(_get(await _body(request), "rollout_ids", list))}
        )

    async def _post_cancel(self, request: web.Request) -> web.Response:
        body = await _body(request)
        reason = _get(body, "reason", str, default="cancelled by the learner")
        cancelled = await self._store.cancel(_get(body, "group_ids", list), reason)
        for rollout_id in cancelled:
            if rollout_id in self._running:
                self._running[rollout_id].cancel()
        return web.json_response({"cancelled": len(cancelled), "rollout_ids": cancelled})

    async def _get_status(self, _: web.Request) -> web.Response:
        now, window = time.monotonic(), 60.0
        recent = [entry for entry in self._recent if now - entry[0] < window]
        seconds = min(window, max(now - self._started, 1e-9))
        return web.json_response(
            {
                "states": await self._store.counts(),
                "in_flight": len(self._running),
                "concurrency": self.config.concurrency,
                "endings": dict(self._endings),
                "episodes_per_second": len(recent) / seconds,
                "turns_per_second": sum(turns for _, turns, _ in recent) / seconds,
                "sampled_tokens_per_second": sum(tokens for _, _, tokens in recent) / seconds,
                "mean_turns": sum(turns for _, turns, _ in recent) / max(len(recent), 1),
                "uptime_seconds": now - self._started,
            }
        )

    async def _get_health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})


def rollout_seed(seed: int, attempt: int) -> int:
    """The seed of one attempt of a group, in 0 .. 2**31 - 1."""
    digest = hashlib.sha256(f"rollout/{seed}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


def _empty(rollout: Rollout, reason: str) -> Trajectory:
    """The frame of a rollout that could not be played: no tokens, no reward."""
    return Trajectory(
        rollout_id=rollout.rollout_id,
        group_id=rollout.group_id,
        task=Path(rollout.task).name,
        ending="infra_error",
        tokens=np.zeros(0, np.int32),
        loss_mask=np.zeros(0, bool),
        rollout_logprobs=np.zeros(0, np.float32),
        versions=np.zeros(0, np.int32),
        metadata={"infra_errors": [reason]},
    )


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


@web.middleware
async def _input_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """A caller's mistake is answered with 400 and one line, never with a traceback."""
    try:
        return await handler(request)
    except InputError as error:
        return web.json_response({"error": str(error)}, status=400)


async def _serve(config: RolloutConfig) -> None:
    if config.backend not in BACKENDS:
        raise InputError(f"backend: {config.backend!r}, expected one of {', '.join(BACKENDS)}")
    if config.concurrency < 1:
        raise InputError(f"concurrency: {config.concurrency}, expected at least 1")
    backend = BACKENDS[config.backend]
    backend.check()
    chat = ChatFormat.load(config.checkpoint)
    engine = EnginePolicy(
        config.engine_url,
        stop_ids=chat.stop_ids,
        shape=RouteShape.from_checkpoint(config.checkpoint),
        record_routes=config.record_routes,
        patience=config.engine_patience,
    )
    store = await Store.open(config.store)
    try:
        async with engine:
            service = RolloutService(config, store, chat, engine, backend)
            runner = web.AppRunner(service.app, access_log=None, shutdown_timeout=5)
            await runner.setup()
            try:
                port = await _listen(runner, config)
                print(f"rollout service listening on http://{config.host}:{port}", flush=True)
                print(f"backend {backend.name}, {backend.limits()}", flush=True)
                loop = asyncio.get_running_loop()
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, service.stop)
                await service.run()
            finally:
                await runner.cleanup()
    finally:
        await store.close()


async def _listen(runner: web.AppRunner, config: RolloutConfig) -> int:
    """Start listening; returns the port (another than asked for only where 0 was)."""
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port: {config.port} on {config.host} is in use, expected a free port"
            ) from error
        raise InputError(f"host {config.host}, port {config.port}: {error.strerror}") from error
    return runner.addresses[0][1]


def serve(config: RolloutConfig) -> None:
    """Run the rollout service until SIGTERM or SIGINT; prints one line once it listens.

    Running episodes are then stopped and queued again. Raises InputError when the checkpoint, the backend,
    the store or the port cannot be used.
    """
    asyncio.run(_serve(config))
