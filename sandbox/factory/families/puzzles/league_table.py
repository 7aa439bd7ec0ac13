"""The table of a league from its results, by a program that must make it for any season.

Hard: points, the order of equals and the odd rules for cancelled or awarded games change who stands where.
"""

from sandbox.factory.kit import PLACES, given, words
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

SKILLS = ("sorting", "tables", "Python", "parsing")

# How equals are ordered: what is said -> the key of the solution (of team t, in T: [points, for, against, won, lost, away goals]) and the reference.
TIES = {
    "the larger difference of goals made and goals let in": ("T[t][2] - T[t][1]", lambda x: x["against"] - x["goals"]),
    "more goals made": ("-T[t][1]", lambda x: -x["goals"]),
    "fewer goals let in": ("T[t][2]", lambda x: x["against"]),
    "more games won": ("-T[t][3]", lambda x: -x["won"]),
    "fewer games lost": ("T[t][4]", lambda x: x["lost"]),
    "more goals made as the second team of a game": ("-T[t][5]", lambda x: -x["away"]),
}  # fmt: skip
REPORTS = {
    "table": ("the teams from the first place to the last", "rank", lambda f: [x["team"] for x in f["order"]]),
    "points": ("TEAM=POINTS in alphabetical order", "[f'{t}={T[t][0]}' for t in sorted(T)]", lambda f: sorted(f"{x['team']}={x['points']}" for x in f["order"])),
    "goals": ("TEAM=MADE:LET-IN in the order of the table", "[f'{t}={T[t][1]}:{T[t][2]}' for t in rank]", lambda f: [f"{x['team']}={x['goals']}:{x['against']}" for x in f["order"]]),
    "unbeaten": ("the teams that lost no game, in alphabetical order", "sorted(t for t in T if not T[t][4])", lambda f: sorted(x["team"] for x in f["order"] if x["lost"] == 0)),
    "biggest": ("the largest difference of goals in a game that counts", "max(abs(int(g[2]) - int(g[3])) for g in games)", lambda f: max(abs(a - b) for _, _, a, b in f["games"])),
    "draws": ("how many games that count had no winner", "sum(g[2] == g[3] for g in games)", lambda f: sum(a == b for _, _, a, b in f["games"])),
    "form": ("for the team on the first place, a letter for each of its games that count, in order: W, D or L, without spaces", "''.join('LDW'[1 + (d > 0) - (d < 0)] for d in diffs(rank[0]))", lambda f: form(f)),
    "streak": ("the largest number of games won in a row by the team on the first place", "max(map(len, ''.join(' x'[d > 0] for d in diffs(rank[0])).split(' ')))", lambda f: max(map(len, form(f).replace("D", "L").split("L")))),
    "last": ("the points of the team on the last place", "T[rank[-1]][0]", lambda f: f["order"][-1]["points"]),
    "level": ("how many teams have as many points as another one", "sum([r[0] for r in T.values()].count(r[0]) > 1 for r in T.values())", lambda f: sum(any(x["points"] == y["points"] for y in f["order"] if y is not x) for x in f["order"])),
    "scorers": ("the team with most goals made in a single game that counts, of several the first in the alphabet", "min((-int(n), t) for g in games for t, n in zip(g[:2], g[2:]))[1]", lambda f: min([(-a, h) for h, _, a, _ in f["games"]] + [(-b, w) for _, w, _, b in f["games"]])[1]),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "results"),
        "win": rng.choice([2, 3]),
        "ties": rng.sample(list(TIES), 1 + level // 2),
        "bonus": rng.choice([0, 4, 5]) if level > 1 else 0,
        "void": rng.choice(["", "void", "abandoned"]) if level > 1 else "",
        "fixed": rng.choice(["", "the later one counts", "the earlier one counts"]) if level > 2 else "",
        "penalty": level > 3,
        "cases": some(rng, REPORTS, 2 + level // 2),
        "size": 4 + level // 2,
    }


def data(rng, p):
    teams = words(rng, p.size, PLACES)
    games = [(a, b) for a in teams for b in teams if a != b]
    rng.shuffle(games)
    games = games[: 2 * p.size + 2]
    if p.fixed:
        games += rng.sample(games, 3)
    rows = [
        f"{a} - {b} {rng.choice([0, 1, 1, 2, 2, 3, 5])}:{rng.choice([0, 0, 1, 1, 2, 4])}{f' {p.void}' if p.void and rng.random() < 0.15 else ''}\n"
        for a, b in games
    ]
    if p.penalty:
        rows.insert(rng.randrange(len(rows)), f"penalty {rng.choice(teams)} {rng.randint(1, 4)}\n")
    return f"teams {' '.join(teams)}\n" + "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    head, *lines = text.splitlines()
    table = {
        t: dict.fromkeys(("points", "goals", "against", "won", "lost", "away"), 0) | {"team": t}
        for t in head.split()[1:]
    }
    results = []
    for line in lines:
        row = line.split()
        if row[0] == "penalty":
            table[row[1]]["points"] -= int(row[2])
        elif p.void and row[-1] == p.void:
            continue
        else:
            a, b = map(int, row[3].split(":"))
            twin = next((r for r in results if r[:2] == (row[0], row[2])), None)
            if twin and p.fixed == "the earlier one counts":
                continue
            if twin and p.fixed:
                results.remove(twin)
            results.append((row[0], row[2], a, b))
    for home, guest, a, b in results:
        for team, made, let in ((home, a, b), (guest, b, a)):
            x = table[team]
            x["goals"] += made
            x["against"] += let
            x["won"] += made > let
            x["lost"] += made < let
            x["points"] += p.win if made > let else made == let
            x["points"] += bool(p.bonus) and made >= p.bonus
        table[guest]["away"] += b
    order = sorted(table.values(), key=lambda x: (-x["points"], *(TIES[t][1](x) for t in p.ties), x["team"]))
    return {"order": order, "games": results}


def form(f):
    best = f["order"][0]["team"]
    marks = [(a - b) * (1 if h == best else -1) for h, g, a, b in f["games"] if best in (h, g)]
    return "".join("W" if m > 0 else "L" if m else "D" for m in marks)


def instruction(p):
    about = (
        "The first line of the file is `teams` and their names. Each other line is a game, `FIRST - SECOND GOALS:GOALS`"
        + ", or `penalty TEAM POINTS`" * p.penalty
        + "."
    )
    rules = [
        f"A game won gives {p.win} points, one without a winner 1 to each team. The table is ordered by points; where these are equal, {', then '.join(p.ties)} decides, then the alphabet."
    ]
    if p.bonus:
        rules.append(
            f"A team that makes {p.bonus} goals or more in a game gets one point more for it, even if it lost."
        )
    if p.void:
        rules.append(f"A game whose line ends in `{p.void}` does not count at all.")
    if p.fixed:
        rules.append(
            f"If two games that count for all else have the same first and the same second team, {p.fixed} and the other does not, and it keeps its place in the order of games."
        )
    if p.penalty:
        rules.append("A penalty takes points off.")
    return asks(p, about, rules, REPORTS)


def source(p):
    void = f"    if w[-1] == {p.void!r}: continue\n" if p.void else ""
    fixed = {
        "": "",
        "the later one counts": "    kept.pop((w[0], w[2]), 0)\n",
        "the earlier one counts": "    if (w[0], w[2]) in kept: continue\n",
    }[p.fixed]
    bonus = f" + (x >= {p.bonus})" if p.bonus else ""
    key = "(w[0], w[2])" if p.fixed else "len(kept)"
    head = f"""import sys
lines = [line.split() for line in open(sys.argv[1])]
T = {{t: [0] * 6 for t in lines[0][1:]}}
kept = {{}}
for w in lines[1:]:
    if w[0] == "penalty":
        T[w[1]][0] -= int(w[2])
        continue
{void}{fixed}    kept[{key}] = [w[0], w[2], *w[3].split(":")]
games = list(kept.values())
def diffs(t): return [(int(g[2]) - int(g[3])) * (1 if g[0] == t else -1) for g in games if t in g]
for g in games:
    for t, x, y in ((g[0], int(g[2]), int(g[3])), (g[1], int(g[3]), int(g[2]))):
        r = T[t]
        r[0] += ({p.win} if x > y else 1 if x == y else 0){bonus}
        r[1] += x
        r[2] += y
        r[3] += x > y
        r[4] += x < y
    T[g[1]][5] += int(g[3])
rank = sorted(T, key=lambda t: (-T[t][0], {", ".join(TIES[t][0] for t in p.ties)}, t))"""
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
