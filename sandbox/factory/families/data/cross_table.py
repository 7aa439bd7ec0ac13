"""A list of records turned into a table of rows and columns, by an awk script for any such list.

Hard: rows and columns are not known beforehand, cells without records must not be forgotten, and sums stand at both ends.
"""

from sandbox.factory.kit import PEOPLE, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "pivot tables", "sort", "associative arrays")

# A side of the table: how people say it -> awk's expression, Python's of the fields (day, person, kind, amount).
SIDES = {
    "month (as YYYY-MM)": ("substr($1, 1, 7)", lambda f: f[0][:7]),
    "person": ("$2", lambda f: f[1]),
    "kind": ("$3", lambda f: f[2]),
    "day of the month (as two digits)": ("substr($1, 9, 2)", lambda f: f[0][8:]),
    "first letter of the person's name": ("substr($2, 1, 1)", lambda f: f[1][0]),
    "size, which is small for an amount below 50 and large elsewhere": (
        '($4 < 50 ? "small" : "large")',
        lambda f: "small" if int(f[3]) < 50 else "large",
    ),
}
CELLS = {
    "the sum of the amounts": ("c[r, k] += $4", sum),
    "the number of records": ("c[r, k]++", len),
    "the largest amount": ("if (!((r, k) in c) || $4 > c[r, k]) c[r, k] = $4", max),
    "the last amount": ("c[r, k] = $4", lambda v: v[-1]),
    "the sum of the amounts divided by the number of records, rounded down": (
        "s[r, k] += $4; n[r, k]++; c[r, k] = int(s[r, k] / n[r, k])",
        lambda v: sum(v) // len(v),
    ),
}
ONLY = {
    "of the kind food or rent": ('$3 == "food" || $3 == "rent"', lambda f: f[2] in ("food", "rent")),
    "with an amount of 10 or more": ("$4 >= 10", lambda f: int(f[3]) >= 10),
    "from the days 01 to 15 of a month": ("substr($1, 9) <= 15", lambda f: int(f[0][8:]) <= 15),
    "of persons whose name has an a in it": ("$2 ~ /a/", lambda f: "a" in f[1]),
}
OPENS = (
    "Spendings come as lines `day,person,kind,amount`, without a heading. We want them as a table of two sides.",
    "A list of spendings (lines of day, person, kind and amount, with commas between, no heading) shall become a cross table.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    row, column = rng.sample(list(SIDES), 2)
    return names(rng, "csv", "sh", "csv") | {
        "row": row,
        "column": column,
        "cell": rng.choice(list(CELLS)),
        "only": rng.sample(list(ONLY), level // 2),
        "empty": rng.choice(["0", "-", "nothing (so that two commas meet)"]),
        "sums": level > 1 and rng.random() < 0.7,
        "bottom": level > 2 and rng.random() < 0.7,
        "turn": rng.choice(["rows are in byte order", "rows are in reverse byte order"]),
        "broken": level > 3,
        "size": 15 + 10 * level,
    }


def make(rng, p):
    lines, people = [], words(rng, 4, PEOPLE)
    for _ in range(p.size):
        lines.append(
            f"2025-0{rng.randint(1, 4)}-{rng.choice(['03', '10', '17', '28'])},{rng.choice(people)},{rng.choice(['food', 'rent', 'fun'])},{rng.choice([rng.randint(1, 200), rng.randint(1, 60)])}"
        )
        lines += [rng.choice(["", f"# {word(rng)}", f"2025-01-02,{people[0]},food"])] * (
            p.broken and rng.random() < 0.2
        )
    return "\n".join(lines) + "\n"


def worked(text, p):
    cells = {}
    for fields in (line.split(",") for line in text.splitlines()):
        if len(fields) == 4 and all(ONLY[name][1](fields) for name in p.only):
            cells.setdefault((SIDES[p.row][1](fields), SIDES[p.column][1](fields)), []).append(int(fields[3]))
    cells = {key: CELLS[p.cell][1](values) for key, values in cells.items()}
    if not cells:
        return ""
    columns, empty = sorted({k for _, k in cells}), "" if p.empty.startswith("n") else p.empty
    lines = [["", *columns, *["sum"] * p.sums]]
    for row in sorted({r for r, _ in cells}, reverse="reverse" in p.turn):
        found = [cells.get((row, k)) for k in columns]
        lines.append(
            [
                row,
                *(empty if v is None else str(v) for v in found),
                *[str(sum(v or 0 for v in found))] * p.sums,
            ]
        )
    if p.bottom:
        below = [sum(v for (_, k), v in cells.items() if k == column) for column in columns]
        lines.append(["sum", *map(str, below), *[str(sum(below))] * p.sums])
    return "\n".join(",".join(line) for line in lines)


def instruction(p):
    rules = [
        f"there is a row for each {p.row}, and a column for each {p.column}, of the records that count",
        f"a cell has {p.cell} of its row and column; where there is no record it has {p.empty}",
    ]
    rules += [
        "the first line has the columns' names, after an empty value; every other line begins with its row's name; commas stand between values",
        f"columns are in byte order, {p.turn}",
    ]
    rules += [f"only records {name} count" for name in p.only] + [
        "a last column, named sum, has the sum of the row's cells (empty ones are 0)"
    ] * p.sums
    rules += ["a last row, named sum, has the sum of each column's cells"] * p.bottom + [
        "lines that have not four values are left out"
    ] * p.broken
    return wordings(p, OPENS, rules)


def program(p):
    only = " && ".join(f"({ONLY[name][0]})" for name in p.only)
    condition = " && ".join(["NF == 4", *[only] * bool(only)])
    empty = "" if p.empty.startswith("n") else p.empty
    return f"""#!/bin/bash
awk -F , '{condition}' "$1" > /tmp/records
columns=$(awk -F , '{{ print {SIDES[p.column][0]} }}' /tmp/records | LC_ALL=C sort -u)
rows=$(awk -F , '{{ print {SIDES[p.row][0]} }}' /tmp/records | LC_ALL=C sort -u{"r" * ("reverse" in p.turn)})
awk -F , -v columns="$(echo $columns)" -v rows="$(echo $rows)" '
{{ r = {SIDES[p.row][0]}; k = {SIDES[p.column][0]}; {CELLS[p.cell][0]} }}
END {{
  w = split(columns, K, " "); h = split(rows, R, " ")
  for (i = 1; i <= w; i++) line = line "," K[i]
  print line{' ",sum"' * p.sums}
  for (j = 1; j <= h; j++) {{
    line = R[j]; t = 0
    for (i = 1; i <= w; i++) {{ line = line "," ((R[j], K[i]) in c ? c[R[j], K[i]] : "{empty}"); t += c[R[j], K[i]]; b[i] += c[R[j], K[i]] }}
    print line{' "," t' * p.sums}; all += t
  }}
  line = "sum"
  for (i = 1; i <= w; i++) line = line "," b[i] + 0
  {"print line" + ' "," all' * p.sums if p.bottom else ""}
}}' /tmp/records"""


files, solution, lazy, test_half, test_result, test_script, test_hidden_lists = printer(make, worked, program)
