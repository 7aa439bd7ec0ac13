"""Files of the same content in a folder, of which one is kept by rule, by a script for any such folder.

Hard: equal contents under any name, a rule that says which one stays, and a list of what was done.
"""

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import changer, names, wordings

SKILLS = ("find", "sha256sum", "sort", "awk", "bash loops")

# Which one of equal files is the kept one: -> how a line `PATH` gets its sort key in awk, Python's key.
KEEP = {
    "the one whose path comes first in byte order": ('""', lambda path: path),
    "the one with the shortest path (of equally long ones the first in byte order)": ('sprintf("%05d", length(p))', lambda path: (len(path), path)),
    "the one with the longest path (of equally long ones the first in byte order)": ('sprintf("%05d", 9999 - length(p))', lambda path: (-len(path), path)),
    "the one in the fewest folders (of those the first in byte order)": ('sprintf("%05d", gsub("/", "/", p))', lambda path: (path.count("/"), path)),
    "the one with the shortest name, folders left aside (of those the first path in byte order)": ('sprintf("%05d", length(p))', lambda path: (len(path.rpartition("/")[2]), path)),
}  # fmt: skip
DO = {
    "is deleted": 'rm "$path"',
    "is moved into the folder twins at the top, under its path with each / as a _": 'mkdir -p twins; mv "$path" "twins/${path//\\//_}"',
    "becomes a file of one line, `see ` and the path of the kept one": 'echo "see $kept" > "$path"',
    "becomes an empty file": ': > "$path"',
}
ONLY = {
    "": ("", lambda path, text: True),
    "empty files are not looked at": ("! -empty", lambda path, text: text),
    "only files whose name ends in .txt are looked at": (
        "-name '*.txt'",
        lambda path, text: path.endswith(".txt"),
    ),
    "files below a folder named keep (at any depth) are not looked at": (
        "! -path '*/keep/*'",
        lambda path, text: "keep/" not in path,
    ),
    "files of fewer than 20 bytes are not looked at": ("-size +19c", lambda path, text: len(text) > 19),
}
LISTS = {
    "": "",
    "a line for each file that was not kept: its path, a tab, and the path of the kept one; in byte order": 'printf \'%s\\t%s\\n\' "$path" "$kept" >> /tmp/list',
    "a line for each kept file that had others: the number of those, a space, and its path; in byte order of the line": 'echo "$kept" >> /tmp/list',
    "one line with the number of files that were not kept": "echo x >> /tmp/list",
}
ENDS = {
    "a line for each file": "LC_ALL=C sort /tmp/list > {}",
    "a line for each kept": "LC_ALL=C sort /tmp/list | uniq -c | sed 's/^ *//' | LC_ALL=C sort > {}",
    "one line with": "wc -l < /tmp/list > {}",
}
OPENS = (
    "Over the years the same files were stored again and again in a folder, under all kinds of names.",
    "A folder must be rid of files that are there more than once.",
)


def draw(rng, level):
    return names(rng, "") | {
        "out": "",
        "keep": rng.choice(list(KEEP)),
        "do": rng.choice(list(DO)),
        "only": rng.sample(list(ONLY)[1:], level // 2) if level > 1 else [rng.choice(list(ONLY))],
        "list": rng.choice(list(LISTS)[1:]) if level > 2 else rng.choice(list(LISTS)),
        "report": f"{word(rng).upper()}",
        "size": 10 + 5 * level,
    }


def make(rng, p):
    texts = [
        "",
        "same\n",
        *(f"{word(rng)} {word(rng)} {word(rng)}\n" * rng.randint(1, 3) for _ in range(p.size // 2)),
    ]
    made = {}
    for noun in words(rng, p.size):
        folder = rng.choice(["", "", "a/", "b/c/", "keep/", "my files/keep/", "my files/"])
        made[f"{folder}{rng.choice([noun, noun[:3], noun + ' 2'])}{rng.choice(['.txt', '.txt', '.dat'])}"] = (
            rng.choice(texts)
        )
    return made


def worked(made, p):
    now, groups, listed = dict(made), {}, []
    for path, text in made.items():
        if all(ONLY[name][1](path, text) for name in p.only):
            groups.setdefault(text, []).append(path)
    for paths in groups.values():
        kept, *others = sorted(paths, key=KEEP[p.keep][1])
        for path in others:
            listed.append((path, kept))
            text = now.pop(path)
            if "moved" in p.do:
                now["twins/" + path.replace("/", "_")] = text
            elif "becomes" in p.do:
                now[path] = f"see {kept}\n" if "see" in p.do else ""
    if p.list and listed:
        kepts = [kept for _, kept in listed]
        counted = {f"{kepts.count(kept)} {kept}" for kept in kepts}
        lines = {"a line for each f": ["\t".join(pair) for pair in listed], "a line for each k": counted}.get(
            p.list[:17], [str(len(listed))]
        )
        now[p.report] = "".join(line + "\n" for line in sorted(lines))
    return now if listed else {}


def instruction(p):
    rules = [
        f"of the regular files with the same content, folders below included, the kept one is {p.keep}",
        f"each of the others {p.do}",
    ]
    rules += [name for name in p.only if name]
    rules += [f"then write the file {p.report} into the folder's top: {p.list}"] * bool(p.list) + [
        "all paths are relative to the folder, without a ./ in front"
    ]
    return wordings(p, OPENS, rules)


def program(p):
    tests = " ".join(["-type f", *[ONLY[name][0] for name in p.only if name]])
    key = KEEP[p.keep][0]
    cut = 'sub(/.*\\//, "", p); ' if "folders left aside" in p.keep else ""
    end = next((command for start, command in ENDS.items() if p.list.startswith(start)), "").format(p.report)
    return f"""#!/bin/bash
cd "$1" || exit 1
: > /tmp/list
find . {tests} -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 sha256sum |
  awk '{{ p = path = substr($0, 67); {cut}print $1 "\\t" {key} "\\t" path }}' | LC_ALL=C sort |
  awk -F '\\t' '$1 != last {{ kept = $3; last = $1; next }} {{ print $3 "\\t" kept }}' > /tmp/twins
while IFS=$'\\t' read -r path kept; do
  {DO[p.do]}
  {LISTS[p.list] or ":"}
done < /tmp/twins
{end}"""


files, solution, lazy, test_half, test_folder, test_hidden_folder, test_hidden_others = changer(
    make, worked, program
)
