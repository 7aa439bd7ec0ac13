"""Units of an init system: what a start of some of them starts, in which order, and what does not hold together.

Hard: needs and orders are two different things, units stand in each other's way, and templates and masks play in.
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

SKILLS = ("services", "unit files", "dependencies", "Python")

KEYS = ("Requires", "Wants", "After", "Conflicts")
# The solution has `u`: unit -> {key: list}, `goals`, `job` (all units that are started), `order`.
REPORTS = {
    "started": ("the units that are started, in alphabetical order", "sorted(job)", lambda f: sorted(f["job"])),
    "order": ("the units that are started, in the order in which they are started", "order", lambda f: f["order"]),
    "missing": ("the names that the units need or want without there being such a unit, in alphabetical order", "sorted({n for r in u.values() for k in ('Requires', 'Wants') for n in r.get(k, [])} - set(u))", lambda f: sorted({n for x in f["units"].values() for n in x["Requires"] + x["Wants"] if n not in f["units"]})),
    "failed": ("the units to be started that fail, in alphabetical order", "sorted(n for n in job if bad(n))", lambda f: sorted(n for n in f["job"] if f["fails"](n))),
    "conflicts": ("how many pairs of units that are started are in conflict", "sum(a < b and (b in u[a].get('Conflicts', []) or a in u[b].get('Conflicts', [])) for a in job for b in job)", lambda f: len({frozenset((a, b)) for a in f["job"] for b in f["job"] if a != b and b in f["units"][a]["Conflicts"]})),
    "idle": ("the units that are not started, in alphabetical order", "sorted(set(u) - set(job))", lambda f: sorted(f["units"].keys() - f["job"])),
    "ports": ("the values of Port of the units that are started, as numbers, ascending, each once", "sorted({int(x) for n in job for x in u[n].get('Port', [])})", lambda f: sorted({int(x) for n in f["job"] for x in f["units"][n]["Port"]})),
    "users": ("USER=COUNT for all users in alphabetical order, with the number of their units that are started", "[f'{w}={n}' for w in sorted({w for r in u.values() for w in r.get('User', ['root'])}) for n in [sum(w in u[m].get('User', ['root']) for m in job)]]", lambda f: [f"{w}={sum((f['units'][n]['User'] or ['root']) == [w] for n in f['job'])}" for w in sorted({(x["User"] or ["root"])[0] for x in f["units"].values()})]),
    "popular": ("the unit that most units need (Requires), of several the first in the alphabet", "min(u, key=lambda n: (-sum(n in r.get('Requires', []) for r in u.values()), n))", lambda f: max(sorted(f["units"]), key=lambda n: [n in x["Requires"] for x in f["units"].values()].count(True))),
    "apart": ("the units that neither name any other unit nor are named by one, in alphabetical order", "sorted(n for n in u if not links(n))", lambda f: sorted(n for n, x in f["units"].items() if not any(x[k] for k in KEYS) and all(n not in y[k] for y in f["units"].values() for k in KEYS))),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "units"),
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2 + (level > 3)),
        "size": 5 + 2 * level,
        "masks": level > 2,
        "many": level > 1,
    }


def data(rng, p):
    pool = words(rng, p.size + 1)
    units, rows = pool[: p.size], []
    for place, name in enumerate(units):
        rows.append(f"[{name}]")
        lines = []
        for key in ("Requires", "Wants"):
            for other in rng.sample(
                [*units[:place], pool[-1]] if rng.random() < 0.3 else units[:place],
                min(place, rng.choice([0, 0, 1])),
            ):
                lines.append(f"{key}={other}")
                if rng.random() < 0.6:
                    lines.append(f"After={other}")
        if place and rng.random() < 0.3:
            lines.append(f"After={' '.join(rng.sample(units[:place], min(place, 2)))}")
        if rng.random() < 0.25:
            lines.append(f"Conflicts={rng.choice([n for n in units if n != name])}")
        if rng.random() < 0.5:
            lines.append(f"Port={rng.randint(20, 99)}")
        if rng.random() < 0.4:
            lines.append(f"User={rng.choice(['web', 'db'])}")
        if p.masks and rng.random() < 0.15:
            lines.append("Masked=yes")
        rng.shuffle(lines)
        rows += [*lines, ""]
    if p.many:
        rows.insert(0, "# units of the machine")
    return "\n".join([*rows, f"start {' '.join(rng.sample(units[-3:], 2))}"]) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text):
    units, now = {}, None
    for line in text.splitlines():
        if line.startswith("["):
            now = units.setdefault(line[1:-1], {key: [] for key in (*KEYS, "Port", "User", "Masked")})
        elif "=" in line:
            key, _, value = line.partition("=")
            now[key] += value.split()
    job, todo = set(), text.split("\nstart ")[1].split()
    while todo:
        name = todo.pop()
        if name in units and name not in job and not units[name]["Masked"]:
            job.add(name)
            todo += units[name]["Requires"] + units[name]["Wants"]
    order = []
    while len(order) < len(job):
        order.append(min(n for n in job - {*order} if not (job & {*units[n]["After"]}) - {*order}))

    def fails(name):
        return any(n not in units or units[n]["Masked"] or fails(n) for n in units[name]["Requires"])

    return {"units": units, "job": job, "order": order, "fails": fails}


def instruction(p):
    about = "The file describes units: `[NAME]` begins one, and lines KEY=VALUE follow; the last line is `start` and the units that are to be started. Requires, Wants, After and Conflicts have names of units, with spaces between them, and may come several times in a unit, in sum."
    rules = [
        "With a unit, all that it requires or wants are started, too, and so on; names without a unit are passed over. They are started one after the other: each next one is the first in the alphabet of those for which all the units in their After that are started at all have been started before. "
        "A unit fails if it requires a name without a unit, or a unit that fails; it is counted among those that are started all the same. Two units are in conflict if one of them names the other in Conflicts."
    ]
    if "users" in p.cases:
        rules.append("A unit without User has the user root.")
    if p.masks:
        rules.append(
            "A unit with `Masked=yes` is never started, nor what only it requires or wants; one that requires it fails."
        )
    if p.many:
        rules.append("Empty lines and lines that begin with # mean nothing.")
    return asks(p, about, rules, REPORTS)


def source(p):
    head = """import sys
u, job, order = {}, [], []
for line in open(sys.argv[1]):
    line = line.strip()
    if line[:1] == "[": n = line[1:-1]; u[n] = {}
    elif line[:6] == "start ": goals = line[6:].split()
    elif line and line[0] != "#":
        k, v = line.split("=", 1)
        u[n].setdefault(k, []).extend(v.split())
def add(n):
    if n in u and n not in job and "Masked" not in u[n]:
        job.append(n)
        for m in u[n].get("Requires", []) + u[n].get("Wants", []): add(m)
for n in goals: add(n)
while len(order) < len(job):
    ready = [n for n in job if n not in order and all(a in order or a not in job for a in u[n].get("After", []))]
    order.append(min(ready))
def bad(n): return any(m not in u or "Masked" in u[m] or bad(m) for m in u[n].get("Requires", []))
NAMES = ("Requires", "Wants", "After", "Conflicts")
def links(n): return any(u[n].get(k) for k in NAMES) or any(n in r.get(k, []) for r in u.values() for k in NAMES)"""
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
