"""The engine over HTTP: SGLang's native /generate and control routes, and OpenAI's completions.

The aiohttp loop parses, waits and answers; all JAX work is in the engine's thread.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import logging
import math
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from aiohttp import web

from sandbox.errors import InputError
from t1_jax.checkpoint.manager import load_checkpoint
from t1_jax.engine import openai
from t1_jax.engine.engine import EngineThread, counters_text
from t1_jax.engine.request import GenerateRequest, GenerateResult, Limits, RequestError, parse_generate
from t1_jax.engine.runner import Params
from t1_jax.engine.scheduler import Scheduler
from t1_jax.engine.text import TextFormat
from t1_jax.model.config import ModelConfig

logger = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAUSE_MODES = ("in_place", "retract", "abort")


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """One engine process. The cache holds slots + snapshots rows of max_length tokens."""

    checkpoint: str
    host: str = "127.0.0.1"
    port: int = 30000  # 0 = any free one
    dtype: Literal["bfloat16", "float32"] | None = None  # None = the checkpoint's
    deterministic: bool | None = None  # None = the checkpoint's
    slots: int = 64  # sequences that run or rest at a time
    snapshots: int = 16  # freshly prefilled prompts kept for later members of their group
    max_length: int = 1024  # tokens, prompt and output together
    decode_block: int = 16  # decode steps between two looks at the queue, half as many while requests wait
    max_waiting: int = 1024  # requests queued before 429

    def __post_init__(self) -> None:
        for name, low in (
            ("port", 0),
            ("slots", 1),
            ("snapshots", 0),
            ("max_length", 2),
            ("decode_block", 1),
            ("max_waiting", 1),
        ):
            if getattr(self, name) < low:
                raise InputError(f"serve config: {name} is {getattr(self, name)}, expected at least {low}")


class Server:
    """The HTTP application around one engine thread."""

    def __init__(self, config: ServeConfig) -> None:
        """Nothing is loaded yet: `start` does that."""
        self.config = config
        self._update = asyncio.Lock()
        self.engine = EngineThread(self._build)
        self.app = web.Application(middlewares=[_errors], client_max_size=64 * 2**20)
        self.app.add_routes(
            [
                web.post("/generate", self._generate),
                web.get("/health", self._health),
                web.get("/health_generate", self._health),
                web.get("/metrics", self._metrics),
                web.get("/get_model_info", self._model_info),
                web.get("/v1/models", self._models),
                web.post("/update_weights_from_disk", self._update_weights),
                web.post("/pause_generation", self._pause),
                web.post("/continue_generation", self._continue),
                web.post("/flush_cache", self._flush),
                web.post("/abort_request", self._abort),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
            ]
        )

    def _build(self) -> Scheduler:
        params, model, meta = load_checkpoint(Path(self.config.checkpoint))
        deterministic = self.config.deterministic
        self.model = dataclasses.replace(
            model,
            dtype=self.config.dtype or model.dtype,
            deterministic=model.deterministic if deterministic is None else deterministic,
        )
        self.text = TextFormat.load(Path(self.config.checkpoint))
        self.model_path = self.config.checkpoint
        self.limits = Limits(
            vocab_size=model.vocab_size,
            max_length=self.config.max_length,
            default_stop_ids=self.text.stop_ids,
        )
        return Scheduler(
            params,
            self.model,
            slots=self.config.slots,
            snapshots=self.config.snapshots,
            max_length=self.config.max_length,
            decode_block=self.config.decode_block,
            max_waiting=self.config.max_waiting,
            version=str(meta.get("version", 0)),
        )

    async def start(self) -> None:
        """Load the checkpoint and build the engine. Raises InputError when the checkpoint can't be read."""
        self.engine.start()
        self.scheduler = await asyncio.wrap_future(self.engine.ready)

    async def stop(self) -> None:
        """End what is in flight and the engine's thread."""
        await asyncio.to_thread(self.engine.stop)

    # --- generation -----------------------------------------------------------------------------------------

    async def run(self, request: GenerateRequest) -> GenerateResult:
        """One request to its end; when the client goes away, so does the request."""
        try:
            return await asyncio.wrap_future(self.engine.generate(request))
        except asyncio.CancelledError:
            self.engine.call(lambda scheduler: scheduler.cancel(request))
            raise

    async def _generate(self, http: web.Request) -> web.Response:
        body = await _body(http)
        ids = None
        if "input_ids" not in body and isinstance(body.get("text"), str):
            ids = self.text.encode(body["text"])
        request = parse_generate(body, ids, self.limits)
        result = await self.run(request)
        sampling = body.get("sampling_params") or {}
        return web.json_response(
            {
                "text": self.text.decode(
                    result.output_ids, skip_special_tokens=sampling.get("skip_special_tokens", True)
                ),
                "output_ids": result.output_ids,
                "meta_info": meta_info(
                    result, self.scheduler.version, logprobs=bool(body.get("return_logprob"))
                ),
            }
        )

    async def _completions(self, http: web.Request) -> web.Response:
        body = await _body(http)
        return web.json_response(await openai.completions(body, self.text, self.limits, self.run, self.name))

    async def _chat(self, http: web.Request) -> web.Response:
        body = await _body(http)
        return web.json_response(
            await openai.chat_completions(body, self.text, self.limits, self.run, self.name)
        )

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What /v1/models calls the model: the name of the folder that the server was started with."""
        return Path(self.config.checkpoint).name

    async def _health(self, _: web.Request) -> web.Response:
        if not self.engine.alive:
            raise RequestError("the engine's thread has ended", kind="internal_error", status=503)
        return web.json_response({"status": "ok"})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(text=counters_text(self.scheduler))

    async def _model_info(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "model_path": self.model_path,
                "tokenizer_path": self.config.checkpoint,
                "is_generation": True,
                "weight_version": self.scheduler.version,
                "served_model_name": self.name,
                "dtype": self.model.dtype,
                "vocab_size": self.model.vocab_size,
                "max_length": self.config.max_length,
                "slots": self.config.slots,
                "num_moe_layers": self.model.num_moe_layers,
                "num_experts": self.model.num_experts,
                "num_experts_per_tok": self.model.num_experts_per_tok,
                "routed_experts_dtype": str(self.model.routes_dtype),
            }
        )

    async def _models(self, _: web.Request) -> web.Response:
        entry = {
            "id": self.name,
            "object": "model",
            "owned_by": "t1-jax",
            "max_model_len": self.config.max_length,
        }
        return web.json_response({"object": "list", "data": [entry]})

    # --- control --------------------------------------------------------------------------------------------

    async def _call(self, function: Callable[[Scheduler], Any]) -> Any:
        return await asyncio.wrap_future(self.engine.call(function))

    async def _pause(self, http: web.Request) -> web.Response:
        mode = (await _body(http, empty=True)).get("mode", "in_place")
        if mode not in PAUSE_MODES:
            raise RequestError(f"mode is {mode!r:.60}, expected one of {', '.join(PAUSE_MODES)}")
        await self._call(lambda scheduler: scheduler.pause(mode))
        return web.json_response({"status": "ok", "message": "Generation paused successfully."})

    async def _continue(self, http: web.Request) -> web.Response:
        await self._call(lambda scheduler: scheduler.resume())
        return web.json_response({"status": "ok", "message": "Generation continued successfully."})

    async def _flush(self, _: web.Request) -> web.Response:
        await self._call(lambda scheduler: scheduler.table.flush())
        return web.json_response({"status": "ok"})

    async def _abort(self, http: web.Request) -> web.Response:
        body = await _body(http)
        rid = None if body.get("abort_all") is True else body.get("rid")
        if rid is None and body.get("abort_all") is not True:
            raise RequestError('expected {"rid": string} or {"abort_all": true}')
        if not isinstance(rid, str | None):
            raise RequestError('expected {"rid": string} or {"abort_all": true}')
        aborted = await self._call(lambda scheduler: scheduler.abort(rid))
        return web.json_response({"status": "ok", "aborted": aborted})

    async def _update_weights(self, http: web.Request) -> web.Response:
        body = await _body(http)
        path, version = body.get("model_path"), body.get("weight_version")
        if not isinstance(path, str) or not path:
            raise RequestError("model_path must be the path of a checkpoint folder")
        if version is not None and (isinstance(version, bool) or not isinstance(version, str | int)):
            raise RequestError(f"weight_version is {version!r:.60}, expected a string")
        async with self._update:
            try:
                # Read beside the running engine: only the swap itself stops decoding.
                params, meta = await asyncio.to_thread(self._load, Path(path))
            except InputError as error:
                return web.json_response(
                    {
                        "success": False,
                        "message": str(error),
                        "error": {"type": "invalid_request_error", "message": str(error)},
                    },
                    status=400,
                )
            fresh = str(meta.get("version", 0) if version is None else version)
            if body.get("abort_all_requests"):
                await self._call(lambda scheduler: scheduler.abort(None, "the weights were updated"))
            count = await self._call(lambda scheduler: scheduler.update_weights(params, fresh))
            self.model_path = path
        return web.json_response(
            {
                "success": True,
                "message": "Succeeded to update model weights.",
                "num_paused_requests": count,
                "weight_version": fresh,
            }
        )

    def _load(self, path: Path) -> tuple[Params, dict[str, Any]]:
        params, model, meta = load_checkpoint(path)
        check_same_model(self.model, model, path)
        return params, meta


def check_same_model(ours: ModelConfig, other: ModelConfig, path: Path) -> None:
    """Refuse weights of another architecture, naming the first field that differs; the compute dtype is ours
    to choose.
    """
    for field in dataclasses.fields(ModelConfig):
        mine, theirs = getattr(ours, field.name), getattr(other, field.name)
        if field.name not in ("dtype", "deterministic", "initializer_range") and mine != theirs:
            raise InputError(f"{path}: {field.name} is {theirs}, the running engine has {mine}")


def meta_info(result: GenerateResult, weight_version: str, *, logprobs: bool) -> dict[str, Any]:
    """SGLang's meta_info of one result."""
    meta: dict[str, Any] = {
        "id": result.rid,
        "finish_reason": result.finish_reason,
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": len(result.output_ids),
        "cached_tokens": result.cached_tokens,
        "e2e_latency": result.seconds,
        "weight_versions": result.version_spans,
        "weight_version": result.versions[-1] if result.versions else weight_version,
    }
    if logprobs:
        # JSON has no infinities or NaN; a log-prob that isn't finite is told as null
        values = [value if math.isfinite(value) else None for value in result.logprobs]
        meta["output_token_logprobs"] = [[v, t, None] for v, t in zip(values, result.output_ids, strict=True)]
        meta["input_token_logprobs"] = []
    if result.routed_experts is not None:
        routes = np.ascontiguousarray(result.routed_experts, result.routed_experts.dtype.newbyteorder("<"))
        meta |= {
            "routed_experts": base64.b64encode(routes.tobytes()).decode("ascii"),
            "routed_experts_dtype": str(result.routed_experts.dtype),
            "routed_experts_shape": list(routes.shape),
            "routed_experts_start_len": result.routed_experts_start,
        }
    return meta


