"""Matrix products of row groups with one matrix each: the arithmetic of a mixture of experts.

Rows arrive ordered by group, each group padded to a multiple of `block` rows (`group_layout` makes such an
order). On a CPU, `jax.lax.ragged_dot` lowers to one masked product per expert (measured: 20 times the work at
16 experts), so there it is one product per block with that block's matrix: all in one batched product where
blocks are small, one after another where they are large.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.megablox.ops import backend as megablox
from jaxtyping import Array, Bool, Float, Int

from t1_jax.kernels.rounding import rounded
from t1_jax.parallel.platform import platform

Implementation = Literal["auto", "blocked", "looped", "megablox", "ragged", "reference"]

# Inner and outer width of a tile on a TPU: with blocks of 256 rows, float32 sums and two buffers of each
# operand fill about half of a core's 16 MiB of fast memory.
_TILE = (1024, 1024)


class GroupLayout(NamedTuple):
    """Where each of R assignments goes among S slots ordered by expert, groups padded to whole blocks.

    `slot_of_row` int32 [R]; `row_of_slot` int32 [S], R (one past the end) on padding; `group_sizes` int32
    [E], padded sizes, each a multiple of the block.
    """

    slot_of_row: jax.Array
    row_of_slot: jax.Array
    group_sizes: jax.Array


def block_size(rows: int, num_groups: int) -> int:
    """Rows a block, a power of two from 8 to 128: half the mean group, so that about a fifth of the slots is
    padding.

    A TPU multiplies a block at a time, and reads the group's matrix for each: the whole mean group, up to 256
    rows, so that it computes for longer than it reads.
    """
    mean = 1 << (max(1, rows // num_groups) - 1).bit_length()
    return max(8, min(256, mean) if platform() == "tpu" else min(128, mean // 2))


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
        large = block >= 128 and lhs.dtype == jnp.float32
        on_cpu: Implementation = "looped" if large else "blocked"
        choice: dict[str, Implementation] = {"cpu": on_cpu, "tpu": "megablox"}
        implementation = choice.get(platform(), "ragged")
    if implementation == "looped":
        return looped_matmul(lhs, rhs, group_sizes, block)
    if implementation == "megablox":
        return megablox_matmul(lhs, rhs, group_sizes, block)
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


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def megablox_matmul(
    lhs: Float[Array, "S D"],
    rhs: Float[Array, "E D F"],
    group_sizes: Int[Array, " E"],
    block: int,
    interpret: bool = False,
) -> Float[Array, "S F"]:
    """JAX's grouped matrix product for TPUs; its work follows the groups' sizes, not S.

    `jax.lax.ragged_dot` would do here, too, but its gradient to rhs is compiled as one masked product for
    each group by the libtpu of JAX 0.10.2: 33 times the work at 32 groups. Rows past the last group, which
    the kernel leaves as they are in memory, are zero here, in the result and in the gradient. `interpret`
    runs the kernel on a CPU.
    """
    return _grouped(lhs, rhs, group_sizes, block, interpret)


def _megablox_forward(lhs, rhs, group_sizes, block, interpret):
    return _grouped(lhs, rhs, group_sizes, block, interpret), (lhs, rhs, group_sizes)


def _megablox_backward(block, interpret, kept, gradient):
    lhs, rhs, group_sizes = kept
    to_lhs = _grouped(gradient, rhs, group_sizes, block, interpret, transpose_rhs=True)
    tile = _tile(block, lhs.shape[1], gradient.shape[1])
    to_rhs = megablox.tgmm(lhs.T, gradient, group_sizes, rhs.dtype, tile, interpret=interpret)
    return to_lhs, to_rhs, None


megablox_matmul.defvjp(_megablox_forward, _megablox_backward)


def _grouped(lhs, rhs, group_sizes, block, interpret, transpose_rhs=False):
    tile = _tile(block, lhs.shape[1], rhs.shape[1 if transpose_rhs else 2])
    out = megablox.gmm(
        lhs, rhs, group_sizes, lhs.dtype, tile, transpose_rhs=transpose_rhs, interpret=interpret
    )
    filled = jnp.arange(out.shape[0]) < jnp.sum(group_sizes)
    return jnp.where(filled[:, None], out, 0)


def _tile(block: int, inner: int, outer: int) -> tuple[int, int, int]:
    """A block's rows, and `_TILE` or less where the operands are smaller."""
    return block, min(_TILE[0], inner), min(_TILE[1], outer)


