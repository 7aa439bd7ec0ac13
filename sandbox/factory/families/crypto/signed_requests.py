"""Which of the logged requests are genuine, by HMAC, in a program that must tell it for any log.

Hard: what is signed must be put together byte by byte as the scheme says, and a right signature may still come too late or twice.
"""

import hashlib
import hmac

from sandbox.factory.kit import PEOPLE, given, words
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

SKILLS = ("HMAC", "hashes", "Python", "hex and base64")

REPORTS = {
    "verdicts": ("`ok`, `bad`, `late` or `again` for each request, in order", "said", lambda f: f),
    "good": ("how many requests are ok", "said.count('ok')", lambda f: sum(v == "ok" for v in f)),
    "lines": ("the numbers of the request lines, the first one being 1, that are bad", "[i + 1 for i, v in enumerate(said) if v == 'bad']", lambda f: [n for n, v in enumerate(f, 1) if v == "bad"]),
    "runs": ("the longest run of requests in a row that are ok", "max(map(len, ''.join('x' if v == 'ok' else ' ' for v in said).split(' ')))", lambda f: longest(f)),
    "replays": ("how many requests are `again`", "said.count('again')", lambda f: f.count("again")),
    "delays": ("the numbers of the request lines, the first one being 1, that are late", "[i + 1 for i, v in enumerate(said) if v == 'late']", lambda f: [n for n, v in enumerate(f, 1) if v == "late"]),
    "first": ("the number of the first request line that is not ok, the first one being 1; `-` if all are", "next((i + 1 for i, v in enumerate(said) if v != 'ok'), '-')", lambda f: min([n for n, v in enumerate(f, 1) if v != "ok"], default="-")),
}  # fmt: skip
PARTS = {"time": "t", "user": "u", "method": "m", "path": "q", "body": "b"}
CHANGES = {
    "in upper case": (".upper()", str.upper),
    "in lower case": (".lower()", str.lower),
    "reversed": ("[::-1]", lambda s: s[::-1]),
    "as the hexadecimal SHA-256 of it": (None, lambda s: hashlib.sha256(s.encode()).hexdigest()),
}


