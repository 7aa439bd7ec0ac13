"""Questions about a repository's history, each to be answered by a script for any repository.

Hard: what changed is told by pairs of commits, who and when by their heads, and ties must be broken as asked.
"""

import datetime
import zlib

from sandbox.factory.gitkit import history
from sandbox.factory.kit import word, words
from sandbox.factory.scripts import answerable, question_wordings, questions

SKILLS = ("git log", "git diff", "git show", "pipes", "sort")
BINARIES = ("git",)

COUNT = "sort | uniq -c | awk '{ n = $1; sub(/^ *[0-9]+ /, \"\"); print n, $0 }' | LC_ALL=C sort -k1,1nr -k2"
CHANGED = "git log --no-renames --name-only --format="
# A question: how people say it -> git's way, and Python's on the commits, newest first (see `commits`).
QUESTIONS = {
    "lines `COUNT AUTHOR` with the number of commits of each author (by name), largest first, equal ones by name": ("git log --format=%an | " + COUNT, lambda c: counted([x["author"] for x in c])),
    "lines `COUNT FILE`: in how many commits each file was added, changed or deleted, largest first, equal ones by name": (CHANGED + " | sed '/^$/d' | " + COUNT, lambda c: counted([f for x in c for f in x["changed"]])),
    "the subjects of the commits that touch a file below docs/, newest first": ("git log --format=%s -- docs", lambda c: [x["subject"] for x in c if any(f.startswith("docs/") for f in x["changed"])]),
    "the files that were there once and are no longer, in byte order": ("comm -13 <(git ls-tree -r --name-only HEAD | LC_ALL=C sort) <(git log --no-renames --diff-filter=A --name-only --format= | LC_ALL=C sort -u)", lambda c: sorted({f for x in c for f in x["tree"]} - set(c[0]["tree"]))),
    "lines `FILE AUTHOR`: by whom each file that is there now was changed (or added) last, by file in byte order": ("git ls-tree -r --name-only HEAD | LC_ALL=C sort | while read -r f; do echo \"$f $(git log -1 --format=%an -- $f)\"; done", lambda c: [f"{f} {next(x['author'] for x in c if f in x['changed'])}" for f in sorted(c[0]["tree"])]),
    "the subjects of the commits that delete a file, oldest first": ("git log --reverse --no-renames --diff-filter=D --format=%s", lambda c: [x["subject"] for x in c[::-1] if x["deleted"]]),
    "lines `DAY COUNT` with the number of commits on each day (of the author's time, UTC) that has any, earliest first": ("TZ=UTC git log --date=format-local:%Y-%m-%d --format=%ad | sort | uniq -c | awk '{ print $2, $1 }'", lambda c: [f"{d} {[x['day'] for x in c].count(d)}" for d in sorted({x["day"] for x in c})]),
    "the number of commits after the one with the tag release": ("git rev-list --count release..HEAD", lambda c: [str(next(i for i, x in enumerate(c) if x["release"]))]),
    "the files that differ between the tag release and now, in byte order (added and deleted ones too)": ("git diff --no-renames --name-only release HEAD | LC_ALL=C sort", lambda c: differ(next(x["tree"] for x in c if x["release"]), c[0]["tree"])),
    "the longest subject of all (of equally long ones the newest)": ("git log --format=%s | awk 'length($0) > n { n = length($0); s = $0 } END { print s }'", lambda c: [max((x["subject"] for x in c), key=len)]),
    "the subject of the commit that touches most files (of several the newest)": ("git log --no-renames --format=@%s --name-only | awk '/^@/ { if (n > m) { m = n; t = s } s = substr($0, 2); n = 0; next } NF { n++ } END { print (n > m ? s : t) }'", lambda c: [max(c, key=lambda x: len(x["changed"]))["subject"]]),
    "the authors who never touched a file below src/, each once, in byte order": ("comm -23 <(git log --format=%an | LC_ALL=C sort -u) <(git log --format=%an -- src | LC_ALL=C sort -u)", lambda c: sorted({x["author"] for x in c} - {x["author"] for x in c if any(f.startswith("src/") for f in x["changed"])})),
}  # fmt: skip


