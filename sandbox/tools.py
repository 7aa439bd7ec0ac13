"""The agent's four tools: their schemas, the parser of Qwen3.5's XML calls, and how a result is worded for
the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sandbox.errors import InputError

if TYPE_CHECKING:
    from sandbox.backends import Sandbox, TerminalResult


def _tool(name: str, description: str, required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


# Every prompt carries these, so the descriptions are short.
TOOLS: list[dict[str, Any]] = [
    _tool(
        "terminal",
        "Run a shell command.",
        ["command"],
        command={"type": "string"},
        timeout={"type": "number"},
    ),
    _tool(
        "terminal_input",
        "Send text or keys (Enter, C-c, Up, ...).",
        ["keys"],
        keys={"type": "array", "items": {"type": "string"}},
    ),
    _tool("terminal_output", "Read new output.", []),
    _tool("finish", "End the task.", []),
]

TOOL_NAMES: tuple[str, ...] = tuple(tool["function"]["name"] for tool in TOOLS)
_SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
_CALL = re.compile(r"<tool_call>\s*<function=([^>\n]*)>\n?(.*?)\n?</function>\s*</tool_call>", re.DOTALL)
# A value may hold the closing tag itself; it ends only where another parameter or the end of the call
# follows.
_PARAMETER = re.compile(
    r"\s*<parameter=([^>\n]*)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=[^>\n]*>|\Z))", re.DOTALL
)


class ToolCallError(Exception):
    """A malformed tool call, worded in one line for the model that wrote it."""


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A checked call: a known tool, with arguments of the right types."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


def offered(names: Sequence[str]) -> list[dict[str, Any]]:
    """The schemas of the named tools, in their own order. Raises InputError for an unknown name, or none."""
    unknown = [name for name in names if name not in _SCHEMAS]
    if unknown or not names:
        raise InputError(f"tools: {unknown or 'none'}, expected some of {', '.join(_SCHEMAS)}")
    return [tool for tool in TOOLS if tool["function"]["name"] in names]


def check_call(name: str, arguments: dict[str, Any], tools: Sequence[str] = TOOL_NAMES) -> ToolCall:
    """Check a call against the schemas of the tools on offer and convert its arguments (numbers and lists may
    be given as text).

    Raises ToolCallError that names the tool or the parameter.
    """
    if name not in tools:
        raise ToolCallError(f"unknown function {name!r}, expected one of {', '.join(tools)}")
    properties = _SCHEMAS[name]["properties"]
    for key in arguments:
        if key not in properties:
            raise ToolCallError(f"{name} has no parameter {key!r}")
    for key in _SCHEMAS[name]["required"]:
        if key not in arguments:
            raise ToolCallError(f"{name} needs the parameter {key!r}")
    return ToolCall(
        name=name,
        arguments={
            key: _convert(name, key, properties[key]["type"], value) for key, value in arguments.items()
        },
    )


def _convert(name: str, key: str, kind: str, value: Any) -> Any:
    if kind == "number":
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = -1.0
        if not 0 < number < float("inf"):
            raise ToolCallError(f"{name}: {key} must be a number of seconds above 0")
        return number
    if kind == "array":
        if isinstance(value, str):
            try:
                parsed = json.loads(value)
            except ValueError:
                parsed = value
            # A bare key or text is what a model means by keys=C-c; only a JSON list is taken apart.
            value = parsed if isinstance(parsed, list) else [value]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ToolCallError(f"{name}: {key} must be a JSON list of strings")
        return value
    if not isinstance(value, str):
        raise ToolCallError(f"{name}: {key} must be text")
    return value


def parse_tool_calls(
    text: str, *, thinking: bool = False, tools: Sequence[str] = TOOL_NAMES
) -> list[ToolCall]:
    """Parse the calls of one assistant turn; an empty list when it holds none.

    `thinking` says that the prompt opened a think block, so that all before the first `</think>` is
    reasoning, and a call that is only mentioned there is not run. `tools` are those on offer. Raises
    ToolCallError when a call is cut, unknown or mistyped.
    """
    if thinking:
        text = text.partition("</think>")[2] if "</think>" in text else text
    elif text.lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]
    calls, end = [], 0
    while (start := text.find("<tool_call>", end)) >= 0:
        match = _CALL.match(text, start)
        if match is None:
            raise ToolCallError("malformed <tool_call>, expected <function=NAME> ... </function> inside it")
        calls.append(_parse_call(match.group(1).strip(), match.group(2), tools))
        end = match.end()
    rest = text[end:]
    if "<function=" in rest or "</tool_call>" in rest:
        raise ToolCallError("a call must stand inside <tool_call> and </tool_call>")
    return calls


def _parse_call(name: str, body: str, tools: Sequence[str]) -> ToolCall:
    arguments: dict[str, Any] = {}
    end = 0
    while match := _PARAMETER.match(body, end):
        key = match.group(1).strip()
        if key in arguments:
            raise ToolCallError(f"{name}: parameter {key!r} is given twice")
        arguments[key] = match.group(2)
        end = match.end()
    if body[end:].strip():
        raise ToolCallError(f"{name}: expected only <parameter=NAME> ... </parameter> inside the function")
    return check_call(name, arguments, tools)


def format_tool_call(call: ToolCall) -> str:
    """Write a call as Qwen3.5's template does: the inverse of `parse_tool_calls`."""
    lines = ["<tool_call>", f"<function={call.name}>"]
    for key, value in call.arguments.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if isinstance(value, float) and value.is_integer():
            shown = str(int(value))
        lines += [f"<parameter={key}>", shown, "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


async def run_call(sandbox: Sandbox, call: ToolCall, *, timeout: float, max_timeout: float) -> TerminalResult:
    """Run a call other than `finish`; `timeout` (seconds) holds where the call names none, `max_timeout`
    bounds it.
    """
    if call.name == "terminal":
        seconds = min(call.arguments.get("timeout", timeout), max_timeout)
        return await sandbox.terminal(call.arguments["command"], seconds)
    if call.name == "terminal_input":
        return await sandbox.terminal_input(call.arguments["keys"])
    return await sandbox.terminal_output()


def observation_text(result: TerminalResult) -> str:
    """Word a result for the model: the output, then one line where there is more to say than success."""
    output = result.output.rstrip("\n")
    if result.status == "timeout":
        note = "[timeout]"
    elif result.status == "running":
        note = "[running]"
    elif result.status == "shell_restarted":
        note = "[shell restarted]"
    elif result.status == "dead":
        note = "[terminal is dead]"
    else:
        note = f"[exit {result.exit_code}]" if result.exit_code else ""
    limit = f"[{result.limit}]" if result.limit else ""
    return "\n".join(part for part in (output, limit, note) if part) or "(no output)"
