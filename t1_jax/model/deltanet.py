"""The Gated DeltaNet layer: a short causal convolution, the gated delta rule, a gated norm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t1_jax.kernels.delta_rule import (
    chunk_size,
    delta_rule_chunked,
    delta_rule_resumed,
    delta_rule_step,
)
from t1_jax.kernels.rounding import matmul, rounded
from t1_jax.model.config import ModelConfig
from t1_jax.model.norm import gated_rms_norm, l2_norm
from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.parallel.context import conv_history


def document_alignment(config: ModelConfig) -> int:
    """Documents of a packed row start at multiples of it: a deterministic model's have the chunks then that
    they have alone.
    """
    return chunk_size() if config.deterministic else 1


def causal_conv(
    x: Float[Array, "B T C"],
    weight: Float[Array, "C W"],
    history: Float[Array, "B W-1 C"],
    segment_ids: Int[Array, "B T"],
) -> Float[Array, "B T C"]:
    """Depthwise convolution over the last W tokens, then SiLU; float32 inside.

    weight[:, W-1] meets the current token. `history` holds the W-1 inputs before the row and belongs to the
    segment of its first token. A tap that would reach into another segment reads zero.
    """
    taps, length = weight.shape[1], x.shape[1]
    padded = jnp.concatenate([history.astype(x.dtype), x], axis=1).astype(jnp.float32)
    segments = jnp.concatenate([jnp.repeat(segment_ids[:, :1], taps - 1, axis=1), segment_ids], axis=1)
    out = jnp.zeros(x.shape, jnp.float32)
    for tap in range(taps):
        inside = segments[:, tap : tap + length] == segment_ids
        out += jnp.where(inside[..., None], padded[:, tap : tap + length], 0.0) * weight[:, tap].astype(
            jnp.float32
        )
    return rounded(jax.nn.silu(out), x.dtype)


def gated_deltanet(
    x: Float[Array, "B T D"],
    params: dict[str, Any],
    config: ModelConfig,
    segment_ids: Int[Array, "B T"],
    token_mask: Bool[Array, "B T"],
    cache: tuple[jax.Array, jax.Array, jax.Array] | None = None,
    read: Int[Array, " B"] | None = None,
    parallel: Parallel = SINGLE,
) -> tuple[Float[Array, "B T D"], tuple[jax.Array, jax.Array, jax.Array] | None]:
    """Mix a row of tokens, or this device's part of it (without a cache).

    `config` says how many heads there are in `params`. `cache` is (last W-1 conv inputs [B, W-1, C], state
    float32 [B, Hv, Dk, Dv], pending float32 [B, C, F], see `delta_rule_resumed`) of rows that have
    `read` tokens; None means zeros. With it a deterministic model computes the very sums that it computes
    without; otherwise a single token costs no more than a step of the rule. Masked tokens (padding, on the
    right) change none of these.
    """
    batch, length, _ = x.shape
    key_heads, value_heads = config.linear_num_key_heads, config.linear_num_value_heads
    key_dim, value_dim = config.linear_key_head_dim, config.linear_value_head_dim
    history_length = config.linear_conv_kernel_dim - 1

    qkv = matmul(x, params["qkv"])
    z = matmul(x, params["z"]).reshape(batch, length, value_heads, value_dim)
    history = cache[0] if cache else jnp.zeros((batch, history_length, config.conv_dim), x.dtype)
    if parallel.size("context") > 1:
        history = conv_history(parallel, qkv, segment_ids, history_length)
    mixed = causal_conv(qkv, params["conv"], history, segment_ids)

    q, k, v = jnp.split(mixed, [key_heads * key_dim, 2 * key_heads * key_dim], axis=-1)
    q = l2_norm(q.reshape(batch, length, key_heads, key_dim), config) * key_dim**-0.5
    k = l2_norm(k.reshape(batch, length, key_heads, key_dim), config)
    v = v.reshape(batch, length, value_heads, value_dim).astype(jnp.float32)

    valid = token_mask[..., None]
    beta = jnp.where(valid, jax.nn.sigmoid(matmul(x, params["b"]).astype(jnp.float32)), 0.0)
    rate = jax.nn.softplus(matmul(x, params["a"]).astype(jnp.float32) + params["dt_bias"].astype(jnp.float32))
    g = jnp.where(valid, -jnp.exp(params["A_log"].astype(jnp.float32)) * rate, 0.0)

    if cache is None:
        q, k = (jnp.repeat(part, value_heads // key_heads, axis=2) for part in (q, k))
        state = jnp.zeros((batch, value_heads, key_dim, value_dim), jnp.float32)
        out, _ = delta_rule_chunked(q, k, v, g, beta, segment_ids, state, parallel=parallel)
    else:
        _, state, pending = cache
        count = jnp.sum(token_mask, axis=1, dtype=jnp.int32)
        if config.deterministic:
            assert read is not None
            out, pending, state = delta_rule_resumed(q, k, v, g, beta, count, read, pending, state)
        else:
            q, k = (jnp.repeat(part, value_heads // key_heads, axis=2) for part in (q, k))
            if length == 1:
                state, last = delta_rule_step(state, *(x[:, 0] for x in (q, k, v, g, beta)))
                out = last[:, None]
            else:
                out, state = delta_rule_chunked(q, k, v, g, beta, segment_ids, state)
        everything = jnp.concatenate([history.astype(qkv.dtype), qkv], axis=1)
        last = count[:, None] + jnp.arange(history_length)
        history = jnp.take_along_axis(everything, last[..., None], axis=1).astype(history.dtype)
        cache = (history, state, pending)
    out = gated_rms_norm(out, z, params["norm"], config)
    return matmul(out.reshape(batch, length, -1), params["out"]), cache
