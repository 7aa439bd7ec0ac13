"""`tasks check` in real sandboxes: the factory's tasks pass, and what is wrong with broken ones is named."""

import json
import re
import shutil

import pytest

from sandbox.backends import BACKENDS
from sandbox.backends.base import SandboxError
from sandbox.check import check_task, check_tasks, find_leaks
from sandbox.errors import InputError
from sandbox.factory.drills import build
from sandbox.task import Task

AGENTS = ("oracle", "noop", "stub")


@pytest.fixture
def task(tmp_path):
    """The folder of one task: make three files that hold a word."""
    return build(tmp_path / "tasks", 1, 1, ["write"])[0]


async def check(folder) -> dict:
    return await check_task(Task.load(folder), BACKENDS["bubblewrap"])


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# The families that ask most of a backend: modes, links, archives, running scripts, looking first.
DEMANDING = ["permissions", "symlink", "archive", "script", "fix", "find", "delete"]


def test_sound_tasks_pass(tmp_path):
    build(tmp_path / "tasks", len(DEMANDING), 11, DEMANDING)
    build(tmp_path / "tasks", 3, 11, held_out=True)
    summary = check_tasks(tmp_path / "tasks", "bubblewrap", 4, tmp_path / "out" / "check.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out" / "check.jsonl").read_text().splitlines()]
    assert [line for line in lines if not line["ok"]] == []
    assert summary["tasks"] == summary["ok"] == len(lines) == len(DEMANDING) + 3 and summary["failed"] == []
    assert [line["task"] for line in lines] == sorted(line["task"] for line in lines)
    for line in lines:
        assert [line[agent]["reward"] for agent in AGENTS] == [1.0, 0.0, 0.0]
        assert len(line["oracle"]["tests"]) >= 3 and all(line["oracle"]["tests"].values())


async def test_a_solution_that_misses_a_requirement_is_named(task):
    (task / "solution/solve.sh").write_text("#!/bin/bash\ntrue\n")
    line = await check(task)
    assert not line["ok"] and line["oracle"]["reward"] == 0.0
    assert len(line["problems"]) == 1 and line["problems"][0].startswith("oracle: reward 0.000, expected 1;")


async def test_a_test_that_passes_untouched_is_named(task):
    with (task / "tests/test_outputs.py").open("a") as file:
        file.write("\n\ndef test_idle():\n    assert True\n")
    edit(task / "task.toml", "tests = [", 'tests = ["test_idle", ')
    line = await check(task)
    assert "noop: tests that pass in the untouched environment: test_idle" in line["problems"]


async def test_pay_for_junk_is_named(task):
    source = task / "tests/test_outputs.py"
    source.write_text(re.sub(r"assert text\((\S+)\) == .*", r"assert is_file(\1)", source.read_text()))
    line = await check(task)
    assert line["stub"]["reward"] > 0
    assert any(problem.startswith("stub: reward") for problem in line["problems"])


async def test_an_expected_test_that_never_ran_is_named(task):
    edit(task / "task.toml", "tests = [", 'tests = ["test_lost", ')
    line = await check(task)
    assert any(problem.endswith("failed tests: test_lost") for problem in line["problems"])


async def test_a_task_without_solution_is_named(task):
    (task / "solution/solve.sh").unlink()
    line = await check(task)
    assert line["problems"] == ["task: solution/solve.sh is missing, expected a script that solves the task"]


async def test_a_solution_that_works_only_sometimes_is_named(task):
    class Changing(Flaky):
        created = 0

        async def create(self, task):
            self.created += 1
            if self.created == 3:  # after nothing and the solution: the solution again
                (task.path / "solution/solve.sh").write_text("#!/bin/bash\ntrue\n")
            return await super().create(task)

    line = await check_task(Task.load(task), Changing(0))
    assert [problem.partition("; ")[0] for problem in line["problems"]] == [
        "flaky: the solution earns 1.000, then 0.000"
    ]


async def test_a_lazy_answer_that_solves_the_task_is_named(task):
    shutil.copy(task / "solution/solve.sh", task / "solution/lazy.sh")
    line = await check(task)
    assert line["lazy"]["reward"] == 1.0 and len(line["problems"]) == 1
    assert line["problems"][0].startswith("lazy: a hard-coded answer solves the task")


async def test_what_tells_the_solution_is_a_leak(task):
    step = f"printf '%s' {'x' * 40} > /tmp/x"
    with (task / "solution/steps.jsonl").open("a") as file:
        file.write(json.dumps({"tool": "terminal", "arguments": {"command": step}}) + "\n")
    assert find_leaks(Task.load(task)) == []
    with (task / "instruction.md").open("a") as file:
        file.write(f"Try {step}.\n")
    shutil.copy(task / "tests/test_outputs.py", task / "environment/files/notes.txt")
    line = await check(task)
    assert line["problems"] == [
        "leak: instruction.md has step 4 of the solution",
        "leak: environment/files/notes.txt is tests/test_outputs.py",
    ]


def test_a_program_that_the_sandbox_lacks_is_named(task, tmp_path):
    edit(task / "task.toml", "seed = ", 'binaries = ["bash", "frobnicate"]\nseed = ')
    summary = check_tasks(tmp_path / "tasks", "bubblewrap", 1, tmp_path / "check.jsonl")
    line = json.loads((tmp_path / "check.jsonl").read_text())
    assert line["problems"] == ["binaries: the sandbox has no frobnicate, which the task needs"]
    assert summary["reasons"] == {"binaries": 1} and line["oracle"]["reward"] is None


def test_an_unreadable_task_is_a_line_of_its_own(task, tmp_path):
    good = build(tmp_path / "tasks", 1, 1, ["rename"])[0]
    (task / "instruction.md").unlink()
    summary = check_tasks(tmp_path / "tasks", "bubblewrap", 2, tmp_path / "check.jsonl")
    rows = [json.loads(row) for row in (tmp_path / "check.jsonl").read_text().splitlines()]
    lines = {row["task"]: row for row in rows}
    assert lines[good.name]["ok"] and summary["failed"] == [task.name]
    assert "instruction.md is missing" in lines[task.name]["problems"][0]
    assert lines[task.name]["oracle"] == {"reward": None, "tests": {}}


class Flaky:
    """The real backend, whose first `failures` sandboxes fail to start."""

    name = "flaky"

    def __init__(self, failures: int, retryable: bool = True) -> None:
        self.failures, self.retryable, self.backend = failures, retryable, BACKENDS["bubblewrap"]

    def check(self) -> None:
        self.backend.check()

    async def create(self, task):
        self.failures -= 1
        if self.failures >= 0:
            raise SandboxError("no room", retryable=self.retryable)
        return await self.backend.create(task)


@pytest.mark.parametrize(
    ("failures", "retryable", "ok"), [(2, True, True), (9, True, False), (1, False, False)]
)
async def test_infrastructure_failures_are_retried_and_never_scored(task, failures, retryable, ok):
    line = await check_task(Task.load(task), Flaky(failures, retryable))
    assert line["ok"] is ok
    if not ok:
        assert line["problems"] == ["sandbox: noop: no room"]
        assert all(line[agent]["reward"] is None for agent in AGENTS)


@pytest.mark.parametrize(
    ("backend", "jobs", "message"),
    [("none", 1, "backend is 'none'"), ("bubblewrap", 0, "jobs is 0"), ("bubblewrap", 1, "has no task")],
)
def test_bad_arguments_are_named(tmp_path, backend, jobs, message):
    with pytest.raises(InputError, match=message):
        check_tasks(tmp_path, backend, jobs, tmp_path / "check.jsonl")
