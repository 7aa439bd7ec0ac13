"""The state of a store, rebuilt from its journal after a crash, by a program for any such journal.

Hard: only what was committed counts, transactions overlap, and the end of the journal may be torn.
"""

from sandbox.factory.kit import at, given, hidden, output, put, read, scratch, word, words

SKILLS = ("transactions", "write-ahead logs", "Python", "data recovery")

# An operation: its form in the journal and its effect, as people say it; the solution's statement (of the dict `s`, key
# `k` and rest of the line `v`, a list), and the reference's function of the state that returns the new one.
OPERATIONS = {
    "SET": ("`SET KEY VALUE` gives KEY the value VALUE", "s[k] = v[0]", lambda s, k, v: {**s, k: v[0]}),
    "DEL": ("`DEL KEY` removes KEY, if it is there", "s.pop(k, None)", lambda s, k, v: {a: b for a, b in s.items() if a != k}),
    "ADD": ("`ADD KEY NUMBER` adds NUMBER to the value, which is 0 if KEY is not there (a value that is no whole number counts as 0)",
        "s[k] = str(num(s.get(k)) + int(v[0]))", lambda s, k, v: {**s, k: str(whole(s.get(k, "0")) + int(v[0]))}),
    "MOVE": ("`MOVE KEY OTHER` gives the value of KEY to OTHER and removes KEY; nothing happens if KEY is not there",
        "if k in s: s[v[0]] = s.pop(k)", lambda s, k, v: {**{a: b for a, b in s.items() if a != k}, v[0]: s[k]} if k in s else s),
    "SWAP": ("`SWAP KEY OTHER` exchanges the two values if both are there; otherwise nothing happens",
        "if k in s and v[0] in s: s[k], s[v[0]] = s[v[0]], s[k]", lambda s, k, v: {**s, k: s[v[0]], v[0]: s[k]} if {k, v[0]} <= s.keys() else s),
    "APPEND": ("`APPEND KEY TEXT` puts TEXT behind the value, which is empty if KEY is not there",
        "s[k] = s.get(k, '') + v[0]", lambda s, k, v: {**s, k: f"{s.get(k, '')}{v[0]}"}),
    "DROP": ("`DROP PREFIX` removes all keys that begin with PREFIX", "for a in [a for a in s if a.startswith(k)]: del s[a]",
        lambda s, k, v: {a: b for a, b in s.items() if a[: len(k)] != k}),
}  # fmt: skip
REPORTS = {
    "`KEY=VALUE` for every key, sorted by key": (
        "for k in sorted(s): print(f'{k}={s[k]}')", lambda s, txs: [f"{k}={s[k]}" for k in sorted(s)]),
    "`VALUE: KEY,KEY` for every value that occurs, sorted by value, its keys sorted": (
        "for v in sorted(set(s.values())): print(v + ': ' + ','.join(sorted(k for k in s if s[k] == v)))",
        lambda s, txs: [f"{v}: {','.join(sorted(k for k, w in s.items() if v == w))}" for v in sorted({*s.values()})]),
    "`keys COUNT` with the number of keys, then `KEY VALUE` for each, last key in byte order first": (
        "print('keys', len(s))\nfor k in sorted(s, reverse=True): print(k, s[k])",
        lambda s, txs: [f"keys {len(s)}", *[f"{k} {s[k]}" for k in sorted(s)][::-1]]),
    "`KEY VALUE` for every key, sorted by key, then `lost:` and the transactions that began and were not committed, sorted by number, each after a space": (
        "for k in sorted(s): print(k, s[k])\nprint('lost:', *sorted(begun - kept, key=int))",
        lambda s, txs: [*(f"{k} {s[k]}" for k in sorted(s)), " ".join(["lost:", *sorted((t for t in txs if not txs[t]), key=int)])]),
}  # fmt: skip
CHECKS = {
    "": ("", lambda text: ""),
    "length": ("Each line ends in a space, # and the number of characters before that space; the first line of which this is not true, and all lines after it, count for nothing.", lambda text: f" #{len(text)}"),
    "sum": ("Each line ends in a space, # and the sum of the codes of all characters before that space, modulo 97; the first line of which this is not true, and all lines after it, count for nothing.", lambda text: f" #{sum(map(ord, text)) % 97}"),
}  # fmt: skip


def whole(text):
    return int(text) if text.lstrip("-").isdigit() else 0


