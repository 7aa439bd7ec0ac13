"""Which modules of a project import which others, what is unused and what goes round in a circle, by a program for any project.

Hard: imports come in several forms and places, relative ones need the package, and text that looks like one is none.
"""

import ast

from sandbox.factory.kit import given, words
from sandbox.factory.kit_report import (
    asks,
    check_output,
    check_report,
    fresh,
    lazy_steps,
    names,
    program,
    some,
    steps,
)

SKILLS = ("imports", "Python packaging", "ast", "graphs")

# The solution has `mods`: name -> set of all names that are imported (full module names), `own(n)`: those of the project,
# `need`: declared names, `used`: name -> lines.
REPORTS = {
    "imports": ("MODULE=COUNT for all modules in alphabetical order, with the number of different modules, of whatever kind, that it imports", "[f'{m}={len(mods[m])}' for m in sorted(mods)]", lambda f: [f"{m}={len(f['mods'][m])}" for m in sorted(f["mods"])]),
    "undeclared": ("the top-level names (up to the first dot) of outside packages that are imported and not declared, in alphabetical order", "sorted(out - need - STD)", lambda f: sorted(n for n in f["outside"] if n not in f["need"] and n not in f["std"])),
    "needless": ("the declared names that no module imports anything of, in alphabetical order", "sorted(need - out)", lambda f: sorted(n for n in f["need"] if n not in f["outside"])),
    "orphans": ("the modules of the project that no other module of the project imports, in alphabetical order", "sorted(m for m in mods if not any(m in mods[k] for k in mods if k != m))", lambda f: sorted({*f["mods"]} - {n for m, ns in f["mods"].items() for n in ns if n != m})),
    "popular": ("the module of the project that most of its modules import, of several the first in the alphabet", "min(mods, key=lambda m: (-sum(m in mods[k] for k in mods), m))", lambda f: max(sorted(f["mods"]), key=lambda m: [m in ns for ns in f["mods"].values()].count(True))),
    "circles": ("the modules of the project from which imports lead back to the module itself, directly or by others of the project, in alphabetical order", "sorted(m for m in mods if m in reach(m))", lambda f: sorted(m for m in f["mods"] if m in far(m, f))),
    "reach": ("MODULE=COUNT for all modules in alphabetical order, with the number of other modules of the project that its imports lead to, directly or by others", "[f'{m}={len(reach(m) - {m})}' for m in sorted(mods)]", lambda f: [f"{m}={len(far(m, f) - {m})}" for m in sorted(f["mods"])]),
    "standard": ("the top-level names of the standard library that are imported (only os, sys, re, json and math count), in alphabetical order", "sorted(out & STD)", lambda f: sorted(f["outside"] & f["std"])),
    "lines": ("the number of lines that begin an import statement, over all modules", "total", lambda f: f["lines"]),
    "empty": ("the modules that import nothing, in alphabetical order", "sorted(m for m in mods if not mods[m])", lambda f: [m for m in sorted(f["mods"]) if f["mods"][m] == set()]),
}  # fmt: skip
STANDARD = ("os", "sys", "re", "json", "math")


