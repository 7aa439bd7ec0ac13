"""Records of any older version brought to the newest one, step by step, by a program for any such store.

Hard: each step works on what the one before left, odd values have rules of their own, and new stores must not change.
"""

import json

from sandbox.factory.kit import PEOPLE, PLACES, at, given, hidden, output, put, read, scratch, word, words

SKILLS = ("JSON", "migrations", "Python", "data cleaning")

# A step: what is said, the solution's lines (for each record `r`), and the reference (record -> record).
STEPS = {
    "split": ("`name`, text, is replaced by `first` and `last`: what comes before its last space and what comes after it (without a space, all of it is `last`, and `first` is empty)", "a = r.pop('name').rpartition(' ')\nr['first'], r['last'] = a[0], a[2]",
        lambda r: {**{k: v for k, v in r.items() if k != "name"}, "first": " ".join(r["name"].split(" ")[:-1]), "last": r["name"].split(" ")[-1]}),
    "cents": ("`price`, text such as 12.50 or 7, becomes `cents`, a whole number", "r['cents'] = round(float(r.pop('price')) * 100)", lambda r: {**{k: v for k, v in r.items() if k != "price"}, "cents": cents(r["price"])}),
    "tags": ("`tags`, text with commas, becomes a list of the parts without spaces around them, without empty ones and without repetitions, sorted", "r['tags'] = sorted({t.strip() for t in r['tags'].split(',')} - {''})", lambda r: {**r, "tags": sorted(dict.fromkeys(filter(None, map(str.strip, r["tags"].split(",")))))}),
    "active": ("`status` becomes `active`: true for `on`, `yes` and `1`, false for everything else", "r['active'] = r.pop('status') in ('on', 'yes', '1')", lambda r: {**{k: v for k, v in r.items() if k != "status"}, "active": r["status"] in {"on", "yes", "1"}}),
    "place": ("`city` and `country` are replaced by `place`, an object with the keys `city` and `country`; where `country` is missing, it is null", "r['place'] = {'city': r.pop('city'), 'country': r.pop('country', None)}", lambda r: {**{k: v for k, v in r.items() if k not in ("city", "country")}, "place": {"city": r["city"], "country": r.get("country")}}),
    "mail": ("`mail` is made lower case; where it has no @, it becomes null", "r['mail'] = r['mail'].lower() if '@' in r['mail'] else None", lambda r: {**r, "mail": r["mail"].lower() if r["mail"].count("@") else None}),
    "dates": ("`since`, of the form DD.MM.YYYY, gets the form YYYY-MM-DD", "r['since'] = '-'.join(r['since'].split('.')[::-1])", lambda r: {**r, "since": f"{r['since'][6:]}-{r['since'][3:5]}-{r['since'][:2]}"}),
    "score": ("`points`, a list of numbers, is replaced by `best`, the largest of them, or 0 if there are none", "r['best'] = max(r.pop('points'), default=0)", lambda r: {**{k: v for k, v in r.items() if k != "points"}, "best": sorted([*r["points"], *[0] * (not r["points"])])[-1]}),
    "drop": ("`cache` goes away, and so does every key that begins with an underscore", "for k in [k for k in r if k == 'cache' or k[0] == '_']: del r[k]", lambda r: {k: v for k, v in r.items() if not (k == "cache" or k.startswith("_"))}),
    "phone": ("`phone` keeps nothing but its digits, and a + if it begins with one", "r['phone'] = '+' * r['phone'].startswith('+') + ''.join(c for c in r['phone'] if c in '0123456789')", lambda r: {**r, "phone": "".join(c for i, c in enumerate(r["phone"]) if c.isdigit() or (i == 0 and c == "+"))}),
    "level": ("`level` is added: `high` if `age` is 60 or more, `low` if it is below 30, else `mid`; `age` stays", "r['level'] = 'high' if r['age'] >= 60 else 'low' if r['age'] < 30 else 'mid'", lambda r: {**r, "level": ["low", "mid", "high"][(r["age"] > 29) + (r["age"] > 59)]}),
}  # fmt: skip
# What is done to the list as a whole.
WHOLE = {
    "records without a key `id` are left out": ("rows = [r for r in rows if 'id' in r]", lambda rs: [r for r in rs if "id" in r]),
    "of several records with the same `id` only the last one is kept, at its place": ("rows = [r for i, r in enumerate(rows) if not any(s.get('id', s) == r.get('id', r) for s in rows[i + 1:])]", lambda rs: [r for i, r in enumerate(rs) if "id" not in r or r["id"] not in [s.get("id") for s in rs[i + 1 :]]]),
    "the records are sorted by `age`, those of the same age staying in their order": ("rows.sort(key=lambda r: r['age'])", lambda rs: sorted(rs, key=lambda r: r["age"])),
    "the records are put in the reverse order": ("rows.reverse()", lambda rs: rs[::-1]),
}  # fmt: skip


