import dataclasses
import os
import signal

import jax
import numpy as np
import pytest

from sandbox.errors import InputError
from t1_jax.checkpoint.manager import load_checkpoint, save_checkpoint
from t1_jax.data.trajectories import RoutingRecordError, read_trajectories
from t1_jax.observability.metrics import read_metrics
from t1_jax.train import rl
from t1_jax.train.gate import GateConfig
from t1_jax.train.losses import LossConfig
from t1_jax.train.optimizer import OptimizerConfig
from tests.train.micro import MICRO, micro_params, own_record
from tests.train.services import Services

pytestmark = pytest.mark.quick_compile


@pytest.fixture
def services():
    running = Services()
    yield running
    running.close()


@pytest.fixture
def config(tmp_path, services):
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text("{}")
    save_checkpoint(tmp_path / "start", micro_params(), MICRO, tokenizer_dir=tokenizer)
    for name in "abc":
        (tmp_path / "tasks" / name).mkdir(parents=True)
        (tmp_path / "tasks" / name / "task.toml").write_text("")
    return rl.RLConfig(
        out=tmp_path / "run",
        checkpoint=tmp_path / "start",
        tasks=tmp_path / "tasks",
        rollout_url=services.url,
        engine_url=services.url,
        steps=4,
        groups_per_step=2,
        group_size=3,
        max_staleness=1,
        row_length=32,
        rows=4,
        gate=None,  # the records are drawn, not any model's
        optimizer=OptimizerConfig(learning_rate=1e-2),
    )


