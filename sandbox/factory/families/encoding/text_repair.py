"""Text files in several character sets and with several line ends, all made alike by a script.

Hard: what a file is written in is told by its name or its first bytes, and must be gone from it afterwards.
"""

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import changer, names, wordings

SKILLS = ("iconv", "sed", "tr", "find", "UTF-8")

# A kind of file, by the last part of its name: how people say it -> iconv's name, Python's codec.
KINDS = {
    "l1": ("ISO-8859-1", "ISO-8859-1", "latin-1"),
    "l9": ("ISO-8859-15", "ISO-8859-15", "iso8859-15"),
    "le": ("UTF-16 with the low byte first, without a byte order mark", "UTF-16LE", "utf-16-le"),
    "be": ("UTF-16 with the high byte first, without a byte order mark", "UTF-16BE", "utf-16-be"),
    "dos": ("code page 850", "CP850", "cp850"),
    "win": ("Windows-1252", "WINDOWS-1252", "cp1252"),
    "ru": ("KOI8-R", "KOI8-R", "koi8-r"),
    "u32": ("UTF-32 with the low byte first, without a byte order mark", "UTF-32LE", "utf-32-le"),
}
# What else is done to the text -> sed's or tr's stage on UTF-8, Python's.
CHANGES = {
    "line ends of a carriage return and a newline become newlines": ("sed 's/\\r$//'", lambda t: "\n".join(s.removesuffix("\r") for s in t.split("\n"))),
    "tabs become four spaces": ("sed 's/\\t/    /g'", lambda t: t.replace("\t", "    ")),
    "spaces at the end of lines are dropped (before a carriage return they count as such only if that has become a newline earlier)": ("sed 's/ *$//'", lambda t: "\n".join(s.rstrip(" ") for s in t.split("\n"))),
    "empty lines are dropped": ("sed '/^$/d'", lambda t: "".join(s + "\n" for s in t.split("\n") if s)),
    "`--` becomes `-`": ("sed 's/--/-/g'", lambda t: t.replace("--", "-")),
    "each line gets `> ` in front": ("sed 's/^/> /'", lambda t: "".join(f"> {s}\n" for s in t.split("\n")[:-1])),
}  # fmt: skip
AFTER = {
    "the name stays": 'mv /tmp/text "$f"',
    "the last part of the name becomes .txt": 'rm "$f"; mv /tmp/text "${f%.*}.txt"',
    "the last part of the name, with its point, is dropped": 'rm "$f"; mv /tmp/text "${f%.*}"',
    "the text goes into a new file with .utf8 appended to the name, and the old file stays": 'mv /tmp/text "$f.utf8"',
}
OPENS = (
    "Texts from old machines lie in a folder and must become UTF-8.",
    "We collect texts in all kinds of character sets, and want them in UTF-8.",
)


def draw(rng, level):
    return names(rng, "") | {
        "out": "",
        "kinds": rng.sample(list(KINDS), 1 + level),
        "changes": rng.sample(list(CHANGES), (level + 1) // 2),
        "after": rng.choice(list(AFTER)),
        "mark": level > 1 and rng.random() < 0.5,
        "deep": rng.random() < 0.5,
        "size": 5 + 3 * level,
    }


def make(rng, p):
    made = {}
    for noun in words(rng, p.size):
        kind = rng.choice([*p.kinds, *p.kinds, "txt", "md"])
        special = "Привет" if kind == "ru" else "größer à côté"
        lines = [
            f"{word(rng)}{rng.choice([' ', '', chr(9), ' -- '])}{rng.choice([special, word(rng), ''])}{rng.choice(['', '  '])}"
            for _ in range(rng.randint(2, 6))
        ]
        text = "".join(line + rng.choice(["\n", "\r\n"]) for line in [*lines, "", special])
        mark = "\ufeff" if p.mark and kind == "md" else ""
        made[rng.choice(["", "", "sub/", "sub/a b/"]) + f"{noun}.{kind}"] = (mark + text).encode(
            KINDS[kind][2] if kind in KINDS else "utf-8"
        )
    return made


def worked(made, p):
    now = {}
    for path, data in made.items():
        stem, _, kind = path.rpartition(".")
        if p.mark and kind == "md" and (p.deep or "/" not in path):
            data = data.removeprefix(b"\xef\xbb\xbf")
        if kind not in p.kinds or (not p.deep and "/" in path):
            now[path] = data
            continue
        text = data.decode(KINDS[kind][2])
        for change in p.changes:
            text = CHANGES[change][1](text)
        new = {"the name": path, "the last": stem + ".txt" * (".txt" in p.after), "the text": path + ".utf8"}[
            p.after[:8]
        ]
        now[new] = text.encode()
        if p.after.startswith("the text"):
            now[path] = data
    return now


def instruction(p):
    rules = [f"files NAME.{kind} are written in {KINDS[kind][0]}" for kind in p.kinds]
    rules += [
        "their texts become UTF-8, without a byte order mark",
        *(f"in these texts {change}" for change in p.changes),
    ]
    rules += [
        f"of such a file, {p.after}",
        *["files NAME.md are in UTF-8 already, but where one begins with a byte order mark, that is dropped"]
        * p.mark,
    ]
    rules += [
        "files in folders below count as well" if p.deep else "only files directly in the folder count",
        "all other files stay as they are; what is done to texts is done in the order given",
    ]
    return wordings(p, OPENS, rules)


def program(p):
    depth = "" if p.deep else "-maxdepth 1 "
    cases = "\n".join(f"    {kind}) from={KINDS[kind][1]} ;;" for kind in p.kinds)
    mark = """    md) sed -i '1s/^\\xef\\xbb\\xbf//' "$f"; continue ;;\n""" if p.mark else ""
    stages = "".join(f" | {CHANGES[change][0]}" for change in p.changes)
    return f"""#!/bin/bash
export LC_ALL=C
cd "$1" || exit 1
find . {depth}-type f -print0 > /tmp/paths
while IFS= read -r -d '' f; do
  case ${{f##*.}} in
{cases}
{mark}    *) continue ;;
  esac
  iconv -f $from -t UTF-8 "$f"{stages} > /tmp/text
  {AFTER[p.after]}
done < /tmp/paths"""


files, solution, lazy, test_half, test_folder, test_hidden_folder, test_hidden_others = changer(
    make, worked, program
)
