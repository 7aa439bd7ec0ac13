"""The agent loop: one episode, from the opening prompt to the verdict, as one trajectory."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sandbox import compaction
from sandbox.backends.base import SandboxError
from sandbox.errors import InputError
from sandbox.policy import ContextLengthError, Generation, Policy, PolicyError
from sandbox.tools import (
    TOOL_NAMES,
    ToolCall,
    ToolCallError,
    observation_text,
    offered,
    parse_tool_calls,
    run_call,
)
from sandbox.trajectory import Trajectory, Turn
from sandbox.transcript import ChatFormat, Transcript

if TYPE_CHECKING:
    from sandbox.backends import Backend, Sandbox
    from sandbox.task import Task

SYSTEM_PROMPT = "Solve the task in a Linux terminal with tool calls."


@dataclass(frozen=True, kw_only=True)
class EpisodeLimits:
    """What bounds an episode. Tokens are counted over the whole transcript, times are in seconds."""

    max_turns: int = 64
    max_context: int = 8192
    max_new_tokens: int = 512  # of one turn
    observation_tokens: int = 1024  # of one tool result; what is longer loses its middle
    command_timeout: float = 30.0  # where the call names none
    max_command_timeout: float = 300.0
    episode_timeout: float | None = None  # None: the task's own
    max_format_errors: int = 2  # malformed turns in a row that end the episode
    infra_retries: int = 2  # fresh sandboxes after an infrastructure failure
    max_compactions: int = 0  # how often the model may sum up and go on when the context is full
    summary_tokens: int = 512  # of such a summary
    tools: tuple[str, ...] = TOOL_NAMES  # what the prompt offers; a call of another is malformed

    def __post_init__(self) -> None:
        for name in (
            "max_turns",
            "max_context",
            "max_new_tokens",
            "observation_tokens",
            "command_timeout",
            "max_command_timeout",
            "max_format_errors",
            "summary_tokens",
        ):
            if getattr(self, name) <= 0:
                raise InputError(f"limits.{name}: {getattr(self, name)}, expected a number above 0")
        if self.max_compactions < 0:
            raise InputError(f"limits.max_compactions: {self.max_compactions}, expected 0 or more")
        offered(self.tools)


def turn_seed(seed: int, turn: int) -> int:
    """The sampling seed of a turn, in 0 .. 2**31 - 1: a rollout is reproducible from its own seed."""
    digest = hashlib.sha256(f"{seed}/{turn}".encode()).digest()
    return int.from_bytes(digest[:4], "little") >> 1


@dataclass
class _Segment:
    """A stretch of an episode that the model saw as one context."""

    transcript: Transcript = field(default_factory=Transcript)
    turns: list[Turn] = field(default_factory=list)


@dataclass
class _Episode:
    """The mutable state of one try."""

    segments: list[_Segment] = field(default_factory=lambda: [_Segment()])
    summarising: bool = False  # the next turn is a summary
    seconds: dict[str, float] = field(default_factory=lambda: {"engine": 0.0, "terminal": 0.0})
    format_errors: int = 0
    malformed_in_a_row: int = 0

    @property
    def transcript(self) -> Transcript:
        return self.segments[-1].transcript

    @property
    def turns(self) -> list[Turn]:
        return self.segments[-1].turns

    def resume(self, prompt: list[int]) -> None:
        """Go on in a new segment."""
        self.segments.append(_Segment())
        self.transcript.append_prompt(prompt)
        self.summarising = False


async def run_episode(
    task: Task,
    policy: Policy,
    chat: ChatFormat,
    backend: Backend,
    limits: EpisodeLimits,
    *,
    rollout_id: str,
    group_id: str,
    seed: int,
    temperature: float,
    system_prompt: str = SYSTEM_PROMPT,
) -> list[Trajectory]:
    """Play one episode and grade it; returns its segments, which is one unless the context was compacted.

    Endings: finish (the tool, or a turn without a call), max_turns, context, max_tokens (a turn cut by its
    length), timeout, format_errors: all graded. An infrastructure failure (SandboxError, PolicyError) is
    tried again on a fresh sandbox; after `limits.infra_retries` the ending is infra_error, with reward None.
    The tests run only after the agent has stopped: `Sandbox.verify` ends its processes first.
    """
    prompt = chat.prompt_ids(system_prompt, task.instruction, offered(limits.tools))
    if len(prompt) >= limits.max_context:
        raise InputError(
            f"task {task.name}: its prompt has {len(prompt)} tokens, expected fewer than "
            f"limits.max_context, {limits.max_context}"
        )
    # A rollout says where it comes from; difficulty and skills feed the curriculum and the report.
    shared: dict[str, Any] = {
        key: task.metadata[key] for key in ("family", "area", "difficulty", "skills") if key in task.metadata
    }
    metadata: dict[str, Any] = {
        **shared,
        "seed": seed,
        "temperature": temperature,
        "instruction": task.instruction,
    }
    problems: list[str] = []
    for attempt in range(limits.infra_retries + 1):
        episode = _Episode()
        episode.transcript.append_prompt(prompt)
        start = time.monotonic()
        verdict, ending = None, "infra_error"
        try:
            sandbox = await backend.create(task)
            started = time.monotonic()
            try:
                ending = await _play(
                    episode,
                    policy,
                    chat,
                    sandbox,
                    limits,
                    task,
                    f"{rollout_id}:{attempt}",
                    seed,
                    temperature,
                    system_prompt,
                )
                stopped = time.monotonic()
                verdict = await sandbox.verify(task)
            finally:
                await sandbox.close()
        except (SandboxError, PolicyError) as error:
            problems.append(f"{type(error).__name__}: {error}")
            if isinstance(error, SandboxError) and not error.retryable:
                break
            continue
        episode.seconds |= {"start": started - start, "verify": time.monotonic() - stopped}
        break
    metadata |= {
        "seconds": {key: round(value, 4) for key, value in episode.seconds.items()},
        "format_errors": episode.format_errors,
        "prompt_tokens": len(prompt),
        "segments": len(episode.segments),
    }
    if problems:
        metadata["infra_errors"] = problems
    if verdict is not None:
        metadata["verifier_status"] = verdict.status
    return [
        segment.transcript.to_trajectory(
            rollout_id=rollout_id,
            group_id=group_id,
            task=task.name,
            turns=segment.turns,
            segment=number,
            metadata=metadata,
            reward=verdict.reward if verdict else None,
            ending=ending if verdict else "infra_error",
            tests=dict(verdict.tests) if verdict else {},
        )
        for number, segment in enumerate(episode.segments)
    ]


async def _play(
    episode: _Episode,
    policy: Policy,
    chat: ChatFormat,
    sandbox: Sandbox,
    limits: EpisodeLimits,
    task: Task,
    rid: str,
    seed: int,
    temperature: float,
    system_prompt: str,
) -> str:
    """Turns until the episode ends; returns the ending."""
    bounds = [bound for bound in (limits.episode_timeout, task.agent_timeout) if bound]
    timer = asyncio.timeout(min(bounds) if bounds else None)
    try:
        async with timer:
            for turn in range(limits.max_turns):
                summary = episode.summarising
                ending = await _turn(
                    episode,
                    policy,
                    chat,
                    sandbox,
                    limits,
                    f"{rid}:{turn}",
                    turn_seed(seed, turn),
                    temperature,
                )
                if ending:
                    return ending
                if summary:
                    text = compaction.resumed(task.instruction, episode.turns[-1].text)
                    prompt = chat.prompt_ids(system_prompt, text, offered(limits.tools))
                    if len(prompt) + limits.max_new_tokens >= limits.max_context:
                        return "context"
                    episode.resume(prompt)
    except TimeoutError:
        if not timer.expired():
            raise
        return "timeout"
    return "max_turns"


async def _turn(
    episode: _Episode,
    policy: Policy,
    chat: ChatFormat,
    sandbox: Sandbox,
    limits: EpisodeLimits,
    rid: str,
    seed: int,
    temperature: float,
) -> str | None:
    """One assistant turn and what it caused; returns the ending, or None to go on."""
    transcript = episode.transcript
    room = limits.max_context - len(transcript)
    if room <= 0:
        return "context"
    bound = limits.summary_tokens if episode.summarising else limits.max_new_tokens
    before = time.monotonic()
    try:
        answer = await _generate(policy, transcript, min(room, bound), temperature, seed, rid)
    except ContextLengthError:
        # Of a first turn it is the set-up's fault: no episode could begin.
        if not episode.turns and len(episode.segments) == 1:
            raise
        return "context"
    episode.seconds["engine"] += time.monotonic() - before
    # Appended before anything is awaited again: a timeout then finds the record and the last turn in step.
    span = transcript.append_sampled(answer.output_ids, answer.logprobs, answer.versions)
    if answer.routed_experts is not None:
        try:
            transcript.add_routes(transcript.routes_stored, answer.routed_experts, answer.routed_valid)
        except ValueError as error:
            raise PolicyError(f"engine: {error}") from error
    text = chat.decode(answer.output_ids)
    episode.turns.append(Turn(sampled=span, observed=(span[1], span[1]), text=text))
    if episode.summarising:
        return None  # whatever it says, and where it was cut
    if answer.finish_reason == "length":
        # The turn has no end, so nothing may follow it.
        return "context" if room <= limits.max_new_tokens else "max_tokens"
    closed = answer.output_ids[-1] == chat.end_of_turn_id
    body = answer.output_ids[:-1] if answer.output_ids[-1] in chat.stop_ids else answer.output_ids
    try:
        calls = parse_tool_calls(chat.decode(body), thinking=chat.opens_thinking, tools=limits.tools)
    except ToolCallError as error:
        episode.format_errors += 1
        episode.malformed_in_a_row += 1
        episode.turns[-1] = replace(episode.turns[-1], error=str(error))
        if episode.malformed_in_a_row >= limits.max_format_errors:
            return "format_errors"
        return _observe(episode, chat, limits, [f"[error] {error}"], closed)
    episode.malformed_in_a_row = 0
    if not calls:
        return "finish"
    return await _act(episode, chat, sandbox, limits, calls, closed)


async def _generate(
    policy: Policy, transcript: Transcript, max_new_tokens: int, temperature: float, seed: int, rid: str
) -> Generation:
    """Ask the policy; an answer that the engine aborted (a weight update may do so) is asked for again."""
    for _ in range(3):
        answer = await policy.generate(
            transcript.tokens,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed,
            routed_from=transcript.routes_stored,
            rid=rid,
        )
        if answer.finish_reason != "abort":
            return answer
    raise PolicyError("engine: the request was aborted three times")


async def _act(
    episode: _Episode,
    chat: ChatFormat,
    sandbox: Sandbox,
    limits: EpisodeLimits,
    calls: list[ToolCall],
    closed: bool,
) -> str | None:
    """Run a turn's calls in order up to `finish`, and append their results."""
    outputs: list[str] = []
    for index, call in enumerate(calls):
        seen: dict[str, Any] = {"tool": call.name, "arguments": call.arguments}
        _note(episode, index, seen)
        if call.name == "finish":
            return "finish"
        before = time.monotonic()
        result = await run_call(
            sandbox, call, timeout=limits.command_timeout, max_timeout=limits.max_command_timeout
        )
        episode.seconds["terminal"] += time.monotonic() - before
        outputs.append(chat.cut(observation_text(result), limits.observation_tokens))
        _note(
            episode,
            index,
            seen
            | {
                "observation": outputs[-1],
                "exit_code": result.exit_code,
                "seconds": round(result.seconds, 4),
            },
        )
        if result.status == "dead":
            return "finish"  # the agent destroyed its sandbox: nothing can follow, what it left is graded
    return _observe(episode, chat, limits, outputs, closed)


