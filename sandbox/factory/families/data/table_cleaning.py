"""A table of dirty records cleaned by rules, by an awk program that must clean any such table.

Hard: rules follow each other, and what is wrong, what is missing and what is double are found in different ways.
"""

import re

from sandbox.factory.kit import PEOPLE, PLACES, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "data cleaning", "regular expressions", "associative arrays")

COLUMNS = ("id", "name", "city", "age", "mail", "day")
# A rule on the row: how people say it -> awk's statements on v[...], Python's on the dict r (None drops the row).
RULES = {
    "names have their first letter in upper case and all others in lower case": ('v["name"] = toupper(substr(v["name"], 1, 1)) tolower(substr(v["name"], 2))', lambda r: r | {"name": r["name"][:1].upper() + r["name"][1:].lower()}),
    "mail addresses are in lower case": ('v["mail"] = tolower(v["mail"])', lambda r: r | {"mail": r["mail"].lower()}),
    "rows whose mail has not exactly one @, with something on both sides, are dropped": ('if (v["mail"] !~ /^[^@]+@[^@]+$/) next', lambda r: r if re.fullmatch("[^@]+@[^@]+", r["mail"]) else None),
    "an age that is no number of digits only, or is above 120, becomes empty": ('if (v["age"] !~ /^[0-9]+$/ || v["age"] + 0 > 120) v["age"] = ""', lambda r: r | {"age": r["age"] if r["age"].isdigit() and int(r["age"]) <= 120 else ""}),
    "an empty city becomes `unknown`": ('if (v["city"] == "") v["city"] = "unknown"', lambda r: r | {"city": r["city"] or "unknown"}),
    "a day written DD.MM.YYYY becomes YYYY-MM-DD": ('if (v["day"] ~ /^[0-9][0-9]\\.[0-9][0-9]\\.[0-9]+$/) v["day"] = substr(v["day"], 7) "-" substr(v["day"], 4, 2) "-" substr(v["day"], 1, 2)', lambda r: r | {"day": re.sub(r"^(\d\d)\.(\d\d)\.(\d+)$", r"\3-\2-\1", r["day"])}),
    "rows without a day are dropped": ('if (v["day"] == "") next', lambda r: r if r["day"] else None),
    "in cities, - becomes a space": ('gsub(/-/, " ", v["city"])', lambda r: r | {"city": r["city"].replace("-", " ")}),
    "ids get zeros in front up to five digits": ('while (length(v["id"]) < 5) v["id"] = "0" v["id"]', lambda r: r | {"id": r["id"].zfill(5)}),
    "rows with an age below 18 (as it is at this point; an empty one is not below) are dropped": ('if (v["age"] != "" && v["age"] + 0 < 18) next', lambda r: None if r["age"] and int("0" + "".join(re.findall("^[0-9]*", r["age"]))) < 18 else r),
}  # fmt: skip
DOUBLES = {
    "": "",
    "of rows with the same id (as it is at the end) only the first stays": 'if (seen[v["id"]]++) next',
    "of rows with the same mail (as it is at the end) only the first stays": 'if (seen[v["mail"]]++) next',
    "of rows with the same name and city (as they are at the end) only the first stays": 'if (seen[v["name"], v["city"]]++) next',
}
OPENS = (
    "A table of people, with a ; between values and a heading, has been typed in by many hands, and must be cleaned.",
    "People's records (values parted by ;, with a heading) are in a bad state. They shall be cleaned by rules.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "txt", "awk") | {
        "columns": rng.sample(COLUMNS, len(COLUMNS)),
        "shown": rng.sample(COLUMNS, rng.randint(3, 5)) if level > 1 else list(COLUMNS),
        "rules": rng.sample(list(RULES), min(7, 1 + level)),
        "double": rng.choice(list(DOUBLES)) if level > 1 else "",
        "dropped": level > 2 and rng.random() < 0.5,
        "between": rng.choice([";", ",", " | "]),
        "heading": rng.random() < 0.5,
        "size": 12 + 6 * level,
    }


