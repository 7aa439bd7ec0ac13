"""Sandboxes by bubblewrap: Linux namespaces and overlays, without a daemon, started in some 25 milliseconds.

An episode sees a whole Linux system of its own: the host's programs (/usr, with /bin and /lib* as the host
has them) under an overlay, and a generated /etc, /root, /var and so on. It may install, change and delete all
of it; what it writes lies in a private folder that is thrown away at the end. Of the host's other files
nothing is there. No network but its own loopback, its own process numbers, no host environment. A task that
asks for a network gets one through slirp4netns (see network).

Root inside is an unprivileged user outside. Where the service runs as root, a range of 65,536 users is
mapped, so that chown, su and package managers work; otherwise root is the only user.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox.backends import cgroups, network
from sandbox.backends.base import SandboxError
from sandbox.backends.cgroups import Cgroup
from sandbox.backends.environment import (
    DEFAULT_MEMORY_MB,
    ENVIRONMENT,
    MAX_FILE_MB,
    MAX_PROCESSES,
    TESTS_ENVIRONMENT,
    tests_command,
)
from sandbox.backends.files import SandboxFiles
from sandbox.backends.namespaces import Guest, Host, layers
from sandbox.backends.processes import wait_process
from sandbox.backends.session import Session, SessionSandbox
from sandbox.backends.supervisor import Ring
from sandbox.backends.toolchain import BASH, SUPERVISOR
from sandbox.errors import InputError
from sandbox.task import Task
from sandbox.terminal import shown_text
from sandbox.verifier import Verdict, grade


class BubblewrapBackend:
    """Makes bubblewrap sandboxes.

    directory: where their private files live; by default $TMPDIR, or /dev/shm where it is large, or /tmp.
    """

    name = "bubblewrap"

    def __init__(self, directory: Path | None = None) -> None:
        self._parent = directory
        self._host: Host | None = None

    def check(self) -> None:
        """Start one sandbox. Raises InputError, with what to do, where that is not allowed."""
        host = self._prepare()
        folder = Path(tempfile.mkdtemp(prefix="c", dir=host.base))
        folder.chmod(0o711)
        for name in ("root", "root.work", "usr", "usr.work", "local"):
            (folder / name).mkdir()
            if host.root:
                os.chown(folder / name, host.uid, host.uid)
        try:
            # In a thread of its own: the caller may well be inside a loop.
            with ThreadPoolExecutor(1) as pool:
                message = pool.submit(asyncio.run, _probe(host, folder)).result()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if message:
            raise InputError(
                f"backend bubblewrap: cannot start a sandbox here ({message}); allow unprivileged user "
                "namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0, "
                "kernel.apparmor_restrict_unprivileged_userns=0; in Docker: --security-opt seccomp=unconfined"
                " --security-opt systempaths=unconfined, or --privileged) or use another backend"
            )

    def limits(self) -> str:
        """How this machine holds the tasks' limits, in one line."""
        groups = cgroups.available()
        memory = "control group" if "memory" in groups else "address space of each process"
        pids = "control group" if "pids" in groups else "processes of the user"
        cpus = "control group" if "cpu" in groups else "number of cores"
        storage = "size of the file system" if self._prepare().quota else "size of each file"
        return f"limits: memory by {memory}, processes by {pids}, cpus by {cpus}, storage by {storage}"

    async def create(self, task: Task) -> BubblewrapSandbox:
        """A sandbox with the task's environment/ files. InputError when its Dockerfile needs an image
        build, or when it asks for a network and this machine cannot give it one.
        """
        if task.allow_network and not network.available():
            raise InputError(
                f"task {task.name}: it asks for a network, which needs slirp4netns and /dev/net/tun; install "
                "slirp4netns or use the docker backend"
            )
        sandbox = BubblewrapSandbox(task, self._prepare())
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    def _prepare(self) -> Host:
        if self._host is None or not self._host.base.is_dir():
            self._host = Host(self._parent)
        return self._host


