"""Files of a folder renamed by several rules at once, by a script for any such folder.

Hard: rules work on what the ones before left, and a new name may be taken already.
"""

import re

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import changer, names, wordings

SKILLS = ("mv", "find", "sed", "bash parameters", "loops")

# A rule on a name: how people say it -> sed's expression (extended), Python's.
RULES = {
    "letters become lower case": ("s/.*/\\L&/", str.lower),
    "every run of spaces becomes one _": ("s/ +/_/g", lambda n: re.sub(" +", "_", n)),
    "digits at the beginning, with a - after them, are dropped": ("s/^[0-9]+-//", lambda n: re.sub("^[0-9]+-", "", n)),
    "the ending .jpeg becomes .jpg": ("s/\\.jpeg$/.jpg/", lambda n: re.sub(r"\.jpeg$", ".jpg", n)),
    "the ending .bak is dropped": ("s/\\.bak$//", lambda n: re.sub(r"\.bak$", "", n)),
    "brackets ( and ) are dropped, and what is between them stays": ("s/[()]//g", lambda n: re.sub("[()]", "", n)),
    "a day written DD.MM.YYYY becomes YYYY-MM-DD": ("s/([0-9]{2})\\.([0-9]{2})\\.([0-9]{4})/\\3-\\2-\\1/", lambda n: re.sub(r"(\d{2})\.(\d{2})\.(\d{4})", r"\3-\2-\1", n, count=1)),
    "a single digit right before the last point gets a 0 in front": ("s/([^0-9])([0-9])(\\.[^.]*)$/\\10\\2\\3/", lambda n: re.sub(r"([^0-9])([0-9])(\.[^.]*)$", r"\g<1>0\2\3", n)),
    "`copy of ` at the beginning (of either case) is dropped": ("s/^copy of //I", lambda n: re.sub("^copy of ", "", n, flags=re.I)),
    "every & becomes `and`": ("s/&/and/g", lambda n: n.replace("&", "and")),
}  # fmt: skip
TAKEN = {
    "a file whose new name is taken at its turn keeps its old name": '[ ! -e "$new" ] || continue',
    "when the new name is taken at a file's turn, an x is put before it, again and again until it is free": 'while [ -e "$new" ]; do new=$dir/x${new##*/}; done',
}
OPENS = (
    "Photos and papers come to us with names of every kind, and these shall be made alike.",
    "The files of a folder shall get better names.",
)


def draw(rng, level):
    return names(rng, "") | {
        "out": "",
        "rules": rng.sample(list(RULES), min(8, 1 + level + level // 3)),
        "taken": rng.choice(list(TAKEN)),
        "deep": level > 1 and rng.random() < 0.6,
        "only": rng.choice(["", "jpeg", "txt"]) if level > 2 else "",
        "size": 10 + 5 * level,
    }


def make(rng, p):
    made, pool = {}, words(rng, 5)
    for number in range(p.size):
        name = rng.choice(["", "", f"{rng.randint(1, 99)}-", "Copy of ", "copy of "]) + rng.choice(pool)
        name += rng.choice(
            ["", "", " (2)", "  & sons", f" {rng.randint(10, 28)}.03.2025", f"{rng.randint(1, 9)}"]
        )
        name = rng.choice([name, name.title()]) + rng.choice([".jpeg", ".jpg", ".txt", ".TXT", ".txt.bak"])
        made[rng.choice(["", "", "sub/", "sub/Old Ones/"]) + name] = f"{number} {word(rng)}\n"
    return made


def worked(made, p):
    now = dict(made)
    for path in sorted(made):
        folder, slash, name = path.rpartition("/")
        if (slash and not p.deep) or (p.only and not name.endswith("." + p.only)):
            continue
        new = name
        for rule in p.rules:
            new = RULES[rule][1](new)
        if new == name or not new:
            continue
        if "keeps" in p.taken and folder + slash + new in now:
            continue
        while folder + slash + new in now:
            new = "x" + new
        now[folder + slash + new] = now.pop(path)
    return now


def instruction(p):
    rules = [
        *p.rules,
        "the rules work one after the other, each on the name that the one before left (endings belong to the name)",
    ]
    rules += [f"the files have their turn in byte order of their paths; {p.taken}"]
    rules += [
        "files in folders below it are renamed too, where they are, but no folder"
        if p.deep
        else "only files directly in the folder are renamed, and no folder"
    ]
    rules += [f"only files whose name ends in .{p.only} (in small letters) are renamed"] * bool(p.only)
    return wordings(p, OPENS, rules)


def program(p):
    find = f"find . {'' if p.deep else '-maxdepth 1 '}-type f{f' -name {chr(39)}*.{p.only}{chr(39)}' if p.only else ''} -printf '%P\\0'"
    rules = " ".join(f"-e '{RULES[rule][0]}'" for rule in p.rules)
    return f"""#!/bin/bash
cd "$1" || exit 1
{find} | LC_ALL=C sort -z > /tmp/paths
mapfile -d '' paths < /tmp/paths
mapfile -t fresh < <(tr '\\0' '\\n' < /tmp/paths | sed 's#.*/##' | sed -E {rules})
for i in "${{!paths[@]}}"; do
  dir=./${{paths[i]}}
  dir=${{dir%/*}}
  new=$dir/${{fresh[i]}}
  [ "$new" != "$dir/${{paths[i]##*/}}" ] && [ -n "${{fresh[i]}}" ] || continue
  {TAKEN[p.taken]}
  mv "${{paths[i]}}" "$new"
done"""


files, solution, lazy, test_half, test_folder, test_hidden_folder, test_hidden_others = changer(
    make, worked, program
)
