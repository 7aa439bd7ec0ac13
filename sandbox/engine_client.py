"""The client of an inference engine that speaks SGLang's native HTTP form: ids in; ids, log-probs and experts
out.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from sandbox.errors import InputError
from sandbox.policy import ContextLengthError, Generation, PolicyError

RETRY_STATUS = frozenset({429, 502, 503, 504})
CONTEXT_EXCEEDED = (
    "context_length_exceeded",  # ours, OpenAI's
    "longer than the model's context length",  # SGLang's
    "maximum context length",  # vLLM's
)
# A sampled id whose log-prob the engine could not represent (-inf, NaN): very unlikely, but not a reason to
# stop.
LOWEST_LOGPROB = -9999.0


@dataclass(frozen=True, kw_only=True)
class RouteShape:
    """What a row of routes is, where the engine does not say: L layers, K experts per token, E experts."""

    layers: int
    experts_per_token: int
    num_experts: int

    @classmethod
    def from_checkpoint(cls, folder: str | Path) -> RouteShape | None:
        """Read it off a checkpoint's config.json (flat, or inside text_config); None for a model without
        experts.
        """
        path = Path(folder) / "config.json"
        if not path.is_file():
            return None
        config = json.loads(path.read_text("utf-8"))
        config = config.get("text_config", config)
        if "num_experts_per_tok" not in config:
            return None
        return cls(
            layers=config["num_hidden_layers"],
            experts_per_token=config["num_experts_per_tok"],
            num_experts=config["num_experts"],
        )


def parse_routes(meta: dict[str, Any], shape: RouteShape | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Decode `meta_info.routed_experts` to (uint8 or uint16 [R, L, K], validity bool [R] or None when all are
    valid).

    Two forms: ours, with `routed_experts_dtype` and `routed_experts_shape` beside it; and SGLang's bare
    int32, whose L and K come from `shape`. A row of -1s was not recorded. Raises PolicyError when the bytes
    do not fit.
    """
    data = base64.b64decode(meta["routed_experts"])
    kind = np.dtype(meta.get("routed_experts_dtype", "int32")).newbyteorder("<")
    dimensions = meta.get("routed_experts_shape")
    if dimensions is None:
        if shape is None:
            raise PolicyError(
                "engine: routed_experts without a shape, and the checkpoint has no config.json to tell it"
            )
        dimensions = (-1, shape.layers, shape.experts_per_token)
    row = int(np.prod(dimensions[1:])) * kind.itemsize
    if len(dimensions) != 3 or row == 0 or len(data) % row or dimensions[0] not in (-1, len(data) // row):
        raise PolicyError(
            f"engine: routed_experts holds {len(data)} bytes, which is not {kind} {tuple(dimensions)}"
        )
    routes = np.frombuffer(data, kind).reshape(-1, *dimensions[1:])
    experts = shape.num_experts if shape else 65536
    if kind.kind == "u" and kind.itemsize <= 2:
        if routes.size and routes.max() >= experts:
            raise PolicyError(f"engine: routed_experts holds ids outside 0..{experts - 1}")
        return routes, None
    # Signed ids are checked before they are narrowed: a cast would wrap -1 to an expert that never ran.
    valid = np.any(routes != -1, axis=(1, 2))
    if routes.size and (routes.max() >= experts or np.any((routes < 0) & valid[:, None, None])):
        raise PolicyError(f"engine: routed_experts holds ids outside 0..{experts - 1}")
    narrow = np.where(valid[:, None, None], routes, 0).astype(np.uint8 if experts <= 256 else np.uint16)
    return narrow, None if valid.all() else valid


def parse_generation(
    answer: dict[str, Any], *, rows: int | None, shape: RouteShape | None = None
) -> Generation:
    """Check and decode a /generate answer.

    `rows` is how many rows of routes must come with it beside one for each output id but the last (the inputs
    from the start that was asked for, see EnginePolicy), or None when none were asked for. Raises
    PolicyError.
    """
    meta, ids = answer["meta_info"], list(answer["output_ids"])
    reason = meta["finish_reason"]["type"]
    if reason == "abort":
        return Generation(output_ids=[], logprobs=[], finish_reason=reason)
    logged = meta["output_token_logprobs"]
    if [item[1] for item in logged] != ids:
        raise PolicyError("engine: the ids in output_token_logprobs are not output_ids")
    if not ids:
        raise PolicyError("engine: an answer without output ids")
    logprobs = [
        item[0] if item[0] is not None and math.isfinite(item[0]) else LOWEST_LOGPROB for item in logged
    ]
    spans = [
        (_version(span["version"]), span["start"], span["end"]) for span in meta.get("weight_versions") or []
    ]
    spans = spans or [(_version(meta.get("weight_version", 0)), 0, len(ids))]
    if [0, *(end for _, _, end in spans)] != [*(start for _, start, _ in spans), len(ids)]:
        raise PolicyError(f"engine: weight_versions {spans} do not tile {len(ids)} output ids")
    routes = valid = None
    if rows is not None:
        if not meta.get("routed_experts"):
            raise PolicyError("engine: no routed_experts in the answer, is the engine recording them?")
        routes, valid = parse_routes(meta, shape)
        if len(routes) != rows + len(ids) - 1:
            raise PolicyError(f"engine: {len(routes)} rows of routed_experts, expected {rows + len(ids) - 1}")
    return Generation(
        output_ids=ids,
        logprobs=logprobs,
        finish_reason=reason,
        routed_experts=routes,
        routed_valid=valid,
        version_spans=spans,
    )


def _version(value: Any) -> int:
    # SGLang calls the weights that it started with "default".
    text = str(value)
    return int(text) if text.lstrip("-").isdigit() else 0


async def post_json(
    session: aiohttp.ClientSession,
    url: str,
    body: dict[str, Any],
    headers: dict[str, str] | None = None,
    *,
    patience: float,
) -> dict[str, Any]:
    """POST a JSON body and decode the JSON answer.

    A busy or restarting engine (429, 5xx of a gateway, a refused or lost connection) is asked again for up to
    `patience` seconds, with growing pauses; then PolicyError. Raises ContextLengthError when the engine says
    that the request is too long for its model.
    """
    data = json.dumps(body, separators=(",", ":")).encode()
    clock = asyncio.get_running_loop().time
    deadline, pause = clock() + patience, 0.05
    while True:
        try:
            async with session.post(
                url, data=data, headers={"Content-Type": "application/json", **(headers or {})}
            ) as response:
                if response.status == 200:
                    return json.loads(await response.read())
                problem = f"HTTP {response.status} {(await response.text())[:300]}"
                if response.status == 400 and any(text in problem for text in CONTEXT_EXCEEDED):
                    raise ContextLengthError(f"engine {url}: {problem}")
                again = response.status in RETRY_STATUS
        except (aiohttp.ClientError, TimeoutError) as error:
            problem, again = f"{type(error).__name__} {error}", True
        except ValueError as error:
            problem, again = f"an answer that is not JSON ({error})", False
        if not again or clock() + pause > deadline:
            raise PolicyError(f"engine {url}: {problem}")
        await asyncio.sleep(pause)
        pause = min(2 * pause, 5.0)


class EnginePolicy:
    """A policy behind HTTP. One session serves all episodes; `async with` opens and closes it.

    `record_routes` asks for the experts. `patience`: see `post_json`.
    """

    def __init__(
        self,
        url: str,
        *,
        stop_ids: tuple[int, ...],
        shape: RouteShape | None = None,
        record_routes: bool = True,
        patience: float = 300.0,
        request_timeout: float = 600.0,
    ) -> None:
        self.url = url.rstrip("/")
        self._stop_ids = list(stop_ids)
        self._shape = shape
        self._record_routes = record_routes
        self._patience = patience
        self._timeout = aiohttp.ClientTimeout(total=request_timeout, sock_connect=10)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> EnginePolicy:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=self._timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def model_info(self) -> dict[str, Any]:
        """The engine's /get_model_info. Raises InputError when no engine answers at the URL."""
        assert self._session is not None
        try:
            async with self._session.get(f"{self.url}/get_model_info") as response:
                response.raise_for_status()
                return await response.json()
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            raise InputError(
                f"engine {self.url}: no answer from /get_model_info ({error}), expected a running engine"
            ) from error

    async def generate(
        self,
        input_ids: list[int],
        *,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        routed_from: int,
        rid: str,
    ) -> Generation:
        """See Policy. A cancelled call also aborts the request in the engine, which frees its slot."""
        body: dict[str, Any] = {
            "rid": rid,
            "input_ids": input_ids,
            "return_logprob": True,
            "logprob_start_len": -1,
            "sampling_params": {
                "temperature": temperature,
                "top_p": 1.0,
                "top_k": -1,
                "max_new_tokens": max_new_tokens,
                "stop_token_ids": self._stop_ids,
                "skip_special_tokens": False,
                "no_stop_trim": True,
                "spaces_between_special_tokens": False,
                "sampling_seed": seed,
            },
        }
        if self._record_routes:
            body |= {"return_routed_experts": True, "routed_experts_start_len": routed_from}
        try:
            answer = await self._post("/generate", body, session_key=rid.partition(":")[0])
        except asyncio.CancelledError:
            await asyncio.shield(self._abort(rid))
            raise
        rows = len(input_ids) - routed_from if self._record_routes else None
        return parse_generation(answer, rows=rows, shape=self._shape)

    async def _post(self, path: str, body: dict[str, Any], *, session_key: str) -> dict[str, Any]:
        assert self._session is not None
        # SGLang's router keeps a session on one engine by this header, where its prefix is cached.
        return await post_json(
            self._session, self.url + path, body, {"X-SMG-Routing-Key": session_key}, patience=self._patience
        )

    async def _abort(self, rid: str) -> None:
        assert self._session is not None
        try:
            async with self._session.post(
                f"{self.url}/abort_request", json={"rid": rid}, timeout=aiohttp.ClientTimeout(total=5)
            ):
                pass
        except (aiohttp.ClientError, TimeoutError):
            pass  # the engine is gone, and the request with it
