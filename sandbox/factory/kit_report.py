"""What families share whose task is a program that prints reports about a file.

REPORTS of such a family: name -> (what is asked, an expression of the solution's program, the reference). The
program prints a line for each name of `p.cases`: the name, a space and the value. The reference is a function
of the facts that the family works out of a file; both give text, a number, or a list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from sandbox.factory.kit import Params, at, hidden, output, put, read, scratch, words

Reports = dict[str, tuple[str, str, Callable[[Any], Any]]]
Data = Callable[[Random, Params], str]


def names(rng: Random, suffix: str) -> dict[str, str]:
    """Parameters of every such task: the files of data, program and output."""
    data, program, out = words(rng, 3)
    return {"data": f"{data}.{suffix}", "program": f"{program}.py", "out": f"{out}.txt"}


def some(rng: Random, reports: Reports, count: int) -> list[str]:
    """The names of `count` of the reports (all, where there are fewer), in any order."""
    return rng.sample(list(reports), min(count, len(reports)))


def asks(p: Params, about: str, rules: list[str], reports: Reports) -> list[str]:
    """The request in four wordings. `about` says, as a sentence, what "the file" or "such a file" has."""
    text = " ".join(rules)
    asked = "\n".join(f"- `{name}`: {reports[name][0]}" for name in p.cases)
    form = """in this order: its name, a space and the value. Several values are parted by single spaces;
    where there is none, the line is only the name."""
    return [
        f"""{about} The one at hand is /app/{p.data}. {text}

        Write a Python program /app/{p.program} that is given the path of such a file and prints one line for
        each of these, {form}
        {asked}

        Save its output for /app/{p.data} as /app/{p.out}. It will be tried on other files as well.""",
        f"""We have questions about /app/{p.data}. {about} {text}

        Please answer with a program that works for any such file, `python3 /app/{p.program} FILE`. It prints
        a line for each question, {form} The questions:
        {asked}

        Keep what it prints for /app/{p.data} in /app/{p.out}.""",
        f"""`python3 /app/{p.program} FILE` shall print a line for each item of this list, {form}
        {asked}

        {about} {text}

        Write the program, run it on /app/{p.data} and put its output into /app/{p.out}; we shall feed it
        files of our own.""",
        f"""Needed: the Python program /app/{p.program}, with the path of a file as its only argument. {about}
        {text}

        Print a line for each of the following, {form}
        {asked}

        An example of a file is /app/{p.data}; the output for that one belongs in /app/{p.out}.""",
    ]


def program(p: Params, head: str, reports: Reports) -> str:
    """The solution's program: what works out the facts, and a line that prints each report."""
    shown = "def show(name, v):\n    print(name, *(v if isinstance(v, (list, tuple)) else [v]))"
    return "\n".join([head.rstrip(), shown, *(f"show({name!r}, {reports[name][1]})" for name in p.cases)])


def steps(p: Params, source: str) -> list[str]:
    """The commands that look at the data, write the program and run it."""
    return [
        f"head -n 20 {p.data}",
        put(p.program, source),
        f"python3 {p.program} {p.data} > {p.out}",
        f"cat {p.out}",
    ]


def lazy_steps(p: Params, source: str) -> list[str]:
    """A program that only knows the answer for the data at hand."""
    return [*steps(p, source), put(p.program, f"print(open('/app/{p.out}').read())")]


def line(name: str, reports: Reports, facts: Any) -> str:
    """The line that a report should be."""
    value = reports[name][2](facts)
    values = value if isinstance(value, list | tuple) else [value]
    return " ".join(map(str, [name, *values])).rstrip()


def check_output(p: Params, reports: Reports, facts: Any) -> None:
    """The test of the output that was to be saved."""
    assert read(p.out).split("\n") == [line(name, reports, facts) for name in p.cases]


def fresh(p: Params, data: Data, count: int = 2) -> list[str]:
    """Hidden files."""
    rng = hidden(p)
    return [data(rng, p) for _ in range(count)]


_PRINTED: dict[str, list[str]] = {}


def check_report(p: Params, name: str, text: str, reports: Reports, facts: Any) -> None:
    """The test of one report of the program for one file: the program runs once for all the reports."""
    if text not in _PRINTED:
        path = scratch({"next/data": text}) + "/next/data"
        _PRINTED[text] = output("python3", at(p.program), path).split("\n")
    printed = _PRINTED[text]
    assert len(printed) == len(p.cases), f"{len(printed)} lines, expected {len(p.cases)}"
    assert printed[p.cases.index(name)] == line(name, reports, facts)
