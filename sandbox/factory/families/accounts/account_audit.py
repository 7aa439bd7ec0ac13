"""An audit of the accounts of a machine from its passwd, shadow and group lines, by a program for any machine.

Hard: accounts are in several tables that do not agree, groups come in two ways, and dates decide.
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

SKILLS = ("passwd", "shadow", "groups", "Python")

# The solution has `pw`: name -> fields, `sh`: name -> fields, `gr`: group -> (gid, members), TODAY.
REPORTS = {
    "roots": ("the names of the accounts with user id 0, in the order of the file", "[n for n in pw if pw[n][2] == '0']", lambda f: [u["name"] for u in f["users"] if u["uid"] == 0]),
    "twins": ("the user ids that more than one account has, ascending", "sorted({int(r[2]) for r in pw.values() if [q[2] for q in pw.values()].count(r[2]) > 1})", lambda f: sorted({u["uid"] for u in f["users"] if sum(v["uid"] == u["uid"] for v in f["users"]) > 1})),
    "lost": ("the accounts without a shadow line, in alphabetical order", "sorted(set(pw) - set(sh))", lambda f: sorted(u["name"] for u in f["users"] if u["hash"] is None)),
    "open": ("the accounts whose password field in shadow is empty, in alphabetical order", "sorted(n for n in sh if n in pw and not sh[n][1])", lambda f: sorted(u["name"] for u in f["users"] if u["hash"] == "")),
    "weak": ("the accounts with a password hash that begins with $1$, in alphabetical order", "sorted(n for n in sh if n in pw and sh[n][1].startswith('$1$'))", lambda f: sorted(u["name"] for u in f["users"] if (u["hash"] or "")[:3] == "$1$")),
    "login": ("the accounts that can log in, in alphabetical order", "sorted(n for n in pw if can(n))", lambda f: sorted(u["name"] for u in f["users"] if u["login"])),
    "old": ("the accounts whose password is older than allowed, in alphabetical order", "sorted(n for n in sh if n in pw and old(n))", lambda f: sorted(u["name"] for u in f["users"] if u["old"])),
    "groups": ("GROUP=COUNT for all groups in alphabetical order, with the number of accounts that are members by either way", "[f'{g}={len(members(g))}' for g in sorted(gr)]", lambda f: [f"{g}={sum(g in u['groups'] for u in f['users'])}" for g in sorted(f["groups"])]),
    "admins": ("the accounts that are members of the group {admin} by either way, in alphabetical order", "sorted(members({admin!r}))", lambda f: sorted(u["name"] for u in f["users"] if f["admin"] in u["groups"])),
    "ghosts": ("the names in the members of groups that are no accounts, each once, in alphabetical order", "sorted({m for _, ms in gr.values() for m in ms} - set(pw))", lambda f: sorted({m for ms in f["groups"].values() for m in ms if m not in [u["name"] for u in f["users"]]})),
    "busy": ("the account that is a member of most groups by either way, of several the first in the alphabet", "min(pw, key=lambda n: (-sum(n in members(g) for g in gr), n))", lambda f: max(sorted(f["users"], key=lambda u: u["name"]), key=lambda u: len(u["groups"]))["name"]),
    "people": ("the number of accounts with a user id of {first} or more", "sum(int(r[2]) >= {first} for r in pw.values())", lambda f: sum(u["uid"] >= f["first"] for u in f["users"])),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "accounts"),
        "cases": some(rng, REPORTS, 2 + level),
        "admin": rng.choice(["sudo", "wheel", "admin"]),
        "first": rng.choice([500, 1000]),
        "expiry": level > 1 and rng.random() < 0.7,
        "shells": rng.choice([("/bin/bash", "/bin/sh"), ("/bin/bash",), ("/bin/bash", "/bin/zsh")]),
        "locked": rng.choice(["! or *", "!"]),
        "size": 5 + 2 * level,
    }


def data(rng, p):
    people, groups, today = (
        words(rng, p.size + 2, PEOPLE),
        [p.admin, *words(rng, 3)],
        rng.randint(19000, 20000),
    )
    pw, sh, gr = [], [], []
    for name in people[: p.size]:
        uid = rng.choice([0, 33, 1001, 1002, *range(1003, 1012), 499, 700])
        pw.append(
            f"passwd {name}:x:{uid}:{rng.choice([100, 101, 102, 103])}:{name.title()},,:/home/{name}:{rng.choice(['/bin/bash', '/bin/bash', '/bin/sh', '/bin/zsh', '/usr/sbin/nologin'])}"
        )
        hashed = rng.choice(["", "!", "*", "!$6$ab$cd", "$6$xy$zz", "$6$ab$cd", "$1$ab$cd", "$y$j9T$q"])
        if rng.random() < 0.85:
            sh.append(
                f"shadow {name}:{hashed}:{today - rng.choice([5, 40, 90, 91, 400])}:0:{rng.choice(['', '90', '30', '99999'])}:7::{rng.choice(['', '', str(today - 1), str(today), str(today + 9)])}:"
            )
    for place, group in enumerate(groups):
        gr.append(f"group {group}:x:{100 + place}:{','.join(rng.sample(people, rng.randint(0, 3)))}")
    rows = pw + sh + gr
    if p.level > 2:
        rng.shuffle(rows)
    return f"today {today}\n" + "\n".join(rows) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    head, *lines = text.splitlines()
    today = int(head.split()[1])
    tables = {"passwd": [], "shadow": [], "group": []}
    for line in lines:
        kind, _, rest = line.partition(" ")
        tables[kind].append(rest.split(":"))
    f = {
        "users": [],
        "groups": {g[0]: [m for m in g[3].split(",") if m] for g in tables["group"]},
        "admin": p.admin,
        "first": p.first,
    }
    for name, _, uid, gid, _, _, shell in tables["passwd"]:
        shadow = next((s for s in tables["shadow"] if s[0] == name), None)
        u = {"name": name, "uid": int(uid), "hash": shadow and shadow[1], "old": False, "login": False}
        u["groups"] = {g[0] for g in tables["group"] if g[2] == gid or name in g[3].split(",")}
        if shadow:
            locked = shadow[1][:1] == "!" or (shadow[1][:1] == "*" and "*" in p.locked)
            over = p.expiry and shadow[7] != "" and int(shadow[7]) <= today
            u["login"] = shell in p.shells and not locked and not over
            u["old"] = shadow[4] != "" and today - int(shadow[2]) > int(shadow[4])
        f["users"].append(u)
    return f


def instruction(p):
    about = (
        "The first line of the file is `today` and a number of days since 1970. Each other line is a line of /etc/passwd, /etc/shadow or /etc/group of a machine after the word passwd, shadow or group"
        + ("; they are in no order." if p.level > 2 else ".")
    )
    shells = " or ".join(p.shells)
    rules = [
        "An account is a passwd line. A member of a group is an account that its group line names, or whose group id in passwd is the group's."
    ]
    if "login" in p.cases:
        over = (
            ", and whose day of expiry (the eighth field of shadow) is empty or after today"
            if p.expiry
            else ""
        )
        rules.append(
            f"An account can log in if its shell is {shells} and it has a shadow line whose password field does not begin with {p.locked}{over}."
        )
    if "old" in p.cases:
        rules.append(
            "A password is older than allowed if there have been more days since its last change (third field of shadow) than the fifth field says; an empty fifth field allows any age."
        )
    return asks(p, about, rules, reports(p))


def reports(p):
    def fill(text):
        return (
            text.replace("{admin!r}", repr(p.admin))
            .replace("{admin}", p.admin)
            .replace("{first}", str(p.first))
        )

    return {
        name: (fill(text), fill(code) if name in ("admins", "people") else code, ref)
        for name, (text, code, ref) in REPORTS.items()
    }


def source(p):
    locked = ("!", "*") if "*" in p.locked else ("!",)
    expiry = " and not (sh[n][7] and int(sh[n][7]) <= TODAY)" if p.expiry else ""
    head = f"""import sys
pw, sh, gr = {{}}, {{}}, {{}}
for line in open(sys.argv[1]):
    kind, _, rest = line.rstrip("\\n").partition(" ")
    r = rest.split(":")
    if kind == "today": TODAY = int(rest)
    elif kind == "passwd": pw[r[0]] = r
    elif kind == "shadow": sh[r[0]] = r
    else: gr[r[0]] = (r[2], r[3].split(",") if r[3] else [])
def members(g): return {{n for n in pw if pw[n][3] == gr[g][0] or n in gr[g][1]}}
def can(n): return n in sh and pw[n][6] in {p.shells!r} and not sh[n][1].startswith({locked!r}){expiry}
def old(n): return sh[n][4] != "" and TODAY > int(sh[n][2]) + int(sh[n][4])"""
    return program(p, head, reports(p))


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
