"""Outages and availability of services from a log of checks, by a program that must work for any log.

Hard: a service is down from its first failed check to its next good one, logs begin and end in the middle of outages,
and services are checked at different times.
"""

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

SKILLS = ("monitoring", "intervals", "Python", "sums")

# The solution has `outs`: (service, begin, end, open) in the order of their begins; `log`: (time, service, good, ms).
REPORTS = {
    "outages": ("SERVICE=COUNT for every service in alphabetical order, with its number of outages", "[f'{s}={sum(o[0] == s for o in outs)}' for s in every]", lambda f: [f"{s}={len(downs(f, s))}" for s in sorted(f)]),
    "downtime": ("SERVICE=SECONDS for every service in alphabetical order, with the sum of its outages' lengths", "[f'{s}={sum(o[2] - o[1] for o in outs if o[0] == s)}' for s in every]",
        lambda f: [f"{s}={sum(z - a for a, z, _ in downs(f, s))}" for s in sorted(f)]),
    "longest": ("service and length of the longest outage, of several the one of the first service in the alphabet; `-` if there was none", "min(((o[1] - o[2], o[0]) for o in outs), default=None) and [min((o[1] - o[2], o[0]) for o in outs)[1], max(o[2] - o[1] for o in outs)] or '-'",
        lambda f: max([[z - a, s] for s in sorted(f) for a, z, _ in downs(f, s)], key=lambda x: x[0], default="-")[::-1]),
    "open": ("the services that are down at the end of the log, in alphabetical order", "sorted(o[0] for o in outs if o[3])", lambda f: [s for s in sorted(f) if not f[s][-1][1]]),
    "always": ("the services without an outage, in alphabetical order", "[s for s in every if s not in {o[0] for o in outs}]", lambda f: [s for s in sorted(f) if not downs(f, s)]),
    "slowest": ("SERVICE=MS for every service with a good check, in alphabetical order, with the largest time of a good check in milliseconds", "[f'{s}={max(m for _, n, g, m in log if g and n == s)}' for s in every if any(g and n == s for _, n, g, _ in log)]",
        lambda f: [f"{s}={max(good)}" for s in sorted(f) if (good := [ms for _, _, ms in f[s] if ms])]),
    "together": ("how many seconds at least two services were down at a time", "both(outs)", lambda f: sum(sum(a <= t < z for s in f for a, z, _ in downs(f, s)) > 1 for t in range(last(f)))),
    "flaps": ("the services with at least three changes from good to failed or back between one of its checks and its next, in alphabetical order", "[s for s in every if changes(s) > 2]", lambda f: [s for s in sorted(f) if sum(a[1] != b[1] for a, b in zip(f[s], f[s][1:], strict=False)) > 2]),
    "short": ("how many outages were shorter than 60 seconds and had ended by the end of the log", "sum(o[2] - o[1] < 60 and not o[3] for o in outs)", lambda f: sum(z - a < 60 and done for s in f for a, z, done in downs(f, s))),
    "failures": ("how many checks failed", "sum(not g for _, _, g, _ in log)", lambda f: sum(not good for s in f for _, good, _ in f[s])),
}  # fmt: skip


def draw(rng, level):
    return {**names(rng, "checks"), "cases": some(rng, REPORTS, 1 + level), "size": 20 + 8 * level}


def data(rng, p):
    services, now, rows = words(rng, 4), rng.randint(0, 50), []
    bad = dict.fromkeys(services, False)
    for turn in range(p.size):
        now += rng.choice([5, 10, 10, 25])
        name = services[turn] if turn < 4 else rng.choice(services)
        bad[name] ^= rng.random() < (0.45 if name != services[0] else 0.05)
        rows.append(f"{now} {name} {'fail' if bad[name] else f'ok {rng.randint(3, 900)}'}\n")
    return "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text):
    """Service -> its checks: (time, good, milliseconds)."""
    f = {}
    for row in text.splitlines():
        time, name, state, *ms = row.split()
        f.setdefault(name, []).append((int(time), state == "ok", int(ms[0]) if ms else 0))
    return f


def last(f):
    return max(time for s in f for time, _, _ in f[s])


def downs(f, s):
    """The outages of a service: (begin, end, whether it has ended)."""
    found, begin = [], None
    for time, good, _ in f[s]:
        if good and begin is not None:
            found.append((begin, time, True))
        begin = None if good else time if begin is None else begin
    return found if begin is None else [*found, (begin, last(f), False)]


def instruction(p):
    about = "Each line of the file is a check of a service at a time in seconds: `TIME SERVICE ok MILLISECONDS` or `TIME SERVICE fail`; times rise from line to line."
    rules = [
        "An outage of a service begins at a failed check, if the check of this service before was good or there was none. "
        "It ends at the service's next good check; without one, it lasts to the end of the log, which is the time of "
        "the last line."
    ]
    return asks(p, about, rules, REPORTS)


def source(p):
    head = """import sys
log, outs, since = [], [], {}
for line in open(sys.argv[1]):
    w = line.split()
    t, s, g = int(w[0]), w[1], w[2] == "ok"
    log.append((t, s, g, int(w[3]) if g else 0))
    if g and s in since: outs.append((s, since.pop(s), t, False))
    if not g: since.setdefault(s, t)
outs += [(s, b, t, True) for s, b in since.items()]
every = sorted({s for _, s, _, _ in log})
def changes(s):
    row = [g for _, n, g, _ in log if n == s]
    return sum(a != b for a, b in zip(row, row[1:]))
def both(outs):
    marks = sorted([(b, 1) for _, b, _, _ in outs] + [(e, -1) for _, _, e, _ in outs])
    total = depth = before = 0
    for at, step in marks:
        total += (at - before) * (depth > 1)
        depth, before = depth + step, at
    return total"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p)))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text))
