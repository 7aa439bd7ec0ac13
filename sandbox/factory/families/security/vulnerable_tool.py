"""A program whose commands work but let an attacker do more than they should; the holes must be closed.

Hard: each command has another kind of hole, and whatever honest users do must go on to work.
"""

import os

from sandbox.factory.kit import hidden, raw, run, scratch, swap, word

SKILLS = ("security", "Python", "injection", "path traversal", "reading programs")

# Command -> what it does, its lines with a hole, its lines without. They get `args`, and DATA, the folder of its files.
COMMANDS = {
    "show": ("show NAME prints the file NAME of the data folder; NAME may have folders in it. For anything outside of the data folder (links are followed), it prints `refused`", """\
    print(open(os.path.join(DATA, args[0])).read(), end="")""", """\
    path = os.path.realpath(os.path.join(DATA, args[0]))
    if path.startswith(os.path.realpath(DATA) + "/"): print(open(path).read(), end="")
    else: print("refused")"""),
    "count": ("count NAME prints the number of lines of the file NAME, directly in the data folder, whatever characters NAME has", """\
    import subprocess
    print(subprocess.run(f"cd {DATA} && wc -l < {args[0]}", shell=True, capture_output=True, text=True).stdout.strip())""", """\
    print(open(os.path.join(DATA, args[0])).read().count("\\n"))"""),
    "calc": ("calc TEXT prints the value of a sum of whole numbers such as 3+4-10 (digits, + and - only); for any other TEXT it prints `refused`", """\
    print(eval(args[0]))""", """\
    import re
    if re.fullmatch(r"[0-9]+([+-][0-9]+)*", args[0]): print(sum(map(int, re.findall(r"[+-]?[0-9]+", args[0]))))
    else: print("refused")"""),
    "find": ("find NAME prints the ages of all people of exactly this name in the data base, one a line, in ascending order", """\
    for row in db().execute(f"select age from people where name = '{args[0]}' order by age"): print(row[0])""", """\
    for row in db().execute("select age from people where name = ? order by age", (args[0],)): print(row[0])"""),
    "page": ("page TEXT prints `<p>TEXT</p>`, where &, < and > of TEXT are written as &amp;amp; &amp;lt; and &amp;gt;", """\
    print(f"<p>{args[0]}</p>")""", """\
    print("<p>" + args[0].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") + "</p>")"""),
    "log": ("log USER TEXT appends exactly one line `USER: TEXT` to the file log of the data folder; each newline and carriage return in USER or TEXT is written as a space", """\
    open(os.path.join(DATA, "log"), "a").write(f"{args[0]}: {args[1]}\\n")""", """\
    line = f"{args[0]}: {args[1]}".replace("\\n", " ").replace("\\r", " ")
    open(os.path.join(DATA, "log"), "a").write(line + "\\n")"""),
    "save": ("save NAME TEXT writes TEXT as a new file NAME directly in the data folder, with mode 600. If there is already anything of this name (also a link), or NAME has a slash, it prints `refused`", """\
    open(os.path.join(DATA, args[0]), "w").write(args[1])""", """\
    try:
        if "/" in args[0]: raise OSError
        os.write(os.open(os.path.join(DATA, args[0]), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), args[1].encode())
    except OSError: print("refused")"""),
    "unpack": ("unpack ARCHIVE unpacks the regular files of a tar archive into the data folder, and prints `refused` and unpacks nothing if the archive has a member with an absolute name, with .. as a part of its name, or that is neither a regular file nor a folder", """\
    import subprocess
    subprocess.run(["tar", "-xPf", args[0], "-C", DATA])""", """\
    import tarfile
    t = tarfile.open(args[0])
    if any(m.name[0] == "/" or ".." in m.name.split("/") or not (m.isfile() or m.isdir()) for m in t): print("refused")
    else: t.extractall(DATA)"""),
    "hello": ("hello NAME FORMAT prints FORMAT with every {name} replaced by NAME, and nothing else in it changed", """\
    print(args[1].format(name=args[0], config=SECRET))""", """\
    print(args[1].replace("{name}", args[0]))"""),
    "token": ("token prints a new token that nobody can guess: 32 hexadecimal digits (lower case) from the system's secure random numbers", """\
    import random, time
    random.seed(int(time.time()) // 1000)
    print("%032x" % random.getrandbits(128))""", """\
    print(os.urandom(16).hex())"""),
    "match": ("match TEXT exits with 0 if TEXT is a date of the form YYYY-MM-DD and nothing else (digits 0 to 9, no range to check, nothing before or after, not even a newline), otherwise with 1", """\
    import re
    sys.exit(not re.match(r"\\d+-\\d+-\\d+$", args[0]))""", """\
    import re
    sys.exit(not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", args[0]))"""),
}  # fmt: skip
IMPORTS = "import os, sys\n"


