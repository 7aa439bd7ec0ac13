"""A catalogue in XML as a plain table, by a Python program for any such catalogue.

Hard: values stand in attributes, in elements and in the elements above, with entities, and in more than one language.
"""

from xml.sax.saxutils import escape, quoteattr

from sandbox.factory.kit import PEOPLE, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "XML", "ElementTree", "sorting")

# A column: how people say it -> the solution's Python on item and shelf elements, the reference's of a plain record.
COLUMNS = {
    "the item's id (an attribute)": ("item.get('id')", lambda r: r["id"]),
    "the item's English title": ("item.find('title[@lang=\"en\"]').text", lambda r: r["en"]),
    "the item's German title, or `-` without one": ("item.findtext('title[@lang=\"de\"]', '-')", lambda r: r["de"] or "-"),
    "the price (an attribute of the element price), with its currency after a space": ("item.find('price').get('amount') + ' ' + item.find('price').get('currency', 'EUR')", lambda r: f"{r['price']} {r['currency'] or 'EUR'}"),
    "the names of its authors with `, ` between two": ("', '.join(a.text for a in item.findall('author'))", lambda r: ", ".join(r["authors"])),
    "the number of its authors": ("str(len(item.findall('author')))", lambda r: str(len(r["authors"]))),
    "the name of the shelf that it stands on": ("shelf.get('name')", lambda r: r["shelf"]),
    "yes or no: whether it has a note": ("'no' if item.find('note') is None else 'yes'", lambda r: "yes" if r["note"] else "no"),
}  # fmt: skip
ONLY = {
    "with two authors or more": ("len(item.findall('author')) >= 2", lambda r: len(r["authors"]) > 1),
    "with a German title": ("item.find('title[@lang=\"de\"]') is not None", lambda r: r["de"]),
    "without a note": ("item.find('note') is None", lambda r: not r["note"]),
    "with a price of 20 or more, whatever the currency": ("float(item.find('price').get('amount')) >= 20", lambda r: float(r["price"]) >= 20),
    "with `&` in the English title": ("'&' in item.find('title[@lang=\"en\"]').text", lambda r: "&" in r["en"]),
    "whose price has the currency USD": ("item.find('price').get('currency') == 'USD'", lambda r: r["currency"] == "USD"),
}  # fmt: skip
ORDERS = {
    "in the order of the file": ("", lambda r: 0),
    "by id in byte order": ("item.get('id')", lambda r: r["id"]),
    "by price, the lowest first, equal ones by id in byte order": ("(float(item.find('price').get('amount')), item.get('id'))", lambda r: (float(r["price"]), r["id"])),
    "by English title in byte order, equal ones by id in byte order": ("(item.find('title[@lang=\"en\"]').text, item.get('id'))", lambda r: (r["en"], r["id"])),
}  # fmt: skip
OPENS = (
    "A library's catalogue is an XML file of shelves with items. We need a table of its items.",
    "From catalogues in XML (items on shelves; look at the file) a plain text table shall be made.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "xml", "py") | {
        "columns": rng.sample(list(COLUMNS), 2 + level // 2),
        "only": rng.sample(list(ONLY), level // 2),
        "order": rng.choice(list(ORDERS)),
        "join": rng.choice(["; ", " | ", "\t"]),
        "numbered": rng.random() < 0.4,
        "currency": rng.choice(["", "USD", "EUR"]),
        "size": 10 + 5 * level,
    }


def records(rng, p):
    shelves, found = words(rng, 3), []
    for number in rng.sample(range(100, 999), p.size):
        title = f"{word(rng).title()}{rng.choice([' & ', ' <', ' of '])}{word(rng)}"
        found.append({
            "id": f"b{number}", "en": title, "de": rng.choice(["", f"Der {word(rng).title()} & so"]), "price": f"{rng.randint(5, 60)}.{rng.choice(['00', '50'])}",
            "currency": rng.choice(["", "USD", "EUR"]), "authors": [a.title() for a in words(rng, rng.randint(1, 3), PEOPLE)], "shelf": rng.choice(shelves), "note": rng.choice(["", f"see {word(rng)}"]),
        })  # fmt: skip
    return sorted(found, key=lambda r: shelves.index(r["shelf"]))


def make(rng, p):
    lines, shelf = ['<?xml version="1.0" encoding="UTF-8"?>', "<catalogue>"], ""
    for r in records(rng, p):
        if r["shelf"] != shelf:
            lines += ["  </shelf>"] * bool(shelf) + [f"  <shelf name={quoteattr(r['shelf'])}>"]
            shelf = r["shelf"]
        titles = [
            f'<title lang="en">{escape(r["en"])}</title>',
            *[f'<title lang="de">{escape(r["de"])}</title>'] * bool(r["de"]),
        ]
        rng.shuffle(titles)
        currency = f' currency="{r["currency"]}"' * bool(r["currency"])
        parts = [
            *titles,
            f'<price amount="{r["price"]}"{currency}/>',
            *(f"<author>{a}</author>" for a in r["authors"]),
            *[f"<note>{r['note']}</note>"] * bool(r["note"]),
        ]
        lines += [f'    <item id="{r["id"]}">', *(f"      {part}" for part in parts), "    </item>"]
    return "\n".join([*lines, "  </shelf>", "</catalogue>"]) + "\n"


def worked(text, p):
    """Reads the lines as `make` writes them."""
    import re

    plain = lambda s: s.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")  # noqa: E731
    found, shelf = [], ""
    for line in text.splitlines():
        shelf = (re.findall(r'<shelf name="(\w+)"', line) or [shelf])[0]
        if key := re.findall(r'<item id="(\w+)"', line):
            found.append({"id": key[0], "shelf": shelf, "de": "", "note": "", "authors": []})
        for tag, value in re.findall(r'<(title lang="..|author|note)"?>(.*)</', line):
            if tag == "author":
                found[-1]["authors"].append(plain(value))
            else:
                found[-1][tag[-2:] if "lang" in tag else tag] = plain(value)
        for amount, currency in re.findall(r'<price amount="([0-9.]+)"(?: currency="(\w+)")?/>', line):
            found[-1] |= {"price": amount, "currency": currency}
    rows = sorted((r for r in found if all(ONLY[name][1](r) for name in p.only)), key=ORDERS[p.order][1])
    return "\n".join(
        f"{n}. " * p.numbered + p.join.join(COLUMNS[c][1](r) for c in p.columns)
        for n, r in enumerate(rows, 1)
    )


def instruction(p):
    join = {"; ": "a semicolon and a space", " | ": "` | `", "\t": "a tab"}[p.join]
    rules = [
        f"print a line for each item: {'; '.join(p.columns)}, with {join} between two values",
        f"the lines are {p.order}",
    ]
    rules += [f"only items {' and '.join(p.only)} are listed"] * bool(p.only) + [
        "each line has its number, from 1 on, a point and a space in front"
    ] * p.numbered
    rules += ["the currency of a price is EUR unless it has the attribute currency"] * any(
        "currency after" in c for c in p.columns
    )
    return wordings(p, OPENS, rules)


def program(p):
    only = " and ".join(ONLY[name][0] for name in p.only) or "True"
    lines = [
        "import sys, xml.etree.ElementTree as tree",
        "rows = [(item, shelf) for shelf in tree.parse(sys.argv[1]).getroot() for item in shelf",
        f"        if {only}]",
    ]
    lines += [f"rows.sort(key=lambda row: (lambda item: {ORDERS[p.order][0]})(row[0]))"] * bool(
        ORDERS[p.order][0]
    )
    values = ", ".join(COLUMNS[c][0] for c in p.columns)
    start = "f'{number}. ' + " * p.numbered
    return "\n".join(
        [
            *lines,
            "for number, (item, shelf) in enumerate(rows, 1):",
            f"    print({start}{p.join!r}.join([{values}]))",
        ]
    )


files, solution, lazy, test_half, test_result, test_program, test_hidden_catalogues = printer(
    make, worked, program
)
