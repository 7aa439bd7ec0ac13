"""A program that looks keys up with a tool whose calls are dear, and must make as few calls as can be.

Hard: keys repeat, differ in case, are unknown or were looked up in an earlier run, and each rule saves calls in its own way.
"""

import os

from sandbox.factory.kit import PEOPLE, at, given, hidden, output, put, read, scratch, tidy, word, words

SKILLS = ("performance", "caching", "batching", "Python", "subprocess")

TERMS = {
    "fold": "Keys that differ only in upper and lower case are the same; the tool is asked for them in lower case, and lines are printed with the key as FILE has it.",
    "cache": "What was found is kept in /app/{cache}, in any form, and a key that was found is not asked for again in later runs; a key that was not found is asked for again.",
    "never": "Keys that begin with {sign} are unknown to the tool in any case, so it is not asked for them.",
    "busy": "When the tool exits with 9, it was busy and printed nothing: the same call is made again, until it exits with another code.",
    "order": "In each call, the keys are given in byte order, and no key of a call comes before one of an earlier call in that order.",
    "total": "At the end, a line `total N` is printed, with the sum of the values of all lines before.",
    "limit": "A call may have at most {most} keys; with more, the tool fails.",
    "short": "Reading ends at a line that is just `end`, if there is one, and neither it nor what follows counts.",
}  # fmt: skip


def draw(rng, level):
    terms = rng.sample(list(TERMS), min(len(TERMS), 1 + level))
    return {
        "program": f"{word(rng)}.py",
        "keys": f"{word(rng)}.txt",
        "out": f"{word(rng)}.out",
        "cache": f"{word(rng)}.cache",
        "cases": [name for name in TERMS if name in terms],
        "most": rng.choice([3, 4, 5]),
        "sign": rng.choice(["#", "_", "~"]),
        "unknown": rng.choice(["-", "?", "unknown"]),
        "form": rng.choice(["KEY VALUE", "KEY=VALUE", "VALUE KEY"]),
    }


def values(rng):
    return {name: rng.randint(1, 99) for name in words(rng, 12, PEOPLE)}


def tool(known, busy=""):
    """The tool: it notes each call beside itself."""
    cases = "".join(f"    {key}) echo '{key} {value}' ;;\n" for key, value in known.items())
    return f'#!/bin/bash\n# Prints KEY VALUE for each of its arguments that it knows.\necho "$*" >> "$0.calls"\n{busy}for key; do\n  case $key in\n{cases}  esac\ndone\nexit 0\n'


def listing(rng, p, known):
    pool = [
        *rng.sample(sorted(known), 9),
        *words(rng, 3),
        *(f"{p.sign}{n}" for n in words(rng, 2) if "never" in p.cases),
    ]
    lines = [rng.choice(pool) for _ in range(22)]
    if "fold" in p.cases:
        lines = [rng.choice([key, key.upper(), key.title()]) for key in lines]
    if "short" in p.cases and rng.random() < 0.7:
        lines.insert(18, "end")
    return "".join(f"{key}\n" for key in lines)


def files(rng, p):
    known = values(rng)
    return {"lookup.sh": tool(known), p.keys: listing(rng, p, known)}


def instruction(p):
    terms = "\n".join(f"- {TERMS[name].format(**vars(p))}" for name in p.cases)
    form = p.form.replace("VALUE", p.unknown)
    text = f"TOOL is a bash script that is called with keys as arguments, each of them once, and prints a line `KEY VALUE` for each key that it knows, in any order. FILE has a key a line, many of them several times. The program prints a line `{p.form}` for each line of FILE, in its order, and `{form}` where the tool does not know the key. Each call of the tool is dear: there must be as few as the rules allow, none without keys, and no key is asked for twice in a run"
    return [
        f"Write the Python program /app/{p.program}, called as `python3 {p.program} TOOL FILE`. {text}. Moreover:\n{terms}\n\nSave its output for /app/lookup.sh and /app/{p.keys} as /app/{p.out}.",
        f"`python3 /app/{p.program} TOOL FILE` shall look up many keys with few calls. {text}. These rules hold, too:\n{terms}\n\nPlease write it, and put what it prints for the tool /app/lookup.sh and the file /app/{p.keys} into /app/{p.out}; we shall use other tools and files.",
        f"Looking up every line on its own costs us too much, so we need /app/{p.program}, in Python, with the arguments TOOL and FILE. {text}. Besides:\n{terms}\n\nRun it with /app/lookup.sh on /app/{p.keys}, and keep the output in /app/{p.out}.",
    ]