def draw(rng, level):
    names = rng.sample(list(COMMANDS), min(len(COMMANDS), 3 + 2 * level))
    broken = rng.sample(names, 1 + level) if level > 1 else rng.sample(names, 2)
    return {
        "program": f"{word(rng)}.py",
        "names": names,
        "cases": sorted(broken, key=names.index),
        "secret": word(rng),
    }


def function(name, hole):
    return f"def do_{name}(args):\n{COMMANDS[name][1 if hole else 2]}\n"


def files(rng, p):
    base = 'def db():\n    import sqlite3\n    d = sqlite3.connect(":memory:")\n    d.execute("create table people (name, age integer)")\n    d.executemany("insert into people values (?, ?)", [line.rstrip("\\n").split(",") for line in open(os.path.join(DATA, "people.csv"))])\n    return d\n'
    parts = [
        IMPORTS,
        f'DATA = sys.argv[1]\nSECRET = "{p.secret}"\n',
        base,
        *(function(name, name in p.cases) for name in p.names),
        'globals()["do_" + sys.argv[2]](sys.argv[3:])\n',
    ]
    manual = "".join(f"- {COMMANDS[name][0].replace('&amp;', '&')}\n" for name in p.names)
    return {
        p.program: "\n\n".join(parts),
        "SECURITY.md": f"python3 {p.program} DATA COMMAND..., with DATA the data folder:\n\n{manual}",
    }


def instruction(p):
    few = f"{len(p.cases)} of the {len(p.names)} commands"
    text = "/app/SECURITY.md says what each command does, also with hostile arguments."
    return [
        f"/app/{p.program} is called with words that come from strangers. {text} {few} can be abused. Close the holes in place, so that all commands do exactly what is written there; the other commands must stay as they are.",
        f"An audit found that {few} of /app/{p.program} do not keep to what was promised when someone attacks them. {text} Please mend the program without changing what honest users get.",
        f"Please secure the Python program /app/{p.program}. {text} By its tests {few} fail: commands, paths, queries or texts of an attacker get through. Edit the program itself, which must go on to need only the standard library.",
    ]


def solution(p):
    return [
        "cat SECURITY.md",
        f"cat {p.program}",
        *(swap(p.program, function(name, True), function(name, False)) for name in p.cases),
    ]


def lazy(p):
    """All but one, and that one refuses everybody."""
    last = p.cases[-1]
    return [
        *solution(p),
        swap(p.program, function(last, False), f"def do_{last}(args):\n    print('refused')\n"),
    ]


def ask(p, folder, *words):
    done = run("python3", f"/app/{p.program}", folder, *words, ok=False, cwd="/usr")
    return done.stdout, done.returncode


def world(rng):
    name = word(rng)
    folder = scratch(
        {
            "data/people.csv": f"{name},41\n{name},7\no'neil,30\n",
            "data/a;b c": "1\n2\n",
            f"data/{name}/deep.txt": f"{name}\n",
            "outside": "secret\n",
            "data2/x": "secret\n",
        }
    )
    os.symlink("../outside", f"{folder}/data/way")
    return folder, name


