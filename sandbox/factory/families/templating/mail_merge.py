"""Letters from a template and a table, a file each, by a script for any such folder.

Hard: fields may be missing, lines depend on values, and each letter's name is made of them as well.
"""

from sandbox.factory.kit import PEOPLE, PLACES, word, words
from sandbox.factory.scripts import changer, names, wordings

SKILLS = ("bash", "sed", "awk", "templates", "loops")

FIELDS = ("name", "city", "amount", "day", "gift")
MARKS = {"@{}@": "@NAME@", "<<{}>>": "<<NAME>>", "%{}%": "%NAME%", "[[{}]]": "[[NAME]]"}
# What a line of the template may ask for, by how it begins: -> awk's rule on the line l, Python's.
LINES = {
    "a line that begins with `#` is a remark and is left out": ('/^#/ { next }', lambda s, r: None if s[0:1] == "#" else s),
    "a line `?FIELD: TEXT` is TEXT where the field has a value, and is left out where it is empty": ('/^\\?/ { n = substr($0, 2, index($0, ":") - 2); if (r[n] == "") next; sub(/^[^:]*: /, "") }', lambda s, r: s if s[0:1] != "?" else s.split(": ", 1)[1] if r[s[1 : s.index(":")]] else None),
    "a line `!FIELD: TEXT` is TEXT where the field is empty, and is left out where it has a value": ('/^!/ { n = substr($0, 2, index($0, ":") - 2); if (r[n] != "") next; sub(/^[^:]*: /, "") }', lambda s, r: s if s[0:1] != "!" else None if r[s[1 : s.index(":")]] else s.split(": ", 1)[1]),
    "a line `^TEXT` is TEXT in upper case, values included": ("", lambda s, r: s),
}  # fmt: skip
NAMES = {
    "NUMBER.txt, with the number of the row from 1 on, as three digits": (
        'sprintf("%03d", NR - 1) ".txt"',
        lambda n, r: f"{n:03}.txt",
    ),
    "NAME-CITY.txt, with the fields name and city": (
        'r["name"] "-" r["city"] ".txt"',
        lambda n, r: f"{r['name']}-{r['city']}.txt",
    ),
    "CITY/NAME.txt, in a folder for each city": (
        'r["city"] "/" r["name"] ".txt"',
        lambda n, r: f"{r['city']}/{r['name']}.txt",
    ),
}
ONLY = {
    "": ("", lambda r: True),
    "rows with an empty gift get no letter": ('r["gift"] == "" { next }', lambda r: r["gift"]),
    "rows with an amount below 20 get no letter": (
        'r["amount"] < 20 { next }',
        lambda r: int(r["amount"]) >= 20,
    ),
}
EMPTY = {
    "": ("", lambda v: v),
    "in the text, an empty value is written as a -": ("-", lambda v: v or "-"),
    "in the text, an empty value is written as `(unknown)`": ("(unknown)", lambda v: v or "(unknown)"),
}
OPENS = (
    "In a folder lie a template, letter.tpl, and a table, people.csv. Each row of the table gets its letter.",
    "We send letters: the text is in letter.tpl, what differs is in people.csv, both in one folder.",
)


def draw(rng, level):
    return names(rng, "") | {
        "out": "",
        "mark": rng.choice(list(MARKS)),
        "lines": rng.sample(list(LINES), min(4, level - 1)) if level > 1 else [],
        "to": rng.choice(list(NAMES)),
        "only": rng.choice(list(ONLY)) if level > 1 else "",
        "empty": rng.choice(list(EMPTY)) if level > 1 else "",
        "folder": f"{word(rng)}-letters",
        "index": rng.random() < 0.5,
        "size": 4 + level,
    }


