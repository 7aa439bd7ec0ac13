"""A state machine defined by a file, by a program that must run any such machine on any input.

Hard: wild transitions, actions on a counter, what happens without a transition, and resets interact.
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

SKILLS = ("state machines", "parsing", "Python", "simulation")

# The solution has `path` (states, the first included), `used` (rules in the order of use, None where there was none), `rules`, `n` (counter), `counts`.
REPORTS = {
    "end": ("the state after the last event", "path[-1]", lambda f: f["path"][-1]),
    "path": ("the states in which it was, from the first on, a state that follows on itself being named once", "[s for i, s in enumerate(path) if not i or path[i - 1] != s]", lambda f: squeezed(f["path"])),
    "ignored": ("how many events had no transition", "used.count(None)", lambda f: sum(u is None for u in f["used"])),
    "unused": ("how many transitions of the file were never taken", "len(rules) - len(set(used) - {None})", lambda f: sum(r not in f["used"] for r in f["rules"])),
    "visits": ("STATE=COUNT for every state it was in, in alphabetical order, with the number of events after which it was there", "[f'{s}={path[1:].count(s)}' for s in sorted(set(path))]", lambda f: [f"{s}={sum(t == s for t in f['path'][1:])}" for s in sorted({*f["path"]})]),
    "counter": ("the counter after the last event", "n", lambda f: f["n"]),
    "peak": ("the largest value that the counter had (0 at the begin)", "max(counts)", lambda f: max(f["counts"])),
    "stuck": ("the states from which no transition leads to another state, in alphabetical order; all states that occur in the transitions count, * being none", "sorted(s for s in states if not any(a in (s, '*') and b != s for a, _, b, *_ in rules))",
        lambda f: sorted(s for s in f["states"] if all(r["to"] == s for r in f["rules"] if r["from"] in (s, "*")))),
    "events": ("the events that occur in the input but in no transition, each once, in alphabetical order", "sorted(set(events) - {r[1] for r in rules})", lambda f: sorted({e for e in f["events"] if e not in [r["on"] for r in f["rules"]]})),
    "reached": ("the states that can be reached from the first one by transitions, whatever the conditions, in alphabetical order", "reach()", lambda f: sorted(reached(f))),
}  # fmt: skip
MISSING = {
    "the state stays as it is": "s",
    "the machine goes to its first state": "path[0]",
    "the machine goes to the state it was in before the last event (or stays in the first one)": "path[-2:][0]",
}


def draw(rng, level):
    star = level > 1
    return {
        **names(rng, "fsm"),
        "missing": rng.choice(list(MISSING)),
        "star": rng.choice(["before", "after"]) if star else "",
        "counter": level > 2,
        "low": rng.choice([0, -2]),
        "guards": level > 3,
        "cases": some(
            rng, [r for r in REPORTS if level > 2 or r not in ("counter", "peak")], 2 + (level + 1) // 2
        ),
        "double": rng.choice(["first", "last"]),
        "size": 12 + 6 * level,
    }


def data(rng, p):
    states, events = words(rng, 4), words(rng, 4)
    rows = []
    for _ in range(8 + p.level):
        left = "*" if p.star and rng.random() < 0.2 else rng.choice(states)
        row = [left, rng.choice(events[:3]), "->", rng.choice(states)]
        if p.counter and rng.random() < 0.6:
            row.append(rng.choice(["+1", "-1", "+3", "=0"]))
        if p.guards and rng.random() < 0.4:
            row += ["if", rng.choice(["<", ">"]), str(rng.randint(0, 3))]
        rows.append(" ".join(row) + "\n")
    return (
        f"start {states[0]}\n"
        + "".join(rows)
        + "input "
        + " ".join(rng.choice(events[:3] * 4 + events) for _ in range(p.size))
        + "\n"
    )


def files(rng, p):
    return {p.data: data(rng, p)}


def squeezed(path):
    found = []
    for state in path:
        if found[-1:] != [state]:
            found.append(state)
    return found


def facts(text, p):
    first, *lines, last = text.splitlines()
    f = {
        "rules": [],
        "events": last.split()[1:],
        "path": [first.split()[1]],
        "used": [],
        "n": 0,
        "counts": [0],
    }
    for place, row in enumerate(map(str.split, lines)):
        step, _, guard = " ".join(row[4:]).partition("if ")
        f["rules"].append(
            {
                "from": row[0],
                "on": row[1],
                "to": row[3],
                "step": step.strip(),
                "guard": guard.split(),
                "place": place,
            }
        )
    for event in f["events"]:
        state = f["path"][-1]
        fits = [
            r
            for r in f["rules"]
            if r["on"] == event and r["from"] in (state, "*") and holds(r["guard"], f["n"])
        ]
        rule = min(fits, key=lambda r: rank(r, p), default=None)
        f["used"].append(rule)
        if rule:
            f["path"].append(rule["to"])
            if rule["step"]:
                value = int(rule["step"].strip("="))
                f["n"] = max(p.low, value if "=" in rule["step"] else f["n"] + value)
        else:
            f["path"].append(
                {"the s": state, "the m": f["path"][0]}[p.missing[:5]]
                if "before" not in p.missing
                else f["path"][max(0, len(f["path"]) - 2)]
            )
        f["counts"].append(f["n"])
    f["states"] = {r["to"] for r in f["rules"]} | {r["from"] for r in f["rules"]} - {"*"}
    return f


def rank(rule, p):
    wild = {"": 0, "before": rule["from"] != "*", "after": rule["from"] == "*"}[p.star]
    return wild, rule["place"] if p.double == "first" else -rule["place"]


def holds(guard, n):
    return not guard or (n < int(guard[1]) if guard[0] == "<" else n > int(guard[1]))


def reached(f):
    found = {f["path"][0]}
    for _ in f["rules"]:
        found |= {r["to"] for r in f["rules"] if r["from"] in found or r["from"] == "*"}
    return found


def instruction(p):
    form = "STATE EVENT -> STATE" + " STEP" * p.counter + (" if < NUMBER" if p.guards else "")
    about = f"The first line of the file is `start` and the first state, the last line `input` and the events; each line between is a transition, `{form}`{', some without the parts after the second state' * p.counter}."
    rules = [
        f"An event takes the machine from the first state of a transition to the second. If several fit, the {p.double} of them in the file is taken; if none does, {p.missing}."
    ]
    if p.star:
        rules.append(
            f"A transition from * fits every state; transitions from * are looked at {p.star} all others."
        )
    if p.counter:
        rules.append(
            f"The machine has a counter, 0 at the begin. A transition's step changes it (+1, -1, +3) or sets it (=0); it never goes below {p.low}: it is {p.low} instead."
        )
    if p.guards:
        rules.append(
            "A transition with `if < NUMBER` or `if > NUMBER` fits only when the counter is below or above the number."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    order = {"": [], "before": ["r[0] != '*'"], "after": ["r[0] == '*'"]}[p.star] + [
        "r[-1]" if p.double == "first" else "-r[-1]"
    ]
    step = (
        f"        if r[3]: n = max({p.low}, int(r[3][1:]) if r[3][0] == '=' else n + int(r[3]))\n"
        if p.counter
        else ""
    )
    guard = " and (not r[4] or (n < int(r[5]) if r[4] == '<' else n > int(r[5])))" if p.guards else ""
    head = f"""import re, sys
lines = open(sys.argv[1]).read().splitlines()
events = lines[-1].split()[1:]
rules = []
for i, line in enumerate(lines[1:-1]):
    rules.append((*re.match(r"(\\S+) (\\S+) -> (\\S+)(?: ([+=-]\\d+))?(?: if (.) (\\d+))?$", line).groups(), i))
path, used, n, counts = [lines[0].split()[1]], [], 0, [0]
for e in events:
    s = path[-1]
    r = min((r for r in rules if r[0] in (s, "*") and r[1] == e{guard}), key=lambda r: ({", ".join(order)},), default=None)
    used.append(r)
    if r:
        path.append(r[2])
{step}    else: path.append({MISSING[p.missing]})
    counts.append(n)
states = {{r[2] for r in rules}} | {{r[0] for r in rules if r[0] != "*"}}
def reach():
    seen, todo = set(), [path[0]]
    while todo:
        s = todo.pop()
        if s not in seen:
            seen.add(s)
            todo += [r[2] for r in rules if r[0] in (s, "*")]
    return sorted(seen)"""
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
