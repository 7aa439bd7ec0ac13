"""A census of the words of a text, by a script for any text.

Hard: what a word is, which of them count, and how equal counts are put in order are all given, and all matter.
"""

from sandbox.factory.kit import PEOPLE, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("tr", "grep -o", "sort", "uniq", "awk")

# What a word is: -> grep's expression.
WORDS = {
    "a run of letters (a to z, of either case)": "[A-Za-z]+",
    "a run of letters and digits": "[A-Za-z0-9]+",
    "a run of letters that may have hyphens within (not at its ends)": "[A-Za-z]+(-[A-Za-z]+)*",
    "what stands between white space": "[^ ]+",
}  # fmt: skip
# Which words count: -> awk's condition on the word w, Python's.
ONLY = {
    "of four letters or more": ("length(w) >= 4", lambda w: len(w) >= 4),
    "that begin with a capital": ("w ~ /^[A-Z]/", lambda w: "A" <= w[0] <= "Z"),
    "that do not end in s": ("w !~ /s$/", lambda w: w[-1] != "s"),
    "with an a in them": ("w ~ /a/", lambda w: "a" in w),
    "other than the, and, of": ('w != "the" && w != "and" && w != "of"', lambda w: w not in ("the", "and", "of")),
    "of an even number of characters": ("length(w) % 2 == 0", lambda w: len(w) % 2 == 0),
}  # fmt: skip
# What is told of each: -> awk's updates with the word w and the line's number n, Python's value of line numbers.
MEASURES = {
    "how often it occurs": ("v[w]++", len),
    "the number of lines that it occurs in": ("if (last[w] != n) v[w]++; last[w] = n", lambda ns: len(set(ns))),
    "the number of the first line that it occurs in": ("if (!(w in v)) v[w] = n", min),
    "the number of the last line that it occurs in": ("v[w] = n", max),
}  # fmt: skip
ORDERS = {
    "largest number first, equal ones by word in byte order": ("-k1,1nr -k2,2", lambda row: (-row[0], row[1])),
    "smallest number first, equal ones by word in byte order": ("-k1,1n -k2,2", lambda row: row),
    "by word in byte order": ("-k2,2", lambda row: row[1]),
    "by word in reverse byte order": ("-k2,2r", lambda row: [-ord(c) for c in row[1]] + [1]),
}  # fmt: skip
OPENS = (
    "We count the words of texts. A line `NUMBER WORD` is wanted for each different word.",
    "For each different word of a text there shall be a line with a number and the word, with a space between them.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng) | {
        "unit": rng.choice(list(WORDS)),
        "only": rng.sample(list(ONLY), level // 2 if level > 1 else 0),
        "measure": rng.choice(list(MEASURES)),
        "order": rng.choice(list(ORDERS)),
        "fold": rng.random() < 0.5,
        "least": level > 2 and rng.random() < 0.6,
        "top": rng.choice([0, 5, 8]) if level > 1 else 0,
        "size": 10 * level,
    }


def make(rng, p):
    pool = [*words(rng, 8), *words(rng, 4, PEOPLE), "the", "and", "of", "The", "x2", "42"]
    pool += [f"{a}-{b}" for a, b in zip(words(rng, 3), words(rng, 3), strict=True)]
    pool += [w.title() for w in rng.sample(pool, 6)]
    return "".join(
        " ".join(rng.choice(pool) + rng.choice(["", "", ",", "."]) for _ in range(rng.randint(0, 8))) + "\n"
        for _ in range(p.size)
    )


def worked(text, p):
    import re

    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        for match in re.finditer(WORDS[p.unit], line.lower() if p.fold else line):
            if all(ONLY[name][1](match[0]) for name in p.only):
                found.setdefault(match[0], []).append(number)
    rows = [(MEASURES[p.measure][1](ns), w) for w, ns in found.items() if not p.least or len(ns) > 1]
    rows.sort(key=ORDERS[p.order][1])
    return "\n".join(f"{value} {w}" for value, w in rows[: p.top or None])


def instruction(p):
    rules = [f"a word is {p.unit}", f"the number is {p.measure}", f"the lines are in this order: {p.order}"]
    rules += ["letters are made lower case before anything else"] * p.fold
    rules += [f"only words {name} are listed" for name in p.only]
    rules += ["words that occur only once in the text are left out"] * p.least
    rules += [f"no more than {p.top} lines are printed, the first ones in that order"] * bool(p.top)
    return wordings(p, OPENS, rules)


def program(p):
    keep = " && ".join(ONLY[name][0] for name in p.only) or "1"
    count = f'{{ n = substr($0, 1, i = index($0, ":") - 1); w = substr($0, i + 2) }} {keep} {{ {MEASURES[p.measure][0]}; times[w]++ }}'
    stages = [
        'tr A-Z a-z < "$1"' if p.fold else 'cat "$1"',
        f"grep -noE '{WORDS[p.unit]}'",
        f"awk '{count} END {{ for (w in v) if (times[w] > {int(p.least)}) print v[w], w }}'",
        f"LC_ALL=C sort {ORDERS[p.order][0]}",
        *[f"head -n {p.top}"] * bool(p.top),
    ]
    return "#!/bin/bash\n" + " |\n  ".join(stages)


files, solution, lazy, test_half, test_result, test_script, test_hidden_texts = printer(make, worked, program)
