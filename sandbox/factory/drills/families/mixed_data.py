"""Held out: sort one list, cut another, count in a third."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, assemble, spread
from sandbox.factory.drills.families import count, slice, sort

PHRASINGS = (
    "Work on the lists in the directory /app: {items}. Each result goes to its own new file, and the "
    "lists stay unchanged.",
    "We need some new files made from the lists in /app. Please {items}. Do not change the lists that "
    "are there.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    parts = [
        lambda: sort.requirement(rng, rng.choice(["plain", "reverse"]), names, files),
        lambda: slice.requirement(rng, rng.choice(slice.KINDS), names, files),
        lambda: rng.choice([count.lines, count.matches])(rng, names, files),
    ]
    requirements = [part().alone() for part in spread(rng, parts, size)]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=3)


FAMILY = Family(
    name="mixed_data", area="text", skills=("sort", "head", "tail", "sed", "wc", "grep"), generate=generate
)
