"""A script that starts, stops and watches services that are listed in a file, with pid files.

Hard: pid files go stale, services must outlive the script and let go of its output, and every term holds for every action.
"""

import os
import signal

from sandbox.factory.kit import hidden, put, read, run, scratch, word, words

SKILLS = ("processes", "pid files", "bash", "signals", "exit codes")

TERMS = {
    "twice": "start of a service that is up starts nothing and exits with {twice}.",
    "down": "stop of a service that is down exits with {down}.",
    "unknown": "If there is no such NAME in CONF, every action exits with {unknown} and does nothing.",
    "stale": "status removes the pid file of a service that is down.",
    "folder": "A service runs in the folder RUN/NAME.d, which is made for it.",
    "variable": "A service finds its name in its environment, as {variable}.",
    "log": "What a service writes to standard output and standard error is appended to RUN/NAME.log.",
    "signal": "stop sends {signal} and no other signal.",
    "history": "Each start and stop that succeeds appends `start NAME` or `stop NAME` to RUN/{history}.",
    "all": "`list` in place of ACTION and NAME prints what status prints, for all services, in the order of CONF, and exits with 0.",
    "code": "status exits with 0 if the service is up, and with {code} if it is down.",
}  # fmt: skip


def draw(rng, level):
    terms = rng.sample(list(TERMS), min(len(TERMS), 2 + level))
    return {
        "script": f"{word(rng)}.sh",
        "conf": f"{word(rng)}.conf",
        "out": f"{word(rng)}.txt",
        "cases": [name for name in TERMS if name in terms],
        "twice": rng.choice([3, 11]), "down": rng.choice([4, 12]), "unknown": rng.choice([5, 13]), "code": rng.choice([1, 6, 14]),
        "variable": rng.choice(["SERVICE", "UNIT", "DAEMON"]),
        "signal": rng.choice(["TERM", "HUP", "USR1"]) if "signal" in terms else "TERM",
        "history": f"{word(rng)}.log",
        "up": rng.choice(["NAME up PID", "NAME: running (PID)", "PID NAME"]),
        "off": rng.choice(["NAME down", "NAME: stopped", "- NAME"]),
    }  # fmt: skip


def files(rng, p):
    return {p.conf: "".join(f"{name} sleep {rng.randint(300, 900)}\n" for name in words(rng, 3))}


def instruction(p):
    terms = "\n".join(f"- {TERMS[name].format(**vars(p))}" for name in p.cases)
    text = (
        f"Each line of a file CONF is a service: a name, a space and a command for bash. `bash /app/{p.script} CONF RUN ACTION NAME` does something for the service NAME, with its state in the folder RUN, which is made if needed: "
        "start runs its command in the background, with its process id in RUN/NAME.pid, and comes back at once; stop sends TERM to that process, waits until it is gone and removes the pid file; "
        f"status prints `{p.up}` for a service that is up, and `{p.off}` for one that is down, with its name and process id in the places of NAME and PID. A service is up if there is a pid file and a process with that id. The exit code is 0, unless said below"
    )
    if "signal" in p.cases:
        text = text.replace("sends TERM to that process", "sends a signal to that process")
    todo = f"In /app, start the first service of /app/{p.conf} with RUN being /app/run, write the output of status for all its services, in the order of the file, to /app/{p.out}, and stop the service again."
    return [
        f"Write the bash script /app/{p.script}, which controls services. {text}:\n{terms}\n\n{todo}",
        f"We have no init system, and need a script in its place. {text}. These terms hold, too:\n{terms}\n\nPlease write it as /app/{p.script}. {todo}",
        f"/app/{p.script}, in bash, is to look after our services. {text}. Besides:\n{terms}\n\n{todo} We shall use it with services of our own.",
    ]


