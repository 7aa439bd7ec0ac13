"""A program that builds a wheel of a Python package with nothing but the standard library.

Hard: names, metadata and the record of hashes follow rules to the byte, and the same source must give the same wheel.
"""

import base64
import hashlib

from sandbox.factory.kit import at, hidden, put, run, scratch, word, words

SKILLS = ("wheels", "zip", "hashes", "Python packaging")

# What goes into METADATA: key of the description -> the line's name.
FIELDS = {
    "summary": "Summary",
    "author": "Author",
    "license": "License",
    "home": "Home-page",
    "python": "Requires-Python",
}
OPTIONS = {
    "tests": "Folders with the name tests, and all in them, are left out, wherever they are.",
    "hidden": "Files and folders whose names begin with a dot are left out.",
    "scripts": "Each line `script NAME=MODULE:FUNCTION` of the description becomes a line `NAME = MODULE:FUNCTION` under `[console_scripts]` in the file DIST-INFO/entry_points.txt; they are sorted. Without such lines there is no such file.",
    "top": "DIST-INFO/top_level.txt has the name of the package folder on its only line.",
    "readme": "If there is a file README.md in SOURCE, METADATA ends in an empty line and the text of that file.",
    "license": "A file LICENSE in SOURCE, if there is one, is in the wheel as DIST-INFO/LICENSE.",
    "pyc": "Files whose names end in .pyc or in ~ are left out.",
    "ends": "In files whose names end in .py, each carriage return before a newline is left out, also for the hash and the size.",
    "urls": "METADATA has, after all other lines of this kind, a line `Project-URL: KIND, URL` for each line `url KIND URL` of the description, sorted.",
    "extras": "METADATA has, after the lines named above, a line `Provides-Extra: NAME` for each line `extra NAME` of the description, in their order.",
    "data": "Files directly in SOURCE/share are in the wheel as NAME-VERSION.data/data/share/FILE.",
}  # fmt: skip
TESTS = ("name", "package", "metadata", "record", "wheel")


def draw(rng, level):
    options = rng.sample(list(OPTIONS), level + 1)
    return {
        "program": f"{word(rng)}.py",
        "source": word(rng),
        "fields": rng.sample(list(FIELDS), min(5, 1 + level)),
        "needs": level > 1 and rng.random() < 0.7,
        "options": [name for name in OPTIONS if name in options],
        "cases": [
            *TESTS,
            *(name for name in OPTIONS if name in options and name not in ("tests", "hidden", "pyc", "ends")),
        ],
        "pure": rng.choice(["py3-none-any", "py2.py3-none-any"]),
        "generator": word(rng),
        "order": rng.choice(
            ["in the order of their names in the wheel", "in the reverse order of their names in the wheel"]
        ),
    }


def project(rng, p):
    """A source folder: path -> text."""
    name, options = word(rng), p.options
    lines = [
        f"name {name.title()}-{word(rng)}.{word(rng)}",
        f"version {rng.randint(0, 9)}.{rng.randint(0, 20)}",
        f"package {name}",
    ]
    lines += [f"{field} {' '.join(words(rng, 2))}" for field in FIELDS]
    if p.needs:
        lines += [f"needs {word(rng)}>={rng.randint(1, 9)}" for _ in range(rng.randint(1, 3))]
    made = {
        f"{name}/__init__.py": "",
        f"{name}/{word(rng)}.py": f"x = {rng.randint(0, 99)}\n",
        f"{name}/{word(rng)}/{word(rng)}.txt": f"{word(rng)}\n",
        "notes.txt": "not in the package\n",
    }
    if "scripts" in options and rng.random() < 0.8:
        lines += [f"script {word(rng)}={name}.main:{word(rng)}" for _ in range(rng.randint(1, 3))]
    if "tests" in options:
        made |= {f"{name}/tests/a.py": "a\n", f"{name}/tests_of/b.py": "b\n", "tests/c.py": "c\n"}
    if "hidden" in options:
        made |= {f"{name}/.cache/x": "x\n", f"{name}/.{word(rng)}": "y\n"}
    if "readme" in options and rng.random() < 0.8:
        made["README.md"] = f"# {word(rng)}\n\n{word(rng)}\n"
    if "license" in options and rng.random() < 0.8:
        made["LICENSE"] = f"{word(rng)} license\n"
    if "pyc" in options:
        made |= {f"{name}/a.pyc": "a\n", f"{name}/{word(rng)}.py~": "b\n"}
    if "ends" in options:
        made |= {f"{name}/ends.py": "a = 1\r\nb = '\r'\n", f"{name}/ends.txt": "c\r\n"}
    if "urls" in options:
        lines += [f"url {kind} https://{word(rng)}.example" for kind in words(rng, rng.randint(0, 3))]
    if "extras" in options:
        lines += [f"extra {extra}" for extra in words(rng, rng.randint(0, 2))]
    if "data" in options:
        made |= {f"share/{word(rng)}.cfg": f"{word(rng)}\n", "share/more/x.txt": "x\n"}
    rng.shuffle(lines)
    return {**made, "package.txt": "\n".join(lines) + "\n"}


