"""Attention on a TPU: JAX's splash kernel, causal, with segment ids and grouped heads."""

from __future__ import annotations

from functools import lru_cache

import jax
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jaxtyping import Array, Float, Int

from t1_jax.parallel.axes import SINGLE, Parallel


def splash_attention(
    q: Float[Array, "B T H D"],
    k: Float[Array, "B S N D"],
    v: Float[Array, "B S N D"],
    segment_ids: Int[Array, "B T"],
    kv_segment_ids: Int[Array, "B S"],
    parallel: Parallel = SINGLE,
    *,
    interpret: bool = False,
) -> Float[Array, "B T H D"]:
    """Attention of this device's part of the queries (the context axis) over all keys, scaled by D^-0.5.

    T must be a multiple of 128. `interpret` runs the kernel on a CPU. Raises ValueError for another T.
    """
    length, kv_heads = q.shape[1], k.shape[2]
    if length % 128:
        raise ValueError(f"splash attention: {length} tokens on a device, expected a multiple of 128")
    group = q.shape[2] // kv_heads
    kernel = _own_part(_kernel(length, k.shape[1], group, interpret), parallel)
    q = (q * q.shape[-1] ** -0.5).astype(k.dtype)
    q = q.transpose(0, 2, 1, 3).reshape(q.shape[0], kv_heads, group, length, -1)
    k, v = (x.transpose(0, 2, 1, 3) for x in (k, v))

    def row(q, k, v, own, all_ids):
        ids = splash.SegmentIds(own, all_ids)
        return jax.vmap(lambda q, k, v: kernel(q, k, v, segment_ids=ids))(q, k, v)

    out = jax.vmap(row)(q, k, v, segment_ids, kv_segment_ids)  # [B, N, group, T, D]
    return out.reshape(out.shape[0], -1, length, out.shape[-1]).transpose(0, 2, 1, 3)


@lru_cache(maxsize=8)
def _kernel(length: int, kv_length: int, group: int, interpret: bool) -> splash.SplashAttentionKernel:
    """The kernel for all parts of a sequence; its tables of blocks have a part for each device."""
    block = next(size for size in (512, 256, 128) if length % size == 0)
    sizes = splash.BlockSizes(
        block_q=block, block_kv=block, block_kv_compute=block,
        block_q_dkv=block, block_kv_dkv=block, block_kv_dkv_compute=block,
        block_q_dq=block, block_kv_dq=block,
    )  # fmt: skip
    parts = kv_length // length
    mask = masks.CausalMask((kv_length, kv_length), shard_count=parts)
    with jax.ensure_compile_time_eval():
        return splash.make_splash_mqa(
            masks.MultiHeadMask([mask] * group), block_sizes=sizes, head_shards=1, q_seq_shards=parts,
            interpret=interpret,
        )  # fmt: skip


def _own_part(kernel: splash.SplashAttentionKernel, parallel: Parallel) -> splash.SplashAttentionKernel:
    """The tables of this device's queries."""
    if parallel.size("context") == 1:
        return kernel

    def own(info):
        if info is None:
            return None
        tables = {
            name: None if table is None else parallel.part(table, "context", 1)
            for name, table in (
                ("data_next", info.data_next), ("mask_next", info.mask_next), ("block_mask", info.block_mask)
            )
        }  # fmt: skip
        sequence = None if info.q_sequence is None else parallel.part(info.q_sequence, "context", 0)
        return info._replace(**tables, q_sequence=sequence)

    infos = (own(kernel.fwd_mask_info), own(kernel.dq_mask_info), own(kernel.dkv_mask_info))
    return splash.SplashAttentionKernel(*infos, **kernel.kwargs)
