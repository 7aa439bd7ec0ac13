"""A Makefile for a pipeline of text files, which must build any sources, and no more than is out of date.

Hard: pattern rules over wildcards, folders that appear on the way, and exact dependencies.
"""

import os
from itertools import chain

from sandbox.factory.kit import APP, given, hidden, put, run, scratch, tidy, word, words

SKILLS = ("make", "pattern rules", "dependencies", "text filters")
BINARIES = ("make",)

STAGES = {
    "sorted": ("its lines sorted in byte order", "LC_ALL=C sort", lambda t: sorted(t)),
    "upper": ("all letters made upper case", "tr a-z A-Z", lambda t: [line.upper() for line in t]),
    "once": (
        "without lines that repeat the one before",
        "uniq",
        lambda t: [a for a, b in zip(t, [None, *t[:-1]], strict=True) if a != b],
    ),
    "short": (
        "without lines of more than 12 characters",
        "grep -xE '.{0,12}' || true",
        lambda t: [a for a in t if len(a) < 13],
    ),
    "first": ("only its first 5 lines", "head -n 5", lambda t: t[:5]),
    "turned": ("its lines in reverse order", "tac", lambda t: t[::-1]),
    "noted": (
        "without lines that begin with #",
        "grep -v '^\\#' || true",
        lambda t: [a for a in t if a[0] != "#"],
    ),
}
BUNDLES = {
    "all the results one after another, in the order of their names": (
        "cat $^",
        lambda r: [*chain(*r.values())],
    ),
    "a line `NAME COUNT` for each source in the order of their names, with the number of lines of its result": (
        'for f in $^; do echo "$$(basename $$f .{last}) $$(wc -l < $$f)"; done',
        lambda r: [f"{name} {len(lines)}" for name, lines in r.items()],
    ),
    "every line that occurs in a result, once, in byte order": (
        "LC_ALL=C sort -u $^",
        lambda r: sorted(set([*chain(*r.values())])),
    ),
}


def draw(rng, level):
    return {
        "sources": f"{word(rng)}-src",
        "build": f"{word(rng)}-out",
        "stages": rng.sample(list(STAGES), min(4, level)),
        "bundle": rng.choice(list(BUNDLES)),
        "name": f"{word(rng)}.txt",
        "clean": rng.choice(["clean", "tidy", "reset"]),
        "count": 2 + level,
    }


def files(rng, p):
    return {f"{p.sources}/{name}.txt": text for name, text in texts(rng, p).items()}


def texts(rng, p):
    pool = [*words(rng, 6), "# a note", "# see below", "Some Longer Line of Text"]
    return {
        name: "".join(f"{rng.choice(pool)}\n" * rng.choice([1, 1, 2]) for _ in range(rng.randint(4, 12)))
        for name in sorted(words(rng, p.count))
    }


def instruction(p):
    stages, before = [], f"{p.sources}/NAME.txt"
    for stage in p.stages:
        stages.append(f"- {p.build}/NAME.{stage}: {before}, {STAGES[stage][0]}")
        before = f"{p.build}/NAME.{stage}"
    listed = "\n".join([*stages, f"- {p.build}/{p.name}: {p.bundle}"])
    rest = (
        f"`make` alone builds {p.build}/{p.name}; `make {p.clean}` removes {p.build}. After a change of "
        "one source, make must build again only what depends on it, and where nothing has changed, "
        f"nothing. No list of sources may stand in the Makefile: every .txt file in {p.sources} is one."
    )
    results = "The results of which it speaks are those of the last step."
    return [
        f"Write /app/Makefile for GNU make. From each source {p.sources}/NAME.txt it makes, in this "
        f"order:\n{listed}\n\n{results} {rest} Then run make.",
        f"The texts in /app/{p.sources} go through a pipeline:\n{listed}\n\n{results} Please write a "
        f"Makefile in /app that does it, and build everything once. {rest}",
        "We need a Makefile in /app (GNU make) so that the following files are made from "
        f"/app/{p.sources}, NAME being that of a source:\n{listed}\n\n{results} {rest} Leave the folder "
        "built.",
    ]


def makefile(p):
    last = p.stages[-1]
    lines = [
        f"NAMES := $(sort $(basename $(notdir $(wildcard {p.sources}/*.txt))))",
        f"{p.build}/{p.name}: $(NAMES:%={p.build}/%.{last})",
        f"\t({BUNDLES[p.bundle][0].replace('{last}', last)}) > $@",
    ]
    before = f"{p.sources}/%.txt"
    for stage in p.stages:
        lines += [f"{p.build}/%.{stage}: {before} | {p.build}", f"\t({STAGES[stage][1]}) < $< > $@"]
        before = f"{p.build}/%.{stage}"
    lines += [
        f"{p.build}:",
        "\tmkdir -p $@",
        f".PHONY: {p.clean}",
        f"{p.clean}:",
        f"\trm -rf {p.build}",
        ".SECONDARY:",
    ]
    return "\n".join(lines)


def solution(p):
    return [f"ls {p.sources}", put("Makefile", makefile(p)), "make", f"head {p.build}/{p.name}"]


def lazy(p):
    return [*solution(p), put("Makefile", f"all:\n\t@true\n{p.clean}:\n\trm -rf {p.build}")]


def results(sources, p):
    """Path -> lines of everything that is built."""
    built, last = {}, {}
    for name, text in sorted(sources.items()):
        lines = text.splitlines()
        for stage in p.stages:
            lines = STAGES[stage][2](lines)
            built[f"{p.build}/{name}.{stage}"] = lines
        last[name] = lines
    return built | {f"{p.build}/{p.name}": BUNDLES[p.bundle][1](last)}


def found(folder, p):
    top = os.path.join(folder, p.build)
    return {f"{p.build}/{name}": tidy(open(os.path.join(top, name)).read()) for name in os.listdir(top)}


def wanted(sources, p):
    return {path: "\n".join(lines) for path, lines in results(sources, p).items()}


def project(rng, p):
    """A folder with the agent's Makefile and new sources, and these."""
    sources = texts(rng, p)
    with open(f"{APP}/Makefile") as file:
        return scratch(
            {"Makefile": file.read()} | {f"{p.sources}/{n}.txt": t for n, t in sources.items()}
        ), sources


def test_built(p):
    assert found(APP, p) == wanted(texts(given(p), p), p)


def test_hidden_sources(p):
    folder, sources = project(hidden(p), p)
    run("make", cwd=folder)
    assert found(folder, p) == wanted(sources, p)


def test_hidden_change_builds_what_depends_on_it(p):
    folder, sources = project(hidden(p), p)
    run("make", cwd=folder)
    name = sorted(sources)[1]
    for path, time in [(f"{p.sources}/{n}.txt", 1e9) for n in sources] + [
        (b, 1.1e9) for b in found(folder, p)
    ]:
        os.utime(f"{folder}/{path}", (time, time))
    run("make", "-q", cwd=folder)
    os.utime(f"{folder}/{p.sources}/{name}.txt", (1.2e9, 1.2e9))
    run("make", cwd=folder)
    again = {path for path in found(folder, p) if os.stat(f"{folder}/{path}").st_mtime != 1.1e9}
    assert again == {f"{p.build}/{p.name}", *(f"{p.build}/{name}.{stage}" for stage in p.stages)}


def test_clean(p):
    folder, _ = project(hidden(p), p)
    run("make", cwd=folder)
    assert os.path.isdir(f"{folder}/{p.build}")
    run("make", p.clean, cwd=folder)
    assert not os.path.exists(f"{folder}/{p.build}")
