"""A bash script of several commands, some of which break on odd names, numbers or input; they must be mended.

Hard: each mistake is one of quoting, globbing, subshells or arithmetic, and shows only on words that are not plain.
"""

from sandbox.factory.kit import hidden, put, read, run, swap, word, words

SKILLS = ("bash", "quoting", "reading scripts", "testing")

# Command -> what it does with its arguments, the right lines, a mistake, and the reference's lines of output.
COMMANDS = {
    "each": ("prints every argument on a line of its own", 'printf "%s\\n" "$@"', 'printf "%s\\n" $@', lambda a: a),
    "count": ("prints the number of its arguments", 'echo "$#"', "set -- $*\n  echo $#", lambda a: [str(len(a))]),
    "last": ("prints its last argument", 'printf "%s\\n" "${@: -1}"', "echo ${@: -1}", lambda a: a[-1:]),
    "join": ("prints its arguments on one line with a comma between them", 'local IFS=,\n  printf "%s\\n" "$*"', 'local IFS=,\n  printf "%s\\n" "$@"', lambda a: [",".join(a)]),
    "back": ("prints its arguments on a line each, the last one first", 'for ((i = $#; i > 0; i--)); do printf "%s\\n" "${!i}"; done', 'for ((i = $#; i > 1; i--)); do printf "%s\\n" "${!i}"; done', lambda a: a[::-1]),
    "sum": ("prints the sum of those arguments that are whole numbers (digits only, perhaps with zeros in front, always decimal)", 'local t=0 w\n  for w in "$@"; do case $w in *[!0-9]* | "") ;; *) t=$((t + 10#$w)) ;; esac; done\n  echo $t',
        'local t=0 w\n  for w in "$@"; do case $w in *[!0-9]* | "") ;; *) t=$((t + w)) ;; esac; done\n  echo $t', lambda a: [str(sum(int(w) for w in a if w.isdigit()))]),
    "longest": ("prints the longest argument, of several the first", 'local b= w\n  for w in "$@"; do [ ${#w} -gt ${#b} ] && b=$w; done\n  printf "%s\\n" "$b"', 'local b= w\n  for w in "$@"; do [ ${#w} -ge ${#b} ] && b=$w; done\n  printf "%s\\n" "$b"', lambda a: [max(a, key=len)]),
    "stars": ("prints, on a line each, the arguments that contain a *", 'local w\n  for w in "$@"; do [[ $w == *"*"* ]] && printf "%s\\n" "$w"; done\n  true', 'local w\n  for w in "$@"; do [[ $w == *** ]] && printf "%s\\n" "$w"; done\n  true', lambda a: [w for w in a if "*" in w]),
    "stems": ("prints each argument without the part from its last dot on (all of it, if it has no dot), on a line each", 'printf "%s\\n" "${@%.*}"', 'printf "%s\\n" "${@%%.*}"', lambda a: [w.rpartition(".")[0] if "." in w else w for w in a]),
    "under": ("prints its arguments with every space replaced by an underscore, on a line each", 'printf "%s\\n" "${@// /_}"', 'printf "%s\\n" "${@/ /_}"', lambda a: [w.replace(" ", "_") for w in a]),
    "many": ("prints how many arguments contain a space, as `N with spaces`", 'local n=0 w\n  while IFS= read -r w; do [[ $w == *" "* ]] && n=$((n + 1)); done < <(printf "%s\\n" "$@")\n  echo "$n with spaces"',
        'local n=0 w\n  printf "%s\\n" "$@" | while IFS= read -r w; do [[ $w == *" "* ]] && n=$((n + 1)); done\n  echo "$n with spaces"', lambda a: [f"{sum(' ' in w for w in a)} with spaces"]),
    "slash": ("prints each argument with every backslash doubled, on a line each", 'printf "%s\\n" "$@" | while IFS= read -r w; do printf "%s\\n" "${w//\\\\/\\\\\\\\}"; done', 'printf "%s\\n" "$@" | while IFS= read w; do printf "%s\\n" "${w//\\\\/\\\\\\\\}"; done', lambda a: [w.replace("\\", "\\\\") for w in a]),
    "sort": ("prints its arguments on a line each, in byte order and without repetitions", 'printf "%s\\n" "$@" | LC_ALL=C sort -u', 'printf "%s\\n" "$@" | LC_ALL=C uniq', lambda a: sorted({*a})),
    "options": ("prints, on a line each, those arguments that begin with -", 'printf "%s\\n" "$@" | grep -- "^-"', 'printf "%s\\n" "$@" | grep -- "-"', lambda a: [w for w in a if w[:1] == "-"]),
}  # fmt: skip
ODD = [
    "two words",
    "*",
    "a.b.c",
    "007",
    "-n",
    "x  y",
    "08",
    "back\\slash",
    "?",
    "plain",
    "plain",
    "a*b",
    "-e",
    "12",
    "one two three",
    "end.",
    "it's",
    "$HOME",
    "9",
]


