"""Draw the next token of every row inside the compiled step, and tell its log-prob under the distribution
drawn from.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from t1_jax.kernels.rounding import pinned
from t1_jax.kernels.sums import log_probability, total

_BLOCK = 64  # tokens a block in `_invert`


def seed_data(seed: int) -> tuple[int, int]:
    """A 63-bit seed as the two 32-bit words of a threefry key."""
    return (seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF


def truncation_mask(
    scaled: Float[Array, "B V"], top_p: Float[Array, " B"], top_k: Int[Array, " B"]
) -> Bool[Array, "B V"]:
    """Which tokens top_k, then top_p on what remains, leave (the order of transformers' warpers).

    top_k < 1 keeps all; the most likely token is always kept; tokens tied with the last one kept are kept
    too.
    """
    vocab = scaled.shape[-1]
    ordered = jnp.sort(scaled, axis=-1)[:, ::-1]
    limit = jnp.where(top_k < 1, vocab, top_k)[:, None]
    ordered = jnp.where(jnp.arange(vocab)[None] < limit, ordered, -jnp.inf)
    probs = jax.nn.softmax(ordered, axis=-1)
    before = jnp.cumsum(probs, axis=-1) - probs  # mass of the strictly likelier ones
    # top_p 1 must cut nothing, although the rounded cumulative sum may pass 1 early
    kept = ((before < top_p[:, None]) | (top_p[:, None] >= 1.0)) & jnp.isfinite(ordered)
    kept = kept.at[:, 0].set(True)
    floor = jnp.min(jnp.where(kept, ordered, jnp.inf), axis=-1, keepdims=True)
    return scaled >= floor


def sample(
    logits: Float[Array, "B V"],
    seeds: UInt32[Array, "B 2"],
    positions: Int[Array, " B"],
    temperature: Float[Array, " B"],
    top_p: Float[Array, " B"],
    top_k: Int[Array, " B"],
    *,
    truncate: bool,
    ordered: bool = False,
) -> tuple[Int[Array, " B"], Float[Array, " B"]]:
    """Token ids int32 [B] and their float32 log-probs [B].

    The draw depends on the logits and on (seed, position): `positions` is the index in the sequence of the
    token that is drawn, so neither the batch nor a preemption changes a sample. Temperature 0 takes the
    arg-max and tells its log-prob at temperature 1. `truncate` (static) compiles top_p and top_k in,
    `ordered` the sums of kernels/sums.py.
    """
    greedy = temperature <= 0
    inverse = 1.0 / jnp.where(greedy, 1.0, temperature)
    scaled = pinned(logits.astype(jnp.float32) * inverse[:, None])
    if truncate:
        keep = truncation_mask(scaled, top_p, top_k) | greedy[:, None]
        scaled = jnp.where(keep, scaled, -jnp.inf)
    peak = jnp.max(scaled, axis=-1, keepdims=True)
    weights = jnp.exp(scaled - peak)

    def uniform(seed: UInt32[Array, " 2"], position: Int[Array, ""]) -> Float[Array, ""]:
        key = jax.random.fold_in(jax.random.wrap_key_data(seed, impl="threefry2x32"), position)
        return jax.random.uniform(key, (), jnp.float32)

    drawn = _invert(weights, jax.vmap(uniform)(seeds, positions))
    chosen = jnp.where(greedy, jnp.argmax(scaled, axis=-1), drawn).astype(jnp.int32)
    picked = jnp.take_along_axis(scaled, chosen[:, None], axis=-1)
    return chosen, log_probability((picked - peak)[:, 0], total(weights, ordered))


def _invert(weights: Float[Array, "B V"], uniform: Float[Array, " B"]) -> Int[Array, " B"]:
    """The index at which the running sum of the weights passes uniform * their sum.

    In two levels, blocks of the vocabulary and then one block, because a running sum over the vocabulary (or
    a random number for each of its tokens, as Gumbel-max takes) costs more than the model's forward when the
    model is small. A weight of 0 is never chosen.
    """
    batch, vocab = weights.shape
    blocks = jnp.pad(weights, ((0, 0), (0, -vocab % _BLOCK))).reshape(batch, -1, _BLOCK)

    def passed(sums: Float[Array, "B N"], target: Float[Array, "B 1"]) -> Int[Array, "B 1"]:
        # Rounding can put the target at the end of the sums: then the last entry that adds anything.
        last = jnp.argmax(sums >= sums[:, -1:], axis=-1)
        return jnp.minimum(jnp.sum(sums <= target, axis=-1), last)[:, None]

    sums = jnp.cumsum(jnp.sum(blocks, axis=-1), axis=-1)
    target = uniform[:, None] * sums[:, -1:]
    block = passed(sums, target)
    before = jnp.where(block > 0, jnp.take_along_axis(sums, jnp.maximum(block - 1, 0), axis=-1), 0.0)
    inside = jnp.cumsum(jnp.take_along_axis(blocks, block[..., None], axis=1)[:, 0], axis=-1)
    return (block * _BLOCK + passed(inside, target - before))[:, 0]
