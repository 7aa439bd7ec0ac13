"""A program that waits for signals and does something for each kind, until one of them ends it.

Hard: state is kept from signal to signal, output must not wait in a buffer, and the end must clean up.
"""

import os

from sandbox.factory.kit import at, hidden, put, raw, word, words

SKILLS = ("signals", "Python", "processes", "exit codes")

# What a signal does: how people say it, the solution's lines of a handler (of `name`, `seen`: all names so far, `state`), and
# the line that the program prints, in the tests (of the names so far, this one last, and a dict).
ACTIONS = {
    "count": ("prints the number of all signals that it has got so far, whatever they were, this one included", "say(len(seen))", lambda seen, s: len(seen)),
    "kinds": ("prints the number of different kinds of signals that it has got so far, this one included", "say(len(set(seen)))", lambda seen, s: len({*seen})),
    "before": ("prints the name of the signal before this one (as in `HUP`), or `none`", "say((['none'] + seen)[-2])", lambda seen, s: seen[-2] if seen[1:] else "none"),
    "history": ("prints the names of all signals so far with spaces between them, this one included", "say(*seen)", lambda seen, s: " ".join(seen)),
    "toggle": ("prints `on` the first time, `off` the second, and so on in turn", "say('off' if seen.count(name) % 2 == 0 else 'on')", lambda seen, s: ["off", "on"][seen.count(seen[-1]) % 2]),
    "config": ("reads /app/{config} anew and prints its first line", "say(open('/app/{config}').readline().strip())", lambda seen, s: s["config"]),
    "log": ("appends a line with the number of signals so far, this one included, to /app/{log}, and prints `logged`", "open('/app/{log}', 'a').write(f'{{len(seen)}}\\n'); say('logged')", lambda seen, s: s["log"].append(len(seen)) or "logged"),
    "often": ("prints the name of the most frequent signal so far, this one included, of several the first in the alphabet", "say(min(set(seen), key=lambda n: (-seen.count(n), n)))", lambda seen, s: max(sorted({*seen}), key=seen.count)),
    "same": ("prints how many times it has got this very signal", "say(seen.count(name))", lambda seen, s: seen.count(seen[-1])),
    "reset": ("prints `reset` and forgets all signals up to and including this one, as if it had just been started", "seen.clear(); say('reset')", lambda seen, s: seen.clear() or "reset"),
}  # fmt: skip
SIGNALS = ("USR1", "USR2", "HUP", "ALRM", "QUIT", "WINCH", "CONT", "INT")


def draw(rng, level):
    count = 1 + level
    signals = rng.sample(SIGNALS, count + (level > 1))
    return {
        "program": f"{word(rng)}.py",
        **dict(zip(("pid", "config", "log"), (f"{n}.{s}" for n, s in zip(words(rng, 3), ("pid", "conf", "log"), strict=True)), strict=True)),
        "cases": signals[:count],
        "actions": dict(zip(signals, rng.sample(list(ACTIONS), count), strict=False)),
        "ignored": signals[count:],
        "ready": f"{word(rng)} ready",
        "code": rng.choice([0, 3, 7, 42]),
        "bye": rng.choice(["bye {n}", "got {n} signals", "end"]),
    }  # fmt: skip


def files(rng, p):
    return {p.config: f"{word(rng)}\n"}


def instruction(p):
    acts = "\n".join(f"- {name}: it {ACTIONS[act][0].format(**vars(p))}" for name, act in p.actions.items())
    bye = p.bye.replace("{n}", "N") + (
        "`, where N is the number of signals so far without this one," if "{n}" in p.bye else "`"
    )
    end = f"On TERM it prints `{bye} removes its pid file and exits with code {p.code}."
    if p.ignored:
        end += f" {p.ignored[0]} has no effect at all and is not counted."
    start = f"When it starts, it writes its process id to /app/{p.pid}, prints the line `{p.ready}` once it can take signals, and waits."
    lines = "Each print is one line on standard output, written out at once, also when that is a pipe."
    return [
        f"Write the Python program /app/{p.program}, which reacts to signals. {start} It reacts like this:\n{acts}\n\n{end} {lines}",
        f"A daemon is to be controlled by signals: /app/{p.program}, in Python, run without arguments. {start} For each signal there is something to do:\n{acts}\n\n{end} {lines}",
        f"Please write `python3 /app/{p.program}`. {start} {lines} What the signals mean:\n{acts}\n\n{end}",
    ]


