"""Rewards from result files, and verification that an episode cannot influence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sandbox.backends import BACKENDS
from sandbox.errors import InputError
from sandbox.solution import run_solution
from sandbox.task import Task
from sandbox.verifier import RESULT_LIMIT, Verdict, compute_reward, grade

RUNNER = """
import json, os, sys
assert os.path.isfile("/tests/run.py") and not os.path.exists("/tests/conftest.py") and os.getcwd() == "/app"
entries = [
    {"name": name, "status": "passed" if os.path.exists("/app/" + name[-1]) else "failed"}
    for name in ("test_a", "test_b")
]
with open("/logs/verifier/ctrf.json", "x") as file:
    json.dump({"results": {"tests": entries}}, file)
print("graded with", sys.executable)
"""


def make_task(
    folder: Path, tests: list[str] | None = None, script: str = "exec python3 -I -S /tests/run.py\n"
) -> Task:
    for name in ("tests", "solution", "environment"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text(
        f"[metadata]\ntests = {json.dumps(tests or [])}\n[verifier]\ntimeout_sec = 20\n"
    )
    (folder / "instruction.md").write_text("Make /app/a and /app/b.\n")
    (folder / "tests/test.sh").write_text(script)
    (folder / "tests/run.py").write_text(RUNNER)
    (folder / "solution/solve.sh").write_text("touch a b\n")
    return Task.load(folder)


async def play(task: Task, *commands: str, backend: str = "bubblewrap") -> Verdict:
    sandbox = await BACKENDS[backend].create(task)
    try:
        for command in commands:
            await sandbox.terminal(command, 10)
        return await sandbox.verify(task)
    finally:
        await sandbox.close()


def test_formula() -> None:
    both = {"test_a": True, "test_b": True}
    half = {"test_a": True, "test_b": False}
    assert compute_reward({}, both) == 1.0
    assert compute_reward({}, half) == 0.25
    assert compute_reward({"test_weights": {"test_a": 3}}, half) == 0.375
    assert compute_reward({"stub_baseline": 0.5}, half) == 0.0
    assert compute_reward({"stub_baseline": 0.25}, half) == pytest.approx(0.5 / 3)
    assert compute_reward({"stub_baseline": 0.9}, dict.fromkeys(both, False)) == 0.0
    for bad in (
        {"stub_baseline": 1},
        {"test_weights": {"test_a": -1}},
        {"test_weights": {"test_a": 0, "test_b": 0}},
    ):
        with pytest.raises(InputError):
            compute_reward(bad, both)


def read(task: Task, logs: Path, **given: object) -> Verdict:
    settings: dict = {"exit_code": 0, "timed_out": False, "seconds": 1.0, "log": ""} | given
    return grade(task, logs, **settings)


def test_ctrf(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", ["test_a", "test_b"])

    def ctrf(*entries: tuple[object, object]) -> Verdict:
        tests = [{"name": name, "status": status} for name, status in entries]
        (tmp_path / "ctrf.json").write_text(json.dumps({"results": {"tests": tests}}))
        return read(task, tmp_path)

    assert read(task, tmp_path).status == "no_reward"
    assert ctrf(("test_a", "passed"), ("test_b", "passed")).solved
    assert ctrf(("f.py::test_a", "passed"), ("f.py::test_b", "passed")).reward == 1.0
    verdict = ctrf(("test_a", "passed"), ("test_c", "passed"))
    assert (verdict.reward, verdict.tests, verdict.solved) == (0.25, {"test_a": True, "test_b": False}, False)
    assert ctrf(("test_a", "skipped"), ("test_b", "passed")).reward == 0.25
    assert ctrf(("test_a", "passed"), ("test_a", "failed"), ("test_b", "passed")).reward == 0.25
    assert ctrf((3, "passed")).reward == 0.0
    assert read(task, tmp_path, timed_out=True).status == "timeout"
    assert read(task, tmp_path, exit_code=137).status == "no_reward"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"results": 3}', "[" * 100_000, "x" * (RESULT_LIMIT + 1)])
def test_unreadable_ctrf(tmp_path: Path, text: str) -> None:
    task = make_task(tmp_path / "t", ["test_a"])
    (tmp_path / "ctrf.json").write_text(text)
    verdict = read(task, tmp_path)
    assert (verdict.status, verdict.reward) == ("parse_error", 0.0)


def test_links_and_fifos_are_not_read(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t")
    (tmp_path / "one").write_text("1")
    (tmp_path / "reward.txt").symlink_to(tmp_path / "one")
    assert read(task, tmp_path).status == "parse_error"
    (tmp_path / "reward.txt").unlink()
    os.mkfifo(tmp_path / "reward.txt")
    assert read(task, tmp_path).status == "parse_error"


@pytest.mark.parametrize(
    ("name", "text", "reward"),
    [
        ("reward.txt", " 1\n", 1.0),
        ("reward.txt", "0.25", 0.25),
        ("reward.json", "0.5", 0.5),
        ("reward.json", '{"reward": 1, "speed": 0}', 1.0),
        ("reward.json", '{"correctness": 0.5}', 0.5),
        ("reward.txt", "", None),
        ("reward.txt", "nan", None),
        ("reward.txt", "1e309", None),
        ("reward.txt", "100", None),
        ("reward.txt", "-1", None),
        ("reward.txt", "1 or so", None),
        ("reward.json", "NaN", None),
        ("reward.json", '"1"', None),
        ("reward.json", '{"correctness": 1, "speed": 0.5}', 0.75),
        ("reward.json", '{"correctness": true, "speed": 2}', None),
        ("reward.json", '{"correctness": 1, "speed": NaN}', None),
        ("reward.json", '{"reward": "1", "speed": 1}', None),
        ("reward.json", "{}", None),
    ],
)
def test_public_reward_files(tmp_path: Path, name: str, text: str, reward: float | None) -> None:
    task = make_task(tmp_path / "t")
    (tmp_path / name).write_text(text)
    verdict = read(task, tmp_path)
    assert (verdict.status, verdict.reward) == (
        ("scored", reward) if reward is not None else ("parse_error", 0.0)
    )


async def test_honest_episodes(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", ["test_a", "test_b"])
    verdict = await play(task)
    assert (verdict.reward, verdict.status) == (0.0, "scored")
    verdict = await play(task, "touch a")
    assert (verdict.reward, verdict.tests) == (0.25, {"test_a": True, "test_b": False})
    sandbox = await BACKENDS["bubblewrap"].create(task)
    await sandbox.terminal("cd /tmp", 5)
    assert (await run_solution(sandbox, task)).exit_code == 0
    verdict = await sandbox.verify(task)
    await sandbox.close()
    assert verdict.solved and verdict.reward == 1.0 and "graded with" in verdict.log


LEFT_RUNNING = """
import os, signal, time
for number in range(1, 64):
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
for _ in range(2):  # a daemon of a session of its own
    if os.fork():
        os._exit(0)
    os.setsid()
