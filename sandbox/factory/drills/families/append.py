"""Append a line to files that exist."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check

PHRASINGS = (
    "Some lists in /app miss their last line. Append {items}. The lines that are already in the files "
    "must stay as they are.",
    "Add one more line at the end of each of these files in /app: {items}. Keep all the earlier lines "
    "unchanged.",
    "At the end of the text files in /app add a new line: {items}. Do not change or drop what the files"
    " hold now.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = []
    for _ in range(size):
        file, word, before = names.file(), names.word(), names.lines(rng.randint(2, 4))
        files[file] = before
        requirements.append(
            Requirement(
                verb="add",
                text=f"the word {word} to {file}",
                command=f"echo {word} >> {file}",
                check=check(f"append_{file}", f"text({file!r}) == {before + word!r}"),
            )
        )
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=1)


FAMILY = Family(name="append", area="files", skills=("echo", "append"), generate=generate)
