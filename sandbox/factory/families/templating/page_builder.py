"""A site's pages put together from a layout, parts and contents, by a script for any such folder.

Hard: parts include parts, pages know about each other, and a list of all pages goes into one of them.
"""

from sandbox.factory.kit import PEOPLE, word, words
from sandbox.factory.scripts import changer, names, wordings

SKILLS = ("Python", "templates", "includes", "text files")

# What a line of a page's text becomes -> the solution's Python on line, the reference's.
MARKUP = {
    "a line `# TEXT` becomes `<h1>TEXT</h1>`": ("line = re.sub(r'^# (.*)', r'<h1>\\1</h1>', line)", lambda s: f"<h1>{s[2:]}</h1>" if s[:2] == "# " else s),
    "a line `- TEXT` becomes `<li>TEXT</li>`": ("line = re.sub(r'^- (.*)', r'<li>\\1</li>', line)", lambda s: f"<li>{s[2:]}</li>" if s[:2] == "- " else s),
    "`*WORD*` (WORD without spaces and stars) becomes `<b>WORD</b>`": ("line = re.sub(r'\\*([^ *]+)\\*', r'<b>\\1</b>', line)", lambda s: " ".join(bold(w) for w in s.split(" "))),
    "an empty line becomes `<hr>`": ("line = line or '<hr>'", lambda s: "<hr>" if s == "" else s),
    "every & becomes `&amp;`, before anything else": ("line = line.replace('&', '&amp;')", lambda s: "&amp;".join(s.split("&"))),
}  # fmt: skip
LISTS = {
    "": "",
    "then `index.html` is written as well: a line `FILE: TITLE` for each page, in byte order of FILE, and no layout around it": lambda path, f: (
        f"{path}: {f['title']}"
    ),
    "then `index.html` is written as well: a line `TITLE (AUTHOR)` for each page, in byte order of these lines, and no layout around it": lambda path, f: (
        f"{f['title']} ({f['author']})"
    ),
}
OPENS = (
    "A small site is made from files: in `pages` lie NAME.txt, in `parts` pieces of HTML, and layout.html is the frame of all pages.",
    "We build web pages with few means. A folder has layout.html, a folder `parts`, and a folder `pages` with a file NAME.txt for each page.",
)


def bold(text):
    a, star, rest = text.partition("*")
    b, end, c = rest.partition("*")
    return f"{a}<b>{b}</b>{bold(c)}" if star and end and b else text


