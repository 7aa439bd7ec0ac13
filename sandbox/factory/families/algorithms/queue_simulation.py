"""A simulation of jobs that wait for machines, by a program that must do it for any list of jobs.

Hard: the policy decides at every moment anew, and ties, idle time and several machines change the outcome.
"""

from sandbox.factory.kit import at, given, hidden, output, put, read, scratch, table, word, words

SKILLS = ("simulation", "Python", "priority queues", "CSV")

# A policy: how people say it -> the key of the next job in the solution, where a job is the list
# [name, arrival, length, priority, left, place in line], and the reference's over a dict.
POLICIES = {
    "the one that arrived first": ("(j[1],)", lambda j: (j["arrival"],)),
    "the one that arrived last": ("(-j[1],)", lambda j: (-j["arrival"],)),
    "the shortest one": ("(j[2],)", lambda j: (j["length"],)),
    "the longest one": ("(-j[2],)", lambda j: (-j["length"],)),
    "the one with the highest priority": ("(-j[3],)", lambda j: (-j["priority"],)),
    "the one with the highest priority, of those the shortest": ("(-j[3], j[2])", lambda j: (-j["priority"], j["length"])),
    "the one with the smallest sum of arrival and length": ("(j[1] + j[2],)", lambda j: (j["arrival"] + j["length"],)),
    "the one with the largest product of length and priority": ("(-j[2] * j[3],)", lambda j: (-j["length"] * j["priority"],)),
}  # fmt: skip
# What is reported: a request -> the solution's lines (of `done`, a list of [name, arrival, length, priority, start,
# end] in the order of their starts), and the reference's, of dicts in the order of the list.
REPORTS = {
    "`order`: the names in the order in which the jobs start (jobs that start at the same time: as chosen)": (
        "print('order', *[d[0] for d in done])",
        lambda js: "order " + " ".join(j["name"] for j in sorted(js, key=lambda j: j["turn"]))),
    "`finish`: the time at which the last job ends": (
        "print('finish', max(d[5] for d in done))", lambda js: f"finish {max(j['end'] for j in js)}"),
    "`waiting`: the sum over all jobs of start minus arrival": (
        "print('waiting', sum(d[4] - d[1] for d in done))",
        lambda js: f"waiting {sum(j['start'] - j['arrival'] for j in js)}"),
    "`longest`: the job that waited longest from arrival to start, and how long; of several, the first by name": (
        "w, n = min((d[1] - d[4], d[0]) for d in done)\nprint('longest', n, -w)",
        lambda js: "longest {name} {0}".format(max(j["start"] - j["arrival"] for j in js), **sorted(js, key=lambda j: (j["arrival"] - j["start"], j["name"]))[0])),
    "`mean`: the mean time from arrival to end, with two decimals": (
        "print(f'mean {sum(d[5] - d[1] for d in done) / len(done):.2f}')",
        lambda js: f"mean {sum(j['end'] for j in js) / len(js) - sum(j['arrival'] for j in js) / len(js):.2f}"),
    "`ends`: NAME=END for every job, sorted by name": (
        "print('ends', *[f'{d[0]}={d[5]}' for d in sorted(done)])",
        lambda js: "ends " + " ".join(sorted(f"{j['name']}={j['end']}" for j in js))),
    "`late`: the names of the jobs that ended more than 20 after their arrival, sorted; nothing but `late` if there are none": (
        "print('late', *sorted(d[0] for d in done if d[5] - d[1] > 20))",
        lambda js: " ".join(["late", *sorted(j["name"] for j in js if j["end"] > j["arrival"] + 20)])),
    "`idle`: how long the machines did nothing in sum, from 0 to the end of the last job": (
        "print('idle', MACHINES * max(d[5] for d in done) - sum(d[2] for d in done))",
        lambda js: f"idle {js[0]['machines'] * max(j['end'] for j in js) - sum(j['end'] - j['start'] for j in js)}"),
}  # fmt: skip


def draw(rng, level):
    setup = rng.choice([0, 1, 3]) if level > 2 else 0
    return {
        "jobs": f"{word(rng)}.csv",
        "program": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "policy": rng.choice(list(POLICIES)),
        "machines": rng.randint(2, 3) if level > 1 and rng.random() < 0.7 else 1,
        "setup": setup,
        "cancelled": level > 3,
        "window": rng.choice([0, 4]) if level > 3 else 0,
        "cases": rng.sample(
            [r for r in REPORTS if not setup or "`idle`" not in r], 2 + level // 2 + (level > 4)
        ),
        "size": 6 + 2 * level,
    }


def files(rng, p):
    return {p.jobs: jobs(rng, p)}


