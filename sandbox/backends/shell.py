"""The persistent shell behind a PTY: driven over side pipes, never by text in the terminal.

PID 1 of the sandbox (`INIT`) holds two pipes: commands in (fd 8), reports out (fd 9). It starts the agent's
shell
(`SHELL`), reports its end, and starts it again when told to; it reaps orphans and is immune to signals from
inside. The
shell opens the pipes by path for each command, so that no program it runs inherits them. Exit codes and the
working
directory come from bash itself over the report pipe. The terminal carries one thing of ours: after each
command a random
mark, which says only "all output of this command has been read" and is cut out.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.backends.base import SandboxError, Status, TerminalResult
from sandbox.terminal import Capture, encode_keys

ROWS, COLUMNS = 40, 160
_OBITUARY = re.compile(r"bash: line \d+: +\d+ .*T1_SHELL=.*\n?")  # PID 1 on the shell's end by a signal

# PID 1. Descriptor 8 brings commands, 9 takes reports. Job control on: the shell gets a process group and the
# terminal, which comes back when it dies.
INIT = r"""
exec 0</dev/console 1>/dev/console 2>&1 8<&$T1_COMMANDS 9>&$T1_REPORTS {T1_COMMANDS}<&- {T1_REPORTS}>&-
trap : INT QUIT TERM HUP TSTP USR1
set -m
t1=$T1_SHELL; unset T1_SHELL T1_INIT T1_COMMANDS T1_REPORTS
while IFS= read -r -d '' dir <&8; do
  T1_SHELL=$t1 T1_DIR=$dir SHLVL=0 bash -c 'eval "$T1_SHELL"' bash 8<&- 9>&-
  printf 'X %s \0' $? >&9
done
"""

# The agent's shell. On USR1 (timeout) and INT (C-c in a loop of builtins) it replaces itself by a fresh bash
# that takes over variables, functions, aliases and options: the only way to leave a running `while :` and
# keep the state. Whatever ends it except `exit` (set -e, an unset variable under set -u) does the same.
SHELL = r"""
__t1_shell=$T1_SHELL __t1_id=$T1_ID __t1_code=${T1_CODE:-0}
builtin cd -- "$T1_DIR" 2>/dev/null || builtin cd /
eval "$T1_STATE" 2>/dev/null
__t1_id=$T1_ID __t1_code=${T1_CODE:-0} __t1_exit=
set -m
unset T1_SHELL T1_DIR T1_STATE T1_ID T1_CODE
__t1_reload() {
  { T1_CODE=$1 T1_STATE=$(declare -p; declare -fp; alias -p; shopt -p; set +o); set +x
  export T1_CODE T1_STATE T1_SHELL=$__t1_shell T1_DIR=$PWD T1_ID=$__t1_id SHLVL=0; } 2>/dev/null
  exec bash -c 'eval "$T1_SHELL"' bash
}
__t1_status() { return "$1"; }
exit() { __t1_exit=1; builtin exit "$@"; }
trap '__t1_reload 130' USR1 INT
trap '__t1_last=$?; { builtin printf "E %s %s\0" $__t1_last "$PWD" >/proc/1/fd/9; } 2>/dev/null
  [[ $__t1_exit ]] || __t1_reload $__t1_last' EXIT
[[ $__t1_id ]] && builtin printf '\036%s\037' "$__t1_id" >/dev/tty
builtin printf '%s %s %s\0' "${__t1_id:-R}" "$__t1_code" "$PWD" >/proc/1/fd/9
while builtin :; do
  { { IFS= builtin read -r -d '' __t1_id && IFS= builtin read -r -d '' __t1_command
    } </proc/1/fd/8; } 2>/dev/null || builtin break
  { builtin jobs >/dev/null; } 2>/dev/null  # jobs that ended meanwhile are not announced in the output
  [[ $- == *e* ]] || __t1_status $__t1_code
  builtin eval "$__t1_command"
  { __t1_code=$?; builtin printf '\036%s\037' "$__t1_id" >/dev/tty
  builtin printf '%s %s %s\0' "$__t1_id" $__t1_code "$PWD" >/proc/1/fd/9; } 2>/dev/null