def _note(episode: _Episode, index: int, seen: dict[str, Any]) -> None:
    """Record a call in the last turn: the first in its fields, further ones in `more`."""
    turn = episode.turns[-1]
    if index == 0:
        episode.turns[-1] = replace(turn, **seen)
    else:
        episode.turns[-1] = replace(turn, more=(*turn.more[: index - 1], seen))


def _observe(
    episode: _Episode, chat: ChatFormat, limits: EpisodeLimits, outputs: list[str], closed: bool
) -> str | None:
    """Append tool results, unless they leave the model no room to answer; then it is asked for a summary, as
    often as the limits allow."""
    turn = episode.turns[-1]
    if not turn.tool:
        episode.turns[-1] = turn = replace(turn, observation="\n".join(outputs))
    ids = chat.tool_result_ids(outputs, truncated=not closed)
    if len(episode.segments) <= limits.max_compactions:
        needed = len(ids) + limits.max_new_tokens + compaction.reserve(chat, limits)
        if len(episode.transcript) + needed > limits.max_context:
            room = limits.max_context - len(episode.transcript) - limits.summary_tokens
            asked = compaction.request_ids(chat, outputs, closed, room)
            if asked is None:
                return "context"
            episode.turns[-1] = replace(turn, observed=episode.transcript.append_observation(asked))
            episode.summarising = True
            return None
    if len(episode.transcript) + len(ids) >= limits.max_context:
        return "context"
    episode.turns[-1] = replace(turn, observed=episode.transcript.append_observation(ids))
    return None
