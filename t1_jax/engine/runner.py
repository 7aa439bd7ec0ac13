"""The compiled side of the engine: prefill, blocks of decoding and row copies over one resident cache.

Legend: N cache rows (slots, then prompt snapshots), R rows of one call, T tokens, S cached positions, L MoE
layers, K experts per token, D hidden size. A call gathers its rows into a compact batch over the first
`context` positions, works there, and scatters back; so a call costs what its rows and their length need, not
what the cache could hold. Every shape comes from a short list of buckets, and a padding row carries the index
N, which reads row N - 1 and writes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from t1_jax.engine.request import MAX_STOP_IDS, SamplingParams
from t1_jax.engine.sampler import sample, seed_data
from t1_jax.model import transformer
from t1_jax.model.config import ModelConfig
from t1_jax.parallel.platform import platform

Params = Any

# Where the batch dimension lies in each leaf of the cache, and the position.
_BATCH_AXIS = {"k": 1, "v": 1, "conv": 2, "state": 2, "pending": 2, "lengths": 0, "hidden": 0}
_POSITION_AXIS = {"k": 4, "v": 3}


class State(NamedTuple):
    """What stays on the device between calls: the cache, and each row's hidden state after its last token."""

    cache: Any  # transformer.Cache
    hidden: Float[Array, "N D"]


class RowSampling(NamedTuple):
    """Sampling parameters of the rows of one decode call."""

    seeds: UInt32[Array, "R 2"]
    temperature: Float[Array, " R"]
    top_p: Float[Array, " R"]
    top_k: Int[Array, " R"]
    stop_ids: Int[Array, "R stops"]  # padded with -1
    budget: Int[Array, " R"]  # tokens still to sample; 0 for a padding row


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """One block: S steps of R rows. Row r emitted tokens[:emitted[r], r] and forwarded the first forwarded[r]
    of them.
    """

    tokens: np.ndarray  # int32 [S, R]
    logprobs: np.ndarray  # float32 [S, R]
    routed_experts: np.ndarray  # [S, R, L, K]
    emitted: np.ndarray  # int [R]
    forwarded: np.ndarray  # int [R]; one less than emitted when the row is finished
    steps: int  # rounds that ran


def _leaves(state: State) -> dict[str, Array]:
    cache = {name: getattr(state.cache, name) for name in _BATCH_AXIS if name != "hidden"}
    return cache | {"hidden": state.hidden}


def _state(like: State, leaves: dict[str, Array]) -> State:
    cache = {name: leaf for name, leaf in leaves.items() if name != "hidden"}
    return State(dataclasses.replace(like.cache, **cache), leaves["hidden"])


def _gather(state: State, rows: Int[Array, " R"], context: int) -> State:
    """The rows, and of keys and values the first `context` positions: a loop of slices, as in `_scatter`."""
    old = _leaves(state)

    def shape(name: str, leaf: Array) -> list[int]:
        sizes = list(leaf.shape)
        sizes[_BATCH_AXIS[name]] = 1
        if name in _POSITION_AXIS:
            sizes[_POSITION_AXIS[name]] = context
        return sizes

    def read(i: Array, leaves: dict[str, Array]) -> dict[str, Array]:
        out = {}
        for name, leaf in leaves.items():
            at = [jnp.int32(0)] * leaf.ndim
            at[_BATCH_AXIS[name]] = rows[i]  # clipped by the slice: padding reads the last row
            piece = jax.lax.dynamic_slice(old[name], at, shape(name, old[name]))
            out[name] = jax.lax.dynamic_update_slice_in_dim(leaf, piece, i, _BATCH_AXIS[name])
        return out

    part = {
        name: jnp.zeros(np.insert(np.delete(shape(name, leaf), axis), axis, len(rows)), leaf.dtype)
        for (name, leaf), axis in zip(old.items(), _BATCH_AXIS.values(), strict=True)
    }
    return _state(state, jax.lax.fori_loop(0, rows.shape[0], read, part))