done
"""


class Shell:
    """One persistent shell in one sandbox. One call at a time.

    spawn: starts the sandbox on (terminal slave, commands fd, reports fd) and returns its outermost process;
        the sandbox's PID 1 is that process's only child.
    """

    def __init__(self, spawn: Callable[[int, int, int], subprocess.Popen], directory: str) -> None:
        self._spawn = spawn
        self._directory = directory
        self._process: subprocess.Popen | None = None
        self._master = self._commands = self._reports = -1
        self._pid1 = self._shell = 0  # as the host numbers them
        self._loop = asyncio.get_running_loop()
        self._capture = Capture()
        self._held = b""  # the start of what may be our mark
        self._partial = b""  # a report cut by a read
        self._outbox = b""
        self._throttled: asyncio.TimerHandle | None = None
        self._id = ""
        self._older: set[int] = set()  # processes that were there before the running command
        self._busy = self._reported = self._marked = False
        self._code: int | None = 0
        self._status: Status = "ok"
        self._ready = self._loop.create_future()  # resolves when the shell waits for a command
        self._ready.set_result(None)

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, limit: float = 20.0) -> None:
        """Start the sandbox and wait for its shell. Raises SandboxError with what was printed when it does
        not come."""
        self._loop = asyncio.get_running_loop()
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._mode = termios.tcgetattr(slave)
        self._mode[0] = termios.ICRNL  # no IXON: C-s would stop the output for good
        self._mode[1] = 0  # no CR before LF
        self._mode[3] = termios.ISIG | termios.ICANON | termios.IEXTEN  # no echo
        termios.tcsetattr(slave, termios.TCSANOW, self._mode)
        inside, self._commands = os.pipe()
        self._reports, outside = os.pipe()
        try:
            self._process = self._spawn(slave, inside, outside)
        finally:
            for descriptor in (slave, inside, outside):
                os.close(descriptor)
        for descriptor in (self._master, self._commands, self._reports):
            os.set_blocking(descriptor, False)
        self._pid1, self._partial, self._outbox, self._held = 0, b"", b"", b""
        self._loop.add_reader(self._master, self._on_terminal)
        self._loop.add_reader(self._reports, self._on_report)
        self._ready = self._loop.create_future()
        self._send(os.fsencode(self._directory) + b"\0")
        await asyncio.wait({self._ready}, timeout=limit)
        if not self._ready.done() or self._status == "dead":
            message = self._capture.text().strip().replace("\n", "; ") or f"no shell after {limit:g} seconds"
            await self.stop()
            raise SandboxError(f"sandbox did not start: {message}")

    async def stop(self) -> None:
        """Kill every process of the sandbox and wait until none is left."""
        for descriptor in (self._master, self._reports):
            if descriptor >= 0:
                self._loop.remove_reader(descriptor)
        if self._commands >= 0:
            self._loop.remove_writer(self._commands)
        if self._throttled:
            self._throttled.cancel()
        process, self._process = self._process, None
        if process:
            await end_process(process)
        for descriptor in (self._master, self._commands, self._reports):
            if descriptor >= 0:
                os.close(descriptor)
        self._master = self._commands = self._reports = -1

    # -- calls -----------------------------------------------------------------------------------------------

    async def run(self, command: str, timeout: float) -> TerminalResult:
        """Run a command; see Sandbox.terminal."""
        began = time.monotonic()
        if self._busy and not self._ready.done():
            text = "A program still runs here. Use terminal_input (C-c ends it) or terminal_output."
            return TerminalResult(output=text, exit_code=None, status="running", seconds=0.0)
        if not await self._alive():
            return TerminalResult(output="", exit_code=None, status="dead", seconds=time.monotonic() - began)
        self._capture, self._held = Capture(), b""
        self._busy, self._reported, self._marked, self._status, self._code = True, False, False, "ok", None
        termios.tcsetattr(self._master, termios.TCSANOW, self._mode)
        self._older = set(self._processes())
        self._id = secrets.token_hex(8)
        self._ready = self._loop.create_future()
        self._send(f"{self._id}\0".encode() + command.replace("\0", "").encode("utf-8", "replace") + b"\0")
        return await self._follow(began, timeout)

    async def type(self, keys: list[str]) -> TerminalResult:
        """Type keys; see Sandbox.terminal_input."""
        began = time.monotonic()
        data = encode_keys(keys)
        if self._ready.done() and not self._busy:
            text = "No program is running in the terminal."
            return TerminalResult(output=text, exit_code=0, status="ok", seconds=0.0)
        self._capture = Capture()
        for start in range(0, len(data), 1024):
            os.write(self._master, data[start : start + 1024])
            await asyncio.sleep(0)
        return await self._follow(began, 2.0, kill=False)

    async def output(self) -> TerminalResult:
        """What came since the last call; see Sandbox.terminal_output."""
        began = time.monotonic()
        if self._busy and not self._ready.done():
            return await self._follow(began, 1.0, kill=False)
        return self._result(began)

    async def _follow(self, began: float, timeout: float, kill: bool = True) -> TerminalResult:
        """Wait until the command ends, waits for input, or its time is up."""
        deadline, quiet, seen = began + timeout, 0, -1
        while not self._ready.done():
            left = deadline - time.monotonic()
            if left <= 0:
                if kill:
                    await self._kill_command()
                break
            await asyncio.wait({self._ready}, timeout=min(left, 0.2))
            if self._ready.done():
                break
            quiet = quiet + 1 if seen == self._capture.total and self._waits_for_input() else 0
            seen = self._capture.total
            if quiet >= 2:
                break
        if self._status == "dead" and await self._alive():
            self._status, self._code = "shell_restarted", 137
        return self._result(began)

    def _result(self, began: float) -> TerminalResult:
        seconds = time.monotonic() - began
        text, self._capture = self._capture.text(), Capture()
        if not self._ready.done():
            return TerminalResult(output=text, exit_code=None, status="running", seconds=seconds)
        self._busy = False
        if "T1_SHELL" in text:
            text = _OBITUARY.sub("", text)
        status, self._status = self._status, "ok" if self._status != "dead" else "dead"
        return TerminalResult(output=text, exit_code=self._code, status=status, seconds=seconds)

    async def _alive(self) -> bool:
        """Whether a shell stands ready. A sandbox whose every process was killed is started again on its
        files."""
        if self._status != "dead":
            return True
        await self.stop()
        try:
            self._status = "ok"
            await self.start()
        except SandboxError:
            self._status = "dead"
        return self._status != "dead"

    # -- streams ---------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        self._outbox += data
        try:
            self._outbox = self._outbox[os.write(self._commands, self._outbox) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._outbox = b""  # the reports' end says the same, and is acted on
        if self._outbox:
            self._loop.add_writer(self._commands, self._send, b"")
        else:
            self._loop.remove_writer(self._commands)

    def _on_terminal(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except BlockingIOError:
            return
        except OSError:  # EIO: no process holds the terminal
            self._loop.remove_reader(self._master)
            return
        data = self._held + data
        self._held = b""
        mark = f"\x1e{self._id}\x1f".encode()
        if self._busy and not self._marked:
            before, found, after = data.partition(mark)
            if found:
                data, self._marked, self._held = before, True, after
                if self._reported:
                    self._finish()
            else:
                start = data.rfind(b"\x1e", -len(mark))
                if start >= 0:
                    data, self._held = data[:start], data[start:]
        self._capture.feed(data)
        if self._capture.total > 1 << 20:  # a flood: its writer waits, the other episodes do not
            self._loop.remove_reader(self._master)
            self._throttled = self._loop.call_later(
                0.005, self._loop.add_reader, self._master, self._on_terminal
            )

    def _on_report(self) -> None:
        try:
            data = os.read(self._reports, 65536)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._reports)
            self._status, self._code = "dead", None
            self._finish()
            return
        *reports, rest = (self._partial + data).split(b"\0")
        self._partial = rest[-65536:]
        for report in reports:
            kind, _, rest = report.partition(b" ")
            code, _, directory = rest.partition(b" ")
            self._report(kind.decode("ascii", "replace"), code, os.fsdecode(directory))

    def _report(self, kind: str, code: bytes, directory: str) -> None:
        if not code.strip().isdigit() or len(code) > 8:
            return
        if kind in ("E", "R", self._id) and directory.startswith("/"):
            self._directory = directory
        if kind == "X":
            self._code, self._status, self._shell = int(code), "shell_restarted", 0
            self._send(os.fsencode(self._directory) + b"\0")
        elif kind == "R":
            self._shell = self._find_shell()
            self._loop.call_later(
                0.01 if self._busy else 0, self._finish, self._ready
            )  # the old shell's output has no mark
        elif kind == self._id:
            self._code = int(code)
            self._reported = True
            if self._marked:
                self._finish()
            else:
                self._loop.call_later(0.2, self._finish, self._ready)

    def _finish(self, ready: asyncio.Future | None = None) -> None:
        """The running command has ended; `ready` ties a delayed call to the command that it was made for."""
        if not self._ready.done() and ready in (None, self._ready):
            self._ready.set_result(None)

    # -- processes -------------------------------------------------------------------------------------------

    def _processes(self) -> list[int]:
        """Host pids of the sandbox's processes, PID 1 left out."""
        if not self._process:
            return []
        if not self._pid1:
            self._pid1 = next(iter(_children(self._process.pid)), 0)
        found, queue = [], _children(self._pid1) if self._pid1 else []
        while queue:
            pid = queue.pop()
            found.append(pid)
            queue += _children(pid)
        return found

    def _find_shell(self) -> int:
        """The child of PID 1 that runs SHELL (asked when it has just said that it is ready)."""
        self._processes()
        for pid in _children(self._pid1) if self._pid1 else []:
            if b'eval "$T1_SHELL"' in _read(f"/proc/{pid}/cmdline"):
                return pid
        return 0

    async def _kill_command(self) -> None:
        """Kill what the running command started, and take the shell out of it; replace the shell if that
        fails."""
        self._code, self._status = 124, "timeout"
        began = time.monotonic()
        _kill(
            self._shell, signal.SIGUSR1
        )  # first, so that the shell does not go on with the rest of the command
        while True:
            victims = [pid for pid in self._processes() if pid not in self._older and pid != self._shell]
            for pid in victims:
                _kill(pid, signal.SIGKILL)
            if self._ready.done() and not victims:
                break
            if time.monotonic() - began > 0.6:
                _kill(self._shell, signal.SIGKILL)
            if time.monotonic() - began > 3.0:
                self._status = "dead"  # the sandbox is started again as a whole
                break
            await asyncio.wait(
                {self._ready}, timeout=0.02
            ) if not self._ready.done() else await asyncio.sleep(0.005)
        if self._status != "dead":
            self._code, self._status = 124, "timeout"
        self._finish()

    def _waits_for_input(self) -> bool:
        """Whether the foreground program sleeps in a read of the terminal, or has put it in raw mode and
        sleeps."""
        try:
            group = os.tcgetpgrp(self._master)
            raw = not termios.tcgetattr(self._master)[3] & termios.ICANON
        except (OSError, termios.error):
            return False
        members = [pid for pid in self._processes() if _stat(pid)[1] == group]
        if raw and members and all(_stat(pid)[0] == "S" for pid in members):
            return True
        return any(_reads_terminal(pid) for pid in members)


