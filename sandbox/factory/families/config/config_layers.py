"""The settings that are in force when several configuration files overrule each other, by a program for any such stack.

Hard: layers, sections with parents, references to other keys and removals, resolved in the right order.
"""

from sandbox.factory.kit import given, word, words
from sandbox.factory.kit_report import (
    asks,
    check_output,
    check_report,
    fresh,
    lazy_steps,
    names,
    program,
    some,
    steps,
)

SKILLS = ("configuration", "INI", "Python", "precedence")

# The solution has `conf`: (section, key) -> value, `where`: (section, key) -> layer, `layers`: names in order, `raw`: list of (layer, section, key, value).
REPORTS = {
    "values": ("SECTION.KEY=VALUE for all settings in force, in alphabetical order of SECTION.KEY", "[f'{s}.{k}={conf[s, k]}' for s, k in sorted(conf, key='.'.join)]", lambda f: [f"{n}={v}" for n, (v, _) in sorted(f["final"].items())]),
    "origins": ("SECTION.KEY=LAYER for all settings in force, in alphabetical order of SECTION.KEY, with the layer that the value is from", "[f'{s}.{k}={where[s, k]}' for s, k in sorted(conf, key='.'.join)]", lambda f: [f"{n}={o}" for n, (_, o) in sorted(f["final"].items())]),
    "counts": ("LAYER=COUNT for all layers, in the order of the file, with the number of settings in force that are from it", "[f'{n}={list(where.values()).count(n)}' for n in layers]", lambda f: [f"{n}={sum(o == n for _, o in f['final'].values())}" for n in f["layers"]]),
    "overruled": ("how many lines KEY = VALUE of the file set a value that is not in force, as another line for the same section and key (in a later layer, or further down in the same one) sets or unsets it", "len(raw) - len({(s, k) for _, s, k in raw if (s, k) in where})",
        lambda f: f["lines"] - len(f["final"])),
    "sections": ("the sections with at least one setting in force, in alphabetical order", "sorted({s for s, _ in conf})", lambda f: sorted({n.split(".")[0] for n in f["final"]})),
    "longest": ("SECTION.KEY of the setting in force with the longest value, of several the first in alphabetical order; `-` if there is none", "min(conf, key=lambda n: (-len(conf[n]), '.'.join(n)), default='-') if not conf else '.'.join(min(conf, key=lambda n: (-len(conf[n]), '.'.join(n))))",
        lambda f: max(sorted(f["final"]), key=lambda n: len(f["final"][n][0]), default="-")),
    "common": ("the keys that are in force in more than one section, in alphabetical order", "sorted({k for _, k in conf if sum(l == k for _, l in conf) > 1})", lambda f: sorted({n.split(".")[1] for n in f["final"] if sum(m.split(".")[1] == n.split(".")[1] for m in f["final"]) > 1})),
    "numbers": ("the sum of all values in force that are whole numbers", "sum(int(v) for v in conf.values() if v.isdigit())", lambda f: sum(int(v) for v, _ in f["final"].values() if v.isdecimal())),
}  # fmt: skip
ORDERS = {
    "later layers overrule earlier ones": "layers",
    "earlier layers overrule later ones": "layers[::-1]",
}


