"""The real sandbox: shell, terminal, isolation, limits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox.backends import BACKENDS, SandboxError
from sandbox.backends.bubblewrap import BubblewrapBackend, BubblewrapSandbox
from sandbox.errors import InputError
from sandbox.task import Task

SHELL_PROCESSES = "ps ax -o args= | grep -c -v -e T1_ -e 'ps ax' -e grep"


@pytest.fixture(scope="module")
def backend() -> BubblewrapBackend:
    backend = BubblewrapBackend()
    backend.check()
    return backend


def make_task(
    folder: Path, toml: str = "", dockerfile: str = "FROM debian\nWORKDIR /app\nCOPY files/ /app/\n"
) -> Task:
    (folder / "tests").mkdir(parents=True)
    (folder / "environment/files/bin").mkdir(parents=True)
    (folder / "environment/files/in.txt").write_text("input\n")
    (folder / "environment/files/bin/go").write_text("#!/bin/sh\necho gone\n")
    (folder / "environment/files/bin/go").chmod(0o755)
    (folder / "environment/Dockerfile").write_text(dockerfile)
    (folder / "task.toml").write_text(toml)
    (folder / "instruction.md").write_text("Do it.\n")
    (folder / "tests/test.sh").write_text("exit 0\n")
    return Task.load(folder)


@pytest.fixture
async def box(backend: BubblewrapBackend, tmp_path: Path) -> AsyncIterator[BubblewrapSandbox]:
    sandbox = await backend.create(make_task(tmp_path / "task"))
    yield sandbox
    await sandbox.close()


async def out(box: BubblewrapSandbox, command: str, code: int = 0) -> str:
    result = await box.terminal(command, 20)
    assert (result.status, result.exit_code) == ("ok", code), result
    return result.output


async def test_state_persists(box: BubblewrapSandbox) -> None:
    assert await out(box, "cat in.txt; bin/go") == "input\ngone\n"
    assert await out(box, "cd /tmp; x=5; export E=6; f() { echo $x$1; }; alias hey='echo hey'") == ""
    assert await out(box, "f 1; pwd; sh -c 'echo $E'") == "51\n/tmp\n6\n"
    assert await out(box, "(exit 7)", 7) == ""
    assert await out(box, "echo $?") == "7\n"
    assert "not found" in await out(box, "no-such-program", 127)


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("cat <<EOF\none\ntwo\nEOF", "one\ntwo\n", 0),
        ("echo a # comment", "a\n", 0),
        ("# only a comment", "", 0),
        ("", "", 0),
        ("echo 'open", "unexpected EOF", 2),
        ("cat <<EOF\nnever closed", "never closed", 0),
        ("if true; then", "syntax error", 2),
        ("printf 'no newline'", "no newline", 0),
        ("printf '\\033[31mred\\033[0m\\r\\n'", "red\n", 0),
        ("printf '\\036abc\\037'; printf '\\036'", "abc", 0),
        ("head -c 3000 /dev/urandom | cat", "", 0),
        ("false | true; echo ${PIPESTATUS[*]}", "1 0\n", 0),
        ("stty -a | grep -o -- '-echo '", "-echo", 0),
        ("echo hi >/dev/tty; echo err >&2", "hi\nerr\n", 0),
    ],
)
async def test_commands_that_break_wrappers(
    box: BubblewrapSandbox, command: str, text: str, code: int
) -> None:
    assert text in await out(box, command, code)
    assert await out(box, "echo fine") == "fine\n"


async def test_long_command_and_long_output(box: BubblewrapSandbox) -> None:
    body = "x" * 200_000
    assert await out(box, f"cat > big <<'EOF'\n{body}\nEOF\nwc -c < big") == "200001\n"
    text = await out(box, "cat big")
    assert "bytes omitted" in text and len(text) < 9000
    assert (await out(box, "seq 300")).split() == [str(n) for n in range(1, 301)]


async def test_background_jobs_do_not_hold_the_call(box: BubblewrapSandbox) -> None:
    assert (await out(box, "sleep 300 & echo started")) == "started\n"
    assert (await out(box, "(sleep 301 &) ; setsid sleep 302 & true")) == ""
    assert (await out(box, SHELL_PROCESSES)).startswith("3\n")


async def test_timeout_kills_the_tree_and_keeps_the_shell(box: BubblewrapSandbox) -> None:
    await out(box, "x=kept; cd /tmp; f() { echo $x; }; sleep 300 & true")
    for command in (
        "sleep 100; echo no",
        "(trap '' TERM INT HUP; setsid sleep 200 & sleep 100 & wait); echo no",
        "while :; do :; done; echo no",
        "for i in 1 2 3; do sleep 100; done; echo no",
        "trap '' INT TERM USR2; sleep 100 | sleep 200; echo no",
    ):
        result = await box.terminal(command, 0.2)
        assert (result.status, result.exit_code) == ("timeout", 124)
        assert "no\n" not in result.output and result.seconds < 5
        assert await out(box, "f; pwd") == "kept\n/tmp\n"
    assert await out(box, SHELL_PROCESSES) == "1\n"  # the older background job


async def test_timeout_when_the_shell_refuses(box: BubblewrapSandbox) -> None:
    result = await box.terminal("cd /tmp; trap '' USR1 INT TERM; while :; do :; done", 0.2)
    assert (result.status, result.exit_code) == ("timeout", 124)
    assert await out(box, "echo back") == "back\n"


@pytest.mark.parametrize(
    ("command", "code"), [("cd /tmp; exit 3", 3), ("kill -9 $$", 137), ("exec false", 1)]
)
async def test_lost_shell_is_reported_and_replaced(box: BubblewrapSandbox, command: str, code: int) -> None:
    await out(box, "cd /tmp; sleep 300 & true")
    result = await box.terminal(f"echo last words; {command}", 10)
    assert (result.status, result.exit_code, result.output) == ("shell_restarted", code, "last words\n")
    assert await out(box, "pwd") == "/tmp\n"
    assert await out(box, SHELL_PROCESSES) == "1\n"


async def test_set_e_and_kill_all_leave_a_usable_shell(box: BubblewrapSandbox) -> None:
    assert "no" not in await out(box, "x=kept; set -e; false; echo no", 1)
    assert await out(box, "set +e; echo $x") == "kept\n"
    await box.terminal("set -x; kill -9 -1", 10)
    assert "usable" in (await box.terminal("echo usable", 10)).output


async def test_floods_stay_small(box: BubblewrapSandbox) -> None:
    for command in ("yes", "cat /dev/urandom", "tr '\\0' x < /dev/zero"):
        result = await box.terminal(command, 0.3)
        assert result.status == "timeout" and "bytes omitted" in result.output
        assert len(result.output.encode()) < 9000
    assert await out(box, "echo quiet") == "quiet\n"


async def test_interactive_program(box: BubblewrapSandbox) -> None:
    result = await box.terminal("cat", 20)
    assert (result.status, result.exit_code) == ("running", None)
    assert (await box.terminal("echo x", 5)).status == "running"
    assert (await box.terminal_input(["hello", "Enter"])).output == "hello\n"
    result = await box.terminal_input(["C-d"])
    assert (result.status, result.exit_code) == ("ok", 0)
    result = await box.terminal("read -p 'name? ' name; echo \"<$name>\"", 20)
    assert (result.status, result.output) == ("running", "name? ")
    assert (await box.terminal_input(["bo", "Enter"])).output == "<bo>\n"
    assert (await box.terminal("sleep 0.1; cat; echo more", 20)).status == "running"
    result = await box.terminal_input(["C-c"])
    assert result.status == "ok" and result.exit_code != 0
    assert (await box.terminal_output()).status == "ok"
    assert await out(box, "echo ${name}") == "bo\n"


async def test_output_of_background_programs(box: BubblewrapSandbox) -> None:
    await out(box, "mkfifo go; (cat go; echo late; touch done) & true")
    await out(box, "echo > go; while [ ! -e done ]; do sleep 0.01; done; wait")
    assert (await box.terminal_output()).status == "ok"


async def test_orphans_are_reaped(box: BubblewrapSandbox) -> None:
    await out(box, "for i in $(seq 200); do (true &) ; done; wait")
    assert await out(box, "sleep 0.2; ps ax -o stat= | grep -c Z", 1) == "0\n"


async def test_isolation(box: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await out(box, "ls -A /root /home /srv /opt /mnt; ls /")).split()[-1] == "var"
    assert "work" not in (await out(box, "ls /")).split()
    assert await out(box, "cat /sys/class/net/*/address /etc/shadow 2>/dev/null; ls /sys", 2) != ""
    assert (await out(box, "cat /proc/net/dev | tail -n +3 | cut -d: -f1")).split() == ["lo"]
    names = {line.split("=")[0] for line in (await out(box, "env")).splitlines()}
    assert not any(name.startswith(("T1", "PYTEST", "VIRTUAL")) for name in names)
    assert await out(box, "echo $TERM $HOME $PAGER; id -u; hostname") == "dumb /root cat\n0\nsandbox\n"
    assert "Read-only" in await out(box, "touch /usr/bin/x", 1)
    assert (
        await out(box, "echo ok > /usr/local/bin/x && cat /usr/local/bin/x; touch /etc/new /srv/new")
        == "ok\n"
    )
    assert not Path("/etc/new").exists() and not Path("/usr/local/bin/x").exists()
    assert await out(box, "ls /proc/self/fd | wc -l") == "4\n"  # no side channel is inherited
    assert "unshare" in await out(box, "unshare -U true", 1)
    assert await out(box, "mkdir d; chmod 000 d; touch d/f; ls d") == "f\n"


async def test_limits(backend: BubblewrapBackend, tmp_path: Path) -> None:
    box = await backend.create(make_task(tmp_path / "t", "[environment]\nmemory_mb = 300\nstorage_mb = 1\n"))
    assert await out(box, "ulimit -c; ulimit -v") == "0\n307200\n"
    assert "File size limit" in await out(box, "head -c 3000000 /dev/zero > f; [ $(stat -c %s f) = 1048576 ]")
    result = await box.terminal("for i in $(seq 700); do sleep 50 & done; wait", 1.5)
    assert result.status in ("timeout", "ok", "shell_restarted")
    assert await out(box, "echo alive") == "alive\n"
    await box.close()


async def test_sandboxes_are_private_and_leave_nothing(backend: BubblewrapBackend, tmp_path: Path) -> None:
    task = make_task(tmp_path / "t")
    boxes = await asyncio.gather(*[backend.create(task) for _ in range(4)])
    await asyncio.gather(
        *[out(b, f"echo {n} > /tmp/n; mkdir -p a/b; chmod 0 a; sleep 300 &") for n, b in enumerate(boxes)]
    )
    assert [await out(b, "cat /tmp/n") for b in boxes] == ["0\n", "1\n", "2\n", "3\n"]
    folders = [box._directory for box in boxes]
    shells = [box._shell for box in boxes]
    pids = [pid for shell in shells if shell for pid in shell._processes()]
    await asyncio.gather(*[box.close() for box in boxes])
    await boxes[0].close()
    assert not any(folder.exists() for folder in folders)
    assert pids and not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    with pytest.raises(SandboxError):
        await boxes[0].terminal("true", 1)


async def test_dead_sandbox_is_started_again_on_its_files(box: BubblewrapSandbox) -> None:
    await out(box, "echo saved > note")
    assert box._shell and box._shell._process
    box._shell._processes()
    os.kill(box._shell._pid1, 9)
    assert (await box.terminal("sleep 0.1", 10)).status in ("shell_restarted", "ok")
    assert await out(box, "cat note") == "saved\n"


async def test_dockerfile_that_needs_a_build_is_named(backend: BubblewrapBackend, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="RUN make"):
        await backend.create(make_task(tmp_path / "t", dockerfile="FROM debian\nRUN make\n"))
    with pytest.raises(InputError, match="/usr/bin"):
        await backend.create(
            make_task(tmp_path / "u", dockerfile="FROM debian\nCOPY files/in.txt /usr/bin/x\n")
        )


def test_registered() -> None:
    assert BACKENDS["bubblewrap"].name == "bubblewrap"
