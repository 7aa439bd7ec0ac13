"""Tokens to the devices that hold their experts, and back. No token is dropped, whatever the routing.

Legend: e devices along the expert axis, N tokens of a device, K experts a token, D hidden, R rows that are
exchanged (one for each of a token's experts).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from sandbox.errors import InputError
from t1_jax.parallel.axes import Parallel
from t1_jax.parallel.platform import platform

# What a remat policy calls the tokens that have arrived for a device's experts.
DISPATCHED = "dispatched_tokens"

# (x [N, D], local expert int32 [N, K]) -> [N, K, D]. An expert that is one past the last is on another
# device: its output is zero.
Experts = Callable[[jax.Array, jax.Array], jax.Array]
Combine = Callable[[jax.Array, jax.Array], jax.Array]  # ([N, K, D], weights [N, K]) -> [N, D]


def gathers(parallel: Parallel, experts_per_token: int) -> bool:
    """Whether tokens are gathered rather than sent one by one.

    A gather brings every device the (e - 1) N tokens of the others and returns as many sums; an all-to-all
    moves K N rows each way, of which 1/e stay. So gathering moves less while e <= K, with fewer and larger
    messages.
    """
    return parallel.size("expert") <= experts_per_token


def dispatch(
    parallel: Parallel,
    x: Float[Array, "N D"],
    selected_experts: Int[Array, "N K"],
    combine_weights: Float[Array, "N K"],
    local_experts: int,
    experts: Experts,
    combine: Combine,
) -> Float[Array, "N D"]:
    """The weighted sum of each token's experts, which lie in equal shares on the devices along `expert`.

    Runs over at most `dispatch_tokens` tokens at a time; each turn's exchange is made again in the backward
    pass, so that its buffers, which have to hold the worst routing, never add up. Raises InputError when they
    do not divide a device's tokens.
    """
    run = _by_gather if gathers(parallel, selected_experts.shape[-1]) else _by_exchange

    def part(x: jax.Array, selected: jax.Array, weights: jax.Array) -> jax.Array:
        return run(parallel, x, selected, weights, local_experts, experts, combine)

    tokens = x.shape[0]
    step = parallel.dispatch_tokens or tokens
    if tokens <= step:
        return part(x, selected_experts, combine_weights)
    if tokens % step:
        raise InputError(
            f"mesh.dispatch_tokens is {step}, expected a divisor of the {tokens} tokens of a device"
        )
    parts = jax.tree.map(
        lambda leaf: leaf.reshape(-1, step, *leaf.shape[1:]), (x, selected_experts, combine_weights)
    )
    _, out = jax.lax.scan(lambda _, xs: (None, jax.checkpoint(part)(*xs)), None, parts)
    return out.reshape(x.shape)


def _by_gather(
    parallel: Parallel,
    x: jax.Array,
    selected: jax.Array,
    weights: jax.Array,
    local_experts: int,
    experts: Experts,
    combine: Combine,
) -> jax.Array:
    """Every device sees the tokens of all, adds up what its own experts make of them, and the sums of all
    devices are scattered back.
    """
    x, selected, weights = (parallel.gather(leaf, "expert", dim=0) for leaf in (x, selected, weights))
    x = checkpoint_name(x, DISPATCHED)
    local = selected - parallel.rank("expert") * local_experts
    local = jnp.where((local >= 0) & (local < local_experts), local, local_experts)
    return parallel.scatter_sum(combine(experts(x, local), weights), "expert", dim=0)


def _by_exchange(
    parallel: Parallel,
    x: jax.Array,
    selected: jax.Array,
    weights: jax.Array,
    local_experts: int,
    experts: Experts,
    combine: Combine,
) -> jax.Array:
    """One row for each of a token's experts goes to the device that holds it, and its output comes back."""
    tokens, k = selected.shape
    e = parallel.size("expert")
    flat = selected.reshape(-1)
    order = jnp.argsort(flat, stable=True)  # by expert, hence by device
    sizes = jnp.sum(flat[:, None] // local_experts == jnp.arange(e)[None], axis=0, dtype=jnp.int32)
    # A row of the table is what one device sends; whoever receives reads a column.
    table = parallel.gather(sizes[None], "expert", dim=0)
    back = _Exchange(parallel, table.T)
    there = _Exchange(parallel, table)
    # All e devices may send all they have here, but a token never sends more rows than experts are here.
    capacity = e * tokens * min(k, local_experts)
    received = checkpoint_name(there(x[order // k], capacity), DISPATCHED)
    ids = there((flat[order] % local_experts)[:, None], capacity)[:, 0]
    filled = jnp.arange(capacity) < jnp.sum(table[:, parallel.rank("expert")])
    out = experts(received, jnp.where(filled, ids, local_experts)[:, None])
    returned = back(out[:, 0], tokens * k)
    place = jnp.zeros_like(order).at[order].set(jnp.arange(tokens * k))  # the inverse permutation
    return combine(returned[place].reshape(tokens, k, -1), weights)


class _Exchange:
    """Rows ordered by destination go out and come in ordered by sender. `table[i, j]`: rows from i to j."""

    def __init__(self, parallel: Parallel, table: Int[Array, "e e"]):
        self.parallel = parallel
        rank = parallel.rank("expert")
        send, receive = table[rank], table[:, rank]
        before = jnp.cumsum(table, axis=0) - table  # rows that lie before those of i in the buffer of j
        self.input_offsets = jnp.cumsum(send) - send
        self.send_sizes = send
        self.output_offsets = before[rank]
        self.receive_sizes = receive

    def __call__(self, rows: Float[Array, "R D"], capacity: int) -> Float[Array, "S D"]:
        buffer = jnp.zeros((capacity, *rows.shape[1:]), rows.dtype)
        arguments = (self.input_offsets, self.send_sizes, self.output_offsets, self.receive_sizes)
        if platform() != "cpu":
            return jax.lax.ragged_all_to_all(rows, buffer, *arguments, axis_name="expert")
        return self._emulated(rows, capacity)

    def _emulated(self, rows: jax.Array, capacity: int) -> jax.Array:
        """The same by an all-gather: XLA has no ragged all-to-all on a CPU."""
        rank = self.parallel.rank("expert")
        everyone = self.parallel.gather(rows[None], "expert", dim=0)
        offsets = self.parallel.gather(self.input_offsets[None], "expert", dim=0)[:, rank]
        ends = jnp.cumsum(self.receive_sizes)
        slot = jnp.arange(capacity)
        sender = jnp.minimum(jnp.searchsorted(ends, slot, side="right"), len(ends) - 1)
        place = offsets[sender] + slot - (ends - self.receive_sizes)[sender]
        filled = (slot < ends[-1]).reshape(-1, *[1] * (rows.ndim - 1))
        return jnp.where(filled, everyone[sender, jnp.clip(place, 0, rows.shape[0] - 1)], 0)
