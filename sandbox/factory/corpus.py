"""The texts of task folders, for training a tokenizer; and the commands of an agent that writes junk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# What a terminal answers when a command fails, so that a tokenizer knows the wording.
_FAILURES = (
    "cat: {path}: No such file or directory\n[exit 1]",
    "mv: cannot stat '{path}': No such file or directory\n[exit 1]",
    "bash: {path}: command not found\n[exit 127]",
    "grep: {path}: No such file or directory\n[exit 2]",
    "sed: can't read {path}: No such file or directory\n[exit 2]",
    "(no output)",
)
_CALL = """\
<tool_call>
<function=terminal>
<parameter=command>
{command}
</parameter>
</function>
</tool_call>"""
# Names with an extension, and whatever lies under /app.
_PATH = re.compile(r"(?<![\w.*/-])(?:/app(?:/[\w.-]*\w)+|/?(?:[\w-]+/)*[\w-]+(?:\.[a-zA-Z]\w*)+)")


def corpus(task_paths: Iterable[Path]) -> Iterator[str]:
    """Yields the texts that an agent reads or writes in these tasks; the order depends on the paths only.

    For each task: the instruction, each command of the solution (alone and as a tool call), the text files of
    the environment (as `cat` shows them), their paths (as `find` shows them), and a failed command.
    """
    for number, task in enumerate(task_paths):
        task = Path(task)
        yield (task / "instruction.md").read_text().strip()
        for line in (task / "solution/steps.jsonl").read_text().splitlines():
            command = json.loads(line)["arguments"]["command"]
            yield command
            yield _CALL.format(command=command)
        root = task / "environment/files"
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        for path in paths:
            content = path.read_bytes()
            if b"\0" not in content:
                yield content.decode()
        names = [str(path.relative_to(root)) for path in paths]
        yield "\n".join(f"./{name}" for name in names)
        yield _FAILURES[number % len(_FAILURES)].format(path=names[0])


def episode_messages(task: Path, system_prompt: str) -> list[dict[str, Any]]:
    """A task's solution as a conversation in the chat form: what one of its episodes will look like.

    A tokenizer that is trained on these learns the framing that every prompt carries.
    """
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system_prompt},
        {"role": "user", "content": (task / "instruction.md").read_text().strip()},
    ]
    calls = [json.loads(line) for line in (task / "solution/steps.jsonl").read_text().splitlines()]
    for call in [*calls, {"tool": "finish", "arguments": {}}]:
        function = {"name": call["tool"], "arguments": call["arguments"]}
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
        messages.append({"role": "tool", "content": "(no output)"})
    return messages[:-1]


def junk_command(instruction: str) -> str:
    """A command that writes a junk line to each file that the instruction names, as a lazy agent would.

    A task whose tests pay for it rewards the existence of files; sandbox.check measures it.
    """
    paths = sorted(set(_PATH.findall(instruction)))
    lines = [
        f"mkdir -p $(dirname {path}); echo {'{}' if path.endswith('.json') else 'x'} > {path}"
        for path in paths
    ]
    return "\n".join(lines) or "true"
