"""What a client may ask of the engine: parsed strictly, so that nothing is silently ignored that would change
a sample.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MAX_STOP_IDS = 8  # one compiled width for every request

# Fields of SGLang's /generate that change only how text is shown, which a token-in-token-out client ignores.
_DISPLAY = frozenset({"skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"})
# Fields that would change the sampled distribution, with the only value that this engine implements.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "min_p": (0, None),
    "min_new_tokens": (0, None),
    "n": (1, None),
    "frequency_penalty": (0, None),
    "presence_penalty": (0, None),
    "repetition_penalty": (1, None),
    "stop": (None, [], ""),
    "logit_bias": (None, {}),
    "regex": (None,),
    "json_schema": (None,),
    "ebnf": (None,),
    "structural_tag": (None,),
    "stop_regex": (None, []),
    "custom_params": (None,),
    "stream_interval": (None,),
}


class RequestError(Exception):
    """A request that the engine refuses. `kind` and `status` go to the client as a typed JSON error."""

    def __init__(self, message: str, *, kind: str = "invalid_request_error", status: int = 400) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to draw tokens. Temperature 0 is greedy; its log-probs are those at temperature 1, as in SGLang."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1  # -1 = all
    max_new_tokens: int = 128
    stop_token_ids: tuple[int, ...] = ()
    seed: int = 0  # 0 <= seed < 2**63; the draw at a position depends on (seed, position) only

    @property
    def truncates(self) -> bool:
        """Whether top_p or top_k cut the distribution, which needs a sort of the vocabulary."""
        return self.temperature > 0 and (self.top_p < 1.0 or self.top_k > 0)


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """One generation: token ids in, token ids out."""

    rid: str
    input_ids: np.ndarray  # int32 [prompt_tokens]
    sampling: SamplingParams
    routed_experts_start: int | None = None  # None = no routes wanted


@dataclass(frozen=True, kw_only=True)
class GenerateResult:
    """What a request ended with. N output tokens; routes for rows [routed_experts_start, rows forwarded)."""

    rid: str
    output_ids: list[int]
    logprobs: list[float]
    versions: list[str]  # [N], the weight version that sampled each token
    finish_reason: dict[str, Any]
    prompt_tokens: int
    cached_tokens: int
    routed_experts_start: int | None = None
    routed_experts: np.ndarray | None = None  # uint8 or uint16 [R, L, K]
    seconds: float = 0.0

    @property
    def version_spans(self) -> list[dict[str, Any]]:
        """Half-open spans over the output ids: [{"version", "start", "end"}]."""
        spans: list[dict[str, Any]] = []
        for t, version in enumerate(self.versions):
            if spans and spans[-1]["version"] == version:
                spans[-1]["end"] = t + 1
            else:
                spans.append({"version": version, "start": t, "end": t + 1})
        return spans


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the loaded model and cache allow."""

    vocab_size: int
    max_length: int
    default_stop_ids: tuple[int, ...] = field(default=())


def _number(
    body: Mapping[str, Any], name: str, default: float, low: float, high: float, *, whole: bool
) -> float:
    value = body.get(name)
    if value is None:
        return default
    kinds = (int,) if whole else (int, float)
    # NaN fails both comparisons' conjunction; booleans are ints in Python but never meant as numbers here.
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        raise RequestError(
            f"{name} is {value!r}, expected {'an integer' if whole else 'a number'} in [{low}, {high}]"
        )
    return value


def parse_ids(value: Any, name: str, vocab_size: int) -> np.ndarray:
    """A list of token ids as int32 [n]. Raises RequestError naming the first bad entry."""
    if not isinstance(value, list) or not value:
        raise RequestError(f"{name} must be a non-empty list of token ids")
    for index, token in enumerate(value):
        if isinstance(token, bool) or not isinstance(token, int):
            raise RequestError(f"{name}[{index}] is {token!r:.60}, expected an integer")
        if not 0 <= token < vocab_size:
            raise RequestError(f"{name}[{index}] is {token}, outside the vocabulary of {vocab_size}")
    return np.asarray(value, np.int32)


