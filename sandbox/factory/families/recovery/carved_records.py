"""Records carved out of the image of a broken disk, by a tool that must do it for any image of that format.

Hard: the format is binary, checksums tell records from noise, and a record may be broken or begin inside another.
"""

import hashlib
import zlib

from sandbox.factory.kit import NOUNS, PEOPLE, at, given, hidden, output, put, read, scratch, word, words

SKILLS = ("binary formats", "struct", "checksums", "Python", "data recovery")

# A checksum of the content: how people say it -> Python in the solution (of `body`), the reference's, size in bytes.
SUMS = {
    "CRC-32 (of zlib)": ("zlib.crc32(body)", zlib.crc32, 4),
    "Adler-32": ("zlib.adler32(body)", zlib.adler32, 4),
    "the sum of its bytes modulo 65536": ("sum(body) % 65536", lambda body: sum(body) & 0xFFFF, 2),
    "all its bytes combined by exclusive or": ("functools.reduce(operator.xor, body, 0)", lambda body: xor(body), 1),
    "the first four bytes of its SHA-256": ("int.from_bytes(hashlib.sha256(body).digest()[:4], ORDER)", None, 4),
    "the first four bytes of its MD5": ("int.from_bytes(hashlib.md5(body).digest()[:4], ORDER)", None, 4),
}  # fmt: skip
# What to print of the sound records, a list of (offset, id, text): solution's lines, and the reference's.
REPORTS = {
    "`OFFSET ID TEXT` for each record, in the order of the image, OFFSET being the record's first byte, in decimal": (
        "for o, i, t in found: print(o, i, t)",
        lambda found: [f"{o} {i} {t}" for o, i, t in found]),
    "`ID TEXT` for each record, sorted by the number ID; if an ID occurs more than once, only the record that is last in the image": (
        "for i, t in sorted({i: t for o, i, t in found}.items()): print(i, t)",
        lambda found: [f"{i} {t}" for i, t in sorted({i: t for _, i, t in found}.items())]),
    "`ID COUNT` for each ID with the number of its records, most frequent first, equal counts by the number ID": (
        "c = collections.Counter(i for o, i, t in found)\nfor i in sorted(c, key=lambda i: (-c[i], i)): print(i, c[i])",
        lambda found: [f"{i} {n}" for n, i in sorted(((sum(i == j for _, j, _ in found), i) for i in {i for _, i, _ in found}), key=lambda r: (-r[0], r[1]))]),
    "the texts, in the order of the image, one a line, each only the first time that it occurs": (
        "for t in dict.fromkeys(t for o, i, t in found): print(t)",
        lambda found: [t for n, (_, _, t) in enumerate(found) if t not in [u for _, _, u in found[:n]]]),
    "two lines, `records N` and `bytes N`, with the number of records and the sum of the sizes of their texts in bytes": (
        "print('records', len(found))\nprint('bytes', sum(len(t) for o, i, t in found))",
        lambda found: [f"records {len(found)}", f"bytes {sum(map(len, (t for _, _, t in found)))}"]),
}  # fmt: skip
FLAGS = {
    "": ("", lambda flag: True),
    "Records whose flag has bit 0 (value 1) set were deleted and do not count.": (
        "flag & 1",
        lambda flag: not flag % 2,
    ),
    "Only records whose flag has bit 7 (value 128) set count.": ("not flag & 128", lambda flag: flag >= 128),
    "Records with the flag 255 are padding and do not count.": ("flag == 255", lambda flag: flag != 255),
}


def xor(body):
    value = 0
    for byte in body:
        value ^= byte
    return value


def draw(rng, level):
    return {
        "image": f"{word(rng)}.img",
        "tool": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "magic": rng.choice(["RECD", "\x7fLOG", "*NOTE", "JRN1"]),
        "order": rng.choice(["little", "big"]),
        "id": rng.choice([1, 2, 4]),
        "length": rng.choice([1, 2, 4]),
        "sum": rng.choice(list(SUMS)),
        "sum_first": rng.random() < 0.5,
        "report": rng.choice(list(REPORTS)),
        "flag": rng.choice(list(FLAGS)[1:]) if level > 2 else "",
        "masked": rng.choice([0x20, 0x5A, 0xFF]) if level > 3 and rng.random() < 0.7 else 0,
        "footer": level > 1 and rng.random() < 0.5,
        "count": 6 + 5 * level,
    }


