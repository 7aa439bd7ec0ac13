"""Recorded conversations as demonstrations: ATIF trajectories and OpenAI chat messages, with the tokens made
once.

The text of every assistant turn is encoded exactly once, in the chat format of the model that will learn from
it, between framing that its own template writes. Calls are translated to this project's tools; a conversation
that uses others, or that does not alternate between the assistant and its tools, is left out with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.agent import SYSTEM_PROMPT
from sandbox.errors import InputError
from sandbox.tools import TOOL_NAMES, ToolCall, ToolCallError, check_call, format_tool_call, offered
from sandbox.trajectory import Trajectory, Turn
from sandbox.transcript import ChatFormat, Transcript

# What other agents call the tools that we have.
_TERMINAL = frozenset(
    ["terminal", "bash", "bash_command", "shell", "execute_bash", "run_shell_command", "execute_command"]
)
_COMMAND = ("command", "cmd", "keystrokes")
_FINISH = frozenset(["finish", "submit", "mark_task_complete", "task_complete"])


class _Unfit(Exception):
    """Why a conversation cannot become a demonstration."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One assistant turn and what its calls gave. `learned` False keeps it as context only."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    outputs: tuple[str, ...]
    learned: bool = True


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """An instruction and the turns that answer it."""

    name: str
    instruction: str
    steps: tuple[Step, ...]
    reward: float | None


def import_conversations(
    path: Path | str,
    chat: ChatFormat,
    *,
    system_prompt: str = SYSTEM_PROMPT,
    observation_tokens: int = 1024,
    max_context: int | None = None,
    tools: Sequence[str] = TOOL_NAMES,
) -> tuple[list[Trajectory], dict[str, str]]:
    """Read a file of ATIF (one JSON object, or a line each) or chat messages (lines {"messages": [...]}).

    Returns the trajectories and, by "FILE:line", why others were left out. A conversation's reward is its
    own "reward" (ATIF: extra.reward) where it has one, else 1: a demonstration is what somebody holds to be
    right. Raises InputError for a file that cannot be read or gives no trajectory.
    """
    path = Path(path)
    kept: list[Trajectory] = []
    left_out: dict[str, str] = {}
    for number, record in _records(path):
        where = f"{path.name}:{number}"
        try:
            name = f"{path.stem}-{number}"
            conversation = _from_atif(record, name) if "steps" in record else _from_chat(record, name)
            made = to_trajectory(conversation, chat, system_prompt, observation_tokens, tools)
            if max_context is not None and len(made.tokens) > max_context:
                raise _Unfit(f"{len(made.tokens)} tokens, expected at most {max_context}")
        except (_Unfit, ToolCallError) as reason:
            left_out[where] = str(reason)
            continue
        kept.append(made)
    if not kept:
        where, reason_text = next(iter(left_out.items()), (str(path), "it is empty"))
        raise InputError(f"demonstrate: no conversation could be kept, {where}: {reason_text}")
    return kept, left_out


def to_trajectory(
    conversation: Conversation,
    chat: ChatFormat,
    system_prompt: str,
    observation_tokens: int,
    tools: Sequence[str] = TOOL_NAMES,
) -> Trajectory:
    """Encode a conversation under a prompt that offers `tools`. Log-probs are 0 and versions -1: no policy
    sampled it.
    """
    for call in (call for step in conversation.steps for call in step.calls):
        if call.name not in tools:
            raise _Unfit(f"it calls {call.name}, expected only {', '.join(tools)}")
    transcript = Transcript()
    turns: list[Turn] = []
    context: list[int] = []
    transcript.append_prompt(chat.prompt_ids(system_prompt, conversation.instruction, offered(tools)))
    for index, step in enumerate(conversation.steps):
        ids = chat.assistant_ids(_assistant_text(step, chat))
        span = transcript.append_sampled(ids, [0.0] * len(ids), [-1] * len(ids), counts=step.learned)
        if not step.learned:
            context.append(index)
        shown = [chat.cut(output, observation_tokens) for output in step.outputs]
        last = index == len(conversation.steps) - 1
        observed = (span[1], span[1])
        if not last:
            observed = transcript.append_observation(chat.tool_result_ids(shown))
        first = step.calls[0] if step.calls else None
        turns.append(
            Turn(
                sampled=span,
                observed=observed,
                tool=first.name if first else "",
                arguments=first.arguments if first else {},
                observation=shown[0] if shown else "",
                text=chat.decode(ids),
                more=tuple(
                    {"tool": call.name, "arguments": call.arguments, "observation": output}
                    for call, output in zip(step.calls[1:], shown[1:], strict=False)
                ),
            )
        )
    return transcript.to_trajectory(
        rollout_id=f"imported/{conversation.name}",
        group_id=f"imported/{conversation.name}",
        task=conversation.name,
        reward=1.0 if conversation.reward is None else conversation.reward,
        ending="finish",
        turns=turns,
        metadata={"source": "imported"} | ({"context_turns": context} if context else {}),
    )


