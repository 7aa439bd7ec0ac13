"""AdamW with warm-up, a constant or cosine schedule and clipping of the global gradient norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from sandbox.errors import InputError


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW (arXiv 1711.05101). Weight decay applies to matrices only, never to norms, biases and decays.

    `moments` is how the two moments are stored; the update itself, and the master parameters, are float32.
    bfloat16 halves what they take. It resolves changes of 1/256, so beta2 must leave more than that a step.
    """

    learning_rate: float = 1e-3
    warmup_steps: int = 0
    schedule: Literal["constant", "cosine"] = "constant"
    final_fraction: float = 0.1  # of the learning rate, at the end of the cosine
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    grad_clip: float = 1.0
    moments: Literal["float32", "bfloat16"] = "float32"

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
        if self.moments == "bfloat16" and 1 - self.beta2 < 2**-8:
            raise InputError(
                f"optimizer.beta2 is {self.beta2}, expected at most {1 - 2**-8} with moments in bfloat16, "
                "which do not see smaller changes"
            )


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
    """The optax chain."""
    adamw = optax.adamw(
        learning_rate_schedule(config, total_steps),
        b1=config.beta1,
        b2=config.beta2,
        eps=config.eps,
        weight_decay=config.weight_decay,
        mask=_decays,
    )
    if config.moments == "bfloat16":
        adamw = _stored_in_bfloat16(adamw)
    return optax.chain(optax.clip_by_global_norm(config.grad_clip), adamw)


def _stored_in_bfloat16(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """The same transformation, its Adam moments rounded between steps."""

    def moments_as(state: optax.OptState, dtype: DTypeLike) -> optax.OptState:
        def is_adam(part: Any) -> bool:
            return isinstance(part, optax.ScaleByAdamState)

        def cast(part: Any) -> Any:
            if not is_adam(part):
                return part
            mu, nu = jax.tree.map(lambda leaf: leaf.astype(dtype), (part.mu, part.nu))
            return part._replace(mu=mu, nu=nu)

        return jax.tree.map(cast, state, is_leaf=is_adam)

    def init(params: optax.Params) -> optax.OptState:
        return moments_as(inner.init(params), jnp.bfloat16)

    def update(
        gradients: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        updates, state = inner.update(gradients, moments_as(state, jnp.float32), params)
        return updates, moments_as(state, jnp.bfloat16)

    return optax.GradientTransformation(init, update)


def _decays(params: optax.Params) -> optax.Params:
    # Layers are stacked by period, so a vector has 2 axes or 3; the names are what tells a matrix.
    def is_matrix(path: tuple[jax.tree_util.DictKey, ...], leaf: jax.Array) -> bool:
        name = jax.tree_util.keystr(path).lower()
        return leaf.ndim >= 2 and not any(part in name for part in ("norm", "a_log", "dt_bias", "bias"))

    return jax.tree_util.tree_map_with_path(is_matrix, params)
