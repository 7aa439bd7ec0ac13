"""Records from one text format into another, by a program that must take any file of that kind.

Hard: values hold the very characters that separate them, fields may be absent, and numbers are not text.
"""

import json

from sandbox.factory.kit import PEOPLE, PLACES, at, given, hidden, output, put, read, scratch, word

SKILLS = ("Python", "CSV", "JSON", "text formats", "quoting")

FIELDS = ("name", "city", "age", "score", "team", "note")
NUMBERS = ("age", "score")
INPUTS = {
    "csv": "CSV with a header line, quoted as usual (RFC 4180)",
    "jsonl": "JSON, one object a line",
    "blocks": "blocks of `field: value` lines, with an empty line between two records",
    "ini": "INI: a section [record N] for each record, below it `field = value` lines",
}
OUTPUTS = {
    "csv": "CSV with a header line, a value quoted only where it must be (RFC 4180), and lines that end in a newline only",
    "json": "a JSON array of objects",
    "jsonl": "JSON, one object a line",
    "markdown": "a Markdown table: `| a | b |`, with a line `| --- | --- |` below the head, and `|` in a value written `\\|`",
    "shell": "a line for each record of assignments FIELD='VALUE', separated by spaces, each ' in a value written '\\''",
}
KEEPS = {
    "": lambda r: True,
    "only records with an age of 30 or more": lambda r: int(r.get("age") or 0) >= 30,
    "only records of the team red": lambda r: r.get("team") == "red",
    "only records that have a note": lambda r: bool(r.get("note")),
    "only records without a score": lambda r: not r.get("score"),
}
ORDERS = {
    "in the order of the input": None,
    "sorted by name": lambda r: r.get("name", ""),
    "sorted by age, smallest first, equal ages in the order of the input": lambda r: int(r.get("age") or 0),
    "in the reverse order of the input": "reverse",
}


def draw(rng, level):
    source = rng.choice(list(INPUTS))
    fields = rng.sample(FIELDS, min(6, 2 + level))
    return {
        "source": source,
        "target": rng.choice([name for name in OUTPUTS if name != source]),
        "file": f"{word(rng)}.{'txt' if source == 'blocks' else source}",
        "out": f"{word(rng)}.out",
        "program": f"{word(rng)}.py",
        "fields": fields,
        "keep": rng.choice(list(KEEPS)[: 5 if level > 2 else 3]) if level > 1 else "",
        "order": rng.choice(list(ORDERS)) if level > 1 else "in the order of the input",
        "absent": level > 2,
        "rename": rng.sample(fields, 1 if level > 2 else 0),
        "count": 4 + 4 * level,
    }


def files(rng, p):
    return {p.file: write(p.source, records(rng, p))}


def records(rng, p):
    found = []
    for _ in range(p.count):
        record = {
            "name": f"{word(rng, PEOPLE).title()} {rng.choice(['Day', 'O`Hara', 'von Berg'])}".replace(
                "`", "'"
            ),
            "city": word(rng, PLACES).title(),
            "age": str(rng.randint(18, 70)),
            "score": str(rng.randint(0, 999)),
            "team": rng.choice(["red", "blue"]),
            "note": rng.choice(['said "no", twice', "a | b", "it's = fine", "x: y; z", "plain"]),
        }
        gone = rng.sample(["score", "team", "note"], rng.randint(0, 2)) if p.absent else []
        found.append({name: value for name, value in record.items() if name not in gone})
    return found


def write(kind, rows):
    if kind == "csv":
        quoted = [[row.get(name, "") for name in FIELDS] for row in rows]
        return "".join(",".join(map(quote, row)) + "\n" for row in [FIELDS, *quoted])
    if kind == "jsonl":
        typed = [{n: int(v) if n in NUMBERS else v for n, v in row.items()} for row in rows]
        return "".join(json.dumps(row) + "\n" for row in typed)
    mark = ": " if kind == "blocks" else " = "
    blocks = ["".join(f"{name}{mark}{value}\n" for name, value in row.items()) for row in rows]
    if kind == "blocks":
        return "\n".join(blocks)
    return "\n".join(f"[record {number}]\n{block}" for number, block in enumerate(blocks, 1))


def quote(value):
    return '"' + value.replace('"', '""') + '"' if any(c in value for c in '",\n') else value