def _scatter(state: State, rows: Int[Array, " R"], part: State, start: Int[Array, " R"], width: int) -> State:
    """Write rows back; of keys and values only `width` positions from `start`, since no others changed.

    A loop of slice updates, which a donated buffer takes in place. A scatter would be one line, but XLA's CPU
    backend widens a bfloat16 one to float32 and back, the whole cache through (measured: 95 ms for 64 rows).
    """
    context = part.cache.v.shape[3]
    width = min(width, context)
    start = jnp.clip(start, 0, context - width)

    def write(i: Array, leaves: dict[str, Array]) -> dict[str, Array]:
        out = {}
        for name, leaf in leaves.items():
            axis = _BATCH_AXIS[name]
            at = [jnp.int32(0)] * leaf.ndim
            at[axis] = rows[i]
            piece = jax.lax.dynamic_slice_in_dim(new[name], i, 1, axis)
            if name in _POSITION_AXIS:
                at[_POSITION_AXIS[name]] = start[i]
                piece = jax.lax.dynamic_slice_in_dim(piece, start[i], width, _POSITION_AXIS[name])
            out[name] = jax.lax.dynamic_update_slice(leaf, piece, at)
        return out

    new = _leaves(part)
    valid = jnp.sum(rows < state.hidden.shape[0])  # padding rows come last
    return _state(state, jax.lax.fori_loop(0, valid, write, _leaves(state)))


def _reset(part: State, fresh: Bool[Array, " R"]) -> State:
    """Empty the rows that start a sequence. Keys and values may stay: nothing attends beyond `lengths`."""
    cache = part.cache
    keep = ~fresh
    wide = keep[None, None, :]
    return State(
        dataclasses.replace(
            cache,
            conv=jnp.where(wide[..., None, None], cache.conv, 0).astype(cache.conv.dtype),
            state=jnp.where(wide[..., None, None, None], cache.state, 0),
            lengths=jnp.where(keep, cache.lengths, 0),
        ),
        part.hidden,
    )


def prefill_step(
    params: Params,
    state: State,
    rows: Int[Array, " R"],
    tokens: Int[Array, "R T"],
    mask: Bool[Array, "R T"],
    fresh: Bool[Array, " R"],
    *,
    config: ModelConfig,
    context: int,
) -> tuple[State, Array]:
    """Forward new tokens of R rows behind what their cache holds: the state, and the experts [R, T, L, K]."""
    with jax.named_scope("prefill"):
        part = _reset(_gather(state, rows, context), fresh)
        start = part.cache.lengths
        out = transformer.forward(params, config, tokens, cache=part.cache, token_mask=mask)
        last = jnp.maximum(mask.sum(axis=1) - 1, 0)
        hidden = jnp.take_along_axis(out.hidden, last[:, None, None], axis=1)[:, 0]
        part = State(out.cache, hidden.astype(state.hidden.dtype))
        state = _scatter(state, rows, part, start, tokens.shape[1])
        return state, out.routed_experts.astype(config.routes_dtype)


