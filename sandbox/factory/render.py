"""An Instance as a Harbor task folder, byte for byte reproducible."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sandbox.factory.base import Content, Family, Instance
from sandbox.factory.kit import File, Link

TEST_SH = "#!/bin/bash\nexec python3 -I -S /tests/run_tests.py\n"

# What a junk file at every path that the instruction names earns: the tests of every family are written to
# give it nothing, and sandbox.check measures that.
STUB_BASELINE = 0.0


@cache
def source(name: str) -> str:
    """The text of a module of this package, for tasks that carry it."""
    return (Path(__file__).parent / name).read_text()


def task_toml(family: Family, instance: Instance, seed: int) -> str:
    binaries = f"binaries = {json.dumps(list(family.binaries))}\n" if family.binaries else ""
    return f"""\
schema_version = "1.1"

[metadata]
family = {json.dumps(family.name)}
area = {json.dumps(family.area)}
difficulty = {instance.difficulty}
skills = {json.dumps(list(family.skills))}
{binaries}seed = {seed}
tests = {json.dumps(list(instance.tests))}
stub_baseline = {STUB_BASELINE}

[agent]
timeout_sec = {instance.agent_timeout}

[verifier]
timeout_sec = 60.0

[environment]
workdir = "/app"
cpus = 1
memory_mb = {instance.memory_mb}
storage_mb = 256
allow_internet = false
"""


def dockerfile(instance: Instance) -> str:
    lines = [f"FROM {instance.image}", "WORKDIR /app"]
    if not all(path.startswith("/") for path in instance.files):
        lines.append("COPY files/ /app/")
    if any(path.startswith("/") for path in instance.files):
        lines.append("COPY root/ /")
    return "\n".join(lines) + "\n"


def solve_sh(steps: tuple[str, ...]) -> str:
    return "\n".join(["#!/bin/bash", "cd /app", *steps]) + "\n"


def steps_jsonl(steps: tuple[str, ...]) -> str:
    """A line a terminal call."""
    lines = [json.dumps({"tool": "terminal", "arguments": {"command": command}}) for command in steps]
    return "\n".join(lines) + "\n"


def folder_files(family: Family, instance: Instance, seed: int) -> dict[str, Content]:
    """Every file of the task folder: path relative to the folder -> content."""
    files: dict[str, Content] = {
        "task.toml": task_toml(family, instance, seed),
        "instruction.md": instance.instruction + "\n",
        "environment/Dockerfile": dockerfile(instance),
        "tests/test.sh": File(TEST_SH, mode=0o755),
        "tests/run_tests.py": source("run_tests.py"),
        **{f"tests/{path}": text for path, text in instance.test_files.items()},
        "solution/solve.sh": File(solve_sh(instance.steps), mode=0o755),
        "solution/steps.jsonl": steps_jsonl(instance.steps),
    }
    if instance.lazy:
        files["solution/lazy.sh"] = File(solve_sh(instance.lazy), mode=0o755)
    for path, content in instance.files.items():
        files[f"environment/root{path}" if path.startswith("/") else f"environment/files/{path}"] = content
    return files


def write(folder: Path, files: Mapping[str, Content]) -> None:
    """Writes the files with modes that no umask changes: what `chmod` tasks set must start the same."""
    made: set[Path] = set()
    for path, content in files.items():
        target = folder / path
        parent = target if content is None else target.parent
        if parent not in made:
            parent.mkdir(parents=True, exist_ok=True)
            for directory in (parent, *parent.parents):
                if directory == folder.parent or directory in made:
                    break
                directory.chmod(0o755)
                made.add(directory)
        if isinstance(content, Link):
            target.unlink(missing_ok=True)
            target.symlink_to(content.target)
        elif content is not None:
            file = content if isinstance(content, File) else File(content)
            target.write_bytes(file.content.encode() if isinstance(file.content, str) else file.content)
            target.chmod(file.mode)
            if file.time is not None:
                os.utime(target, (file.time, file.time))


def digest(files: Mapping[str, Content]) -> str:
    """SHA-256 of a task folder: of a line `path mode time SHA-256-of-content` (or `path -> target`, or
    `path folder`) a file, sorted."""
    return hashlib.sha256("".join(sorted(map(_line, files.items()))).encode()).hexdigest()


def _line(item: tuple[str, Content]) -> str:
    path, content = item
    if content is None:
        return f"{path} folder\n"
    if isinstance(content, Link):
        return f"{path} -> {content.target}\n"
    file = content if isinstance(content, File) else File(content)
    data = file.content.encode() if isinstance(file.content, str) else file.content
    return f"{path} {file.mode:o} {file.time} {hashlib.sha256(data).hexdigest()}\n"
