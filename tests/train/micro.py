"""A micro model and made-up trajectories for the learner's tests."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from sandbox.trajectory import Trajectory
from t1_jax.model.config import ModelConfig
from t1_jax.model.transformer import forward
from tests.fresh import fresh_params

MICRO = ModelConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    linear_num_key_heads=1,
    linear_num_value_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    num_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
    initializer_range=0.2,
    dtype="float32",
)


def micro_params(seed: int = 0) -> Any:
    """Parameters of the micro model."""
    return fresh_params(MICRO, seed)


@jax.jit
def _experts(params: Any, tokens: jax.Array) -> jax.Array:
    return forward(params, MICRO, tokens).routed_experts


def own_record(record: Trajectory, params: Any, shift: int = 0) -> Trajectory:
    """The trajectory (of at most 32 tokens) with the experts that the model itself routes its tokens to, each
    row `shift` tokens late.
    """
    tokens = np.zeros((1, 32), np.int32)
    tokens[0, : len(record.tokens)] = record.tokens
    experts = np.asarray(_experts(params, tokens))[0, : len(record.tokens)]
    routes = np.roll(experts, shift, axis=0).astype(MICRO.routes_dtype)
    return dataclasses.replace(record, routed_experts=routes)


def trajectory(
    name: str,
    length: int,
    *,
    seed: int = 0,
    routes: bool = False,
    reward: float | None = 1.0,
    version: int = 0,
    model: ModelConfig = MICRO,
    **fields: Any,
) -> Trajectory:
    """A trajectory of random tokens: a prompt, then alternating sampled and observed spans, ending in a
    sampled one.
    """
    rng = np.random.default_rng([seed, length])
    mask = np.arange(length) % 6 >= 3
    mask[-1] = True
    mask[0] = False
    logprobs = np.where(mask, -4.0 + 0.5 * rng.standard_normal(length), 0).clip(max=-0.1) * mask
    record = None
    if routes:
        scores = rng.random((length, model.num_moe_layers, model.num_experts))
        record = np.argsort(scores, axis=-1)[..., : model.num_experts_per_tok].astype(model.routes_dtype)
    return Trajectory(
        rollout_id=name,
        group_id=fields.pop("group_id", name),
        task=fields.pop("task", "task"),
        tokens=rng.integers(0, model.vocab_size, length).astype(np.int32),
        loss_mask=mask,
        rollout_logprobs=logprobs.astype(np.float32),
        versions=np.where(mask, version, -1).astype(np.int32),
        routed_experts=record,
        routed_valid=np.arange(length) < length - 1 if routes else None,
        reward=reward,
        tests=fields.pop("tests", {"a": True}),
        **fields,
    )
