"""What becomes of messages in a queue with leases, retries and dead letters, from a log of its calls.

Hard: a lease that ends on its own gives a message back, and order, delays and the count of attempts depend on when.
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

SKILLS = ("queues", "simulation", "Python", "state")

REPORTS = {
    "taken": ("what the takes got, in order: a message's name, or `-`", "got", lambda f: f["got"]),
    "waiting": ("the messages that a take could get right after the last call, in the order in which takes would get them", "order(now)", lambda f: f["waiting"]),
    "leased": ("the messages that are on lease right after the last call, in alphabetical order", "sorted(lease)", lambda f: f["leased"]),
    "dead": ("the dead messages, in the order in which they died (at the same time: in alphabetical order)", "dead", lambda f: f["dead"]),
    "done": ("the messages that were acknowledged, in that order", "done", lambda f: f["done"]),
    "wasted": ("how many acks had no effect", "wasted", lambda f: f["wasted"]),
    "tries": ("NAME=TAKES for every message that was taken at least once, in alphabetical order", "[f'{m}={tries[m]}' for m in sorted(tries) if tries[m]]", lambda f: [f"{m}={f['got'].count(m)}" for m in sorted({*f["got"]} - {"-"})]),
    "hungry": ("how many takes got nothing", "got.count('-')", lambda f: sum(g == "-" for g in f["got"])),
}  # fmt: skip
ORDERS = {
    "the one that was put first": "(i[m],)",
    "the one that was put last": "(-i[m],)",
    "the one with the highest priority, of several the one that was put first": "(-prio[m], i[m])",
    "the one with the highest priority, of several the one that was put last": "(-prio[m], -i[m])",
    "the one that was taken least often, of several the one that was put first": "(tries[m], i[m])",
    "the one that was taken most often, of several the one that was put first": "(-tries[m], i[m])",
}


def draw(rng, level):
    return {
        **names(rng, "calls"),
        "order": rng.choice(list(ORDERS)),
        "lease": rng.choice([6, 8, 10]),
        "most": rng.randint(1, 2) if level > 1 else 9,
        "back": rng.choice([0, 5, 7]) if level > 2 else 0,
        "nack": rng.choice(["", "nack", "reject"]) if level > 1 else "",
        "extend": rng.choice(["", "extend", "touch"]) if level > 3 else "",
        "cases": some(rng, [r for r in REPORTS if level > 1 or r != "dead"], 2 + level // 2),
        "size": 16 + 6 * level,
    }


def data(rng, p):
    pool, now, rows, put, out = words(rng, p.size), 0, [], [], []
    verbs = ["put"] * 3 + ["take"] * 5 + ["ack"] * 2 + [p.nack] * bool(p.nack) + [p.extend] * bool(p.extend)
    for number in range(p.size):
        now += rng.choice([1, 1, 1, 2, 4])
        verb = "put" if number < 2 else rng.choice(verbs)
        if verb == "put":
            put.append(pool.pop())
            rows.append(f"{now} put {put[-1]} {rng.randint(1, 3)}\n")
        elif verb == "take":
            rows.append(f"{now} take\n")
        else:
            out = put[:3] if rng.random() < 0.6 else put
            rows.append(f"{now} {verb} {rng.choice(out)}\n")
    return "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    """Time goes by in steps of one."""
    calls = {}
    for line in text.splitlines():
        time, *call = line.split()
        calls[int(time)] = call
    ms, f = [], {"got": [], "dead": [], "done": [], "wasted": 0}
    for now in range(max(calls) + 1):
        gone = [m for m in ms if m["state"] == "leased" and m["until"] == now]
        for m in sorted(gone, key=lambda m: m["name"]):
            give_back(m, now, p, f)
        verb, name, *rest = calls.get(now, [""]) + [""] * 2
        leased = [m for m in ms if m["name"] == name and m["state"] == "leased"]
        free = sorted((m for m in ms if m["state"] == "free" and m["from"] <= now), key=lambda m: rank(m, p))
        if verb == "put":
            ms.append({"name": name, "prio": int(rest[0]), "place": len(ms), "takes": 0, "state": "free", "from": now})  # fmt: skip
        elif verb == "take":
            f["got"].append(free[0]["name"] if free else "-")
            if free:
                free[0].update(state="leased", until=now + p.lease, takes=free[0]["takes"] + 1)
        elif verb == "ack":
            f["wasted"] += not leased
            for m in leased:
                m["state"] = "done"
                f["done"].append(name)
        elif verb and verb == p.nack:
            for m in leased:
                give_back(m, now, p, f)
        elif verb and verb == p.extend:
            for m in leased:
                m["until"] = now + p.lease
    free = sorted((m for m in ms if m["state"] == "free" and m["from"] <= now), key=lambda m: rank(m, p))
    f["waiting"] = [m["name"] for m in free]
    f["leased"] = sorted(m["name"] for m in ms if m["state"] == "leased")
    return f


def rank(m, p):
    key = {
        "i[m]": m["place"],
        "-i[m]": -m["place"],
        "-prio[m]": -m["prio"],
        "tries[m]": m["takes"],
        "-tries[m]": -m["takes"],
    }
    return [key[part] for part in ORDERS[p.order].strip("()").replace(" ", "").split(",") if part]


def give_back(m, now, p, f):
    if m["takes"] > p.most:
        m["state"] = "dead"
        f["dead"].append(m["name"])
    else:
        m.update(state="free", **{"from": now + p.back})


def instruction(p):
    about = "The file is the log of a message queue: lines `TIME put NAME PRIORITY`, `TIME take`, `TIME ack NAME`" + f", `TIME {p.nack} NAME`" * bool(p.nack) + f", `TIME {p.extend} NAME`" * bool(p.extend) + ". Times rise from line to line."  # fmt: skip
    rules = [
        f"A take gets a message that is free: {p.order}. The message is then on lease for {p.lease} seconds: if "
        f"nothing else happened to it, at the time of the take plus {p.lease} it is given back, before the call of that time. "
        "An ack of a message that is on lease removes it for good; any other ack has no effect."
    ]
    if p.nack:
        rules.append(
            f"{p.nack} gives a message that is on lease back at once; of other messages, it does nothing."
        )
    if p.extend:
        rules.append(f"{p.extend} lets the lease of a message begin anew, if it is on lease.")
    if p.back:
        rules.append(f"A message that is given back is free again {p.back} seconds later.")
    if p.most < 9:
        times = "twice" if p.most == 1 else "three times"
        rules.append(
            f"But one that is given back after it has been taken {times} is dead, and never free again."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    nack = f"    elif verb == {p.nack!r}:\n        if a[0] in lease: back(a[0], now)\n" if p.nack else ""
    extend = (
        f"    elif verb == {p.extend!r}:\n        if a[0] in lease: lease[a[0]] = now + {p.lease}\n"
        if p.extend
        else ""
    )
    head = f"""import sys
i, prio, tries, ready, lease = {{}}, {{}}, {{}}, {{}}, {{}}
got, dead, done, wasted = [], [], [], 0
def back(m, t):
    del lease[m]
    if tries[m] > {p.most}: dead.append(m)
    else: ready[m] = t + {p.back}
def order(t): return sorted((m for m in ready if ready[m] <= t), key=lambda m: {ORDERS[p.order]})
for line in open(sys.argv[1]):
    now, verb, *a = line.split()
    now = int(now)
    for t, m in sorted((t, m) for m, t in lease.items() if t <= now): back(m, t)
    if verb == "put":
        i[a[0]], prio[a[0]], tries[a[0]], ready[a[0]] = len(i), int(a[1]), 0, now
    elif verb == "take":
        m = (order(now) or "-")[0]
        got.append(m)
        if m != "-":
            del ready[m]
            tries[m] += 1
            lease[m] = now + {p.lease}
{nack}{extend}    elif a[0] in lease:
        del lease[a[0]]
        done.append(a[0])
    else: wasted += 1"""
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
