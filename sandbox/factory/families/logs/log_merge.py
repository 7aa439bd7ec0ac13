"""Logs of several programs, each with its own way to write the time, merged into one by a script.

Hard: times in three notations must become one order, and lines of the same second need a rule.
"""

from datetime import UTC, datetime, timedelta

from sandbox.factory.kit import words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "date formats", "sort", "time zones")

# A log: how people say its lines begin -> awk's statements that set t (YYYY-MM-DD HH:MM:SS) and m, Python's stamp.
STAMPS = {
    "`2025-03-04 10:15:30 `": ('t = substr($0, 1, 19); m = substr($0, 21)', lambda d: d.strftime("%Y-%m-%d %H:%M:%S ")),
    "`[04/Mar/2025:10:15:30] `": ('t = substr($0, 9, 4) "-" month(substr($0, 5, 3)) "-" substr($0, 2, 2) " " substr($0, 14, 8); m = substr($0, 24)', lambda d: d.strftime("[%d/%b/%Y:%H:%M:%S] ")),
    "`2025-03-04T10:15:30Z `": ('t = substr($0, 1, 10) " " substr($0, 12, 8); m = substr($0, 22)', lambda d: d.strftime("%Y-%m-%dT%H:%M:%SZ ")),
    "`20250304-101530: `": ('t = substr($0, 1, 4) "-" substr($0, 5, 2) "-" substr($0, 7, 2) " " substr($0, 10, 2) ":" substr($0, 12, 2) ":" substr($0, 14, 2); m = substr($0, 18)', lambda d: d.strftime("%Y%m%d-%H%M%S: ")),
    "`04.03.2025 10:15:30 - `": ('t = substr($0, 7, 4) "-" substr($0, 4, 2) "-" substr($0, 1, 2) " " substr($0, 12, 8); m = substr($0, 23)', lambda d: d.strftime("%d.%m.%Y %H:%M:%S - ")),
    "`1741083330 ` (seconds since 1970, UTC)": ('t = strftime("%Y-%m-%d %H:%M:%S", $1, 1); m = substr($0, 12)', lambda d: f"{int(d.timestamp())} "),
}  # fmt: skip
ONLY = {
    "that contain ERROR": ("m ~ /ERROR/", lambda t, m: "ERROR" in m),
    "that do not contain DEBUG": ("m !~ /DEBUG/", lambda t, m: "DEBUG" not in m),
    "from 10:00:00 to 15:59:59 of any day": ('substr(t, 12) >= "10" && substr(t, 12) < "16"', lambda t, m: "10" <= t[11:13] < "16"),
    "of the first day of a month": ('substr(t, 9, 2) == "01"', lambda t, m: t[8:10] == "01"),
    "whose message has at most four words": ("split(m, w, / /) <= 4", lambda t, m: m.count(" ") < 4),
}  # fmt: skip
LINES = {
    "TIME NAME: MESSAGE": "sed 's/\\t/ /; s/\\t/: /'",
    "TIME [NAME] MESSAGE": "sed 's/\\t/ [/; s/\\t/] /'",
    "NAME TIME MESSAGE": "awk -F '\\t' '{ print $2, $1, $3 }'",
    "TIME MESSAGE (NAME)": "awk -F '\\t' '{ print $1, $3 \" (\" $2 \")\" }'",
}
ENDS = {
    "": "",
    "keep only the last ten lines of the result": "tail -n 10",
    "of lines that differ in nothing but the time, keep only the first": "awk -F '\\t' '!seen[$2, $3]++'",
}
OPENS = (
    "Programs write logs of their own, NAME.log, into one folder. To follow what happened we need them as one.",
    "A folder has the logs of several programs (NAME.log), which shall be merged by time.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    stamps = rng.sample(list(STAMPS), min(5, 1 + level))
    return names(rng, "") | {
        "logs": list(zip(words(rng, len(stamps)), stamps, strict=True)),
        "only": rng.sample(list(ONLY), level // 2),
        "form": rng.choice(list(LINES)),
        "last": rng.random() < 0.4,
        "end": rng.choice(list(ENDS)) if level > 1 else "",
        "size": 8 + 3 * level,
    }


def make(rng, p):
    start, made = datetime(2025, rng.randint(2, 6), 1, tzinfo=UTC) - timedelta(days=1), {}
    pool = words(rng, 3)
    for name, stamp in p.logs:
        times = sorted(start + timedelta(minutes=rng.randrange(40) * 73) for _ in range(p.size))
        lines = [
            STAMPS[stamp][1](d)
            + f"{rng.choice(['ERROR', 'INFO', 'DEBUG'])} {' '.join(rng.choice(pool) for _ in range(rng.randint(1, 5)))}\n"
            for d in times
        ]
        made[f"{name}.log"] = "".join(lines)
    return made


def read_time(line, stamp):
    """(YYYY-MM-DD HH:MM:SS, message) of a line."""
    if "1741" in stamp:
        seconds, _, message = line.partition(" ")
        return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%d %H:%M:%S}", message
    length = len(stamp) - 2
    form = {
        "`2025-03-04 ": "%Y-%m-%d %H:%M:%S ",
        "`2025-03-04T": "%Y-%m-%dT%H:%M:%SZ ",
        "`20250304-10": "%Y%m%d-%H%M%S: ",
        "`04.03.2025 ": "%d.%m.%Y %H:%M:%S - ",
    }
    return str(datetime.strptime(line[:length], form.get(stamp[:12], "[%d/%b/%Y:%H:%M:%S] "))), line[length:]


def worked(made, p):
    rows = []
    for name, stamp in p.logs:
        for number, line in enumerate(made[f"{name}.log"].splitlines()):
            time, message = read_time(line, stamp)
            if all(ONLY[kind][1](time, message) for kind in p.only):
                rows.append((time, name, number, message))
    rows.sort(key=lambda row: row[1:3])
    rows.sort(key=lambda row: row[0], reverse=p.last)
    if p.end.startswith("of lines"):
        rows = [row for i, row in enumerate(rows) if (row[1], row[3]) not in [(r[1], r[3]) for r in rows[:i]]]
    rows = rows[-10:] if p.end.startswith("keep") else rows
    return "\n".join(
        p.form.replace("TIME", t).replace("NAME", n).replace("MESSAGE", m) for t, n, _, m in rows
    )


def instruction(p):
    rules = [
        f"the lines of {name}.log begin with the time as in {stamp}, and the message follows"
        for name, stamp in p.logs
    ]
    rules += [
        f"a line of the result is {p.form}, with the time as in 2025-03-04 10:15:30 (all times are UTC)"
    ]
    rules += [
        f"the {'latest' if p.last else 'earliest'} time comes first; at the same time, lines are in byte order of NAME, and those of one log in its own order"
    ]
    rules += [f"only lines {kind} count" for kind in p.only] + [p.end] * bool(p.end)
    return wordings(p, OPENS, rules)


def program(p):
    only = " && ".join(ONLY[kind][0] for kind in p.only) or "1"
    lines = [
        "#!/bin/bash",
        'cd "$1"',
        "convert() {",
        "  awk -v name=$1 '",
        'function month(n) { return sprintf("%02d", (index("JanFebMarAprMayJunJulAugSepOctNovDec", n) + 2) / 3) }',
    ]
    lines += [f'name == "{name}" {{ {STAMPS[stamp][0]} }}' for name, stamp in p.logs]
    lines += [f'{only} {{ print t "\\t" name "\\t" m }}\' $1.log', "}"]
    lines += [
        f"for name in {' '.join(sorted(name for name, _ in p.logs))}; do convert $name; done |",
        f"  LC_ALL=C sort -s -t $'\\t' -k1,1{'r' * p.last} |",
    ]
    lines += [f"  {ENDS[p.end]} |"] * bool(p.end) + [f"  {LINES[p.form]}"]
    return "\n".join(lines)


files, solution, lazy, test_half, test_result, test_script, test_hidden_logs = printer(make, worked, program)
