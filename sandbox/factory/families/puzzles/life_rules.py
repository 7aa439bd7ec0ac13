"""Generations of a cellular automaton under drawn rules, by a program that must run any start.

Hard: neighbourhood, border and rules are not the usual ones, and a mistake grows with each generation.
"""

from sandbox.factory.kit import given
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

SKILLS = ("simulation", "grids", "Python")

AROUND = {
    "the eight fields around it": [(-1, -1), (0, -1), (1, -1), (-1, 0), (1, 0), (-1, 1), (0, 1), (1, 1)],
    "the four fields above, below, left and right of it": [(0, -1), (-1, 0), (1, 0), (0, 1)],
    "the four fields that touch only its corners": [(-1, -1), (1, -1), (-1, 1), (1, 1)],
    "the two fields on either side of it in its row and the two in its column": [
        (-2, 0),
        (-1, 0),
        (1, 0),
        (2, 0),
        (0, -2),
        (0, -1),
        (0, 1),
        (0, 2),
    ],
    "the six fields around it but for its upper left and its lower right corner": [
        (0, -1),
        (1, -1),
        (-1, 0),
        (1, 0),
        (-1, 1),
        (0, 1),
    ],
}
REPORTS = {
    "alive": ("the number of living cells after the last generation", "count[-1]", lambda f: len(f["all"][-1])),
    "counts": ("the number of living cells at the begin and after each generation", "count", lambda f: [len(g) for g in f["all"]]),
    "peak": ("the first generation with most living cells, the begin being 0", "count.index(max(count))", lambda f: min((-len(g), i) for i, g in enumerate(f["all"]))[1]),
    "rows": ("the rows of the map after the last generation, in order", "[''.join('.#'[c] for c in r) for r in g]", lambda f: ["".join(".#"[(x, y) in f["all"][-1]] for x in range(f["w"])) for y in range(f["h"])]),
    "still": ("the first generation that equals the one before it, `-` if none does", "next((i for i in range(1, len(past)) if past[i] == past[i - 1]), '-')", lambda f: next((i for i, (a, b) in enumerate(zip(f["all"], f["all"][1:], strict=False), 1) if a == b), "-")),
    "repeat": ("the first generation that equals any earlier one, `-` if none does", "next((i for i in range(1, len(past)) if past[i] in past[:i]), '-')", lambda f: next((i for i, g in enumerate(f["all"]) if g in f["all"][:i]), "-")),
    "born": ("how many cells came to life, over all generations", "sum(b > a for p, q in zip(past, past[1:]) for r, s in zip(p, q) for a, b in zip(r, s))", lambda f: sum(len(b - a) for a, b in zip(f["all"], f["all"][1:], strict=False))),
    "never": ("the number of fields that never had a living cell, at any time from the begin on", "sum(not any(p[y][x] for p in past) for y in range(H) for x in range(W))", lambda f: f["w"] * f["h"] - len(frozenset().union(*f["all"]))),
    "oldest": ("how many cells alive at the begin lived through all generations", "sum(all(p[y][x] for p in past) for y in range(H) for x in range(W))", lambda f: len(f["all"][0].intersection(*f["all"]))),
    "corner": ("the number of living cells in the first and the last row and column of the map after the last generation", "sum(g[y][x] for y in range(H) for x in range(W) if x in (0, W - 1) or y in (0, H - 1))",
        lambda f: sum(x * y == 0 or x == f["w"] - 1 or y == f["h"] - 1 for x, y in f["all"][-1])),
}  # fmt: skip


def draw(rng, level):
    around = rng.choice(list(AROUND))
    most = len(AROUND[around])
    return {
        **names(rng, "map"),
        "around": around,
        "born": sorted(rng.sample(range(1, most + 1 if most < 5 else 6), 1 + (rng.random() < 0.5))),
        "stay": sorted(rng.sample(range(most + 1 if most < 5 else 6), 2)),
        "wrap": rng.random() < 0.5,
        "rounds": 3 + 2 * level,
        "shield": level > 2 and rng.random() < 0.6,
        "odd": sorted(rng.sample(range(most + 1 if most < 5 else 6), 2)) if level > 3 else [],
        "cases": some(rng, REPORTS, 2 + level // 2),
        "size": 5 + level,
    }


def data(rng, p):
    wide = p.size + rng.randint(1, 3)
    return "".join(
        "".join(rng.choice("..#" + "X" * (p.shield and rng.random() < 0.2)) for _ in range(wide)) + "\n"
        for _ in range(p.size)
    )


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    rows = text.split()
    wide, high = len(rows[0]), len(rows)
    fields = {(x, y): c for y, row in enumerate(rows) for x, c in enumerate(row)}
    alive = frozenset(s for s, c in fields.items() if c == "#")
    every = [alive]
    for turn in range(1, p.rounds + 1):
        near = dict.fromkeys(fields, 0)
        for x, y in alive:
            for dx, dy in AROUND[p.around]:
                spot = (x - dx, y - dy)
                if p.wrap:
                    spot = (spot[0] % wide, spot[1] % high)
                if spot in near:
                    near[spot] += 1
        stay = p.odd if p.odd and turn % 2 else p.stay
        alive = frozenset(
            s for s, n in near.items() if fields[s] != "X" and n in (stay if s in alive else p.born)
        )
        every.append(alive)
    return {"all": every, "w": wide, "h": high}


def instruction(p):
    about = "The file is a map of cells: a living one is a #, a dead one a dot" + (
        ", and a stone an X." if p.shield else "."
    )
    some_or = lambda ns: " or ".join(map(str, ns))  # noqa: E731
    stay = f"one that is alive stays so with {some_or(p.stay)}"
    if p.odd:
        stay += f" (in the first, third, fifth generation and so on: with {some_or(p.odd)})"
    rules = [
        f"{p.rounds} generations follow. Each is made from the whole one before: a dead cell comes to life if {some_or(p.born)} of its neighbours are alive, {stay}; all others are dead. The neighbours of a cell are {p.around}."
    ]
    rules.append(
        "The map has no border: left of the first column is the last one, above the first row is the last one."
        if p.wrap
        else "Beyond the border, all is dead."
    )
    if p.shield:
        rules.append(
            "A stone is never alive, and counts as a dead cell (in the map's rows after the generations it is a dot)."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    spot = (
        "g[(y + b) % H][(x + a) % W]" if p.wrap else "(0 <= y + b < H and 0 <= x + a < W and g[y + b][x + a])"
    )
    stay = f"({p.odd} if turn % 2 else {p.stay})" if p.odd else f"{p.stay}"
    stone = " and rows[y][x] != 'X'" if p.shield else ""
    head = f"""import sys
rows = open(sys.argv[1]).read().split()
H, W = len(rows), len(rows[0])
g = [[c == "#" for c in r] for r in rows]
past = [g]
NEAR = {AROUND[p.around]}
def lives(x, y, turn):
    n = sum({spot} for a, b in NEAR)
    return n in ({stay} if g[y][x] else {p.born}){stone}
for turn in range(1, {p.rounds + 1}):
    g = [[lives(x, y, turn) for x in range(W)] for y in range(H)]
    past.append(g)
count = [sum(map(sum, p)) for p in past]"""
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
