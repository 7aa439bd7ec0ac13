"""A series of daily values with gaps, filled, smoothed and summed up by a Python program for any such series.

Hard: days must be counted over months, gaps have a rule, and each step works on what the one before left.
"""

from datetime import date, timedelta

from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "time series", "dates", "CSV")

FILLS = {
    "a day that is missing between the first and the last gets the value of the day before": "v[-1]",
    "a day that is missing between the first and the last gets the value 0": "0",
    "a day that is missing between the first and the last gets the next value that is there": "next(data[x] for x in days if x > d)",
    "days that are missing stay missing, and steps count only days that are there": "",
}
# A step on the list of (day, value): how people say it -> the solution's Python on the lists days and v, the reference's.
STEPS = {
    "replace each value by its difference from the one before (the first one is dropped)": ("days, v = days[1:], [b - a for a, b in zip(v, v[1:])]", lambda s: [(s[i][0], s[i][1] - s[i - 1][1]) for i in range(1, len(s))]),
    "replace each value by the sum of all values up to and including it": ("v = list(itertools.accumulate(v))", lambda s: [(d, sum(x for _, x in s[: i + 1])) for i, (d, _) in enumerate(s)]),
    "replace each value by the largest of it and the two before it (fewer at the beginning)": ("v = [max(v[max(0, i - 2) : i + 1]) for i in range(len(v))]", lambda s: [(d, max(x for _, x in s[max(0, i - 2) : i + 1])) for i, (d, _) in enumerate(s)]),
    "replace each value by the sum of it and the six before it (fewer at the beginning)": ("v = [sum(v[max(0, i - 6) : i + 1]) for i in range(len(v))]", lambda s: [(d, sum(x for _, x in s[max(0, i - 6) : i + 1])) for i, (d, _) in enumerate(s)]),
    "replace values above 100 by 100": ("v = [min(x, 100) for x in v]", lambda s: [(d, 100 if x > 100 else x) for d, x in s]),
    "replace negative values by 0": ("v = [max(x, 0) for x in v]", lambda s: [(d, x if x > 0 else 0) for d, x in s]),
    "drop Saturdays and Sundays": ("v = [x for d, x in zip(days, v) if d.weekday() < 5]; days = [d for d in days if d.weekday() < 5]", lambda s: [(d, x) for d, x in s if d.isoweekday() <= 5]),
    "replace each value by the median of it, the one before and the one after (the first and the last stay)": ("v = v[:1] + [sorted(v[i - 1 : i + 2])[1] for i in range(1, len(v) - 1)] + v[1:][-1:]", lambda s: [(d, x if i in (0, len(s) - 1) else sorted([s[i - 1][1], x, s[i + 1][1]])[1]) for i, (d, x) in enumerate(s)]),
}  # fmt: skip
RESULTS = {
    "a line `DAY VALUE` for each day": ("lines = [f'{d} {x}' for d, x in zip(days, v)]", lambda s: [f"{d} {x}" for d, x in s]),
    "a line `MONTH SUM` for each month (as YYYY-MM), with the sum of its values": ("m = {}\nfor d, x in zip(days, v):\n    m[str(d)[:7]] = m.get(str(d)[:7], 0) + x\nlines = [f'{k} {x}' for k, x in m.items()]", lambda s: [f"{k} {sum(x for d, x in s if str(d)[:7] == k)}" for k in sorted({str(d)[:7] for d, _ in s})]),
    "a line `WEEK LARGEST` for each week of ISO 8601 (as in 2025-W07), with the largest of its values": ("m = {}\nfor d, x in zip(days, v):\n    k = d.strftime('%G-W%V')\n    m[k] = max(m.get(k, x), x)\nlines = [f'{k} {x}' for k, x in m.items()]", lambda s: [f"{k} {max(x for d, x in s if week(d) == k)}" for k in sorted({week(d) for d, _ in s})]),
    "a line `DAY VALUE` for the three days with the largest values, largest first, of equal ones the earlier first": ("lines = [f'{d} {x}' for d, x in sorted(zip(days, v), key=lambda r: (-r[1], r[0]))[:3]]", lambda s: [f"{d} {x}" for d, x in sorted(s, key=lambda r: (-r[1], r[0]))[:3]]),
    "a line `DAY VALUE` for each day whose value is larger than that of the day printed before (the first one is printed)": ("lines, top = [], None\nfor d, x in zip(days, v):\n    if top is None or x > top:\n        lines.append(f'{d} {x}')\n        top = x", lambda s: [f"{d} {x}" for i, (d, x) in enumerate(s) if all(x > y for _, y in s[:i])]),
    "a line `WEEKDAY SUM` for each weekday that occurs, from Mon to Sun, with the sum of its values": ("m = {}\nfor d, x in zip(days, v):\n    m[d.weekday()] = m.get(d.weekday(), 0) + x\nlines = [f\"{'Mon Tue Wed Thu Fri Sat Sun'.split()[k]} {m[k]}\" for k in sorted(m)]", lambda s: [f"{n} {sum(x for d, x in s if d.weekday() == i)}" for i, n in enumerate(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]) if any(d.weekday() == i for d, _ in s)]),
}  # fmt: skip
DOUBLES = {
    "the last line counts": "data[d] = x",
    "the first line counts": "data.setdefault(d, x)",
    "their values are added": "data[d] = data.get(d, 0) + x",
}
OPENS = (
    "A meter is read by day, and a file has lines `YYYY-MM-DD,VALUE` with whole numbers, in any order. The series needs some work.",
    "Daily values come as lines of a day and a whole number, as in `2025-03-07,42`, not always in order. We need this from them.",
)