def number(value, size, p):
    return value.to_bytes(size, p.order)


def checksum(body, p):
    name = SUMS[p.sum][0]
    if "hashlib" in name:
        return hashlib.new("md5" if "md5" in name else "sha256", body).digest()[:4]
    return number(SUMS[p.sum][1](body), SUMS[p.sum][2], p)


def image(rng, p):
    """(the image, its sound records as (offset, id, text))."""
    data, found = rng.randbytes(rng.randint(5, 40)), []
    ids = [rng.randint(1, 250) for _ in range(p.count // 2)]
    for turn in range(p.count):
        text = " ".join([*words(rng, rng.randint(1, 3), PEOPLE), word(rng, NOUNS)])
        key, flag = rng.choice(ids), rng.choice([0, 1, 2, 128, 129, 255])
        body = bytes(byte ^ p.masked for byte in text.encode())
        total = checksum(body, p)
        state = (
            ["sound", "damaged", "cut"][turn]
            if turn < 3
            else rng.choice(["sound", "sound", "damaged", "cut", "nested"])
        )
        if state == "damaged":
            total = bytes([total[0] ^ 1]) + total[1:]
        head = (
            p.magic.encode()
            + number(key, p.id, p)
            + (bytes([flag]) if p.flag else b"")
            + number(len(body), p.length, p)
        )
        tail = b"END!" if p.footer else b""
        record = head + (total + body if p.sum_first else body + total) + tail
        if state == "nested":  # the head of a record that was written over
            data += head[:-1] + b"\x00"[: rng.randint(0, 1)]
        if state == "cut":
            record = record[: len(record) - rng.randint(2, 3) - len(tail)] + b"\x00\x00\x00\x00\x00\x00"
        elif state != "damaged" and FLAGS[p.flag][1](flag):
            found.append((len(data), key, text))
        data += record + rng.choice([b"", bytes(rng.randint(1, 30)), rng.randbytes(rng.randint(1, 30))])
    return data, carved(data, p)


def carved(data, p):
    """The sound records by the rule of the instruction: byte by byte, on behind a sound record."""
    magic, found, place = p.magic.encode(), [], 0
    while (place := data.find(magic, place)) >= 0:
        at_id = place + len(magic)
        at_flag = at_id + p.id
        at_length = at_flag + bool(p.flag)
        start = at_length + p.length
        size = int.from_bytes(data[at_length:start], p.order)
        width = SUMS[p.sum][2]
        first = data[start : start + (width if p.sum_first else size)]
        second = data[start + len(first) : start + width + size]
        body, total = (second, first) if p.sum_first else (first, second)
        end = start + width + size
        whole = len(first + second) == width + size and (not p.footer or data[end : end + 4] == b"END!")
        if size and whole and checksum(body, p) == total:
            if FLAGS[p.flag][1](data[at_flag]):
                text = bytes(byte ^ p.masked for byte in body).decode("latin-1")
                found.append((place, int.from_bytes(data[at_id:at_flag], p.order), text))
            place = end + 4 * p.footer
        else:
            place += 1
    return found


def files(rng, p):
    return {p.image: image(rng, p)[0]}


def plural(size):
    return "one byte" if size == 1 else f"{size} bytes"


def instruction(p):
    magic = p.magic.replace("\x7f", "")
    begin = (
        f"the byte 7f (hexadecimal) and the letters {magic}"
        if magic != p.magic
        else f"the characters {magic}"
    )
    parts = [
        begin,
        f"ID ({plural(p.id)})",
        *(["a flag (one byte)"] if p.flag else []),
        f"the length of the content in bytes ({plural(p.length)})",
    ]
    total = f"the checksum of the content ({plural(SUMS[p.sum][2])}): {p.sum}"
    parts += [total, "the content"] if p.sum_first else ["the content", total]
    parts += ["the characters END!"] if p.footer else []
    layout = "\n".join(f"- {part}" for part in parts)
    order = f"Numbers are unsigned, {p.order}-endian."
    mask = (
        f" The text of a record is its content, of which every byte was combined with {p.masked} by exclusive or."
        if p.masked
        else " The content is the record's text (ASCII)."
    )
    rule = (
        f"{order}{mask} A record is sound if its content is not empty, it is complete and its checksum is right; anything else is noise, "
        "and a sound record may begin at any byte, even inside a broken one (but not inside a sound one). "
        f"{p.flag}"
    ).strip()
    report = f"The tool prints of the sound records {p.report}."
    return [
        f"/app/{p.image} is the raw image of a broken disk. Records of this layout are somewhere in it:\n{layout}\n\n"
        f"{rule} Write the Python program /app/{p.tool}, whose argument is the path of an image. {report} "
        f"Save what it prints for {p.image} as /app/{p.out}; there are more images.",
        f"We must save what can be saved from /app/{p.image}, a damaged image. A record consists of these parts, "
        f"in order:\n{layout}\n\n{rule} `python3 /app/{p.tool} IMAGE` is to carve any such image. {report} "
        f"Please write it, and put its output for {p.image} into /app/{p.out}.",
        f"A logger wrote records of the following parts:\n{layout}\n\n{rule} Of its disk there is only the damaged "
        f"image /app/{p.image} left. Write a tool in Python, /app/{p.tool}, that gets the path of an image. "
        f"{report} Keep the result for {p.image} in /app/{p.out}. We will use the tool on other images.",
    ]


def program(p):
    kind, width = SUMS[p.sum][0].replace("ORDER", repr(p.order)), SUMS[p.sum][2]
    flag, gap = FLAGS[p.flag][0], p.id + bool(p.flag)
    order = ["total", "body"] if p.sum_first else ["body", "total"]
    size = {"total": str(width), "body": "size"}
    lines = [
        "import collections, functools, hashlib, operator, sys, zlib", "data, found, o = open(sys.argv[1], 'rb').read(), [], 0",
        f"magic = {p.magic.encode()!r}", "while o < len(data):", "    o += 1", "    if not data.startswith(magic, o - 1): continue", "    a = o - 1 + len(magic)",
        f"    size = int.from_bytes(data[a + {gap}:a + {gap + p.length}], {p.order!r}); b = a + {gap + p.length}",
        f"    {order[0]} = data[b:b + {size[order[0]]}]; b += {size[order[0]]}",
        f"    {order[1]} = data[b:b + {size[order[1]]}]; b += {size[order[1]]}",
        f"    if not size or len(body) < size or len(total) < {width} or int.from_bytes(total, {p.order!r}) != {kind}: continue",
        *(["    if data[b:b + 4] != b'END!': continue", "    b += 4"] if p.footer else []),
        "    start, o = o - 1, b",
        *([f"    flag = data[a + {p.id}]", f"    if {flag}: continue"] if p.flag else []),
        f"    text = {f'bytes(c ^ {p.masked} for c in body)' if p.masked else 'body'}.decode('latin-1')",
        f"    found.append((start, int.from_bytes(data[a:a + {p.id}], {p.order!r}), text))", REPORTS[p.report][0],
    ]  # fmt: skip
    return "\n".join(lines)


def solution(p):
    return [
        f"od -A d -c {p.image} | head -n 20",
        put(p.tool, program(p)),
        f"python3 {p.tool} {p.image} > {p.out}; head {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo \"print(open('/app/{p.out}').read())\" > {p.tool}"]


def test_report(p):
    assert read(p.out) == "\n".join(REPORTS[p.report][1](image(given(p), p)[1]))


def carves(data, p):
    return output("python3", at(p.tool), scratch({"next.img": data}) + "/next.img") == "\n".join(
        REPORTS[p.report][1](carved(data, p))
    )


def test_hidden_images(p):
    rng = hidden(p)
    assert all(carves(image(rng, p)[0], p) for _ in range(2))


def test_hidden_image_that_ends_in_a_record(p):
    data = image(hidden(p), p)[0]
    magic = data.rfind(p.magic.encode())
    assert carves(data[: magic + len(p.magic) + 2], p)
