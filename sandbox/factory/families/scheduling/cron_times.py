"""What a table of jobs in cron's form runs, and when, told by a program that takes any table and any time.

Hard: lists, ranges and steps, months of different length, and cron's rule for two kinds of day at once.
"""

from datetime import datetime, timedelta

from sandbox.factory.kit import at, given, hidden, output, put, read, scratch, word, words

SKILLS = ("cron", "dates and times", "Python", "parsing")

DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"]
QUESTIONS = {
    "next": "for each job, in the order of the table, `TIME JOB`, where TIME is its first run after START",
    "runs": "for each run of a job from START up to, but without, END: `TIME JOB`, in the order of time; runs of one minute "
    "in the order of the table",
    "counts": "for each job, in the order of the table, `COUNT JOB`, the number of its runs from START up to, but without, "
    "END",
    "busiest": "the minutes from START up to, but without, END in which the most jobs run, each as `TIME COUNT`, in the "
    "order of time",
}
FORMS = {
    "YYYY-MM-DD HH:MM": "%Y-%m-%d %H:%M",
    "YYYY-MM-DDTHH:MM": "%Y-%m-%dT%H:%M",
    "DD.MM.YYYY HH:MM": "%d.%m.%Y %H:%M",
}


def draw(rng, level):
    start = datetime(2025, rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), rng.randint(0, 59))
    return {
        "table": f"{word(rng)}.tab",
        "program": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "question": rng.choice(list(QUESTIONS)),
        "form": rng.choice(list(FORMS)),
        "start": start.isoformat(),
        "hours": rng.choice([26, 75, 190]),
        "features": rng.sample(["lists", "ranges", "steps"], min(3, level)),
        "names": level > 3,
        "days": level > 2,
        "comments": level > 1 and rng.random() < 0.5,
        "disabled": level > 2 and rng.random() < 0.5,
        "count": 2 + level,
    }


def files(rng, p):
    return {p.table: table(rng, p)}


def part(rng, p, low, high, star=0.5):
    """One field of a line: `*`, a number, or what the features allow."""
    if rng.random() < star:
        return "*/" + str(rng.choice([2, 3, 5])) if "steps" in p.features and rng.random() < 0.5 else "*"
    a, b = sorted(rng.sample(range(low, high + 1), 2))
    kinds = {"lists": f"{a},{b}", "ranges": f"{a}-{b}", "steps": f"{a}-{b}/2"}
    return rng.choice([str(a), *[kinds[name] for name in p.features]])


def table(rng, p):
    lines = []
    for job in words(rng, p.count):
        day, weekday = "*", "*"
        if p.days:
            day, weekday = part(rng, p, 1, 31), part(rng, p, 0, 6)
            if p.names and weekday.isdigit():
                weekday = DAYS[int(weekday)]
        minute, hour = part(rng, p, 0, 59, star=0.1), part(rng, p, 0, 23)
        if p.comments and rng.random() < 0.5:
            lines.append(rng.choice([f"# {word(rng)}", ""]))
        line = f"{minute} {hour} {day} {'*' if p.days else part(rng, p, 1, 12)} {weekday} {job}"
        lines.append("off " + line if p.disabled and rng.random() < 0.3 else line)
    return "\n".join(lines) + "\n"


def allowed(field, low, high):
    found = set()
    for item in field.split(","):
        item, _, step = item.partition("/")
        first, _, last = item.partition("-")
        first, last = (low, high) if item == "*" else (int(first), int(last or first))
        found |= set(range(first, last + 1, int(step or 1)))
    return found


def jobs(text):
    for line in text.splitlines():
        if line and line[0] not in "#o":
            minute, hour, day, month, weekday, job = line.split()
            weekday = str(DAYS.index(weekday)) if weekday in DAYS else weekday
            yield job, (allowed(minute, 0, 59), allowed(hour, 0, 23), allowed(month, 1, 12)), (day, weekday)