def files(rng, p):
    return {f"{p.source}/{path}": text for path, text in project(rng, p).items()}


def instruction(p):
    fields = ", ".join(f"`{FIELDS[field]}` ({field})" for field in p.fields)
    needs = ", then one `Requires-Dist` for each `needs` line in the order of the lines" if p.needs else ""
    options = "".join(f"\n- {OPTIONS[name]}" for name in p.options)
    text = f"""SOURCE has a file package.txt, the description: lines of a key, a space and a value, in any order, among them name, version and package, which
    is the name of the folder in SOURCE that is to be packed. The wheel, made in the folder OUT (which is there), is a zip archive NAME-VERSION-{p.pure}.whl, where NAME is the
    name in lower case with every run of hyphens, dots and underscores as one underscore. DIST-INFO stands for NAME-VERSION.dist-info. In the wheel are:
    - all files of the package folder, under its name
    - DIST-INFO/METADATA with the lines `KEY: VALUE` for `Metadata-Version` (2.1), `Name` (as in the description), `Version`, then {fields}, in this order{needs}
    - DIST-INFO/WHEEL with the lines `Wheel-Version: 1.0`, `Generator: {p.generator}`, `Root-Is-Purelib: true`, and a `Tag: ` line for each tag ({"py2-none-any, then py3-none-any" if "py2" in p.pure else "py3-none-any"})
    - DIST-INFO/RECORD with a line `PATH,sha256=HASH,SIZE` for each file in the wheel, {p.order}; HASH is the URL-safe base64 of the digest without = at its end; RECORD itself is in its place among the lines as `PATH,,`{options}"""
    again = (
        "Made twice from the same source, the wheel must be the same to the byte, whatever the files' times."
    )
    return [
        f"Write /app/{p.program}, a builder of wheels: `python3 {p.program} SOURCE OUT`. {text}\n\n{again} Use it to build /app/{p.source} into /app/dist, which you have to make.",
        f"We cannot install build tools, so please write `python3 /app/{p.program} SOURCE OUT` with Python's standard library. {text}\n\n{again} Then make the folder /app/dist and build the wheel of /app/{p.source} there. We shall build others.",
        f"/app/{p.source} is the source of a Python package. Make a program that builds a wheel from any such folder, called as `python3 /app/{p.program} SOURCE OUT`. {text}\n\n{again} The wheel of {p.source} belongs in /app/dist.",
    ]


