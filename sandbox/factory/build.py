"""Builds a set of full-size tasks: the same arguments give the same bytes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from rich.progress import track

from sandbox.errors import InputError
from sandbox.factory import render
from sandbox.factory.duplicates import Seen
from sandbox.factory.family import LEVELS, Drawn, Family, families
from sandbox.files import write_json

# Draws in a row that repeat what is there before a family counts as used up at a level.
_ATTEMPTS = 60


def build(
    out: Path,
    count: int,
    seed: int,
    *,
    names: Sequence[str] | None = None,
    areas: Sequence[str] | None = None,
    levels: Sequence[int] = LEVELS,
) -> dict[str, Any]:
    """Writes `count` task folders into `out`, and out/manifest.json, which is returned.

    Tasks are dealt in turns to every family at every level, so that they spread evenly; a family that has no
    more tasks that differ (duplicates.py) leaves its turns to the others.

    Args:
      out: a folder that is empty or not there.
      count: number of tasks, at least 1.
      seed: builds of different seeds share no task in practice.
      names: of families; None for all of them.
      areas: None for all of them.
      levels: difficulties, of 1 to 5.

    Returns the manifest: "seed", "count", "refused" (draws by reason), "exhausted" (family and level that ran
    out of tasks, "name/level"), and "tasks": name -> SHA-256 of the folder, see render.digest.

    Raises InputError: a family, an area or a level that is unknown, a count below 1 or above what the
    families have, or a folder that holds something.
    """
    chosen = choose(names, areas)
    if unknown := [level for level in levels if level not in LEVELS]:
        raise InputError(f"tasks build: levels has {unknown[0]}, expected numbers from 1 to 5")
    if count < 1 or not levels:
        raise InputError(f"tasks build: count is {count} at {len(levels)} levels, expected at least 1")
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise InputError(f"tasks build: out is {out}, which holds something; expected an empty folder")
    deal = Deal(chosen, seed, levels)
    hashes: dict[str, str] = {}
    for family, instance, name in track(deal.tasks(count), "building", total=count, transient=True):
        folder = render.folder_files(family, instance, seed)
        render.write(out / name, folder)
        hashes[name] = render.digest(folder)
    manifest = {
        "seed": seed,
        "count": count,
        "refused": dict(sorted(deal.refused.items())),
        "exhausted": sorted(deal.exhausted),
        "tasks": hashes,
    }
    write_json(out / "manifest.json", manifest)
    return manifest


def choose(names: Sequence[str] | None, areas: Sequence[str] | None) -> list[Family]:
    """The families so named, in those areas. Raises InputError for what is unknown, or when none is left."""
    every = families()
    for what, given, known in (
        ("families", names, set(every)),
        ("areas", areas, {family.area for family in every.values()}),
    ):
        if unknown := [name for name in given or () if name not in known]:
            listed = ", ".join(sorted(known))
            raise InputError(f"tasks build: {what} has {unknown[0]!r}, expected names from {listed}")
    chosen = [
        family
        for family in every.values()
        if (names is None or family.name in names) and (areas is None or family.area in areas)
    ]
    if not chosen:
        raise InputError(
            "tasks build: families and areas have nothing in common, expected at least one family"
        )
    return chosen


class Deal:
    """Deals tasks in turns, and counts what it refused."""

    def __init__(self, chosen: Sequence[Family], seed: int, levels: Sequence[int]) -> None:
        # A few tasks already are of many families and of every level.
        turns = product(range(len(levels)), enumerate(chosen))
        self._cells = [(family, levels[(place + turn) % len(levels)]) for turn, (place, family) in turns]
        self._seed = seed
        self._seen = {family.name: Seen() for family in chosen}
        self._drawn: Counter[tuple[str, int]] = Counter()
        self._names: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.exhausted: list[str] = []

    def tasks(self, count: int) -> Iterator[tuple[Family, Drawn, str]]:
        """Yields (family, task, name of its folder). Raises InputError when there are not so many."""
        dealt, cells = 0, self._cells
        while cells:
            left = []
            for family, level in cells:
                if dealt == count:
                    return
                found = self._fresh(family, level)
                if found is None:
                    self.exhausted.append(f"{family.name}/{level}")
                    continue
                yield family, *found
                dealt += 1
                left.append((family, level))
            cells = left
        if dealt < count:
            raise InputError(
                f"tasks build: count is {count}, expected at most {dealt}, as these families have"
            )

    def _fresh(self, family: Family, level: int) -> tuple[Drawn, str] | None:
        for _ in range(_ATTEMPTS):
            self._drawn[family.name, level] += 1
            text = f"{family.name}/{self._seed}/{level}/{self._drawn[family.name, level]}"
            digest = hashlib.sha256(text.encode()).hexdigest()
            name = f"{family.name}-{digest[:8]}"
            _, instruction, steps = family.draft(digest, level)
            reason = self._seen[family.name].refuse(instruction, steps)
            if not reason and name not in self._names:
                self._names.add(name)
                return family.instance(digest, level), name
            self.refused[reason or "same name"] += 1
        return None
