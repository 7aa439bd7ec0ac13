"""A journal whose entries are chained by hashes: what was tampered with, by a tool for any such journal.

Hard: the digest covers exactly stated bytes, and one change must be told from all that follow from it.
"""

import hashlib
import hmac

from sandbox.factory.kit import PEOPLE, at, given, hidden, put, read, run, scratch, tidy, word, words

SKILLS = ("SHA-256", "HMAC", "Python", "audits", "hash chains")

ALGORITHMS = ("sha256", "sha1", "sha512", "blake2b", "sha3_256")
# What the digest is of: people's words -> Python in the solution (fields n, who, text, prev), and the reference's list.
COVERS = {
    "PREVIOUS and TEXT with one space between": ("prev + ' ' + text", lambda n, who, text, prev: [prev, text]),
    "NUMBER, WHO, TEXT and PREVIOUS, each two with one space between": ("' '.join([n, who, text, prev])", lambda n, who, text, prev: [n, who, text, prev]),
    "PREVIOUS, NUMBER, WHO and TEXT, each two with one space between": ("f'{prev} {n} {who} {text}'", lambda n, who, text, prev: [prev, n, who, text]),
    "WHO and TEXT and PREVIOUS, each two with one space between, in upper case": ("(who + ' ' + text + ' ' + prev).upper()", lambda n, who, text, prev: [who.upper(), text.upper(), prev.upper()]),
    "NUMBER and PREVIOUS and TEXT, each two with one space between, and a newline at the end": ("n + ' ' + prev + ' ' + text + '\\n'", lambda n, who, text, prev: [n, prev, text + "\n"]),
}  # fmt: skip
FAULTS = {
    "digest": "DIGEST is not the digest that belongs to the line's other fields",
    "gap": "NUMBER is not one more than in the line before (in the first line: not 1)",
    "link": "PREVIOUS is not the DIGEST of the line before (in the first line: not a single -)",
    "order": "TIME is smaller than in the line before",
    "person": "WHO is not one of the names in the first line of the journal",
}
# What is printed, of (line number in the journal, faults in the order of the list above) of each bad line.
REPORTS = {
    "`LINE FAULT` for every fault, in the order of the lines, faults of a line in the order above": (
        "for l, fs in bad:\n    for f in fs: print(l, f)", lambda bad, total: [f"{line} {f}" for line, fs in bad for f in fs]),
    "`LINE: FAULT,FAULT` for each entry with faults, in the order of the lines, its faults in the order above": (
        "for l, fs in bad: print(f'{l}: ' + ','.join(fs))", lambda bad, total: [f"{line}: {','.join(fs)}" for line, fs in bad]),
    "`FAULT COUNT` for each kind of fault above, in that order, with how often it occurs (0 included)": (
        "for f in FAULTS: print(f, sum(f in fs for l, fs in bad))", None),
    "`sound COUNT` with the number of entries without a fault, then LINE of each of the others, one a line": (
        "print('sound', total - len(bad))\nfor l, fs in bad: print(l)", lambda bad, total: [f"sound {total - len(bad)}", *(str(line) for line, _ in bad)]),
}  # fmt: skip


def draw(rng, level):
    faults = ["digest", *rng.sample([f for f in FAULTS if f != "digest"], min(4, level))]
    return {
        "journal": f"{word(rng)}.log",
        "tool": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "algorithm": rng.choice(ALGORITHMS),
        "covers": rng.choice(list(COVERS)),
        "key": f"{word(rng)}-{rng.randint(100, 999)}" if level > 2 and rng.random() < 0.7 else "",
        "faults": sorted(faults, key=list(FAULTS).index),
        "report": rng.choice(list(REPORTS)),
        "code": level > 1 and rng.random() < 0.5,
        "short": rng.choice([0, 16, 20]) if level > 1 else 0,
        "count": 8 + 5 * level,
    }


def digest(fields, p):
    data = " ".join(COVERS[p.covers][1](*fields)).encode()
    value = (
        hmac.new(p.key.encode(), data, p.algorithm).hexdigest()
        if p.key
        else hashlib.new(p.algorithm, data).hexdigest()
    )
    return value[: p.short or None]


def journal(rng, p, harm=True):
    people = words(rng, 4, PEOPLE)
    lines, prev, time = ["# " + " ".join(people[:3])], "-", 1000
    for number in range(1, p.count + 1):
        time += rng.randint(0, 60)
        n, who, text = str(number), rng.choice(people[:3]), " ".join(words(rng, 3))
        kind = rng.choice([*FAULTS, "", "", "", ""]) if harm and number > 1 else ""
        who = people[3] if kind == "person" else who
        n = str(number + 7) if kind == "gap" else n
        shown = str(time - 500 if kind == "order" else time)
        link = lines[-2].rpartition("\t")[2][::-1] if kind == "link" else prev
        value = digest((n, who, text, link), p)
        text = text.replace("a", "e") + "s" if kind == "digest" else text
        lines.append("\t".join([n, shown, who, text, link, value]))
        prev = value
    return "\n".join(lines) + "\n"


