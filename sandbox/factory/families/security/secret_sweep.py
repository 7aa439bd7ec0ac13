"""Secrets that slipped into a source tree: found, listed and masked by a script that does it in any tree.

Hard: rules for what is a secret and what only looks like one, and nothing else in a file may change.
"""

import re

from sandbox.factory.kit import at, given, hidden, output, put, read, scratch, tree, word, words

SKILLS = ("grep", "sed", "regular expressions", "security", "shell scripts")

ALPHABET = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
# Kind of secret -> how people say it, a pattern of three groups for sed -E, of which the second is the secret, how to
# make one. Python's pattern is the same but for `access`, where matches may share the character between them.
KINDS = {
    "token": ("`tok_` and at least 20 letters and digits after it", r"()(tok_[A-Za-z0-9]{20,})()", "tok_{long}"),
    "access": ("`AC` and 16 upper-case letters or digits, with neither letter nor digit directly before or after", r"(^|[^A-Za-z0-9])(AC[A-Z0-9]{16})([^A-Za-z0-9]|$)", "AC{upper}"),
    "password": ("what stands behind `password=`, up to the next space or the end of the line, if it is not empty", r"(password=)([^ ]+)()", "password={short}"),
    "url": ("the password in a URL such as https://user:PASSWORD@host: what is between the colon and the @ (neither has a slash, a space, a colon or an @)", r"(https?://[^/ :@]+:)([^/ :@]+)(@)", "https://{name}:{short}@{name}.example.org/x"),
    "hex": ("40 or more of the characters 0-9 and a-f in a row", r"()([0-9a-f]{40,})()", "{hex}"),
    "pin": ("the digits directly behind `pin: `", r"(pin: )([0-9]+)()", "pin: {digits}"),
}  # fmt: skip
SKIPS = {
    "": ("", lambda path, line: False),
    "Lines that hold the text `nosecret` are left alone.": (
        "/nosecret/!",
        lambda path, line: "nosecret" in line,
    ),
    "Lines whose first character is # are left alone.": ("/^#/!", lambda path, line: line.startswith("#")),
    "Lines with the word EXAMPLE (in upper case) anywhere are left alone.": (
        "/EXAMPLE/!",
        lambda path, line: "EXAMPLE" in line,
    ),
}
SKIPPED = {
    "": ("", lambda path: False),
    "Files whose name ends in .lock are left alone.": ("! -name '*.lock'", lambda path: path.endswith(".lock")),
    "Files below a folder vendor are left alone.": ("! -path '*/vendor/*'", lambda path: "vendor/" in path),
}  # fmt: skip
PATTERNS = {kind: pattern for kind, (_, pattern, _) in KINDS.items()} | {
    "access": r"(?<![A-Za-z0-9])()(AC[A-Z0-9]{16})()(?![A-Za-z0-9])"
}
MASKS = ("***", "<removed>", "XXXX", "REDACTED")
LISTS = {
    "PATH:LINE for every line that is changed": lambda rows: [f"{path}:{line}" for path, line, _ in rows],
    "PATH:LINE:KIND for every line that is changed, once for each kind of secret in it": lambda rows: [f"{path}:{line}:{kind}" for path, line, kinds in rows for kind in kinds],
    "PATH COUNT for every file that is changed, COUNT being the number of changed lines": lambda rows: [f"{path} {sum(r[0] == path for r in rows)}" for path in sorted({r[0] for r in rows})],
}  # fmt: skip


def draw(rng, level):
    return {
        "folder": word(rng),
        "script": f"{word(rng)}.sh",
        "out": f"{word(rng)}.txt",
        "kinds": rng.sample(list(KINDS), 1 + level),
        "mask": rng.choice(MASKS),
        "skip": rng.choice(list(SKIPS)[1:]) if level > 1 else "",
        "skipped": rng.choice(list(SKIPPED)) if level > 2 else "",
        "list": rng.choice(list(LISTS)),
        "count": 5 + 2 * level,
    }


def files(rng, p):
    return {f"{p.folder}/{path}": text for path, text in sources(rng, p).items()}


def secret(rng, kind):
    def letters(pool, low, high):
        return "".join(rng.choice(pool) for _ in range(rng.randint(low, high)))

    return KINDS[kind][2].format(
        long=letters(ALPHABET, 20, 30), upper=letters("ABCDEFGH234567", 16, 16), short=letters(ALPHABET, 6, 10),
        name=word(rng), hex=letters("0123456789abcdef", 40, 44), digits=letters("0123456789", 4, 6),
    )  # fmt: skip


def near_miss(rng, kind):
    """Text that looks like a secret and is none."""
    short = "".join(rng.choice("abcdef123456") for _ in range(12))
    return {
        "token": f"tok_{short}", "access": f"AC{short.upper()}", "password": "password= ", "url": f"https://{word(rng)}.example.org:8080/",
        "hex": short * 3, "pin": f"pin:{rng.randint(1000, 9999)}",
    }[kind]  # fmt: skip


