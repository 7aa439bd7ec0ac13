"""`tasks check`: proves that a task's solution earns 1, and that doing nothing or writing junk earns 0."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress, TimeElapsedColumn

from sandbox.backends import BACKENDS
from sandbox.backends.base import Backend, Sandbox, SandboxError
from sandbox.errors import InputError
from sandbox.factory import junk_command
from sandbox.files import write_whole
from sandbox.solution import run_solution
from sandbox.task import Task
from sandbox.verifier import Verdict

# An infrastructure failure says nothing of a task, so it is tried again before it is reported.
_TRIES = 3
_DEFAULT_TIMEOUT = 600.0


async def check_task(task: Task, backend: Backend) -> dict[str, Any]:
    """Plays the solution, nothing, and junk (a line in each file that the instruction names), each alone.

    Returns the task's line of `tasks check`: "task"; "oracle", "noop" and "stub" (each {"reward", "tests"});
    "ok"; and "problems", a sentence for each thing that makes the task unfit: a solution below 1, a test that
    passes in the untouched environment, pay for junk, a verdict without a score.
    """
    if not (task.path / "solution" / "solve.sh").is_file():
        return _line(
            task.name, problems=["solution/solve.sh is missing, expected a script that solves the task"]
        )
    verdicts: dict[str, Verdict] = {}
    for agent, play in _PLAYS.items():
        try:
            verdicts[agent] = await _play(task, backend, play)
        except SandboxError as error:
            return _line(task.name, verdicts, problems=[f"{agent}: the sandbox failed: {error}"])
    return _line(task.name, verdicts, problems=_problems(task, **verdicts))


def check_tasks(
    folder: Path | str, backend_name: str, jobs: int, out: Path | str, *, remove_failed: bool = False
) -> dict[str, Any]:
    """Checks every task under `folder`, `jobs` at a time; writes a JSON line a task to `out`, sorted by name.

    With `remove_failed` the folders of tasks that fail are deleted: what stays is admitted.

    A folder that cannot be read as a task is a line with ok false. Returns the summary: "tasks", "ok" (how
    many), "failed" (names), "seconds", "tasks_per_second". Raises InputError for an unknown backend, one that
    cannot run here, jobs below 1, or a folder without tasks.
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
    if remove_failed:
        for name in failed:
            shutil.rmtree(Path(folder) / name)
    return {
        "tasks": len(lines),
        "ok": len(lines) - len(failed),
        "failed": failed,
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
                    line = _line(path.name, problems=[str(error)])
            progress.advance(bar)
            return line

        return await asyncio.gather(*map(one, paths))


async def _idle(sandbox: Sandbox, task: Task) -> None:
    pass


async def _junk(sandbox: Sandbox, task: Task) -> None:
    await sandbox.terminal(junk_command(task.instruction), task.agent_timeout or _DEFAULT_TIMEOUT)


_PLAYS: dict[str, Callable[[Sandbox, Task], Awaitable[object]]] = {
    "oracle": run_solution,
    "noop": _idle,
    "stub": _junk,
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


def _problems(task: Task, oracle: Verdict, noop: Verdict, stub: Verdict) -> list[str]:
    problems = []
    for agent, verdict in (("oracle", oracle), ("noop", noop), ("stub", stub)):
        # A test script may well write no reward when nothing was done, but must after the solution.
        if verdict.status != "scored" and (agent == "oracle" or verdict.status != "no_reward"):
            problems.append(f"{agent}: the verdict is {verdict.status!r}, expected 'scored'")
    if oracle.reward != 1.0:
        failed = ", ".join(name for name, passed in oracle.tests.items() if not passed) or "none"
        problems.append(f"oracle: reward {oracle.reward:.3f}, expected 1; failed tests: {failed}")
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
    return problems


def _line(name: str, verdicts: dict[str, Verdict] | None = None, *, problems: list[str]) -> dict[str, Any]:
    scores = {agent: {"reward": v.reward, "tests": v.tests} for agent, v in (verdicts or {}).items()}
    unknown: dict[str, Any] = {"reward": None, "tests": {}}
    agents = {agent: scores.get(agent, unknown) for agent in ("oracle", "noop", "stub")}
    return {"task": name, **agents, "ok": not problems, "problems": problems}
