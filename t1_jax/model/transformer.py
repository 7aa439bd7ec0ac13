"""Qwen3.5-MoE, the text model: the file to open first.

    h = embed(tokens)
    every period (scanned):  every layer:  h += mixer(norm(h));  h += moe(norm(h))
                             the mixer is Gated DeltaNet, in a period's last layer gated attention
    hidden = norm(h);  logits = hidden @ lm_head

One forward serves training (packed rows, told apart by segment ids), prefill and decode (a cache). Routing
comes out as a record and can go back in as an input.

Legend: B rows, T tokens, D hidden, L layers, K experts
a token, E experts, V vocabulary, P periods, S cache length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from t1_jax.kernels.cross_entropy import token_logprobs as flat_token_logprobs
from t1_jax.kernels.rounding import rounded
from t1_jax.model.attention import gated_attention
from t1_jax.model.config import ModelConfig
from t1_jax.model.deltanet import document_alignment, gated_deltanet
from t1_jax.model.moe import routed_experts_mlp, shared_expert_mlp
from t1_jax.model.norm import rms_norm
from t1_jax.model.parameters import Params, abstract, cast_params, init_params
from t1_jax.model.remat import RematPolicy, rematerialised
from t1_jax.model.router import Routing, route
from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.parallel.parameters import gather_params

__all__ = [
    "Cache",
    "Output",
    "RematPolicy",
    "Transformer",
    "abstract",
    "cast_params",
    "forward",
    "init_cache",
    "init_params",
    "logits",
    "token_logprobs",
    "token_statistics",
]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cache:
    """What a row remembers between forwards.

    k [P, B, kv heads, head_dim, S] and v [P, B, kv heads, S, head_dim], as attention's products read them;
    conv [P, I-1, B, taps-1, channels], the last inputs of each convolution;
    state float32 [P, I-1, B, value heads, Dk, Dv]; pending float32 [P, I-1, B, C, F], where the model is
    deterministic: the state is the one before the unfinished chunk then, and these are that chunk's tokens
    (C is 0 otherwise); lengths int32 [B], tokens consumed so far.
    """

    k: jax.Array
    v: jax.Array
    conv: jax.Array
    state: jax.Array
    pending: jax.Array
    lengths: jax.Array


class Output(NamedTuple):
    """`hidden` [B, T, D] after the final norm; `routed_experts` int32 [B, T, L, K], the selection that was
    used, in descending weight when live; `router_logits` float32 [B, T, L, E]; `cache`, advanced, when one
    was given.
    """

    hidden: jax.Array
    routed_experts: jax.Array
    router_logits: jax.Array
    cache: Cache | None


def init_cache(config: ModelConfig, batch: int, max_length: int) -> Cache:
    """An empty cache for `batch` rows of at most `max_length` tokens each."""
    periods, linear = config.num_periods, config.full_attention_interval - 1
    kv_heads, dim = config.num_key_value_heads, config.head_dim
    # XLA's CPU backend rewrites a bfloat16 buffer as float32 and back around every update of it. The values
    # are the rounded ones either way.
    dtype = jnp.float32 if jax.default_backend() == "cpu" else config.dtype
    conv = (periods, linear, batch, config.linear_conv_kernel_dim - 1, config.conv_dim)
    heads = (config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim)
    chunk = document_alignment(config) if config.deterministic else 0
    width = config.linear_num_key_heads * heads[1] + heads[0] * (heads[2] + 2)
    return Cache(
        k=jnp.zeros((periods, batch, kv_heads, dim, max_length), dtype),
        v=jnp.zeros((periods, batch, kv_heads, max_length, dim), dtype),
        conv=jnp.zeros(conv, dtype),
        state=jnp.zeros((periods, linear, batch, *heads), jnp.float32),
        pending=jnp.zeros((periods, linear, batch, chunk, width), jnp.float32),
        lengths=jnp.zeros((batch,), jnp.int32),
    )


def forward(
    params: Params,
    config: ModelConfig,
    tokens: Int[Array, "B T"],
    *,
    segment_ids: Int[Array, "B T"] | None = None,
    positions: Int[Array, "B T"] | None = None,
    routed_experts: Int[Array, "B T L K"] | None = None,
    cache: Cache | None = None,
    token_mask: Bool[Array, "B T"] | None = None,
    remat_policy: RematPolicy = "none",
    parallel: Parallel = SINGLE,
) -> Output:
    """Run the model, or one device's part of it: its rows, its part of their tokens, its parameters.

    Without a cache a row holds documents: `segment_ids` 1..n, 0 on padding; `positions` restart with each
    document. With a cache a row continues one document: `token_mask` marks its valid tokens, which come
    first, and positions follow from the cache. `routed_experts` replays a recorded selection; a row of -1
    routes live.
    """
    params = cast_params(params, config)
    specs = abstract(config)
    length = tokens.shape[1]
    mask = write_at = None
    if cache is None:
        if segment_ids is None:
            segment_ids = jnp.ones_like(tokens)
        if positions is None:
            positions = jnp.broadcast_to(jnp.arange(length), tokens.shape)
        token_mask = segment_ids > 0
    else:
        if token_mask is None:
            token_mask = jnp.ones(tokens.shape, bool)
        segment_ids = jnp.ones_like(tokens)
        positions = cache.lengths[:, None] + jnp.arange(length)
        capacity = cache.v.shape[3]
        write_at = jnp.where(token_mask, positions, capacity)
        mask = jnp.arange(capacity) <= positions[..., None]

    shared = LayerInputs(config, parallel, specs, positions, mask, write_at, segment_ids, token_mask)
    layer: Callable[..., Any] = partial(_period, shared, remat_policy)

    def period(hidden: jax.Array, parts: tuple[Params, Any, Any]) -> tuple[jax.Array, tuple[Any, Any, Any]]:
        return layer(hidden, *parts)

    replay = None
    if routed_experts is not None:  # [B, T, L, K] -> [P, I, B, T, K]
        replay = jnp.moveaxis(routed_experts, 2, 0)
        replay = replay.reshape(config.num_periods, config.full_attention_interval, *replay.shape[1:])
    caches = None if cache is None else (cache.k, cache.v, cache.conv, cache.state, cache.pending)
    stacked = {name: params[name] for name in ("linear", "full", "moe")}
    with jax.named_scope("embed"):
        hidden = embed_tokens(config, parallel, params["embed"], tokens)
    hidden, (selected, router_logits, caches) = jax.lax.scan(period, hidden, (stacked, replay, caches))
    if cache is not None and caches is not None:
        k, v, conv, state, pending = caches
        lengths = cache.lengths + jnp.sum(token_mask, axis=1, dtype=jnp.int32)
        cache = Cache(k=k, v=v, conv=conv, state=state, pending=pending, lengths=lengths)

    def by_token(x: jax.Array) -> jax.Array:  # [P, I, B, T, *] -> [B, T, L, *]
        return jnp.moveaxis(x.reshape(-1, *x.shape[2:]), 0, 2)

    hidden = rms_norm(hidden, params["final_norm"], config)
    return Output(hidden, by_token(selected), by_token(router_logits), cache)


class LayerInputs(NamedTuple):
    """What all layers of a forward see."""

    config: ModelConfig
    parallel: Parallel
    specs: Params
    positions: jax.Array
    mask: jax.Array | None
    write_at: jax.Array | None
    segment_ids: jax.Array
    token_mask: jax.Array

    @property
    def heads(self) -> ModelConfig:
        """The config with the heads that this device computes."""
        return self.config.of_tensor_rank(self.parallel.size("tensor"))

    def gather(self, name: str, params: Params) -> Params:
        """A layer's parameters of a group, as this device computes with them."""
        return gather_params(self.parallel, self.specs[name], params)