def program(p):
    has = p.cases.__contains__
    show = lambda text: text.replace("NAME", "$1").replace("PID", "$2")  # noqa: E731
    env = f"{p.variable}=$name " if has("variable") else ""
    folder = 'mkdir -p "$run/$name.d"; cd "$run/$name.d"' if has("folder") else ":"
    log = '>> "$run/$name.log" 2>&1' if has("log") else "> /dev/null 2>&1"
    note = f'echo "$action $name" >> "$run/{p.history}"' if has("history") else ":"
    every = (
        [
            'if [ "$action" = list ]; then',
            '  while read -r name _; do status "$name"; done < "$conf"',
            "  exit 0",
            "fi",
        ]
        if has("all")
        else []
    )
    known = [f'grep -q "^$name " "$conf" || exit {p.unknown}'] if has("unknown") else []
    return "\n".join([
        "#!/bin/bash", 'mkdir -p "$2"', 'conf=$(realpath "$1") run=$(realpath "$2") action=$3 name=$4',
        'alive() { pid=$(cat "$run/$1.pid" 2> /dev/null) && kill -0 "$pid" 2> /dev/null; }',
        "status() {", '  if alive "$1"; then', '    set -- "$1" "$pid"', f'    echo "{show(p.up)}"', "  else", *(['    rm -f "$run/$1.pid"'] * has("stale")), f'    echo "{show(p.off)}"', f"    return {p.code if has('code') else 0}", "  fi", "}",
        *every, *known, "case $action in", "start)", f"  alive \"$name\" && exit {p.twice if has('twice') else 0}", '  command=$(sed -n "s/^$name //p" "$conf")',
        f"  ({folder}; {env}exec bash -c \"$command\" < /dev/null {log}) &", '  echo $! > "$run/$name.pid"', f"  {note} ;;",
        "stop)", f"  alive \"$name\" || exit {p.down if has('down') else 0}", f'  kill -{p.signal} "$pid"', '  for i in {1..500}; do kill -0 "$pid" 2> /dev/null || break; sleep 0.01; done', '  rm -f "$run/$name.pid"', f"  {note} ;;",
        'status) status "$name" ;;', "esac",
    ])  # fmt: skip


def solution(p):
    call = f"bash {p.script} {p.conf} run"
    return [
        f"cat {p.conf}",
        put(p.script, program(p)),
        f"{call} start $(head -n 1 {p.conf} | cut -d ' ' -f 1)",
        f"for n in $(cut -d ' ' -f 1 {p.conf}); do {call} status $n; done | tee {p.out}",
        f"{call} stop $(head -n 1 {p.conf} | cut -d ' ' -f 1)",
    ]


def lazy(p):
    return [*solution(p), put(p.script, f'[ "$3" != status ] || grep -w "$4" /app/{p.out}')]


PLAYED: list = []


def played(p):
    """One history with hidden services, made once: what the script gave and what there was."""
    if not PLAYED:
        rng = hidden(p)
        one, two, three = words(rng, 3)
        folder = scratch({"x": ""})
        conf, state = f"{folder}/c", f"{folder}/state"
        command = f'echo "$PWD {word(rng)} ${p.variable}"; echo problem >&2; sleep 100 & trap "echo got {p.signal} > {folder}/signal; kill $!; exit" {p.signal}; wait'
        with open(conf, "w") as file:
            file.write(f"{one} {command}\n{two}x true\n{two} exec sleep 400\n{three} true\n")

        def call(*words):
            done = run("bash", f"/app/{p.script}", conf, state, *words, ok=False, cwd="/usr")
            return done.returncode, done.stdout.strip()

        s = {"names": (one, two, three), "folder": folder, "state": state}
        try:
            s["start"] = [call("start", one)[0], call("start", two)[0]]
            s["pids"] = [load(f"{state}/{name}.pid").strip() for name in (one, two)]
            s["alive"] = [alive(pid) for pid in s["pids"]]
            s["up"] = [call("status", one), call("status", two)]
            s["twice"] = [call("start", two)[0], load(f"{state}/{two}.pid").strip()]
            s["list"] = call("list") if "all" in p.cases else None
            s["cwd"] = os.readlink(f"/proc/{s['pids'][1]}/cwd")
            with open(f"/proc/{s['pids'][1]}/environ") as file:
                s["environ"] = file.read().split("\0")
            wait(lambda: "problem" in load(f"{state}/{one}.log") if "log" in p.cases else True)
            s["log"] = load(f"{state}/{one}.log")
            s["stop"] = [call("stop", one)[0], call("stop", two)[0]]
            s["gone"] = [
                not alive(pid) and not os.path.exists(f"{state}/{name}.pid")
                for pid, name in zip(s["pids"], (one, two), strict=True)
            ]
            s["signal"] = load(f"{folder}/signal").strip()
            with open(f"{state}/{three}.pid", "w") as file:
                file.write("999999\n")
            s["off"] = [call("status", one), call("status", three)]
            s["stale"] = os.path.exists(f"{state}/{three}.pid")
            s["down"] = call("stop", two)[0]
            s["unknown"] = [call(action, "nobody")[0] for action in ("start", "stop", "status")]
            s["history"] = load(f"{state}/{p.history}").split("\n")
        finally:
            for pid in s.get("pids", []):
                if pid.isdigit() and alive(pid):
                    os.kill(int(pid), signal.SIGKILL)
        PLAYED.append(s)
    return PLAYED[0]


