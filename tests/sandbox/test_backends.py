"""The contract of every backend: a real terminal, limits that hold, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandbox.backends import BACKENDS, Backend, Sandbox, SandboxError, network
from sandbox.backends.toolchain import PLACE
from sandbox.errors import InputError
from sandbox.task import Task

IMAGE = "debian:bookworm-slim"
PYTHON = f"{PLACE}/bin/python3 -S"  # that of the toolchain: an image may have none
# A file of the host that an episode has no business with.
README = Path(__file__).parents[2] / "README.md"
DOCKERFILE = f"FROM {IMAGE}\nWORKDIR /app\nCOPY files/ /app/\n"
SLEEPERS = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep -c '^sleep'"
NO_SLEEPERS = (
    "for p in /proc/[0-9]*; do read -r _ name _ <$p/stat && [ $name = '(sleep)' ] && kill -9 ${p#/proc/}; "
    "done 2>/dev/null"
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


def make_task(folder: Path, toml: str = "", dockerfile: str = DOCKERFILE) -> Task:
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


@pytest.fixture(scope="module", params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    backend = BACKENDS[request.param]
    if request.param == "docker":
        try:
            backend.check()
            backend._prepare().client.images.get(IMAGE)  # type: ignore[attr-defined]
        except Exception as error:
            pytest.skip(f"needs a Docker engine with the image {IMAGE}, as .ci/run starts one: {error}")
    return backend


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return make_task(tmp_path_factory.mktemp("contract") / "task")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(backend: Backend, task: Task) -> AsyncIterator[Sandbox]:
    sandbox = await backend.create(task)
    yield sandbox
    await sandbox.close()


@pytest_asyncio.fixture(loop_scope="module")
async def box(shared: Sandbox) -> Sandbox:
    """The module's sandbox, its shell put back; starting one for each test would take Docker a minute."""
    result = await shared.terminal("exit", 10)
    assert result.status == "shell_restarted"
    await out(shared, f"set +eux; cd /app; rm -rf /app/* /tmp/*; unset x E; {NO_SLEEPERS}; true")
    return shared


async def out(box: Sandbox, command: str, code: int = 0, timeout: float = 30) -> str:
    result = await box.terminal(command, timeout)
    assert (result.status, result.exit_code) == ("ok", code), result
    return result.output


async def test_task_files_and_state(backend: Backend, task: Task) -> None:
    box = await backend.create(task)
    assert await out(box, "cat in.txt; bin/go; pwd") == "input\ngone\n/app\n"
    assert await out(box, "cd /tmp; x=5; export E=6; f() { echo $x$1; }; alias hey='echo hey'") == ""
    assert await out(box, "f 1; pwd; sh -c 'echo $E'") == "51\n/tmp\n6\n"
    assert await out(box, "(exit 7)", 7) == ""
    assert await out(box, "echo $?") == "7\n"
    assert await out(box, "no-such-program", 127) == "bash: line 25: no-such-program: command not found\n"
    await box.close()
    with pytest.raises(SandboxError):
        await box.terminal("true", 1)
    await box.close()


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
        ("for i in 1 2\ndo\n  echo $i\ndone\n\n# end", "1\n2\n", 0),
        ("printf 'caf\\303\\251 \\377'", "caf\u00e9 \ufffd", 0),
        ("printf 'where?\\033[6n\\033]11;?\\007'; sleep 0.05; echo asked", "where?asked\n", 0),
        ("printf 'D0\\0\\0/tmp\\0\\0'; false", "D0/tmp", 1),
        ("tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size", "/dev/pts/0\n40 160\n", 0),
        ("ls /proc/self/fd | wc -l", "4\n", 0),
    ],
)
async def test_commands_that_break_wrappers(box: Sandbox, command: str, text: str, code: int) -> None:
    assert text in await out(box, command, code)
    assert await out(box, "echo fine") == "fine\n"


async def test_a_command_of_a_megabyte(box: Sandbox) -> None:
    body = "x" * (1 << 20)
    assert await out(box, f"cat > big <<'EOF'\n{body}\nEOF\nwc -c < big") == f"{len(body) + 1}\n"


async def test_long_output_is_cut_and_kept_whole_inside(box: Sandbox) -> None:
    assert (await out(box, "seq 300")).split() == [str(n) for n in range(1, 301)]
    text = await out(box, "seq 200000")
    assert text.startswith("1\n2\n") and text.endswith("\n199999\n200000\n") and len(text) < 8500
    path = text.split("whole output in ")[1].split(" ")[0]
    assert await out(box, f"seq 200000 | cmp - {path} && echo same") == "same\n"