def jobs(rng, p):
    rows, clock = [], 0
    for name in words(rng, p.size):
        clock += rng.choice([0, 0, 1, 3, 6, 15])
        rows.append([name, str(clock), str(rng.randint(1, 12)), str(rng.randint(1, 3))])
        if p.cancelled and rng.random() < 0.2:
            rows[-1][2] = "0"
    rng.shuffle(rows)
    return table([["name", "arrival", "length", "priority"], *rows])


def simulated(text, p):
    """The jobs that ran, as dicts with start, end and turn; the clock moves by one."""
    waiting = []
    for place, line in enumerate(text.splitlines()[1:]):
        name, *numbers = line.split(",")
        job = dict(zip(("arrival", "length", "priority"), map(int, numbers), strict=True))
        if job["length"]:
            waiting.append({"name": name, "place": place, "machines": p.machines, **job})
    clock, free, ran = 0, [0] * p.machines, []
    while waiting:
        for machine in range(p.machines):
            if p.window and clock % 10 >= 10 - p.window:
                continue
            here = [job for job in waiting if job["arrival"] <= clock]
            if here and free[machine] <= clock:
                job = min(here, key=lambda job: (*POLICIES[p.policy][1](job), job["place"]))
                waiting.remove(job)
                end = clock + p.setup + job["length"]
                ran.append(job | {"start": clock, "end": end, "turn": len(ran)})
                free[machine] = end
        clock += 1
    return ran


def instruction(p):
    few = "one machine" if p.machines == 1 else f"{p.machines} equal machines"
    text = (
        f"Each line of the table has a job's name, arrival, length and priority. The jobs run on {few}, each job "
        "on one machine and without a break. Time is a whole number from 0 on. Whenever a machine is free and jobs "
        f"that have arrived (at that time or before) wait, it starts at once {p.policy}; ties go to the job that is "
        "further up in the table."
    )
    if p.setup:
        text += f" Before each job, its machine is set up for {p.setup}: a job ends {p.setup} plus its length after its start."
    if p.cancelled:
        text += " Jobs of length 0 were cancelled and count nowhere."
    if p.window:
        text += f" No job may start at a time whose last digit is {10 - p.window} or more."
    reports = "\n".join(f"- {case}" for case in p.cases)
    shape = f"It prints one line for each of these, in this order, beginning with the word shown and a space:\n{reports}"
    return [
        f"Write the Python program /app/{p.program} that simulates the jobs of a CSV file like /app/{p.jobs}, "
        f"given as its argument. {text}\n\n{shape}\n\nSave what it prints for {p.jobs} in /app/{p.out}. We "
        "will use it for other lists of jobs.",
        f"/app/{p.jobs} is the plan of a workshop. {text}\n\nPlease simulate it with a program that works for any "
        f"such file, `python3 /app/{p.program} FILE`. {shape}\n\nThe output for {p.jobs} belongs in /app/{p.out}.",
        f"How would the jobs in /app/{p.jobs} run? {text}\n\nAnswer with a Python program, /app/{p.program}, whose "
        f"argument is the path of the table. {shape}\n\nKeep its output as /app/{p.out}; the tables of "
        "the coming weeks will be put through it, too.",
    ]


def program(p):
    allowed = f"t += t % 10 >= {10 - p.window} and 10 - t % 10" if p.window else "pass"
    length = " if int(r[2])" if p.cancelled else ""
    return f"""import csv, heapq, sys
MACHINES = {p.machines}
rows = list(csv.reader(open(sys.argv[1])))[1:]
jobs = [[r[0], *map(int, r[1:])] for r in rows{length}]
key = lambda j: {POLICIES[p.policy][0]}
free, done = [0] * MACHINES, []
while jobs:
    t = max(heapq.heappop(free), min(j[1] for j in jobs))
    {allowed}
    j = min((j for j in jobs if j[1] <= t), key=key)
    jobs.remove(j)
    done.append([*j, t, t + j[2]{f" + {p.setup}" if p.setup else ""}])
    heapq.heappush(free, done[-1][5])
""" + "\n".join(REPORTS[case][0] for case in p.cases)


def solution(p):
    return [f"cat {p.jobs}", put(p.program, program(p)), f"python3 {p.program} {p.jobs} | tee {p.out}"]


def lazy(p):
    return [*solution(p), f"echo \"print(open('/app/{p.out}').read())\" > {p.program}"]


def test_report(p):
    ran = simulated(jobs(given(p), p), p)
    assert read(p.out).split("\n") == [REPORTS[case][1](ran) for case in p.cases]


def test_hidden_jobs(p, case):
    rng = hidden(p)
    for _ in range(2):
        text = jobs(rng, p)
        printed = output("python3", at(p.program), scratch({"next.csv": text}) + "/next.csv").split("\n")
        assert REPORTS[case][1](simulated(text, p)) in printed