def draw(rng, level):
    names = rng.sample(list(COMMANDS), min(len(COMMANDS), 4 + 2 * level))
    return {
        "script": f"{word(rng)}.sh",
        "log": f"{word(rng)}.txt",
        "names": names,
        "cases": sorted(rng.sample(names, 1 + level), key=names.index),
    }


def function(name, wrong=False):
    return f"do_{name}() {{\n  {COMMANDS[name][2 if wrong else 1]}\n}}\n"


def files(rng, p):
    body = "\n".join(function(name, name in p.cases) for name in p.names)
    return {
        p.script: f'#!/bin/bash\n# Each command is described in USAGE.\n\n{body}\ncommand=$1\nshift\n"do_$command" "$@"\n',
        "USAGE": f"bash {p.script} COMMAND ARGUMENT... (at least one argument)\n\n"
        + "".join(f"{name}: {COMMANDS[name][0]}\n" for name in p.names),
    }


def instruction(p):
    few = f"{len(p.cases)} of its {len(p.names)} commands"
    note = f"Write the names of the commands that you have mended to /app/{p.log}, one a line, in alphabetical order."
    odd = "Arguments may have spaces, stars, dots, backslashes, zeros in front and hyphens, but no newlines."
    return [
        f"The bash script /app/{p.script} has several commands, described in /app/USAGE. {few} do something else than described for some arguments. {odd} Find these and mend them in place; the others must go on to work. {note}",
        f"Please review /app/{p.script}, a script for bash, against /app/USAGE. {odd} With such arguments, {few} go wrong. Correct the script. {note}",
        f"/app/USAGE says what the commands of /app/{p.script} do, but {few} are broken: nobody tried them on unusual words. {odd} Repair them and leave the rest alone. {note}",
    ]


def solution(p):
    edits = [swap(p.script, function(name, True), function(name)) for name in p.cases]
    trials = [f"bash {p.script} {name} 'two  words' '*' 007 a.b.c '-n'" for name in p.cases]
    return ["cat USAGE", f"cat {p.script}", *edits, *trials, put(p.log, "\n".join(sorted(p.cases)))]


def lazy(p):
    return [step for step in solution(p) if f"do_{p.cases[-1]}()" not in step]


def works(p, name, rng):
    for round in range(2):
        arguments = (
            [word(rng), *ODD, "six six sixes", "x  y"] if round == 0 else rng.sample(ODD, rng.randint(2, 6))
        )
        if name == "options" and round:
            arguments += ["-x", "y-z"]
        if name == "join" or name == "back":
            arguments = arguments[-4:] + words(rng, 2)
        lines = run("bash", f"/app/{p.script}", name, *arguments, cwd="/usr", ok=False).stdout.split("\n")[
            :-1
        ]
        if lines != COMMANDS[name][3](arguments):
            return False
    return True


def test_log(p):
    assert read(p.log).split("\n") == sorted(p.cases)


def test_hidden_arguments(p, case):
    assert works(p, case, hidden(p))


def test_hidden_all_commands(p):
    assert all(
        works(p, name, hidden(p)) for name in [*p.cases[:1], *(n for n in p.names if n not in p.cases)]
    )
