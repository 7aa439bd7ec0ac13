"""Take the first lines, the last lines, or one line of files."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check, spread

PHRASINGS = (
    "Take parts of the lists in /app and save them in new files: {items}. Leave the lists themselves "
    "unchanged.",
    "Please save some lines of the files in the directory /app: {items}. The files that you read must "
    "not change.",
    "From the lists in /app we need only some lines. Write {items}. Do not change the lists that are there.",
)
KINDS = ("first", "last", "only")


def requirement(rng: Random, kind: str, names: Names, files: dict[str, str | bytes]) -> Requirement:
    source, out = names.file(), names.file()
    lines = names.take(rng.randint(7, 9))
    number = rng.randint(2, 6)
    files[source] = "\n".join(lines) + "\n"
    phrase, command, wanted = {
        "first": (f"the first {number} lines of {source} to {out}", f"head -n {number}", lines[:number]),
        "last": (f"the last {number} lines of {source} to {out}", f"tail -n {number}", lines[-number:]),
        "only": (f"line {number} of {source} to {out}", f"sed -n {number}p", lines[number - 1 : number]),
    }[kind]
    return Requirement(
        verb="save",
        text=phrase,
        command=f"{command} {source} > {out}",
        check=check(
            f"{kind}_{out}",
            f"text({out!r}).split('\\n') == {wanted!r}",
            f"text({source!r}).split('\\n') == {lines!r}",
        ),
    )


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = [requirement(rng, kind, names, files) for kind in spread(rng, KINDS, size)]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=2)


FAMILY = Family(name="slice", area="text", skills=("head", "tail", "sed", "redirect"), generate=generate)
