"""Alerts that rules raise over the samples of several metrics, by a program for any samples.

Hard: a state lasts from sample to sample, ends late or never, and metrics may be silent for a time.
"""

from sandbox.factory.kit import at, given, hidden, output, put, read, scratch, word, words

SKILLS = ("monitoring", "time series", "Python", "state machines")

# When a rule holds at a sample: people's words -> the solution's expression (of the number v and the list h of the numbers
# of the samples before it of that metric), and the reference's, of the list with the current one at its end.
CONDITIONS = {
    "the value is above {x}": ("v > {x}", lambda vs, x: vs[-1] > x),
    "the value is below {y}": ("v < {y}", lambda vs, x: vs[-1] < 100 - x),
    "the value is above {x} or below {y}": ("not {y} <= v <= {x}", lambda vs, x: vs[-1] > x or vs[-1] < 100 - x),
    "the value is more than 15 above the one of the sample before (never at the first)": ("h and v - h[-1] > 15", lambda vs, x: len(vs) > 1 and vs[-1] > vs[-2] + 15),
    "the value is the same as in the two samples before (never at the first two)": ("len(h) > 1 and h[-1] == h[-2] == v", lambda vs, x: len(vs) > 2 and len(set(vs[-3:])) == 1),
    "the mean of the last three values (of fewer, at the start) is above {z}": ("sum(h[-2:] + [v]) / len(h[-2:] + [v]) > {z}", lambda vs, x: sum(vs[-3:]) > (x - 10) * len(vs[-3:])),
    "the value is larger than all before (never at the first)": ("h and v > max(h)", lambda vs, x: len(vs) > 1 and vs.index(max(vs)) == len(vs) - 1),
}  # fmt: skip
# What is printed of the alerts, (metric, rule, start, end or None, samples, largest value) sorted by start, metric, rule.
REPORTS = {
    "`START END METRIC RULE` for each alert": (
        "for m, r, s, e, n, b in done: print(s, '-' if e is None else e, m, r)",
        lambda al: [f"{s} {'-' if e is None else e} {m} {r}" for m, r, s, e, n, b in al]),
    "`METRIC RULE COUNT` for each metric and rule with alerts, COUNT being the number of alerts; sorted by metric, then rule": (
        "c = collections.Counter((a[0], a[1]) for a in done)\nfor m, r in sorted(c): print(m, r, c[m, r])",
        lambda al: [f"{m} {r} {sum((a[0], a[1]) == (m, r) for a in al)}" for m, r in sorted({a[:2] for a in al})]),
    "`RULE METRIC START SAMPLES` for each alert, SAMPLES being the number of samples of the metric from START on up to END, or to the last one, at which the rule held": (
        "for m, r, s, e, n, b in done: print(r, m, s, n)",
        lambda al: [f"{r} {m} {s} {n}" for m, r, s, e, n, b in al]),
    "`METRIC RULE START LARGEST` for each alert, LARGEST being the largest value of the metric at the samples from START on at which the rule held": (
        "for m, r, s, e, n, b in done: print(m, r, s, b)",
        lambda al: [f"{m} {r} {s} {b}" for m, r, s, e, n, b in al]),
    "`METRIC RULE START` for the alerts that have no END, and nothing for the others": (
        "for m, r, s, e, n, b in done:\n    if e is None: print(m, r, s)",
        lambda al: [f"{m} {r} {s}" for m, r, s, e, n, b in al if e is None]),
}  # fmt: skip


def draw(rng, level):
    return {
        "samples": f"{word(rng)}.csv",
        "program": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "rules": list(
            zip(words(rng, level + 1), rng.sample(list(CONDITIONS), min(7, level + 1)), strict=False)
        ),
        "x": rng.choice([60, 70, 75]),
        "hold": rng.choice([2, 3]) if level > 1 else 1,
        "clear": rng.choice([2, 3]) if level > 2 and rng.random() < 0.7 else 1,
        "gap": rng.choice([80, 90]) if level > 2 and rng.random() < 0.7 else 0,
        "nan": level > 1 and rng.random() < 0.6,
        "shuffled": level > 3 and rng.random() < 0.6,
        "silenced": level > 3,
        "report": rng.choice(list(REPORTS)),
        "size": 25 + 15 * level,
    }


