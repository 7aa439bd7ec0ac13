"""What a build would do after some changes, from rules and times, by a program that must tell it for any project.

Hard: a target is old when anything below it is, missing files and phony targets change that, and the order counts.
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

SKILLS = ("build systems", "graphs", "Python", "dependencies")

REPORTS = {
    "builds": ("the targets that a build of the goals builds, in the order in which they are built", "built", lambda f: f["built"]),
    "count": ("how many targets are built", "len(built)", lambda f: len(f["built"])),
    "fresh": ("the targets of the rules that the goals need and that are not built, in alphabetical order", "sorted(t for t in seen if t in deps and t not in built)", lambda f: sorted((f["needed"] & {*f["deps"]}) - {*f["built"]})),
    "unneeded": ("the targets of the rules that no goal needs (goals themselves are needed), in alphabetical order", "sorted(set(deps) - set(seen))", lambda f: sorted({*f["deps"]} - f["needed"])),
    "sources": ("the files that the goals need and that are no targets, in alphabetical order", "sorted(t for t in seen if t not in deps)", lambda f: sorted(f["needed"] - {*f["deps"]})),
    "depth": ("how many targets the longest chain has in which each needs the next directly, over all rules", "max(map(depth, deps))", lambda f: max(chain(t, f["deps"]) for t in f["deps"])),
    "popular": ("the file that most rules name as a prerequisite (each rule counted once), of several the first in the alphabet", "min({d for ds in deps.values() for d in ds}, key=lambda d: (-sum(d in ds for ds in deps.values()), d))", lambda f: max(sorted({d for ds in f["deps"].values() for d in ds}), key=lambda d: [d in ds for ds in f["deps"].values()].count(True))),
    "missing": ("the targets that the goals need and that do not exist, in alphabetical order", "sorted(t for t in seen if t in deps and t not in time)", lambda f: sorted(t for t in f["needed"] if t in f["deps"] and t not in f["times"])),
    "first": ("the first target that is built, `-` if none is", "(built or ['-'])[0]", lambda f: next(iter(f["built"]), "-")),
    "seconds": ("the time that the build takes, where building a target takes as many seconds as its rule has prerequisites, and at least 1", "sum(max(1, len(deps[t])) for t in built)", lambda f: sum(len(f["deps"][t]) or 1 for t in f["built"])),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "build"),
        "arrow": rng.choice([":", "<-"]),
        "order": rng.choice(["in the order of the rule", "from the last to the first"]),
        "equal": rng.choice(["counts as newer", "does not count as newer"]),
        "phony": level > 1,
        "only": rng.choice(["", "|"]) if level > 2 else "",
        "merged": level > 2 and rng.random() < 0.7,
        "groups": level > 3,
        "cases": some(rng, REPORTS, 2 + level // 2),
        "size": 5 + 2 * level,
    }


def data(rng, p):
    pool = words(rng, 2 * p.size)
    sources, targets = pool[: p.size], pool[p.size :]
    rows, group = [], f"${pool[0].upper()}"
    for place, target in enumerate(targets):
        needs = rng.sample(sources, rng.randint(0, 2)) + (
            rng.sample(targets[:place], min(place, rng.randint(0, 2))) if place else []
        )
        if p.groups and rng.random() < 0.2:
            needs.append(group)
        if p.only and rng.random() < 0.3:
            needs += ["|", rng.choice(sources)]
        rows.append(f"rule {target} {p.arrow} {' '.join(needs)}".rstrip())
        if p.merged and rng.random() < 0.2:
            rows.append(f"rule {target} {p.arrow} {rng.choice(sources)}")
    rng.shuffle(rows)
    if p.groups:
        rows.insert(rng.randrange(len(rows)), f"let {group} {' '.join(rng.sample(sources, 2))}")
    rows += [f"phony {t}" for t in targets[-2:]] * p.phony
    rows += [f"file {name} {rng.randint(1, 20)}" for name in sources] + [
        f"file {t} {rng.randint(8, 26)}" for t in targets if rng.random() < 0.8
    ]
    return "\n".join([*rows, f"goals {' '.join(rng.sample(targets[-4:], 2))}"]) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    deps, soft, times, phony, lets, built, needed = {}, {}, {}, set(), {}, [], set()
    lines = [line.split() for line in text.splitlines()]
    lets = {row[1]: row[2:] for row in lines if row[0] == "let"}
    for kind, *row in lines:
        if kind == "rule":
            names = [n for item in row[2:] for n in lets.get(item, [item])]
            cut = names.index("|") if "|" in names else len(names)
            mine, weak = deps.setdefault(row[0], []), soft.setdefault(row[0], [])
            mine += [n for n in dict.fromkeys(names[:cut]) if n not in mine]
            weak += [n for n in dict.fromkeys(names[cut + 1 :]) if n not in weak]
        elif kind == "file":
            times[row[0]] = int(row[1])
        elif kind == "phony":
            phony |= {row[0]}
    both = {t: [*deps[t], *(n for n in soft[t] if n not in deps[t])] for t in deps}

    def visit(name):
        if name in needed:
            return
        needed.add(name)
        if name not in deps:
            return
        for other in both[name] if p.order.startswith("in") else both[name][::-1]:
            visit(other)
        old = name in phony or name not in times
        for other in deps[name]:
            newer = times.get(other, 0) > times.get(name, 0) or (
                p.equal == "counts as newer" and times.get(other, 0) == times.get(name, 0)
            )
            old |= other in built or newer
        if old:
            built.append(name)

    for goal in lines[-1][1:]:
        visit(goal)
    return {"deps": both, "times": times, "built": built, "needed": needed}


def chain(target, deps):
    return 1 + max((chain(n, deps) for n in deps[target] if n in deps), default=0)


def instruction(p):
    about = f"The lines of the file are `rule TARGET {p.arrow} PREREQUISITE...` (perhaps with none), `file NAME TIME` for each file that exists, with the time of its last change, and at the end `goals TARGET...`."
    rules = [
        f"To build a target, first all its prerequisites that are targets of rules are seen to, {p.order} and each in the same way, then the target itself is built if it is old; nothing is seen to twice. The goals are seen to one after the other. "
        f"A target is old if it does not exist, or if one of its prerequisites was built now or is newer; a file of the same time {p.equal}."
    ]
    if p.phony:
        rules.append(
            "A line `phony TARGET` says that the target is always old, even if there is a file of this name."
        )
    if p.only:
        rules.append(
            "Prerequisites after a | in a rule are seen to after the others (with these, where all are taken from the last to the first, before them), and are prerequisites for all the questions, but never make the target old."
        )
    if p.merged:
        rules.append(
            "Several rules for one target are one rule with all their prerequisites in the order of the lines, each once"
            + (" (those after a | at the end)." if p.only else ".")
        )
    if p.groups:
        rules.append(
            "A line `let $NAME FILE...` (anywhere) gives a name to files: in the rules, $NAME stands for them."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    turn = "" if p.order.startswith("in") else "[::-1]"
    sign = ">=" if p.equal == "counts as newer" else ">"
    lets = "    ws = [x for w in ws for x in lets.get(w, [w])]\n" if p.groups else ""
    phony = " or t in phony" if p.phony else ""
    head = f"""import sys
rows = [line.split() for line in open(sys.argv[1])]
lets = {{r[1]: r[2:] for r in rows if r[0] == "let"}}
hard, weak = {{}}, {{}}
time = {{r[1]: int(r[2]) for r in rows if r[0] == "file"}}
phony = [r[1] for r in rows if r[0] == "phony"]
for r in rows:
    if r[0] != "rule": continue
    ws = r[3:]
{lets}    a, _, b = " ".join(ws).partition("|")
    hard.setdefault(r[1], {{}}).update(dict.fromkeys(a.split()))
    weak.setdefault(r[1], {{}}).update(dict.fromkeys(b.split()))
deps = {{t: list({{**hard[t], **weak[t]}}) for t in hard}}
built, seen = [], []
def see(t):
    if t in seen: return
    seen.append(t)
    if t in deps:
        for d in deps[t]{turn}: see(d)
        if t not in time{phony} or any(d in built or time.get(d, 0) {sign} time[t] for d in hard[t]): built.append(t)
for t in rows[-1][1:]: see(t)
def depth(t): return 1 + max((depth(d) for d in deps[t] if d in deps), default=0)"""
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
