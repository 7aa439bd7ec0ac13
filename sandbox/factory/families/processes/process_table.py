"""Questions about a listing of processes, by a program that must answer them for any listing.

Hard: the questions are about trees and sums over them, and parents may be listed after their children or not at all.
"""

from sandbox.factory.kit import PEOPLE, given, table, words
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

SKILLS = ("processes", "trees", "Python", "sums")

REPORTS = {
    "orphans": ("the pids, ascending, of processes whose parent is not listed", "sorted(i for i in ps if ps[i][1] not in ps)",
        lambda ps: sorted(x["pid"] for x in ps if all(y["pid"] != x["ppid"] for y in ps))),
    "zombies": ("the pids, ascending, of processes in state Z", "sorted(i for i in ps if ps[i][3] == 'Z')",
        lambda ps: sorted(x["pid"] for x in ps if x["state"] == "Z")),
    "adopters": ("the pids, ascending, of processes that have a child in state Z", "sorted({ps[i][1] for i in ps if ps[i][3] == 'Z'} & set(ps))",
        lambda ps: sorted(x["pid"] for x in ps if any(y["state"] == "Z" for y in x["kids"]))),
    "deepest": ("how many processes the longest chain of parents has, from an orphan (a process whose parent is not listed) down to a process without children, both counted", "max(len(line(i)) for i in ps)",
        lambda ps: max(depth(x) for x in ps)),
    "heaviest": ("the pid of the process whose memory, with that of all its descendants, is largest among those that are no orphans (whose parent is listed); of several, the smallest pid; `-` if all are orphans",
        "max((i for i in ps if ps[i][1] in ps), key=lambda i: (sum(ps[k][4] for k in ps if i in line(k)), -i), default='-')",
        lambda ps: min(((-weight(x), x["pid"]) for x in ps if x["parent"]), default=(0, "-"))[1]),
    "users": ("USER=MEMORY for every user, in alphabetical order, with the sum of the memory", "[f'{u}={sum(r[4] for r in ps.values() if r[2] == u)}' for u in sorted({r[2] for r in ps.values()})]",
        lambda ps: [f"{u}={sum(x['rss'] for x in ps if x['user'] == u)}" for u in sorted({x["user"] for x in ps})]),
    "busiest": ("the user with most processes, of several the first in the alphabet", "max(sorted({r[2] for r in ps.values()}), key=[r[2] for r in ps.values()].count)",
        lambda ps: min((-sum(y["user"] == x["user"] for y in ps), x["user"]) for x in ps)[1]),
    "leaves": ("how many processes have no children", "len(set(ps) - {r[1] for r in ps.values()})", lambda ps: sum(not x["kids"] for x in ps)),
    "family": ("the pids, ascending, of all descendants of the process with the smallest pid", "sorted(i for i in ps if min(ps) in line(i)[1:])",
        lambda ps: sorted(x["pid"] for x in ps if below(x, min(y["pid"] for y in ps)))),
    "strangers": ("the pids, ascending, of processes whose parent is listed and belongs to another user", "sorted(i for i in ps if ps[i][1] in ps and ps[ps[i][1]][2] != ps[i][2])",
        lambda ps: sorted(x["pid"] for x in ps if x["parent"] and x["parent"]["user"] != x["user"])),
    "siblings": ("the largest number of listed children that one process has", "max([r[1] for r in ps.values()].count(i) for i in ps)", lambda ps: max(len(x["kids"]) for x in ps)),
    "stopped": ("the names of the processes in state T, without repetition, in alphabetical order", "sorted({r[5] for r in ps.values() if r[3] == 'T'})",
        lambda ps: sorted({x["name"] for x in ps if x["state"] == "T"})),
}  # fmt: skip


def draw(rng, level):
    return {**names(rng, "ps"), "cases": some(rng, REPORTS, 2 + level), "size": 8 + 3 * level}


def data(rng, p):
    users, commands = words(rng, 4, PEOPLE), words(rng, 6)
    pids = rng.sample(range(2, 4000), p.size)
    rows = []
    for number, pid in enumerate(pids):
        parent = (
            rng.choice(pids[max(0, number - 4) : number])
            if number > 2 or (number and rng.random() < 0.7)
            else rng.randint(5000, 6000)
        )
        row = [
            pid,
            parent,
            rng.choice(users),
            rng.choice("SSSRTZ"),
            rng.randint(1, 40) * 100,
            rng.choice(commands),
        ]
        rows.append([str(value) for value in row])
    rng.shuffle(rows)
    return table([["PID", "PPID", "USER", "STATE", "RSS", "NAME"], *rows], " ")


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text):
    keys = ("pid", "ppid", "user", "state", "rss", "name")
    ps = [dict(zip(keys, row.split(), strict=True)) for row in text.splitlines()[1:]]
    for x in ps:
        x |= {key: int(x[key]) for key in ("pid", "ppid", "rss")}
    for x in ps:
        x["kids"] = [y for y in ps if y["ppid"] == x["pid"]]
        x["parent"] = next((y for y in ps if y["pid"] == x["ppid"]), None)
    return ps


def depth(x):
    return 1 + (depth(x["parent"]) if x["parent"] else 0)


def weight(x):
    return x["rss"] + sum(map(weight, x["kids"]))


def below(x, pid):
    return bool(x["parent"]) and (x["parent"]["pid"] == pid or below(x["parent"], pid))


def instruction(p):
    about = "After a line of headings, each line of the file is a process: its pid, its parent's pid, its user, its state, its memory and its name."
    return asks(p, about, ["The order of the lines means nothing, and parents need not be listed."], REPORTS)


def source(p):
    head = """import sys
ps = {}
for row in open(sys.argv[1]).read().splitlines()[1:]:
    a = row.split()
    ps[int(a[0])] = (int(a[0]), int(a[1]), a[2], a[3], int(a[4]), a[5])
def line(i):
    return [i] + line(ps[i][1]) if i in ps else []"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p)))


def test_hidden_listings(p, case):
    for text in fresh(p, data):
        check_report(p, case, text, REPORTS, facts(text))
