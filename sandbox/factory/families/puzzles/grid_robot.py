"""Where a robot goes on a grid with obstacles, by a program that must follow any list of orders.

Hard: what happens at walls, borders and special fields depends on the rules of the day, and one step off spoils the rest.
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

REPORTS = {
    "end": ("the column and the row where it ends, both counted from 0, row 0 being the top line", "[x, y]", lambda f: [f["x"], f["y"]]),
    "facing": ("the direction it faces at the end: N, E, S or W", "'NESW'[d]", lambda f: f["way"]),
    "visited": ("how many different fields it stood on, the first one counted", "len(set(trail))", lambda f: len({*f["trail"]})),
    "bumps": ("how many steps were impossible", "bumps", lambda f: f["bumps"]),
    "again": ("how many of its moves led to a field where it had been before", "sum(trail[i] in trail[:i] for i in range(1, len(trail)))", lambda f: len(f["trail"]) - len({*f["trail"]})),
    "east": ("the largest column it stood in", "max(a for a, b in trail)", lambda f: sorted(f["trail"])[-1][0]),
    "coins": ("how many coins ($) it collected: each is taken once, by standing on it", "len(coins & set(trail))", lambda f: sum(spot in f["coins"] for spot in {*f["trail"]})),
    "left": ("the number of coins ($) where it never stood", "len(coins - set(trail))", lambda f: sum(spot not in f["trail"] for spot in f["coins"])),
    "often": ("how many times it stood on the field that it came to most often, where the start is one time", "max(trail.count(t) for t in trail)", lambda f: max(map(f["trail"].count, f["trail"]))),
    "rows": ("the rows it stood in, ascending, each once", "sorted({b for a, b in trail})", lambda f: sorted({spot[1] for spot in f["trail"]})),
    "far": ("the largest distance from its first field, as columns plus rows", "max(abs(a - trail[0][0]) + abs(b - trail[0][1]) for a, b in trail)", lambda f: max(abs(a - f["trail"][0][0]) + abs(b - f["trail"][0][1]) for a, b in f["trail"])),
}  # fmt: skip
# What a step into a wall does, besides being impossible; beyond the border; and on fields of ice or with an arrow.
WALLS = {
    "": "",
    "turns it right": "d = (d + 1) % 4",
    "turns it round": "d = (d + 2) % 4",
    "turns it left": "d = (d - 1) % 4",
}


def draw(rng, level):
    return {
        **names(rng, "grid"),
        "cases": some(rng, REPORTS, 2 + level // 2),
        "wall": rng.choice(list(WALLS)) if level > 1 else "",
        "wrap": rng.random() < 0.5,
        "ice": level > 2 and rng.random() < 0.7,
        "back": rng.choice(["", "B"]) if level > 1 else "",
        "side": rng.choice(["", "S"]) if level > 3 else "",
        "numbers": level > 1 and rng.random() < 0.6,
        "words": rng.choice([("F", "L", "R"), ("G", "L", "R"), ("M", "P", "Q")]),
        "size": 8 + 5 * level,
    }


def data(rng, p):
    wide, high = rng.randint(7, 10), rng.randint(5, 8)
    grid = [[rng.choice("......#" + "~~" * p.ice + "$") for _ in range(wide)] for _ in range(high)]
    for place in range(max(wide, high)):  # no line of ice alone, on which it would slide for ever
        grid[place % high][place % wide] = "."
    grid[rng.randrange(high)][rng.randrange(wide)] = "@"
    orders = []
    for _ in range(p.size):
        order = rng.choice(p.words[:1] * 5 + p.words + (p.back, p.side)) or p.words[0]
        orders.append(order + (str(rng.randint(1, 4)) if p.numbers and order not in p.words[1:] else ""))
    return "\n".join("".join(row) for row in grid) + "\n\n" + " ".join(orders) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


MOVES = {"N": (0, -1), "E": (1, 0), "S": (0, 1), "W": (-1, 0)}


def facts(text, p):
    grid, orders = text.split("\n\n")
    fields = {(x, y): c for y, row in enumerate(grid.split("\n")) for x, c in enumerate(row)}
    wide, high = max(fields)[0] + 1, max(y for _, y in fields) + 1
    f = {"bumps": 0, "way": "N", "coins": [s for s, c in fields.items() if c == "$"]}
    spot = next(s for s, c in fields.items() if c == "@")
    trail = [spot]
    turns = "NESW"

    def turned(way, by):
        return turns[(turns.index(way) + by) % 4]

    for order in orders.split():
        if order in p.words[1:]:
            f["way"] = turned(f["way"], 1 if order == p.words[2] else -1)
            continue
        count = int(order[1:] or 1)
        while count:
            count -= 1
            head = turned(f["way"], {p.words[0]: 0, p.back: 2, p.side: 1}[order[0]])
            while True:
                ahead = (spot[0] + MOVES[head][0], spot[1] + MOVES[head][1])
                if p.wrap:
                    ahead = (ahead[0] % wide, ahead[1] % high)
                if fields.get(ahead, "#") == "#":
                    f["bumps"] += 1
                    f["way"] = turned(
                        f["way"],
                        {"": 0, "turns it right": 1, "turns it round": 2, "turns it left": 3}[p.wall],
                    )
                    break
                spot = ahead
                trail.append(spot)
                if fields[spot] != "~":
                    break
    return {**f, "trail": trail, "x": spot[0], "y": spot[1]}


def instruction(p):
    go, left, right = p.words
    about = f"The file has a grid, an empty line and a line of orders. A robot begins at the @ and faces N, to the top; # is a wall, $ a coin, all else is open{' (~ is ice)' * p.ice}."
    extra = f", {p.back} one step backwards without turning" * bool(
        p.back
    ) + f", {p.side} one step to its right without turning" * bool(p.side)
    rules = [
        f"The orders: {go} is one step ahead, {left} turns it left and {right} turns it right by 90 degrees{extra}."
    ]
    if p.numbers:
        rules.append(f"A number after an order for a step repeats it: {go}3 is {go} {go} {go}.")
    rules.append(
        "A step over the border leads in at the opposite border."
        if p.wrap
        else "Beyond the border, there are walls all round."
    )
    rules.append(
        "A step into a wall is impossible: it stays where it is"
        + (f", and the wall {p.wall}." if p.wall else ".")
    )
    if p.ice:
        rules.append(
            "A step onto ice is at once followed by another one in the same direction, until it is on a field without ice or that further step is impossible (which counts like any other impossible step)."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    wrap = "a, b = a % w, b % h" if p.wrap else ""
    turn = WALLS[p.wall]
    kinds = {p.words[0]: 0, **({p.back: 2} if p.back else {}), **({p.side: 1} if p.side else {})}
    head = f"""import sys
top, orders = open(sys.argv[1]).read().split("\\n\\n")
grid = top.split("\\n")
h, w = len(grid), len(grid[0])
y = next(i for i in range(h) if "@" in grid[i])
x = grid[y].index("@")
d, bumps, trail = 0, 0, [(x, y)]
coins = {{(i, j) for j in range(h) for i in range(w) if grid[j][i] == "$"}}
for order in orders.split():
    if order == {p.words[1]!r}: d = (d - 1) % 4
    elif order == {p.words[2]!r}: d = (d + 1) % 4
    else:
        for _ in range(int(order[1:] or 1)):
            e = (d + {kinds!r}[order[0]]) % 4
            go = True
            while go:
                a, b = x + [0, 1, 0, -1][e], y + [-1, 0, 1, 0][e]
                {wrap or "pass"}
                if not (0 <= a < w and 0 <= b < h) or grid[b][a] == "#":
                    bumps += 1
                    {turn or "pass"}
                    break
                x, y = a, b
                trail.append((x, y))
                go = grid[y][x] == "~" """
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