def runs(times, days, moment):
    minutes, hours, months = times
    if moment.minute not in minutes or moment.hour not in hours or moment.month not in months:
        return False
    on_day = moment.day in allowed(days[0], 1, 31)
    on_weekday = moment.isoweekday() % 7 in allowed(days[1], 0, 6)
    either = days[0][0] != "*" and days[1][0] != "*"
    return on_day or on_weekday if either else on_day and on_weekday


def answer(text, start, hours, p):
    def show(moment):
        return moment.strftime(FORMS[p.form])

    listed = list(jobs(text))
    if p.question == "next":
        later = (start + timedelta(minutes=number) for number in range(1, 500_000))
        first = {}
        for moment in later:
            for job, times, days in listed:
                if job not in first and runs(times, days, moment):
                    first[job] = show(moment)
            if len(first) == len(listed):
                return "\n".join(f"{first[job]} {job}" for job, _, _ in listed)
    moments = [start + timedelta(minutes=number) for number in range(60 * hours)]
    found = [(moment, job) for moment in moments for job, times, days in listed if runs(times, days, moment)]
    counts = {job: sum(name == job for _, name in found) for job, _, _ in listed}
    if p.question == "runs":
        return "\n".join(f"{show(moment)} {job}" for moment, job in found)
    if p.question == "counts":
        return "\n".join(f"{count} {job}" for job, count in counts.items())
    load = {}
    for moment, _ in found:
        load[moment] = load.get(moment, 0) + 1
    most = max(load.values(), default=0)
    return "\n".join(f"{show(moment)} {most}" for moment, count in load.items() if count == most)


def instruction(p):
    end = "START" if p.question == "next" else "START END"
    features = {"lists": "lists (1,5)", "ranges": "ranges (1-5)", "steps": "steps (*/5, 1-9/2)"}
    rules = [
        "Its fields are those of cron: minute, hour, day of the month, month and day of the week (0 is "
        f"Sunday), then the job's name. There may be {', '.join(features[name] for name in p.features)}."
    ]
    if p.names:
        rules.append("Days of the week may be names such as Mon.")
    if p.days:
        rules.append(
            "As in cron, where both kinds of day are given (neither begins with *), one of them is enough."
        )
    if p.comments:
        rules.append("Empty lines, and lines that begin with #, mean nothing.")
    if p.disabled:
        rules.append("A line that begins with the word off is a job that does not run at all: leave it out.")
    start = datetime.fromisoformat(p.start)
    times = f"{start:%Y-%m-%dT%H:%M}" + (
        "" if end == "START" else f" {start + timedelta(hours=p.hours):%Y-%m-%dT%H:%M}"
    )
    asked = f"{QUESTIONS[p.question]}. Times are printed as {p.form}, and given as YYYY-MM-DDTHH:MM."
    asked = (
        asked
        if p.question != "counts"
        else asked.partition(". Times")[0] + ". Times are given as YYYY-MM-DDTHH:MM."
    )
    return [
        f"/app/{p.table} is a table of jobs. {' '.join(rules)}\n\nWrite a Python program "
        f"/app/{p.program}, called as `python3 {p.program} TABLE {end}`, that prints {asked} Save what it "
        f"prints for {p.table} and {times} as /app/{p.out}. It will be used with other tables and times.",
        f"When do the jobs of /app/{p.table} run? {' '.join(rules)}\n\nPlease write `python3 "
        f"/app/{p.program} TABLE {end}`, which prints {asked} For {p.table} and {times}, put the result "
        f"into /app/{p.out}; other tables follow.",
        f"We need a program, /app/{p.program} (Python), for tables of jobs such as /app/{p.table}. "
        f"{' '.join(rules)}\n\nIts arguments are TABLE {end}, and it prints {asked} Run it with {p.table} "
        f"{times}, output to /app/{p.out}.",
    ]


