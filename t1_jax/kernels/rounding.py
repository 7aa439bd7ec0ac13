"""Rounding that every compilation does the same way.

A compiler may keep a bfloat16 intermediate in float32 where it fuses operations (XLA's "excess precision"),
and what it fuses depends on shapes: then a token has other hidden states in a packed row than in decoding,
and the router picks other experts. `rounded` states the rounding as an operation of its own, which no
compiler drops. So engine and learner round at the same places, and what is left between them is the order of
float32 sums.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def rounded(x: Float[Array, ...], dtype: DTypeLike) -> Float[Array, ...]:
    """x as `dtype`, rounded to nearest even. The gradient is that of a cast."""
    info = jnp.finfo(dtype)
    if info.bits >= jnp.finfo(x.dtype).bits:
        return x.astype(dtype)
    return jax.lax.reduce_precision(x, info.nexp, info.nmant).astype(dtype)


@rounded.defjvp
def _rounded_jvp(dtype: DTypeLike, primals: tuple[jax.Array], tangents: tuple[jax.Array]):
    return rounded(primals[0], dtype), tangents[0].astype(dtype)


def pinned(x: Float[Array, ...]) -> Float[Array, ...]:
    """A float32 value as it is written to memory, less the last bit of its mantissa.

    A compiler fuses a product with the sum that takes it, without rounding between, where both are in one
    loop. What this gives it can't take apart (an optimisation barrier is gone by then on a CPU).
    """
    return jax.lax.reduce_precision(x, 8, 22)


def matmul(x: Float[Array, "... D"], weight: Float[Array, "D F"]) -> Float[Array, "... F"]:
    """x @ weight, accumulated in float32 and rounded once, to x's dtype."""
    return rounded(jnp.dot(x, weight, preferred_element_type=jnp.float32), x.dtype)
