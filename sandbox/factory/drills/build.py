"""Builds task folders from families: the same arguments give the same bytes."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from sandbox.errors import InputError
from sandbox.factory import render
from sandbox.factory.drills import families as _families
from sandbox.factory.drills.base import MAX_SIZE, MIN_SIZE, Drill, Family


def _load_families() -> dict[str, Family]:
    modules = sorted(module.name for module in pkgutil.iter_modules(_families.__path__))
    found = [importlib.import_module(f"{_families.__name__}.{name}").FAMILY for name in modules]
    return {family.name: family for family in found}


FAMILIES: dict[str, Family] = _load_families()
"""Every family by name, held-out ones included."""

HELD_OUT_FAMILIES: tuple[str, ...] = ("mixed_files", "mixed_data", "sweep")
"""Families that recombine the skills of the others. Never train on them: they show if skills carry over."""

TRAINING_FAMILIES: tuple[str, ...] = tuple(name for name in FAMILIES if name not in HELD_OUT_FAMILIES)

# Draws of one index before a build gives up: a family whose instances collide this often has too few of them.
_ATTEMPTS = 100


def build(
    out: Path,
    count: int,
    seed: int,
    families: Sequence[str] | None = None,
    held_out: bool = False,
    exclude: Sequence[Path] = (),
    size: int = MIN_SIZE,
) -> list[Path]:
    """Writes `count` task folders into `out`, spread evenly over the families; returns their paths in order.

    Args:
      out: folder for the tasks; made when missing. A task of the same name is overwritten by the same bytes.
      count: number of tasks, at least 1.
      seed: builds of different seeds share no instance in practice; the same arguments give the same bytes.
      families: family names; None for all the training families, or with `held_out` all the held-out ones.
      held_out: whether the tasks are for evaluation on held-out families. Naming a held-out family without
        it is an error, so that none slips into training.
      exclude: folders of tasks that no task built may equal (see `identity`).
      size: how many things each task asks for.

    Raises:
      InputError: an unknown family, a held-out family without `held_out` (or the reverse), a count below 1,
        a size out of range, an excluded folder without tasks, or a family with too few distinct instances.
    """
    chosen = choose(families, held_out)
    if count < 1:
        raise InputError(f"tasks build: count is {count}, expected at least 1")
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise InputError(f"tasks build: size is {size}, expected {MIN_SIZE} to {MAX_SIZE}")
    paths: list[Path] = []
    seen = {key for folder in exclude for key in _identities(folder)}
    for index in range(count):
        family = FAMILIES[chosen[index % len(chosen)]]
        name, instance = _fresh(family, seed, index // len(chosen), size, seen)
        folder = Path(out) / name
        render.write(folder, render.folder_files(family, instance, seed))
        paths.append(folder)
    return paths


def choose(families: Sequence[str] | None, held_out: bool) -> tuple[str, ...]:
    """The named families, or all of a kind. Raises InputError for names unknown or of the other kind."""
    allowed = HELD_OUT_FAMILIES if held_out else TRAINING_FAMILIES
    if families is None:
        return allowed
    for name in families:
        if name not in FAMILIES:
            raise InputError(f"tasks build: families has {name!r}, expected names from {', '.join(FAMILIES)}")
        if name not in allowed:
            kind, names = "training" if held_out else "held-out", ", ".join(allowed)
            raise InputError(f"tasks build: families has {name!r} ({kind}), expected names from {names}")
    if not families:
        raise InputError("tasks build: families is empty, expected at least one name")
    return tuple(families)


def _fresh(family: Family, seed: int, index: int, size: int, seen: set[str]) -> tuple[str, Drill]:
    """Folder name and instance of (family, seed, index, size), redrawn while it repeats a seen one."""
    for attempt in range(_ATTEMPTS):
        digest = hashlib.sha256(f"{family.name}/{seed}/{index}/{size}/{attempt}".encode()).digest()
        instance = family.instance(Random(int.from_bytes(digest[:8], "big")), size)
        name = f"{family.name}-{digest.hex()[:8]}"
        key = identity(instance.instruction, instance.steps)
        if key not in seen and name not in seen:
            seen.update((key, name))
            return name, instance
    raise InputError(
        f"tasks build: family {family.name!r} has no new instance at index {index}, expected a smaller count"
    )


def identity(instruction: str, steps: Sequence[str]) -> str:
    """What makes two instances the same task: instruction and solution, without case and spacing."""
    return " ".join(" ".join([instruction, *steps]).lower().split())


def _identities(folder: Path) -> Iterator[str]:
    """Of the tasks in a folder that was built."""
    tasks = sorted(path.parent for path in Path(folder).glob("*/task.toml"))
    if not tasks:
        raise InputError(f"tasks build: exclude has {folder}, expected a folder of tasks")
    for task in tasks:
        lines = (task / "solution" / "steps.jsonl").read_text().splitlines()
        steps = [json.loads(line)["arguments"]["command"] for line in lines]
        yield identity((task / "instruction.md").read_text(), steps)