def convert(rows, p):
    """The reference's result: a list of objects for JSON, else text."""
    rows = [row for row in rows if KEEPS[p.keep](row)]
    order = ORDERS[p.order]
    rows = rows[::-1] if order == "reverse" else sorted(rows, key=order) if order else rows
    heads = {name: name.upper() if name in p.rename else name for name in p.fields}
    if p.target in ("json", "jsonl"):
        return [{heads[n]: int(r[n]) if n in NUMBERS else r[n] for n in p.fields if n in r} for r in rows]
    cells = [[row.get(name, "") for name in p.fields] for row in rows]
    if p.target == "csv":
        return "\n".join(",".join(map(quote, row)) for row in [heads.values(), *cells])
    if p.target == "shell":
        lines = [zip(heads.values(), row, strict=True) for row in cells]
        return "\n".join(
            " ".join(n + "='" + v.replace("'", "'\\''") + "'" for n, v in line) for line in lines
        )
    table = [
        list(heads.values()),
        ["---"] * len(heads),
        *[[v.replace("|", "\\|") for v in row] for row in cells],
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def parsed(text, p):
    if p.target == "json":
        return json.loads(text)
    return [json.loads(line) for line in text.splitlines()] if p.target == "jsonl" else text


def instruction(p):
    keep = f"{p.keep}, " if p.keep else ""
    rename = f", where {p.rename[0]} is called {p.rename[0].upper()}" if p.rename else ""
    absent = {"json": "left out", "jsonl": "left out"}.get(p.target, "an empty value")
    absent = f" A field that a record does not have is {absent}." if p.absent else ""
    numbers = " Values of age and score are numbers." if p.target in ("json", "jsonl") else ""
    rules = f"{keep}{p.order}, with the fields {', '.join(p.fields)} in this order{rename}.{absent}{numbers}"
    return [
        f"/app/{p.file} holds records: {INPUTS[p.source]}. Write a Python program /app/{p.program} that "
        f"takes the path of such a file and prints the records as {OUTPUTS[p.target]}: {rules} Save what "
        f"it prints for {p.file} as /app/{p.out}. We will use the program for other files.",
        f"Convert /app/{p.file} ({INPUTS[p.source]}) to {OUTPUTS[p.target]} in /app/{p.out}: {rules} Do "
        f"it with /app/{p.program}, a Python program that prints the result for any file given as its "
        "argument, as more such files will come.",
        f"We get files such as /app/{p.file}, {INPUTS[p.source]}, and need them as {OUTPUTS[p.target]}. "
        f"What we need: {rules} Please write `python3 /app/{p.program} FILE`, which prints it, and keep "
        f"its output for {p.file} in /app/{p.out}.",
    ]


READERS = {
    "csv": "import csv\nrows = [{k: v for k, v in r.items() if v} for r in csv.DictReader(open(sys.argv[1], newline=''))]",
    "jsonl": "rows = [{k: str(v) for k, v in json.loads(line).items()} for line in open(sys.argv[1])]",
    "blocks": "blocks = open(sys.argv[1]).read().strip().split('\\n\\n')\n"
    "rows = [dict(line.split(': ', 1) for line in block.split('\\n')) for block in blocks]",
    "ini": "import configparser\nini = configparser.RawConfigParser(delimiters='=')\nini.read(sys.argv[1])\n"
    "rows = [dict(ini[s]) for s in ini.sections()]",
}
FILTERS = {
    "": "True",
    "only records with an age of 30 or more": "int(r['age']) >= 30",
    "only records that have a note": "r.get('note')",
    "only records of the team red": "r.get('team') == 'red'",
    "only records without a score": "'score' not in r",
}
SORTS = {
    "in the order of the input": "",
    "sorted by name": "rows.sort(key=lambda r: r['name'])",
    "sorted by age, smallest first, equal ages in the order of the input": "rows.sort(key=lambda r: int(r['age']))",
    "in the reverse order of the input": "rows.reverse()",
}
TYPED = "{heads[f]: int(r[f]) if f in ('age', 'score') else r[f] for f in fields if f in r}"
CELLS = "[r.get(f, '') for f in fields]"
WRITERS = {
    "csv": f"import csv\nout = csv.writer(sys.stdout, lineterminator='\\n')\nout.writerow(heads.values())\n"
    f"out.writerows({CELLS} for r in rows)",
    "json": f"print(json.dumps([{TYPED} for r in rows], indent=2))",
    "jsonl": f"for r in rows: print(json.dumps({TYPED}))",
    "markdown": "lines = [list(heads.values()), ['---'] * len(heads)]\n"
    f"lines += [[v.replace('|', '\\\\|') for v in {CELLS}] for r in rows]\n"
    "for line in lines: print('| ' + ' | '.join(line) + ' |')",
    "shell": "q = \"'\"\nfor r in rows:\n    print(*[h + '=' + q + r.get(f, '').replace(q, q + '\\\\' + q + q) + q for f, h in "
    "heads.items()])",
}


def program(p):
    heads = {name: name.upper() if name in p.rename else name for name in p.fields}
    parts = ["import json, sys", READERS[p.source], f"heads = {heads}", "fields = list(heads)"]
    if p.keep:
        parts.append(f"rows = [r for r in rows if {FILTERS[p.keep]}]")
    return "\n".join([*parts, *filter(None, [SORTS[p.order]]), WRITERS[p.target]])


def solution(p):
    return [
        f"head -n 8 {p.file}",
        put(p.program, program(p)),
        f"python3 {p.program} {p.file} > {p.out}",
        f"head {p.out}",
    ]


def lazy(p):
    return [*solution(p), put(p.program, f"print(open('/app/{p.out}').read())")]


def test_converted(p):
    assert parsed(read(p.out), p) == convert(records(given(p), p), p)


def test_program_prints_it(p):
    assert parsed(output("python3", at(p.program), at(p.file)), p) == convert(records(given(p), p), p)


def test_hidden_files(p):
    rng = hidden(p)
    for _ in range(3):
        rows = records(rng, p)
        folder = scratch({"next": write(p.source, rows)})
        assert parsed(output("python3", at(p.program), f"{folder}/next"), p) == convert(rows, p)
