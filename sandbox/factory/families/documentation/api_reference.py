"""A reference made from the comments in source files, by a script for any such folder.

Hard: a comment belongs to what follows it, its tags mean different things, and what is private must not show.
"""

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "documentation comments", "sort", "find")

# An entry's parts, in the order in which they are printed: how people say it -> awk's print, Python's lines.
PARTS = {
    "the comment's text, its lines joined by spaces": (
        'if (text != "") print text',
        lambda f: [f["text"]] * bool(f["text"]),
    ),
    "a line `- NAME: TEXT` for each `@param NAME TEXT`, in their order": (
        'printf "%s", params',
        lambda f: [f"- {a}: {t}" for a, t in f["params"]],
    ),
    "a line `Returns TEXT` for `@returns TEXT`": (
        'if (ret != "") print "Returns " ret',
        lambda f: [f"Returns {f['ret']}"] * bool(f["ret"]),
    ),
    "a line `Since VERSION` for `@since VERSION`": (
        'if (since != "") print "Since " since',
        lambda f: [f"Since {f['since']}"] * bool(f["since"]),
    ),
    "a line `Defined in FILE, line N` (FILE as the folder has it, N the line of `func`)": (
        'print "Defined in " FILENAME ", line " FNR',
        lambda f: [f"Defined in {f['file']}, line {f['line']}"],
    ),
    "a line `Takes N arguments` with the number of names between the function's brackets": (
        'print "Takes " args " arguments"',
        lambda f: [f"Takes {f['args']} arguments"],
    ),
}
HEADS = {
    "## NAME": '"## " name',
    "NAME(ARGUMENTS), with the arguments as the source has them": "sig",
    "### FILE: NAME": '"### " FILENAME ": " name',
    "* NAME": '"* " name',
}
SKIP = {
    "": ("", lambda f: False),
    "functions whose name begins with _ are left out": ("name ~ /^_/", lambda f: f["name"][0] == "_"),
    "functions without a comment are left out": ("!had", lambda f: not f["had"]),
    "functions with the tag `@private` are left out": ("private", lambda f: f["private"]),
    "functions with the tag `@deprecated` are left out": ("old", lambda f: f["old"]),
}
OPENS = (
    "A library's sources (*.src, in one folder) have comments, lines that begin with `##`, right above their functions, `func NAME(ARGUMENTS)`. A reference shall be made of them.",
    "We document functions in the source: above a line `func NAME(ARGUMENTS)` stand lines that begin with `##`. From a folder of such files (*.src) we want the reference.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    chosen = rng.sample(list(PARTS), min(6, 1 + level))
    return names(rng, "", "sh", "md") | {
        "parts": chosen,
        "head": rng.choice(list(HEADS)),
        "skip": rng.sample(list(SKIP)[1:], level // 2),
        "count": rng.random() < 0.3,
        "size": 1 + level,
    }


def make(rng, p):
    made = {}
    for name in words(rng, p.size):
        lines = []
        for function in words(rng, rng.randint(1, 4)):
            args = words(rng, rng.randint(0, 3))
            tags = [f"## @param {a} the {word(rng)} of it" for a in args if rng.random() < 0.8]
            tags += rng.choice([[], [f"## @returns a {word(rng)}"]]) + rng.choice(
                [[], [f"## @since {rng.randint(1, 4)}.{rng.randint(0, 9)}"]]
            )
            tags += rng.choice([[], [], ["## @private"], ["## @deprecated"]])
            text = [f"## {word(rng).title()} the {word(rng)}" for _ in range(rng.choice([0, 1, 2]))]
            comment = rng.choice([[*text, *tags], [*text, *tags], []])
            if rng.random() < 0.3:
                lines += [f"## a {word(rng)} that belongs to nothing", ""]
            lines += [
                *comment,
                f"func {rng.choice(['', '', '_'])}{function}({', '.join(args)})",
                f"    {word(rng)} = 1",
                "    # not this",
                "end",
                "",
            ]
        made[f"{name}.src"] = "\n".join(lines) + "\n"
    return made


def worked(made, p):
    lines, count = [], 0
    for path in sorted(made):
        comment = []
        for number, line in enumerate(made[path].splitlines(), 1):
            if line.startswith("##"):
                comment.append(line[3:])
                continue
            if line.startswith("func "):
                name, _, rest = line[5:].partition("(")
                tags = [c.split(" ", 2) for c in comment if c.startswith("@")]
                f = {
                    "file": path,
                    "line": number,
                    "name": name,
                    "had": comment != [],
                    "args": len([a for a in rest[:-1].split(", ") if a]),
                }
                f["text"] = " ".join(c for c in comment if not c.startswith("@"))
                f["params"] = [(t[1], t[2]) for t in tags if t[0] == "@param"]
                f["ret"] = next((" ".join(t[1:]) for t in tags if t[0] == "@returns"), "")
                f["since"] = next((t[1] for t in tags if t[0] == "@since"), "")
                f["private"], f["old"] = ["@private"] in tags, ["@deprecated"] in tags
                if not any(SKIP[rule][1](f) for rule in p.skip):
                    count += 1
                    lines.append(
                        {
                            "## N": f"## {name}",
                            "NAME": line[5:],
                            "### ": f"### {path}: {name}",
                            "* NA": f"* {name}",
                        }[p.head[:4]]
                    )
                    lines += [part for kind in p.parts for part in PARTS[kind][1](f)]
            comment = []
    return "\n".join([*lines, *[f"{count} functions"] * p.count]) if lines else ""


def instruction(p):
    rules = [
        f"each function has an entry that begins with a line `{p.head}`".replace(
            "ARGUMENTS), with the arguments as the source has them`",
            "ARGUMENTS)`, with the arguments as the source has them",
        )
    ]
    rules += ["below it come, in this order and only where there is something to tell: " + "; ".join(p.parts)]
    rules += [
        "files are taken in byte order of their names, functions in the order of the file",
        "a comment belongs to a function only if it stands directly above it, its lines without a gap; comment lines that begin with @ are tags and no text",
    ]
    return wordings(
        p,
        OPENS,
        [*rules, *p.skip, *["at the end comes a line `N functions` with the number of entries"] * p.count],
    )


def program(p):
    skip = " || ".join(SKIP[rule][0] for rule in p.skip) or "0"
    parts = "\n    ".join(PARTS[kind][0] for kind in p.parts)
    return f"""#!/bin/bash
cd "$1" && LC_ALL=C awk '
function clear() {{ text = params = ret = since = ""; had = private = old = 0 }}
FNR == 1 {{ clear() }}
/^## @param / {{ had = 1; k = $3; sub(/^## @param [^ ]* /, ""); params = params "- " k ": " $0 "\\n"; next }}
/^## @returns / {{ had = 1; ret = substr($0, 13); next }}
/^## @since / {{ had = 1; since = $3; next }}
/^## @private/ {{ had = private = 1; next }}
/^## @deprecated/ {{ had = old = 1; next }}
/^##/ {{ had = 1; text = text (text == "" ? "" : " ") substr($0, 4); next }}
/^func / {{ sig = substr($0, 6); name = sig; sub(/\\(.*/, "", name); args = sig ~ /\\(\\)/ ? 0 : gsub(/,/, ",", sig) + 1
  if (!({skip})) {{
    n++
    print {HEADS[p.head]}
    {parts}
  }} }}
{{ clear() }}
END {{ {'print n + 0 " functions"' if p.count else ""} }}' *.src"""


files, solution, lazy, test_half, test_result, test_script, test_hidden_sources = printer(
    make, worked, program
)
