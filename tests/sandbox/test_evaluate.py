import asyncio
import json

import pytest

from sandbox.agent import EpisodeLimits
from sandbox.errors import InputError
from sandbox.evaluate import Attempt, EvalConfig, compare, evaluate, summarize
from sandbox.task import Task
from sandbox.trajectory import read_frames


@pytest.fixture
def tasks(write_task):
    return write_task("one").parent, write_task("two")


def config(tasks, **changes):
    return EvalConfig(**{"tasks": str(tasks[0]), "progress": False, **changes})


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("noop", 0.0), ("stub", 0.25)])
def test_agents_without_a_model(tasks, tmp_path, agent, reward):
    result = evaluate(config(tasks, agent=agent, attempts=2, out=str(tmp_path / "out" / "e.json")))
    assert result == json.loads((tmp_path / "out" / "e.json").read_text())
    assert result["tasks"] == {"one": [reward] * 2, "two": [reward] * 2}
    assert result["mean_reward"] == reward and result["mean_reward_ci95"] == [reward, reward]
    assert result["solved"] == float(reward == 1.0) and result["attempts"] == 4 and result["errors"] == 0
    assert result["by_family"]["write"]["tasks"] == 2 and result["endings"] == {"finish": 4}


def test_the_oracle_runs_solve_sh_where_there_are_no_steps(tasks):
    for folder in tasks[0].iterdir():
        (folder / "solution/steps.jsonl").unlink()
        (folder / "solution/helper.txt").write_text("x" * 60_000)
        (folder / "solution/solve.sh").write_text(
            '[ -s "$(dirname "$0")/helper.txt" ] && echo hello > out.txt; touch done.txt\n'
        )
    assert evaluate(config(tasks, agent="oracle"))["mean_reward"] == 1.0


def test_a_script_is_played_in_every_task(tasks, tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"tool": "terminal", "arguments": {"command": "touch done.txt"}}\n'
        '{"tool": "finish", "arguments": {}}\n'
        '{"tool": "terminal", "arguments": {"command": "echo hello > out.txt"}}\n'
    )
    result = evaluate(config(tasks, agent="script", actions=str(tmp_path / "a.jsonl")))
    assert result["tasks"] == {"one": [0.25], "two": [0.25]} and result["rounds"] == 2


async def test_a_model_behind_an_engine(tasks, tmp_path, engine, run_text):
    bad = "<tool_call>\n</tool_call>"
    engine.script = [run_text("echo hello > out.txt"), bad, run_text("touch done.txt")]
    options = config(
        tasks,
        engine_url=engine.url,
        attempts=2,
        temperature=0.5,
        trajectories_out=str(tmp_path / "t.bin"),
        limits=EpisodeLimits(max_new_tokens=300),
    )
    result = await asyncio.to_thread(evaluate, options)
    assert result["mean_reward"] == 1.0 and result["rounds"] == 4 and result["format_error_rate"] == 0.25
    assert {r["sampling_params"]["temperature"] for r in engine.requests} == {0.5}
    kept = list(read_frames((tmp_path / "t.bin").read_bytes()))
    assert [t.rollout_id for t in kept] == [f"eval/{n}/{k}" for n in ("one", "two") for k in range(2)]
    # Attempts differ in their seeds, and the whole evaluation repeats.
    seeds = {t.metadata["seed"] for t in kept}
    again = await asyncio.to_thread(evaluate, options)
    assert len(seeds) == 2 and again["per_attempt"] == result["per_attempt"]


async def test_an_error_in_one_episode_is_raised_as_it_is(tasks, engine):
    options = config(tasks, engine_url=engine.url, limits=EpisodeLimits(max_context=20))
    with pytest.raises(InputError, match="its prompt has"):
        await asyncio.to_thread(evaluate, options)


def test_infrastructure_failures_are_errors_and_no_rewards(tasks):
    loaded = [Task.load(folder) for folder in sorted(tasks[0].iterdir())]
    attempts = [
        Attempt(task="one", attempt=0, reward=0.5, ending="finish", rounds=3),
        Attempt(task="one", attempt=1, reward=None, ending="infra_error"),
        Attempt(task="two", attempt=0, reward=None, ending="infra_error"),
    ]
    result = summarize(loaded, attempts)
    assert result["tasks"] == {"one": [0.5], "two": []} and result["errors"] == 2 and result["attempts"] == 3
    assert result["mean_reward"] == 0.5
    assert summarize(loaded, attempts[1:])["mean_reward"] is None


def write_result(path, tasks):
    path.write_text(json.dumps({"tasks": tasks}))
    return path


def test_compare_pairs_the_tasks(tmp_path):
    first = write_result(tmp_path / "a", {"x": [0.0, 0.5], "y": [1.0], "z": [0.2], "only": [1.0], "none": []})
    second = write_result(tmp_path / "b", {"x": [1.0], "y": [1.0], "z": [0.1], "none": [1.0]})
    result = compare(first, second)
    assert result["tasks"] == 3 and result["only_in_first"] == 1 and result["only_in_second"] == 1
    assert result["difference"]["mean"] == pytest.approx((0.75 + 0 - 0.1) / 3)
    assert (result["better"], result["worse"], result["equal"]) == (1, 1, 1)
    assert result["solved"] == pytest.approx([1 / 3, 2 / 3]) and result["significant"] is False
    write_result(tmp_path / "c", {str(k): [0.1] for k in range(30)})
    write_result(tmp_path / "d", {str(k): [0.2] for k in range(30)})
    assert compare(tmp_path / "c", tmp_path / "d")["significant"] is True


def test_bad_input_is_refused_in_one_line(tasks, tmp_path):
    (tmp_path / "text").write_text("hello")
    (tmp_path / "list").write_text("[]")
    good = write_result(tmp_path / "good", {"x": [1.0]})
    for other, message in [("none", "does not exist"), ("text", "not JSON"), ("list", "holds no tasks")]:
        with pytest.raises(InputError, match=message):
            compare(good, tmp_path / other)
    with pytest.raises(InputError, match="no graded task in common"):
        compare(good, write_result(tmp_path / "o", {"y": [1.0]}))
    for changes, message in [
        ({"agent": "human"}, "agent: 'human'"),
        ({}, "engine: missing"),
        ({"agent": "script"}, "actions: missing"),
        ({"agent": "noop", "attempts": 0}, "attempts: 0"),
        ({"agent": "noop", "trajectories_out": "t"}, "trajectories_out"),
    ]:
        with pytest.raises(InputError, match=message):
            config(tasks, **changes)
    with pytest.raises(InputError, match="no answer from /get_model_info"):
        evaluate(config(tasks, engine_url="http://127.0.0.1:9"))
    with pytest.raises(InputError, match=r"cannot write .*it is a folder"):
        evaluate(config(tasks, agent="noop", out=str(tmp_path)))
    with pytest.raises(InputError, match="no task found"):
        evaluate(config((tmp_path,), agent="noop"))
