"""Experts: SwiGLU MLPs chosen per token, beside one shared expert. They know no replay."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t1_jax.kernels.grouped_matmul import block_size, from_slots, group_layout, grouped_matmul, to_slots
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
        local = gate_up.shape[0]
        return dispatch(
            parallel, x, selected_experts, combine_weights, local, partial(_experts, gate_up, down), _combine
        )
    return _combine(_experts(gate_up, down, x, selected_experts), combine_weights)


def _combine(out: Float[Array, "T K D"], weights: Float[Array, "T K"]) -> Float[Array, "T D"]:
    return rounded(jnp.einsum("tkd,tk->td", out.astype(jnp.float32), weights), out.dtype)


def _experts(
    gate_up: Float[Array, "E D 2F"],
    down: Float[Array, "E F D"],
    x: Float[Array, "T D"],
    experts: Int[Array, "T K"],
) -> Float[Array, "T K D"]:
    """What each of a token's experts makes of it; zeros where the expert is E, which is none of these."""
    flat, num_experts = experts.reshape(-1), gate_up.shape[0]
    block = block_size(flat.shape[0], num_experts)
    layout, placed = group_layout(flat, num_experts, block), flat < num_experts
    slots = to_slots(x, layout, placed)
    hidden = _swiglu(grouped_matmul(slots, gate_up, layout.group_sizes, block=block))
    out = grouped_matmul(hidden, down, layout.group_sizes, block=block)
    return from_slots(out, layout, placed).reshape(*experts.shape, -1)


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
