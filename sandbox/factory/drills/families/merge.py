"""Put two lists together: one after the other, side by side, or joined by their first field."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check, spread

PHRASINGS = (
    "The lists {left} and {right} in /app have the same numbers first on their lines. Save {items}. "
    "Keep both lists unchanged.",
    "In /app combine {left} and {right}, whose lines start with the same numbers: save {items}. Do not "
    "change the two lists.",
    "Make these files from the numbered lists {left} and {right} in /app: save {items}. The lists must "
    "stay as they are.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    left, right = names.file(), names.file()
    keys = sorted(rng.sample(range(10, 100), rng.randint(3, 4)))
    rows = {left: [f"{key} {names.word()}" for key in keys], right: [f"{key} {names.word()}" for key in keys]}
    first, second = rng.choice([(left, right), (right, left)])
    joined = [f"{a} {b.split()[1]}" for a, b in zip(rows[first], rows[second], strict=True)]
    pairs = [f"{a},{b}" for a, b in zip(rows[first], rows[second], strict=True)]
    kinds = {
        "join": (f"{first} joined with {second} by number", f"join {first} {second}", joined),
        "cat": (f"{first} followed by {second}", f"cat {first} {second}", rows[first] + rows[second]),
        "paste": (f"{first} and {second} side by side with a comma", f"paste -d, {first} {second}", pairs),
    }
    requirements = []
    for kind in spread(rng, list(kinds), size):
        out = names.file()
        phrase, command, wanted = kinds[kind]
        requirements.append(
            Requirement(
                text=f"{phrase} to {out}",
                command=f"{command} > {out}",
                check=check(
                    f"{kind}_{out}",
                    f"text({out!r}).split('\\n') == {wanted!r}",
                    *[f"text({file!r}).split('\\n') == {rows[file]!r}" for file in (left, right)],
                ),
            )
        )
    return assemble(
        rng,
        phrasings=PHRASINGS,
        requirements=requirements,
        files={file: "\n".join(lines) + "\n" for file, lines in rows.items()},
        difficulty=3,
        left=left,
        right=right,
    )


FAMILY = Family(name="merge", area="text", skills=("cat", "paste", "join"), generate=generate)