async def _body(http: web.Request, *, empty: bool = False) -> dict[str, Any]:
    """The JSON object of a request. RequestError when it isn't one; `empty` lets no body stand for {}."""
    if empty and not http.can_read_body:
        return {}
    try:
        body = await http.json()
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    return body


def _refusal(kind: str, message: str, status: int) -> web.Response:
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.json_response({"error": {"type": kind, "message": message}}, status=status, headers=headers)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure as {"error": {"type", "message"}}; none of them ends the server."""
    try:
        return await handler(request)
    except RequestError as error:
        return _refusal(error.kind, str(error), error.status)
    except web.HTTPException as error:
        return _refusal(
            "invalid_request_error", f"{request.method} {request.path}: {error.reason}", error.status
        )
    except Exception as error:
        logger.exception("%s %s failed", request.method, request.path)
        return _refusal("internal_error", f"{type(error).__name__}", 500)


async def _serve(config: ServeConfig) -> None:
    listener = _bind(config)  # before the checkpoint is read: a taken port should not cost a minute to learn
    server = Server(config)
    await server.start()
    runner = web.AppRunner(server.app, handler_cancellation=True, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    print(f"engine listening on http://{config.host}:{listener.getsockname()[1]}", flush=True)
    await stopping.wait()
    await server.stop()
    await runner.cleanup()


def _bind(config: ServeConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise InputError(
            f"serve: {config.host}:{config.port}: {reason}, expected a free port of this machine"
        ) from error
    return listener


def serve(config: ServeConfig) -> None:
    """Serve until SIGTERM or SIGINT. InputError for a taken port or a checkpoint that can't be read."""
    logging.basicConfig(level=logging.INFO)
    logger.info("engine on %s", jax.devices()[0].device_kind)
    asyncio.run(_serve(config))
