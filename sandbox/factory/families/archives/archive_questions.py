"""Questions about a tar archive, each to be answered by a script for any archive, without a trace left behind.

Hard: an archive has folders and links beside its files, and some answers need what is inside.
"""

import functools
import io

from sandbox.factory.kit import word, words
from sandbox.factory.scripts import answerable, question_wordings, questions

SKILLS = ("tar", "awk", "sort", "pipes")

# Which members: how people say it -> awk's condition on $1 (mode), $3 (size), $6 (path), Python's on a TarInfo.
TESTS = {
    "regular files": ("$1 ~ /^-/", lambda m: m.isfile()),
    "regular files whose name ends in .txt": ("$1 ~ /^-/ && $6 ~ /\\.txt$/", lambda m: m.isfile() and m.name.endswith(".txt")),
    "regular files that anyone may execute (all three x bits)": ("$1 ~ /^-..x..x..x/", lambda m: m.isfile() and m.mode & 0o111 == 0o111),
    "regular files that others than the owner cannot read": ("$1 ~ /^-...-..-/", lambda m: m.isfile() and not m.mode & 0o44),
    "regular files of more than 40 bytes": ("$1 ~ /^-/ && $3 > 40", lambda m: m.isfile() and m.size > 40),
    "empty regular files": ("$1 ~ /^-/ && $3 == 0", lambda m: m.isfile() and not m.size),
    "regular files below the top folder docs": ("$1 ~ /^-/ && $6 ~ /^docs\\//", lambda m: m.isfile() and m.name.startswith("docs/")),
    "regular files at the archive's top": ("$1 ~ /^-/ && $6 !~ /\\//", lambda m: m.isfile() and "/" not in m.name),
    "regular files of the year 2024": ("$1 ~ /^-/ && $4 ~ /^2024/", lambda m: m.isfile() and 1_704_067_200 <= m.mtime < 1_735_689_600),
    "symbolic links": ("$1 ~ /^l/", lambda m: m.issym()),
    "folders": ("$1 ~ /^d/", lambda m: m.isdir()),
}  # fmt: skip
# What is told: -> a pipeline from lines `SIZE PATH`, Python's of (size, path, content) triples.
ANSWERS = {
    "their number": ("wc -l", lambda f: str(len(f))),
    "their paths in byte order": ("cut -d ' ' -f 2 | LC_ALL=C sort", lambda f: "\n".join(sorted(path for _, path, _ in f))),
    "their paths as the archive has them, the last one first": ("cut -d ' ' -f 2 | tac", lambda f: "\n".join(path for _, path, _ in f[::-1])),
    "lines `SIZE PATH` with the size in bytes, largest first, equal ones by path in byte order": ("LC_ALL=C sort -k1,1nr -k2", lambda f: "\n".join(f"{s} {path}" for s, path, _ in sorted(f, key=lambda r: (-r[0], r[1])))),
    "lines `COUNT ENDING` for each different name ending (from the last point of the path on, `none` where it has no point), largest count first, equal ones by ending in byte order": ("cut -d ' ' -f 2 | sed -E 's/.*(\\.[^.]*)$/\\1/; t; s/.*/none/' | LC_ALL=C sort | uniq -c | awk '{ print $1, $2 }' | LC_ALL=C sort -k1,1nr -k2", lambda f: endings([path for _, path, _ in f])),
}  # fmt: skip
INSIDE = {
    "the sum of their sizes in bytes": ("awk '{ n += $1 } END { print n }'", lambda f: str(sum(s for s, _, _ in f))),
    "all their contents, one after the other in the archive's order": ("cut -d ' ' -f 2 > /tmp/l; tar -xOf \"$1\" -T /tmp/l", lambda f: "".join(t for _, _, t in f)),
    "the number of lines of all their contents together": ("cut -d ' ' -f 2 > /tmp/l; tar -xOf \"$1\" -T /tmp/l | wc -l", lambda f: str(sum(t.count("\n") for _, _, t in f))),
    "the different lines of their contents, in byte order": ("cut -d ' ' -f 2 > /tmp/l; tar -xOf \"$1\" -T /tmp/l | LC_ALL=C sort -u", lambda f: "\n".join(sorted({line for _, _, t in f for line in t.splitlines()}))),
}  # fmt: skip


def endings(paths):
    found = [path[path.rindex(".") :] if "." in path else "none" for path in paths]
    return "\n".join(
        f"{n} {e}" for n, e in sorted(((found.count(e), e) for e in set(found)), key=lambda r: (-r[0], r[1]))
    )


def draw(rng, level):
    def choose(rng):
        test = rng.choice(list(TESTS))
        return {
            "test": test,
            "answer": rng.choice(
                [*ANSWERS, *(INSIDE if "regular" in test and "empty" not in test and level > 1 else [])]
            ),
        }

    return answerable(
        rng, 2 + level // 2, choose, make, worked, source=f"{word(rng)}.tar", size=12 + 8 * level
    )


def make(rng, p):
    import tarfile

    file, pool = io.BytesIO(), words(rng, 4)
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in ("docs", "docs/old", "src"):
            member = tarfile.TarInfo(folder)
            member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, 1_720_000_000
            tar.addfile(member)
        for noun in words(rng, p.size):
            member = tarfile.TarInfo(
                rng.choice(["", "", "docs/", "docs/old/", "src/"])
                + noun
                + rng.choice([".txt", ".sh", ".cfg", ""])
            )
            member.mtime, member.mode = (
                rng.choice([1_690_000_000, 1_720_000_000, 1_750_000_000]),
                rng.choice([0o644, 0o755, 0o600, 0o700]),
            )
            text = "".join(rng.choice(pool) + "\n" for _ in range(rng.choice([0, 2, 9, 14]))).encode()
            if rng.random() < 0.15:
                member.type, member.linkname, text = tarfile.SYMTYPE, "docs", b""
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return file.getvalue()


@functools.lru_cache(maxsize=8)
def members(data):
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(m, tar.extractfile(m).read().decode() if m.isfile() else "") for m in tar]


def worked(data, case, p):
    found = [(m.size, m.name, text) for m, text in members(data) if TESTS[case["test"]][1](m)]
    return (ANSWERS | INSIDE)[case["answer"]][1](found) if found else ""


def instruction(p):
    asked = [f"{case['script']}: of the {case['test']}: {case['answer']}" for case in p.cases]
    rules = "Paths are as the archive has them, but folders without a / at the end. No path has a space. Times are in UTC."
    opens = (
        "Tar archives come in, and before they are unpacked we want to know some things.",
        "We must answer questions about tar archives.",
    )
    return question_wordings(p, opens, asked, rules)


def program(case, p):
    answer = (ANSWERS | INSIDE)[case["answer"]][0]
    code = f"""TZ=UTC tar -tvf "$1" | awk '{TESTS[case["test"]][0]} {{ sub(/\\/$/, "", $6); print $3, $6 }}' | {answer}"""
    return f"#!/bin/bash\n{code}"


files, solution, lazy, test_answer, test_hidden_archives = questions(make, worked, program)
