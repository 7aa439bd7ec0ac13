import asyncio
import json
from dataclasses import replace

import pytest

from sandbox.agent import EpisodeLimits
from sandbox.errors import InputError
from sandbox.evaluate import EvalConfig, evaluate
from sandbox.statistics import compare
from sandbox.trajectory import read_frames, write_frames


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
    assert len(seeds) == 2
    for one, other in zip(result["per_attempt"], again["per_attempt"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert (
        result["model"] == engine.model_path
        and result["tokens"] == sum(len(t.tokens[t.loss_mask]) for t in kept) / 4
    )


async def test_an_evaluation_goes_on_where_it_was_stopped(tasks, tmp_path, engine, run_text):
    """A kill in the middle leaves a journal; the same command plays only what is missing of it."""
    engine.script = [run_text("echo hello > out.txt"), run_text("touch done.txt")]
    out, frames = tmp_path / "e.json", tmp_path / "t.bin"
    options = config(
        tasks,
        engine_url=engine.url,
        attempts=2,
        out=str(out),
        trajectories_out=str(frames),
        concurrency=1,
        limits=EpisodeLimits(infra_retries=0),
    )
    journal = tmp_path / "e.json.attempts.jsonl"
    whole = await asyncio.to_thread(evaluate, options)
    assert not journal.exists() and not (tmp_path / "t.bin.partial").exists()
    played = list(read_frames(frames.read_bytes()))

    # A run whose engine goes away in the third attempt ends in an error, and its last records are cut short.
    requests, change = len(engine.requests), engine.change

    def refuse(answer):
        if len(engine.requests) - requests > 7:
            answer["output_ids"] = answer["output_ids"] + [1]
        return answer

    engine.change = refuse
    hurt = await asyncio.to_thread(
        evaluate, replace(options, limits=replace(options.limits, infra_retries=0))
    )
    assert hurt["errors"] == 2 and [row["reward"] for row in hurt["per_attempt"]] == [1.0, 1.0, None, None]
    assert hurt["tasks"]["two"] == [] and len(hurt["infrastructure"]) == 2 and journal.exists()
    engine.change = change
    with journal.open("a") as file:
        file.write('{"task": "two", "attem')
    with (tmp_path / "t.bin.partial").open("ab") as file:
        file.write(write_frames([played[2]])[:50])
    with pytest.raises(InputError, match=r"attempts\.jsonl holds attempts of .* another temperature"):
        await asyncio.to_thread(evaluate, replace(options, temperature=0.5))
    asked = len(engine.requests)
    again = await asyncio.to_thread(evaluate, options)
    assert len(engine.requests) - asked == 6  # two attempts of three requests
    assert again["tasks"] == whole["tasks"] and again["per_attempt"][:2] == hurt["per_attempt"][:2]
    assert [t.rollout_id for t in read_frames(frames.read_bytes())] == [t.rollout_id for t in played]
    assert not journal.exists()


async def test_an_error_in_one_episode_is_raised_as_it_is(tasks, engine):
    options = config(tasks, engine_url=engine.url, limits=EpisodeLimits(max_context=20))
    with pytest.raises(InputError, match="its prompt has"):
        await asyncio.to_thread(evaluate, options)


def test_an_agent_that_runs_out_of_time_is_graded_and_marked(write_task, tmp_path):
    folder = write_task("slow", agent_timeout=1.0)
    (tmp_path / "a.jsonl").write_text(
        '{"tool": "terminal", "arguments": {"command": "touch done.txt; sleep 30"}}\n'
    )
    (folder / "solution/solve.sh").write_text("touch done.txt; sleep 3; echo hello > out.txt\n")
    result = evaluate(config((folder.parent,), agent="script", actions=str(tmp_path / "a.jsonl")))
    assert (
        result["tasks"] == {"slow": [0.25]} and result["failures"] == {"timeout": 1} and result["errors"] == 0
    )
    assert result["rounds"] == 1 and result["seconds"] < 15
    oracle = config((folder.parent,), agent="oracle")
    assert evaluate(oracle)["failures"] == {"timeout": 1}
    assert evaluate(replace(oracle, timeout_multiplier=20.0))["tasks"] == {"slow": [1.0]}


def test_the_oracle_presses_keys_where_there_is_no_script(tasks):
    for folder in tasks[0].iterdir():
        (folder / "solution/solve.sh").unlink()
    assert evaluate(config(tasks, agent="oracle"))["mean_reward"] == 1.0


def test_infrastructure_failures_are_reported_apart(tasks):
    (tasks[1] / "environment/Dockerfile").write_text("FROM debian\nRUN apt-get install cowsay\n")
    result = evaluate(config(tasks, agent="oracle", attempts=2))
    assert result["tasks"] == {"one": [1.0, 1.0], "two": []} and result["errors"] == 2
    assert result["solved"] == 1.0 and "apt-get" in result["infrastructure"][0]["problem"]
    assert result["failures"] == {"infra_error": 2}


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
        ({"engine_url": "http://x", "api": "openai", "trajectories_out": "t"}, "trajectories_out"),
        ({"agent": "noop", "timeout_multiplier": 0.0}, "timeout_multiplier: 0"),
    ]:
        with pytest.raises(InputError, match=message):
            config(tasks, **changes)
    with pytest.raises(InputError, match="no answer from /get_model_info"):
        evaluate(config(tasks, engine_url="http://127.0.0.1:9"))
    with pytest.raises(InputError, match=r"cannot write .*it is a folder"):
        evaluate(config(tasks, agent="noop", out=str(tmp_path)))
    with pytest.raises(InputError, match="no task found"):
        evaluate(config((tmp_path,), agent="noop"))
