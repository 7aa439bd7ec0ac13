import dataclasses

import numpy as np
import pytest

from sandbox.errors import InputError
from sandbox.trajectory import read_frames, write_frames
from t1_jax.data.trajectories import (
    RoutingRecordError,
    check_agreement,
    read_trajectories,
    select_by_reward,
    to_document,
)
from tests.train.micro import MICRO, trajectory


def broken(change):
    record = trajectory("run-7", 12, routes=True)
    routes = record.routed_experts.copy()
    return dataclasses.replace(record, routed_experts=change(routes))


def test_bad_routes_are_refused_with_id_and_token():
    def out_of_range(routes):
        routes[5, 2, 1] = 4
        return routes

    def repeated(routes):
        routes[3, 1] = 2
        return routes

    with pytest.raises(RoutingRecordError, match=r"run-7.*token 5.*id 4.*below 4"):
        to_document(broken(out_of_range), MICRO)
    with pytest.raises(RoutingRecordError, match=r"run-7.*token 3.*twice"):
        to_document(broken(repeated), MICRO)
    with pytest.raises(RoutingRecordError, match=r"\[3, 2\], expected \[4, 2\]"):
        to_document(broken(lambda routes: routes[:, :3]), MICRO)


def test_a_layer_that_never_changes_is_no_record():
    def constant(record):
        routes = record.routed_experts.copy()
        routes[:, 2] = routes[0, 2]
        return dataclasses.replace(record, routed_experts=routes)

    long, short = (constant(trajectory("run-7", length, routes=True)) for length in (20, 12))
    with pytest.raises(RoutingRecordError, match=r"run-7.*token 0 on.*every token of layer 2"):
        to_document(long, MICRO)
    assert to_document(short, MICRO).routed_experts is not None


def test_a_shifted_record_does_not_agree_with_a_probe():
    model = dataclasses.replace(MICRO, num_experts=32, num_experts_per_tok=4)
    record = trajectory("run-7", 40, routes=True, model=model)
    routes = record.routed_experts.astype(np.int32)
    assert check_agreement(record, routes) == 1.0
    assert check_agreement(record, routes[..., ::-1]) == 1.0, "the order within a row means nothing"
    drifted = routes.copy()
    drifted[::5, :, 0] = (routes[::5].max(-1) + 1) % 32
    assert 0.9 < check_agreement(record, drifted) < 1.0
    for shift in (-1, 1):
        shifted = dataclasses.replace(record, routed_experts=np.roll(record.routed_experts, shift, axis=0))
        with pytest.raises(RoutingRecordError, match=rf"run-7.*token \d+.*shifted by \{shift:+d} it agrees"):
            check_agreement(shifted, routes)
    assert check_agreement(trajectory("run-8", 12), routes) is None


@pytest.mark.parametrize(("experts", "dtype"), [(256, np.uint8), (512, np.uint16)])
def test_ids_of_every_width_come_back(experts, dtype):
    model = dataclasses.replace(MICRO, num_experts=experts)
    record = trajectory("run-7", 12, routes=True, model=model)
    record.routed_experts[4, 1, 0] = experts - 1
    assert record.routed_experts.dtype == dtype and (record.routed_experts >= 250).any()
    (again,) = read_frames(write_frames([record]))
    assert again.routed_experts.dtype == dtype
    np.testing.assert_array_equal(again.routed_experts, record.routed_experts)


@pytest.mark.parametrize("change", [slice(1, None), slice(None, -1)])
def test_a_record_of_another_length_is_refused(change):
    record = trajectory("run-7", 12, routes=True)
    with pytest.raises(InputError, match=r"run-7.*\(11, 4, 2\), expected uint8 or uint16 \[12, L, K\]"):
        dataclasses.replace(record, routed_experts=record.routed_experts[change])


def test_rows_that_are_not_valid_may_hold_anything():
    def last(routes):
        routes[-1] = 255
        return routes

    assert to_document(broken(last), MICRO).routed_valid.sum() == 11


@pytest.mark.parametrize(
    ("field", "at", "value", "message"),
    [
        ("tokens", 4, 64, "token 4 is id 64"),
        ("loss_mask", 0, True, "token 0"),
        ("rollout_logprobs", 11, np.nan, "token 11"),
    ],
)
def test_bad_tokens_masks_and_logprobs_are_refused(field, at, value, message):
    record = trajectory("run-7", 12)
    array = getattr(record, field).copy()
    array[at] = value
    with pytest.raises(InputError, match=f"run-7.*{message}"):
        to_document(dataclasses.replace(record, **{field: array}), MICRO)


def test_ages_count_versions_of_sampled_tokens_only():
    document = to_document(trajectory("a", 12, version=3), MICRO, policy_version=5)
    np.testing.assert_array_equal(document.policy_age, np.where(document.loss_mask > 0, 2, 0))


def test_reading_names_the_file(tmp_path):
    (tmp_path / "a.frames").write_bytes(write_frames([trajectory("a", 8), trajectory("b", 9)]))
    assert [t.rollout_id for t in read_trajectories(tmp_path)] == ["a", "b"]
    (tmp_path / "b.frames").write_bytes(write_frames([trajectory("c", 8)])[:-3])
    with pytest.raises(InputError, match=r"b\.frames.*cut"):
        read_trajectories(tmp_path)
    with pytest.raises(InputError, match=r"nowhere.*no such file"):
        read_trajectories(tmp_path / "nowhere")


def test_the_best_rollouts_of_each_group_are_selected_whole():
    def rollout(name, reward, group, segments=1):
        last = segments - 1
        return [
            trajectory(name, 9, group_id=group, segment=i, reward=reward if i == last else None)
            for i in range(segments)
        ]

    records = [
        *rollout("a/0", 0.5, "a"),
        *rollout("a/1", 1.0, "a", segments=2),
        *rollout("a/2", 1.0, "a"),
        *rollout("b/0", None, "b"),
        *rollout("b/1", 0.25, "b"),
    ]

    def names(**criteria):
        return [(t.rollout_id, t.segment) for t in select_by_reward(records, **criteria)]

    assert names() == [(t.rollout_id, t.segment) for t in records]
    assert names(best_of=1) == [("a/1", 0), ("a/1", 1), ("b/1", 0)]
    assert names(min_reward=0.5) == [("a/0", 0), ("a/1", 0), ("a/1", 1), ("a/2", 0)]
    assert names(min_reward=1.0, best_of=1) == [("a/1", 0), ("a/1", 1)]
