"""Links of a folder of documents looked after: which lead nowhere, who links to whom, each by a script.

Hard: links are relative to the page that has them, may name a place within the page, and code has none.
"""

import posixpath
import re

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import answerable, question_wordings, questions

SKILLS = ("grep", "realpath", "comm", "Markdown", "Python")

# A question: how people say it -> the script's Python, an expression of lines to print; the reference's on the survey.
QUESTIONS = {
    "the links that lead to no file, as lines `PAGE TARGET` (TARGET as it is written)": ("{f'{f} {t}' for f, t in links if t[0] != '#' and not os.path.exists(goal(f, t))}", lambda s: {f"{a} {t}" for a, t, goal, _ in s["links"] if goal not in s["files"]}),
    "the pages to which no other page links": ("{f for f in pages if not any(goal(g, t) == f and g != f for g, t in links)}", lambda s: set(s["pages"]) - {goal for a, _, goal, _ in s["links"] if goal != a}),
    "the pages that have no link at all": ("{f for f in pages if not any(g == f for g, _ in links)}", lambda s: set(s["pages"]) - {a for a, _, _, _ in s["links"]}),
    "lines `COUNT PAGE`: how many links each page has, for pages that have any": ("{f'{n} {f}' for f in pages if (n := sum(g == f for g, _ in links))}", lambda s: {f"{[x[0] for x in s['links']].count(a)} {a}" for a, _, _, _ in s["links"]}),
    "the links to a heading that the target page has not, as lines `PAGE TARGET` (TARGET as it is written; links to files that are missing do not count)": ("{f'{f} {t}' for f, t in links if '#' in t and os.path.exists(goal(f, t)) and t.split('#')[1] not in anchors(goal(f, t))}", lambda s: {f"{a} {t}" for a, t, goal, place in s["links"] if place and goal in s["files"] and place not in s["anchors"].get(goal, [])}),
    "the files that are no pages and to which no page links": ("{f for f in every if not f.endswith('.md') and not any(goal(g, t) == f for g, t in links)}", lambda s: {f for f in s["files"] if not f.endswith(".md")} - {goal for _, _, goal, _ in s["links"]}),
    "the pages that link to each other, as lines `A B` with A before B in byte order": ("{f'{f} {g}' for f in pages for g in pages if f < g and (f, g) in pairs and (g, f) in pairs}", lambda s: {f"{a} {b}" for a, _, b, _ in s["links"] if a < b and (b, a) in {(x, z) for x, _, z, _ in s["links"]}}),
    "the links that leave their page's folder (whose TARGET begins with two points), as lines `PAGE TARGET`": ("{f'{f} {t}' for f, t in links if t.startswith('../')}", lambda s: {f"{a} {t}" for a, t, _, _ in s["links"] if t[:3] == "../"}),
    "lines `COUNT FILE`: from how many different pages each file is linked, for files that are there and are linked": ("{f'{n} {f}' for f in every if (n := len({g for g, t in links if goal(g, t) == f}))}", lambda s: {f"{len({x[0] for x in s['links'] if x[2] == goal})} {goal}" for _, _, goal, _ in s["links"] if goal in s["files"]}),
}  # fmt: skip
HELP = r"""import os, re, sys
os.chdir(sys.argv[1])
every = [os.path.relpath(os.path.join(d, n), '.') for d, _, names in os.walk('.') for n in names]
pages = [f for f in every if f.endswith('.md')]
links = [(f, t) for f in pages for line in open(f) for t in re.findall(r'\]\(([^)]*)\)', line) if CODE]
def goal(f, t):
    return os.path.normpath(os.path.join(os.path.dirname(f), t.split('#')[0])) if t[0] != '#' else f
def anchors(f):
    return [line.strip('# \n').lower().replace(' ', '-') for line in open(f) if line.startswith('# ')]
pairs = {(f, goal(f, t)) for f, t in links}
"""


def draw(rng, level):
    def choose(rng):
        return {"asked": rng.choice(list(QUESTIONS))}

    code = level > 2 and rng.random() < 0.7
    return answerable(
        rng, 2 + level // 2, choose, make, worked, source=word(rng), size=6 + 3 * level, code=code
    )


def make(rng, p):
    stems = words(rng, p.size)
    pages = [rng.choice(["", "guide/", "guide/more/", "api/"]) + f"{stem}.md" for stem in stems]
    others = [f"img/{name}.png" for name in words(rng, 4)]
    made, titles = (
        {path: "png\n" for path in others},
        {page: [f"{word(rng).title()} {word(rng)}" for _ in range(2)] for page in pages},
    )
    for page in pages:
        lines = []
        for title in titles[page]:
            lines += [f"# {title}", f"{word(rng)} {word(rng)}"]
            for _ in range(rng.choice([0, 0, 1, 2])):
                goal = rng.choice([*pages, *others[:-1], f"{word(rng)}.md"])
                target = posixpath.relpath(goal, posixpath.dirname(page) or ".")
                if goal in pages and rng.random() < 0.4:
                    target = "" if goal == page else target
                    target += "#" + rng.choice(
                        [rng.choice(titles[goal]).lower().replace(" ", "-"), word(rng)]
                    )
                line = f"See [{word(rng)}]({target}), {word(rng)}."
                lines.append("    " + line if p.code and rng.random() < 0.3 else line)
        made[page] = "\n".join(lines) + "\n"
    return made


def worked(made, case, p):
    survey = {
        "files": list(made),
        "pages": [f for f in made if f.endswith(".md")],
        "links": [],
        "anchors": {},
    }
    for page in survey["pages"]:
        for line in made[page].splitlines():
            if line.startswith("# "):
                survey["anchors"].setdefault(page, []).append(line[2:].lower().replace(" ", "-"))
            for target in re.findall(r"\]\((.*?)\)", line) if not (p.code and line[:4] == "    ") else []:
                path, _, place = target.partition("#")
                goal = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
                survey["links"].append((page, target, goal, place))
    return "\n".join(sorted(QUESTIONS[case["asked"]][1](survey)))


def instruction(p):
    asked = [f"{case['script']}: {case['asked']}" for case in p.cases]
    rules = (
        "Pages are the files NAME.md, those in folders below included, and a link is `[TEXT](TARGET)`, where TARGET is a path from the page's own folder, perhaps with # and "
        "an anchor after it, or an anchor of the page itself. The anchor of a heading (`# TITLE`) is its title in lower case with - for each space. Print paths from the "
        "folder's top, without ./ in front, each line once, and lines in byte order."
        + " Lines that begin with four spaces are code, and have no links."
        * p.code
    )
    opens = (
        "A folder has a project's documents in Markdown.",
        "Before documents are published we look after their links.",
    )
    return question_wordings(p, opens, asked, rules)


def program(case, p):
    code = HELP.replace("CODE", "line[:4] != '    '" if p.code else "t")
    return f'#!/bin/bash\npython3 - "$1" <<"CODE"\n{code}lines = {QUESTIONS[case["asked"]][0]}\nfor line in sorted(lines):\n    print(line)\nCODE'


files, solution, lazy, test_answer, test_hidden_documents = questions(make, worked, program)
