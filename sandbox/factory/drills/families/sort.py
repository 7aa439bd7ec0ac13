"""Sort the lines of files, each in its own order."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check, spread

PHRASINGS = (
    "Sort some lists in /app into new files: {items}. The lists themselves must stay as they are.",
    "Please write sorted copies of the lists in the directory /app: {items}. Do not change the lists "
    "that are there.",
    "We need the lists in /app in a better order. Save {items}. Keep the lists that you read unchanged.",
)
# Order -> option of `sort`, and how the instruction says it.
ORDERS = {
    "plain": ("", "in alphabetical order"),
    "reverse": (" -r", "in reverse order"),
    "number": (" -n", "by number"),
    "unique": (" -u", "sorted without repeated lines"),
}


def requirement(rng: Random, order: str, names: Names, files: dict[str, str | bytes]) -> Requirement:
    source, out = names.file(), names.file()
    option, phrase = ORDERS[order]
    lines, wanted = _lists(rng, order, names)
    files[source] = "\n".join(lines) + "\n"
    return Requirement(
        verb="sort",
        text=f"{source} {phrase} to {out}",
        command=f"sort{option} {source} > {out}",
        check=check(
            f"sort_{out}",
            f"text({out!r}).split('\\n') == {wanted!r}",
            f"text({source!r}).split('\\n') == {lines!r}",
        ),
    )


def _lists(rng: Random, order: str, names: Names) -> tuple[list[str], list[str]]:
    """A list, and the same list in order."""
    if order == "number":
        # Sorted as text, 1.. would come before 9: `sort` without -n gives another order.
        lines = [str(rng.randint(100, 999)), "9", str(rng.randint(20, 99)), str(rng.randint(10, 19))]
        return lines, sorted(lines, key=int)
    lines = names.take(rng.randint(4, 6))
    while lines in (sorted(lines), sorted(lines, reverse=True)):
        rng.shuffle(lines)
    if order == "unique":
        lines += rng.sample(lines, 2)
        return lines, sorted(set(lines))
    return lines, sorted(lines, reverse=order == "reverse")


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    files: dict[str, str | bytes] = {}
    requirements = [requirement(rng, order, names, files) for order in spread(rng, list(ORDERS), size)]
    return assemble(rng, phrasings=PHRASINGS, requirements=requirements, files=files, difficulty=2)


FAMILY = Family(name="sort", area="text", skills=("sort", "redirect"), generate=generate)
