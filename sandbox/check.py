"""`tasks check`: proves that a task pays for its solution, and for nothing that is less than one."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress, TimeElapsedColumn

from sandbox.backends import BACKENDS
from sandbox.backends.base import Backend, Sandbox, SandboxError
from sandbox.errors import InputError
from sandbox.factory import junk_command
from sandbox.files import write_whole
from sandbox.solution import run_script, run_solution
from sandbox.task import Task
from sandbox.verifier import Verdict

STUB_LIMIT = 0.34
"""The most that junk files may earn of the tests, before the baseline is taken off."""

# An infrastructure failure says nothing of a task, so it is tried again before it is reported.
_TRIES = 3
_DEFAULT_TIMEOUT = 600.0
# Bytes of a solution's step that no environment has by chance.
_LEAK_LENGTH = 40


async def check_task(task: Task, backend: Backend) -> dict[str, Any]:
    """Plays the solution twice, nothing, junk (a line in each file that the instruction names), and the lazy
    answer where the task has one (solution/lazy.sh: right for what can be seen only), each alone.

    Returns the task's line of `tasks check`: "task"; "oracle", "again", "noop", "stub" and, where there is
    one, "lazy" (each {"reward", "tests"}); "ok"; and "problems", sentences that begin with a word of what is
    wrong and a colon: "oracle" (below 1), "flaky" (the two solutions differ), "noop" and "stub" (pay for
    nothing and for junk), "lazy" (solved), "leak" (the environment or the instruction tells the solution),
    "binaries" (a program that the task needs is not in the sandbox), "sandbox" (infrastructure), "task".
    """
    if not (task.path / "solution" / "solve.sh").is_file():
        problem = "task: solution/solve.sh is missing, expected a script that solves the task"
        return _line(task.name, problems=[problem])
    problems = find_leaks(task)
    verdicts: dict[str, Verdict] = {}
    for agent, play in _PLAYS.items():
        if agent == "lazy" and not (task.path / "solution" / "lazy.sh").is_file():
            continue
        try:
            verdicts[agent] = await _play(task, backend, play)
        except SandboxError as error:
            return _line(task.name, verdicts, problems=[f"sandbox: {agent}: {error}"])
        except _Unfit as unfit:
            return _line(task.name, verdicts, problems=[*problems, str(unfit)])
    return _line(task.name, verdicts, problems=problems + _problems(task, **verdicts))


def check_tasks(
    folder: Path | str, backend_name: str, jobs: int, out: Path | str, *, remove_failed: bool = False
) -> dict[str, Any]:
    """Checks every task under `folder`, `jobs` at a time; writes a JSON line a task to `out`, sorted by name.

    With `remove_failed` the folders of tasks that fail are deleted: what stays is admitted.

    A folder that cannot be read as a task is a line with ok false. Returns the summary: "tasks", "ok" (how
    many), "failed" (names), "reasons" (the problems' first words -> tasks), "seconds", "tasks_per_second".
    Raises InputError for an unknown backend, one that cannot run here, jobs below 1, or a folder without
    tasks.
    """
    if backend_name not in BACKENDS:
        known = ", ".join(sorted(BACKENDS))
        raise InputError(f"tasks check: backend is {backend_name!r}, expected one of {known}")
    if jobs < 1:
        raise InputError(f"tasks check: jobs is {jobs}, expected at least 1")
    paths = sorted(path.parent for path in Path(folder).glob("*/task.toml"))
    if not paths:
        raise InputError(f"tasks check: {folder} has no task, expected folders that hold task.toml")
    backend = BACKENDS[backend_name]
    backend.check()
    start = time.monotonic()
    lines = asyncio.run(_check_all(paths, backend, jobs))
    seconds = time.monotonic() - start
    write_whole(out, "".join(json.dumps(line) + "\n" for line in lines))
    failed = [line["task"] for line in lines if not line["ok"]]
    reasons = Counter(
        reason for line in lines for reason in {problem.partition(":")[0] for problem in line["problems"]}
    )
    if remove_failed:
        for name in failed:
            shutil.rmtree(Path(folder) / name)
    return {
        "tasks": len(lines),
        "ok": len(lines) - len(failed),
        "failed": failed,
        "reasons": dict(sorted(reasons.items())),
        "seconds": round(seconds, 2),
        "tasks_per_second": round(len(lines) / seconds, 2),
    }


async def _check_all(paths: Sequence[Path], backend: Backend, jobs: int) -> list[dict[str, Any]]:
    slots = asyncio.Semaphore(jobs)
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), transient=True) as progress:
        bar = progress.add_task("checking", total=len(paths))

        async def one(path: Path) -> dict[str, Any]:
            async with slots:
                try:
                    line = await check_task(Task.load(path), backend)
                except InputError as error:
                    line = _line(path.name, problems=[f"task: {error}"])
            progress.advance(bar)
            return line

        return await asyncio.gather(*map(one, paths))


def find_leaks(task: Task) -> list[str]:
    """Problems of what an agent is given: the environment or the instruction has a step of the solution, or
    the environment a file of tests/ or solution/.
    """
    secret = {
        path.read_bytes(): f"{part}/{path.name}"
        for part in ("tests", "solution")
        for path in sorted((task.path / part).rglob("*"))
        if path.is_file()
    }
    steps_file = task.path / "solution" / "steps.jsonl"
    lines = steps_file.read_text().splitlines() if steps_file.is_file() else []
    steps = [str(json.loads(line)["arguments"].get("command", "")).strip().encode() for line in lines]
    given = {"instruction.md": task.instruction.encode()}
    for path in sorted((task.path / "environment").rglob("*")):
        if path.is_file() and not path.is_symlink():
            given[str(path.relative_to(task.path))] = path.read_bytes()
    problems = []
    for place, content in given.items():
        if content in secret:
            problems.append(f"leak: {place} is {secret[content]}")
        problems += [
            f"leak: {place} has step {number} of the solution"
            for number, step in enumerate(steps, 1)
            if len(step) >= _LEAK_LENGTH and step in content
        ]
    return problems


class _Unfit(Exception):
    """A problem that makes further plays pointless."""


async def _idle(sandbox: Sandbox, task: Task) -> None:
    """Does nothing to the task; looks whether the sandbox has what it must have, and not what it must not."""
    binaries = task.metadata.get("binaries", [])
    if not binaries:
        return
    quoted = " ".join(shlex.quote(str(name)) for name in binaries)
    done = await sandbox.terminal(f"for b in {quoted}; do command -v $b > /dev/null || echo $b; done", 10.0)
    if missing := done.output.split():
        raise _Unfit(f"binaries: the sandbox has no {', '.join(missing)}, which the task needs")


async def _junk(sandbox: Sandbox, task: Task) -> None:
    await sandbox.terminal(junk_command(task.instruction), task.agent_timeout or _DEFAULT_TIMEOUT)


async def _lazy(sandbox: Sandbox, task: Task) -> None:
    await run_script(sandbox, task, "lazy.sh")


# The idle one first: it finds out whether the others can run at all.
_PLAYS: dict[str, Callable[[Sandbox, Task], Awaitable[object]]] = {
    "noop": _idle,
    "oracle": run_solution,
    "again": run_solution,
    "stub": _junk,
    "lazy": _lazy,
}


async def _play(task: Task, backend: Backend, play: Callable[[Sandbox, Task], Awaitable[object]]) -> Verdict:
    """The verdict on what `play` leaves in a fresh sandbox."""
    for tries_left in reversed(range(_TRIES)):
        try:
            sandbox = await backend.create(task)
            try:
                await play(sandbox, task)
                return await sandbox.verify(task)
            finally:
                await sandbox.close()
        except SandboxError as error:
            if not error.retryable or not tries_left:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


def _problems(
    task: Task, oracle: Verdict, again: Verdict, noop: Verdict, stub: Verdict, lazy: Verdict | None = None
) -> list[str]:
    problems = []
    for agent, verdict in (("oracle", oracle), ("noop", noop), ("stub", stub)):
        # A test script may well write no reward when nothing was done, but must after the solution.
        if verdict.status != "scored" and (agent == "oracle" or verdict.status != "no_reward"):
            problems.append(f"{agent}: the verdict is {verdict.status!r}, expected 'scored'")
    if oracle.reward != 1.0:
        failed = ", ".join(name for name, passed in oracle.tests.items() if not passed) or "none"
        problems.append(f"oracle: reward {oracle.reward:.3f}, expected 1; failed tests: {failed}")
    if (oracle.reward, oracle.tests) != (again.reward, again.tests):
        changed = ", ".join(name for name in oracle.tests if oracle.tests[name] != again.tests.get(name))
        problems.append(
            f"flaky: the solution earns {oracle.reward:.3f}, then {again.reward:.3f}; tests that change: "
            f"{changed or 'none'}"
        )
    if noop.reward != 0.0:
        problems.append(f"noop: reward {noop.reward:.3f}, expected 0")
    if "tests" not in task.metadata:
        return problems
    idle = [name for name, passed in noop.tests.items() if passed]
    if idle:
        problems.append(f"noop: tests that pass in the untouched environment: {', '.join(idle)}")
    # The verifier takes metadata's stub_baseline off, so any pay for junk means that the baseline is too low.
    if stub.reward != 0.0:
        problems.append(f"stub: reward {stub.reward:.3f} for junk files, expected 0; raise stub_baseline")
    share = sum(stub.tests.values()) / max(1, len(stub.tests))
    if share > STUB_LIMIT:
        problems.append(f"stub: junk files pass {share:.2f} of the tests, expected at most {STUB_LIMIT}")
    if lazy is not None and lazy.solved:
        problems.append("lazy: a hard-coded answer solves the task, expected a test on hidden data to fail")
    return problems


def _line(name: str, verdicts: dict[str, Verdict] | None = None, *, problems: list[str]) -> dict[str, Any]:
    scores = {agent: {"reward": v.reward, "tests": v.tests} for agent, v in (verdicts or {}).items()}
    unknown: dict[str, Any] = {"reward": None, "tests": {}}
    agents = {agent: scores.get(agent, unknown) for agent in ("oracle", "noop", "stub")}
    return {"task": name, **agents, **scores, "ok": not problems, "problems": problems}
