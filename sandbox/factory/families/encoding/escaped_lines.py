"""Lines in which each value is encoded in a way of its own, put into plain text by a Python program.

Hard: each encoding has its exceptions, and what is decoded may hold the characters that encode.
"""

import base64

from sandbox.factory.kit import PEOPLE, PLACES, word
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "base64", "percent-encoding", "hexadecimal", "escapes")

# A tag: how people say it -> the solution's Python on the text t, how `make` encodes a text.
TAGS = {
    "b64": ("base64, perhaps without the = at its end", "base64.b64decode(t + '=' * (-len(t) % 4)).decode()", lambda s: base64.b64encode(s.encode()).decode().rstrip("=")),
    "hex": ("two hexadecimal digits for each byte of UTF-8, in either case", "bytes.fromhex(t).decode()", lambda s: s.encode().hex().upper()),
    "url": ("percent-encoding of UTF-8, where + stands for a space", "urllib.parse.unquote_plus(t)", lambda s: "".join(c if c.isalnum() and c.isascii() else "+" if c == " " else "".join(f"%{b:02X}" for b in c.encode()) for c in s)),
    "rot": ("the letters a to z and A to Z moved on by 13 places, all else as it is", "codecs.decode(t, 'rot13')", lambda s: "".join(chr((ord(c) - 65 - 32 * c.islower() + 13) % 26 + 65 + 32 * c.islower()) if c.isascii() and c.isalpha() else c for c in s)),
    "rev": ("the characters in reverse order", "t[::-1]", lambda s: s[::-1]),
    "oct": ("a backslash and three octal digits for each byte of UTF-8 that is not a letter a to z", "re.sub(rb'\\\\([0-7]{3})', lambda m: bytes([int(m[1], 8)]), t.encode()).decode()", lambda s: "".join(c if "a" <= c <= "z" else "".join(f"\\{b:03o}" for b in c.encode()) for c in s)),
    "ent": ("the entities of HTML, those with numbers included", "html.unescape(t)", lambda s: "".join(c if (c.isalnum() and c.isascii()) or c == " " else {"&": "&amp;", "<": "&lt;"}.get(c, f"&#{ord(c)};") for c in s)),
    "uni": ("\\u and four hexadecimal digits for each character that is not a letter or digit of ASCII", "re.sub(r'\\\\u([0-9a-f]{4})', lambda m: chr(int(m[1], 16)), t)", lambda s: "".join(c if c.isalnum() and c.isascii() else f"\\u{ord(c):04x}" for c in s)),
    "dec": ("the numbers of the characters in Unicode, in decimal, with a space between two", "''.join(chr(int(n)) for n in t.split())", lambda s: " ".join(str(ord(c)) for c in s)),
    "b32": ("base32", "base64.b32decode(t).decode()", lambda s: base64.b32encode(s.encode()).decode()),
}  # fmt: skip
FORMS = {
    "NUMBER TAG TEXT": ("print(number, tag, t)", lambda n, tag, s: f"{n} {tag} {s}"),
    "TEXT (TAG)": ("print(f'{t} ({tag})')", lambda n, tag, s: f"{s} ({tag})"),
    "NUMBER: TEXT": ("print(f'{number}: {t}')", lambda n, tag, s: f"{n}: {s}"),
    "LENGTH TEXT, where LENGTH is the number of characters of TEXT": (
        "print(len(t), t)",
        lambda n, tag, s: f"{len(s)} {s}",
    ),
}
UNKNOWN = {
    "lines with any other tag are left out": ("continue", None),
    "of lines with any other tag, TEXT is what stands after the tag, as it is": ("pass", ""),
    "of lines with any other tag, TEXT is a single ?": ("t = '?'", "?"),
}
OPENS = (
    "A file has lines of a tag, a colon and an encoded text, as in `hex:4f6b`. They shall become readable.",
    "Messages arrive encoded, one a line: a tag, a colon, and the text in the encoding that the tag names. We want them in plain UTF-8.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "txt", "py") | {
        "tags": rng.sample(list(TAGS), 2 + level),
        "form": rng.choice(list(FORMS)),
        "unknown": rng.choice(list(UNKNOWN)),
        "twice": level > 2 and rng.random() < 0.7,
        "sorted": rng.random() < 0.4,
        "size": 8 + 4 * level,
    }


