"""Rename files."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "Some files in /app have the wrong names. Rename {items}. The contents must stay the same and no "
    "old name may remain.",
    "Please rename these files in the directory /app: {items}. Keep what is in them, and leave no "
    "copies under the old names.",
    "In /app give the files new names: {items}. After that the old names must be gone, with the "
    "contents unchanged.",
)


def requirement(names: Names, files: dict[str, str | bytes]) -> Requirement:
    old, new, content = names.file(), names.file(), names.word()
    files[old] = content + "\n"
    return Requirement(
        verb="rename",
        text=f"{old} to {new}",
        command=f"mv {old} {new}",
        check=check(f"rename_{old}", f"text({new!r}) == {content!r}", f"not exists({old!r})"),
    )


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = [requirement(names, files) for _ in range(size)]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=1)


FAMILY = Family(name="rename", area="files", skills=("mv",), generate=generate)
