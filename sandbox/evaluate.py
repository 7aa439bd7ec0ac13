"""Evaluation: how much of a set of tasks an agent solves, with intervals over tasks; and the comparison of
two runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from sandbox.agent import SYSTEM_PROMPT, EpisodeLimits, run_episode
from sandbox.attempt import Attempt, play, scripted_agent
from sandbox.backends import BACKENDS
from sandbox.backends.base import SandboxError
from sandbox.chat_agent import chat_agent
from sandbox.chat_client import ChatClient
from sandbox.demonstrate import run_all
from sandbox.engine_client import EnginePolicy, RouteShape
from sandbox.errors import InputError
from sandbox.files import require_writable, write_json, write_whole
from sandbox.journal import Journal
from sandbox.service import rollout_seed
from sandbox.summary import summarize
from sandbox.task import Task, load_tasks
from sandbox.trajectory import write_frames
from sandbox.transcript import ChatFormat

if TYPE_CHECKING:
    from sandbox.backends.base import Backend, Sandbox
    from sandbox.policy import Policy

AGENTS = ("model", "oracle", "noop", "stub", "script")
Play = Callable[[Task, int], Awaitable[Attempt]]


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """The `eval` command. Agents: model; oracle (the task's solution), noop (nothing), stub (junk in every
    file that the instruction names), script (the same tool calls in every task). `agent` model needs
    `engine_url`, script needs `actions`.

    `api` is how the model is reached: engine (token ids over /generate, as this engine and SGLang serve it),
    openai (messages over any OpenAI-compatible URL; no token record), or auto (engine where the URL serves
    it). `checkpoint` gives the chat format of engine; None asks the engine for its own. `model` is the name
    at an OpenAI-compatible URL; None takes its first. `timeout_multiplier` scales the tasks' own time limits,
    of agent and verifier. `trajectories_out` keeps the episodes of engine as frames.

    With `out`, attempts are also kept in OUT.attempts.jsonl while the evaluation runs: the same command goes
    on from there. The file stays as long as attempts failed by the infrastructure are to be played again.
    """

    tasks: str
    agent: str = "model"
    engine_url: str | None = None
    api: Literal["auto", "engine", "openai"] = "auto"
    model: str | None = None
    checkpoint: str | None = None
    actions: str | None = None
    backend: str = "bubblewrap"
    attempts: int = 1
    concurrency: int = 16
    seed: int = 0
    temperature: float = 1.0
    timeout_multiplier: float = 1.0
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
        if self.trajectories_out and (self.agent != "model" or self.api == "openai"):
            raise InputError(
                f"trajectories_out: only the episodes of an engine are kept, agent is {self.agent!r}, api is "
                f"{self.api!r}"
            )
        if self.timeout_multiplier <= 0:
            raise InputError(f"timeout_multiplier: {self.timeout_multiplier}, expected a number above 0")
        for name in ("attempts", "concurrency"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: {getattr(self, name)}, expected at least 1")


def evaluate(config: EvalConfig) -> dict[str, Any]:
    """Run the evaluation; returns (and writes to `config.out`) its result: that of `summarize`, and agent,
    model, temperature, seed, backend, seconds.
    """
    return asyncio.run(_evaluate(config))


async def _evaluate(config: EvalConfig) -> dict[str, Any]:
    for path in filter(None, (config.out, config.trajectories_out)):
        require_writable(path)
    if config.backend not in BACKENDS:
        raise InputError(f"backend: {config.backend!r}, expected one of {', '.join(BACKENDS)}")
    backend: Backend = _PerTask(BACKENDS[config.backend])
    backend.check()
    tasks = [_with_time(task, config.timeout_multiplier) for task in load_tasks(config.tasks)]
    start = time.monotonic()
    model = None
    if config.agent == "model":
        api = await _find_api(config)
        run = _with_engine if api == "engine" else _with_chat
        attempts, model = await run(config, tasks, backend)
    else:
        agent = scripted_agent(config.agent, config.limits, config.actions)
        attempts = await _run_all(
            config, tasks, lambda task, k: play(task, agent, backend, config.limits, attempt=k)
        )
    result = summarize(tasks, attempts, seed=config.seed)
    result |= {
        "agent": config.agent,
        "model": model,
        "backend": config.backend,
        "temperature": config.temperature,
        "timeout_multiplier": config.timeout_multiplier,
        "seed": config.seed,
        "seconds": time.monotonic() - start,
    }
    if config.trajectories_out:
        frames = write_frames([a.trajectory for a in attempts if a.trajectory])
        write_whole(config.trajectories_out, frames)
    if config.out:
        write_json(config.out, result)
        if not result["errors"]:
            _journal_path(config.out).unlink(missing_ok=True)
            if config.trajectories_out:
                _partial(config.trajectories_out).unlink(missing_ok=True)
    return result


class _PerTask:
    """A backend that fails for a task which it can't make, instead of refusing the whole set for it."""

    def __init__(self, backend: Backend) -> None:
        self.name, self.check, self.limits = backend.name, backend.check, backend.limits
        self._create = backend.create

    async def create(self, task: Task) -> Sandbox:
        try:
            return await self._create(task)
        except InputError as error:
            raise SandboxError(str(error), retryable=False) from error


