"""Tar archives packed anew by rules, by a script that takes any archive and writes another.

Hard: members are chosen, renamed and ordered, and their modes and times are told as well.
"""

import io
from datetime import UTC

from sandbox.factory.kit import at, given, hidden, put, run, scratch, word, words

SKILLS = ("tar", "find", "chmod", "touch", "shell scripts")

# Which members are left out -> find's test (of what is unpacked), Python's of path and content.
OUT = {
    "whose name ends in .tmp": ("-name '*.tmp'", lambda path, text: path.endswith(".tmp")),
    "that are empty": ("-empty", lambda path, text: not text),
    "below a folder named test": ("-path '*/test/*'", lambda path, text: "test/" in path),
    "of more than 60 bytes": ("-size +60c", lambda path, text: len(text) > 60),
    "whose name has an upper case letter": (
        "-name '*[A-Z]*'",
        lambda path, text: path.rpartition("/")[2].lower() != path.rpartition("/")[2],
    ),
}
# What becomes of a path -> sed's expression, Python's.
PATHS = {
    "the first folder of every path is dropped (every member is in one)": (
        "s#^[^/]*/##",
        lambda path: path.partition("/")[2],
    ),
    "every path gets release/ in front": ("s#^#release/#", lambda path: "release/" + path),
    "folders are dropped from the paths, and `-` stands where a / was": (
        "s#/#-#g",
        lambda path: path.replace("/", "-"),
    ),
    "the paths become lower case": ("s/.*/\\L&/", str.lower),
}
MODES = {"0644": "u=rw,go=r", "0600": "u=rw,go=", "0755": "u=rwx,go=rx"}
ORDERS = {
    "in byte order of their paths": "LC_ALL=C sort",
    "in reverse byte order of their paths": "LC_ALL=C sort -r",
}


