"""Conversion: every byte comes back, whatever the layout, killed or not, and bad input is one line."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from sandbox.errors import InputError
from t1_jax.checkpoint import leaves
from t1_jax.checkpoint.manager import load_checkpoint, save_checkpoint
from t1_jax.tools import transfer
from t1_jax.tools.convert import convert
from tests.checkpoint.hub_folders import CONFIG, dequantised, tensors, write
from tests.fresh import fresh_params
from tests.model import oracle

ROOT = Path(__file__).parents[2]
LAYOUTS = {
    "hub": {},
    "packed head, experts one by one": {"per_expert": True, "mtp": "packed"},
    "text only": {"prefix": "model.", "mtp": None, "vision": False},
}


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    return write(tmp_path_factory.mktemp("hub") / "model", tensors())


@pytest.fixture(scope="module")
def converted(hub):
    convert(hub, hub.parent / "orbax", "orbax")
    return hub.parent / "orbax"


@pytest.fixture
def small_blocks(monkeypatch):
    """Several blocks, with padding at the end, for most arrays."""
    monkeypatch.setattr(leaves, "BLOCK_BYTES", 3000)
    monkeypatch.setattr("t1_jax.tools.convert.BLOCK_BYTES", 3000)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_and_back_are_the_same_files(layout, tmp_path, small_blocks):
    made = tensors(**LAYOUTS[layout])
    source = write(tmp_path / "source", made)
    told = convert(source, tmp_path / "orbax", "orbax")
    assert told["verified"] and told["tensors"] == len(made)
    convert(tmp_path / "orbax", tmp_path / "back", "hf")
    assert content(tmp_path / "back") == content(source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "orbax", "source"]


@oracle.with_torch
def test_what_comes_back_is_the_same_model_to_transformers(tmp_path):
    """Saved by transformers, in its own layout, and read by it again: the same logits, bit for bit."""
    from transformers import AutoModelForCausalLM

    config = oracle.CONFIGS["four to one"]
    model = oracle.torch_model(config, oracle.weights(config))
    model.save_pretrained(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "orbax", "orbax")
    convert(tmp_path / "orbax", tmp_path / "back", "hf")
    assert content(tmp_path / "back") == content(tmp_path / "source")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "back", dtype="float32").eval()
    tokens = oracle.documents(config, (40,))[0]
    np.testing.assert_array_equal(*(oracle.torch_run(side, tokens)[0] for side in (model, again)))


def expected_parameters(made, prefix="model.language_model."):
    """Some leaves, written down without the name map."""
    get = lambda name: made[name].astype(np.float32)  # noqa: E731
    layer = lambda number, name: get(f"{prefix}layers.{number}.{name}")  # noqa: E731
    return {
        "embed": get(prefix + "embed_tokens.weight"),
        "lm_head": get("lm_head.weight").T,
        "linear/qkv": np.stack([[layer(n, "linear_attn.in_proj_qkv.weight").T] for n in (0, 2)]),
        "linear/conv": np.stack([[layer(n, "linear_attn.conv1d.weight")[:, 0]] for n in (0, 2)]),
        "linear/A_log": np.stack([[layer(n, "linear_attn.A_log")] for n in (0, 2)]),
        "full/q": np.stack([layer(n, "self_attn.q_proj.weight").T for n in (1, 3)]),
        "moe/router": np.stack([[layer(2 * p + i, "mlp.gate.weight").T for i in (0, 1)] for p in (0, 1)]),
        "moe/shared_gate_up": np.stack(
            [
                [
                    np.concatenate(
                        [layer(2 * p + i, f"mlp.shared_expert.{n}_proj.weight").T for n in ("gate", "up")], -1
                    )
                    for i in (0, 1)
                ]
                for p in (0, 1)
            ]
        ),
    }


def by_path(params):
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }


def test_both_kinds_of_folder_load_as_the_same_parameters(hub, converted):
    params, config, meta = load_checkpoint(hub, mtp=True)
    again, config_again, _ = load_checkpoint(converted, mtp=True)
    assert config == config_again == dataclasses.replace(CONFIG, mtp_num_hidden_layers=1)
    assert meta == {"version": 0, "step": 0}
    jax.tree.map(np.testing.assert_array_equal, params, again)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
    made, found = tensors(), by_path(params)
    for leaf, values in expected_parameters(made).items():
        np.testing.assert_array_equal(found[leaf], values, err_msg=leaf)
    fused = made["model.language_model.layers.3.mlp.experts.gate_up_proj"].astype(np.float32)
    np.testing.assert_array_equal(found["moe/gate_up"][1, 1], fused.swapaxes(1, 2))
    expert = [made[f"mtp.layers.0.mlp.experts.2.{name}_proj.weight"].T for name in ("gate", "up")]
    np.testing.assert_array_equal(found["mtp/moe/gate_up"][2], np.concatenate(expert, 1).astype(np.float32))
    without, config, _ = load_checkpoint(hub)
    assert "mtp" not in without and config == CONFIG


def test_layouts_of_experts_load_alike(tmp_path):
    made = tensors(per_expert=True, mtp="packed")
    fused = {}
    for name, array in made.items():
        base, experts, rest = name.partition(".experts.")
        if experts and rest[0].isdigit():
            parts = [
                [made[f"{base}.experts.{e}.{n}_proj.weight"] for e in range(4)]
                for n in ("gate", "up", "down")
            ]
            fused[f"{base}.experts.gate_up_proj"] = np.concatenate(
                [np.stack(parts[0]), np.stack(parts[1])], 1
            )
            fused[f"{base}.experts.down_proj"] = np.stack(parts[2])
        else:
            fused[name] = array
    one, other = write(tmp_path / "one", made), write(tmp_path / "other", fused)
    jax.tree.map(np.testing.assert_array_equal, load_checkpoint(one)[0], load_checkpoint(other)[0])


def test_fp8_is_dequantised(tmp_path, small_blocks):
    made = tensors(fp8=True)
    source = write(tmp_path / "source", made, fp8=True)
    plain = write(tmp_path / "plain", dequantised(made))
    jax.tree.map(np.testing.assert_array_equal, *(load_checkpoint(f, mtp=True)[0] for f in (source, plain)))
    convert(source, tmp_path / "orbax", "orbax")
    convert(tmp_path / "orbax", tmp_path / "back", "hf")
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == json.loads(
        (plain / "config.json").read_text()
    )
    jax.tree.map(
        np.testing.assert_array_equal,
        *(load_checkpoint(folder, mtp=True)[0] for folder in (tmp_path / "back", plain)),
    )
    index = json.loads((tmp_path / "back" / "model.safetensors.index.json").read_text())
    assert not any("scale" in name for name in index["weight_map"])


def test_parameters_are_placed_by_shards(hub):
    """Each device reads its own part, rows or columns or experts."""
    script = f"""
