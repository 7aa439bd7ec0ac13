"""A sheet of cells with formulas, worked out by a Python program that must take any such sheet.

Hard: cells need other cells in any order, ranges may have empty cells, and some cells can never get a value.
"""

import re

from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "spreadsheets", "recursion", "parsing")

# A function of a range: how people say it -> the solution's Python on the list v of its numbers, the reference's.
FUNCTIONS = {
    "SUM(A1:B3) is the sum of the cells of a range (0 of an empty one)": ("SUM", "sum(v)", sum),
    "MAX(A1:B3) is the largest number in a range (0 of an empty one)": ("MAX", "max(v, default=0)", lambda v: sorted(v)[-1] if v else 0),
    "MIN(A1:B3) is the smallest number in a range (0 of an empty one)": ("MIN", "min(v, default=0)", lambda v: sorted(v)[0] if v else 0),
    "COUNT(A1:B3) is how many cells of a range have a number": ("COUNT", "len(v)", len),
    "ODD(A1:B3) is how many cells of a range have an odd number": ("ODD", "sum(x % 2 for x in v)", lambda v: len([x for x in v if x & 1])),
    "SPAN(A1:B3) is the largest number of a range minus the smallest (0 of an empty one)": ("SPAN", "max(v, default=0) - min(v, default=0)", lambda v: sorted(v)[-1] - sorted(v)[0] if v else 0),
    "LAST(A1:B3) is the last number of a range, which is read row by row from the top (0 of an empty one)": ("LAST", "(v or [0])[-1]", lambda v: v[-1] if v else 0),
}  # fmt: skip
OUTPUTS = {
    "the sheet again, with the value in the place of each formula": "sheet",
    "a line `CELL VALUE` for each cell with a formula, by column, then by row": "cells",
    "a line `ROW SUM` for each row, from 1 on, with the sum of all numbers in it once the formulas are worked out": "rows",
    "a line `COLUMN SUM` for each column, from A on, with the sum of all numbers in it once the formulas are worked out": "columns",
}
OPENS = (
    "A sheet is kept as text: a line for each row, a ; between two cells, and columns named A, B, C and so on. Some cells have formulas (they begin with =), which shall be worked out.",
    "Sheets come as lines of cells with a ; between them. A cell is empty, a word, a whole number, or a formula such as =A1+B2. The formulas must be worked out.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "sheet", "py") | {
        "functions": rng.sample(list(FUNCTIONS), min(5, level)),
        "operators": rng.choice(["+-", "+*", "+-*"]) if level > 1 else rng.choice(["+", "-", "*"]),
        "output": rng.choice(list(OUTPUTS)),
        "circle": level > 2 and rng.random() < 0.7,
        "words": rng.choice(
            [
                "a cell with a word counts as 0",
                "a formula that names a cell with a word in it, other than in a range, has the value #WORD, and so has each that needs such a cell",
            ]
        )
        if level > 1
        else "a cell with a word counts as 0",
        "rows": 4 + level,
        "width": 3 + (level + 1) // 2,
    }


def make(rng, p):
    spots = [f"{chr(65 + c)}{r + 1}" for r in range(p.rows) for c in range(p.width)]
    order = rng.sample(spots, len(spots))
    cells = {}
    for number, spot in enumerate(order):
        earlier = order[:number]
        kind = rng.choice(["number", "number", "empty", "word", "sum", "range"])
        if kind == "sum" and len(earlier) > 3:
            cells[spot] = (
                "="
                + "".join(
                    rng.choice([rng.choice(earlier), rng.choice(earlier), str(rng.randint(1, 9))])
                    + rng.choice(p.operators)
                    for _ in range(rng.randint(1, 2))
                )
                + rng.choice(earlier)
            )
        elif kind == "range" and number > len(order) // 2:
            # A rectangle of cells that need none of those to come.
            for _ in range(20):
                a, b = rng.choice(earlier), rng.choice(earlier)
                if a[0] <= b[0] and int(a[1:]) <= int(b[1:]) and all(x in earlier for x in rectangle(a, b)):
                    cells[spot] = f"={FUNCTIONS[rng.choice(p.functions)][0]}({a}:{b})"
                    break
        elif kind == "word":
            cells[spot] = rng.choice(["north", "south", "total"])
        cells.setdefault(spot, "" if kind == "empty" else str(rng.randint(-9, 99)))
    if p.circle:
        a, b, c = rng.sample(spots, 3)
        cells |= {a: f"={b}+1", b: f"={c}+{a}"}
    return "".join(
        ";".join(cells[f"{chr(65 + c)}{r + 1}"] for c in range(p.width)) + "\n" for r in range(p.rows)
    )


def rectangle(a, b):
    return [
        f"{chr(c)}{r}" for r in range(int(a[1:]), int(b[1:]) + 1) for c in range(ord(a[0]), ord(b[0]) + 1)
    ]


