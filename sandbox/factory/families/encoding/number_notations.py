"""Numbers in many notations, brought into one by a Python program for any such file.

Hard: a notation is known only by how a number is written, near misses are no numbers, and digits may be grouped.
"""

from sandbox.factory.kit import word
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "number systems", "regular expressions", "parsing")

ROMAN = {
    1000: "M",
    900: "CM",
    500: "D",
    400: "CD",
    100: "C",
    90: "XC",
    50: "L",
    40: "XL",
    10: "X",
    9: "IX",
    5: "V",
    4: "IV",
    1: "I",
}


def roman(n):
    text = ""
    for value, letters in ROMAN.items():
        text += letters * (n // value)
        n %= value
    return text


# A notation: how people say it -> a regular expression, the solution's Python on its match m, how a number is written, a near miss.
READ = {
    "decimal: digits, perhaps with a - in front": (r"-?\d+", "int(m[0])", str, "1-2"),
    "hexadecimal: 0x and digits, a to f in either case": ("0x[0-9a-fA-F]+", "int(m[0], 16)", lambda n: f"0x{n:X}", "0xg1"),
    "binary: 0b and the digits 0 and 1": ("0b[01]+", "int(m[0], 2)", lambda n: f"0b{n:b}", "0b102"),
    "octal: 0o and the digits 0 to 7": ("0o[0-7]+", "int(m[0], 8)", lambda n: f"0o{n:o}", "0o8"),
    "Roman numerals in capitals, from I to MMMCMXCIX, properly written": ("(?=.)M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})", "sum(v * (-1 if i + 1 < len(m[0]) and D[m[0][i + 1]] > v else 1) for i, v in enumerate(D[c] for c in m[0]))", lambda n: roman(n % 3999 + 1), "IIX"),
    "grouped: one to three digits, then groups of an apostrophe and three digits": (r"\d{1,3}('\d{3})+", "int(m[0].replace(\"'\", ''))", lambda n: f"{n * 1000:,}".replace(",", "'"), "12'34"),
    "with a unit: digits and k (times 1000) or M (times 1000000)": (r"(\d+)([kM])", "int(m[1]) * {'k': 1000, 'M': 1000000}[m[2]]", lambda n: f"{n % 900}{'kM'[n % 2]}", "5K"),
    "hours and minutes: digits, h, and two digits from 00 to 59, meaning minutes": (r"(\d+)h([0-5]\d)", "int(m[1]) * 60 + int(m[2])", lambda n: f"{n % 50}h{n % 60:02}", "3h60"),
    "base 36: z: and digits 0 to 9 and a to z": ("z:([0-9a-z]+)", "int(m[1], 36)", lambda n: "z:" + base36(n), "z:A1"),
}  # fmt: skip
WRITE = {
    "decimal": ("str(n)", str),
    "hexadecimal (0x and small letters, with a - before the 0x where it is negative)": (
        "hex(n)",
        lambda n: "-" * (n < 0) + f"0x{abs(n):x}",
    ),
    "binary (0b and digits, with a - before the 0b where it is negative)": (
        "bin(n)",
        lambda n: "-" * (n < 0) + f"0b{abs(n):b}",
    ),
    "octal (0o and digits, with a - before the 0o where it is negative)": (
        "oct(n)",
        lambda n: "-" * (n < 0) + f"0o{abs(n):o}",
    ),
    "decimal with an apostrophe between groups of three digits": (
        "f'{n:,}'.replace(',', chr(39))",
        lambda n: "-" * (n < 0) + grouped(str(abs(n))),
    ),
}
OTHER = {
    "are left out": "continue",
    "are printed as they are": "print(word); continue",
    "are printed as a single ?": "print('?'); continue",
}
ENDS = {
    "": "",
    "print `sum N` at the end, with the sum of the numbers in decimal": "print('sum', sum(all))",
    "print `largest N` at the end, with the largest number in decimal": "print('largest', max(all))",
    "print `odd N` at the end, with the count of odd numbers": "print('odd', sum(n % 2 for n in all))",
}
OPENS = (
    "A file has one word a line, and most of them are whole numbers in one notation or another. We want them all in the same.",
    "Numbers were written down in whatever notation, one a line, and shall be made alike.",
)


def base36(n):
    return (base36(n // 36) if n >= 36 else "") + "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36]


def grouped(digits):
    return digits if len(digits) < 4 else grouped(digits[:-3]) + "'" + digits[-3:]


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "txt", "py") | {
        "read": rng.sample(list(READ), min(8, 2 + level)),
        "write": rng.choice(list(WRITE)),
        "other": rng.choice(list(OTHER)),
        "order": rng.choice(["", "", "sorted"]) if level > 1 else "",
        "end": rng.choice(list(ENDS)) if level > 1 else "",
        "size": 8 + 6 * level,
    }


def make(rng, p):
    lines = []
    for _ in range(p.size):
        kind = rng.choice(p.read)
        lines.append(
            READ[kind][2](rng.choice([0, 1, rng.randint(2, 99), rng.randint(100, 90000)]))
            if rng.random() < 0.8
            else rng.choice([READ[kind][3], word(rng)])
        )
        lines[-1] = (
            "-" + lines[-1]
            if kind.startswith("decimal") and lines[-1].isdigit() and lines[-1] != "0" and rng.random() < 0.3
            else lines[-1]
        )
    return "\n".join(lines) + "\n"


def value(word_, kind):
    """The number that a word is in a notation, or None."""
    import re

    if not re.fullmatch(READ[kind][0], word_, re.A):
        return None
    if kind.startswith("Roman"):
        total = 0
        for number, letters in ROMAN.items():
            while word_.startswith(letters):
                total, word_ = total + number, word_[len(letters) :]
        return total
    base = {"hex": 16, "bin": 2, "oct": 8, "bas": 36}.get(kind[:3])
    if base:
        total = 0
        for c in word_[2:].lower():
            total = total * base + "0123456789abcdefghijklmnopqrstuvwxyz".index(c)
        return total
    if kind.startswith("hours"):
        hours, _, minutes = word_.partition("h")
        return 60 * int(hours) + int(minutes)
    return int(word_.replace("'", "").replace("k", "000").replace("M", "000000"))


def worked(text, p):
    lines, numbers = [], []
    for word_ in text.split():
        found = [n for kind in p.read if (n := value(word_, kind)) is not None]
        numbers += found[:1]
        if found:
            lines.append(WRITE[p.write][1](found[0]))
        elif "left" not in p.other and not p.order:
            lines.append(word_ if "as they" in p.other else "?")
    if p.order:
        lines = [WRITE[p.write][1](n) for n in sorted(numbers)]
    end = {"sum": sum(numbers), "largest": max(numbers, default=0), "odd": sum(n % 2 for n in numbers)}
    name = p.end[7:].split(" ")[0] if p.end else ""
    return "\n".join([*lines, *[f"{name} {end.get(name)}"] * bool(p.end)]) if numbers else ""


def instruction(p):
    rules = [f"notation: {kind}" for kind in p.read] + [
        f"print each number on a line of its own, in {p.write}"
    ]
    rules += (
        ["words in no such notation are left out, and the numbers are printed in order, the smallest first"]
        if p.order
        else [f"words in no such notation {p.other}"]
    )
    return wordings(p, OPENS, [*rules, *[p.end] * bool(p.end)])


def program(p):
    lines = [
        "import re, sys",
        "D = {'I': 1, 'V': 5, 'X': 10, 'L': 50, 'C': 100, 'D': 500, 'M': 1000}",
        "all = []",
        "for word in open(sys.argv[1]).read().split():",
    ]
    for number, kind in enumerate(p.read):
        lines += [
            f"    {'el' * (number > 0)}if m := re.fullmatch({READ[kind][0]!r}, word, re.A):",
            f"        n = {READ[kind][1]}",
        ]
    lines += [
        "    else:",
        f"        {'continue' if p.order else OTHER[p.other]}",
        "    all.append(n)",
        *[f"    print({WRITE[p.write][0]})"] * (not p.order),
    ]
    lines += ["for n in sorted(all):", f"    print({WRITE[p.write][0]})"] * bool(p.order)
    return "\n".join([*lines, ENDS[p.end]])


files, solution, lazy, test_half, test_result, test_program, test_hidden_numbers = printer(
    make, worked, program
)
