"""Statistics of a table of measurements by group, by a Python program for any such table.

Hard: values may be missing or wrong, medians and quartiles need a rule, and rounding has to be exact.
"""

from fractions import Fraction

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "CSV", "statistics", "rounding")

# A measure: how people say it -> the solution's Python on the sorted list v, the reference's exact one.
MEASURES = {
    "n, the number of values": ("len(v)", len),
    "mean, the mean": ("D(sum(v)) / len(v)", lambda v: Fraction(sum(v), len(v))),
    "median, the median (the mean of the two middle values of an even number)": ("D(v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2", lambda v: Fraction(v[len(v) // 2] + v[~(len(v) // 2)], 2)),
    "min, the smallest value": ("v[0]", min),
    "max, the largest value": ("v[-1]", max),
    "range, the largest value minus the smallest": ("v[-1] - v[0]", lambda v: max(v) - min(v)),
    "q1, the first quartile: the value at place N/4, rounded up, of the N values in order, counted from 1": ("v[-(-len(v) // 4) - 1]", lambda v: v[(len(v) + 3) // 4 - 1]),
    "mode, the value that occurs most often (the smallest of several)": ("max(v, key=lambda x: (v.count(x), -x))", lambda v: min(v, key=lambda x: (-v.count(x), x))),
    "var, the variance: the mean of the squares of the differences from the mean": ("D(sum(x * x for x in v)) / len(v) - (D(sum(v)) / len(v)) ** 2", lambda v: Fraction(sum((x * len(v) - sum(v)) ** 2 for x in v), len(v) ** 3)),
}  # fmt: skip
BAD = {
    "lines whose value is empty or no whole number are left out": "continue",
    "a value that is empty or no whole number counts as 0": "x = 0",
}
ONLY = {
    "values below 0 are left out": ("x < 0", lambda x: x < 0),
    "values of 100 or more are left out": ("x >= 100", lambda x: x >= 100),
    "odd values are left out": ("x % 2", lambda x: x % 2 == 1),
    "values above 50 count as 50": ("", lambda x: False),
}
OPENS = (
    "Measurements come as CSV with a heading, without quotes. They are to be summed up by group.",
    "A table (CSV with a heading, no quotes) has measurements of several groups, whose statistics we want.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    group, value, third = words(rng, 3)
    return names(rng, "csv", "py") | {
        "columns": rng.sample([group, value, third], 3),
        "group": group,
        "value": value,
        "measures": rng.sample(list(MEASURES), min(6, 2 + level // 2)),
        "bad": rng.choice(list(BAD)),
        "only": rng.sample(list(ONLY), level // 2),
        "least": level > 2 and rng.random() < 0.5,
        "all": level > 1 and rng.random() < 0.5,
        "digits": rng.choice([1, 2, 3]),
        "order": rng.choice(
            [
                "by group in byte order",
                "by the first of these values, the largest first, equal ones by group in byte order",
            ]
        ),
        "size": 15 + 15 * level,
    }


def make(rng, p):
    groups, lines = words(rng, 5), [",".join(p.columns)]
    for _ in range(p.size):
        value = rng.choice(
            ["", "n/a", "1.5", *[str(rng.choice([rng.randint(-20, 140), rng.randint(0, 60), 30]))] * 8]
        )
        row = {p.group: rng.choice(groups + groups[:2]), p.value: value}
        lines.append(
            ",".join(row.get(column) or ("" if column in row else word(rng)) for column in p.columns)
        )
    return "\n".join(lines) + "\n"


def shown(number, digits):
    """Exact, rounded half away from zero, without a point where it is whole."""
    number = Fraction(number)
    if number.denominator == 1:
        return str(number)
    scaled = abs(number) * 10**digits
    n = int(scaled + Fraction(1, 2))
    return "-" * (number < 0 and n > 0) + f"{n // 10**digits}.{n % 10**digits:0{digits}}"


def worked(text, p):
    heading, *lines = [line.split(",") for line in text.splitlines()]
    groups = {}
    for line in lines:
        group, value = line[heading.index(p.group)], line[heading.index(p.value)]
        if not value.removeprefix("-").isdigit():
            if BAD[p.bad] == "continue":
                continue
            value = "0"
        if not any(ONLY[rule][1](int(value)) for rule in p.only):
            x = min(50, int(value)) if "values above 50 count as 50" in p.only else int(value)
            for key in [group, *["ALL"] * p.all]:
                groups.setdefault(key, []).append(x)
    rows = []
    for group, values in groups.items():
        if len(values) >= 3 or not p.least:
            rows.append((group, [MEASURES[m][1](sorted(values)) for m in p.measures]))
    rows.sort(key=lambda row: (row[0] == "ALL", 0 if p.order.startswith("by group") else -row[1][0], row[0]))
    return "\n".join(",".join([group, *(shown(v, p.digits) for v in values)]) for group, values in rows)


def instruction(p):
    rules = [
        f"print a line for each {p.group}: its name, and of its values of {p.value}: "
        + "; ".join(p.measures)
        + "; with a comma between two, and no heading"
    ]
    rules += [
        f"numbers that are not whole are rounded to {p.digits} digits after the point (half away from zero, zeros at the end stay), whole ones have no point",
        f"the lines are {p.order}",
    ]
    rules += [p.bad, "whole numbers have digits only, perhaps with a - in front", *p.only] + [
        "groups of fewer than three values (of those that count) are not printed"
    ] * p.least
    rules += ["a last line, whose group is ALL, is for all values together"] * p.all
    return wordings(p, OPENS, rules)


def program(p):
    lines = [
        "import csv, re, sys",
        "from decimal import ROUND_HALF_UP, Decimal as D, getcontext",
        "getcontext().prec = 60",
        "groups = {}",
        "for row in csv.DictReader(open(sys.argv[1])):",
    ]
    lines += [
        f"    x = row['{p.value}']",
        "    if re.fullmatch('-?[0-9]+', x):",
        "        x = int(x)",
        "    else:",
        f"        {BAD[p.bad]}",
    ]
    lines += [f"    if {ONLY[rule][0]}:\n        continue" for rule in p.only if ONLY[rule][0]]
    lines += ["    x = min(x, 50)"] * ("values above 50 count as 50" in p.only)
    lines += [
        f"    groups.setdefault(row['{p.group}'], []).append(x)",
        *["    groups.setdefault('ALL', []).append(x)"] * p.all,
        "def text(x):",
    ]
    lines += [
        f"    return str(int(x)) if x == int(x) else str(D(x).quantize(D('1e-{p.digits}'), ROUND_HALF_UP))",
        "rows = []",
        "for group, v in groups.items():",
        "    v.sort()",
    ]
    lines += ["    if len(v) < 3:", "        continue"] * p.least + [
        f"    rows.append([group, {', '.join(MEASURES[m][0] for m in p.measures)}])"
    ]
    key = "r[0]" if p.order.startswith("by group") else "-r[1], r[0]"
    lines += [
        f"rows.sort(key=lambda r: (r[0] == 'ALL', {key}))",
        "for group, *values in rows:",
        "    print(','.join([group] + [text(x) for x in values]))",
    ]
    return "\n".join(lines)


files, solution, lazy, test_half, test_result, test_program, test_hidden_tables = printer(
    make, worked, program
)
