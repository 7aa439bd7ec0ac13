"""A bash script that filters lines by options, in any combination that people may give.

Hard: options combine, and the order in which they work is not the order in which they are given.
"""

from sandbox.factory.kit import at, given, hidden, output, put, read, run, scratch, tidy, word, words

SKILLS = ("bash", "getopts", "text filters", "exit codes")

# In the order in which they work: name -> (argument, what it does, the stage of a pipeline, Python's).
OPTIONS = {
    "x": (
        "WORD",
        "leaves out lines that contain WORD",
        'grep -vF -- "$x"',
        lambda t, a: [s for s in t if a not in s],
    ),
    "k": (
        "WORD",
        "keeps only lines that begin with WORD",
        "awk -v w=\"$k\" 'index($0, w) == 1'",
        lambda t, a: [s for s in t if s.startswith(a)],
    ),
    "f": (
        "N",
        "keeps only the first N words of each line",
        'cut -d " " -f "1-$f"',
        lambda t, a: [" ".join(s.split(" ")[: int(a)]) for s in t],
    ),
    "l": ("", "makes all letters lower case", "tr A-Z a-z", lambda t, a: [s.lower() for s in t]),
    "s": ("", "sorts the lines in byte order", "LC_ALL=C sort", lambda t, a: sorted(t)),
    "u": (
        "",
        "leaves out lines that repeat the line before",
        "uniq",
        lambda t, a: [s for i, s in enumerate(t) if not i or t[i - 1] != s],
    ),
    "r": ("", "turns the order of the lines round", "tac", lambda t, a: t[::-1]),
    "m": ("N", "keeps at most N lines", 'head -n "$m"', lambda t, a: t[: int(a)]),
    "n": (
        "",
        "puts the number of the line and a colon before each line, from 1 on",
        "awk '{ print NR \":\" $0 }'",
        lambda t, a: [f"{i}:{s}" for i, s in enumerate(t, 1)],
    ),
    "p": (
        "WORD",
        "puts WORD and a space before each line",
        'sed "s/^/$p /"',
        lambda t, a: [f"{a} {s}" for s in t],
    ),
    "c": ("", "prints nothing but the number of lines", "awk 'END { print NR }'", lambda t, a: [str(len(t))]),
}
ERRORS = {
    "an option that is not in the list": "-Z",
    "an argument that is no option": "stray",
}


