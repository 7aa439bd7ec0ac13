"""Shortest ways through a maze, by a program that must find them in any maze.

Hard: what a step costs and where it may lead differ by task; doors, portals and slopes need more state than a place.
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

SKILLS = ("graphs", "shortest paths", "Python", "grids")

# The solution has `cost`: field -> least cost from S, for all fields that can be reached; `g`: rows; `best(a)` the same from a.
REPORTS = {
    "cost": ("the least cost of a way from S to E, `-` if there is no way", "cost.get(find('E'), '-')", lambda f: f["cost"].get(f["E"], "-")),
    "back": ("the least cost of a way from E to S, `-` if there is no way", "best(find('E')).get(find('S'), '-')", lambda f: f["back"].get(f["S"], "-")),
    "reached": ("how many fields can be reached from S, S itself included", "len(cost)", lambda f: len(f["cost"])),
    "farthest": ("the largest least cost of a field that can be reached from S", "max(cost.values())", lambda f: sorted(f["cost"].values())[-1]),
    "closed": ("how many fields that are no walls cannot be reached from S", "sum(c != '#' for r in g for c in r) - len(cost)", lambda f: len([x for x, c in f["fields"].items() if c != "#" and x not in f["cost"]])),
    "coins": ("how many fields with a $ can be reached from S", "sum(g[y][x] == '$' for x, y in cost)", lambda f: [f["fields"][x] for x in f["cost"]].count("$")),
    "nearest": ("the least cost of a way from S to any $, `-` if none can be reached", "min((v for (x, y), v in cost.items() if g[y][x] == '$'), default='-')", lambda f: min([f["cost"][x] for x, c in f["fields"].items() if c == "$" and x in f["cost"]], default="-")),
    "tour": ("the least cost of a way from S to E that passes at least one $, `-` if there is none", "min((v + best(a)[find('E')] for a, v in cost.items() if g[a[1]][a[0]] == '$' and find('E') in best(a)), default='-')",
        lambda f: min((f["cost"][x] + f["dist"](x)[f["E"]] for x, c in f["fields"].items() if c == "$" and x in f["cost"] and f["E"] in f["dist"](x)), default="-")),
    "ten": ("how many fields have a least cost from S of 10 or less", "sum(v <= 10 for v in cost.values())", lambda f: len([v for v in f["cost"].values() if v < 11])),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "maze"),
        "moves": rng.choice(["4", "8", "knight"]) if level > 1 else rng.choice(["4", "8"]),
        "swamp": rng.choice([0, 3, 5]) if level > 1 else 0,
        "turn": rng.choice(["", "wrap"]) if level > 1 else "",
        "portal": level > 2 and rng.random() < 0.7,
        "oneway": level > 2 and rng.random() < 0.6,
        "diagonal": rng.choice([1, 2]),
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2),
        "size": 6 + level,
    }


def data(rng, p):
    pool = "....##" + "~" * bool(p.swamp) + ">" * p.oneway
    grid = [[rng.choice(pool) for _ in range(p.size + 3)] for _ in range(p.size)]
    spots = rng.sample([(x, y) for y in range(p.size) for x in range(p.size + 3)], 8)
    for (x, y), c in zip(spots, "SE$$$" + "OO" * p.portal, strict=False):
        grid[y][x] = c
    return "".join("".join(row) + "\n" for row in grid)


def files(rng, p):
    return {p.data: data(rng, p)}


def hops(p):
    four = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    if p.moves == "knight":
        return [(a * s, b * t) for a, b in ((1, 2), (2, 1)) for s in (1, -1) for t in (1, -1)]
    return four if p.moves == "4" else [*four, (1, 1), (1, -1), (-1, 1), (-1, -1)]


def facts(text, p):
    rows = text.splitlines()
    f = {"fields": {(x, y): c for y, row in enumerate(rows) for x, c in enumerate(row)}}
    wide, high = len(rows[0]), len(rows)
    f |= {c: next(x for x, d in f["fields"].items() if d == c) for c in "SE"}
    holes = [x for x, c in f["fields"].items() if c == "O"]

    def ways(spot):
        for dx, dy in [(1, 0)] if f["fields"][spot] == ">" else hops(p):
            x, y = spot[0] + dx, spot[1] + dy
            if p.turn:
                x, y = x % wide, y % high
            cell = f["fields"].get((x, y), "#")
            if cell != "#":
                base = p.diagonal if p.moves == "8" and dx and dy else 1
                yield (x, y), base + (p.swamp if cell == "~" else 0)
        if spot in holes:
            yield holes[1 - holes.index(spot)], 1

    def dist(start):
        """Bellman and Ford: no field is improved any more."""
        cost, todo = {start: 0}, [start]
        while todo:
            spot = todo.pop(0)
            for other, step in ways(spot):
                if cost[spot] + step < cost.get(other, 10**9):
                    cost[other] = cost[spot] + step
                    todo.append(other)
        return cost

    return {**f, "cost": dist(f["S"]), "back": dist(f["E"]), "dist": dist}


def instruction(p):
    about = "The file is the map of a maze: S and E are its ends, # is a wall, all other characters are open fields."
    moves = {
        "4": "A step leads to one of the four neighbours (up, down, left, right) and costs 1.",
        "8": f"A step leads to one of the eight neighbours. It costs 1{'' if p.diagonal == 1 else ', a diagonal one 2'}; it may pass between two walls diagonally.",
        "knight": "A step is that of a knight in chess (over anything between) and costs 1.",
    }
    rules = [moves[p.moves]]
    rules.append(
        "What leaves the map at one border enters it at the opposite one."
        if p.turn
        else "The map cannot be left."
    )
    if p.swamp:
        rules.append(f"A step onto a ~ costs {p.swamp} more.")
    if p.oneway:
        rules.append(
            "From a > there is only one step, to the field on its right, with the cost of a step between neighbours."
        )
    if p.portal:
        rules.append("From each of the two fields O, one may also go to the other O, at a cost of 1.")
    return asks(p, about, rules, REPORTS)


def source(p):
    turn = "a, b = a % W, b % H" if p.turn else "pass"
    base = "1 + (dx != 0 and dy != 0)" if p.moves == "8" and p.diagonal == 2 else "1"
    swamp = f" + {p.swamp} * (g[b][a] == '~')" if p.swamp else ""
    one = "[(1, 0)] if g[y][x] == '>' else HOPS" if p.oneway else "HOPS"
    portal = (
        "        if g[y][x] == 'O': near += [(a, b, 1) for b in range(H) for a in range(W) if g[b][a] == 'O']\n"
        if p.portal
        else ""
    )
    square = {"4": "abs(i) + abs(j) == 1", "8": "max(abs(i), abs(j)) == 1", "knight": "abs(i * j) == 2"}[
        p.moves
    ]
    head = f"""import heapq, sys
g = open(sys.argv[1]).read().split()
H, W = len(g), len(g[0])
HOPS = [(i, j) for i in range(-2, 3) for j in range(-2, 3) if {square}]
def find(c): return next((r.index(c), y) for y, r in enumerate(g) if c in r)
def best(start):
    done, heap = {{}}, [(0, start)]
    while heap:
        v, (x, y) = heapq.heappop(heap)
        if (x, y) in done: continue
        done[x, y] = v
        near = []
        for dx, dy in {one}:
            a, b = x + dx, y + dy
            {turn}
            if 0 <= a < W and 0 <= b < H and g[b][a] != "#": near.append((a, b, {base}{swamp}))
{portal}        for a, b, c in near: heapq.heappush(heap, (v + c, (a, b)))
    return done
cost = best(find("S"))"""
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