def make(rng, p):
    lines, people, cities = [";".join(p.columns)], words(rng, 6, PEOPLE), words(rng, 4, PLACES)
    for _ in range(p.size):
        name = rng.choice(people)
        row = {
            "id": str(rng.choice([rng.randint(1, 60), rng.randint(100, 99999)])),
            "name": rng.choice([name, name.title(), name.upper()]),
            "city": rng.choice(["", *cities, f"{cities[0]}-{cities[1]}"]),
        }
        row["age"] = rng.choice([str(rng.randint(1, 99)), str(rng.randint(20, 99)), "", "200", "17y"])
        row["mail"] = rng.choice(
            [
                f"{name}@{word(rng)}.org",
                f"{name.title()}@{word(rng)}.ORG",
                f"{name}.{word(rng)}.org",
                f"{name}@@x.org",
                f"{name}@",
            ]
        )
        row["day"] = rng.choice(
            [
                f"2025-0{rng.randint(1, 9)}-{rng.randint(10, 28)}",
                f"{rng.randint(10, 28)}.0{rng.randint(1, 9)}.2024",
                "",
            ]
        )
        lines.append(
            ";".join(rng.choice(["{}", "{}", " {}", "{} "]).format(row[column]) for column in p.columns)
        )
    return "\n".join(lines) + "\n"


def worked(text, p):
    _, *lines = text.splitlines()
    seen, out = set(), []
    for line in lines:
        row = dict(zip(p.columns, (value.strip(" ") for value in line.split(";")), strict=True))
        for rule in p.rules:
            row = row and RULES[rule][1](row)
        if not row:
            continue
        key = (
            row["id"]
            if "same id" in p.double
            else row["mail"]
            if "same mail" in p.double
            else (row["name"], row["city"])
        )
        if p.double and key in seen:
            continue
        seen.add(key)
        out.append(p.between.join(row[column] for column in p.shown))
    if not out:
        return ""
    return "\n".join(
        [*[p.between.join(p.shown)] * p.heading, *out, *[f"dropped: {len(lines) - len(out)}"] * p.dropped]
    )


def instruction(p):
    between = {";": "a ;", ",": "a comma", " | ": "` | `"}[p.between]
    rules = [
        f"the columns are {', '.join(p.columns)}",
        "spaces at the ends of values are dropped before anything else",
        *p.rules,
        "the rules work in this order",
    ]
    rules += [p.double] * bool(p.double) + [
        f"print {', '.join(p.shown)}, in this order, with {between} between two values, {'and these names as a heading' if p.heading else 'without a heading'}; rows keep their order"
    ]
    return wordings(
        p,
        OPENS,
        [
            *rules,
            *["a last line `dropped: N` has the number of rows that were dropped, by whatever rule"]
            * p.dropped,
        ],
    )


def program(p):
    lines = [
        'BEGIN { FS = ";"' + f' ; print "{p.between.join(p.shown)}"' * p.heading + " }",
        "NR == 1 { for (i = 1; i <= NF; i++) column[i] = $i; next }",
        "{ all++ }",
    ]
    lines += [
        '{ for (i = 1; i <= NF; i++) { sub(/^ +/, "", $i); sub(/ +$/, "", $i); v[column[i]] = $i } }'
    ] + [f"{{ {RULES[rule][0]} }}" for rule in p.rules]
    lines += [f"{{ {DOUBLES[p.double]} }}"] * bool(p.double)
    values = f' "{p.between}" '.join(f'v["{column}"]' for column in p.shown)
    return "\n".join(
        [*lines, f"{{ kept++; print {values} }}", *['END { print "dropped: " all - kept }'] * p.dropped]
    )


files, solution, lazy, test_half, test_result, test_script, test_hidden_tables = printer(
    make, worked, program
)
