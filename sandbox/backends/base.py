"""What every sandbox backend offers to the agent loop: a terminal, verification, and a clean end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from sandbox.task import Task
from sandbox.verifier import Verdict

Status = Literal["ok", "timeout", "running", "shell_restarted", "dead"]


class SandboxError(Exception):
    """The infrastructure failed, not the policy. Never becomes reward 0.

    `retryable` tells whether a fresh sandbox may well succeed.
    """

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


@dataclass(frozen=True, kw_only=True)
class TerminalResult:
    """What one terminal call gave.

    output: decoded with replacement, without ANSI sequences, head and tail kept within a byte budget.
    exit_code: None while the program still runs, and when the sandbox is dead.
    status: "ok"; "timeout" (the command was killed, the shell kept); "running" (it waits for terminal input);
        "shell_restarted" (the shell ended and a new one stands in the last directory, background programs
        live on);
        "dead" (the episode destroyed its sandbox; it can still be verified).
    seconds: wall clock.
    limit: the resource limit that the command ran into, in words, where the backend can tell.
    """

    output: str
    exit_code: int | None
    status: Status
    seconds: float
    limit: str = ""


class Sandbox(Protocol):
    """One episode's sandbox. Calls come one at a time. Every method may raise SandboxError."""

    async def terminal(self, command: str, timeout: float) -> TerminalResult:
        """Run `command` in the persistent shell; kill it and all it started after `timeout` seconds."""
        ...

    async def terminal_input(self, keys: list[str]) -> TerminalResult:
        """Type `keys` (plain text, or key names as tmux writes them) to the running program."""
        ...

    async def terminal_output(self) -> TerminalResult:
        """What the terminal has shown since the last call."""
        ...

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host folder to the top-level folder `target` (such as "/solution"), replacing what is
        there."""
        ...

    async def verify(self, task: Task) -> Verdict:
        """End the episode's processes, then run the task's tests on the files that they left."""
        ...

    async def close(self) -> None:
        """End every process and remove every file of this sandbox. May be called twice."""
        ...


class Backend(Protocol):
    """Makes sandboxes of one kind."""

    name: str

    def check(self) -> None:
        """Raise InputError, in one line that says what to do, when this machine cannot run the backend."""
        ...

    def limits(self) -> str:
        """How this machine holds the tasks' limits, in one line."""
        ...

    async def create(self, task: Task) -> Sandbox:
        """A fresh sandbox with the task's environment in place."""
        ...