def archive(folder, name, member, kind=None):
    import io
    import tarfile

    with tarfile.open(f"{folder}/{name}", "w") as tar:
        for path, data in (("good.txt", b"good\n"), (member, b"bad\n")):
            info = tarfile.TarInfo(path)
            if path == member and kind:
                info.type, info.linkname = kind, "/tmp"
            else:
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return f"{folder}/{name}"


def works(p, name, rng):
    """One honest use of a command, and its abuse."""
    folder, who = world(rng)
    data = f"{folder}/data"
    match name:
        case "show":
            return ask(p, data, "show", f"{who}/deep.txt")[0] == f"{who}\n" and all(
                ask(p, data, "show", bad)[0] == "refused\n" for bad in ("way", "../data2/x")
            )
        case "count":
            return (
                ask(p, data, "count", "a;b c")[0] == "2\n" and ask(p, data, "count", "people.csv")[0] == "3\n"
            )
        case "calc":
            return ask(p, data, "calc", "3+40-100")[0] == "-57\n" and all(
                ask(p, data, "calc", bad)[0] == "refused\n" for bad in ("2**9", "__import__('os').getpid()")
            )
        case "find":
            return (
                ask(p, data, "find", who)[0] == "7\n41\n"
                and ask(p, data, "find", "o'neil")[0] == "30\n"
                and ask(p, data, "find", "x' or '1'='1")[0] == ""
            )
        case "page":
            return ask(p, data, "page", f"{who} & <b>")[0] == f"<p>{who} &amp; &lt;b&gt;</p>\n"
        case "log":
            ask(p, data, "log", who, "came in\nroot: went\rout")
            ask(p, data, "log", f"{who}\n", "again")
            return raw(f"{data}/log").decode() == f"{who}: came in root: went out\n{who} : again\n"
        case "save":
            honest = (
                ask(p, data, "save", "new", who)[0] == ""
                and raw(f"{data}/new").decode() == who
                and os.stat(f"{data}/new").st_mode & 0o777 == 0o600
            )
            return (
                honest
                and all(ask(p, data, "save", bad, "x")[0] == "refused\n" for bad in ("way", "new"))
                and raw(f"{folder}/outside") == b"secret\n"
            )
        case "unpack":
            good = (
                ask(p, data, "unpack", archive(folder, "1.tar", f"{who}/x.txt"))[0] == ""
                and raw(f"{data}/{who}/x.txt") == b"bad\n"
            )
            os.remove(f"{data}/good.txt")
            bad = (
                ask(p, data, "unpack", archive(folder, "2.tar", "../evil"))[0]
                == ask(p, data, "unpack", archive(folder, "3.tar", "evil", b"2"))[0]
                == "refused\n"
            )
            return (
                good
                and bad
                and not os.path.exists(f"{folder}/evil")
                and not os.path.exists(f"{data}/good.txt")
            )
        case "hello":
            return (
                ask(p, data, "hello", who, "{name}, {name}: {config} {name!r} {")[0]
                == f"{who}, {who}: {{config}} {{name!r}} {{\n"
            )
        case "token":
            one, two = ask(p, data, "token")[0].strip(), ask(p, data, "token")[0].strip()
            return one != two and len(one) == len(two) == 32 and set(one + two) <= set("0123456789abcdef")
        case _:
            return [ask(p, data, "match", text)[1] for text in ("2024-01-31", "2024-01-31\n", "024-1-3")] == [
                0,
                1,
                1,
            ]


def test_hidden_attack(p, case):
    assert works(p, case, hidden(p))


def test_hidden_other_commands(p):
    others = [name for name in p.names if name not in p.cases][:2]
    assert all(works(p, name, hidden(p)) for name in [p.cases[0], *others])
