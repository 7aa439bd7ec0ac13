"""What a cache holds and misses under a policy, by a program that must simulate it for any list of requests.

Hard: what counts as a use, what is thrown out, and what ages differ by policy, and each mistake shows much later.
"""

from sandbox.factory.kit import given, word, words
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

SKILLS = ("caching", "simulation", "Python", "data structures")

# A policy: what is thrown out -> the key of what goes first, in the solution over (came, used, uses, key) and in the reference.
POLICIES = {
    "the one whose last use is longest ago": ("e[1]", lambda e: e["used"]),
    "the one whose last use is most recent": ("-e[1]", lambda e: -e["used"]),
    "the one that came in first": ("e[0]", lambda e: e["came"]),
    "the one that came in last": ("-e[0]", lambda e: -e["came"]),
    "the one with the fewest uses, of several the one that came in first": ("(e[2], e[0])", lambda e: (e["uses"], e["came"])),
    "the one with the fewest uses, of several the one whose last use is longest ago": ("(e[2], e[1])", lambda e: (e["uses"], e["used"])),
    "the first one in the alphabet": ("e[3]", lambda e: e["key"]),
    "the longest key, of several the first in the alphabet": ("(-len(e[3]), e[3])", lambda e: (-len(e["key"]), e["key"])),
}  # fmt: skip
REPORTS = {
    "hits": ("the number of hits", "len(hits)", lambda f: len(f["hits"])),
    "rate": ("the hits in percent of all gets, rounded down to a whole number (0 if there were no gets)", "len(hits) * 100 // max(1, len(hits) + len(misses))",
        lambda f: int(100 * len(f["hits"]) / max(1, len(f["hits"]) + len(f["misses"])) + 1e-9)),
    "missed": ("the keys of the misses, each once, in alphabetical order", "sorted(set(misses))", lambda f: sorted({*f["misses"]})),
    "evicted": ("the keys that were thrown out to make room, in the order in which that happened", "out", lambda f: f["out"]),
    "inside": ("the keys in the cache at the end, in alphabetical order", "sorted(box)", lambda f: sorted(e["key"] for e in f["box"])),
    "favourite": ("the key with most hits, of several the first in the alphabet; `-` if there were no hits", "min(hits, key=lambda k: (-hits.count(k), k), default='-')",
        lambda f: max(sorted({*f["hits"]}), key=f["hits"].count, default="-")),
    "next": ("the key that would be thrown out next, if room were needed after the last request; `-` if the cache is empty", "first(box) if box else '-'", lambda f: f["next"]),
    "unlucky": ("the keys that were thrown out to make room more than once, in alphabetical order", "sorted({k for k in out if out.count(k) > 1})", lambda f: [k for k in sorted({*f["out"]}) if f["out"].count(k) > 1]),
    "streak": ("the largest number of misses in a row, gets alone being counted", "streak", lambda f: max(map(len, f["row"].split("h")))),
    "fill": ("the number of keys in the cache at the end", "len(box)", lambda f: len(f["box"])),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "log"),
        "policy": rng.choice(list(POLICIES)),
        "capacity": rng.randint(3, 4),
        "age": rng.choice([0, 7, 9]) if level > 2 else 0,
        "since": rng.choice(["put", "use"]),
        "drop": rng.choice(["drop", "forget", "expire"]) if level > 1 else "",
        "flush": rng.choice(["", "flush", "clear"]) if level > 3 else "",
        "load": rng.random() < 0.5,
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2),
        "size": 20 + 6 * level,
    }


def data(rng, p):
    pool = words(rng, 8)
    verbs = ["get"] * 5 + ["put"] * (1 if p.load else 4) + [p.drop] * bool(p.drop)
    rows = [f"{rng.choice(verbs)} {rng.choice(pool[: rng.choice([3, 8])])}" for _ in range(p.size)]
    if p.flush:
        rows[rng.randrange(4, 9)] = p.flush
    return "\n".join([f"put {word(rng)}", *rows]) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    box, f = [], {"hits": [], "misses": [], "out": [], "row": ""}
    goes = POLICIES[p.policy][1]
    for now, line in enumerate(text.splitlines(), 1):
        verb, _, key = line.partition(" ")
        if p.age:
            box = [e for e in box if now - (e["put"] if p.since == "put" else e["used"]) < p.age]
        entry = next((e for e in box if e["key"] == key), None)
        if verb == p.flush:
            box = []
        elif verb == p.drop:
            box = [e for e in box if e is not entry]
        else:
            if verb == "get":
                f["hits" if entry else "misses"].append(key)
                f["row"] += "h" if entry else "m"
            if entry:
                entry.update(used=now, uses=entry["uses"] + 1)
            elif verb == "put" or p.load:
                if len(box) == p.capacity:
                    gone = min(box, key=goes)
                    f["out"].append(gone["key"])
                    box.remove(gone)
                entry = {"key": key, "came": now, "used": now, "uses": 1, "put": now}
                box.append(entry)
            if verb == "put":
                entry["put"] = now
    return {**f, "box": box, "next": min(box, key=goes)["key"] if box else "-"}


def instruction(p):
    about = "Each line of the file is a request to a cache that is empty at first: `put KEY` or `get KEY`" + (
        f", also `{p.drop} KEY`" * bool(p.drop) + f" and, alone, `{p.flush}`" * bool(p.flush) + "."
    )
    rules = [
        f"The cache has room for {p.capacity} keys. A get of a key that is inside is a hit, of another a miss. "
        + ("A miss brings the key in, like a put. " if p.load else "A miss brings nothing in. ")
        + "Every put and every hit is a use of its key; a put of a key that is inside does not make it come in "
        f"again. When a key must come into a full cache, one is thrown out first: {p.policy}. Uses before a key "
        "was last thrown out (or left otherwise) no longer count."
    ]
    if p.drop:
        rules.append(f"`{p.drop}` removes a key, if it is inside.")
    if p.flush:
        rules.append(f"`{p.flush}` empties the cache.")
    if p.age:
        what = "last put (or, if there was none, since it came in)" if p.since == "put" else "last use"
        rules.append(
            f"The number of a line is its time. Before each request, keys that had their {what} {p.age} lines or more before that line leave the cache by themselves."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    age = (
        f"    for o in [o for o in box if now - box[o][{4 if p.since == 'put' else 1}] >= {p.age}]: del box[o]\n"
        if p.age
        else ""
    )
    flush = f"    if verb == {p.flush!r}:\n        box.clear()\n        continue\n" if p.flush else ""
    drop = f"    if verb == {p.drop!r}:\n        box.pop(k, None)\n        continue\n" if p.drop else ""
    enter = "else" if p.load else "elif verb == 'put'"
    head = f"""import sys
box, hits, misses, out, streak, run = {{}}, [], [], [], 0, 0
def first(box): return min(box.values(), key=lambda e: {POLICIES[p.policy][0]})[3]
for now, line in enumerate(open(sys.argv[1])):
    verb, *rest = line.split()
    k = "".join(rest)
{age}{flush}{drop}    if verb == "get":
        (hits if k in box else misses).append(k)
        run = 0 if k in box else run + 1
        streak = max(streak, run)
    if k in box:
        box[k][1] = now
        box[k][2] += 1
    {enter}:
        if len(box) == {p.capacity}:
            out.append(first(box))
            del box[out[-1]]
        box[k] = [now, now, 1, k, now]
    if verb == "put": box[k][4] = now"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_requests(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
