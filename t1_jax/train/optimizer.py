"""AdamW with warm-up, a constant or cosine schedule and clipping of the global gradient norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from sandbox.errors import InputError


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW (arXiv 1711.05101). Weight decay applies to matrices only, never to norms, biases and decays."""

    learning_rate: float = 1e-3
    warmup_steps: int = 0
    schedule: Literal["constant", "cosine"] = "constant"
    final_fraction: float = 0.1  # of the learning rate, at the end of the cosine
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    grad_clip: float = 1.0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "eps", "grad_clip"):
            if getattr(self, name) <= 0:
                raise InputError(f"optimizer.{name} is {getattr(self, name)}, expected a positive number")
        for name in ("warmup_steps", "weight_decay"):
            if getattr(self, name) < 0:
                raise InputError(f"optimizer.{name} is {getattr(self, name)}, expected 0 or more")
        for name in ("beta1", "beta2", "final_fraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"optimizer.{name} is {getattr(self, name)}, expected a number from 0 to 1")


def learning_rate_schedule(config: OptimizerConfig, total_steps: int) -> optax.Schedule:
    """Learning rate of step 0, 1, ...: linear warm-up, above 0 from the start, then constant or cosine."""

    def schedule(step: jax.Array) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        warm = jnp.minimum(1.0, (step + 1) / max(1, config.warmup_steps))
        if config.schedule == "constant":
            return config.learning_rate * warm
        done = jnp.clip((step - config.warmup_steps) / max(1, total_steps - config.warmup_steps), 0.0, 1.0)
        cosine = config.final_fraction + (1 - config.final_fraction) * 0.5 * (1 + jnp.cos(jnp.pi * done))
        return config.learning_rate * warm * cosine

    return schedule


def make_optimizer(config: OptimizerConfig, total_steps: int) -> optax.GradientTransformation:
    """The optax chain. Moments are float32, as the master parameters are."""
    return optax.chain(
        optax.clip_by_global_norm(config.grad_clip),
        optax.adamw(
            learning_rate_schedule(config, total_steps),
            b1=config.beta1,
            b2=config.beta2,
            eps=config.eps,
            weight_decay=config.weight_decay,
            mask=_decays,
        ),
    )


def _decays(params: optax.Params) -> optax.Params:
    # Layers are stacked by period, so a vector has 2 axes or 3; the names are what tells a matrix.
    def is_matrix(path: tuple[jax.tree_util.DictKey, ...], leaf: jax.Array) -> bool:
        name = jax.tree_util.keystr(path).lower()
        return leaf.ndim >= 2 and not any(part in name for part in ("norm", "a_log", "dt_bias", "bias"))

    return jax.tree_util.tree_map_with_path(is_matrix, params)
