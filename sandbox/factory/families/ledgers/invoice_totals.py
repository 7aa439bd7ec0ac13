"""Invoices worked out from a list of items, by an awk script for any such list.

Hard: discounts, tax and rounding come in a given order, and every cent depends on it.
"""

from sandbox.factory.kit import PEOPLE, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "rounding", "associative arrays", "sort")

# What is done to the cents x of an item (quantity q): how people say it -> awk's statement, Python's.
ITEM = {
    "of ten pieces or more, an item costs 10 % less (rounded down to whole cents)": ("if (q >= 10) x -= int((x + 9) / 10)", lambda x, q, kind: x - (x + 9) // 10 if q >= 10 else x),
    "books cost 5 % less (the discount is rounded down to whole cents)": ('if (kind == "book") x -= int(x / 20)', lambda x, q, kind: x - x // 20 if kind == "book" else x),
    "an item costs 300 cents at least": ("if (x < 300) x = 300", lambda x, q, kind: max(x, 300)),
    "every third piece of an item is free": ("x = x / q * (q - int(q / 3))", lambda x, q, kind: x // q * (q - q // 3)),
    "toys have 50 cents each added": ('if (kind == "toy") x += 50 * q', lambda x, q, kind: x + 50 * q if kind == "toy" else x),
}  # fmt: skip
# What is done to the sum s of an invoice (with n items): -> awk's statement, Python's.
WHOLE = {
    "from 10000 cents on, an invoice is 3 % less (the discount is rounded down to whole cents)": ("if (s >= 10000) s -= int(s * 3 / 100)", lambda s, n: s - s * 3 // 100 if s >= 10000 else s),
    "an invoice below 5000 cents has 490 cents added for postage": ("if (s < 5000) s += 490", lambda s, n: s + 490 * (s < 5000)),
    "19 % of tax are added (half a cent is rounded up)": ("s += int((s * 19 + 50) / 100)", lambda s, n: s + (s * 19 + 50) // 100),
    "the sum is rounded to a multiple of 5 cents, to the nearer one": ("s = int((s + 2) / 5) * 5", lambda s, n: (s + 2) // 5 * 5),
    "an invoice of four items or more has 250 cents taken off (but is not below 0)": ("if (n >= 4) s = s < 250 ? 0 : s - 250", lambda s, n: max(0, s - 250) if n >= 4 else s),
}  # fmt: skip
LINES = {
    "INVOICE CUSTOMER AMOUNT": 'i " " c " " a',
    "CUSTOMER: AMOUNT (INVOICE)": 'c ": " a " (" i ")"',
    "INVOICE;AMOUNT;CUSTOMER": 'i ";" a ";" c',
}
ORDERS = {
    "by INVOICE in byte order": "-k1,1",
    "by amount, the largest first, equal ones by INVOICE in byte order": "-k3,3nr -k1,1",
    "by CUSTOMER, then by INVOICE, in byte order": "-k2,2 -k1,1",
}
OPENS = (
    "A list has the items of invoices, lines `INVOICE;CUSTOMER;KIND;QUANTITY;CENTS` (the price of a piece in cents). What each invoice comes to has to be worked out.",
    "Items are noted as `INVOICE;CUSTOMER;KIND;QUANTITY;CENTS`, where CENTS is the price of one piece, and the items of an invoice do not stand together. We need the amounts.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng) | {
        "item": rng.sample(list(ITEM), (level + 1) // 2),
        "whole": rng.sample(list(WHOLE), max(1, level - 1)),
        "line": rng.choice(list(LINES)),
        "order": rng.choice(list(ORDERS)),
        "credit": level > 2 and rng.random() < 0.6,
        "total": rng.random() < 0.5,
        "size": 10 + 8 * level,
    }


def make(rng, p):
    invoices = [(f"R{n}", word(rng, PEOPLE)) for n in rng.sample(range(100, 999), 2 + p.size // 5)]
    kinds, lines = ["book", "toy", *words(rng, 2)], []
    for _ in range(p.size):
        number, customer = rng.choice(invoices)
        lines.append(
            f"{number};{customer};{rng.choice(kinds)};{rng.choice([1, 1, 2, 3, 7, 10, 12])};{rng.choice([rng.randint(50, 3000), 999])}\n"
        )
        if p.credit and rng.random() < 0.15:
            lines.append(f"{number};{customer};credit;1;{rng.randint(100, 900)}\n")
    return "".join(lines)


def euros(cents):
    return "-" * (cents < 0) + f"{abs(cents) // 100}.{abs(cents) % 100:02}"


def worked(text, p):
    sums, credits = {}, {}
    for line in text.splitlines():
        number, customer, kind, quantity, cents = line.split(";")
        if p.credit and kind == "credit":
            credits[number] = credits.get(number, 0) + int(cents)
            continue
        x, q = int(quantity) * int(cents), int(quantity)
        for rule in p.item:
            x = ITEM[rule][1](x, q, kind)
        sums.setdefault((number, customer), []).append(x)
    rows = []
    for (number, customer), items in sums.items():
        s = sum(items)
        for rule in p.whole:
            s = WHOLE[rule][1](s, len(items))
        rows.append((number, customer, s - credits.get(number, 0)))
    rows.sort(key=lambda r: (-r[2] if "amount," in p.order else r[1] if "CUSTOMER" in p.order else 0, r[0]))
    lines = [
        p.line.replace("INVOICE", n).replace("CUSTOMER", c).replace("AMOUNT", euros(s)) for n, c, s in rows
    ]
    return "\n".join([*lines, *[f"total {euros(sum(s for _, _, s in rows))}"] * p.total])


def instruction(p):
    rules = [
        "an item costs its quantity times its price",
        *p.item,
        "an invoice is the sum of its items",
        *p.whole,
        "all this happens in the order given here, each step on what the one before gave",
    ]
    rules += [
        "a line of the kind credit is no item: its CENTS are taken off the invoice at the very end (which may be negative then; an invoice of credits only is not printed)"
    ] * p.credit
    rules += [f"print a line `{p.line}` for each invoice, with AMOUNT as in 12.50, {p.order}"]
    return wordings(
        p, OPENS, [*rules, *["print a last line `total AMOUNT` with the sum of all these"] * p.total]
    )


def program(p):
    credit = 'kind == "credit" { off[$1] += $5; next }' if p.credit else ""
    item = "; ".join(ITEM[rule][0] for rule in p.item)
    whole = "\n    ".join(WHOLE[rule][0] for rule in p.whole)
    return f"""#!/bin/bash
awk -F ';' '{{ kind = $3; q = $4; x = q * $5 }}
{credit}
{{ {item}; sum[$1] += x; count[$1]++; who[$1] = $2 }}
END {{ for (i in sum) {{
    s = sum[i]; n = count[i]
    {whole}
    print i, who[i], s - off[i]
}} }}' "$1" | LC_ALL=C sort {ORDERS[p.order]} |
  awk 'function euros(x) {{ return (x < 0 ? "-" : "") sprintf("%.2f", (x < 0 ? -x : x) / 100) }}
{{ i = $1; c = $2; a = euros($3); all += $3; print {LINES[p.line]} }}
END {{ {'print "total " euros(all)' if p.total else ""} }}'"""


files, solution, lazy, test_half, test_result, test_script, test_hidden_lists = printer(make, worked, program)