def draw(rng, level):
    steps = [[name] for name in rng.sample(list(STEPS), 2 + level)]
    if level > 2:
        steps.insert(rng.randrange(len(steps)), [rng.choice(list(WHOLE))])
        steps[0:2] = [steps[0] + steps[1]]
    return {
        "store": f"{word(rng)}.json",
        "program": f"{word(rng)}.py",
        "out": f"{word(rng)}.json",
        "steps": steps,
        "cases": list(range(1, len(steps) + 1)),
        "key": rng.choice(["version", "schema", "format"]),
        "size": 3 + level,
    }


def record(rng):
    made = {
        "id": rng.randint(1, 6), "name": " ".join(words(rng, rng.choice([1, 2, 3]), PEOPLE)).title(), "price": rng.choice(["7", "12.50", "0.07", "19.99", "100.1"]), "tags": rng.choice(["", "b, a,b", "new", " x ,, y"]),
        "status": rng.choice(["on", "off", "yes", "1", "ON", ""]), "city": word(rng, PLACES), "mail": rng.choice(["Ann@Example.org", "none", "x@Y"]), "since": f"{rng.randint(10, 28)}.0{rng.randint(1, 9)}.20{rng.randint(10, 24)}",
        "points": rng.choice([[], [3, 9, 4], [-2, -5]]), "cache": 1, "_seen": rng.randint(0, 9), "phone": rng.choice(["+49 (30) 12-34", "030/99 1", "1+2"]), "age": rng.choice([29, 30, 45, 59, 60, 71]),
    }  # fmt: skip
    if rng.random() < 0.5:
        made["country"] = word(rng, PLACES)
    if rng.random() < 0.2:
        del made["id"]
    return made


def cents(text):
    whole, _, part = text.partition(".")
    return int(whole) * 100 + int((part + "00")[:2])


def migrated(rows, steps):
    for step in steps:
        for name in step:
            rows = WHOLE[name][1](rows) if name in WHOLE else [STEPS[name][2](r) for r in rows]
    return rows


def store(rng, p, version):
    """A store that is of this version already: its text."""
    rows = migrated([record(rng) for _ in range(p.size)], p.steps[: version - 1])
    made = {p.key: version, "records": rows}
    if version == 1 and rng.random() < 0.7:
        del made[p.key]
    return json.dumps(made, indent=1)


def files(rng, p):
    return {p.store: store(rng, p, 1) + "\n"}


def instruction(p):
    steps = "\n".join(
        f"- {number} to {number + 1}: {'; then '.join(name if name in WHOLE else STEPS[name][0] for name in step)}"
        for number, step in enumerate(p.steps, 1)
    )
    text = f"A store is a JSON object with its version under `{p.key}` (a store without that key is of version 1) and a list of objects under `records`. The versions differ as follows:\n{steps}"
    ask = f"prints the store in version {len(p.steps) + 1}, as JSON with any layout, whichever version it had; all keys not named above stay as they are, and a store of the newest version is printed unchanged"
    return [
        f"{text}\n\nWrite a Python program: `python3 /app/{p.program} FILE` {ask}. Save what it prints for /app/{p.store} as /app/{p.out}.",
        f"Our stores, such as /app/{p.store}, are of many versions. {text}\n\nPlease write /app/{p.program}, so that `python3 {p.program} FILE` {ask}. Its output for {p.store} goes to /app/{p.out}.",
        f"We need a migration program, /app/{p.program}, in Python. Called with the path of a store, it {ask}. {text}\n\nMigrate /app/{p.store} into /app/{p.out} with it; other stores follow.",
    ]


def program(p):
    lines = [
        "import json, sys",
        "data = json.load(open(sys.argv[1]))",
        f"version, rows = data.get({p.key!r}, 1), data['records']",
    ]
    for number, step in enumerate(p.steps, 1):
        lines.append(f"if version <= {number}:")
        for name in step:
            if name in WHOLE:
                lines.append(f"    {WHOLE[name][0]}")
            else:
                lines += ["    for r in rows:", *(f"        {line}" for line in STEPS[name][1].split("\n"))]
    return "\n".join(
        [
            *lines,
            f"json.dump({{{p.key!r}: {len(p.steps) + 1}, 'records': rows}}, sys.stdout, indent=1)",
            "print()",
        ]
    )


def solution(p):
    return [
        f"head -n 30 {p.store}",
        put(p.program, program(p)),
        f"python3 {p.program} {p.store} > {p.out}",
        f"head -n 20 {p.out}",
    ]


def lazy(p):
    return [*solution(p), put(p.program, f"print(open('/app/{p.out}').read())")]


def newest(text, p):
    old = json.loads(text)
    return {p.key: len(p.steps) + 1, "records": migrated(old["records"], p.steps[old.get(p.key, 1) - 1 :])}


def test_output(p):
    assert json.loads(read(p.out)) == newest(store(given(p), p, 1), p)


def test_hidden_store_of_version(p, case):
    text = store(hidden(p), p, case)
    assert json.loads(output("python3", at(p.program), scratch({"s": text}) + "/s")) == newest(text, p)


def test_hidden_newest_store(p):
    text = store(hidden(p), p, len(p.steps) + 1)
    assert json.loads(output("python3", at(p.program), scratch({"s": text}) + "/s")) == json.loads(text)
