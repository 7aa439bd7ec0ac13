"""Settings files laid over each other, by a script that prints what holds in the end.

Hard: later files win, but they can also take back or add to what the earlier ones say.
"""

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "associative arrays", "configuration files", "sort")

# A line of a later file, beside `key = value`: how people say it -> awk's rule, in which k is the full name of the key.
MARKS = {
    "`key += value` appends a space and the value to what the key has so far (and sets it, where it has nothing)": 'o == "+" { v[k] = v[k] == "" ? x : v[k] " " x; next }',
    "`!key` takes the key away": 'o == "!" { delete v[k]; next }',
    "`key ?= value` sets the key only if it is not set so far": 'o == "?" { if (!(k in v)) v[k] = x; next }',
    "`key -= value` removes that word wherever it is among the words of the key's value": 'o == "-" { if (k in v) { n = split(v[k], w, " "); t = ""; for (i = 1; i <= n; i++) if (w[i] != x) t = t (t == "" ? "" : " ") w[i]; v[k] = t } next }',
}  # fmt: skip
FORMS = {
    "SECTION.KEY=VALUE": '{s=$1; sub(/\\t/, "."); sub(/\\t/, "="); print}',
    "export SECTION_KEY='VALUE', with section and key in upper case": '{ print "export " toupper($1 "_" $2) "=\\047" $3 "\\047" }',
    "KEY (SECTION): VALUE": '{ print $2 " (" $1 "): " $3 }',
    "[SECTION] on a line of its own before the keys of each section, and KEY=VALUE for each": '$1 != last { print "[" $1 "]"; last = $1 } { print $2 "=" $3 }',
}
VALUES = {
    "": "",
    "values `yes` and `on` are printed as true, `no` and `off` as false": 'x == "yes" || x == "on" { x = "true" } x == "no" || x == "off" { x = "false" }',
    "a value with a number and k at the end, such as 4k, is printed as the number times 1024": 'x ~ /^[0-9]+k$/ { x = x * 1024 }',
    "keys without a value (nothing after the =) are left out": 'x == "" { next }',
}  # fmt: skip
OPENS = (
    "A program reads three settings files from a folder, first base.ini, then site.ini, then local.ini; a file may be missing. What a later one sets wins.",
    "Settings lie in layers: base.ini, site.ini over it, and local.ini over both, any of which may be missing in a folder. We must see what holds in the end.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "") | {
        "marks": rng.sample(list(MARKS), min(4, (level + 1) // 2 + level // 4)),
        "form": rng.choice(list(FORMS)),
        "values": rng.sample(list(VALUES)[1:], level // 2 if level > 1 else rng.randint(0, 1)),
        "comments": level > 1 and rng.random() < 0.6,
        "only": rng.choice(["", "", "web"]) if level > 1 else "",
        "size": 6 + 3 * level,
    }


def make(rng, p):
    keys, made = words(rng, 6), {}
    signs = [
        mark[1 + mark.startswith("`key ") * 4 :][:1] if mark.startswith("`key") else "!" for mark in p.marks
    ]
    for layer in ("base.ini", "site.ini", "local.ini"):
        lines = []
        for section in rng.sample(["web", "db", "mail"], 3):
            lines += ["", f"[{section}]"]
            for _ in range(p.size // 2):
                key, value = rng.choice(keys[:4]), rng.choice(["yes", "off", "4k", "16k", "", *keys])
                sign = rng.choice([*signs, ""])
                value = value or word(rng) if sign else value
                lines.append(
                    f"!{key}" if sign == "!" else f"{key} {sign}= {value}".replace("  =", " =").rstrip()
                )
                lines += [rng.choice(["; a remark", f"# {key} = 1"])] * (p.comments and rng.random() < 0.3)
        made[layer] = "\n".join(lines) + "\n"
    if rng.random() < 0.3:
        del made[rng.choice(["site.ini", "local.ini"])]
    return made


def worked(made, p):
    found = {}
    for layer in ("base.ini", "site.ini", "local.ini"):
        section = ""
        for line in made.get(layer, "").splitlines():
            if line.startswith("["):
                section = line[1:-1]
            elif line.startswith("!"):
                found.pop((section, line[1:]), None)
            elif line and line[0] not in ";#":
                left, _, value = line.partition("=")
                key, _, sign = left.strip().partition(" ")
                value, place = value.strip(), (section, key)
                if sign == "+" and found.get(place):
                    found[place] += " " + value
                elif sign == "-":
                    if place in found:
                        found[place] = " ".join(w for w in found[place].split(" ") if w != value)
                elif sign != "?" or place not in found:
                    found[place] = value
    lines, last = [], ""
    for (section, key), value in sorted(found.items()):
        for rule in p.values:
            if rule.startswith("values"):
                value = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(value, value)
            elif rule.startswith("a value") and value[:-1].isdigit() and value.endswith("k"):
                value = str(int(value[:-1]) * 1024)
        if ("keys without" in " ".join(p.values) and not value) or (p.only and section != p.only):
            continue
        match p.form[:3]:
            case "SEC":
                lines.append(f"{section}.{key}={value}")
            case "exp":
                lines.append("export " + f"{section}_{key}".upper() + f"='{value}'")
            case "KEY":
                lines.append(f"{key} ({section}): {value}")
            case _:
                lines += [f"[{section}]"] * (section != last) + [f"{key}={value}"]
        last = section
    return "\n".join(lines)


def instruction(p):
    rules = [
        "a file has sections, `[name]`, with lines `key = value` below (no value has a space at either end, and some have none); the same section may come again in a later file",
        *p.marks,
    ]
    rules += ["lines that begin with ; or # are remarks"] * p.comments + [
        f"print a line for each key: {p.form}",
        "sections, and the keys of each, are in byte order",
    ]
    rules += p.values + [f"print the section {p.only} only"] * bool(p.only)
    return wordings(p, OPENS, rules)


def program(p):
    return f"""#!/bin/bash
cd "$1"
for f in base.ini site.ini local.ini; do [ ! -e $f ] || {{ cat $f; echo; }}; done |
  awk '/^[;#]/ || /^$/ {{ next }}
/^\\[/ {{ s = substr($0, 2, length($0) - 2); next }}
/^!/ {{ o = "!"; k = s "\\t" substr($0, 2) }}
!/^!/ {{ i = index($0, "="); x = substr($0, i + 1); sub(/^ +/, "", x); k = s "\\t" $1; o = substr($0, i - 1, 1) }}
{chr(10).join(MARKS[mark] for mark in p.marks)}
{{ v[k] = x }}
END {{ for (k in v) print k "\\t" v[k] }}' | LC_ALL=C sort -t $'\\t' -k1,1 -k2,2 |
  awk -F '\\t' {f"-v only={p.only} '$1 != only {{ next }} " if p.only else "'"}{{ x = $3 }}
{chr(10).join(VALUES[rule] for rule in p.values)}
{{ $0 = $1 "\\t" $2 "\\t" x }} {FORMS[p.form].replace("s=$1; ", "")}'"""


files, solution, lazy, test_half, test_result, test_script, test_hidden_layers = printer(
    make, worked, program
)
