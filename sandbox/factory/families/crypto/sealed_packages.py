"""Two scripts around openssl: one seals a file with a passphrase, one opens it again, under exact terms.

Hard: the parameters of the cipher must match to the last option, and a wrong key or a changed file must leave nothing behind.
"""

import os

from sandbox.factory.kit import at, hidden, put, run, scratch, word, words

SKILLS = ("openssl", "bash", "encryption", "exit codes")
BINARIES = ("openssl",)

CIPHERS = ("aes-256-cbc", "aes-128-cbc", "aes-192-cbc", "aes-256-ctr", "aes-128-ctr", "chacha20")
# A term: what is said, the lines of the sealing script before and after it seals, those of the opening one before it opens and after.
TERMS = {
    "sum": ("{seal} also writes OUT.{ext} with the SHA-256 of OUT in hexadecimal (lower case, alone on a line).", "", "openssl dgst -sha256 -r \"$3\" | cut -c 1-64 > \"$3.{ext}\"", "", ""),
    "mac": ("{seal} also writes OUT.{mac} with the HMAC-SHA256 of OUT in hexadecimal (lower case, alone on a line), whose key is the passphrase. {open} refuses a FILE unless FILE.{mac} is there and right: it exits with {bad}.", "",
        'openssl dgst -sha256 -r -hmac "$(cat "$2")" "$3" | cut -c 1-64 > "$3.{mac}"', '[ "$(cat "$1.{mac}" 2> /dev/null)" = "$(openssl dgst -sha256 -r -hmac "$(cat "$2")" "$1" | cut -c 1-64)" ] || exit {bad}', ""),
    "exists": ("Both scripts exit with {taken}, and change nothing, if OUT is already there.", '[ ! -e "$3" ] || exit {taken}', "", '[ ! -e "$3" ] || exit {taken}', ""),
    "mode": ("OUT gets the mode {mode} from both scripts.", "", 'chmod {mode} "$3"', "", 'chmod {mode} "$3"'),
    "empty": ("{seal} exits with {none}, and writes nothing, if FILE is empty or missing.", '[ -s "$1" ] || exit {none}', "", "", ""),
    "log": ("{seal} appends a line with the name of OUT, without folders, to /app/{log}, once it is written.", "", 'basename "$3" >> /app/{log}', "", ""),
    "count": ("{open} prints the number of bytes of OUT, alone on a line.", "", "", "", 'stat -c %s "$3"'),
}  # fmt: skip


def draw(rng, level):
    terms = rng.sample(list(TERMS), min(len(TERMS), level + (level > 1)))
    seal, unseal, log, ext, mac, key, sample, out = words(rng, 8)
    return {
        "seal": f"{seal}.sh", "open": f"{unseal}.sh", "log": f"{log}.log", "ext": ext, "mac": mac, "key": f"{key}.key", "sample": f"{sample}.txt", "out": f"{out}.sealed",
        "cases": [name for name in TERMS if name in terms],
        "cipher": rng.choice(CIPHERS),
        "rounds": rng.choice([1000, 2500, 5000]),
        "digest": rng.choice(["sha256", "sha512", "sha1"]),
        "text": rng.random() < 0.5,
        "zip": level > 2 and rng.random() < 0.6,
        "bad": rng.choice([3, 66]), "taken": rng.choice([4, 17]), "none": rng.choice([5, 65]), "wrong": rng.choice([2, 77]),
        "mode": rng.choice(["600", "400", "640"]),
    }  # fmt: skip


def files(rng, p):
    return {
        p.sample: "".join(f"{word(rng)} {word(rng)}\n" for _ in range(9)),
        p.key: f"{word(rng)}-{rng.randint(100, 999)}\n",
    }


def options(p):
    return f"-{p.cipher} -pbkdf2 -iter {p.rounds} -md {p.digest}" + " -a" * p.text


