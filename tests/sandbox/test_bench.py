"""`bench rollout`: what it writes, and what it says where it cannot measure."""

from __future__ import annotations

import pytest

from sandbox.backends import BACKENDS
from sandbox.bench import bench_load, bench_rollout
from sandbox.errors import InputError

IMAGE = "debian:bookworm-slim"


def test_rows_compare_with_docker_in_one_run() -> None:
    try:
        BACKENDS["docker"].check()
        BACKENDS["docker"]._prepare().client.images.get(IMAGE)  # type: ignore[attr-defined]
    except Exception as error:
        pytest.skip(f"needs a Docker engine with the image {IMAGE}, as .ci/run starts one: {error}")
    result = bench_rollout(backend_name="bubblewrap", image=IMAGE, seconds=0.4)
    assert (result["bench"], result["backend"]) == ("rollout", "bubblewrap") and "cores" in result["machine"]
    assert [(row["work"], row["peer_name"]) for row in result["rows"]] == [
        ("commands", "docker exec"),
        ("starts", "docker run"),
    ]
    for row in result["rows"]:
        assert row["ours"] > row["peer"] > 0 and row["ratio"] == pytest.approx(
            row["ours"] / row["peer"], rel=0.02
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend_name": "none"}, "backend: 'none'"),
        ({"seconds": 0.0}, "seconds: 0"),
        ({}, "no docker command"),
    ],
)
def test_what_cannot_be_measured_is_named(
    monkeypatch: pytest.MonkeyPatch, change: dict, message: str
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match=message):
        bench_rollout(**({"backend_name": "bubblewrap", "image": IMAGE, "seconds": 1.0} | change))


def test_episodes_at_once_are_all_graded_and_every_command_gets_its_own_answer() -> None:
    result = bench_load(backend_name="bubblewrap", episodes=6, commands=31)
    assert (result["commands"], result["errors"]) == (36, 0) and result["commands_per_second"] > 0
    for change in ({"episodes": 0}, {"commands": 5}, {"backend_name": "none"}):
        with pytest.raises(InputError, match="expected"):
            bench_load(**({"backend_name": "bubblewrap", "episodes": 6, "commands": 36} | change))
