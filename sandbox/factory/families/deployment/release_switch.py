"""A script that installs releases beside each other and switches a link between them, with rollback.

Hard: numbering, clean-up, shared files and refusals must hold for any history, not only for the first release.
"""

import os

from sandbox.factory.kit import hidden, put, raw, run, scratch, tree, word, words

SKILLS = ("bash", "symbolic links", "deployment", "rollback", "exit codes")

# A term: what is said, the solution's lines (in the function install, or else in the place that the key names).
TERMS = {
    "keep": "After an install, only the {keep} releases with the highest numbers are kept, and the current one, should it be another.",
    "shared": "ROOT/shared/{shared} (made empty if it is not there) is reachable from every release as a symbolic link of that name, in the place of a file that the package may have there.",
    "log": "After each install or rollback that succeeds, a line `install N` or `rollback N`, with the number of the release that is current then, is appended to ROOT/{log}.",
    "check": "A package without a file {check}, or with an empty one, is refused: exit code {code}, and nothing under ROOT changes.",
    "same": "A package whose files are all the same as those of the current release (links and the files that this script adds aside) is not installed again: exit code {again}, and nothing changes.",
    "stamp": "Each release gets a file {stamp} with its number.",
    "previous": "A link ROOT/previous points, in the same way, to the release that was current before the current one, after every install or rollback (there is none as long as there was no other before).",
    "private": "Every regular file in a release from the package has the mode {mode}.",
}  # fmt: skip


def draw(rng, level):
    terms = rng.sample(list(TERMS), min(len(TERMS), 1 + level))
    shared, log, check, stamp = words(rng, 4)
    return {
        "script": f"{word(rng)}.sh",
        "sample": word(rng),
        "cases": [name for name in TERMS if name in terms],
        "keep": rng.randint(2, 3),
        "shared": f"{shared}.db",
        "log": f"{log}.log",
        "check": f"{check}.ok",
        "stamp": f"{stamp}.no",
        "code": rng.choice([3, 4, 65]),
        "again": rng.choice([5, 6, 70]),
        "none": rng.choice([1, 9, 75]),
        "mode": rng.choice(["444", "640", "600"]),
        "link": rng.choice(["current", "live", "active"]),
        "back": rng.choice(
            ["the highest number below that of the current one", "the lowest number of all that are kept"]
        ),
        "width": rng.choice([1, 1, 3]),
    }


def package(rng, p, good=True):
    made = {
        f"{word(rng)}.txt": f"{word(rng)}\n",
        f"{word(rng)}/{word(rng)}.txt": f"{word(rng)} {word(rng)}\n",
    }
    if "check" in p.cases:
        made[p.check] = "yes\n" if good else ""
    if "shared" in p.cases and rng.random() < 0.5:
        made[p.shared] = "from the package\n"
    return made


def files(rng, p):
    return {f"{p.sample}/{path}": text for path, text in package(rng, p).items()}


def instruction(p):
    terms = "\n".join(f"- {TERMS[name].format(**vars(p))}" for name in p.cases)
    number = (
        "numbers 1, 2, 3 and so on"
        if p.width == 1
        else "numbers 001, 002, 003 and so on (always three digits)"
    )
    text = (
        f"`bash /app/{p.script} install ROOT PACKAGE` copies the folder PACKAGE to ROOT/releases/N (what is missing of ROOT is made). Releases have the {number}: "
        f"the first is 1, each other one more than the highest that is in ROOT/releases. Then the symbolic link ROOT/{p.link} points to releases/N (relative). "
        f"`bash /app/{p.script} rollback ROOT` lets ROOT/{p.link} point to the release with {p.back} instead, and deletes nothing; if there is no release with a lower number than the current one, it changes nothing and exits with {p.none}. "
        "Otherwise the exit code is 0, unless said below."
    )
    return [
        f"Write the bash script /app/{p.script} for releases. {text} Moreover:\n{terms}\n\nWith it, install /app/{p.sample} under /app/site.",
        f"We deploy by switching links, and need a script for it. {text} These terms hold, too:\n{terms}\n\nPlease write it and install /app/{p.sample} with the root /app/site; we shall try it elsewhere.",
        f"/app/{p.script} (bash) is to install and to take back releases. {text}\n\nFurther:\n{terms}\n\nWhen it works, use it to install the package /app/{p.sample} under the root /app/site.",
    ]