def draw(rng, level):
    return {
        "journal": f"{word(rng)}.journal",
        "program": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "operations": ["SET", *rng.sample([o for o in OPERATIONS if o != "SET"], level)],
        "report": rng.choice(list(REPORTS)),
        "when": rng.choice(["commit", "place"]) if level > 1 else "commit",
        "abort": level > 1,
        "savepoint": level > 3 and rng.random() < 0.7,
        "check": rng.choice(list(CHECKS)[1:]) if level > 2 else "",
        "checkpoint": level > 2 and rng.random() < 0.6,
        "size": 12 + 10 * level,
    }


def journal(rng, p):
    """A journal that leaves some keys (should fifty draws leave too few, the last of them)."""
    for _ in range(50):
        text = lines_of(rng, p)
        if len(replayed(text, p)) > 3:
            break
    return text


def lines_of(rng, p):
    lines, last, open_ = [], 0, []
    keys = [f"{a}.{b}" for a in words(rng, 2) for b in words(rng, 3)]
    for _ in range(p.size):
        choice = rng.random()
        if not open_ or choice < 0.15:
            last += rng.randint(1, 3)
            open_.append(str(last))
            lines.append(f"{last} BEGIN")
        elif choice < 0.3:
            lines.append(
                f"{open_.pop(rng.randrange(len(open_)))} {rng.choice(['COMMIT', 'COMMIT', 'ABORT']) if p.abort else 'COMMIT'}"
            )
        elif p.savepoint and choice < 0.4:
            lines.append(f"{rng.choice(open_)} {rng.choice(['MARK', 'BACK'])}")
        elif p.checkpoint and choice < 0.45:
            lines.append("0 EMPTY")
        else:
            name, key = rng.choice(p.operations), rng.choice(keys)
            rest = {"SET": rng.choice([word(rng), str(rng.randint(1, 9))]), "ADD": str(rng.randint(-5, 9)), "APPEND": word(rng),
                    "MOVE": rng.choice([k for k in keys if k != key]), "SWAP": rng.choice([k for k in keys if k != key])}  # fmt: skip
            key = key[: rng.choice([4, 99])] if name == "DROP" else key
            lines.append(" ".join([rng.choice(open_), name, key, *[rest[name] for _ in range(name in rest)]]))
    for number in open_[: len(open_) // 2 + 1]:
        lines.append(f"{number} COMMIT")
    lines = [line + CHECKS[p.check][1](line) for line in lines]
    if p.check:  # a line that was torn, and old ones behind it
        torn = rng.randrange(len(lines) * 2 // 3, len(lines))
        lines[torn] = lines[torn][:3] + lines[torn][5:]
    return "\n".join(lines) + "\n"


def replayed(text, p):
    """The report's lines: transactions are lists of places of operations, done at the end in their order."""
    todo, marks, done, when, floor = {}, {}, {}, [], -1
    for place, line in enumerate(text.splitlines()):
        if p.check:
            line, _, total = line.rpartition(" #")
            if CHECKS[p.check][1](line) != f" #{total}":
                break
        number, name, *rest = line.split(" ")
        if name == "EMPTY":
            floor = place
            when = [entry for entry in when if p.when == "place" and entry[0] > floor]
        elif name == "BEGIN":
            todo[number], marks[number], done[number] = [], 0, False
        elif name == "MARK":
            marks[number] = len(todo[number])
        elif name == "BACK":
            todo[number] = todo[number][: marks[number]]
        elif name == "COMMIT":
            done[number] = True
            when += [(place if p.when == "commit" else start, start, what) for start, what in todo[number]]
        elif name != "ABORT":
            todo[number].append((place, [name, *rest]))
    state = {}
    for moment, _, (name, key, *rest) in sorted(when):
        if moment > floor:
            state = OPERATIONS[name][2](state, key, rest)
    return REPORTS[p.report][1](state, done)


def files(rng, p):
    return {p.journal: journal(rng, p)}


def instruction(p):
    operations = "\n".join(f"- {OPERATIONS[name][0]}" for name in p.operations)
    abort = ", or with `N ABORT`, which makes it as if it had never been" if p.abort else ""
    when = (
        "all its operations take effect together, in their order, at the place of its COMMIT"
        if p.when == "commit"
        else "each of its operations takes effect at the operation's own place in the journal, between those of other transactions"
    )
    text = (
        f"Each line begins with the number N of a transaction. It starts with `N BEGIN` and ends with `N COMMIT`{abort}. "
        f"Transactions run at the same time, so that their lines are mixed. What was not committed has no effect; if it was, {when}."
    )
    if p.savepoint:
        text += " `N MARK` sets the mark of a transaction, and `N BACK` undoes its operations since the mark was last set (since BEGIN, if it was not)."
    if p.checkpoint:
        text += " At a line `0 EMPTY`, all keys are removed; what takes effect later stays."
    if p.check:
        text += f" {CHECKS[p.check][0]}"
    text += f" Keys and values have no spaces. The store was empty at first, and these are the operations, each behind the N of its transaction:\n{operations}\n\n"
    shape = f"It prints {p.report}, each on a line of its own."
    return [
        f"A key-value store has crashed and left its journal, /app/{p.journal}. {text}Write the Python program "
        f"/app/{p.program}, which takes the path of a journal and rebuilds the store. {shape} Save what it prints for "
        f"{p.journal} as /app/{p.out}. It will be used on other journals.",
        f"Recover the contents of a store from /app/{p.journal}. {text}Do it with a program that works for any journal of "
        f"this kind, `python3 /app/{p.program} JOURNAL`. {shape} The output for {p.journal} must be in /app/{p.out}.",
        f"The only thing left of a store is the journal /app/{p.journal}. {text}Please write /app/{p.program} (Python; its "
        f"argument is a journal) to replay it. {shape} Put the result for our journal into /app/{p.out}; we have more of them.",
    ]


def program(p):
    lines = ["import sys", "s, lines, begun, kept = {}, [], set(), set()"]
    if "ADD" in p.operations:
        lines += ["def num(v):", "    try: return int(v)", "    except (TypeError, ValueError): return 0"]
    lines += ["def apply(name, k, *v):"]
    for word_, name in zip(["if", *["elif"] * 9], p.operations, strict=False):
        lines += [f"    {word_} name == {name!r}:", f"        {OPERATIONS[name][1]}"]
    lines += ["for line in open(sys.argv[1]):", "    line = line.rstrip('\\n')"]
    if p.check:
        total = "len(line)" if p.check == "length" else "sum(line.encode()) % 97"
        lines += ["    line, _, total = line.rpartition(' #')", f"    if total != str({total}): break"]
    lines += ["    lines.append(line.split())"]
    if p.when == "commit":
        lines += ["logs, marks = {}, {}", "for n, name, *rest in lines:"]
        lines += ["    if name == 'EMPTY': s.clear(); continue"] if p.checkpoint else []
        lines += ["    if name == 'BEGIN': logs[n], marks[n] = [], 0; begun.add(n)"]
        lines += [
            "    elif name == 'COMMIT':",
            "        kept.add(n)",
            "        for op in logs[n]: apply(*op)",
        ]
        lines += ["    elif name == 'ABORT': pass"] if p.abort else []
        lines += (
            [
                "    elif name == 'MARK': marks[n] = len(logs[n])",
                "    elif name == 'BACK': del logs[n][marks[n]:]",
            ]
            if p.savepoint
            else []
        )
        lines += ["    else: logs[n].append([name, *rest])"]
    else:
        lines += [
            "begun = {l[0] for l in lines if l[1] == 'BEGIN'}",
            "kept = {l[0] for l in lines if l[1] == 'COMMIT'}",
        ]
        if p.savepoint:
            lines += ["logs, marks, gone = {}, {}, set()", "for i, (n, name, *_) in enumerate(lines):", "    log = logs.setdefault(n, [])",
                      "    if name == 'MARK': marks[n] = len(log)", "    elif name == 'BACK':", "        gone.update(log[marks.get(n, 0):])", "        del log[marks.get(n, 0):]",
                      "    else: log.append(i)"]  # fmt: skip
        lines += ["for i, (n, name, *rest) in enumerate(lines):"]
        lines += ["    if name == 'EMPTY': s.clear()"] if p.checkpoint else []
        lines += [
            f"    if n in kept and name in {p.operations!r}{' and i not in gone' if p.savepoint else ''}: apply(name, *rest)"
        ]
    return "\n".join([*lines, REPORTS[p.report][0]])


def solution(p):
    return [
        f"head {p.journal}",
        put(p.program, program(p)),
        f"python3 {p.program} {p.journal} > {p.out}; cat {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo \"print(open('/app/{p.out}').read())\" > {p.program}"]


def replays(text, p):
    assert output("python3", at(p.program), scratch({"next": text}) + "/next") == "\n".join(replayed(text, p))


def test_report(p):
    assert read(p.out) == "\n".join(replayed(journal(given(p), p), p)) and read(p.program)


def test_hidden_journals(p):
    rng = hidden(p)
    for _ in range(4):
        replays(journal(rng, p), p)


def test_hidden_short_journal(p):
    """Cut in the middle: open transactions are left."""
    lines = journal(hidden(p), p).splitlines(keepends=True)
    replays("".join(lines[: len(lines) // 2]), p)