import jax, numpy as np
from t1_jax.checkpoint.manager import load_checkpoint, load_config
from t1_jax.model.parameters import abstract
from t1_jax.sharding import MeshConfig, make_mesh, param_shardings
mesh = make_mesh(MeshConfig(fsdp=2, expert=2, tensor=2))
for folder in {[str(hub)]}:
    places = param_shardings(abstract(load_config(folder)), mesh)
    sharded, whole = load_checkpoint(folder, places)[0], load_checkpoint(folder)[0]
    assert len(sharded["moe"]["down"].sharding.device_set) == 8
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), sharded, whole)
print("equal")
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **flags}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


def test_a_trained_checkpoint_takes_the_form_of_its_base(hub, converted, tmp_path):
    params, config, _ = load_checkpoint(hub)
    trained = jax.tree.map(lambda leaf: (leaf * 1.5).astype("bfloat16").astype("float32"), params)
    save_checkpoint(tmp_path / "trained", trained, config, version=4)
    for base in (hub, converted):
        out = tmp_path / f"from {base.name}"
        convert(tmp_path / "trained", out, "hf", base=base)
        assert content(out).keys() == content(hub).keys()
        exported, original = (load_checkpoint(folder, mtp=True)[0] for folder in (out, hub))
        # A_log and the DeltaNet norm are float32 in the base, all else bfloat16: both hold these values.
        jax.tree.map(
            np.testing.assert_array_equal, {k: v for k, v in exported.items() if k != "mtp"}, trained
        )
        jax.tree.map(np.testing.assert_array_equal, exported["mtp"], original["mtp"])
        told = (out / "config.json").read_bytes()
        assert told == (hub / "config.json").read_bytes()
    with pytest.raises(InputError, match=r"--base .*trained: expected a Hugging Face folder"):
        convert(tmp_path / "trained", tmp_path / "x", "hf", base=tmp_path / "trained")


