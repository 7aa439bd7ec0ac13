"""Gated softmax attention of Qwen3.5: query and key norms, partial rotary positions, a gate on the output."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t1_jax.kernels.attention import cached_attention, packed_attention
from t1_jax.kernels.rounding import matmul, rounded
from t1_jax.model.config import ModelConfig
from t1_jax.model.norm import rms_norm
from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.parallel.platform import platform


def rotate(
    x: Float[Array, "B T H D"], positions: Int[Array, "B T"], config: ModelConfig
) -> Float[Array, "B T H D"]:
    """Rotary positions on the first `rotary_dim` dimensions, halves paired (NeoX), angles in float32."""
    half = config.rotary_dim // 2
    frequencies = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions[..., None, None].astype(jnp.float32) * frequencies
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    first, second = first.astype(jnp.float32), second.astype(jnp.float32)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return jnp.concatenate([rounded(turned, x.dtype), rest], axis=-1)


def gated_attention(
    x: Float[Array, "B T D"],
    params: dict[str, Any],
    config: ModelConfig,
    positions: Int[Array, "B T"],
    segment_ids: Int[Array, "B T"],
    cache: tuple[jax.Array, jax.Array] | None = None,
    mask: Bool[Array, "B T S"] | None = None,
    write_at: Int[Array, "B T"] | None = None,
    parallel: Parallel = SINGLE,
) -> tuple[Float[Array, "B T D"], tuple[jax.Array, jax.Array] | None]:
    """Attention over the segments of the row, or a cache of S places that takes its keys and values first.

    `config` says how many heads there are in `params`. The cache holds keys [B, kv heads, head_dim, S] and
    values [B, kv heads, S, head_dim]. `write_at` gives each token's place in the cache (one past its end is
    dropped, which is how padding is skipped), `mask` the places that each token may see.
    """
    batch, length, _ = x.shape
    dim = config.head_dim
    # Queries and their output gates are interleaved per head in the fused projection.
    q, gate = jnp.split(
        matmul(x, params["q"]).reshape(batch, length, config.num_attention_heads, 2 * dim), 2, axis=-1
    )
    k = matmul(x, params["k"]).reshape(batch, length, config.num_key_value_heads, dim)
    v = matmul(x, params["v"]).reshape(batch, length, config.num_key_value_heads, dim)
    q = rotate(rms_norm(q, params["q_norm"], config), positions, config)
    k = rotate(rms_norm(k, params["k_norm"], config), positions, config)
    if cache is None:
        out = packed_attention(q, k, v, segment_ids, parallel, ordered=config.deterministic)
    else:
        assert mask is not None
        assert write_at is not None
        cache = _write(cache, k, v, write_at)
        out = cached_attention(q, *cache, mask, ordered=config.deterministic)
    out = rounded(out.astype(jnp.float32) * jax.nn.sigmoid(gate.astype(jnp.float32)), x.dtype)
    return matmul(out.reshape(batch, length, -1), params["o"]), cache


def _write(
    cache: tuple[jax.Array, jax.Array],
    k: Float[Array, "B T H D"],
    v: Float[Array, "B T H D"],
    write_at: Int[Array, "B T"],
) -> tuple[jax.Array, jax.Array]:
    """The cache with the tokens' keys and values in their places; a place past its end is dropped.

    On a CPU the one token of a decoding step is written row by row: XLA's backend widens a bfloat16 scatter
    to float32 and back, the whole cache through.
    """
    k, v = k.astype(cache[0].dtype), v.astype(cache[1].dtype)
    if platform() != "cpu" or k.shape[1] != 1:
        rows = jnp.arange(len(k))[:, None]
        return (
            cache[0].at[rows, :, :, write_at].set(k, mode="drop"),
            cache[1].at[rows, :, write_at].set(v, mode="drop"),
        )
    dropped = write_at[:, 0] >= cache[1].shape[2]

    def put(leaf: jax.Array, new: jax.Array, at: tuple[Any, ...], drop: jax.Array) -> jax.Array:
        old = jax.lax.dynamic_slice(leaf, at, new.shape)
        return jax.lax.dynamic_update_slice(leaf, jnp.where(drop, old, new), at)

    def row(i: jax.Array, leaves: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        place = write_at[i, 0]
        new_k, new_v = k[i, 0][None, :, :, None], v[i, 0][None, :, None, :]
        return (
            put(leaves[0], new_k, (i, 0, 0, place), dropped[i]),
            put(leaves[1], new_v, (i, 0, place, 0), dropped[i]),
        )

    return jax.lax.fori_loop(0, len(k), row, cache)
