"""Matrix products of row groups with one matrix each: the arithmetic of a mixture of experts.

Rows arrive ordered by group, each group padded to a multiple of `block` rows (`group_layout` makes such an
order). On a CPU, `jax.lax.ragged_dot` lowers to one masked product per expert (measured: 20 times the work at
16 experts), so the blocked form is the fast one there: one product per block with that block's matrix.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t1_jax.kernels.rounding import rounded

Implementation = Literal["auto", "blocked", "ragged", "reference"]


class GroupLayout(NamedTuple):
    """Where each of R assignments goes among S slots ordered by expert, groups padded to whole blocks.

    `slot_of_row` int32 [R]; `row_of_slot` int32 [S], R (one past the end) on padding; `group_sizes` int32
    [E], padded sizes, each a multiple of the block.
    """

    slot_of_row: jax.Array
    row_of_slot: jax.Array
    group_sizes: jax.Array


def block_size(rows: int, num_groups: int) -> int:
    """Rows a block: the mean group as a power of two in [8, 128]; padding at most doubles small batches."""
    mean = max(1, rows // num_groups)
    return min(128, max(8, 1 << (mean - 1).bit_length()))


def group_layout(groups: Int[Array, " R"], num_groups: int, block: int) -> GroupLayout:
    """Order R rows by group, each padded to a multiple of `block`. S = (R // block + num_groups) * block."""
    rows = groups.shape[0]
    slots = (rows // block + num_groups) * block
    one_hot = (groups[:, None] == jnp.arange(num_groups)[None]).astype(jnp.int32)
    # A counting sort: stable, and cheaper than argsort on every backend.
    running = jnp.cumsum(one_hot, axis=0)
    rank = jnp.take_along_axis(running, groups[:, None], axis=1)[:, 0] - 1
    sizes = -(-running[-1] // block) * block
    starts = jnp.cumsum(sizes) - sizes
    slot_of_row = starts[groups] + rank
    row_of_slot = jnp.full((slots,), rows, jnp.int32).at[slot_of_row].set(jnp.arange(rows, dtype=jnp.int32))
    return GroupLayout(slot_of_row, row_of_slot, sizes)


def grouped_matmul(
    lhs: Float[Array, "S D"],
    rhs: Float[Array, "E D F"],
    group_sizes: Int[Array, " E"],
    *,
    block: int,
    implementation: Implementation = "auto",
) -> Float[Array, "S F"]:
    """Multiply each row by its group's matrix, accumulating in float32.

    Rows past the last group give anything finite.

    `group_sizes` must be multiples of `block` (see `group_layout`); S a multiple of `block`.
    """
    if implementation == "auto":
        implementation = "blocked" if jax.default_backend() == "cpu" else "ragged"
    if implementation == "ragged":
        out = jax.lax.ragged_dot(lhs, rhs, group_sizes, preferred_element_type=jnp.float32)
        return rounded(out, lhs.dtype)
    ends = jnp.cumsum(group_sizes)
    if implementation == "reference":
        group = jnp.searchsorted(ends, jnp.arange(lhs.shape[0]), side="right")
        rows = [jnp.where((group == e)[:, None], lhs, 0) @ rhs[e] for e in range(rhs.shape[0])]
        return sum(rows[1:], rows[0])
    blocks = lhs.reshape(-1, block, lhs.shape[-1])
    group = jnp.searchsorted(ends, jnp.arange(blocks.shape[0]) * block, side="right")
    matrices = rhs[jnp.minimum(group, rhs.shape[0] - 1)]
    # float32 accumulation stated outright: a CPU's batched bf16 product without it is three times slower.
    out = jnp.einsum("bmd,bdf->bmf", blocks, matrices, preferred_element_type=jnp.float32)
    return rounded(out, lhs.dtype).reshape(lhs.shape[0], rhs.shape[-1])