def draw(rng, level):
    parts = rng.sample(list(PARTS), min(5, 2 + level))
    changed = rng.sample(parts, min(len(parts), level // 2 + (level == 1 and rng.random() < 0.5)))
    return {
        **names(rng, "log"),
        "parts": parts,
        "changes": {part: rng.choice(list(CHANGES)) for part in changed},
        "joint": rng.choice([":", "|", "\n", "", "&"]),
        "hash": rng.choice(["sha256", "sha1", "sha512"]),
        "form": rng.choice(["hex", "base64", "hex10"]),
        "late": rng.choice([30, 60]) if level > 2 else 0,
        "again": rng.choice(["signature", "user and path"]) if level > 3 else "",
        "cases": some(
            rng,
            [r for r in REPORTS if (r != "replays" or level > 3) and (r != "delays" or level > 2)],
            2 + level // 2,
        ),
        "size": 8 + 2 * level,
    }


def message(request, p):
    parts = [CHANGES[p.changes[n]][1](request[n]) if n in p.changes else request[n] for n in p.parts]
    return p.joint.join(parts).encode()


def signature(key, text, p):
    import base64

    digest = hmac.new(key.encode(), text, p.hash)
    return {
        "hex": digest.hexdigest(),
        "hex10": digest.hexdigest()[:10],
        "base64": base64.b64encode(digest.digest()).decode(),
    }[p.form]


def data(rng, p):
    users, rows, now, seen = words(rng, 3, PEOPLE), [], rng.randint(1000, 5000), []
    keys = {user: rng.randbytes(6).hex() for user in users}
    for _ in range(p.size):
        now += rng.randint(1, 20)
        user = rng.choice(users)
        r = {
            "time": str(now),
            "user": user.capitalize(),
            "method": rng.choice(["get", "PUT", "Post"]),
            "path": "/" + "/".join(words(rng, 2)),
            "body": " ".join(words(rng, 2)).title(),
        }
        sign = signature(keys[user], message(r, p), p)
        kind = rng.random()
        if kind < 0.15:
            part = rng.choice(p.parts)
            r[part] += " " if part == "body" and rng.random() < 0.5 else "x"
            r["time"] = str(now)
            sign = sign if kind < 0.07 else sign[::-1]
        elif kind < 0.22:
            sign = signature(keys[users[0]] + "0", message(r, p), p)
        seen.append((user, [r["user"], r["method"], r["path"], r["time"], sign, r["body"]]))
        if p.again and kind > 0.8:
            seen.append(rng.choice(seen))
        user, row = seen[-1]
        shift = rng.choice([0, p.late, p.late, p.late + 1, 3]) if p.late and rng.random() < 0.5 else 2
        rows.append(f"{now + shift} {' '.join(row)}\n")
    return "".join(f"key {u.capitalize()} {k}\n" for u, k in keys.items()) + "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    keys, said, seen = {}, [], set()
    for row in text.splitlines():
        if row.startswith("key "):
            _, user, key = row.split()
            keys[user] = key
            continue
        came, user, method, path, time, sign, body = row.split(" ", 6)
        r = {"time": time, "user": user, "method": method, "path": path, "body": body}
        mark = sign if p.again == "signature" else (user, path)
        if signature(keys.get(user, ""), message(r, p), p) != sign:
            said.append("bad")
        elif p.late and int(came) - int(time) > p.late:
            said.append("late")
        elif p.again and mark in seen:
            said.append("again")
        else:
            seen.add(mark)
            said.append("ok")
    return said


def longest(f):
    best = here = 0
    for v in f:
        here = here + 1 if v == "ok" else 0
        best = max(best, here)
    return best


def instruction(p):
    about = "The file has lines `key USER KEY` and after them requests, `CAME USER METHOD PATH TIME SIGNATURE BODY`, where only the body, which lasts to the end of the line, may have spaces (also at its end)."
    joint = {"\n": "a newline", "": "nothing", ":": "a colon", "|": "a | sign", "&": "an & sign"}[p.joint]
    parts = ", ".join(n + (f" ({p.changes[n]})" if n in p.changes else "") for n in p.parts)
    form = {
        "hex": "in hexadecimal, lower case",
        "hex10": "in hexadecimal, lower case, the first 10 digits of it",
        "base64": "in base64",
    }[p.form]
    rules = [
        f"A signature is the HMAC-{p.hash.upper()}, {form}, with the user's key (its text as it stands, in UTF-8) of these parts with {joint} between them: {parts}. "
        "A request with another signature, or of a user without a key, is bad."
    ]
    if p.late:
        rules.append(f"One that is not bad is late if it came more than {p.late} after its time.")
    if p.again:
        same = "the same signature" if p.again == "signature" else "the same user and path"
        rules.append(f"One that is neither bad nor late is `again` if an earlier request with {same} was ok.")
    rules.append("All others are ok.")
    return asks(p, about, rules, REPORTS)


def source(p):
    parts = []
    for name in p.parts:
        change = CHANGES[p.changes[name]][0] if name in p.changes else ""
        parts.append(
            f"hashlib.sha256({PARTS[name]}.encode()).hexdigest()" if change is None else PARTS[name] + change
        )
    form = {"hex": "d.hex()", "hex10": "d.hex()[:10]", "base64": "base64.b64encode(d).decode()"}[p.form]
    late = f"    elif int(came) > int(t) + {p.late}: said.append('late')\n" if p.late else ""
    mark = "sign" if p.again == "signature" else "(u, q)"
    again = f"    elif {mark} in seen: said.append('again')\n" if p.again else ""
    keep = f"\n        seen.append({mark})" if p.again else ""
    head = f"""import base64, hashlib, hmac, sys
keys, said, seen = {{}}, [], []
for line in open(sys.argv[1]):
    if line.startswith("key "):
        keys[line.split()[1]] = line.split()[2]
        continue
    came, u, m, q, t, sign, b = line.rstrip("\\n").split(" ", 6)
    d = hmac.new(keys.get(u, "?").encode(), {p.joint!r}.join([{", ".join(parts)}]).encode(), "{p.hash}").digest()
    if {form} != sign or u not in keys: said.append("bad")
{late}{again}    else:
        said.append("ok"){keep}"""
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
