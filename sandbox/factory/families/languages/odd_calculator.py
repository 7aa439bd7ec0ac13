"""A calculator with its own operators, precedences and directions, which must work for any list of formulas.

Hard: a parser must be written, as the precedences are not those of any language; names refer to other lines.
"""

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

SKILLS = ("parsers", "precedence", "Python", "recursion")

# Sign -> what it gives, the solution's expression and the reference's.
SIGNS = {
    "+": ("a plus b", "a + b", lambda a, b: a + b),
    "-": ("a minus b", "a - b", lambda a, b: a - b),
    "*": ("a times b", "a * b", lambda a, b: a * b),
    "^": ("the larger of a and b", "max(a, b)", lambda a, b: max(a, b)),
    "_": ("the smaller of a and b", "min(a, b)", lambda a, b: a if a < b else b),
    "~": ("the distance of a and b", "abs(a - b)", lambda a, b: max(a - b, b - a)),
    "@": ("ten times a, plus b", "10 * a + b", lambda a, b: a * 10 + b),
    "%": ("the remainder of a divided by b, always from 0 up (b - 1), for which b is taken without its sign; a, if b is 0", "a % abs(b) if b else a", lambda a, b: a - abs(b) * (a // abs(b)) if b else a),
    "?": ("a if a is not 0, else b", "a or b", lambda a, b: a if a else b),
}  # fmt: skip
REPORTS = {
    "values": ("the values of all lines, in order", "vals", lambda f: f["values"]),
    "sum": ("the sum of the values that are numbers", "sum(v for v in vals if v != '?')", lambda f: sum(v for v in f["values"] if v != "?")),
    "best": ("the name with the largest value, of several the one further up; `-` if no line has a value", "max((n for n in known if value(n) != '?'), key=value, default='-')", lambda f: min(((-v, i, n) for i, (n, v) in enumerate(zip(f["names"], f["values"], strict=True)) if v != "?"), default=(0, 0, "-"))[2]),
    "bad": ("the names whose lines have no value, in the order of the lines", "[n for n in known if value(n) == '?']", lambda f: [n for n, v in zip(f["names"], f["values"], strict=True) if v == "?"]),
    "negative": ("how many values are below zero", "sum(v != '?' and v < 0 for v in vals)", lambda f: len([v for v in f["values"] if v != "?" and v < 0])),
    "signs": ("how many operators all formulas have together", "ops", lambda f: f["ops"]),
    "last": ("the value of the last line", "vals[-1]", lambda f: f["values"][-1]),
}  # fmt: skip


def draw(rng, level):
    signs = rng.sample(list(SIGNS), min(6, 2 + level))
    count = min(3, 1 + level // 2) if level > 1 else 1
    return {
        **names(rng, "calc"),
        "tiers": [signs[i::count] for i in range(count)],
        "right": [rng.random() < 0.5 for _ in range(count)],
        "brackets": rng.choice(["()", "[]", "<>"]) if level > 1 else "",
        "refs": level > 2,
        "tight": level > 1,
        "neg": rng.choice(["", "!"]) if level > 3 else "",
        "cases": some(rng, [r for r in REPORTS if level > 2 or r != "bad"], 2 + (level + 1) // 2),
        "size": 4 + 2 * level,
    }


def data(rng, p):
    rows, known = [], words(rng, p.size)
    signs = [sign for tier in p.tiers for sign in tier]
    for place, name in enumerate(known):

        def term(depth, place=place):
            pick = rng.random()
            if p.neg and pick < 0.1:
                return p.neg + term(depth)
            if p.refs and pick < 0.3:
                return rng.choice(
                    [*known[max(0, place - 3) : place + 2], "nobody"]
                    if rng.random() < 0.3
                    else known[:place] or ["7"]
                )
            if p.brackets and pick < 0.5 and depth < 2:
                return p.brackets[0] + formula(depth + 1, 2) + p.brackets[1]
            return str(rng.randint(0, 12))

        def formula(depth, size):
            gap = rng.choice([" ", ""]) if p.tight else " "
            parts = [term(depth)]
            for _ in range(size):
                parts += [gap, rng.choice(signs), gap, term(depth)]
            return "".join(parts)

        rows.append(f"{name} = {formula(0, rng.randint(1, 4))}\n")
    return "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    """Brackets are solved from the inside, tiers from the tightest on, in a list of numbers and signs."""
    import re

    lines = dict(line.split(" = ") for line in text.splitlines())
    done, signs = {}, "".join(sign for tier in p.tiers for sign in tier)

    def value(name):
        if name not in done:
            done[name] = None
            done[name] = solved(re.findall(r"[a-z]+|\d+|\S", lines[name])) if name in lines else None
        return done[name]

    def solved(items):
        while p.brackets and p.brackets[1] in items:
            end = items.index(p.brackets[1])
            begin = max(i for i in range(end) if items[i] == p.brackets[0])
            items = [*items[:begin], solved(items[begin + 1 : end]), *items[end + 1 :]]
        items = [number(x) if isinstance(x, str) else x for x in items]
        if None in items:
            return None
        while p.neg and p.neg in items:
            i = max(i for i, x in enumerate(items) if x == p.neg)
            items[i : i + 2] = [-items[i + 1]]
        for tier, right in zip(p.tiers, p.right, strict=True):
            while places := [i for i in range(1, len(items), 2) if items[i] in tier]:
                i = places[-1] if right else places[0]
                items[i - 1 : i + 2] = [SIGNS[items[i]][2](items[i - 1], items[i + 1])]
        return items[0]

    def number(item):
        return int(item) if item.isdigit() else value(item) if item.isalpha() else item

    found = ["?" if (v := value(name)) is None else v for name in lines]
    return {
        "names": list(lines),
        "values": found,
        "ops": sum(c in signs for line in lines.values() for c in line),
    }


def instruction(p):
    about = "Each line of the file is `NAME = FORMULA`: whole numbers with operators between them, spaces meaning nothing."
    signs = "; ".join(f"{sign} {SIGNS[sign][0]}" for tier in p.tiers for sign in tier)
    rules = [f"Of a on the left and b on the right, the operators give: {signs}."]
    sides = ["from right to left" if right else "from left to right" for right in p.right]
    if len(p.tiers) == 1:
        rules.append(f"They all bind equally and are worked {sides[0]}.")
    else:
        tiers = ", then ".join(
            f"{' '.join(tier)} ({side})" for tier, side in zip(p.tiers, sides, strict=True)
        )
        rules.append(f"From those that bind most tightly on: {tiers}. Those in one group bind equally.")
    if p.brackets:
        rules.append(f"What is in {' '.join(p.brackets)} is worked first.")
    if p.neg:
        rules.append(
            f"A {p.neg} before a number, a name or a bracket changes its sign, before all else; there may be several."
        )
    if p.refs:
        rules.append(
            "A name in a formula stands for the value of its line, above or below. If there is no such line, or that line has no value, or the name leads back to the line itself, directly or by other lines, the line has no value, which is printed as `?`; the same then holds for all lines that need it."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    rows = "\n".join(
        f"    {sign!r}: ({len(p.tiers) - tier}, {p.right[tier]}, lambda a, b: {SIGNS[sign][1]}),"
        for tier, signs in enumerate(p.tiers)
        for sign in signs
    )
    bracket = (
        f"    if t == {p.brackets[0]!r}:\n        v = climb(ts, 0)\n        ts.pop(0)\n        return v\n"
        if p.brackets
        else ""
    )
    neg = f"    if t == {p.neg!r}: return -atom(ts)\n" if p.neg else ""
    ref = (
        "    if t.isalpha():\n        v = value(t)\n        if v == '?': raise LookupError\n        return v\n"
        if p.refs
        else ""
    )
    head = f"""import re, sys
OPS = {{
{rows}
}}
known = dict(line.strip().split(" = ") for line in open(sys.argv[1]))
memo, busy = {{}}, []
def atom(ts):
    t = ts.pop(0)
{bracket}{neg}{ref}    return int(t)
def climb(ts, least):
    left = atom(ts)
    while ts and ts[0] in OPS and OPS[ts[0]][0] >= least:
        bind, right, work = OPS[ts.pop(0)]
        left = work(left, climb(ts, bind if right else bind + 1))
    return left
def value(n):
    if n not in known or n in busy: return "?"
    if n not in memo:
        busy.append(n)
        try: memo[n] = climb(re.findall(r"[a-z]+|\\d+|\\S", known[n]), 0)
        except LookupError: memo[n] = "?"
        busy.remove(n)
    return memo[n]
vals = [value(n) for n in known]
ops = sum(c in OPS for f in known.values() for c in f)"""
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
