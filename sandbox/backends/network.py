"""A network for a bubblewrap sandbox whose task asks for one: connections outwards, none of the host's own.

slirp4netns is a TCP/IP stack in a process of its own. It serves a virtual interface inside the sandbox and
opens ordinary sockets for what comes through it, so that nobody needs rights over the host's network. The
host's loopback is closed to it: what listens there, as the rollout service does, cannot be reached.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess

from sandbox.backends.base import SandboxError
from sandbox.backends.processes import wait_process

START_SECONDS = 20.0
RESOLVER = "nameserver 10.0.2.3\n"  # where slirp4netns answers for the host's resolver
_PROGRAM = "slirp4netns"


def available() -> bool:
    """Whether this machine has what a network needs."""
    return shutil.which(_PROGRAM) is not None and os.path.exists("/dev/net/tun")


class UserNetwork:
    """The network of one sandbox; it ends with `end`, or with this process however that ends."""

    def __init__(self, process: subprocess.Popen, leash: int) -> None:
        self._process = process
        self._leash = leash

    @classmethod
    async def start(cls, pid: int) -> UserNetwork:
        """Connect the network namespace of process `pid`. Raises SandboxError when that takes too long."""
        ready, ready_in = os.pipe()
        leashed, leash = os.pipe()
        argv = [_PROGRAM, "--configure", "--disable-host-loopback", "--mtu=65520", "--enable-seccomp"]
        argv += [f"--exit-fd={leashed}", f"--ready-fd={ready_in}"]
        if os.geteuid():
            argv.append(f"--userns-path=/proc/{pid}/ns/user")
        try:
            process = subprocess.Popen(
                [*argv, str(pid), "tap0"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, pass_fds=[leashed, ready_in],
            )  # fmt: skip
        finally:
            os.close(leashed)
            os.close(ready_in)
        network = cls(process, leash)
        try:
            if await _first_byte(ready):
                return network
        finally:
            os.close(ready)
        assert process.stderr
        await network.end()
        said = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
        raise SandboxError(f"{_PROGRAM}: {said[-1] if said else 'not ready in time'}")

    async def end(self) -> None:
        """Cut the connections."""
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1
            self._process.kill()
            await wait_process(self._process)


async def _first_byte(descriptor: int) -> bytes:
    """What can be read first, nothing when the other end is closed or START_SECONDS have passed."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, there.set)
    try:
        await asyncio.wait_for(there.wait(), START_SECONDS)
        return os.read(descriptor, 1)
    except TimeoutError:
        return b""
    finally:
        loop.remove_reader(descriptor)
