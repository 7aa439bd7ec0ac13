"""A policy on permissions, put into force on a folder by a script that does it for any folder.

Hard: rules overlap and the last one counts, what was must be reported first, and links must not be followed.
"""

import os

from sandbox.factory.kit import File, Link, at, given, hidden, mode, put, read, run, scratch, word, words

SKILLS = ("chmod", "find", "octal modes", "links")

# A rule: how people say it -> find's tests, and Python's, of path and content.
RULES = {
    "files whose name ends in .sh": ("-name '*.sh'", lambda path, text: path.endswith(".sh")),
    "files whose name ends in .key": ("-name '*.key'", lambda path, text: path.endswith(".key")),
    "files below a folder named public": ("-path '*/public/*'", lambda path, text: "/public/" in f"/{path}"),
    "files that hold the text PRIVATE": (
        "-exec grep -q PRIVATE {} \\;",
        lambda path, text: "PRIVATE" in text,
    ),
    "files whose name begins with a dot": (
        "-name '.*'",
        lambda path, text: path.rpartition("/")[2][0] == ".",
    ),
    "empty files": ("-empty", lambda path, text: not text),
    "files that begin with #!": (
        '-exec sh -c \'head -c 2 "$1" | grep -q "^#!"\' _ {} \\;',
        lambda path, text: text[:2] == "#!",
    ),
    "files without a dot in the name": (
        "! -name '*.*'",
        lambda path, text: "." not in path.rpartition("/")[2],
    ),
}
MODES = {
    "read and write for the owner, nothing for anyone else": 0o600,
    "read and write for the owner, read for the group, nothing for others": 0o640,
    "everything for the owner, read and execute for the group, nothing for others": 0o750,
    "everything for the owner, read and execute for all others": 0o755,
    "read for the owner only": 0o400,
    "everything for the owner, nothing for anyone else": 0o700,
    "read for everyone, write for nobody": 0o444,
}
REPORTS = {"could be written by others": 0o002, "could be executed by others": 0o001}
REST = "read and write for the owner, read for everyone else"


def draw(rng, level):
    kinds = rng.sample(list(RULES), min(6, level + 1))
    return {
        "folder": word(rng),
        "script": f"{word(rng)}.sh",
        "list": f"{word(rng)}.txt",
        "rules": list(zip(kinds, rng.sample(list(MODES), len(kinds)), strict=True)),
        "report": rng.choice(list(REPORTS)),
        "count": 8 + 4 * level,
    }


def files(rng, p):
    found = {f"{p.folder}/{path}": File(text, bits) for path, (text, bits) in site(rng, p).items()}
    return found | {
        f"{p.folder}/latest": Link("../outside.sh"),
        "outside.sh": File("#!/bin/sh\nPRIVATE\n", 0o604),
    }


def site(rng, p):
    """Path -> (text, mode)."""
    found = {}
    for noun in words(rng, p.count):
        folder = rng.choice(["", "public/", "lib/", "lib/public/", "lib/deep/"])
        name = rng.choice(["", "", "."]) + noun + rng.choice([".sh", ".key", ".txt", ""])
        text = rng.choice(["", "#!/bin/sh\n", "plain\n", "PRIVATE\n", "#!/bin/sh\necho PRIVATE\n"])
        found[folder + name] = text, rng.choice([0o644, 0o666, 0o777, 0o600, 0o646, 0o755])
    return found


def policy(before, p):
    """(path -> mode, the report's lines)."""
    after, listed = {}, []
    for path, (text, bits) in before.items():
        after[path] = 0o644
        for kind, name in p.rules:
            if RULES[kind][1](path, text):
                after[path] = MODES[name]
        if bits & REPORTS[p.report]:
            listed.append(f"./{path}")
    return after, sorted(listed)


def instruction(p):
    rules = "\n".join(f"- {kind}: {name}" for kind, name in [("all files", REST), *p.rules])
    report = (
        f"First it prints the files that {p.report} before, as ./PATH within FOLDER, sorted in byte order."
    )
    keep = f"Keep what it prints for {p.folder} in /app/{p.list}."
    rest = f"Folders, and what links point to, stay as they are. {report}"
    return [
        f"Files in /app/{p.folder} have all kinds of permissions. This is the policy; where several lines "
        f"fit, the last one counts:\n{rules}\n\n{rest} Write the bash script /app/{p.script} that puts it "
        f"into force in any folder (`bash {p.script} FOLDER`, folders below it included). Run it on "
        f"{p.folder}. {keep}",
        f"Write /app/{p.script}, a bash script that takes a folder and sets the permissions of all the "
        "files in it and below by this list, of which the last line that fits a file "
        f"counts:\n{rules}\n\n{rest} Then use it on /app/{p.folder}. {keep} It will be used on other "
        "folders as well.",
        f"An audit asks for these permissions in /app/{p.folder}, a later line before an earlier "
        f"one:\n{rules}\n\n{rest} Since the next audit comes, make it a bash script, /app/{p.script}, "
        f"whose argument is the folder. Apply it now. {keep}",
    ]


def program(p):
    rules = [
        f"find . -type f {RULES[kind][0]} -exec chmod {MODES[name]:04o} {{}} +" for kind, name in p.rules
    ]
    report = f"find . -type f -perm -{REPORTS[p.report]:03o} | LC_ALL=C sort"
    return "\n".join(
        ["#!/bin/bash", 'cd "$1" || exit 1', report, "find . -type f -exec chmod 0644 {} +", *rules]
    )


def solution(p):
    run_it = f"bash {p.script} {p.folder} > {p.list}"
    return [f"find {p.folder} -printf '%m %p %l\\n'", put(p.script, program(p)), run_it]


def lazy(p):
    fixed = f"find {p.folder} -type f -printf 'chmod %m %p\\n' > {p.script}"
    return [*solution(p), fixed, f"echo cat /app/{p.list} >> {p.script}"]


def modes(folder):
    return {
        os.path.relpath(os.path.join(top, name), folder): mode(os.path.join(top, name))
        for top, _, names in os.walk(folder)
        for name in names
        if not os.path.islink(os.path.join(top, name))
    }


def test_modes(p):
    assert modes(at(p.folder)) == policy(site(given(p), p), p)[0] and mode("outside.sh") == 0o604


def test_report(p):
    assert read(p.list).split("\n") == policy(site(given(p), p), p)[1]


def test_hidden_folders(p):
    rng = hidden(p)
    for _ in range(2):
        before = site(rng, p)
        top = scratch({path: text for path, (text, _) in before.items()})
        for path, (_, bits) in before.items():
            os.chmod(f"{top}/{path}", bits)
        printed = run("bash", at(p.script), top).stdout.split()
        after, listed = policy(before, p)
        assert modes(top) == after and printed == listed
