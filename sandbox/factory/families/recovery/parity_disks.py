"""A lost disk of an array, rebuilt from the others by parity, with a program that must rebuild any array.

Hard: parity goes round the disks, blocks are dealt in turn, and the text is whole only when both are undone.
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

SKILLS = ("RAID", "XOR", "hexadecimal", "Python")

REPORTS = {
    "text": ("the text that the array holds, its padding removed", "text", lambda f: f["text"]),
    "lost": ("the blocks of the lost disk, from the first stripe on, in hexadecimal, lower case", "[b.hex() for b in lost]", lambda f: [b.hex() for b in f["lost"]]),
    "parity": ("the parity blocks, from the first stripe on, in hexadecimal, lower case", "[b.hex() for b in par]", lambda f: [b.hex() for b in f["parity"]]),
    "words": ("the number of words of the text", "len(text.split())", lambda f: len([w for w in f["text"].split(" ") if w])),
    "last": ("the last word of the text", "text.split()[-1]", lambda f: f["text"].rpartition(" ")[2]),
    "longest": ("the longest word of the text, of several the first in the text", "max(text.split(), key=len)", lambda f: sorted(f["text"].split(), key=len, reverse=True)[0]),
    "size": ("the number of bytes of the text", "len(text)", lambda f: len(f["text"])),
    "onlost": ("how many blocks of the lost disk were parity", "sum(s == gone for s in spots)", lambda f: f["spots"].count(f["gone"])),
    "first": ("the first byte of every stripe's first data block (the data block on the disk with the lowest number), in hexadecimal, lower case", "[r[min(set(range(N)) - {s})][:1].hex() for r, s in zip(rows, spots)]", lambda f: [f"{min((d, r[d]) for d in range(len(r)) if d != s)[1][0]:02x}" for r, s in zip(f["rows"], f["spots"], strict=True)]),
}  # fmt: skip
# Where the parity of stripe i is on n disks.
SPOTS = {
    "always on the last disk": "N - 1",
    "always on disk 0": "0",
    "on disk 0 in the first stripe, and one disk further in each next one, beginning again after the last disk": "i % N",
    "on the last disk in the first stripe, and one disk lower in each next one, beginning again after disk 0": "(N - 1 - i) % N",
    "on disk 1 in the first stripe, and two disks further in each next one, beginning again (the disks in a circle)": "(1 + 2 * i) % N",
}
DEALS = {
    "from the disk with the lowest number to that with the highest": "sorted(d)",
    "from the disk with the highest number to that with the lowest": "sorted(d, reverse=True)",
    "from the disk after the parity on, going round after the last one": "sorted(d, key=lambda x: (x - s) % N)",
}


def draw(rng, level):
    return {
        **names(rng, "array"),
        "spot": rng.choice(list(SPOTS)[: 2 if level == 1 else 5]),
        "deal": rng.choice(list(DEALS)),
        "masked": level > 2 and rng.random() < 0.6,
        "mixed": level > 3,
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2),
        "size": 6 + 3 * level,
        "pad": rng.choice(["00", "20", "2e"]),
    }


def spot(i, n, p):
    return [n - 1, 0, i % n, (n - 1 - i) % n, (1 + 2 * i) % n][list(SPOTS).index(p.spot)]


def dealt(s, n, p):
    """The data disks of a stripe in the order of the text."""
    others = [d for d in range(n) if d != s]
    kind = list(DEALS).index(p.deal)
    return [others, others[::-1], [(s + k) % n for k in range(1, n)]][kind]


def xor(blocks):
    total = bytearray(len(blocks[0]))
    for block in blocks:
        total = bytearray(a ^ b for a, b in zip(total, block, strict=True))
    return bytes(total)


def data(rng, p):
    n, size = rng.randint(3, 5), rng.choice([4, 6, 8])
    text = " ".join(words(rng, p.size)).encode()
    count = -(-len(text) // (size * (n - 1)))
    text += bytes.fromhex(p.pad) * (count * size * (n - 1) - len(text))
    blocks = [text[k : k + size] for k in range(0, len(text), size)]
    gone, rows = rng.randrange(n), []
    for i in range(count):
        s, row = spot(i, n, p), {}
        for d in dealt(s, n, p):
            row[d] = blocks.pop(0)
        row[s] = xor([*row.values()])
        if p.masked:
            row[s] = bytes(255 - b for b in row[s])
        rows += [f"disk {d} stripe {i} {row[d].hex()}\n" for d in range(n) if d != gone]
    if p.mixed:
        rng.shuffle(rows)
    return f"disks {n} lost {gone}\n" + "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    head, *lines = text.splitlines()
    n, gone = int(head.split()[1]), int(head.split()[3])
    rows = {}
    for line in lines:
        _, d, _, i, block = line.split()
        rows.setdefault(int(i), {})[int(d)] = bytes.fromhex(block)
    rows = [rows[i] for i in sorted(rows)]
    spots = [spot(i, n, p) for i in range(len(rows))]
    for row in rows:
        row[gone] = xor([*row.values()])
        if p.masked:
            row[gone] = bytes(255 - b for b in row[gone])
    whole = b"".join(row[d] for row, s in zip(rows, spots, strict=True) for d in dealt(s, n, p))
    pad = bytes.fromhex(p.pad)
    return {
        "text": whole.rstrip(pad).decode(), "lost": [row[gone] for row in rows], "rows": rows, "spots": spots, "gone": gone,
        "parity": [row[s] for row, s in zip(rows, spots, strict=True)],
    }  # fmt: skip


def instruction(p):
    about = "The first line of the file is `disks COUNT lost NUMBER`; each other line, `disk D stripe I HEX`, is a block of a disk that is left, in hexadecimal. Disks and stripes are numbered from 0."
    invert = ", with every bit inverted" if p.masked else ""
    rules = [
        f"In each stripe, one disk has the parity: the XOR of the stripe's data blocks, byte by byte{invert}. It is {p.spot}. The other disks have the text, whose blocks fill one stripe after the other, in each stripe {p.deal}. "
        f"The end of the text is padded with bytes {p.pad} (hexadecimal). One disk is lost altogether."
    ]
    if p.mixed:
        rules.append("The lines of the blocks are in no order.")
    return asks(p, about, rules, REPORTS)


def source(p):
    invert = "v ^= 255" if p.masked else "pass"
    head = f"""import sys
lines = open(sys.argv[1]).read().splitlines()
N, gone = int(lines[0].split()[1]), int(lines[0].split()[3])
rows = [{{}} for _ in range(1 + max(int(x.split()[3]) for x in lines[1:]))]
for x in lines[1:]:
    w = x.split()
    rows[int(w[3])][int(w[1])] = bytes.fromhex(w[4])
spots = [{SPOTS[p.spot]} for i in range(len(rows))]
lost, par, text = [], [], b""
for r, s in zip(rows, spots):
    out = []
    for column in zip(*r.values()):
        v = 0
        for b in column: v ^= b
        {invert}
        out.append(v)
    r[gone] = bytes(out)
    lost.append(r[gone])
    par.append(r[s])
    d = set(range(N)) - {{s}}
    for x in {DEALS[p.deal]}: text += r[x]
text = text.rstrip(bytes.fromhex("{p.pad}")).decode()"""
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
