"""Attacks told from the log of logins of a server, by a program for the log of any day.

Hard: windows of time slide, a success ends a row of failures, and lines of several shapes mean the same.
"""

from itertools import pairwise

from sandbox.factory.kit import PEOPLE, at, given, hidden, output, put, read, scratch, word, words

SKILLS = ("log analysis", "security", "Python", "sliding windows", "regular expressions")

# The shapes of a line: how it is written, and the parts of a regular expression for it.
FAILED = {
    "Failed password for USER from ADDRESS": r"Failed password for (?P<u{n}>\S+) from (?P<a{n}>\S+)",
    "Failed password for invalid user USER from ADDRESS": r"Failed password for invalid user (?P<u{n}>\S+) from (?P<a{n}>\S+)",
    "authentication failure; user=USER rhost=ADDRESS": r"authentication failure; user=(?P<u{n}>\S+) rhost=(?P<a{n}>\S+)",
}
ACCEPTED = "Accepted password for USER from ADDRESS"
# Findings, over `log`, a list of (second of the day, ok, user, address) in the order of the file: what they are and how a
# line of them looks; the solution's lines, which fill the set `out`; the reference's function, which gives lines.
FINDINGS = {
    "burst": ("`burst ADDRESS`: addresses with at least {k} failures in {w} seconds or less (from the first to the last of those {k})",
        "for a in {{e[3] for e in log}}:\n    t = sorted(e[0] for e in log if e[3] == a and not e[1])\n    if any(y - x <= {w} for x, y in zip(t, t[{k} - 1:])): out.add('burst ' + a)",
        lambda log, k, w: {f"burst {a}" for t, ok, _, a in log if not ok and sum(not o and b == a and t <= s <= t + w for s, o, _, b in log) >= k}),
    "breach": ("`breach USER ADDRESS`: an accepted login of a user from an address after at least {k} failures of that user from that address, without an accepted login of theirs from there in between",
        "n = {{}}\nfor t, ok, u, a in log:\n    if ok and n.get((u, a), 0) >= {k}: out.add(f'breach {{u}} {{a}}')\n    n[u, a] = 0 if ok else n.get((u, a), 0) + 1",
        lambda log, k, w: {f"breach {u} {a}" for i, (_, ok, u, a) in enumerate(log) if ok and streak(log[:i], u, a) >= k}),
    "spray": ("`spray ADDRESS COUNT`: addresses with failures for at least {k} different users, and for how many",
        "for a in {{e[3] for e in log}}:\n    c = len({{e[2] for e in log if e[3] == a and not e[1]}})\n    if c >= {k}: out.add(f'spray {{a}} {{c}}')",
        lambda log, k, w: {f"spray {a} {c}" for a in {e[3] for e in log} if (c := len({u for _, ok, u, b in log if b == a and not ok})) >= k}),
    "target": ("`target USER COUNT`: users with at least {k} failures, and how many",
        "c = collections.Counter(e[2] for e in log if not e[1])\nout |= {{f'target {{u}} {{c[u]}}' for u in c if c[u] >= {k}}}",
        lambda log, k, w: {f"target {u} {c}" for u in {e[2] for e in log} if (c := sum(e[2] == u and not e[1] for e in log)) >= k}),
    "travel": ("`travel USER`: users with two accepted logins in direct succession (of the accepted logins of that user) from different addresses, at most {w} seconds apart",
        "last = {{}}\nfor t, ok, u, a in log:\n    if not ok: continue\n    if u in last and last[u][1] != a and t - last[u][0] <= {w}: out.add('travel ' + u)\n    last[u] = t, a",
        lambda log, k, w: {f"travel {u}" for u in {e[2] for e in log} if hops([e for e in log if e[1] and e[2] == u], w)}),
    "night": ("`night USER`: users with an accepted login before 05:00:00",
        "out |= {{'night ' + e[2] for e in log if e[1] and e[0] < 5 * 3600}}",
        lambda log, k, w: {f"night {u}" for t, ok, u, _ in log if ok and t // 3600 in range(5)}),
    "ghost": ("`ghost ADDRESS`: addresses with failures, but without an accepted login",
        "out |= {{'ghost ' + a for a in {{e[3] for e in log if not e[1]}} - {{e[3] for e in log if e[1]}}}}",
        lambda log, k, w: {f"ghost {a}" for _, _, _, a in log if not any(ok for _, ok, _, b in log if b == a)}),
    "first": ("`first USER ADDRESS`: for each user with an accepted login, the address of the first",
        "seen = {{}}\nfor t, ok, u, a in log:\n    if ok: seen.setdefault(u, a)\nout |= {{f'first {{u}} {{seen[u]}}' for u in seen}}",
        lambda log, k, w: {"first " + next(f"{v} {a}" for _, ok, v, a in log if ok and u == v) for u in {e[2] for e in log if e[1]}}),
}  # fmt: skip
SKIPPED = {
    "": ("", lambda a: False),
    "Lines with addresses that begin with 10. count for nothing.": (
        "a.startswith('10.')",
        lambda a: a[:3] == "10.",
    ),
    "Lines with addresses that begin with 192.168. count for nothing.": (
        "a.startswith('192.168.')",
        lambda a: a[:8] == "192.168.",
    ),
}


def streak(log, user, address):
    count = 0
    for _, ok, u, a in log:
        if (u, a) == (user, address):
            count = 0 if ok else count + 1
    return count


def hops(logins, seconds):
    return any(b[0] - a[0] <= seconds and a[3] != b[3] for a, b in pairwise(logins))


def draw(rng, level):
    return {
        "log": f"{word(rng)}.log",
        "program": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "cases": [
            (name, rng.randint(2, 4) if name == "breach" else rng.randint(3, 5), rng.choice([60, 90, 300]))
            for name in rng.sample(list(FINDINGS), 1 + level)
        ],
        "shapes": rng.sample(list(FAILED), min(3, level)),
        "skip": rng.choice(list(SKIPPED)) if level > 2 else "",
        "repeated": level > 3 and rng.random() < 0.7,
        "lower": level > 1 and rng.random() < 0.4,
        "size": 30 + 25 * level,
    }


def log(rng, p):
    users = words(rng, 6, PEOPLE)
    addresses = [
        f"{rng.choice(['10.0', '192.168', '203.0'])}.{rng.randint(1, 9)}.{rng.randint(1, 99)}"
        for _ in range(7)
    ]
    lines, clock, user, address = [], rng.randint(2, 5) * 3600, users[0], addresses[0]
    for _ in range(p.size):
        clock += rng.choice([1, 4, 15, 40, 300, 900])
        if rng.random() < 0.4:
            user, address = rng.choice(users), rng.choice(addresses)
        shape = rng.choice([*p.shapes, *p.shapes, ACCEPTED])
        name = user.upper() if p.lower and rng.random() < 0.3 else user
        time = f"{clock // 3600 % 24:02}:{clock // 60 % 60:02}:{clock % 60:02}"
        if clock >= 86400:
            break
        lines.append(
            f"{time} gate sshd[{rng.randint(100, 999)}]: {shape.replace('USER', name).replace('ADDRESS', address)}"
        )
        if rng.random() < 0.2:
            lines.append(
                f"{time} gate cron[{rng.randint(100, 999)}]: session opened for user {word(rng, PEOPLE)}"
            )
        if p.repeated and rng.random() < 0.15:
            lines.append(f"{time} gate last message repeated {rng.randint(1, 3)} times")
    return "\n".join(lines) + "\n"


def events(text, p):
    found, last = [], []
    for line in text.splitlines():
        time, _, rest = line.partition(" gate ")
        h, m, s = time.split(":")
        program, _, message = rest.partition(": ")
        if rest.startswith("last message repeated"):
            last = last * int(rest.split()[3])
            found += last
            last = last[:1]
            continue
        last = []
        parts = message.replace("=", " ").split(" ")
        if program.startswith("sshd"):
            user, address = parts[-3], parts[-1]
            if "authentication" in parts:
                user = parts[3]
            user = user.lower() if p.lower else user
            if not SKIPPED[p.skip][1](address):
                last = [(int(h) * 3600 + int(m) * 60 + int(s), parts[0] == "Accepted", user, address)]
                found += last
    return found


def report(text, p):
    seen = events(text, p)
    return [line for case in p.cases for line in sorted(FINDINGS[case[0]][2](seen, *case[1:]))]


def files(rng, p):
    return {p.log: log(rng, p)}


def instruction(p):
    found = "\n".join(f"- {FINDINGS[name][0].format(k=k, w=w)}" for name, k, w in p.cases)
    shapes = ", ".join(f"`{shape}`" for shape in p.shapes)
    text = (
        f"The log is of one day, in the order of time. A failure is a line of sshd with the message {shapes}"
        f"{' (these all mean the same)' if len(p.shapes) > 1 else ''}; an accepted login is one with `{ACCEPTED}`. "
        f"Other lines mean nothing. {p.skip}"
    ).strip()
    if p.repeated:
        text += " But where a line `last message repeated N times` follows directly on one of these, that is N more of the same, at the time of the line that it follows."
    if p.lower:
        text += " User names are the same in upper and lower case, and are to be printed in lower case."
    shape = f"It prints these findings, every line once, the kinds in this order and the lines of a kind in byte order:\n{found}"
    return [
        f"/app/{p.log} has the messages of a server, logins among them. {text}\n\nWrite the Python program "
        f"/app/{p.program}, which takes the path of such a log. {shape}\n\nSave what it prints for {p.log} as "
        f"/app/{p.out}. It will be run on the logs of other days.",
        f"Was our server attacked? Its log is /app/{p.log}. {text}\n\nPlease make `python3 /app/{p.program} LOG`, for the "
        f"log of any day. {shape}\n\nWe want its output for {p.log} in /app/{p.out}.",
        f"Automate the daily look at the login log. {text}\n\nThe program is /app/{p.program}, in Python, its argument "
        f"the log's path. {shape}\n\nToday's log is /app/{p.log}; put the findings into /app/{p.out}.",
    ]


def program(p):
    either = "|".join(FAILED[shape].format(n=n) for n, shape in enumerate(p.shapes))
    lines = ["import collections, re, sys", "log, last = [], None", f"bad = re.compile(r'sshd.*: (?:{either})$')",
             "good = re.compile(r'sshd.*: Accepted password for (?P<u>\\S+) from (?P<a>\\S+)$')", "for line in open(sys.argv[1]):",
             "    t = sum(int(x) * f for x, f in zip(line[:8].split(':'), (3600, 60, 1)))"]  # fmt: skip
    if p.repeated:
        lines += [
            "    again = re.search('last message repeated ([0-9]+) times', line)",
            "    if again:",
            "        log += [last] * int(again[1]) if last else []",
            "        continue",
        ]
    lines += ["    ok, fail, last = good.search(line), bad.search(line), None", "    if not ok and not fail: continue",
              "    g = (ok or fail).groupdict()", "    u = next(v for k, v in g.items() if k[0] == 'u' and v)", "    a = next(v for k, v in g.items() if k[0] == 'a' and v)"]  # fmt: skip
    lines += ["    u = u.lower()"] if p.lower else []
    lines += [f"    if {SKIPPED[p.skip][0]}: continue"] if p.skip else []
    lines += ["    last = (t, bool(ok), u, a)", "    log.append(last)"]
    for name, k, w in p.cases:
        lines += ["out = set()", FINDINGS[name][1].format(k=k, w=w), "for line in sorted(out): print(line)"]
    return "\n".join(lines)


def solution(p):
    return [
        f"head -n 5 {p.log}",
        put(p.program, program(p)),
        f"python3 {p.program} {p.log} > {p.out}; cat {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo \"print(open('/app/{p.out}').read())\" > {p.program}"]


def test_report(p):
    assert read(p.out) == "\n".join(report(log(given(p), p), p)) and read(p.program)


def test_hidden_finding(p, case):
    rng = hidden(p)
    for _ in range(2):
        text = log(rng, p)
        printed = output("python3", at(p.program), scratch({"next.log": text}) + "/next.log").split("\n")
        mine = [line for line in printed if line.startswith(case[0] + " ")]
        assert printed and mine == sorted(FINDINGS[case[0]][2](events(text, p), *case[1:]))
    assert read(p.program)


def test_hidden_report(p):
    text = log(hidden(p), p)
    assert output("python3", at(p.program), scratch({"next.log": text}) + "/next.log") == "\n".join(
        report(text, p)
    )
