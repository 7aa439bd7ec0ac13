"""Nothing outlives its service on the host: not a clean end, and not kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.backends import BACKENDS, cgroups
from sandbox.backends.bubblewrap import BubblewrapBackend
from sandbox.backends.lease import remove_tree
from sandbox.backends.processes import children
from sandbox.errors import InputError
from sandbox.task import Task

HOLDER = """
import asyncio, json, sys, time
from sandbox.backends import BACKENDS
from sandbox.task import Task

async def main():
    backend = BACKENDS[sys.argv[1]]
    box = await backend.create(Task.load(sys.argv[2]))
    await box.terminal("sleep 300 & setsid sleep 301 & true", 10)
    shared = backend._host if sys.argv[1] == "bubblewrap" else backend._prepare()
    print(json.dumps({"base": str(shared.base)}), flush=True)
    time.sleep(600)

asyncio.run(main())
"""


def simple_task(folder: Path, dockerfile: str = "FROM debian:bookworm-slim\nWORKDIR /app\n") -> Task:
    for name in ("tests", "environment"):
        (folder / name).mkdir(parents=True)
    (folder / "environment/Dockerfile").write_text(dockerfile)
    (folder / "environment/in.txt").write_text("input\n")
    (folder / "task.toml").write_text("")
    (folder / "instruction.md").write_text("Do it.\n")
    (folder / "tests/test.sh").write_text("exit 0\n")
    return Task.load(folder)


def gone(there: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while there() and time.monotonic() < end:
        time.sleep(0.1)
    return not there()


def traces(base: str) -> list[str]:
    """What the host has of a lease: folders, mounts, control groups, processes that name it."""
    name = Path(base).name
    found = [base] if os.path.exists(base) else []
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if name in line]
    for parent in dict.fromkeys(cgroups.available().values()):
        found += [str(folder) for folder in parent.glob(f"{name}*")]
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if name.encode() in command and b"janitor" not in command:
            found.append(command.decode("utf-8", "replace"))
    return found


@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_kill_9_of_the_service_leaves_nothing(name: str, tmp_path: Path) -> None:
    if name == "docker":
        try:
            BACKENDS[name].check()
            BACKENDS[name]._prepare().client.images.get("debian:bookworm-slim")  # type: ignore[attr-defined]
        except Exception as error:
            pytest.skip(f"needs a Docker engine with the image debian:bookworm-slim: {error}")
    simple_task(tmp_path / "task")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, name, str(tmp_path / "task")], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert process.stdout
    base = json.loads(process.stdout.readline())["base"]
    inside = [pid for child in children(process.pid) for pid in children(child)]
    assert traces(base)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(lambda: bool(traces(base))), traces(base)
    assert gone(lambda: any(os.path.exists(f"/proc/{pid}") for pid in inside))
    if name == "docker":
        client = BACKENDS[name]._prepare().client  # type: ignore[attr-defined]
        label = f"t1-jax.owner={Path(base).name}"
        assert gone(lambda: bool(client.containers.list(all=True, filters={"label": label})))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts anything, here as in the backend")
def test_a_mount_of_the_same_file_system_is_unmounted_and_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host/file").write_text("kept")
    (tmp_path / "base/usr").mkdir(parents=True)
    (tmp_path / "base/link").symlink_to(tmp_path / "host")
    subprocess.run(["mount", "--bind", str(tmp_path / "host"), str(tmp_path / "base/usr")], check=True)
    assert (tmp_path / "base/usr/file").exists()
    remove_tree(tmp_path / "base")
    assert (tmp_path / "host/file").read_text() == "kept" and not (tmp_path / "base").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only as root do sandboxes belong to users of their own")
def test_a_folder_that_the_sandboxes_users_can_not_reach_is_named(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    tmp_path.chmod(0o700)
    with pytest.raises(InputError, match=rf"{tmp_path} is closed to .* set TMPDIR"):
        BubblewrapBackend(tmp_path / "open").check()


async def test_a_closed_sandbox_leaves_nothing(tmp_path: Path) -> None:
    backend = BubblewrapBackend()
    task = simple_task(tmp_path / "task")
    boxes = await asyncio.gather(*[backend.create(task) for _ in range(4)])
    for n, box in enumerate(boxes):
        await box.terminal(f"echo {n} > /tmp/n; mkdir -p a/b; chmod 0 a; sleep 300 & true", 10)
    assert [(await box.terminal("cat /tmp/n", 10)).output for box in boxes] == ["0\n", "1\n", "2\n", "3\n"]
    assert backend._host
    before = len(list(backend._host.base.glob("s?*")))
    await asyncio.gather(*[box.close() for box in boxes])
    await boxes[0].close()
    assert before - len(list(backend._host.base.glob("s?*"))) == 4
    assert not [line for line in traces(str(backend._host.base)) if f"{backend._host.base.name}-" in line]


async def test_a_sandbox_whose_first_process_died_goes_on_with_its_files(tmp_path: Path) -> None:
    box = await BACKENDS["bubblewrap"].create(simple_task(tmp_path / "task"))
    await box.terminal("echo saved > note", 10)
    process = box._session._guest.process  # type: ignore[attr-defined]
    os.kill(children(process.pid)[0], signal.SIGKILL)
    assert (await box.terminal("sleep 0.1", 10)).status == "shell_restarted"
    assert (await box.terminal("cat note", 10)).output == "saved\n"
    await box.close()


async def test_a_dockerfile_that_needs_a_build_is_named(tmp_path: Path) -> None:
    backend = BACKENDS["bubblewrap"]
    with pytest.raises(InputError, match="RUN make"):
        await backend.create(simple_task(tmp_path / "a", "FROM debian\nRUN make\n"))
    with pytest.raises(InputError, match="/usr/bin"):
        await backend.create(simple_task(tmp_path / "b", "FROM debian\nCOPY in.txt /usr/bin/x\n"))


def test_how_limits_are_held_is_said() -> None:
    assert BACKENDS["bubblewrap"].limits().startswith("limits: memory by ")  # type: ignore[attr-defined]


def test_an_engine_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox.backends.docker import DockerBackend

    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    with pytest.raises(InputError, match="no Docker engine answers"):
        DockerBackend().check()
