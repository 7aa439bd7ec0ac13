"""Demonstrations for SFT: the tasks' own solutions, played through the agent loop that the model will act in.

Some demonstrations make a mistake first and recover from it. The mistaken turn is context: its tokens are
never learned, only what answers the error message is.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sandbox.agent import SYSTEM_PROMPT, EpisodeLimits, run_episode
from sandbox.errors import InputError
from sandbox.files import write_whole
from sandbox.policy import ScriptedPolicy
from sandbox.tools import ToolCall, ToolCallError, check_call, format_tool_call
from sandbox.trajectory import Trajectory, write_frames
from sandbox.transcript import ChatFormat

if TYPE_CHECKING:
    from sandbox.backends import Backend
    from sandbox.task import Task

_T = TypeVar("_T")
# A command beyond these characters does more than one thing, and a mistake in it might do half of it.
_SIMPLE = re.compile(r"[^;&|<>$`(){}*\\\n\"'#=!]+")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
# Programs that fail when an operand does not exist, so that a misspelt one does nothing.
_READERS = frozenset(
    ["cat", "head", "tail", "grep", "ls", "wc", "sort", "sed", "python3", "cp", "mv", "chmod", "diff"]
)


@dataclass(frozen=True, kw_only=True)
class DemonstrateReport:
    """How many demonstrations were kept, how many of them recover from a mistake, and why others were left
    out.
    """

    kept: int
    recoveries: int
    tokens: int
    left_out: dict[str, str]


async def run_all(coroutines: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Results of all, in order. The first error is raised as it is, after the others were stopped and cleaned
    up.
    """
    running = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return list(await asyncio.gather(*running))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def load_actions(path: str | Path) -> list[ToolCall]:
    """Read a file of tool calls, a line each: {"tool": name, "arguments": {...}}.

    Raises InputError that names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"actions {path}: no such file, expected JSON lines of tool calls")
    calls = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        where = f"actions {path}, line {number}"
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error})") from error
        if (
            not isinstance(entry, dict)
            or not isinstance(entry.get("arguments", {}), dict)
            or "tool" not in entry
        ):
            raise InputError(f'{where}: expected {{"tool": name, "arguments": {{...}}}}')
        try:
            call = check_call(entry["tool"], entry.get("arguments", {}))
        except ToolCallError as error:
            raise InputError(f"{where}: {error}") from error
        calls.append(call)
    return calls


def mistake(command: str, rng: random.Random) -> str | None:
    """A slip of the hand in a real command: a path, an option or the program's name misspelt.

    Only the simple head of the first line is kept, so that nothing is redirected, chained or half done. None
    where the command has no such head.
    """
    head = _SIMPLE.match(command.split("\n", 1)[0])
    words = head[0].split() if head else []
    if not words or not re.fullmatch(r"[a-z][\w.+-]*", words[0]):
        return None
    slips = [0]
    if words[0] in _READERS:
        operands = [i for i, word in enumerate(words) if i and re.search(r"[./]\w", word) and word[0] != "-"]
        slips += 3 * (operands + [i for i, word in enumerate(words) if word.startswith("--")])
    slips = [i for i in slips if _LETTERS.search(words[i])]
    if not slips:
        return None
    at = rng.choice(slips)
    words[at] = _misspell(words[at], rng)
    return " ".join(words)


def _misspell(word: str, rng: random.Random) -> str:
    """Drop, double or swap one letter of the word's last run of letters."""
    runs = list(_LETTERS.finditer(word))
    run = runs[-1] if len(runs) < 2 or not word[: runs[-1].start()].endswith(".") else runs[-2]
    at = rng.randrange(run.start(), run.end() - 1)
    kinds = [word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:]]
    if word[at] != word[at + 1]:
        kinds.append(word[:at] + word[at + 1] + word[at] + word[at + 2 :])
    return rng.choice(kinds)