def test_a_run_trains_and_publishes_every_version(config, services):
    summary = rl.run(config)
    assert (summary["steps"], summary["version"], summary["finished"]) == (4, 4, True)
    # The engine may have other weights of the same number, so that the first version is published too.
    # One step ahead, never more: a step's groups are submitted when the version before the last is served.
    assert services.log == [
        ("publish", 0), ("submit", [0, 1]), ("publish", 1), ("submit", [2]), ("publish", 2),
        ("submit", [3]), ("publish", 3), ("publish", 4),
    ]  # fmt: skip
    assert not services.done, "all rollouts were acknowledged"
    rows = read_metrics(config.out / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert [row["train/staleness"] for row in rows] == [0, 1, 1, 1]
    for row in rows:
        assert row["rollout/reward"] == 0.5 and row["rollout/episodes"] == 6
        assert row["rollout/solved"] == pytest.approx(1 / 3) and row["rollout/zero_variance_groups"] == 0
        assert 0.8 < row["router/replayed_fraction"] < 1 and row["train/grad_norm"] > 0
    assert sorted(path.name for path in (config.out / "weights").iterdir()) == ["v2", "v3", "v4"]
    assert load_checkpoint(config.out / "checkpoint")[2] == {"version": 4, "step": 4}
    assert [len(read_trajectories(path)) for path in sorted((config.out / "trajectories").iterdir())] == [
        6
    ] * 4


def test_a_stopped_run_goes_on_as_if_it_had_not(config, services):
    whole = rl.run(dataclasses.replace(config, out=config.out / "whole"))
    services.version = "0"

    def stop(body):
        if body["weight_version"] == "2":
            services.before.clear()
            os.kill(os.getpid(), signal.SIGTERM)

    services.before["/update_weights_from_disk"] = stop
    stopped = rl.run(config)
    assert (stopped["finished"], stopped["steps"], stopped["version"]) == (False, 2, 2)
    services.version = "0"  # the engine was restarted too, with the weights it was started with
    services.log.clear()
    resumed = rl.run(config)
    assert resumed["finished"] and resumed["version"] == 4
    assert services.log[0] == ("publish", 2), "nothing is sampled before the engine has the run's weights"
    expected, _, _ = load_checkpoint(whole["checkpoint"])
    params, _, _ = load_checkpoint(resumed["checkpoint"])
    jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_an_engine_that_is_restarted_during_a_step_gets_the_weights_again(config, services):
    def restart(body):
        if ("submit", [3]) in services.log:
            services.before.clear()
            services.version = "0"

    services.before["/v1/lease"] = restart
    assert rl.run(config)["finished"]
    # Version 2 twice: what step 2 waits for may not be sampled by version 0, and the service holds it back.
    assert [version for what, version in services.log if what == "publish"] == [0, 1, 2, 2, 3, 4]
    by_step = {group_id.split("-")[1]: version for group_id, version in services.min_versions.items()}
    assert list(by_step.values()) == [-1, 0, 1, 2], (
        "the step's own version less the staleness that is allowed"
    )


def test_groups_that_the_service_has_lost_are_submitted_again_with_their_bound(config, services):
    bounds = {}

    def lose(body):
        if ("submit", [3]) in services.log:
            services.before.clear()
            bounds.update(services.min_versions)
            for lost in (services.done, services.known, services.min_versions):
                lost.clear()

    services.before["/v1/lease"] = lose
    assert rl.run(config)["finished"]
    assert [steps for what, steps in services.log if what == "submit"] == [[0, 1], [2], [3], [2], [3]]
    assert services.min_versions == {name: bounds[name] for name in services.min_versions}


def test_rollouts_that_were_cancelled_at_the_service_are_not_waited_for(config, services):
    services.never = {"-00000-001/0", "-00000-001/1"}
    summary = rl.run(dataclasses.replace(config, steps=1))
    assert summary["finished"]
    row = read_metrics(config.out / "metrics.jsonl")[0]
    assert row["rollout/cancelled"] == 2 and row["rollout/episodes"] == 4


def test_a_shifted_record_stops_the_run_at_the_first_batch(config, services):
    params = micro_params()
    services.change = lambda record: own_record(record, params, shift=1)
    with pytest.raises(RoutingRecordError, match=r"that of the token before.*off by one"):
        rl.run(dataclasses.replace(config, gate=GateConfig(action="warn")))
    with rl.RunState(config.out / "state") as states:
        assert states.latest_step is None, "nothing was saved"


def test_a_run_with_a_reference_is_trained_again_from_its_trajectories(config, services, capsys):
    params = micro_params()
    services.change = lambda record: own_record(record, params)
    config = dataclasses.replace(
        config, steps=2, reference=config.checkpoint, loss=LossConfig(reference_kl=0.1), gate=GateConfig()
    )
    first = rl.run(config)
    assert "warning: gate: step 0: mismatch/k3 is" in capsys.readouterr().err  # log-probs are drawn too
    rows = read_metrics(config.out / "metrics.jsonl")
    assert rows[0]["train/reference_kl"] < 1e-7 < rows[1]["train/reference_kl"]
    assert rows[0]["router/agreement"] > 0.99 and rows[0]["mismatch/expert_mismatch_fraction"] < 0.02
    again = dataclasses.replace(
        config, out=config.out / "again", recorded=config.out / "trajectories", engine_url="", rollout_url=""
    )
    second = rl.run(again)
    assert second["version"] == first["version"] == 2
    expected, _, _ = load_checkpoint(first["checkpoint"])
    params, _, _ = load_checkpoint(second["checkpoint"])
    jax.tree.map(np.testing.assert_array_equal, params, expected)
    with pytest.raises(InputError, match=r"recorded .*step_0002\.frames is missing"):
        rl.run(dataclasses.replace(again, out=config.out / "longer", steps=3))


def test_tasks_are_drawn_without_replacement(config):
    tasks = ["a", "b", "c"]
    groups = [group for step in range(3) for group in rl.step_groups(config, tasks, "run", step)]
    assert sorted(group.task for group in groups[:3]) == sorted(group.task for group in groups[3:]) == tasks
    assert len({group.seed for group in groups}) == len({group.group_id for group in groups}) == 6


def test_bad_configs_are_refused(config, tmp_path):
    with pytest.raises(InputError, match=r"rl\.reference is None and loss\.reference_kl 0\.1"):
        dataclasses.replace(config, loss=LossConfig(reference_kl=0.1))
    with pytest.raises(InputError, match=r"rl\.group_size is 1"):
        dataclasses.replace(config, group_size=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty.*task\.toml"):
        rl.run(dataclasses.replace(config, tasks=tmp_path / "empty"))
    with pytest.raises(InputError, match="not reachable"):
        rl.run(dataclasses.replace(config, engine_url="http://127.0.0.1:1", patience=0.0))
