"""Balances of accounts from a journal in double entry, by a Python program for any such journal.

Hard: an entry that does not balance must not count at all, amounts may be left to be worked out, and accounts have accounts above them.
"""

from sandbox.factory.kit import word
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("Python", "plain text accounting", "parsing", "decimal numbers")

ACCOUNTS = (
    "assets:bank",
    "assets:cash",
    "income:sales",
    "income:rent",
    "costs:food",
    "costs:travel",
    "debts:loan",
)
REPORTS = {
    "a line `ACCOUNT BALANCE` for each account that was booked on, in byte order": "accounts",
    "a line `ACCOUNT BALANCE` for each account and each account above it (such as assets for assets:bank), whose balance is the sum of those below, in byte order": "tree",
    "a line `MONTH ACCOUNT SUM` for each month (as YYYY-MM) and account with bookings in it, with the sum of these, by MONTH, then ACCOUNT in byte order": "months",
    "a line `DAY BALANCE` for each day with an entry that touches an account of assets, with the balance of all accounts of assets together after this day, by DAY": "assets",
    "a line `ACCOUNT COUNT LARGEST` for each account that was booked on, with the number of bookings and the largest one (the sign counts), in byte order": "largest",
}
FORMS = {
    "with two digits after the point, as in -12.50": (
        "f'{x / 100:.2f}'",
        lambda c: "-" * (c < 0) + f"{abs(c) // 100}.{abs(c) % 100:02}",
    ),
    "in cents, as in -1250": ("str(x)", str),
    "with two digits after a comma, as in -12,50": (
        "f'{x / 100:.2f}'.replace('.', ',')",
        lambda c: "-" * (c < 0) + f"{abs(c) // 100},{abs(c) % 100:02}",
    ),
}
REPORT_CODE = {
    "accounts": "for _, a, x in books:\n    s[a] = s.get(a, 0) + x\nlines = [f'{a} {money(s[a])}' for a in sorted(s)]",
    "tree": "for _, a, x in books:\n    for name in {a, a.split(':')[0]}:\n        s[name] = s.get(name, 0) + x\nlines = [f'{a} {money(s[a])}' for a in sorted(s)]",
    "months": "for d, a, x in books:\n    s[d[:7] + ' ' + a] = s.get(d[:7] + ' ' + a, 0) + x\nlines = [f'{k} {money(s[k])}' for k in sorted(s)]",
    "assets": "for d, a, x in books:\n    if a.startswith('assets'):\n        s[d] = s.get(d, 0) + x\nlines, total = [], 0\nfor d in sorted(s):\n    total += s[d]\n    lines.append(f'{d} {money(total)}')",
    "largest": "for _, a, x in books:\n    s.setdefault(a, []).append(x)\nlines = [f'{a} {len(s[a])} {money(max(s[a]))}' for a in sorted(s)]",
}
OPENS = (
    "A journal has entries: a line with a day and a text, and below it, indented by two spaces, bookings of an account and an amount. An empty line ends an entry. We need a report.",
    "Books are kept as a text. An entry is a line `DAY TEXT`, followed by bookings (two spaces, the account, spaces, the amount), and ends with an empty line. A report shall be made.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "journal", "py") | {
        "report": rng.choice(list(REPORTS)),
        "form": rng.choice(list(FORMS)),
        "open": level > 1 and rng.random() < 0.7,
        "wrong": level > 1 and rng.random() < 0.7,
        "remarks": rng.random() < 0.5,
        "void": level > 2 and rng.random() < 0.6,
        "since": "2025-02-10" if level > 2 and rng.random() < 0.6 else "",
        "zero": level > 3 and rng.random() < 0.6,
        "size": 6 + 5 * level,
    }


def make(rng, p):
    text = ""
    for _ in range(p.size):
        accounts = rng.sample(ACCOUNTS, rng.randint(2, 3))
        cents = [rng.choice([rng.randint(-9000, 9000), 2500, -100]) for _ in accounts[1:]]
        cents.append(-sum(cents) + rng.choice([0, 0, 0, 5]) * p.wrong)
        amounts = [f"{'-' * (c < 0)}{abs(c) // 100}.{abs(c) % 100:02}" for c in cents]
        if p.open and rng.random() < 0.4:
            amounts[rng.randrange(len(amounts))] = ""
        mark = "! " * (p.void and rng.random() < 0.2)
        text += f"2025-0{rng.randint(1, 4)}-{rng.randint(10, 28)} {mark}{word(rng)} {word(rng)}\n"
        for account, amount in zip(accounts, amounts, strict=True):
            text += f"  {account}{' ' * rng.randint(2, 9)}{amount}".rstrip() + "\n"
            text += f"  ; {word(rng)} 1.00\n" * (p.remarks and rng.random() < 0.2)
        text += "\n" + "; a remark\n" * (p.remarks and rng.random() < 0.2)
    return text


