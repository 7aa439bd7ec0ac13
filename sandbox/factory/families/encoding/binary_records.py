"""Records of a binary file, printed by a Python program that must read any file of that layout.

Hard: byte order, sign and width of every field are prescribed, and a wrong one shifts all that follows.
"""

from sandbox.factory.kit import PEOPLE, word
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "struct", "binary data", "od")

# A field: how people say it -> struct's code ({} the byte order), bytes, lowest and highest value.
FIELDS = {
    "an unsigned number of one byte": ("B", 1, 0, 255),
    "a signed number of one byte": ("b", 1, -128, 127),
    "an unsigned number of two bytes": ("H", 2, 0, 65535),
    "a signed number of two bytes": ("h", 2, -32768, 32767),
    "an unsigned number of four bytes": ("I", 4, 0, 2**32 - 1),
    "a signed number of four bytes": ("i", 4, -(2**31), 2**31 - 1),
    "an unsigned number of eight bytes": ("Q", 8, 0, 2**64 - 1),
}
NAMES = ("level", "count", "offset", "weight", "index", "delta")
HEADS = {
    "the file has nothing but records": 0,
    "the file begins with the four letters DATA, which are no record": 4,
    "the file begins with 16 bytes that are to be skipped": 16,
}
CHECKS = {
    "": "",
    "each record ends in one more byte, the sum of all its other bytes modulo 256; records where it is wrong are left out": "sum(body) % 256",
    "each record ends in one more byte, the exclusive or of all its other bytes; records where it is wrong are left out": "functools.reduce(operator.xor, body)",
}
FORMS = {
    "NAME=VALUE, with a space between two fields": ("{}={}", " "),
    "VALUE, with a comma between two fields": ("{1}", ","),
    "NAME: VALUE, with `; ` between two fields": ("{}: {}", "; "),
}
OPENS = (
    "A device writes its readings as a binary file, record after record, and we want to read them.",
    "The file holds binary records of a fixed size. They are needed as text, one a line.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    fields = [[name, rng.choice(list(FIELDS))] for name in rng.sample(NAMES, min(6, 1 + level))]
    return names(rng, "dat", "py") | {
        "fields": fields,
        "big": rng.random() < 0.5,
        "text": rng.choice([0, 6, 10]) if level > 1 else 0,
        "head": rng.choice(list(HEADS)),
        "check": rng.choice(list(CHECKS)) if level > 2 else "",
        "form": rng.choice(list(FORMS)),
        "hexed": rng.choice([fields[0][0], ""]) if FIELDS[fields[0][1]][2] == 0 else "",
        "only": rng.choice(["", f"{fields[-1][0]} is odd", f"{fields[-1][0]} is even"]) if level > 1 else "",
        "size": 5 + 4 * level,
    }


def make(rng, p):
    made = bytearray(b"DATA"[: HEADS[p.head]] + bytes(max(0, HEADS[p.head] - 4)))
    for _ in range(p.size):
        record = b""
        for _, kind in p.fields:
            _, width, low, high = FIELDS[kind]
            value = rng.choice([low, high, rng.randint(low, high), rng.randint(0, 100), max(low, -3)])
            record += value.to_bytes(width, "big" if p.big else "little", signed=low < 0)
        if p.text:
            record += word(rng, PEOPLE).encode()[: p.text].ljust(p.text, b"\0")
        if p.check:
            x = 0
            for byte in record:
                x = (x + byte) % 256 if "sum" in p.check else x ^ byte
            record += bytes([x if rng.random() < 0.8 else (x + 1) % 256])
        made += record
    return bytes(made)


def worked(data, p):
    start, lines = HEADS[p.head], []
    length = sum(FIELDS[kind][1] for _, kind in p.fields) + p.text + bool(p.check)
    form, between = FORMS[p.form]
    while start < len(data):
        record, place, values = data[start : start + length], 0, {}
        for name, kind in p.fields:
            _, width, low, _ = FIELDS[kind]
            values[name] = int.from_bytes(
                record[place : place + width], "big" if p.big else "little", signed=low < 0
            )
            place += width
        x = 0
        for byte in record[: length - 1]:
            x = (x + byte) % 256 if "sum" in p.check else x ^ byte
        odd = values[p.fields[-1][0]] % 2 == 1
        if (not p.check or x == record[-1]) and (not p.only or odd == p.only.endswith("odd")):
            if p.hexed:
                values[p.hexed] = f"{values[p.hexed]:x}"
            if p.text:
                values["label"] = record[place : place + p.text].split(b"\0")[0].decode()
            lines.append(between.join(form.format(name, value) for name, value in values.items()))
        start += length
    return "\n".join(lines)


def instruction(p):
    rules = [
        p.head,
        "a record has these fields, without anything between them: "
        + ", ".join(f"{name} ({kind})" for name, kind in p.fields),
    ]
    rules[-1] += f", label (a text of {p.text} bytes, filled up with zero bytes)" * bool(p.text)
    rules += [
        f"numbers have their {'most' if p.big else 'least'} significant byte first (signed ones are in two's complement)"
    ] + [p.check] * bool(p.check)
    rules += [
        f"print a line for each record, each field as {p.form}, in this order",
        *[f"only records where {p.only} are printed"] * bool(p.only),
    ]
    rules += [
        f"{p.hexed} is printed in hexadecimal (small letters, nothing in front), all other numbers in decimal"
    ] * bool(p.hexed)
    return wordings(p, OPENS, rules)


def program(p):
    code = "<>"[p.big] + "".join(FIELDS[kind][0] for _, kind in p.fields) + f"{p.text}s" * bool(p.text)
    form, between = FORMS[p.form]
    names_ = [name for name, _ in p.fields] + ["label"] * bool(p.text)
    shown = between.join(form.format(name, "{" + name + ":x" * (name == p.hexed) + "}") for name in names_)
    lines = [
        "import functools, operator, struct, sys",
        f"layout = struct.Struct('{code}')",
        f"data = open(sys.argv[1], 'rb').read()[{HEADS[p.head]}:]",
    ]
    lines += [
        f"step = layout.size + {int(bool(p.check))}",
        "for at in range(0, len(data), step):",
        "    body = data[at : at + layout.size]",
    ]
    lines += [f"    if {CHECKS[p.check]} != data[at + layout.size]:", "        continue"] * bool(p.check) + [
        f"    {', '.join(names_)}, = layout.unpack(body)"
    ]
    lines += ["    label = label.rstrip(b'\\0').decode()"] * bool(p.text)
    lines += [f"    if {p.fields[-1][0]} % 2 != {int(p.only.endswith('odd'))}:", "        continue"] * bool(
        p.only
    )
    return "\n".join([*lines, f"    print(f'{shown}')"])


files, solution, lazy, test_half, test_result, test_program, test_hidden_records = printer(
    make, worked, program
)
