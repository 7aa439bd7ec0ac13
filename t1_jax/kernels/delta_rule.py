"""The gated delta rule (arXiv 2412.06464): a plain scan, and the chunked form that trains and decodes.

Per head, with state S [Dk, Dv] in float32:

    S <- exp(g_t) S;  d = beta_t (v_t - S^T k_t);  S <- S + k_t d^T;  o_t = S^T q_t

Documents in a packed row are told apart by segment ids: the state starts from zero at every change of
segment. A token with g = 0 and beta = 0 leaves the state as it is: that is how padding is written.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.parallel.context import entering_state
from t1_jax.parallel.platform import platform

# The state is the sum of thousands of updates: float32 products, also on chips whose default is bfloat16.
einsum = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)

State = Float[Array, "B H Dk Dv"]


def chunk_size() -> int:
    """Tokens a chunk. A document that starts at a multiple of it in a packed row has the chunks that it has
    alone. Small on a CPU, which in decoding would feel that each token computes a chunk.
    """
    return 16 if platform() == "cpu" else 32


def delta_rule_reference(
    q: Float[Array, "B T H Dk"],
    k: Float[Array, "B T H Dk"],
    v: Float[Array, "B T H Dv"],
    g: Float[Array, "B T H"],
    beta: Float[Array, "B T H"],
    segment_ids: Int[Array, "B T"],
    state: State,
) -> tuple[Float[Array, "B T H Dv"], State]:
    """Token by token, in float32. `state` belongs to the segment of the first token."""

    def step(carry, token):
        state, segment = carry
        *token, new_segment = token
        state = jnp.where((new_segment == segment)[:, None, None, None], state, 0.0)
        state, out = delta_rule_step(state, *token)
        return (state, new_segment), out

    tokens = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (q, k, v, g, beta, segment_ids))
    (state, _), out = jax.lax.scan(step, (state, segment_ids[:, 0]), tokens)
    return jnp.moveaxis(out, 0, 1), state


def delta_rule_step(
    state: State,
    q: Float[Array, "B H Dk"],
    k: Float[Array, "B H Dk"],
    v: Float[Array, "B H Dv"],
    g: Float[Array, "B H"],
    beta: Float[Array, "B H"],
) -> tuple[State, Float[Array, "B H Dv"]]:
    """One token: the state after it, and its output."""
    state = state * jnp.exp(g)[..., None, None]
    read = jnp.sum(state * k[..., None], axis=-2)
    update = (v - read) * beta[..., None]
    state = state + k[..., None] * update[..., None, :]
    return state, jnp.sum(state * q[..., None], axis=-2)


@jax.custom_vjp
def unit_lower_inverse(a: Float[Array, "... C C"]) -> Float[Array, "... C C"]:
    """(I + A)^-1 for strictly lower triangular A; C is at most 8, or 8 times a power of two.

    Blocks of 8 by the (finite) Neumann product (I - A)(I + A^2)(I + A^4), then pairs of blocks merged:
    inv [[P, 0], [R, Q]] = [[P', 0], [-Q' R P', Q']]. As stable as forward substitution, since powers never
    exceed 7, and only matrix products: a library's triangular solve is slower by tens on a CPU and has
    deadlocked there.
    """
    size = a.shape[-1]
    block = min(8, size)
    flat = a.reshape(-1, size, size)

    def on_diagonal(row: int, column: int, width: int, stride: int) -> jax.Array:
        """Blocks at (row, column) of each `stride`-wide diagonal block, [batch * size / stride, w, w]."""
        parts = [
            flat[:, i + row : i + row + width, i + column : i + column + width]
            for i in range(0, size, stride)
        ]
        return jnp.stack(parts, axis=1).reshape(-1, width, width)

    part = on_diagonal(0, 0, block, block)
    eye = jnp.eye(block, dtype=a.dtype)
    square = _product(part, part)
    inverse = _product(_product(eye - part, eye + square), eye + _product(square, square))
    while block < size:
        first, second = inverse[0::2], inverse[1::2]
        corner = -_product(_product(second, on_diagonal(block, 0, block, 2 * block)), first)
        top = jnp.concatenate([first, jnp.zeros_like(first)], axis=-1)
        inverse = jnp.concatenate([top, jnp.concatenate([corner, second], axis=-1)], axis=-2)
        block *= 2
    return inverse.reshape(a.shape)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return einsum("bij,bjk->bik", a, b)


def _inverse_forward(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    inverse = unit_lower_inverse(a)
    return inverse, inverse


def _inverse_backward(inverse: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    return (-jnp.tril(einsum("...ji,...jk,...lk->...il", inverse, gradient, inverse), -1),)


unit_lower_inverse.defvjp(_inverse_forward, _inverse_backward)


def delta_rule_chunked(
    q: Float[Array, "B T H Dk"],
    k: Float[Array, "B T H Dk"],
    v: Float[Array, "B T H Dv"],
    g: Float[Array, "B T H"],
    beta: Float[Array, "B T H"],
    segment_ids: Int[Array, "B T"],
    state: State,
    *,
    chunk: int | None = None,
    whole_chunks: Int[Array, " B"] | None = None,
    parallel: Parallel = SINGLE,
) -> tuple[Float[Array, "B T H Dv"], State]:
    """The same function in chunks: matrix products and one triangular inverse inside, a scan between them.

    With G the running sum of g in the chunk, D_ij = exp(G_i - G_j) for j <= i in one segment, A = strict
    lower part of (beta k) k^T * D, the updates d of the chunk solve (I + A) d = beta v - (beta k exp(G)) S.
    Differences of G are masked BEFORE exp: masking after it gives inf * 0 in the gradient.

    The state that is returned is the one after all tokens, or, where `whole_chunks` is given, after so many
    chunks of each row; no output beyond the next chunk means anything then.

    With a sequence split over context devices, `state` is ignored: every device first finds the affine map
    that its part is for the state, then starts from what the parts before it make of zeros. The state that is
    returned is the one after this device's part.
    """
    length = q.shape[1]
    chunk = min(chunk or chunk_size(), 1 << max(3, (length - 1).bit_length()))
    pad = -length % chunk
    if pad:
        widen = lambda x, **kw: jnp.pad(x, [(0, 0), (0, pad)] + [(0, 0)] * (x.ndim - 2), **kw)  # noqa: E731
        q, k, v, g, beta = map(widen, (q, k, v, g, beta))
        segment_ids = widen(segment_ids, mode="edge")

    def split(x):  # [B, T, H, ...] -> [N, B, H, C, ...]
        x = x.reshape(x.shape[0], -1, chunk, *x.shape[2:])
        return jnp.moveaxis(jnp.moveaxis(x, 3, 2), 1, 0)

    q, k, v, g, beta = map(split, (q, k, v, g, beta))
    segments = jnp.moveaxis(segment_ids.reshape(segment_ids.shape[0], -1, chunk), 1, 0)  # [N, B, C]
    entering = jnp.concatenate([segments[:1, :, 0], segments[:-1, :, -1]])  # [N, B], whose state comes in
    continues = (segments == entering[..., None])[:, :, None]  # [N, B, 1, C], this token may see it
    leaving = (segments == segments[..., -1:])[:, :, None]  # this token's update goes on

    decay = jnp.cumsum(g, axis=-1)  # [N, B, H, C]
    causal = jnp.tril(jnp.ones((chunk, chunk), bool))
    same = (segments[..., :, None] == segments[..., None, :])[:, :, None] & causal
    pairs = jnp.exp(jnp.where(same, decay[..., :, None] - decay[..., None, :], -jnp.inf))

    k_beta = k * beta[..., None]
    inner = jnp.tril(einsum("nbhid,nbhjd->nbhij", k_beta, k) * pairs, -1)
    entry_decay = (jnp.exp(decay) * continues)[..., None]
    targets = jnp.concatenate([v * beta[..., None], k_beta * entry_decay], axis=-1)
    solved = einsum("nbhij,nbhje->nbhie", unit_lower_inverse(inner), targets)
    update_free, update_state = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]
    scores = einsum("nbhid,nbhjd->nbhij", q, k) * pairs
    q_entry = q * entry_decay
    k_exit = k * (jnp.exp(decay[..., -1:] - decay) * leaving)[..., None]
    state_decay = (jnp.exp(decay[..., -1]) * continues[..., -1])[..., None, None]

    def step(state, parts):
        index, update_free, update_state, scores, q_entry, k_exit, state_decay = parts
        update = update_free - einsum("bhid,bhde->bhie", update_state, state)
        out = einsum("bhid,bhde->bhie", q_entry, state) + einsum("bhij,bhje->bhie", scores, update)
        after = state * state_decay + einsum("bhid,bhie->bhde", k_exit, update)
        if whole_chunks is not None:
            after = jnp.where((index < whole_chunks)[:, None, None, None], after, state)
        return after, out

    if parallel.size("context") > 1:
        maps = (update_free, update_state, k_exit, state_decay)
        state = entering_state(parallel, *_affine_map(*maps), segment_ids)
    parts = (jnp.arange(len(q)), update_free, update_state, scores, q_entry, k_exit, state_decay)
    state, out = jax.lax.scan(step, state, parts)
    out = jnp.moveaxis(jnp.moveaxis(out, 0, 1), 2, 3)  # [N, B, H, C, D] -> [B, N, C, H, D]
    return out.reshape(out.shape[0], -1, *out.shape[3:])[:, :length], state


def delta_rule_resumed(
    q: Float[Array, "B T H Dk"],
    k: Float[Array, "B T H Dk"],
    v: Float[Array, "B T Hv Dv"],
    g: Float[Array, "B T Hv"],
    beta: Float[Array, "B T Hv"],
    count: Int[Array, " B"],
    read: Int[Array, " B"],
    pending: Float[Array, "B C F"],
    state: State,
) -> tuple[Float[Array, "B T Hv Dv"], Float[Array, "B C F"], State]:
    """The chunked form for rows that come in pieces, in decoding a token at a time.

    The unfinished chunk is computed anew, as a whole, with every piece of it. So each output is the very sum
    that one pass over the row gives, to the last bit, for a few small matrix products more than a state
    after every token would cost.

    Args:
      q, k, v, g, beta: of T new tokens; Hv is a multiple of H.
      count: how many of the T there are in each row; the others, behind them, are padding.
      read: tokens that each row has read before.
      pending: what the row keeps of its unfinished chunk, F = k, v, g and beta of a token side by side, in
        the first (read mod C) places. What lies behind means nothing.
      state: before the unfinished chunk.

    Returns:
      Outputs of the new tokens, what is pending now, and the state before that.
    """
    (batch, length, heads, key_dim), (value_heads, value_dim) = q.shape, v.shape[2:]
    chunk = pending.shape[1]
    offset = read % chunk
    width = -(-(chunk - 1 + length) // chunk) * chunk
    place = jnp.arange(width) - offset[:, None]  # among the new tokens; a negative one is pending

    def at(x: Float[Array, "B S F"], index: Int[Array, "B N"]) -> Float[Array, "B N F"]:
        if x.shape[1] == 1:
            return jnp.broadcast_to(x, (*index.shape, x.shape[-1]))
        return jnp.take_along_axis(x, jnp.clip(index, 0, x.shape[1] - 1)[..., None], axis=1)

    flat = [x.reshape(batch, length, -1) for x in (k, v, g, beta)]
    old = jnp.pad(pending, [(0, 0), (0, width - chunk), (0, 0)])
    tokens = jnp.where((place >= 0)[..., None], at(jnp.concatenate(flat, axis=-1), place), old)
    tokens = jnp.where((place < count[:, None])[..., None], tokens, 0.0)
    ends = np.cumsum([x.shape[-1] for x in flat])[:-1].tolist()
    keys, values, g, beta = jnp.split(tokens, ends, axis=-1)
    queries = at(q.reshape(batch, length, -1), place)
    queries, keys = (
        jnp.repeat(x.reshape(batch, width, heads, key_dim), value_heads // heads, axis=2)
        for x in (queries, keys)
    )
    whole = (offset + count) // chunk
    out, state = delta_rule_chunked(
        queries,
        keys,
        values.reshape(batch, width, value_heads, value_dim),
        g,
        beta,
        jnp.ones((batch, width), jnp.int32),
        state,
        chunk=chunk,
        whole_chunks=whole,
    )
    out = at(out.reshape(batch, width, -1), offset[:, None] + jnp.arange(length))
    # With one new token either nothing moves, or the chunk is full and nothing is left.
    pending = tokens if length == 1 else at(tokens, whole[:, None] * chunk + jnp.arange(chunk))
    return out.reshape(batch, length, value_heads, value_dim), pending, state


def _affine_map(
    update_free: Float[Array, "N B H C Dv"],
    update_state: Float[Array, "N B H C Dk"],
    k_exit: Float[Array, "N B H C Dk"],
    state_decay: Float[Array, "N B H 1 1"],
) -> tuple[Float[Array, "B H Dk Dk"], Float[Array, "B H Dk Dv"]]:
    """(A, S0) such that the chunks turn a state S into A S + S0.

    The rule acts on the columns of a state alike, so A is what it makes of the identity when no values come
    in, and both are found in one scan over a wider state.
    """
    key_dim = update_state.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(key_dim), (*k_exit.shape[1:3], key_dim, key_dim))
    wide = jnp.concatenate([identity, jnp.zeros((*identity.shape[:-1], update_free.shape[-1]))], axis=-1)

    def step(state, parts):
        update_free, update_state, k_exit, state_decay = parts
        update = jnp.pad(update_free, [(0, 0)] * 3 + [(key_dim, 0)])
        update = update - einsum("bhid,bhde->bhie", update_state, state)
        return state * state_decay + einsum("bhid,bhie->bhde", k_exit, update), None

    # The backward pass would otherwise keep a wide state for every chunk.
    wide, _ = jax.lax.scan(jax.checkpoint(step), wide, (update_free, update_state, k_exit, state_decay))
    return wide[..., :key_dim], wide[..., key_dim:]