def alive(pid):
    """Whether there is such a process, and it is no zombie."""
    if not pid.isdigit() or not os.path.exists(f"/proc/{pid}/stat"):
        return False
    return load(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] != ["Z"]


def wait(holds):
    import time

    for _ in range(500):
        if holds():
            return
        time.sleep(0.01)


def load(path):
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


def up(p, name, pid):
    return p.up.replace("NAME", name).replace("PID", pid)


def test_output(p):
    lines = read(p.out).split("\n")
    names = [line.split()[0] for line in read(p.conf).split("\n")]
    head, _, tail = p.up.replace("NAME", names[0]).partition("PID")
    assert (
        lines[0].startswith(head)
        and lines[0].endswith(tail)
        and lines[0][len(head) : len(lines[0]) - len(tail)].isdigit()
    )
    assert lines[1:] == [p.off.replace("NAME", name) for name in names[1:]] and not os.path.exists(
        f"/app/run/{names[0]}.pid"
    )


def test_hidden_start_and_status(p):
    s = played(p)
    assert s["start"] == [0, 0] and s["alive"] == [True, True]
    assert [text for _, text in s["up"]] == [
        up(p, name, pid) for name, pid in zip(s["names"], s["pids"], strict=False)
    ]


def test_hidden_stop(p):
    s = played(p)
    assert (
        s["stop"] == [0, 0]
        and s["gone"] == [True, True]
        and s["off"][0][1] == p.off.replace("NAME", s["names"][0])
    )


def test_hidden_term(p, case):
    s = played(p)
    one, two, three = s["names"]
    assert s["alive"] == [True, True]
    match case:
        case "twice":
            assert s["twice"] == [p.twice, s["pids"][1]]
        case "down":
            assert s["down"] == p.down
        case "unknown":
            assert s["unknown"] == [p.unknown] * 3
        case "stale":
            assert not s["stale"] and s["off"][1][1] == p.off.replace("NAME", three)
        case "folder":
            assert s["cwd"] == os.path.realpath(f"{s['state']}/{two}.d")
        case "variable":
            assert f"{p.variable}={two}" in s["environ"]
        case "log":
            assert "problem\n" in s["log"] and len(s["log"].split("\n")) == 3
        case "signal":
            assert s["signal"] == f"got {p.signal}"
        case "history":
            assert s["history"][:4] == [f"start {one}", f"start {two}", f"stop {one}", f"stop {two}"]
        case "all":
            rest = [p.off.replace("NAME", f"{two}x"), up(p, two, s["pids"][1]), p.off.replace("NAME", three)]
            assert s["list"] == (0, "\n".join([up(p, one, s["pids"][0]), *rest]))
        case _:
            assert [code for code, _ in s["up"] + s["off"]] == [0, 0, p.code, p.code]
