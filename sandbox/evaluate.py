"""Evaluation: how much of a set of tasks an agent solves, with intervals over tasks; and the comparison of
two runs.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from sandbox.agent import SYSTEM_PROMPT, EpisodeLimits, run_episode
from sandbox.backends import BACKENDS
from sandbox.backends.base import SandboxError
from sandbox.demonstrate import load_actions, run_all
from sandbox.engine_client import EnginePolicy, RouteShape
from sandbox.errors import InputError
from sandbox.factory import junk_command
from sandbox.files import require_writable, write_json, write_whole
from sandbox.service import rollout_seed
from sandbox.solution import run_solution
from sandbox.statistics import bootstrap_ci, compare
from sandbox.task import Task, load_tasks
from sandbox.tools import run_call
from sandbox.trajectory import Trajectory, write_frames
from sandbox.transcript import ChatFormat

if TYPE_CHECKING:
    from sandbox.backends.base import Backend, Sandbox
    from sandbox.policy import Policy

__all__ = ["AGENTS", "Attempt", "EvalConfig", "compare", "evaluate", "play", "scripted_agent", "summarize"]
AGENTS = ("model", "oracle", "noop", "stub", "script")


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """The `eval` command. Agents: model; oracle (the task's solution), noop (nothing), stub (junk in every
    file that the instruction names), script (the same tool calls in every task). `agent` model needs
    `engine_url`, script needs `actions`.

    `checkpoint` gives the chat format; None asks the engine for its own. `trajectories_out` keeps the model's
    episodes as frames.
    """

    tasks: str
    agent: str = "model"
    engine_url: str | None = None
    checkpoint: str | None = None
    actions: str | None = None
    backend: str = "bubblewrap"
    attempts: int = 1
    concurrency: int = 16
    seed: int = 0
    temperature: float = 1.0
    system_prompt: str = SYSTEM_PROMPT
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    out: str | None = None
    trajectories_out: str | None = None
    record_routes: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        if self.agent not in AGENTS:
            raise InputError(f"agent: {self.agent!r}, expected one of {', '.join(AGENTS)}")
        if self.agent == "model" and not self.engine_url:
            raise InputError("engine: missing, expected the URL of an engine for --agent model")
        if self.agent == "script" and not self.actions:
            raise InputError("actions: missing, expected a file of tool calls for --agent script")
        if self.trajectories_out and self.agent != "model":
            raise InputError(f"trajectories_out: only a model's episodes are kept, agent is {self.agent!r}")
        for name in ("attempts", "concurrency"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)}, expected at least 1")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One graded (or failed) attempt at one task; `reward` is None when the infrastructure failed."""

    task: str
    attempt: int
    reward: float | None
    ending: str
    rounds: int = 0
    format_errors: int = 0
    tests: dict[str, bool] = field(default_factory=dict)
    problem: str = ""
    trajectory: Trajectory | None = None

    @property
    def solved(self) -> bool:
        """Whether the reward is whole, which it is exactly when every test passed."""
        return self.reward is not None and self.reward >= 1.0


def evaluate(config: EvalConfig) -> dict[str, Any]:
    """Run the evaluation; returns (and writes to `config.out`) its result.

    Keys: tasks {name: [reward, ...]}, mean_reward and solved (0..1, means over tasks) with their 95 %
    intervals, attempts, errors (attempts that the infrastructure failed; they are in no mean), by_family,
    rounds (mean assistant turns), format_error_rate (malformed turns per turn), endings, per_attempt,
    seconds.
    """
    return asyncio.run(_evaluate(config))


async def _evaluate(config: EvalConfig) -> dict[str, Any]:
    for path in filter(None, (config.out, config.trajectories_out)):
        require_writable(path)
    if config.backend not in BACKENDS:
        raise InputError(f"backend: {config.backend!r}, expected one of {', '.join(BACKENDS)}")
    backend = BACKENDS[config.backend]
    backend.check()
    tasks = load_tasks(config.tasks)
    start = time.monotonic()
    if config.agent == "model":
        attempts = await _with_model(config, tasks, backend)
    else:
        agent = scripted_agent(config)
        attempts = await _run_all(
            config, tasks, lambda task, k: play(task, agent, backend, config.limits, attempt=k)
        )
    result = summarize(tasks, attempts, seed=config.seed)
    result |= {
        "agent": config.agent,
        "temperature": config.temperature,
        "seed": config.seed,
        "seconds": time.monotonic() - start,
    }
    if config.trajectories_out:
        frames = write_frames([a.trajectory for a in attempts if a.trajectory])
        write_whole(config.trajectories_out, frames)
    if config.out:
        write_json(config.out, result)
    return result


async def _with_model(config: EvalConfig, tasks: Sequence[Task], backend: Backend) -> list[Attempt]:
    assert config.engine_url is not None
    checkpoint = config.checkpoint
    if checkpoint is None:
        async with EnginePolicy(config.engine_url, stop_ids=()) as probe:
            checkpoint = (await probe.model_info())["model_path"]
    chat = ChatFormat.load(checkpoint)
    engine = EnginePolicy(
        config.engine_url,
        stop_ids=chat.stop_ids,
        record_routes=config.record_routes,
        shape=RouteShape.from_checkpoint(checkpoint),
    )
    async with engine:
        await (
            engine.model_info()
        )  # an engine that is not there is the caller's mistake, not an episode's failure

        return await _run_all(
            config, tasks, lambda task, k: _model_attempt(config, task, k, engine, chat, backend)
        )


