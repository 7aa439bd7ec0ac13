"""Read a settings file and write some of its values to files: the answers are known only after looking."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check
from sandbox.factory.drills.words import KEYS

PHRASINGS = (
    "The file {file} in /app has lines of the form key = value. Read it and write {items}. Each new "
    "file holds only the value.",
    "Look at the settings in /app/{file}, one key = value a line. Copy from {file} {items}. Write the "
    "values alone, without the keys.",
    "We need some values from {file} in the directory /app. It holds key = value lines. Save {items}, "
    "just the value in each.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    file = names.file("conf")
    keys = rng.sample(KEYS, rng.randint(size + 1, size + 2))
    values = {key: names.word() if rng.random() < 0.7 else str(rng.randint(10, 99)) for key in keys}
    requirements = []
    for key in rng.sample(keys, size):
        out = names.file()
        requirements.append(
            Requirement(
                text=f"the value of {key} to {out}",
                command=f"echo {values[key]} > {out}",
                check=check(f"value_{out}", f"text({out!r}) == {values[key]!r}"),
            )
        )
    return assemble(
        rng,
        phrasings=PHRASINGS,
        requirements=requirements,
        files={file: "".join(f"{key} = {value}\n" for key, value in values.items())},
        difficulty=3,
        look=f"cat {file}",
        file=file,
    )


FAMILY = Family(name="parse", area="text", skills=("cat", "echo", "look"), generate=generate)
