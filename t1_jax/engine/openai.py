"""OpenAI's /v1/completions and /v1/chat/completions over the engine, without streaming."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from t1_jax.engine.request import (
    GenerateRequest,
    GenerateResult,
    Limits,
    RequestError,
    check_prompt,
    parse_ids,
    parse_sampling,
)
from t1_jax.engine.text import TextFormat

Run = Callable[[GenerateRequest], Awaitable[GenerateResult]]
_FINISH = {"stop": "stop", "length": "length", "abort": "abort"}


def _request(body: dict[str, Any], ids: Any, limits: Limits, default_tokens: int) -> GenerateRequest:
    prompt = check_prompt(parse_ids(ids, "prompt", limits.vocab_size), limits)
    for name in ("stream", "echo", "best_of", "suffix"):
        if body.get(name):
            raise RequestError(f"{name} is not supported")
    names = {
        "temperature",
        "top_p",
        "top_k",
        "n",
        "frequency_penalty",
        "presence_penalty",
        "min_p",
        "ignore_eos",
        "stop_token_ids",
        "logit_bias",
        "repetition_penalty",
    }
    sampling = {name: body[name] for name in names if body.get(name) is not None}
    wanted = body.get("max_completion_tokens", body.get("max_tokens"))
    sampling["max_new_tokens"] = default_tokens if wanted is None else wanted
    if body.get("seed") is not None:
        sampling["sampling_seed"] = body["seed"]
    return GenerateRequest(
        rid=uuid.uuid4().hex, input_ids=prompt, sampling=parse_sampling(sampling, len(prompt), limits)
    )


def _cut(text: str, reason: str, body: dict[str, Any]) -> tuple[str, str]:
    """Cut the text at the first stop string. The engine stops at ids only, so strings are looked for
    afterwards.
    """
    stops = body.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise RequestError("stop must be a string or a list of strings")
    ends = [text.find(stop) for stop in stops if stop in text]
    return (text[: min(ends)], "stop") if ends else (text, reason)


def _frame(kind: str, name: str, result: GenerateResult, choice: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{'cmpl' if kind == 'text_completion' else 'chatcmpl'}-{result.rid}",
        "object": kind,
        "created": int(time.time()),
        "model": name,
        "choices": [{"index": 0, **choice}],
        "usage": {
            "prompt_tokens": result.prompt_tokens,
            "completion_tokens": len(result.output_ids),
            "total_tokens": result.prompt_tokens + len(result.output_ids),
            "prompt_tokens_details": {"cached_tokens": result.cached_tokens},
        },
    }


async def completions(
    body: dict[str, Any], text: TextFormat, limits: Limits, run: Run, name: str
) -> dict[str, Any]:
    """`prompt` is a text or a list of token ids. `logprobs` gives those of the sampled tokens."""
    prompt = body.get("prompt")
    ids = text.encode(prompt) if isinstance(prompt, str) else prompt
    _cut("", "", body)
    result = await run(_request(body, ids, limits, 16))
    shown, reason = _cut(
        text.decode(result.output_ids, skip_special_tokens=True), _FINISH[result.finish_reason["type"]], body
    )
    choice: dict[str, Any] = {"text": shown, "finish_reason": reason, "logprobs": None}
    if body.get("logprobs") is not None and body["logprobs"] is not False:
        tokens = [text.decode([token], skip_special_tokens=False) for token in result.output_ids]
        choice["logprobs"] = {"tokens": tokens, "token_logprobs": result.logprobs, "top_logprobs": None}
    if body.get("return_token_ids"):
        choice["token_ids"] = result.output_ids
    return _frame("text_completion", name, result, choice)


async def chat_completions(
    body: dict[str, Any], text: TextFormat, limits: Limits, run: Run, name: str
) -> dict[str, Any]:
    """The conversation through the checkpoint's chat template; `chat_template_kwargs` go to the template."""
    extra = body.get("chat_template_kwargs") or {}
    if not isinstance(extra, dict) or {"messages", "tools", "add_generation_prompt"} & set(extra):
        raise RequestError(
            "chat_template_kwargs must be an object without messages, tools and add_generation_prompt"
        )
    ids = text.chat_ids(body.get("messages"), body.get("tools"), extra)
    _cut("", "", body)
    result = await run(_request(body, ids, limits, limits.max_length))
    shown, reason = _cut(
        text.decode(result.output_ids, skip_special_tokens=True), _FINISH[result.finish_reason["type"]], body
    )
    choice: dict[str, Any] = {
        "message": {"role": "assistant", "content": shown},
        "finish_reason": reason,
        "logprobs": None,
    }
    if body.get("logprobs"):
        choice["logprobs"] = {
            "content": [
                {
                    "token": text.decode([token], skip_special_tokens=False),
                    "logprob": value,
                    "top_logprobs": [],
                }
                for token, value in zip(result.output_ids, result.logprobs, strict=True)
            ]
        }
    return _frame("chat.completion", name, result, choice)
