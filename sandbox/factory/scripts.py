"""What families share whose answer is a program that must do its work on the next input as well.

A family of that kind has the parameters of `names`, and says three things, apart from its instruction:

    make(rng, p)      an input: the text or the bytes of a file, or the files of a folder (path -> content)
    worked(input, p)  what the program makes of it: the reference, in Python
    program(p)        the text of a program that does the same, best made in another way

`printer` makes files, solution, lazy answer and tests of these for a program that prints, `changer` for one
that changes a folder, and `questions` for several small ones, each a case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from sandbox.factory.kit import (
    Params,
    at,
    given,
    hidden,
    output,
    put,
    read,
    run,
    scratch,
    tidy,
    tree,
    words,
)

# The ending of a program -> what runs it, what it is called, and how it shows a file whatever its input.
KINDS = {
    "sh": ("bash", "bash script", "cat {}"),
    "py": ("python3", "Python program", "print(open({!r}).read())"),
    "awk": ("awk -f", "program in awk", 'END {{ while ((getline line < "{}") > 0) print line }}'),
    "sed": ("sed -E -f", "sed script", "$r {}\nd"),
}
Make = Callable[[Random, Params], Any]
Worked = Callable[[Any, Params], Any]
_TRIES = 80


def names(rng: Random, source: str = "txt", script: str = "sh", out: str = "txt") -> dict[str, str]:
    """Parameters `source` (the given input; a folder without an ending), `script` and `out`: names."""
    a, b, c = words(rng, 3)
    return {"source": f"{a}.{source}" if source else a, "script": f"{b}.{script}", "out": f"{c}.{out}"}


def solvable(rng: Random, level: int, choose: Callable, make: Make, worked: Worked) -> dict[str, Any]:
    """Parameters of `choose(rng, level)`, drawn until most inputs have a result: choices may contradict."""
    for _ in range(_TRIES):
        chosen = choose(rng, level)
        p = Params(**chosen, level=level, seed="")
        if sum(_has_result(made, worked(made, p)) for made in (make(rng, p) for _ in range(4))) >= 3:
            return chosen
    raise ValueError(f"{_TRIES} choices at level {level} have no result")


def answerable(
    rng: Random, count: int, choose: Callable[[Random], dict], make: Make, worked: Callable, **drawn: Any
) -> dict[str, Any]:
    """The parameters `drawn` with `count` cases of `choose(rng)`, no two alike, that have an answer in most
    inputs. Each case gets a script's name."""
    p, cases = Params(**drawn, seed=""), list[dict]()
    samples = [make(rng, p) for _ in range(5)]
    for _ in range(_TRIES * count):
        case = choose(rng)
        if case not in cases and sum(bool(tidy(worked(made, case, p))) for made in samples) >= 4:
            cases.append(case)
        if len(cases) == count:
            named = [
                case | {"script": f"{name}.sh"} for case, name in zip(cases, words(rng, count), strict=True)
            ]
            return drawn | {"cases": named}
    raise ValueError(f"fewer than {count} questions have an answer")


def wordings(p: Params, opens: Sequence[str], rules: Sequence[str]) -> list[str]:
    """Instructions for a program that prints, or with `p.out` "" changes a folder: each of `opens`, sentences
    that say what is needed, in several frames; `rules` become a list."""
    program, kind, _ = KINDS[p.script.rpartition(".")[2]]
    what = "file" if "." in p.source else "folder"
    listed, call = "\n".join(f"- {rule}" for rule in rules), f"{program} /app/{p.script} {what.upper()}"
    frames = _PRINT if p.out else _CHANGE
    named = {"source": p.source, "script": p.script, "out": p.out}
    return [
        frame.format(open=text, rules=listed, call=call, kind=kind, what=what, **named)
        for text in opens
        for frame in frames
    ]


