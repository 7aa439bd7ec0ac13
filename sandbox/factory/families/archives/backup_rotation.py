"""Backups by a script that packs a folder, leaves out what rules say, and keeps only the newest.

Hard: paths in the archive, exclusions that do not catch too much, and a list that is right after every run.
"""

import os

from sandbox.factory.kit import APP, at, given, hidden, put, raw, run, scratch, word, words

SKILLS = ("tar", "gzip", "find", "sha256sum", "shell scripts")

# What to leave out: how people say it -> find's test, Python's of path and content.
OUT = {
    "files whose name ends in .tmp": ("-name '*.tmp'", lambda path, text: path.endswith(".tmp")),
    "files below a folder named cache": ("-path '*/cache/*'", lambda path, text: "cache/" in path),
    "files whose name begins with a dot": (
        "-name '.*'",
        lambda path, text: path.rpartition("/")[2][0] == ".",
    ),
    "empty files": ("-empty", lambda path, text: not text),
    "files of more than 400 bytes": ("-size +400c", lambda path, text: len(text) > 400),
    "files named in upper case (letters and the dot only)": (
        "-regex '.*/[A-Z.]+'",
        lambda path, text: path.rpartition("/")[2].isupper(),
    ),
}
FORMATS = {"tar.gz": "z", "tar": ""}
LISTS = {
    "": "",
    "SHA256SUMS with the checksums of all the archives in TO, as sha256sum prints them, in byte order of their names": "sha256sum *.{end} > SHA256SUMS",
    "INDEX with a line `ARCHIVE COUNT` for each archive in TO, in byte order, with the number of files in it": (
        'for a in *.{end}; do echo "$a $(tar -t{z}f $a | wc -l)"; done > INDEX'
    ),
    "NEWEST with the name of the newest archive in TO": "ls *.{end} | tail -n 1 > NEWEST",
}


