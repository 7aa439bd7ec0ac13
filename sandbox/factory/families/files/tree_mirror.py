"""Two folders, one to become like the other, by a script with rules for what differs.

Hard: what is only here, only there, or different in both is three questions, each with its own rule and exceptions.
"""

from sandbox.factory.kit import words
from sandbox.factory.scripts import changer, names, wordings

SKILLS = ("find", "cp", "cmp", "mkdir", "bash loops")

# A file that both have, with different content: -> bash's command, Python's new content of (from, to).
DIFFERENT = {
    "is replaced by the one of `from`": ('cp "from/$f" "to/$f"', lambda a, b: a),
    "stays as it is in `to`": (":", lambda a, b: b),
    "is replaced by the larger of the two (of equal sizes, by the one of `from`)": ('[ "$(stat -c %s "from/$f")" -lt "$(stat -c %s "to/$f")" ] || cp "from/$f" "to/$f"', lambda a, b: a if len(a) >= len(b) else b),
    "gets all of the one of `from` appended": ('cat "from/$f" >> "to/$f"', lambda a, b: b + a),
    "gets, appended, those lines of the one of `from` that it has not": ('grep -vxFf "to/$f" "from/$f" > /tmp/new; cat /tmp/new >> "to/$f"', lambda a, b: b + "".join(s for s in a.splitlines(True) if s not in b.splitlines(True))),
}  # fmt: skip
EXTRA = {
    "stays": ":",
    "is deleted": 'rm "to/$f"',
    "is moved to the same path below `attic`, beside `from` and `to`": 'mkdir -p "attic/$(dirname "$f")"; mv "to/$f" "attic/$f"',
    "is renamed: -old is appended to its name": 'mv "to/$f" "to/$f-old"',
}
SKIP = {
    "files whose name ends in .tmp": ("! -name '*.tmp'", lambda path: path.endswith(".tmp")),
    "files below a folder named cache": ("! -path '*/cache/*'", lambda path: "cache/" in path),
    "files whose name begins with a dot": ("! -name '.*'", lambda path: path.rpartition("/")[2][0] == "."),
    "files with a space in their name": ("! -name '* *'", lambda path: " " in path.rpartition("/")[2]),
}
OPENS = (
    "A folder has two folders in it, `from` and `to`, and `to` must be brought up to date.",
    "In every such folder the new state lies in `from` and an older one in `to`, which shall follow it.",
)


def draw(rng, level):
    return names(rng, "") | {
        "out": "",
        "different": rng.choice(list(DIFFERENT)),
        "extra": rng.choice(list(EXTRA)),
        "missing": rng.choice(["is copied", "is copied", "is moved"]) if level > 1 else "is copied",
        "skip": rng.sample(list(SKIP), min(3, level // 2)),
        "log": level > 2 and rng.random() < 0.7,
        "size": 8 + 4 * level,
    }


def make(rng, p):
    made = {}
    for noun in words(rng, p.size):
        path = (
            rng.choice(["", "", "docs/", "cache/", "docs/cache/"])
            + rng.choice([noun, f".{noun}", f"{noun} 2"])
            + rng.choice([".txt", ".txt", ".tmp"])
        )
        lines = [f"{w}\n" for w in words(rng, 4)]
        new, old = ["".join(rng.sample(lines, rng.randint(1, 4))) for _ in range(2)]
        kind = rng.choice(["same", "new", "old", "differ", "differ"])
        made |= {f"from/{path}": new} if kind != "old" else {}
        made |= {f"to/{path}": new if kind == "same" else old} if kind != "new" else {}
    return made


def worked(made, p):
    now, log = dict(made), []
    for path in sorted({path.partition("/")[2] for path in made}):
        new, old = made.get(f"from/{path}"), made.get(f"to/{path}")
        if any(SKIP[name][1](path) for name in p.skip) or new == old:
            continue
        if old is None:
            log.append(f"new {path}")
            now[f"to/{path}"] = now.pop(f"from/{path}") if p.missing == "is moved" else new
        elif new is None:
            log.append(f"extra {path}")
            if p.extra != "stays":
                del now[f"to/{path}"]
            if p.extra.startswith("is moved"):
                now[f"attic/{path}"] = old
            if p.extra.startswith("is renamed"):
                now[f"to/{path}-old"] = old
        else:
            log.append(f"changed {path}")
            now[f"to/{path}"] = DIFFERENT[p.different][1](new, old)
    return now | ({"LOG": "".join(sorted(line + "\n" for line in log))} if p.log else {})


def instruction(p):
    rules = [
        f"a file that only `from` has {p.missing} to the same path in `to`, where folders are made as needed",
        f"a file that both have with different content {p.different}",
        f"a file that only `to` has {p.extra}",
    ]
    rules += [f"{' and '.join(p.skip)} are left alone in both, as if they were not there"] * bool(p.skip)
    rules += [
        "at last the file LOG, beside the two folders, gets a line `new PATH`, `changed PATH` or `extra PATH` for each of these files as they were found (PATH within `from` or `to`, lines in byte order)"
    ] * p.log
    return wordings(p, OPENS, [*rules, "all else stays as it is"])


def program(p):
    tests = " ".join(SKIP[name][0] for name in p.skip)
    return f"""#!/bin/bash
cd "$1" && mkdir -p from to || exit 1
list() {{ find "$1" -type f {tests} -printf '%P\\n' | LC_ALL=C sort; }}
list from > /tmp/from; list to > /tmp/to; : > /tmp/log
LC_ALL=C comm -12 /tmp/from /tmp/to | while IFS= read -r f; do
  cmp -s "from/$f" "to/$f" && continue
  echo "changed $f" >> /tmp/log
  {DIFFERENT[p.different][0]}
done
LC_ALL=C comm -23 /tmp/from /tmp/to | while IFS= read -r f; do
  echo "new $f" >> /tmp/log
  mkdir -p "to/$(dirname "$f")"; {"mv" if p.missing == "is moved" else "cp"} "from/$f" "to/$f"
done
LC_ALL=C comm -13 /tmp/from /tmp/to | while IFS= read -r f; do
  echo "extra $f" >> /tmp/log
  {EXTRA[p.extra]}
done
{"LC_ALL=C sort /tmp/log > LOG" if p.log else "true"}"""


files, solution, lazy, test_half, test_folder, test_hidden_folder, test_hidden_others = changer(
    make, worked, program
)
