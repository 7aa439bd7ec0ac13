"""Play a task's own solution, for the oracle agent and for the admission of tasks."""

from __future__ import annotations

import shlex

from sandbox.backends.base import Sandbox, TerminalResult
from sandbox.errors import InputError
from sandbox.task import Task


async def run_solution(sandbox: Sandbox, task: Task) -> TerminalResult:
    """Copy solution/ to /solution and run solve.sh in the task's workdir, within the agent's time limit.

    Raises InputError when the task has no solution/solve.sh.
    """
    return await run_script(sandbox, task, "solve.sh")


async def run_script(sandbox: Sandbox, task: Task, name: str) -> TerminalResult:
    """`run_solution` of another script of solution/."""
    folder = task.path / "solution"
    if not (folder / name).is_file():
        raise InputError(f"task {task.name}: solution/{name} is missing, the oracle has nothing to play")
    await sandbox.upload(folder, "/solution")
    return await sandbox.terminal(
        f"cd {shlex.quote(task.workdir)} && bash /solution/{name}", task.agent_timeout or 600.0
    )
