"""Replace a word in files."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check
from sandbox.factory.drills.words import SWAPS

PHRASINGS = (
    "Some words in the text files in /app are wrong. Replace {items}. Every other word of the files "
    "must stay as it is.",
    "Please edit these files in /app: replace {items}. Change every place where the old word stands, "
    "and nothing else.",
    "In the directory /app replace words as follows: {items}. All places in the file count, and other "
    "words stay unchanged.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = []
    swaps = rng.sample(SWAPS, 2 * size)
    for old, new in zip(swaps[:size], swaps[size:], strict=True):
        file = names.file()
        lines = [f"{names.word()} {old}\n", f"{names.word()}\n", f"{old} {names.word()} {old}\n"]
        rng.shuffle(lines)
        before = "".join(lines)
        files[file] = before
        after = before.replace(old, new).strip("\n")
        requirements.append(
            Requirement(
                verb="replace",
                text=f"{old} by {new} in {file}",
                command=f"sed -i s/{old}/{new}/g {file}",
                check=check(f"replace_{file}", f"text({file!r}) == {after!r}"),
            )
        )
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=2)


FAMILY = Family(name="replace", area="text", skills=("sed",), generate=generate)