def parse_sampling(body: Any, prompt_tokens: int, limits: Limits) -> SamplingParams:
    """`sampling_params` of /generate. max_new_tokens is clamped to what the cache still holds."""
    body = {} if body is None else body
    if not isinstance(body, dict):
        raise RequestError("sampling_params must be an object")
    known = {
        "temperature",
        "top_p",
        "top_k",
        "max_new_tokens",
        "stop_token_ids",
        "sampling_seed",
        "ignore_eos",
    }
    for name, value in body.items():
        if name in _NEUTRAL and value not in _NEUTRAL[name]:
            raise RequestError(
                f"sampling_params.{name} is {value!r:.60}, this engine supports only {_NEUTRAL[name][0]!r}"
            )
        if name not in known and name not in _NEUTRAL and name not in _DISPLAY:
            raise RequestError(
                f"sampling_params.{name} is unknown, expected one of {', '.join(sorted(known))}"
            )
    stops = body.get("stop_token_ids") or []
    stop_ids = (
        {int(token) for token in parse_ids(stops, "stop_token_ids", limits.vocab_size)} if stops else set()
    )
    ignore_eos = body.get("ignore_eos", False)
    if not isinstance(ignore_eos, bool):
        raise RequestError(f"sampling_params.ignore_eos is {ignore_eos!r}, expected true or false")
    if not ignore_eos:
        stop_ids |= set(limits.default_stop_ids)
    if len(stop_ids) > MAX_STOP_IDS:
        raise RequestError(
            f"{len(stop_ids)} stop ids, the end-of-text ids included; at most {MAX_STOP_IDS} are supported"
        )
    top_k = int(_number(body, "top_k", -1, -1, 2**31 - 1, whole=True))
    if top_k == 0:
        raise RequestError("top_k is 0, expected -1 (all) or a positive integer")
    top_p = float(_number(body, "top_p", 1.0, 0.0, 1.0, whole=False))
    if top_p == 0.0:
        raise RequestError("top_p is 0, expected a number in (0, 1]")
    wanted = int(_number(body, "max_new_tokens", 128, 1, 2**31 - 1, whole=True))
    return SamplingParams(
        temperature=float(_number(body, "temperature", 1.0, 0.0, 100.0, whole=False)),
        top_p=top_p,
        top_k=top_k,
        max_new_tokens=min(wanted, limits.max_length - prompt_tokens),
        stop_token_ids=tuple(sorted(stop_ids)),
        seed=int(_number(body, "sampling_seed", secrets.randbits(31), 0, 2**63 - 1, whole=True)),
    )


def check_prompt(ids: np.ndarray, limits: Limits) -> np.ndarray:
    """Refuse a prompt that leaves no room for a single new token."""
    if len(ids) >= limits.max_length:
        raise RequestError(
            f"the prompt has {len(ids)} tokens, at most {limits.max_length - 1} fit "
            f"a cache of {limits.max_length}",
            kind="context_length_exceeded",
        )
    return ids


def parse_generate(body: Mapping[str, Any], ids: Sequence[int] | None, limits: Limits) -> GenerateRequest:
    """The body of POST /generate. `ids` are the encoded `text` when the body has that in place of
    `input_ids`.
    """
    prompt = check_prompt(
        parse_ids(body.get("input_ids") if ids is None else list(ids), "input_ids", limits.vocab_size), limits
    )
    for name in ("stream", "return_hidden_states"):
        if body.get(name):
            raise RequestError(f"{name} is not supported")
    if (
        body.get("top_logprobs_num")
        or body.get("token_ids_logprob")
        or body.get("logprob_start_len", -1) not in (-1, None)
    ):
        raise RequestError(
            "only log-probs of the sampled tokens are available: logprob_start_len -1, top_logprobs_num 0"
        )
    rid = body.get("rid")
    if rid is not None and (not isinstance(rid, str) or not rid):
        raise RequestError(f"rid is {rid!r:.60}, expected a non-empty string")
    start: int | None = None
    if body.get("return_routed_experts"):
        start = int(_number(body, "routed_experts_start_len", 0, 0, len(prompt), whole=True))
    return GenerateRequest(
        rid=rid or uuid.uuid4().hex,
        input_ids=prompt,
        routed_experts_start=start,
        sampling=parse_sampling(body.get("sampling_params"), len(prompt), limits),
    )
