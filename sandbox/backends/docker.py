"""Sandboxes in Docker containers, through the docker SDK: any image, about a second to start.

The container's program is the supervisor out of the mounted toolchain, below Docker's own init; it connects
to a socket that only it finds, so that a command costs no `docker exec`. Nothing of the host is mounted but
that toolchain, read-only. An episode ends with its container; its tests run in a new one, on an image made of
what it left. The engine must share this machine's file system.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.backends.base import SandboxError
from sandbox.backends.cgroups import Usage
from sandbox.backends.environment import (
    DEFAULT_MEMORY_MB,
    ENVIRONMENT,
    MAX_FILE_MB,
    MAX_PROCESSES,
    TESTS_ENVIRONMENT,
    tests_command,
)
from sandbox.backends.lease import lease_folder, start_janitor
from sandbox.backends.session import START_SECONDS, Session, SessionSandbox
from sandbox.backends.supervisor import Ring
from sandbox.backends.toolchain import PLACE, SUPERVISOR, toolchain
from sandbox.errors import InputError
from sandbox.task import Task
from sandbox.terminal import shown_text
from sandbox.verifier import Verdict, grade

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.images import Image

LABEL = "t1-jax.owner"
_LINK = f"{PLACE}/link"
_DROPPED = ["NET_RAW", "MKNOD", "AUDIT_WRITE"]


class DockerBackend:
    """Makes Docker sandboxes from `[environment] docker_image`, or from the image of
    environment/Dockerfile."""

    name = "docker"

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def check(self) -> None:
        """Ask the engine for its version. Raises InputError, with what to do, when none answers."""
        self._prepare()

    def limits(self) -> str:
        """How this machine holds the tasks' limits, in one line."""
        return "limits: memory, processes and cpus by Docker, storage by size of each file"

    async def create(self, task: Task) -> DockerSandbox:
        """A container of the task's image, which is built first where it is not there yet."""
        engine = await asyncio.to_thread(self._prepare)
        image = await engine.image(task)
        sandbox = DockerSandbox(task, engine, image)
        try:
            await sandbox.start()
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    def _prepare(self) -> Engine:
        if self._engine is None:
            self._engine = Engine()
        return self._engine


class Engine:
    """What the containers of this process share."""

    def __init__(self) -> None:
        import docker

        try:
            self.client = docker.from_env(timeout=120, max_pool_size=32)
            self.client.ping()
        except docker.errors.DockerException as error:
            raise InputError(
                f"backend docker: no Docker engine answers ({error}); start dockerd, set DOCKER_HOST to a "
                "local engine's socket, or use another backend"
            ) from None
        self.base = lease_folder(Path(tempfile.gettempdir()))
        self.label = f"{LABEL}={self.base.name}"
        self.toolchain = toolchain()
        self.numbers = itertools.count(1)
        self.janitor = start_janitor("docker", self.label, "folder", str(self.base))
        self._builds: dict[str, asyncio.Lock] = {}

    async def image(self, task: Task) -> Image:
        """The task's image; one build at a time for each content. Raises SandboxError when there is none."""
        folder = task.path / "environment"
        if task.docker_image:
            tag = task.docker_image
        elif (folder / "Dockerfile").is_file():
            tag = f"t1-jax-task:{_digest(folder)}"
        else:
            raise InputError(
                f"task {task.name}: neither [environment] docker_image nor environment/Dockerfile, "
                "expected one for the docker backend"
            )
        async with self._builds.setdefault(tag, asyncio.Lock()):
            return await asyncio.to_thread(self._find_or_build, task, tag, folder)

    def _find_or_build(self, task: Task, tag: str, folder: Path) -> Image:
        import docker

        with contextlib.suppress(docker.errors.ImageNotFound):
            return self.client.images.get(tag)
        try:
            if task.docker_image:
                return self.client.images.pull(tag)
            return self.client.images.build(path=str(folder), tag=tag, rm=True, forcerm=True)[0]
        except (docker.errors.BuildError, docker.errors.APIError) as error:
            raise SandboxError(f"task {task.name}: image {tag}: {error}", retryable=False) from error


