"""Softmax attention with grouped heads. Scores and softmax in float32."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from t1_jax.kernels.rounding import rounded
from t1_jax.kernels.splash import splash_attention
from t1_jax.kernels.sums import block_sum, softmax
from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.parallel.platform import platform


def packed_attention(
    q: Float[Array, "B T H D"],
    k: Float[Array, "B T N D"],
    v: Float[Array, "B T N D"],
    segment_ids: Int[Array, "B T"],
    parallel: Parallel = SINGLE,
    *,
    ordered: bool = False,
) -> Float[Array, "B T H D"]:
    """Causal attention within the segments of packed rows, of which this device has one part (the context
    axis). Keys and values are gathered: with grouped heads they are a small fraction of the queries.
    `ordered`: the softmax adds in an order of its own, see kernels/sums.py.

    Padding (segment 0) gets something finite, which is read by no one.
    """
    length = q.shape[1]
    k, v, segments = (parallel.gather(x, "context", dim=1) for x in (k, v, segment_ids))
    if platform() == "tpu":
        return splash_attention(q, k, v, segment_ids, segments, parallel)
    place = parallel.rank("context") * length + jnp.arange(length)
    causal = place[:, None] >= jnp.arange(k.shape[1])[None, :]
    same = segment_ids[:, :, None] == segments[:, None, :]
    return attention(q, k, v, same & causal & (segment_ids > 0)[:, :, None], ordered=ordered)


def attention(
    q: Float[Array, "B T H D"],
    k: Float[Array, "B S N D"],
    v: Float[Array, "B S N D"],
    mask: Bool[Array, "B T S"],
    *,
    ordered: bool = False,
) -> Float[Array, "B T H D"]:
    """Attend with H query heads over N key-value heads (H a multiple of N), scaled by D^-0.5.

    A query that may see nothing (padding) gets the plain mean of v: finite, and read by no one.
    """
    batch, length, heads, dim = q.shape
    kv_heads, group = k.shape[2], heads // k.shape[2]
    dtype = v.dtype
    if platform() == "cpu":  # as the cache is kept there: products of the two types differ in their order
        q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    # One batch dimension and one matrix each: the form that every backend runs as plain matrix products.
    q = (
        q.reshape(batch, length, kv_heads, group, dim)
        .transpose(0, 2, 3, 1, 4)
        .reshape(-1, group * length, dim)
    )
    k, v = (x.transpose(0, 2, 1, 3).reshape(batch * kv_heads, -1, dim) for x in (k, v))
    scores = jnp.einsum("bid,bjd->bij", q, k, preferred_element_type=jnp.float32) * dim**-0.5
    weights = rounded(_softmax(scores.reshape(batch, heads, length, -1), mask, ordered), dtype).astype(
        v.dtype
    )
    weights = weights.reshape(batch * kv_heads, group * length, -1)
    out = rounded(jnp.einsum("bij,bjd->bid", weights, v, preferred_element_type=jnp.float32), dtype)
    out = out.reshape(batch, kv_heads, group, length, dim).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, length, heads, dim)


def cached_attention(
    q: Float[Array, "B T H D"],
    k: Float[Array, "B N D S"],
    v: Float[Array, "B N S D"],
    mask: Bool[Array, "B T S"],
    *,
    ordered: bool = False,
) -> Float[Array, "B T H D"]:
    """`attention` over a cache, whose keys and values lie the way both products read them.

    k and v may be stored wider than q; weights and output are rounded to q's dtype, as in `attention`.
    """
    batch, length, heads, dim = q.shape
    kv_heads, group, capacity = k.shape[1], heads // k.shape[1], k.shape[3]
    dtype, q = q.dtype, q.astype(k.dtype)
    q = (
        q.reshape(batch, length, kv_heads, group, dim)
        .transpose(0, 2, 3, 1, 4)
        .reshape(-1, group * length, dim)
    )
    k, v = k.reshape(-1, dim, capacity), v.reshape(-1, capacity, dim)
    scores = jnp.einsum("bid,bdj->bij", q, k, preferred_element_type=jnp.float32) * dim**-0.5
    weights = rounded(_softmax(scores.reshape(batch, heads, length, capacity), mask, ordered), dtype).astype(
        v.dtype
    )
    weights = weights.reshape(-1, group * length, capacity)
    out = rounded(jnp.einsum("bij,bjd->bid", weights, v, preferred_element_type=jnp.float32), dtype)
    out = out.reshape(batch, kv_heads, group, length, dim).transpose(0, 3, 1, 2, 4)
    return out.reshape(batch, length, heads, dim)


def _softmax(
    scores: Float[Array, "B H T S"], mask: Bool[Array, "B T S"], ordered: bool
) -> Float[Array, "B H T S"]:
    scores = jnp.where(mask[:, None], scores, jnp.finfo(jnp.float32).min)
    return softmax(scores, ordered, block_sum)
