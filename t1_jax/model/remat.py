"""What a layer keeps for its backward pass, by name. The rest is computed again from the layer's input.

none: everything is kept. dots: products with weights. full: the input only. dispatch: the input, and the
tokens that came from other devices, so that none is sent again. offload: the input, in the host's memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
from jax.ad_checkpoint import checkpoint_name

from t1_jax.parallel.dispatch import DISPATCHED

RematPolicy = Literal["none", "dots", "full", "dispatch", "offload"]

_INPUT = "layer_input"
_POLICIES = jax.checkpoint_policies


def rematerialised(layer: Callable[..., Any], policy: RematPolicy) -> Callable[..., Any]:
    """The layer (hidden, *parts) -> ... with a policy on what its backward pass finds kept."""
    if policy == "none":
        return layer
    if policy == "dots":
        return jax.checkpoint(layer, policy=_POLICIES.dots_with_no_batch_dims_saveable)
    if policy == "full":
        return jax.checkpoint(layer)
    if policy == "dispatch":
        return jax.checkpoint(layer, policy=_POLICIES.save_only_these_names(DISPATCHED))
    offload = _POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=[_INPUT],
        offload_src="device",
        offload_dst="pinned_host",
    )
    return jax.checkpoint(
        lambda hidden, *parts: layer(checkpoint_name(hidden, _INPUT), *parts), policy=offload
    )
