"""Requests for rooms, granted or refused by rules, by a Python program for any list of requests.

Hard: a request is judged by what was granted before it, and free times are what nobody has said.
"""

from sandbox.factory.kit import PEOPLE, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "intervals", "sorting", "parsing")

# Why a request is refused: how people say it -> the solution's condition, the reference's, of the request and those granted.
RULES = {
    "it begins before 08:00 or ends after 18:00": ("a < 480 or b > 1080", lambda r, g: r["a"] < 480 or r["b"] > 1080),
    "it is longer than three hours": ("b - a > 180", lambda r, g: r["b"] - r["a"] > 180),
    "it is shorter than half an hour": ("b - a < 30", lambda r, g: r["b"] - r["a"] < 30),
    "the same person already has a granted request that overlaps it, in whatever room": ("any(w == who and a < y and x < b for _, w, x, y in granted)", lambda r, g: any(o["who"] == r["who"] and overlaps(o, r) for o in g)),
    "the same person already has two granted requests": ("sum(w == who for _, w, _, _ in granted) >= 2", lambda r, g: [o["who"] for o in g].count(r["who"]) > 1),
    "there would be fewer than 15 minutes between it and another granted one of the same room": ("any(m == room and a < y + 15 and x < b + 15 for m, _, x, y in granted)", lambda r, g: any(o["room"] == r["room"] and r["a"] - o["b"] < 15 and o["a"] - r["b"] < 15 for o in g)),
    "it does not begin on a full quarter of an hour": ("a % 15", lambda r, g: r["a"] % 15 != 0),
}  # fmt: skip
REPORTS = {
    "a line `ROOM BEGIN-END WHO` for each granted request, by ROOM, then by BEGIN": ("lines = [f'{m} {t(x)}-{t(y)} {w}' for m, w, x, y in sorted(granted, key=lambda g: (g[0], g[2]))]", "granted"),
    "a line `N yes` or `N no` for each request, where N is its place in the list, from 1 on": ("lines = [f'{n} {v}' for n, v in enumerate(verdicts, 1)]", "verdicts"),
    "a line `ROOM MINUTES` for each room with granted requests, with the sum of their minutes, by ROOM": ("lines = [f'{m} {sum(y - x for k, _, x, y in granted if k == m)}' for m in sorted({g[0] for g in granted})]", "minutes"),
    "a line `ROOM BEGIN-END` for each time from 08:00 to 18:00 in which a room with granted requests is free, by ROOM, then by BEGIN": ("lines = []\nfor m in sorted({g[0] for g in granted}):\n    now = 480\n    for x, y in sorted((x, y) for k, _, x, y in granted if k == m) + [(1080, 1080)]:\n        if min(x, 1080) > now:\n            lines.append(f'{m} {t(now)}-{t(min(x, 1080))}')\n        now = max(now, y)", "free"),
    "a line `WHO GRANTED REFUSED` for each person, with the numbers of requests, by WHO": ("lines = [f'{w} {sum(g[1] == w for g in granted)} {asked.count(w) - sum(g[1] == w for g in granted)}' for w in sorted(set(asked))]", "people"),
}  # fmt: skip
OPENS = (
    "Requests for rooms come in as lines `ROOM WHO 10:15-11:00`, all for one day. Each is granted or refused in the order of the list.",
    "A list has lines `ROOM WHO BEGIN-END` (such as `fjord ines 10:15-11:00`): requests for rooms on one day, which are judged one after the other.",
)


def overlaps(one, other):
    return one["a"] < other["b"] and other["a"] < one["b"]


def clock(minutes):
    return f"{minutes // 60:02}:{minutes % 60:02}"


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    rules = rng.sample(list(RULES), min(5, level + rng.randint(0, 1)))
    return names(rng, "txt", "py") | {
        "rules": rules,
        "report": rng.choice(list(REPORTS)),
        "cancel": level > 1 and rng.random() < 0.6,
        "any": level > 2 and rng.random() < 0.6,
        "total": rng.random() < 0.4,
        "size": 10 + 6 * level,
    }


def make(rng, p):
    rooms, people, lines = words(rng, 3), words(rng, 3 + p.level, PEOPLE), []
    for _ in range(p.size):
        a = rng.choice([rng.randrange(440, 1060), rng.randrange(32, 70) * 15])
        b = a + rng.choice([20, 30, 45, 60, 90, 120, 200])
        room = "any" if p.any and rng.random() < 0.25 else rng.choice(rooms)
        lines.append(f"{room} {rng.choice(people)} {clock(a)}-{clock(b)}\n")
        if p.cancel and rng.random() < 0.2:
            lines.append(f"cancel {rng.choice([*people, word(rng, PEOPLE)])}\n")
    return "".join(lines)