def program(p):
    has = p.cases.__contains__
    number = "n=$(printf %03d $n)\n  " if p.width == 3 else ""
    skip = " ".join(f"-x {name}" for name in [p.shared] * has("shared") + [p.stamp] * has("stamp"))
    before = [f'  [ -s "$package/{p.check}" ] || exit {p.code}'] * has("check")
    before += [
        f'  [ -e {p.link} ] && diff -r {skip} "$package" {p.link}/ > /dev/null && exit {p.again}'
    ] * has("same")
    after = [f"  find releases/$n -type f -exec chmod {p.mode} {{}} +"] * has("private")
    after += [
        f"  mkdir -p shared; [ -e shared/{p.shared} ] || : > shared/{p.shared}",
        f"  rm -rf releases/$n/{p.shared}; ln -s ../../shared/{p.shared} releases/$n/{p.shared}",
    ] * has("shared")
    after += [f"  echo $n > releases/$n/{p.stamp}"] * has("stamp")
    switch = [f"  old=$(readlink {p.link})"] if has("previous") else []
    switch += [f"  ln -sfn releases/$n {p.link}"]
    switch += ['  [ -z "$old" ] || ln -sfn $old previous'] * has("previous")
    switch += [f'  echo "$1 $n" >> {p.log}'] * has("log")
    clean = [
        f"  for r in $(ls releases | sort -n | head -n -{p.keep}); do [ releases/$r = $(readlink {p.link}) ] || rm -rf releases/$r; done"
    ] * has("keep")
    pick = "tail -n 1" if p.back.startswith("the highest") else "head -n 1"
    return "\n".join([
        "#!/bin/bash", "shopt -s nullglob", "switch() {", *switch, "}", 'package=$(realpath "$3" 2> /dev/null)', "if [ $1 = install ]; then",
        '  root=$2; [ -e "$root" ] && cd "$root"', *before, '  mkdir -p "$root/releases" 2> /dev/null; cd "$root"' if not any("exit" in b for b in before) else '  cd /app; mkdir -p "$root/releases"; cd "$root"',
        "  n=$(ls releases | sort -n | tail -n 1); n=$((10#${n:-0} + 1))", f"  {number}cp -r \"$package\" releases/$n", *after, "  switch install $n", *clean,
        "else", '  cd "$2"', f"  now=$(basename $(readlink {p.link}))", f"  n=$(ls releases | sort -n | sed \"/^$now$/,\\$d\" | {pick})",
        f"  [ -n \"$n\" ] || exit {p.none}", "  switch rollback $n", "fi", "exit 0",
    ])  # fmt: skip


def solution(p):
    return [
        f"find {p.sample} -type f",
        put(p.script, program(p)),
        f"bash {p.script} install /app/site /app/{p.sample}",
        "find site | sort; ls -l site",
    ]


def lazy(p):
    """Only ever the first release."""
    return [*solution(p), f"sed -i 's/^  n=.*ls releases.*tail.*/  n={'1'.zfill(p.width)}/' {p.script}"]


class World:
    """What should be under a root: the releases and where the links point."""

    def __init__(self, p):
        self.p, self.releases, self.current, self.previous, self.log = p, {}, 0, 0, []

    def switch(self, verb, number):
        self.previous, self.current = self.current or self.previous, number
        self.log.append(f"{verb} {self.name(number)}")

    def name(self, number):
        return str(number).zfill(self.p.width)

    def install(self, package):
        p, has = self.p, self.p.cases.__contains__
        if has("check") and not package.get(p.check):
            return p.code
        drop = [p.shared] * has("shared")
        kept = {path: text for path, text in package.items() if path not in drop}
        if has("same") and self.current and self.releases[self.current] == kept:
            return p.again
        number = max(self.releases, default=0) + 1
        self.releases[number] = kept
        self.switch("install", number)
        if has("keep"):
            for old in sorted(self.releases)[: -p.keep]:
                if old != self.current:
                    del self.releases[old]
        return 0

    def rollback(self):
        below = [number for number in self.releases if number < self.current]
        if not below:
            return self.p.none
        self.switch("rollback", max(below) if self.p.back.startswith("the highest") else min(below))
        return 0