_PRINT = (
    "{open}\n\n{rules}\n\nWrite the {kind} /app/{script} that prints this for the {what} named by its "
    "argument, and save its output for /app/{source} as /app/{out}. We will run it on other {what}s of "
    "that kind.",
    "{open} Please write a {kind}, /app/{script}, so that `{call}` prints the result for any such {what}:\n"
    "{rules}\n\nRun it on /app/{source}; what it prints belongs in /app/{out}.",
    "The {what} /app/{source} is one of many. {open} As this is needed again and again, let "
    "`{call}` print it:\n{rules}\n\nThe result for {source} must be in /app/{out} in the end. Other {what}s "
    "come later.",
)
_CHANGE = (
    "{open}\n\n{rules}\n\nWrite the {kind} /app/{script} that does this to the {what} named by its argument, "
    "and run it on /app/{source}. We will run it on other {what}s, too.",
    "{open} Please write a {kind}, /app/{script}, so that `{call}` does it to any such {what}:\n{rules}\n\n"
    "Then do it to /app/{source}, once.",
    "The {what} /app/{source} is one of many. {open} Do it by a {kind}, called as `{call}`:\n{rules}\n\n"
    "/app/{source} itself must have been treated once in the end. Other {what}s come later.",
)


def question_wordings(p: Params, opens: Sequence[str], asked: Sequence[str], rules: str) -> list[str]:
    """Instructions for `questions`: `asked` becomes a list; `rules`, sentences, hold for all answers."""
    what = "file" if "." in p.source else "folder"
    listed = "\n".join(f"- {line}" for line in asked)
    return [
        frame.format(open=text, asked=listed, rules=rules, what=what, argument=what.upper(), source=p.source)
        for text in opens
        for frame in _ASK
    ]


_ASK = (
    "{open} /app/{source} is such a {what}. For each line of this list write a bash script in /app that "
    "prints the answer for the {what} named by its argument:\n{asked}\n\n{rules} We will ask the same of "
    "others.",
    "{open} Please put each of these questions into a bash script, in /app, to be called as `bash NAME "
    "{argument}`, which prints the answer:\n{asked}\n\n{rules} Try them on /app/{source}; they are for any "
    "{what} of the kind.",
    "Have a look at /app/{source}. {open} The answers must come from bash scripts, named as below, that lie "
    "in /app and get the path of a {what} as their argument. {rules}\n\n{asked}\n\nWe will use them on more "
    "than this one.",
)


def printer(make: Make, worked: Worked, program: Callable[[Params], str], inputs: int = 3) -> tuple:
    """(files, solution, lazy, and four tests) of a program that prints the result for the input it is given.

    The tests: at least half of the lines that were to be saved; all of them; the program on the given input;
    and on `inputs` hidden ones.
    """

    def files(rng, p):
        return _placed(p.source, _input(rng, p, make, worked))

    def solution(p):
        look = f"head -n 5 {p.source}" if "." in p.source else f"find {p.source} -type f | head -n 20"
        return [look, put(p.script, program(p)), f"{_call(p.script)} {p.source} | tee {p.out}"]

    def lazy(p):
        return [*solution(p), put(p.script, _show(p.script, at(p.out)))]

    def wanted(p):
        return tidy(worked(_input(given(p), p, make, worked), p))

    def half(p):
        right, lines = wanted(p).split("\n"), read(p.out).split("\n")
        assert len(lines) <= 2 * len(right)
        found = 0
        for line in right:
            if line in lines:
                lines.remove(line)
                found += 1
        assert 2 * found >= len(right)

    def saved(p):
        assert read(p.out) == wanted(p)

    def printed(p):
        assert _prints(p.script, at(p.source)) == wanted(p)

    def others(p):
        rng = hidden(p)
        for _ in range(inputs):
            fresh = _input(rng, p, make, worked)
            assert _prints(p.script, _written(fresh)) == tidy(worked(fresh, p))

    return files, solution, lazy, half, saved, printed, others


