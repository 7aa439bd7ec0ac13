"""Configuration made from a template with variables, defaults and conditions, by a Python program.

Hard: a variable may be set, empty or missing, values may name further variables, and each case has its rule.
"""

import re

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "regular expressions", "templates", "environment files")

# A form of a variable in the text: how people say it -> the solution's pattern and replacement from m and v, an example for NAME.
FORMS = {
    "$(NAME) becomes the value, or nothing where NAME is not set": (r"\$\(([A-Z_]+)\)", "v.get(m[1], '')", "$({})"),
    "$(NAME:-TEXT) becomes the value, or TEXT where NAME is not set or empty": (r"\$\(([A-Z_]+):-([^()]*)\)", "v.get(m[1]) or m[2]", "$({}:-spare)"),
    "$(NAME-TEXT) becomes the value, or TEXT where NAME is not set; an empty value stays empty": (r"\$\(([A-Z_]+)-([^()]*)\)", "v.get(m[1], m[2])", "$({}-other)"),
    "$(NAME:+TEXT) becomes TEXT where NAME is set and not empty, and nothing elsewhere": (r"\$\(([A-Z_]+):\+([^()]*)\)", "m[2] if v.get(m[1]) else ''", "$({}:+given)"),
    "$(#NAME) becomes the number of characters of the value, 0 where NAME is not set": (r"\$\(#([A-Z_]+)\)", "str(len(v.get(m[1], '')))", "$(#{})"),
    "$(NAME^) becomes the value in upper case, or nothing where NAME is not set": (r"\$\(([A-Z_]+)\^\)", "v.get(m[1], '').upper()", "$({}^)"),
    "$(NAME/A/B) becomes the value with every A replaced by B, or nothing where NAME is not set": (r"\$\(([A-Z_]+)/([^()/]+)/([^()/]*)\)", "v.get(m[1], '').replace(m[2], m[3])", "$({}/a/o)"),
    "$(?NAME) becomes yes where NAME is set, even to nothing, and no elsewhere": (r"\$\(\?([A-Z_]+)\)", "'yes' if m[1] in v else 'no'", "$(?{})"),
}  # fmt: skip
BLOCKS = {
    "": "",
    "lines between `if NAME` and `end` (each alone on its line) stay only where NAME is set and not empty; these two lines are dropped": "if",
    "lines between `unless NAME` and `end` (each alone on its line) stay only where NAME is not set or empty; these two lines are dropped": "unless",
}
VALUES = {
    "": "",
    "a value may itself use $(OTHER), for a variable that stands above it; it gets that one's value, or nothing": "refer",
    "of a variable that is set twice, the first line counts": "first",
    "of a variable that is set twice, the last line counts": "last",
}
OPENS = (
    "A folder has settings.env, lines NAME=VALUE, and page.conf, a text that uses them. The text must be printed with everything filled in.",
    "Our configuration is made from a template, page.conf, and from variables, settings.env (NAME=VALUE, one a line), which lie in one folder.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "", "py", "conf") | {
        "forms": [next(iter(FORMS)), *rng.sample(list(FORMS)[1:], min(6, 1 + level))],
        "block": rng.choice(list(BLOCKS)) if level > 1 else "",
        "value": rng.choice(list(VALUES)) if level > 1 else "",
        "remarks": level > 2 and rng.random() < 0.6,
        "twice": level > 3 and rng.random() < 0.5,
        "size": 4 + 3 * level,
    }


def make(rng, p):
    known = [f"{w.upper()}" for w in words(rng, 5 + p.level)]
    lines, done = [], []
    for name in known[:-2]:
        value = rng.choice(["", word(rng), f"{word(rng)} {word(rng)}"])
        if VALUES[p.value] == "refer" and done and rng.random() < 0.4:
            value = f"{word(rng)}/$({rng.choice([*done, known[-1]])})"
        lines.append(f"{name}={value}")
        done.append(name)
    if VALUES[p.value] in ("first", "last"):
        lines += [f"{name}={word(rng)}" for name in rng.sample(done, 2)]
    text = []
    for number in range(p.size):
        parts = [
            word(rng),
            *(FORMS[rng.choice(p.forms)][2].format(rng.choice(known)) for _ in range(rng.randint(1, 3))),
        ]
        rng.shuffle(parts)
        line = [f"{word(rng)} = " + rng.choice([" ", "/", ":"]).join(parts)]
        if p.block and number % 3 == 0:
            line = [f"{BLOCKS[p.block]} {rng.choice(known)}", *line, "end"]
        text += line + ["# note: $(" + known[0] + ")"] * (p.remarks and rng.random() < 0.3)
    return {"settings.env": "\n".join(lines) + "\n", "page.conf": "\n".join(text) + "\n"}


