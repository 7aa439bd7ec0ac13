"""Deadlines worked out from days and rules, by a Python program for any list of them.

Hard: working days, holidays, ends of months and weeks each have a rule, and one may follow another.
"""

from datetime import date, timedelta

from sandbox.factory.kit import words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "dates", "calendars", "parsing")

# A code (with its number N): how people say it -> the solution's statements on d and n, the reference's function.
CODES = {
    "+Nd: N days later": ("d += timedelta(n)", lambda d, n, free: date.fromordinal(d.toordinal() + n)),
    "-Nd: N days earlier": ("d -= timedelta(n)", lambda d, n, free: date.fromordinal(d.toordinal() - n)),
    "+Nb: N working days later (of the days after it, working days only are counted)": ("while n:\n            d += timedelta(1)\n            n -= works(d)", lambda d, n, free: [x for i in range(1, 99) if working(x := d + timedelta(i), free)][n - 1]),
    "+Nw: N weeks later": ("d += timedelta(7 * n)", lambda d, n, free: date.fromordinal(d.toordinal() + 7 * n)),
    "+Nm: N months later, on the same day of the month, or on the month's last day where it has no such day": ("k = d.year * 12 + d.month - 1 + n\n        d = date(k // 12, k % 12 + 1, min(d.day, calendar.monthrange(k // 12, k % 12 + 1)[1]))", lambda d, n, free: months(d, n)),
    "eom: the last day of the month": ("d = d.replace(day=calendar.monthrange(d.year, d.month)[1])", lambda d, n, free: months(d.replace(day=1), 1) - timedelta(1)),
    "bom: the first day of the next month": ("d = (d.replace(day=28) + timedelta(4)).replace(day=1)", lambda d, n, free: months(d.replace(day=1), 1)),
    "eoq: the last day of the quarter of the year": ("m = (d.month + 2) // 3 * 3\n        d = date(d.year, m, calendar.monthrange(d.year, m)[1])", lambda d, n, free: months(date(d.year, (d.month - 1) // 3 * 3 + 1, 1), 3) - timedelta(1)),
    "nwd: the day itself if it is a working day, else the next working day": ("while not works(d):\n            d += timedelta(1)", lambda d, n, free: next(x for i in range(99) if working(x := d + timedelta(i), free))),
    "fri: the day itself if it is a Friday, else the next Friday": ("d += timedelta((4 - d.weekday()) % 7)", lambda d, n, free: next(x for i in range(7) if (x := d + timedelta(i)).isoweekday() == 5)),
    "mon: the Monday after it (a week later, if it is a Monday itself)": ("d += timedelta(7 - d.weekday())", lambda d, n, free: next(x for i in range(1, 8) if (x := d + timedelta(i)).isoweekday() == 1)),
}  # fmt: skip
FORMS = {
    "NAME DAY, as in 2025-03-04": ("f'{name} {d}'", lambda name, d, start: f"{name} {d}"),
    "DAY WEEKDAY NAME, as in 2025-03-04 Tue": ("f'{d} {\"Mon Tue Wed Thu Fri Sat Sun\".split()[d.weekday()]} {name}'", lambda name, d, start: f"{d} {('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[d.weekday()]} {name}"),
    "NAME WEEK, with the week of ISO 8601 as in 2025-W07": ("f'{name} ' + d.strftime('%G-W%V')", lambda name, d, start: f"{name} {d.isocalendar()[0]}-W{d.isocalendar()[1]:02}"),
    "NAME DAYS, with the number of days from the day in the line to the result (it may be negative)": ("f'{name} {(d - start).days}'", lambda name, d, start: f"{name} {d.toordinal() - start.toordinal()}"),
    "NAME YEAR/N, where N is the number of the day in its year, as three digits": ("f'{name} ' + d.strftime('%Y/%j')", lambda name, d, start: f"{name} {d.year}/{d.toordinal() - date(d.year, 1, 1).toordinal() + 1:03}"),
}  # fmt: skip
ORDERS = {
    "in the order of the file": "",
    "in order of the result, equal ones by name in byte order": "rows.sort()",
    "in byte order of the names": "rows.sort(key=lambda r: r[1])",
}
OPENS = (
    "Deadlines are written as a name, a day and codes, as in `fjord 2025-03-04 +3d eom`. They have to be worked out.",
    "A file has a line for each deadline: its name, a day, and one or more codes that lead from this day to the deadline.",
)


def working(day, free):
    return day.isoweekday() < 6 and str(day) not in free


def months(day, n):
    first = date(day.year + (day.month - 1 + n) // 12, (day.month - 1 + n) % 12 + 1, 1)
    after = date(first.year + first.month // 12, first.month % 12 + 1, 1)
    return min(first + timedelta(day.day - 1), after - timedelta(1))


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    days = sorted({str(date(2025, 1, 1) + timedelta(rng.randrange(365))) for _ in range(3 * (level > 1))})
    return names(rng, "txt", "py") | {
        "codes": rng.sample(list(CODES), min(9, 2 + level)),
        "free": days,
        "chain": 1 if level < 2 else 2 if level < 4 else 3,
        "form": rng.choice(list(FORMS)),
        "order": rng.choice(list(ORDERS)),
        "remarks": rng.random() < 0.4,
        "size": 8 + 3 * level,
    }


def make(rng, p):
    lines = []
    for name in words(rng, p.size):
        start = date(2025, 1, 1) + timedelta(rng.choice([rng.randrange(365), 30, 58, 89]))
        codes = [
            rng.choice(p.codes).split(":")[0].replace("N", str(rng.randint(1, 14)))
            for _ in range(rng.randint(1, p.chain))
        ]
        lines.append(" ".join([name, str(start), *codes]))
        lines += [rng.choice(["", "# later"])] * (p.remarks and rng.random() < 0.3)
    return "\n".join(lines) + "\n"


def worked(text, p):
    rows = []
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        name, start, *codes = line.split(" ")
        day = start = date.fromisoformat(start)
        for code in codes:
            n = "".join(c for c in code if c.isdigit())
            kind = next(
                kind for kind in p.codes if kind.split(":")[0] == (code.replace(n, "N") if n else code)
            )
            day = CODES[kind][1](day, int(n or 0), p.free)
        rows.append((day, name, FORMS[p.form][1](name, day, start)))
    rows = (
        sorted(rows, key=lambda row: row[:2] if "result" in p.order else row[1]) if ORDERS[p.order] else rows
    )
    return "\n".join(row[2] for row in rows)


def instruction(p):
    work = any("working" in code for code in p.codes)
    rules = [*p.codes, *["the codes of a line work one after the other"] * (p.chain > 1)]
    if work:
        rules.append(
            "working days are Monday to Friday" + (f", but not {', '.join(p.free)}" if p.free else "")
        )
    rules += ["empty lines, and lines that begin with a #, mean nothing"] * p.remarks + [
        f"print a line for each deadline: {p.form}",
        f"the lines are {p.order}",
    ]
    return wordings(p, OPENS, rules)


def program(p):
    lines = [
        "import calendar, re, sys",
        "from datetime import date, timedelta",
        f"free = {p.free!r}",
        "def works(d):",
        "    return d.weekday() < 5 and str(d) not in free",
        "def after(d, code):",
    ]
    lines += [
        "    n = int('0' + ''.join(re.findall('[0-9]', code)))",
        "    kind = re.sub('[0-9]+', 'N', code)",
    ]
    for kind in p.codes:
        lines += [f"    if kind == '{kind.split(':')[0]}':", f"        {CODES[kind][0]}"]
    lines += [
        "    return d",
        "rows = []",
        "for line in open(sys.argv[1]):",
        "    if not line.strip() or line.startswith('#'):",
        "        continue",
        "    name, day, *codes = line.split()",
        "    d = start = date.fromisoformat(day)",
    ]
    lines += [
        "    for code in codes:",
        "        d = after(d, code)",
        f"    rows.append((d, name, {FORMS[p.form][0]}))",
        ORDERS[p.order],
        "for row in rows:",
        "    print(row[2])",
    ]
    return "\n".join(line for line in lines if line)


files, solution, lazy, test_half, test_result, test_program, test_hidden_deadlines = printer(
    make, worked, program
)
