"""A log with stack traces, boiled down by a script that must do it to any such log.

Hard: a record has many lines, causes are nested, and what is wanted may stand in the first or in the last of them.
"""

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "multi-line records", "sort", "uniq")

# What is told of a trace: -> awk's value once a record is complete, Python's of the record.
GROUPS = {
    "the class of the error (the word before the colon in the record's first line)": (
        "class",
        lambda r: r["classes"][0],
    ),
    "the class of the deepest cause (that of the last line that begins with `Caused by: `; without one, that of the record's first line)": (
        "cause",
        lambda r: r["classes"][-1],
    ),
    "the first frame (the text after `at ` in the first such line)": ("first", lambda r: r["frames"][0]),
    "the last frame (the text after `at ` in the last such line)": ("frame", lambda r: r["frames"][-1]),
    "the file of the first frame (what stands in its brackets before the colon)": (
        "file",
        lambda r: r["frames"][0].split("(")[1].split(":")[0],
    ),
    "the thread (in square brackets)": ("thread", lambda r: r["thread"]),
    "the hour (two digits)": ("hour", lambda r: r["hour"]),
}
ONLY = {
    "with a cause": ("causes", lambda r: len(r["classes"]) > 1),
    "without a cause": ("!causes", lambda r: len(r["classes"]) == 1),
    "of four frames or more": ("frames >= 4", lambda r: len(r["frames"]) >= 4),
    "of a thread whose name begins with web": ("thread ~ /^web/", lambda r: r["thread"].startswith("web")),
    "from 12:00 on": ("hour >= 12", lambda r: int(r["hour"]) >= 12),
    "that have a frame in Main.java": ("main", lambda r: any("(Main.java" in f for f in r["frames"])),
}
MEASURES = {
    "the number of records": ("v[k]++", lambda rs: len(rs)),
    "the sum of their frames": ("v[k] += frames", lambda rs: sum(len(r["frames"]) for r in rs)),
    "the greatest number of causes in one of them": (
        "if (causes >= v[k]) v[k] = causes + 0",
        lambda rs: max(len(r["classes"]) - 1 for r in rs),
    ),
    "the number of the line where the first of them begins": (
        "if (!(k in v)) v[k] = start",
        lambda rs: rs[0]["start"],
    ),
    "the number of the line where the last of them begins": ("v[k] = start", lambda rs: rs[-1]["start"]),
}
OPENS = (
    "A server's log has one-line messages, and errors with a stack trace below them. We want a table of the errors.",
    "In a log file, errors come as a line with ERROR and indented lines that trace it; other messages are of no interest. Please sum the errors up.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "log") | {
        "group": rng.choice(list(GROUPS)),
        "measure": rng.choice(list(MEASURES)[: 3 + level]),
        "only": rng.sample(list(ONLY), level // 2),
        "largest": rng.random() < 0.5,
        "top": rng.choice([0, 3]) if level > 2 else 0,
        "size": 12 + 8 * level,
    }


def make(rng, p):
    classes = [f"{w.title()}Error" for w in words(rng, 4)]
    places = [
        f"{w}.run({f.title()}.java:{rng.randint(1, 99)})"
        for w, f in zip(words(rng, 6), ["main", *words(rng, 5)], strict=True)
    ]
    lines = []
    for _ in range(p.size):
        head = f"2025-03-{rng.randint(1, 28):02} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}:07 [{rng.choice(['web-1', 'web-2', 'job-1', 'cron'])}]"
        if rng.random() < 0.3:
            lines.append(f"{head} INFO {rng.choice(classes)}: {word(rng)} at work")
            continue
        lines.append(f"{head} ERROR {rng.choice(classes)}: {word(rng)}: {word(rng)}")
        for cause in range(rng.choice([0, 0, 1, 2]) + 1):
            lines += [f"Caused by: {rng.choice(classes)}: {word(rng)}"] * (cause > 0)
            lines += [f"    at {rng.choice(places)}" for _ in range(rng.randint(1, 4))]
    return "\n".join(lines) + "\n"


def worked(text, p):
    records, current = [], None
    for number, line in enumerate(text.splitlines(), 1):
        words_ = line.split(" ")
        if line.startswith("    at ") and current:
            current["frames"].append(line[7:])
        elif line.startswith("Caused by: ") and current:
            current["classes"].append(words_[2][:-1])
        elif words_[3] == "ERROR":
            current = {
                "start": number,
                "classes": [words_[4][:-1]],
                "frames": [],
                "thread": words_[2][1:-1],
                "hour": words_[1][:2],
            }
            records.append(current)
        else:
            current = None
    groups = {}
    for record in records:
        if all(ONLY[name][1](record) for name in p.only):
            groups.setdefault(GROUPS[p.group][1](record), []).append(record)
    rows = [(MEASURES[p.measure][1](found), key) for key, found in groups.items()]
    rows.sort(key=lambda r: (-r[0] if p.largest else r[0], r[1]))
    return "\n".join(f"{value}\t{key}" for value, key in rows[: p.top or None])


def instruction(p):
    rules = [
        "a record is a line with ERROR after the thread in square brackets, and the lines that follow it and begin with four spaces and `at ` (frames) or with `Caused by: `",
        f"print a line for each different key, which is {p.group}",
        f"a line has the value, a tab, and the key; the value is {p.measure} of that key",
        f"the {'largest' if p.largest else 'smallest'} value comes first, and equal ones by key in byte order",
    ]
    rules += [f"only records {name} count" for name in p.only] + [f"print no more than {p.top} lines"] * bool(
        p.top
    )
    return wordings(p, OPENS, rules)


def program(p):
    only = " && ".join(ONLY[name][0] for name in p.only) or "1"
    return f"""#!/bin/bash
awk '
function finish() {{ if (class != "" && ({only})) {{ k = {GROUPS[p.group][0]}; {MEASURES[p.measure][0]} }} class = "" }}
/^    at / {{ frame = substr($0, 8); frames++; if (frame ~ /\\(Main.java/) main = 1
  if (frames == 1) {{ first = frame; file = frame; sub(/.*\\(/, "", file); sub(/:.*/, "", file) }} next }}
/^Caused by: / {{ cause = substr($3, 1, length($3) - 1); causes++; next }}
{{ finish() }}
$4 == "ERROR" {{ class = cause = substr($5, 1, length($5) - 1); thread = substr($3, 2, length($3) - 2)
  hour = substr($2, 1, 2); frames = causes = main = 0; start = NR }}
END {{ finish(); for (k in v) print v[k] "\\t" k }}' "$1" |
  LC_ALL=C sort -t $'\\t' -k1,1n{"r" * p.largest} -k2{f" | head -n {p.top}" if p.top else ""}"""


files, solution, lazy, test_half, test_result, test_script, test_hidden_logs = printer(make, worked, program)
