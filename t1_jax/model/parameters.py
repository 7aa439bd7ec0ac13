"""One description of every parameter: shape, storage type, logical axes and initialiser.

Initialisation, restore, sharding, compile-only plans and the Hugging Face name map derive from
`abstract(config)`.

Legend: V vocabulary, D hidden, P periods, I layers a period, J = I - 1 DeltaNet layers a
period, E experts, F expert width, S shared expert width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from t1_jax.model.config import ModelConfig

Init = Literal["normal", "residual", "zeros", "ones", "conv", "log_uniform", "time_step"]


@dataclass(frozen=True, kw_only=True)
class ParamSpec:
    """A parameter before it exists. `axes` names each dimension for the sharding rules (None: never split).

    `parts`: widths of the matrices that lie beside each other along the axis that is split over heads, vocab
    or expert width; each is split by itself. `units`: how many heads that axis has, where devices may be
    more than heads. `keep_float32`: stays float32 in the compute copy, since rounding it changes what the
    layer remembers.
    """

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    init: Init = "normal"
    keep_float32: bool = False
    parts: tuple[int, ...] = ()
    units: int | None = None


Params = dict[str, Any]


def abstract(config: ModelConfig) -> Params:
    """The parameter tree of a model as `ParamSpec` leaves."""
    c = config
    periods, interval = c.num_periods, c.full_attention_interval
    linear_layers = interval - 1
    query_dim, kv_dim = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    value_dim = c.linear_num_value_heads * c.linear_value_head_dim

    def stack(
        depth: tuple[int, ...], shape: tuple[int, ...], axes: tuple[str | None, ...], **kw: Any
    ) -> ParamSpec:
        return ParamSpec(shape=depth + shape, axes=("layers",) * len(depth) + axes, **kw)

    def linear(*args: Any, **kw: Any) -> ParamSpec:
        return stack((periods, linear_layers), *args, **kw)

    def full(*args: Any, **kw: Any) -> ParamSpec:
        return stack((periods,), *args, **kw)

    def every(*args: Any, **kw: Any) -> ParamSpec:
        return stack((periods, interval), *args, **kw)

    hidden, heads = c.hidden_size, c.linear_num_value_heads
    key_dim = c.linear_num_key_heads * c.linear_key_head_dim
    qkv, kv = (key_dim, key_dim, value_dim), c.num_key_value_heads
    experts, shared = c.moe_intermediate_size, c.shared_expert_intermediate_size
    tree: Params = {
        "embed": ParamSpec(shape=(c.vocab_size, hidden), axes=("vocab", "embed")),
        "final_norm": ParamSpec(shape=(hidden,), axes=(None,), init="zeros"),
        "linear": {
            "qkv": linear((hidden, c.conv_dim), ("embed", "heads"), parts=qkv),
            "z": linear((hidden, value_dim), ("embed", "heads")),
            "a": linear((hidden, heads), ("embed", "heads")),
            "b": linear((hidden, heads), ("embed", "heads")),
            "conv": linear((c.conv_dim, c.linear_conv_kernel_dim), ("heads", None), init="conv", parts=qkv),
            "A_log": linear((heads,), ("heads",), init="log_uniform", keep_float32=True),
            "dt_bias": linear((heads,), ("heads",), init="time_step", keep_float32=True),
            "norm": linear((c.linear_value_head_dim,), (None,), init="ones", keep_float32=True),
            "out": linear((value_dim, hidden), ("rows", None), init="residual"),
        },
        "full": {
            "q": full((hidden, 2 * query_dim), ("embed", "heads")),
            "k": full((hidden, kv_dim), ("embed", "heads"), units=kv),
            "v": full((hidden, kv_dim), ("embed", "heads"), units=kv),
            "o": full((query_dim, hidden), ("rows", None), init="residual"),
            "q_norm": full((c.head_dim,), (None,), init="zeros"),
            "k_norm": full((c.head_dim,), (None,), init="zeros"),
        },
        "moe": {
            "input_norm": every((hidden,), (None,), init="zeros"),
            "post_norm": every((hidden,), (None,), init="zeros"),
            "router": every((hidden, c.num_experts), ("embed", None)),
            "gate_up": every(
                (c.num_experts, hidden, 2 * experts), ("expert", "embed", "mlp"), parts=(experts, experts)
            ),
            "down": every((c.num_experts, experts, hidden), ("expert", "rows", None), init="residual"),
            "shared_gate_up": every((hidden, 2 * shared), ("embed", "mlp"), parts=(shared, shared)),
            "shared_down": every((shared, hidden), ("rows", None), init="residual"),
            "shared_gate": every((hidden, 1), ("embed", None)),
        },
    }
    if not c.tie_word_embeddings:
        tree["lm_head"] = ParamSpec(shape=(hidden, c.vocab_size), axes=("embed", "vocab"))
    if c.mtp_num_hidden_layers:
        tree["mtp"] = {
            "fc": ParamSpec(shape=(2 * hidden, hidden), axes=(None, "embed")),
            "pre_fc_norm_embedding": ParamSpec(shape=(hidden,), axes=(None,), init="zeros"),
            "pre_fc_norm_hidden": ParamSpec(shape=(hidden,), axes=(None,), init="zeros"),
            "norm": ParamSpec(shape=(hidden,), axes=(None,), init="zeros"),
            "full": {name: _single(spec) for name, spec in tree["full"].items()},
            "moe": {name: _single(spec) for name, spec in tree["moe"].items()},
        }
    return tree


def _single(spec: ParamSpec) -> ParamSpec:
    """One layer's part of a stacked parameter."""
    depth = spec.axes.count("layers")
    return replace(spec, shape=spec.shape[depth:], axes=spec.axes[depth:])