def draw(rng, level):
    markup = rng.sample(list(MARKUP), min(5, rng.randint(1, 2) + level // 2))
    markup.sort(key=lambda rule: "before" not in rule)
    return names(rng, "", "py") | {
        "out": "",
        "markup": markup,
        "nested": level > 1 and rng.random() < 0.6,
        "list": rng.choice(list(LISTS)),
        "draft": rng.choice(["", "a page whose field draft is yes is not built (and is in no list)"])
        if level > 1
        else "",
        "missing": rng.choice(
            [
                "a part that does not exist leaves an empty line",
                "a line with a part that does not exist is dropped",
                "a part that does not exist leaves the line `missing NAME`",
            ]
        ),
        "target": f"{word(rng)}-site",
        "size": 2 + level,
    }


def make(rng, p):
    parts, made = words(rng, 4), {}
    for number, part in enumerate(parts[:3]):
        inner = f"include {parts[number + 1]}\n" if p.nested else ""
        made[f"parts/{part}.html"] = f"<p>{word(rng)}</p>\n{inner}<i>{word(rng)}</i>\n"
    made["layout.html"] = (
        f"<html>\n<title>TITLE</title>\ninclude {parts[0]}\nCONTENT\n<p>by AUTHOR</p>\n</html>\n"
    )
    for name in words(rng, p.size):
        head = [
            f"title: {word(rng).title()}",
            f"author: {word(rng, PEOPLE)}",
            *["draft: yes"] * (rng.random() < 0.3),
        ]
        rng.shuffle(head)
        body = [
            rng.choice(
                [
                    f"# {word(rng)}",
                    f"- {word(rng)} & {word(rng)}",
                    f"one *{word(rng)}* two* of *{word(rng)} *",
                    "",
                    f"include {rng.choice(parts)}",
                    word(rng),
                ]
            )
            for _ in range(4 + p.level)
        ]
        made[f"pages/{name}.txt"] = "\n".join([*head, "", *body, word(rng)]) + "\n"
    return made


def expanded(lines, made, p):
    done = []
    for line in lines:
        name = line[8:] if line.startswith("include ") else ""
        part = made.get(f"parts/{name}.html")
        if name and part is not None:
            done += expanded(part.splitlines(), made, p) if p.nested else part.splitlines()
        elif name:
            done += {"an": [""], "dr": [], "mi": [f"missing {name}"]}[
                "an" if "empty" in p.missing else "dr" if "dropped" in p.missing else "mi"
            ]
        else:
            done.append(line)
    return done


def worked(made, p):
    now, listed = dict(made), []
    for path in sorted(made):
        if not path.startswith("pages/"):
            continue
        head, _, body = made[path].partition("\n\n")
        fields = dict(line.split(": ", 1) for line in head.split("\n"))
        if p.draft and fields.get("draft") == "yes":
            continue
        content = []
        for line in body.removesuffix("\n").split("\n"):
            if line.startswith("include "):
                content += expanded([line], made, p)
                continue
            for rule in p.markup:
                line = MARKUP[rule][1](line)
            content.append(line)
        page = []
        for line in expanded(made["layout.html"].splitlines(), made, p):
            page += (
                content
                if line == "CONTENT"
                else [line.replace("TITLE", fields["title"]).replace("AUTHOR", fields["author"])]
            )
        name = path[6:-4] + ".html"
        now[f"{p.target}/{name}"] = "\n".join(page) + "\n"
        listed += [LISTS[p.list](name, fields)] if p.list else []
    if p.list:
        now[f"{p.target}/index.html"] = "".join(line + "\n" for line in sorted(listed))
    return now


def instruction(p):
    rules = [
        "a page begins with fields, `name: value`, one a line; after the first empty line comes its text"
    ]
    rules += [
        f"its file {p.target}/NAME.html (in a new folder {p.target} beside `pages`) is layout.html with the page's text, line by line, in the place of the line CONTENT, and on all other lines with TITLE and AUTHOR replaced by the fields title and author"
    ]
    rules += [
        f"in layout.html and in a page's text, a line `include NAME` is replaced by the lines of parts/NAME.html; {p.missing}"
    ]
    rules += ["parts may have such lines, too"] * p.nested + [
        f"in the text of pages, but not in layout.html or in parts, {rule}" for rule in p.markup
    ]
    rules += [p.draft] * bool(p.draft) + [p.list.replace("index.html", f"{p.target}/index.html")] * bool(
        p.list
    )
    return wordings(p, OPENS, rules)


def program(p):
    gone = "['']" if "empty" in p.missing else "[]" if "dropped" in p.missing else "['missing ' + line[8:]]"
    inner = "parts(open(path).read().splitlines())" if p.nested else "open(path).read().splitlines()"
    lines = [
        "import os, re, sys",
        "os.chdir(sys.argv[1])",
        f"os.makedirs('{p.target}', exist_ok=True)",
        "def parts(lines):",
        "    for line in lines:",
        "        if not line.startswith('include '):",
        "            yield line",
        "            continue",
    ]
    lines += [
        "        path = f'parts/{line[8:]}.html'",
        f"        yield from {inner} if os.path.exists(path) else {gone}",
        "index = []",
        "for name in sorted(os.listdir('pages')):",
    ]
    lines += [
        "    lines = open('pages/' + name).read().splitlines()",
        "    cut = lines.index('')",
        "    f = dict(line.split(': ', 1) for line in lines[:cut])",
    ]
    lines += ["    if f.get('draft') == 'yes':", "        continue"] * bool(p.draft) + [
        "    text = []",
        "    for line in lines[cut + 1:]:",
        "        if line.startswith('include '):",
        "            text += parts([line])",
        "            continue",
    ]
    lines += [f"        {MARKUP[rule][0]}" for rule in p.markup] + [
        "        text.append(line)",
        "    page = []",
        "    for line in parts(open('layout.html').read().splitlines()):",
    ]
    lines += [
        "        page += text if line == 'CONTENT' else [line.replace('TITLE', f['title']).replace('AUTHOR', f['author'])]",
        f"    open('{p.target}/' + name[:-4] + '.html', 'w').write('\\n'.join(page) + '\\n')",
    ]
    entry = "f\"{name[:-4]}.html: {f['title']}\"" if "FILE" in p.list else "f\"{f['title']} ({f['author']})\""
    lines += (
        [
            f"    index.append({entry})",
            f"open('{p.target}/index.html', 'w').write(''.join(line + '\\n' for line in sorted(index)))",
        ]
        if p.list
        else []
    )
    return "\n".join(lines)


files, solution, lazy, test_half, test_folder, test_hidden_folder, test_hidden_others = changer(
    make, worked, program
)