def _period(
    shared: LayerInputs,
    remat_policy: RematPolicy,
    hidden: jax.Array,
    params: Params,
    replay: jax.Array | None,
    caches: tuple[jax.Array, ...] | None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, Any]]:
    """One period of layers: the DeltaNet layers, scanned, then the attention layer."""
    split = shared.config.full_attention_interval - 1
    linear_layer = rematerialised(partial(_linear_layer, shared), remat_policy)
    last_layer = rematerialised(partial(full_layer, shared), remat_policy)
    moe = params["moe"]
    parts = (
        params["linear"],
        jax.tree.map(lambda leaf: leaf[:split], moe),
        None if replay is None else replay[:split],
        None if caches is None else caches[2:],
    )
    hidden, (selected, router_logits, kept) = jax.lax.scan(
        lambda hidden, parts: linear_layer(hidden, *parts), hidden, parts
    )
    moe = jax.tree.map(lambda leaf: leaf[split], moe)
    kv = None if caches is None else (caches[0], caches[1])
    hidden, (last_selected, last_logits, kv) = last_layer(
        hidden, params["full"], moe, None if replay is None else replay[split], kv
    )
    selected = jnp.concatenate([selected, last_selected[None]])
    router_logits = jnp.concatenate([router_logits, last_logits[None]])
    return hidden, (selected, router_logits, None if kv is None else (*kv, *kept))


