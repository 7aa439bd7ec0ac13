"""Sums in an order that no compiler changes.

A compiler sums a long axis in an order of its choice, which depends on shapes and on what is fused around the
sum; so a token's norm in decoding differs in the last bit from its norm in a packed row, and sooner or later
a router picks another expert. Written as additions of whole arrays, the order is part of the program.
This costs time, so it is done where a model is `deterministic`; otherwise sums are the compiler's.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from t1_jax.kernels.rounding import pinned

BLOCK = 16


def tree_sum(x: Float[Array, "... N"]) -> Float[Array, ...]:
    """Sum of the last axis, halves onto each other until one is left."""
    width = 1 << (x.shape[-1] - 1).bit_length()
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])
    while x.shape[-1] > 1:
        # A sum of two has one result in any order; pinned, it is not merged with the next one. (Slices that
        # are added are one loop to a compiler, which then writes out every addend's whole computation:
        # minutes for a vocabulary.)
        x = jnp.sum(pinned(x).reshape(*x.shape[:-1], 2, -1), axis=-2)
    return x[..., 0]


def total(x: Float[Array, "... N"], ordered: bool) -> Float[Array, ...]:
    """Sum of the last axis: `tree_sum`, or in the compiler's order."""
    return tree_sum(x) if ordered else jnp.sum(x, axis=-1)


def log_probability(shifted: Float[Array, ...], total: Float[Array, ...]) -> Float[Array, ...]:
    """shifted - log(total): of an outcome with weight exp(shifted) among weights that sum to `total`."""
    return pinned(shifted) - pinned(jnp.log(total))


def softmax(
    x: Float[Array, "... N"], ordered: bool, ordered_sum: Callable[[jax.Array], jax.Array] = tree_sum
) -> Float[Array, "... N"]:
    """Over the last axis, whose exponentials `ordered_sum` adds where the order matters."""
    if not ordered:
        return jax.nn.softmax(x, axis=-1)
    exponentials = jnp.exp(x - jax.lax.stop_gradient(jnp.max(x, axis=-1, keepdims=True)))
    return exponentials / ordered_sum(exponentials)[..., None]


def block_sum(x: Float[Array, "... N"]) -> Float[Array, ...]:
    """Sum of the last axis by blocks of BLOCK, one after another: zeros in whole blocks before or behind
    change nothing, as they do for `tree_sum`.
    """
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % BLOCK)])
    blocks = tree_sum(x.reshape(*x.shape[:-1], -1, BLOCK))
    total, _ = jax.lax.scan(
        lambda total, block: (total + block, None),
        jnp.zeros_like(blocks[..., 0]),
        jnp.moveaxis(blocks, -1, 0),
    )
    return total
