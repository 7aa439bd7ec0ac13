"""Free and busy times of people from a calendar, by a program that must find them for any calendar.

Hard: appointments overlap and touch, leave the day, and everyone has hours and breaks of their own.
"""

from sandbox.factory.kit import PEOPLE, given, words
from sandbox.factory.kit_report import (
    asks,
    check_output,
    check_report,
    fresh,
    lazy_steps,
    names,
    program,
    some,
    steps,
)

SKILLS = ("intervals", "time", "Python", "scheduling")

# The solution has `free`: person -> set of free minutes of the day; the reference a string with a letter for each minute.
REPORTS = {
    "first": ("the begin of the first time when all people are free for {size} minutes on end; `-` if there is none", "next((hm(t) for t in range(1440) if set(range(t, t + SIZE)) <= common), '-')",
        lambda f: clock(f["all"].find("." * f["size"])) if "." * f["size"] in f["all"] else "-"),
    "last": ("the end of the last time when all people are free for {size} minutes on end; `-` if there is none", "next((hm(t + SIZE) for t in range(1439, -1, -1) if set(range(t, t + SIZE)) <= common), '-')",
        lambda f: clock(f["all"].rfind("." * f["size"]) + f["size"]) if "." * f["size"] in f["all"] else "-"),
    "common": ("all times when all people are free, each as BEGIN-END and as long as possible, in order", "spans(common)", lambda f: stretches(f["all"])),
    "free": ("PERSON=MINUTES for all people in alphabetical order, with the sum of their free minutes", "[f'{n}={len(free[n])}' for n in sorted(free)]", lambda f: [f"{n}={s.count('.')}" for n, s in sorted(f["days"].items())]),
    "busiest": ("the person with the fewest free minutes, of several the first in the alphabet", "min(sorted(free), key=lambda n: len(free[n]))", lambda f: min((s.count("."), n) for n, s in f["days"].items())[1]),
    "clash": ("the people with two appointments at one time, in alphabetical order", "sorted({a[0] for a, b in itertools.combinations(meets, 2) if a[0] == b[0] and a[1] < b[2] and b[1] < a[2]})",
        lambda f: sorted({n for i, (n, a, z) in enumerate(f["meets"]) for m, b, y in f["meets"][:i] if n == m and max(a, b) < min(z, y)})),
    "gaps": ("for the first person of the alphabet, all free times as BEGIN-END, as long as possible, in order", "spans(free[min(free)])", lambda f: stretches(f["days"][min(f["days"])])),
    "pairs": ("the two people, in alphabetical order, who have most free minutes in common; of several pairs, the first in alphabetical order", "min(itertools.combinations(sorted(free), 2), key=lambda q: -len(free[q[0]] & free[q[1]]))",
        lambda f: max(((shared(f, a, b), a, b) for a in sorted(f["days"]) for b in sorted(f["days"]) if a < b), key=lambda x: x[0])[1:]),
    "late": ("the people who are not free in the last 30 minutes of their hours, not even for one minute, in alphabetical order", "sorted(n for n in free if not free[n] & set(range(hours[n][1] - 30, hours[n][1])))",
        lambda f: sorted(n for n, s in f["days"].items() if "." not in s[f["ends"][n] - 30 : f["ends"][n]])),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "calendar"),
        "cases": some(rng, REPORTS, 2 + (level + 1) // 2),
        "size": rng.choice([15, 30, 45]),
        "people": 2 + level // 2,
        "travel": rng.choice([0, 5, 10]) if level > 2 else 0,
        "lunch": rng.choice(["", "12:00-13:00", "12:30-13:15"]) if level > 1 else "",
        "form": rng.choice(["BEGIN-END", "BEGIN +MINUTES"]),
        "cancelled": level > 1 and rng.random() < 0.5,
    }


def clock(minute):
    return f"{minute // 60:02}:{minute % 60:02}"