def draw(rng, level):
    a, b, c = words(rng, 3)
    return {
        "source": f"{a}.tar",
        "target": f"{b}.tar",
        "script": f"{c}.sh",
        "out": rng.sample(list(OUT), (level + 1) // 2),
        "path": rng.choice(list(PATHS)),
        "mode": rng.choice(["", *MODES]) if level > 1 else "",
        "time": f"2025-0{rng.randint(1, 9)}-{rng.randint(10, 28)}"
        if level > 2 and rng.random() < 0.7
        else "",
        "order": rng.choice(list(ORDERS)),
        "sums": level > 2 and rng.random() < 0.6,
        "size": 6 + 3 * level,
    }


def files(rng, p):
    return {p.source: archive(content(rng, p))}


def content(rng, p):
    found = {}
    for noun in words(rng, p.size):
        path = (
            rng.choice(["src/", "src/test/", "docs/", "docs/old/"])
            + rng.choice([noun, noun.title()])
            + rng.choice([".tmp", ".txt", ""])
        )
        found[path] = "".join(word(rng) + "\n" for _ in range(rng.choice([0, 2, 5, 14])))
    return found


def archive(members):
    import tarfile

    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, text in members.items():
            member = tarfile.TarInfo(path)
            member.size, member.mtime, member.mode = len(text), 1_720_000_000, 0o640
            tar.addfile(member, io.BytesIO(text.encode()))
    return file.getvalue()


def packed(before, p):
    """(path, content) of the members in order."""
    kept = {
        PATHS[p.path][1](path): text
        for path, text in before.items()
        if not any(OUT[kind][1](path, text) for kind in p.out)
    }
    if p.sums:
        import hashlib

        lines = (f"{hashlib.sha256(kept[path].encode()).hexdigest()}  {path}\n" for path in sorted(kept))
        kept["SHA256SUMS"] = "".join(lines)
    return sorted(kept.items(), reverse="reverse" in p.order)


def instruction(p):
    rules = [
        f"leaves out the files {', and those '.join(p.out)}",
        p.path,
        f"the members are {p.order}, and there are none for folders",
    ]
    rules += [f"every member has the mode {p.mode}"] * bool(p.mode) + [
        f"every member has the time {p.time} 00:00:00 UTC"
    ] * bool(p.time)
    rules += [
        "a member SHA256SUMS at the top (with a place in the order, like the others) has the checksums of all others, as sha256sum prints them, in byte order of their paths"
    ] * p.sums
    listed = "\n".join(f"- {rule}" for rule in rules)
    return [
        f"Write the bash script /app/{p.script}, to be called as `bash {p.script} IN OUT`: it reads a tar archive IN of regular files and writes the tar archive OUT (neither is compressed), which\n{listed}\n\nPack /app/{p.source} anew as /app/{p.target}. Other archives will follow.",
        f"Archives need to be packed anew before they go out. `bash /app/{p.script} IN OUT` shall make the tar archive OUT of the tar archive IN, plain both, by these rules:\n{listed}\n\nPlease write it and make /app/{p.target} of /app/{p.source}; what is not named stays as it is.",
        f"Please make /app/{p.target} from the tar archive /app/{p.source}, also as plain tar, and put it into a bash script /app/{p.script}, so that `bash {p.script} IN OUT` does it to any archive of files:\n{listed}",
    ]


def solution(p):
    tests = " ".join(f"! \\( {OUT[kind][0]} \\)" for kind in p.out)
    lines = [
        "#!/bin/bash",
        "rm -rf /tmp/old /tmp/new; mkdir /tmp/old /tmp/new",
        'tar -xf "$1" -C /tmp/old',
        "cd /tmp/old",
    ]
    lines += [
        f"find . -type f {tests} -printf '%P\\n' | while read -r f; do",
        f"  to=/tmp/new/$(echo \"$f\" | sed '{PATHS[p.path][0]}')",
    ]
    lines += ['  mkdir -p "$(dirname "$to")"; mv "$f" "$to"', "done", "cd /tmp/new"]
    lines += [
        "find . -type f -printf '%P\\n' | LC_ALL=C sort | xargs -r sha256sum > /tmp/sums; mv /tmp/sums SHA256SUMS"
    ] * p.sums
    options = f" --mode={MODES.get(p.mode)}" * bool(p.mode) + f" --mtime='{p.time} 00:00:00 UTC'" * bool(
        p.time
    )
    lines += [
        f"find . -type f -printf '%P\\n' | {ORDERS[p.order]} > /tmp/list",
        f"tar -cf /tmp/out.tar{options} -T /tmp/list",
        'cd /app; cp /tmp/out.tar "$2"',
    ]
    return [
        f"tar -tvf {p.source} | head",
        put(p.script, "\n".join(lines)),
        f"bash {p.script} /app/{p.source} /app/{p.target}",
        f"tar -tvf {p.target} | head",
    ]


def lazy(p):
    return [*solution(p), put(p.script, f'cp /app/{p.target} "$2"')]


def members(path):
    """(name, content, mode, time) of each member."""
    import tarfile

    with tarfile.open(path) as tar:
        return [
            (m.name, tar.extractfile(m).read().decode() if m.isfile() else "", m.mode, m.mtime) for m in tar
        ]


def is_right(path, before, p):
    found = members(path)
    assert [(name, text) for name, text, _, _ in found] == packed(before, p)
    assert not p.mode or {mode for _, _, mode, _ in found} == {int(p.mode, 8)}
    if p.time:
        from datetime import datetime

        day = datetime.fromisoformat(p.time).replace(tzinfo=UTC)
        assert {time for _, _, _, time in found} == {int(day.timestamp())}


def test_names(p):
    assert [row[0] for row in members(at(p.target))] == [path for path, _ in packed(content(given(p), p), p)]


def test_archive(p):
    is_right(at(p.target), content(given(p), p), p)


def test_hidden_archives(p):
    rng = hidden(p)
    for _ in range(2):
        before = content(rng, p)
        top = scratch({"in.tar": archive(before)})
        run("bash", at(p.script), f"{top}/in.tar", f"{top}/out.tar")
        is_right(f"{top}/out.tar", before, p)
