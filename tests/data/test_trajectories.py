import dataclasses

import numpy as np
import pytest

from sandbox.errors import InputError
from sandbox.trajectory import write_frames
from t1_jax.data.trajectories import RoutingRecordError, read_trajectories, to_document
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
