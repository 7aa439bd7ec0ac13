"""A trail through many rooms: in each, one file is the right one, and it tells how to know the right one in the next room.

Hard: up to sixty rooms, with riddles about sizes, times, modes, contents, hashes and links, none known before the one ahead is solved.
"""

import hashlib

from sandbox.factory.kit import File, Link, hidden, put, read, word, words

SKILLS = ("find", "grep", "sort", "stat", "sha256sum", "patience")

# A riddle: what the note says of the right file in the next room, and the command that prints its path there.
RIDDLES = {
    "largest": ("the largest file", "ls -S {room}/* | head -n 1"),
    "smallest": ("the smallest file", "ls -S {room}/* | tail -n 1"),
    "newest": ("the file that was modified last", "ls -t {room}/* | head -n 1"),
    "oldest": ("the file that was modified first", "ls -tr {room}/* | head -n 1"),
    "lines": ("the file with most lines", "wc -l {room}/* | grep -v total | sort -n | awk 'END {{ print $2 }}'"),
    "run": ("the only file that may be executed", "find {room} -type f -perm -100"),
    "mode": ("the only file that others may not read", "find {room} -type f ! -perm -004"),
    "hidden": ("the only file whose name begins with a dot", "ls -d {room}/.[a-z]*"),
    "link": ("the file that the link door leads to", "realpath --relative-to . {room}/door"),
    "hash": ("the file whose SHA-256 begins with {hint}", "sha256sum {room}/* | awk '/^{hint}/ {{ print $2 }}'"),
    "last": ("the file whose name is the last in the alphabet", "ls {room}/* | tail -n 1"),
    "first": ("the file whose name is the first in the alphabet", "ls {room}/* | head -n 1"),
    "without": ("the only file without the word pass", "grep -L -w pass {room}/*"),
    "word": ("the only file with the word {hint}", "grep -l -w {hint} {room}/*"),
    "deep": ("the only file that lies in a folder inside the room", "find {room} -mindepth 2 -type f"),
    "long": ("the file with the longest name", "ls {room} | awk '{{ print length($0), $0 }}' | sort -n | awk 'END {{ print \"{room}/\" $2 }}'"),
    "list": ("the file whose name is in line {line} of /app/list", "echo {room}/$(sed -n {line}p list)"),
}  # fmt: skip
LENGTHS = {1: 4, 2: 8, 3: 16, 4: 32, 5: 58}


