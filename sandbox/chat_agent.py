"""The agent loop for a model that is reached as text: OpenAI messages instead of token ids.

Nothing that it plays can be trained on exactly, so it serves evaluation only. A server that parses tool calls
sends them as such; from any other they are read off the text, in the form that `tools` describes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sandbox.agent import EpisodeLimits, turn_seed
from sandbox.attempt import Agent, Counts
from sandbox.chat_client import ChatAnswer, ChatClient
from sandbox.policy import ContextLengthError
from sandbox.tools import (
    ToolCall,
    ToolCallError,
    check_call,
    observation_text,
    offered,
    parse_tool_calls,
    run_call,
)

if TYPE_CHECKING:
    from sandbox.backends.base import Sandbox
    from sandbox.task import Task

# Of text whose tokenizer is unknown: what a token holds of English and code, on average.
_CHARACTERS_PER_TOKEN = 4


def chat_agent(
    client: ChatClient,
    limits: EpisodeLimits,
    *,
    seed_of: Callable[[int], int],
    temperature: float,
    system_prompt: str,
) -> Agent:
    """An agent whose turns come from `client`; `seed_of` gives an attempt's seed.

    Its endings are those of `run_episode`; `limits.max_context` is held against the server's own count.
    """

    async def act(sandbox: Sandbox, task: Task, attempt: int, counts: Counts) -> str:
        messages: list[dict[str, Any]] = (
            [{"role": "system", "content": system_prompt}] if system_prompt else []
        )
        messages.append({"role": "user", "content": task.instruction})
        malformed = 0
        for turn in range(limits.max_turns):
            try:
                answer = await client.complete(
                    messages,
                    tools=offered(limits.tools),
                    max_tokens=limits.max_new_tokens,
                    temperature=temperature,
                    seed=turn_seed(seed_of(attempt), turn),
                )
            except ContextLengthError:
                if not turn:
                    raise  # no episode could begin: the set-up's fault
                return "context"
            counts.rounds += 1
            counts.tokens += answer.completion_tokens
            if answer.finish_reason == "length":
                return "max_tokens"
            ids = [str(call.get("id") or f"call_{turn}_{k}") for k, call in enumerate(answer.tool_calls)]
            messages.append(_as_said(answer, ids))
            try:
                calls = _calls(answer, limits.tools)
            except ToolCallError as error:
                counts.format_errors += 1
                malformed += 1
                if malformed >= limits.max_format_errors:
                    return "format_errors"
                messages += _results([f"[error] {error}"] * max(len(ids), 1), ids, turn)
                continue
            malformed = 0
            if not calls:
                return "finish"
            outputs: list[str] = []
            for call in calls:
                if call.name == "finish":
                    return "finish"
                result = await run_call(
                    sandbox, call, timeout=limits.command_timeout, max_timeout=limits.max_command_timeout
                )
                if result.status == "dead":
                    return "finish"  # nothing can follow, what it left is graded
                outputs.append(_cut(observation_text(result), limits.observation_tokens))
            messages += _results(outputs, ids, turn)
            if answer.prompt_tokens + answer.completion_tokens >= limits.max_context:
                return "context"
        return "max_turns"

    return act


def _as_said(answer: ChatAnswer, ids: list[str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content}
    if answer.tool_calls:
        message["tool_calls"] = [
            {**call, "id": name, "type": "function"}
            for call, name in zip(answer.tool_calls, ids, strict=True)
        ]
    return message


def _calls(answer: ChatAnswer, tools: Sequence[str]) -> list[ToolCall]:
    if not answer.tool_calls:
        # The prompt may have opened a think block that the text only closes.
        opened = "</think>" in answer.content and "<think>" not in answer.content
        return parse_tool_calls(answer.content, thinking=opened, tools=tools)
    calls = []
    for call in answer.tool_calls:
        function = call.get("function") or {}
        arguments = function.get("arguments") or {}
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError as error:
                raise ToolCallError(f"arguments are not JSON: {error}") from error
        if not isinstance(arguments, dict):
            raise ToolCallError("arguments must be a JSON object")
        calls.append(check_call(str(function.get("name", "")), arguments, tools))
    return calls


def _results(outputs: list[str], ids: list[str], turn: int) -> list[dict[str, Any]]:
    names = ids or [f"call_{turn}_{k}" for k in range(len(outputs))]
    return [
        {"role": "tool", "tool_call_id": name, "content": text}
        for name, text in zip(names, outputs, strict=True)
    ]


def _cut(text: str, max_tokens: int) -> str:
    """Keep the head and the tail of `text` within about `max_tokens` tokens."""
    limit = max_tokens * _CHARACTERS_PER_TOKEN
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[-half:]}"
