"""A task on disk: the Harbor / Terminal-Bench 2 folder (task.toml, instruction.md, environment/, tests/,
solution/)."""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from sandbox.errors import InputError

# Fields of Harbor's task.toml that mean something and that no backend carries out, with the values that ask
# for nothing. A task that asks for one is refused before anything starts, never run as if it had not asked.
_NOT_CARRIED_OUT: dict[str, tuple[Any, ...]] = {
    "steps": ([],),
    "artifacts": ([],),
    "agent.user": ("root", 0, ""),
    "agent.network_mode": (),
    "agent.allowed_hosts": ([],),
    "verifier.user": ("root", 0, ""),
    "verifier.env": ({},),
    "verifier.environment": (),
    "verifier.environment_mode": ("shared",),
    "verifier.collect": ([],),
    "verifier.network_mode": (),
    "verifier.allowed_hosts": ([],),
    "solution.env": ({},),
    "environment.os": ("linux",),
    "environment.gpus": (0,),
    "environment.gpu_types": ([],),
    "environment.tpu": (),
    "environment.mcp_servers": ([],),
    "environment.skills_dir": ("",),
    "environment.healthcheck": (),
    "environment.allowed_hosts": ([],),
}
_NETWORK_MODES = ("public", "no-network")
_SIZES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task. Times in seconds, sizes in MiB; None means that no limit was asked for."""

    name: str
    path: Path
    instruction: str
    metadata: dict[str, Any] = field(default_factory=dict)  # task.toml [metadata], as written
    agent_timeout: float | None = None
    verifier_timeout: float = 600.0
    docker_image: str | None = None  # a prebuilt image, used instead of environment/Dockerfile
    workdir: str = "/app"
    env: dict[str, str] = field(default_factory=dict)
    allow_network: bool = False
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None

    @classmethod
    def load(cls, path: Path | str) -> Task:
        """Read a task folder. Raises InputError that names the file and the field when something is amiss."""
        folder = Path(path)
        for name in ("task.toml", "instruction.md"):
            if not (folder / name).is_file():
                raise InputError(f"task {folder}: {name} is missing, expected a Harbor task folder")
        if not (folder / "tests" / "test.sh").is_file():
            raise InputError(
                f"task {folder}: tests/test.sh is missing, expected the script that grades the task"
            )
        try:
            table = tomllib.loads((folder / "task.toml").read_text())
            instruction = (folder / "instruction.md").read_text()
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"task {folder}: task.toml or instruction.md cannot be read: {error}") from None
        reader = _Reader(folder, table)
        reader.refuse_unsupported()
        recipe = read_recipe(folder / "environment")
        tests = reader.section("metadata").get("tests", [])
        if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
            raise InputError(f"task {folder}: task.toml [metadata] tests must be a list of test ids")
        workdir = reader.text("environment", "workdir") or recipe.workdir
        if not workdir.startswith("/"):
            raise InputError(f"task {folder}: workdir is {workdir!r}, expected an absolute path")
        network = reader.text("environment", "network_mode")
        if network and network not in _NETWORK_MODES:
            raise InputError(
                f"task {folder}: task.toml [environment] network_mode is {network!r}, expected one of "
                f"{', '.join(_NETWORK_MODES)}"
            )
        asked = reader.section("environment").get("allow_internet", False)
        return cls(
            name=folder.resolve().name,
            path=folder.resolve(),
            instruction=instruction,
            metadata=reader.section("metadata"),
            agent_timeout=reader.number("agent", "timeout_sec"),
            verifier_timeout=reader.number("verifier", "timeout_sec") or 600.0,
            docker_image=reader.text("environment", "docker_image") or None,
            workdir=workdir,
            env=recipe.env | {k: str(v) for k, v in reader.section("environment").get("env", {}).items()},
            allow_network=network == "public" if network else bool(asked),
            cpus=reader.number("environment", "cpus"),
            memory_mb=reader.megabytes("memory"),
            storage_mb=reader.megabytes("storage"),
        )


def load_tasks(folder: Path | str) -> list[Task]:
    """Every task folder directly under `folder`, sorted by name. Raises InputError when there is none."""
    folder = Path(folder)
    found = sorted(child for child in folder.glob("*") if (child / "task.toml").is_file())
    if not found:
        raise InputError(f"tasks {folder}: no task found, expected folders that hold task.toml")
    return [Task.load(child) for child in found]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What environment/Dockerfile asks for, in the part of its language that needs no image build."""

    copies: tuple[tuple[tuple[Path, ...], str], ...] = ()  # (sources on the host, absolute destination)
    workdir: str = "/app"
    env: dict[str, str] = field(default_factory=dict)
    unsupported: str = ""  # the first line that needs a real image build; bubblewrap refuses such a task


