"""Private things in a log made unreadable, by a sed script that must do it to any such log.

Hard: each kind has a form of its own, near misses must stay as they are, and some of what is hidden must stay visible.
"""

import re

from sandbox.factory.kit import NOUNS, PEOPLE, word
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("sed", "regular expressions", "capture groups")

# What is done: how people say it -> sed's command (extended expressions), Python's pattern and replacement, examples.
RULES = {
    "of every mail address (small letters, @, small letters and points) only the first letter and the domain stay, as in i***@fjord.org": (
        r"s/([a-z])[a-z]*@([a-z.]+)/\1***@\2/g", r"([a-z])[a-z]*@([a-z.]+)", r"\1***@\2", lambda r: f"{word(r, PEOPLE)}@{word(r)}.org"),
    "the last number of every IPv4 address (four numbers with points between) becomes x": (
        r"s/\b([0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3})\.[0-9]{1,3}\b/\1.x/g", r"\b(\d{1,3}\.\d{1,3}\.\d{1,3})\.\d{1,3}\b", r"\1.x", lambda r: f"10.{r.randint(0, 255)}.{r.randint(0, 9)}.{r.randint(1, 255)}"),
    "a card number (four groups of four digits, with a space between two groups) keeps only its last group: **** and that group, with a space between": (
        r"s/\b([0-9]{4} ){3}([0-9]{4})\b/**** \2/g", r"\b(?:\d{4} ){3}(\d{4})\b", r"**** \1", lambda r: " ".join(f"{r.randint(1000, 9999)}" for _ in range(4))),
    "after `token=`, everything up to the next space (or the end of the line) becomes HIDDEN": (
        r"s/token=[^ ]*/token=HIDDEN/g", r"token=\S*", "token=HIDDEN", lambda r: f"token={r.getrandbits(40):x}"),
    "in `user=NAME`, NAME (small letters) becomes its first letter and a point": (
        r"s/user=([a-z])[a-z]*/user=\1./g", r"user=([a-z])[a-z]*", r"user=\1.", lambda r: f"user={word(r, PEOPLE)}"),
    "in paths, /home/NAME (small letters) becomes /home/USER": (
        r"s#/home/[a-z]+#/home/USER#g", r"/home/[a-z]+", "/home/USER", lambda r: f"/home/{word(r, PEOPLE)}/{word(r)}.txt"),
    "the digits of a telephone number (+, two digits, a space, and seven digits) become # but for the last two": (
        r"s/\+[0-9]{2} [0-9]{5}([0-9]{2})/+## #####\1/g", r"\+\d\d \d{5}(\d\d)", r"+## #####\1", lambda r: f"+{r.randint(30, 49)} {r.randint(1000000, 9999999)}"),
    "in a day written YYYY-MM-DD, month and day become 00": (
        r"s/\b([0-9]{4})-[0-9]{2}-[0-9]{2}\b/\1-00-00/g", r"\b(\d{4})-\d\d-\d\d\b", r"\1-00-00", lambda r: f"20{r.randint(10, 25)}-0{r.randint(1, 9)}-{r.randint(10, 28)}"),
    "a text in double quotes becomes an empty one, with the quotes": (
        r's/"[^"]*"/""/g', r'"[^"]*"', '""', lambda r: f'"{word(r)} {word(r)}"'),
    "a hexadecimal id (0x and small letters a to f or digits) becomes 0x0": (
        r"s/\b0x[0-9a-f]+\b/0x0/g", r"\b0x[0-9a-f]+\b", "0x0", lambda r: f"0x{r.getrandbits(24):x}"),
    "of the query of a path, all from the ? on (up to the next space) is cut off": (
        r"s/\?[^ ]*//g", r"\?\S*", "", lambda r: f"/{word(r)}?q={word(r)}&n={r.randint(1, 9)}"),
    "amounts (digits, a point, two digits, a space and EUR) become `? EUR`": (
        r"s/\b[0-9]+\.[0-9]{2} EUR/? EUR/g", r"\b\d+\.\d\d EUR", "? EUR", lambda r: f"{r.randint(1, 999)}.{r.randint(10, 99)} EUR"),
}  # fmt: skip
LINES = {
    "": ("", lambda s: s),
    "lines with the word DEBUG are left out": ("/\\bDEBUG\\b/d", lambda s: None if re.search(r"\bDEBUG\b", s) else s),
    "lines with the word SECRET keep only what stands before it, and then REMOVED": ("s/\\bSECRET\\b.*/REMOVED/", lambda s: re.sub(r"\bSECRET\b.*", "REMOVED", s)),
    "lines that begin with a # stay as they are, whatever they contain": ("/^#/b", lambda s: s),
}  # fmt: skip
PLAIN = (
    "12.5",
    "mail@",
    "1234 5678",
    "user=",
    "0xyz",
    "token",
    "2025-3-4",
    '"',
    "/home",
    "+49",
    "DEBUGGING",
    "SECRETS",
)
OPENS = (
    "Before a log leaves the house, private things in it must be made unreadable.",
    "Logs go to an outside party, so that what is private must be replaced first.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    rules = rng.sample(list(RULES), min(8, 1 + level + level // 2))
    # What cuts off a part of the line comes last.
    rules.sort(key=lambda rule: "cut off" in rule)
    return names(rng, "log", "sed") | {
        "rules": rules,
        "lines": rng.choice(list(LINES)) if level > 2 else "",
        "size": 10 + 6 * level,
    }


def make(rng, p):
    lines = []
    for _ in range(p.size):
        parts = [RULES[rng.choice(p.rules)][3](rng) for _ in range(rng.randint(1, 3))] + [
            rng.choice(PLAIN) for _ in range(2)
        ]
        rng.shuffle(parts)
        start = rng.choice(["INFO", "DEBUG", "#", "WARN"])
        middle = "SECRET" if rng.random() < 0.2 else word(rng, NOUNS)
        lines.append(" , ".join([f"{start} {parts[0]}", *parts[1:2], middle, *parts[2:]]))
    return "\n".join(lines) + "\n"


def worked(text, p):
    lines = []
    for line in text.splitlines():
        changed = LINES[p.lines][1](line)
        if changed is not None and not (p.lines.startswith("lines that begin") and line[0] == "#"):
            for rule in p.rules:
                changed = re.sub(RULES[rule][1], RULES[rule][2], changed, flags=re.ASCII)
        lines += [changed] * (changed is not None)
    return "\n".join(lines)


def instruction(p):
    return wordings(
        p,
        OPENS,
        [
            *[p.lines] * bool(p.lines),
            *p.rules,
            "all else stays as it is, things that only look alike included; the rules work in the order given",
        ],
    )


def program(p):
    return "\n".join([*[LINES[p.lines][0]] * bool(p.lines), *[RULES[rule][0] for rule in p.rules]])


files, solution, lazy, test_half, test_result, test_script, test_hidden_logs = printer(make, worked, program)
