"""Which requests a rate limit lets through, by a program that must tell it for any list of requests.

Hard: four kinds of limit that differ at their borders only, and what a refused request costs.
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

SKILLS = ("rate limits", "simulation", "Python", "time")

# A limit: what is said -> the body of the solution's `allows(past, t)`, which may change the list `past`.
LIMITS = {
    "window": ("In each window of {span} seconds (the first begins at 0, each other where the one before ends), at most {most} of its requests are let through.",
        "    ok = sum(x // {span} == t // {span} for x in past) < {most}\n    if ok: past.append(t)"),
    "sliding": ("A request at time T is let through if fewer than {most} of its requests that were let through have a time above T - {span}.",
        "    ok = sum(x > t - {span} for x in past) < {most}\n    if ok: past.append(t)"),
    "strict": ("A request at time T is let through if fewer than {most} of its requests before, let through or not, have a time above T - {span}.",
        "    ok = sum(x > t - {span} for x in past) < {most}\n    past.append(t)"),
    "bucket": ("It has a bucket of {most} tokens, full at time 0, that gets one more at every time that {span} divides (but never holds more than {most}). A request takes a token, and is let through if there is one; a token that comes at the time of a request is there for it.",
        "    if not past: past += [{most}, 0]\n    past[0] = min({most}, past[0] + t // {span} - past[1] // {span})\n    past[1] = t\n    ok = past[0] > 0\n    past[0] -= ok"),
    "pause": ("A request is let through, unless its last {most} requests (let through or not) were all let through and the last of them was less than {span} seconds before; with fewer than {most} requests before, it is let through.",
        "    ok = len(past) < {most} or not all(o for _, o in past[-{most}:]) or t - past[-1][0] >= {span}\n    past.append((t, ok))"),
    "gap": ("A request is let through if it is its first, or if its last request that was let through is {span} seconds or more before; at every time that {most}0 divides it is let through anyway.",
        "    ok = not past or t - past[-1] >= {span} or t % {most}0 == 0\n    if ok: past.append(t)"),
}  # fmt: skip
REPORTS = {
    "passed": ("how many requests are let through", "sum(o for _, _, o in seen)", lambda f: [x["ok"] for x in f].count(True)),
    "refused": ("TIME:CLIENT of every refused request, in order", "[f'{t}:{c}' for t, c, o in seen if not o]", lambda f: [f"{x['time']}:{x['who']}" for x in f if not x["ok"]]),
    "clients": ("CLIENT=COUNT for every client, in alphabetical order, with the number of its requests that were let through", "[f'{c}={sum(o for _, d, o in seen if c == d)}' for c in sorted({c for _, c, _ in seen})]",
        lambda f: [f"{c}={sum(x['ok'] for x in f if x['who'] == c)}" for c in sorted({x["who"] for x in f})]),
    "worst": ("the client with most refused requests, of several the first in the alphabet; `-` if none was refused", "min(bad, key=lambda c: (-bad.count(c), c), default='-')",
        lambda f: max(sorted(bad := [x["who"] for x in f if not x["ok"]]), key=bad.count, default="-")),
    "clean": ("the clients without a refused request, in alphabetical order", "sorted({c for _, c, _ in seen} - set(bad))", lambda f: sorted({x["who"] for x in f} - {x["who"] for x in f if not x["ok"]})),
    "last": ("the time of the last refused request, `-` if none was refused", "max((t for t, _, o in seen if not o), default='-')", lambda f: next((x["time"] for x in reversed(f) if not x["ok"]), "-")),
    "run": ("the largest number of refused requests in a row, all clients together", "max(map(len, ''.join('-x'[not o] for _, _, o in seen).split('-')))", lambda f: run(f)),
    "percent": ("the requests that were let through in percent of all, rounded down", "sum(o for _, _, o in seen) * 100 // len(seen)", lambda f: int(100 * sum(x["ok"] for x in f) / len(f) + 1e-9)),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "log"),
        "limit": rng.choice(list(LIMITS)),
        "most": rng.randint(2, 3),
        "span": rng.choice([5, 6, 8]),
        "shared": level > 1 and rng.random() < 0.3,
        "trusted": rng.choice(["never refused and does not count", "refused always"]) if level > 2 else "",
        "cost": level > 3 and rng.random() < 0.5,
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2),
        "size": 14 + 6 * level,
    }


def data(rng, p):
    people, now, rows = words(rng, 4, PEOPLE), rng.randint(0, 3), []
    for _ in range(p.size):
        now += rng.choice([0, 0, 1, 1, 2, 5])
        mark = " *" if p.trusted and rng.random() < 0.2 else ""
        rows.append(f"{now} {rng.choice(people[:3] * 2 + people)} {rng.choice(['read', 'write'])}{mark}\n")
    return "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    """The requests; a limit's state is worked out anew from those before, each time."""
    seen = []
    for row in text.splitlines():
        time, who, what, *mark = row.split()
        x = {"time": int(time), "who": who, "counts": not (p.cost and what == "read")}
        mine = [y for y in seen if (p.shared or y["who"] == who) and y["counts"]]
        if mark and p.trusted:
            x |= {"ok": p.trusted.startswith("never"), "counts": False}
        elif not x["counts"]:
            x["ok"] = True
        else:
            x["ok"] = allowed(x["time"], mine, p)
        seen.append(x)
    return seen