class DockerSandbox(SessionSandbox):
    """One episode's container. See base.Sandbox for the calls."""

    def __init__(self, task: Task, engine: Engine, image: Image) -> None:
        self._task = task
        self._engine = engine
        self._image = image
        self._name = f"{engine.base.name}-{next(engine.numbers)}"
        self._folder = Path(tempfile.mkdtemp(prefix="s", dir=engine.base))
        self._container: Container | None = None
        super().__init__()
        settings = image.attrs["Config"]
        words = (word.partition("=") for word in settings.get("Env") or [])
        self._environment = {**ENVIRONMENT, **{name: value for name, _, value in words}, **task.env}
        self._workdir = (settings.get("WorkingDir") if task.docker_image else None) or task.workdir

    async def start(self) -> None:
        """Start the container and its shell. Raises SandboxError when it does not come up."""
        self._session = Session(self._spawn, self._workdir, "ulimit -c 0; ", self._environment)
        await self._session.start()

    def _create(
        self, image: str, command: list[str], binds: list[str], name: str, environment: dict[str, str]
    ) -> Container:
        """A container that is not started yet, bound to the task's limits."""
        from docker.types import LogConfig, Ulimit

        task = self._task
        memory = task.memory_mb or DEFAULT_MEMORY_MB
        file_bytes = min(task.storage_mb or MAX_FILE_MB, MAX_FILE_MB) << 20
        return self._engine.client.containers.create(
            image,
            command[1:],
            entrypoint=command[:1],
            name=name,
            labels={LABEL: self._engine.base.name, "t1-jax.task": task.name},
            hostname="sandbox",
            user="0:0",
            working_dir=self._workdir,
            init=True,
            cap_drop=_DROPPED,
            network_mode="bridge" if task.allow_network else "none",
            mem_limit=f"{memory}m",
            memswap_limit=f"{memory}m",
            nano_cpus=int(task.cpus * 1e9) if task.cpus else None,
            pids_limit=MAX_PROCESSES,
            ulimits=[
                Ulimit(name="core", soft=0, hard=0),
                Ulimit(name="fsize", soft=file_bytes, hard=file_bytes),
            ],
            volumes=[f"{self._engine.toolchain}:{PLACE}:ro", *binds],
            # Our own programs need no libraries from elsewhere; the image's variables are for its shell.
            environment={**environment, "LD_LIBRARY_PATH": "", "LD_PRELOAD": ""},
            log_config=LogConfig(type="json-file", config={"max-size": "1m"}),
        )

    async def _spawn(self) -> Guest:
        """Start the container and wait until its supervisor has connected."""
        loop = asyncio.get_running_loop()
        path = self._folder / "s"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.setblocking(False)
            listener.bind(str(path))
            listener.listen(1)
            try:
                if self._container is None:
                    argv = [*SUPERVISOR, f"{_LINK}/s"]
                    binds = [f"{self._folder}:{_LINK}:ro"]
                    self._container = await _call(
                        self._create, str(self._image.id), argv, binds, self._name, {}
                    )
                await _call(self._container.start)
                async with asyncio.timeout(START_SECONDS):
                    link, _ = await loop.sock_accept(listener)
            except TimeoutError:
                text = self._container.logs(tail=5).decode("utf-8", "replace") if self._container else ""
                raise SandboxError(
                    f"container {self._name}: no supervisor connected; {text.strip()}"
                ) from None
            finally:
                path.unlink()  # whatever runs inside finds nothing to connect to
        link.setblocking(False)
        await _call(self._container.reload)
        return Guest(self._container, link)

    async def verify(self, task: Task) -> Verdict:
        """End the episode's container, then run tests/test.sh in a new one on the files that it left."""
        began = time.monotonic()
        if self._session is None or self._container is None:
            raise SandboxError("the sandbox is closed or was verified", retryable=False)
        session, self._session = self._session, None
        await session.stop()
        tests, logs = self._folder / "tests", self._folder / "logs"
        shutil.copytree(task.path / "tests", tests, symlinks=True)
        logs.mkdir()
        left = await _call(self._container.commit, changes=[f'LABEL {LABEL}="{self._engine.base.name}"'])
        try:
            exit_code, timed_out, log = await self._run_tests(task, str(left.id), tests, logs)
        finally:
            with contextlib.suppress(SandboxError):
                await _call(self._engine.client.images.remove, str(left.id), force=True)
        seconds = time.monotonic() - began
        return grade(task, logs, exit_code=exit_code, timed_out=timed_out, seconds=seconds, log=log)

    async def _run_tests(self, task: Task, image: str, tests: Path, logs: Path) -> tuple[int, bool, str]:
        """(exit code of test.sh, whether its time ran out, what it printed)."""
        command = tests_command(task, "ulimit -c 0; ")
        binds = [f"{tests}:/tests:ro", f"{logs}:/logs/verifier"]
        environment = {**self._environment, **TESTS_ENVIRONMENT}
        container = await _call(self._create, image, command, binds, f"{self._name}-tests", environment)
        ring = Ring()
        try:
            await _call(container.start)
            try:
                code = await asyncio.wait_for(_wait(container), task.verifier_timeout)
            except TimeoutError:
                await _call(container.kill)
                code = None
            ring.feed(await _call(container.logs))
        finally:
            await _call(container.remove, force=True, v=True)
        log = shown_text(bytes(ring.head), bytes(ring.tail), ring.total)
        return (137, True, log) if code is None else (code, False, log)

    async def close(self) -> None:
        """See base.Sandbox."""
        session, self._session = self._session, None
        if session:
            await session.stop()
        container, self._container = self._container, None
        if container:
            await _call(container.remove, force=True, v=True)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


class Guest:
    """A running container; see session.Guest."""

    def __init__(self, container: Container, link: socket.socket) -> None:
        self.link = link
        self._container = container
        self._usage = Usage.of(container.attrs["State"]["Pid"])

    def limit_hit(self) -> str:
        """See session.Guest."""
        return self._usage.hit()

    async def end(self) -> str:
        """See session.Guest."""
        import docker

        self.link.close()
        with contextlib.suppress(docker.errors.APIError):  # it has ended already
            await asyncio.to_thread(self._container.kill)
        await _wait(self._container)
        return ""


async def _wait(container: Container) -> int:
    """The exit code of a container, once it has ended."""
    delay = 0.02
    while True:
        await _call(container.reload)
        state = container.attrs["State"]
        if state["Status"] in ("exited", "dead"):
            return int(state["ExitCode"])
        await asyncio.sleep(delay)
        delay = min(2 * delay, 0.5)


async def _call(function: Any, *arguments: Any, **options: Any) -> Any:
    """A blocking call of the SDK, in a thread. Raises SandboxError."""
    import docker
    import requests

    try:
        return await asyncio.to_thread(function, *arguments, **options)
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise SandboxError(f"docker: {error}") from error


def _digest(folder: Path) -> str:
    """Of a build context: names, modes and contents."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)}\0{path.lstat().st_mode:o}\0".encode())
        if path.is_symlink():
            digest.update(os.fsencode(os.readlink(path)))
        elif path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()[:20]
