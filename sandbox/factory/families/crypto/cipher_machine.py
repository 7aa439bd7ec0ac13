"""Messages through a chain of old ciphers, opened by a program that must open any message of the day's key.

Hard: the steps must be undone in the reverse order, and each is off by one as soon as spaces or ends are miscounted.
"""

from sandbox.factory.kit import given, words
from sandbox.factory.kit_report import (
    asks,
    check_output,
    check_report,
    fresh,
    lazy_steps,
    names,
    program,
    some,
    steps,
)

SKILLS = ("ciphers", "text", "Python", "modular arithmetic")

# A step of sealing: what is said, the solution's lines that undo it (of `s`), and the reference that does it. All work on
# capital letters and full stops, which stand for spaces.
STEPS = {
    "shift": ("each letter is replaced by the one {shift} places further in the alphabet, A following Z", "s = turn(s, lambda i: -{shift})", lambda s, p: turned(s, lambda i: p.shift)),
    "word": ("the letters are moved on in the alphabet by the letters of the word {key} (A: 0 places, B: 1, and so on), which is repeated as often as needed; its letters are used up by letters only, not by full stops", "s = turn(s, lambda i: 65 - ord('{key}'[i % len('{key}')]))", lambda s, p: turned(s, lambda i: ord(p.key[i % len(p.key)]) - 65)),
    "atbash": ("A and Z, B and Y, C and X and so on are exchanged", "s = ''.join(chr(155 - ord(c)) if c != '.' else c for c in s)", lambda s, p: s.translate(str.maketrans(ALPHABET, ALPHABET[::-1]))),
    "growing": ("the first letter is moved on by 1 place, the second by 2, the third by 3 and so on; full stops stay and are not counted", "s = turn(s, lambda i: -i - 1)", lambda s, p: turned(s, lambda i: i + 1)),
    "back": ("the whole text is written backwards", "s = s[::-1]", lambda s, p: "".join(reversed(s))),
    "blocks": ("each block of {block} characters is written backwards, the last, shorter one, too", "s = ''.join(s[i:i + {block}][::-1] for i in range(0, len(s), {block}))", lambda s, p: "".join("".join(reversed(s[i : i + p.block])) for i in range(0, len(s), p.block))),
    "rails": ("the characters at odd places (the first, the third and so on) are written first, then those at even places", "h = (len(s) + 1) // 2\ns = ''.join(s[i // 2 + (i % 2) * h] for i in range(len(s)))", lambda s, p: s[::2] + s[1::2]),
    "columns": ("the text is written in rows of {cols} characters, the last of which may be shorter, and read column by column, from left to right and in each from top to bottom", "n, out = 0, [''] * len(s)\nfor c in range({cols}):\n    for i in range(c, len(s), {cols}): out[i] = s[n]; n += 1\ns = ''.join(out)", lambda s, p: "".join(s[i :: p.cols] for i in range(p.cols))),
    "rotate": ("the first {rotate} characters are moved to the end, in their order (a shorter text stays)", "s = s[-{rotate}:] + s[:-{rotate}] if len(s) >= {rotate} else s", lambda s, p: s[p.rotate :] + s[: p.rotate] if len(s) >= p.rotate else s),
    "swap": ("the first and the second character change places, so do the third and the fourth, and so on; a single last one stays", "s = ''.join(s[i:i + 2][::-1] for i in range(0, len(s), 2))", lambda s, p: "".join(b + a for a, b in zip(s[::2], s[1::2], strict=False)) + s[len(s) // 2 * 2 :]),
    "vowels": ("each vowel is replaced by the next one, in the order A E I O U and A after U", "s = ''.join('AEIOU'['AEIOU'.index(c) - 1] if c in 'AEIOU' else c for c in s)", lambda s, p: s.translate(str.maketrans("AEIOU", "EIOUA"))),
}  # fmt: skip
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
REPORTS = {
    "messages": ("all messages in the clear, in the order of the file", "clear", lambda f: f["clear"]),
    "count": ("how many words all messages have together (a full stop parts words)", "sum(len(c.split('.')) for c in clear)", lambda f: sum(c.count(".") + 1 for c in f["clear"])),
    "longest": ("the longest word of all messages, of several the first", "max((w for c in clear for w in c.split('.')), key=len)", lambda f: sorted(".".join(f["clear"]).split("."), key=len, reverse=True)[0]),
    "frequent": ("the most frequent letter of all messages in the clear, of several the first in the alphabet", "max(sorted(set(''.join(clear)) - {'.'}), key=''.join(clear).count)", lambda f: min((-"".join(f["clear"]).count(c), c) for c in ALPHABET)[1]),
    "sealed": ("the clear text of the first message, sealed with the whole chain twice", "seal(seal(clear[0]))", lambda f: f["seal"](f["seal"](f["clear"][0]))),
    "reply": ("the word {reply}, sealed", "seal('{reply}')", lambda f: f["seal"](f["reply"])),
    "twice": ("the words that are in more than one message, in alphabetical order", "sorted({w for c in clear for w in c.split('.') if sum(w in d.split('.') for d in clear) > 1})", lambda f: sorted({w for i, c in enumerate(f["clear"]) for w in c.split(".") if any(w in d.split(".") for d in f["clear"][:i])})),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "sealed"),
        "steps": rng.sample(list(STEPS), 1 + level),
        "shift": rng.choice([3, 5, 11]), "key": words(rng, 1)[0].upper(), "block": rng.choice([3, 4, 5]), "cols": rng.choice([4, 5, 6]), "rotate": rng.choice([2, 5]),
        "reply": "".join(words(rng, 1)).upper(),
        "cases": some(rng, REPORTS, 2 + level // 2),
        "size": 2 + level,
    }  # fmt: skip


def turned(s, by):
    out, place = [], 0
    for c in s:
        out.append(c if c == "." else ALPHABET[(ALPHABET.index(c) + by(place)) % 26])
        place += c != "."
    return "".join(out)


def sealed(s, p):
    for name in p.steps:
        s = STEPS[name][2](s, p)
    return s


def messages(rng, p):
    pool = words(rng, 8)
    return [".".join(rng.choices(pool, k=rng.randint(2, 6))).upper() for _ in range(p.size)]


def data(rng, p):
    return "".join(f"{sealed(text, p)}\n" for text in messages(rng, p))


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    return {
        "clear": [opened(line, p) for line in text.splitlines()],
        "seal": lambda s: sealed(s, p),
        "reply": p.reply,
    }


def opened(line, p):
    """The inverse, step by step."""
    for name in reversed(p.steps):
        match name:
            case "shift":
                line = turned(line, lambda i: -p.shift)
            case "word":
                line = turned(line, lambda i: 65 - ord(p.key[i % len(p.key)]))
            case "growing":
                line = turned(line, lambda i: -i - 1)
            case "vowels":
                line = line.translate(str.maketrans("EIOUA", "AEIOU"))
            case _:
                line = replaced(line, name, p)
    return line


def replaced(line, name, p):
    """The inverse of a step that only moves characters (or is its own inverse), from what it does to the places."""
    if name == "atbash":
        return STEPS[name][2](line, p)
    places = STEPS[name][2]("".join(chr(0x4E00 + i) for i in range(len(line))), p)
    out = [""] * len(line)
    for mark, c in zip(places, line, strict=True):
        out[ord(mark) - 0x4E00] = c
    return "".join(out)


def instruction(p):
    steps = "; ".join(f"({n}) {STEPS[name][0].format(**vars(p))}" for n, name in enumerate(p.steps, 1))
    about = "Each line of the file is a sealed message. In the clear, messages are of capital letters, with full stops for spaces."
    rules = [
        f"A message was sealed by these steps, one after the other, each on what the one before gave: {steps}. Full stops are moved like letters where characters are moved, and stay full stops."
    ]
    sized = {name: (text.format(reply=p.reply), *rest) for name, (text, *rest) in REPORTS.items()}
    return asks(p, about, rules, sized)


SEAL = {
    "shift": "s = turn(s, lambda i: {shift})",
    "word": "s = turn(s, lambda i: ord('{key}'[i % len('{key}')]) - 65)",
    "growing": "s = turn(s, lambda i: i + 1)",
    "rails": "s = s[::2] + s[1::2]",
    "columns": "s = ''.join(s[c::{cols}] for c in range({cols}))",
    "rotate": "s = s[{rotate}:] + s[:{rotate}] if len(s) >= {rotate} else s",
    "vowels": "s = ''.join('AEIOU'[('AEIOU'.index(c) + 1) % 5] if c in 'AEIOU' else c for c in s)",
}  # fmt: skip


def source(p):
    def body(lines):
        return "\n".join(f"    {line}" for text in lines for line in text.format(**vars(p)).split("\n"))

    undo = body([STEPS[name][1] for name in reversed(p.steps)])
    seal = body([SEAL.get(name, STEPS[name][1]) for name in p.steps])
    head = f"""import sys
def turn(s, by):
    out, i = "", 0
    for c in s:
        if c != ".":
            c = chr((ord(c) - 65 + by(i)) % 26 + 65)
            i += 1
        out += c
    return out
def seal(s):
{seal}
    return s
def unseal(s):
{undo}
    return s
clear = [unseal(line.strip()) for line in open(sys.argv[1])]"""
    reports = {
        name: (text, code.replace("{reply}", p.reply), ref) for name, (text, code, ref) in REPORTS.items()
    }
    return program(p, head, reports)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
