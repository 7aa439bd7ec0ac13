"""Archives within archives, each with a label and several boxes, of which the label names the one to open.

Hard: up to twenty-five layers in five packings, each to be recognised and opened before the next can be seen.
"""

import io
import zlib

from sandbox.factory.kit import at, hidden, read, word, words

SKILLS = ("tar", "gzip", "python -m zipfile", "base64", "patience")

COUNTS = {1: 3, 2: 6, 3: 11, 4: 18, 5: 25}
# How a box is packed -> the command that unpacks box file {0} into the folder {1}, which is there.
PACKINGS = {
    "tar": "tar -xf {0} -C {1}",
    "tar.gz": "tar -xzf {0} -C {1}",
    "zip": "python3 -m zipfile -e {0} {1}",
    "tar.b64": "base64 -d {0} | tar -x -C {1}",
    "tar.parts": "cat {0}.1 {0}.2 | tar -x -C {1}",
    "tar.back": "cat {0}.2 {0}.1 | tar -x -C {1}",
    "tar.line": "tail -n +2 {0} | tar -x -C {1}",
    "tar.skip": "tail -c +101 {0} | tar -x -C {1}",
    "tar.hex": "basenc --base16 -d {0} | tar -x -C {1}",
    "gz.tar": "gzip -dc < {0} | tar -x -C {1}",
}
# How they are told in the instruction, after NAME and a point.
TOLD = {
    "tar.gz": "tar.gz",
    "zip": "zip",
    "tar.b64": "tar.b64 (a tar archive in base64)",
    "tar.parts": "tar.parts.1 and .2 (a tar archive cut in two)",
    "tar.back": "tar.back.1 and .2 (a tar archive cut in two, the second half first)",
    "tar.line": "tar.line (a tar archive behind a line of text)",
    "tar.skip": "tar.skip (a tar archive behind 100 bytes of no use)",
    "tar.hex": "tar.hex (a tar archive in hexadecimal)",
    "gz.tar": "gz.tar (a gzip file, in spite of its name, with a tar archive in it)",
}
# How a label tells the code -> its line, the command that prints it.
LABELS = {
    "a line `code CODE`": ("code {}", "sed -n 's/^code //p'"),
    "a line `CODE is the code`": ("{} is the code", "sed -n 's/ is the code$//p'"),
    'a line `code = "CODE"`': ('code = "{}"', "sed -n 's/^code = \"\\(.*\\)\"$/\\1/p'"),
    "a line `[code:CODE]`": ("[code:{}]", "tr -d '[]' | grep '^code' | cut -d : -f 2"),
}
REPORTS = {
    "in the order in which they come to light": "cat",
    "with the code of the innermost box first": "tac",
    "in byte order": "LC_ALL=C sort",
}


