"""Cut columns out of a CSV file: the position of a column is known only after looking at the header."""

from random import Random

from sandbox.factory.drills.base import Drill, Family, Names, Requirement, assemble, check
from sandbox.factory.drills.words import KEYS

PHRASINGS = (
    "The table {file} in /app has a header line with the column names. Look at it, then write {items}. "
    "Include the header of each.",
    "From the comma separated table /app/{file} we need single columns. In {file} look at the header, "
    "and save {items}, header included.",
    "Split the table {file} in the directory /app, comma separated with a header. Save {items}. Each "
    "keeps its header line.",
)


def generate(rng: Random, size: int = 3) -> Drill:
    names = Names(rng)
    file = names.file("csv")
    columns = rng.sample(KEYS, size + 1)
    rows = [columns, *[[_cell(rng, names) for _ in columns] for _ in range(rng.randint(2, 4))]]
    requirements = []
    for column in rng.sample(columns, size):
        out, place = names.file(), columns.index(column)
        cells = [row[place] for row in rows]
        requirements.append(
            Requirement(
                text=f"the column {column} to {out}",
                command=f"cut -d, -f{place + 1} {file} > {out}",
                check=check(f"column_{out}", f"text({out!r}).split('\\n') == {cells!r}"),
            )
        )
    return assemble(
        rng,
        phrasings=PHRASINGS,
        requirements=requirements,
        files={file: "".join(",".join(row) + "\n" for row in rows)},
        difficulty=4,
        look=f"head -n 1 {file}",
        file=file,
    )


def _cell(rng: Random, names: Names) -> str:
    return names.word() if rng.random() < 0.6 else str(rng.randint(10, 99))


FAMILY = Family(name="csv", area="data", skills=("head", "cut", "look"), generate=generate)