def draw(rng, level):
    length = LENGTHS[level]
    rooms = words(rng, length)
    pool = rng.sample(list(RIDDLES), min(len(RIDDLES), 5 + 3 * level))
    return {
        "rooms": rooms,
        "riddles": [rng.choice(pool) for _ in rooms],
        "out": f"{word(rng)}.txt",
        "total": f"{word(rng)}.sum",
        "sum": rng.choice(["sha256", "md5", "sha1"]),
        "order": rng.choice(["as they are in that file", "sorted in byte order", "in reverse order"]),
        "line": rng.randint(3, 9),
        "hints": [f"{rng.randrange(16**6):06x}" for _ in rooms],
        "cases": [length * quarter // 4 for quarter in (1, 2, 3, 4)],
    }


def codes(p):
    """The codes of the trail, which only the right files have."""
    rng = hidden(p)
    return [f"{word(rng)}-{rng.randint(1000, 9999)}" for _ in p.rooms]


def files(rng, p):
    made, trail = (
        {
            "list": "".join(f"file{rng.randint(10, 99)}\n" for _ in range(p.line - 1))
            + "file55\n"
            + "file10\n" * 3
        },
        codes(p),
    )
    for place, (room, kind) in enumerate(zip(p.rooms, p.riddles, strict=True)):
        note = f"code {trail[place]}\n" + (
            f"{said(p, place + 1)}\n" if place + 1 < len(p.rooms) else "end of the trail\n"
        )
        fakes = [
            f"code {word(rng)}-{rng.randint(1000, 9999)}\n{said(p, rng.randrange(len(p.rooms)))}\n"
            for _ in range(4)
        ]
        made |= furnished(rng, room, kind, note, fakes, p)
    start = said(p, 0)
    return made | {"start": f"{start}\n"}


def said(p, place):
    kind = p.riddles[place]
    hint = RIDDLES[kind][0].format(hint=clue(p, place), line=p.line)
    return f"next room {p.rooms[place]}: {hint}"


def clue(p, place):
    """The hint of a riddle; of a hash, its first digits, which the note's own text decides."""
    if p.riddles[place] != "hash":
        return p.hints[place]
    rest = f"{said(p, place + 1)}\n" if place + 1 < len(p.rooms) else "end of the trail\n"
    return hashlib.sha256(
        padded(f"code {codes(p)[place]}\n{rest}", "hash", p.hints[place]).encode()
    ).hexdigest()[:10]


def padded(note, kind, hint):
    """The note with what the riddle asks of its text. Without `pass`, notes are as they are."""
    return note + {"without": "fail", "word": f"pass {hint}"}.get(kind, "pass") + "\n"


def furnished(rng, room, kind, note, fakes, p):
    """The files of a room: the fakes, and the note as the riddle describes it."""
    names = [f"file{number}" for number in rng.sample([n for n in range(11, 99) if n != 55], 4)]
    texts = [padded(text, "", "") + f"{word(rng)}\n" * rng.randint(1, 3) for text in fakes]
    made = {
        name: File(text, time=1_700_000_000 + rng.randrange(10**6))
        for name, text in zip(names, texts, strict=True)
    }
    mine, time, mode = (
        padded(note, kind, p.hints[p.rooms.index(room)]),
        1_700_000_000 + rng.randrange(10**6),
        0o644,
    )
    name = {
        "hidden": ".file30",
        "last": "file99",
        "first": "file10",
        "deep": f"{word(rng)}/file40",
        "long": "file100200",
        "list": "file55",
    }.get(kind, f"file{rng.choice([n for n in range(11, 99) if f'file{n}' not in names and n != 55])}")
    if kind == "largest":
        mine += "room " * 400 + "\n"
    elif kind == "smallest":
        for fake in made.values():
            fake.content += "room " * 400 + "\n"
    elif kind == "lines":
        mine += "-\n" * 60
    elif kind in ("newest", "oldest"):
        time = 1_800_000_000 if kind == "newest" else 1_600_000_000
    elif kind in ("run", "mode"):
        mode = 0o755 if kind == "run" else 0o640
    made[name] = File(mine, mode=mode, time=time)
    if kind == "link":
        made["door"] = Link(name)
    return {f"{room}/{path}": content for path, content in made.items()}


def instruction(p):
    many = f"{len(p.rooms)} rooms"
    total = f"Also write the {p.sum.upper()} (in hexadecimal, lower case) of the text that has all the codes {p.order}, each with a newline after it, to /app/{p.total}."
    return [
        f"Folders of /app are rooms. /app/start says how to know the right file in the first of {many}; in that file are a code and how to know the right file of the next room, and so on to the end of the trail. All other files of the rooms are false. Write the codes to /app/{p.out}, one a line, in the order of the trail. {total}",
        f"Follow a trail through {many}, which are folders of /app: /app/start names the first room and tells which file in it is the right one; each right file has a code and leads on in the same way. Wrong files look alike, but lead astray. /app/{p.out} must get the codes in order, each on a line. {total}",
        f"In each of {many} below /app there is one true file among false ones. The first is described in /app/start, every other one in the true file before it, next to a code. Collect the codes, from first to last, in /app/{p.out}, one a line. {total}",
    ]


def solution(p):
    steps = ["cat start"]
    for place, (room, kind) in enumerate(zip(p.rooms, p.riddles, strict=True)):
        find = RIDDLES[kind][1].format(
            room=room, hint=clue(p, place) if kind in ("hash", "word") else "", line=p.line
        )
        steps.append(f"f=$({find}); head -n 2 $f; sed -n 's/^code //p' $f >> {p.out}")
    order = {
        "as they are in that file": "cat",
        "sorted in byte order": "LC_ALL=C sort",
        "in reverse order": "tac",
    }[p.order]
    return [*steps, f"{order} {p.out} | {p.sum}sum | cut -d ' ' -f 1 > {p.total}", f"cat {p.out} {p.total}"]


def lazy(p):
    """The first file of each room, without following the trail."""
    steps = [f"sed -n 's/^code //p' {room}/* | head -n 1 >> {p.out}" for room in p.rooms]
    return [*steps, put(p.total, "0")]


def test_hidden_codes(p, case):
    assert read(p.out).split("\n")[:case] == codes(p)[:case]


def test_sum(p):
    trail = codes(p)
    lines = {
        "as they are in that file": trail,
        "sorted in byte order": sorted(trail),
        "in reverse order": trail[::-1],
    }[p.order]
    assert (
        read(p.total).split()[0]
        == hashlib.new(p.sum, "".join(f"{line}\n" for line in lines).encode()).hexdigest()
    )