def instruction(p):
    zipped = " after packing it with gzip" if p.zip else ""
    form = "as base64 text, as openssl writes it" if p.text else "as openssl writes it, with salt, binary"
    text = (
        f"`bash /app/{p.seal} FILE KEYFILE OUT` encrypts FILE with openssl enc into OUT{zipped}: {p.cipher}, the key derived with PBKDF2, {p.rounds} iterations and {p.digest}, {form}. The passphrase is the first line of KEYFILE. "
        f"`bash /app/{p.open} FILE KEYFILE OUT` is the way back. If openssl{' or gzip' * p.zip} cannot restore FILE, it exits with {p.wrong} and there is no OUT. Success is exit code 0. Paths may have spaces."
    )
    terms = "\n".join(f"- {TERMS[name][0].format(**vars(p))}" for name in p.cases)
    return [
        f"Write two bash scripts that seal files and open them. {text}\n\nTerms:\n{terms}\n\nSeal /app/{p.sample} with the key in /app/{p.key} as /app/{p.out}.",
        f"Partners send us sealed files, and expect ours in the same form. {text}\n\nAlso:\n{terms}\n\nPlease write the scripts and use the first one to seal /app/{p.sample} as /app/{p.out}, with /app/{p.key} as KEYFILE.",
        f"We need openssl wrapped in two scripts, for bash. {text}\n\nWhat they must do besides:\n{terms}\n\nThen make /app/{p.out} from /app/{p.sample} and the key file /app/{p.key}.",
    ]


def scripts(p):
    lines = [[part.format(**vars(p)) for part in TERMS[name][1:]] for name in p.cases]
    before, after, check, end = ([line for line in column if line] for column in zip(*lines, strict=True))
    enc = f'openssl enc {options(p)} -pass file:"$2"'
    source = (
        f'gzip -nc "$1" | {enc} -out "$3" 2> /dev/null' if p.zip else f'{enc} -in "$1" -out "$3" 2> /dev/null'
    )
    back = (
        f'{enc} -d -in "$1" 2> /dev/null | gzip -dc > "$tmp" 2> /dev/null'
        if p.zip
        else f'{enc} -d -in "$1" -out "$tmp" 2> /dev/null'
    )
    first = sorted(before, key=lambda line: "! -e" in line)
    seal = ["#!/bin/bash", *first, source, *after, "exit 0"]
    unseal = [
        "#!/bin/bash",
        "set -o pipefail",
        *sorted(check, key=lambda line: "mac" not in line and "hmac" in line),
        "tmp=$(mktemp)",
        "trap 'rm -f \"$tmp\"' EXIT",
        f"{back} || exit {p.wrong}",
        'cp "$tmp" "$3"',
        *end,
        "exit 0",
    ]
    return "\n".join(seal), "\n".join(unseal)


def solution(p):
    seal, unseal = scripts(p)
    return [
        f"cat {p.key}; openssl version",
        put(p.seal, seal),
        put(p.open, unseal),
        f"bash {p.seal} {p.sample} {p.key} {p.out}",
        f"bash {p.open} {p.out} {p.key} /tmp/again; cmp /tmp/again {p.sample}",
    ]


def lazy(p):
    return [*solution(p), put(p.open, f'cp /app/{p.sample} "$3"')]


RUNS: list = []


