"""Root-mean-square norms of Qwen3.5 (transformers `modeling_qwen3_5_moe`), computed in float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from t1_jax.kernels.rounding import rounded
from t1_jax.kernels.sums import total
from t1_jax.model.config import ModelConfig


def _normalise(x: jax.Array, config: ModelConfig) -> jax.Array:
    x = x.astype(jnp.float32)
    squares = total(x * x, config.deterministic)[..., None]
    return x * jax.lax.rsqrt(squares / x.shape[-1] + config.rms_norm_eps)


def rms_norm(
    x: Float[Array, "... D"], weight: Float[Array, " D"], config: ModelConfig
) -> Float[Array, "... D"]:
    """Zero-centred norm: the stored weight is the difference from one. Returns x's dtype."""
    return rounded(_normalise(x, config) * (1.0 + weight.astype(jnp.float32)), x.dtype)


def gated_rms_norm(
    x: Float[Array, "... D"], gate: Float[Array, "... D"], weight: Float[Array, " D"], config: ModelConfig
) -> Float[Array, "... D"]:
    """DeltaNet's output norm: not zero-centred, norm before the SiLU gate. Returns the gate's dtype."""
    normed = _normalise(x, config) * weight.astype(jnp.float32)
    return rounded(normed * jax.nn.silu(gate.astype(jnp.float32)), gate.dtype)


def l2_norm(x: Float[Array, "... D"], config: ModelConfig, eps: float = 1e-6) -> Float[Array, "... D"]:
    """Unit length along the last axis, in float32."""
    x = x.astype(jnp.float32)
    return x * jax.lax.rsqrt(total(x * x, config.deterministic)[..., None] + eps)
