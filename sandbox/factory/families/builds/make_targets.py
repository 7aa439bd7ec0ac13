"""A Makefile with several targets and variables, which must serve any sources and any values given on the command line.

Hard: defaults that can be overridden, targets that are no files, lists from wildcards, and recipes that stop at errors.
"""

import os

from sandbox.factory.kit import given, hidden, put, run, scratch, tidy, tree, word, words

SKILLS = ("make", "variables", "phony targets", "bash")
BINARIES = ("make",)

# A target: what is said, and the rule.
TARGETS = {
    "bundle": ("`make bundle` writes all .txt files of the folder $(SRC), one after the other in the order of their names, to the file $(OUT) (named {out} by default).", "OUT ?= {out}\nbundle:\n\tcat $(sort $(wildcard $(SRC)/*.txt)) > $(OUT)\n"),
    "list": ("`make list` prints the names of the .txt files of $(SRC), without the folder and without .txt, on one line with single spaces, in alphabetical order.", "list:\n\t@echo $(sort $(notdir $(basename $(wildcard $(SRC)/*.txt))))\n"),
    "upper": ("`make upper` makes, for each NAME.txt of $(SRC), the file NAME.{ext} beside it, with all letters in upper case; files that are newer than their .txt are not made again.", "upper: $(patsubst %.txt,%.{ext},$(wildcard $(SRC)/*.txt))\n%.{ext}: %.txt\n\ttr a-z A-Z < $< > $@\n"),
    "install": ("`make install` copies all .txt files of $(SRC) with mode {mode} to the folder $(DESTDIR)/{share}, which it makes if needed; DESTDIR is /tmp/{dest} by default.", "DESTDIR ?= /tmp/{dest}\ninstall:\n\tmkdir -p $(DESTDIR)/{share}\n\tinstall -m {mode} $(SRC)/*.txt $(DESTDIR)/{share}\n"),
    "check": ("`make check` fails if any .txt file of $(SRC) has the word {bad} in it, and prints the names of such files (as $(SRC)/NAME.txt, one a line, in alphabetical order); without such files it succeeds and prints nothing.", "check:\n\t@! grep -l -w {bad} $(sort $(wildcard $(SRC)/*.txt))\n"),
    "count": ("`make count` prints one line, the number of lines of all .txt files of $(SRC) together.", "count:\n\t@cat $(SRC)/*.txt | wc -l\n"),
    "tidy": ("`make tidy` removes all files of $(SRC) whose names end in .{junk}; it succeeds if there are none.", "tidy:\n\trm -f $(SRC)/*.{junk}\n"),
    "version": ("`make version` prints {hello} and, after a space, the value of VERSION, which is {number} by default.", "VERSION ?= {number}\nversion:\n\t@echo {hello} $(VERSION)\n"),
    "stamp": ("`make stamp` makes the file $(SRC)/{stamp} with the number of .txt files in $(SRC); it is made again only if one of these is newer.", "stamp: $(SRC)/{stamp}\n$(SRC)/{stamp}: $(wildcard $(SRC)/*.txt)\n\techo $(words $^) > $@\n"),
    "first": ("`make first N=3` prints the first 3 lines of each .txt file of $(SRC), file by file in the order of their names, without anything between; N may be any number, and is {count} by default.", "N ?= {count}\nfirst:\n\t@for f in $(sort $(wildcard $(SRC)/*.txt)); do head -n $(N) $$f; done\n"),
}  # fmt: skip


def draw(rng, level):
    targets = rng.sample(list(TARGETS), min(len(TARGETS), 2 + level))
    out, ext, share, dest, bad, junk, hello, stamp, source = words(rng, 9)
    return {
        "cases": targets, "default": rng.choice(targets), "source": source,
        "out": f"{out}.all", "ext": ext, "share": share, "dest": dest, "bad": bad, "junk": junk, "hello": hello, "stamp": f"{stamp}.n",
        "mode": rng.choice(["600", "640", "444"]), "number": f"{rng.randint(1, 9)}.{rng.randint(0, 9)}", "count": rng.randint(1, 2),
        "both": level > 2 and rng.random() < 0.7,
    }  # fmt: skip


def texts(rng, p):
    made = {
        f"{name}.txt": "".join(f"{word(rng)} {word(rng)}\n" for _ in range(rng.randint(1, 5)))
        for name in words(rng, 3)
    }
    return made | {f"{word(rng)}.{p.junk}": "x\n", "notes.md": "not a text\n"}


def files(rng, p):
    return {f"{p.source}/{path}": text for path, text in texts(rng, p).items()}