def decode_block(
    params: Params,
    state: State,
    rows: Int[Array, " R"],
    sampling: RowSampling,
    limit: Int[Array, ""],
    *,
    config: ModelConfig,
    context: int,
    steps: int,
    truncate: bool,
) -> tuple[State, tuple[Array, ...]]:
    """Rounds of: sample from the hidden state, then forward the token unless it ended the row. It ends after
    `limit` rounds, at most `steps`, or as soon as less than half of its rows are left: the next block is then
    smaller, or has other rows in their places.

    Sampling first means that no token is ever pending: a row's hidden state is that of its last forwarded
    token, after a prefill as after a block, and the token that ends a row isn't forwarded until a later turn
    brings it back. Returns the state and (rounds, tokens [S, R], logprobs [S, R], experts [S, R, L, K],
    emitted [R], forwarded [R]).
    """

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        done, part, active, left, emitted, forwarded, record = carry
        with jax.named_scope("sample"):
            scores = transformer.logits(params, config, part.hidden)
            token, logprob = sample(
                scores,
                sampling.seeds,
                part.cache.lengths,
                sampling.temperature,
                sampling.top_p,
                sampling.top_k,
                truncate=truncate,
                ordered=config.deterministic,
            )
        emitted = emitted + active
        left = left - active
        alive = active & (left > 0) & ~(token[:, None] == sampling.stop_ids).any(axis=1)
        with jax.named_scope("decode"):
            out = transformer.forward(
                params, config, token[:, None], cache=part.cache, token_mask=alive[:, None]
            )
        hidden = jnp.where(alive[:, None], out.hidden[:, 0].astype(part.hidden.dtype), part.hidden)
        experts = out.routed_experts[:, 0].astype(config.routes_dtype)
        record = jax.tree.map(
            lambda all_, new: jax.lax.dynamic_update_index_in_dim(all_, new, done, 0),
            record,
            (token, logprob, experts),
        )
        return done + 1, State(out.cache, hidden), alive, left, emitted, forwarded + alive, record

    def goes_on(carry: tuple[Any, ...]) -> Array:
        left = jnp.sum(carry[2])
        return (carry[0] < limit) & (left > 0) & (2 * left >= started)

    part = _gather(state, rows, context)
    started = jnp.sum(sampling.budget > 0)
    start, zero = part.cache.lengths, jnp.zeros_like(sampling.budget)
    shape = (steps, rows.shape[0])
    record = (
        jnp.zeros(shape, jnp.int32),
        jnp.zeros(shape, jnp.float32),
        jnp.zeros((*shape, config.num_moe_layers, config.num_experts_per_tok), config.routes_dtype),
    )
    carry = (jnp.int32(0), part, sampling.budget > 0, sampling.budget, zero, zero, record)
    done, part, _, _, emitted, forwarded, record = jax.lax.while_loop(goes_on, step, carry)
    return _scatter(state, rows, part, start, steps), (done, *record, emitted, forwarded)


def copy_rows(state: State, source: Int[Array, " R"], target: Int[Array, " R"]) -> State:
    """Copy whole cache rows; a padding target writes nothing."""
    length = state.cache.v.shape[3]
    return _scatter(state, target, _gather(state, source, length), jnp.zeros_like(target), length)


# One compilation per process and shape, whoever asks.
_prefill = jax.jit(prefill_step, static_argnames=("config", "context"), donate_argnames="state")
_decode = jax.jit(
    decode_block, static_argnames=("config", "context", "steps", "truncate"), donate_argnames="state"
)
_copy = jax.jit(copy_rows, donate_argnames="state")
_cast = jax.jit(transformer.cast_params, static_argnames="config")


def bucket(value: int, sizes: Sequence[int]) -> int:
    """The smallest size that holds `value`; `sizes` ascend and the last one bounds every value."""
    return next(size for size in sizes if size >= value)


def _padded(values: Sequence[int], size: int, fill: int) -> Any:
    out = np.full(size, fill, np.int32)
    out[: len(values)] = values
    return out


