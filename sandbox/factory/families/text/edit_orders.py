"""A book's chapters, changed by a long list of orders, each of which works on what the one before left.

Hard: up to fifty edits in several files, none of which may be left out, done twice or done too early.
"""

from sandbox.factory.kit import PEOPLE, hidden, read, word, words

SKILLS = ("sed", "text editing", "patience")

COUNTS = {1: 5, 2: 10, 3: 18, 4: 32, 5: 48}
# An order: how people say it -> sed's way (file in place), Python's on the lines, and how many lines it adds.
ORDERS = {
    "delete line {n}": ("sed -i '{n}d' {file}", lambda t, n, w: t[: n - 1] + t[n:], -1),
    "insert the line `{w}` before line {n}": ("sed -i '{n}i {w}' {file}", lambda t, n, w: [*t[: n - 1], w, *t[n - 1 :]], 1),
    "append the line `{w}` at the end": ("echo '{w}' >> {file}", lambda t, n, w: [*t, w], 1),
    "put the last line first": ("{{ tail -n 1 {file}; head -n -1 {file}; }} > t && mv t {file}", lambda t, n, w: t[-1:] + t[:-1], 0),
    "put the first line last": ("{{ tail -n +2 {file}; head -n 1 {file}; }} > t && mv t {file}", lambda t, n, w: t[1:] + t[:1], 0),
    "replace every `e` of line {n} by `{w}`": ("sed -i '{n}s/e/{w}/g' {file}", lambda t, n, w: [*t[: n - 1], t[n - 1].replace("e", w), *t[n:]], 0),
    "repeat line {n} right below itself": ("sed -i '{n}p' {file}", lambda t, n, w: [*t[:n], *t[n - 1 :]], 1),
    "turn the order of all lines round": ("tac {file} > t && mv t {file}", lambda t, n, w: t[::-1], 0),
    "sort the lines in byte order": ("LC_ALL=C sort -o {file} {file}", lambda t, n, w: sorted(t), 0),
    "write line {n} in upper case": ("sed -i '{n}s/.*/\\U&/' {file}", lambda t, n, w: [*t[: n - 1], t[n - 1].upper(), *t[n:]], 0),
    "delete the first word of line {n}, with the space after it": ("sed -i '{n}s/^[^ ]* //' {file}", lambda t, n, w: [*t[: n - 1], t[n - 1].split(" ", 1)[-1], *t[n:]], 0),
    "join lines {n} and {m} by a space": ("sed -i '{n}N;s/\\n/ /' {file}", lambda t, n, w: [*t[: n - 1], t[n - 1] + " " + t[n], *t[n + 1 :]], -1),
    "exchange lines {n} and {m}": ("sed -i '{n}{{h;d}};{m}G' {file}", lambda t, n, w: [*t[: n - 1], t[n], t[n - 1], *t[n + 1 :]], 0),
    "put `{w}: ` before every line": ("sed -i 's/^/{w}: /' {file}", lambda t, n, w: [f"{w}: {s}" for s in t], 0),
}  # fmt: skip
SIZE = 8


def draw(rng, level):
    chapters = [f"{name}.txt" for name in words(rng, min(4, 1 + level))]
    sizes, orders = dict.fromkeys(chapters, SIZE), []
    kinds = [
        *rng.sample([kind for kind in ORDERS if ORDERS[kind][2] >= 0], rng.randint(3, 5)),
        "delete line {n}",
    ]
    while len(orders) < COUNTS[level]:
        kind, chapter = rng.choice(kinds), rng.choice(chapters)
        # The whole chapter is treated seldom, since that mixes up all that came before.
        if sizes[chapter] + ORDERS[kind][2] >= 5 and ("{n}" in kind or rng.random() < 0.6):
            orders.append((kind, chapter, rng.randint(1, sizes[chapter] - 1), word(rng)))
            sizes[chapter] += ORDERS[kind][2]
    return {
        "folder": f"{word(rng)}-book",
        "orders": orders,
        "listed": f"{word(rng)}.list",
        "tally": f"{word(rng)}.tally",
        "last": rng.choice(["its number of lines", "its first line", "its last line"]),
        "cases": chapters,
    }


def texts(p):
    rng = hidden(p)
    pool = [*words(rng, 12, PEOPLE), *words(rng, 12)]
    return {
        c: [" ".join(rng.choice(pool) for _ in range(rng.randint(2, 5))) for _ in range(SIZE)]
        for c in p.cases
    }


def files(rng, p):
    orders = "".join(
        f"{number}. {chapter}: {kind.format(n=n, m=n + 1, w=w)}\n"
        for number, (kind, chapter, n, w) in enumerate(p.orders, 1)
    )
    return {p.listed: orders} | {f"{p.folder}/{c}": "\n".join(text) + "\n" for c, text in texts(p).items()}


def instruction(p):
    tally = f"After each order, append a line to /app/{p.tally}: of the file that was changed, {p.last}, as it is then."
    return [
        f"""/app/{p.listed} has {len(p.orders)} numbered orders to change the files of /app/{p.folder}. Carry them out one
        after the other; line numbers mean the file as it is at that moment. {tally}""",
        f"""The chapters in /app/{p.folder} need editing. The editor's wishes, {len(p.orders)} of them, stand in
        /app/{p.listed}, and each counts on those above it having been done. {tally}""",
        f"""Please work through /app/{p.listed} from the top: every line names a file of /app/{p.folder} and what to do to it
        ({len(p.orders)} orders in all, where the number of a line is the one it has when its turn comes). {tally}""",
    ]


def solution(p):
    show = {"its n": "wc -l <", "its f": "head -n 1", "its l": "tail -n 1"}[p.last[:5]]
    steps = [f"cat ../{p.listed}"]
    for kind, file, n, w in p.orders:
        command = ORDERS[kind][0].format(file=file, n=n, m=n + 1, w=w)
        steps.append(f"{command} && {show} {file} >> ../{p.tally}")
    return [f"cd /app/{p.folder} && {step}" for step in steps]


def lazy(p):
    """All the orders for one chapter, then those for the next, but for the last."""
    steps = solution(p)[1:]
    return [step for step in sorted(steps, key=lambda step: step.split()[-3]) if step != steps[-1]]


def played(p):
    """The chapters in the end, and the tally."""
    state, tally = texts(p), []
    for kind, chapter, n, w in p.orders:
        text = state[chapter] = ORDERS[kind][1](state[chapter], n, w)
        tally.append({"its n": str(len(text)), "its f": text[0], "its l": text[-1]}[p.last[:5]])
    return state, tally


def test_hidden_chapter(p, case):
    changed = texts(p)[case] != (wanted := played(p)[0][case])
    assert read(f"{p.folder}/{case}").split("\n") == wanted
    assert changed or read(p.tally).split("\n") == played(p)[1]


def test_tally_of_the_first_half(p):
    half = len(p.orders) // 2
    assert read(p.tally).split("\n")[:half] == played(p)[1][:half]


def test_tally(p):
    assert read(p.tally).split("\n") == played(p)[1]
