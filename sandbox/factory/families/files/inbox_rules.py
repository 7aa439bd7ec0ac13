"""A folder of mixed files to sort by rules, by a script that must treat the next folder alike.

Hard: the first rule that fits wins, names hold spaces and upper case, and what no rule fits stays.
"""

from sandbox.factory.kit import at, given, hidden, put, run, scratch, tree, word, words

SKILLS = ("find", "mv", "cp", "bash tests", "loops")

# A rule: how people say it (with {0}, its parameter) -> bash's test of $file and $name, Python's of name and content.
RULES = {
    "whose name ends in .{0}": ("[[ $name == *.{0} ]]", lambda n, c, x: n.endswith(f".{x}")),
    "whose name begins with {0}": ("[[ $name == {0}* ]]", lambda n, c, x: n.startswith(x)),
    "larger than {0} bytes": ('(( $(stat -c %s "$file") > {0} ))', lambda n, c, x: len(c) > int(x)),
    "that are empty": ("[[ ! -s $file ]]", lambda n, c, x: not c),
    "with {0} on a line of its own": ('grep -qx {0} "$file"', lambda n, c, x: x in c.split("\n")),
    "with a space in the name": ('[[ $name == *" "* ]]', lambda n, c, x: " " in n),
    "with a digit in the name": ("[[ $name == *[0-9]* ]]", lambda n, c, x: any("0" <= d <= "9" for d in n)),
    "of exactly {0} lines": ('(( $(wc -l < "$file") == {0} ))', lambda n, c, x: c.count("\n") == int(x)),
}
NAMINGS = {
    "": ("$name", lambda n: n),
    "Names are made lower case on the way.": ("${name,,}", str.lower),
    "Spaces in names become underscores on the way.": ("${name// /_}", lambda n: n.replace(" ", "_")),
}
TYPES = ("txt", "log", "csv", "md")


def draw(rng, level):
    kinds = rng.sample(list(RULES), min(6, level + 1))
    parts = {
        "ends": rng.choice(TYPES),
        "begins": word(rng),
        "larger": "300",
        "with {": word(rng),
        "of exa": "3",
    }
    values = [next((value for key, value in parts.items() if key in kind), "") for kind in kinds]
    return {
        "script": f"{word(rng)}.sh",
        "inbox": f"{word(rng)}-in",
        "sorted": f"{word(rng)}-out",
        "rules": list(zip(kinds, values, words(rng, len(kinds)), strict=True)),
        "naming": rng.choice(list(NAMINGS)) if level > 1 else "",
        "move": rng.random() < 0.5,
        "deep": level > 2 and rng.random() < 0.6,
        "count": 6 + 4 * level,
    }


def files(rng, p):
    return {f"{p.inbox}/{name}": content for name, content in mixed(rng, p).items()}


def mixed(rng, p):
    """Files that every rule fits at times, each with a name of its own in whatever case."""
    found = {}
    values = [value for _, value, _ in p.rules if value.isalpha() and value not in TYPES]
    for number, noun in enumerate(words(rng, p.count)):
        stem = rng.choice([noun, noun.title(), f"{rng.choice([*values, 'Old'])} {noun}", f"{noun}{number}"])
        folder = rng.choice(["", "sub/", "sub/more/"]) if p.deep else ""
        lines = [
            rng.choice([*values, "plain", "text " * rng.randint(1, 60)]) for _ in range(rng.choice([0, 3, 5]))
        ]
        found[f"{folder}{stem}.{rng.choice(TYPES)}"] = "".join(line + "\n" for line in lines)
    return found


def after(before, p):
    """(what the inbox holds, what the sorted folder holds) once the script has run."""
    rest, done = dict(before), {}
    for path, content in before.items():
        name = path.rpartition("/")[2]
        for kind, value, target in p.rules:
            if RULES[kind][1](name, content, value):
                done[f"{target}/{NAMINGS[p.naming][1](name)}"] = content
                if p.move:
                    del rest[path]
                break
    return rest, done


def instruction(p):
    verb = "moved" if p.move else "copied"
    rules = "\n".join(f"- files {kind.format(value)} to {target}" for kind, value, target in p.rules)
    deep = " Files in folders below FROM count too; the folders themselves are not kept." if p.deep else ""
    more = (
        f"A file goes by the first rule that fits; one that no rule fits stays where it is.{deep} {p.naming}"
    )
    return [
        f"The files in /app/{p.inbox} are to be {verb} into folders below "
        f"/app/{p.sorted}:\n{rules}\n\n{more}\n\nWrite the bash script /app/{p.script} that does this for "
        f"any two folders (`bash {p.script} FROM TO`; it makes the folders that are missing), and run it "
        f"from {p.inbox} to {p.sorted}.",
        f"Write a bash script, /app/{p.script}, that takes two folders, FROM and TO. Files of FROM are "
        f"{verb} into folders of TO, which it makes where needed, by these "
        f"rules:\n{rules}\n\n{more}\n\nThen sort /app/{p.inbox} into /app/{p.sorted} with it. It will "
        "also be used on other folders.",
        f"Sort the inbox /app/{p.inbox}: below /app/{p.sorted}, files shall be "
        f"{verb}\n{rules}\n\n{more}\n\nSince there are more inboxes like it, put it into /app/{p.script}, "
        f"to be called as `bash {p.script} FROM TO`.",
    ]


def program(p):
    branches = []
    for number, (kind, value, target) in enumerate(p.rules):
        test = RULES[kind][0].format(value)
        branches.append(f"  {'el' * (number > 0)}if {test}; then target={target}")
    depth = "" if p.deep else "-maxdepth 1 "
    return "\n".join(
        [
            "#!/bin/bash",
            f"find \"$1\" {depth}-type f -print0 | while IFS= read -r -d '' file; do",
            "  name=${file##*/}",
            *branches,
            "  else continue; fi",
            '  mkdir -p "$2/$target"',
            f'  {"mv" if p.move else "cp"} "$file" "$2/$target/{NAMINGS[p.naming][0]}"',
            "done",
        ]
    )


def solution(p):
    run_it = f"bash {p.script} {p.inbox} {p.sorted}"
    return [
        f"find {p.inbox} -type f | head -n 20",
        put(p.script, program(p)),
        run_it,
        f"find {p.sorted} -type f",
    ]


def lazy(p):
    return [*solution(p), f"echo 'cp -r /app/{p.sorted} \"$2\"' > {p.script}"]


def text_tree(folder):
    return {path: content.decode() for path, content in tree(folder).items()}


def test_sorted(p):
    assert text_tree(p.sorted) == after(mixed(given(p), p), p)[1]


def test_inbox(p):
    left, done = after(mixed(given(p), p), p)
    assert text_tree(p.inbox) == left and text_tree(p.sorted).keys() >= done.keys()


def test_hidden_folders(p):
    rng = hidden(p)
    for _ in range(2):
        before = mixed(rng, p)
        folder = scratch({f"in/{path}": content for path, content in before.items()})
        run("bash", at(p.script), f"{folder}/in", f"{folder}/out")
        assert (text_tree(f"{folder}/in"), text_tree(f"{folder}/out")) == after(before, p)
