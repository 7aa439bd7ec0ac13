"""Bad input: exit code 2, one line on stderr that names the thing, and nothing left behind."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import launch
from sandbox.factory.drills import build

ROOT = Path(launch.__file__).parent


@pytest.fixture
def files(tmp_path):
    (tmp_path / "unknown.yaml").write_text("out: x\nlerning_rate: 1\n")
    (tmp_path / "wrong.yaml").write_text("out: x\nseed: many\n")
    (tmp_path / "text.yaml").write_text("just text\n")
    (tmp_path / "file").write_text("")
    task = build(tmp_path / "tasks", 1, 0)[0]
    for path in (task / "tests").iterdir():
        path.unlink()
    (task / "tests").rmdir()
    return tmp_path


CASES = [
    ("trian", ["unknown command 'trian'"]),
    ("plan --out {0}/new --topology v9:1x1", ["model is missing"]),
    ("plan --config {2}/configs/plan/rl_122b_32k.yaml --out {0}/file/new", ["file/new"]),
    ("plan --config {2}/configs/plan/rl_122b_32k.yaml --out {0}/new --topology v9:1x1", ["'v9:1x1'", "v5p"]),
    ("plan --config {2}/configs/plan/rl_122b_32k.yaml --out {0}/new --search v9", ["v9", "v5p"]),
    ("plan --config {2}/configs/plan/rl_122b_32k.yaml --out {0}/new --rows 0", ["plan.rows is 0"]),
    ("bench nothing --out {0}/new", ["'nothing'"]),
    ("bench train --out {0}/file/new", ["file/new"]),
    ("pod --config {2}/configs/pod/sft_122b.yaml --topology v5p", ["'v5p'"]),
    ("tasks", ["tasks: 'nothing'"]),
    ("tasks bild", ["'bild'"]),
    ("tasks build --out {0}/new --count x", ["--count", "'x'"]),
    ("tasks build --count 1", ["--out"]),
    ("tasks build --out {0}/new --count 0", ["count is 0"]),
    ("tasks build --out {0}/new --count 1 --families nothing", ["'nothing'"]),
    ("tasks build --out {0}/new --count 1 --levels 0", ["levels has 0"]),
    ("tasks build --out {0}/new --count 1 --size 3", ["--size", "--drills"]),
    ("tasks build --out {0}/new --count 1 --drills --areas git", ["--areas", "full-size"]),
    ("tasks build --out {0}/new --count 1 --drills --families changelog", ["'changelog'"]),
    ("tasks build --out {0}/file/new --count 1", ["file/new"]),
    ("tasks check {0}/missing --out {0}/new", ["missing"]),
    ("tasks check {0}/tasks --out {0}/file/new", ["file/new"]),
    ("tasks check {0}/tasks --out {0}/new --backend chroot", ["'chroot'"]),
    ("sft --config {0}/missing.yaml", ["missing.yaml"]),
    ("sft --config {0}/unknown.yaml", ["unknown.yaml", "lerning_rate"]),
    ("quickstart --config {0}/wrong.yaml", ["wrong.yaml", "seed is 'many'", "an integer"]),
    ("rl --config {0}/text.yaml", ["text.yaml", "mapping"]),
    ("quickstart --train_taks 3", ["train_taks"]),
    ("quickstart --out {0}/file/run", ["file/run"]),
    ("tasks tokenizer {0}/tasks --out {0}/file/new", ["file/new"]),
    ("tasks demonstrate {0}/tasks --chat {0} --out {0}/file/new", ["file/new"]),
    ("init --model {2}/configs/model/tiny.yaml --tokenizer {0} --out {0}/file/new", ["file/new"]),
    ("score --checkpoint {0} --input {0}/file --out {0}/file/new", ["file/new"]),
    ("mismatch --run {0} --out {0}/file/new", ["file/new"]),
    ("eval --tasks {0}/tasks --agent noop --out {0}/file/new", ["file/new"]),
    ("eval --tasks {0}/tasks --agent noop --out {0}/new", ["tests"]),
    ("eval --tasks {0}/missing --agent noop", ["missing"]),
    ("eval --tasks {0}/tasks --agent nobody", ["'nobody'"]),
    ("eval compare {0}/missing.json {0}/missing.json", ["missing.json"]),
    ("serve --checkpoint {0}/missing --port 0", ["missing"]),
    ("serve --checkpoint {0}/missing --port {1}", ["127.0.0.1:{1}"]),
    ("init --model {0}/missing.yaml --tokenizer {0} --out {0}/new", ["missing.yaml"]),
    ("score --checkpoint {0}/missing --input {0}/file --out {0}/new", ["missing"]),
    ("mismatch --out {0}/new", ["--run"]),
    ("report --run {0}/missing", ["missing"]),
]


@pytest.mark.parametrize(("line", "named"), CASES, ids=[line for line, _ in CASES])
def test_bad_input_is_one_line_and_exit_code_2(line, named, files, monkeypatch, capsys):
    before = sorted(files.rglob("*"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(sys, "argv", ["launch.py", *line.format(files, port, ROOT).split()])
        with pytest.raises(SystemExit) as ended:
            launch.main()
    told = capsys.readouterr().err
    assert ended.value.code == 2, told
    assert told.count("\n") == 1 and told.startswith("error: "), told
    assert all(name.format(files, port) in told for name in named), told
    assert sorted(files.rglob("*")) == before


def test_the_process_itself_ends_so():
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), "nothing"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_help_lists_every_command(capsys):
    assert launch.dispatch(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"  {name}" in told for name in (*launch.CONFIGURED, *launch.PLAIN))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("rl", "stopped; the same command goes on from here\n"),
        ("convert", "stopped; the same command goes on from here\n"),
        ("bench", "stopped\n"),
    ],
)
def test_an_interrupt_promises_to_go_on_only_where_that_is_so(monkeypatch, capsys, command, said):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "dispatch", interrupted)
    monkeypatch.setattr(sys, "argv", ["launch.py", command])
    with pytest.raises(SystemExit, match="130"):
        launch.main()
    assert capsys.readouterr().err == said
