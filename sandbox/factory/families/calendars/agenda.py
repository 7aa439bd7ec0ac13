"""An agenda from a calendar file with events that repeat, by a Python program for any such calendar.

Hard: repetitions end by count or by day, single ones are taken out, and events overlap.
"""

from datetime import date, timedelta

from sandbox.factory.kit import PLACES, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "dates", "iCalendar", "text parsing")

# How an event repeats: how people say it -> the part of RRULE, the solution's next day after d, the reference's n-th day after the first.
REPEATS = {
    "FREQ=DAILY means every day": ("DAILY", "d + timedelta(1)", lambda d, n: d + timedelta(n)),
    "FREQ=WEEKLY means every week": ("WEEKLY", "d + timedelta(7)", lambda d, n: d + timedelta(7 * n)),
    "FREQ=MONTHLY means on that day of every month (no event's day is above 28)": ("MONTHLY", "d.replace(month=d.month % 12 + 1, year=d.year + d.month // 12)", lambda d, n: date(d.year + (d.month - 1 + n) // 12, (d.month - 1 + n) % 12 + 1, d.day)),
    "FREQ=YEARLY means on that day of every year": ("YEARLY", "d.replace(year=d.year + 1)", lambda d, n: date(d.year + n, d.month, d.day)),
    "FREQ=FORTNIGHTLY means every second week": ("FORTNIGHTLY", "d + timedelta(14)", lambda d, n: d + timedelta(14 * n)),
}  # fmt: skip
FORMS = {
    "DAY TIME SUMMARY": ("f'{d} {t} {e[\"SUMMARY\"]}'", lambda d, t, e: f"{d} {t} {e['SUMMARY']}"),
    "DAY TIME SUMMARY (LOCATION), without ` (LOCATION)` where there is none": ("f'{d} {t} {e[\"SUMMARY\"]}' + (f' ({e[\"LOCATION\"]})' if 'LOCATION' in e else '')", lambda d, t, e: f"{d} {t} {e['SUMMARY']}" + f" ({e.get('LOCATION')})" * ("LOCATION" in e)),
    "WEEKDAY DAY TIME SUMMARY, where WEEKDAY is Mon to Sun": ("f'{\"Mon Tue Wed Thu Fri Sat Sun\".split()[d.weekday()]} {d} {t} {e[\"SUMMARY\"]}'", lambda d, t, e: f"{('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[d.weekday()]} {d} {t} {e['SUMMARY']}"),
}  # fmt: skip
ONLY = {
    "": ("True", lambda d, t, e: True),
    "only what begins before 12:00 is listed": ("t < '12:00'", lambda d, t, e: int(t[:2]) < 12),
    "only what falls on Monday to Friday is listed": ("d.weekday() < 5", lambda d, t, e: d.isoweekday() < 6),
    "only events with a location are listed": (
        "'LOCATION' in e",
        lambda d, t, e: e.get("LOCATION") is not None,
    ),
    "only events without a repetition are listed": (
        "'RRULE' not in e",
        lambda d, t, e: e.get("RRULE") is None,
    ),
}
OPENS = (
    "A calendar is kept as a text: events between BEGIN:VEVENT and END:VEVENT, with lines KEY:VALUE such as DTSTART:20250304T101500. An agenda for some weeks is wanted.",
    "Events stand in a calendar file between BEGIN:VEVENT and END:VEVENT, a line KEY:VALUE for each property (DTSTART:20250304T101500 is 4 March 2025, 10:15). We want to see what happens in a certain time.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    first = date(2025, rng.randint(2, 8), rng.randint(1, 28))
    return names(rng, "ics", "py") | {
        "repeats": rng.sample(list(REPEATS), min(5, level)),
        "until": level > 1 and rng.random() < 0.6,
        "count": level > 1,
        "removed": level > 2 and rng.random() < 0.7,
        "folded": level > 3 and rng.random() < 0.7,
        "first": str(first),
        "last": str(first + timedelta(rng.randint(20, 40))),
        "form": rng.choice(list(FORMS)),
        "only": rng.choice(list(ONLY)) if level > 1 else "",
        "numbered": rng.random() < 0.3,
        "size": 5 + 2 * level,
    }


def make(rng, p):
    lines, first = ["BEGIN:VCALENDAR", "VERSION:2.0"], date.fromisoformat(p.first)
    for _ in range(p.size):
        day = first + timedelta(rng.randint(-40, 45))
        day = day.replace(day=min(28, day.day))
        part = [
            f"DTSTART:{day:%Y%m%d}T{rng.randint(7, 19):02}{rng.choice(['00', '15', '30'])}00",
            f"SUMMARY:{word(rng)} {' '.join(words(rng, 2))}",
        ]
        part += [f"LOCATION:{word(rng, PLACES)}"] * (rng.random() < 0.5)
        if rng.random() < 0.6:
            kind = REPEATS[rng.choice(p.repeats)]
            end = rng.choice(
                [f";COUNT={rng.randint(2, 9)}"] * p.count
                + [f";UNTIL={first + timedelta(rng.randint(0, 30)):%Y%m%d}"] * p.until
                + [""]
            )
            part.append(f"RRULE:FREQ={kind[0]}{end}")
            part += [f"EXDATE:{kind[2](day, n):%Y%m%d}" for n in range(6) if p.removed and rng.random() < 0.3]
        rng.shuffle(part)
        if p.folded:
            part = [
                line[:20] + "\n " + line[20:] if len(line) > 24 and rng.random() < 0.5 else line
                for line in part
            ]
        lines += ["BEGIN:VEVENT", *part, "END:VEVENT"]
    return "\n".join([*lines, "END:VCALENDAR"]) + "\n"


def worked(text, p):
    first, last, rows = date.fromisoformat(p.first), date.fromisoformat(p.last), []
    for block in text.replace("\n ", "").split("BEGIN:VEVENT\n")[1:]:
        pairs = [line.split(":", 1) for line in block.split("END:VEVENT")[0].splitlines()]
        event, out = dict(pairs), {value for key, value in pairs if key == "EXDATE"}
        start, time = (
            date.fromisoformat(event["DTSTART"][:8]),
            f"{event['DTSTART'][9:11]}:{event['DTSTART'][11:13]}",
        )
        rule = dict(part.split("=") for part in event["RRULE"].split(";")) if "RRULE" in event else {}
        step = next((r[2] for r in REPEATS.values() if r[0] == rule.get("FREQ")), None)
        for n in range(int(rule.get("COUNT", 400)) if rule else 1):
            day = step(start, n) if step else start
            if day > last or f"{day:%Y%m%d}" > rule.get("UNTIL", "99999999"):
                break
            if day >= first and f"{day:%Y%m%d}" not in out and ONLY[p.only][1](day, time, event):
                rows.append((day, time, event["SUMMARY"], event))
    rows.sort(key=lambda row: row[:3])
    return "\n".join(
        f"{n}. " * p.numbered + FORMS[p.form][1](d, t, e) for n, (d, t, _, e) in enumerate(rows, 1)
    )


def instruction(p):
    rules = [
        f"list what happens from {p.first} to {p.last} (both included), a line for each time that an event takes place, as {p.form}; DAY is as in 2025-03-04, TIME as in 10:15"
    ]
    rules += [f"in a line RRULE, {repeat}" for repeat in p.repeats] + [
        "an event without RRULE takes place once; DTSTART is always the first time"
    ]
    rules += [
        "COUNT=N in it is the number of times, the first one and those that are taken out included"
    ] * p.count + ["UNTIL=20250310 in it is the last day on which it may happen"] * p.until
    rules += ["a line EXDATE:20250310 takes out that day; there may be several"] * p.removed + [
        "a line that begins with a space goes on the line before (without that space)"
    ] * p.folded
    rules += [p.only] * bool(p.only) + [
        "lines are in order of time, those of the same time by SUMMARY in byte order"
    ]
    return wordings(
        p,
        OPENS,
        [*rules, *["each line has its number, from 1 on, a point and a space in front"] * p.numbered],
    )


def program(p):
    lines = [
        "import sys",
        "from datetime import date, timedelta",
        "text = open(sys.argv[1]).read()" + ".replace('\\n ', '')" * p.folded,
        "steps = {",
    ]
    lines += [f"    '{REPEATS[repeat][0]}': lambda d: {REPEATS[repeat][1]}," for repeat in p.repeats] + [
        "}",
        "rows, e = [], None",
        "for line in text.splitlines():",
        "    key, _, value = line.partition(':')",
    ]
    lines += [
        "    if line == 'BEGIN:VEVENT':",
        "        e, out = {}, []",
        "    elif key == 'EXDATE':",
        "        out.append(value)",
        "    elif line != 'END:VEVENT':",
        "        if e is not None:",
        "            e[key] = value",
        "    else:",
    ]
    lines += [
        "        s = e['DTSTART']",
        "        d, t = date(int(s[:4]), int(s[4:6]), int(s[6:8])), s[9:11] + ':' + s[11:13]",
        "        rule = dict(part.split('=') for part in e.get('RRULE', 'COUNT=1').split(';'))",
        "        left = int(rule.get('COUNT', 100000))",
    ]
    lines += [
        f"        while left and str(d) <= '{p.last}' and d.strftime('%Y%m%d') <= rule.get('UNTIL', '9'):",
        f"            if str(d) >= '{p.first}' and d.strftime('%Y%m%d') not in out and {ONLY[p.only][0]}:",
    ]
    lines += [
        f"                rows.append((d, t, e['SUMMARY'], {FORMS[p.form][0]}))",
        "            left -= 1",
        "            if 'FREQ' not in rule:",
        "                break",
        "            d = steps[rule['FREQ']](d)",
        "        e = None",
        "rows.sort()",
    ]
    lines += ["for n, row in enumerate(rows, 1):", "    print(" + "f'{n}. ' + " * p.numbered + "row[3])"]
    return "\n".join(lines)


files, solution, lazy, test_half, test_result, test_program, test_hidden_calendars = printer(
    make, worked, program
)
