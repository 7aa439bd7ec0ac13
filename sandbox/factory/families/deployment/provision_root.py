"""A script that brings a folder into a described state, whatever was there before, and changes nothing when run again.

Hard: up to sixteen items of ten kinds, each of which must be made, mended or left alone, in any folder.
"""

import os

from sandbox.factory.kit import File, Link, hidden, put, raw, run, word, words

SKILLS = ("bash", "idempotence", "permissions", "sed", "configuration")

# A kind of item: what is said, the command (in ROOT) that sees to it, what makes ROOT before, and what must hold after.
KINDS = {
    "folder": ("the folder {a} with mode {mode}", "mkdir -p {a}; chmod {mode} {a}"),
    "line": ("{a}.txt has the line `{b} {c}`, once at least: it is added at the end if there is none", "mkdir -p $(dirname {a}); touch {a}.txt; grep -qx '{b} {c}' {a}.txt || echo '{b} {c}' >> {a}.txt"),
    "only": ("{a}.txt has exactly one line, `{b} {c}`", "mkdir -p $(dirname {a}); [ \"$(cat {a}.txt 2> /dev/null)\" = '{b} {c}' ] || echo '{b} {c}' > {a}.txt"),
    "setting": ("in {a}.conf, the line that begins with `{b}=` is `{b}={c}`: it is changed in its place, or added at the end if there is none; all other lines stay", "touch {a}.conf; if grep -q '^{b}=' {a}.conf; then sed -i 's/^{b}=.*/{b}={c}/' {a}.conf; else echo '{b}={c}' >> {a}.conf; fi"),
    "link": ("{a} is a symbolic link to {b}; if there is something else, even a folder, it is replaced", "[ \"$(readlink {a})\" = {b} ] || {{ rm -rf {a}; ln -s {b} {a}; }}"),
    "gone": ("there is no file whose name ends in .{b} directly in ROOT or anywhere below; folders stay, whatever their names", "find . -type f -name '*.{b}' -delete"),
    "mode": ("every file whose name ends in .{b}, in ROOT and below, has the mode {mode}", "find . -type f -name '*.{b}' -exec chmod {mode} {{}} +"),
    "moved": ("{a}.old, if it is there, has become {a}.new, which takes the place of what may have had that name", "[ ! -e {a}.old ] || mv {a}.old {a}.new"),
    "backup": ("{a}.bak has what {a}.txt had when the script was first run (no {a}.txt: no {a}.bak), and is never changed later", "[ -e {a}.bak ] || [ ! -e {a}.txt ] || cp {a}.txt {a}.bak"),
    "off": ("in {a}.list, each line `{b}`, alone on the line, has become `#{b}`", "[ ! -e {a}.list ] || sed -i 's/^{b}$/#{b}/' {a}.list"),
}  # fmt: skip


def draw(rng, level):
    kinds = rng.sample(list(KINDS), min(10, 2 + level)) + rng.choices(list(KINDS), k=max(0, 3 * level - 9))
    pool = words(rng, 3 * len(kinds) + 2)
    items = []
    for kind in kinds:
        a, b, c = pool.pop(), pool.pop(), pool.pop()
        deep = f"{pool[0]}/{a}" if kind in ("folder", "line", "only") and rng.random() < 0.4 else a
        items.append(
            {"kind": kind, "a": deep, "b": b, "c": c, "mode": rng.choice(["700", "750", "600", "640", "755"])}
        )
    return {"script": f"{word(rng)}.sh", "root": word(rng), "cases": items}


def before(rng, p):
    """What is in a root at first: of each item nothing, something wrong, or what should be."""
    made = {f"{word(rng)}.keep": "as it is\n"}
    for item in p.cases:
        a, b, c, kind = (item[key] for key in ("a", "b", "c", "kind"))
        choice = rng.choice(["none", "wrong", "wrong", "right"])
        if kind in ("gone", "mode"):
            made |= {
                f"{word(rng)}.{b}": File("x\n", mode=0o644),
                f"{word(rng)}/{word(rng)}.{b}": File("y\n", mode=0o604),
            }
        elif kind == "backup":
            made |= {f"{a}.txt": f"{word(rng)}\n"} if choice != "none" else {}
        elif choice == "none":
            continue
        elif kind == "folder":
            made[f"{a}/{word(rng)}.txt"] = "kept\n"
        elif kind == "link":
            made[a] = Link(b) if choice == "right" else rng.choice([Link(c), "a file\n"])
        elif kind == "moved":
            made |= {f"{a}.old": f"{word(rng)}\n", **({f"{a}.new": "stale\n"} if choice == "right" else {})}
        elif kind == "off":
            made[f"{a}.list"] = f"{c}\n{b}\n{b} {c}\n#{c}\n{b if choice == 'wrong' else c}\n"
        elif kind == "setting":
            made[f"{a}.conf"] = (
                f"# {b}=1\n{c}=2\n" + {"wrong": f"{b}=old value\nz{b}=3\n", "right": ""}[choice]
            )
        else:
            made[f"{a}.txt"] = f"{b} {c}{'' if choice == 'right' else ' no'}\n" + (
                "" if kind == "only" else f"{c}\n"
            )
    return made