def program(p):
    acts = "\n".join(
        f"    {'if' if not i else 'elif'} name == {n!r}: {ACTIONS[a][1].format(**vars(p))}"
        for i, (n, a) in enumerate(p.actions.items())
    )
    names = ", ".join(f"signal.SIG{n}" for n in [*p.actions, "TERM"])
    ignore = "".join(f"signal.signal(signal.SIG{n}, signal.SIG_IGN)\n" for n in p.ignored)
    bye = f"say(f{p.bye.replace('{n}', '{len(seen)}')!r})"
    return f"""import os, signal
seen = []
def say(*v): print(*v, flush=True)
def act(number):
    name = signal.Signals(number).name[3:]
    if name == "TERM":
        {bye}
        os.remove("/app/{p.pid}")
        os._exit({p.code})
    seen.append(name)
{acts}
{ignore}signals = ({names})
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
open("/app/{p.pid}", "w").write(str(os.getpid()))
say({p.ready!r})
while True: act(signal.sigwait(signals))"""


def solution(p):
    first = p.cases[0]
    return [
        f"cat {p.config}",
        put(p.program, program(p)),
        f"python3 {p.program} > /tmp/out &\nuntil grep -q . /tmp/out; do :; done\nkill -{first} $(cat {p.pid}); kill $(cat {p.pid}); wait; cat /tmp/out",
    ]


def lazy(p):
    """Knows what to say the first time only."""
    last = p.cases[-1]
    wrong = program(p).replace(ACTIONS[p.actions[last]][1].format(**vars(p)), "say('ok')")
    return [*solution(p), put(p.program, wrong)]


class Daemon:
    """The agent's program, as a context; `tell` sends a signal and gives the line that it prints then."""

    def __init__(self, p):
        self.p = p

    def __enter__(self):
        import subprocess

        self.process = subprocess.Popen(
            ["python3", at(self.p.program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/app"
        )
        assert self.line() == self.p.ready
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def line(self):
        import select

        data = b""
        while not data.endswith(b"\n"):
            assert select.select([self.process.stdout], [], [], 15)[0], "it prints nothing"
            more = os.read(self.process.stdout.fileno(), 4096)
            assert more, "it has ended"
            data += more
        return data.decode().rstrip("\n")

    def send(self, name):
        """Sends a signal once the program sleeps: one that comes just before it does may be lost on it."""
        import signal
        import time

        for _ in range(500):
            with open(f"/proc/{self.process.pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "S":
                    break
            time.sleep(0.002)
        self.process.send_signal(getattr(signal, f"SIG{name}"))

    def tell(self, name):
        self.send(name)
        return self.line()


RUNS: list = []


def play(p):
    """One long run, made once for all tests: ((signal, what was printed, what should be) of each, the log, the end)."""
    if not RUNS:
        rng, seen, told, state = hidden(p), [], [], {"log": [], "config": word(hidden(p))}
        with open(at(p.config), "w") as file:
            file.write(state["config"] + "\n")
        if os.path.exists(at(p.log)):
            os.remove(at(p.log))
        with Daemon(p) as daemon:
            pid = raw(p.pid).decode().strip() == str(daemon.process.pid)
            for name in [*rng.sample(p.cases, len(p.cases)), *rng.choices(p.cases, k=10 + len(p.cases))]:
                for ignored in p.ignored:
                    daemon.send(ignored)
                seen.append(name)
                should = str(ACTIONS[p.actions[name]][2](seen, state))
                told.append((name, daemon.tell(name), should))
            bye = daemon.tell("TERM") == p.bye.replace("{n}", str(len(seen)))
            end = daemon.process.wait(15) == p.code and not os.path.exists(at(p.pid))
        log = raw(p.log).decode().split() if state["log"] else []
        RUNS.append((told, log == [str(n) for n in state["log"]], pid, bye, end))
    return RUNS[0]


def test_hidden_signal(p, case):
    told, log, *_ = play(p)
    assert all(line == should for name, line, should in told if name == case)
    assert log or p.actions[case] != "log"


def test_pid_file_and_end(p):
    _, _, pid, bye, end = play(p)
    assert pid and bye and end