def read_recipe(environment: Path) -> Recipe:
    """Read FROM, WORKDIR, COPY and ENV lines; no Dockerfile is an empty recipe."""
    dockerfile = environment / "Dockerfile"
    if not dockerfile.is_file():
        return Recipe()
    env: dict[str, str] = {}
    workdir, copies, unsupported, stages = "/", [], "", 0
    text = re.sub(r"\\[ \t]*\n", " ", dockerfile.read_text())
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        verb, _, rest = line.partition(" ")
        match verb.upper():
            case "FROM" if stages == 0:
                stages = 1
            case "WORKDIR":
                workdir = str(PurePosixPath(workdir) / rest.strip())
            case "ENV":
                words = shlex.split(rest)
                if words and "=" not in words[0]:  # the old form: ENV name all the rest
                    words = [f"{words[0]}={rest.strip().partition(' ')[2].strip()}"]
                env |= dict(word.split("=", 1) for word in words if "=" in word)
            case "COPY" if "--" not in rest and "[" not in rest and len(shlex.split(rest)) >= 2:
                *sources, target = shlex.split(rest)
                slash = "/" if target.endswith(("/", ".")) or len(sources) > 1 else ""
                copies.append(
                    (_sources(environment, sources, line), str(PurePosixPath(workdir) / target) + slash)
                )
            case _:
                unsupported = unsupported or line
    return Recipe(
        copies=tuple(copies), workdir="/app" if workdir == "/" else workdir, env=env, unsupported=unsupported
    )


def _sources(environment: Path, patterns: list[str], line: str) -> tuple[Path, ...]:
    found: list[Path] = []
    for pattern in patterns:
        relative = pattern.lstrip("/")
        if ".." in PurePosixPath(relative).parts:
            raise InputError(
                f"{environment}/Dockerfile: {line!r} leaves environment/, expected a path inside it"
            )
        matches = [environment] if relative in ("", ".") else sorted(environment.glob(relative.rstrip("/")))
        if not matches:
            raise InputError(f"{environment}/Dockerfile: {line!r} copies {pattern!r}, which does not exist")
        found += matches
    return tuple(found)


@dataclass(frozen=True)
class _Reader:
    """Typed look-ups in task.toml whose errors name the task and the field."""

    folder: Path
    table: dict[str, Any]

    def refuse_unsupported(self) -> None:
        """Raise InputError that names the first field which asks for something that is not carried out."""
        for name, neutral in _NOT_CARRIED_OUT.items():
            section, _, key = name.rpartition(".")
            table = self.section(section) if section else self.table
            if key in table and table[key] not in neutral:
                where = f"[{section}] {key}" if section else key
                raise InputError(f"task {self.folder}: task.toml {where} is not supported, expected none")
        if (self.folder / "environment/docker-compose.yaml").is_file():
            raise InputError(
                f"task {self.folder}: environment/docker-compose.yaml is not supported, expected none"
            )

    def section(self, name: str) -> dict[str, Any]:
        value = self.table.get(name, {})
        if not isinstance(value, dict):
            raise InputError(f"task {self.folder}: task.toml [{name}] must be a table")
        return value

    def text(self, section: str, name: str) -> str:
        value = self.section(section).get(name, "")
        if not isinstance(value, str):
            raise InputError(
                f"task {self.folder}: task.toml [{section}] {name} is {value!r}, expected a string"
            )
        return value

    def number(self, section: str, name: str) -> float | None:
        value = self.section(section).get(name)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value <= 0
        ):
            raise InputError(
                f"task {self.folder}: task.toml [{section}] {name} is {value!r}, expected a number > 0"
            )
        return float(value)

    def megabytes(self, name: str) -> int | None:
        """`memory_mb`, or the older `memory = "2G"`."""
        size = self.number("environment", f"{name}_mb")
        if size is not None:
            return int(size)
        text = self.text("environment", name)
        if not text:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?", text.strip(), re.IGNORECASE)
        if not found:
            raise InputError(
                f"task {self.folder}: task.toml [environment] {name} is {text!r}, expected e.g. '2G'"
            )
        return max(1, int(float(found[1]) * _SIZES[found[2].upper()]))