def _linear_layer(
    shared: LayerInputs,
    hidden: jax.Array,
    linear: Params,
    moe: Params,
    replay: jax.Array | None,
    kept: tuple[jax.Array, jax.Array, jax.Array] | None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, Any]]:
    with jax.named_scope("deltanet"):
        normed = rms_norm(hidden, moe["input_norm"], shared.config)
        linear = shared.gather("linear", linear)
        mixed, kept = gated_deltanet(
            normed,
            linear,
            shared.heads,
            shared.segment_ids,
            shared.token_mask,
            kept,
            shared.positions[:, 0],
            shared.parallel,
        )
    hidden, routing = _feed_forward(shared, _add(hidden, shared.parallel.sum(mixed, "tensor")), moe, replay)
    return hidden, (routing.selected_experts, routing.router_logits, kept)


def full_layer(
    shared: LayerInputs,
    hidden: jax.Array,
    full: Params,
    moe: Params,
    replay: jax.Array | None,
    kv: tuple[jax.Array, jax.Array] | None,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array, Any]]:
    """A gated-attention layer: (hidden, (selected experts, router logits, its cache advanced))."""
    with jax.named_scope("attention"):
        normed = rms_norm(hidden, moe["input_norm"], shared.config)
        full = shared.gather("full", full)
        mixed, kv = gated_attention(
            normed, full, shared.heads, shared.positions, shared.segment_ids, kv, shared.mask,
            shared.write_at, shared.parallel,
        )  # fmt: skip
    hidden, routing = _feed_forward(shared, _add(hidden, shared.parallel.sum(mixed, "tensor")), moe, replay)
    return hidden, (routing.selected_experts, routing.router_logits, kv)


def _feed_forward(
    shared: LayerInputs, hidden: jax.Array, params: Params, replay: jax.Array | None
) -> tuple[jax.Array, Routing]:
    """The second half of a layer: norm, router, experts and shared expert, added to the residual stream."""
    config, parallel = shared.config, shared.parallel
    params = shared.gather("moe", params)
    normed = rms_norm(hidden, params["post_norm"], config)
    with jax.named_scope("router"):
        routing = route(
            normed, params["router"], config.num_experts_per_tok, replay, ordered=config.deterministic
        )
    with jax.named_scope("experts"):
        flat = normed.reshape(-1, normed.shape[-1])
        selected, weights = (
            x.reshape(flat.shape[0], -1) for x in (routing.selected_experts, routing.combine_weights)
        )
        out = routed_experts_mlp(flat, params["gate_up"], params["down"], selected, weights, parallel)
        out = out.reshape(hidden.shape)
        always = shared_expert_mlp(
            normed, params["shared_gate_up"], params["shared_down"], params["shared_gate"]
        )
    return _add(hidden, *(parallel.sum(part, "tensor") for part in (out, always))), routing