def files(rng, p):
    return {f"{p.root}/{path}": content for path, content in before(rng, p).items()}


def said(item):
    return KINDS[item["kind"]][0].format(**item)


def instruction(p):
    items = "\n".join(f"- {said(item)}" for item in p.cases)
    rest = "All paths of this list are in ROOT, folders on the way are made where they are missing, and what the list says nothing about stays as it is:"
    again = "The items hold together; run a second time, the script finds all in order and changes nothing, not even a file's time of modification where it can be avoided."
    return [
        f"Write the bash script /app/{p.script}. Called as `bash {p.script} ROOT`, it brings the folder ROOT into this state. {rest}\n{items}\n\n{again} Run it for /app/{p.root}.",
        f"Our machines are set up by hand, which must end. `bash /app/{p.script} ROOT` shall make sure of the following in the folder ROOT, whatever was there before. {rest}\n{items}\n\n{again} Set up /app/{p.root} with it; we shall use it for other folders, which are in other states.",
        f"Please provision /app/{p.root} by a bash script, /app/{p.script}, that takes the path of a folder, ROOT, and works for any such folder. {rest}\n{items}\n\n{again}",
    ]


def program(p):
    first = sorted(p.cases, key=lambda item: item["kind"] != "backup")
    last = sorted(first, key=lambda item: item["kind"] in ("mode", "gone"))
    return "\n".join(
        ["#!/bin/bash", 'cd "$1" || exit 1', *(KINDS[item["kind"]][1].format(**item) for item in last)]
    )


def solution(p):
    return [
        f"find {p.root} | sort",
        put(p.script, program(p)),
        f"bash {p.script} {p.root}",
        f"bash {p.script} {p.root}",
        f"find {p.root} | sort",
    ]


def lazy(p):
    return [*solution(p), put(p.script, f"rm -rf $1; cp -a /app/{p.root} $1")]


def make(root, made):
    os.makedirs(root)
    for path, content in made.items():
        place = f"{root}/{path}"
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if isinstance(content, Link):
            os.symlink(content.target, place)
        else:
            file = content if isinstance(content, File) else File(content)
            with open(place, "w") as out:
                out.write(file.content)
            os.chmod(place, file.mode)


def text(root, path):
    place = f"{root}/{path}"
    return raw(place).decode() if os.path.isfile(place) else None


def bits(root, path):
    return f"{os.stat(f'{root}/{path}').st_mode & 0o777:o}"


def original(made, path):
    content = made.get(path)
    return content.content if isinstance(content, File) else content


def holds(item, root, made):
    a, b, c, kind = (item[key] for key in ("a", "b", "c", "kind"))
    old = original(made, f"{a}.txt")
    lines = (text(root, f"{a}.txt") or "").splitlines()
    below = [
        f"{folder}/{name}" for folder, _, names in os.walk(root) for name in names if name.endswith(f".{b}")
    ]
    match kind:
        case "folder":
            return bits(root, a) == item["mode"] and all(
                text(root, q) == original(made, q) for q in made if q.startswith(f"{a}/")
            )
        case "line":
            before = (old or "").splitlines()
            return lines == before + [f"{b} {c}"] * (f"{b} {c}" not in before)
        case "only":
            return lines == [f"{b} {c}"]
        case "setting":
            before = (original(made, f"{a}.conf") or "").splitlines()
            has = any(line.startswith(f"{b}=") for line in before)
            after = [f"{b}={c}" if line.startswith(f"{b}=") else line for line in before] + [f"{b}={c}"] * (
                not has
            )
            return (text(root, f"{a}.conf") or "").splitlines() == after
        case "link":
            return os.path.islink(f"{root}/{a}") and os.readlink(f"{root}/{a}") == b
        case "gone":
            return not below
        case "mode":
            return below and all(bits(root, os.path.relpath(path, root)) == item["mode"] for path in below)
        case "moved":
            return text(root, f"{a}.old") is None and (
                f"{a}.old" not in made or text(root, f"{a}.new") == made[f"{a}.old"]
            )
        case "backup":
            return text(root, f"{a}.bak") == old
        case _:
            before = (original(made, f"{a}.list") or "").splitlines()
            return (text(root, f"{a}.list") or "").splitlines() == [
                f"#{line}" if line == b else line for line in before
            ]


ROOTS: list = []


def roots(p):
    """Two hidden roots after a run, and one after a second run: (folder, what it had) of each; made once."""
    if not ROOTS:
        import tempfile

        rng = hidden(p)
        for _ in range(3):
            made, root = before(rng, p), tempfile.mkdtemp() + "/root"
            make(root, made)
            for _ in range(2 if len(ROOTS) == 1 else 1):
                run("bash", f"/app/{p.script}", root)
            ROOTS.append((root, made))
    return ROOTS


def test_hidden_item(p, case):
    for root, made in roots(p):
        assert holds(case, root, made)


def test_root(p):
    from sandbox.factory.kit import given

    made = before(given(p), p)
    assert all(holds(item, f"/app/{p.root}", made) for item in p.cases)


def test_hidden_rest_stays(p):
    for root, made in roots(p):
        assert all(text(root, path) == "as it is\n" for path in made if path.endswith(".keep"))