def worked(text, p):
    lines = [line for line in text.split("\n") if not (p.remarks and line.strip().startswith(";"))]
    books, wrong = [], 0
    for block in "\n".join(lines).split("\n\n"):
        head, *bookings = block.strip("\n").split("\n")
        if not head or (p.void and head[11:12] == "!"):
            continue
        entry = [(line.split()[0], line.split()[1:]) for line in bookings]
        known = {account: round(float(amount[0]) * 100) for account, amount in entry if amount}
        if len(known) < len(entry):
            entry = [(account, known.get(account, -sum(known.values()))) for account, _ in entry]
        elif sum(known.values()):
            wrong += 1
            continue
        else:
            entry = list(known.items())
        books += [(head[:10], account, cents) for account, cents in entry if head[:10] >= p.since]
    shown, groups, kind = FORMS[p.form][1], {}, REPORTS[p.report]
    for day, account, cents in books:
        keys = {
            "accounts": [account],
            "tree": [account, account.split(":")[0]],
            "months": [f"{day[:7]} {account}"],
            "largest": [account],
        }
        for key in keys.get(kind, [day] if account.startswith("assets") else []):
            groups.setdefault(key, []).append(cents)
    out, total = [], 0
    for key in sorted(groups):
        values = groups[key]
        total = total + sum(values) if kind == "assets" else max(values) if kind == "largest" else sum(values)
        if not (p.zero and total == 0):
            out.append(
                f"{key} {len(values)} {shown(total)}" if kind == "largest" else f"{key} {shown(total)}"
            )
    return "\n".join([*out, *[f"unbalanced {wrong}"] * p.wrong]) if out else ""


def instruction(p):
    rules = [f"print {p.report}", f"amounts are printed {p.form}"]
    rules += [
        "an entry may have one booking without an amount: its amount is what makes the sum of the entry zero"
    ] * p.open
    rules += [
        "an entry whose amounts do not add up to zero is wrong and does not count; at the end, print a line `unbalanced N` with the number of such entries (of any day)"
    ] * p.wrong
    rules += ["lines whose first character, spaces left aside, is a ; are remarks"] * p.remarks + [
        "an entry with `! ` before its text is void and does not count, not even as wrong"
    ] * p.void
    rules += [f"only entries from {p.since} on count for the report"] * bool(p.since) + [
        "lines in which the last number is zero are left out"
    ] * p.zero
    return wordings(p, OPENS, rules)


def program(p):
    lines = [
        "import sys",
        "books, wrong, entry, s = [], 0, [], {}",
        "def money(x):",
        f"    return {FORMS[p.form][0]}",
        "def close():",
        "    global wrong",
        "    if entry and not void:",
    ]
    lines += [
        "        total = sum(x for _, x in entry if x is not None)",
        "        if all(x is not None for _, x in entry) and total:",
        "            wrong += 1",
        "        else:",
    ]
    lines += [
        f"            books.extend((day, a, -total if x is None else x) for a, x in entry if day >= '{p.since}')",
        "    entry.clear()",
        "for line in list(open(sys.argv[1])) + ['']:",
    ]
    lines += ["    if line.strip().startswith(';'):", "        continue"] * p.remarks + [
        "    part = line.split()",
        "    if not part:",
        "        close()",
        "    elif line[0] != ' ':",
        f"        day, void = part[0], {'part[1] == chr(33)' if p.void else 'False'}",
    ]
    lines += [
        "    else:",
        "        x = part[1].replace('.', '') if len(part) > 1 else None",
        "        entry.append((part[0], x if x is None else int(x)))",
        REPORT_CODE[REPORTS[p.report]],
    ]
    zero = FORMS[p.form][1](0)
    lines += [f"lines = [line for line in lines if line.split()[-1] != '{zero}']"] * p.zero
    return "\n".join([*lines, "print('\\n'.join(lines))", *["print('unbalanced', wrong)"] * p.wrong])


files, solution, lazy, test_half, test_result, test_program, test_hidden_journals = printer(
    make, worked, program
)
