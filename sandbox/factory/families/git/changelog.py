"""A change log from the history of a repository, by a script that must work for any such repository.

Hard: what belongs in it is told by tags, message prefixes and trailers, and merges or reverts must not count.
"""

from sandbox.factory.gitkit import history
from sandbox.factory.kit import at, hidden, output, put, read, scratch, word

SKILLS = ("git log", "git tag", "shell scripts", "text fields")
BINARIES = ("git",)

KINDS = ("feat", "fix", "docs", "perf", "test")
TITLES = {"feat": "Features", "fix": "Fixes", "docs": "Documentation", "perf": "Speed", "test": "Tests"}


def draw(rng, level):
    return {
        "script": f"{word(rng)}.sh",
        "out": f"{word(rng)}.md",
        "kinds": rng.sample(KINDS, min(4, 1 + level)),
        "since": rng.choice(["the beginning", "the tag release"]) if level > 1 else "the beginning",
        "oldest": rng.random() < 0.5,
        "detail": rng.choice(["hash", "author", "day", ""]),
        "scope": level > 2 and rng.random() < 0.7,
        "count": level > 3 and rng.random() < 0.7,
        "breaking": level > 2 and rng.random() < 0.7,
        "commits": 10 + 8 * level,
    }


def files(rng, p):
    return repository(rng, p)


def repository(rng, p):
    tree, trees, messages = {"README": "A program.\n"}, [], []
    for number in range(p.commits):
        tree = tree | {f"src/{word(rng)}.txt": f"{number}\n"}
        kind = rng.choice([*KINDS, "chore", "Merge branch"])
        scope = f"({word(rng)})" if p.scope and rng.random() < 0.5 and kind in KINDS else ""
        mark = "!" if p.breaking and kind in KINDS and rng.random() < 0.25 else ""
        colon = ":" if kind != "Merge branch" else ""
        messages.append(f"{kind}{scope}{mark}{colon} {word(rng)} {word(rng)}\n\nfix: no subject, {number}")
        trees.append(tree)
    made, ids = history(rng, trees, messages)
    made.refs["tags/release"] = ids[rng.randint(3, 5)]
    return made.files(tree)


def format(p):
    return {"hash": "%h %s", "author": "%s (%an)", "day": "%cs %s", "": "%s"}[p.detail]


def program(p):
    """The script: one pass over the log for each kind."""
    reach = "release..HEAD" if p.since == "the tag release" else "HEAD"
    mark = "!?" if p.breaking else ""
    scope = r"(\([a-z]+\))?" if p.scope else ""
    lines = ["#!/bin/bash", 'cd "$1" || exit 1']
    for kind in p.kinds:
        log = f"git log {'--reverse ' * p.oldest}--format='%s%x09{format(p)}' {reach}"
        lines += [
            f"list=$({log} | grep -E '^{kind}{scope}{mark}: ' | cut -f 2 | sed 's/^/- /')",
            f"echo '## {TITLES[kind]}'"
            + (""" "($(printf '%s' "$list" | grep -c ''))\"""" if p.count else ""),
            '[ -z "$list" ] || printf \'%s\\n\' "$list"',
        ]
    return "\n".join(lines)


def instruction(p):
    kinds = ", ".join(f"{kind} ({TITLES[kind]})" for kind in p.kinds)
    scope = " A scope in brackets may follow the kind, as in `fix(core): ...`." if p.scope else ""
    breaking = " A `!` may stand before the colon." if p.breaking else ""
    count = (
        " The number of its commits follows each heading in brackets, as in `## Fixes (2)`."
        if p.count
        else ""
    )
    detail = {
        "hash": "`- `, the abbreviated hash, a space and the subject",
        "author": "`- `, the subject, a space and the author's name in brackets",
        "day": "`- `, the committer date as YYYY-MM-DD, a space and the subject",
        "": "`- ` and the subject",
    }[p.detail]
    order = "oldest" if p.oldest else "newest"
    since = p.since if p.since == "the beginning" else "the tag release (without the tagged commit)"
    rules = (
        f"For each of these kinds, in this order, it has a heading such as `## {TITLES[p.kinds[0]]}`: "
        f"{kinds}. Below it stands a line for each commit since {since} whose subject begins with the kind "
        f"and a colon, {order} first: {detail}.{scope}{breaking}{count} A kind without commits has its "
        "heading only."
    )
    return [
        f"/app is a git repository. Write the bash script /app/{p.script}, which takes the path of a "
        f"repository and prints a change log of its branch. {rules}\n\nSave the change log of /app as "
        f"/app/{p.out}. We will run the script in other repositories.",
        f"We want change logs made from commit messages. `bash /app/{p.script} REPOSITORY` shall print "
        f"one for any repository, for instance the one in /app, whose change log we need in /app/{p.out} "
        f"now. {rules}",
        f"Look at the history of the repository /app and make its change log, /app/{p.out}. "
        f"{rules}\n\nPut the commands into a bash script, /app/{p.script}, that prints the change log of "
        "the repository whose path is its argument; it is for more repositories than this one.",
    ]


def solution(p):
    return [
        "git log --oneline --decorate | head -n 12",
        put(p.script, program(p)),
        f"bash {p.script} /app > /tmp/log && cp /tmp/log {p.out}",
        f"cat {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo 'cat /app/{p.out}' > {p.script}"]


def changelog(folder, p):
    """The reference: all of the log at once, taken apart in Python."""
    reach = ["release..HEAD"] if p.since == "the tag release" else ["HEAD"]
    text = output("git", "-C", folder, "log", f"--format=%s%x09{format(p)}", *reach)
    commits = [line.split("\t") for line in text.splitlines()]
    lines = []
    for kind in p.kinds:
        heads = [kind, kind + "!"] if p.breaking else [kind]
        found = [shown for subject, shown in commits if plain(subject.split(": ")[0], p) in heads]
        lines.append(f"## {TITLES[kind]}" + f" ({len(found)})" * p.count)
        lines += [f"- {shown}" for shown in (reversed(found) if p.oldest else found)]
    return "\n".join(lines)


def plain(head, p):
    start, bracket, rest = head.partition("(")
    return start + rest.partition(")")[2] if p.scope and bracket else head


def test_changelog(p):
    assert read(p.out) == changelog(at("."), p)


def test_script_prints_the_changelog(p):
    assert output("bash", at(p.script), at(".")) == changelog(at("."), p)


def test_hidden_repositories(p):
    rng = hidden(p)
    for _ in range(2):
        folder = scratch(repository(rng, p))
        assert output("bash", at(p.script), folder) == changelog(folder, p)