def worked(text, p):
    """By rounds: what can be worked out is; what is left in the end is a circle."""
    cells = {
        f"{chr(65 + c)}{r}": cell
        for r, line in enumerate(text.splitlines(), 1)
        for c, cell in enumerate(line.split(";"))
    }
    strict = "#WORD" in p.words
    done = {
        spot: int(cell) if re.fullmatch(r"-?\d+", cell) else None
        for spot, cell in cells.items()
        if cell[:1] != "="
    }
    needs = {}
    for spot, cell in cells.items():
        found = re.findall(r"([A-Z]\d+)(?::([A-Z]\d+))?", cell if cell[:1] == "=" else "")
        needs[spot] = [need for a, b in found for need in rectangle(a, b or a)]
    size = -1
    while len(done) > size:
        size = len(done)
        for spot, cell in cells.items():
            if spot in done or any(need not in done for need in needs[spot]):
                continue
            values = [done[need] for need in needs[spot]]
            if "#WORD" in values or (
                strict and "(" not in cell and any(cells[need].isalpha() for need in needs[spot])
            ):
                done[spot] = "#WORD"
            elif "(" in cell:
                function = next(f for f in FUNCTIONS.values() if cell.startswith(f"={f[0]}("))
                done[spot] = function[2]([value for value in values if value is not None])
            else:
                total = 0
                for sign, product in re.findall(r"([+-]?)([^+-]+)", cell[1:]):
                    n = 1
                    for factor in product.split("*"):
                        n *= int(factor) if factor.isdigit() else done[factor] or 0
                    total += -n if sign == "-" else n
                done[spot] = total
    shown = {
        spot: cell if cell[:1] != "=" else str(done.get(spot, "#CIRCLE")) for spot, cell in cells.items()
    }
    formulas = [spot for spot, cell in cells.items() if cell[:1] == "="]
    if not formulas:
        return ""
    rows, columns = range(1, p.rows + 1), [chr(65 + c) for c in range(p.width)]
    numbers = {spot: int(value) if re.fullmatch(r"-?\d+", value) else 0 for spot, value in shown.items()}
    match OUTPUTS[p.output]:
        case "sheet":
            lines = [";".join(shown[f"{c}{r}"] for c in columns) for r in rows]
        case "cells":
            lines = [f"{spot} {shown[spot]}" for spot in sorted(formulas)]
        case "rows":
            lines = [f"{r} {sum(numbers[f'{c}{r}'] for c in columns)}" for r in rows]
        case _:
            lines = [f"{c} {sum(numbers[f'{c}{r}'] for r in rows)}" for c in columns]
    return "\n".join(lines)


def instruction(p):
    operators = {
        "+": "+",
        "-": "-",
        "*": "*",
        "+-": "+ and -",
        "+*": "+ and * (which goes first)",
        "+-*": "+, - and * (which goes first)",
    }[p.operators]
    rules = [
        f"formulas have cells and whole numbers with {operators} between them, or are one of the functions below",
        *p.functions,
    ]
    rules += [
        "A1 is the first cell of the first row, B1 the one to its right; in a formula, an empty cell counts as 0",
        p.words + "; in a range, words and empty cells are passed over",
    ]
    rules += [
        "a cell that needs itself, directly or by way of others, and each that needs such a cell, has the value #CIRCLE (whatever else would hold for it)"
    ] * p.circle
    return wordings(p, OPENS, [*rules, f"print {p.output}"])


def program(p):
    lines = [
        "import re, sys",
        "rows = [line.rstrip('\\n').split(';') for line in open(sys.argv[1])]",
        "cell = {chr(65 + c) + str(r + 1): x for r, row in enumerate(rows) for c, x in enumerate(row)}",
        "known = {}",
        "class Circle(Exception): pass",
        "class Word(Exception): pass",
    ]
    lines += [
        "def number(s):",
        "    return re.fullmatch('-?[0-9]+', s)",
        "def area(a, b):",
        "    return [chr(c) + str(r) for r in range(int(a[1:]), int(b[1:]) + 1) for c in range(ord(a[0]), ord(b[0]) + 1)]",
    ]
    lines += [
        "def value(k, way, inside):",
        "    s = cell[k]",
        "    if k in way:",
        "        raise Circle",
        "    if s[:1] != '=':",
        "        if number(s):",
        "            return int(s)",
    ]
    lines += ["        if s and not inside:", "            raise Word"] * ("#WORD" in p.words) + [
        "        return None if inside else 0",
        "    way = way + [k]",
        "    m = re.fullmatch(r'=([A-Z]+)\\((\\w+):(\\w+)\\)', s)",
    ]
    lines += [
        "    if m:",
        "        v, word = [], False",
        "        for x in area(m[2], m[3]):",
        "            try:",
        "                v.append(value(x, way, True))",
        "            except Word:",
        "                word = True",
        "        if word:",
        "            raise Word",
        "        v = [x for x in v if x is not None]",
    ]
    lines += [
        f"        if m[1] == '{FUNCTIONS[f][0]}':\n            return {FUNCTIONS[f][1]}" for f in p.functions
    ]
    lines += [
        "    found, word = {}, False",
        "    for x in set(re.findall('[A-Z][0-9]+', s)):",
        "        try:",
        "            found[x] = value(x, way, False)",
        "        except Word:",
        "            word = True",
        "    if word:",
        "        raise Word",
    ]
    lines += [
        "    return eval(re.sub('[A-Z][0-9]+', lambda m: '(' + str(found[m[0]]) + ')', s[1:]))",
        "for k, s in cell.items():",
        "    if s[:1] == '=':",
        "        try:",
        "            known[k] = str(value(k, [], False))",
        "        except Circle:",
        "            known[k] = '#CIRCLE'",
        "        except Word:",
        "            known[k] = '#WORD'",
    ]
    lines += [
        "all = {k: known.get(k, s) for k, s in cell.items()}",
        "n = {k: int(s) if number(s) else 0 for k, s in all.items()}",
        "names = [chr(65 + c) for c in range(len(rows[0]))]",
        "count = range(1, len(rows) + 1)",
    ]
    lines += [{
        "sheet": "for r in count:\n    print(';'.join(all[c + str(r)] for c in names))",
        "cells": "for k in sorted(known):\n    print(k, known[k])",
        "rows": "for r in count:\n    print(r, sum(n[c + str(r)] for c in names))",
        "columns": "for c in names:\n    print(c, sum(n[c + str(r)] for r in count))",
    }[OUTPUTS[p.output]]]  # fmt: skip
    return "\n".join(lines)


files, solution, lazy, test_half, test_result, test_program, test_hidden_sheets = printer(
    make, worked, program
)