def _add(*parts: jax.Array) -> jax.Array:
    """The residual sum, in float32 and rounded once."""
    return rounded(sum(part.astype(jnp.float32) for part in parts), parts[0].dtype)


def embed_tokens(
    config: ModelConfig, parallel: Parallel, embed: Float[Array, "V D"], tokens: Int[Array, "B T"]
) -> Float[Array, "B T D"]:
    """Rows of the embedding matrix. On a mesh the devices that store its columns look up each other's tokens
    and exchange what they find: D numbers a token travel, never the matrix.
    """
    axes = parallel.storage(abstract(config)["embed"])[1]
    everyone = parallel.gather(tokens[None], *axes, dim=0)
    return parallel.exchange(embed[everyone], *axes, split=0, join=3)[0]


def _head(params: Params, config: ModelConfig, parallel: Parallel = SINGLE) -> jax.Array:
    """[D, V] in the compute type; on a mesh this tensor device's columns."""
    name = "embed" if config.tie_word_embeddings else "lm_head"
    head = gather_params(parallel, abstract(config)[name], params[name].astype(config.dtype))
    return head.T if config.tie_word_embeddings else head


def logits(params: Params, config: ModelConfig, hidden: Float[Array, "... D"]) -> Float[Array, "... V"]:
    """Next-token logits, float32."""
    return jnp.dot(hidden, _head(params, config), preferred_element_type=jnp.float32)


def token_statistics(
    params: Params,
    config: ModelConfig,
    hidden: Float[Array, "B T D"],
    targets: Int[Array, "B T"],
    temperature: float = 1.0,
    *,
    chunk: int = 1024,
    parallel: Parallel = SINGLE,
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """Log-probability of targets[b, t] after hidden[b, t], and the entropy there in nats; float32."""
    flat = hidden.reshape(-1, hidden.shape[-1])
    head = _head(params, config, parallel)
    out = flat_token_logprobs(
        flat,
        head,
        targets.reshape(-1),
        temperature,
        chunk=chunk,
        parallel=parallel,
        ordered=config.deterministic,
    )
    return out[0].reshape(targets.shape), out[1].reshape(targets.shape)


def token_logprobs(
    params: Params,
    config: ModelConfig,
    hidden: Float[Array, "B T D"],
    targets: Int[Array, "B T"],
    temperature: float = 1.0,
    *,
    chunk: int = 1024,
) -> Float[Array, "B T"]:
    """The first result of `token_statistics`."""
    return token_statistics(params, config, hidden, targets, temperature, chunk=chunk)[0]


class Transformer(nnx.Module):
    """The model as a Flax NNX module: parameters whose metadata are their logical axes.

    Steps and the engine work on the plain tree (`nnx.to_pure_dict(nnx.state(model, nnx.Param))["params"]`).
    """

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        drawn = init_params(config, rngs.params())
        is_leaf = lambda x: not isinstance(x, dict)  # noqa: E731
        self.params = nnx.data(
            jax.tree.map(
                lambda spec, leaf: nnx.Param(leaf, logical_axes=spec.axes),
                abstract(config),
                drawn,
                is_leaf=is_leaf,
            )
        )

    def __call__(self, tokens: Int[Array, "B T"], **kwargs: Any) -> Output:
        """`forward` on this module's parameters."""
        plain = jax.tree.map(lambda p: p[...], self.params, is_leaf=lambda x: isinstance(x, nnx.Param))
        return forward(plain, self.config, tokens, **kwargs)
