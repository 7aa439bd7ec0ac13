"""A migration of a database to another schema, as a SQL script that must carry over any data.

Hard: the steps build on each other, values move between tables and forms, and rows must not be lost.
"""

from sandbox.factory.kit import PEOPLE, PLACES, at, given, hidden, put, read, scratch, word, words

SKILLS = ("SQL", "sqlite", "ALTER TABLE", "migrations")

SCHEMA = """
CREATE TABLE staff (id INTEGER PRIMARY KEY, name TEXT, city TEXT, cents INTEGER, joined TEXT, phone TEXT);
CREATE TABLE visits (id INTEGER PRIMARY KEY, staff INTEGER, day TEXT, minutes INTEGER, kind TEXT);
CREATE TABLE scratch (note TEXT);
"""
KINDS = {"a": "audit", "b": "briefing", "c": "call"}


def each(table, change):
    """A step that changes every row of a table, a dict, in place."""
    return lambda db: [change(row, db) for row in db[table]]


def split(row, db):
    row["first"], row["last"] = row.pop("name").split(" ")


def cities(db):
    names = sorted({row["city"] for row in db["staff"]})
    db["cities"] = [{"id": i, "name": name} for i, name in enumerate(names, 1)]
    for row in db["staff"]:
        row["city_id"] = names.index(row.pop("city")) + 1


def archive(db):
    db["old_visits"] = [row for row in db["visits"] if row["day"] < "2024"]
    db["visits"] = [row for row in db["visits"] if row["day"] >= "2024"]


def frequent(db):
    ids = [row["staff"] for row in db["visits"]]
    db["frequent"] = [{"staff": i, "times": ids.count(i)} for i in sorted(set(ids)) if ids.count(i) > 2]


# A step: its request -> the tables that it touches, SQL, and the same in Python.
STEPS = {
    "staff.name, a first and a last name with one space between, becomes the columns first and last": (["staff"],
        "ALTER TABLE staff ADD COLUMN first TEXT;\nALTER TABLE staff ADD COLUMN last TEXT;\nUPDATE staff SET first = substr(name, 1, instr(name, ' ') - 1), last = substr(name, instr(name, ' ') + 1);\nALTER TABLE staff DROP COLUMN name;",
        each("staff", split)),
    "the dates in staff.joined, now DD.MM.YYYY, are written YYYY-MM-DD": (["staff"],
        "UPDATE staff SET joined = substr(joined, 7) || '-' || substr(joined, 4, 2) || '-' || substr(joined, 1, 2);",
        each("staff", lambda row, db: row.update(joined="-".join(row["joined"].split(".")[::-1])))),
    "the column visits.minutes is called visits.duration": (["visits"],
        "ALTER TABLE visits RENAME COLUMN minutes TO duration;",
        each("visits", lambda row, db: row.update(duration=row.pop("minutes")))),
    "a new table cities (id, name) has each city once, with the ids 1, 2, 3 and so on in byte order of the names, and a column staff.city_id takes the place of staff.city": (["staff", "cities"],
        "CREATE TABLE cities (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);\nINSERT INTO cities (name) SELECT DISTINCT city FROM staff ORDER BY city;\nALTER TABLE staff ADD COLUMN city_id INTEGER REFERENCES cities (id);\nUPDATE staff SET city_id = (SELECT id FROM cities WHERE cities.name = staff.city);\nALTER TABLE staff DROP COLUMN city;",
        cities),
    "staff.cents becomes staff.euros, a number with a fraction (2550 cents are 25.5)": (["staff"],
        "ALTER TABLE staff ADD COLUMN euros REAL;\nUPDATE staff SET euros = cents / 100.0;\nALTER TABLE staff DROP COLUMN cents;",
        each("staff", lambda row, db: row.update(euros=row.pop("cents") / 100))),
    "a new column staff.visited has the number of rows that visits has for each one, 0 where there is none": (["staff"],
        "ALTER TABLE staff ADD COLUMN visited INTEGER;\nUPDATE staff SET visited = (SELECT count(*) FROM visits WHERE visits.staff = staff.id);",
        each("staff", lambda row, db: row.update(visited=sum(v["staff"] == row["id"] for v in db["visits"])))),
    "the visits before the year 2024 move to a new table old_visits with the columns that visits has by then": (["visits", "old_visits"],
        "CREATE TABLE old_visits AS SELECT * FROM visits WHERE day < '2024';\nDELETE FROM visits WHERE day < '2024';",
        archive),
    "the letters in visits.kind become words: a audit, b briefing, c call": (["visits"],
        "UPDATE visits SET kind = CASE kind WHEN 'a' THEN 'audit' WHEN 'b' THEN 'briefing' ELSE 'call' END;",
        each("visits", lambda row, db: row.update(kind=KINDS[row["kind"]]))),
    "an empty text in staff.phone becomes NULL": (["staff"],
        "UPDATE staff SET phone = NULL WHERE phone = '';",
        each("staff", lambda row, db: row.update(phone=row["phone"] or None))),
    "a view frequent (columns staff and times) shows how often each id of visits.staff occurs there, of those that occur more than twice": (["frequent"],
        "CREATE VIEW frequent AS SELECT staff, count(*) AS times FROM visits GROUP BY staff HAVING count(*) > 2;",
        frequent),
    "the table scratch is gone": (["scratch"], "DROP TABLE scratch;", lambda db: db.pop("scratch")),
    "visits of staff whose id is not in the table staff are deleted": (["visits"],
        "DELETE FROM visits WHERE staff NOT IN (SELECT id FROM staff);",
        lambda db: db.update(visits=[row for row in db["visits"] if row["staff"] in {s["id"] for s in db["staff"]}])),
}  # fmt: skip