def _with_time(task: Task, factor: float) -> Task:
    return replace(
        task,
        agent_timeout=task.agent_timeout and task.agent_timeout * factor,
        verifier_timeout=task.verifier_timeout * factor,
    )


async def _find_api(config: EvalConfig) -> str:
    """How the model at the URL is reached. Raises InputError when nothing answers there."""
    assert config.engine_url is not None
    if config.api != "auto":
        return config.api
    async with EnginePolicy(config.engine_url, stop_ids=()) as probe:
        try:
            await probe.model_info()
        except InputError as native:
            try:
                async with ChatClient(config.engine_url):
                    pass
            except InputError:
                raise native from None
            if config.trajectories_out:
                raise InputError(
                    "trajectories_out: the URL serves no /generate, so no tokens are known"
                ) from None
            return "openai"
    return "engine"


async def _with_chat(
    config: EvalConfig, tasks: Sequence[Task], backend: Backend
) -> tuple[list[Attempt], str | None]:
    assert config.engine_url is not None
    async with ChatClient(config.engine_url, model=config.model) as client:
        agent = chat_agent(
            client,
            config.limits,
            seed_of=lambda attempt: rollout_seed(config.seed, attempt),
            temperature=config.temperature,
            system_prompt=config.system_prompt,
        )
        attempts = await _run_all(
            config, tasks, lambda task, k: play(task, agent, backend, config.limits, attempt=k)
        )
    return attempts, client.model


async def _with_engine(
    config: EvalConfig, tasks: Sequence[Task], backend: Backend
) -> tuple[list[Attempt], str | None]:
    assert config.engine_url is not None
    # An engine that is not there is the caller's mistake, not an episode's failure.
    async with EnginePolicy(config.engine_url, stop_ids=()) as probe:
        model = (await probe.model_info()).get("model_path")
    checkpoint = config.checkpoint or model
    if not checkpoint:
        raise InputError(f"checkpoint: missing, the engine at {config.engine_url} does not tell its own")
    chat = ChatFormat.load(checkpoint)
    engine = EnginePolicy(
        config.engine_url,
        stop_ids=chat.stop_ids,
        record_routes=config.record_routes,
        shape=RouteShape.from_checkpoint(checkpoint),
    )
    async with engine:
        attempts = await _run_all(
            config, tasks, lambda task, k: _model_attempt(config, task, k, engine, chat, backend)
        )
    return attempts, model


async def _model_attempt(
    config: EvalConfig, task: Task, attempt: int, policy: Policy, chat: ChatFormat, backend: Backend
) -> Attempt:
    start = time.monotonic()
    segments = await run_episode(
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
    trajectory = segments[-1]
    problems = trajectory.metadata.get("infra_errors", [])
    return Attempt(
        task=task.name,
        attempt=attempt,
        reward=trajectory.reward,
        ending=trajectory.ending,
        verifier=trajectory.metadata.get("verifier_status", "scored"),
        tests=trajectory.tests,
        rounds=sum(len(segment.turns) for segment in segments),
        format_errors=trajectory.metadata["format_errors"],
        tokens=sum(int(segment.loss_mask.sum()) for segment in segments),
        seconds=round(time.monotonic() - start, 3),
        retries=len(problems) - (trajectory.reward is None),
        problem="; ".join(problems),
        trajectory=trajectory if config.trajectories_out else None,
    )


async def _run_all(config: EvalConfig, tasks: Sequence[Task], play: Play) -> list[Attempt]:
    """All attempts of all tasks, `config.concurrency` at a time, in the order of tasks and attempts; those of
    an earlier run of the same evaluation are taken from its journal.
    """
    journal = _open_journal(config, tasks)
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
            known = journal.done.get((task.name, attempt)) if journal else None
            if known is None:
                async with gate:
                    result = await play(task, attempt)
                if journal:
                    journal.add(result)
            else:
                result = known
            if result.reward is not None:
                rewards.append(result.reward)
            rate = (bar.tasks[track].completed + 1) / (time.monotonic() - start)
            mean = sum(rewards) / max(len(rewards), 1)
            bar.update(track, advance=1, rate=f"{rate:.1f}/s  reward {mean:.3f}")
            return result

        return await run_all([one(task, attempt) for task in tasks for attempt in range(config.attempts)])


def _open_journal(config: EvalConfig, tasks: Sequence[Task]) -> Journal | None:
    if not config.out:
        return None
    digest = hashlib.sha256("\0".join(f"{task.name}\0{task.instruction}" for task in tasks).encode())
    # The URL is not among them: an engine may come back on another port. Nor is the number of attempts.
    names = (
        "agent",
        "model",
        "checkpoint",
        "backend",
        "seed",
        "temperature",
        "timeout_multiplier",
        "system_prompt",
    )
    settings = {name: getattr(config, name) for name in names}
    settings |= {"limits": asdict(config.limits), "tasks": digest.hexdigest()}
    if config.actions:
        settings["actions"] = hashlib.sha256(Path(config.actions).read_bytes()).hexdigest()
    frames = _partial(config.trajectories_out) if config.trajectories_out else None
    return Journal(_journal_path(config.out), settings, frames)


def _journal_path(out: str) -> Path:
    return Path(f"{out}.attempts.jsonl")


def _partial(trajectories_out: str) -> Path:
    return Path(f"{trajectories_out}.partial")