def data(rng, p):
    people, rows = words(rng, p.people, PEOPLE), []
    for name in people:
        begin, end = rng.choice([480, 510, 540, 600]), rng.choice([960, 1020, 1050])
        rows.append(f"hours {name} {clock(begin)}-{clock(end)}\n")
        for _ in range(rng.randint(3, 6)):
            start, size = (
                begin - 30 + 15 * rng.randrange((end - begin) // 15),
                rng.choice([15, 30, 45, 60, 90]),
            )
            when = (
                f"{clock(start)}-{clock(start + size)}"
                if p.form == "BEGIN-END"
                else f"{clock(start)} +{size}"
            )
            rows.append(f"{'cancelled' if p.cancelled and rng.random() < 0.25 else 'meet'} {name} {when}\n")
    rng.shuffle(rows)
    return "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def minute(text):
    hour, _, rest = text.partition(":")
    return int(hour) * 60 + int(rest)


def facts(text, p):
    """A day of a person has a letter a minute, a dot where the person is free."""
    rows = [line.split() for line in text.splitlines()]
    f = {"days": {}, "meets": [], "ends": {}, "size": p.size}
    for kind, name, when, *_ in rows:
        if kind == "hours":
            begin, end = map(minute, when.split("-"))
            f["days"][name], f["ends"][name] = "#" * begin + "." * (end - begin) + "#" * (1440 - end), end
    for kind, name, when, *size in rows:
        if kind == "meet":
            begin = minute(when[:5])
            end = begin + int(size[0]) if size else minute(when[6:])
            f["meets"].append((name, begin, end))
            f["days"][name] = marked(f["days"][name], begin - p.travel, end + p.travel)
    for name in f["days"]:
        if p.lunch:
            f["days"][name] = marked(f["days"][name], *map(minute, p.lunch.split("-")))
    f["all"] = "".join(
        "." if set(column) == {"."} else "#" for column in zip(*f["days"].values(), strict=True)
    )
    return f


def marked(day, begin, end):
    return day[:begin] + "#" * (end - begin) + day[end:]


def stretches(day):
    found, place = [], 0
    for part in day.split("#"):
        if part:
            found.append(f"{clock(place)}-{clock(place + len(part))}")
        place += len(part) + 1
    return found


def shared(f, a, b):
    return sum(x == y == "." for x, y in zip(f["days"][a], f["days"][b], strict=True))


def instruction(p):
    form = p.form.replace("BEGIN", "HH:MM").replace("END", "HH:MM")
    about = f"The lines of the file, in any order, are `hours PERSON HH:MM-HH:MM`, one for each person, and appointments of a day, `meet PERSON {form}`."
    rules = [
        "A person is free in those hours, except in appointments. Ends do not belong to a time any more: what ends at 10:00 leaves the minute of 10:00 free."
    ]
    if p.travel:
        rules.append(
            f"For {p.travel} minutes before and after each appointment a person is not free either (this is not part of the appointment)."
        )
    if p.lunch:
        rules.append(f"Nobody is free at {p.lunch}.")
    if p.cancelled:
        rules.append("Lines that begin with `cancelled` mean nothing.")
    sized = {name: (text.format(size=p.size), *rest) for name, (text, *rest) in REPORTS.items()}
    return asks(p, about, [*rules, "Times are printed as HH:MM."], sized)


def source(p):
    end = "minute(b[1:])" if p.form == "BEGIN-END" else "a + int(w[3][1:])"
    lunch = (
        [
            f"lunch = set(range({minute(p.lunch[:5])}, {minute(p.lunch[6:])}))",
            "for n in free: free[n] -= lunch",
        ]
        if p.lunch
        else []
    )
    head = f"""import itertools, sys
SIZE = {p.size}
def minute(s): return int(s[:2]) * 60 + int(s[3:])
def hm(t): return "%02d:%02d" % divmod(t, 60)
def spans(s):
    begins = [t for t in sorted(s) if t - 1 not in s]
    ends = [t + 1 for t in sorted(s) if t + 1 not in s]
    return [hm(a) + "-" + hm(b) for a, b in zip(begins, ends)]
rows = [line.split() for line in open(sys.argv[1])]
hours = {{w[1]: (minute(w[2][:5]), minute(w[2][6:])) for w in rows if w[0] == "hours"}}
free = {{n: set(range(*h)) for n, h in hours.items()}}
meets = []
for w in rows:
    if w[0] == "meet":
        a, b = minute(w[2][:5]), w[2][5:]
        meets.append((w[1], a, {end}))
        free[w[1]] -= set(range(a - {p.travel}, meets[-1][2] + {p.travel}))
"""
    head += "\n".join([*lunch, "common = set.intersection(*free.values())"])
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