def samples(rng, p):
    """Samples with something to report (should fifty draws have nothing, those of the last)."""
    for _ in range(50):
        text = series(rng, p)
        if report(text, p):
            break
    return text


def series(rng, p):
    lines, time = [], rng.randint(1000, 9000)
    metrics = words(rng, 3)
    values = {name: rng.randint(30, 70) for name in metrics}
    for _ in range(p.size):
        time += rng.choice([10, 10, 20, 100])
        for name in rng.sample(metrics, rng.randint(1, 3)):
            values[name] = max(0, min(99, values[name] + rng.choice([-30, -9, 0, 0, 0, 5, 9, 30])))
            shown = "nan" if p.nan and rng.random() < 0.1 else values[name]
            lines.append(f"{time},{name},{shown}{',silenced' if p.silenced and rng.random() < 0.08 else ''}")
    if p.shuffled:
        rng.shuffle(lines)
    return "\n".join(lines) + "\n"


def alerts(text, p):
    rows = [line.split(",") for line in text.splitlines()]
    rows = sorted((int(row[0]), row[1], row[2], len(row) > 3) for row in rows if row[2] != "nan")
    found = []
    for metric in {row[1] for row in rows}:
        mine = [row for row in rows if row[1] == metric]
        for rule, condition in p.rules:
            row_of, quiet, open_ = 0, 0, None
            for i, (time, _, _, silenced) in enumerate(mine):
                if p.gap and i and time - mine[i - 1][0] > p.gap:
                    if open_:
                        found.append((*open_[:3], mine[i - 1][0], *open_[4:]))
                    row_of, quiet, open_ = 0, 0, None
                values = [int(row[2]) for row in mine[: i + 1]]
                holds = CONDITIONS[condition][1](values, p.x) and not silenced
                row_of, quiet = (row_of + 1, 0) if holds else (0, quiet + 1)
                if open_ and holds:
                    open_ = (*open_[:4], open_[4] + 1, max(open_[5], values[-1]))
                elif open_ and quiet == p.clear:
                    found.append((*open_[:3], time, *open_[4:]))
                    open_ = None
                elif holds and row_of == p.hold:
                    open_ = (metric, rule, time, None, 1, values[-1])
            found += [open_] if open_ else []
    return sorted(found, key=lambda a: (a[2], a[0], a[1]))


def report(text, p):
    return "\n".join(REPORTS[p.report][1](alerts(text, p)))


def files(rng, p):
    return {p.samples: samples(rng, p)}


def instruction(p):
    limits = {"x": p.x, "y": 100 - p.x, "z": p.x - 10}
    rules = "\n".join(f"- {name}: {condition.format(**limits)}" for name, condition in p.rules)
    text = f"Each line is a sample, `TIME,METRIC,VALUE` (whole numbers), {'in no order' if p.shuffled else 'in the order of time'}; a metric has one at most at a time. Each metric is watched by each of these rules alone:\n{rules}\n\n"
    begin = "first sample at which the rule holds"
    if p.hold > 1:
        begin = f"sample at which the rule holds for the {'second' if p.hold == 2 else 'third'} sample of the metric in a row"
    text += f"An alert begins (START) at the {begin}"
    text += f" and ends (END) at the next sample {'at which it does not' if p.clear == 1 else f'with which it has not held for {p.clear} samples of the metric in a row'}. While it lasts, no other begins for that metric and rule. If it has not ended by the last sample, END is `-`."
    if p.gap:
        text += f" If two successive samples of a metric are more than {p.gap} seconds apart, an alert that lasts ends at the first of them, and counts of samples in a row start anew at the second (values before it are still values before it)."
    if p.nan:
        text += " A sample with the value nan is as if it were not there."
    if p.silenced:
        text += " At a sample with a fourth field, `silenced`, no rule holds, but its value counts as one of those before the next."
    order = (
        ""
        if "sorted by" in p.report
        else " Alerts are sorted by START, then metric, then rule, in byte order."
    )
    shape = f"It prints {p.report}.{order}"
    return [
        f"/app/{p.samples} has samples of some metrics. {text}\n\nWrite the Python program /app/{p.program} that finds the "
        f"alerts in such a file, its argument. {shape} Save its output for {p.samples} as /app/{p.out}; other files follow.",
        f"Which alerts would our rules have raised on /app/{p.samples}? {text}\n\n`python3 /app/{p.program} FILE` is to answer "
        f"that for any file of samples. {shape} Please write it, and put its output for {p.samples} into /app/{p.out}.",
        f"We are replacing an alerting system, and start with a program that replays files of samples like /app/{p.samples}. "
        f"{text}\n\nMake it /app/{p.program}, in Python, with the path of the file as argument. {shape} For {p.samples}, keep "
        f"what it prints in /app/{p.out}.",
    ]


