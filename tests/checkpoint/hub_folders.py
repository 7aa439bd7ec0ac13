"""Hugging Face folders as the hub holds them, of random numbers; names and layouts are spelled out here."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from t1_jax.model.config import ModelConfig
from tests.train.micro import MICRO

# Two periods of two layers; widths that no block of 128 divides, and several blocks of FP8.
CONFIG = dataclasses.replace(
    MICRO, full_attention_interval=2, hidden_size=160, moe_intermediate_size=136, dtype="bfloat16"
)
BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = np.dtype(ml_dtypes.float8_e4m3fn)


def tensors(
    config: ModelConfig = CONFIG,
    *,
    prefix: str = "model.language_model.",
    per_expert: bool = False,
    mtp: str | None = "per_expert",
    vision: bool = True,
    fp8: bool = False,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Tensors by name. `mtp` is "per_expert" (Qwen3.5), "packed" (Qwen3.6) or None."""
    c, rng = config, np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int, dtype: np.dtype = BF16) -> None:
        made[name] = (0.2 * rng.standard_normal(shape, np.float32)).astype(dtype)

    def add_quantised(name: str, rows: int, columns: int) -> None:
        if not fp8:
            return add(name, rows, columns)
        made[name] = rng.standard_normal((rows, columns), np.float32).astype(FP8)
        scale = rng.uniform(0.01, 0.3, (-(-rows // 128), -(-columns // 128)))
        made[name + "_scale_inv"] = scale.astype(BF16)

    def add_experts(base: str, one_by_one: bool) -> None:
        width, hidden = c.moe_intermediate_size, c.hidden_size
        if not one_by_one:
            add(base + "gate_up_proj", c.num_experts, 2 * width, hidden)
            add(base + "down_proj", c.num_experts, hidden, width)
            return
        for expert in range(c.num_experts):
            add_quantised(f"{base}{expert}.gate_proj.weight", width, hidden)
            add_quantised(f"{base}{expert}.up_proj.weight", width, hidden)
            add_quantised(f"{base}{expert}.down_proj.weight", hidden, width)

    def add_layer(base: str, full: bool, one_by_one: bool) -> None:
        hidden, shared = c.hidden_size, c.shared_expert_intermediate_size
        add(base + "input_layernorm.weight", hidden)
        add(base + "post_attention_layernorm.weight", hidden)
        if full:
            query, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
            add_quantised(base + "self_attn.q_proj.weight", 2 * query, hidden)
            add_quantised(base + "self_attn.k_proj.weight", kv, hidden)
            add_quantised(base + "self_attn.v_proj.weight", kv, hidden)
            add_quantised(base + "self_attn.o_proj.weight", hidden, query)
            add(base + "self_attn.q_norm.weight", c.head_dim)
            add(base + "self_attn.k_norm.weight", c.head_dim)
        else:
            heads, value = c.linear_num_value_heads, c.linear_num_value_heads * c.linear_value_head_dim
            add_quantised(base + "linear_attn.in_proj_qkv.weight", c.conv_dim, hidden)
            add_quantised(base + "linear_attn.in_proj_z.weight", value, hidden)
            add(base + "linear_attn.in_proj_b.weight", heads, hidden)
            add(base + "linear_attn.in_proj_a.weight", heads, hidden)
            add(base + "linear_attn.conv1d.weight", c.conv_dim, 1, c.linear_conv_kernel_dim)
            add(base + "linear_attn.A_log", heads, dtype=np.dtype(np.float32))
            add(base + "linear_attn.dt_bias", heads)
            add(base + "linear_attn.norm.weight", c.linear_value_head_dim, dtype=np.dtype(np.float32))
            add_quantised(base + "linear_attn.out_proj.weight", hidden, value)
        add(base + "mlp.gate.weight", c.num_experts, hidden)
        add_experts(base + "mlp.experts.", one_by_one)
        add_quantised(base + "mlp.shared_expert.gate_proj.weight", shared, hidden)
        add_quantised(base + "mlp.shared_expert.up_proj.weight", shared, hidden)
        add_quantised(base + "mlp.shared_expert.down_proj.weight", hidden, shared)
        add(base + "mlp.shared_expert_gate.weight", 1, hidden)

    add(prefix + "embed_tokens.weight", c.vocab_size, c.hidden_size)
    for layer in range(c.num_hidden_layers):
        full = (layer + 1) % c.full_attention_interval == 0
        add_layer(f"{prefix}layers.{layer}.", full, per_expert or fp8)
    add(prefix + "norm.weight", c.hidden_size)
    if not c.tie_word_embeddings:
        add("lm_head.weight", c.vocab_size, c.hidden_size)
    if mtp:
        add("mtp.fc.weight", c.hidden_size, 2 * c.hidden_size)
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            add(f"mtp.{name}.weight", c.hidden_size)
        add_layer("mtp.layers.0.", True, mtp == "per_expert")
    if vision:
        add("model.visual.patch_embed.proj.weight", 8, 3, 2, 4, 4)
        add("model.visual.blocks.0.attn.qkv.bias", 24)
    return made


def write(
    folder: Path,
    made: dict[str, np.ndarray],
    config: ModelConfig = CONFIG,
    *,
    shards: int = 3,
    fp8: bool = False,
) -> Path:
    """Write tensors in shards named as those of Qwen3.5-122B are, with an index and the other files."""
    folder.mkdir(parents=True)
    # As the hub does, not in the order of the layers.
    names = [f"model.safetensors-{n:05d}-of-{shards:05d}.safetensors" for n in range(1, shards + 1)]
    parts: list[dict[str, Any]] = [{} for _ in range(shards)]
    weight_map = {}
    for number, (name, array) in enumerate(made.items()):
        place = number * 7 % shards
        parts[place][name] = array
        weight_map[name] = names[place]
    for name, part in zip(names, parts, strict=True):
        save_file(part, folder / name, {"format": "pt"})
    index = {
        "metadata": {"total_size": sum(array.nbytes for array in made.values())},
        "weight_map": weight_map,
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    text = {**config.to_hf(), "mtp_num_hidden_layers": 1, "router_aux_loss_coef": 0.001}
    values: dict[str, Any] = {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "model_type": "qwen3_5_moe",
        "image_token_id": 7,
        "text_config": text,
        "vision_config": {"depth": 1, "hidden_size": 8},
        "tie_word_embeddings": config.tie_word_embeddings,
    }
    if fp8:
        values["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(values, indent=4))
    (folder / "generation_config.json").write_text('{"eos_token_id": [3, 1]}')
    (folder / "tokenizer.json").write_text('{"model": "x"}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "merges.txt").write_text("a b\n")
    return folder


def dequantised(made: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """FP8 tensors times their blocks' scales, element by element, as bfloat16; scales left out."""
    result = {}
    for name, array in made.items():
        if array.dtype == FP8:
            scale, out = made[name + "_scale_inv"].astype(np.float32), np.empty(array.shape, BF16)
            for row in range(array.shape[0]):
                for block in range(scale.shape[1]):
                    part = slice(128 * block, 128 * (block + 1))
                    out[row, part] = (array[row, part].astype(np.float32) * scale[row // 128, block]).astype(
                        BF16
                    )
            result[name] = out
        elif not name.endswith("_scale_inv"):
            result[name] = array
    return result
