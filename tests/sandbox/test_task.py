"""Task folders: what is read, what is refused and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.errors import InputError
from sandbox.task import Task, load_tasks, read_recipe


def write(folder: Path, toml: str = "", dockerfile: str | None = None) -> Path:
    (folder / "tests").mkdir(parents=True)
    (folder / "environment").mkdir()
    (folder / "task.toml").write_text(toml)
    (folder / "instruction.md").write_text("Do it.\n")
    (folder / "tests/test.sh").write_text("exit 0\n")
    if dockerfile is not None:
        (folder / "environment/Dockerfile").write_text(dockerfile)
    return folder


def test_fields_are_read(tmp_path: Path) -> None:
    toml = """
schema_version = "1.1"
[metadata]
family = "logs"
tests = ["test_a"]
[agent]
timeout_sec = 30
[verifier]
timeout_sec = 5.5
[environment]
cpus = 1
memory = "2G"
storage_mb = 100
env = { MODE = "x" }
"""
    task = Task.load(write(tmp_path / "one", toml, "FROM debian\nWORKDIR /srv/job\nENV A=1 B='two words'\n"))
    assert (task.name, task.instruction, task.workdir) == ("one", "Do it.\n", "/srv/job")
    assert (task.agent_timeout, task.verifier_timeout) == (30.0, 5.5)
    assert (task.cpus, task.memory_mb, task.storage_mb) == (1.0, 2048, 100)
    assert task.env == {"A": "1", "B": "two words", "MODE": "x"}
    assert task.metadata["tests"] == ["test_a"] and not task.allow_network


def test_defaults(tmp_path: Path) -> None:
    task = Task.load(write(tmp_path / "one"))
    assert (task.workdir, task.agent_timeout, task.verifier_timeout) == ("/app", None, 600.0)
    assert (task.cpus, task.memory_mb, task.storage_mb) == (None, None, None)


@pytest.mark.parametrize("name", ["task.toml", "instruction.md", "tests/test.sh"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "one")
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        Task.load(folder)


@pytest.mark.parametrize(
    ("toml", "field"),
    [
        ("[agent]\ntimeout_sec = -1", "timeout_sec"),
        ("[agent]\ntimeout_sec = nan", "timeout_sec"),
        ("[verifier]\ntimeout_sec = '5'", "timeout_sec"),
        ("[environment]\nmemory = 'lots'", "memory"),
        ("[environment]\nworkdir = 'app'", "workdir"),
        ("[metadata]\ntests = 'test_a'", "tests"),
        ("agent = 3", "agent"),
        ("not toml", "task.toml"),
    ],
)
def test_malformed_field_is_named(tmp_path: Path, toml: str, field: str) -> None:
    with pytest.raises(InputError, match=field):
        Task.load(write(tmp_path / "one", toml))


@pytest.mark.parametrize(
    ("toml", "field"),
    [
        ("[[steps]]\nname = 'one'", "steps"),
        ("[agent]\nuser = 'dev'", r"\[agent\] user"),
        ("[verifier]\nenvironment_mode = 'separate'", "environment_mode"),
        ("[verifier.environment]\ncpus = 1", r"\[verifier\] environment"),
        ("[environment]\ngpus = 1", "gpus"),
        ("[environment]\nos = 'windows'", "os"),
        ("[environment]\nmcp_servers = [{name = 'x'}]", "mcp_servers"),
        ("[environment.healthcheck]\ncommand = 'true'", "healthcheck"),
        ("[environment]\nnetwork_mode = 'allowlist'", "network_mode"),
    ],
)
def test_what_no_backend_carries_out_is_refused_by_name(tmp_path: Path, toml: str, field: str) -> None:
    with pytest.raises(InputError, match=field):
        Task.load(write(tmp_path / "one", toml))


def test_a_task_as_public_sets_have_them(tmp_path: Path) -> None:
    toml = """
version = "1.0"
[metadata]
author_name = "someone"
tags = ["a"]
[agent]
timeout_sec = 900.0
user = "root"
[environment]
build_timeout_sec = 600.0
docker_image = "some/image:1"
cpus = 1
memory_mb = 2048
storage_mb = 10240
gpus = 0
allow_internet = true
"""
    task = Task.load(write(tmp_path / "one", toml))
    assert (task.docker_image, task.allow_network, task.storage_mb) == ("some/image:1", True, 10240)
    off = Task.load(write(tmp_path / "two", toml + 'network_mode = "no-network"\n'))
    assert not off.allow_network


def test_load_tasks_sorts_and_needs_one(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write(tmp_path / "set" / name)
    assert [task.name for task in load_tasks(tmp_path / "set")] == ["a", "b"]
    with pytest.raises(InputError, match="no task found"):
        load_tasks(tmp_path / "set" / "a")


def test_recipe_copies_relative_to_workdir(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "one",
        "",
        "# c\nFROM debian\nWORKDIR /app\nCOPY files/ sub/\nCOPY one.txt two.txt \\\n  /data\n",
    )
    for name in ("one.txt", "two.txt"):
        (folder / "environment" / name).touch()
    (folder / "environment/files").mkdir()
    recipe = read_recipe(folder / "environment")
    assert [(tuple(s.name for s in sources), target) for sources, target in recipe.copies] == [
        (("files",), "/app/sub/"),
        (("one.txt", "two.txt"), "/data/"),
    ]
    assert recipe.unsupported == ""


@pytest.mark.parametrize(
    "line", ["RUN apt-get install gcc", "FROM other", "COPY --chown=1 a b", "USER nobody"]
)
def test_recipe_names_what_needs_a_build(tmp_path: Path, line: str) -> None:
    folder = write(tmp_path / "one", "", f"FROM debian\n{line}\n")
    assert read_recipe(folder / "environment").unsupported == line


@pytest.mark.parametrize("source", ["../secret", "missing.txt"])
def test_copy_stays_inside_and_exists(tmp_path: Path, source: str) -> None:
    with pytest.raises(InputError, match="COPY"):
        Task.load(write(tmp_path / "one", "", f"FROM debian\nCOPY {source} /app/\n"))
