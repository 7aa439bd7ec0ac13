"""A bash script that runs any command until it succeeds, under the terms of a service that needs it.

Hard: the command's words, output, input and exit code must come through unharmed, for each attempt.
"""

import os

from sandbox.factory.kit import at, hidden, put, read, run, scratch, tidy, word

SKILLS = ("bash", "exit codes", "temporary folders", "redirection", "loops")

TERMS = {
    "stop": "An attempt that exits with {fatal} is the last one: the script exits with {fatal} at once.",
    "log": "After each attempt it appends a line `ATTEMPT CODE` to /app/{log}: the number of the attempt, from 1 on, and its exit code.",
    "quiet": "Of the standard output of the attempts, only that of the last one is printed; it goes to standard output.",
    "number": "The command finds the number of the attempt, from 1 on, in its environment, as {variable}.",
    "input": "Each attempt reads the whole standard input of the script, from its beginning.",
    "folder": "Each attempt runs in a new empty folder of its own, and the script leaves none of these folders behind.",
    "report": "When all attempts have failed, it prints `{report} ATTEMPTS`, with their number, as a line on standard error.",
}  # fmt: skip
CODES = {
    "that of the last attempt": ("code", lambda codes: codes[-1]),
    "that of the first attempt": ("first", lambda codes: codes[0]),
    "the largest of the attempts' exit codes": ("largest", max),
    "the smallest of the attempts' exit codes": ("smallest", min),
}
CALL = "bash /app/flaky.sh 'two words' '*'"
# Prints, fails as the file of codes says, and notes what it saw.
PROBE = """\
n=$(($(cat "$1/count" 2> /dev/null || echo 0) + 1))
echo $n > "$1/count"
echo "attempt $n"
echo "$2|$NUMBER|$(tr '\\n' ' ')|$(ls -A | wc -l)" >> "$1/seen"
pwd >> "$1/folders"
touch left-over
exit "$(sed -n "${n}p" "$1/codes")"
"""


def draw(rng, level):
    terms = rng.sample(list(TERMS), min(len(TERMS), 1 + level))
    return {
        "script": f"{word(rng)}.sh",
        "out": f"{word(rng)}.txt",
        "log": f"{word(rng)}.log",
        "cases": [name for name in TERMS if name in terms],
        "tries": rng.randint(3, 6),
        "option": level > 2 and rng.random() < 0.6,
        "code": rng.choice(list(CODES)),
        "fatal": rng.choice([64, 75, 99]),
        "variable": rng.choice(["ATTEMPT", "TRY", "ROUND"]),
        "report": rng.choice(["gave up after", "failed attempts:"]),
    }


def files(rng, p):
    return {
        "flaky.sh": "#!/bin/bash\n# Fails twice, then succeeds.\ncount=/tmp/flaky.count\necho >> $count\n"
        'n=$(wc -l < $count)\necho "call $n: $*"\n[ $n -lt 3 ] && exit 7\nrm $count\n'
    }


def instruction(p):
    terms = "\n".join(f"- {TERMS[name].format(**vars(p))}" for name in p.cases)
    tries = (
        f"{p.tries} times, or N times where the script's first two arguments are -n N"
        if p.option
        else f"{p.tries} times"
    )
    failed = f"Its exit code is 0 after a success; when all attempts have failed, it is {p.code}. There is no pause between attempts."
    return [
        f"Write the bash script /app/{p.script}. Its arguments are a command and the arguments of that command, which it runs until it "
        f"exits with 0, at most {tries}. {failed} Also:\n{terms}\n\nThen run `bash {p.script} {CALL}` in /app and save its standard output as /app/{p.out}.",
        f"A service fails now and then, so we call it through a wrapper, `bash /app/{p.script} COMMAND ARGUMENT...`, which you are to write. "
        f"It repeats the command until its exit code is 0, but runs it at most {tries}. {failed} These terms hold:\n{terms}\n\n"
        f"Use it in /app for the command {CALL}, and put the standard output into /app/{p.out}.",
        f"We need a retry script in bash, /app/{p.script}, that is given a command with arguments and runs it again and again, at most {tries}, "
        f"until it succeeds. {failed} Besides:\n{terms}\n\nKeep its standard output for {CALL}, run in /app, in /app/{p.out}.",
    ]  # fmt: skip


