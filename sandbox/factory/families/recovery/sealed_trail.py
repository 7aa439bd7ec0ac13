"""A trail of sealed notes: each, once unsealed, has a code and tells where the next is and how it is sealed.

Hard: up to sixty steps, none of which can be prepared before the one ahead of it is done.
"""

import base64
import codecs
import gzip
import io

from sandbox.factory.kit import at, hidden, read, word, words

SKILLS = ("base64", "gzip", "tar", "tr", "pipes", "patience")

# How a note is sealed: what the note before says -> the command that unseals standard input.
SEALS = {
    "base64": "base64 -d",
    "base32": "base32 -d",
    "hexadecimal": "basenc --base16 -d",
    "gzip": "gzip -dc",
    "rot13": "tr a-zA-Z n-za-mN-ZA-M",
    "lines in reverse order": "tac",
    "a tar archive": "tar -xO",
    "every line behind a > and a space": "cut -c 3-",
    "spaces as underscores": "tr _ ' '",
    "after the line BEGIN": "sed '1,/^BEGIN$/d'",
    "upper and lower case exchanged": "tr a-zA-Z A-Za-z",
}
LENGTHS = {1: 4, 2: 8, 3: 16, 4: 32, 5: 56}
# How the reply is sealed: the command, and what opens it.
REPLIES = {
    "base64": ("base64", base64.b64decode),
    "base32": ("base32", lambda data: base64.b32decode(data.replace(b"\n", b""))),
    "hexadecimal": (
        "basenc --base16",
        lambda data: base64.b16decode(data.replace(b"\n", b""), casefold=True),
    ),
    "gzip": ("gzip -c", gzip.decompress),
    "rot13": (SEALS["rot13"], lambda data: codecs.decode(data.decode(), "rot13").encode()),
}


def seal(text, kind):
    """Bytes of `text`, sealed."""
    data = text.encode()
    match kind:
        case "base64":
            return base64.encodebytes(data)
        case "base32":
            return base64.b32encode(data) + b"\n"
        case "hexadecimal":
            return base64.b16encode(data)
        case "gzip":
            return stored_gzip(data)
        case "rot13":
            return codecs.encode(text, "rot13").encode()
        case "lines in reverse order":
            return "".join(reversed(text.splitlines(keepends=True))).encode()
        case "a tar archive":
            return archive(data)
        case "every line behind a > and a space":
            return "".join(f"> {line}\n" for line in text.splitlines()).encode()
        case "spaces as underscores":
            return text.replace(" ", "_").encode()
        case "after the line BEGIN":
            return b"nothing here\ncode none\nBEGIN\n" + data
        case _:
            return text.swapcase().encode()


def stored_gzip(data):
    """RFC 1952, with one stored block: the same bytes from every version of zlib."""
    import zlib

    size = len(data).to_bytes(2, "little")
    block = b"\x01" + size + bytes(255 - byte for byte in size) + data
    return (
        b"\x1f\x8b\x08" + bytes(6) + b"\xff" + block + zlib.crc32(data).to_bytes(4, "little") + size + b"\0\0"
    )


def archive(data):
    import tarfile

    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        member = tarfile.TarInfo("note")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def draw(rng, level):
    length = LENGTHS[level]
    places = words(rng, length + 6)
    kinds = rng.sample(list(SEALS), min(len(SEALS), 3 + 2 * level))
    return {
        "places": [f"{rng.choice('abcd')}/{place}" for place in places],
        "seals": [rng.choice(kinds) for _ in range(length)],
        "start": word(rng),
        "out": f"{word(rng)}.txt",
        "reply": f"{word(rng)}.sealed",
        "reply_seal": rng.choice(list(REPLIES)),
        "reply_order": rng.choice(["first to last", "last to first"]),
        "cases": [length * quarter // 4 for quarter in (1, 2, 3, 4)],
    }


def codes(p):
    """The codes of the trail, which only the notes have."""
    rng = hidden(p)
    return [f"{word(rng)}-{rng.randint(100, 999)}" for _ in p.seals]


def files(rng, p):
    found, trail = {}, codes(p)
    for number, (code, kind) in enumerate(zip(trail, p.seals, strict=True)):
        last = number + 1 == len(trail)
        rest = "end of the trail" if last else f"next {p.places[number + 1]}\nsealed as {p.seals[number + 1]}"
        found[p.places[number]] = seal(f"code {code}\n{rest}\n", kind)
    for place in p.places[len(trail) :]:
        found[place] = seal(
            f"code {word(rng)}-{rng.randint(100, 999)}\nnext {p.places[0]}\n", rng.choice(p.seals)
        )
    return found | {p.start: f"next {p.places[0]}\nsealed as {p.seals[0]}\n"}


def instruction(p):
    reply = f"Also write the codes, {p.reply_order}, one a line, to /app/{p.reply}, sealed as {p.reply_seal}."
    many = f"{len(p.seals)} notes"
    return [
        f"A trail of {many} begins with /app/{p.start}, which tells where in /app the first sealed note "
        "is, and how it is sealed. Unsealed, each note has a code and says where the next one is and how "
        f"that is sealed. Not every file belongs to the trail. Write the codes to /app/{p.out}, one a "
        f"line, in the order of the trail. {reply}",
        f"Follow the notes from /app/{p.start} on: it names a file, and how that is sealed; inside are a "
        f"code and the next file, and so on for {many}. Files that no note names are there to mislead. "
        f"/app/{p.out} must get all the codes in order, each on a line. {reply}",
        f"Someone hid {len(p.seals)} codes in sealed files below /app. /app/{p.start} leads to the first, "
        f"and each unsealed file to the next. Collect the codes in /app/{p.out}, one a line, first to "
        f"last (other files are of no use). {reply}",
    ]


def solution(p):
    order = "cat" if p.reply_order == "first to last" else "tac"
    notes = [
        f"{SEALS[kind]} < {place} | tee /dev/stderr | sed -n 's/^code //p' >> {p.out}"
        for place, kind in zip(p.places, p.seals, strict=False)
    ]
    return [
        f"cat {p.start}",
        *notes,
        f"{order} {p.out} | {REPLIES[p.reply_seal][0]} > {p.reply}",
        f"cat {p.out}",
    ]


def lazy(p):
    """Unseal whatever opens, in the order of the names."""
    steps = [step for step in solution(p) if "sed -n" in step]
    return [*sorted(steps), solution(p)[-2]]


def test_hidden_codes(p, case):
    assert read(p.out).split("\n")[:case] == codes(p)[:case]


def test_reply(p):
    with open(at(p.reply), "rb") as file:
        data = file.read()
    order = codes(p)[:: 1 if p.reply_order == "first to last" else -1]
    assert REPLIES[p.reply_seal][1](data).decode().split() == order