async def _model_attempt(
    config: EvalConfig, task: Task, attempt: int, policy: Policy, chat: ChatFormat, backend: Backend
) -> Attempt:
    trajectory = await run_episode(
        task,
        policy,
        chat,
        backend,
        config.limits,
        rollout_id=f"eval/{task.name}/{attempt}",
        group_id=f"eval/{task.name}",
        seed=rollout_seed(config.seed, attempt),
        temperature=config.temperature,
        system_prompt=config.system_prompt,
    )
    return Attempt(
        task=task.name,
        attempt=attempt,
        reward=trajectory.reward,
        ending=trajectory.ending,
        tests=trajectory.tests,
        rounds=len(trajectory.turns),
        format_errors=trajectory.metadata["format_errors"],
        problem="; ".join(trajectory.metadata.get("infra_errors", [])),
        trajectory=trajectory if config.trajectories_out else None,
    )


async def _run_all(
    config: EvalConfig, tasks: Sequence[Task], play: Callable[[Task, int], Awaitable[Attempt]]
) -> list[Attempt]:
    """All attempts of all tasks, `config.concurrency` at a time, in the order of tasks and attempts."""
    gate = asyncio.Semaphore(config.concurrency)
    rewards: list[float] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    start = time.monotonic()
    with Progress(*columns, disable=not config.progress) as bar:
        track = bar.add_task(f"eval {config.agent}", total=len(tasks) * config.attempts, rate="")

        async def one(task: Task, attempt: int) -> Attempt:
            async with gate:
                result = await play(task, attempt)
            if result.reward is not None:
                rewards.append(result.reward)
            rate = (bar.tasks[track].completed + 1) / (time.monotonic() - start)
            mean = sum(rewards) / max(len(rewards), 1)
            bar.update(track, advance=1, rate=f"{rate:.1f}/s  reward {mean:.3f}")
            return result

        return await run_all([one(task, attempt) for task in tasks for attempt in range(config.attempts)])


Agent = Callable[["Sandbox", Task], Awaitable[int]]


def scripted_agent(config: EvalConfig) -> Agent:
    """An agent without a model: acts in a sandbox and returns its number of rounds."""
    script = load_actions(config.actions) if config.agent == "script" and config.actions else []

    async def act(sandbox: Sandbox, task: Task) -> int:
        if config.agent == "oracle":
            await run_solution(sandbox, task)
            return 1
        if config.agent == "stub":
            await sandbox.terminal(junk_command(task.instruction), config.limits.max_command_timeout)
            return 1
        for rounds, call in enumerate(script, 1):
            if call.name == "finish":
                return rounds
            await run_call(
                sandbox,
                call,
                timeout=config.limits.command_timeout,
                max_timeout=config.limits.max_command_timeout,
            )
        return len(script)

    return act


async def play(
    task: Task, agent: Agent, backend: Backend, limits: EpisodeLimits, *, attempt: int = 0
) -> Attempt:
    """Let an agent without a model act in a fresh sandbox, then grade; infrastructure failures are tried
    again.
    """
    problem = ""
    for _ in range(limits.infra_retries + 1):
        try:
            sandbox = await backend.create(task)
            try:
                rounds = await agent(sandbox, task)
                verdict = await sandbox.verify(task)
            finally:
                await sandbox.close()
        except SandboxError as error:
            problem = str(error)
            if not error.retryable:
                break
            continue
        return Attempt(
            task=task.name,
            attempt=attempt,
            reward=verdict.reward,
            ending="finish",
            rounds=rounds,
            tests=dict(verdict.tests),
            problem=problem,
        )
    return Attempt(task=task.name, attempt=attempt, reward=None, ending="infra_error", problem=problem)


def summarize(tasks: Sequence[Task], attempts: Sequence[Attempt], *, seed: int = 0) -> dict[str, Any]:
    """The result of `evaluate`, from its attempts."""
    graded: dict[str, list[Attempt]] = {task.name: [] for task in tasks}
    for attempt in attempts:
        if attempt.reward is not None:
            graded[attempt.task].append(attempt)
    families: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        families[str(task.metadata.get("family", "unknown"))].append(task.name)
    rounds = sum(attempt.rounds for attempt in attempts)
    return {
        "tasks": {name: [a.reward for a in of_task] for name, of_task in graded.items()},
        **_scores(list(graded.values()), seed),
        "attempts": len(attempts),
        "errors": sum(attempt.reward is None for attempt in attempts),
        "by_family": {
            family: {"tasks": len(names), **_scores([graded[name] for name in names], seed)}
            for family, names in sorted(families.items())
        },
        "rounds": rounds / max(len(attempts), 1),
        "format_error_rate": sum(attempt.format_errors for attempt in attempts) / max(rounds, 1),
        "endings": dict(Counter(attempt.ending for attempt in attempts)),
        "per_attempt": [
            {
                "task": a.task,
                "attempt": a.attempt,
                "reward": a.reward,
                "solved": a.solved,
                "ending": a.ending,
                "rounds": a.rounds,
                "format_errors": a.format_errors,
                "tests": a.tests,
                "problem": a.problem,
            }
            for a in attempts
        ],
    }


def _scores(by_task: Sequence[Sequence[Attempt]], seed: int) -> dict[str, Any]:
    """Means over tasks of the tasks' own means. Without a graded task they are None: no score is not a score
    of 0.
    """
    rewards = [_mean([a.reward or 0.0 for a in of_task]) for of_task in by_task if of_task]
    solved = [_mean([float(a.solved) for a in of_task]) for of_task in by_task if of_task]
    if not rewards:
        return {"mean_reward": None, "mean_reward_ci95": None, "solved": None, "solved_ci95": None}
    return {
        "mean_reward": _mean(rewards),
        "mean_reward_ci95": list(bootstrap_ci(rewards, seed=seed)),
        "solved": _mean(solved),
        "solved_ci95": list(bootstrap_ci(solved, seed=seed)),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
