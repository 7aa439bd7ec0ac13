"""Exports: what Harbor's own models accept, and what Parquet gives back."""

import json

import numpy as np
import pytest

from sandbox.agent import EpisodeLimits, run_episode
from sandbox.backends import BACKENDS
from sandbox.conversations import import_conversations
from sandbox.errors import InputError
from sandbox.export import export, to_atif
from sandbox.policy import ScriptedPolicy
from sandbox.task import Task
from sandbox.trajectory import Trajectory, Turn, write_frames


@pytest.fixture
async def played(write_task, chat, run_text) -> Trajectory:
    """A real episode: a turn with text and two calls, a malformed one, and finish."""
    two = "Two at once.\n" + run_text("echo hello > out.txt") + "\n" + run_text("cat notes.txt; exit 3")
    [made] = await run_episode(
        Task.load(write_task()), ScriptedPolicy([two, "<tool_call>bad</tool_call>"], chat), chat,
        BACKENDS["bubblewrap"], EpisodeLimits(max_new_tokens=300), rollout_id="g/0", group_id="g", seed=1,
        temperature=1.0,
    )  # fmt: skip
    return made


def test_an_episode_is_atif(played, tmp_path, chat):
    (tmp_path / "a.frames").write_bytes(write_frames([played]))
    assert export(tmp_path, "atif", tmp_path / "out" / "a.jsonl") == 1
    [line] = (tmp_path / "out" / "a.jsonl").read_text().splitlines()
    document = json.loads(line)
    user, first, bad, last = document["steps"]
    assert user["source"] == "user" and user["message"].startswith("Write hello to out.txt")
    assert (
        first["message"] == "Two at once."
        and [c["function_name"] for c in first["tool_calls"]] == ["terminal"] * 2
    )
    assert "notes" in first["observation"]["results"][1]["content"]
    assert first["metrics"]["completion_token_ids"] == played.tokens[slice(*played.turns[0].sampled)].tolist()
    assert (
        bad["extra"]["error"]
        and "tool_calls" not in bad
        and "[error]" in bad["observation"]["results"][0]["content"]
    )
    assert last["tool_calls"][0]["function_name"] == "finish" and "observation" not in last
    assert document["extra"]["reward"] == 0.25 == played.reward


def test_harbors_models_accept_it(played):
    models = pytest.importorskip(
        "harbor.models.trajectories", reason="needs harbor (Python 3.12): pip install harbor"
    )
    made = models.Trajectory.model_validate(to_atif(played))
    assert made.steps[1].tool_calls and made.extra["ending"] == "finish"


def test_what_was_exported_can_be_imported(chat, tmp_path):
    look = {"tool": "terminal", "arguments": {"command": "ls"}, "observation": "x", "text": "Look."}
    turns = (
        Turn(sampled=(2, 4), observed=(4, 5), **look),
        Turn(sampled=(5, 6), observed=(6, 6), tool="finish", text="<think>hm</think>Done."),
    )
    made = plain(turns=turns, metadata={"instruction": "Write hello."})
    (tmp_path / "a.frames").write_bytes(write_frames([made]))
    export(tmp_path / "a.frames", "atif", tmp_path / "a.jsonl")
    [again], left_out = import_conversations(tmp_path / "a.jsonl", chat)
    assert left_out == {} and again.reward == 0.5 and [t.tool for t in again.turns] == ["terminal", "finish"]
    assert "hm" in again.turns[1].text


def plain(**more) -> Trajectory:
    routes = np.arange(6 * 3 * 2, dtype=np.uint16).reshape(6, 3, 2)
    return Trajectory(
        rollout_id="g/1", group_id="g", task="t", tokens=np.arange(6, dtype=np.int32), reward=0.5,
        loss_mask=np.array([0, 0, 1, 1, 0, 1], bool), rollout_logprobs=np.full(6, -0.5, np.float32),
        versions=np.array([-1, -1, 3, 4, -1, 4], np.int32), routed_experts=routes,
        routed_valid=np.ones(6, bool), tests={"a": True, "b": False}, **more,
    )  # fmt: skip


def test_parquet_holds_every_array(tmp_path):
    import pyarrow.parquet as pq

    bare = Trajectory(
        rollout_id="g/2", group_id="g", task="t", tokens=np.zeros(0, np.int32), loss_mask=np.zeros(0, bool),
        rollout_logprobs=np.zeros(0, np.float32), versions=np.zeros(0, np.int32), ending="infra_error",
    )  # fmt: skip
    made = plain()
    (tmp_path / "a.frames").write_bytes(write_frames([made, bare]))
    assert export(tmp_path, "parquet", tmp_path / "a.parquet") == 2
    first, second = pq.read_table(tmp_path / "a.parquet").to_pylist()
    for name in ("tokens", "loss_mask", "rollout_logprobs", "versions", "routed_valid"):
        assert np.array_equal(first[name], getattr(made, name)), name
    routes = np.frombuffer(first["routed_experts"], first["routed_experts_dtype"])
    assert np.array_equal(routes.reshape(first["routed_experts_shape"]), made.routed_experts)
    assert dict(first["tests"]) == made.tests and first["reward"] == 0.5
    assert second["reward"] is None and second["routed_experts"] is None and second["tokens"] == []


def test_bad_input_is_named(tmp_path):
    with pytest.raises(InputError, match="--to 'csv', expected one of atif, parquet"):
        export(tmp_path, "csv", tmp_path / "x")
    with pytest.raises(InputError, match="holds no trajectories"):
        export(tmp_path, "atif", tmp_path / "x")
    (tmp_path / "a.frames").write_bytes(write_frames([plain()])[:-4])
    for form in ("atif", "parquet"):
        with pytest.raises(InputError, match="cut at byte 0"):
            export(tmp_path, form, tmp_path / "x")
        assert not (tmp_path / "x").exists() and not list(tmp_path.glob(".*.tmp"))
