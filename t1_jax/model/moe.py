"""Experts: SwiGLU MLPs chosen per token, beside one shared expert. They know no replay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t1_jax.kernels.grouped_matmul import block_size, group_layout, grouped_matmul
from t1_jax.kernels.rounding import matmul, rounded
from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.parallel.dispatch import dispatch


def _swiglu(gate_up: Float[Array, "... F"]) -> Float[Array, "... F/2"]:
    gate, up = jnp.split(gate_up.astype(jnp.float32), 2, axis=-1)
    return rounded(jax.nn.silu(gate) * up, gate_up.dtype)


def routed_experts_mlp(
    x: Float[Array, "T D"],
    gate_up: Float[Array, "E D 2F"],
    down: Float[Array, "E F D"],
    selected_experts: Int[Array, "T K"],
    combine_weights: Float[Array, "T K"],
    parallel: Parallel = SINGLE,
) -> Float[Array, "T D"]:
    """Sum over a token's K experts of weight * down(silu(gate x) * up x). No token is dropped.

    On a mesh E are this device's experts, and the others' are reached by `dispatch`; over tensor the result
    is this device's summand.
    """
    if parallel.size("expert") > 1:

        def experts(x: jax.Array, source: jax.Array, expert: jax.Array) -> jax.Array:
            return _expert_rows(x, source, expert, gate_up, down, some_elsewhere=True)

        return dispatch(parallel, x, selected_experts, combine_weights, gate_up.shape[0], experts, _combine)
    tokens, experts_per_token = selected_experts.shape
    source = jnp.arange(tokens * experts_per_token) // experts_per_token
    out = _expert_rows(x, source, selected_experts.reshape(-1), gate_up, down)
    return _combine(out.reshape(tokens, experts_per_token, -1), combine_weights)


def _combine(out: Float[Array, "T K D"], weights: Float[Array, "T K"]) -> Float[Array, "T D"]:
    return rounded(jnp.einsum("tkd,tk->td", out.astype(jnp.float32), weights), out.dtype)


def _expert_rows(
    x: Float[Array, "T D"],
    source: Int[Array, " R"],
    expert: Int[Array, " R"],
    gate_up: Float[Array, "E D 2F"],
    down: Float[Array, "E F D"],
    some_elsewhere: bool = False,
) -> Float[Array, "R D"]:
    """What expert[r] makes of x[source[r]]. With `some_elsewhere`, expert E means none: zeros."""
    rows, num_experts = expert.shape[0], gate_up.shape[0]
    block = block_size(rows, num_experts)
    layout = group_layout(expert, num_experts, block)
    # Padding slots read the last row: finite values that nothing gathers back.
    slots = x[source[jnp.minimum(layout.row_of_slot, rows - 1)]]
    hidden = _swiglu(grouped_matmul(slots, gate_up, layout.group_sizes, block=block))
    out = grouped_matmul(hidden, down, layout.group_sizes, block=block)[layout.slot_of_row]
    return jnp.where((expert < num_experts)[:, None], out, 0) if some_elsewhere else out


def shared_expert_mlp(
    x: Float[Array, "... D"],
    gate_up: Float[Array, "D 2F"],
    down: Float[Array, "F D"],
    gate: Float[Array, "D 1"],
) -> Float[Array, "... D"]:
    """The expert that every token passes, scaled by sigmoid(x gate)."""
    scale = jax.nn.sigmoid(jnp.dot(x, gate, preferred_element_type=jnp.float32))
    out = jnp.dot(_swiglu(matmul(x, gate_up)), down, preferred_element_type=jnp.float32)
    return rounded(scale * out, x.dtype)