def state(root, p):
    """What is under a root, in the form of `should`, for each term and the rest."""
    link = os.readlink(f"{root}/{p.link}") if os.path.islink(f"{root}/{p.link}") else ""
    previous = f"{root}/previous"
    found = {
        "current": link,
        "previous": os.readlink(previous) if os.path.islink(previous) else "",
        "names": sorted(os.listdir(f"{root}/releases")) if os.path.isdir(f"{root}/releases") else [],
    }
    for name in found["names"]:
        every = tree(f"{root}/releases/{name}")
        found[name] = {path: data.decode() for path, data in every.items() if path not in (p.stamp, p.shared)}
        found[f"stamp {name}"] = every.get(p.stamp, b"").decode().strip()
        shared = f"{root}/releases/{name}/{p.shared}"
        found[f"shared {name}"] = (
            os.path.islink(shared)
            and os.path.realpath(shared) == f"{os.path.realpath(root)}/shared/{p.shared}"
        )
        found[f"modes {name}"] = {
            oct(os.stat(f"{root}/releases/{name}/{path}").st_mode)[-3:] for path in found[name]
        }
    found["shared"] = os.path.exists(f"{root}/shared/{p.shared}")
    log = f"{root}/{p.log}"
    found["log"] = raw(log).decode().split("\n")[:-1] if os.path.exists(log) else []
    return found


PLAYS: list = []


def plays(p):
    """A history in a new root, played once: (exit code, what it should be, the state, the world's numbers) of each step."""
    if not PLAYS:
        rng, world = hidden(p), World(p)
        root = scratch({"x": ""}) + "/root"
        packages = [package(rng, p) for _ in range(5)]
        bad = package(rng, p, good=False)
        history = [
            packages[0],
            None,
            packages[1],
            packages[1],
            bad,
            packages[2],
            None,
            packages[3],
            None,
            None,
            None,
            None,
            packages[4],
        ]
        for step in history:
            command = ["install", root, scratch(step)] if step is not None else ["rollback", root]
            should = world.install(dict(step)) if step is not None else world.rollback()
            done = run("bash", f"/app/{p.script}", *command, ok=False)
            numbers = (
                sorted(world.releases),
                world.current,
                world.previous,
                list(world.log),
                {n: dict(r) for n, r in world.releases.items()},
            )
            PLAYS.append((done.returncode, should, state(root, p), numbers))
    return PLAYS


def name(p, number):
    return str(number).zfill(p.width)


def test_site(p):
    found = state("/app/site", p)
    assert found["names"] == [name(p, 1)] and found["current"] == f"releases/{name(p, 1)}"
    assert set(tree(p.sample)) - {p.shared} == set(found[name(p, 1)])


def test_hidden_releases_and_link(p):
    for code, should, found, (numbers, current, *_, releases) in plays(p):
        assert code == should and found["current"] == f"releases/{name(p, current)}"
        assert found["names"] == [name(p, n) for n in numbers]
        for n in numbers:
            texts = {path: text for path, text in releases[n].items() if path != p.shared}
            assert found[name(p, n)] == texts


def test_hidden_rollbacks(p):
    assert any(should == p.none for _, should, _, _ in plays(p)[1:])
    for code, should, found, (_, current, *_) in plays(p):
        assert (code == should) and os.path.basename(found["current"]) == name(p, current)


def test_hidden_term(p, case):
    for code, should, found, (numbers, _, previous, log, _) in plays(p):
        names = [name(p, n) for n in numbers]
        if case == "keep":
            assert names == found["names"]
        elif case == "shared":
            assert found["shared"] and names and all(found[f"shared {n}"] for n in names)
        elif case == "log":
            assert found["log"] == log
        elif case in ("check", "same"):
            assert code == should
        elif case == "stamp":
            assert names and all(found[f"stamp {n}"] == n for n in names)
        elif case == "previous":
            assert found["previous"] == (f"releases/{name(p, previous)}" if previous else "")
        elif case == "private":
            assert names and all(found[f"modes {n}"] == {p.mode} for n in names)
