"""Working hours from a list of shifts, by an awk script for any such list.

Hard: shifts go past midnight, breaks depend on their length, and hours of night or weekend count differently.
"""

from datetime import date, timedelta

from sandbox.factory.kit import PEOPLE, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "time arithmetic", "date", "sort")

# How the minutes m of a shift are changed: how people say it -> awk's statement, Python's of minutes, start and end.
RULES = {
    "of a shift of more than six hours, 30 minutes are a break and do not count": ("if (m > 360) m -= 30", lambda m, s, e: m - 30 if m > 360 else m),
    "the minutes of a shift are rounded down to a multiple of 15": ("m -= m % 15", lambda m, s, e: m // 15 * 15),
    "a shift counts ten hours at most": ("if (m > 600) m = 600", lambda m, s, e: min(m, 600)),
    "a shift that begins before 06:00 counts 20 minutes more": ("if (s < 360) m += 20", lambda m, s, e: m + 20 * (s < 360)),
    "a shift that ends past midnight counts one and a half times (rounded down to whole minutes)": ("if (e > 1440) m = int(m * 3 / 2)", lambda m, s, e: m * 3 // 2 if e > 1440 else m),
    "a shift of fewer than 60 minutes counts as 60 minutes": ("if (m < 60) m = 60", lambda m, s, e: max(m, 60)),
}  # fmt: skip
GROUPS = {
    "person": ("$2", lambda d, who: who),
    "day (that on which the shift begins)": ("$1", lambda d, who: str(d)),
    "month (as YYYY-MM)": ("substr($1, 1, 7)", lambda d, who: str(d)[:7]),
    "person and month (as PERSON YYYY-MM)": ('$2 " " substr($1, 1, 7)', lambda d, who: f"{who} {str(d)[:7]}"),
    "weekday (Mon to Sun)": (
        "weekday($1)",
        lambda d, who: ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[d.weekday()],
    ),
}
FORMS = {
    "H:MM (hours without zeros in front)": (
        'int(v / 60) ":" sprintf("%02d", v % 60)',
        lambda v: f"{v // 60}:{v % 60:02}",
    ),
    "whole minutes": ("v", str),
    "hours and minutes as in 7h5m": ('int(v / 60) "h" v % 60 "m"', lambda v: f"{v // 60}h{v % 60}m"),
}
ONLY = {
    "": ("", lambda d, s: True),
    "only shifts that begin on Saturday or Sunday count": (
        "weekday($1) ~ /^S/",
        lambda d, s: d.weekday() > 4,
    ),
    "only shifts that begin at 12:00 or later count": ("s >= 720", lambda d, s: s >= 720),
    "only shifts that begin from Monday to Friday count": (
        "weekday($1) !~ /^S/",
        lambda d, s: d.weekday() < 5,
    ),
}
OPENS = (
    "A list of shifts has lines `2025-03-04 ines 22:00 06:15` (day, person, begin, end); where the end is not after the begin, it is on the next day. We want the hours.",
    "Shifts are written down as `2025-03-04 ines 22:00 06:15`: day, person, begin and end. A shift whose end is not later than its begin ends on the day after. The working times shall be added up.",
)
ZELLER = 'function weekday(d,  y, m, q) { y = substr(d, 1, 4); m = substr(d, 6, 2) + 0; q = substr(d, 9) + 0; if (m < 3) { m += 12; y-- }\n  return substr("SatSunMonTueWedThuFri", (q + int(13 * (m + 1) / 5) + y + int(y / 4) - int(y / 100) + int(y / 400)) % 7 * 3 + 1, 3) }'


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng) | {
        "group": rng.choice(list(GROUPS)),
        "rules": rng.sample(list(RULES), level // 2 + 1),
        "form": rng.choice(list(FORMS)),
        "only": rng.choice(list(ONLY)) if level > 1 else "",
        "over": level > 2 and rng.random() < 0.6,
        "order": rng.choice(
            ["in byte order of the names", "with the most time first (equal ones in byte order of the names)"]
        ),
        "size": 10 + 8 * level,
    }


def make(rng, p):
    people, lines = words(rng, 4, PEOPLE), []
    for _ in range(p.size):
        day = date(2025, 2, 20) + timedelta(rng.randrange(20))
        begin = rng.choice([rng.randrange(0, 360), rng.randrange(360, 1439), rng.randrange(900, 1439)])
        end = (begin + rng.choice([rng.randint(20, 100), rng.randint(200, 700), 480])) % 1440
        lines.append(
            f"{day} {rng.choice(people)} {begin // 60:02}:{begin % 60:02} {end // 60:02}:{end % 60:02}\n"
        )
    return "".join(lines)


def worked(text, p):
    sums = {}
    for line in text.splitlines():
        day, who, *times = line.split(" ")
        begin, end = (60 * int(t[:2]) + int(t[3:]) for t in times)
        end += 1440 * (end <= begin)
        day, minutes = date.fromisoformat(day), end - begin
        if ONLY[p.only][1](day, begin):
            for rule in p.rules:
                minutes = RULES[rule][1](minutes, begin, end)
            key = GROUPS[p.group][1](day, who)
            sums[key] = sums.get(key, 0) + minutes
    rows = sorted(sums.items(), key=lambda row: (-row[1] if "most" in p.order else 0, row[0]))
    mark = " over" if p.over else ""
    return "\n".join(f"{key} {FORMS[p.form][1](v)}{mark * (v > 1200)}" for key, v in rows)


def instruction(p):
    rules = [
        *p.rules,
        *["these rules work in the order given, each on the minutes of one shift"] * (len(p.rules) > 1),
    ] + [p.only] * bool(p.only)
    rules += [
        f"print a line `NAME TIME` for each {p.group}, where TIME is the sum of its shifts, as {p.form}",
        f"the lines are {p.order}",
    ]
    return wordings(
        p, OPENS, [*rules, *["a line with more than 20 hours ends in a space and the word over"] * p.over]
    )


def program(p):
    changes = "; ".join(RULES[rule][0] for rule in p.rules)
    only = f"({ONLY[p.only][0]})" if p.only else "1"
    key = "-k1,1nr -k2" if "most" in p.order else "-k2"
    mark = '(v > 1200 ? " over" : "")' if p.over else '""'
    return f"""#!/bin/bash
export LC_ALL=C
awk '{ZELLER if "weekday" in GROUPS[p.group][0] + only else ""}
{{ split($3, a, ":"); split($4, b, ":"); s = a[1] * 60 + a[2]; e = b[1] * 60 + b[2]; if (e <= s) e += 1440; m = e - s }}
{only} {{ {changes}; t[{GROUPS[p.group][0]}] += m }}
END {{ for (k in t) print t[k] "\\t" k }}' "$1" | sort -t $'\\t' {key} |
  awk -F '\\t' '{{ v = $1; print $2 " " {FORMS[p.form][0]} {mark} }}'"""


files, solution, lazy, test_half, test_result, test_script, test_hidden_lists = printer(make, worked, program)