def draw(rng, level):
    names = rng.sample(list(OPTIONS), min(len(OPTIONS), 2 + level))
    return {
        "script": f"{word(rng)}.sh",
        "text": f"{word(rng)}.txt",
        "out": f"{word(rng)}.out",
        "options": [name for name in OPTIONS if name in names],
        "input": rng.choice(["standard input", "the file that -i FILE names"])
        if level > 2
        else "standard input",
        "errors": sorted(rng.sample(list(ERRORS), level // 2)) if level < 5 else sorted(ERRORS),
        "code": rng.choice([2, 3, 64]),
        "stop": level > 3 and rng.random() < 0.6,
    }


def files(rng, p):
    return {p.text: lines(rng)}


def lines(rng):
    pool = words(rng, 5)
    made = [
        " ".join(rng.choice([str.title, str])(rng.choice(pool)) for _ in range(rng.randint(1, 4)))
        for _ in range(10)
    ]
    return "".join(f"{line}\n" * rng.choice([1, 1, 2]) for line in made)


def use(rng, p, text, count):
    """Options, in any order, with arguments that matter for `text`: [(name, argument)]."""
    chosen = rng.sample(p.options, min(count, len(p.options)))
    arguments = {"WORD": text.split()[0], "N": str(rng.randint(1, 3)), "": ""}
    return [(name, arguments[OPTIONS[name][0]]) for name in chosen]


def result(text, options, p):
    rows = text.splitlines()
    for name, argument in sorted(options, key=lambda option: p.options.index(option[0])):
        rows = OPTIONS[name][3](rows, argument)
    return tidy("\n".join(rows))


def words_of(options):
    return [part for name, argument in options for part in (f"-{name}", argument) if part]


def example(p):
    """The call whose output the task wants."""
    return use(given(p), p, lines(given(p)), 3)


def instruction(p):
    listed = "\n".join(
        f"- -{n}{' ' * bool(OPTIONS[n][0])}{OPTIONS[n][0]}: {OPTIONS[n][1]}" for n in p.options
    )
    source = (
        "standard input"
        if p.input == "standard input"
        else "the file that the option -i FILE names, else standard input,"
    )
    errors = (
        f" For {' or '.join(p.errors)} it prints one line on standard error and nothing else, and exits "
        f"with {p.code}."
        if p.errors
        else ""
    )
    stop = " The argument -- may end the options." if p.stop else ""
    rules = f"Options may come in any order and work in the order of this list:\n{listed}\n\nIts exit code is 0, also where no line is left.{errors}{stop}"
    call = " ".join(words_of(example(p)))
    return [
        f"Write the bash script /app/{p.script}, which reads lines from {source} and prints them, changed "
        f"by its options. {rules}\n\nSave what it prints for the options {call} and the text in "
        f"/app/{p.text} as /app/{p.out}.",
        f"We need a filter for lines of text, /app/{p.script}, in bash: from {source} to standard output. "
        f"{rules}\n\nPut the result for /app/{p.text} with {call} into /app/{p.out}.",
        f"Make a bash script /app/{p.script} with these options. It copies lines from {source} to "
        f"standard output. {rules}\n\nTry it on /app/{p.text} with {call}, and keep the output in "
        f"/app/{p.out}.",
    ]


def program(p):
    takes = [name + ":" * bool(OPTIONS[name][0]) for name in p.options] + ["i:"] * (
        p.input != "standard input"
    )
    fail = f"{{ echo 'wrong usage' >&2; exit {p.code}; }}"
    cases = [
        f"    {name}) {name}=${{OPTARG:-1}} ;;"
        for name in [*p.options, *["i"] * (p.input != "standard input")]
    ]
    unknown = [f"    *) {fail} ;;"] if any("not in the list" in error for error in p.errors) else []
    stray = [f"[ $# = 0 ] || {fail}"] if any("argument" in error for error in p.errors) else []
    functions = [f"do_{name}() {{ {OPTIONS[name][2]}; true; }}" for name in p.options]
    chain = " | ".join(f'if [ -n "${name}" ]; then do_{name}; else cat; fi' for name in p.options)
    return "\n".join([
        "#!/bin/bash", *functions, f"while getopts :{''.join(takes)} option; do", "  case $option in", *cases, *unknown,
        "  esac", "done", "shift $((OPTIND - 1))", *stray,
        *(['[ -z "$i" ] || exec < "$i"'] if p.input != "standard input" else []), chain,
    ])  # fmt: skip


def solution(p):
    call = f"bash {p.script} {' '.join(words_of(example(p)))}"
    return [f"head {p.text}", put(p.script, program(p)), f"{call} < {p.text} > {p.out}", f"cat {p.out}"]


def lazy(p):
    return [*solution(p), f"echo 'cat /app/{p.out}' > {p.script}"]


def test_output(p):
    assert read(p.out) == result(lines(given(p)), example(p), p)


def test_hidden_single_options(p):
    rng = hidden(p)
    for name in p.options:
        text = lines(rng)
        options = [option for option in use(rng, p, text, 9) if option[0] == name]
        assert output("bash", at(p.script), *words_of(options), stdin=text) == result(text, options, p), name


def test_hidden_combinations(p):
    rng = hidden(p)
    for _ in range(5):
        text = lines(rng)
        options = use(rng, p, text, 4)
        end = ["--"] if p.stop else []
        assert output("bash", at(p.script), *words_of(options), *end, stdin=text) == result(text, options, p)


def test_hidden_input_and_errors(p):
    text = lines(hidden(p))
    if p.input == "standard input":
        assert output("bash", at(p.script), stdin=text) == tidy(text)
    else:
        assert output("bash", at(p.script), "-i", scratch({"in": text}) + "/in") == tidy(text)
    for error in p.errors:
        done = run("bash", at(p.script), ERRORS[error], stdin=text, ok=False)
        assert done.returncode == p.code and done.stderr.strip() and not done.stdout
