"""A text that is left in several damaged copies, put together again by checksums and votes, by a program for any set.

Hard: blocks are missing, out of order, damaged in some copies, and only checksums, parity or a majority tell which are right.
"""

import hashlib
import zlib

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

SKILLS = ("data recovery", "checksums", "majority votes", "Python")

# A checksum of a block: what is said, the solution's expression over the text `s`, and the reference.
SUMS = {
    "the CRC-32 of it, as 8 hexadecimal digits": (
        "'%08x' % zlib.crc32(s.encode())",
        lambda s: f"{zlib.crc32(s.encode()):08x}",
    ),
    "the first 6 hexadecimal digits of its MD5": (
        "hashlib.md5(s.encode()).hexdigest()[:6]",
        lambda s: hashlib.md5(s.encode()).hexdigest()[:6],
    ),
    "the last 6 hexadecimal digits of its SHA-256": (
        "hashlib.sha256(s.encode()).hexdigest()[-6:]",
        lambda s: hashlib.sha256(s.encode()).hexdigest()[58:],
    ),
    "the sum of its characters' codes modulo 9973, in decimal": (
        "str(sum(map(ord, s)) % 9973)",
        lambda s: str(sum(s.encode()) % 9973),
    ),
}
REPORTS = {
    "text": ("the text: the right blocks, one after the other without anything between them, with (?) in place of each lost block", "''.join(best(i) or '(?)' for i in range(N))", lambda f: "".join(f["right"].get(i) or "(?)" for i in range(f["n"]))),
    "lost": ("the numbers of the lost blocks, ascending", "[i for i in range(N) if not best(i)]", lambda f: [i for i in range(f["n"]) if i not in f["right"]]),
    "damaged": ("COPY=COUNT for the copies in alphabetical order, with the number of their damaged blocks", "[f'{c}={sum(r[0] == c and not good(r) for r in rows)}' for c in sorted({r[0] for r in rows})]", lambda f: [f"{c}={sum(x['copy'] == c and not x['good'] for x in f['blocks'])}" for c in sorted({x["copy"] for x in f["blocks"]})]),
    "missing": ("COPY=COUNT for the copies in alphabetical order, with the number of blocks that have no line for that copy", "[f'{c}={N - len({r[1] for r in rows if r[0] == c})}' for c in sorted({r[0] for r in rows})]", lambda f: [f"{c}={sum(all(x['copy'] != c or x['no'] != i for x in f['blocks']) for i in range(f['n']))}" for c in sorted({x["copy"] for x in f["blocks"]})]),
    "best": ("the copy with most good blocks, of several the first in the alphabet", "min({r[0] for r in rows}, key=lambda c: (-sum(r[0] == c and good(r) for r in rows), c))", lambda f: max(sorted({x["copy"] for x in f["blocks"]}), key=lambda c: sum(x["good"] for x in f["blocks"] if x["copy"] == c))),
    "single": ("the numbers of the blocks of which exactly one good line is left, ascending", "[i for i in range(N) if sum(r[1] == i and good(r) for r in rows) == 1]", lambda f: [i for i in range(f["n"]) if [x["good"] for x in f["blocks"] if x["no"] == i].count(True) == 1]),
    "torn": ("the numbers of the blocks with good lines of different texts, ascending", "[i for i in range(N) if len({r[2] for r in rows if r[1] == i and good(r)}) > 1]", lambda f: sorted({x["no"] for x in f["blocks"] for y in f["blocks"] if x["good"] and y["good"] and x["no"] == y["no"] and x["text"] != y["text"]})),
    "size": ("the number of characters of all right blocks together", "sum(len(best(i) or '') for i in range(N))", lambda f: len("".join(f["right"].values()))),
    "digest": ("the SHA-256 of all right blocks one after the other, in hexadecimal, lower case", "hashlib.sha256(''.join(best(i) or '' for i in range(N)).encode()).hexdigest()", lambda f: hashlib.sha256("".join(f["right"][i] for i in sorted(f["right"])).encode()).hexdigest()),
}  # fmt: skip
VOTES = {
    "the text that most of its good lines have; of several, the first in the alphabet": "(-ts.count(x), x)",
    "the longest text of its good lines; of several, the first in the alphabet": "(-len(x), x)",
    "the text of the good line of the copy that comes last in the alphabet": "last",
}


