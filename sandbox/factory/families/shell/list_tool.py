"""A command line tool in bash that keeps a list in a file, with subcommands, messages and exit codes.

Hard: every call is a new process, so that all there is to know stands in the file, and mistakes must leave it as it was.
"""

from sandbox.factory.kit import at, hidden, put, read, run, scratch, tidy, word, words

SKILLS = ("bash", "case", "exit codes", "awk", "sed")

# A subcommand: how people say it -> bash's body ($f the file, $@ its arguments), Python's on the list of (state, text), giving what is printed.
COMMANDS = {
    "add TEXT: appends an open item with the text, and prints its number": ('printf "open\\t%s\\n" "$*" >> "$f"; wc -l < "$f"', "add"),
    "done N: marks item N as done": ('sed -i "$1s/^open/done/" "$f"', "done"),
    "undo N: marks item N as open": ('sed -i "$1s/^done/open/" "$f"', "undo"),
    "drop N: deletes item N, so that those after it move up": ('sed -i "$1d" "$f"', "drop"),
    "list: prints all items, `N [ ] TEXT`, or `N [x] TEXT` for those that are done": ("awk -F '\\t' '{ print NR \" [\" ($1 == \"done\" ? \"x\" : \" \") \"] \" $2 }' \"$f\"", "list"),
    "open: prints the open items only, `N TEXT`": ("awk -F '\\t' '$1 == \"open\" { print NR \" \" $2 }' \"$f\"", "open"),
    "count: prints `OPEN open, DONE done` with the two numbers": ("awk -F '\\t' '{ n[$1]++ } END { print n[\"open\"] + 0 \" open, \" n[\"done\"] + 0 \" done\" }' \"$f\"", "count"),
    "top N: makes item N the first": ('{ sed -n "$1p" "$f"; sed "$1d" "$f"; } > "$f.new" && mv "$f.new" "$f"', "top"),
    "find WORD: prints the items whose text contains the word, `N TEXT`": ("w=$1 awk -F '\\t' 'index($2, ENVIRON[\"w\"]) { print NR \" \" $2 }' \"$f\"", "find"),
    "sweep: deletes all items that are done, and prints how many": ('n=$(grep -c "^done" "$f"); sed -i "/^done/d" "$f"; echo "$n"', "sweep"),
    "edit N TEXT: gives item N another text": ('n=$1; shift; t="$*" awk -v n="$n" -F \'\\t\' \'NR == n { $0 = $1 "\\t" ENVIRON["t"] } 1\' "$f" > "$f.new" && mv "$f.new" "$f"', "edit"),
    "swap N M: exchanges two items": ('awk -v n="$1" -v m="$2" \'{ a[NR] = $0 } END { t = a[n]; a[n] = a[m]; a[m] = t; for (i = 1; i <= NR; i++) print a[i] }\' "$f" > "$f.new" && mv "$f.new" "$f"', "swap"),
}  # fmt: skip
NUMBERS = {"done": 1, "undo": 1, "drop": 1, "top": 1, "edit": 1, "swap": 2}
ERRORS = {
    "a number that no item has (or what is no number): prints `no item N` (with what was given) on stderr": "no item",
    "a subcommand that is not in the list, or none: prints `usage: NAME COMMAND` (NAME the script's) on stderr": "usage",
}


def draw(rng, level):
    rest = [name for name in COMMANDS if not name.startswith(("add", "list"))]
    chosen = rng.sample(rest, min(7, 1 + level + rng.randint(0, 2)))
    return {
        "script": f"{word(rng)}.sh",
        "variable": f"{word(rng).upper()}_FILE",
        "session": f"{word(rng)}.session",
        "out": f"{word(rng)}.out",
        "commands": [name for name in COMMANDS if name in chosen or name.startswith(("add", "list"))],
        "code": rng.randint(2, 9),
        "errors": list(ERRORS)[: 1 + (level > 1)],
        "quiet": level > 2 and rng.random() < 0.5,
        "size": 6 + 4 * level,
    }


def session(rng, p, wrong):
    """Calls as lists of words."""
    names, calls, size = [name.split(":")[0].split(" ")[0] for name in p.commands], [], 0
    for number in range(p.size):
        name = rng.choice(["add", "add", *names] if number > 2 else ["add"])
        places = [
            rng.randint(1, max(1, size))
            if not wrong or rng.random() < 0.8
            else rng.choice([0, size + 1, "x", "-1"])
            for _ in "12"
        ]
        text = [f"{word(rng)} {rng.choice(['*', 'and', '  &', 'a/b'])}", *words(rng, rng.randint(0, 2))]
        arguments = list(map(str, places[: NUMBERS.get(name, 0)])) + {
            "add": text,
            "edit": text,
            "find": [rng.choice(["a", "and", "*", word(rng)[:2]])],
        }.get(name, [])
        if wrong and len(p.errors) > 1 and rng.random() < 0.1:
            name, arguments = "nothing", []
        calls.append([name, *arguments])
        # How many there will be is only guessed at, which makes for some more wrong numbers.
        size += (name == "add") - (name == "drop")
        if name == "sweep":
            size = max(0, size - 2)
    return calls