def to_slots(x: Float[Array, "N D"], layout: GroupLayout, placed: Bool[Array, " R"]) -> Float[Array, "S D"]:
    """Rows of x into the slots of its assignments, R / N for each row; padding slots get any row.

    `placed` is False where an assignment has no slot.
    """
    gather = _gather_rows if platform() == "cpu" else gather_rows
    return gather(x, layout, placed)


def from_slots(
    slots: Float[Array, "S D"], layout: GroupLayout, placed: Bool[Array, " R"]
) -> Float[Array, "R D"]:
    """The slot of each assignment, zeros for one that has none."""
    gather = _gather_slots if platform() == "cpu" else gather_slots
    return gather(slots, layout, placed)


def _gather_rows(x: jax.Array, layout: GroupLayout, placed: jax.Array) -> jax.Array:
    rows = placed.shape[0]
    return x[jnp.minimum(layout.row_of_slot, rows - 1) // (rows // x.shape[0])]


def _gather_slots(slots: jax.Array, layout: GroupLayout, placed: jax.Array) -> jax.Array:
    return jnp.where(placed[:, None], slots[layout.slot_of_row], 0)


# The same with gathers in the backward pass, too: autodiff writes a scatter that adds, which costs a CPU no
# more than a gather does, but an accelerator runs it row by row.
gather_rows = jax.custom_vjp(_gather_rows)
gather_slots = jax.custom_vjp(_gather_slots)


def _gather_rows_backward(kept, gradient):
    layout, placed, rows = kept
    back = jnp.where(placed[:, None], gradient[layout.slot_of_row], 0).reshape(rows, -1, gradient.shape[-1])
    return jnp.sum(back, axis=1, dtype=jnp.float32).astype(gradient.dtype), None, None


def _gather_slots_backward(kept, gradient):
    layout, placed = kept
    rows = placed.shape[0]
    back = gradient[jnp.minimum(layout.row_of_slot, rows - 1)]
    return jnp.where((layout.row_of_slot < rows)[:, None], back, 0), None, None


gather_rows.defvjp(
    lambda x, layout, placed: (_gather_rows(x, layout, placed), (layout, placed, x.shape[0])),
    _gather_rows_backward,
)
gather_slots.defvjp(
    lambda slots, layout, placed: (_gather_slots(slots, layout, placed), (layout, placed)),
    _gather_slots_backward,
)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def looped_matmul(
    lhs: Float[Array, "S D"], rhs: Float[Array, "E D F"], group_sizes: Int[Array, " E"], block: int
) -> Float[Array, "S F"]:
    """One product after another, each of a block of rows with a slice of `rhs`, for as many blocks as there
    are: no copy of a matrix for every block, and no work for slots that are empty. For large blocks on a CPU,
    whose cores share each product. Rows past the last group are zero.
    """
    return _looped_forward(lhs, rhs, group_sizes, block)[0]


def _looped_forward(lhs, rhs, group_sizes, block):
    def body(index, out):
        matrix = jax.lax.dynamic_index_in_dim(rhs, _group(group_sizes, block, index), keepdims=False)
        rows = jax.lax.dynamic_slice_in_dim(lhs, index * block, block)
        return jax.lax.dynamic_update_slice_in_dim(out, rows @ matrix, index * block, 0)

    out = jnp.zeros((lhs.shape[0], rhs.shape[2]), lhs.dtype)
    out = jax.lax.fori_loop(0, jnp.sum(group_sizes) // block, body, out)
    return out, (lhs, rhs, group_sizes)


def _looped_backward(block, kept, gradient):
    lhs, rhs, group_sizes = kept

    def body(index, sums):
        to_lhs, to_rhs = sums
        group = _group(group_sizes, block, index)
        matrix = jax.lax.dynamic_index_in_dim(rhs, group, keepdims=False)
        rows, change = (jax.lax.dynamic_slice_in_dim(x, index * block, block) for x in (lhs, gradient))
        to_lhs = jax.lax.dynamic_update_slice_in_dim(to_lhs, change @ matrix.T, index * block, 0)
        return to_lhs, to_rhs.at[group].add(rows.T @ change)

    zeros = (jnp.zeros_like(lhs), jnp.zeros_like(rhs))
    return *jax.lax.fori_loop(0, jnp.sum(group_sizes) // block, body, zeros), None


looped_matmul.defvjp(_looped_forward, _looped_backward)


def _group(group_sizes: jax.Array, block: int, index: jax.Array) -> jax.Array:
    """The group that a block belongs to."""
    return jnp.searchsorted(jnp.cumsum(group_sizes), index * block, side="right")
