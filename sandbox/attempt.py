"""One attempt at one task by an agent that keeps no token record, and what is known of it afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from sandbox.backends.base import SandboxError
from sandbox.demonstrate import load_actions
from sandbox.factory import junk_command
from sandbox.policy import PolicyError
from sandbox.solution import run_solution
from sandbox.tools import ToolCall, run_call
from sandbox.trajectory import Trajectory

if TYPE_CHECKING:
    from sandbox.agent import EpisodeLimits
    from sandbox.backends.base import Backend, Sandbox
    from sandbox.task import Task


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One graded (or failed) attempt at one task; `reward` is None when the infrastructure failed.

    `ending` is one of trajectory.ENDINGS; a "timeout" is graded like every other. `tokens` are those that the
    model wrote. `seconds` is the wall time of the try that counts, grading included. `retries` counts the
    tries before it that the infrastructure failed; `problem` says how.
    """

    task: str
    attempt: int
    reward: float | None
    ending: str
    verifier: str = "scored"
    rounds: int = 0
    format_errors: int = 0
    tokens: int = 0
    seconds: float = 0.0
    tests: dict[str, bool] = field(default_factory=dict)
    retries: int = 0
    problem: str = ""
    trajectory: Trajectory | None = None

    @property
    def solved(self) -> bool:
        """Whether the reward is whole, which it is exactly when every test passed."""
        return self.reward is not None and self.reward >= 1.0

    @property
    def failure(self) -> str | None:
        """Why it is not solved: infra_error, an ending that cut it short, a verifier that gave no score
        (verifier_timeout, ...), or tests_failed. None when it is.
        """
        if self.reward is None:
            return "infra_error"
        if self.solved:
            return None
        if self.ending != "finish":
            return self.ending
        return "tests_failed" if self.verifier == "scored" else f"verifier_{self.verifier}"

    def record(self) -> dict[str, Any]:
        """The attempt as JSON, without its trajectory."""
        values = {name: value for name, value in vars(self).items() if name != "trajectory"}
        return values | {"solved": self.solved, "failure": self.failure}

    @classmethod
    def from_record(cls, record: dict[str, Any], trajectory: Trajectory | None = None) -> Attempt:
        """The inverse of `record`."""
        names = {entry.name for entry in fields(cls)}
        return cls(**{key: value for key, value in record.items() if key in names}, trajectory=trajectory)


@dataclass
class Counts:
    """What an agent has done so far; it stays known when the agent is stopped."""

    rounds: int = 0
    format_errors: int = 0
    tokens: int = 0


Agent = Callable[["Sandbox", "Task", int, Counts], Awaitable[str]]
"""Acts in a sandbox on a task, as attempt number n; adds to the counts and returns the ending."""


def scripted_agent(name: str, limits: EpisodeLimits, actions: str | None = None) -> Agent:
    """An agent without a model: oracle (the task's solution), noop, stub (junk in every file that the
    instruction names), or script (the tool calls of the file `actions`, up to finish).

    The oracle plays solution/steps.jsonl where a task has no solve.sh: some solutions press keys.
    """
    script = load_actions(actions) if name == "script" and actions else []

    async def act(sandbox: Sandbox, task: Task, attempt: int, counts: Counts) -> str:
        if name == "oracle":
            steps = task.path / "solution" / "steps.jsonl"
            if steps.is_file() and not (task.path / "solution" / "solve.sh").is_file():
                return await _play_calls(sandbox, load_actions(steps), limits, counts)
            counts.rounds = 1
            result = await run_solution(sandbox, task)
            return "timeout" if result.status == "timeout" else "finish"
        if name == "stub":
            counts.rounds = 1
            await sandbox.terminal(junk_command(task.instruction), limits.max_command_timeout)
            return "finish"
        return await _play_calls(sandbox, script, limits, counts)

    return act


async def _play_calls(
    sandbox: Sandbox, calls: Sequence[ToolCall], limits: EpisodeLimits, counts: Counts
) -> str:
    for call in calls:
        counts.rounds += 1
        if call.name == "finish":
            break
        await run_call(sandbox, call, timeout=limits.command_timeout, max_timeout=limits.max_command_timeout)
    return "finish"


async def play(
    task: Task, agent: Agent, backend: Backend, limits: EpisodeLimits, *, attempt: int = 0
) -> Attempt:
    """Let an agent act in a fresh sandbox within its time, then grade what it left.

    An agent that runs out of time is stopped, graded and marked by its ending. Infrastructure failures
    (SandboxError, PolicyError) are tried again on a fresh sandbox, `limits.infra_retries` times.
    """
    bounds = [bound for bound in (limits.episode_timeout, task.agent_timeout) if bound]
    problems: list[str] = []
    counts = Counts()
    for _ in range(limits.infra_retries + 1):
        counts, start = Counts(), time.monotonic()
        try:
            sandbox = await backend.create(task)
            try:
                ending = await _within(min(bounds) if bounds else None, agent(sandbox, task, attempt, counts))
                verdict = await sandbox.verify(task)
            finally:
                await sandbox.close()
        except (SandboxError, PolicyError) as error:
            problems.append(f"{type(error).__name__}: {error}")
            if isinstance(error, SandboxError) and not error.retryable:
                break
            continue
        return Attempt(
            task=task.name,
            attempt=attempt,
            reward=verdict.reward,
            ending=ending,
            verifier=verdict.status,
            seconds=round(time.monotonic() - start, 3),
            tests=dict(verdict.tests),
            retries=len(problems),
            problem="; ".join(problems),
            **asdict(counts),
        )
    return Attempt(
        task=task.name,
        attempt=attempt,
        reward=None,
        ending="infra_error",
        retries=len(problems) - 1,
        problem="; ".join(problems),
        **asdict(counts),
    )


async def _within(seconds: float | None, acting: Awaitable[str]) -> str:
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            return await acting
    except TimeoutError:
        if not timer.expired():
            raise
        return "timeout"
