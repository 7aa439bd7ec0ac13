import dataclasses
import os
import signal

import jax
import numpy as np
import pytest

from sandbox.errors import InputError
from sandbox.trajectory import write_frames
from t1_jax.checkpoint.manager import RunState, load_checkpoint
from t1_jax.observability.metrics import read_metrics
from t1_jax.train import sft
from t1_jax.train.loop import initial_params
from t1_jax.train.optimizer import OptimizerConfig, make_optimizer
from t1_jax.train.state import abstract_state, init_state
from tests.train.micro import MICRO, trajectory

pytestmark = pytest.mark.quick_compile


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    root = tmp_path_factory.mktemp("sft")
    (root / "tokenizer").mkdir()
    (root / "tokenizer" / "tokenizer.json").write_text("{}")
    frames = write_frames([trajectory(f"d{i}", 8 + 3 * i % 17, seed=i) for i in range(20)])
    (root / "demonstrations.frames").write_bytes(frames)
    return sft.SFTConfig(
        out=root / "whole",
        data=(root / "demonstrations.frames",),
        model=MICRO,
        tokenizer=root / "tokenizer",
        row_length=32,
        rows=2,
        steps=6,
        save_every=2,
        optimizer=OptimizerConfig(learning_rate=1e-2),
    )


@pytest.fixture(scope="module")
def whole(config):
    return sft.run(config)


def losses(out):
    return [(row["step"], row["train/loss"]) for row in read_metrics(out / "metrics.jsonl")]


def test_it_learns_and_writes_a_checkpoint(config, whole):
    assert whole["finished"] and whole["steps"] == 6
    _params, model, meta = load_checkpoint(config.out / "checkpoint")
    assert model == MICRO and meta == {"version": 0, "step": 6}
    assert losses(config.out)[-1][1] < losses(config.out)[0][1]


@pytest.mark.parametrize("kind", ["signal", "crash"])
def test_a_stopped_run_resumes_to_the_bit(config, whole, kind, monkeypatch, tmp_path):
    config = dataclasses.replace(config, out=tmp_path / "run")
    count = 0
    to_floats = sft.to_floats

    def interrupt(metrics, step):
        nonlocal count
        count += 1
        if count == 4:
            if kind == "crash":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGTERM)
        return to_floats(metrics, step)

    monkeypatch.setattr(sft, "to_floats", interrupt)
    if kind == "crash":  # after step 4 began, with step 2 saved
        with pytest.raises(KeyboardInterrupt):
            sft.run(config)
    else:
        stopped = sft.run(config)
        assert (stopped["steps"], stopped["finished"], stopped["checkpoint"]) == (4, False, None)
    assert sft.run(config)["finished"]
    expected, _, _ = load_checkpoint(whole["checkpoint"])
    params, _, _ = load_checkpoint(config.out / "checkpoint")
    jax.tree.map(np.testing.assert_array_equal, params, expected)
    assert losses(config.out) == losses(sft.Path(whole["checkpoint"]).parent)


def test_a_run_that_goes_on_finds_its_step_compiled(config, whole):
    """A state that is restored lies where a fresh one does: else the step would be another program."""
    optimizer = make_optimizer(config.optimizer, config.steps)
    fresh = init_state(MICRO, optimizer, initial_params(MICRO, None, 0)[0])
    with RunState(config.out / "state") as states:
        restored, _ = states.restore(abstract_state(MICRO, optimizer))
    for one, other in zip(jax.tree.leaves(fresh), jax.tree.leaves(restored), strict=True):
        assert one.sharding == other.sharding and one.committed == other.committed


def test_a_finished_run_is_not_trained_again(config, whole):
    before = losses(config.out)
    assert sft.run(config)["loss"] == whole["loss"]
    assert losses(config.out) == before


def test_bad_configs_and_data_are_refused(config, tmp_path):
    with pytest.raises(InputError, match="tokens do not fit a row"):
        sft.run(dataclasses.replace(config, out=tmp_path / "a", row_length=16))
    dropped = dataclasses.replace(config, row_length=16, too_long="drop")
    assert 0 < len(sft.load_documents(dropped, MICRO)) < 20
    with pytest.raises(InputError, match=r"sft\.rows is 0"):
        dataclasses.replace(config, rows=0)
    with pytest.raises(InputError, match="exactly one"):
        sft.run(dataclasses.replace(config, out=tmp_path / "b", checkpoint=config.out / "checkpoint"))
