"""An Instance as a Harbor task folder, byte for byte reproducible."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from sandbox.factory.base import Family, Instance

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY files/ /app/\n"
TEST_SH = "#!/bin/bash\nexec python3 -I -S /tests/run_tests.py\n"

# What a junk file at every path that the instruction names earns: the tests of every family are written to
# give it nothing, and sandbox.check measures that.
STUB_BASELINE = 0.0

PRELUDE = """\
import os

APP = "/app"


def at(path):
    return os.path.join(APP, path)


def text(path):
    with open(at(path), encoding="utf-8") as file:
        return "\\n".join(line.rstrip() for line in file.read().split("\\n")).strip("\\n")


def is_file(path):
    return os.path.isfile(at(path)) and not os.path.islink(at(path))


def exists(path):
    return os.path.lexists(at(path))


def mode(path):
    return os.stat(at(path)).st_mode & 0o777


def names(path):
    return sorted(os.listdir(at(path)))


def points(path, target):
    return os.path.islink(at(path)) and os.path.realpath(at(path)) == os.path.realpath(at(target))


def output(script, *arguments):
    import subprocess

    command = ["bash", at(script), *arguments]
    done = subprocess.run(command, cwd=APP, capture_output=True, text=True, timeout=10)
    return done.stdout.strip()


def packed(path):
    import tarfile

    with tarfile.open(at(path)) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {member.name: archive.extractfile(member).read().decode().strip("\\n") for member in members}


def gzipped(path):
    import gzip

    with gzip.open(at(path), "rt") as file:
        return file.read().strip("\\n")
"""


@cache
def _runner() -> str:
    return (Path(__file__).parent / "run_tests.py").read_text()


def test_outputs(instance: Instance) -> str:
    """The text of tests/test_outputs.py: the helpers that the asserts use, then one function a check."""
    tests = []
    for item in instance.checks:
        body = "\n".join(f"    assert {expression}" for expression in item.asserts)
        tests.append(f"def test_{item.name}():\n{body}\n")
    return "\n\n".join([PRELUDE, *tests])


def task_toml(family: Family, instance: Instance, seed: int) -> str:
    tests = [f"test_{item.name}" for item in instance.checks]
    return f"""\
schema_version = "1.1"

[metadata]
family = {json.dumps(family.name)}
area = {json.dumps(family.area)}
difficulty = {instance.difficulty}
skills = {json.dumps(list(family.skills))}
seed = {seed}
tests = {json.dumps(tests)}
stub_baseline = {STUB_BASELINE}

[agent]
timeout_sec = 120.0

[verifier]
timeout_sec = 60.0

[environment]
workdir = "/app"
cpus = 1
memory_mb = 512
storage_mb = 256
allow_internet = false
"""


def steps_jsonl(steps: tuple[str, ...]) -> str:
    """A line a terminal call."""
    lines = [json.dumps({"tool": "terminal", "arguments": {"command": command}}) for command in steps]
    return "\n".join(lines) + "\n"


def folder_files(family: Family, instance: Instance, seed: int) -> dict[str, str | bytes]:
    """Every file of the task folder: path relative to the folder -> contents."""
    files: dict[str, str | bytes] = {
        "task.toml": task_toml(family, instance, seed),
        "instruction.md": instance.instruction + "\n",
        "environment/Dockerfile": DOCKERFILE,
        "tests/test.sh": TEST_SH,
        "tests/run_tests.py": _runner(),
        "tests/test_outputs.py": test_outputs(instance),
        "solution/solve.sh": "\n".join(["#!/bin/bash", "cd /app", *instance.steps]) + "\n",
        "solution/steps.jsonl": steps_jsonl(instance.steps),
    }
    for path, content in instance.files.items():
        files[f"environment/files/{path}"] = content
    return files


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    """Writes the files with modes that no umask changes: what `chmod` tasks set must start the same."""
    made: set[Path] = set()
    for path, content in files.items():
        target = folder / path
        parent = target.parent
        if parent not in made:
            parent.mkdir(parents=True, exist_ok=True)
            for directory in (parent, *parent.parents):
                if directory == folder.parent or directory in made:
                    break
                directory.chmod(0o755)
                made.add(directory)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(0o755 if path.endswith(("test.sh", "solve.sh")) else 0o644)
