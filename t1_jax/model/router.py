"""The router: which experts a token goes to, with what weight. The only place where replay enters."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t1_jax.kernels.sums import softmax, total


class Routing(NamedTuple):
    """`selected_experts` int32 [..., K], `combine_weights` float32 [..., K] that sum to 1, and
    `router_logits` float32 [..., E].
    """

    selected_experts: jax.Array
    combine_weights: jax.Array
    router_logits: jax.Array


def route(
    x: Float[Array, "... D"],
    router: Float[Array, "D E"],
    num_experts_per_tok: int,
    routed_experts: Int[Array, "... K"] | None = None,
    *,
    ordered: bool = False,
) -> Routing:
    """Select experts and weigh them: softmax over all experts, the top k, renormalised to sum to one.

    With `routed_experts` (the record of an earlier forward) only the selection is replaced. The weights are
    the CURRENT softmax gathered at the recorded ids, so that gradient reaches the router of every recorded
    expert, also of one that the live top k would leave out (routing replay, arXiv 2510.11370). A row that
    starts with -1 was not recorded and routes live. `ordered` sums as kernels/sums.py says.
    """
    logits = jnp.dot(x, router, preferred_element_type=jnp.float32)
    probabilities = softmax(logits, ordered)
    _, selected = jax.lax.top_k(jax.lax.stop_gradient(probabilities), num_experts_per_tok)
    if routed_experts is not None:
        selected = jnp.where(routed_experts[..., :1] >= 0, routed_experts, selected)
    weights = jnp.take_along_axis(probabilities, selected, axis=-1)
    return Routing(selected, weights / total(weights, ordered)[..., None], logits)