def filled(inner, values):
    """What stands for the text between the brackets."""
    if inner[0] in "#?":
        set_, value = inner[1:] in values, values.get(inner[1:], "")
        return str(len(value)) if inner[0] == "#" else "yes" if set_ else "no"
    name = re.match("[A-Z_]+", inner)[0]
    rest, value = inner[len(name) :], values.get(name)
    match rest[:2]:
        case ":-":
            return value if value else rest[2:]
        case ":+":
            return rest[2:] if value else ""
        case "^":
            return (value or "").upper()
        case "":
            return value or ""
    if rest[0] == "/":
        _, old, new = rest.split("/")
        return (value or "").replace(old, new)
    return rest[1:] if value is None else value


def worked(made, p):
    values, lines, shown = {}, [], True
    for line in made["settings.env"].splitlines():
        name, _, value = line.partition("=")
        if VALUES[p.value] == "refer":
            value = re.sub(r"\$\(([A-Z_]+)\)", lambda m: values.get(m[1], ""), value)
        if VALUES[p.value] != "first" or name not in values:
            values[name] = value
    for line in made["page.conf"].splitlines():
        block, _, name = line.partition(" ")
        if p.block and block == BLOCKS[p.block]:
            shown = bool(values.get(name)) == (block == "if")
        elif p.block and line == "end":
            shown = True
        elif shown and not (p.remarks and line.startswith("#")):
            line = re.sub(r"\$\(([^()]*)\)", lambda m: filled(m[1], values), line)
            lines.append(re.sub(" +", " ", line).strip() if p.twice else line)
    return "\n".join(lines)


def instruction(p):
    rules = (
        [*p.forms, "TEXT has no brackets, names have capitals and _ only"]
        + [p.block] * bool(p.block)
        + [p.value] * bool(p.value)
    )
    rules += ["lines of page.conf that begin with a # are left out"] * p.remarks + [
        "in the result, several spaces in a row become one, and none stand at the ends of lines"
    ] * p.twice
    return wordings(p, OPENS, rules)


def program(p):
    lines = [
        "import re, sys",
        "folder, v = sys.argv[1], {}",
        "for line in open(folder + '/settings.env').read().splitlines():",
        "    name, _, value = line.partition('=')",
    ]
    lines += ["    value = re.sub(r'\\$\\(([A-Z_]+)\\)', lambda m: v.get(m[1], ''), value)"] * (
        VALUES[p.value] == "refer"
    )
    lines += [
        "    v.setdefault(name, value)" if VALUES[p.value] == "first" else "    v[name] = value",
        "keep = True",
    ]
    lines += ["for line in open(folder + '/page.conf').read().splitlines():"]
    if p.block:
        kind = BLOCKS[p.block]
        lines += [
            f"    if m := re.fullmatch('{kind} ([A-Z_]+)', line):",
            f"        keep = {'not ' * (kind == 'unless')}v.get(m[1])",
            "        continue",
            "    if line == 'end':",
            "        keep = True",
            "        continue",
        ]
    lines += [f"    if not keep{' or line[:1] == chr(35)' * p.remarks}:", "        continue"]
    lines += ["    line = line.replace('\\0', '')"] + [
        f"    line = re.sub({FORMS[form][0]!r}, lambda m: {FORMS[form][1]}, line)" for form in p.forms
    ]
    lines += ["    line = ' '.join(line.split())"] * p.twice
    return "\n".join([*lines, "    print(line)"]).replace("    line = line.replace('\\0', '')\n", "")


files, solution, lazy, test_half, test_result, test_program, test_hidden_settings = printer(
    make, worked, program
)