class BubblewrapSandbox(SessionSandbox):
    """One episode's files and processes. See base.Sandbox for the calls."""

    def __init__(self, task: Task, host: Host) -> None:
        self._task = task
        self._host = host
        self._name = f"{host.base.name}-{next(host.numbers)}"
        folder = Path(tempfile.mkdtemp(prefix="s", dir=host.base))
        folder.chmod(0o711)
        storage = None
        if host.quota:
            storage = min(task.storage_mb or MAX_FILE_MB, _memory_mb() // 4)
        self._files = SandboxFiles(task, folder, host.uid, storage)
        self._cgroup: Cgroup | None = None
        super().__init__()

    async def start(self) -> None:
        """Make the files, then start the shell. Raises SandboxError when the sandbox does not come up."""
        await asyncio.to_thread(self._files.build)
        if cgroups.available():
            memory = self._task.memory_mb or DEFAULT_MEMORY_MB
            self._cgroup = Cgroup(self._name, memory_mb=memory, pids=MAX_PROCESSES, cpus=self._task.cpus)
        environment = {**ENVIRONMENT, **self._task.env}
        if self._host.uids == 1 or not self._host.root:
            environment["TAR_OPTIONS"] = "--no-same-owner"  # only one user is mapped
        self._session = Session(self._spawn, self._task.workdir, self._limits(), environment)
        await self._session.start()

    def _limits(self) -> str:
        """A script that sets what control groups do not."""
        script = f"ulimit -c 0; ulimit -f {min(self._task.storage_mb or MAX_FILE_MB, MAX_FILE_MB) * 1024}; "
        if "pids" not in cgroups.available():
            script += f"ulimit -u {MAX_PROCESSES}; "
        if "memory" not in cgroups.available() and self._task.memory_mb:
            script += f"ulimit -v {self._task.memory_mb * 1024}; "
        return script

    async def _spawn(self) -> Guest:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        argv = [*layers(self._host, self._files), "--as-pid-1", "--", *SUPERVISOR]
        with theirs:
            # A high number: bash and its scripts use the low ones.
            control = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 64)
        try:
            return await Guest.start(
                self._host, [*argv, str(control)], [control], self._cgroup, ours, self._task
            )
        finally:
            os.close(control)

    async def verify(self, task: Task) -> Verdict:
        """Kill the episode's processes, then run tests/test.sh in a fresh sandbox on its files; see
        verifier."""
        began = time.monotonic()
        await self._terminal().stop()
        self._session = None
        await asyncio.to_thread(self._files.seal)
        ring = Ring()
        exit_code, timed_out = await self._run_tests(task, ring)
        return grade(
            task, self._files.logs, exit_code=exit_code, timed_out=timed_out,
            seconds=time.monotonic() - began, log=shown_text(bytes(ring.head), bytes(ring.tail), ring.total),
        )  # fmt: skip

    async def _run_tests(self, task: Task, ring: Ring) -> tuple[int, bool]:
        """(exit code of test.sh, whether its time ran out)."""
        argv = layers(self._host, self._files, verify=True)
        for name, value in {**ENVIRONMENT, **task.env, **TESTS_ENVIRONMENT}.items():
            argv += ["--setenv", name, value]
        argv += [
            "--ro-bind",
            str(self._files.tests),
            "/tests",
            "--bind",
            str(self._files.logs),
            "/logs/verifier",
        ]
        argv += ["--", *tests_command(task, self._limits())]
        guest = await Guest.start(self._host, argv, [], self._cgroup, None, task)
        reading = asyncio.create_task(guest.read_output(ring))
        try:
            code = await asyncio.wait_for(wait_process(guest.process), task.verifier_timeout)
        except TimeoutError:
            return 137, True
        finally:
            await guest.end()
            await reading
        text = bytes(ring.head)
        if code == 1 and text.startswith(b"bwrap: "):
            raise SandboxError(f"verification did not start: {text.decode('utf-8', 'replace').strip()}")
        return (code if code >= 0 else 128 - code), False

    async def _stop(self) -> None:
        session, self._session = self._session, None
        if session:
            await session.stop()

    async def close(self) -> None:
        """See base.Sandbox."""
        await self._stop()
        cgroup, self._cgroup = self._cgroup, None
        if cgroup:
            await asyncio.to_thread(cgroup.remove)
        await asyncio.to_thread(self._files.remove)


async def _probe(host: Host, folder: Path) -> str:
    """Run one program in a sandbox; why that failed, or nothing."""
    files = SandboxFiles.__new__(SandboxFiles)
    files.folder, files.root, files.usr, files.local = (
        folder,
        folder / "root",
        folder / "usr",
        folder / "local",
    )
    task = Task(name="check", path=folder, instruction="")
    try:
        guest = await Guest.start(
            host, [*layers(host, files), "--", BASH, "-c", "exit 0"], [], None, None, task
        )
    except SandboxError as error:
        return " ".join(str(error).split())
    code = await wait_process(guest.process)
    message = " ".join((await guest.end()).split())
    return (message or f"exit code {code}") if code else ""


def _memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
