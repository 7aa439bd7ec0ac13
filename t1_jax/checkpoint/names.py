"""Where every parameter lies in a Hugging Face checkpoint of Qwen3.5-MoE: one table.

A leaf of `abstract(config)` holds many tensors of the hub: all layers, all experts, gate beside up. Turned
into the hub's orientation (matrices [out, in]) and read in C order, it is exactly those tensors one after
another. So a tensor's place is a leaf and an offset, and every conversion is a copy of ranges.

Legend: P periods, I layers a period, J = I - 1, E experts, F expert width, D hidden.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import jax

from t1_jax.model.config import ModelConfig
from t1_jax.model.parameters import ParamSpec, abstract, is_spec

VISION_PREFIXES = ("model.visual.", "visual.")
MTP_PREFIX = "mtp."
_MULTIMODAL, _TEXT = "model.language_model.", "model."

# Leaves whose last two dimensions the hub stores the other way round, [out, in].
_MATRICES = {
    "linear/qkv", "linear/z", "linear/a", "linear/b", "linear/out",
    "full/q", "full/k", "full/v", "full/o",
    "moe/router", "moe/gate_up", "moe/down", "moe/shared_gate_up", "moe/shared_down", "moe/shared_gate",
    "lm_head", "fc",
}  # fmt: skip

# What a layer's part of a leaf is called there, below "layers.{i}.". Two names: one after the other.
_LAYER_NAMES: dict[str, tuple[str, ...]] = {
    "linear/qkv": ("linear_attn.in_proj_qkv.weight",),
    "linear/z": ("linear_attn.in_proj_z.weight",),
    "linear/a": ("linear_attn.in_proj_a.weight",),
    "linear/b": ("linear_attn.in_proj_b.weight",),
    "linear/conv": ("linear_attn.conv1d.weight",),
    "linear/A_log": ("linear_attn.A_log",),
    "linear/dt_bias": ("linear_attn.dt_bias",),
    "linear/norm": ("linear_attn.norm.weight",),
    "linear/out": ("linear_attn.out_proj.weight",),
    "full/q": ("self_attn.q_proj.weight",),
    "full/k": ("self_attn.k_proj.weight",),
    "full/v": ("self_attn.v_proj.weight",),
    "full/o": ("self_attn.o_proj.weight",),
    "full/q_norm": ("self_attn.q_norm.weight",),
    "full/k_norm": ("self_attn.k_norm.weight",),
    "moe/input_norm": ("input_layernorm.weight",),
    "moe/post_norm": ("post_attention_layernorm.weight",),
    "moe/router": ("mlp.gate.weight",),
    "moe/gate_up": ("mlp.experts.gate_up_proj",),
    "moe/down": ("mlp.experts.down_proj",),
    "moe/shared_gate_up": ("mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"),
    "moe/shared_down": ("mlp.shared_expert.down_proj.weight",),
    "moe/shared_gate": ("mlp.shared_expert_gate.weight",),
}

# The same experts one by one: the layout of FP8 checkpoints, and of Qwen3.5's MTP layer.
_PER_EXPERT_NAMES = {
    "moe/gate_up": ("mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight"),
    "moe/down": ("mlp.experts.{e}.down_proj.weight",),
}

_MODEL_NAMES = {"embed": "embed_tokens.weight", "final_norm": "norm.weight"}


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A tensor of the hub: its shape there, the leaf that it is a part of, and how many elements of that
    leaf, in the hub's orientation, come before it.
    """

    name: str
    shape: tuple[int, ...]
    leaf: str
    offset: int

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


def leaves(config: ModelConfig) -> dict[str, ParamSpec]:
    """`abstract(config)` by path, "linear/qkv"."""
    flat = jax.tree_util.tree_leaves_with_path(abstract(config), is_leaf=is_spec)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): spec for path, spec in flat}


def is_matrix(leaf: str) -> bool:
    """Whether the hub stores the leaf's last two dimensions the other way round."""
    return leaf.removeprefix("mtp/") in _MATRICES


def hub_shape(leaf: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A leaf's shape in the hub's orientation; its own inverse."""
    return (*shape[:-2], shape[-1], shape[-2]) if is_matrix(leaf) else shape


def placements(config: ModelConfig, names: Collection[str] = ()) -> Iterator[Placement]:
    """The tensors of every leaf, ordered by leaf and offset.

    Args:
      config: the model's shape; with `mtp_num_hidden_layers` also the MTP head's tensors.
      names: those that a checkpoint holds, from which its prefix and its layout of experts are recognised.
        Without any: a text-only checkpoint with fused experts, as transformers writes it.
    """
    prefix = _MULTIMODAL if any(name.startswith(_MULTIMODAL) for name in names) else _TEXT
    for leaf, spec in leaves(config).items():
        shape = hub_shape(leaf, spec.shape)
        group, _, rest = leaf.partition("/")
        if leaf == "lm_head":
            yield Placement(name="lm_head.weight", shape=shape, leaf=leaf, offset=0)
        elif leaf in _MODEL_NAMES:
            yield Placement(name=prefix + _MODEL_NAMES[leaf], shape=shape, leaf=leaf, offset=0)
        elif group != "mtp":
            offset = 0
            for layer in _layers(group, config):
                for placement in _of_layer(leaf, f"{prefix}layers.{layer}.", spec, leaf, offset, names):
                    yield placement
                    offset += placement.size
        elif rest in _LAYER_NAMES:
            yield from _of_layer(rest, f"{MTP_PREFIX}layers.0.", spec, leaf, 0, names)
        else:
            yield Placement(name=f"{MTP_PREFIX}{rest}.weight", shape=shape, leaf=leaf, offset=0)


def _layers(group: str, config: ModelConfig) -> list[int]:
    """The layers that a group of leaves holds, in its order."""
    interval = config.full_attention_interval
    kept = {"linear": range(interval - 1), "full": (interval - 1,), "moe": range(interval)}[group]
    return [period * interval + layer for period in range(config.num_periods) for layer in kept]


def _of_layer(
    key: str, prefix: str, spec: ParamSpec, leaf: str, offset: int, names: Collection[str]
) -> Iterator[Placement]:
    """One layer's tensors of a leaf, from `offset` on. `key` is the leaf's name within a layer."""
    own = hub_shape(leaf, spec.shape[spec.axes.count("layers") :])
    templates, experts = _LAYER_NAMES[key], range(1)
    if key in _PER_EXPERT_NAMES and prefix + templates[0] not in names:
        one_by_one = _PER_EXPERT_NAMES[key]
        if prefix + one_by_one[0].format(e=0) in names:
            templates, experts, own = one_by_one, range(own[0]), own[1:]
    own = (own[0] // len(templates), *own[1:])
    if key == "linear/conv":
        own = (own[0], 1, own[1])
    for expert in experts:
        for template in templates:
            name = prefix + template.format(e=expert)
            yield Placement(name=name, shape=own, leaf=leaf, offset=offset)
            offset += math.prod(own)
