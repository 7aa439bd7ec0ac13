"""Which versions a set of requirements gets from an index, by a program that must choose for any index.

Hard: versions compare by numbers, and pre-releases, yanked ones and limits of other packages take part in the choice.
"""

from sandbox.factory.kit import given, words
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

SKILLS = ("packaging", "versions", "Python", "sorting")

# The solution has `index`: package -> list of versions; `needs`: package -> list of (sign, version); `chosen`.
REPORTS = {
    "chosen": ("PACKAGE=VERSION for every required package in alphabetical order, `-` in place of the version if none fits", "[f'{n}={chosen[n]}' for n in sorted(needs)]",
        lambda f: [f"{n}={f['picks'][n] or '-'}" for n in sorted(f["picks"])]),
    "missing": ("the required packages for which no version fits, in alphabetical order", "sorted(n for n in chosen if chosen[n] == '-')", lambda f: sorted(n for n in f["picks"] if not f["picks"][n])),
    "newest": ("the required packages that get the highest version the index has of them, whatever its marks, in alphabetical order", "sorted(n for n in needs if chosen[n] == max(index.get(n, ['?']), key=key))",
        lambda f: sorted(n for n in f["picks"] if f["picks"][n] and f["picks"][n] == ordered(f["index"][n])[-1])),
    "behind": ("PACKAGE=COUNT for every required package that gets a version, in alphabetical order, with the number of higher versions of it in the index, whatever their marks", "[f'{n}={sum(key(v) > key(chosen[n]) for v in index[n])}' for n in sorted(needs) if chosen[n] != '-']",
        lambda f: [f"{n}={len(f['index'][n]) - 1 - ordered(f['index'][n]).index(v)}" for n, v in sorted(f["picks"].items()) if v]),
    "unused": ("the packages of the index that are not required, in alphabetical order", "sorted(set(index) - set(needs))", lambda f: [n for n in sorted(f["index"]) if n not in f["picks"]]),
    "order": ("all versions of the first package of the index (by name, in the alphabet), from the lowest to the highest", "sorted(index[min(index)], key=key)", lambda f: ordered(f["index"][min(f["index"])])),
    "strict": ("the required packages that have exactly one version that fits, in alphabetical order", "sorted(n for n in needs if len(fits(n)) == 1)", lambda f: sorted(n for n in f["good"] if len(f["good"][n]) == 1)),
    "count": ("how many versions fit, over all required packages", "sum(len(fits(n)) for n in needs)", lambda f: sum(map(len, f["good"].values()))),
    "majors": ("PACKAGE=COUNT for every package of the index in alphabetical order, with the number of different first numbers of its versions", "[f'{n}={len({key(v)[0][0] for v in index[n]})}' for n in sorted(index)]",
        lambda f: [f"{n}={len({v.split('.')[0] for v in vs})}" for n, vs in sorted(f["index"].items())]),
}  # fmt: skip
SIGNS = ("==", "!=", ">=", "<", ">", "<=")


def draw(rng, level):
    return {
        **names(rng, "txt"),
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2),
        "signs": sorted(rng.sample(SIGNS, min(6, 2 + level))),
        "caret": level > 2 and rng.random() < 0.6,
        "pre": rng.choice(["", "rc", "b"]) if level > 1 else "",
        "yanked": rng.choice(["", "yanked", "withdrawn"]) if level > 1 else "",
        "lowest": rng.random() < 0.3,
        "size": 3 + level,
    }


def data(rng, p):
    rows = []
    for name in words(rng, p.size):
        versions = {version(rng, p) for _ in range(rng.randint(4, 7))}
        rows += [
            f"have {name} {v}{f' {p.yanked}' if p.yanked and rng.random() < 0.2 else ''}\n"
            for v in sorted(versions)
        ]
        signs = [*p.signs, "^"] if p.caret else p.signs
        for _ in range(rng.choice([0, 1, 1, 2])):
            sign = rng.choice(signs)
            rows.append(
                f"need {name} {sign}{rng.choice(sorted(versions)) if rng.random() < 0.6 else version(rng, p)}\n"
            )
    rows += [f"need {word}\n" for word in words(rng, 1)] + [f"need {rows[0].split()[1]}\n"]
    rng.shuffle(rows)
    return "".join(rows)


