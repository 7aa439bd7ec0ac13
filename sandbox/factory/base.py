"""What every task family gives, whatever its shape: an Instance, pure data that render.py writes to a folder.

A family never touches the disk, and draws only from generators that it is given: a seed decides an instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sandbox.factory.kit import File, Link

Content = str | bytes | File | Link | None
"""Of one path of an environment: a file's text or bytes, a File (with a mode or a time), a Link, or None for
an empty folder."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a task says of the family that it comes from.

    `binaries` are programs that it needs beyond bash, coreutils, findutils, grep, sed, awk, diff, tar, gzip
    and python3.
    """

    name: str
    area: str
    skills: tuple[str, ...]
    binaries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One task as data.

    files: path -> content; a path that starts with / is as it says, all others are under /app.
    steps: the solution's commands, each a call of the terminal, run in /app.
    difficulty: 1 to 5.
    lazy: commands of an answer that fits only what the agent can see; they must not solve the task.
    """

    image: ClassVar[str]
    agent_timeout: ClassVar[float]  # seconds
    memory_mb: ClassVar[int]

    instruction: str
    files: Mapping[str, Content]
    steps: tuple[str, ...]
    difficulty: int
    lazy: tuple[str, ...] = ()

    @property
    def tests(self) -> tuple[str, ...]:
        """The ids of the tests, in order."""
        raise NotImplementedError

    @property
    def test_files(self) -> dict[str, str]:
        """The files of tests/ beside the runner; test_outputs.py with the functions `tests` among them."""
        raise NotImplementedError
