"""Held out: a rename, a mode and a symbolic link in one task."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, assemble, spread
from sandbox.factory.drills.families import permissions, rename, symlink

PHRASINGS = (
    "Do these things in the directory /app: {items}. The contents of all the files must stay exactly as"
    " they are now.",
    "Some files in /app need care. Please {items}. Do not change what is in the files, and leave the "
    "others alone.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    parts = [
        lambda: rename.requirement(names, files),
        lambda: permissions.requirement(rng.choice(permissions.MODES), names, files),
        lambda: symlink.requirement(names, files),
    ]
    requirements = [part().alone() for part in spread(rng, parts, size)]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=3)


FAMILY = Family(name="mixed_files", area="files", skills=("mv", "chmod", "ln"), generate=generate)
