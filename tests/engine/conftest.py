"""A tiny float32 model and a driver for the scheduler without threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.engine.request import GenerateRequest, GenerateResult, SamplingParams
from t1_jax.engine.scheduler import Outcome, Scheduler
from t1_jax.model import transformer
from t1_jax.model.config import ModelConfig
from tests.fresh import fresh_params

CONFIG = ModelConfig(
    vocab_size=300,
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
    dtype="float32",
    full_attention_interval=2,
    initializer_range=0.2,  # wide, so that experts and tokens are far apart
)
MAX_LENGTH = 64


@pytest.fixture(scope="session")
def params() -> Any:
    return fresh_params(CONFIG)


@pytest.fixture(scope="session")
def other_params() -> Any:
    return fresh_params(CONFIG, 1)


class Driver:
    """Submits requests to a scheduler and steps it by hand."""

    def __init__(self, params: Any, **options: Any) -> None:
        slots, snapshots = options.pop("slots", 4), options.pop("snapshots", 2)
        defaults = {"max_length": MAX_LENGTH, "decode_block": 4, "max_waiting": 8}
        self.scheduler = Scheduler(params, CONFIG, slots=4, snapshots=2, **{**defaults, **options})
        # Fewer slots by leaving some out, so that every test runs the same compiled shapes.
        self.scheduler.table.slots = self.scheduler.table.slots[:slots]
        self.scheduler.table.snapshots = self.scheduler.table.snapshots[:snapshots]
        self.outcomes: dict[str, Outcome] = {}

    def submit(self, ids: Sequence[int], rid: str = "r", *, start: int | None = 0, **sampling: Any) -> None:
        sampling.setdefault("max_new_tokens", 8)
        request = GenerateRequest(
            rid=rid,
            input_ids=np.asarray(ids, np.int32),
            sampling=SamplingParams(**sampling),
            routed_experts_start=start,
        )
        self.scheduler.submit(request, lambda outcome: self.outcomes.__setitem__(rid, outcome))

    def finish(self) -> None:
        while self.scheduler.has_work:
            self.scheduler.step()

    def result(self, rid: str = "r") -> GenerateResult:
        outcome = self.outcomes[rid]
        assert isinstance(outcome, GenerateResult), outcome
        return outcome

    def generate(self, ids: Sequence[int], rid: str = "r", **options: Any) -> GenerateResult:
        self.submit(ids, rid, **options)
        self.finish()
        return self.result(rid)


@pytest.fixture
def driver(params: Any) -> Callable[..., Driver]:
    return lambda **options: Driver(params, **options)


@pytest.fixture(scope="session")
def reference(params: Any) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """One full forward without a cache: log-probs [T, V] after each token, and experts [T, L, K]."""

    @jax.jit
    def full(params: Any, tokens: jax.Array, segments: jax.Array, temperature: float) -> Any:
        out = transformer.forward(params, CONFIG, tokens, segment_ids=segments)
        return jax.nn.log_softmax(
            transformer.logits(params, CONFIG, out.hidden) / temperature
        ), out.routed_experts

    def run(
        ids: Sequence[int], temperature: float = 1.0, weights: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        tokens = np.zeros((1, MAX_LENGTH), np.int32)
        tokens[0, : len(ids)] = ids
        segments = jnp.arange(MAX_LENGTH)[None] < len(ids)
        logprobs, experts = full(
            params if weights is None else weights, tokens, segments.astype(jnp.int32), temperature
        )
        return np.asarray(logprobs)[0, : len(ids)], np.asarray(experts)[0, : len(ids)]

    return run


def prompt(seed: int, length: int = 12) -> list[int]:
    """Random token ids."""
    return np.random.default_rng(seed).integers(0, CONFIG.vocab_size, length).tolist()
