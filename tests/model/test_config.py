import dataclasses
import json

import pytest

from sandbox.errors import InputError
from t1_jax.config import load_config, to_dict
from t1_jax.model.config import ModelConfig

TINY = load_config(ModelConfig, "configs/model/tiny.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_hidden_layers": 6},
            "num_hidden_layers is 6, expected a multiple of full_attention_interval 4",
        ),
        (
            {"num_attention_heads": 5, "num_key_value_heads": 2},
            "num_attention_heads 5 is not a multiple of num_key_value_heads",
        ),
        (
            {"linear_num_value_heads": 3, "linear_num_key_heads": 2},
            "linear_num_value_heads 3 is not a multiple of linear_num_key_heads",
        ),
        ({"num_experts": 2}, "num_experts is 2, expected num_experts_per_tok"),
        ({"num_experts": 70000}, "num_experts is 70000"),
        ({"hidden_size": 0}, "hidden_size is 0, expected a positive number"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0"),
        ({"head_dim": 30}, "rotary dimension 15 is odd"),
    ],
)
def test_shapes_that_fit_nothing_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **changes)


def test_config_json_and_back():
    written = json.loads(json.dumps(TINY.to_hf()))
    assert ModelConfig.from_hf(written) == TINY
    assert ModelConfig.from_hf({"model_type": "qwen3_5_moe", "text_config": written}) == TINY
    assert written["layer_types"] == (["linear_attention"] * 3 + ["full_attention"]) * 2


def test_config_json_of_something_else_is_refused():
    written = TINY.to_hf()
    with pytest.raises(
        InputError,
        match=r"x/config\.json: model_type is 'llama', expected one of qwen3_5_moe_text",
    ):
        ModelConfig.from_hf({**written, "model_type": "llama"}, "x/config.json")
    del written["num_experts"]
    with pytest.raises(InputError, match="num_experts is missing"):
        ModelConfig.from_hf(written)


def test_ids_take_the_smallest_type():
    assert TINY.routes_dtype == "uint8"
    assert dataclasses.replace(TINY, num_experts=256).routes_dtype == "uint8"
    assert dataclasses.replace(TINY, num_experts=257).routes_dtype == "uint16"


def test_yaml_and_back():
    assert (
        load_config(ModelConfig, None, [f"--{key}={value}" for key, value in to_dict(TINY).items()]) == TINY
    )


def test_the_period_is_read_from_the_layer_types():
    """transformers writes layer_types and no full_attention_interval."""
    for interval in (1, 2, 4):
        config = dataclasses.replace(TINY, full_attention_interval=interval)
        written = config.to_hf()
        del written["full_attention_interval"]
        assert ModelConfig.from_hf(written) == config
    for types in (
        ["full_attention"] * 3 + ["linear_attention"],
        ["linear_attention"] * 4,
        ["full_attention"],
    ):
        with pytest.raises(InputError, match="layer_types is not, 8 layers long, a repeated period"):
            ModelConfig.from_hf({**TINY.to_hf(), "layer_types": types})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', expected 'silu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"attn_output_gate": False}, "attn_output_gate is False"),
        ({"mlp_only_layers": [0]}, r"mlp_only_layers is \[0\]"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e7}}, "rope_type is 'yarn'"),
        ({"head_dim": "wide"}, "head_dim is 'wide'; expected an integer"),
    ],
)
def test_settings_that_the_model_would_ignore_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        ModelConfig.from_hf({**TINY.to_hf(), **change})


def test_defaults_of_a_config_json_are_those_of_transformers():
    written = TINY.to_hf()
    for name in ("rope_parameters", "dtype", "tie_word_embeddings"):
        del written[name]
    config = ModelConfig.from_hf({**written, "torch_dtype": "float32"})
    assert (config.rope_theta, config.partial_rotary_factor) == (10000.0, 0.25)
    assert (config.dtype, config.tie_word_embeddings) == ("float32", False)
    outer = {"model_type": "qwen3_5_moe", "text_config": written, "tie_word_embeddings": True}
    assert ModelConfig.from_hf(outer).tie_word_embeddings
