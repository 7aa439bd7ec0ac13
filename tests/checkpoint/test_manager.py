import json

import jax
import numpy as np
import pytest

from sandbox.errors import InputError
from t1_jax.checkpoint.manager import RunState, load_checkpoint, save_checkpoint
from tests.train.micro import MICRO, micro_params

PARAMS = micro_params(1)


@pytest.fixture
def tokenizer(tmp_path):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("x")
    (folder / "README.md").write_text("not a tokenizer file")
    return folder


def test_round_trip_is_exact(tmp_path, tokenizer):
    folder = save_checkpoint(tmp_path / "w" / "v3", PARAMS, MICRO, tokenizer_dir=tokenizer, version=3, step=5)
    params, config, meta = load_checkpoint(folder)
    assert config == MICRO and meta == {"version": 3, "step": 5}
    jax.tree.map(np.testing.assert_array_equal, params, PARAMS)
    assert sorted(p.name for p in folder.iterdir()) == [
        "chat_template.jinja", "config.json", "params", "t1.json", "tokenizer.json",
    ]  # fmt: skip
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen3_5_moe_text"


def test_replacing_leaves_only_the_new_one(tmp_path):
    save_checkpoint(tmp_path / "c", PARAMS, MICRO, step=1)
    save_checkpoint(tmp_path / "c", jax.tree.map(lambda x: x + 1, PARAMS), MICRO, step=2)
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    params, _, meta = load_checkpoint(tmp_path / "c")
    assert meta["step"] == 2
    np.testing.assert_array_equal(params["embed"], PARAMS["embed"] + 1)


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.*config\.json"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        save_checkpoint(tmp_path / "c", PARAMS, MICRO, tokenizer_dir=tmp_path)
    folder = save_checkpoint(tmp_path / "c", PARAMS, MICRO)
    values = json.loads((folder / "config.json").read_text()) | {"vocab_size": 65}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"parameter embed has shape \(64, 32\).*\(65, 32\)"):
        load_checkpoint(folder)


def test_a_tokenizer_of_ours_loads_from_the_checkpoint(tmp_path):
    from transformers import AutoTokenizer

    from t1_jax.data.tokenizer import train_tokenizer

    train_tokenizer(
        ["ls -la /app\n", "cat file.txt", "<|im_start|>user\nhello<|im_end|>\n"] * 4,
        300,
        tmp_path / "tokenizer",
    )
    folder = save_checkpoint(tmp_path / "c", PARAMS, MICRO, tokenizer_dir=tmp_path / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer("cat file.txt")["input_ids"]) == "cat file.txt"
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert prompt.endswith("<|im_start|>assistant\n")


def test_run_states_keep_two_and_restore_the_newest(tmp_path):
    with RunState(tmp_path / "state") as states:
        assert states.latest_step is None
        for step in (1, 2, 3):
            states.save(step, {"w": np.full(3, step, np.float32)}, {"iterator": {"next_index": step}})
        assert states.latest_step == 3
    assert sorted(p.name for p in (tmp_path / "state").iterdir() if p.name.isdigit()) == ["2", "3"]
    with RunState(tmp_path / "state") as states:
        state, data = states.restore({"w": jax.ShapeDtypeStruct((3,), np.float32)})
    np.testing.assert_array_equal(state["w"], 3)
    assert data == {"iterator": {"next_index": 3}}
