"""An interpreter for a small stack language, which must run any program of it.

Hard: the order of operands, jumps, errors in the middle of a run, and the shape of what is reported.
"""

from sandbox.factory.kit import given, word, words
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

SKILLS = ("interpreters", "stacks", "Python", "parsing")

# Instruction -> operands it takes off, what people read (a is below b), the solution's expression, the reference's.
WORDS = {
    "add": (2, "a + b", "[a + b]", lambda a, b: [a + b]),
    "sub": (2, "a - b", "[a - b]", lambda a, b: [a - b]),
    "rsub": (2, "b - a", "[b - a]", lambda a, b: [b - a]),
    "mul": (2, "a * b", "[a * b]", lambda a, b: [a * b]),
    "max": (2, "the larger of a and b", "[max(a, b)]", lambda a, b: [a if a > b else b]),
    "min": (2, "the smaller of a and b", "[min(a, b)]", lambda a, b: [b if a > b else a]),
    "swap": (2, "b, then a on top of it", "[b, a]", lambda a, b: [b, a]),
    "over": (2, "a, then b, then a again on top", "[a, b, a]", lambda a, b: [a, b, a]),
    "dup": (1, "a twice", "[a, a]", lambda a: [a] * 2),
    "neg": (1, "-a", "[-a]", lambda a: [0 - a]),
    "drop": (1, "nothing", "[]", lambda a: []),
    "sq": (1, "a times a", "[a * a]", lambda a: [a**2]),
    "half": (1, "a divided by 2, rounded down", "[a // 2]", lambda a: [a >> 1]),
    "abs": (1, "a without its sign", "[abs(a)]", lambda a: [max(a, -a)]),
    "less": (2, "1 if a is less than b, else 0", "[int(a < b)]", lambda a, b: [1 if b > a else 0]),
    "same": (2, "1 if a and b are equal, else 0", "[int(a == b)]", lambda a, b: [0 if b - a else 1]),
}  # fmt: skip
REPORTS = {
    "output": ("all that was printed by `out`", "out", lambda f: f["out"]),
    "stack": ("the stack after the run, from the bottom to the top", "st", lambda f: f["stack"]),
    "depth": ("the largest number of values that were on the stack after any instruction", "deep", lambda f: f["deep"]),
    "steps": ("how many instructions were carried out (one that ends in an error is not)", "ran", lambda f: f["ran"]),
    "status": ("`ok`, or `error N`, with the number of the line that could not be carried out, counted from 1", "err", lambda f: f["error"]),
    "sum": ("the sum of the values on the stack after the run", "sum(st)", lambda f: sum(f["stack"])),
    "used": ("the different words of the instructions that were carried out (the first words of their lines), in alphabetical order", "sorted(seen)", lambda f: sorted(f["seen"])),
    "top": ("the top of the stack after the run, `-` if it is empty", "st[-1] if st else '-'", lambda f: [*"-", *f["stack"]][-1]),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "prog"),
        "words": rng.sample(list(WORDS), 4 + (level + 1) // 2),
        "cases": some(rng, REPORTS, 2 + level // 2),
        "vars": level > 1,
        "jumps": level > 2,
        "notes": rng.choice(["#", ";", "//"]) if level > 1 and rng.random() < 0.7 else "",
        "limit": rng.choice([40, 60]),
        "size": 8 + 4 * level,
    }


def data(rng, p):
    names = words(rng, 2)
    rows, depth = [f"push {rng.randint(-9, 9)}" for _ in range(3)], 3
    for _ in range(p.size):
        pick = rng.random()
        if pick < 0.3:
            rows.append(f"push {rng.randint(-9, 20)}")
            depth += 1
        elif pick < 0.4:
            rows.append("out")
            depth -= 1
        elif p.vars and pick < 0.55:
            rows.append(f"{rng.choice(['set', 'get', 'get'])} {rng.choice(names)}")
            depth += -1 if rows[-1][0] == "s" else 1
        elif p.jumps and pick < 0.65:
            rows.append(f"jump {rng.choice([-3, 2, 2, 3])}")
            depth -= 1
        else:
            name = rng.choice([n for n in p.words if WORDS[n][0] <= depth] or p.words)
            rows.append(name)
            depth += len(WORDS[name][3](*[1] * WORDS[name][0])) - WORDS[name][0]
        if depth < 1 and rng.random() < 0.9:
            rows.append(f"push {rng.randint(1, 9)}")
            depth += 1
    if p.notes:
        for _ in range(3):
            rows.insert(rng.randrange(len(rows)), rng.choice(["", f"{p.notes} {word(rng)}"]))
    return "\n".join(rows) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    code = [line.split() for line in text.splitlines()]
    f = {"out": [], "stack": [], "deep": 0, "ran": 0, "error": "ok", "seen": set()}
    place, names, stack = 0, {}, f["stack"]
    while 0 <= place < len(code):
        if not code[place] or (p.notes and code[place][0].startswith(p.notes)):
            place += 1
            continue
        name, *rest = code[place]
        takes = WORDS[name][0] if name in WORDS else {"push": 0, "get": 0}.get(name, 1)
        if (
            len(stack) < takes
            or (name == "get" and rest[0] not in names)
            or (p.jumps and f["ran"] == p.limit)
        ):
            f["error"] = f"error {place + 1}"
            break
        values = [stack.pop() for _ in range(takes)][::-1]
        step = 1
        match name:
            case "push":
                stack.append(int(rest[0]))
            case "out":
                f["out"] += values
            case "set":
                names[rest[0]] = values[0]
            case "get":
                stack.append(names[rest[0]])
            case "jump":
                step = int(rest[0]) if values[0] > 0 else 1
            case _:
                stack += WORDS[name][3](*values)
        f["ran"] += 1
        f["seen"].add(name)
        f["deep"] = max(f["deep"], len(stack))
        place += step
    return f


def instruction(p):
    takes = "; ".join(
        f"{n} ({'ab'[: WORDS[n][0]] if WORDS[n][0] == 1 else 'a, b'}): {WORDS[n][1]}" for n in p.words
    )
    about = "The file is a program for a stack of whole numbers, with an instruction on each line."
    rules = [
        "`push N` puts N on the stack; `out` takes the top off and prints it. The following take off the top, called a, or the top two, called a and b, "
        f"where b was the top, and put on the stack what is after the colon: {takes}."
    ]
    if p.vars:
        rules.append(
            "`set NAME` takes the top off and keeps it under the name, `get NAME` puts what is kept there on the stack."
        )
    if p.jumps:
        rules.append(
            f"`jump N` takes the top off; if it was above zero, the run goes on N lines further down (further up, if N is negative), else with the next line. When {p.limit} instructions have been carried out, the next one is an error."
        )
    rules.append(
        "The program ends after its last line"
        + (", or by a jump to a line that does not exist." if p.jumps else ".")
    )
    rules.append(
        "An instruction that needs more values than there are"
        + (", or a name without a value," if p.vars else "")
        + " is an error: the run ends, with stack and output as they were before it."
    )
    if p.notes:
        rules.append(
            f"Lines that begin with {p.notes} and empty lines are skipped and no instructions, but they are counted as lines."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    table = "\n".join(
        f"    {n!r}: ({WORDS[n][0]}, lambda {'ab'[: WORDS[n][0]] if WORDS[n][0] == 1 else 'a, b'}: {WORDS[n][2]}),"
        for n in p.words
    )
    names = """            elif op == "set": kept[arg[0]] = pop()
            elif op == "get": st.append(kept[arg[0]])
""" if p.vars else ""  # fmt: skip
    jump = """            elif op == "jump": go = int(arg[0]) if pop() > 0 else 1
""" if p.jumps else ""  # fmt: skip
    limit = f"            if ran == {p.limit}: raise IndexError\n" if p.jumps else ""
    skip = f" and not lines[pc].startswith({p.notes!r})" if p.notes else ""
    head = f"""import sys
OPS = {{
{table}
}}
lines = open(sys.argv[1]).read().splitlines()
st, out, kept, seen = [], [], {{}}, set()
pc = deep = ran = 0
err = "ok"
pop = lambda: st.pop()
while 0 <= pc < len(lines):
    go = 1
    if lines[pc].split(){skip}:
        op, *arg = lines[pc].split()
        old = st[:]
        try:
{limit}            if op == "push": st.append(int(arg[0]))
            elif op == "out": out.append(pop())
{names}{jump}            else:
                args = [pop() for _ in range(OPS[op][0])]
                st += OPS[op][1](*args[::-1])
        except LookupError:
            st, err = old, f"error {{pc + 1}}"
            break
        seen.add(op)
        ran += 1
        deep = max(deep, len(st))
    pc += go"""
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
