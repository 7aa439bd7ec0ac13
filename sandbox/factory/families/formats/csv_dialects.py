"""CSV of one dialect into another, by a Python program for any such file.

Hard: separators, quotes and line breaks within values, and columns that must be found by their names.
"""

from sandbox.factory.kit import PEOPLE, PLACES, word
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "CSV", "quoting", "text formats")

COLUMNS = ("name", "city", "amount", "note", "day")
SEPARATORS = {"a semicolon": ";", "a comma": ",", "a tab": "\t", "a |": "|"}
# What is done to a row -> the solution's statement on the dict r, the reference's Python of it.
CHANGES = {
    "amounts have a decimal comma instead of the point": ("r['amount'] = r['amount'].replace('.', ',')", lambda r: {"amount": ",".join(r["amount"].split("."))}),
    "days are written DD.MM.YYYY instead of YYYY-MM-DD": ("r['day'] = '.'.join(r['day'].split('-')[::-1])", lambda r: {"day": f"{r['day'][8:]}.{r['day'][5:7]}.{r['day'][:4]}"}),
    "line breaks within a value become ` / `": ("r = {k: v.replace('\\n', ' / ') for k, v in r.items()}", lambda r: {k: " / ".join(v.split("\n")) for k, v in r.items()}),
    "an empty city becomes `unknown`": ("r['city'] = r['city'] or 'unknown'", lambda r: {"city": "unknown" if r["city"] == "" else r["city"]}),
    "names are in upper case": ("r['name'] = r['name'].upper()", lambda r: {"name": r["name"].upper()}),
    "double quotes within values become single ones": ("r = {k: v.replace('\"', \"'\") for k, v in r.items()}", lambda r: {k: "'".join(v.split('"')) for k, v in r.items()}),
}  # fmt: skip
ONLY = {
    "an amount of 50 or more": ("float(r['amount']) >= 50", lambda r: float(r["amount"]) >= 50),
    "a note": ("r['note']", lambda r: r["note"] != ""),
    "a day in 2025": ("r['day'].startswith('2025')", lambda r: r["day"][:4] == "2025"),
    "a city without a comma": ("',' not in r['city']", lambda r: r["city"].count(",") == 0),
}
QUOTES = {
    "those only that contain the separator, a double quote or a line break": "csv.QUOTE_MINIMAL",
    "every one, those of the heading included": "csv.QUOTE_ALL",
}
OPENS = (
    "Tables come as CSV, and another program needs CSV of its own kind.",
    "A table in CSV must be read by a program that is particular about its CSV.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    before, after = rng.sample(list(SEPARATORS), 2)
    return names(rng, "csv", "py", "csv") | {
        "before": before,
        "after": after,
        "columns": rng.sample(COLUMNS, len(COLUMNS) if level < 2 else rng.randint(3, 5)),
        "changes": rng.sample(list(CHANGES), (level + 1) // 2 + level // 4),
        "only": rng.sample(list(ONLY), level // 2),
        "quote": rng.choice(list(QUOTES)),
        "heading": rng.random() < 0.6,
        "size": 6 + 4 * level,
    }


def make(rng, p):
    separator = SEPARATORS[p.before]
    lines, order = [], list(COLUMNS)
    rng.shuffle(order)
    for _ in range(p.size):
        row = {
            "name": word(rng, PEOPLE).title(),
            "city": rng.choice(["", f"{word(rng, PLACES)}, {word(rng, PLACES)}", word(rng, PLACES)]),
            "amount": f"{rng.randint(1, 120)}.{rng.choice(['00', '25'])}",
        }
        row["note"] = rng.choice(
            [
                "",
                word(rng),
                f'the "{word(rng)}" one',
                f"{word(rng)}\n{word(rng)}",
                f"{word(rng)}{rng.choice(';,|')} {word(rng)}",
            ]
        )
        row["day"] = f"202{rng.randint(4, 5)}-0{rng.randint(1, 9)}-{rng.randint(10, 28)}"
        lines.append(separator.join(quoted(row[column], separator, rng.random() < 0.1) for column in order))
    return "\n".join([separator.join(order), *lines]) + "\n"


def quoted(value, separator, always):
    """RFC 4180."""
    needed = always or any(c in value for c in (separator, '"', "\n"))
    return '"' + value.replace('"', '""') + '"' if needed else value


def parsed(text, separator):
    """Rows of values, character by character."""
    rows, value, inside = [[]], "", False
    for c, after in zip(text, text[1:] + "\n", strict=True):
        if c == '"' and not (inside and (after == '"' or value.endswith("\0"))):
            inside = not inside
        elif c == '"':
            value = value[:-1] + '"' if value.endswith("\0") else value + "\0"
        elif inside or c not in (separator, "\n"):
            value += c
        else:
            rows[-1].append(value)
            value = ""
            rows += [[]] * (c == "\n")
    return [row for row in rows if row]


def worked(text, p):
    heading, *rows = parsed(text, SEPARATORS[p.before])
    every = QUOTES[p.quote] == "csv.QUOTE_ALL"
    lines = [list(p.columns)] * p.heading
    for values in rows:
        row = dict(zip(heading, values, strict=True))
        if all(ONLY[name][1](row) for name in p.only):
            for name in p.changes:
                row |= CHANGES[name][1](row)
            lines.append([row[column] for column in p.columns])
    separator = SEPARATORS[p.after]
    return (
        "\n".join(separator.join(quoted(value, separator, every) for value in line) for line in lines)
        if len(lines) > 1
        else ""
    )


def instruction(p):
    rules = [
        f"what comes has {p.before} between two values, a heading (its columns may stand in any order), and values in double quotes where needed, a double quote within them written twice"
    ]
    rules += [
        f"the result has {p.after} between two values, and of the values in double quotes {p.quote}; lines end in a newline only"
    ]
    rules += [
        f"its columns are {', '.join(p.columns)}, {'with their names as a heading' if p.heading else 'without a heading'}",
        *p.changes,
    ]
    rules += [f"only rows with {' and '.join(p.only)} are kept (as they come)"] * bool(p.only) + [
        "the order of the rows stays"
    ]
    return wordings(p, OPENS, rules)


def program(p):
    only = " and ".join(ONLY[name][0] for name in p.only) or "True"
    lines = [
        "import csv, sys",
        f"rows = csv.DictReader(open(sys.argv[1], newline=''), delimiter={SEPARATORS[p.before]!r})",
    ]
    lines += [
        f"out = csv.writer(sys.stdout, delimiter={SEPARATORS[p.after]!r}, quoting={QUOTES[p.quote]}, lineterminator='\\n')"
    ]
    lines += [f"out.writerow({p.columns!r})"] * p.heading + ["for r in rows:", f"    if {only}:"]
    lines += [f"        {CHANGES[name][0]}" for name in p.changes] + [
        f"        out.writerow([r[c] for c in {p.columns!r}])"
    ]
    return "\n".join(lines)


files, solution, lazy, test_half, test_result, test_program, test_hidden_tables = printer(
    make, worked, program
)
