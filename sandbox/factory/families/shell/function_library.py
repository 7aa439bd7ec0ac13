"""A library of bash functions, each of which other scripts will call.

Hard: arguments hold spaces, stars and nothing at all, and a function must leave the shell that sources it as it was.
"""

from sandbox.factory.kit import PEOPLE, at, hidden, output, put, run, word

SKILLS = ("bash functions", "quoting", "parameter expansion", "exit codes")

# A function: what it does -> bash's body, Python's of its arguments (a text, or an exit code where it prints nothing), what draws arguments.
TEXTS = ("  two  spaces ", "*", "", "a b", "-n", "x/y.tar.gz", "it's", "$HOME", "UPPER lower")
FUNCTIONS = {
    "join_by SEP WORD...: prints the words with SEP between two": ('local s=$1 out=$2; shift 2; local w; for w; do out+=$s$w; done; printf "%s\\n" "$out"', lambda a: a[0].join(a[1:]), lambda r: [r.choice([",", ", ", "*"]), *some(r, 2)]),
    "trim TEXT: prints the text without spaces at both ends": ('local t=$1; t="${t#"${t%%[! ]*}"}"; t="${t%"${t##*[! ]}"}"; printf "%s\\n" "$t"', lambda a: a[0].strip(" "), lambda r: [f"{' ' * r.randint(0, 3)}{r.choice(TEXTS)}{' ' * r.randint(0, 3)}x"[: r.randint(3, 30)]]),
    "is_int TEXT: succeeds (exit code 0) if the text is a whole number, perhaps with a - in front, else exit code 1; prints nothing": ('[[ $1 =~ ^-?[0-9]+$ ]]', lambda a: 0 if a[0].removeprefix("-").isdigit() else 1, lambda r: [r.choice(["12", "-7", "--1", "1.5", "", "a1", "007"])]),
    "repeat N TEXT: prints the text N times on one line, without anything between": ('local i out=; for ((i = 0; i < $1; i++)); do out+=$2; done; printf "%s\\n" "$out"', lambda a: a[1] * int(a[0]), lambda r: [str(r.randint(1, 5)), r.choice(["ab", "* ", "-", "$x"])]),
    "max NUMBER...: prints the largest of the whole numbers": ('local m=$1 x; for x; do (( x > m )) && m=$x; done; echo "$m"', lambda a: str(max(map(int, a))), lambda r: [str(r.randint(-50, 50)) for _ in range(r.randint(1, 5))]),
    "stem PATH: prints the last part of the path without what follows its first point (a name that begins with a point stays whole)": ('local n=${1##*/}; [[ $n == .* ]] || n=${n%%.*}; printf "%s\\n" "$n"', lambda a: n if (n := a[0].rpartition("/")[2]).startswith(".") else n.partition(".")[0], lambda r: [r.choice(["a/b.tar.gz", "/x y/z.txt", ".bashrc", "plain", "d.e/f"])]),
    "slug TEXT: prints the text in lower case, each run of other characters than a-z and 0-9 as one -, without - at the ends": ("printf '%s' \"$1\" | tr A-Z a-z | tr -cs a-z0-9 - | sed 's/^-*//; s/-*$//'; echo", lambda a: "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in a[0].lower()).split()), lambda r: [f"{word(r).title()}{r.choice(['  ', ' & ', '--', ': '])}{r.choice(TEXTS)}{word(r)}"]),
    "contains WORD ITEM...: succeeds (exit code 0) if one of the items is exactly the word, else exit code 1; prints nothing": ('local w=$1 x; shift; for x; do [[ $x == "$w" ]] && return 0; done; return 1', lambda a: 0 if a[0] in a[1:] else 1, lambda r: [r.choice(TEXTS), *some(r, 3)]),
    "count_char CHAR TEXT: prints how often the character is in the text": ('local t=${2//[!"$1"]/}; [[ $1 == "!" || $1 == "]" ]] && t=$(printf "%s" "$2" | tr -cd "$1"); echo "${#t}"', lambda a: str(a[1].count(a[0])), lambda r: [r.choice("ae *$"), f"{word(r)} {r.choice(TEXTS)} {word(r)}"]),
    "reverse WORD...: prints the arguments in reverse order, one a line": ('local i; for ((i = $#; i > 0; i--)); do printf "%s\\n" "${!i}"; done', lambda a: "\n".join(a[::-1]), lambda r: [f"{w}." for w in some(r, 3)]),
    "pad N TEXT: prints the text with as many 0 in front as make it N characters long (a longer one stays)": ('local t=$2; while (( ${#t} < $1 )); do t=0$t; done; printf "%s\\n" "$t"', lambda a: a[1].rjust(int(a[0]), "0"), lambda r: [str(r.randint(1, 8)), r.choice(["7", "x y", "-5", "12345"])]),
    "seconds H:MM:SS: prints the number of seconds (parts may have zeros in front)": ('local h m s; IFS=: read -r h m s <<< "$1"; echo $((10#$h * 3600 + 10#$m * 60 + 10#$s))', lambda a: str(sum(int(x) * k for x, k in zip(a[0].split(":"), (3600, 60, 1), strict=True))), lambda r: [f"{r.randint(0, 12)}:{r.choice(['08', '09', '30'])}:{r.choice(['08', '00', '59'])}"]),
    "unique WORD...: prints the arguments, one a line, each only the first time that it comes": ('local -A seen; local w; for w; do [[ -n ${seen["x$w"]} ]] || printf "%s\\n" "$w"; seen["x$w"]=1; done', lambda a: "\n".join(dict.fromkeys(a)), lambda r: [f"{w}." for w in r.choices(["a b", "c", "*", "d"], k=5)]),
}  # fmt: skip


def some(rng, least):
    return [rng.choice([*TEXTS, word(rng, PEOPLE)]) for _ in range(rng.randint(least, least + 3))]


def draw(rng, level):
    return {
        "library": f"{word(rng)}.sh",
        "out": f"{word(rng)}.txt",
        "cases": rng.sample(list(FUNCTIONS), 2 + level),
        "examples": level + 1,
    }


def files(rng, p):
    lines = []
    for case in p.cases:
        lines += [
            " ".join([case.split(" ")[0], *map(quoted, FUNCTIONS[case][2](rng))]) for _ in range(p.examples)
        ]
    return {
        "calls.sh": "\n".join([f". /app/{p.library}", *[f'{line}; echo "= $?"' for line in lines]]) + "\n"
    }


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def instruction(p):
    listed = "\n".join(f"- {case}" for case in p.cases)
    rules = "Sourcing the file prints nothing, and calling a function changes no variable of the caller. Arguments may be empty or hold any characters but line breaks. Functions that print end with exit code 0."
    return [
        f"Write /app/{p.library}, a library of bash functions for other scripts to source:\n{listed}\n\n{rules} /app/calls.sh calls them; save what `bash calls.sh` prints as /app/{p.out}.",
        f"Our bash scripts need a few functions, in one file /app/{p.library} that they source. {rules}\n{listed}\n\nRun the examples in /app/calls.sh, and keep their output in /app/{p.out}.",
        f"/app/calls.sh uses functions that nobody has written yet. Please do so, in /app/{p.library}:\n{listed}\n\n{rules} In the end, /app/{p.out} must hold the output of calls.sh. The functions are for other scripts, too.",
    ]


def solution(p):
    body = "\n".join(f"{case.split(' ')[0]}() {{\n  {FUNCTIONS[case][0]}\n}}" for case in p.cases)
    return ["head -n 5 calls.sh", put(p.library, body), f"bash calls.sh | tee {p.out}"]


def lazy(p):
    return [
        *solution(p),
        put(
            p.library,
            "\n".join(f"{case.split(' ')[0]}() {{ grep -m 1 -v = /app/{p.out}; }}" for case in p.cases),
        ),
    ]


def check(case, p, examples):
    """All examples in one shell, which must have the variables that it had before."""
    name, (_, reference, _) = case.split(" ")[0], FUNCTIONS[case]
    names = "h m s t n i w x out seen m IFS"
    calls = "\n".join(" ".join([name, *map(quoted, a)]) + '; echo "= $?"' for a in examples)
    script = f'. {at(p.library)}\nh=1 m=2 s=3 t=4 n=5 i=6 w=7 x=8 out=9\n{calls}\necho "$h$m$s$t$n$i$w$x$out"  # {names}\n'
    wanted = []
    for arguments in examples:
        value = reference(arguments)
        wanted += [f"= {value}"] if isinstance(value, int) else [*value.split("\n"), "= 0"]
    found = run("bash", stdin=script).stdout.split("\n")
    assert [line.rstrip() for line in found] == [line.rstrip() for line in [*wanted, "123456789", ""]]


def test_hidden_calls(p, case):
    rng = hidden(p)
    check(case, p, [FUNCTIONS[case][2](rng) for _ in range(12)])


def test_output(p):
    assert (
        output("cat", at(p.out)) == output("bash", at("calls.sh"))
        and len(set(output("cat", at(p.out)).split("\n"))) > 2
    )
    for case in p.cases:
        check(case, p, [FUNCTIONS[case][2](hidden(p))])