def demonstrate(
    tasks: Sequence[Task],
    chat: ChatFormat,
    backend: Backend,
    out: Path,
    *,
    seed: int = 0,
    recovery_fraction: float = 0.25,
    concurrency: int = 8,
    limits: EpisodeLimits | None = None,
    system_prompt: str = SYSTEM_PROMPT,
    progress: bool = True,
) -> DemonstrateReport:
    """Play each task's solution/steps.jsonl and write the demonstrations with reward 1.0 to `out`, as frames.

    About `recovery_fraction` of the tasks get a demonstration that makes a mistake before one of its steps
    and recovers; where the mistake did not fail visibly, the task's plain demonstration is kept in its stead.
    The order is that of `tasks` and the choice is a function of the seed and the task, whatever the
    concurrency. Raises InputError when nothing could be demonstrated.
    """
    return asyncio.run(
        _demonstrate(
            tasks, chat, backend, out, seed, recovery_fraction, concurrency, limits or EpisodeLimits(),
            system_prompt, progress,
        )
    )  # fmt: skip


async def _demonstrate(
    tasks: Sequence[Task], chat: ChatFormat, backend: Backend, out: Path, seed: int, recovery_fraction: float,
    concurrency: int, limits: EpisodeLimits, system_prompt: str, progress: bool,
) -> DemonstrateReport:  # fmt: skip
    gate = asyncio.Semaphore(concurrency)
    columns = (TextColumn("demonstrations"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not progress) as bar:
        track = bar.add_task("demonstrations", total=len(tasks))

        async def one(task: Task) -> Trajectory | str:
            async with gate:
                result = await _demonstrate_task(
                    task, chat, backend, limits, seed, recovery_fraction, system_prompt
                )
            bar.advance(track)
            return result

        results = await run_all([one(task) for task in tasks])
    kept = [result for result in results if isinstance(result, Trajectory)]
    left_out = {
        task.name: result for task, result in zip(tasks, results, strict=True) if isinstance(result, str)
    }
    if not kept:
        reason = next(iter(left_out.items()), ("none", "there are no tasks"))
        raise InputError(f"demonstrate: no demonstration could be kept, task {reason[0]}: {reason[1]}")
    write_whole(out, write_frames(kept))
    return DemonstrateReport(
        kept=len(kept),
        recoveries=sum("context_turns" in t.metadata for t in kept),
        tokens=sum(len(t.tokens) for t in kept),
        left_out=left_out,
    )


async def _demonstrate_task(
    task: Task,
    chat: ChatFormat,
    backend: Backend,
    limits: EpisodeLimits,
    seed: int,
    recovery_fraction: float,
    system_prompt: str,
) -> Trajectory | str:
    """One kept demonstration, or the reason why there is none."""
    steps_file = task.path / "solution" / "steps.jsonl"
    if not steps_file.is_file():
        return "no solution/steps.jsonl"
    calls = load_actions(steps_file)
    rng = random.Random(f"{seed}/{task.name}")

    async def play(calls: Sequence[ToolCall], kind: str) -> Trajectory:
        texts = [chat.assistant_text(format_tool_call(call)) for call in calls]
        [made] = await run_episode(
            task,
            ScriptedPolicy(texts, chat),
            chat,
            backend,
            replace(limits, max_compactions=0),  # a script does not sum up
            rollout_id=f"{kind}/{task.name}",
            group_id=f"{kind}/{task.name}",
            seed=seed,
            temperature=1.0,
            system_prompt=system_prompt,
        )
        return made

    candidates = [i for i, call in enumerate(calls) if call.name == "terminal"]
    if candidates and rng.random() < recovery_fraction:
        at = rng.choice(candidates)
        slip = mistake(calls[at].arguments["command"], rng)
        if slip is not None:
            wrong = replace(calls[at], arguments={"command": slip})
            trajectory = await play([*calls[:at], wrong, *calls[at:]], "recovery")
            failed = len(trajectory.turns) > at and trajectory.turns[at].exit_code not in (0, None)
            if failed and trajectory.reward == 1.0:
                return as_context(trajectory, [at])
    trajectory = await play(calls, "solution")
    if trajectory.reward == 1.0:
        return trajectory
    missing = ", ".join(name for name, passed in trajectory.tests.items() if not passed) or "none"
    return f"reward {trajectory.reward}, ending {trajectory.ending}, failed tests: {missing}"


def as_context(trajectory: Trajectory, turns: Sequence[int]) -> Trajectory:
    """Take the sampled ids of some turns out of the loss, and say so in metadata["context_turns"]."""
    mask = trajectory.loss_mask.copy()
    for turn in turns:
        start, end = trajectory.turns[turn].sampled
        mask[start:end] = False
    return replace(trajectory, loss_mask=mask, metadata={**trajectory.metadata, "context_turns": list(turns)})