async def test_background_jobs_do_not_hold_the_call(box: Sandbox) -> None:
    began = time.monotonic()
    assert (await out(box, "sleep 300 & echo started")) == "started\n"
    assert (await out(box, "(sleep 301 &) ; (setsid sleep 302 &)")) == ""
    assert time.monotonic() - began < 2 + slack()
    assert await out(box, "sleep 0.1; " + SLEEPERS) == "3\n"
    assert "Terminated" in await out(box, "kill %1; wait %1", 143)


async def test_background_programs_outlive_a_shell_and_are_seen(box: Sandbox) -> None:
    await out(box, "mkfifo go; (cat go; echo late; touch done) & true")
    await out(box, "echo > go; while [ ! -e done ]; do sleep 0.01; done; wait")
    assert (await box.terminal_output()).status == "ok"
    await out(box, "sleep 300 & true")
    assert (await box.terminal("exit 3", 10)).status == "shell_restarted"
    assert await out(box, SLEEPERS) == "1\n"


async def test_timeout_kills_the_tree_and_keeps_the_shell(box: Sandbox) -> None:
    await out(box, "x=kept; cd /tmp; f() { echo $x; }; sleep 300 & true")
    for command in (
        "sleep 100; echo no",
        "(trap '' TERM INT HUP; setsid sleep 200 & sleep 100 & wait); echo no",
        "while :; do :; done; echo no",
        "for i in 1 2 3; do sleep 100; done; echo no",
        "trap '' INT TERM USR2; sleep 100 | sleep 200; echo no",
    ):
        result = await box.terminal(f"echo before; {command}", 0.3)
        assert (result.status, result.exit_code) == ("timeout", 124)
        assert result.output.startswith("before\n") and "no\n" not in result.output
        assert result.seconds < 1.3 + 3 * slack()
        assert await out(box, "f; pwd") == "kept\n/tmp\n"
    assert await out(box, SLEEPERS) == "1\n"  # the older background job


async def test_timeout_when_the_shell_refuses(box: Sandbox) -> None:
    await out(box, "cd /tmp; export E=kept")
    result = await box.terminal("trap '' USR1 INT TERM; while :; do :; done", 0.2)
    assert (result.status, result.exit_code) == ("timeout", 124)
    assert await out(box, "echo $E $PWD") == "kept /tmp\n"


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("exec false", 1)])
async def test_lost_shell_is_reported_and_replaced(box: Sandbox, command: str, code: int) -> None:
    await out(box, "cd /tmp; export E='a\nb'\"'\"")
    result = await box.terminal(f"echo last words; {command}", 10)
    assert (result.status, result.exit_code, result.output) == ("shell_restarted", code, "last words\n")
    assert await out(box, 'echo "$PWD $E"') == "/tmp a\nb'\n"


async def test_set_e_and_closed_streams_leave_a_usable_shell(box: Sandbox) -> None:
    assert "no" not in await out(box, "x=kept; set -e; false; echo no", 1)
    assert await out(box, "set +e; echo $x") == "kept\n"
    assert "unbound" in await out(box, "set -u; echo $nope", 127)
    assert await out(box, "set +u; echo $x") == "kept\n"
    await box.terminal("exec <&- >&- 2>&-", 10)
    await box.terminal("exit", 10)
    assert await out(box, "echo back") == "back\n"
    await box.terminal("set -x; kill -9 -1", 10)
    assert "usable" in (await box.terminal("echo usable", 10)).output


async def test_floods_stay_small(box: Sandbox) -> None:
    for command in ("yes", "cat /dev/urandom", "tr '\\0' x < /dev/zero"):
        result = await box.terminal(command, 0.3)
        assert result.status == "timeout" and "bytes omitted" in result.output
        assert len(result.output.encode()) < 9000
    assert await out(box, "echo quiet") == "quiet\n"


async def test_programs_that_wait_for_input(box: Sandbox) -> None:
    result = await box.terminal("cat", 20)
    assert (result.status, result.exit_code) == ("running", None)
    assert (await box.terminal("echo x", 5)).status == "running"
    assert (await box.terminal_input(["hello", "Enter"])).output == "hello\n"
    result = await box.terminal_input(["C-d"])
    assert (result.status, result.exit_code) == ("ok", 0)
    result = await box.terminal("read -s -p 'password: ' word; echo \"<$word>\"", 20)
    assert (result.status, result.output) == ("running", "password: ")
    assert "<bo>\n" in (await box.terminal_input(["bo", "Enter"])).output
    assert (await box.terminal("sleep 0.1; cat; echo more", 20)).status == "running"
    result = await box.terminal_input(["C-c"])
    assert result.status == "ok" and result.exit_code and "more" not in result.output
    assert (await box.terminal_output()).status == "ok"
    assert await out(box, "echo ${word}") == "bo\n"


