import dataclasses

import numpy as np
import pytest

from sandbox.errors import InputError
from sandbox.trajectory import Trajectory, Turn, read_frames, write_frames


def make(length: int = 6, dtype: type = np.uint8, **changes) -> Trajectory:
    rng = np.random.default_rng(length)
    values = dict(
        rollout_id="g/0",
        group_id="g",
        task="hello",
        reward=0.5,
        ending="finish",
        tests={"a": True, "b": False},
        tokens=rng.integers(0, 300, length).astype(np.int32),
        loss_mask=np.arange(length) % 2 == 0,
        rollout_logprobs=rng.normal(size=length).astype(np.float32),
        versions=np.arange(length, dtype=np.int32) - 1,
        routed_experts=rng.integers(0, 250, (length, 3, 2)).astype(dtype),
        routed_valid=np.arange(length) < length - 1,
        turns=(
            Turn(
                sampled=(1, 3),
                observed=(3, 5),
                tool="terminal",
                arguments={"command": "ls"},
                text="é",
                more=({"tool": "finish"},),
            ),
        ),
        metadata={"family": "write", "skills": ["x"]},
    )
    return Trajectory(**{**values, **changes})


def same(a: Trajectory, b: Trajectory) -> bool:
    return all(
        np.array_equal(x, y) and getattr(x, "dtype", None) == getattr(y, "dtype", None)
        if isinstance(x, np.ndarray)
        else x == y
        for x, y in ((getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(Trajectory))
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_round_trip_keeps_every_field(dtype):
    trajectory = make(dtype=dtype)
    assert same(Trajectory.decode(trajectory.encode()), trajectory)


def test_round_trip_without_routes_and_without_tokens():
    for trajectory in (
        make(routed_experts=None, routed_valid=None),
        make(0, reward=None, ending="infra_error"),
    ):
        assert same(Trajectory.decode(trajectory.encode()), trajectory)


def test_big_endian_and_strided_arrays_are_written_little_endian():
    plain = make(dtype=np.uint16)
    odd = dataclasses.replace(
        plain, tokens=plain.tokens.astype(">i4"), routed_experts=np.asfortranarray(plain.routed_experts)
    )
    assert odd.encode() == plain.encode()


def test_any_changed_or_missing_byte_is_noticed():
    data = make().encode()
    for at in range(0, len(data), 7):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(InputError):
            Trajectory.decode(bytes(broken))
    for end in (0, 7, 40, len(data) - 1):
        with pytest.raises(InputError):
            Trajectory.decode(data[:end])


def test_frames_round_trip_and_a_cut_frame_is_refused():
    trajectories = [make(n) for n in (1, 4, 9)]
    data = write_frames(trajectories)
    assert all(same(a, b) for a, b in zip(read_frames(data), trajectories, strict=True))
    assert list(read_frames(b"")) == []
    for cut in (1, 12, len(data) - len(trajectories[2].encode())):
        with pytest.raises(InputError, match="cut at byte"):
            list(read_frames(data[:-cut]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss_mask": np.zeros(5, bool)}, "loss_mask has shape"),
        ({"versions": np.zeros((6, 1), np.int32)}, "versions has shape"),
        ({"routed_experts": np.zeros((5, 3, 2), np.uint8)}, "routed_experts is uint8"),
        ({"routed_experts": np.zeros((6, 3, 2), np.int32)}, "routed_experts is int32"),
        ({"routed_valid": None}, "routed_valid must be bool"),
        ({"ending": "bored"}, "ending 'bored'"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_rollout(changes, message):
    with pytest.raises(InputError, match=f"g/0: {message}"):
        make(**changes)


def test_version_spans_follow_the_sampled_tokens():
    versions = np.array([-1, 3, 3, 4, -1, 4, 4, -1], np.int32)
    trajectory = make(8, versions=versions)
    assert trajectory.version_spans == [(1, 3, 3), (3, 4, 4), (5, 7, 4)]


def test_solved_needs_tests_that_all_pass():
    assert make(tests={"a": True}).solved
    assert not make().solved
    assert not make(tests={}).solved