def make(rng, p):
    mark = lambda name: p.mark.format(name)  # noqa: E731
    fields = rng.sample(FIELDS, len(FIELDS))
    body = [
        f"Dear {mark('name')},",
        "",
        f"{word(rng)} {mark('city')} {word(rng)} {mark(rng.choice(FIELDS))}.",
    ]
    for _ in range(2 + p.level):
        start = rng.choice([*(rule.split("`")[1][0] for rule in p.lines), ""])
        start = f"{start}{rng.choice(['gift', 'day'])}: " if start in ("?", "!") else start
        body.append(f"{start}{word(rng)}: {mark(rng.choice(FIELDS))} and {mark(rng.choice(FIELDS))}")
    rows = []
    for name, city in zip(words(rng, p.size, PEOPLE), words(rng, p.size, PLACES), strict=True):
        row = {
            "name": name,
            "city": city,
            "amount": str(rng.randint(1, 90)),
            "day": rng.choice(["", "2025-04-01"]),
            "gift": rng.choice(["", word(rng), f"a {word(rng)}"]),
        }
        rows.append(",".join(row[field] for field in fields))
    return {"letter.tpl": "\n".join(body) + "\n", "people.csv": "\n".join([",".join(fields), *rows]) + "\n"}


def worked(made, p):
    now, (heading, *rows) = dict(made), [line.split(",") for line in made["people.csv"].splitlines()]
    index = []
    for number, values in enumerate(rows, 1):
        row = dict(zip(heading, values, strict=True))
        if not ONLY[p.only][1](row):
            continue
        text = ""
        for line in made["letter.tpl"].splitlines():
            shown = line
            for rule in p.lines:
                shown = shown if shown is None else LINES[rule][1](shown, row)
            if shown is None:
                continue
            for field in FIELDS:
                shown = shown.replace(p.mark.format(field), EMPTY[p.empty][1](row[field]))
            text += (
                shown[1:].upper() if shown[0:1] == "^" and any("upper" in rule for rule in p.lines) else shown
            ) + "\n"
        path = NAMES[p.to][1](number, row)
        now[f"{p.folder}/{path}"] = text
        index.append(f"{path}\n")
    return now | ({f"{p.folder}/INDEX": "".join(sorted(index))} if p.index and index else {}) if index else {}


def instruction(p):
    rules = [
        f"people.csv has a heading and plain values, without quotes; the columns are {', '.join(FIELDS)}, in any order",
        f"in the template, {p.mark.format('FIELD')} stands for the row's value of that field, wherever it occurs",
    ]
    rules += [
        *p.lines,
        f"the letters go into a new folder {p.folder} within that folder, and are named {p.to}",
    ]
    rules += (
        [p.only] * bool(p.only)
        + [p.empty] * bool(p.empty)
        + [f"{p.folder}/INDEX has the paths of all letters within {p.folder}, one a line, in byte order"]
        * p.index
    )
    return wordings(p, OPENS, rules)


def program(p):
    rules = "\n".join(LINES[rule][0] for rule in p.lines if LINES[rule][0])
    upper = any("upper" in rule for rule in p.lines)
    start, end = p.mark.split("{}")
    return f"""#!/bin/bash
cd "$1" && mkdir -p {p.folder} || exit 1
awk -F , -v folder={p.folder} '
NR == 1 {{ for (i = 1; i <= NF; i++) field[i] = $i; next }}
{{ for (i in field) r[field[i]] = $i }}
{ONLY[p.only][0]}
{{ path = {NAMES[p.to][0]}; print path; dir = folder "/" path; sub(/\\/[^\\/]*$/, "", dir); system("mkdir -p " dir)
  for (i in field) print "s\\001{start.replace("[", chr(92) * 2 + "[")}" field[i] "{end}\\001" (r[field[i]] == "" ? "{EMPTY[p.empty][0]}" : r[field[i]]) "\\001g" > ("/tmp/" NR ".sed")
  for (i in field) print field[i] "=" r[field[i]] > ("/tmp/" NR ".row") }}' people.csv > /tmp/letters
ls /tmp/*.row | sed 's#.*/##; s/.row$//' | LC_ALL=C sort -n > /tmp/numbers
paste -d ' ' /tmp/numbers /tmp/letters | while read -r n path; do
  awk -F = -v rows=/tmp/$n.row 'BEGIN {{ while ((getline < rows) > 0) r[$1] = $2 }}
{rules}
1' letter.tpl | sed -f /tmp/$n.sed{" | sed '/^^/{s/^^//;s/.*/" + chr(92) + "U&/}'" if upper else ""} > "{p.folder}/$path"
done
{f"LC_ALL=C sort /tmp/letters > {p.folder}/INDEX" if p.index else "true"}
rm -f /tmp/*.row /tmp/*.sed"""


files, solution, lazy, test_half, test_folder, test_hidden_folder, test_hidden_others = changer(
    make, worked, program
)
