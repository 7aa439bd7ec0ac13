"""Payments matched with open invoices, by a Python program for any such pair of lists.

Hard: a payment may name its invoice, or only fit it, and what was matched once cannot be matched again.
"""

from sandbox.factory.kit import PEOPLE, word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "CSV", "matching", "sorting")

# A way to match, of a payment (day, payer, cents, text) and an invoice (number, customer, cents, due): how people say it -> the solution's condition, the reference's.
WAYS = {
    "whose number stands in the payment's text as a word, and whose cents are the same": (
        "i[0] in t.split() and i[2] == c",
        lambda m, i: i["cents"] == m["cents"] and f" {i['number']} " in f" {m['text']} ",
    ),
    "whose customer is the payer and whose cents are the same": (
        "i[1] == w and i[2] == c",
        lambda m, i: (i["customer"], i["cents"]) == (m["payer"], m["cents"]),
    ),
    "whose customer is the payer and whose cents differ by 50 at most": (
        "i[1] == w and abs(i[2] - c) <= 50",
        lambda m, i: i["customer"] == m["payer"] and -50 <= i["cents"] - m["cents"] <= 50,
    ),
    "whose number stands in the payment's text as a word": (
        "i[0] in t.split()",
        lambda m, i: i["number"] in m["text"].split(" "),
    ),
    "whose cents are the same and whose due day is the payment's day": (
        "i[2] == c and i[3] == d",
        lambda m, i: i["cents"] == m["cents"] and i["due"] == m["day"],
    ),
}
REPORTS = {
    "a line `NUMBER DAY` for each matched invoice, by NUMBER in byte order, DAY being the payment's": "[f'{i[0]} {p[0]}' for p, i in sorted(pairs, key=lambda x: x[1][0])]",
    "a line `NUMBER CUSTOMER CENTS` for each invoice that was not matched, by NUMBER in byte order": "[f'{i[0]} {i[1]} {i[2]}' for i in sorted(left)]",
    "a line `DAY PAYER CENTS` for each payment that was not matched, in the file's order": "[f'{p[0]} {p[1]} {p[2]}' for p in alone]",
    "a line `CUSTOMER CENTS` for each customer with invoices that were not matched, with the sum of their cents, by CUSTOMER in byte order": "[f'{w} {sum(i[2] for i in left if i[1] == w)}' for w in sorted({i[1] for i in left})]",
    "a line `NUMBER DAYS` for each invoice that was matched with a payment of a later day than the one it was due, with the number of days between, by NUMBER in byte order": "[f'{i[0]} {(date.fromisoformat(p[0]) - date.fromisoformat(i[3])).days}' for p, i in sorted(pairs, key=lambda x: x[1][0]) if p[0] > i[3]]",
}
TIES = {
    "the one that is due first (then the first in byte order of NUMBER)": "(i[3], i[0])",
    "the first one in the file": "0",
    "the one that is due last (then the first in byte order of NUMBER)": "(-date.fromisoformat(i[3]).toordinal(), i[0])",
}
OPENS = (
    "A folder has invoices.csv (lines NUMBER,CUSTOMER,CENTS,DUE) and payments.csv (lines DAY,PAYER,CENTS,TEXT), both without a heading. Payments are to be matched with invoices.",
    "We have to find out which invoices were paid. In a folder, invoices.csv has lines NUMBER,CUSTOMER,CENTS,DUE, and payments.csv lines DAY,PAYER,CENTS,TEXT, without headings.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "", "py") | {
        "ways": rng.sample(list(WAYS), (level + 2) // 2),
        "tie": rng.choice(list(TIES)),
        "reports": rng.sample(list(REPORTS), 1 + level // 3),
        "passes": level > 2 and rng.random() < 0.5,
        "early": level > 1 and rng.random() < 0.5,
        "small": level > 3 and rng.random() < 0.6,
        "size": 8 + 4 * level,
    }


def make(rng, p):
    people, invoices, payments = words(rng, 5, PEOPLE), [], []
    for number in rng.sample(range(1000, 9999), p.size):
        due = f"2025-0{rng.randint(1, 4)}-{rng.randint(10, 28)}"
        invoices.append(
            (f"N{number}", rng.choice(people), rng.choice([rng.randint(500, 9000), 1000, 2500]), due)
        )
    for number, customer, cents, due in rng.sample(invoices, p.size * 3 // 4):
        text = rng.choice(
            [
                f"for {number}",
                f"{number} {word(rng)}",
                f"{word(rng)}",
                f"{number}x",
                f"{rng.choice(invoices)[0]} thanks",
            ]
        )
        day = rng.choice([due, f"2025-0{rng.randint(1, 5)}-{rng.randint(10, 28)}"])
        payments.append(
            f"{day},{rng.choice([customer, customer, rng.choice(people)])},{cents + rng.choice([0, 0, 0, 20, -50, 70])},{text}"
        )
    rng.shuffle(payments)
    return {
        "invoices.csv": "".join(",".join(map(str, row)) + "\n" for row in invoices),
        "payments.csv": "\n".join(payments) + "\n",
    }


def worked(made, p):
    from datetime import date

    open_ = [
        dict(zip(("number", "customer", "cents", "due"), line.split(","), strict=True))
        for line in made["invoices.csv"].splitlines()
    ]
    payments = [
        dict(zip(("day", "payer", "cents", "text"), line.split(","), strict=True))
        for line in made["payments.csv"].splitlines()
    ]
    for row in [*open_, *payments]:
        row["cents"] = int(row["cents"])
    if p.small:
        payments = [m for m in payments if m["cents"] >= 1000]
    turns = (
        [(m, way) for way in p.ways for m in payments]
        if p.passes
        else [(m, way) for m in payments for way in p.ways]
    )
    for payment, way in turns:
        if "for" in payment:
            continue
        fits = [
            i
            for i in open_
            if "by" not in i
            and WAYS[way][1](payment, i)
            and not (p.early and payment["day"] < f"{i['due'][:8]}01")
        ]
        if "due first" in p.tie:
            fits.sort(key=lambda i: (i["due"], i["number"]))
        elif "due last" in p.tie:
            fits.sort(key=lambda i: i["number"])
            fits.sort(key=lambda i: i["due"], reverse=True)
        if fits:
            fits[0]["by"], payment["for"] = payment, fits[0]
    paid, left = [i for i in open_ if "by" in i], [i for i in open_ if "by" not in i]
    lines = []
    for report in p.reports:
        match report.split("`")[1]:
            case "NUMBER DAY":
                lines += sorted(f"{i['number']} {i['by']['day']}" for i in paid)
            case "NUMBER CUSTOMER CENTS":
                lines += sorted(f"{i['number']} {i['customer']} {i['cents']}" for i in left)
            case "DAY PAYER CENTS":
                lines += [f"{m['day']} {m['payer']} {m['cents']}" for m in payments if "for" not in m]
            case "CUSTOMER CENTS":
                sums = {
                    c: sum(i["cents"] for i in left if i["customer"] == c)
                    for c in sorted({i["customer"] for i in left})
                }
                lines += [f"{c} {n}" for c, n in sums.items()]
            case _:
                late = [
                    (i["number"], (date.fromisoformat(i["by"]["day"]) - date.fromisoformat(i["due"])).days)
                    for i in paid
                ]
                lines += sorted(f"{number} {days}" for number, days in late if days > 0)
    return "\n".join(lines)


def instruction(p):
    order = (
        "all payments are tried with the first way, in the file's order; those left over with the next, and so on"
        if p.passes
        else "payments are matched in the file's order, each with the ways in the order given until one fits"
    )
    rules = [f"a payment is matched with an open invoice {way}" for way in p.ways]
    rules += [order] * (len(p.ways) > 1) + ["payments are taken in the file's order"] * (len(p.ways) == 1)
    rules += [
        f"where several invoices fit, it is {p.tie}",
        "a matched invoice is no longer open, and a matched payment is not used again",
    ]
    rules += ["a payment of a day before the month in which an invoice is due does not fit it"] * p.early + [
        "payments below 1000 cents are left aside altogether"
    ] * p.small
    return wordings(
        p,
        OPENS,
        [
            *rules,
            *[f"print {report}" for report in p.reports],
            *["what is to be printed follows in this order, without empty lines"] * (len(p.reports) > 1),
        ],
    )


def program(p):
    lines = [
        "import csv, sys",
        "from datetime import date",
        "def table(name):",
        "    return [[int(x) if k == 2 else x for k, x in enumerate(r)] for r in csv.reader(open(sys.argv[1] + '/' + name))]",
        "left, pairs, alone = table('invoices.csv'), [], table('payments.csv')",
    ]
    lines += (
        ["alone = [x for x in alone if x[2] >= 1000]"] * p.small
        + ["ways = ["]
        + [f"    lambda i, d, w, c, t: {WAYS[way][0]}," for way in p.ways]
        + ["]", "def attempt(pay, ways):"]
    )
    early = " and pay[0] >= i[3][:8] + '01'" * p.early
    lines += [
        "    for way in ways:",
        f"        fits = [i for i in left if way(i, *pay){early}]",
        "        if fits:",
        f"            i = min(fits, key=lambda i: {TIES[p.tie]})",
        "            left.remove(i)",
        "            alone.remove(pay)",
        "            pairs.append((pay, i))",
        "            return",
    ]
    lines += (
        ["for way in ways:", "    for pay in list(alone):", "        attempt(pay, [way])"]
        if p.passes
        else ["for pay in list(alone):", "    attempt(pay, ways)"]
    )
    return "\n".join([*lines, *[f"for line in {REPORTS[report]}:\n    print(line)" for report in p.reports]])


files, solution, lazy, test_half, test_result, test_program, test_hidden_lists = printer(
    make, worked, program
)