def sources(rng, p):
    found = {}
    for noun in words(rng, p.count):
        lines = []
        for _ in range(rng.randint(3, 9)):
            kind = rng.choice(p.kinds)
            middle = rng.choice(
                [
                    word(rng),
                    word(rng),
                    secret(rng, kind),
                    near_miss(rng, kind),
                    f"{secret(rng, kind)} {secret(rng, rng.choice(p.kinds))}",
                ]
            )
            line = f"{rng.choice(['', '', '# ', 'x = '])}{word(rng)} {middle} {rng.choice(['', '', 'nosecret', 'EXAMPLE', word(rng)])}"
            lines.append(line.rstrip())
        path = (
            rng.choice(["", "src/", "src/vendor/", "etc/", "vendor/"])
            + noun
            + rng.choice([".py", ".conf", ".lock", ".md"])
        )
        found[path] = "\n".join(lines) + "\n"
    return found


def swept(texts, p):
    """(path -> masked text, rows of what was found)."""
    after, rows = {}, []
    for path, text in sorted(texts.items()):
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if SKIPPED[p.skipped][1](path) or SKIPS[p.skip][1](path, line):
                continue
            kinds = []
            for kind in p.kinds:
                masked = re.sub(PATTERNS[kind], lambda m: f"{m[1]}{p.mask}{m[3]}", lines[number])
                kinds += [kind] * (masked != lines[number])
                lines[number] = masked
            if kinds:
                rows.append((path, number + 1, kinds))
        after[path] = "\n".join(lines)
    return after, sorted(LISTS[p.list](sorted(rows)))


def instruction(p):
    kinds = "\n".join(f"- {kind}: {KINDS[kind][0]}" for kind in p.kinds)
    skip = " ".join(filter(None, [p.skip, p.skipped]))
    shape = f"it prints {p.list}, sorted in byte order (`LC_ALL=C sort`); PATH is relative to the folder, without a leading ./"
    if p.list.startswith("PATH:LINE:KIND"):
        shape += ", and KIND is the word at the head of the list above"
    rule = f"These are the secrets:\n{kinds}\n\nEach is replaced by `{p.mask}`, and nothing else changes. Kinds are looked for in the order of the list, in what the ones before left. {skip}".strip()
    return [
        f"Secrets have slipped into the files of /app/{p.folder} and the folders below it. {rule}\n\nWrite the bash script "
        f"/app/{p.script} that does so in the folder which is its argument; {shape}. Use it on {p.folder}, and save "
        f"what it prints as /app/{p.out}. We will run it on other trees.",
        f"Before /app/{p.folder} is published, its secrets must go. {rule}\n\nDo it by a bash script, /app/{p.script}: its "
        f"argument is a folder, in all of whose files (at any depth) it masks the secrets, and {shape}. Its output for "
        f"{p.folder} belongs in /app/{p.out}. The script is for other folders as well.",
        f"`bash /app/{p.script} FOLDER` shall mask the secrets in all files of a folder and below. {rule}\n\nAlso, {shape}. "
        f"Please write it, apply it to /app/{p.folder}, and keep what it printed in /app/{p.out}.",
    ]


def program(p):
    guard = SKIPS[p.skip][0]
    steps = []
    for kind in p.kinds:
        step = f"s~{KINDS[kind][1]}~\\1{p.mask}\\3~g"
        step = f"{{ {step}; {step} }}" if kind == "access" else step
        steps.append(f"{guard} {step}".strip())
    walk = (
        f"find . -type f {SKIPPED[p.skipped][0]} -printf '%P\\n' | LC_ALL=C sort | while IFS= read -r f; do"
    )
    lines = ["#!/bin/bash", 'cd "$1" || exit 1', "old=$(mktemp); hits=$(mktemp)", walk]
    if p.list.startswith("PATH:LINE:KIND"):
        for kind, step in zip(p.kinds, steps, strict=True):
            lines += [
                '  cp "$f" $old',
                f"  sed -E -i '{step}' \"$f\"",
                f'  cmp -s "$f" $old || diff --unchanged-line-format= --old-line-format= --new-line-format="$f:%dn:{kind}"$\'\\n\' $old "$f"',
            ]
        return "\n".join([*lines, "done | LC_ALL=C sort"])
    script = " ".join(f"-e '{step}'" for step in steps)
    lines += [
        '  cp "$f" $old',
        f'  sed -E -i {script} "$f"',
        "  diff --unchanged-line-format= --old-line-format= --new-line-format=$'%dn\\n' $old \"$f\" > $hits",
    ]
    if p.list.startswith("PATH COUNT"):
        lines += ['  [ -s $hits ] && echo "$f $(wc -l < $hits)"']
    else:
        lines += ['  while read -r n; do echo "$f:$n"; done < $hits']
    return "\n".join([*lines, "done | LC_ALL=C sort"])


def solution(p):
    return [
        f"grep -rn . {p.folder} | head -n 20",
        put(p.script, program(p)),
        f"bash {p.script} {p.folder} > {p.out}; cat {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo 'cat /app/{p.out}' > {p.script}"]


def test_list(p):
    assert read(p.out).split("\n") == (swept(sources(given(p), p), p)[1] or [""]) and read(p.script)


def test_files(p):
    after = swept(sources(given(p), p), p)[0]
    assert read(p.script) and {path: data.decode() for path, data in tree(p.folder).items()} == after


def sweep(p):
    rng = hidden(p)
    sources(rng, p)
    texts = sources(rng, p)
    top = scratch(texts)
    return (
        output("bash", at(p.script), top),
        {path: data.decode() for path, data in tree(top).items()},
        swept(texts, p),
    )


def test_hidden_list(p):
    printed, _, (_, rows) = sweep(p)
    assert printed.split("\n") == (rows or [""])


def test_hidden_files(p):
    _, found, (after, _) = sweep(p)
    assert found == after
