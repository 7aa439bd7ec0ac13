"""A report from a JSON file of nested records, by a Python program that must take any such file.

Hard: what is wanted lies at several depths, may be missing or null, and lists must be opened up.
"""

import json

from sandbox.factory.kit import PEOPLE, PLACES, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "JSON", "nested data", "sorting")

# A column: how people say it -> Python of the solution, of an order o and one of its items i; the reference's path.
COLUMNS = {
    "the order's id": ("o['id']", "id"),
    "the customer's name": ("o['customer']['name']", "customer name"),
    "the customer's city": ("(o['customer'].get('address') or {}).get('city')", "customer address city"),
    "the status": ("o.get('status')", "status"),
    "the first tag": ("(o.get('tags') or [None])[0]", "tags 0"),
    "the item's name": ("i['name']", "item name"),
    "the item's quantity": ("i.get('quantity')", "item quantity"),
    "the item's colour": ("(i.get('options') or {}).get('colour')", "item options colour"),
}
ONLY = {
    "whose status is paid": ("o.get('status') == 'paid'", lambda o: o.get("status") == "paid"),
    "that have a city": (
        "(o['customer'].get('address') or {}).get('city')",
        lambda o: find(o, "customer address city") is not None,
    ),
    "with the tag gift": ("'gift' in (o.get('tags') or [])", lambda o: "gift" in (o.get("tags") or [])),
    "of two items or more": ("len(o['items']) >= 2", lambda o: len(o["items"]) > 1),
    "without a status (missing or null)": ("o.get('status') is None", lambda o: find(o, "status") is None),
}
JOINS = {"a comma": ",", "a tab": "\t", "` | `": " | ", "a semicolon": ";"}
OPENS = (
    "A shop exports its orders as a JSON file: a list of orders, each with an id, a customer and items. Fields may be missing or null.",
    "Orders come as JSON (look at the file for its shape), where any field but ids, names and the list of items may be missing or null. A plain table is wanted.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    per_item = rng.random() < 0.5
    columns = rng.sample(list(COLUMNS) if per_item else list(COLUMNS)[:5], 2 + level // 2)
    if per_item and not any("item" in column for column in columns):
        columns[-1] = "the item's name"
    return names(rng, "json", "py") | {
        "columns": columns,
        "only": rng.sample(list(ONLY)[:4], (level - 1) // 2) if rng.random() < 0.8 else [list(ONLY)[4]],
        "join": rng.choice(list(JOINS)),
        "missing": rng.choice(["-", "n/a", "?"]),
        "order": rng.choice(
            ["in the file's order", "in byte order of the lines", "in reverse byte order of the lines"]
        ),
        "total": rng.choice(["", "", "lines", "quantities"]) if level > 1 else "",
        "unique": level > 2 and rng.random() < 0.5,
        "size": 5 + 4 * level,
    }


def make(rng, p):
    orders = []
    for number in range(p.size):
        order = {"id": f"o{100 + number}", "customer": {"name": word(rng, PEOPLE).title()}, "items": []}
        if (
            address := rng.choice(
                [None, {}, {"city": word(rng, PLACES)}, {"city": word(rng, PLACES)}, {"city": None}]
            )
        ) is not None or rng.random() < 0.3:
            order["customer"]["address"] = address
        if rng.random() < 0.8:
            order["status"] = rng.choice(["paid", "paid", "open", None])
        if rng.random() < 0.8:
            order["tags"] = rng.choice([[], ["gift"], words(rng, 2), [word(rng), "gift"], None])
        for _ in range(rng.randint(0, 3)):
            item = {"name": word(rng), "quantity": rng.choice([1, 2, 5, None])}
            item |= rng.choice([{}, {"options": None}, {"options": {"colour": rng.choice(["red", "blue"])}}])
            order["items"].append(item)
        orders.append(order)
    return json.dumps(orders, indent=rng.choice([None, 1, 2])) + "\n"


def find(record, path):
    """What lies at a path of keys and positions; None where something is missing on the way."""
    for step in path.split(" "):
        if isinstance(record, dict):
            record = record.get(step)
        elif isinstance(record, list) and step.isdigit():
            record = record[int(step)] if int(step) < len(record) else None
        else:
            return None
    return record


def worked(text, p):
    lines, total, per_item = [], 0, any("item" in column for column in p.columns)
    for order in json.loads(text):
        if all(ONLY[name][1](order) for name in p.only):
            total += sum(item["quantity"] or 0 for item in order["items"])
            for item in order["items"] if per_item else [None]:
                values = [
                    find({"item": item} if "item" in COLUMNS[c][1] else order, COLUMNS[c][1])
                    for c in p.columns
                ]
                lines.append(
                    JOINS[p.join].join(p.missing if value is None else str(value) for value in values)
                )
    lines = list(dict.fromkeys(lines)) if p.unique else lines
    lines = sorted(lines, reverse="reverse" in p.order) if "byte" in p.order else lines
    end = {"lines": f"lines: {len(lines)}", "quantities": f"quantity: {total}"}.get(p.total)
    return "\n".join([*lines, *[end] * bool(end)]) if lines else ""


def instruction(p):
    per_item = any("item" in column for column in p.columns)
    each = "each item of each order (an order without items has no line)" if per_item else "each order"
    rules = [
        f"print a line for {each}: {', '.join(p.columns)}, with {p.join} between two values",
        f"print {p.missing} for what is missing or null (an empty list has no first element)",
        f"the lines are {p.order}",
    ]
    rules += [f"only orders {' and '.join(p.only)} count"] * bool(p.only) + [
        "of equal lines, print only one (the first)"
    ] * p.unique
    ends = {
        "lines": "`lines: N` with the number of lines before it",
        "quantities": "`quantity: N` with the sum of all quantities of all items of the orders that count (null is 0)",
    }
    rules += [f"at the end print {ends.get(p.total)}"] * bool(p.total)
    return wordings(p, OPENS, rules)


def program(p):
    per_item = any("item" in column for column in p.columns)
    only = " and ".join(f"({ONLY[name][0]})" for name in p.only) or "True"
    values = ", ".join(COLUMNS[column][0] for column in p.columns)
    lines = ["import json, sys", "orders = [o for o in json.load(open(sys.argv[1])) if " + only + "]"]
    rows = f"[[{values}] for o in orders" + " for i in o['items']]" * per_item + "]" * (not per_item)
    lines += [
        f"lines = [{JOINS[p.join]!r}.join({p.missing!r} if v is None else str(v) for v in row) for row in {rows}]"
    ]
    lines += ["lines = list(dict.fromkeys(lines))"] * p.unique
    lines += [f"lines.sort(reverse={'reverse' in p.order})"] * ("byte" in p.order) + [
        "for line in lines:",
        "    print(line)",
    ]
    total = {
        "lines": "print('lines:', len(lines))",
        "quantities": "print('quantity:', sum(i['quantity'] or 0 for o in orders for i in o['items']))",
    }
    return "\n".join([*lines, total.get(p.total, "")])


files, solution, lazy, test_half, test_result, test_program, test_hidden_orders = printer(
    make, worked, program
)