def program(p):
    has = p.options.__contains__
    skip = ["'tests' in path.split('/')[:-1]"] * has("tests") + [
        "any(x[0] == '.' for x in path.split('/'))"
    ] * has("hidden")
    skip += ["path.endswith(('.pyc', '~'))"] * has("pyc")
    extra = []
    if has("scripts"):
        extra += [
            "s = sorted(v.replace('=', ' = ') for k, v in lines if k == 'script')",
            "if s: put(info + '/entry_points.txt', '[console_scripts]\\n' + ''.join(x + '\\n' for x in s))",
        ]
    if has("top"):
        extra += ["put(info + '/top_level.txt', d['package'] + '\\n')"]
    if has("license"):
        extra += ["if os.path.exists('LICENSE'): put(info + '/LICENSE', open('LICENSE').read())"]
    readme = ["if os.path.exists('README.md'): meta += '\\n' + open('README.md').read()"] * has("readme")
    needs = ["meta += ''.join(f'Requires-Dist: {v}\\n' for k, v in lines if k == 'needs')"] * p.needs
    tags = "Tag: py2-none-any\\nTag: py3-none-any\\n" if "py2" in p.pure else "Tag: py3-none-any\\n"
    turn = ", reverse=True" if "reverse" in p.order else ""
    needs += ["meta += ''.join(f'Provides-Extra: {v}\\n' for k, v in lines if k == 'extra')"] * has("extras")
    needs += [
        "meta += ''.join(sorted('Project-URL: ' + v.replace(' ', ', ') + '\\n' for k, v in lines if k == 'url'))"
    ] * has("urls")
    extra += [
        "for f in os.listdir('share'):\n    if os.path.isfile('share/' + f): put(name + '.data/data/share/' + f, open('share/' + f, 'rb').read())"
    ] * has("data")
    ends = (
        "if path.endswith('.py'): data[path] = data[path].replace(b'\\r\\n', b'\\n')"
        if has("ends")
        else "pass"
    )
    body = "\n".join([*needs, *readme, "put(info + '/METADATA', meta)", *extra])
    return f"""import base64, hashlib, os, re, sys, zipfile
out = os.path.abspath(sys.argv[2])
os.chdir(sys.argv[1])
lines = [line.rstrip("\\n").split(" ", 1) for line in open("package.txt")]
d = dict(lines)
name = re.sub(r"[-._]+", "_", d["name"].lower()) + "-" + d["version"]
info = name + ".dist-info"
data = {{}}
def put(path, text): data[path] = text if isinstance(text, bytes) else text.encode()
for folder, _, found in os.walk(d["package"]):
    for f in found:
        path = folder + "/" + f
        if not ({" or ".join(skip) or "False"}):
            put(path, open(path, "rb").read())
            {ends}
meta = f"Metadata-Version: 2.1\\nName: {{d['name']}}\\nVersion: {{d['version']}}\\n"
for k, v in {[(FIELDS[f], f) for f in p.fields]}: meta += f"{{k}}: {{d[v]}}\\n"
{body}
put(info + "/WHEEL", "Wheel-Version: 1.0\\nGenerator: {p.generator}\\nRoot-Is-Purelib: true\\n{tags}")
record = info + "/RECORD"
rows = []
for path in sorted([*data, record]{turn}):
    h = base64.urlsafe_b64encode(hashlib.sha256(data.get(path, b"")).digest()).decode().rstrip("=")
    rows.append(f"{{path}},,\\n" if path == record else f"{{path}},sha256={{h}},{{len(data[path])}}\\n")
put(record, "".join(rows))
with zipfile.ZipFile(f"{{out}}/{{name}}-{p.pure}.whl", "w") as z:
    for path in sorted(data): z.writestr(zipfile.ZipInfo(path), data[path])"""


def solution(p):
    return [
        f"cat {p.source}/package.txt; find {p.source}",
        put(p.program, program(p)),
        f"mkdir dist; python3 {p.program} {p.source} dist",
        "python3 -m zipfile -l dist/*.whl",
    ]


def lazy(p):
    return [
        *solution(p),
        put(p.program, "import glob, shutil, sys\nshutil.copy(glob.glob('/app/dist/*')[0], sys.argv[2])"),
    ]