MAINS = {
    "next": """for i, job in enumerate(jobs):
    t = start + minute
    while not fits(job, t):
        t += minute
        if not on_day(job, t): t = t.replace(hour=23, minute=59)
    print(show(t), job[5])""",
    "runs": """while start < end:
    for job in jobs:
        if fits(job, start): print(show(start), job[5])
    start += minute""",
    "counts": """for job in jobs:
    n, t = 0, start
    while t < end:
        n += fits(job, t)
        t += minute
    print(n, job[5])""",
    "busiest": """load = {}
while start < end:
    load[start] = sum(fits(job, start) for job in jobs)
    start += minute
top = max(load.values())
for t, n in load.items():
    if n == top > 0: print(show(t), n)""",
}


def program(p):
    steps = (
        """    field, slash, step = field.partition("/")
"""
        if "steps" in p.features
        else ""
    )
    named = f"    if field in {DAYS}: field = str({DAYS}.index(field))\n" if p.names else ""
    span = (
        "if step and (value - max(low, int(first)) if first != '*' else value - low) % int(step): return "
        "False" * bool(steps)
    )
    body = [
        "import sys", "from datetime import datetime, timedelta",
        "def one(field, value, low):", *([named.rstrip()] if named else []), *([steps.rstrip()] if steps else []),
        "    first, dash, last = field.partition('-')",
        *([f"    {span}"] if span else []),
        "    if first == '*': return True",
        "    return int(first) <= value <= int(last or first)",
        "def match(field, value, low):",
        "    return any(one(item, value, low) for item in field.split(','))" if "lists" in p.features else "    return one(field, value, low)",
        "def on_day(job, t):",
        "    if not match(job[3], t.month, 1): return False",
        "    day, week = match(job[2], t.day, 1), match(job[4], t.isoweekday() % 7, 0)",
        *(["    if job[2][0] != '*' and job[4][0] != '*': return day or week"] if p.days else []),
        "    return day and week",
        "def fits(job, t):",
        "    return match(job[0], t.minute, 0) and match(job[1], t.hour, 0) and on_day(job, t)",
        "lines = [line.split() for line in open(sys.argv[1])]",
        "jobs = [f for f in lines" + " if f and f[0][0] != '#'" * p.comments + "]",
        *(["jobs = [f for f in jobs if f[0] != 'off']"] if p.disabled else []),
        "start, minute = datetime.fromisoformat(sys.argv[2]), timedelta(minutes=1)",
        *(["end = datetime.fromisoformat(sys.argv[3])"] if p.question != "next" else []),
        *([f"def show(t): return t.strftime('{FORMS[p.form]}')"] if p.question != "counts" else []),
        MAINS[p.question],
    ]  # fmt: skip
    return "\n".join(body)


def arguments(start, p):
    end = [] if p.question == "next" else [(start + timedelta(hours=p.hours)).isoformat(timespec="minutes")]
    return [start.isoformat(timespec="minutes"), *end]


def solution(p):
    call = " ".join(["python3", p.program, p.table, *arguments(datetime.fromisoformat(p.start), p)])
    return [f"cat {p.table}", put(p.program, program(p)), f"{call} > {p.out}", f"head {p.out}"]


def lazy(p):
    return [*solution(p), put(p.program, f"print(open('/app/{p.out}').read())")]


def test_answer(p):
    assert read(p.out) == answer(table(given(p), p), datetime.fromisoformat(p.start), p.hours, p)


def test_hidden_time(p):
    start = datetime(2026, hidden(p).randint(1, 12), 27, 23, 30)
    printed = output("python3", at(p.program), at(p.table), *arguments(start, p))
    assert printed == answer(table(given(p), p), start, p.hours, p)


def test_hidden_tables(p):
    rng = hidden(p)
    for _ in range(2):
        text, start = table(rng, p), datetime(2024, 2, rng.randint(20, 29), rng.randint(0, 23))
        printed = output("python3", at(p.program), scratch({"jobs": text}) + "/jobs", *arguments(start, p))
        assert printed == answer(text, start, p.hours, p)
