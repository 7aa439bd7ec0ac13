"""The host's end of a sandbox's terminal: requests to the supervisor inside, and its answers as results."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Protocol, cast

from sandbox.backends.base import SandboxError, Status, TerminalResult
from sandbox.backends.supervisor import MESSAGE_LIMIT, pack, unpack
from sandbox.errors import InputError
from sandbox.terminal import encode_keys, shown_text

START_SECONDS = 20.0
GRACE_SECONDS = 5.0  # beyond a command's own time; a supervisor that is silent for longer is lost
_STATUSES = ("ok", "timeout", "running", "shell_restarted", "dead")
_BUSY = "A program still runs here. Use terminal_input (C-c ends it) or terminal_output."


class Guest(Protocol):
    """A running sandbox whose first process is the supervisor."""

    link: socket.socket  # to the supervisor

    async def end(self) -> str:
        """Kill everything in it and wait until nothing is left; what it printed meanwhile."""
        ...

    def limit_hit(self) -> str:
        """The limit that the last command ran into, in words; empty when none is known."""
        ...


class Session:
    """One sandbox's terminal. One call at a time.

    spawn: starts the sandbox on its files. It is called again when the episode destroyed its processes.
    limits: a script that sets the shell's resource limits.
    """

    def __init__(
        self, spawn: Callable[[], Awaitable[Guest]], directory: str, limits: str, environment: dict[str, str]
    ) -> None:
        self._spawn = spawn
        self._directory = directory
        words = b"\0".join(f"{name}={value}".encode() for name, value in environment.items())
        self._start = pack(b"start", limits.encode(), os.fsencode(directory), words)
        self._guest: Guest | None = None
        self._running = False  # a program has the terminal

    async def start(self) -> None:
        """Start the sandbox and its shell. Raises SandboxError with what was printed when it does not
        come."""
        self._running = False
        self._guest = await self._spawn()
        result = await self._exchange(self._start, START_SECONDS)
        if result is None or result.status == "dead":
            message = (await self.stop()).strip().replace("\n", "; ") or "no shell"
            raise SandboxError(f"sandbox did not start: {message}")

    async def stop(self) -> str:
        """Kill every process of the sandbox and wait until none is left; returns what it printed."""
        guest, self._guest = self._guest, None
        if guest is None:
            return ""
        guest.link.close()
        return await guest.end()

    async def run(self, command: str, timeout: float) -> TerminalResult:
        """Run a command; see Sandbox.terminal."""
        if self._running:
            return TerminalResult(output=_BUSY, exit_code=None, status="running", seconds=0.0)
        text = command.encode("utf-8", "replace")
        return await self._call(pack(b"run", str(timeout).encode(), text), timeout)

    async def type(self, keys: list[str]) -> TerminalResult:
        """Type keys; see Sandbox.terminal_input."""
        data = encode_keys(keys)
        if not self._running:
            text = "No program is running in the terminal."
            return TerminalResult(output=text, exit_code=0, status="ok", seconds=0.0)
        return await self._call(pack(b"keys", data), 2.0)

    async def output(self) -> TerminalResult:
        """What came since the last call; see Sandbox.terminal_output."""
        return await self._call(pack(b"look"), 1.0)

    async def upload(self, source: Path, target: str) -> None:
        """See Sandbox.upload. Raises SandboxError when the sandbox takes no files."""
        place = PurePosixPath(target)
        if place.parent != PurePosixPath("/") or place.name in ("", ".."):
            raise InputError(f"upload to {target!r}: expected a top-level folder such as /solution")
        fields = [b"put", os.fsencode(target)]
        for path in sorted(source.rglob("*")):
            name = os.fsencode(path.relative_to(source))
            if path.is_symlink():
                fields += [b"l0", name, os.fsencode(os.readlink(path))]
            elif path.is_dir():
                fields += [b"d755", name, b""]
            elif path.is_file():
                fields += [b"f%o" % (path.stat().st_mode & 0o777), name, path.read_bytes()]
        result = await self._exchange(pack(*fields), START_SECONDS)
        if result is None or result.status == "dead":
            raise SandboxError(f"the sandbox took no files for {target}")

    async def _call(self, request: bytes, seconds: float) -> TerminalResult:
        began = time.monotonic()
        result = await self._exchange(request, seconds + GRACE_SECONDS)
        if result is None or result.status == "dead":
            # Its first process is gone or lost; the files are not, and may still carry a terminal.
            output = result.output if result else ""
            await self.stop()
            try:
                await self.start()
                result = TerminalResult(output=output, exit_code=137, status="shell_restarted", seconds=0.0)
            except SandboxError:
                result = TerminalResult(output=output, exit_code=None, status="dead", seconds=0.0)
        self._running = result.status == "running"
        hit = self._guest.limit_hit() if self._guest else ""
        return replace(result, seconds=time.monotonic() - began, limit=hit)

    async def _exchange(self, request: bytes, seconds: float) -> TerminalResult | None:
        """The answer to a request; None when there is no supervisor that answers in time and in form."""
        if self._guest is None:
            return None
        loop, link = asyncio.get_running_loop(), self._guest.link
        try:
            async with asyncio.timeout(seconds):
                await loop.sock_sendall(link, request)
                return _result(unpack(await _receive(link)))
        except (TimeoutError, OSError, ValueError, EOFError):
            return None


class SessionSandbox:
    """The calls of base.Sandbox that go to its session, for a backend to complete."""

    def __init__(self) -> None:
        self._session: Session | None = None  # None before the start, and once it is verified or closed

    def _terminal(self) -> Session:
        if self._session is None:
            raise SandboxError("the sandbox is closed or was verified", retryable=False)
        return self._session

    async def terminal(self, command: str, timeout: float) -> TerminalResult:
        """See base.Sandbox."""
        return await self._terminal().run(command, timeout)

    async def terminal_input(self, keys: list[str]) -> TerminalResult:
        """See base.Sandbox."""
        return await self._terminal().type(keys)

    async def terminal_output(self) -> TerminalResult:
        """See base.Sandbox."""
        return await self._terminal().output()

    async def upload(self, source: Path, target: str) -> None:
        """See base.Sandbox."""
        await self._terminal().upload(source, target)


async def _receive(link: socket.socket) -> bytes:
    """The body of an answer. Raises ValueError when it is longer than any answer, EOFError at the end."""
    loop, data, size = asyncio.get_running_loop(), b"", 4
    while len(data) < size:
        chunk = await loop.sock_recv(link, 1 << 16)
        if not chunk:
            raise EOFError
        data += chunk
        size = 4 + int.from_bytes(data[:4], "big")
        if size > MESSAGE_LIMIT:
            raise ValueError(size)
    return data[4:]


def _result(fields: list[bytes]) -> TerminalResult:
    """A supervisor's answer. Raises ValueError when it is malformed: what runs inside is not trusted."""
    status, code, total, head, tail, path = fields
    if status.decode() not in _STATUSES:
        raise ValueError(status)
    output = shown_text(head, tail, int(total), path.decode("utf-8", "replace"))
    exit_code = int(code) if code else None
    return TerminalResult(
        output=output, exit_code=exit_code, status=cast(Status, status.decode()), seconds=0.0
    )
