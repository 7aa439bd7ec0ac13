"""Experts: SwiGLU MLPs chosen per token, beside one shared expert. They know no replay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t1_jax.kernels.grouped_matmul import block_size, group_layout, grouped_matmul
from t1_jax.kernels.rounding import matmul, rounded


def _swiglu(gate_up: Float[Array, "... F"]) -> Float[Array, "... F/2"]:
    gate, up = jnp.split(gate_up.astype(jnp.float32), 2, axis=-1)
    return rounded(jax.nn.silu(gate) * up, gate_up.dtype)


def routed_experts_mlp(
    x: Float[Array, "T D"],
    gate_up: Float[Array, "E D 2F"],
    down: Float[Array, "E F D"],
    selected_experts: Int[Array, "T K"],
    combine_weights: Float[Array, "T K"],
) -> Float[Array, "T D"]:
    """Sum over a token's K experts of weight * down(silu(gate x) * up x). No token is dropped."""
    tokens, experts_per_token = selected_experts.shape
    num_experts = gate_up.shape[0]
    block = block_size(tokens * experts_per_token, num_experts)
    layout = group_layout(selected_experts.reshape(-1), num_experts, block)
    # Padding slots read the last token: finite values that nothing gathers back.
    rows = jnp.minimum(layout.row_of_slot, tokens * experts_per_token - 1)
    slots = x[rows // experts_per_token]
    hidden = _swiglu(grouped_matmul(slots, gate_up, layout.group_sizes, block=block))
    out = grouped_matmul(hidden, down, layout.group_sizes, block=block)
    out = out[layout.slot_of_row].reshape(tokens, experts_per_token, -1)
    return rounded(jnp.einsum("tkd,tk->td", out.astype(jnp.float32), combine_weights), x.dtype)


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
