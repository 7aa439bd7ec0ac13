"""An audit of a folder against its list of checksums, by a script that must work for any such folder.

Hard: lists come in two forms and several algorithms, and files may be changed, missing, or not listed.
"""

import hashlib

from sandbox.factory.kit import at, given, hidden, put, read, run, scratch, tidy, word, words

SKILLS = ("checksums", "sha256sum", "find", "comm", "shell scripts")

ALGORITHMS = ("md5", "sha1", "sha256", "sha512")
FORMS = {
    "CHECKSUM, two spaces, PATH": ("{sum}  {path}", r"s/^([0-9a-f]+)  (.*)$/\1 \2/"),
    "ALGORITHM (PATH) = CHECKSUM": (
        "{name} ({path}) = {sum}",
        r"s/^[A-Z0-9]+ \((.*)\) = ([0-9a-f]+)$/\2 \1/",
    ),
    "PATH, a tab, CHECKSUM": ("{path}\t{sum}", r"s/^(.*)\t([0-9a-f]+)$/\2 \1/"),
}
STATES = {
    "CHANGED": "files whose checksum is not the listed one",
    "MISSING": "files that are listed but not there",
    "EXTRA": "files that are there but not listed (the list itself aside)",
    "OK": "files whose checksum is the listed one",
}


def draw(rng, level):
    return {
        "folder": word(rng),
        "list": rng.choice(["SUMS", "MANIFEST", "checksums.list"]),
        "script": f"{word(rng)}.sh",
        "out": f"{word(rng)}.txt",
        "algorithm": rng.choice(ALGORITHMS),
        "form": rng.choice(list(FORMS)),
        "states": rng.sample(list(STATES), 1 + (level > 1) + (level > 3)),
        "counts": level > 2 and rng.random() < 0.5,
        "code": level > 1 and rng.random() < 0.5,
        "order": rng.choice(["path", "state, then path"]) if level > 1 else "path",
        "comments": level > 2 and rng.random() < 0.6,
        "count": 6 + 4 * level,
    }


def files(rng, p):
    return {f"{p.folder}/{path}": text for path, text in folder(rng, p)[0].items()}


def folder(rng, p):
    """(path -> text, path -> state)."""
    texts, states, listed = {}, {}, []
    for noun in words(rng, p.count):
        path = rng.choice(["", "data/", "data/more/"]) + noun + rng.choice([".txt", ".bin", " copy.txt"])
        state, text = rng.choice(["OK", "OK", *STATES]), f"{word(rng)}\n" * rng.randint(1, 5)
        states[path] = state
        if state != "MISSING":
            texts[path] = text
        if state != "EXTRA":
            sum_of = text + "!" * (state == "CHANGED")
            digest = hashlib.new(p.algorithm, sum_of.encode()).hexdigest()
            listed.append(FORMS[p.form][0].format(sum=digest, path=path, name=p.algorithm.upper()))
        if p.comments and rng.random() < 0.3:
            listed.append(rng.choice(["", f"# {word(rng)}"]))
    texts[p.list] = "\n".join(listed) + "\n"
    return texts, states


def audit(states, p):
    rows = [(state, path) for path, state in states.items() if state in p.states]
    rows.sort(key=lambda row: (row[1],) if p.order == "path" else row)
    counts = [f"{state}: {sum(row[0] == state for row in rows)}" for state in p.states] if p.counts else []
    return "\n".join([*(f"{state} {path}" for state, path in rows), *counts])


def instruction(p):
    states = "\n".join(f"- {state}: {STATES[state]}" for state in p.states)
    comments = " Empty lines and lines that begin with # in the list mean nothing." if p.comments else ""
    counts = f" Lines with the counts follow, in this order, as in `{p.states[0]}: 3`." if p.counts else ""
    code = " Its exit code is 1 when it has found any of these files, else 0." if p.code else ""
    form = f"Each line of the list {p.list} is of the form: {p.form} ({p.algorithm}; paths are relative to the folder).{comments}"
    shape = f"one line, `STATE PATH`, for each of these, sorted by {p.order} in byte order:\n{states}\n\n{form}{counts}{code}"
    return [
        f"The files in /app/{p.folder} have checksums in {p.list}, but not all of them are as they were. "
        f"Write the bash script /app/{p.script}, which takes such a folder and prints {shape} Save what "
        f"it prints for {p.folder} as /app/{p.out}. The script is for other folders too.",
        f"Check /app/{p.folder} against the list /app/{p.folder}/{p.list}: /app/{p.out} shall hold "
        f"{shape} Do it with a bash script, /app/{p.script}, whose argument is the folder and which "
        "prints the result; we audit more folders.",
        f"`bash /app/{p.script} FOLDER` is to audit a folder that has a list of checksums, {p.list}. "
        f"Please write it. It prints {shape} Audit /app/{p.folder} with it, output in /app/{p.out}.",
    ]


def program(p):
    tool = f"{p.algorithm}sum"
    clean = "grep -v -e '^#' -e '^$' | " if p.comments else ""
    shown = "|".join(p.states)
    key = "-k2" if p.order == "path" else "-k1,1 -k2"
    lines = [
        "#!/bin/bash",
        'cd "$1" || exit 2',
        "work=$(mktemp -d)",
        f"cat {p.list} | {clean}sed -E '{FORMS[p.form][1]}' > $work/listed",
        f"find . -type f ! -path ./{p.list} -printf '%P\\n' > $work/there",
        "while IFS= read -r line; do",
        "  path=${line#* }; want=${line%% *}",
        '  if [ ! -f "$path" ]; then echo "MISSING $path"',
        f'  elif [ "$({tool} < "$path" | cut -d \' \' -f 1)" = "$want" ]; then echo "OK $path"',
        '  else echo "CHANGED $path"; fi',
        "done < $work/listed > $work/found",
        "cut -d ' ' -f 2- $work/listed | grep -vxFf - $work/there | sed 's/^/EXTRA /' >> $work/found",
        f"grep -E '^({shown}) ' $work/found | LC_ALL=C sort {key} > $work/shown",
        "cat $work/shown",
        *[f'echo "{state}: $(grep -c "^{state} " $work/shown)"' for state in p.states if p.counts],
        *(["[ ! -s $work/shown ]"] if p.code else ["true"]),
    ]
    return "\n".join(lines)


def solution(p):
    return [
        f"head -n 5 {p.folder}/{p.list}",
        put(p.script, program(p)),
        f"bash {p.script} {p.folder} > {p.out}; cat {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo 'cat /app/{p.out}; exit {int(p.code)}' > {p.script}"]


def test_report(p):
    assert read(p.out) == audit(folder(given(p), p)[1], p)


def test_hidden_folders(p):
    rng = hidden(p)
    for _ in range(2):
        texts, states = folder(rng, p)
        done = run("bash", at(p.script), scratch(texts), ok=False)
        assert tidy(done.stdout) == audit(states, p)
        assert done.returncode == int(p.code and any(state in p.states for state in states.values()))


def test_hidden_sound_folder(p):
    rng = hidden(p)
    texts, _ = folder(rng, p)
    del texts[p.list]
    sums = {path: hashlib.new(p.algorithm, text.encode()).hexdigest() for path, text in texts.items()}
    lines = [
        FORMS[p.form][0].format(sum=value, path=path, name=p.algorithm.upper())
        for path, value in sums.items()
    ]
    done = run("bash", at(p.script), scratch(texts | {p.list: "\n".join(lines) + "\n"}), ok=False)
    sound = dict.fromkeys(texts, "OK")
    assert (tidy(done.stdout), done.returncode) == (audit(sound, p), int(p.code and "OK" in p.states))
