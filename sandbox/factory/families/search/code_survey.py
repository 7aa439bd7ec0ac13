"""Questions about a folder of source files, each to be answered by a script for any such folder.

Hard: what is defined and what is used lie in different files, and the answer is what is in one list only.
"""

from sandbox.factory.kit import PEOPLE, word, words
from sandbox.factory.scripts import question_wordings, questions

SKILLS = ("grep -r", "comm", "sort", "sed", "awk")

DEFINED = "grep -rhoE '^def [a-z_]+' . | cut -d ' ' -f 2 | LC_ALL=C sort"
USED = "grep -rhE '^    ' . | grep -oE '[a-z_]+\\(' | tr -d '(' | LC_ALL=C sort -u"

# How people say it -> the script's commands, Python's on the survey below.
QUESTIONS = {
    "the functions that are defined but never called": (f"comm -23 <({DEFINED} -u) <({USED})", lambda s: set(s["defined"]) - s["called"]),
    "the functions that are called but defined nowhere": (f"comm -13 <({DEFINED} -u) <({USED})", lambda s: s["called"] - set(s["defined"])),
    "the functions that are defined more than once": (f"{DEFINED} | uniq -d", lambda s: {f for f in s["defined"] if s["defined"].count(f) > 1}),
    "the files that define no function": ("grep -rL '^def ' . | sed 's#^\\./##' | LC_ALL=C sort", lambda s: {f for f in s["files"] if not s["per file"][f]}),
    "the people who have a TODO, as in `# TODO(ines): text`": ("grep -rhoE '# TODO\\([a-z]+\\)' . | tr -d ')' | cut -d '(' -f 2 | LC_ALL=C sort -u", lambda s: {who for _, who in s["todos"] if who}),
    "lines COUNT PERSON with the number of TODOs of each person (`# TODO(ines): text`)": ("grep -rhoE '# TODO\\([a-z]+\\)' . | tr -d ')' | cut -d '(' -f 2 | sort | uniq -c | awk '{ print $1, $2 }' | LC_ALL=C sort", lambda s: {f"{[w for _, w in s['todos']].count(who)} {who}" for _, who in s["todos"] if who}),
    "the files with a TODO that names nobody (`# TODO: text`)": ("grep -rl '# TODO:' . | sed 's#^\\./##' | LC_ALL=C sort", lambda s: {f for f, who in s["todos"] if not who}),
    "lines COUNT FILE with the number of functions that a file defines, for files that define any": ("grep -rc '^def ' . | sed 's#^\\./##' | awk -F : '$2 { print $2, $1 }' | LC_ALL=C sort", lambda s: {f"{n} {f}" for f, n in s["per file"].items() if n}),
    "the modules that are used (`use NAME` on a line of its own) but have no file NAME.src in any folder": ("comm -13 <(find . -name '*.src' | sed 's#.*/##; s/.src$//' | LC_ALL=C sort -u) <(grep -rhoE '^use [a-z]+$' . | cut -d ' ' -f 2 | LC_ALL=C sort -u)", lambda s: s["uses"] - {f.rpartition("/")[2][:-4] for f in s["files"]}),
    "the files that no other file uses (a file NAME.src is used by the line `use NAME`)": ("comm -23 <(find . -name '*.src' | sed 's#.*/##; s/.src$//' | LC_ALL=C sort -u) <(grep -rhoE '^use [a-z]+$' . | cut -d ' ' -f 2 | LC_ALL=C sort -u) | while read n; do find . -name $n.src -printf '%P\\n'; done | LC_ALL=C sort", lambda s: {f for f in s["files"] if f.rpartition("/")[2][:-4] not in s["uses"]}),
    "the functions with a body of more than three lines": ("find . -name '*.src' -exec cat {} + | awk '/^def /{ n = substr($2, 1, index($2, \"(\") - 1); c = 0 } /^    /{ if (++c == 4) print n }' | LC_ALL=C sort -u", lambda s: {f for f, n in s["bodies"] if n > 3}),
}  # fmt: skip


def draw(rng, level):
    asked = rng.sample(list(QUESTIONS), 2 + level // 2)
    cases = [{"script": f"{n}.sh", "asked": q} for n, q in zip(words(rng, len(asked)), asked, strict=True)]
    return {"source": word(rng), "cases": cases, "size": 5 + 2 * level}


def make(rng, p):
    modules, made = words(rng, p.size), {}
    names = [f"{a}_{b}" for a, b in zip(words(rng, 14), words(rng, 14), strict=True)]
    people = words(rng, 4, PEOPLE)
    for module in modules[:-2]:
        lines = [f"use {rng.choice([m for m in modules if m != module])}" for _ in range(rng.randint(0, 2))]
        for _ in range(rng.choice([0, 1, 2, 3])):
            lines.append(f"def {rng.choice(names[:11])}(x)")
            for _ in range(rng.randint(1, 5)):
                lines.append(
                    f"    y = {rng.choice(names[3:])}(x) + {rng.randint(1, 9)}"
                    + rng.choice(["", "", f" # TODO({rng.choice(people)}): faster", " # TODO: test"])
                )
        made[rng.choice(["", "lib/", "lib/core/"]) + f"{module}.src"] = "".join(line + "\n" for line in lines)
    return made


def worked(made, case, p):
    import re

    survey = {
        "defined": [],
        "called": set(),
        "files": list(made),
        "todos": [],
        "per file": {},
        "uses": set(),
        "bodies": [],
    }
    for path, text in made.items():
        survey["per file"][path] = text.count("def ")
        for line in text.splitlines():
            if line.startswith("def "):
                survey["defined"].append(line[4:-3])
                survey["bodies"].append([line[4:-3], 0])
            elif line.startswith("use "):
                survey["uses"].add(line[4:])
            else:
                survey["bodies"][-1][1] += 1
                survey["called"] |= set(re.findall(r"(\w+)\(x", line))
                survey["todos"] += [(path, who) for who in re.findall(r"# TODO\(?(\w*)", line)]
    return "\n".join(sorted(QUESTIONS[case["asked"]][1](survey)))


def instruction(p):
    asked = [f"{case['script']}: {case['asked']}" for case in p.cases]
    rules = (
        "Each answer has one name or path a line, in byte order, and each line once. In these sources a function is defined by a line "
        "`def NAME(x)`, the lines of its body follow, indented by four spaces, and a call there is NAME(x). Paths are relative to the "
        "folder, and files in folders below it count."
    )
    opens = (
        "A program's source files (they end in .src) lie in a folder.",
        "Before we change a program we survey its source files (NAME.src).",
    )
    return question_wordings(p, opens, asked, rules)


def program(case, p):
    return f'#!/bin/bash\ncd "$1"\n{QUESTIONS[case["asked"]][0]}'


files, solution, lazy, test_answer, test_hidden_sources = questions(make, worked, program)