def draw(rng, level):
    steps = rng.sample(list(STEPS), 1 + level)
    view = next((step for step in steps if STEPS[step][1].startswith("CREATE VIEW")), None)
    if view:  # a view shows what its tables become, so it is the last step
        steps = [step for step in steps if step != view] + [view]
    return {
        "db": f"{word(rng)}.db",
        "script": f"{word(rng)}.sql",
        "steps": steps,
        "cases": sorted({name for step in steps for name in STEPS[step][0]}),
        "size": 8 + 4 * level,
    }


def rows(rng, p):
    """Table -> rows; the first of staff and of visits cover what a step may meet."""
    names = [
        f"{a.capitalize()} {b.capitalize()}"
        for a, b in zip(words(rng, p.size, PEOPLE), words(rng, p.size), strict=True)
    ]
    towns = words(rng, 4, PLACES)
    staff = [
        {"id": i, "name": name, "city": rng.choice(towns), "cents": rng.randrange(150000, 400000),
         "joined": f"{rng.randint(1, 28):02}.{rng.randint(1, 12):02}.{rng.randint(2001, 2024)}",
         "phone": rng.choice(["", f"555-{rng.randint(1000, 9999)}"])}
        for i, name in enumerate(names, 1)
    ]  # fmt: skip
    visits = [
        {"id": i, "staff": rng.randint(2, p.size + 2), "day": f"{rng.choice([2022, 2023, 2024, 2025])}-{rng.randint(1, 12):02}-11",
         "minutes": rng.randint(5, 90), "kind": rng.choice("abc")}
        for i in range(1, 3 * p.size)
    ]  # fmt: skip
    return {"staff": staff, "visits": visits, "scratch": [{"note": word(rng)} for _ in range(3)]}


def image(data):
    import sqlite3

    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    for table, lines in data.items():
        marks = ", ".join("?" * len(lines[0]))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", [tuple(row.values()) for row in lines])
    db.commit()
    image = bytearray(db.serialize())
    image[96:100] = bytes(4)  # the version of the library that wrote it
    return bytes(image)


def files(rng, p):
    return {p.db: image(rows(rng, p))}


def instruction(p):
    steps = "\n".join(f"- {step}" for step in p.steps)
    rest = "All other tables, columns and rows stay; the order of columns does not matter."
    return [
        f"The SQLite database /app/{p.db} needs a new schema. Write the migration as a SQL script, "
        f"/app/{p.script}, which does this in this order:\n{steps}\n\n{rest} Then apply it to {p.db}. Other "
        "databases with the tables of today and other rows will be migrated with it, by "
        "`executescript` of Python's sqlite3.",
        f"Please migrate /app/{p.db} (SQLite), one change after the other:\n{steps}\n\n{rest} Keep the "
        f"migration as one script of SQL statements, /app/{p.script}: colleagues will run it, with "
        "`sqlite3.Connection.executescript` in Python, on their own databases of the old schema.",
        f"Our next release expects the following of its database, after changes in this order:\n{steps}\n\n"
        f"{rest} /app/{p.script} must have the SQL that brings any database like /app/{p.db} (SQLite) there, "
        f"and {p.db} must have been brought there with it. We run the script through Python's "
        "sqlite3, `executescript`.",
    ]


def solution(p):
    look = "import sqlite3\nfor (sql,) in sqlite3.connect('{}').execute('SELECT sql FROM sqlite_master'): print(sql)"
    apply = f"import sqlite3; db = sqlite3.connect('{p.db}'); db.executescript(open('{p.script}').read()); db.commit()"
    return [
        f'python3 -c "{look.format(p.db)}"',
        put(p.script, "\n".join(STEPS[step][1] for step in p.steps)),
        f'python3 -c "{apply}"',
    ]


def lazy(p):
    """The migrated rows of this database, written down."""
    code = f"""import sqlite3
dump = list(sqlite3.connect('{p.db}').iterdump())[1:-1]
names = [name for name in ('staff', 'visits', 'scratch')]
open('{p.script}', 'w').write(''.join(f'DROP TABLE IF EXISTS {{name}};' for name in names) + '\\n'.join(dump))"""
    return [*solution(p), put("/tmp/freeze.py", code), "python3 /tmp/freeze.py"]


def found(path):
    """Table or view -> its rows as dicts, in the order of their text."""
    import sqlite3

    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
    return {name: ordered(map(dict, db.execute(f'SELECT * FROM "{name}"'))) for name in names}


def ordered(lines):
    return sorted((dict(sorted(row.items())) for row in lines), key=repr)


def migrated(data, p):
    for step in p.steps:
        STEPS[step][2](data)
    return {name: ordered(lines) for name, lines in data.items()}


def test_database(p):
    assert found(at(p.db)) == migrated(rows(given(p), p), p)


def test_hidden_table(p, case):
    import sqlite3

    data = rows(hidden(p), p)
    path = scratch({"other.db": image(data)}) + "/other.db"
    db = sqlite3.connect(path)
    db.executescript(read(p.script))
    db.commit()
    db.close()
    want = migrated(data, p)
    assert found(path).get(case) == want.get(case)


def test_hidden_whole_database(p):
    import sqlite3

    rng = hidden(p)
    rows(rng, p)
    data = rows(rng, p)
    path = scratch({"other.db": image(data)}) + "/other.db"
    db = sqlite3.connect(path)
    db.executescript(read(p.script))
    db.commit()
    db.close()
    assert found(path) == migrated(data, p)