while True:
    for folder in ("/tests", "/logs", "/logs/verifier"):
        if os.path.isdir(folder):
            open("/app/a", "w").write("seen " + folder)
            open("/app/b", "w").close()
    time.sleep(0.001)
"""


async def test_no_process_of_the_episode_lives_to_see_the_tests(tmp_path: Path) -> None:
    script = (
        "sleep 0.3; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q '[l]urker' && touch /app/a /app/b\n"
        "exec python3 -I -S /tests/run.py\n"
    )
    task = make_task(tmp_path / "t", ["test_a", "test_b"], script)
    verdict = await play(
        task, f"cat > lurker.py <<'END'\n{LEFT_RUNNING}END\n/.t1/bin/python3 -S lurker.py; ls"
    )
    assert (verdict.status, verdict.reward) == ("scored", 0.0), verdict


FORGED = json.dumps(
    {"results": {"tests": [{"name": name, "status": "passed"} for name in ("test_a", "test_b")]}}
)
LOOP = (
    f"mkdir -p /logs/verifier; while :; do echo '{FORGED}' > /logs/verifier/ctrf.json; "
    "echo 1 > /logs/verifier/reward.txt; done"
)


@pytest.mark.parametrize(
    "commands",
    [
        [
            f"mkdir -p /logs/verifier && echo '{FORGED}' > /logs/verifier/ctrf.json && "
            "echo 1 > /logs/verifier/reward.txt"
        ],
        ["mkdir -p /tests; echo 'raise SystemExit' > /tests/run.py; touch /tests/conftest.py"],
        ["mkdir -p /x; ln -s /x /tests; ln -s /x /logs; ln -s /x /.verifier"],
        [
            "printf '#!/bin/sh\\ntouch /app/a /app/b\\nexec true' > /usr/local/bin/python3; "
            "chmod +x /usr/local/bin/python3"
        ],
        [f"setsid nohup bash -c {LOOP!r} >/dev/null 2>&1 & true"],
        ["rm /bin; mkdir /bin; printf '#!/usr/bin/touch /app/a' > /bin/bash; chmod +x /bin/bash"],
        ["cp -r /lib64/ /evil 2>/dev/null; rm -f /lib64; mkdir /lib64"],
        ["echo /app/evil.so > /etc/ld.so.preload; echo garbage > /app/evil.so"],
        [
            "mkdir -p /root/.local/lib; echo 'touch /app/a' > /root/.bashrc; cp /root/.bashrc /root/.profile "
            "/root/.bash_env"
        ],
        [
            "export BASH_ENV=/app/e PYTHONPATH=/app PYTHONSTARTUP=/app/e; echo 'touch /app/a' > /app/e; "
            "echo 1/0 > /app/json.py"
        ],
        ['echo \'open("/app/a", "w")\' > /app/sitecustomize.py; cp /app/sitecustomize.py /app/os.py'],
        ["mv /etc /etc2; ln -s /app /etc", "mv /tmp /tmp2; ln -s / /tmp"],
        ["rm -rf /app /var /opt /etc/* /root 2>/dev/null; mkdir /app"],
        ["for f in /usr/bin/python3* /usr/bin/bash; do printf '#!/bin/sh\ntouch /app/a' > $f; done"],
        ["d=$(echo /usr/lib/*/libc.so.6); mkdir -p ${d%/*}/glibc-hwcaps/x86-64-v2; cp /bin/true $d"],
        ["mkdir -p /usr/lib/python3.11 /usr/lib/python3.12; echo x > /usr/lib/python311.zip"],
        [
            "mkdir -p /usr/lib/python3/dist-packages; "
            "echo 'import os; os.mknod(\"/app/a\")' > /usr/lib/python3/dist-packages/x.pth"
        ],
        [
            "(crontab -l; echo '* * * * * touch /app/a') | crontab",
            f"mkdir -p /logs; (sleep 1; {LOOP}) & disown",
        ],
        ["trap 'touch /app/a /app/b' EXIT TERM HUP; sleep 1000 & true"],
        [
            "echo 'touch /app/a' > /etc/profile.d/x.sh; echo 'touch /app/a' >> /etc/bash.bashrc; "
            "echo 'ENV=/app/e' > /etc/environment"
        ],
        ["mkdir -p /.t1 && touch /.t1/bin/python3; ln -sfn /app /.t1/bin; mv /.t1 /.t2"],
        ["ln -s /nowhere /app/a; ln -s b /app/b"],
        ["rm -rf /logs /tests; touch /logs; mkfifo /tests"],
        [
            "chattr +i / 2>/dev/null; mkdir -p /tests/sub; chmod 000 /tests; "
            "mount --bind /app /tests 2>/dev/null"
        ],
    ],
)
async def test_planted_files_earn_nothing(tmp_path: Path, commands: list[str]) -> None:
    task = make_task(tmp_path / "t", ["test_a", "test_b"])
    verdict = await play(task, *commands)
    assert (verdict.status, verdict.reward) == ("scored", 0.0), verdict
    assert "graded with" in verdict.log


@pytest.fixture
def docker() -> str:
    try:
        BACKENDS["docker"].check()
        BACKENDS["docker"]._prepare().client.images.get("debian:bookworm-slim")  # type: ignore[attr-defined]
    except Exception as error:
        pytest.skip(
            f"needs a Docker engine with the image debian:bookworm-slim, as .ci/run starts one: {error}"
        )
    return "docker"


async def test_planted_files_earn_nothing_in_docker(tmp_path: Path, docker: str) -> None:
    """Each of them in one container, which takes a second to start and one to grade."""
    task = make_task(tmp_path / "t", ["test_a", "test_b"])
    (task.path / "environment/Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\n")
    verdict = await play(
        task,
        f"mkdir -p /logs/verifier && echo '{FORGED}' > /logs/verifier/ctrf.json",
        "mkdir -p /tests; touch /tests/conftest.py",
        f"setsid nohup bash -c {LOOP!r} >/dev/null 2>&1 & true",
        "printf '#!/bin/sh\ntouch /app/a /app/b' > /usr/local/bin/python3; chmod +x /usr/local/bin/python3",
        "cp /usr/local/bin/python3 /usr/bin/python3; cp /usr/local/bin/python3 /usr/bin/env",
        "export BASH_ENV=/app/e; echo 'touch /app/a' > /app/e; cp /app/e /etc/bash.bashrc",
        "echo /app/evil.so > /etc/ld.so.preload; echo garbage > /app/evil.so",
        "rm -f /lib64/ld-linux-x86-64.so.2 /bin/bash",
        backend=docker,
    )
    assert (verdict.status, verdict.reward) == ("scored", 0.0), verdict
    assert "graded with /.t1/bin/python3" in verdict.log
    honest = await play(task, "touch a b", backend=docker)
    assert honest.solved and honest.reward == 1.0, honest


async def test_timeout_and_silence(tmp_path: Path) -> None:
    slow = make_task(tmp_path / "slow", ["test_a"], "sleep 60 & sleep 60\n")
    object.__setattr__(slow, "verifier_timeout", 0.3)
    verdict = await play(slow)
    assert (verdict.status, verdict.reward, verdict.tests) == ("timeout", 0.0, {"test_a": False})
    silent = make_task(tmp_path / "silent", ["test_a"], "echo nothing; exit 1\n")
    verdict = await play(silent)
    assert (verdict.status, verdict.log) == ("no_reward", "nothing\n")


async def test_daemon_of_the_tests_does_not_hold_them(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", [], "sleep 600 & echo 1 > /logs/verifier/reward.txt\n")
    verdict = await play(task)
    assert (verdict.status, verdict.reward) == ("scored", 1.0)


async def test_public_task_without_workdir_left(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", [], "pwd; echo 0.5 > /logs/verifier/reward.txt\n")
    verdict = await play(task, "cd /; rm -rf /app")
    assert (verdict.reward, verdict.log) == (0.5, "/\n")


FORGER = f"""#!/bin/bash
echo '{FORGED}' > /app/forged
(while :; do cat /app/forged > /logs/verifier/ctrf.json; done) </dev/null >/dev/null 2>&1 &
"""


async def test_a_program_that_the_tests_start_cannot_write_their_results(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", ["test_a", "test_b"], "exec python3 -I -S /tests/run_tests.py\n")
    runner = Path(__file__).parents[2] / "sandbox/factory/run_tests.py"
    (task.path / "tests/run_tests.py").write_text(runner.read_text())
    (task.path / "tests/test_outputs.py").write_text(
        "import os, time\n\ndef test_a():\n    os.system('/app/s')\n    time.sleep(0.1)\n    assert False\n\n"
        "def test_b():\n    assert False\n"
    )
    verdict = await play(task, f"cat > s <<'END'\n{FORGER}END\nchmod +x s")
    assert (verdict.status, verdict.reward) == ("scored", 0.0), verdict
    assert "FAILED test_a" in verdict.log
