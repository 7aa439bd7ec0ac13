"""Questions about the failures in a log with many tracebacks, by a program that must work for any such log.

Hard: tracebacks are chained, have frames of libraries, and stand between other lines; what counts is the frame that is one's own.
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

SKILLS = ("tracebacks", "parsing", "Python", "grouping")

# The solution has `tbs`: dicts with type, text, frames (file, line, function), own (the last own frame or None), cause (bool).
REPORTS = {
    "types": ("TYPE=COUNT for every type of exception in alphabetical order", "[f'{k}={[t[\"type\"] for t in tbs].count(k)}' for k in sorted({t['type'] for t in tbs})]", lambda f: [f"{k}={sum(t['type'] == k for t in f)}" for k in sorted({t["type"] for t in f})]),
    "places": ("FILE:LINE=COUNT for every guilty place, the most frequent first, then in alphabetical order", "[f'{k}={n}' for k, n in sorted(collections.Counter(place(t) for t in tbs if t['own']).items(), key=lambda x: (-x[1], x[0]))]",
        lambda f: [f"{k}={-n}" for n, k in sorted((-n, k) for k, n in tally(f).items())]),
    "function": ("the function in which most exceptions have their guilty place, of several the first in the alphabet; `-` if there is none", "min((n for n in fns), key=lambda n: (-fns.count(n), n), default='-')",
        lambda f: max(sorted({t["own"][2] for t in f if t["own"]}), key=lambda n: sum(bool(t["own"]) and t["own"][2] == n for t in f), default="-")),
    "foreign": ("how many exceptions have no guilty place", "sum(not t['own'] for t in tbs)", lambda f: sum(t["own"] is None for t in f)),
    "chained": ("how many exceptions were raised while another one was handled or as its direct consequence", "sum(t['cause'] for t in tbs)", lambda f: len([t for t in f if t["cause"]])),
    "deepest": ("the largest number of frames of an exception", "max(len(t['frames']) for t in tbs)", lambda f: sorted(len(t["frames"]) for t in f)[-1]),
    "texts": ("the different messages, without those that are empty, in alphabetical order, each with its spaces replaced by underscores", "sorted({t['text'].replace(' ', '_') for t in tbs if t['text']})", lambda f: sorted({"_".join(t["text"].split(" ")) for t in f} - {""})),
    "files": ("the own files in which no exception has its guilty place, but which have a frame in one, in alphabetical order", "sorted({x[0] for t in tbs for x in t['frames'] if own(x)} - {t['own'][0] for t in tbs if t['own']})",
        lambda f: sorted({x[0] for t in f for x in t["frames"] if x[0].startswith("/srv/")} - {t["own"][0] for t in f if t["own"]})),
    "repeats": ("how many exceptions have the same type and the same guilty place as an earlier one", "sum(t['own'] is not None and key(t) in [key(s) for s in tbs[:i] if s['own']] for i, t in enumerate(tbs))",
        lambda f: sum(any(bool(s["own"] and t["own"]) and (s["type"], s["own"][:2]) == (t["type"], t["own"][:2]) for s in f[:i]) for i, t in enumerate(f))),
    "first": ("type and guilty place (`FILE:LINE`, or `-`) of the first exception of the log", "[tbs[0]['type'], place(tbs[0]) if tbs[0]['own'] else '-']", lambda f: [f[0]["type"], "{}:{}".format(*f[0]["own"][:2]) if f[0]["own"] else "-"]),
}  # fmt: skip
LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def draw(rng, level):
    return {
        **names(rng, "log"),
        "cases": some(rng, REPORTS, 2 + level),
        "size": 4 + level,
        "chains": level > 1,
        "noise": level > 1,
        "syntax": level > 2,
    }


def data(rng, p):
    own = [f"/srv/{a}/{b}.py" for a, b in zip(words(rng, 3), words(rng, 3), strict=True)]
    other = [f"/usr/lib/python3/{name}.py" for name in words(rng, 2)]
    places = [(file, rng.randint(3, 90), f"do_{word(rng)}") for file in own for _ in range(2)]
    rows = []

    def noise():
        return [f"{rng.choice(['INFO', 'WARN'])} {word(rng)}: {word(rng)}"] if p.noise else []

    def one():
        rows.append("Traceback (most recent call last):")
        mine = rng.sample(places, rng.choice([0, 1, 1, 2, 3]))
        frames = mine + [
            (rng.choice(other), rng.randint(100, 900), word(rng))
            for _ in range(rng.choice([0, 0, 1, 2]) or (not mine))
        ]
        for file, line, name in frames:
            rows.append(f'  File "{file}", line {line}, in {name}')
            rows.append(f"    {word(rng)}({word(rng)}: {rng.randint(1, 9)})")
            if p.syntax and rng.random() < 0.3:
                rows.append("    ^^^^^^^")
        kind = rng.choice(["ValueError", "KeyError", "OSError", "TimeoutError", f"{word(rng)}.Broken"])
        rows.append(
            kind if rng.random() < 0.2 else f"{kind}: {rng.choice([word(rng), 'no ' + word(rng), 'a: b'])}"
        )

    for _ in range(p.size):
        rows.extend(noise())
        one()
        if p.chains and rng.random() < 0.4:
            rows.extend(["", rng.choice(LINKS), ""])
            one()
    return "\n".join([*rows, *noise()]) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text):
    import re

    found = []
    pattern = r"(?:(?P<link>During|The above)[^\n]*:\n\n)?Traceback [^\n]*\n(?P<frames>(?:  [^\n]*\n)+)(?P<type>[\w.]+)(?:: (?P<text>[^\n]*))?\n"
    for m in re.finditer(pattern, text):
        frames = [
            (a, int(b), c) for a, b, c in re.findall(r'  File "(.*)", line (\d+), in (.*)', m["frames"])
        ]
        mine = [x for x in frames if x[0].startswith("/srv/")]
        found.append(
            {
                "type": m["type"],
                "text": m["text"] or "",
                "frames": frames,
                "own": mine[-1] if mine else None,
                "cause": bool(m["link"]),
            }
        )
    return found


def tally(f):
    places = ["{}:{}".format(*t["own"][:2]) for t in f if t["own"]]
    return {place: places.count(place) for place in places}


def instruction(p):
    about = "The file is the log of a Python service, with tracebacks" + (
        " and other lines." if p.noise else "."
    )
    rules = [
        "Each traceback, from its line `Traceback (most recent call last):` to the line with type and message, is an exception; the message is what follows the type, a colon and a space, and empty without these. Files below /srv are our own. The guilty place of an exception is its last frame (the one furthest down) in an own file; an exception without a frame in an own file has none."
    ]
    if p.chains:
        rules.append(
            "Where a traceback follows on another one after `During handling of the above exception` or `The above exception was the direct cause`, both are exceptions of their own."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    head = """import collections, sys
lines = open(sys.argv[1]).read().splitlines()
tbs, now, link = [], None, False
def own(x): return x[0][:5] == "/srv/"
for line in lines:
    if line.startswith("Traceback "):
        now = {"frames": [], "own": None, "cause": link}
        link = False
    elif line.startswith(("During handling", "The above")): link = True
    elif now is not None and line.startswith("  File "):
        a, b, c = line.split(", ")
        now["frames"].append((a[8:-1], int(b[5:]), c[3:]))
    elif now is not None and line[:1] != " ":
        now["type"], _, now["text"] = line.partition(": ")
        for x in now["frames"]:
            if own(x): now["own"] = x
        tbs.append(now)
        now = None
def place(t): return f"{t['own'][0]}:{t['own'][1]}"
def key(t): return (t["type"], place(t))
fns = [t["own"][2] for t in tbs if t["own"]]"""
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