@pytest.mark.parametrize("tied", [False, True])
def test_a_checkpoint_of_ours_goes_to_the_hub_and_back_exactly(tied, tmp_path):
    config = dataclasses.replace(CONFIG, tie_word_embeddings=tied, mtp_num_hidden_layers=1)
    params = fresh_params(config, 3)
    save_checkpoint(tmp_path / "ours", params, config)
    convert(tmp_path / "ours", tmp_path / "hf", "hf")
    assert sorted(content(tmp_path / "hf")) == ["config.json", "model.safetensors"]
    convert(tmp_path / "hf", tmp_path / "again", "orbax")
    for folder in ("ours", "hf", "again"):
        jax.tree.map(np.testing.assert_array_equal, load_checkpoint(tmp_path / folder, mtp=True)[0], params)


def test_large_folders_of_ours_are_cut_into_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("t1_jax.checkpoint.hub._SHARD_BYTES", 100_000)
    params = fresh_params(CONFIG, 3)
    save_checkpoint(tmp_path / "ours", params, CONFIG)
    convert(tmp_path / "ours", tmp_path / "hf", "hf")
    names = sorted(path.name for path in (tmp_path / "hf").glob("*.safetensors"))
    assert names[1] == f"model-00002-of-{len(names):05d}.safetensors" and len(names) > 9
    jax.tree.map(np.testing.assert_array_equal, load_checkpoint(tmp_path / "hf")[0], params)