def audit(text, p):
    """(faults of each line as printed, whether there are any)."""
    head, *lines = text.splitlines()
    rows = [line.split("\t") for line in lines]
    bad = []
    for i, (n, time, who, note, link, value) in enumerate(rows):
        before = rows[i - 1] if i else ["0", "0", "", "", "", "-"]
        found = {
            "digest": value != digest((n, who, note, link), p),
            "gap": int(n) != int(before[0]) + 1,
            "link": link != before[5],
            "order": int(time) < int(before[1]),
            "person": who not in head.split()[1:],
        }
        if names := [name for name in p.faults if found[name]]:
            bad.append((i + 2, names))
    shape = REPORTS[p.report][1]
    if shape is None:
        return [f"{name} {sum(name in names for _, names in bad)}" for name in p.faults], bool(bad)
    return shape(bad, len(rows)), bool(bad)


def files(rng, p):
    return {p.journal: journal(rng, p)}


def instruction(p):
    how = f"the {'HMAC-' if p.key else ''}{p.algorithm} digest{f' with the key {p.key}' if p.key else ''}"
    short = f", of which only the first {p.short} characters are kept" if p.short else ""
    faults = "\n".join(f"- {name}: {FAULTS[name]}" for name in p.faults)
    text = (
        "The first line is `#` and the names of those who may write. Each other line is an entry of six fields with "
        f"tabs between: NUMBER, TIME, WHO, TEXT, PREVIOUS, DIGEST. DIGEST is {how}, in lower-case "
        f"hexadecimal{short}, of {p.covers}. Each line is judged by what the line before it has, right or wrong, and "
        f"may have these faults:\n{faults}\n\n"
    )
    code = " The exit code is 1 if there is any fault, otherwise 0." if p.code else ""
    report = f"It prints {p.report}. LINE counts all lines of the file from 1.{code}"
    return [
        f"The journal /app/{p.journal} may have been tampered with. {text}Write the Python program /app/{p.tool} that "
        f"audits the journal whose path is its argument. {report} Save what it prints for {p.journal} as "
        f"/app/{p.out}. Other journals of the same form will follow.",
        f"Audit /app/{p.journal}. {text}`python3 /app/{p.tool} JOURNAL` must do it for any journal of that form. "
        f"{report} Put the output for {p.journal} into /app/{p.out}.",
        f"Entries of the journal /app/{p.journal} are chained, so that changes can be found. {text}Please write an "
        f"auditor in Python, /app/{p.tool}, which takes the path of a journal. {report} We need its output for "
        f"{p.journal} as /app/{p.out}, and will run it on more journals.",
    ]


def program(p):
    made = f"hmac.new({p.key!r}.encode(), data, {p.algorithm!r})" if p.key else f"hashlib.{p.algorithm}(data)"
    tests = {
        "digest": f"{made}.hexdigest(){f'[:{p.short}]' if p.short else ''} != d",
        "gap": "int(n) - 1 != number",
        "link": "prev != last",
        "order": "int(time) < clock",
        "person": "who not in names",
    }
    checks = [f"    if {tests[name]}: fs.append({name!r})" for name in p.faults]
    lines = [
        "import hashlib, hmac, sys", f"FAULTS = {p.faults!r}", "bad, total, number, clock, last = [], 0, 0, 0, '-'",
        "for l, line in enumerate(open(sys.argv[1]), 1):", "    if l == 1:", "        names = line.split()[1:]", "        continue",
        "    n, time, who, text, prev, d = line.rstrip('\\n').split('\\t')", f"    data, fs = ({COVERS[p.covers][0]}).encode(), []",
        *checks, "    total += 1", "    if fs: bad.append((l, fs))", "    number, clock, last = int(n), int(time), d",
        REPORTS[p.report][0], *(["sys.exit(bool(bad))"] if p.code else []),
    ]  # fmt: skip
    return "\n".join(lines)


def solution(p):
    return [
        f"head -n 3 {p.journal}",
        put(p.tool, program(p)),
        f"python3 {p.tool} {p.journal} > {p.out}; cat {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo \"print(open('/app/{p.out}').read()); exit({int(p.code)})\" > {p.tool}"]


def audits(text, p):
    want, any_fault = audit(text, p)
    done = run("python3", at(p.tool), scratch({"next.log": text}) + "/next.log", ok=False)
    assert (tidy(done.stdout), done.returncode) == ("\n".join(want), int(p.code and any_fault))


def test_report(p):
    assert read(p.out) == "\n".join(audit(journal(given(p), p), p)[0])


def test_hidden_journals(p):
    rng = hidden(p)
    for _ in range(2):
        audits(journal(rng, p), p)


def test_hidden_sound_journal(p):
    audits(journal(hidden(p), p, harm=False), p)
