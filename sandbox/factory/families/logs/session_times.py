"""How long things took, from a log of starts and ends, by a script for any such log.

Hard: starts and ends of many things are mixed, some never end, and others end that never began.
"""

from sandbox.factory.kit import NOUNS, PEOPLE, words
from sandbox.factory.scripts import names, printer, solvable, wordings

SKILLS = ("awk", "associative arrays", "time arithmetic", "sort")

FORMS = {
    "`10:15:30 start user=ines job=fjord`": "{time} {event} user={user} job={job}",
    "`user=ines job=fjord start 10:15:30`": "user={user} job={job} {event} {time}",
    "`start,10:15:30,fjord,ines` (event, time, job, user)": "{event},{time},{job},{user}",
    "`[10:15:30] ines: start fjord` (user, event, job)": "[{time}] {user}: {event} {job}",
}
# awk's fields in the order time, event, user, job.
FIELDS = {
    "`1": ("$1", "$2", "substr($3, 6)", "substr($4, 5)"),
    "`u": ("$4", "$3", "substr($1, 6)", "substr($2, 5)"),
    "`s": ("$2", "$1", "$4", "$3"),
    "`[": ("substr($1, 2, 8)", "$3", "substr($2, 1, length($2) - 1)", "$4"),
}
KEYS = {"job": "j", "user": "u", "user and job (as USER/JOB)": 'u "/" j'}
# What is told of the runs of one key: -> awk's update with the seconds d, Python's of the list of seconds.
MEASURES = {
    "the sum of the seconds of its runs": ("v[k] += d", sum),
    "the seconds of its longest run": ("if (d > v[k]) v[k] = d", max),
    "the number of its runs": ("v[k]++", len),
    "the seconds of its first run": ("if (!(k in v)) v[k] = d", lambda ds: ds[0]),
    "the seconds of its last run": ("v[k] = d", lambda ds: ds[-1]),
    "the number of its runs of more than 600 seconds": ("v[k] += d > 600", lambda ds: sum(d > 600 for d in ds)),
}  # fmt: skip
SECOND = {
    "a start while a run goes on is ignored": "if (!(id in at))",
    "a start while a run goes on begins the run anew": "",
}
STATES = {
    "": "",
    "lines with the event fail end a run too, but such a run does not count": "fail",
    "lines with the event fail end a run just as stop does": "stop",
}
ORDERS = {
    "largest value first, equal ones by name": "-k2,2nr -k1,1",
    "smallest value first, equal ones by name": "-k2,2n -k1,1",
    "by name": "-k1,1",
}
OPENS = (
    "A log tells when jobs of users start and stop, all on one day. We want to know how long they took.",
    "From a log of a single day, in which runs of jobs begin (start) and end (stop), the times shall be worked out.",
)


def draw(rng, level):
    return solvable(rng, level, choose, make, worked)


def choose(rng, level):
    return names(rng, "log") | {
        "form": rng.choice(list(FORMS)),
        "key": rng.choice(list(KEYS)),
        "measure": rng.choice(list(MEASURES)),
        "second": rng.choice(list(SECOND)) if level > 1 else next(iter(SECOND)),
        "state": rng.choice(list(STATES)) if level > 2 else "",
        "order": rng.choice(list(ORDERS)),
        "unended": level > 2 and rng.random() < 0.6,
        "least": rng.choice([0, 60, 300]) if level > 3 else 0,
        "size": 20 + 15 * level,
    }


def make(rng, p):
    users, jobs = words(rng, 4, PEOPLE), words(rng, 3, NOUNS)
    form, now, lines = FORMS[p.form], 8 * 3600, []
    events = ["start", "stop", "ping"] + ["fail"] * bool(p.state)
    for _ in range(p.size):
        now += rng.choice([5, 30, 200, 500]) + rng.randrange(100)
        time = f"{now // 3600 % 24:02}:{now // 60 % 60:02}:{now % 60:02}"
        lines.append(
            form.format(
                time=time,
                event=rng.choice(events),
                user=rng.choice(users[: 2 + p.level // 2]),
                job=rng.choice(jobs),
            )
        )
    return "\n".join(lines) + "\n"


def worked(text, p):
    import re

    runs, open_runs, pattern = {}, {}, re.escape(FORMS[p.form])
    for name in ("time", "event", "user", "job"):
        pattern = pattern.replace(rf"\{{{name}\}}", f"(?P<{name}>[a-z0-9:]+)")
    for line in text.splitlines():
        f = re.fullmatch(pattern, line).groupdict()
        h, m, s = map(int, f["time"].split(":"))
        now, run = 3600 * h + 60 * m + s, (f["user"], f["job"])
        key = {"j": f["job"], "u": f["user"]}.get(KEYS[p.key], "/".join(run))
        if f["event"] == "start" and (run not in open_runs or not SECOND[p.second]):
            open_runs[run] = now
        elif f["event"] in ("stop", "fail") and run in open_runs:
            took = now - open_runs.pop(run)
            if (f["event"] == "stop" or STATES[p.state] == "stop") and took >= p.least:
                runs.setdefault(key, []).append(took)
    if not runs:
        return ""
    rows = [(MEASURES[p.measure][1](ds), key) for key, ds in runs.items()]
    rows.sort(key=lambda r: ({"l": -r[0], "s": r[0], "b": 0}[p.order[0]], r[1]))
    return "\n".join([*(f"{key} {v}" for v, key in rows), *[f"unended {len(open_runs)}"] * p.unended])


def instruction(p):
    rules = [
        f"a line has the form {p.form}",
        "a run begins with start and ends with the next stop of the same user and job; a stop without a run, and any other event, means nothing",
    ]
    rules += [
        p.second,
        f"print a line `NAME VALUE` for each {p.key} with a run that counts: NAME is the {p.key}, VALUE {p.measure}",
        f"the order is: {p.order} (byte order)",
    ]
    rules += [p.state] * bool(p.state) + [f"runs shorter than {p.least} seconds do not count"] * bool(p.least)
    rules += [
        "runs without an end do not count",
        *["then comes a line `unended N` with the number of runs that have no end"] * p.unended,
    ]
    return wordings(p, OPENS, rules)


def program(p):
    time, event, user, job = FIELDS[p.form[:2]]
    ends = 'e == "stop"' + ' || e == "fail"' * bool(p.state)
    good = ' && e == "stop"' * (STATES[p.state] == "fail") + f" && d >= {p.least}" * bool(p.least)
    code = f"""{{ e = {event}; u = {user}; j = {job}; k = {KEYS[p.key]}; id = u "/" j
  split({time}, c, ":"); now = c[1] * 3600 + c[2] * 60 + c[3] }}
e == "start" {{ {SECOND[p.second]} at[id] = now; next }}
({ends}) && id in at {{ d = now - at[id]; delete at[id]; if (1{good}) {{ {MEASURES[p.measure][0]} }} }}
END {{ for (k in v) print k, v[k] | "LC_ALL=C sort {ORDERS[p.order]}"; close("LC_ALL=C sort {ORDERS[p.order]}")
  for (id in at) n++{'; print "unended", n + 0' * p.unended} }}"""
    separator = "-F , " if p.form[1] == "s" else ""
    return f"#!/bin/bash\nawk {separator}'{code}' \"$1\""


files, solution, lazy, test_half, test_result, test_script, test_hidden_logs = printer(make, worked, program)