def test_a_run_that_is_killed_is_gone_on_with(hub, tmp_path):
    """SIGKILL between two blocks: nothing has the destination's name, and what was written stays written."""
    slow = f"""
import time
from t1_jax.tools import convert, transfer
from t1_jax.checkpoint import leaves
leaves.BLOCK_BYTES = 3000
original = transfer.os.pwrite
def slow(*arguments):
    time.sleep(0.02)
    return original(*arguments)
transfer.os.pwrite = slow
convert.convert({str(hub)!r}, {str(tmp_path / "out")!r}, "orbax")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", slow], env=environment, stderr=subprocess.DEVNULL)
    journal = tmp_path / ".out.partial" / "journal"
    deadline = time.monotonic() + 60
    while not (journal.is_file() and journal.read_text().count("\n") > 20):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    before = journal.read_text()
    kept = {
        path: path.stat().st_mtime_ns
        for path in (
            (tmp_path / ".out.partial" / "out" / json.loads(line)[0]) for line in before.splitlines()
        )
    }
    written = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaves, "BLOCK_BYTES", 3000)
        original = transfer._write
        patch.setattr(
            transfer, "_write", lambda out, todo, bar: written.extend(todo) or original(out, todo, bar)
        )
        convert(hub, tmp_path / "out", "orbax")
    assert len(written) > 0 and not {block.path for block in written} & {
        str(path.relative_to(tmp_path / ".out.partial" / "out")) for path in kept
    }
    jax.tree.map(np.testing.assert_array_equal, load_checkpoint(hub)[0], load_checkpoint(tmp_path / "out")[0])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_reads_back_differently_is_written_again(hub, tmp_path, monkeypatch):
    original, spoilt = transfer.os.pwrite, []

    def pwrite(descriptor, data, at):
        if len(data) > 1000 and not spoilt:
            spoilt.append(True)
            return original(descriptor, bytes(len(data)), at)
        return original(descriptor, data, at)

    monkeypatch.setattr(transfer.os, "pwrite", pwrite)
    convert(hub, tmp_path / "out", "orbax")
    assert spoilt
    jax.tree.map(np.testing.assert_array_equal, load_checkpoint(hub)[0], load_checkpoint(tmp_path / "out")[0])


def test_a_changed_source_is_copied_anew(hub, tmp_path):
    partial = tmp_path / ".out.partial"
    (partial / "out").mkdir(parents=True)
    (partial / "origin.json").write_text("another")
    (partial / "out" / "left").write_text("left")
    convert(hub, tmp_path / "out", "orbax")
    assert not (tmp_path / "out" / "left").exists()


def lacking(folder, name):
    index = folder / "model.safetensors.index.json"
    values = json.loads(index.read_text())
    del values["weight_map"][name]
    index.write_text(json.dumps(values))


def test_errors_are_one_line_and_leave_nothing(hub, tmp_path, monkeypatch, capsys):
    import launch

    def broken(name, **changes):
        made = tensors()
        for key, value in changes.items():
            made.pop(key) if value is None else made.update({key: value})
        return write(tmp_path / name, made)

    first = "model.safetensors-00001-of-00003.safetensors"
    gate = "model.language_model.layers.0.mlp.gate.weight"
    norm = "model.language_model.norm.weight"
    sources = {
        "missing shard": (shutil.copytree(hub, tmp_path / "a"), f"shard {first} is missing"),
        "truncated": (shutil.copytree(hub, tmp_path / "b"), f"{first}: truncated"),
        "absent": (shutil.copytree(hub, tmp_path / "c"), "tensor ghost is not in"),
        "unnamed": (shutil.copytree(hub, tmp_path / "d"), f"extra tensor {norm}"),
        "no tensor": (broken("e", **{gate: None}), f"tensor {gate} is missing"),
        "extra": (
            broken("f", **{"model.language_model.layers.9.x": np.zeros(3, np.float32)}),
            "extra tensor",
        ),
        "wrong shape": (broken("g", **{gate: np.zeros((3, 160), np.float32)}), "[3, 160], expected [4, 160]"),
        "model_type": (shutil.copytree(hub, tmp_path / "h"), "expected one of qwen3_5_moe_text, qwen3_5_moe"),
        "no folder": (tmp_path / "nothing", "expected a Hugging Face folder"),
        "header": (shutil.copytree(hub, tmp_path / "i"), "not that of a safetensors file"),
        "config": (shutil.copytree(hub, tmp_path / "j"), "config.json"),
    }
    (tmp_path / "a" / first).unlink()
    os.truncate(tmp_path / "b" / first, (tmp_path / "b" / first).stat().st_size - 1)
    index = json.loads((hub / "model.safetensors.index.json").read_text())
    index["weight_map"]["ghost"] = first
    (tmp_path / "c" / "model.safetensors.index.json").write_text(json.dumps(index))
    lacking(tmp_path / "d", norm)
    (tmp_path / "h" / "config.json").write_text('{"model_type": "llama"}')
    header = bytearray((tmp_path / "i" / first).read_bytes())
    header[9:12] = b"xxx"
    (tmp_path / "i" / first).write_bytes(header)
    (tmp_path / "j" / "config.json").write_text("{")
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("")
    before = sorted(path.name for path in tmp_path.iterdir())

    def complaint(*words):
        monkeypatch.setattr(sys, "argv", ["launch.py", "convert", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            launch.main()
        told = capsys.readouterr().err
        assert ended.value.code == 2 and told.count("\n") == 1 and told.startswith("error: "), told
        return told

    for source, named in sources.values():
        assert named in complaint("--src", source, "--dst", tmp_path / "out", "--to", "orbax")
    assert "is not empty" in complaint("--src", hub, "--dst", full, "--to", "orbax")
    assert "expected a checkpoint of t1-jax" in complaint(
        "--src", hub, "--dst", tmp_path / "out", "--to", "hf"
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
    assert "only 0.00 GB are free" in complaint("--src", hub, "--dst", tmp_path / "out", "--to", "orbax")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
