"""The tables of a Markdown document put in shape, by a Python program that leaves all else alone.

Hard: cells are as wide as their column needs, what stands in code is no table, and rows are sorted by kind.
"""

from sandbox.factory.kit import PEOPLE, PLACES, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "Markdown", "tables", "alignment")

# How the rows below the heading are treated -> the solution's statement on rows (lists of cells), the reference's.
ROWS = {
    "rows are sorted by their first cell in byte order (equal ones keep their order)": ("rows.sort(key=lambda r: r[0])", lambda rs: sorted(rs, key=lambda r: r[0])),
    "rows are sorted by the number in their last cell, the largest first (equal ones keep their order)": ("rows.sort(key=lambda r: -int(r[-1]))", lambda rs: sorted(rs, key=lambda r: int(r[-1]), reverse=True)),
    "rows whose second cell is empty are dropped": ("rows = [r for r in rows if r[1]]", lambda rs: [r for r in rs if r[1] != ""]),
    "of rows that are equal in all cells only the first stays": ("rows = [r for i, r in enumerate(rows) if r not in rows[:i]]", lambda rs: list(map(list, dict.fromkeys(map(tuple, rs))))),
    "a row is added at the end: `Total` in the first cell, the sum of the numbers in the last, all others empty": ("rows.append(['Total'] + [''] * (len(head) - 2) + [str(sum(int(r[-1]) for r in rows))])", lambda rs: [*rs, ["Total", *[""] * (len(rs[0]) - 2 if rs else 1), str(sum(int(r[-1]) for r in rs))]]),
    "empty cells get a -": ("rows = [[c or '-' for c in r] for r in rows]", lambda rs: [["-" if c == "" else c for c in r] for r in rs]),
    "a first column is added, with the heading `No` and the numbers from 1 on": ("head.insert(0, 'No'); marks.insert(0, ''); [r.insert(0, str(i)) for i, r in enumerate(rows, 1)]", lambda rs: [[str(i), *r] for i, r in enumerate(rs, 1)]),
}  # fmt: skip
SIDES = {"left": "l", "right": "r"}
OPENS = (
    "Tables in our Markdown documents are hard to read as text. They shall be put in shape, and everything else shall stay.",
    "A document in Markdown has tables (lines that begin with a |). They need a better form.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    rows = rng.sample(list(ROWS), (level + 1) // 2 + level // 3)
    rows.sort(key=lambda rule: ("a first column" in rule) * 2 + ("a row is added" in rule))
    return names(rng, "md", "py", "md") | {
        "rows": rows,
        "side": rng.choice(list(SIDES)),
        "mark": level > 1 and rng.random() < 0.6,
        "code": level > 2 and rng.random() < 0.7,
        "upper": rng.random() < 0.3,
        "size": 1 + level // 2,
    }


def make(rng, p):
    lines = []
    for _ in range(p.size):
        lines += [f"# {word(rng)}", "", f"{word(rng)} | {word(rng)}"]
        kinds = [rng.choice(["---", ":--", "--:"]) if p.mark else "---" for _ in range(3)]
        table = [f"| {' | '.join(words(rng, 3))} |", f"|{'|'.join(kinds)}|"]
        names_ = words(rng, 4, PEOPLE)
        cells = [
            [
                rng.choice(names_),
                rng.choice(["", word(rng, PLACES)]),
                str(rng.choice([7, 30, rng.randint(0, 999)])),
            ]
            for _ in range(rng.randint(2, 3 + p.level))
        ]
        cells += rng.choice([[], cells[:1]])
        table += [
            "|" + "|".join(rng.choice(["{}", " {} ", "  {}"]).format(c) for c in row) + "|" for row in cells
        ]
        fence = ["```"] * (p.code and rng.random() < 0.4)
        lines += [*fence, *table, *fence, ""]
    return "\n".join(lines) + "\n"


def worked(text, p):
    out, table, code = [], [], False
    for line in [*text.splitlines(), ""]:
        if line.startswith("|") and not code:
            table.append([cell.strip() for cell in line[1:].removesuffix("|").split("|")])
            continue
        if table:
            out += shaped(table, p)
            table = []
        code ^= p.code and line == "```"
        out.append(line)
    return "\n".join(out)


def shaped(table, p):
    heading, marks, *rows = table
    heading = [cell.upper() for cell in heading] if p.upper else heading
    for rule in p.rows:
        rows = ROWS[rule][1](rows)
        if rule.startswith("a first"):
            heading, marks = ["No", *heading], ["", *marks]
    widths = [max(3, *(len(row[i]) for row in [heading, *rows])) for i in range(len(heading))]
    lines = []
    for row in [heading, None, *rows]:
        cells = []
        for i, width in enumerate(widths):
            right = marks[i].endswith(":") if p.mark and marks[i].strip("-") else SIDES[p.side] == "r"
            if row is None:
                cells.append("-" * (width - 1) + ":" if right else ":" + "-" * (width - 1))
            else:
                cells.append(
                    " " * (width - len(row[i])) + row[i] if right else row[i] + " " * (width - len(row[i]))
                )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def instruction(p):
    rules = [
        "a table is a run of lines that begin with a |: its heading, a line of marks (such as ---), and its rows; cells stand between |, and spaces around them do not count"
    ]
    rules += [
        *p.rows,
        "then every line of a table is written as `| CELL | CELL |`, with one space on both sides of each cell, and cells filled up with spaces to the width of the widest of their column, at least 3",
    ]
    rules += [
        f"cells stand at the {p.side}"
        + ", but where the marks of a column have a colon, at the side of the colon (:-- left, --: right)"
        * p.mark
    ]
    rules += [
        "the marks fill the width of the column too: `-` with a colon at the side where the cells stand, as in :-- or --:"
    ]
    rules += ["headings of columns become upper case"] * p.upper + [
        "between two lines of three backquotes there is no table"
    ] * p.code
    return wordings(p, OPENS, rules)


def program(p):
    right = "m.endswith(':') if m.strip('-') else " * p.mark + str(SIDES[p.side] == "r")
    lines = [
        "import sys",
        "table, code = [], False",
        "def flush():",
        "    if not table:",
        "        return",
        "    head, marks, *rows = table[:]",
        "    table.clear()",
    ]
    lines += ["    head = [c.upper() for c in head]"] * p.upper + [f"    {ROWS[rule][0]}" for rule in p.rows]
    lines += [
        "    width = [max([3] + [len(r[i]) for r in [head] + rows]) for i in range(len(head))]",
        f"    right = [{right} for m in marks]",
    ]
    lines += [
        "    line = [('-' * (w - 1) + ':') if r else (':' + '-' * (w - 1)) for w, r in zip(width, right)]",
        "    for row in [head, line] + rows:",
    ]
    lines += [
        "        print('| ' + ' | '.join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, width, right)) + ' |')"
    ]
    lines += [
        "for line in open(sys.argv[1]).read().splitlines():",
        "    if line[:1] == '|' and not code:",
        "        table.append([c.strip() for c in line[1:].removesuffix('|').split('|')])",
        "        continue",
        "    flush()",
    ]
    lines += ["    code ^= line == '```'"] * p.code + ["    print(line)", "flush()"]
    return "\n".join(lines)


files, solution, lazy, test_half, test_result, test_program, test_hidden_documents = printer(
    make, worked, program
)
