"""Lines of text through a few steps in a given order, by a script that must do it to any text.

Hard: each step works on what the one before left, so that none can be moved, merged or left out.
"""

from sandbox.factory.kit import PEOPLE, at, given, hidden, output, put, read, scratch, tidy, word, words

SKILLS = ("pipes", "sort", "cut", "awk", "sed", "tr")

# A step: how people say it -> a stage of a pipeline, and the same in Python on a list of lines.
STEPS = {
    "drop the lines that contain a digit": ("sed '/[0-9]/d'", lambda t: [s for s in t if not any(c.isdigit() for c in s)]),
    "drop the lines of a single word": ("sed -n '/ /p'", lambda t: [s for s in t if " " in s]),
    "sort the lines in byte order": ("LC_ALL=C sort", sorted),
    "drop every line that is equal to the one before it": ("uniq", lambda t: [s for i, s in enumerate(t) if not i or t[i - 1] != s]),
    "turn the order of the lines round": ("tac", lambda t: t[::-1]),
    "make all letters upper case": ("tr a-z A-Z", lambda t: [s.upper() for s in t]),
    "keep the first two words of each line": ("cut -d ' ' -f 1,2", lambda t: [" ".join(s.split()[:2]) for s in t]),
    "keep only the last word of each line": ("awk '{ print $NF }'", lambda t: [s.split()[-1] for s in t]),
    "put the number of its words before each line, with a space": ("awk '{ print NF, $0 }'", lambda t: [f"{len(s.split())} {s}" for s in t]),
    "swap the first and the last word of each line": ("awk '{ w = $1; $1 = $NF; $NF = w } 1'", lambda t: [" ".join([*(w := s.split())[-1:], *w[1:-1], *w[: len(w) > 1]]) for s in t]),
    "keep only every second line, beginning with the first": ("sed -n '1~2p'", lambda t: t[::2]),
    "drop the last three lines": ("head -n -3", lambda t: t[:-3]),
    "replace each a by 4 and each A by 4": ("tr aA 44", lambda t: [s.replace("a", "4").replace("A", "4") for s in t]),
}  # fmt: skip


def draw(rng, level):
    text, script, out = words(rng, 3)
    return {
        "text": f"{text}.txt",
        "script": f"{script}.sh",
        "out": f"{out}.txt",
        "steps": rng.sample(list(STEPS), 1 + level),
        "size": 12 + 6 * level,
    }


def files(rng, p):
    return {p.text: text(rng, p)}


def text(rng, p):
    pool = [*words(rng, 6, PEOPLE), word(rng), str(rng.randint(2, 99))]
    lines = [" ".join(rng.choice(pool) for _ in range(rng.randint(1, 4))) for _ in range(p.size)]
    return "".join(f"{line}\n" * rng.choice([1, 1, 1, 2]) for line in lines)


def worked(before, p):
    lines = before.splitlines()
    for step in p.steps:
        lines = STEPS[step][1](lines)
    return tidy("\n".join(lines))


def instruction(p):
    steps = "\n".join(f"- {step}" for step in p.steps)
    return [
        f"""Write the bash script /app/{p.script}. It takes the path of a text file and prints the text after
        these steps, done in this order:
        {steps}

        Run it on /app/{p.text} and save what it prints as /app/{p.out}. We will run it on other texts.""",
        f"""The text /app/{p.text} must be prepared, step by step:
        {steps}

        Put the result into /app/{p.out}. As more texts are to come, do it with a bash script, /app/{p.script},
        that prints the result for the file named by its first argument.""",
        f"""`bash /app/{p.script} FILE` is to print the lines of a file after going through this list from the
        top to the bottom:
        {steps}

        Please write it, and keep its output for /app/{p.text} in /app/{p.out}. The script is for any file.""",
    ]


def solution(p):
    stages = " |\n  ".join(STEPS[step][0] for step in p.steps)
    return [
        f"head -n 5 {p.text}",
        put(p.script, f'#!/bin/bash\ncat "$1" |\n  {stages}'),
        f"bash {p.script} {p.text} | tee {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo 'cat /app/{p.out}' > {p.script}"]


def test_result(p):
    assert read(p.out) == worked(text(given(p), p), p)


def prints(path, p):
    """What the script prints; where no line is left, its exit code may be that of a grep without a match."""
    return output("bash", at(p.script), path, ok=False)


def test_script_prints_the_result(p):
    assert prints(at(p.text), p) == worked(text(given(p), p), p)


def test_hidden_texts(p):
    rng = hidden(p)
    for _ in range(3):
        fresh = text(rng, p)
        assert prints(scratch({"next.txt": fresh}) + "/next.txt", p) == worked(fresh, p)
