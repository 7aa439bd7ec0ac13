"""A stock kept in a database, to which a long list of orders is to be done in SQL, each on what the last one left.

Hard: up to fifty changes of several kinds, some of which touch whole groups, and a log of what each did.
"""

from sandbox.factory.kit import at, hidden, put, word, words

SKILLS = ("SQL", "sqlite", "UPDATE", "DELETE", "patience")

COUNTS = {1: 5, 2: 10, 3: 18, 4: 32, 5: 50}
KINDS = ("tool", "book", "toy", "lamp")
# An order: how people say it -> the statement, Python's change of the items (name -> [kind, pieces, cents]).
ORDERS = {
    "add the item {w}, of the kind {k}, with {n} pieces at {c} cents": ("INSERT INTO items VALUES ('{w}', '{k}', {n}, {c})", lambda t, o: t.update({o["w"]: [o["k"], o["n"], o["c"]]})),
    "take {n} pieces off the item {i}, but leave no fewer than 0": ("UPDATE items SET pieces = max(0, pieces - {n}) WHERE name = '{i}'", lambda t, o: [r.__setitem__(1, max(0, r[1] - o["n"])) for x, r in t.items() if x == o["i"]]),
    "put {n} pieces to all items of the kind {k}": ("UPDATE items SET pieces = pieces + {n} WHERE kind = '{k}'", lambda t, o: [r.__setitem__(1, r[1] + o["n"]) for r in t.values() if r[0] == o["k"]]),
    "make all items of the kind {k} {c} cents dearer": ("UPDATE items SET cents = cents + {c} WHERE kind = '{k}'", lambda t, o: [r.__setitem__(2, r[2] + o["c"]) for r in t.values() if r[0] == o["k"]]),
    "delete all items without pieces": ("DELETE FROM items WHERE pieces = 0", lambda t, o: [t.pop(x) for x in [x for x, r in t.items() if not r[1]]]),
    "delete the item {i}": ("DELETE FROM items WHERE name = '{i}'", lambda t, o: t.pop(o["i"], None)),
    "rename the item {i} to {w}": ("UPDATE items SET name = '{w}' WHERE name = '{i}'", lambda t, o: t.update({o["w"]: t.pop(o["i"])}) if o["i"] in t else None),
    "move the items with more than {n} pieces to the kind {k}": ("UPDATE items SET kind = '{k}' WHERE pieces > {n}", lambda t, o: [r.__setitem__(0, o["k"]) for r in t.values() if r[1] > o["n"]]),
    "halve the pieces of the items that cost {c} cents or more (rounded down)": ("UPDATE items SET pieces = pieces / 2 WHERE cents >= {c}", lambda t, o: [r.__setitem__(1, r[1] // 2) for r in t.values() if r[2] >= o["c"]]),
    "give the item {i} the price of the dearest item of all": ("UPDATE items SET cents = (SELECT max(cents) FROM items) WHERE name = '{i}'", lambda t, o: t[o["i"]].__setitem__(2, max(r[2] for r in t.values())) if o["i"] in t else None),
    "copy the item {i} as {w}, with no pieces": ("INSERT INTO items SELECT '{w}', kind, 0, cents FROM items WHERE name = '{i}'", lambda t, o: t.update({o["w"]: [t[o["i"]][0], 0, t[o["i"]][2]]}) if o["i"] in t else None),
}  # fmt: skip
LOGS = {
    "the number of items": ("SELECT count(*) FROM items", lambda t: len(t)),
    "the sum of all pieces": ("SELECT coalesce(sum(pieces), 0) FROM items", lambda t: sum(r[1] for r in t.values())),
    "the worth of the stock (the sum of pieces times cents)": ("SELECT coalesce(sum(pieces * cents), 0) FROM items", lambda t: sum(r[1] * r[2] for r in t.values())),
    "the number of kinds that have an item": ("SELECT count(DISTINCT kind) FROM items", lambda t: len({r[0] for r in t.values()})),
    "the number of items without pieces": ("SELECT count(*) FROM items WHERE pieces = 0", lambda t: sum(r[1] == 0 for r in t.values())),
}  # fmt: skip


def draw(rng, level):
    kinds, fresh = rng.sample(list(ORDERS), 5 + level // 2), iter(words(rng, 100))
    start = [next(fresh) for _ in range(8)]
    present, orders = list(start), []
    for _ in range(COUNTS[level]):
        kind = rng.choice(kinds)
        order = {
            "i": rng.choice(present),
            "w": f"{next(fresh)}{len(orders)}",
            "k": rng.choice(KINDS),
            "n": rng.randint(1, 30),
            "c": rng.randint(1, 400),
        }
        present += [order["w"]] * ("{w}" in kind)
        orders.append((kind, {key: value for key, value in order.items() if "{" + key + "}" in kind}))
    return {
        "db": f"{word(rng)}.db",
        "plan": f"{word(rng)}.orders",
        "start": start,
        "orders": orders,
        "log": rng.choice(list(LOGS)),
        "cases": [len(orders) * part // 4 for part in (1, 2, 3, 4)],
    }


def stock(p):
    rng = hidden(p)
    return {
        name: [rng.choice(KINDS), rng.choice([0, rng.randint(1, 60)]), rng.randint(50, 900)]
        for name in p.start
    }


def files(rng, p):
    import sqlite3

    db = sqlite3.connect(":memory:")
    db.executescript(
        "CREATE TABLE items (name TEXT PRIMARY KEY, kind TEXT NOT NULL, pieces INTEGER NOT NULL, cents INTEGER NOT NULL);\nCREATE TABLE log (step INTEGER PRIMARY KEY, value INTEGER NOT NULL);"
    )
    db.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", [(name, *row) for name, row in stock(p).items()])
    db.commit()
    image = bytearray(db.serialize())
    image[96:100] = bytes(4)  # the version of the library that wrote it
    lines = [f"{n}. {kind.format(**order)}" for n, (kind, order) in enumerate(p.orders, 1)]
    return {p.db: bytes(image), p.plan: "\n".join(lines) + "\n"}


def instruction(p):
    log = f"After each order, write its number (step) and {p.log} at that moment (value) into the table log."
    return [
        f"/app/{p.db} is an SQLite database with a table of items in stock. Carry out the {len(p.orders)} orders of /app/{p.plan} in it, one after the other. {log} An order for an item that is not there (any more) changes nothing.",
        f"Please bring the stock in /app/{p.db} (SQLite) up to date: /app/{p.plan} has {len(p.orders)} orders, to be done from the first to the last. {log} Items that are gone by then are passed over.",
        f"The orders in /app/{p.plan} ({len(p.orders)} of them) change the table items of the SQLite database /app/{p.db}, each on what those above it have left. Do them all. {log} Where an order names an item that does not exist, nothing happens, but the log goes on.",
    ]


def solution(p):
    statements = [
        f"{ORDERS[kind][0].format(**order)};\nINSERT INTO log VALUES ({n}, ({LOGS[p.log][0]}));"
        for n, (kind, order) in enumerate(p.orders, 1)
    ]
    run = f"python3 -c \"import sqlite3, glob; db = sqlite3.connect('{p.db}'); [db.executescript(open(name).read()) for name in sorted(glob.glob('/tmp/*.part'))]\""
    parts = [put(f"/tmp/{n:03}.part", statement) for n, statement in enumerate(statements, 1)]
    return [f"cat {p.plan}", *parts, run]


def lazy(p):
    """All orders, with the end of the log for each step."""
    last = f"python3 -c \"import sqlite3; db = sqlite3.connect('{p.db}'); db.execute('UPDATE log SET value = (SELECT count(*) FROM items)'); db.execute('UPDATE items SET pieces = 1'); db.commit()\""
    return [*solution(p), last]


def played(p):
    items, log = stock(p), []
    for kind, order in p.orders:
        ORDERS[kind][1](items, order)
        log.append(LOGS[p.log][1](items))
    return items, log


def rows(p, query):
    import sqlite3

    return sqlite3.connect(f"file:{at(p.db)}?mode=ro", uri=True).execute(query).fetchall()


def test_hidden_items(p):
    assert rows(p, "SELECT * FROM items ORDER BY name") == sorted(
        (name, *row) for name, row in played(p)[0].items()
    )
    assert rows(p, "SELECT count(*) FROM log") == [(len(p.orders),)]


def test_log(p, case):
    assert rows(p, f"SELECT value FROM log WHERE step <= {case} ORDER BY step") == [
        (value,) for value in played(p)[1][:case]
    ]


def test_names(p):
    assert [row[0] for row in rows(p, "SELECT name FROM items ORDER BY name")] == sorted(
        played(p)[0]
    ) and rows(p, "SELECT 1 FROM log")
