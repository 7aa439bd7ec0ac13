"""Lines of given forms in a file, each form found by a script of its own.

Hard: near misses are everywhere, so that a pattern must say all of the form, and the whole line.
"""

import re

from sandbox.factory.kit import PEOPLE, PLACES, word, words
from sandbox.factory.scripts import question_wordings, questions

SKILLS = ("grep -E", "regular expressions", "anchors", "sed")

# A form: how people say it -> grep's expression (whole lines), and what makes one and a near miss of it.
FORMS = {
    "a day as YYYY-MM-DD, with a month from 01 to 12 and a day from 01 to 31": (
        "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", lambda r: f"20{r.randint(10, 29)}-{r.randint(1, 14):02}-{r.randint(0, 33):02}"),
    "a time as HH:MM from 00:00 to 23:59": ("([01][0-9]|2[0-3]):[0-5][0-9]", lambda r: f"{r.randint(0, 26):02}:{r.randint(0, 70):02}"),
    "an IPv4 address (four numbers from 0 to 255, without leading zeros)": (
        r"((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])", lambda r: ".".join(r.choice(["7", "10", "99", "192", "255", "256", "01"]) for _ in range(r.choice([4, 4, 4, 3])))),
    "a colour: # and three or six hexadecimal digits (lower case)": ("#([0-9a-f]{3}|[0-9a-f]{6})", lambda r: "#" + "".join(r.choice("0123456789abcdef" + "g" * (r.random() < 0.1)) for _ in range(r.randint(3, 7)))),
    "a whole number without leading zeros, perhaps with a - in front (but not -0)": ("0|-?[1-9][0-9]*", lambda r: r.choice(["", "-", "+"]) + r.choice(["0", "7", "12", "012", "900", "1.5"])),
    "a name in lower case letters, digits and _ that begins with a letter": ("[a-z][a-z0-9_]*", lambda r: r.choice(["", "_", "4", "X"]) + r.choice([word(r), f"{word(r)}_{r.randint(1, 9)}", f"{word(r)}-x"])),
    "two capitalised words (a capital, then small letters) with one space between": ("[A-Z][a-z]+ [A-Z][a-z]+", lambda r: r.choice(["{} {}", "{}  {}", "{} {} ", "{}-{}"]).format(r.choice([word(r, PEOPLE), word(r, PEOPLE).title()]), word(r, PLACES).title())),
    "KEY=VALUE with a key of capitals and a value (not empty) without spaces": ("[A-Z]+=[^ ]+", lambda r: r.choice([word(r).upper(), word(r)]) + "=" + r.choice([word(r), "", "a b", "x=y"])),
    "a text in double quotes without a double quote within": ('"[^"]*"', lambda r: r.choice(['"{}"', '"{}', '"{} "x""', '"a {}"', "'{}'"]).format(word(r))),
    "a version: three numbers with points between, perhaps followed by -rc and a number": (r"[0-9]+\.[0-9]+\.[0-9]+(-rc[0-9]+)?", lambda r: r.choice(["1.2", "1.2.3", "10.0.4", "1.2.3.4", "v1.2.3"]) + r.choice(["", "-rc1", "-rc", "-beta1"])),
    "a mail address: name, @, and a domain of two or more parts with points between (name and parts of small letters and digits)": (r"[a-z0-9]+@[a-z0-9]+(\.[a-z0-9]+)+", lambda r: word(r, PEOPLE) + r.choice(["@", "@", " at ", "@@"]) + word(r) + r.choice([".org", ".example.org", "", "..org", ".org."])),
    "the same word twice, with one space between": (r"([a-z]+) \1", lambda r: f"{(w := word(r))} {r.choice([w, w, w + 's', word(r)])}"),
}  # fmt: skip
# What is printed: -> bash's command around the expression, Python's on (number, line) of all lines and the matches.
ANSWERS = {
    "the lines": ("grep -xE '{}' \"$1\"", lambda every, hits: "\n".join(line for _, line in hits)),
    "the number of such lines": ("grep -cxE '{}' \"$1\"", lambda every, hits: str(len(hits))),
    "the lines, each with its number and a colon before it": ("grep -nxE '{}' \"$1\"", lambda every, hits: "\n".join(f"{n}:{line}" for n, line in hits)),
    "all lines but those": ("grep -vxE '{}' \"$1\"", lambda every, hits: "\n".join(line for n, line in every if (n, line) not in hits)),
    "the different lines, in byte order": ("grep -xE '{}' \"$1\" | LC_ALL=C sort -u", lambda every, hits: "\n".join(sorted({line for _, line in hits}))),
    "the last such line": ("grep -xE '{}' \"$1\" | tail -n 1", lambda every, hits: hits[-1][1] if hits else ""),
}  # fmt: skip


def draw(rng, level):
    forms = rng.sample(list(FORMS), 2 + level)
    cases = [
        {"script": f"{name}.sh", "form": form, "answer": rng.choice(list(ANSWERS)[: 2 + level])}
        for name, form in zip(words(rng, len(forms)), forms, strict=True)
    ]
    return {"source": f"{word(rng)}.txt", "cases": cases}


def make(rng, p):
    lines = [FORMS[case["form"]][1](rng) for case in p.cases for _ in range(20)]
    lines += [line + rng.choice([" ", "x", "."]) for line in rng.sample(lines, 8)] + [
        "x" + line for line in rng.sample(lines, 5)
    ]
    rng.shuffle(lines)
    return "".join(line + "\n" for line in lines)


def worked(text, case, p):
    every = list(enumerate(text.splitlines(), 1))
    hits = [(n, line) for n, line in every if re.fullmatch(FORMS[case["form"]][0], line)]
    return ANSWERS[case["answer"]][1](every, hits) if hits else ""


def instruction(p):
    asked = [
        f"{case['script']}: {case['answer']}, where the whole line is {case['form']}" for case in p.cases
    ]
    asked = [text.replace("the number of such lines, where", "the number of lines where") for text in asked]
    opens = (
        "A file has lines of many forms, right ones and nearly right ones.",
        "Old exports are full of mixed lines, of which we need those of certain forms.",
    )
    return question_wordings(
        p, opens, asked, "Digits are 0 to 9 and letters a to z and A to Z, wherever nothing else is said."
    )


def program(case, p):
    return "#!/bin/bash\nexport LC_ALL=C\n" + ANSWERS[case["answer"]][0].format(FORMS[case["form"]][0])


files, solution, lazy, test_answer, test_hidden_files = questions(make, worked, program)
