"""Reports in columns of fixed width, cut apart and put together anew, by an awk program.

Hard: values hold spaces and may be empty, so that only positions tell the fields apart.
"""

from sandbox.factory.kit import PEOPLE, PLACES, word
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "substr", "printf", "text fields")

COLUMNS = {"code": 5, "name": 14, "city": 12, "count": 6, "price": 9}
# Which lines count: -> awk's condition, Python's, of a row of trimmed values.
ONLY = {
    "the city is empty": ('v["city"] == ""', lambda r: not r["city"]),
    "the city is not empty": ('v["city"] != ""', lambda r: r["city"]),
    "the name has a space in it": ('v["name"] ~ / /', lambda r: " " in r["name"]),
    "the count is at least 20": ('v["count"] + 0 >= 20', lambda r: int(r["count"]) >= 20),
    "the price is below 50": ('v["price"] + 0 < 50', lambda r: float(r["price"]) < 50),
    "the code begins with B": ('v["code"] ~ /^B/', lambda r: r["code"].startswith("B")),
}  # fmt: skip
# What is done to a value: -> awk's statement, Python's.
CHANGES = {
    "the name in upper case": ('v["name"] = toupper(v["name"])', lambda r: {"name": r["name"].upper()}),
    "a - for an empty city": ('if (v["city"] == "") v["city"] = "-"', lambda r: {"city": r["city"] or "-"}),
    "the price in cents, without a point": ('sub(/\\./, "", v["price"]); v["price"] += 0', lambda r: {"price": str(int(r["price"].replace(".", "")))}),
    "the count with zeros before it, as four digits": ('v["count"] = sprintf("%04d", v["count"])', lambda r: {"count": r["count"].zfill(4)}),
    "the code without its letter": ('v["code"] = substr(v["code"], 2)', lambda r: {"code": r["code"][1:]}),
}  # fmt: skip
ENDS = {
    "": "",
    "a last line `lines N` with the number of lines printed before it": 'print "lines " n + 0',
    "a last line `sum N` with the sum of the counts of the lines printed before it": 'print "sum " sum + 0',
}  # fmt: skip
FORMS = {
    "with a comma between two values": ",",
    "with a semicolon between two values": ";",
    "with ` | ` between two values": " | ",
    "in columns again, each value followed by spaces up to 15 characters": "",
}  # fmt: skip
OPENS = (
    "An old program prints reports in columns of fixed width, with spaces at the end of values (numbers have them in front), and no heading. We need some of it in another form.",
    "Reports come as lines of fixed columns, filled up with spaces. Values can have spaces within, and can be empty. Another program needs them as follows.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, script="awk") | {
        "columns": rng.sample(list(COLUMNS), len(COLUMNS)),
        "shown": rng.sample(list(COLUMNS), rng.randint(2, 4)),
        "only": rng.sample(list(ONLY)[1:] if level > 1 else list(ONLY)[3:], (level + 1) // 2),
        "changes": rng.sample(list(CHANGES), level // 2),
        "end": rng.choice(list(ENDS)) if level > 1 else "",
        "form": rng.choice(list(FORMS)),
        "size": 12 + 8 * level,
    }


def make(rng, p):
    lines = []
    for _ in range(p.size):
        row = {
            "code": f"{rng.choice('ABC')}{rng.randint(100, 999)}",
            "name": rng.choice(["", "van ", "de "]) + word(rng, PEOPLE),
            "city": rng.choice([word(rng, PLACES), word(rng, PLACES), "new " + word(rng, PLACES)[:7], ""]),
            "count": str(rng.randint(0, 60)),
            "price": f"{rng.randint(100, 12000) / 100:.2f}",
        }
        cells = [
            row[c].rjust(COLUMNS[c]) if c in ("count", "price") else row[c].ljust(COLUMNS[c])
            for c in p.columns
        ]
        lines.append("".join(cells).rstrip() + "\n")
    return "".join(lines)


def worked(text, p):
    lines, total = [], 0
    for line in text.splitlines():
        row, start = {}, 0
        for column in p.columns:
            row[column] = line[start : start + COLUMNS[column]].strip()
            start += COLUMNS[column]
        if all(ONLY[name][1](row) for name in p.only):
            total += int(row["count"])
            for name in p.changes:
                row |= CHANGES[name][1](row)
            between = FORMS[p.form]
            lines.append(between.join(row[c] if between else row[c].ljust(15) for c in p.shown))
    end = {"": "", "l": f"lines {len(lines)}", "s": f"sum {total}"}[p.end[13:14]]
    return "\n".join([*lines, *[end] * bool(end)])


def instruction(p):
    shapes = ", ".join(f"{column} ({COLUMNS[column]} characters)" for column in p.columns)
    rules = [f"the columns are {shapes}", f"print {', '.join(p.shown)}, in this order, {p.form}"]
    rules += [
        f"print only lines where {' and '.join(p.only)} (as the report has it)",
        "values are without the spaces around them",
    ]
    rules += [f"print {name}" for name in p.changes] + [f"print {p.end}"] * bool(p.end)
    return wordings(p, OPENS, rules)


def program(p):
    lines, start = ["{"], 1
    for column in p.columns:
        lines.append(f'  v["{column}"] = trim(substr($0, {start}, {COLUMNS[column]}))')
        start += COLUMNS[column]
    between = FORMS[p.form]
    values = ", ".join(f'v["{c}"]' for c in p.shown)
    form = between.join("%s" if between else "%-15s" for _ in p.shown)
    lines += [f"  if ({' && '.join(ONLY[name][0] for name in p.only)}) {{", '    n++; sum += v["count"]']
    lines += [f"    {CHANGES[name][0]}" for name in p.changes]
    lines += [f'    printf "{form}\\n", {values}', "  }", "}", f"END {{ {ENDS[p.end]} }}" if p.end else ""]
    return "\n".join([*lines, 'function trim(s) { sub(/^ +/, "", s); sub(/ +$/, "", s); return s }'])


files, solution, lazy, test_half, test_result, test_script, test_hidden_reports = printer(
    make, worked, program
)