async def end_process(process: subprocess.Popen) -> None:
    """SIGKILL a sandbox's outermost process, which ends all inside, and wait for it without blocking the
    loop."""
    pid1 = _children(process.pid)
    for pid in pid1:  # the end of PID 1 of a PID namespace is the end of every process in it
        _kill(pid, signal.SIGKILL)
    if not pid1:
        process.kill()
    await wait_process(process)


async def wait_process(process: subprocess.Popen) -> int:
    """The exit code of `process` (negative: a signal)."""
    if process.poll() is None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        descriptor = os.pidfd_open(process.pid)
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
    return process.wait()


def _read(path: str) -> bytes:
    """A file of /proc, empty when its process has just ended."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _children(pid: int) -> list[int]:
    return [int(word) for word in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _stat(pid: int) -> tuple[str, int]:
    """(state letter, process group) of a process; ("", 0) when it has just ended."""
    words = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (words[0].decode(), int(words[2])) if words else ("", 0)


def _reads_terminal(pid: int) -> bool:
    """Whether a process sleeps in read(2) of a terminal (x86-64: system call 0, others: 63)."""
    try:
        number, descriptor, *_ = Path(f"/proc/{pid}/syscall").read_text().split()
        if number != ("0" if os.uname().machine == "x86_64" else "63"):
            return False
        target = os.readlink(f"/proc/{pid}/fd/{int(descriptor, 16)}")
    except (OSError, ValueError):
        return False
    return target.startswith(("/dev/console", "/dev/pts/", "/dev/tty"))


def _kill(pid: int, number: int) -> None:
    if pid > 0:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
