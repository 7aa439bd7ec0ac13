"""A table of contents for a Markdown document, by a script that must make one for any document.

Hard: headings within code are none, the same heading may come twice, and anchors follow rules of their own.
"""

import re

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "Markdown", "slugs", "counters")

# An entry: how people say it -> awk's print of level l (from 1), title t, anchor a, number s and line n; Python's.
ENTRIES = {
    "`- [TITLE](#ANCHOR)`": ('"- [" t "](#" a ")"', lambda e: f"- [{e['t']}](#{e['a']})"),
    "`NUMBER TITLE`": ('s " " t', lambda e: f"{e['s']} {e['t']}"),
    "`NUMBER TITLE (line LINE)`": ('s " " t " (line " n ")"', lambda e: f"{e['s']} {e['t']} (line {e['n']})"),
    "`* NUMBER [TITLE](#ANCHOR)`": (
        '"* " s " [" t "](#" a ")"',
        lambda e: f"* {e['s']} [{e['t']}](#{e['a']})",
    ),
    "`TITLE | ANCHOR | LINE`": ('t " | " a " | " n', lambda e: f"{e['t']} | {e['a']} | {e['n']}"),
    "`LINE: TITLE`": ('n ": " t', lambda e: f"{e['n']}: {e['t']}"),
}
INDENTS = {
    "": "",
    "for each level below the first listed level, an entry has two more spaces in front": "  ",
    "for each level below the first listed level, an entry has one more tab in front": "\t",
    "for each level below the first listed level, an entry has one more `> ` in front": "> ",
}
RANGES = {
    "headings of the levels 1 to 3 (# to ###)": "# ## ###",
    "headings of the levels 2 to 4 (## to ####)": "## ### ####",
    "headings of the levels 2 and 3 (## and ###)": "## ###",
    "headings of all levels (# to ######)": "# ## ### #### ##### ######",
    "headings of the levels 1 and 2 (# and ##)": "# ##",
}
EXTRAS = {
    "lines between two lines of three backquotes are code and have no headings": "code = !code; next }",
    "closing marks at the end of a heading, a space and any number of #, do not belong to the title": 'sub(/ #+$/, "", t)',
    "backquotes in titles are dropped": 'gsub(/`/, "", t)',
    "the heading `Contents` (of any level) is not listed": 't == "Contents" { next }',
    "stars in titles are dropped": 'gsub(/\\*/, "", t)',
}
OPENS = (
    "Long documents in Markdown need a table of contents, an entry for each heading, in the document's order.",
    "We keep manuals in Markdown, and want their headings as a list: one line each, as they come.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "md", "sh", "md") | {
        "entry": rng.choice(list(ENTRIES)),
        "indent": rng.choice(list(INDENTS)),
        "range": rng.choice(list(RANGES)),
        "extras": rng.sample(list(EXTRAS), level - 1 if level > 1 else rng.randint(0, 1)),
        "size": 8 + 4 * level,
    }


def make(rng, p):
    lines, pool, level = [], [w.title() for w in words(rng, 7)], 1
    for _ in range(p.size):
        level = max(1, min(6, level + rng.choice([-2, -1, 0, 0, 1, 1])))
        title = rng.choice(
            [
                rng.choice(pool),
                f"{rng.choice(pool)} {word(rng)} 2.0",
                f"`{word(rng)}` of *{word(rng)}*",
                "Contents",
                f"{rng.choice(pool)}: why?",
            ]
        )
        lines += [
            f"{'#' * level} {title}{rng.choice(['', '', ' ##'])}",
            f"{word(rng)} # {word(rng)}",
            f"#{word(rng)}",
        ]
        lines += ["```", f"# {word(rng)}", "```"] * (
            "lines between two lines of three backquotes are code and have no headings" in p.extras
            and rng.random() < 0.4
        )
    return "\n".join(lines) + "\n"


def worked(text, p):
    marks = RANGES[p.range].split(" ")
    extras, code, entries, used, numbers = " ".join(p.extras), False, [], {}, [0] * 7
    for n, line in enumerate(text.splitlines(), 1):
        if line == "```" and "code" in extras:
            code = not code
        m = re.fullmatch("(#{1,6}) (.*)", line)
        if code or not m or m[1] not in marks:
            continue
        title = re.sub(" #+$", "", m[2]) if "closing" in extras else m[2]
        title = title.replace("`", "") if "backquotes in titles" in extras else title
        title = title.replace("*", "") if "stars" in extras else title
        if "`Contents`" in extras and title == "Contents":
            continue
        depth = marks.index(m[1])
        numbers[depth] += 1
        numbers[depth + 1 :] = [0] * (6 - depth)
        anchor = re.sub("[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        used[anchor] = used.get(anchor, -1) + 1
        anchor += f"-{used[anchor]}" * (used[anchor] > 0)
        entry = {"t": title, "a": anchor, "s": ".".join(map(str, numbers[: depth + 1])), "n": n}
        entries.append(INDENTS[p.indent] * depth + ENTRIES[p.entry][1](entry))
    return "\n".join(entries)


def instruction(p):
    rules = [
        f"only {p.range} are listed; a heading is a line of that many #, a space, and the title",
        f"an entry is {p.entry}",
    ]
    if "NUMBER" in p.entry:
        rules.append(
            "NUMBER counts the listed headings of a level below the one above them, from 1 on, as in 2.1.3 (the first listed level gives the first number; a level that was passed over counts 0)"
        )
    if "ANCHOR" in p.entry:
        rules.append(
            "ANCHOR is the title in lower case, without all but a to z, 0 to 9, spaces and -, and with - for each space; when an earlier entry has the same one, -1 is appended, for the next -2, and so on"
        )
    rules += (
        ["LINE is the number of the heading's line"] * ("LINE" in p.entry)
        + [p.indent] * bool(p.indent)
        + p.extras
    )
    return wordings(p, OPENS, rules)


def program(p):
    extras = " ".join(p.extras)
    code = "/^```$/ { code = !code; next }\ncode { next }\n" if "are code" in extras else ""
    subs = "; ".join(EXTRAS[extra] for extra in p.extras if EXTRAS[extra].startswith(("sub", "gsub")))
    skip = 'if (t == "Contents") next' if "`Contents`" in extras else ""
    return f"""#!/bin/bash
awk '{code}/^#+ / {{
  n = NR; l = index(" {RANGES[p.range]} ", " " $1 " ")
  if (!l) next
  t = substr($0, length($1) + 2); {subs}
  {skip}
  d = length($1) - {RANGES[p.range].index(" ") if RANGES[p.range] else 0}; c[d]++; for (i = d + 1; i < 7; i++) c[i] = 0
  s = c[0] + 0; for (i = 1; i <= d; i++) s = s "." (c[i] + 0)
  a = tolower(t); gsub(/[^a-z0-9 -]/, "", a); gsub(/ /, "-", a)
  if (seen[a]++) a = a "-" (seen[a] - 1)
  for (i = 0; i < d; i++) printf "%s", "{INDENTS[p.indent].replace(chr(9), chr(92) + "t")}"
  print {ENTRIES[p.entry][0]}
}}' "$1"
"""


files, solution, lazy, test_half, test_result, test_script, test_hidden_documents = printer(
    make, worked, program
)
