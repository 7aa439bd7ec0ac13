"""A program of several commands, some of which are wrong; the reports say what they should do.

Hard: each mistake is one expression that works for most input, and is seen only by trying the edges.
"""

from sandbox.factory.kit import PEOPLE, at, hidden, output, put, read, swap, tidy, word, words

SKILLS = ("reading programs", "Python", "sed", "testing")

# Command -> what it does, the right lines (numbers are in `xs`, words in `ws`), and mistakes: (right, wrong).
COMMANDS = {
    "median": ("prints the median of the numbers; of an even count, the lower of the middle two", """\
    xs.sort()
    print(xs[(len(xs) - 1) // 2])""", [("(len(xs) - 1) // 2", "len(xs) // 2"), ("    xs.sort()", "    xs.sort(key=str)")]),
    "range": ("prints the largest number minus the smallest", """\
    print(max(xs) - min(xs))""", [("min(xs)", "xs[0]"), ("max(xs)", "abs(max(xs))")]),
    "mean": ("prints the mean of the numbers with exactly two decimals", """\
    print(f"{sum(xs) / len(xs):.2f}")""", [("sum(xs) / len(xs)", "sum(xs) // len(xs)"), (":.2f", ":.2g")]),
    "peaks": ("prints how many numbers are larger than both neighbours; the first and the last have one neighbour", """\
    ys = [float("-inf"), *xs, float("-inf")]
    print(sum(ys[i - 1] < ys[i] > ys[i + 1] for i in range(1, len(ys) - 1)))""",
        [("ys[i - 1] < ys[i]", "ys[i - 1] <= ys[i]"), ("len(ys) - 1)", "len(ys) - 2)"), ('float("-inf"), *xs', "0, *xs")]),
    "distinct": ("prints the different words in the order of their first appearance, separated by spaces", """\
    print(*dict.fromkeys(ws))""", [("dict.fromkeys(ws)", "sorted(set(ws))"), ("fromkeys(ws)", "fromkeys(reversed(ws))")]),
    "longest": ("prints the longest word; of several, the first", """\
    print(max(ws, key=len))""", [("max(ws, key=len)", "sorted(ws, key=len)[-1]"), ("max(ws, key=len)", "max(ws)")]),
    "common": ("prints the most frequent word; of several, the first in the alphabet", """\
    print(min(set(ws), key=lambda w: (-ws.count(w), w)))""",
        [("(-ws.count(w), w)", "(-ws.count(w), ws.index(w))"), ("-ws.count(w)", "ws.count(w)")]),
    "initials": ("prints the first letters of the words, in upper case, without spaces", """\
    print("".join(w[0].upper() for w in ws))""", [("w[0].upper()", "w[0]"), ('"".join', '" ".join')]),
    "wrap": ("prints the words in lines of at most 20 characters, as many words in each as fit", """\
    line = ""
    for w in ws:
        if line and len(line) + 1 + len(w) > 20:
            print(line)
            line = ""
        line = f"{line} {w}".strip()
    print(line)""", [("len(line) + 1 + len(w) > 20", "len(line) + len(w) > 20"), ("len(w) > 20", "len(w) >= 20")]),
    "runs": ("prints the length of the longest run of equal numbers", """\
    best = now = 1
    for a, b in zip(xs, xs[1:]):
        now = now + 1 if a == b else 1
        best = max(best, now)
    print(best)""", [("now + 1 if a == b else 1", "now + 1 if a == b else now"), ("a == b", "a <= b")]),
}  # fmt: skip


def draw(rng, level):
    names = rng.sample(list(COMMANDS), min(len(COMMANDS), 4 + level))
    broken = sorted(rng.sample(names, level + 1), key=names.index)
    bugs = {name: rng.randrange(len(COMMANDS[name][2])) for name in broken}
    return {
        "program": f"{word(rng)}.py",
        "log": f"{word(rng)}.md",
        "names": names,
        "bugs": bugs,
        "cases": broken,
    }


def function(name, bug=None):
    """The source of a command, with one of its mistakes or none."""
    body = COMMANDS[name][1]
    numbers = "    xs = [int(word) for word in ws]\n" if "xs" in body else ""
    if bug is not None:
        body = body.replace(*COMMANDS[name][2][bug], 1)
    return f"def do_{name}(ws):\n{numbers}{body}\n"


def files(rng, p):
    parts = ["import sys\n", *[function(name, p.bugs.get(name)) for name in p.names]]
    manual = "".join(f"- {name}: {COMMANDS[name][0]}\n" for name in p.names)
    return {
        p.program: "\n\n".join([*parts, 'globals()["do_" + sys.argv[1]](sys.argv[2:])\n']),
        "MANUAL.md": f"python3 {p.program} COMMAND WORD-OR-NUMBER...\n\n{manual}",
    }


def instruction(p):
    few = f"{len(p.cases)} of its commands"
    note = f"Then list the names of the commands that you mended in /app/{p.log}, one a line, as the manual orders them."
    return [
        f"/app/{p.program} is a toolbox whose commands are described in /app/MANUAL.md. {few} do not do "
        "what the manual says. Find out which, and mend the program; all the others must go on as they "
        f"do. {note}",
        f"Users complain that {few} of /app/{p.program} give wrong results for some input, but cannot say "
        "which. The manual, /app/MANUAL.md, is right. Correct the program without changing anything else "
        f"that it does. {note}",
        f"Please compare /app/{p.program} with its manual /app/MANUAL.md: {few} have a mistake each. "
        f"Repair them in place. {note}",
    ]


def solution(p):
    edits = [swap(p.program, function(name, p.bugs[name]), function(name)) for name in p.cases]
    return ["cat MANUAL.md", f"cat {p.program}", *edits, put(p.log, "\n".join(p.cases))]


def lazy(p):
    return [command for command in solution(p) if p.cases[0] not in command or p.log in command]


def prints(name, bug, arguments):
    """What a command prints, as far as it comes."""
    import io
    from contextlib import redirect_stdout, suppress

    space, out = {}, io.StringIO()
    exec(function(name, bug), space)
    with redirect_stdout(out), suppress(Exception):
        space[f"do_{name}"](list(arguments))
    return tidy(out.getvalue())


def arguments(rng, name):
    low, high = rng.choice([(-60, -1), (-9, 9), (1, 120)])
    numbers = [str(rng.randint(low, high)) for _ in range(4)]
    pool = numbers if "xs" in COMMANDS[name][1] else words(rng, 5, PEOPLE)
    return [rng.choice(pool) for _ in range(rng.randint(2, 9))]


def works(p, rng, name):
    """Whether a command is right, on input on which its mistake, if it had one, shows."""
    bug, tries = p.bugs.get(name), [arguments(rng, name) for _ in range(200)]
    told = [given for given in tries if bug is None or prints(name, bug, given) != prints(name, None, given)][
        :2
    ]
    return told and all(output("python3", at(p.program), name, *x) == prints(name, None, x) for x in told)


def test_log(p):
    assert read(p.log).split("\n") == p.cases


def test_hidden_input(p, case):
    rng = hidden(p)
    assert works(p, rng, case)
    intact = [name for name in p.names if name not in p.cases]
    assert works(p, rng, rng.choice(intact))
