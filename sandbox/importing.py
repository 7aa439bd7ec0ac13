"""`tasks import`: public tasks as folders that everything here reads.

Harbor folders (Terminal-Bench 2 among them) are copied as they are. Terminal-Bench 1 folders (task.yaml) are
turned into Harbor folders that pay 1 exactly where Terminal-Bench's own harness would count the task as
resolved.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sandbox.errors import InputError
from sandbox.task import Task

# Of a Terminal-Bench 1 folder: what is no part of the image's build context.
_NOT_ENVIRONMENT = frozenset(
    ["task.yaml", "solution.sh", "solution.yaml", "run-tests.sh", "tests", "docker-compose.yaml"]
)
# terminal-bench 0.2.18, handlers/trial_handler.py
_AGENT_SECONDS, _TEST_SECONDS = 360.0, 60.0

# terminal-bench reads the tests' results off pytest's short summary. XFAIL and SKIPPED count as passed there;
# a summary without a single result counts here as failed (`all([])` is true, which there solves the task).
TEST_SH = """\
#!/bin/bash
export TEST_DIR=/tests T_BENCH_TEST_DIR=/tests
mkdir -p /logs/verifier
bash /tests/run-tests.sh 2>&1 | tee /logs/verifier/run-tests.log
awk '
  /short test summary info/ { summary = 1; good = bad = 0; next }
  summary && /^(PASSED|XFAIL|SKIPPED)/ { good++ }
  summary && /^(FAILED|ERROR|XPASS)/ { bad++ }
  END { print (good > 0 && bad == 0) ? 1 : 0 }
' /logs/verifier/run-tests.log > /logs/verifier/reward.txt
"""


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """Names of the tasks that were imported, and why others were refused."""

    imported: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def import_tasks(source: Path | str, out: Path | str) -> ImportReport:
    """Import every task at or below `source` (at most three folders deep) into `out`, a folder each.

    A task that is refused leaves nothing in `out`. Raises InputError when `source` has no task, or none could
    be imported.
    """
    source, out = Path(source), Path(out)
    found = sorted(
        path.parent
        for depth in ("", "*/", "*/*/", "*/*/*/")
        for name in ("task.toml", "task.yaml")
        for path in source.glob(depth + name)
    )
    if not found:
        raise InputError(f"tasks import: {source} has no task, expected folders with task.toml or task.yaml")
    report = ImportReport()
    for folder in dict.fromkeys(found):
        name, target = folder.resolve().name, out / folder.resolve().name
        if target.exists():
            report.refused[str(folder)] = f"{target} is there already"
            continue
        try:
            if (folder / "task.toml").is_file():
                _copy_harbor(folder, target)
            else:
                _convert(folder, target)
            Task.load(target)
        except (InputError, OSError, yaml.YAMLError, ValueError) as error:
            shutil.rmtree(target, ignore_errors=True)
            report.refused[str(folder)] = " ".join(str(error).split())
            continue
        report.imported.append(name)
    if not report.imported:
        folder_name, reason = next(iter(report.refused.items()))
        raise InputError(f"tasks import: nothing could be imported; {folder_name}: {reason}")
    return report


def _copy_harbor(folder: Path, target: Path) -> None:
    if (folder / "steps").is_dir():
        raise InputError("steps/: a task of several steps, expected one instruction")
    Task.load(folder)
    shutil.copytree(folder, target, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))


def _convert(folder: Path, target: Path) -> None:
    """A Terminal-Bench 1 folder as a Harbor folder."""
    try:
        values = yaml.safe_load((folder / "task.yaml").read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"task.yaml is not UTF-8 ({error})") from error
    if not isinstance(values, dict) or not isinstance(values.get("instruction"), str):
        raise InputError("task.yaml has no instruction, expected a text")
    if (parser := values.get("parser_name", "pytest")) != "pytest":
        raise InputError(f"task.yaml parser_name is {parser!r}, expected 'pytest'")
    for name in ("Dockerfile", "run-tests.sh"):
        if not (folder / name).is_file():
            raise InputError(f"{name} is missing, expected a Terminal-Bench 1 task folder")
    _require_one_container(folder / "docker-compose.yaml")
    environment, tests, solution = (target / part for part in ("environment", "tests", "solution"))
    for part in (environment, tests, solution):
        part.mkdir(parents=True)
    for child in folder.iterdir():
        if child.name not in _NOT_ENVIRONMENT:
            _copy(child, environment / child.name)
    if (folder / "tests").is_dir():
        for child in (folder / "tests").iterdir():
            _copy(child, tests / child.name)
    _copy(folder / "run-tests.sh", tests / "run-tests.sh")
    _script(tests / "test.sh", TEST_SH)
    (target / "instruction.md").write_text(values["instruction"].strip() + "\n")
    (target / "task.toml").write_text(_task_toml(values))
    if (folder / "solution.sh").is_file():
        _copy(folder / "solution.sh", solution / "solve.sh")
    elif (folder / "solution.yaml").is_file():
        _write_steps(yaml.safe_load((folder / "solution.yaml").read_text("utf-8")), solution)


def _require_one_container(compose: Path) -> None:
    if not compose.is_file():
        return
    services = (yaml.safe_load(compose.read_text("utf-8")) or {}).get("services") or {}
    if others := sorted(set(services) - {"client"}):
        raise InputError(
            f"docker-compose.yaml asks for more containers ({', '.join(others)}), expected only client"
        )


def _task_toml(values: dict[str, Any]) -> str:
    def seconds(name: str, default: float) -> float:
        value = values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise InputError(f"task.yaml {name} is {value!r}, expected a number above 0")
        return float(value)

    tags = [str(tag) for tag in values.get("tags") or []]
    # JSON's strings and lists are TOML's too.
    return f"""\
schema_version = "1.1"

[metadata]
source = "terminal-bench-1"
author_name = {json.dumps(str(values.get("author_name", "unknown")))}
difficulty = {json.dumps(str(values.get("difficulty", "unknown")))}
category = {json.dumps(str(values.get("category", "software_engineering")))}
tags = {json.dumps(tags)}

[agent]
timeout_sec = {seconds("max_agent_timeout_sec", _AGENT_SECONDS)}

[verifier]
timeout_sec = {seconds("max_test_timeout_sec", _TEST_SECONDS)}

[environment]
allow_internet = true
"""


def _write_steps(commands: Any, solution: Path) -> None:
    """solution.yaml's commands as solve.sh where all of them are plain, else as steps that press keys."""
    if not isinstance(commands, list) or not all(
        isinstance(entry, dict) and isinstance(entry.get("command"), str) for entry in commands
    ):
        raise InputError("solution.yaml: expected a list of tables with a command")
    plain = all(entry.get("block", False) and entry.get("append_enter", True) for entry in commands)
    if plain:
        lines = [entry["command"] for entry in commands]
        _script(solution / "solve.sh", "\n".join(["#!/bin/bash", *lines]) + "\n")
    calls = [_step(entry) for entry in commands]
    (solution / "steps.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls))


def _step(entry: dict[str, Any]) -> dict[str, Any]:
    if entry.get("block", False):
        limit = float(entry.get("max_timeout_sec", 180.0))
        return {"tool": "terminal", "arguments": {"command": entry["command"], "timeout": limit}}
    keys = [entry["command"], *(["Enter"] if entry.get("append_enter", True) else [])]
    return {"tool": "terminal_input", "arguments": {"keys": keys}}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
