"""A sequence split over the context axis: what a part needs of the parts before it.

Legend: c devices along context, B rows, T tokens of a part.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sandbox.errors import InputError
from t1_jax.parallel.axes import Parallel


def conv_history(
    parallel: Parallel, x: Float[Array, "B T C"], segment_ids: Int[Array, "B T"], length: int
) -> Float[Array, "B W C"]:
    """The last `length` inputs of the part before, zero where they are of another segment than this part's
    first token. Raises InputError when a part is shorter than that.
    """
    if x.shape[1] < length:
        raise InputError(
            f"mesh.context leaves {x.shape[1]} tokens of a row to a device, expected at least {length}"
        )
    history = parallel.from_previous(x[:, -length:], "context")
    segments = parallel.from_previous(segment_ids[:, -length:], "context")
    return jnp.where((segments == segment_ids[:, :1])[..., None], history, 0)


def entering_state(
    parallel: Parallel,
    transition: Float[Array, "B H K K"],
    offset: Float[Array, "B H K V"],
    segment_ids: Int[Array, "B T"],
) -> Float[Array, "B H K V"]:
    """The state that enters this part, when each part maps a state S to transition S + offset.

    Only the maps travel (their size does not depend on the length of the sequence); every device composes
    those of the parts before it. A part that begins another segment than the one before it ended with is
    entered with zeros.
    """
    count = parallel.size("context")
    key_dim = transition.shape[-1]
    maps = jnp.concatenate([transition, offset], axis=-1)[None]
    maps = parallel.gather(maps, "context", dim=0)
    first = parallel.gather(segment_ids[None, :, 0], "context", dim=0)
    last = parallel.gather(segment_ids[None, :, -1], "context", dim=0)
    rank = parallel.rank("context")
    state = jnp.zeros_like(offset)
    entering = state
    for part in range(count - 1):
        through = jnp.einsum(
            "bhij,bhjv->bhiv", maps[part, ..., :key_dim], state, precision=jax.lax.Precision.HIGHEST
        )
        goes_on = (last[part] == first[part + 1])[:, None, None, None]
        state = jnp.where(goes_on, through + maps[part, ..., key_dim:], 0)
        entering = jnp.where(rank == part + 1, state, entering)
    return entering