def counted(found):
    return [
        f"{n} {name}"
        for n, name in sorted(((found.count(name), name) for name in set(found)), key=lambda r: (-r[0], r[1]))
    ]


def differ(old, new):
    return sorted(f for f in old.keys() | new.keys() if old.get(f) != new.get(f))


def draw(rng, level):
    def choose(rng):
        return {"asked": rng.choice(list(QUESTIONS))}

    return answerable(
        rng, 2 + level // 2, choose, make, worked, source=f"{word(rng)}-repo", size=6 + 3 * level
    )


def make(rng, p):
    tree, trees, messages = {"README": "Read me.\n"}, [], []
    for number in range(p.size):
        for _ in range(rng.choice([1, 1, 2, 3])):
            tree = tree | {
                rng.choice(
                    [rng.choice(list(tree)), f"{rng.choice(['src', 'docs', 'test'])}/{word(rng)}.txt"]
                ): f"{number} {word(rng)}\n"
            }
        if number > 2 and rng.random() < 0.3:
            tree = {path: text for path, text in tree.items() if path != rng.choice(list(tree))} or tree
        trees.append(tree)
        messages.append(
            f"{word(rng).title()} {' '.join(words(rng, rng.randint(1, 3)))} {number}\n\nMore of it."
        )
    repository, ids = history(rng, trees, messages)
    repository.refs["tags/release"] = ids[rng.randint(1, p.size - 2)]
    return repository.files(trees[-1])


def commits(made):
    """The commits from main back to the first: author, day, subject, tree, and the files changed and deleted."""

    def body(key):
        return zlib.decompress(made[f".git/objects/{key[:2]}/{key[2:]}"]).partition(b"\0")[2]

    def files_of(key, top=""):
        data, found = body(key), {}
        while data:
            head, _, rest = data.partition(b"\0")
            kind, name = head.decode().split(" ")
            found |= (
                files_of(rest[:20].hex(), f"{top}{name}/")
                if kind == "40000"
                else {top + name: rest[:20].hex()}
            )
            data = rest[20:]
        return found

    key, listed = made[".git/refs/heads/main"].strip(), []
    while key:
        head, _, message = body(key).decode().partition("\n\n")
        fields = dict(reversed([line.split(" ", 1) for line in head.split("\n")]))
        who, time = fields["author"].split(" <")[0], int(fields["author"].split(" ")[-2])
        day = datetime.datetime.fromtimestamp(time, datetime.UTC).strftime("%Y-%m-%d")
        listed.append(
            {
                "author": who,
                "day": day,
                "subject": message.split("\n")[0],
                "tree": files_of(fields["tree"]),
                "release": key == made[".git/refs/tags/release"].strip(),
            }
        )
        key = fields.get("parent")
    for commit, before in zip(listed, [x["tree"] for x in listed[1:]] + [{}], strict=True):
        commit["changed"] = differ(before, commit["tree"])
        commit["deleted"] = before.keys() - commit["tree"].keys()
    return listed


def worked(made, case, p):
    return "\n".join(QUESTIONS[case["asked"]][1](commits(made)))


def instruction(p):
    asked = [f"{case['script']}: {case['asked']}" for case in p.cases]
    rules = "The branch main counts, which is checked out. Names are in byte order wherever they decide."
    opens = (
        "A folder is a git repository with a history that we want to know more about.",
        "We look into the history of git repositories, and have the same questions for each.",
    )
    return question_wordings(p, opens, asked, rules)


def program(case, p):
    return f'#!/bin/bash\ncd "$1"\n{QUESTIONS[case["asked"]][0]}'


files, solution, lazy, test_answer, test_hidden_repositories = questions(make, worked, program, inputs=1)