def instruction(p):
    targets = "\n".join(f"- {TARGETS[name][0].format(**vars(p))}" for name in p.cases)
    rest = f"`make` alone does the same as `make {p.default}`. SRC is {p.source} by default and may be given on the command line (make SRC=other), as may the other variables. Targets that are no files work also if there is a file of that name in the folder where make is run."
    if p.both:
        rest += " A value in the environment counts as well, unless there is one on the command line."
    return [
        f"Write /app/Makefile (for GNU make) with these targets:\n{targets}\n\n{rest} Then run make for every target once, in /app.",
        f"The folder /app/{p.source} needs a Makefile, /app/Makefile. It is for GNU make and has the following targets:\n{targets}\n\n{rest} Please write it; we shall run it on other folders. Run each target once in /app.",
        f"We want to call our chores by make. What /app/Makefile must offer:\n{targets}\n\n{rest} Write it, and try every target once in /app. The names of files have no spaces.",
    ]


def makefile(p):
    rules = [TARGETS[name][1].format(**vars(p)) for name in p.cases]
    return "\n".join(
        [f"SRC ?= {p.source}", f".DEFAULT_GOAL := {p.default}", f".PHONY: {' '.join(p.cases)}", *rules]
    )


def solution(p):
    return [f"ls {p.source}", put("Makefile", makefile(p)), *(f"make {name}" for name in p.cases)]


def lazy(p):
    """Without the wildcards: only for the files that are there."""
    return [*solution(p), f"sed -i 's/\\$(SRC)/{p.source}/g' Makefile"]


def make(p, folder, *arguments):
    return run("make", "-s", "-f", "/app/Makefile", *arguments, cwd=folder, ok=False)


def works(p, name, rng, goal=None):
    made, where = texts(rng, p), word(rng)
    if rng.random() < 0.5 and name == "check":
        made |= {"zz.txt": f"a {p.bad}\n"}
    folder = scratch({f"{where}/{path}": text for path, text in made.items()})
    with open(f"{folder}/{name}", "w") as file:
        file.write("a file of that name\n")
    ordered = sorted(path for path in made if path.endswith(".txt"))
    goal = [name] if goal is None else goal
    source = f"SRC={where}"
    number = rng.randint(3, 4)
    extra = {
        "bundle": [f"OUT={where}.x"],
        "install": [f"DESTDIR={folder}/d"],
        "version": ["VERSION=x1"],
        "first": [f"N={number}"],
    }.get(name, [])
    done = make(p, folder, *goal, source, *extra)
    lines = tidy(done.stdout).split("\n")
    match name:
        case "bundle":
            return tree(folder).get(f"{where}.x", b"").decode() == "".join(made[path] for path in ordered)
        case "list":
            return lines == [" ".join(path[:-4] for path in ordered)]
        case "upper":
            first = all(
                tree(folder).get(f"{where}/{path[:-4]}.{p.ext}", b"").decode() == made[path].upper()
                for path in ordered
            )
            again = f"{folder}/{where}/{ordered[0][:-4]}.{p.ext}"
            with open(again, "w") as file:
                file.write("newer\n")
            os.utime(again, (2e9, 2e9))
            make(p, folder, *goal, source)
            with open(again) as file:
                return first and file.read() == "newer\n"
        case "install":
            places = [f"{folder}/d/{p.share}/{path}" for path in ordered]
            return all(os.path.isfile(q) and oct(os.stat(q).st_mode)[-3:] == p.mode for q in places)
        case "check":
            bad = [path for path in ordered if p.bad in made[path].split()]
            return (done.returncode != 0) == bool(bad) and tidy(done.stdout) == "\n".join(
                f"{where}/{path}" for path in bad
            )
        case "count":
            return lines == [str(sum(made[path].count("\n") for path in ordered))]
        case "tidy":
            again = make(p, folder, *goal, source)
            return again.returncode == done.returncode == 0 and sorted(
                os.listdir(f"{folder}/{where}")
            ) == sorted(q for q in made if not q.endswith(p.junk))
        case "version":
            other = tidy(make(p, folder, *goal, source).stdout)
            return lines == [f"{p.hello} x1"] and other == f"{p.hello} {p.number}"
        case "stamp":
            place = f"{folder}/{where}/{p.stamp}"
            one = (
                os.path.exists(place)
                and tree(folder)[f"{where}/{p.stamp}"].strip() == str(len(ordered)).encode()
            )
            os.utime(place, (2e9, 2e9))
            make(p, folder, *goal, source)
            return one and os.stat(place).st_mtime == 2e9
        case _:
            return lines == [line for path in ordered for line in made[path].splitlines()[:number]]


def test_hidden_target(p, case):
    rng = hidden(p)
    assert works(p, case, rng) and (case != "check" or works(p, case, rng))


def test_hidden_default_target(p):
    assert works(p, p.default, hidden(p), goal=[])


def test_done_in_app(p):
    """What the targets leave behind; where none of them leaves anything, that make knows all of them."""
    made = texts(given(p), p)
    assert all(run("make", "-n", name).returncode == 0 for name in p.cases)
    left = {"bundle": p.out, "stamp": f"{p.source}/{p.stamp}"}
    assert all(os.path.isfile(f"/app/{path}") for name, path in left.items() if name in p.cases)
    assert all(os.path.isfile(f"/app/{p.source}/{path}") for path in made if path.endswith(".txt"))