async def test_full_screen_programs(box: Sandbox) -> None:
    """As editors and pagers do: raw mode, an alternate screen, keys one at a time."""
    script = (
        "stty raw; printf '\\033[?1049h\\033[H'; dd bs=1 count=3 status=none | od -c; stty cooked; echo bye"
    )
    assert (await box.terminal(script, 20)).status == "running"
    result = await box.terminal_input(["Up"])
    assert result.status == "ok" and "033   [   A" in result.output and "bye" in result.output
    assert await out(box, "stty -a | grep -o -- '-echo '") == "-echo \n"


async def test_orphans_are_reaped(box: Sandbox) -> None:
    await out(box, "for i in $(seq 200); do (true &) ; done; wait")
    assert await out(box, "sleep 0.2; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z'", 1) == "0\n"


async def test_fork_bomb(box: Sandbox) -> None:
    result = await box.terminal("f() { f | f & }; f; sleep 30", 1.0)
    assert result.status in ("timeout", "ok", "shell_restarted") and result.seconds < 4 + 10 * slack()
    assert "alive" in (await box.terminal("echo alive", 20)).output


async def test_upload_replaces_and_follows_no_link(box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/run.sh").write_text("echo ran\n")
    (tmp_path / "sub/run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("/etc/passwd")
    await out(box, "mkdir -p /tmp/x; ln -s /tmp/x /solution")
    await box.upload(tmp_path, "/solution")
    assert (
        await out(box, "bash /solution/sub/run.sh; readlink /solution/link; ls -A /tmp/x")
        == "ran\n/etc/passwd\n"
    )
    with pytest.raises(InputError, match="top-level"):
        await box.upload(tmp_path, "/a/b")


async def test_limits(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"sandbox.backends.{backend.name}.MAX_PROCESSES", 60)
    toml = "[environment]\nmemory_mb = 200\nstorage_mb = 20\ncpus = 1\n"
    box = await backend.create(make_task(tmp_path / "t", toml))
    result = await box.terminal("head -c 30000000 /dev/zero > f; stat -c %s f", 20)
    assert 15 << 20 <= int(result.output.split()[-1]) <= 20 << 20, result
    result = await box.terminal("rm -f f; head -c 400m /dev/zero | tail -c 399m | wc -c", 30)
    assert "399" not in result.output, result
    assert result.limit == "memory limit reached" or "memory" in result.output
    result = await box.terminal("for i in $(seq 100); do sleep 50 & done", 3)
    assert "process limit reached" in result.limit or "fork" in result.output, result
    await box.terminal("kill -9 -1", 10)
    assert await out(box, "echo alive") == "alive\n"
    await box.close()


async def test_isolation(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {line.split("=")[0] for line in (await out(box, "env")).splitlines()}
    assert not any(name.startswith(("T1", "PYTEST", "VIRTUAL")) for name in names)
    assert (
        await out(box, "echo $TERM $HOME $PAGER; id -u; cat /proc/sys/kernel/hostname")
        == "dumb /root cat\n0\nsandbox\n"
    )
    for attempt in (
        "cat /root/.bash_history /etc/machine-id-of-host 2>/dev/null",
        "mount -t tmpfs none /mnt",
        "mount -o remount,rw /.t1",
        "umount /.t1",
        "touch /.t1/x || rm /.t1/supervisor.pyc",
        "unshare -U true",
        "unshare -m true",
        "mknod /tmp/sda b 8 0 && head -c1 /tmp/sda",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "cat /proc/kcore | head -c1 | grep .",
        "exec 9<>/dev/tcp/127.0.0.1/22",
        "exec 9<>/dev/tcp/1.1.1.1/53",
        "nsenter -t 1 -m -p true --target 1 --net=/proc/1/ns/net unshare -n",
        f"chroot /proc/1/root/../../../.. cat {README}",
        f"cat {README}",
        "echo 1 > /sys/fs/cgroup/memory/memory.limit_in_bytes",
        "dmesg 2>/dev/null | grep .",
    ):
        result = await box.terminal(attempt, 10)
        assert result.exit_code != 0, (attempt, result)


async def test_an_episode_may_break_everything(backend: Backend, tmp_path: Path) -> None:
    task = make_task(tmp_path / "t")
    box, other = await backend.create(task), await backend.create(task)
    assert (
        await out(box, "echo '#!/bin/sh\necho mine' > /usr/bin/mine; chmod +x /usr/bin/mine; mine")
        == "mine\n"
    )
    assert (
        await out(box, "echo x > /etc/new; chown 1000:1000 /etc/new; stat -c %u:%g /etc/new") == "1000:1000\n"
    )
    assert await out(box, "mkdir d; chmod 000 d; touch d/f; ls d") == "f\n"
    assert (
        await out(
            box,
            "tar -cf t.tar --owner=12 --group=34 in.txt; mkdir o; tar -xf t.tar -C o; stat -c %u o/in.txt",
        )
        == "12\n"
    )
    await box.terminal("rm -rf /usr/bin/cat /usr/lib/*/libm.so.6 /var; rm -f /usr/bin/mine", 20)
    assert (await box.terminal("cat in.txt", 10)).exit_code == 127
    assert await out(other, "cat in.txt; ls /usr/bin/mine", 2)
    assert (
        not Path("/etc/new").exists() and Path("/usr/bin/cat").exists() and not Path("/usr/bin/mine").exists()
    )
    assert (await box.terminal("rm -f /usr/bin/bash; exit", 20)).status == "dead"
    assert (await box.terminal("true", 10)).status == "dead"
    await asyncio.gather(box.close(), other.close())


async def test_network_is_there_when_a_task_asks(backend: Backend, tmp_path: Path) -> None:
    task = make_task(tmp_path / "t", "[environment]\nallow_internet = true\n")
    if backend.name == "bubblewrap" and not network.available():
        with pytest.raises(InputError, match="asks for a network, which needs slirp4netns"):
            await backend.create(task)
        return
    box = await backend.create(task)
    links = await out(box, "tail -n +3 /proc/net/dev | cut -d: -f1")
    assert {name.strip() for name in links.split()} > {"lo"}
    if backend.name == "bubblewrap":
        await _outwards_only(box)
    await box.close()


async def _outwards_only(box: Sandbox) -> None:
    """A server of the host's is reached by the host's address, and not on its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(("192.0.2.1", 9))  # sends nothing
        address = route.getsockname()[0]

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()

    server = await asyncio.start_server(greet, "0.0.0.0", 0)
    port = server.sockets[0].getsockname()[1]
    assert await out(box, f"cat </dev/tcp/{address}/{port}") == "hello\n"
    for closed in ("127.0.0.1", "10.0.2.2"):
        result = await box.terminal(f"cat </dev/tcp/{closed}/{port}", 10)
        assert result.exit_code and "hello" not in result.output, (closed, result)
    server.close()


MEET = """
import socket, time
abstract = socket.socket(socket.AF_UNIX)
abstract.bind("\\0t1-meeting")
abstract.listen()
tcp = socket.create_server(("0.0.0.0", 4321))
print("up", flush=True)
time.sleep(60)
"""
REACH = """
import ctypes, os, socket
reached = []
for family, place in ((socket.AF_UNIX, "\\0t1-meeting"), (socket.AF_INET, ("127.0.0.1", 4321))):
    try:
        socket.socket(family).connect(place)
        reached.append(place)
    except OSError:
        pass
try:
    os.kill(@PID@, 0)
    reached.append("kill")
except ProcessLookupError:
    pass
if ctypes.CDLL(None).ptrace(16, @PID@, 0, 0) == 0:
    reached.append("ptrace")
print(reached)
"""


async def test_episodes_do_not_reach_each_other(backend: Backend, task: Task) -> None:
    one, other = await asyncio.gather(backend.create(task), backend.create(task))
    assert await out(one, f"cat >/tmp/meet <<'END'\n{MEET}END\n{PYTHON} /tmp/meet & sleep 2") == "up\n"
    reach = f"{PYTHON} - <<'END'\n{REACH.replace('@PID@', str(os.getpid()))}END"
    # It is there to be reached, but in its own sandbox only; this process in neither.
    assert "t1-meeting" in await out(one, reach) and "4321" in await out(one, reach)
    assert await out(other, reach) == "[]\n"
    seen = await out(other, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "meet" not in seen and "pytest" not in seen
    await asyncio.gather(one.close(), other.close())


def slack() -> float:
    """Seconds that a busy machine may add to what a program was told to take."""
    return max(0.0, os.getloadavg()[0] / (os.cpu_count() or 1) - 1) * 0.3
