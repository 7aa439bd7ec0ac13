"""Count lines, words, and files, into files."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check, spread

PHRASINGS = (
    "Count some things in /app and write each number to a file: {items}. Each file must hold only the "
    "number.",
    "Please write these counts in the directory /app: {items}. A file holds just the number, and "
    "nothing else may be in it.",
    "We need some numbers from the files in /app. Save {items}. Write only the number in each of the "
    "new files.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    kinds = spread(rng, [lines, matches, files_in], size)
    requirements = [kind(rng, names, files) for kind in kinds]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=2)


def lines(rng: Random, names: Names, files: dict[str, str | bytes]) -> Requirement:
    file, out, count = names.file(), names.file(), rng.randint(3, 9)
    files[file] = names.lines(count)
    return Requirement(
        verb="write",
        text=f"the number of lines of {file} to {out}",
        command=f"wc -l < {file} > {out}",
        check=check(f"lines_{out}", f"text({out!r}).strip() == {str(count)!r}"),
    )


def matches(rng: Random, names: Names, files: dict[str, str | bytes]) -> Requirement:
    file, out, word, count = names.file(), names.file(), names.word(), rng.randint(2, 6)
    others = names.take(2)
    rows = [f"{rng.choice(others)} {word}\n"] * count + [f"{other}\n" for other in others]
    files[file] = "".join(rng.sample(rows, len(rows)))
    return Requirement(
        verb="write",
        text=f"the number of lines with {word} in {file} to {out}",
        command=f"grep -c {word} {file} > {out}",
        check=check(f"matches_{out}", f"text({out!r}).strip() == {str(count)!r}"),
    )


def files_in(rng: Random, names: Names, files: dict[str, str | bytes]) -> Requirement:
    directory, out, count = names.word(), names.file(), rng.randint(2, 6)
    for _ in range(count):
        files[f"{directory}/{names.file()}"] = names.lines(1)
    return Requirement(
        verb="write",
        text=f"the number of files in {directory} to {out}",
        command=f"ls {directory} | wc -l > {out}",
        check=check(f"files_{out}", f"text({out!r}).strip() == {str(count)!r}"),
    )


FAMILY = Family(name="count", area="text", skills=("wc", "grep", "ls", "pipe"), generate=generate)
