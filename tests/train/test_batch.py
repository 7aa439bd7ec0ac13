import dataclasses

import numpy as np
import pytest

from t1_jax.train.batch import make_rl_batch
from t1_jax.train.ledger import Ledger
from tests.train.micro import MICRO, trajectory


def batch(trajectories, **changes):
    settings = {
        "advantage": "centred",
        "policy_version": 3,
        "max_staleness": 2,
        "row_length": 32,
        "replay": True,
    } | changes
    return make_rl_batch(trajectories, MICRO, **settings)


def group(name, rewards, **fields):
    return [
        trajectory(f"{name}/{i}", 12 + i, seed=i, group_id=name, reward=reward, version=2, **fields)
        for i, reward in enumerate(rewards)
    ]


def advantages(result):
    return {document.rollout_id: document.advantage for document in result.documents}


def test_advantages_are_within_groups_and_zero_ones_are_left_out():
    result = batch(group("a", [0.0, 1.0, 0.5]) + group("b", [1.0, 1.0]) + group("c", [0.25, 0.75]))
    assert advantages(result) == {"a/0": -0.5, "a/1": 0.5, "c/0": -0.25, "c/1": 0.25}
    assert result.metrics["rollout/zero_variance_groups"] == pytest.approx(1 / 3)
    assert result.metrics["rollout/reward"] == pytest.approx(4.5 / 7)
    assert all((document.policy_age <= 1).all() for document in result.documents)


def test_rollouts_below_their_groups_mean_can_be_left_out():
    result = batch(group("a", [0.0, 1.0, 0.5]) + group("b", [0.25, 0.75]), negative_scale=0.0)
    assert advantages(result) == {"a/1": 0.5, "b/1": 0.25}


def test_infrastructure_failures_are_in_no_baseline():
    rollouts = group("a", [0.0, 1.0, None])
    rollouts[2] = dataclasses.replace(
        rollouts[2],
        ending="infra_error",
        **{
            name: getattr(rollouts[2], name)[:0]
            for name in ("tokens", "loss_mask", "rollout_logprobs", "versions")
        },
    )
    result = batch(rollouts)
    assert advantages(result) == {"a/0": -0.5, "a/1": 0.5}
    assert result.metrics["rollout/infra_errors"] == pytest.approx(1 / 3)
    assert result.metrics["rollout/ending_infra_error"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("ending", ["max_turns", "context", "max_tokens", "timeout"])
def test_rollouts_that_a_limit_cut_off_can_be_left_out_of_the_baseline_too(ending):
    rollouts = group("a", [0.0, 0.5, 1.0])
    rollouts[2] = dataclasses.replace(rollouts[2], ending=ending)
    assert advantages(batch(rollouts)) == {"a/0": -0.5, "a/2": 0.5}
    result = batch(rollouts, overlong_filtering=True)
    assert advantages(result) == {"a/0": -0.25, "a/1": 0.25}
    assert result.metrics["rollout/truncated"] == pytest.approx(1 / 3)


def test_the_oldest_token_decides_about_staleness():
    rollouts = group("a", [0.0, 1.0, 0.5])
    versions = rollouts[2].versions.copy()
    versions[np.flatnonzero(versions >= 0)[0]] = 0
    rollouts[2] = dataclasses.replace(rollouts[2], versions=versions)
    result = batch(rollouts)
    assert advantages(result) == {"a/0": -0.5, "a/1": 0.5}
    assert result.metrics["rollout/stale_dropped"] == pytest.approx(1 / 3)


def test_segments_of_a_rollout_count_once_and_share_its_advantage():
    rollouts = group("a", [0.0, 1.0])
    result = batch([*rollouts, dataclasses.replace(rollouts[1], segment=1)])
    assert sorted((d.rollout_id, d.advantage) for d in result.documents) == [
        ("a/0", -0.5),
        ("a/1", 0.5),
        ("a/1", 0.5),
    ]


def test_long_segments_are_dropped_and_counted_and_replay_can_be_off():
    result = batch(group("a", [0.0, 1.0], routes=True), row_length=12, replay=False)
    assert advantages(result) == {"a/0": -0.5} and result.metrics["rollout/too_long"] == 1
    assert result.documents[0].routed_experts is None


def test_the_ledger_survives_a_torn_write_and_repeated_delivery(tmp_path):
    ledger = Ledger(tmp_path)
    assert ledger.add(0, group("a", [0.0, 1.0])) == 2
    assert ledger.add(0, group("a", [0.0, 1.0, 0.5])) == 1
    path = tmp_path / "step_0000.frames"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    ledger = Ledger(tmp_path)
    assert ledger.rollout_ids(0) == {"a/0", "a/1"}
    ledger.add(0, group("a", [0.0, 1.0, 0.5]))
    assert path.read_bytes() == whole
    assert [t.rollout_id for t in ledger.trajectories(0)] == ["a/0", "a/1", "a/2"]
    assert Ledger(tmp_path, first_step=1).trajectories(0) == []


def test_a_rollout_has_arrived_with_all_its_segments(tmp_path):
    parts = [trajectory("a/0", 12, segment=n, metadata={"segments": 2}) for n in range(2)]
    ledger = Ledger(tmp_path)
    ledger.add(0, parts[:1])
    assert ledger.rollout_ids(0) == set()
    ledger.add(0, parts)
    assert ledger.rollout_ids(0) == {"a/0"} and [t.segment for t in ledger.trajectories(0)] == [0, 1]