def expected(made, p):
    """Name of the wheel, name of dist-info, and its files (path -> text), RECORD excepted."""
    rows = [line.split(" ", 1) for line in made["package.txt"].splitlines()]
    d = dict(rows)
    name = d["name"].lower().replace("-", "_").replace(".", "_") + f"-{d['version']}"
    info, has = f"{name}.dist-info", p.options.__contains__
    inside = {}
    for path, text in made.items():
        parts = path.split("/")
        out = (has("tests") and "tests" in parts[:-1]) or (has("hidden") and any(x[0] == "." for x in parts))
        if parts[0] == d["package"] and not out and not (has("pyc") and path.endswith((".pyc", "~"))):
            inside[path] = text.replace("\r\n", "\n") if has("ends") and path.endswith(".py") else text
    meta = [
        "Metadata-Version: 2.1",
        f"Name: {d['name']}",
        f"Version: {d['version']}",
        *(f"{FIELDS[f]}: {d[f]}" for f in p.fields),
    ]
    meta += [f"Requires-Dist: {value}" for key, value in rows if key == "needs" and p.needs]
    meta += [f"Provides-Extra: {value}" for key, value in rows if key == "extra" and has("extras")]
    meta += sorted(
        f"Project-URL: {value.replace(' ', ', ')}" for key, value in rows if key == "url" and has("urls")
    )
    for path, text in made.items():
        if has("data") and path.startswith("share/") and path.count("/") == 1:
            inside[f"{name}.data/data/{path}"] = text
    text = "\n".join(meta) + "\n"
    inside[f"{info}/METADATA"] = text + (
        f"\n{made['README.md']}" if has("readme") and "README.md" in made else ""
    )
    tags = ["py2-none-any", "py3-none-any"] if "py2" in p.pure else ["py3-none-any"]
    inside[f"{info}/WHEEL"] = (
        "\n".join(
            [
                "Wheel-Version: 1.0",
                f"Generator: {p.generator}",
                "Root-Is-Purelib: true",
                *(f"Tag: {tag}" for tag in tags),
            ]
        )
        + "\n"
    )
    scripts = sorted(value for key, value in rows if key == "script")
    if has("scripts") and scripts:
        inside[f"{info}/entry_points.txt"] = "[console_scripts]\n" + "".join(
            s.replace("=", " = ") + "\n" for s in scripts
        )
    if has("top"):
        inside[f"{info}/top_level.txt"] = d["package"] + "\n"
    if has("license") and "LICENSE" in made:
        inside[f"{info}/LICENSE"] = made["LICENSE"]
    return f"{name}-{p.pure}.whl", info, inside


WHEELS: list = []


def wheels(p):
    """Two hidden projects, the first built twice: (source, name of the wheel, its files, its bytes) of each build, made once."""
    if not WHEELS:
        import io
        import os
        import zipfile

        rng = hidden(p)
        first, second = project(rng, p), project(rng, p)
        for made in (first, second, first):
            out = scratch({"x": ""})
            os.remove(f"{out}/x")
            run("python3", at(p.program), scratch(made), out)
            (name,) = os.listdir(out)
            with open(f"{out}/{name}", "rb") as file:
                data = file.read()
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                WHEELS.append(
                    (
                        made,
                        name,
                        {n: archive.read(n).decode() for n in archive.namelist() if n[-1] != "/"},
                        data,
                    )
                )
    return WHEELS


def test_hidden_wheel(p, case):
    for made, name, found, _ in wheels(p)[:2]:
        wheel, info, inside = expected(made, p)
        files = {
            "metadata": "METADATA",
            "wheel": "WHEEL",
            "scripts": "entry_points.txt",
            "top": "top_level.txt",
            "license": "LICENSE",
            "readme": "METADATA",
            "urls": "METADATA",
            "extras": "METADATA",
        }
        if case == "name":
            assert name == wheel
        elif case == "data":
            assert {q: t for q, t in found.items() if ".data/" in q} == {
                q: t for q, t in inside.items() if ".data/" in q
            }
        elif case == "package":
            assert {q: t for q, t in found.items() if info not in q and ".data/" not in q} == {
                q: t for q, t in inside.items() if info not in q and ".data/" not in q
            }
        elif case == "record":
            assert found.get(f"{info}/RECORD") == record(info, inside, p)
        else:
            assert found.get(f"{info}/{files[case]}") == inside.get(f"{info}/{files[case]}")


def record(info, inside, p):
    lines = {f"{info}/RECORD": f"{info}/RECORD,,\n"}
    for path, text in inside.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        lines[path] = f"{path},sha256={digest},{len(text.encode())}\n"
    return "".join(lines[path] for path in sorted(lines, reverse="reverse" in p.order))


def test_dist(p):
    import os

    from sandbox.factory.kit import given

    assert os.listdir("/app/dist") == [expected(project(given(p), p), p)[0]]


def test_hidden_same_bytes(p):
    assert wheels(p)[0][3] == wheels(p)[2][3] != wheels(p)[1][3]