def draw(rng, level):
    return {
        **names(rng, "layers"),
        "order": rng.choice(list(ORDERS)),
        "unset": rng.choice(["", "!KEY", "KEY ="]) if level > 1 else "",
        "ref": rng.choice(["$", "%"]) if level > 2 else "",
        "case": level > 1 and rng.random() < 0.5,
        "comment": rng.choice(["#", ";"]),
        "tail": level > 1 and rng.random() < 0.5,
        "base": level > 3,
        "same": rng.choice(["last", "first"]),
        "cases": some(rng, REPORTS, 2 + level // 2),
        "size": 2 + (level + 1) // 2,
    }


def data(rng, p):
    sections, keys, rows = words(rng, 3), words(rng, 5), []
    sections = [*sections[:2], "base"] if p.base else sections
    for layer in words(rng, p.size):
        rows.append(f"=== {layer}")
        for section in rng.sample(sections, rng.randint(1, 3)):
            rows.append(f"[{section}]")
            for key in rng.choices(keys, k=rng.randint(1, 4)):
                shown = rng.choice([key, key.upper(), key.title()]) if p.case else key
                value = rng.choice([str(rng.randint(1, 99)), word(rng), word(rng)])
                if p.ref and rng.random() < 0.3:
                    value = f"{word(rng)}-{p.ref}{keys[keys.index(key) - 1] if key != keys[0] else 'none'}"
                if p.unset and rng.random() < 0.2:
                    rows.append(f"!{shown}" if p.unset == "!KEY" else f"{shown} =")
                else:
                    rows.append(
                        f"{shown}{rng.choice([' = ', '=', '= '])}{value}{f' {p.comment} {word(rng)}' if p.tail and rng.random() < 0.3 else ''}"
                    )
            if rng.random() < 0.3:
                rows.append(rng.choice(["", f"{p.comment} {word(rng)} = 5"]))
    return "\n".join(rows) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    sets, layers, lines = {}, [], 0
    for row in text.splitlines():
        row = row.partition(p.comment)[0].strip() if p.tail else row.strip()
        if not row or row[0] == p.comment:
            continue
        if row.startswith("==="):
            layers.append(row[4:])
        elif row[0] == "[":
            section = row[1:-1]
        else:
            key, _, value = (part.strip() for part in row.lstrip("!").partition("="))
            name = (section, key.lower() if p.case else key)
            gone = row[0] == "!" or (p.unset == "KEY =" and not value)
            lines += not gone
            here = sets.setdefault(name, {})
            if p.same == "last" or layers[-1] not in here:
                here[layers[-1]] = None if gone else value
    final = {}
    for (section, key), values in sets.items():
        layer = (
            max(values, key=layers.index) if p.order.startswith("later") else min(values, key=layers.index)
        )
        if values[layer] is not None:
            final[section, key] = (values[layer], layer)
    if p.ref:
        final = {n: (resolved(n[0], v, final, p), o) for n, (v, o) in final.items()}
    counted = {f"{s}.{k}": v for (s, k), v in final.items()}
    return {"final": counted, "layers": layers, "lines": lines}


def resolved(section, value, final, p):
    head, sign, key = value.partition(p.ref)
    if not sign:
        return value
    found = final.get((section, key)) or (p.base and final.get(("base", key))) or ("", "")
    return head + resolved(section, found[0], final, p)


def instruction(p):
    about = "The file holds several layers of settings, one after the other. A line `=== NAME` begins a layer, `[NAME]` a section, and `KEY = VALUE` (spaces around the = mean nothing) sets a key in the section."
    rules = [f"Of a key in a section, {p.order}; of several lines in one layer, the {p.same} one holds."]
    comment = f"Empty lines and lines that begin with {p.comment} mean nothing"
    rules.append(comment + (f", nor does a {p.comment} in a line with all that follows." if p.tail else "."))
    if p.case:
        rules.append("Upper and lower case make no difference in keys; print keys in lower case.")
    if p.unset:
        rules.append(
            f"A line `{p.unset}`{' without a value' * (p.unset == 'KEY =')} unsets the key: where it is the line that holds, the key is not in force at all."
        )
    if p.ref:
        also = ", or else the one in section base," if p.base else ""
        rules.append(
            f"A value may end in {p.ref}KEY (in lower case): that stands for the value in force of that key in the same section{also} with what it refers to itself put in by the same rule, in the section asked for at first; for nothing, where there is none."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    tail = f"    line = line.split({p.comment!r})[0].strip()" if p.tail else "    line = line.strip()"
    lower = ".lower()" if p.case else ""
    gone = {"": "", "!KEY": "line[0] == '!'", "KEY =": "not v"}[p.unset] or "False"
    ref = f"""
    for name in list(conf):
        while {p.ref!r} in conf[name]:
            a, b = conf[name].split({p.ref!r})
            conf[name] = a + old.get((name[0], b), {"old.get(('base', b), '')" if p.base else "''"})""" if p.ref else ""  # fmt: skip
    same = "bag[s, k] = v" if p.same == "last" else "bag.setdefault((s, k), v)"
    head = f"""import re, sys
layers, bags, raw = [], {{}}, []
for line in open(sys.argv[1]):
{tail}
    if not line or line[0] == {p.comment!r}: continue
    if line[:3] == "===":
        layers.append(line[4:])
        bag = bags[layers[-1]] = {{}}
    elif line[0] == "[": s = line[1:-1]
    else:
        k, v = re.match(r"!?(\\w+)\\s*=?\\s*(.*)", line).groups()
        k = k{lower}
        if {gone}: v = None
        else: raw.append((layers[-1], s, k))
        {same}
conf, where = {{}}, {{}}
for n in {ORDERS[p.order]}:
    conf.update(bags[n])
    where.update(dict.fromkeys(bags[n], n))
conf = {{n: v for n, v in conf.items() if v is not None}}
where = {{n: where[n] for n in conf}}
if conf:
    old = dict(conf){ref}"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