def draw(rng, level):
    kinds = rng.sample(list(PACKINGS), rng.randint(3, 5) + level // 3)
    layers = [rng.choice(kinds) for _ in range(COUNTS[level])]
    wide = [n for n, kind in enumerate(layers) if kind in ("tar.b64", "tar.hex")][2:]
    layers = ["tar" if n in wide else kind for n, kind in enumerate(layers)]  # base64 swells what is inside
    return {
        "layers": layers,
        "names": words(rng, len(layers)),
        "first": f"{word(rng)}-box",
        "out": f"{word(rng)}.txt",
        "final": f"{word(rng)}.out",
        "order": rng.choice(list(REPORTS)),
        "label": rng.choice(list(LABELS)),
        "cases": [len(layers) * part // 3 for part in (1, 2, 3)],
    }


def codes(p):
    rng = hidden(p)
    return [f"{word(rng)}-{rng.randint(100, 999)}" for _ in p.layers], "".join(
        f"{word(rng)} {word(rng)}\n" for _ in range(5)
    )


def packed(name, content, kind):
    """The files that hold a box: path -> bytes."""
    import base64
    import tarfile
    import zipfile

    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as box:
            for path, data in content.items():
                box.writestr(zipfile.ZipInfo(path, (2025, 1, 1, 0, 0, 0)), data)
        return {f"{name}.zip": file.getvalue()}
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as box:
        for path, data in content.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            box.addfile(member, io.BytesIO(data))
    data = file.getvalue().rstrip(b"\0") + bytes(1024)
    data += bytes(-len(data) % 512)
    if kind in ("tar.gz", "gz.tar"):
        body = b"".join(
            bytes([start + 65535 >= len(data)])
            + len(part).to_bytes(2, "little")
            + bytes(255 - b for b in len(part).to_bytes(2, "little"))
            + part
            for start in range(0, len(data), 65535)
            for part in [data[start : start + 65535]]
        )
        data = (
            b"\x1f\x8b\x08"
            + bytes(6)
            + b"\xff"
            + body
            + zlib.crc32(data).to_bytes(4, "little")
            + len(data).to_bytes(4, "little")
        )
    if kind in ("tar.parts", "tar.back"):
        halves = [data[:700], data[700:]][:: 1 if kind == "tar.parts" else -1]
        return {f"{name}.{kind}.1": halves[0], f"{name}.{kind}.2": halves[1]}
    if kind in ("tar.line", "tar.skip"):
        data = (b"no part of the box\n" if kind == "tar.line" else b"%" * 100) + data
    if kind == "tar.hex":
        data = data.hex().upper().encode()
    return {f"{name}.{kind}": base64.encodebytes(data) if kind == "tar.b64" else data}


def files(rng, p):
    labels, text = codes(p)
    content = {"letter": text.encode()}
    for number in reversed(range(len(p.layers))):
        inner = (
            f"open {p.names[number + 1]} next\n"
            if number + 1 < len(p.layers)
            else "this is the innermost box\n"
        )
        content["label"] = f"{LABELS[p.label][0].format(labels[number])}\n{inner}".encode()
        content |= {f"{word(rng)}-{rng.randint(1, 9)}.tar": b"nothing of use\n"}
        content = packed(p.names[number], content, p.layers[number])
    return {f"{p.first}/{path}": data for path, data in content.items()}


def instruction(p):
    kinds = ", ".join(f"NAME.{TOLD.get(kind, kind)}" for kind in PACKINGS if kind in p.layers)
    rules = f"""A box is one of these: {kinds}. Each box holds a file named label, with {p.label}, and all but the innermost tell in
        the label's second line the NAME of the box inside that is to be opened next; the other files are of no use."""
    ends = f"Write the codes of all {len(p.layers)} boxes, one a line, {p.order}, to /app/{p.out}, and copy the file named letter of the innermost box to /app/{p.final}."
    return [
        f"In /app/{p.first} lies a box, in which lies another, and so on, {len(p.layers)} in all. {rules} {ends}",
        f"Please open the {len(p.layers)} boxes that are packed into each other, from the one in /app/{p.first} on. {rules}\n\n{ends}",
        f"{ends}\n\nThe outermost box is in /app/{p.first}. {rules}",
    ]


def solution(p):
    steps, place = [f"ls {p.first}"], f"/app/{p.first}"
    for number, (name, kind) in enumerate(zip(p.names, p.layers, strict=True), 1):
        steps.append(
            f"mkdir -p /tmp/{number} && {PACKINGS[kind].format(f'{place}/{name}.{kind}', f'/tmp/{number}')}"
        )
        steps.append(f"cat /tmp/{number}/label | tee /dev/stderr | {LABELS[p.label][1]} >> /tmp/codes")
        place = f"/tmp/{number}"
    return [*steps, f"{REPORTS[p.order]} /tmp/codes > {p.out}", f"cp {place}/letter {p.final}"]


def lazy(p):
    """The first half of the boxes, and the outermost letter that can be had."""
    half = 1 + 2 * (len(p.layers) // 2)
    return [*solution(p)[:half], f"{REPORTS[p.order]} /tmp/codes > {p.out}", f"cp {p.first}/* {p.final}"]


def test_hidden_codes(p, case):
    found = read(p.out).split("\n")
    found = found[::-1] if "innermost" in p.order else found
    wanted = codes(p)[0]
    if "byte order" in p.order:
        assert sum(code in wanted for code in found) >= case and len(found) <= len(wanted)
    else:
        assert found[:case] == wanted[:case]


def test_all_codes(p):
    wanted = codes(p)[0]
    wanted = sorted(wanted) if "byte order" in p.order else wanted[:: -1 if "innermost" in p.order else 1]
    assert read(p.out).split("\n") == wanted


def test_letter(p):
    with open(at(p.final)) as file:
        assert file.read() == codes(p)[1]
