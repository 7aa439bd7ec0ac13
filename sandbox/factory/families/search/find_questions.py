"""Questions about the files of a folder, each to be answered by a small script for any such folder.

Hard: names hold spaces, what counts is told by several properties at once, and order and form are prescribed.
"""

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import answerable, question_wordings, questions

SKILLS = ("find", "grep -l", "xargs", "wc", "sort")

# Which files: how people say it -> find's test, Python's of path (relative) and content.
TESTS = {
    "whose name ends in .txt": ("-name '*.txt'", lambda path, text: path.endswith(".txt")),
    "whose name has a space": ("-name '* *'", lambda path, text: " " in path.rpartition("/")[2]),
    "whose name has a digit": ("-name '*[0-9]*'", lambda path, text: any(c.isdigit() for c in path.rpartition("/")[2])),
    "whose name begins with a capital": ("-name '[A-Z]*'", lambda path, text: path.rpartition("/")[2][0].isupper()),
    "that are empty": ("-empty", lambda path, text: not text),
    "of more than 100 bytes": ("-size +100c", lambda path, text: len(text) > 100),
    "directly in the folder": ("-maxdepth 1", lambda path, text: "/" not in path),
    "two folders deep or deeper": ("-path './*/*/*'", lambda path, text: path.count("/") >= 2),
    "below a folder named old": ("-path '*/old/*'", lambda path, text: "/old/" in "/" + path),
    "not below a folder named old": ("! -path '*/old/*'", lambda path, text: "/old/" not in "/" + path),
    "with the word urgent in them": ("-exec grep -qw urgent {} ;", lambda path, text: "urgent" in text.split()),
    "without the word urgent": ("! -exec grep -qw urgent {} ;", lambda path, text: "urgent" not in text.split()),
    "whose last line is done": ("-exec sh -c 'tail -n 1 \"$1\" | grep -qx done' - {} ;", lambda path, text: text.split("\n")[-2:] == ["done", ""]),
}  # fmt: skip
# What is told of them: -> the rest of a pipeline from NUL-ended paths, Python's of (path, content) pairs.
ANSWERS = {
    "their number": ("tr -cd '\\0' | wc -c", lambda found: str(len(found))),
    "their paths, in byte order": ("LC_ALL=C sort -z | tr '\\0' '\\n'", lambda found: "\n".join(sorted(path for path, _ in found))),
    "the number of all their bytes together": ("xargs -0 cat | wc -c", lambda found: str(sum(len(text) for _, text in found))),
    "the number of all their lines together": ("xargs -0 cat | wc -l", lambda found: str(sum(text.count("\n") for _, text in found))),
    "the path of the largest (of equals the first in byte order)": ("xargs -0 stat -c '%s %n' | LC_ALL=C sort -k1,1nr -k2 | head -n 1 | cut -d ' ' -f 2-", lambda found: min(((-len(t), path) for path, t in found), default=(0, ""))[1]),
    "lines SIZE PATH with the size in bytes, smallest first, equal ones by path": ("xargs -0 stat -c '%s %n' | LC_ALL=C sort -k1,1n -k2", lambda found: "\n".join(f"{size} {path}" for size, path in sorted((len(t), path) for path, t in found))),
    "the folders that they lie in (`.` for the folder itself), each once, in byte order": ("xargs -0 dirname | LC_ALL=C sort -u", lambda found: "\n".join(sorted({path.rpartition("/")[0] or "." for path, _ in found}))),
}  # fmt: skip


def draw(rng, level):
    def choose(rng):
        return {
            "tests": rng.sample(list(TESTS), rng.randint(1, min(3, 1 + level // 2))),
            "answer": rng.choice(list(ANSWERS)),
        }

    return answerable(rng, 2 + level // 2, choose, make, worked, source=word(rng), size=40 + 12 * level)


def make(rng, p):
    found = {}
    for noun in words(rng, p.size):
        folder = "".join(rng.choice(["", "", "old/", "new/", "my notes/"]) for _ in range(3))
        name = rng.choice([noun, noun.title(), f"{noun} {rng.randint(1, 99)}", noun]) + rng.choice(
            [".txt", ".txt", ".log", ""]
        )
        lines = [
            rng.choice([noun, "urgent", "no urgentness", "x" * rng.randint(1, 70)])
            for _ in range(rng.randint(0, 4))
        ]
        lines += rng.choice([[], [], ["done"]])
        found[folder + name] = "".join(line + "\n" for line in lines)
    return found


def worked(made, case, p):
    found = [
        (path, text)
        for path, text in made.items()
        if all(TESTS[name][1](path, text) for name in case["tests"])
    ]
    return ANSWERS[case["answer"]][1](found) if found else ""


def instruction(p):
    asked = [
        f"{case['script']}: {case['answer']}, of the files {' and '.join(case['tests'])}" for case in p.cases
    ]
    rules = "Only regular files count, those in folders below included; paths are relative to the folder, without a ./ in front."
    opens = (
        "We have questions about the files of folders.",
        "Folders full of files come to us, and of each we want to know the same few things.",
    )
    return question_wordings(p, opens, asked, rules)


def program(case, p):
    tests = sorted(
        (TESTS[name][0].replace("{} ;", "{} \\;") for name in case["tests"]),
        key=lambda test: "maxdepth" not in test,
    )
    return f"#!/bin/bash\ncd \"$1\" && find . -type f {' '.join(tests)} -printf '%P\\0' | {ANSWERS[case['answer']][0]}".replace(
        "-type f -maxdepth 1", "-maxdepth 1 -type f"
    )


files, solution, lazy, test_answer, test_hidden_folders = questions(make, worked, program)