def draw(rng, level):
    return {
        **names(rng, "blocks"),
        "sum": rng.choice(list(SUMS)),
        "vote": rng.choice(list(VOTES)),
        "copies": 2 + (level + 1) // 2,
        "stale": level > 1,
        "hexed": level > 2 and rng.random() < 0.6,
        "numbered": level > 3 and rng.random() < 0.6,
        "shuffled": level > 1,
        "cases": some(rng, [r for r in REPORTS if level > 1 or r != "torn"], 2 + (level + 1) // 2),
        "size": 4 + level,
    }


def data(rng, p):
    copies, rows = words(rng, p.copies), []
    for number in range(p.size):
        text = "-".join(words(rng, 2))
        for copy in copies:
            mine = text
            if rng.random() < 0.15:
                continue
            if p.stale and rng.random() < 0.2:
                mine = "-".join(words(rng, 1 + (rng.random() < 0.5)))
            check = SUMS[p.sum][1](f"{number}:{mine}" if p.numbered else mine)
            if rng.random() < 0.25:
                place = rng.randrange(len(mine))
                mine = mine[:place] + rng.choice("xyzq") * 2 + mine[place + 1 :]
            rows.append(f"{copy} {number} {mine.encode().hex() if p.hexed else mine} {check}\n")
    if p.shuffled:
        rng.shuffle(rows)
    return f"blocks {p.size}\n" + "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    head, *lines = text.splitlines()
    f = {"n": int(head.split()[1]), "blocks": [], "right": {}}
    for line in lines:
        copy, number, shown, check = line.split()
        block = bytes.fromhex(shown).decode() if p.hexed else shown
        whole = f"{number}:{block}" if p.numbered else block
        f["blocks"].append(
            {"copy": copy, "no": int(number), "text": block, "good": SUMS[p.sum][1](whole) == check}
        )
    for number in range(f["n"]):
        good = [x for x in f["blocks"] if x["no"] == number and x["good"]]
        if good:
            texts = sorted(x["text"] for x in good)
            kind = list(VOTES).index(p.vote)
            f["right"][number] = [
                max(texts, key=texts.count),
                max(texts, key=len),
                max(good, key=lambda x: x["copy"])["text"],
            ][kind]
    return f


def instruction(p):
    shown = "HEX" if p.hexed else "TEXT"
    about = f"The first line of the file is `blocks` and how many blocks a text was cut into, numbered from 0. Every other line is a block of a copy of that text, `COPY NUMBER {shown} CHECKSUM`{', in no order' * p.shuffled}. Lines are missing, and texts may be damaged."
    of = "the block's number, a colon and its text" if p.numbered else "the block's text"
    rules = [
        f"A line is good if its checksum is that of {of}: {p.sum}. Otherwise it is damaged. Of each block, the right text is {p.vote}. A block without a good line is lost."
    ]
    if p.hexed:
        rules.append("HEX is the text in hexadecimal digits of its ASCII codes.")
    return asks(p, about, rules, REPORTS)


def source(p):
    text = "bytes.fromhex(w[2]).decode()" if p.hexed else "w[2]"
    key = VOTES[p.vote]
    pick = (
        "max((r[0], r[2]) for r in rows if r[1] == i and good(r))[1] if ts else None"
        if key == "last"
        else f"min(ts, key=lambda x: {key}, default=None)"
    )
    whole = "f'{r[1]}:{r[2]}'" if p.numbered else "r[2]"
    head = f"""import hashlib, sys, zlib
lines = [line.split() for line in open(sys.argv[1])]
N = int(lines[0][1])
rows = [(w[0], int(w[1]), {text}, w[3]) for w in lines[1:]]
def check(s): return {SUMS[p.sum][0]}
def good(r): return check({whole}) == r[3]
def best(i):
    ts = [r[2] for r in rows if r[1] == i and good(r)]
    return {pick}"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
