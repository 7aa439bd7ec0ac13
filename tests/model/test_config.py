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
        ({"num_attention_heads": 5}, "num_attention_heads 5 is not a multiple of num_key_value_heads"),
        ({"linear_num_value_heads": 3}, "linear_num_value_heads 3 is not a multiple of linear_num_key_heads"),
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
    assert written["layer_types"] == ["linear_attention"] * 3 + ["full_attention"]


def test_config_json_of_something_else_is_refused():
    written = TINY.to_hf()
    with pytest.raises(
        InputError, match=r"x/config\.json: model_type is 'llama', expected 'qwen3_5_moe_text'"
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
