"""When the tasks of a project can begin and which of them must not be late, by a program for any project.

Hard: chains of dependencies forwards and backwards, lags, days off, and cycles that make a plan impossible.
"""

from sandbox.factory.kit import PEOPLE, given, words
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

SKILLS = ("scheduling", "critical path", "graphs", "Python")

# The solution has `begin`, `end` (first day after), `slack`, `t`: name -> (days, needs, who), `last`.
REPORTS = {
    "begins": ("TASK=DAY for all tasks in the order of the file, with the day on which each begins", "[f'{n}={begin[n]}' for n in t]", lambda f: [f"{n}={x['begin']}" for n, x in f.items()]),
    "length": ("the day on which the project is done", "last", lambda f: max(x["end"] for x in f.values())),
    "critical": ("the critical tasks, in the order in which they begin (on the same day: in alphabetical order)", "sorted((n for n in t if slack[n] == 0), key=lambda n: (begin[n], n))", lambda f: [n for _, n in sorted((x["begin"], n) for n, x in f.items() if not x["slack"])]),
    "slack": ("TASK=DAYS for all tasks that are not critical, in alphabetical order, with their slack", "[f'{n}={slack[n]}' for n in sorted(t) if slack[n]]", lambda f: [f"{n}={f[n]['slack']}" for n in sorted(f) if f[n]["slack"]]),
    "first": ("the tasks that begin on day 0, in alphabetical order", "sorted(n for n in t if begin[n] == 0)", lambda f: sorted(n for n, x in f.items() if x["begin"] < 1)),
    "final": ("the tasks that no other task needs, in alphabetical order", "sorted(set(t) - {d for r in t.values() for d, _ in r[1]})", lambda f: sorted(n for n in f if all(n not in dict(x["needs"]) for x in f.values()))),
    "people": ("PERSON=DAYS for all people in alphabetical order, with the sum of the days of their tasks", "[f'{w}={sum(r[0] for r in t.values() if r[2] == w)}' for w in sorted({r[2] for r in t.values()})]", lambda f: [f"{w}={sum(x['days'] for x in f.values() if x['who'] == w)}" for w in sorted({x["who"] for x in f.values()})]),
    "clash": ("the people who have two tasks at one time, in alphabetical order", "sorted({t[a][2] for a in t for b in t if a < b and t[a][2] == t[b][2] and max(begin[a], begin[b]) < min(end[a], end[b])})", lambda f: sorted({x["who"] for n, x in f.items() if any(m != n and y["who"] == x["who"] and {*range(x["begin"], x["end"])} & {*range(y["begin"], y["end"])} for m, y in f.items())})),
    "busiest": ("the first day on which most tasks are going on", "min(range(last), key=lambda d: (-sum(begin[n] <= d < end[n] for n in t), d))", lambda f: max(range(max(x["end"] for x in f.values())), key=lambda d: sum(d in range(x["begin"], x["end"]) for x in f.values()))),
    "depth": ("how many tasks the longest chain has in which each needs the one before", "max(map(depth, t))", lambda f: max(x["depth"] for x in f.values())),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "plan"),
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2),
        "lag": level > 1 and rng.random() < 0.7,
        "off": rng.choice([0, 5, 7]) if level > 2 else 0,
        "not_before": level > 1 and rng.random() < 0.6,
        "milestones": level > 3 and rng.random() < 0.5,
        "shuffled": level > 1,
        "size": 5 + 2 * level,
    }


def data(rng, p):
    people, rows, known = words(rng, 3, PEOPLE), [], []
    for name in words(rng, p.size):
        needs = rng.sample(known[-4:], min(len(known), rng.choice([0, 1, 1, 2])))
        shown = (
            ",".join(n + (f"+{rng.randint(1, 3)}" if p.lag and rng.random() < 0.4 else "") for n in needs)
            or "-"
        )
        days = 0 if p.milestones and rng.random() < 0.15 and known else rng.randint(1, 6)
        start = f" not-before {rng.randint(1, 9)}" if p.not_before and rng.random() < 0.3 else ""
        rows.append(f"{name} {days} {rng.choice(people)} {shown}{start}\n")
        known.append(name)
    if p.shuffled:
        rng.shuffle(rows)
    return "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def works(day, p):
    return not p.off or day % p.off != p.off - 1


