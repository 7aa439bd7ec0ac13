"""A report on a web server's access log, by a script that must also work for the next log.

Hard: fields stand in quotes, broken lines must be left out, and equal values need a second sort key.
"""

from sandbox.factory.kit import PEOPLE, at, given, hidden, output, read, scratch, table, word, words

SKILLS = ("awk", "sort", "shell scripts", "text fields")

# How people say it -> awk's and Python's expression, over a line split at spaces.
GROUPS = {
    "client address": ("$1", lambda f: f[0]),
    "user": ("$3", lambda f: f[2]),
    "request method": ("substr($6, 2)", lambda f: f[5][1:]),
    "path": ("$7", lambda f: f[6]),
    "first part of the path (such as /api)": ('"/" part[2]', lambda f: "/" + f[6].split("/")[1]),
    "status code": ("$9", lambda f: f[8]),
    "hour of the day (two digits)": ("substr($4, 14, 2)", lambda f: f[3][13:15]),
}
MEASURES = {
    "the number of requests": ("1", lambda f: 1),
    "the sum of bytes sent": ("$10", lambda f: int(f[9])),
    "the number of server errors (status 500 and above)": ("($9 >= 500)", lambda f: int(f[8]) >= 500),
    "the number of large answers (more than 5000 bytes)": ("($10 > 5000)", lambda f: int(f[9]) > 5000),
}
FILTERS = {
    "with a status from 200 to 299": ("$9 ~ /^2/", lambda f: f[8].startswith("2")),
    "of the method GET": ('$6 == "\\"GET"', lambda f: f[5] == '"GET'),
    "for paths below /api/": ('index($7, "/api/") == 1', lambda f: f[6].startswith("/api/")),
    "with a user name (other than -)": ('$3 != "-"', lambda f: f[2] != "-"),
    "from 12:00 on": ("substr($4, 14, 2) >= 12", lambda f: int(f[3][13:15]) >= 12),
}
LAYOUTS = {"VALUE,GROUP": '$1 "," $2', "GROUP=VALUE": '$2 "=" $1', "GROUP: VALUE": '$2 ": " $1'}


def draw(rng, level):
    return {
        "log": f"{word(rng)}.log",
        "script": f"{word(rng)}.sh",
        "out": f"{word(rng)}.txt",
        "group": rng.choice(list(GROUPS)),
        "measure": rng.choice(list(MEASURES)[: 1 + level]),
        "only": rng.sample(list(FILTERS), (level + 1) // 2 if level > 1 else 0),
        "layout": rng.choice(list(LAYOUTS)),
        "largest": rng.random() < 0.5,
        "top": rng.randint(3, 6) if level >= 2 and rng.random() < 0.7 else 0,
        "broken": level >= 3,
        "size": 60 * level,
    }


def files(rng, p):
    return {p.log: access_log(rng, p)}


def access_log(rng, p):
    clients = [f"10.0.{rng.randint(0, 9)}.{rng.randint(1, 99)}" for _ in range(8)]
    users, lines = ["-", "-", *words(rng, 6, PEOPLE)], []
    paths = [f"/{top}/{name}" for top in ("api", "img", "doc", "apis") for name in words(rng, 3)]
    for _ in range(p.size):
        time = f"{rng.randint(10, 28)}/Mar/2025:{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:00 +0000"
        request = f"{rng.choice(['GET', 'GET', 'POST', 'PUT'])} {rng.choice(paths)} HTTP/1.1"
        end = f"{rng.choice([200, 200, 201, 304, 404, 500, 503])} {rng.randint(0, 9000)}"
        lines.append([f'{rng.choice(clients)} - {rng.choice(users)} [{time}] "{request}" {end}'])
        if p.broken and rng.random() < 0.1:
            lines.append([rng.choice([lines[-1][0][: rng.randint(5, 30)], "-- log rotated --"])])
    return table(lines)


def report(log, p):
    sums = {}
    for fields in (line.split(" ") for line in log.splitlines()):
        if len(fields) == 10 and all(FILTERS[name][1](fields) for name in p.only):
            group = GROUPS[p.group][1](fields)
            sums[group] = sums.get(group, 0) + MEASURES[p.measure][1](fields)
    rows = sorted(sums.items(), key=lambda row: (-row[1] if p.largest else row[1], row[0]))
    lines = [p.layout.replace("GROUP", group).replace("VALUE", str(value)) for group, value in rows]
    return "\n".join(lines[: p.top or None])


def instruction(p):
    only = f" Count only requests {' and '.join(p.only)}." if p.only else ""
    order = f"{'largest' if p.largest else 'smallest'} value first, equal values by group in byte order"
    top = f" and no more than {p.top} lines" if p.top else ""
    broken = " Lines that are no requests, being cut off or notes of the server, must be left out." * p.broken
    return [
        f"""/app/{p.log} is the access log of a web server. For each {p.group} we need {p.measure}.{only}
        Write the bash script /app/{p.script}, which takes the path of such a log as its argument and prints
        lines of the form {p.layout}, where GROUP is the {p.group} and VALUE {p.measure}: {order}{top}.{broken}
        Save what it prints for {p.log} as /app/{p.out}. We will run the script on other logs too.""",
        f"""Please report on the web server log /app/{p.log}: {p.measure} for each {p.group}, {order}{top}, one line
        each, written {p.layout} (VALUE is {p.measure}, GROUP the {p.group}).{only}{broken} The report belongs in
        /app/{p.out}, and must come from a bash script /app/{p.script} that prints the same kind of report for
        any log whose path is its first argument.""",
        f"""Every week we look at {p.measure} per {p.group} in a log like /app/{p.log}. Automate it: `bash
        /app/{p.script} LOG` has to print one {p.layout} line for each {p.group} (that is GROUP; VALUE is
        {p.measure}), {order}{top}.{only}{broken} Run it on {p.log} and keep the output in /app/{p.out}.""",
    ]


def solution(p):
    conditions = " && ".join(["NF == 10", *[FILTERS[name][0] for name in p.only]])
    count = f'{conditions} {{ split($7, part, "/"); sum[{GROUPS[p.group][0]}] += {MEASURES[p.measure][0]} }}'
    stages = [
        f"awk '{count} END {{ for (group in sum) print sum[group], group }}' \"$1\"",
        f"LC_ALL=C sort -k1,1n{'r' * p.largest} -k2,2",
        *([f"head -n {p.top}"] if p.top else []),
        f"awk '{{ print {LAYOUTS[p.layout]} }}'",
    ]
    script = " |\n  ".join(stages)
    return [
        f"head -n 5 {p.log}",
        f"cat > {p.script} <<'END'\n#!/bin/bash\n{script}\nEND",
        f"bash {p.script} {p.log} | tee {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo 'cat /app/{p.out}' > {p.script}"]


def test_report(p):
    assert read(p.out) == report(access_log(given(p), p), p)


def test_script_prints_the_report(p):
    assert output("bash", at(p.script), at(p.log)) == report(access_log(given(p), p), p)


def test_hidden_logs(p):
    rng = hidden(p)
    for _ in range(3):
        log = access_log(rng, p)
        folder = scratch({"next.log": log})
        assert output("bash", at(p.script), f"{folder}/next.log") == report(log, p)