def worked(text, p):
    granted, verdicts, asked, rooms = (
        [],
        [],
        [],
        sorted({line.split()[0] for line in text.splitlines()} - {"any", "cancel"}),
    )
    for line in text.splitlines():
        first, who, *time = line.split(" ")
        if first == "cancel":
            granted = [g for g in granted if g["who"] != who]
            continue
        a, b = (60 * int(t[:2]) + int(t[3:]) for t in time[0].split("-"))
        asked.append(who)
        for room in rooms if first == "any" else [first]:
            request = {"room": room, "who": who, "a": a, "b": b}
            busy = any(g["room"] == room and overlaps(g, request) for g in granted)
            if not busy and not any(RULES[rule][1](request, granted) for rule in p.rules):
                granted.append(request)
                verdicts.append("yes")
                break
        else:
            verdicts.append("no")
    lines, by_room = [], sorted(granted, key=lambda g: (g["room"], g["a"]))
    match REPORTS[p.report][1]:
        case "granted":
            lines = [f"{g['room']} {clock(g['a'])}-{clock(g['b'])} {g['who']}" for g in by_room]
        case "verdicts":
            lines = [f"{n} {v}" for n, v in enumerate(verdicts, 1)]
        case "people":
            lines = [
                f"{w} {(n := sum(g['who'] == w for g in granted))} {asked.count(w) - n}"
                for w in sorted(set(asked))
            ]
        case kind:
            for room in sorted({g["room"] for g in granted}):
                held = [(g["a"], g["b"]) for g in by_room if g["room"] == room]
                if kind == "minutes":
                    lines.append(f"{room} {sum(b - a for a, b in held)}")
                else:
                    minutes = [m for m in range(480, 1080) if not any(a <= m < b for a, b in held)]
                    starts = [m for m in minutes if m - 1 not in minutes]
                    ends = [m + 1 for m in minutes if m + 1 not in minutes]
                    lines += [f"{room} {clock(a)}-{clock(b)}" for a, b in zip(starts, ends, strict=True)]
    return "\n".join([*lines, *[f"granted {len(granted)}"] * p.total]) if lines else ""


def instruction(p):
    rules = [
        "a request is refused if the room is taken then by a granted request (one may begin when another ends)",
        *[f"it is also refused if {rule}" for rule in p.rules],
        "all other requests are granted",
    ]
    rules += [
        "a line `cancel WHO` is no request: it takes back all requests granted to this person so far"
    ] * p.cancel
    rules += [
        "a request for the room `any` is granted for the first room, in byte order, of those named in the whole list for which it need not be refused"
    ] * p.any
    return wordings(
        p,
        OPENS,
        [
            *rules,
            f"at the end of all, print {p.report}",
            *["then print a line `granted N` with the number of granted requests"] * p.total,
        ],
    )


def program(p):
    lines = [
        "import sys",
        "def m(s):",
        "    h, n = s.split(':')",
        "    return int(h) * 60 + int(n)",
        "def t(n):",
        "    return '%02d:%02d' % divmod(n, 60)",
        "rows = [line.split() for line in open(sys.argv[1])]",
    ]
    lines += [
        "rooms = sorted({r[0] for r in rows} - {'any', 'cancel'})",
        "granted, verdicts, asked = [], [], []",
        "for row in rows:",
    ]
    lines += [
        "    if row[0] == 'cancel':",
        "        granted = [g for g in granted if g[1] != row[1]]",
        "        continue",
    ] * p.cancel + [
        "    who = row[1]",
        "    asked.append(who)",
        "    a, b = map(m, row[2].split('-'))",
        "    verdict = 'no'",
    ]
    lines += [
        "    for room in " + ("rooms if row[0] == 'any' else row[:1]:" if p.any else "row[:1]:"),
        "        if any(k == room and a < y and x < b for k, _, x, y in granted):",
        "            continue",
    ]
    lines += [f"        if {RULES[rule][0]}:\n            continue" for rule in p.rules] + [
        "        granted.append((room, who, a, b))",
        "        verdict = 'yes'",
        "        break",
        "    verdicts.append(verdict)",
        REPORTS[p.report][0],
    ]
    return "\n".join([*lines, "print('\\n'.join(lines))", *["print('granted', len(granted))"] * p.total])


files, solution, lazy, test_half, test_result, test_program, test_hidden_requests = printer(
    make, worked, program
)
