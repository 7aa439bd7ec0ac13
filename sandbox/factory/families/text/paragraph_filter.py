"""Texts in paragraphs through a few steps in a given order, by a script for any such text.

Hard: the unit is the paragraph, not the line, so that the usual line tools need to be told where one ends.
"""

from sandbox.factory.kit import PEOPLE, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "paragraph mode", "pipes", "sort")

AWK = "awk -v RS= -v ORS='\\n\\n' -F '\\n' "
SORT = r"""awk -v RS= '{ gsub("\n", "\001"); print }' | LC_ALL=C sort -s -t $'\001' -k1,1 | awk -v ORS='\n\n' '{ gsub("\001", "\n") } 1'"""

# A step: how people say it -> a stage of a pipeline, and the same in Python on a list of lists of lines.
STEPS = {
    "leave out paragraphs of a single line": (AWK + "'NF > 1'", lambda t: [q for q in t if len(q) > 1]),
    "leave out paragraphs whose first line ends in a colon": (AWK + "'$1 !~ /:$/'", lambda t: [q for q in t if not q[0].endswith(":")]),
    "keep only paragraphs with a digit in them": (AWK + "'/[0-9]/'", lambda t: [q for q in t if any(c.isdigit() for c in "".join(q))]),
    "join the lines of each paragraph by single spaces": (AWK + """'{ gsub(/\\n/, " ") } 1'""", lambda t: [[" ".join(q)] for q in t]),
    "keep only the first two lines of each paragraph": (AWK + """'{ print $1 (NF > 1 ? "\\n" $2 : "") }'""", lambda t: [q[:2] for q in t]),
    "keep only the last line of each paragraph": (AWK + "'{ print $NF }'", lambda t: [q[-1:] for q in t]),
    "leave out a paragraph that is equal to an earlier one": (AWK + "'!seen[$0]++'", lambda t: [q for i, q in enumerate(t) if q not in t[:i]]),
    "put the number of its lines, on a line of its own, before each paragraph (as part of it)": (AWK + """'{ print NF "\\n" $0 }'""", lambda t: [[str(len(q)), *q] for q in t]),
    "turn the order of the paragraphs round": (AWK + "'{ all[NR] = $0 } END { for (i = NR; i; i--) print all[i] }'", lambda t: t[::-1]),
    "turn the order of the lines round within each paragraph": (AWK + """'{ text = $NF; for (i = NF - 1; i; i--) text = text "\\n" $i; print text }'""", lambda t: [q[::-1] for q in t]),
    "put a star and a space before the first line of each paragraph": (AWK + """'{ print "* " $0 }'""", lambda t: [["* " + q[0], *q[1:]] for q in t]),
    "put a > before every line but the first of each paragraph": (AWK + """'{ gsub(/\\n/, "\\n>") } 1'""", lambda t: [[q[0], *[">" + s for s in q[1:]]] for q in t]),
    "put the paragraphs in byte order of their first lines (those with equal ones stay as they are)": (SORT, lambda t: sorted(t, key=lambda q: q[0])),
    "keep only every second paragraph, beginning with the first": (AWK + "'NR % 2'", lambda t: t[::2]),
}  # fmt: skip
OPENS = (
    "A text has paragraphs, parted by empty lines, and must go through these steps, in this order:",
    "We prepare texts for print: paragraphs (an empty line or more lies between two) are to be treated as follows, step by step.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng) | {"steps": rng.sample(list(STEPS), 1 + level), "size": 6 + 2 * level}


def make(rng, p):
    pool, text = [*words(rng, 6, PEOPLE), word(rng), "7"], ""
    for _ in range(p.size):
        lines = [
            " ".join(rng.choice(pool) for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(1, 4))
        ]
        lines[0] += rng.choice(["", ":"])
        text += ("\n".join(lines) + "\n" * rng.choice([2, 2, 3])) * rng.choice([1, 1, 1, 2])
    return text


def worked(text, p):
    paragraphs = [q.split("\n") for q in text.strip("\n").replace("\n\n\n", "\n\n").split("\n\n")]
    for step in p.steps:
        paragraphs = STEPS[step][1](paragraphs)
    return "\n\n".join("\n".join(q) for q in paragraphs)


def instruction(p):
    return wordings(p, OPENS, [*p.steps, "print one empty line between two paragraphs of the result"])


def program(p):
    return '#!/bin/bash\ncat "$1" |\n  ' + " |\n  ".join(STEPS[step][0] for step in p.steps)


files, solution, lazy, test_half, test_result, test_script, test_hidden_texts = printer(make, worked, program)
