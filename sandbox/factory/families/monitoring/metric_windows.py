"""Measurements gathered into windows of time, by a program that must summarise any series.

Hard: windows without data, counters that start again, odd units and the right percentile.
"""

from itertools import pairwise

from sandbox.factory.kit import given, words
from sandbox.factory.kit_report import (
    asks,
    check_output,
    check_report,
    fresh,
    lazy_steps,
    names,
    program,
    some,
    steps,
)

SKILLS = ("time series", "aggregation", "Python", "percentiles")

# How a window is summed up: what is said, the solution's expression over `v` (values in order), the reference.
MODES = {
    "the sum of its values": ("sum(v)", lambda v: sum(v)),
    "its largest value": ("max(v)", lambda v: sorted(v)[-1]),
    "its smallest value": ("min(v)", lambda v: sorted(v)[0]),
    "its last value": ("v[-1]", lambda v: v[len(v) - 1]),
    "its first value": ("v[0]", lambda v: v[-len(v)]),
    "the number of its values": ("len(v)", lambda v: sum(1 for _ in v)),
    "its largest value minus its smallest": ("max(v) - min(v)", lambda v: sorted(v)[-1] - sorted(v)[0]),
    "its 90th percentile (of n values in ascending order, the one at the place 0.9 n, rounded up, counted from 1)": ("sorted(v)[-(-9 * len(v) // 10) - 1]", lambda v: sorted(v)[next(k for k in range(1, len(v) + 1) if 10 * k >= 9 * len(v)) - 1]),
    "its lower median": ("sorted(v)[(len(v) - 1) // 2]", lambda v: sorted(v)[-(len(v) // 2) - 1]),
}  # fmt: skip
REPORTS = {
    "windows": ("BEGIN=VALUE for every window, in order of time, from the first to the last with a measurement of the series", "[f'{t}={x}' for t, x in win]", lambda f: [f"{t}={v}" for t, v in f["main"]]),
    "peak": ("the begin of the window with the largest value, of several the first; windows without a measurement are left aside", "max((w for w in win if w[0] in bags), key=lambda w: (w[1], -w[0]))[0]", lambda f: next(t for t in sorted(f["full"]) if f["full"][t] == max(f["full"].values()))),
    "gaps": ("the begins of the windows without a measurement, between the first and the last window with one", "[t for t, _ in win if t not in bags]", lambda f: [t for t, _ in f["main"] if t not in f["full"]]),
    "rising": ("how many windows with a measurement have a larger value than the window with a measurement before them", "sum(b > a for a, b in zip(full, full[1:]))", lambda f: sum(f["full"][t] < f["full"][u] for t, u in f["pairs"])),
    "above": ("the begins of the windows whose value is above {limit}, windows without a measurement left aside", "[t for t, x in win if t in bags and x > {limit}]", lambda f: [t for t in sorted(f["full"]) if f["full"][t] > f["limit"]]),
    "series": ("SERIES=COUNT for all series of the file in alphabetical order, with the number of their measurements that count", "[f'{s}={n}' for s, n in sorted(count.items())]", lambda f: [f"{s}={len(f['all'][s])}" for s in sorted(f["all"])]),
    "total": ("the sum of the values of all windows with a measurement", "sum(full)", lambda f: sum(f["full"].values())),
    "run": ("the largest number of windows in a row, each with a measurement and a value above {limit}", "max(map(len, ''.join('x' if t in bags and x > {limit} else ' ' for t, x in win).split(' ')))", lambda f: longest(f)),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "series"),
        "mode": rng.choice(list(MODES)),
        "span": rng.choice([10, 20, 60]),
        "empty": rng.choice(["-", "0", "the value of the window before"]),
        "counter": level > 2 and rng.random() < 0.6,
        "units": level > 1 and rng.random() < 0.6,
        "bad": rng.choice(["", "nan", "error"]) if level > 1 else "",
        "late": level > 3,
        "limit": rng.choice([40, 60]),
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2),
        "size": 14 + 6 * level,
    }


def data(rng, p):
    pool, now, rows = words(rng, 3), rng.randint(100, 400), []
    total = dict.fromkeys(pool, 0)
    for _ in range(p.size):
        now += rng.choice([2, 3, 5, 9, p.span, p.span]) if rng.random() < 0.9 else 3 * p.span
        name = rng.choice(pool[:1] * 3 + pool)
        value = rng.randint(0, 70)
        if p.counter:
            total[name] = rng.randint(0, 9) if rng.random() < 0.15 else total[name] + value // 2
            value = total[name]
        shown = f"{value}k" if p.units and rng.random() < 0.2 else str(value)
        if p.bad and rng.random() < 0.12:
            shown = p.bad
        rows.append(f"{now} {name} {shown}\n")
    if p.late:
        for _ in range(4):
            place = rng.randrange(len(rows) - 1)
            rows[place : place + 2] = rows[place : place + 2][::-1]
    return f"series {pool[0]}\n" + "".join(
        [*rows, f"{now + p.span} {pool[0]} 1\n", f"{now + p.span + 1} {pool[0]} 5\n"]
    )


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    head, *lines = text.splitlines()
    rows = [line.split() for line in lines]
    rows = sorted(([int(t), s, v] for t, s, v in rows if v != p.bad or not p.bad), key=lambda r: r[0])
    every = {}
    for time, name, value in rows:
        number = int(value[:-1]) * 1000 if value[-1] == "k" else int(value)
        every.setdefault(name, []).append((time, number))
    if p.counter:
        every = {s: [(u, y - x if y >= x else y) for (_, x), (u, y) in pairwise(v)] for s, v in every.items()}
    mine = every[head.split()[1]]
    begins = range(mine[0][0] // p.span * p.span, mine[-1][0] + 1, p.span)
    full, main = {}, []
    for begin in begins:
        inside = [v for t, v in mine if begin <= t < begin + p.span]
        if inside:
            full[begin] = MODES[p.mode][1](inside)
        main.append((begin, full[begin] if inside else main[-1][1] if p.empty.startswith("the") else p.empty))
    order = sorted(full)
    return {
        "main": main,
        "full": full,
        "pairs": list(pairwise(order)),
        "all": every,
        "limit": p.limit,
    }


def longest(f):
    best = here = 0
    for t, _ in f["main"]:
        here = here + 1 if f["full"].get(t, 0) > f["limit"] else 0
        best = max(best, here)
    return best


def instruction(p):
    about = (
        "The first line of the file is `series` and the name of the series that is asked about; every other line is a measurement, `TIME SERIES VALUE`, in seconds"
        + (", not always in the order of time." if p.late else ", in the order of time.")
    )
    rules = [
        f"A window begins at each time that {p.span} divides and lasts {p.span} seconds, without its end. Its value is {p.mode}, as to the measurements of the series in it; that of a window without any is {p.empty}."
    ]
    if p.units:
        rules.append("A value such as 7k is 7000.")
    if p.bad:
        rules.append(f"A measurement whose value is {p.bad} does not count at all.")
    if p.counter:
        rules.append(
            "The values are those of counters: each measurement stands for its value minus the one of the measurement before in its series, or, if that is negative (the counter began anew), for its value alone; the first measurement of a series does not count."
        )
    sized = {name: (text.format(limit=p.limit), *rest) for name, (text, *rest) in REPORTS.items()}
    return asks(p, about, rules, sized)


def source(p):
    bad = f"    if w[2] == {p.bad!r}: continue\n" if p.bad else ""
    number = "int(w[2].replace('k', '000'))" if p.units else "int(w[2])"
    counter = """    old = last.get(w[1])
    last[w[1]] = x
    if old is None:
        count.setdefault(w[1], 0)
        continue
    x = x - old if x >= old else x
""" if p.counter else ""  # fmt: skip
    order = "\nlines.sort(key=lambda w: int(w[0]))" if p.late else ""
    head = f"""import sys
name = open(sys.argv[1]).readline().split()[1]
lines = [line.split() for line in open(sys.argv[1])][1:]{order}
bags, count, last, EMPTY = {{}}, {{}}, {{}}, {p.empty!r}
for w in lines:
{bad}    x = {number}
{counter}    count[w[1]] = count.get(w[1], 0) + 1
    if w[1] == name: bags.setdefault(int(w[0]) // {p.span} * {p.span}, []).append(x)
win = []
for t in range(min(bags), max(bags) + 1, {p.span}):
    v = bags.get(t)
    win.append((t, {MODES[p.mode][0]} if v else {"win[-1][1]" if p.empty.startswith("the") else "EMPTY"}))
full = [x for t, x in win if t in bags]"""
    reports = {
        name: (text, code.replace("{limit}", str(p.limit)), ref)
        for name, (text, code, ref) in REPORTS.items()
    }
    return program(p, head, reports)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