def play(p):
    """Seals and opens hidden files once for all tests: the exit codes and what there is after each step."""
    if not RUNS:
        rng = hidden(p)
        text, key = (
            "".join(f"{word(rng)}\n" for _ in range(rng.randint(5, 40))),
            f"{word(rng)} {rng.randint(10, 99)}",
        )
        folder = scratch(
            {"a file.txt": text, "the key": key + "\nsecond line\n", "other": f"{key}x\n", "empty": ""}
        )
        log = at(p.log)
        if os.path.exists(log):
            os.remove(log)

        def call(script, *names):
            return run("bash", at(script), *(f"{folder}/{name}" for name in names), ok=False, cwd="/usr")

        s = {
            "folder": folder,
            "text": text,
            "seal": call(p.seal, "a file.txt", "the key", "out 1").returncode,
        }
        s["sealed"] = load(f"{folder}/out 1")
        unpack = "| gzip -dc" if p.zip else ""
        s["plain"] = run(
            "bash",
            "-c",
            f"openssl enc -d {options(p)} -pass 'pass:{key}' -in 'out 1' {unpack}",
            cwd=folder,
            ok=False,
        ).stdout
        s["mac is"] = run(
            "openssl", "dgst", "-sha256", "-r", "-hmac", key, "out 1", cwd=folder, ok=False
        ).stdout[:64]
        opened = call(p.open, "out 1", "the key", "back 1")
        s["open"], s["said"], s["back"] = opened.returncode, opened.stdout, load(f"{folder}/back 1")
        s["bits"] = [
            oct(os.stat(f"{folder}/{name}").st_mode)[-3:]
            for name in ("out 1", "back 1")
            if os.path.exists(f"{folder}/{name}")
        ]
        s["again"] = (
            [
                call(p.seal, "other", "the key", "out 1").returncode,
                call(p.open, "out 1", "the key", "other").returncode,
            ]
            if "exists" in p.cases
            else []
        )
        s["kept"] = load(f"{folder}/out 1") == s["sealed"] and load(f"{folder}/other") == f"{key}x\n".encode()
        s["empty"] = (
            [call(p.seal, name, "the key", "out 2").returncode for name in ("empty", "missing")]
            if "empty" in p.cases
            else []
        )
        s["wrong"] = call(p.open, "out 1", "other", "back 2").returncode
        s["left"] = [name for name in ("out 2", "back 2", "back 3") if os.path.exists(f"{folder}/{name}")]
        if "mac" in p.cases:
            s["mac"] = (load(f"{folder}/out 1.{p.mac}") or b"").decode().strip()
            with open(f"{folder}/out 1", "ab") as file:
                file.write(b"x")
            s["changed"] = call(p.open, "out 1", "the key", "back 3").returncode
            s["left"] += ["back 3"] * os.path.exists(f"{folder}/back 3")
        RUNS.append(s)
    return RUNS[0]


def load(path):
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


def test_hidden_sealed(p):
    s = play(p)
    assert s["seal"] == 0 and s["plain"] == s["text"]


def test_hidden_opened(p):
    s = play(p)
    assert s["seal"] == s["open"] == 0 and s["back"] == s["text"].encode() and s["plain"] == s["text"]


def test_hidden_wrong_key(p):
    """Most wrong keys are found out by the padding or by gzip; where nothing finds out, any result will do that is not the text."""
    s = play(p)
    assert s["open"] == 0 and s["back"]
    if "mac" in p.cases:
        assert s["wrong"] == p.bad and not s["left"]
    elif p.zip:
        assert s["wrong"] == p.wrong and not s["left"]


def test_hidden_term(p, case):
    import hashlib

    s = play(p)
    assert s["seal"] == 0 and s["sealed"]
    if case == "sum":
        assert (load(f"{s['folder']}/out 1.{p.ext}") or b"").decode().strip() == hashlib.sha256(
            s["sealed"]
        ).hexdigest()
    elif case == "mac":
        assert s["mac"] == s["mac is"] and s["changed"] == p.bad and "back 3" not in s["left"]
    elif case == "exists":
        assert s["again"] == [p.taken, p.taken] and s["kept"]
    elif case == "mode":
        assert s["bits"] == [p.mode] * 2
    elif case == "empty":
        assert s["empty"] == [p.none] * 2 and "out 2" not in s["left"]
    elif case == "log":
        assert (load(at(p.log)) or b"").decode().split("\n")[0] == "out 1"
    elif case == "count":
        assert s["said"].strip() == str(len(s["text"]))


def test_sample(p):
    unpack = "| gzip -dc" if p.zip else ""
    done = run("bash", "-c", f"openssl enc -d {options(p)} -pass file:{p.key} -in {p.out} {unpack}")
    from sandbox.factory.kit import given

    assert done.stdout == files(given(p), p)[p.sample]