def _assistant_text(step: Step, chat: ChatFormat) -> str:
    body = "\n".join([*([step.text] if step.text else []), *map(format_tool_call, step.calls)])
    if not step.reasoning:
        return chat.assistant_text(body)
    opening = "" if chat.opens_thinking else "<think>\n"
    return f"{opening}{step.reasoning}\n</think>\n\n{body}"


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.is_file():
        raise InputError(f"demonstrate: {path} does not exist, expected ATIF or chat JSON lines")
    text = path.read_text("utf-8")
    try:
        lines = [(1, json.loads(text))]  # one object over many lines
    except ValueError:
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    lines.append((number, json.loads(line)))
                except ValueError as error:
                    raise InputError(f"demonstrate: {path}, line {number}: not JSON ({error})") from error
    for number, record in lines:
        if not isinstance(record, dict) or not isinstance(record.get("steps", record.get("messages")), list):
            raise InputError(
                f'demonstrate: {path}, line {number}: expected ATIF ("steps") or chat ("messages")'
            )
        yield number, record


def _from_chat(record: dict[str, Any], name: str) -> Conversation:
    messages = [message for message in record["messages"] if message.get("role") != "system"]
    if not messages or messages[0].get("role") != "user":
        raise _Unfit("the first message is not the user's")
    steps: list[Step] = []
    at = 1
    while at < len(messages):
        message = messages[at]
        if message.get("role") != "assistant":
            raise _Unfit(f"message {at + 1} is of {message.get('role')!r}, expected the assistant's")
        raw = message.get("tool_calls") or []
        functions = [call.get("function") or {} for call in raw]
        calls = [_translate(f.get("name"), _arguments(f.get("arguments"))) for f in functions]
        at += 1
        outputs: dict[Any, str] = {}
        while at < len(messages) and messages[at].get("role") == "tool":
            outputs[messages[at].get("tool_call_id", len(outputs))] = _text(messages[at].get("content"))
            at += 1
        ordered = [outputs.get(call.get("id"), "") for call in raw]
        if outputs and not any(ordered):  # results without ids stand in the order of their calls
            ordered = list(outputs.values())
        steps.append(
            Step(
                text=_text(message.get("content")).strip(),
                reasoning=_text(message.get("reasoning_content")).strip(),
                calls=tuple(calls),
                outputs=tuple(ordered),
            )
        )
    return _checked(name, _text(messages[0].get("content")), steps, record.get("reward"))


def _from_atif(record: dict[str, Any], name: str) -> Conversation:
    """ATIF (Harbor's Agent Trajectory Interchange Format), steps of source system, user and agent."""
    instruction = ""
    steps: list[Step] = []
    for entry in record["steps"]:
        source = entry.get("source")
        if source == "system":
            continue
        if source == "user":
            if steps or instruction:
                raise _Unfit(f"step {entry.get('step_id')} is a second message of the user")
            instruction = _text(entry.get("message"))
            continue
        raw = entry.get("tool_calls") or []
        results = (entry.get("observation") or {}).get("results") or []
        by_call = {result.get("source_call_id"): _text(result.get("content")) for result in results}
        outputs = [by_call.get(call.get("tool_call_id"), "") for call in raw]
        if len(results) == len(raw) == 1:  # an only result need not name its call
            outputs = [_text(results[0].get("content"))]
        steps.append(
            Step(
                text=_text(entry.get("message")).strip(),
                reasoning=_text(entry.get("reasoning_content")).strip(),
                calls=tuple(
                    _translate(call.get("function_name"), _arguments(call.get("arguments"))) for call in raw
                ),
                outputs=tuple(outputs),
                # What was copied from another context, or made without a model, is not to be learned.
                learned=not entry.get("is_copied_context") and entry.get("llm_call_count") != 0,
            )
        )
    return _checked(name, instruction, steps, (record.get("extra") or {}).get("reward"))


def _checked(name: str, instruction: str, steps: Sequence[Step], reward: Any) -> Conversation:
    if not instruction.strip():
        raise _Unfit("there is no instruction")
    if not any(step.learned for step in steps):
        raise _Unfit("there is no assistant turn to learn from")
    for number, step in enumerate(steps[:-1], 1):
        if not step.calls:
            raise _Unfit(f"assistant turn {number} has no tool call, but others follow")
        if len(step.outputs) != len(step.calls):
            raise _Unfit(f"assistant turn {number} has {len(step.calls)} calls, {len(step.outputs)} results")
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        raise _Unfit(f"reward is {reward!r}, expected a number")
    return Conversation(
        name=name,
        instruction=instruction.strip(),
        steps=tuple(steps),
        reward=None if reward is None else float(reward),
    )


def _translate(name: Any, arguments: dict[str, Any]) -> ToolCall:
    if name in _FINISH:
        return ToolCall(name="finish")
    if name not in _TERMINAL:
        return check_call(str(name), arguments)
    command = next((arguments[key] for key in _COMMAND if isinstance(arguments.get(key), str)), None)
    if command is None:
        raise _Unfit(f"a call of {name} without a command")
    if "keystrokes" in arguments and not command.endswith("\n"):
        return ToolCall(name="terminal_input", arguments={"keys": [command]})
    timeout = {"timeout": arguments["timeout"]} if arguments.get("timeout") else {}
    return check_call("terminal", {"command": command.rstrip("\n"), **timeout})


def _arguments(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise _Unfit(f"arguments of a call are not JSON ({error})") from error
    if not isinstance(value, dict | None):
        raise _Unfit("arguments of a call are not a table")
    return value or {}


def _text(value: Any) -> str:
    """A text, or the text parts of a list of parts."""
    if isinstance(value, list):
        parts = [part if isinstance(part, str) else part.get("text") for part in value]
        if not all(isinstance(part, str) for part in parts):
            raise _Unfit("a message holds something else than text")
        return "".join(parts)
    return "" if value is None else str(value)