def draw(rng, level):
    return {
        **names(rng, "project"),
        "cases": some(rng, REPORTS, 2 + level // 2 + (level > 3)),
        "aliases": level > 1,
        "relative": level > 2,
        "fakes": rng.choice(["comments", "texts"]) if level > 1 else "",
        "inner": level > 2 and rng.random() < 0.6,
        "mark": rng.choice(["===", "###", "@@@"]),
        "size": 3 + level,
    }


def data(rng, p):
    top, *outside = words(rng, 6)
    mods = [f"{top}.{name}" for name in words(rng, p.size)]
    rows = [f"needs {' '.join(sorted(rng.sample(outside[:4], 2)))} {outside[4]}"]
    for module in mods:
        rows.append(f"{p.mark} {module}")
        for _ in range(rng.choice([0, 1, 2, 3, 3])):
            other = rng.choice(mods)
            plain = rng.choice(
                [
                    other,
                    other,
                    rng.choice(STANDARD),
                    rng.choice(outside[:4]),
                    f"{outside[0]}.{rng.choice(outside)}",
                ]
            )
            line = f"import {plain}"
            if p.aliases and rng.random() < 0.5:
                line = rng.choice(
                    [
                        f"import {plain} as x",
                        f"import {rng.choice(mods)}, {plain}",
                        f"from {plain} import a, b as c",
                    ]
                )
            if p.relative and rng.random() < 0.3:
                line = rng.choice(
                    [
                        f"from .{other.split('.')[1]} import a",
                        f"from . import {other.split('.')[1]}",
                        f"from .{other.split('.')[1]} import (\n    a,\n    b,\n)",
                    ]
                )
            if p.inner and rng.random() < 0.25:
                line = "def work():\n    " + line.replace("\n", "\n    ")
            rows.append(line)
        if p.fakes and rng.random() < 0.6:
            rows.append(
                f"# import {rng.choice(outside)}"
                if p.fakes == "comments"
                else f'text = """\nimport {rng.choice(outside)}\n"""'
            )
        rows.append(f"value = {rng.randint(1, 99)}")
    return "\n".join(rows) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    head, *parts = text.split(f"\n{p.mark} ")
    f = {"need": head.split()[1:], "std": {*STANDARD}, "mods": {}, "lines": 0}
    for part in parts:
        module, _, body = part.partition("\n")
        package = module.split(".")[0]
        found = f["mods"].setdefault(module, set())
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = f"{package}." if node.level else ""
                found |= {base + node.module} if node.module else {base + alias.name for alias in node.names}
            else:
                continue
            f["lines"] += 1
    f["outside"] = {n.split(".")[0] for ns in f["mods"].values() for n in ns if n not in f["mods"]}
    return f


def far(module, f):
    found, todo = set(), [module]
    while todo:
        new = (f["mods"][todo.pop()] & {*f["mods"]}) - found
        found |= new
        todo += new
    return found


def instruction(p):
    about = f"The first line of the file is `needs` and the names of declared outside packages; then come the modules of a project, each a line `{p.mark} PACKAGE.NAME` and after it its Python source. All modules are in the same package."
    rules = ["`import a.b` imports the module a.b, and so does `from a.b import c`, whatever c is."]
    if p.relative:
        rules.append(
            "`from .b import c` in a module of the package a imports a.b; so does an import of b from a dot that stands alone."
        )
    if p.aliases:
        rules.append("`import a, b` imports both, and `as` changes nothing.")
    if p.inner:
        rules.append("Imports inside of functions count like all others.")
    if p.fakes:
        rules.append(
            f"What looks like an import in {'comments' if p.fakes == 'comments' else 'strings'} is none."
        )
    rules.append("A name is that of an outside package, if it is not that of a module of the project.")
    return asks(p, about, rules, REPORTS)


def source(p):
    head = f"""import re, sys
STD = {{"os", "sys", "re", "json", "math"}}
text = open(sys.argv[1]).read()
text = re.sub(r'\"\"\".*?\"\"\"', '""', text, flags=re.S)
need = set(text.split("\\n")[0].split()[1:])
mods, total = {{}}, 0
for line in text.split("\\n")[1:]:
    m = re.match(r"\\s*(?:import (.+)|from (\\S+) import (.*))$", line)
    if line.startswith("{p.mark} "):
        now = line.split()[1]
        base = now.split(".")[0]
        mods[now] = set()
    elif m:
        total += 1
        if m[1]: mods[now] |= {{x.split()[0] for x in m[1].split(",")}}
        elif m[2] == ".": mods[now].add(base + "." + m[3].split()[0])
        else: mods[now].add(base + m[2] if m[2][0] == "." else m[2])
out = {{n.split(".")[0] for ns in mods.values() for n in ns - set(mods)}}
def reach(m):
    seen, todo = set(), [m]
    while todo:
        for n in mods[todo.pop()]:
            if n in mods and n not in seen:
                seen.add(n)
                todo.append(n)
    return seen"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