def make(rng, p):
    lines = []
    for _ in range(p.size):
        text = (
            rng.choice(["", "à ", "<b> & ", "100% + ", "größe "])
            + word(rng, PEOPLE).title()
            + rng.choice([" ", "+", "\\", "-"])
            + word(rng, PLACES)
        )
        tags = [rng.choice([*p.tags, *p.tags, *p.tags, "raw"])]
        if p.twice and tags[0] != "raw" and rng.random() < 0.4:
            tags.append(rng.choice(p.tags))
        for tag in reversed(tags):
            text = TAGS[tag][2](text) if tag in TAGS else text
        lines.append("+".join(tags) + ":" + text + "\n")
    return "".join(lines)


def decoded(text, tag):
    """`text` without the encoding, taken apart by hand."""
    if tag in ("rot", "rev"):
        return TAGS[tag][2](text)
    if tag == "b64":
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        bits = "".join(f"{alphabet.index(c):06b}" for c in text)
        return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits) - 7, 8)).decode()
    if tag == "b32":
        bits = "".join(f"{'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.index(c):05b}" for c in text.rstrip("="))
        return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits) - 7, 8)).decode()
    if tag == "hex":
        return bytes(int(text[i : i + 2], 16) for i in range(0, len(text), 2)).decode()
    if tag == "dec":
        return "".join(map(chr, map(int, text.split(" "))))
    data, i = b"", 0
    while i < len(text):
        if tag == "url" and text[i] == "%":
            data, i = data + bytes([int(text[i + 1 : i + 3], 16)]), i + 3
        elif tag == "oct" and text[i] == "\\":
            data, i = data + bytes([int(text[i + 1 : i + 4], 8)]), i + 4
        elif tag == "uni" and text[i] == "\\":
            data, i = data + chr(int(text[i + 2 : i + 6], 16)).encode(), i + 6
        elif tag == "ent" and text[i] == "&":
            name, end = text[i + 1 : text.index(";", i)], text.index(";", i) + 1
            data, i = data + ({"amp": "&", "lt": "<"}.get(name) or chr(int(name[1:]))).encode(), end
        else:
            data, i = data + (" " if tag == "url" and text[i] == "+" else text[i]).encode(), i + 1
    return data.decode()


def worked(text, p):
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        head, _, body = line.partition(":")
        if head == "raw":
            other = UNKNOWN[p.unknown][1]
            body = other or body
            if other is None:
                continue
        else:
            for tag in head.split("+"):
                body = decoded(body, tag)
        lines.append(FORMS[p.form][1](number, head, body))
    return "\n".join(sorted(lines) if p.sorted else lines)


def instruction(p):
    rules = [f"{tag} is {TAGS[tag][0]}" for tag in p.tags] + [p.unknown]
    rules += [
        "two tags with a + between, as in `rev+hex`, mean that the text was encoded by the second first; so undo the first tag first"
    ] * p.twice
    rules += [
        f"print each line as {p.form}"
        + ", where NUMBER is that of the line, from 1 on" * ("NUMBER" in p.form)
    ]
    rules += ["the printed lines are in order of their Unicode characters"] * p.sorted + [
        "what is decoded has no line breaks"
    ]
    return wordings(p, OPENS, rules)


def program(p):
    lines = [
        "import base64, codecs, html, re, sys, urllib.parse",
        "sys.stdout.reconfigure(encoding='utf-8')",
        "decode = {",
    ]
    lines += [f"    '{tag}': lambda t: {TAGS[tag][1]}," for tag in p.tags] + ["}", "lines = []"]
    lines += [
        "for number, line in enumerate(open(sys.argv[1], encoding='utf-8'), 1):",
        "    tag, _, t = line.rstrip('\\n').partition(':')",
    ]
    lines += [
        "    if all(name in decode for name in tag.split('+')):",
        "        for name in tag.split('+'):",
        "            t = decode[name](t)",
        "    else:",
        f"        {UNKNOWN[p.unknown][0]}",
    ]
    shown = FORMS[p.form][0]
    shown = {"print(number, tag, t)": "f'{number} {tag} {t}'", "print(len(t), t)": "f'{len(t)} {t}'"}.get(
        shown, shown[6:-1]
    )
    return "\n".join(
        [*lines, f"    lines.append({shown})", "lines.sort()" * p.sorted, "print('\\n'.join(lines))"]
    )


files, solution, lazy, test_half, test_result, test_program, test_hidden_lines = printer(
    make, worked, program
)