def program(p):
    has = p.cases.__contains__
    key = "line.lower()" if has("fold") else "line"
    lines = ["import json, os, subprocess, sys", "lines = open(sys.argv[2]).read().split('\\n')[:-1]"]
    lines += ["if 'end' in lines: lines = lines[:lines.index('end')]"] * has("short")
    lines += ["found = {}"]
    lines += [f"if os.path.exists('/app/{p.cache}'): found = json.load(open('/app/{p.cache}'))"] * has(
        "cache"
    )
    lines += [
        f"todo = list(dict.fromkeys(k for line in lines if (k := {key}) not in found{f' and k[0] != {p.sign!r}' * has('never')}))"
    ]
    lines += ["todo.sort()"] * has("order")
    size = p.most if has("limit") else "len(todo)"
    lines += [
        "while todo:",
        f"    now, todo = todo[:{size}], todo[{size}:]",
        "    done = subprocess.run(['bash', sys.argv[1], *now], capture_output=True, text=True)",
    ]
    lines += [
        "    while done.returncode == 9: done = subprocess.run(['bash', sys.argv[1], *now], capture_output=True, text=True)"
    ] * has("busy")
    lines += [
        "    found.update(row.split() for row in done.stdout.splitlines())",
        "total = 0",
        "for line in lines:",
        f"    v = found.get({key}, {p.unknown!r})",
    ]
    shown = p.form.replace("KEY", "{line}").replace("VALUE", "{v}")
    lines += [f"    total += 0 if v == {p.unknown!r} else int(v)", f"    print(f'{shown}')"]
    lines += ["print('total', total)"] * has("total") + [
        f"json.dump(found, open('/app/{p.cache}', 'w'))"
    ] * has("cache")
    return "\n".join(lines)


def solution(p):
    return [
        "cat lookup.sh",
        f"head -n 8 {p.keys}",
        put(p.program, program(p)),
        f"python3 {p.program} lookup.sh {p.keys} > {p.out}",
        "cat lookup.sh.calls",
    ]


def lazy(p):
    """A call for every line."""
    slow = "import subprocess, sys\nfor line in open(sys.argv[2]):\n    k = line.strip()\n    v = subprocess.run(['bash', sys.argv[1], k], capture_output=True, text=True).stdout.split()\n"
    shown = p.form.replace("KEY", "{k}").replace(
        "VALUE", "{(v + [0, 0])[1] if v else " + repr(p.unknown) + "}"
    )
    return [*solution(p), put(p.program, f'{slow}    print(f"{shown}")')]


def counted(text, p):
    lines = text.splitlines()
    return lines[: lines.index("end")] if "short" in p.cases and "end" in lines else lines


def expected(text, known, p):
    lines, total = [], 0
    for key in counted(text, p):
        value = known.get(key.lower() if "fold" in p.cases else key)
        total += value or 0
        lines.append(p.form.replace("KEY", key).replace("VALUE", p.unknown if value is None else str(value)))
    return "\n".join(lines + [f"total {total}"] * ("total" in p.cases))


RUNS: list = []


def runs(p):
    """Two runs with a hidden tool, made once: (text of the file, what was printed, the calls) of each, and what the tool knows."""
    if not RUNS:
        rng = hidden(p)
        known = values(rng)
        busy = '[ -e "$0.free" ] || { touch "$0.free"; exit 9; }\n' if "busy" in p.cases else ""
        texts = [listing(rng, p, known) for _ in range(2)]
        folder = scratch({"t": tool(known, busy), "1": texts[0], "2": texts[1]})
        if os.path.exists(at(p.cache)):
            os.remove(at(p.cache))
        for number, text in enumerate(texts, 1):
            printed = output("python3", at(p.program), f"{folder}/t", f"{folder}/{number}")
            calls = read(f"{folder}/t.calls").split("\n") if os.path.exists(f"{folder}/t.calls") else []
            if calls:
                os.remove(f"{folder}/t.calls")
            RUNS.append((text, printed, [call.split() for call in calls if call], known))
    return RUNS


def wanted(p):
    """The keys that must be asked for, in each run."""
    seen: set = set()
    for text, _, _, known in runs(p):
        keys = {key.lower() if "fold" in p.cases else key for key in counted(text, p)}
        keys = {key for key in keys if not ("never" in p.cases and key[0] == p.sign)} - seen
        seen |= {key for key in keys if key in known} if "cache" in p.cases else set()
        yield keys


def test_output(p):
    rng = given(p)
    known = values(rng)
    assert read(p.out) == tidy(expected(listing(rng, p, known), known, p))


def test_hidden_lines(p):
    for text, printed, _, known in runs(p):
        assert printed == tidy(expected(text, known, p))


def test_hidden_calls(p):
    """As few as can be, and each key once."""
    for (_, _, calls, _), keys, first in zip(runs(p), wanted(p), (True, False), strict=True):
        again = "busy" in p.cases and first
        assert not again or calls[0] == calls[1]
        calls = calls[again:]
        most = p.most if "limit" in p.cases else max(1, len(keys))
        assert sorted(key for call in calls for key in call) == sorted(keys) and len(calls) == -(
            -len(keys) // most
        )


def test_hidden_term(p, case):
    text, printed, calls, known = runs(p)[1]
    first, keys = runs(p)[0][2], list(wanted(p))
    assert first and printed
    if case == "limit":
        assert all(len(call) <= p.most for call in first + calls)
    elif case == "order":
        asked = [key for call in calls for key in call]
        assert asked == sorted(asked) and len(asked) == len({*asked}) == len(keys[1])
    elif case == "busy":
        assert first[0] == first[1:][0] and first.count(first[0]) == 2
    elif case == "total":
        assert printed.split("\n")[-1] == expected(text, known, p).split("\n")[-1]
    elif case == "cache":
        assert {key for call in calls for key in call} == keys[1]
    else:
        assert {key for call in calls + first for key in call} == keys[0] | keys[1]