def week(day):
    year, number, _ = day.isocalendar()
    return f"{year}-W{number:02}"


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "csv", "py") | {
        "fill": rng.choice(list(FILLS)),
        "steps": rng.sample(list(STEPS), level),
        "result": rng.choice(list(RESULTS)),
        "double": rng.choice(list(DOUBLES)),
        "size": 20 + 5 * level,
    }


def make(rng, p):
    start, lines = date(2025, rng.randint(1, 10), rng.randint(15, 28)), []
    for n in range(p.size):
        lines += [
            f"{start + timedelta(n)},{rng.choice([rng.randint(-20, 140), rng.randint(0, 60)])}\n"
            for _ in range(rng.choice([0, 1, 1, 1, 2]))
        ]
    lines.sort(key=lambda _: rng.random() + 100 * (rng.random() < 0.7))
    return "".join(lines)


def worked(text, p):
    found = {}
    for line in text.splitlines():
        day, value = date.fromisoformat(line[:10]), int(line[11:])
        if day in found and not p.double.startswith("the last"):
            value = found[day] + value if "added" in p.double else found[day]
        found[day] = value
    series, day = [], min(found)
    while day <= max(found):
        if day in found or FILLS[p.fill]:
            later = (found[x] for x in sorted(found) if x > day)
            series.append(
                (
                    day,
                    found[day]
                    if day in found
                    else series[-1][1]
                    if "before" in p.fill
                    else 0
                    if "value 0" in p.fill
                    else next(later),
                )
            )
        day += timedelta(1)
    for step in p.steps:
        series = STEPS[step][1](series)
    return "\n".join(RESULTS[p.result][1](series))


def instruction(p):
    rules = [
        f"of several lines for a day, {p.double}",
        p.fill,
        *[f"then {step}" for step in p.steps],
        f"print {p.result}",
    ]
    return wordings(p, OPENS, [*rules, "everything is in order of time where nothing else is said"])


def program(p):
    lines = [
        "import itertools, sys",
        "from datetime import date, timedelta",
        "data = {}",
        "for line in open(sys.argv[1]):",
        "    d, x = line.split(',')",
        "    d, x = date.fromisoformat(d), int(x)",
        f"    {DOUBLES[p.double]}",
        "days, v = sorted(data), []",
    ]
    if FILLS[p.fill]:
        lines += [
            "first, last = days[0], days[-1]",
            "every = [first + timedelta(n) for n in range((last - first).days + 1)]",
            "for d in every:",
            f"    v.append(data[d] if d in data else {FILLS[p.fill]})",
            "days = every",
        ]
    else:
        lines += ["v = [data[d] for d in days]"]
    return "\n".join(
        [*lines, *[STEPS[step][0] for step in p.steps], RESULTS[p.result][0], "print('\\n'.join(lines))"]
    )


files, solution, lazy, test_half, test_result, test_program, test_hidden_series = printer(
    make, worked, program
)
