"""Queries that read whole tables get indexes, so that the plan of every query is a search.

Hard: an index serves a query only with the right columns in the right order, and their number is limited.
"""

from sandbox.factory.kit import at, hidden, put, read, word, words

SKILLS = ("SQL", "sqlite", "indexes", "EXPLAIN QUERY PLAN")

COLUMNS = {
    "parcels": ("sender", "receiver", "status", "weight", "sent", "label"),
    "events": ("host", "kind", "level", "at", "user", "message"),
    "bookings": ("room", "guest", "day", "price", "state", "email"),
}
# A kind of query: SQL of a table t and columns a, b, c -> the index that serves it, and what its plan must not have.
KINDS = {
    "equal": ("SELECT * FROM {t} WHERE {a} = ?", "{t} ({a})", ""),
    "two": ("SELECT * FROM {t} WHERE {a} = ? AND {b} = ?", "{t} ({a}, {b})", ""),
    "range": ("SELECT {c} FROM {t} WHERE {a} = ? AND {b} > ?", "{t} ({a}, {b})", ""),
    "order": ("SELECT * FROM {t} WHERE {a} = ? ORDER BY {b} DESC LIMIT 10", "{t} ({a}, {b})", "TEMP B-TREE"),
    "orders": ("SELECT * FROM {t} WHERE {a} = ? ORDER BY {b}, {c}", "{t} ({a}, {b}, {c})", "TEMP B-TREE"),
    "mixed order": ("SELECT id FROM {t} WHERE {a} = ? ORDER BY {b} DESC, {c} ASC", "{t} ({a}, {b} DESC, {c})", "TEMP B-TREE"),
    "lower": ("SELECT id FROM {t} WHERE lower({a}) = lower(?)", "{t} (lower({a}))", ""),
    "nocase": ("SELECT id FROM {t} WHERE {a} = ? COLLATE NOCASE", "{t} ({a} COLLATE NOCASE)", ""),
    "expression": ("SELECT id FROM {t} WHERE substr({a}, 1, 3) = ?", "{t} (substr({a}, 1, 3))", ""),
    "least": ("SELECT min({b}) FROM {t} WHERE {a} = ?", "{t} ({a}, {b})", ""),
    "grouped": ("SELECT {b}, count(*) FROM {t} WHERE {a} = ? GROUP BY {b}", "{t} ({a}, {b})", "TEMP B-TREE"),
    "partial": ("SELECT id FROM {t} WHERE {a} IS NULL AND {b} = ?", "{t} ({b}) WHERE {a} IS NULL", ""),
}  # fmt: skip


def draw(rng, level):
    tables = rng.sample(list(COLUMNS), 1 + (level > 1) + (level > 3))
    queries, shared = {}, 0
    for number, kind in enumerate(rng.sample(list(KINDS), 2 + level), 1):
        table = rng.choice(tables)
        a, b, c = rng.sample(COLUMNS[table], 3)
        queries[f"q{number}"] = kind, table, a, b, c
        if level > 2 and shared < level - 2 and kind in ("order", "orders", "range", "two"):
            # A second query that the same index serves: it begins with the same column.
            shared += 1
            queries[f"q{number}b"] = "equal", table, a, b, c
    return {
        "db": f"{word(rng)}.db",
        "queries": f"{word(rng)}.sql",
        "script": f"{rng.choice(['indexes', 'tuning', 'schema'])}_{word(rng)}.sql",
        "tables": tables,
        "asked": queries,
        "limit": len({index(query) for name, query in queries.items() if not name.endswith("b")}),
        "cases": list(queries),
    }


def index(query):
    kind, table, a, b, c = query
    return KINDS[kind][1].format(t=table, a=a, b=b, c=c)


def text(query):
    kind, table, a, b, c = query
    return KINDS[kind][0].format(t=table, a=a, b=b, c=c)


def schema(p):
    lines = (f"CREATE TABLE {t} (id INTEGER PRIMARY KEY, {', '.join(COLUMNS[t])});\n" for t in p.tables)
    return "".join(lines)


def database(rng, p):
    import sqlite3

    db = sqlite3.connect(":memory:")
    db.executescript(schema(p))
    for table in p.tables:
        pool = [*words(rng, 12), None]
        for _ in range(120):
            row = [rng.choice(pool) for _ in COLUMNS[table]]
            db.execute(f"INSERT INTO {table} VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)
    db.commit()
    return db


def files(rng, p):
    image = bytearray(database(rng, p).serialize())
    image[96:100] = bytes(4)  # the version of the library that wrote it
    return {p.db: bytes(image), p.queries: "".join(f"-- {name}\n{text(q)};\n" for name, q in p.asked.items())}


def instruction(p):
    number = "one index" if p.limit == 1 else f"{p.limit} indexes"
    rule = (
        "no query's plan (EXPLAIN QUERY PLAN) may SCAN a table or an index: each must SEARCH with one of the indexes. "
        f"Queries that sort or group must not need a temporary B-tree for it, either. At most {number} in all, as "
        "each slows down writing; tables, rows and queries stay as they are"
    )
    apply = f"Write the CREATE INDEX statements to /app/{p.script} and apply them to {p.db}."
    return [
        f"The queries in /app/{p.queries} read whole tables of the SQLite database /app/{p.db}. Find the indexes "
        f"that they need: {rule}. {apply} We run the script on other databases of this schema, too.",
        f"Tune /app/{p.db} (SQLite) for the queries of /app/{p.queries} (`?` are parameters, which are never NULL): "
        f"{rule}. {apply} The script is run on fresh databases with the same tables as well.",
        f"Users complain of slow lookups. Their queries are in /app/{p.queries}, the database is /app/{p.db} "
        f"(SQLite; do not use ANALYZE). With the right indexes {rule}. {apply} Other databases with these tables "
        "will get the script, too.",
    ]


def solution(p):
    found = list(dict.fromkeys(index(q) for name, q in p.asked.items() if not name.endswith("b")))
    lines = [f"CREATE INDEX fast{number} ON {what};" for number, what in enumerate(found, 1)]
    apply = f"import sqlite3; db = sqlite3.connect('{p.db}'); db.executescript(open('{p.script}').read()); db.commit()"
    return [f"cat {p.queries}", put(p.script, "\n".join(lines)), f'python3 -c "{apply}"']


def lazy(p):
    """An index on the last column of each, or none but in this database."""
    return [*solution(p), f"sed -i 's/^CREATE INDEX/-- &/' {p.script}"]


def plan(db, query):
    sql = text(query)
    rows = db.execute(f"EXPLAIN QUERY PLAN {sql}", ["x"] * sql.count("?"))
    return " / ".join(row[3] for row in rows)


def served(db, query):
    found, forbidden = plan(db, query), KINDS[query[0]][2]
    assert "SCAN" not in found and "SEARCH" in found and not (forbidden and forbidden in found), found


def tuned(rng, p):
    """A fresh database after the agent's script, whose rows must be what they were."""
    db = database(rng, p)
    before = list(db.iterdump())
    db.executescript(read(p.script))
    kept = [line for line in db.iterdump() if not line.startswith("CREATE INDEX")]
    assert kept == before, "the script changes more than indexes"
    return db


def indexes(db):
    return db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'index'").fetchone()[0]


def test_database(p):
    import sqlite3

    db = sqlite3.connect(f"file:{at(p.db)}?mode=ro", uri=True)
    for query in p.asked.values():
        served(db, query)


def test_hidden_number_of_indexes(p):
    assert 1 <= indexes(tuned(hidden(p), p)) <= p.limit


def test_hidden_query(p, case):
    served(tuned(hidden(p), p), p.asked[case])