def answer(items, call, p):
    """(standard output, exit code) of a call, which changes the items."""
    name, *rest = call
    numbers = rest[: NUMBERS.get(name, 0)]
    if name == "nothing" or any(not n.isdigit() or not 1 <= int(n) <= len(items) for n in numbers):
        return "", p.code
    n = int(numbers[0]) - 1 if numbers else 0
    match name:
        case "add":
            items.append([False, " ".join(rest)])
            return str(len(items)), 0
        case "done" | "undo":
            items[n][0] = name == "done"
        case "drop":
            del items[n]
        case "top":
            items.insert(0, items.pop(n))
        case "edit":
            items[n][1] = " ".join(rest[1:])
        case "swap":
            m = int(rest[1]) - 1
            items[n], items[m] = items[m], items[n]
        case "list":
            return "\n".join(f"{i} [{'x' if x else ' '}] {t}" for i, (x, t) in enumerate(items, 1)), 0
        case "open":
            return "\n".join(f"{i} {t}" for i, (x, t) in enumerate(items, 1) if not x), 0
        case "count":
            finished = sum(x for x, _ in items)
            return f"{len(items) - finished} open, {finished} done", 0
        case "find":
            return "\n".join(f"{i} {t}" for i, (_, t) in enumerate(items, 1) if rest[0] in t), 0
        case "sweep":
            before = len(items)
            items[:] = [item for item in items if not item[0]]
            return str(before - len(items)), 0
    return "" if p.quiet else "ok", 0


def files(rng, p):
    return {p.session: script(given_session(p), f"/app/{p.script}", p)}


def given_session(p):
    from sandbox.factory.kit import given

    return session(given(p), p, False)


def script(calls, tool, p):
    lines = [" ".join(["bash", tool, *("'" + w + "'" for w in call)]) + '; echo "= $?"' for call in calls]
    return "\n".join([f"export {p.variable}=$(mktemp)", "exec 2> /dev/null", *lines]) + "\n"


def transcript(calls, p):
    items, lines = [], []
    for call in calls:
        text, code = answer(items, call, p)
        lines += [*text.split("\n")] * bool(text) + [f"= {code}"]
    return "\n".join(line.rstrip() for line in lines)


def instruction(p):
    listed = "\n".join(f"- {name}" for name in p.commands)
    errors = "; ".join(p.errors)
    silent = "print nothing" if p.quiet else "print `ok`"
    rules = f"Items are numbered from 1 on. Subcommands that do not say what they print {silent}. With a mistake, nothing changes, nothing is printed on standard output, and the exit code is {p.code}: {errors}. Words of a TEXT are joined by single spaces."
    where = f"The list is kept in the file that the variable {p.variable} names (it may not be there yet, or be empty)"
    return [
        f"Write the bash script /app/{p.script}, a tool for lists with these subcommands:\n{listed}\n\n{rules} {where}, in whatever form you like. /app/{p.session} uses it; save what `bash {p.session}` prints as /app/{p.out}.",
        f"We want to keep lists from the command line: `bash /app/{p.script} COMMAND ARGUMENTS`. {where}; its form is up to you.\n{listed}\n\n{rules} The output of /app/{p.session}, which calls the tool, belongs in /app/{p.out}.",
        f"/app/{p.session} calls a tool, /app/{p.script}, that is missing. Please write it in bash, and put the session's output into /app/{p.out}. {where}.\n{listed}\n\n{rules} Other sessions will follow.",
    ]


def solution(p):
    lines = [
        "#!/bin/bash",
        f"f=${p.variable}",
        'touch "$f"',
        "command=$1; shift",
        "check() {",
        "  for n; do",
        '    [[ $n =~ ^[0-9]+$ ]] && (( n >= 1 && n <= $(wc -l < "$f") )) && continue',
        f'    echo "no item $n" >&2; exit {p.code}',
        "  done",
        "}",
        "case $command in",
    ]
    for name in p.commands:
        body, command = COMMANDS[name]
        check = {1: 'check "$1"; ', 2: 'check "$1" "$2"; '}.get(NUMBERS.get(command, 0), "")
        lines.append(f"  {command}) {check}{body}{'; echo ok' * (command in NUMBERS and not p.quiet)} ;;")
    lines += [f'  *) echo "usage: $(basename "$0") COMMAND" >&2; exit {p.code} ;;', "esac", "exit 0"]
    return [f"head -n 6 {p.session}", put(p.script, "\n".join(lines)), f"bash {p.session} | tee {p.out}"]


def lazy(p):
    return [*solution(p), put(p.script, f"echo 1; grep -c . /app/{p.out} > ${p.variable}")]


def plays(calls, p):
    place = scratch({"session.sh": script(calls, at(p.script), p)})
    return tidy(run("bash", f"{place}/session.sh").stdout)


def test_output(p):
    assert read(p.out) == transcript(given_session(p), p)


def test_session(p):
    assert plays(given_session(p), p) == transcript(given_session(p), p)


def test_hidden_session(p):
    calls = session(hidden(p), p, False)
    assert plays(calls, p) == transcript(calls, p)


def test_hidden_mistakes(p):
    calls = session(hidden(p), p, True)
    assert plays(calls, p) == transcript(calls, p)
    done = run(
        "bash",
        "-c",
        f"{p.variable}={scratch({'list': ''})}/list bash {at(p.script)} list 7; {p.variable}=/tmp/none-{p.code} bash {at(p.script)} {'done 1' if any(c.startswith('done') for c in p.commands) else 'nothing'}",
        ok=False,
    )
    assert done.returncode == p.code and done.stderr.strip()
