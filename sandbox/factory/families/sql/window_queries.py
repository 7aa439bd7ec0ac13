"""Questions about series of readings, each to be answered by one query that looks at neighbouring rows.

Hard: what came before, what ranks where and what is missing are not in any single row.
"""

from sandbox.factory.kit import at, given, hidden, put, scratch, word, words

SKILLS = ("SQL", "sqlite", "window functions", "subqueries")

BY = "PARTITION BY station ORDER BY day"
# A question: how people say it (columns of the result) -> the query, Python's rows from the readings (station, day, value), which are in order.
QUESTIONS = {
    "station, day, and the difference of the value from that station's reading before (only where there is one)": (f"SELECT * FROM (SELECT station, day, value - lag(value) OVER ({BY}) AS d FROM readings) WHERE d IS NOT NULL ORDER BY station, day", lambda r: [(s, d, v - before(r, s, d)[-1]) for s, d, v in r if before(r, s, d)]),
    "station, day, and the sum of all that station's values up to this day": (f"SELECT station, day, sum(value) OVER ({BY}) FROM readings ORDER BY station, day", lambda r: [(s, d, sum(before(r, s, d)) + v) for s, d, v in r]),
    "station, day and value of each station's largest value (of equal ones the earliest day)": ("SELECT station, day, value FROM (SELECT *, row_number() OVER (PARTITION BY station ORDER BY value DESC, day) AS n FROM readings) WHERE n = 1 ORDER BY station", lambda r: [min(of(r, s), key=lambda x: (-x[2], x[1])) for s in sorted({x[0] for x in r})]),
    "station, day and value of each station's three latest readings": ("SELECT station, day, value FROM (SELECT *, row_number() OVER (PARTITION BY station ORDER BY day DESC) AS n FROM readings) WHERE n <= 3 ORDER BY station, day", lambda r: [x for s in sorted({x[0] for x in r}) for x in of(r, s)[-3:]]),
    "day, and the station with the largest value on it (of equal ones the first by name)": ("SELECT day, station FROM (SELECT *, row_number() OVER (PARTITION BY day ORDER BY value DESC, station) AS n FROM readings) WHERE n = 1 ORDER BY day", lambda r: [(d, min((x for x in r if x[1] == d), key=lambda x: (-x[2], x[0]))[0]) for d in sorted({x[1] for x in r})]),
    "station, day, and the largest of the value and the two readings of the station before it (or fewer)": (f"SELECT station, day, max(value) OVER ({BY} ROWS 2 PRECEDING) FROM readings ORDER BY station, day", lambda r: [(s, d, max([*before(r, s, d)[-2:], v])) for s, d, v in r]),
    "station, and the number of its readings that are larger than the reading of that station before": (f"SELECT station, sum(value > p) FROM (SELECT *, lag(value) OVER ({BY}) AS p FROM readings) GROUP BY station HAVING count(p) > 0 ORDER BY station", lambda r: [(s, sum(b[2] > a[2] for a, b in zip(of(r, s), of(r, s)[1:], strict=False))) for s in sorted({x[0] for x in r}) if len(of(r, s)) > 1]),
    "station, the day of a reading, and the day of that station's next one, where a day or more between has none": (f"SELECT * FROM (SELECT station, day, lead(day) OVER ({BY}) AS n FROM readings) WHERE julianday(n) - julianday(day) > 1 ORDER BY station, day", lambda r: [(a[0], a[1], b[1]) for s in sorted({x[0] for x in r}) for a, b in zip(of(r, s), of(r, s)[1:], strict=False) if int(b[1][8:]) - int(a[1][8:]) > 1]),
    "station, and the rank of its sum of values among all stations (1 is the largest sum, equal ones share the better rank)": ("SELECT station, rank() OVER (ORDER BY sum(value) DESC) FROM readings GROUP BY station ORDER BY station", lambda r: [(s, 1 + sum(total(r, o) > total(r, s) for o in {x[0] for x in r})) for s in sorted({x[0] for x in r})]),
    "day, and the number of stations without a reading on it, where there are any (days from the first to the last that has a reading of any station)": ("WITH RECURSIVE days(day) AS (SELECT min(day) FROM readings UNION ALL SELECT date(day, '+1 day') FROM days WHERE day < (SELECT max(day) FROM readings)) SELECT * FROM (SELECT day, (SELECT count(DISTINCT station) FROM readings) - (SELECT count(*) FROM readings r WHERE r.day = days.day) AS n FROM days) WHERE n > 0 ORDER BY day", lambda r: [(d, n) for d in span(r) if (n := len({x[0] for x in r}) - sum(x[1] == d for x in r))]),
    "station, day, and the percentage of the value in the sum of all values of that day, rounded down to a whole number (days with a sum of 0 left out)": ("SELECT * FROM (SELECT station, day, value * 100 / sum(value) OVER (PARTITION BY day) AS x FROM readings) WHERE x IS NOT NULL ORDER BY station, day", lambda r: [(s, d, v * 100 // n) for s, d, v in r if (n := sum(x[2] for x in r if x[1] == d))]),
    "station, the first day and the last day of its readings, and how many there are": ("SELECT station, min(day), max(day), count(*) FROM readings GROUP BY station ORDER BY station", lambda r: [(s, of(r, s)[0][1], of(r, s)[-1][1], len(of(r, s))) for s in sorted({x[0] for x in r})]),
}  # fmt: skip


def of(rows, station):
    return [row for row in rows if row[0] == station]


def before(rows, station, day):
    return [row[2] for row in of(rows, station) if row[1] < day]


def total(rows, station):
    return sum(row[2] for row in of(rows, station))


def span(rows):
    days = [int(row[1][8:]) for row in rows]
    return [f"2025-03-{day:02}" for day in range(min(days), max(days) + 1)]


def draw(rng, level):
    asked = rng.sample(list(QUESTIONS), 2 + level)
    cases = [
        {"asked": question, "file": f"{name}.sql"}
        for question, name in zip(asked, words(rng, len(asked)), strict=True)
    ]
    return {"db": f"{word(rng)}.db", "cases": cases, "days": 8 + level}


def readings(rng, p):
    return sorted(
        (s, f"2025-03-{d:02}", rng.choice([rng.randint(0, 99), rng.randint(0, 20)]))
        for s in words(rng, 4)
        for d in range(1, p.days + 1)
        if rng.random() < 0.75
    )


def database(rows):
    import sqlite3

    db = sqlite3.connect(":memory:")
    db.execute(
        "CREATE TABLE readings (station TEXT NOT NULL, day TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (station, day))"
    )
    db.executemany("INSERT INTO readings VALUES (?, ?, ?)", sorted(rows, key=lambda row: row[::-1]))
    db.commit()
    image = bytearray(db.serialize())
    image[96:100] = bytes(4)  # the version of the library that wrote it
    return bytes(image)


def files(rng, p):
    return {p.db: database(readings(rng, p))}


def instruction(p):
    asked = "\n".join(f"- {case['file']}: {case['asked']}" for case in p.cases)
    rules = "The columns of a result are those named, in that order; its rows are in order of station and then day, as far as it has these columns (of day first, where that is the first column)."
    return [
        f"The SQLite database /app/{p.db} has one table, readings, with the values of stations by day. Write a single query to each of these files in /app, with these columns:\n{asked}\n\n{rules} The queries will run on databases with other readings.",
        f"Readings of several stations lie in /app/{p.db} (SQLite, table readings). For each line below, put one SELECT (WITH is fine) into the file in /app that it names; it gives\n{asked}\n\n{rules} They must hold for other readings as well.",
        f"Have a look at the table readings in /app/{p.db} (SQLite). We need queries, one in each file in /app, for:\n{asked}\n\n{rules} Next month there will be other readings, so let no query depend on these.",
    ]


def solution(p):
    look = f"import sqlite3; print(*sqlite3.connect('{p.db}').execute('SELECT * FROM readings LIMIT 5'))"
    return [
        f'python3 -c "{look}"',
        *[
            put(case["file"], QUESTIONS[case["asked"]][0].replace(" FROM readings", "\nFROM readings"))
            for case in p.cases
        ],
    ]


def lazy(p):
    code = "import sqlite3, sys\nfor name in sys.argv[2:]:\n    rows = sqlite3.connect(sys.argv[1]).execute(open(name).read()).fetchall()\n    values = ', '.join('(' + ', '.join(map(repr, row)) + ')' for row in rows) or '(0)'\n    open(name, 'w').write('VALUES ' + values)"
    return [*solution(p), put("/tmp/freeze.py", code), f"python3 /tmp/freeze.py {p.db} *.sql"]


def answers(case, path, rows):
    import sqlite3

    with open(at(case["file"])) as file:
        found = (
            sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            .execute(file.read().strip().rstrip(";"))
            .fetchall()
        )
    wanted = QUESTIONS[case["asked"]][1](rows)
    return found == wanted and case["file"]


def test_query(p, case):
    assert answers(case, at(p.db), readings(given(p), p))


def test_hidden_query(p, case):
    rng = hidden(p)
    for _ in range(2):
        rows = readings(rng, p)
        assert answers(case, scratch({"other.db": database(rows)}) + "/other.db", rows)