def allowed(now, mine, p):
    past = [y["time"] for y in mine if y["ok"]]
    match p.limit:
        case "window":
            return len([t for t in past if t // p.span == now // p.span]) < p.most
        case "sliding":
            return len([t for t in past if now - t < p.span]) < p.most
        case "strict":
            return len([y for y in mine if now - y["time"] < p.span]) < p.most
        case "bucket":
            tokens = p.most
            for time in range(1, now + 1):
                tokens = min(p.most, tokens - past.count(time - 1) + (time % p.span == 0))
            return tokens - past.count(now) > 0
        case "pause":
            tail = mine[-p.most :]
            return len(tail) < p.most or any(not y["ok"] for y in tail) or now - tail[-1]["time"] >= p.span
        case _:
            return not past or now - past[-1] >= p.span or now % (10 * p.most) == 0


def run(f):
    best = here = 0
    for x in f:
        here = 0 if x["ok"] else here + 1
        best = max(best, here)
    return best


def instruction(p):
    about = "Each line of the file is a request, `TIME CLIENT read` or `TIME CLIENT write`, the time in seconds and never falling."
    of = "all clients together as if they were one" if p.shared else "each client on its own"
    rules = [f"A rate limit holds for {of}. {LIMITS[p.limit][0].format(most=p.most, span=p.span)}"]
    if p.trusted:
        rules.append(f"A request marked with a * at the end of its line is {p.trusted}" + (" for the limit." if "never" in p.trusted else ", and does not count for the limit."))  # fmt: skip
    if p.cost:
        rules.append("Unless so marked, reads are let through without a limit; only writes count for it.")
    return asks(p, about, rules, REPORTS)


def source(p):
    mark = (
        f"    if w[3:]:\n        seen.append((t, w[1], {p.trusted.startswith('never')}))\n        continue\n"
        if p.trusted
        else ""
    )
    cost = (
        "    if w[2] == 'read':\n        seen.append((t, w[1], True))\n        continue\n" if p.cost else ""
    )
    head = f"""import sys
from collections import defaultdict
def allows(past, t):
{LIMITS[p.limit][1].format(most=p.most, span=p.span)}
    return ok
seen, pasts = [], defaultdict(list)
for line in open(sys.argv[1]):
    w = line.split()
    t = int(w[0])
{mark}{cost}    seen.append((t, w[1], allows(pasts[{"0" if p.shared else "w[1]"}], t)))
bad = [c for _, c, o in seen if not o]"""
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
