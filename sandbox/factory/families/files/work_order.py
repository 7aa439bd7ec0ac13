"""A long list of orders for files and folders, each of which counts on the ones before it.

Hard: up to sixty commands, and what one moves, another renames; a slip early on spoils all that follows.
"""

from sandbox.factory.kit import at, hidden, mode, read, tree, word, words

SKILLS = ("mv", "cp", "chmod", "mkdir", "rm", "patience")

COUNTS = {1: 6, 2: 12, 3: 22, 4: 36, 5: 56}
# An order: how people say it (a, b: files; x, y: folders; w: a word) -> the commands.
ORDERS = {
    "move {a} to {b}": "mv {a} {b}",
    "copy {a} to {b}": "cp {a} {b}",
    "delete {a}": "rm {a}",
    "exchange the contents of {a} and {c}": "cp {a} /tmp/t && cat {c} > {a} && cat /tmp/t > {c}",
    "append the content of {c} to {a}": "cat {c} >> {a}",
    "put the content of {c} before that of {a}": "cat {c} {a} > /tmp/t && cat /tmp/t > {a}",
    "write a file {b} with the line {w}": "echo {w} > {b}",
    "append the line {w} to {a}": "echo {w} >> {a}",
    "give {a} the mode {m}": "chmod {m} {a}",
    "make the folder {y}": "mkdir {y}",
    "rename the folder {x} to {y}": "mv {x} {y}",
    "empty the file {a}": ": > {a}",
    "sort the lines of {a} in byte order": "LC_ALL=C sort -o {a} {a}",
}
MODES = ("600", "640", "444", "755", "700")


def draw(rng, level):
    kinds = rng.sample(list(ORDERS), 7 + level // 2)
    fresh = iter(words(rng, 110))
    folders = [next(fresh) for _ in range(2 + level // 2)]
    start = [f"{rng.choice(folders)}/{next(fresh)}" for _ in range(5 + level)]
    present, orders = list(start), []
    while len(orders) < COUNTS[level]:
        kind = rng.choice(kinds)
        a, c = rng.sample(present, 2)
        new = f"{rng.choice(folders)}/{rng.choice([word(rng), 'note', 'plan', 'list'])}{len(orders)}"
        x, y = rng.choice(folders), f"{word(rng)}{len(orders)}"
        if (kind.startswith("delete") and len(present) < 5) or (
            kind.startswith(("make", "rename")) and rng.random() < 0.6
        ):
            continue
        orders.append(
            (kind, {"a": a, "b": new, "c": c, "w": word(rng), "m": rng.choice(MODES), "x": x, "y": y})
        )
        if kind.startswith(("move", "delete")):
            present.remove(a)
        if kind.startswith(("move", "copy", "write")):
            present.append(new)
        if kind.startswith("rename"):
            present = [y + path[len(x) :] if path.startswith(x + "/") else path for path in present]
            folders.remove(x)
        if kind.startswith(("make", "rename")):
            folders.append(y)
    orders = [(kind, {k: v for k, v in names.items() if "{" + k + "}" in kind}) for kind, names in orders]
    return {
        "top": f"{word(rng)}-tree",
        "listed": f"{word(rng)}.list",
        "tally": f"{word(rng)}.tally",
        "start": start,
        "orders": orders,
        "count": rng.choice(
            ["regular files", "folders (the top itself not counted)", "bytes of all regular files together"]
        ),
    }


def contents(p):
    rng = hidden(p)
    return {path: "".join(word(rng) + "\n" for _ in range(rng.randint(2, 5))) for path in p.start}


def files(rng, p):
    lines = "".join(f"{number}. {kind.format(**names)}\n" for number, (kind, names) in enumerate(p.orders, 1))
    return {p.listed: lines} | {f"{p.top}/{path}": text for path, text in contents(p).items()}


def instruction(p):
    tally = f"After each order, append a line to /app/{p.tally} with the number of {p.count} there are in /app/{p.top} at that moment."
    return [
        f"""/app/{p.listed} has {len(p.orders)} orders for the files in /app/{p.top}. Carry them out one by one, in their order; paths
        are relative to that folder. {tally}""",
        f"""Please tidy up /app/{p.top} as /app/{p.listed} says: {len(p.orders)} orders, to be done from the first to the last, with paths
        from within /app/{p.top}. {tally}""",
        f"""The folder /app/{p.top} has to be changed step by step. The steps, {len(p.orders)} in number, stand in /app/{p.listed} (their paths
        begin in that folder), and most of them need those above. {tally}""",
    ]


def solution(p):
    count = {
        "r": "find . -type f | wc -l",
        "f": "find . -mindepth 1 -type d | wc -l",
        "b": "find . -type f -exec cat {} + | wc -c",
    }[p.count[0]]
    steps = [
        f"cd /app/{p.top} && {ORDERS[kind].format(**names)} && {count} >> ../{p.tally}"
        for kind, names in p.orders
    ]
    return [f"cat {p.listed}", *steps]


def lazy(p):
    """Whatever works, in another order."""
    return [step + "; true" for step in sorted(solution(p)[1:-1], key=lambda step: step[::-1])]


def played(p):
    """Path -> content, path -> mode where one was given, the folders, and the tally."""
    now, modes, tally = contents(p), {}, []
    folders = {path.partition("/")[0] for path in now}
    for kind, names in p.orders:
        a, b, c, x, y = (names.get(key, "") for key in "abcxy")
        match kind.split()[0]:
            case "move":
                now[b] = now.pop(a)
                if a in modes:
                    modes[b] = modes.pop(a)
            case "copy":
                now[b] = now[a]
            case "delete":
                del now[a]
                modes.pop(a, None)
            case "exchange":
                now[a], now[c] = now[c], now[a]
            case "append":
                now[a] += now[c] if c else names["w"] + "\n"
            case "put":
                now[a] = now[c] + now[a]
            case "write":
                now[b] = names["w"] + "\n"
            case "give":
                modes[a] = int(names["m"], 8)
            case "empty":
                now[a] = ""
            case "sort":
                now[a] = "".join(sorted(now[a].splitlines(True)))
            case "make":
                folders.add(y)
            case "rename":
                folders = folders - {x} | {y}
                now = {
                    y + path[len(x) :] if path.startswith(x + "/") else path: text
                    for path, text in now.items()
                }
                modes = {
                    y + path[len(x) :] if path.startswith(x + "/") else path: bits
                    for path, bits in modes.items()
                }
        tally.append({"r": len(now), "f": len(folders), "b": sum(map(len, now.values()))}[p.count[0]])
    return now, modes, folders, list(map(str, tally))


def test_hidden_contents(p):
    assert tree(p.top) == {path: text.encode() for path, text in played(p)[0].items()}


def test_folders_and_modes(p):
    import os

    _, modes, folders, tally = played(p)
    assert set(os.listdir(at(p.top))) == folders
    assert {path: mode(f"{p.top}/{path}") for path in modes} == modes
    assert len(read(p.tally).split("\n")) == len(tally)


def test_first_quarter_of_the_tally(p):
    quarter = (len(p.orders) + 3) // 4
    assert read(p.tally).split("\n")[:quarter] == played(p)[3][:quarter]


def test_first_half_of_the_tally(p):
    half = (len(p.orders) + 1) // 2
    assert read(p.tally).split("\n")[:half] == played(p)[3][:half]


def test_tally(p):
    assert read(p.tally).split("\n") == played(p)[3]