def program(p):
    limits = {"x": p.x, "y": 100 - p.x, "z": p.x - 10}
    quiet = "" if not p.silenced else " and len(row) == 3"
    lines = ["import collections, sys", "rows = [line.strip().split(',') for line in open(sys.argv[1])]"]
    lines += ["rows.sort(key=lambda row: int(row[0]))"] if p.shuffled else []
    lines += (
        ["RULES = {"]
        + [f"    {name!r}: lambda v, h: {CONDITIONS[c][0].format(**limits)}," for name, c in p.rules]
        + ["}"]
    )
    lines += ["done, past, state = [], {}, {}", "for row in rows:"]
    lines += ["    if row[2] == 'nan': continue"] if p.nan else []
    lines += ["    t, m, v = int(row[0]), row[1], int(row[2])", "    before, h = past.setdefault(m, [t, []])", "    for r, holds in RULES.items():",
              "        s = state.setdefault((m, r), {'yes': 0, 'no': 0, 'alert': None})"]  # fmt: skip
    if p.gap:
        lines += [
            f"        if t - before > {p.gap}:",
            "            if s['alert']: s['alert'][3] = before",
            "            s.update(yes=0, no=0, alert=None)",
        ]
    lines += [f"        if holds(v, h){quiet}:", "            s['yes'] += 1; s['no'] = 0", "            if s['alert']:", "                s['alert'][4] += 1; s['alert'][5] = max(s['alert'][5], v)",
              f"            elif s['yes'] == {p.hold}:", "                s['alert'] = [m, r, t, None, 1, v]; done.append(s['alert'])", "        else:", "            s['no'] += 1; s['yes'] = 0",
              f"            if s['alert'] and s['no'] == {p.clear}: s['alert'][3] = t; s['alert'] = None",
              "    past[m] = [t, h + [v]]", "done.sort(key=lambda a: (a[2], a[0], a[1]))", REPORTS[p.report][0]]  # fmt: skip
    return "\n".join(lines)


def solution(p):
    return [
        f"head -n 5 {p.samples}",
        put(p.program, program(p)),
        f"python3 {p.program} {p.samples} > {p.out}; head {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo \"print(open('/app/{p.out}').read())\" > {p.program}"]


def prints(text, p):
    return output("python3", at(p.program), scratch({"next.csv": text}) + "/next.csv")


def test_report(p):
    assert read(p.out) == report(samples(given(p), p), p) and read(p.program)


def test_hidden_samples(p):
    rng = hidden(p)
    for _ in range(3):
        text = samples(rng, p)
        assert prints(text, p) == report(text, p)


def test_hidden_single_metric(p):
    """And one that is cut off in the middle."""
    lines = samples(hidden(p), p).splitlines(keepends=True)
    name = lines[0].split(",")[1]
    text = "".join(line for line in lines if line.split(",")[1] == name)
    assert prints(text, p) == report(text, p)
    short = "".join(lines[: len(lines) // 2])
    assert prints(short, p) == report(short, p)
