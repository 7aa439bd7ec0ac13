"""The shape of a Qwen3.5-MoE text model, under Hugging Face's field names."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from sandbox.errors import InputError
from t1_jax.config import build

MODEL_TYPE = "qwen3_5_moe_text"
MODEL_TYPES = (MODEL_TYPE, "qwen3_5_moe")  # the text model, and the multimodal one around it


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Every number that decides a parameter's shape or the forward pass.

    Layers come in periods of `full_attention_interval`: Gated DeltaNet layers, then one gated-attention
    layer. Every layer's feed-forward part is a mixture of experts with one shared expert.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_expert_intermediate_size: int
    full_attention_interval: int = 4
    linear_conv_kernel_dim: int = 4
    rope_theta: float = 1e7
    partial_rotary_factor: float = 0.25
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    initializer_range: float = 0.02
    mtp_num_hidden_layers: Literal[0, 1] = 0  # layers of the multi-token prediction head (model/mtp.py)
    dtype: Literal["bfloat16", "float32"] = "bfloat16"  # of activations and matrix products
    # Engine and learner compute the same sums in the same order, whatever batch, pieces and packing.
    deterministic: bool = False

    def __post_init__(self) -> None:
        def require(condition: bool, message: str) -> None:
            if not condition:
                raise InputError(f"model config: {message}")

        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in ("int", "float") and not value > 0:
                require(False, f"{field.name} is {value}, expected a positive number")
        require(
            self.num_hidden_layers % self.full_attention_interval == 0,
            f"num_hidden_layers is {self.num_hidden_layers}, expected a multiple of full_attention_interval "
            f"{self.full_attention_interval}",
        )
        require(
            self.num_attention_heads % self.num_key_value_heads == 0,
            f"num_attention_heads {self.num_attention_heads} is not a multiple of num_key_value_heads "
            f"{self.num_key_value_heads}",
        )
        require(
            self.linear_num_value_heads % self.linear_num_key_heads == 0,
            f"linear_num_value_heads {self.linear_num_value_heads} is not a multiple of linear_num_key_heads "
            f"{self.linear_num_key_heads}",
        )
        require(
            self.num_experts_per_tok <= self.num_experts <= 65536,
            f"num_experts is {self.num_experts}, expected num_experts_per_tok, "
            f"{self.num_experts_per_tok} to 65536",
        )
        require(self.rotary_dim % 2 == 0, f"rotary dimension {self.rotary_dim} is odd")

    def of_tensor_rank(self, count: int) -> ModelConfig:
        """The heads that one of `count` tensor devices computes; the rest of the shape as it is.

        Fewer key-value heads than devices are shared. Raises InputError when something does not divide.
        """
        if count == 1:
            return self
        for name in (
            "num_attention_heads",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "vocab_size",
        ):
            if getattr(self, name) % count:
                raise InputError(
                    f"mesh: tensor {count} does not divide the model's {name} {getattr(self, name)}"
                )
        kv_heads = self.num_key_value_heads
        if kv_heads % count and count % kv_heads:
            raise InputError(
                f"mesh: tensor {count} is neither a divisor nor a multiple of the model's "
                f"num_key_value_heads {kv_heads}"
            )
        return replace(
            self,
            num_attention_heads=self.num_attention_heads // count,
            num_key_value_heads=max(1, kv_heads // count),
            linear_num_key_heads=self.linear_num_key_heads // count,
            linear_num_value_heads=self.linear_num_value_heads // count,
        )

    @property
    def num_periods(self) -> int:
        """How many times the layer pattern repeats."""
        return self.num_hidden_layers // self.full_attention_interval

    @property
    def num_moe_layers(self) -> int:
        """L of every routing record: all layers route."""
        return self.num_hidden_layers

    @property
    def rotary_dim(self) -> int:
        """How many of a head's first dimensions are rotated."""
        return int(self.head_dim * self.partial_rotary_factor)

    @property
    def conv_dim(self) -> int:
        """Channels of a DeltaNet layer's convolution: queries, keys and values."""
        key_dim = self.linear_num_key_heads * self.linear_key_head_dim
        return 2 * key_dim + self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def routes_dtype(self) -> np.dtype:
        """The smallest unsigned type that holds an expert id: uint8 up to 256 experts, else uint16."""
        return np.dtype(np.uint8 if self.num_experts <= 256 else np.uint16)

    def to_hf(self) -> dict[str, Any]:
        """The content of a config.json that transformers reads as `qwen3_5_moe_text`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if not values["deterministic"]:  # ours alone
            del values["deterministic"]
        rope = {
            "rope_type": "default",
            "rope_theta": values.pop("rope_theta"),
            "partial_rotary_factor": values.pop("partial_rotary_factor"),
        }
        interval = self.full_attention_interval
        return {
            "architectures": ["Qwen3_5MoeForCausalLM"],
            "model_type": MODEL_TYPE,
            **values,
            "rope_parameters": rope,
            "layer_types": [
                "full_attention" if (i + 1) % interval == 0 else "linear_attention"
                for i in range(self.num_hidden_layers)
            ],
            "hidden_act": "silu",
            "attention_bias": False,
        }

    @classmethod
    def from_hf(cls, values: dict[str, Any], source: str = "config.json") -> ModelConfig:
        """Read a config.json of ours or of the hub (multimodal: its text part).

        The MTP head is left out: whoever wants it checks that the checkpoint holds one and adds it.

        Raises InputError for another model type, a missing field, and what this model does not do.
        """
        top = values.get("model_type")
        if top not in MODEL_TYPES:
            raise InputError(f"{source}: model_type is {top!r}, expected one of {', '.join(MODEL_TYPES)}")
        text = values.get("text_config", values)
        if not isinstance(text, dict) or text.get("model_type", top) not in MODEL_TYPES:
            raise InputError(f"{source}: text_config is no section of model_type {MODEL_TYPE!r}")
        rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
        _refuse_other_maths(text, rope, source)
        known = {field.name for field in fields(cls)} - {"mtp_num_hidden_layers"}
        kept = {
            name: value for name, value in {**rope, **text}.items() if name in known and value is not None
        }
        # transformers takes the outer setting for the multimodal model, and does not repeat it inside.
        kept.setdefault("tie_word_embeddings", bool(values.get("tie_word_embeddings", False)))
        kept.setdefault("dtype", text.get("torch_dtype") or values.get("dtype") or values.get("torch_dtype"))
        kept["dtype"] = kept["dtype"] or "bfloat16"
        kept.setdefault("rope_theta", 10000.0)  # transformers' default, not that of a new model of ours
        if text.get("layer_types"):
            kept["full_attention_interval"] = _interval(
                text["layer_types"], text.get("num_hidden_layers"), source
            )
        missing = [f.name for f in fields(cls) if f.name not in kept and f.default is f.default_factory]
        if missing:
            raise InputError(f"{source}: {missing[0]} is missing")
        return build(cls, kept, source)


def _interval(layer_types: list[str], num_layers: Any, source: str) -> int:
    """The period of a list of layer types: DeltaNet layers, then one attention layer, again and again."""
    interval = layer_types.index("full_attention") + 1 if "full_attention" in layer_types else 0
    period = ["linear_attention"] * (interval - 1) + ["full_attention"]
    if not interval or len(layer_types) != num_layers or layer_types != period * (num_layers // interval):
        raise InputError(
            f"{source}: layer_types is not, {num_layers} layers long, a repeated period of linear_attention "
            "layers and one full_attention"
        )
    return interval


def _refuse_other_maths(text: dict[str, Any], rope: dict[str, Any], source: str) -> None:
    """Raise InputError for a setting that would make transformers compute something else than this model."""
    for name, value, expected in (
        ("hidden_act", text.get("hidden_act", "silu"), "silu"),
        ("attention_bias", text.get("attention_bias", False), False),
        ("attn_output_gate", text.get("attn_output_gate", True), True),
        ("mlp_only_layers", text.get("mlp_only_layers") or [], []),
        ("decoder_sparse_step", text.get("decoder_sparse_step", 1), 1),
        ("rope_type", rope.get("rope_type", rope.get("type", "default")), "default"),
    ):
        if value != expected:
            raise InputError(f"{source}: {name} is {value!r}, expected {expected!r}")