def draw(rng, level):
    return {
        "source": f"{word(rng)}-data",
        "target": f"{word(rng)}-backup",
        "script": f"{word(rng)}.sh",
        "name": word(rng),
        "format": rng.choice(list(FORMATS)),
        "out": rng.sample(list(OUT), (level + 1) // 2 + (level > 3))
        if level > 1 or rng.random() < 0.7
        else [],
        "list": rng.choice(list(LISTS)[1:]) if level > 1 else rng.choice(list(LISTS)),
        "keep": rng.randint(2, 4) if level > 2 or rng.random() < 0.5 else 0,
        "inside": rng.choice(["", "the name of FROM, as in {source}/PATH"]),
        "stamp": f"2025-{rng.randint(10, 12)}-{rng.randint(10, 28)}",
        "twice": level > 3,
        "count": 6 + 3 * level,
    }


def files(rng, p):
    return {f"{p.source}/{path}": text for path, text in data(rng, p).items()}


def data(rng, p):
    found = {}
    for noun in words(rng, p.count):
        folder = rng.choice(["", "", "docs/", "cache/", "docs/cache/", "my files/"])
        name = rng.choice([noun, f".{noun}", noun.upper()]) + rng.choice([".tmp", ".txt", ".TXT", ""])
        found[folder + name] = rng.choice(["", f"{noun}\n", f"{noun}\n" * 90])
    return found


def packed(before, p):
    return {
        path: text for path, text in before.items() if not any(OUT[kind][1](path, text) for kind in p.out)
    }


def archives(stamps, p):
    return [f"{p.name}-{stamp}.{p.format}" for stamp in sorted(stamps)][-p.keep if p.keep else 0 :]


def instruction(p):
    inside = p.inside.format(source=p.source) if p.inside else "the path within FROM, without ./ before it"
    rules = [
        f"- the archive TO/{p.name}-STAMP.{p.format} holds the regular files of FROM, each under {inside}; "
        "it has no entries for folders"
    ]
    if p.out:
        rules.append(f"- it leaves out {', '.join(p.out)}")
    if p.keep:
        rules.append(
            f"- of the archives in TO, only the {p.keep} with the latest stamps stay, the new one counted"
        )
    if p.list:
        rules.append(f"- after that, TO has the file {p.list}")
    if p.twice:
        rules.append(
            "- when the archive for STAMP is there already, the script changes nothing at all and exits "
            "with 1"
        )
    listed = "\n".join(rules)
    now = f"FROM /app/{p.source}, TO /app/{p.target} and the stamp {p.stamp}"
    return [
        f"Write /app/{p.script}, a bash script for backups: `bash {p.script} FROM TO STAMP`, where STAMP "
        f"is a date such as 2025-01-31. TO is made if it is not there.\n{listed}\n\nThen make a backup "
        f"with {now}.",
        f"We want to back up folders every night. The bash script /app/{p.script} gets a folder FROM, a "
        f"folder TO (which may not exist yet) and a date as STAMP (2025-01-31):\n{listed}\n\nPlease write "
        f"it, and run it once, with {now}.",
        f"Please make a backup script in bash, /app/{p.script}; its arguments are FROM, TO and STAMP (a "
        f"date like 2025-01-31), and it makes TO where needed.\n{listed}\n\nUse it with {now}; it will "
        "run for other folders, too.",
    ]


def program(p):
    tests = " ".join(f"! \\( {OUT[kind][0]} \\)" for kind in p.out)
    z, archive = FORMATS[p.format], f"{p.name}-$3.{p.format}"
    base = '$(dirname "$1")" && find "$(basename "$1")"' if p.inside else '$1" && find .'
    strip = "%p\\0" if p.inside else "%P\\0"
    lines = [
        "#!/bin/bash",
        'mkdir -p "$2"',
        'to=$(cd "$2" && pwd)',
        *([f'[ ! -e "$to/{archive}" ] || exit 1'] if p.twice else []),
    ]
    lines.append(f'(cd "{base} -type f {tests} -printf \'{strip}\' | tar -c{z}f "$to/{archive}" --null -T -)')
    lines.append('cd "$to"')
    if p.keep:
        lines.append(f"ls {p.name}-*.{p.format} | sort | head -n -{p.keep} | xargs -r rm")
    if p.list:
        lines.append(LISTS[p.list].replace("{end}", p.format).replace("{z}", z))
    return "\n".join(lines)


def solution(p):
    call = f"bash {p.script} /app/{p.source} /app/{p.target} {p.stamp}"
    return [f"find {p.source} -type f", put(p.script, program(p)), call, f"ls -la {p.target}"]


def lazy(p):
    return [*solution(p), put(p.script, f'mkdir -p "$2"; cp /app/{p.target}/* "$2"')]


def content(path):
    import tarfile

    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert all(member.isfile() for member in members)
        return {member.name: tar.extractfile(member).read().decode() for member in members}


def holds(archive, before, source, p):
    top = f"{source}/" if p.inside else ""
    return content(archive) == {top + path: text for path, text in packed(before, p).items()}


def listing_is_right(folder, stamps, size, p):
    import hashlib

    names = archives(stamps, p)
    kind = p.list[:3]
    assert sorted(name for name in os.listdir(folder) if name.endswith(p.format)) == names
    if kind == "SHA":
        sums = [hashlib.sha256(raw(f"{folder}/{name}")).hexdigest() for name in names]
        return open(f"{folder}/SHA256SUMS").read().split("\n")[:-1] == [
            f"{s}  {n}" for s, n in zip(sums, names, strict=True)
        ]
    wanted = {"IND": [f"{name} {size}" for name in names], "NEW": names[-1:]}.get(kind)
    return not wanted or open(f"{folder}/{p.list.split()[0]}").read().split("\n")[:-1] == wanted


def test_archive(p):
    assert holds(at(f"{p.target}/{p.name}-{p.stamp}.{p.format}"), data(given(p), p), p.source, p)


def test_target(p):
    assert listing_is_right(f"{APP}/{p.target}", [p.stamp], len(packed(data(given(p), p), p)), p)


def test_hidden_nights(p):
    rng = hidden(p)
    before = data(rng, p)
    top, stamps = scratch({f"my from/{path}": text for path, text in before.items()}), []
    for day in rng.sample(range(10, 29), 4):
        stamps.append(f"2026-0{rng.randint(1, 9)}-{day}")
        run("bash", at(p.script), f"{top}/my from", f"{top}/to", stamps[-1])
        kept = archives(stamps, p)
        stamps = [stamp for stamp in stamps if f"{p.name}-{stamp}.{p.format}" in kept]
        assert holds(f"{top}/to/{kept[-1]}", before, "my from", p)
        assert listing_is_right(f"{top}/to", stamps, len(packed(before, p)), p)
    if p.twice:
        assert run("bash", at(p.script), f"{top}/my from", f"{top}/to", max(stamps), ok=False).returncode == 1
