"""Processes of the host: waiting without blocking the event loop, and ending a whole sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path


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


async def end_process(process: subprocess.Popen) -> None:
    """SIGKILL a sandbox's outermost process, which ends all inside, and wait until none is left."""
    first = children(process.pid)
    for pid in first:  # the end of PID 1 of a PID namespace is the end of every process in it
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not first:
        process.kill()
    await wait_process(process)


def children(pid: int) -> list[int]:
    """The children of a process; none when it has just ended."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]
    except OSError:
        return []
