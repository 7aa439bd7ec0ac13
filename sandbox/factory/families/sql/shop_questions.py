"""Questions about a shop's database, each to be answered by a query that holds for other data too.

Hard: what is asked for lies in three tables, and customers without orders or equal values change the answer.
"""

from sandbox.factory.kit import NOUNS, PEOPLE, PLACES, at, hidden, put, scratch, words

SKILLS = ("SQL", "sqlite", "joins", "aggregation")

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers(id),
  product INTEGER NOT NULL REFERENCES products(id), day TEXT NOT NULL, quantity INTEGER NOT NULL);
"""
KINDS = ("tool", "book", "toy")
MEASURES = {
    "the number of orders": "count(o.id)",
    "the number of pieces sold": "coalesce(sum(o.quantity), 0)",
    "the revenue in cents (quantity times price)": "coalesce(sum(o.quantity * p.cents), 0)",
    "the number of different products ordered": "count(DISTINCT o.product)",
    "the day of the latest order": "max(o.day)",
}
GROUPS = {
    "city": ("the customers' city", "c.city"),
    "customer": ("customer name", "c.name"),
    "kind": ("kind of product", "p.kind"),
    "product": ("product name", "p.name"),
    "month": ("month (as YYYY-MM)", "substr(o.day, 1, 7)"),
}
FILTERS = {
    "": "",
    "orders of two pieces or more": "o.quantity >= 2",
    "orders from March 2025 or later": "o.day >= '2025-03-01'",
    "products of the kind tool": "p.kind = 'tool'",
    "products that cost less than 20.00": "p.cents < 2000",
}
HAVING = {
    "": "",
    "groups with three orders or more": "count(o.id) >= 3",
    "groups of a single order": "count(o.id) = 1",
}


def draw(rng, level):
    cases, seen = [], set()
    while len(cases) < 1 + level:
        case = {
            "measure": rng.choice(list(MEASURES)),
            "group": rng.choice(list(GROUPS)),
            "only": rng.choice(list(FILTERS)) if level > 1 else "",
            "having": rng.choice(list(HAVING)) if level > 2 else "",
            "limit": rng.choice([0, 3]) if level > 3 else 0,
        }
        if str(case) not in seen:
            seen.add(str(case))
            cases.append(case | {"file": f"{words(rng, 1)[0]}{len(cases) + 1}.sql"})
    return {"db": f"{words(rng, 1)[0]}.db", "cases": cases}


def files(rng, p):
    return {p.db: database(rng)}


def database(rng):
    import sqlite3

    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    people, things = words(rng, 12, PEOPLE), words(rng, 9, NOUNS)
    cities = words(rng, 4, PLACES)
    db.executemany(
        "INSERT INTO customers VALUES (?, ?, ?)",
        [(i, n, rng.choice(cities)) for i, n in enumerate(people, 1)],
    )
    products = [(i, n, rng.choice(KINDS), rng.randrange(300, 5000)) for i, n in enumerate(things, 1)]
    db.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", products)
    for i in range(1, 61):
        day = f"2025-{rng.randint(1, 5):02}-{rng.randint(1, 28):02}"
        order = (i, rng.randint(1, 10), rng.randint(1, 9), day, rng.choice([1, 1, 2, 3]))
        db.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", order)
    db.commit()
    image = bytearray(db.serialize())
    image[96:100] = bytes(4)  # the version of the library that wrote it
    return bytes(image)


def query(case):
    _, group = GROUPS[case["group"]]
    where = f"\nWHERE {FILTERS[case['only']]}" if case["only"] else ""
    having = f"\nHAVING {HAVING[case['having']]}" if case["having"] else ""
    limit = f"\nLIMIT {case['limit']}" if case["limit"] else ""
    return (
        f"SELECT {group} AS name, {MEASURES[case['measure']]} AS value\nFROM orders o JOIN customers c ON "
        f"c.id = o.customer JOIN products p ON p.id = o.product{where}\nGROUP BY {group}{having}\n"
        f"ORDER BY value DESC, name{limit}"
    )


def question(case):
    only = f", counting only {case['only']}" if case["only"] else ""
    having = f", for {case['having']} only" if case["having"] else ""
    limit = f", the first {case['limit']} rows" if case["limit"] else ""
    return f"- {case['file']}: {case['measure']} for each {GROUPS[case['group']][0]}{only}{having}{limit}"


def instruction(p):
    asked = "\n".join(question(case) for case in p.cases)
    shape = (
        "Every result has two columns, the group and the value, largest value first, equal values by group."
    )
    return [
        f"The SQLite database /app/{p.db} holds a shop's customers, products and orders. Write one SELECT "
        f"to each of these files in /app:\n{asked}\n\n{shape} The queries will run on other shops' "
        "databases as well.",
        f"Have a look at the tables of /app/{p.db} (SQLite), then answer these questions by queries, a "
        f"file in /app for each:\n{asked}\n\n{shape} Do not write values from this database into the "
        "queries, as they are for databases with other rows, too.",
        f"We need reports from shop databases such as /app/{p.db} (SQLite). For each of the following put "
        f"a single SELECT statement into the named file in /app:\n{asked}\n\n{shape} Groups without any "
        "order do not appear. We will use the queries again next month.",
    ]


def solution(p):
    look = f"import sqlite3; print(*[r[0] for r in sqlite3.connect('{p.db}').execute('SELECT sql FROM sqlite_master')])"
    return [f'python3 -c "{look}"', *[put(case["file"], query(case) + ";") for case in p.cases]]


def lazy(p):
    code = """import sqlite3, sys
for name in sys.argv[2:]:
    rows = sqlite3.connect(sys.argv[1]).execute(open(name).read()).fetchall()
    text = ", ".join("(%r, %r)" % row for row in rows) or "(1, 1)"
    open(name, "w").write("SELECT * FROM (VALUES " + text + ")")
"""
    return [*solution(p), put("/tmp/freeze.py", code), f"python3 /tmp/freeze.py {p.db} *.sql"]


def rows(database, sql):
    import sqlite3

    return sqlite3.connect(f"file:{database}?mode=ro", uri=True).execute(sql).fetchall()


def answers(case, database):
    with open(at(case["file"])) as file:
        sql = file.read().strip().rstrip(";")
    return rows(database, sql) == rows(database, query(case))


def test_query(p, case):
    assert answers(case, at(p.db))


def test_hidden_query(p, case):
    rng = hidden(p)
    for number in range(2):
        assert answers(case, scratch({"other.db": database(rng)}) + "/other.db"), number
