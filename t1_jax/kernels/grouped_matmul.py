"""Matrix products of row groups with one matrix each: the arithmetic of a mixture of experts.

Rows arrive ordered by group, each group padded to a multiple of `block` rows (`group_layout` makes such an
order). On a CPU, `jax.lax.ragged_dot` lowers to one masked product per expert (measured: 20 times the work at
16 experts), so the blocked form is the fast one there: one product per block with that block's matrix.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.megablox.ops import backend as megablox
from jaxtyping import Array, Float, Int

from t1_jax.kernels.rounding import rounded
from t1_jax.parallel.platform import platform

Implementation = Literal["auto", "blocked", "megablox", "ragged", "reference"]

# Rows, inner and outer width of a tile on a TPU: float32 sums and two buffers of each operand fill about half
# of a core's 16 MiB of fast memory.
_TILE = (512, 1024, 1024)


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
    """Order R rows by group, each padded to a multiple of `block`. S = (R // block + num_groups) * block.

    A row of group `num_groups` belongs to none and gets no slot; its `slot_of_row` is 0.
    """
    rows = groups.shape[0]
    slots = (rows // block + num_groups) * block
    one_hot = (groups[:, None] == jnp.arange(num_groups)[None]).astype(jnp.int32)
    # A counting sort: stable, and cheaper than argsort on every backend.
    running = jnp.cumsum(one_hot, axis=0)
    rank = jnp.take_along_axis(running, groups[:, None], axis=1)[:, 0] - 1
    sizes = -(-running[-1] // block) * block
    starts = jnp.cumsum(sizes) - sizes
    placed = groups < num_groups
    slot_of_row = jnp.where(placed, starts[groups] + rank, 0)
    place = jnp.where(placed, slot_of_row, slots)
    row_of_slot = jnp.full((slots,), rows, jnp.int32)
    row_of_slot = row_of_slot.at[place].set(jnp.arange(rows, dtype=jnp.int32), mode="drop")
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
        implementation = {"cpu": "blocked", "tpu": "megablox"}.get(platform(), "ragged")  # type: ignore[assignment]
    if implementation == "megablox":
        return megablox_matmul(lhs, rhs, group_sizes)
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


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def megablox_matmul(
    lhs: Float[Array, "S D"],
    rhs: Float[Array, "E D F"],
    group_sizes: Int[Array, " E"],
    interpret: bool = False,
) -> Float[Array, "S F"]:
    """JAX's grouped matrix product for TPUs; its work follows the groups' sizes, not S.

    `jax.lax.ragged_dot` would do here, too, but its gradient to rhs is compiled as one masked product for
    each group by the libtpu of JAX 0.10.2: 33 times the work at 32 groups. Rows past the last group, which
    the kernel leaves as they are in memory, are zero here, in the result and in the gradient. `interpret`
    runs the kernel on a CPU.
    """
    return _megablox_forward(lhs, rhs, group_sizes, interpret)[0]


def _megablox_forward(lhs, rhs, group_sizes, interpret):
    out = _grouped(lhs, rhs, group_sizes, interpret)
    return out, (lhs, rhs, group_sizes)


def _megablox_backward(interpret, kept, gradient):
    lhs, rhs, group_sizes = kept
    to_lhs = _grouped(gradient, rhs, group_sizes, interpret, transpose_rhs=True)
    to_rhs = megablox.tgmm(
        lhs.T, gradient, group_sizes, rhs.dtype, _tile(lhs.shape[0], lhs.shape[1], gradient.shape[1]),
        interpret=interpret,
    )  # fmt: skip
    return to_lhs, to_rhs, None


megablox_matmul.defvjp(_megablox_forward, _megablox_backward)


def _grouped(lhs, rhs, group_sizes, interpret, transpose_rhs=False):
    width = rhs.shape[1 if transpose_rhs else 2]
    tile = _tile(lhs.shape[0], lhs.shape[1], width)
    out = megablox.gmm(
        lhs, rhs, group_sizes, lhs.dtype, tile, transpose_rhs=transpose_rhs, interpret=interpret
    )
    filled = jnp.arange(out.shape[0]) < jnp.sum(group_sizes)
    return jnp.where(filled[:, None], out, 0)


def _tile(rows: int, inner: int, outer: int) -> tuple[int, int, int]:
    """`_TILE`, or less where the operands are smaller; the row tile must divide the rows."""
    row_tile = next(size for size in (_TILE[0], 256, 128, 64, 32, 16, 8) if rows % size == 0)
    return row_tile, min(_TILE[1], inner), min(_TILE[2], outer)