def changer(make: Make, worked: Worked, program: Callable[[Params], str], inputs: int = 2) -> tuple:
    """(files, solution, lazy, and four tests) of a program that changes a folder; `worked` gives
    what it holds afterwards.

    The tests: half of what changes; the given folder; a hidden one; and `inputs` more.
    """

    def files(rng, p):
        return _placed(p.source, _input(rng, p, make, worked))

    def solution(p):
        look = f"find {p.source} -type f | head -n 20"
        return [look, put(p.script, program(p)), f"{_call(p.script)} {p.source}", look]

    def lazy(p):
        # What it makes of the given folder, and then that for every folder.
        copy = f'rm -rf "$1"/* && cp -r /app/{p.source}/. "$1"'
        if p.script.endswith(".py"):
            copy = f"import os, sys; os.system({copy!r}.replace('$1', sys.argv[1]))"
        return [*solution(p), put(p.script, copy)]

    def half(p):
        before = _bytes(_input(given(p), p, make, worked))
        after, now = _bytes(worked(_input(given(p), p, make, worked), p)), tree(p.source)
        changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        assert sum(now.get(path) == after.get(path) for path in changed) * 2 >= len(changed)

    def whole(p):
        assert tree(p.source) == _bytes(worked(_input(given(p), p, make, worked), p))

    def does(p, rng):
        before = _input(rng, p, make, worked)
        place = _written(before)
        run(*_call(p.script).split(), place)
        assert tree(place) == _bytes(worked(before, p))

    def one_more(p):
        does(p, hidden(p))

    def others(p):
        rng = hidden(p)
        _input(rng, p, make, worked)
        for _ in range(inputs):
            does(p, rng)

    return files, solution, lazy, half, whole, one_more, others


def questions(make: Make, worked: Callable, program: Callable, inputs: int = 2) -> tuple:
    """(files, solution, lazy, and two tests of each case) of small programs that each print an answer.

    A case is a dict with "script", its name; the functions are worked(input, case, p) and program(case, p).
    """

    def fresh(rng, p):
        for _ in range(_TRIES):
            made = make(rng, p)
            if all(tidy(worked(made, case, p)) for case in p.cases):
                return made
        raise ValueError(f"no input of {_TRIES} has an answer to each question")

    def files(rng, p):
        return _placed(p.source, fresh(rng, p))

    def solution(p):
        look = f"head -n 5 {p.source}" if "." in p.source else f"find {p.source} | head -n 20"
        writes = [put(case["script"], program(case, p)) for case in p.cases]
        return [look, *writes, *[f"{_call(case['script'])} {p.source}" for case in p.cases]]

    def lazy(p):
        steps = solution(p)
        for case in p.cases:
            name = case["script"]
            steps += [f"{_call(name)} {p.source} > {name}.seen", put(name, _show(name, at(f"{name}.seen")))]
        return steps

    def answer(p, case):
        assert _prints(case["script"], at(p.source)) == tidy(worked(fresh(given(p), p), case, p))

    def others(p, case):
        rng = hidden(p)
        for _ in range(inputs):
            made = fresh(rng, p)
            assert _prints(case["script"], _written(made)) == tidy(worked(made, case, p))

    return files, solution, lazy, answer, others


def _call(script: str) -> str:
    """The command that runs a program of /app, without its argument."""
    return f"{KINDS[script.rpartition('.')[2]][0]} {at(script)}"


def _show(script: str, path: str) -> str:
    return KINDS[script.rpartition(".")[2]][2].format(path)


def _prints(script: str, path: str) -> str:
    """What a program prints; where nothing is left its exit code may be that of a grep without a match."""
    return output(*_call(script).split(), path, ok=False)


def _input(rng: Random, p: Params, make: Make, worked: Worked) -> Any:
    """An input of `make` with a result that is not empty, and not the input itself."""
    for _ in range(_TRIES):
        made = make(rng, p)
        if _has_result(made, worked(made, p)):
            return made
    raise ValueError(f"no input of {_TRIES} has a result")


def _has_result(made: Any, result: Any) -> bool:
    return bool(tidy(result) if isinstance(result, str) else result) and result != made


def _placed(source: str, made: Any) -> dict[str, Any]:
    if isinstance(made, dict):
        return {f"{source}/{path}": content for path, content in made.items()}
    return {source: made}


def _written(made: Any) -> str:
    """The path of an input outside /app."""
    if isinstance(made, dict):
        return scratch({f"next/{path}": content for path, content in made.items()}) + "/next"
    return scratch({"next": made}) + "/next"


def _bytes(files: dict[str, Any]) -> dict[str, bytes]:
    return {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