def program(p):
    has = p.cases.__contains__
    lines = ["#!/bin/bash", f"tries={p.tries}"]
    lines += ['if [ "$1" = -n ]; then tries=$2; shift 2; fi'] * p.option
    if has("input") or has("quiet"):
        lines += ["work=$(mktemp -d)", "trap 'rm -rf \"$work\"' EXIT"]
    lines += ['cat > "$work/in"'] * has("input")
    lines += ["for ((n = 1; n <= tries; n++)); do"]
    lines += [f"  export {p.variable}=$n"] * has("number")
    call = '"$@"' + ' < "$work/in"' * has("input") + ' > "$work/out"' * has("quiet")
    lines += (
        ["  folder=$(mktemp -d)", f'  (cd "$folder" && {call})', "  code=$?", '  rm -rf "$folder"']
        if has("folder")
        else [f"  {call}", "  code=$?"]
    )
    lines += [f'  echo "$n $code" >> /app/{p.log}'] * has("log")
    lines += {
        "code": [],
        "first": ["  first=${first:-$code}"],
        "largest": ["  [ $code -gt ${largest:-0} ] && largest=$code"],
        "smallest": ["  [ $code -lt ${smallest:-256} ] && smallest=$code"],
    }[CODES[p.code][0]]
    ends = ["[ $code = 0 ]"] + [f"[ $code = {p.fatal} ]"] * has("stop")
    leave = '{ cat "$work/out"; exit $code; }' if has("quiet") else "exit $code"
    lines += [f"  if {' || '.join(ends)}; then {leave.strip('{ }').rstrip(';')}; fi", "done"]
    lines += ['cat "$work/out"'] * has("quiet")
    lines += [f'echo "{p.report} $tries" >&2'] * has("report")
    return "\n".join([*lines, f"exit ${CODES[p.code][0]}"])


def solution(p):
    return [
        "cat flaky.sh",
        put(p.script, program(p)),
        f"bash {p.script} {CALL} < /dev/null > {p.out}",
        f"cat {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo 'cat /app/{p.out}' > {p.script}"]


def expected(codes, tries, p):
    """The exit codes of the attempts that are made, and the script's own."""
    made = []
    for code in codes[:tries]:
        made.append(code)
        if code == 0 or (code == p.fatal and "stop" in p.cases):
            return made, code
    return made, CODES[p.code][1](made)


def play(rng, p, codes):
    """Runs the script on the probe: (what it did, the probe's folder, the attempts' codes, its own code)."""
    tries = rng.randint(2, 7) if p.option else p.tries
    made, code = expected(codes, tries, p)
    folder = scratch(
        {"probe": PROBE.replace("NUMBER", p.variable), "codes": "".join(f"{c}\n" for c in codes)}
    )
    option = ["-n", str(tries)] if p.option else []
    command = ["bash", f"{folder}/probe", folder, "two  words *"]
    if os.path.exists(at(p.log)):
        os.remove(at(p.log))
    done = run(
        "bash", at(p.script), *option, *command, stdin="some\ninput\n", cwd=scratch({"x": ""}), ok=False
    )
    return done, folder, made, code, read(p.log) if os.path.exists(at(p.log)) else ""


PLAYS: list = []


def plays(p):
    """Success at once and later, a fatal code, and failure for good: played once for all the tests."""
    if not PLAYS:
        PLAYS.extend(play_all(hidden(p), p))
    return PLAYS


def play_all(rng, p):
    bad = [code for code in range(1, 60) if code != p.fatal]
    some = rng.sample(bad, 8)
    yield play(rng, p, [0, *some])
    yield play(rng, p, [some[0], 0, *some])
    yield play(rng, p, [some[1], p.fatal, 0, *some])
    yield play(rng, p, some)


def test_output(p):
    lines = [f"call {n}: two words *" for n in (1, 2, 3)]
    assert read(p.out) == "\n".join(lines[-1:] if "quiet" in p.cases else lines)


def test_hidden_attempts_and_exit_codes(p):
    for done, folder, made, code, _ in plays(p):
        assert len(lines(folder, "seen")) == len(made) and done.returncode == code


def lines(folder, name):
    return tidy(open(f"{folder}/{name}").read()).split("\n")


def test_hidden_term(p, case):
    for done, folder, made, _, log in plays(p):
        seen = [line.split("|") for line in lines(folder, "seen")]
        assert len(seen) == len(made) and all(row[0] == "two  words *" for row in seen)
        numbers = [str(n + 1) for n in range(len(made))]
        if case == "log":
            assert log == "\n".join(f"{n} {c}" for n, c in zip(numbers, made, strict=True))
        elif case == "quiet":
            assert tidy(done.stdout) == f"attempt {len(made)}"
        elif case == "number":
            assert [row[1] for row in seen] == numbers
        elif case == "input":
            assert all(row[2] == "some input " for row in seen)
        elif case == "folder":
            folders = lines(folder, "folders")
            assert all(row[3] == "0" for row in seen) and len({*folders}) == len(made)
            assert not any(os.path.exists(path) for path in folders)
        elif case == "report":
            gone = made[-1] not in ([0, p.fatal] if "stop" in p.cases else [0])
            assert tidy(done.stderr) == (f"{p.report} {len(made)}" if gone else "")