def facts(text, p):
    """Forwards until nothing moves any more, and for the slack with each task put off day by day."""
    tasks = {}
    for line in text.splitlines():
        name, days, who, needs, *rest = line.split()
        parts = [] if needs == "-" else [part.partition("+") for part in needs.split(",")]
        tasks[name] = {
            "days": int(days),
            "who": who,
            "needs": [(n, int(lag or 0)) for n, _, lag in parts],
            "from": int(rest[1]) if rest else 0,
        }

    def plan(delayed="", delay=0):
        found = dict.fromkeys(tasks, (0, 0))
        for _ in range(len(tasks) + 1):
            for name, x in tasks.items():
                begin = max([x["from"], *(found[n][1] + lag for n, lag in x["needs"])])
                while not works(begin, p):
                    begin += 1
                for _ in range(delay if name == delayed else 0):
                    begin += 1
                    while not works(begin, p):
                        begin += 1
                end, left = begin, x["days"]
                while left:
                    left -= works(end, p)
                    end += 1
                found[name] = (begin, end)
        return found

    found = plan()
    last = max(end for _, end in found.values())
    for name, x in tasks.items():
        x["begin"], x["end"] = found[name]
        x["slack"] = next(d for d in range(1, 99) if max(end for _, end in plan(name, d).values()) > last) - 1
    for x in tasks.values():
        x["depth"] = deep(x, tasks)
    return tasks


def deep(x, tasks):
    return 1 + max((deep(tasks[n], tasks) for n, _ in x["needs"]), default=0)


def instruction(p):
    about = f"Each line of the file is a task of a project: its name, the days that it takes, its person, and the tasks that it needs, with commas between them, or -{', perhaps followed by `not-before DAY`' * p.not_before}."
    rules = [
        "Days are numbered from 0. A task that begins on day 4 and takes 3 days goes on through days 4, 5 and 6, and ends on day 7: a task that needs it can begin on day 7. Each task begins as early as it can. The project is done on the latest day on which a task ends."
    ]
    if p.lag:
        rules.append("A needed task written as NAME+2 must have ended at least 2 days before.")
    if p.not_before:
        rules.append("A task with `not-before` does not begin before that day.")
    if p.off:
        rules.append(
            f"Days whose number leaves {p.off - 1} when divided by {p.off} are off: no task begins on them, and they do not count for the days that a task takes (it goes on through them if it has to go on after them). A task ends on the day after its last day of work."
        )
    if p.milestones:
        rules.append("A task of 0 days ends on the day it begins.")
    if {"critical", "slack"} & set(p.cases):
        rules.append(
            f"The slack of a task is the largest number of {'working ' * bool(p.off)}days by which its begin alone could be put off (with all tasks that need it, as far as they must be) without the project being done later; a task without slack is critical."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    step = f"d % {p.off} == {p.off - 1}" if p.off else "False"
    head = f"""import functools, sys
t = {{}}
for line in open(sys.argv[1]):
    n, days, who, needs, *rest = line.split()
    pairs = [(x + "+0").split("+")[:2] for x in needs.split(",") if x != "-"]
    t[n] = (int(days), [(a, int(b)) for a, b in pairs], who, int(rest[1]) if rest else 0)
def off(d): return {step}
def up(d):
    while off(d): d += 1
    return d
def run(d, days):
    for _ in range(days): d = up(d) + 1
    return d
@functools.cache
def span(n, late="", by=0):
    b = up(max([t[n][3]] + [span(d, late, by)[1] + lag for d, lag in t[n][1]]))
    if n == late:
        for _ in range(by): b = up(b + 1)
    return b, run(b, t[n][0])
begin = {{n: span(n)[0] for n in t}}
end = {{n: span(n)[1] for n in t}}
last = max(end.values())
@functools.cache
def depth(n): return 1 + max((depth(d) for d, _ in t[n][1]), default=0)
slack = {{}}
for n in t:
    by = 0
    while max(span(m, n, by + 1)[1] for m in t) <= last: by += 1
    slack[n] = by"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
