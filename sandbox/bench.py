"""`bench rollout`: terminal commands and sandbox starts a second, next to Docker's own in the same run.
`bench load`: many episodes at once.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sandbox.agent import EpisodeLimits
from sandbox.attempt import Attempt, Counts, play
from sandbox.backends import BACKENDS, Backend, Sandbox
from sandbox.errors import InputError
from sandbox.task import Task

CONCURRENCY, ROUNDS = 2, 4
_COMMAND = "echo hi"
_Call = Callable[[int], Awaitable[None]]


def bench_rollout(*, backend_name: str, image: str, seconds: float) -> dict[str, Any]:
    """Measure a backend's commands and starts against `docker exec` and `docker run`, in turns.

    seconds: how long each of the four is measured, over ROUNDS rounds of all, CONCURRENCY at a time. A
    start of ours makes a sandbox with a terminal, runs a command in it and removes it; `docker run --rm`
    runs the command. Returns the object that `bench` writes; units are per second. Raises InputError
    without a Docker engine that has `image`.
    """
    if backend_name not in BACKENDS:
        raise InputError(f"backend: {backend_name!r}, expected one of {', '.join(BACKENDS)}")
    if seconds <= 0:
        raise InputError(f"seconds: {seconds:g}, expected a number above 0")
    if not shutil.which("docker"):
        raise InputError("bench rollout: no docker command, expected Docker's client to compare with")
    backend = BACKENDS[backend_name]
    backend.check()
    BACKENDS["docker"].check()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(_measure(backend, _task(Path(folder) / "bench", image), image, seconds / ROUNDS))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"
    return {"bench": "rollout", "machine": machine, "backend": backend_name, "rows": rows}


def bench_load(*, backend_name: str, episodes: int, commands: int) -> dict[str, Any]:
    """Play `episodes` at once that run `commands` commands in sum, each with its own answer, and grade them.

    Returns the object that `bench` writes: "errors" counts episodes that failed or were not graded 1, and
    commands with another answer. Raises InputError.
    """
    if backend_name not in BACKENDS:
        raise InputError(f"backend: {backend_name!r}, expected one of {', '.join(BACKENDS)}")
    if episodes < 1 or commands < episodes:
        raise InputError(f"episodes: {episodes}, commands: {commands}, expected commands >= episodes >= 1")
    backend = BACKENDS[backend_name]
    backend.check()
    each = -(-commands // episodes)
    with tempfile.TemporaryDirectory() as folder:
        task = _task(Path(folder) / "bench", "debian:bookworm-slim")
        (task.path / "tests/test.sh").write_text(
            f"[ $(wc -l </app/log) = {each} ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
        )
        began = time.monotonic()
        attempts, wrong, slowest = asyncio.run(_load(backend, task, episodes, each))
        seconds = time.monotonic() - began
    failed = sum(attempt.reward != 1.0 or attempt.retries > 0 for attempt in attempts)
    return {
        "bench": "load",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        "backend": backend_name,
        "episodes": episodes,
        "commands": each * episodes,
        "errors": failed + wrong,
        "seconds": round(seconds, 2),
        "commands_per_second": round(each * episodes / seconds, 1),
        "slowest_command_seconds": round(slowest, 3),
    }


async def _load(backend: Backend, task: Task, episodes: int, each: int) -> tuple[list[Attempt], int, float]:
    wrong, slowest = 0, 0.0

    async def act(sandbox: Sandbox, task: Task, attempt: int, counts: Counts) -> str:
        nonlocal wrong, slowest
        for n in range(each):
            result = await sandbox.terminal(f"echo {attempt} {n} | tee -a log", 120)
            wrong += (result.output, result.exit_code) != (f"{attempt} {n}\n", 0)
            slowest = max(slowest, result.seconds)
        return "finish"

    limits = EpisodeLimits(infra_retries=0)
    attempts = await asyncio.gather(
        *(play(task, act, backend, limits, attempt=number) for number in range(episodes))
    )
    return attempts, wrong, slowest


def _task(folder: Path, image: str) -> Task:
    for name in ("tests", "environment"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text("")
    (folder / "instruction.md").write_text("Nothing.\n")
    (folder / "tests/test.sh").write_text("exit 0\n")
    (folder / "environment/Dockerfile").write_text(f"FROM {image}\nWORKDIR /app\n")
    return Task.load(folder)


async def _measure(backend: Backend, task: Task, image: str, seconds: float) -> list[dict[str, Any]]:
    name = f"t1-bench-{os.getpid()}"
    await _docker("run", "--detach", "--init", "--network", "none", "--name", name, image, "sleep", "86400")
    boxes = [await backend.create(task) for _ in range(CONCURRENCY)]

    async def command(worker: int) -> None:
        result = await boxes[worker].terminal(_COMMAND, 30)
        assert result.output == "hi\n", result

    async def start(_: int) -> None:
        box = await backend.create(task)
        result = await box.terminal(_COMMAND, 30)
        await box.close()
        assert result.output == "hi\n", result

    async def docker_exec(_: int) -> None:
        await _docker("exec", name, "bash", "-c", _COMMAND)

    async def docker_run(_: int) -> None:
        await _docker("run", "--rm", "--init", "--network", "none", image, "bash", "-c", _COMMAND)

    works: dict[str, tuple[_Call, _Call, str]] = {
        "commands": (command, docker_exec, "docker exec"),
        "starts": (start, docker_run, "docker run"),
    }
    counts = {work: [0.0, 0.0] for work in works}
    try:
        for ours, peer, _ in works.values():  # once, unmeasured: caches fill
            await ours(0)
            await peer(0)
        for _ in range(ROUNDS):
            for work, (ours, peer, _) in works.items():
                for side, one in enumerate((ours, peer)):
                    counts[work][side] += await _rate(one, seconds) / ROUNDS
    finally:
        await asyncio.gather(*(box.close() for box in boxes))
        await _docker("rm", "--force", "--volumes", name)
    return [
        {
            "work": work,
            "unit": f"{work}/s",
            "ours": round(rate, 2),
            "peer": round(peer_rate, 3),
            "peer_name": works[work][2],
            "ratio": round(rate / peer_rate, 2),
        }
        for work, (rate, peer_rate) in counts.items()
    ]


async def _rate(one: _Call, seconds: float) -> float:
    """How many calls a second CONCURRENCY workers complete; each finishes the call that it is in."""
    began = time.monotonic()

    async def worker(index: int) -> int:
        count = 0
        while not count or time.monotonic() - began < seconds:
            await one(index)
            count += 1
        return count

    done = sum(await asyncio.gather(*map(worker, range(CONCURRENCY))))
    return done / (time.monotonic() - began)


async def _docker(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "docker", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode:
        text = output.decode("utf-8", "replace").strip().splitlines()
        raise InputError(f"bench rollout: docker {words[0]}: {text[-1] if text else process.returncode}")
