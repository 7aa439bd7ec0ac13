"""Who may do what under rules for users, groups and paths, by a program that must tell it for any set of rules.

Hard: rules contradict each other, groups hold groups, and which rule decides is a matter of order, length or kind.
"""

from sandbox.factory.kit import PEOPLE, given, words
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

SKILLS = ("access control", "groups", "Python", "recursion")

# Which of the matching rules decides: the key of the solution, over (place, length of path, denies, is a group).
DECIDES = {
    "the first in the file": "r[0]",
    "the last in the file": "-r[0]",
    "the one with the longest path, of several the last in the file": "(-r[1], -r[0])",
    "the one with the longest path, of several a deny if there is one": "(-r[1], -r[2])",
    "a deny, if there is one": "-r[2]",
    "one for the user itself before those for groups or everyone, and of several the first in the file": "(r[3], r[0])",
    "one for the user itself before those for groups or everyone, and of several the one with the longest path, then the last in the file": "(r[3], -r[1], -r[0])",
}
REPORTS = {
    "answers": ("`yes` or `no` for every ask line, in order", "['yes' if o else 'no' for _, _, _, o in asked]", lambda f: [["no", "yes"][x["ok"]] for x in f["asks"]]),
    "denied": ("USER:PATH of the ask lines that are answered no, in order", "[f'{u}:{q}' for u, _, q, o in asked if not o]", lambda f: [f"{x['user']}:{x['path']}" for x in f["asks"] if not x["ok"]]),
    "users": ("the users with at least one yes, in alphabetical order", "sorted({u for u, _, _, o in asked if o})", lambda f: sorted({x["user"] for x in f["asks"] if x["ok"]})),
    "members": ("GROUP=COUNT for all groups in alphabetical order, with the number of users in it, also by way of other groups", "[f'{g}={len(flat(g))}' for g in sorted(groups)]", lambda f: [f"{g}={sum(g in belongs(u, f['groups']) for u in f['users'])}" for g in sorted(f["groups"])]),
    "idle": ("how many rules match no ask line (allow and deny lines are rules)", "sum(not any(hit(r, *a[:3]) for a in asked) for r in rules)", lambda f: sum(r not in [m for x in f["asks"] for m in x["matches"]] for r in f["rules"])),
    "torn": ("how many ask lines are matched both by an allow and by a deny", "sum(len({r[2] for r in rules if hit(r, *a[:3])}) > 1 for a in asked)", lambda f: sum({"allow", "deny"} <= {m["kind"] for m in x["matches"]} for x in f["asks"])),
    "silent": ("how many ask lines are matched by no rule", "sum(not any(hit(r, *a[:3]) for r in rules) for a in asked)", lambda f: sum(not x["matches"] for x in f["asks"])),
    "groupless": ("the users of ask lines that are in no group, in alphabetical order", "sorted({a[0] for a in asked if not any(a[0] in flat(g) for g in groups)})", lambda f: sorted({x["user"] for x in f["asks"] if not belongs(x["user"], f["groups"])})),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "rules"),
        "cases": some(rng, REPORTS, 2 + level // 2),
        "decides": rng.choice(list(DECIDES)),
        "default": rng.choice(["yes", "no"]),
        "everyone": level > 1 and rng.random() < 0.5,
        "nested": level > 2,
        "root": rng.choice(["", "always yes", "always no for write and always yes for read"])
        if level > 3
        else "",
        "implies": level > 2 and rng.random() < 0.5,
        "size": 5 + 2 * level,
    }


def data(rng, p):
    users, groups, parts = words(rng, 5, PEOPLE), words(rng, 3), words(rng, 3)
    paths = (
        [f"/{a}" for a in parts]
        + [f"/{a}/{b}" for a in parts[:2] for b in parts]
        + [f"/{parts[0]}{parts[1]}"]
    )
    rows = []
    for place, group in enumerate(groups):
        members = rng.sample(users[:4], 2) + [
            "@" + g for g in groups[:place] if p.nested and rng.random() < 0.6
        ]
        rows.append(f"group {group} {' '.join(members)}\n")
    who = [*users, *(f"@{g}" for g in groups * 2), *["*"] * p.everyone]
    for _ in range(p.size):
        rows.append(
            f"{rng.choice(['allow', 'deny'])} {rng.choice(who)} {rng.choice(['read', 'write'])} {rng.choice(paths)}\n"
        )
    for _ in range(p.size + 3):
        rows.append(
            f"ask {rng.choice([*users, *['root'] * bool(p.root)])} {rng.choice(['read', 'write'])} {rng.choice(paths)}{rng.choice(['', '/x'])}\n"
        )
    return "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def belongs(user, groups):
    """All groups that a user is in."""
    found = {g for g in groups if user in groups[g]}
    while more := {g for g in groups if any(f"@{h}" in groups[g] for h in found)} - found:
        found |= more
    return found


