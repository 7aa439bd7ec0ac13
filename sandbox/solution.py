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
    folder = task.path / "solution"
    if not (folder / "solve.sh").is_file():
        raise InputError(f"task {task.name}: solution/solve.sh is missing, the oracle has nothing to play")
    await sandbox.upload(folder, "/solution")
    return await sandbox.terminal(
        f"cd {shlex.quote(task.workdir)} && bash /solution/solve.sh", task.agent_timeout or 600.0
    )