def version(rng, p):
    pre = f"{p.pre}{rng.randint(1, 3)}" if p.pre and rng.random() < 0.3 else ""
    return f"{rng.randint(0, 2)}.{rng.choice([1, 2, 9, 10])}.{rng.choice([0, 3, 11])}{pre}"


def files(rng, p):
    return {p.data: data(rng, p)}


def rank(version, p=None):
    import re

    numbers, _, last = re.fullmatch(r"([\d.]+)(?:(rc|b)(\d+))?", version).groups()
    return [int(n) for n in numbers.split(".")] + ([0, int(last)] if last else [1, 0])


def ordered(versions):
    return sorted(versions, key=rank)


def facts(text, p):
    index, needs, gone = {}, {}, set()
    for kind, name, *rest in map(str.split, text.splitlines()):
        if kind == "have":
            index.setdefault(name, []).append(rest[0])
            gone |= {(name, rest[0])} if rest[1:] else set()
        else:
            needs.setdefault(name, []).extend(rest)
    good = {}
    for name in needs:
        asked_pre = any(p.pre and p.pre in need for need in needs[name])
        good[name] = [
            v for v in ordered(index.get(name, []))
            if (name, v) not in gone and (asked_pre or not p.pre or p.pre not in v) and all(holds(v, need) for need in needs[name])
        ]  # fmt: skip
    place = 0 if p.lowest else -1
    return {"index": index, "good": good, "picks": {n: vs[place] if vs else "" for n, vs in good.items()}}


def holds(version, need):
    sign = need.rstrip("0123456789.rcb")
    mine, other = rank(version), rank(need[len(sign) :])
    match sign:
        case "^":
            return mine >= other and mine[0] == other[0]
        case "==" | "!=":
            return (mine == other) == (sign == "==")
        case _:
            return (
                (mine > other and ">" in sign)
                or (mine < other and "<" in sign)
                or (mine == other and "=" in sign)
            )


def instruction(p):
    about = "The lines of the file, in any order, are `have PACKAGE VERSION` (the index has this version) and `need PACKAGE` or `need PACKAGE SIGNVERSION`, as in `need acorn >=1.2.0`."
    signs = ", ".join(p.signs) + (
        " and ^ (at least this version, and the same first number)" if p.caret else ""
    )
    rules = [
        f"Versions are three numbers, compared as numbers one after the other. The signs are {signs}; all lines "
        f"for a package hold together. Of the versions that fit, a required package gets the {'lowest' if p.lowest else 'highest'}."
    ]
    if p.pre:
        rules.append(
            f"A version such as 1.2.0{p.pre}2 is a pre-release: it comes before 1.2.0 (and {p.pre}1 before {p.pre}2), and fits only if a need line of its package names a pre-release."
        )
    if p.yanked:
        rules.append(f"A version whose line ends in `{p.yanked}` never fits.")
    return asks(p, about, rules, REPORTS)


def source(p):
    yanked = "        if w[3:]: bad.add((w[1], w[2]))\n" if p.yanked else ""
    conditions = ["all(test(v, *c) for c in needs[n])"]
    conditions += ["(n, v) not in bad"] * bool(p.yanked)
    conditions += ["(key(v)[1] or any(not key(c[1])[1] for c in needs[n]))"] * bool(p.pre)
    head = f"""import re, sys
index, needs, bad = {{}}, {{}}, set()
def key(v):
    m = re.match(r"(\\d+)\\.(\\d+)\\.(\\d+)(\\D+(\\d+))?$", v)
    if not m: return ((-1,), True, 0)
    return (tuple(map(int, m.group(1, 2, 3))), not m[4], int(m[5] or 0))
def test(v, sign, w):
    a, b = key(v), key(w)
    if sign == "^": return a >= b and a[0][0] == b[0][0]
    return {{"==": a == b, "!=": a != b, ">=": a >= b, "<=": a <= b, "<": a < b, ">": a > b}}[sign]
for line in open(sys.argv[1]):
    w = line.split()
    if w[0] == "have":
        index.setdefault(w[1], []).append(w[2])
{yanked}    else:
        needs.setdefault(w[1], [])
        needs[w[1]] += [re.match(r"([=!<>^]+)(.*)", c).groups() for c in w[2:]]
def fits(n): return [v for v in index.get(n, []) if {" and ".join(conditions)}]
chosen = {{n: {"min" if p.lowest else "max"}(fits(n), key=key, default="-") for n in needs}}"""
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