def facts(text, p):
    f = {"groups": {}, "rules": [], "asks": []}
    for kind, *rest in map(str.split, text.splitlines()):
        if kind == "group":
            f["groups"][rest[0]] = rest[1:]
        elif kind == "ask":
            f["asks"].append(dict(zip(("user", "act", "path"), rest, strict=True)))
        else:
            f["rules"].append(
                {"kind": kind, "who": rest[0], "act": rest[1], "path": rest[2], "place": len(f["rules"])}
            )
    f["users"] = {u for members in f["groups"].values() for u in members if u[0] != "@"}
    for x in f["asks"]:
        subjects = {x["user"], "*", *(f"@{g}" for g in belongs(x["user"], f["groups"]))}
        acts = {x["act"], "write" if p.implies else x["act"]}
        x["matches"] = [
            r
            for r in f["rules"]
            if r["who"] in subjects and fits(r, x, acts) and (x["path"] + "/").startswith(r["path"] + "/")
        ]
        rule = min(
            x["matches"],
            key=lambda r: rank(r, p),
            default={"kind": "allow" if p.default == "yes" else "deny"},
        )
        x["ok"] = rule["kind"] == "allow"
        if x["user"] == "root" and p.root:
            x["ok"] = p.root == "always yes" or x["act"] == "read"
    return f


def fits(rule, x, acts):
    return rule["act"] == x["act"] or (rule["kind"] == "allow" and rule["act"] in acts)


def rank(rule, p):
    values = {
        "r[0]": rule["place"],
        "-r[0]": -rule["place"],
        "-r[1]": -len(rule["path"]),
        "-r[2]": rule["kind"] != "deny",
        "r[3]": rule["who"][0] in "@*",
    }
    return [values[part] for part in DECIDES[p.decides].strip("()").split(", ")]


def instruction(p):
    who = "a user, @ and a group" + (", or * for everyone" if p.everyone else "")
    about = "The file has lines `group NAME MEMBER...`, then rules `allow WHO read PATH`, `deny WHO write PATH` and so on, then questions `ask USER read PATH` or `ask USER write PATH`."
    rules = [
        f"WHO is {who}. A rule matches a question about the same right for its path or anything below it (/a is not below /ab), if it is for the user"
        f" in question{' or a group with that user' + ' or everyone' * p.everyone}. If several match, it is decided by {p.decides}; without a rule that matches, the answer is {p.default}."
    ]
    if p.nested:
        rules.append("Members of a group may be groups (@NAME); all who are in those are in it, too.")
    if p.implies:
        rules.append("An allow of write matches questions about read as well; a deny of write does not.")
    if p.root:
        rules.append(f"For the user root, the answer is {p.root}, whatever rules match.")
    return asks(p, about, rules, REPORTS)


def source(p):
    root = ""
    if p.root:
        root = f"    if u == 'root': o = {'True' if p.root == 'always yes' else repr('read') + ' == x'}\n"
    implies = " or (x == 'read' and r[5] == 'write' and not r[2])" if p.implies else ""
    head = f"""import sys
groups, rules, asked = {{}}, [], []
def flat(g):
    return {{u for m in groups[g] for u in (flat(m[1:]) if m[0] == "@" else [m])}}
def hit(r, u, x, q):
    if not (r[5] == x{implies}): return False
    if q != r[6] and not q.startswith(r[6] + "/"): return False
    return r[4] in ("*", u) or (r[4][0] == "@" and u in flat(r[4][1:]))
for line in open(sys.argv[1]):
    k, *w = line.split()
    if k == "group": groups[w[0]] = w[1:]
    elif k != "ask": rules.append((len(rules), len(w[2]), k == "deny", w[0][0] in "@*", *w))
    else: asked.append(w)
for i, (u, x, q) in enumerate(asked):
    r = min((r for r in rules if hit(r, u, x, q)), key=lambda r: {DECIDES[p.decides]}, default=None)
    o = not r[2] if r else {p.default == "yes"}
{root}    asked[i] = (u, x, q, o)"""
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