class Runner:
    """Owns the parameters and the device state. Not thread-safe: one thread makes all calls."""

    COPY_ROWS = 8

    def __init__(
        self, params: Params, config: ModelConfig, *, rows: int, slots: int, max_length: int, steps: int
    ) -> None:
        """`rows` cache rows of `max_length` positions, of which at most `slots` decode together, `steps` per
        block.
        """
        self.config = config
        self.rows = rows
        self.slots = slots
        self.max_length = max_length
        self.steps = steps
        # Few buckets: on a small machine a compilation costs more than the padding that another bucket would
        # save.
        self.decode_rows = sorted({min(size, slots) for size in (16, slots)})
        self.contexts = sorted(
            {size for size in (512, 2048, 8192, 32768, 131072) if size < max_length} | {max_length}
        )
        shapes = [(8, 32), (32, 32)]
        if not (config.deterministic and platform() == "cpu"):  # larger products sum in another order there
            shapes.append((8, 256))
        self.prefill_shapes = sorted({(min(r, slots), min(t, max_length)) for r, t in shapes})
        self.compiled: set[tuple[Any, ...]] = set()
        self.set_params(params)
        self.reset()

    def set_params(self, params: Params) -> None:
        """Cast once to the compute dtype, so that no call casts masters again."""
        self.params = _cast(params, config=self.config)

    def reset(self) -> None:
        """A new, empty state: at start, and after a failed call, whose donated buffers are gone."""
        cache = transformer.init_cache(self.config, self.rows, self.max_length)
        self.state = State(cache, jnp.zeros((self.rows, self.config.hidden_size), self.config.dtype))

    def prefill(
        self,
        rows: Sequence[int],
        tokens: Sequence[np.ndarray],
        fresh: Sequence[bool],
        lengths: Sequence[int],
        shape: tuple[int, int],
    ) -> np.ndarray:
        """Forward tokens[i] (int32, at most shape[1] of them) on row rows[i], which holds lengths[i] tokens
        unless fresh.

        Returns the experts [len(rows), T, L, K], valid up to each row's own number of tokens.
        """
        size, width = shape
        ids = np.zeros(shape, np.int32)
        mask = np.zeros(shape, bool)
        for i, row in enumerate(tokens):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = True
        need = max(length + len(row) for length, row in zip(lengths, tokens, strict=True))
        context = self._context(need, size)
        self.compiled.add(("prefill", size, width, context))
        self.state, experts = _prefill(
            self.params,
            self.state,
            _padded(rows, size, self.rows),
            ids,
            mask,
            _padded(fresh, size, 1).astype(bool),
            config=self.config,
            context=context,
        )
        return np.asarray(experts)[: len(rows)]

    def decode(
        self,
        rows: Sequence[int],
        lengths: Sequence[int],
        sampling: Sequence[SamplingParams],
        budgets: Sequence[int],
        limit: int | None = None,
    ) -> Decoded:
        """One block of at most `limit` steps. budgets[i] is how many tokens row rows[i] may still sample."""
        count = len(rows)
        size = bucket(count, self.decode_rows)
        ahead = [length + min(self.steps, budget) for length, budget in zip(lengths, budgets, strict=True)]
        context = self._context(max(ahead), size)
        seeds: Any = np.zeros((size, 2), np.uint32)
        seeds[:count] = [seed_data(s.seed) for s in sampling]
        stops: Any = np.full((size, MAX_STOP_IDS), -1, np.int32)
        for i, s in enumerate(sampling):
            stops[i, : len(s.stop_token_ids)] = s.stop_token_ids
        floats: Any = np.ones((2, size), np.float32)
        floats[:, :count] = [[s.temperature for s in sampling], [s.top_p for s in sampling]]
        truncate = any(s.truncates for s in sampling)
        self.compiled.add(("decode", size, context, truncate))
        self.state, outputs = _decode(
            self.params,
            self.state,
            _padded(rows, size, self.rows),
            RowSampling(
                seeds,
                floats[0],
                floats[1],
                _padded([s.top_k for s in sampling], size, -1),
                stops,
                _padded(budgets, size, 0),
            ),
            np.int32(self.steps if limit is None else min(limit, self.steps)),
            config=self.config,
            context=context,
            steps=self.steps,
            truncate=truncate,
        )
        done, tokens, logprobs, experts, emitted, forwarded = (np.asarray(x) for x in outputs)
        return Decoded(
            tokens=tokens[:, :count],
            logprobs=logprobs[:, :count],
            routed_experts=experts[:, :count],
            emitted=emitted[:count],
            forwarded=forwarded[:count],
            steps=int(done),
        )

    def _context(self, need: int, rows: int) -> int:
        """Fewer shapes: a small batch takes a wider context, at no more than the full batch's least cost."""
        return bucket(max(need, min(self.max_length, self.contexts[0] * self.slots // rows)), self.contexts)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy cache rows, (source, target) each; no target is also a source."""
        self.compiled.add(("copy",))
        for start in range(0, len(pairs), self.COPY_ROWS):
            some = pairs[start : start + self.COPY_ROWS]
            self.state = _copy(
                self.state,
                _padded([source for source, _ in some], self.COPY_ROWS, self.rows),
                _padded([target for _, target in some], self.COPY_ROWS, self.rows),
            )


__all__ = ["Decoded", "Runner", "State", "bucket", "copy_rows", "decode_block", "prefill_step"]