def is_spec(leaf: Any) -> bool:
    """For `jax.tree.map(..., is_leaf=is_spec)`."""
    return isinstance(leaf, ParamSpec)


def shapes(config: ModelConfig, dtype: Any = jnp.float32) -> Params:
    """The tree as `jax.ShapeDtypeStruct` leaves."""
    return jax.tree.map(
        lambda spec: jax.ShapeDtypeStruct(spec.shape, dtype), abstract(config), is_leaf=is_spec
    )


def init_params(config: ModelConfig, key: jax.Array) -> Params:
    """Draw float32 master parameters. Matrices are normal with `initializer_range`, norms start at identity.

    What writes into the residual stream is smaller by sqrt(2 layers) (GPT-2), so that a token is still there
    when its layers have spoken.

    A = exp(A_log) is uniform in [0.01, 16]: drawn in float32, because a draw in bfloat16 can be exactly zero
    and leaves a head that never learns. dt_bias makes softplus(dt_bias) log-uniform in [0.001, 0.1] (Mamba-2,
    arXiv 2405.21060), so that heads start with memories of one to thousands of tokens; from a bias of one, as
    transformers fills it in, most heads forget everything within a token and have to learn to remember first.
    """
    specs, structure = jax.tree.flatten(abstract(config), is_leaf=is_spec)

    def draw(spec: ParamSpec, key: jax.Array) -> jax.Array:
        if spec.init == "zeros":
            return jnp.zeros(spec.shape, jnp.float32)
        if spec.init == "ones":
            return jnp.ones(spec.shape, jnp.float32)
        if spec.init == "log_uniform":
            return jnp.log(jax.random.uniform(key, spec.shape, jnp.float32, 0.01, 16.0))
        if spec.init == "conv":
            return jax.random.uniform(key, spec.shape, jnp.float32, -0.1, 0.1)
        if spec.init == "time_step":
            step = jnp.exp(jax.random.uniform(key, spec.shape, jnp.float32, jnp.log(0.001), jnp.log(0.1)))
            return step + jnp.log(-jnp.expm1(-step))  # the inverse of softplus
        drawn = config.initializer_range * jax.random.normal(key, spec.shape, jnp.float32)
        if spec.init == "residual":
            return drawn * (2 * config.num_hidden_layers) ** -0.5
        return drawn

    keys = jax.random.split(key, len(specs))
    drawn = jax.tree.unflatten(structure, [draw(spec, key) for spec, key in zip(specs, keys, strict=True)])
    return _able_to_recall(drawn, config)


def _able_to_recall(params: Params, config: ModelConfig) -> Params:
    """Make fresh mixers able to look back, which small models otherwise need millions of tokens to find.

    DeltaNet: keys are projected as queries are, and the convolutions pass the current token to queries and
    values and the one before to keys, so that a token reads what followed it the last time (the shift of H3,
    arXiv 2212.14052). Attention: the output projection is the transpose of the value projection, so that a
    head writes the token that it looks at; where to look is learned.
    """
    linear, full = params["linear"], params["full"]
    key_dim = config.linear_num_key_heads * config.linear_key_head_dim
    qkv = linear["qkv"].at[..., key_dim : 2 * key_dim].set(linear["qkv"][..., :key_dim])
    taps = config.linear_conv_kernel_dim
    is_key = jnp.arange(config.conv_dim) // key_dim == 1
    conv = linear["conv"] + jax.nn.one_hot(jnp.where(is_key, taps - 2, taps - 1), taps)
    values = full["v"].reshape(*full["v"].shape[:-1], config.num_key_value_heads, config.head_dim)
    group = config.num_attention_heads // config.num_key_value_heads
    output = jnp.moveaxis(jnp.repeat(values, group, axis=-2), 1, -1).reshape(full["o"].shape)
    return {**params, "linear": {**linear, "qkv": qkv, "conv": conv}, "full": {**full, "o": output}}


def cast_params(params: Params, config: ModelConfig) -> Params:
    """The compute copy: `config.dtype`, except the leaves that must stay float32."""

    def cast(spec: ParamSpec, leaf: jax.Array) -> jax.Array:
        return leaf.astype(jnp.float32 if spec.keep_float32 else config.dtype)

    return jax.tree.map(cast, abstract(config), params, is_leaf=is_spec)


def count_params(config: ModelConfig) -> tuple[int, int]:
    """(all parameters, parameters active for one token): of the routed experts, k of E are active."""
    total = active = 0
    for spec in jax.tree.leaves(abstract(config), is_leaf=is_spec):
        size = int(np.prod(spec.shape, dtype=np.int64))
        total += size
        routed = "expert" in spec.axes
        active += size * config.num_experts_per_tok // config.num_experts if routed else size
    return total, active
