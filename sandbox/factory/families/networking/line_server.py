"""A server on the loopback interface that speaks a small line protocol with several clients at once.

Hard: state is shared by all clients, replies are exact to the byte, and one bad client must not stop the rest.
"""

from sandbox.factory.kit import at, hidden, put, read, word, words

SKILLS = ("TCP", "Python", "sockets", "concurrency", "protocols")

# Verb -> what it is for, the reply in the solution (of `words`, in the shared `store`), and Python's own.
VERBS = {
    "UPPER": ("the words in upper case", '" ".join(words).upper()', lambda w, s: " ".join(w).upper()),
    "COUNT": ("the number of words", "str(len(words))", lambda w, s: str(len(w))),
    "SUM": (
        "the sum of the words, which are whole numbers",
        "str(sum(map(int, words)))",
        lambda w, s: str(sum(map(int, w))),
    ),
    "SORT": ("the words in byte order", '" ".join(sorted(words))', lambda w, s: " ".join(sorted(w))),
    "LONGEST": (
        "the longest word, of several the first",
        "max(words, key=len)",
        lambda w, s: max(w, key=len),
    ),
    "TURN": ("the words in reverse order", '" ".join(words[::-1])', lambda w, s: " ".join(w[::-1])),
    "SET": (
        "OK, after remembering the second word under the first",
        "[store.update([words]), 'OK'][1]",
        lambda w, s: [s.update([w]), "OK"][1],
    ),
    "GET": (
        "what SET remembered under the word, or NONE",
        "store.get(words[0], 'NONE')",
        lambda w, s: s.get(w[0], "NONE"),
    ),
    "SIZE": (
        "the number of words that SET remembers a value for",
        "str(len(store))",
        lambda w, s: str(len(s)),
    ),
    "FORGET": (
        "OK, after forgetting what SET remembered under the word",
        "[store.pop(words[0], 0), 'OK'][1]",
        lambda w, s: [s.pop(w[0], 0), "OK"][1],
    ),
}
STATEFUL = ("SET", "GET", "SIZE", "FORGET")


def draw(rng, level):
    plain = [verb for verb in VERBS if verb not in STATEFUL]
    verbs = rng.sample(plain, min(5, 1 + level))
    if level > 1:
        verbs += ["SET", "GET", *rng.sample(["SIZE", "FORGET"], min(2, level - 2))]
    return {
        "server": f"{word(rng)}.py",
        "log": f"{word(rng)}.txt",
        "port": rng.randint(2000, 9000),
        "verbs": verbs,
        "end": rng.choice(["\n", "\r\n"]),
        "hello": f"{word(rng)} ready" if rng.random() < 0.5 else "",
        "unknown": rng.choice(["ERROR", "WHAT", "-ERR unknown"]),
        "bye": rng.choice(["BYE", "+OK", ""]),
        "lower": level > 2 and rng.random() < 0.6,
        "framed": level > 3 and rng.random() < 0.6,
        "asked": [[verb, *arguments(rng, verb)] for verb in verbs],
    }


def arguments(rng, verb):
    if verb == "SUM":
        return [str(rng.randint(-50, 99)) for _ in range(rng.randint(2, 5))]
    return words(rng, {"SET": 2, "GET": 1, "FORGET": 1, "SIZE": 0}.get(verb, rng.randint(2, 5)))


def files(rng, p):
    return {"requests.txt": "".join(" ".join(request) + "\n" for request in p.asked)}


def reply(request, store, p):
    verb, *rest = request
    known = verb in p.verbs or (p.lower and verb.upper() in p.verbs)
    text = VERBS[verb.upper()][2](rest, store) if known else p.unknown
    return f"{len(text)} {text}" if p.framed else text


def instruction(p):
    verbs = "\n".join(f"- {verb}: {VERBS[verb][0]}" for verb in p.verbs)
    end = "a newline" if p.end == "\n" else "carriage return and newline"
    rules = [
        "Requests are lines of words parted by single spaces, the first being the verb; each gets one "
        f"line as reply. All lines end in {end}."
    ]
    if p.hello:
        rules.append(f"On connecting, a client is first sent the line `{p.hello}`.")
    if p.lower:
        rules.append("Verbs may come in lower case as well.")
    rules.append(f"To any other verb the reply is `{p.unknown}`.")
    rules.append(
        f"QUIT {f'is answered `{p.bye}` and' if p.bye else 'gets no reply but'} ends the connection."
    )
    if p.framed:
        rules.append(
            "Each reply to a request (not to QUIT) begins with its length in characters and a space, as "
            "in `5 hello`."
        )
    shared = "What SET remembers is the same for all clients. " if "SET" in p.verbs else ""
    text = (
        f"{' '.join(rules)} These are the verbs, with their replies:\n{verbs}\n\n{shared}The server must "
        "serve several clients at a time, and go on when one breaks off in the middle of a line."
    )
    keep = f"Start it on port {p.port}, send the requests of /app/requests.txt in one connection, and write the replies to them to /app/{p.log}, a line each."
    return [
        f"Write a TCP server in Python, /app/{p.server}, that listens on 127.0.0.1 at the port given as "
        f"its argument. {text}\n\n{keep}",
        f"`python3 /app/{p.server} PORT` shall be a server on 127.0.0.1 (TCP). {text}\n\nPlease write it. "
        f"{keep}",
        f"We need a small line server for the loopback interface: /app/{p.server}, in Python, its port "
        f"the only argument. {text}\n\n{keep} Our own tests will start the server again.",
    ]


def program(p):
    verb = "verb.upper()" if p.lower else "verb"
    lines = ["import socketserver, sys, threading", "store, lock = {}, threading.Lock()", "REPLIES = {"]
    lines += [f"    {name!r}: lambda words: {VERBS[name][1]}," for name in p.verbs]
    lines += [
        "}", "class Client(socketserver.StreamRequestHandler):", "    def say(self, text):",
        f"        self.wfile.write((text + {p.end!r}).encode())", "    def handle(self):",
        *([f"        self.say({p.hello!r})"] if p.hello else []),
        "        for line in self.rfile:", "            verb, *words = line.decode().split()",
        f"            if {verb} == 'QUIT':", f"                return{f' self.say({p.bye!r})' if p.bye else ''}",
        "            with lock:", f"                text = REPLIES[{verb}](words) if {verb} in REPLIES else {p.unknown!r}",
        *(["            text = f'{len(text)} {text}'"] if p.framed else []), "            self.say(text)",
        "class Server(socketserver.ThreadingTCPServer):", "    allow_reuse_address = daemon_threads = True",
        "Server(('127.0.0.1', int(sys.argv[1])), Client).serve_forever()",
    ]  # fmt: skip
    return "\n".join(lines)


def solution(p):
    client = (
        "import socket, sys, time\nfor _ in range(100):\n    try:\n        peer = "
        f"socket.create_connection(('127.0.0.1', {p.port}))\n        break\n    except OSError:\n        "
        "time.sleep(0.05)\nlines = peer.makefile('rw', newline='')\n"
        + ("lines.readline()\n" if p.hello else "")
        + f"for line in open('requests.txt'):\n    lines.write(line.rstrip() + {p.end!r})\n    lines.flush()\n"
        "    print(lines.readline().rstrip())"
    )
    return [
        "cat requests.txt",
        put(p.server, program(p)),
        f"python3 {p.server} {p.port} > /dev/null 2>&1 & echo $! > /tmp/pid",
        put("/tmp/client.py", client),
        f"python3 /tmp/client.py > {p.log}",
        f"cat {p.log}; kill $(cat /tmp/pid)",
    ]


def lazy(p):
    echo = "import socketserver, sys\nclass Echo(socketserver.StreamRequestHandler):\n    def handle(self):\n        for line in"
    echo += " self.rfile: self.wfile.write(line)\nsocketserver.ThreadingTCPServer(('127.0.0.1', int(sys.argv[1])), Echo).serve_forever()"
    return [*solution(p), put(p.server, echo)]


class Server:
    """The agent's server on a free port, as a context; `connect` gives a client's file."""

    def __init__(self, p):
        import socket

        self.p, self.socket = p, socket
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def __enter__(self):
        import subprocess

        self.process = subprocess.Popen(
            ["python3", at(self.p.server), str(self.port)], stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def connect(self):
        import time

        for _ in range(100):
            assert self.process.poll() is None, "the server has ended"
            try:
                peer = self.socket.create_connection(("127.0.0.1", self.port), timeout=3)
                break
            except OSError:
                time.sleep(0.05)
        client = peer.makefile("rwb")
        peer.close()
        assert not self.p.hello or client.readline() == (self.p.hello + self.p.end).encode()
        return client

    def ask(self, client, request):
        client.write((" ".join(request) + self.p.end).encode())
        client.flush()
        return client.readline().decode()


def conversation(rng, p, length=12):
    known = words(rng, 3)
    for _ in range(length):
        verb = rng.choice([*p.verbs, "NOSUCH"])
        rest = arguments(rng, verb) if verb != "NOSUCH" else ["x"]
        if verb in STATEFUL and rest:
            rest[0] = rng.choice(known)
        yield [verb.lower() if p.lower and rng.random() < 0.3 else verb, *rest]


def test_log(p):
    store = {}
    assert read(p.log).split("\n") == [reply(request, store, p) for request in p.asked]


def test_hidden_conversation(p):
    store = {}
    with Server(p) as server:
        client = server.connect()
        for request in conversation(hidden(p), p):
            assert server.ask(client, request) == reply(request, store, p) + p.end
        client.write(("QUIT" + p.end).encode())
        client.flush()
        assert client.read() == ((p.bye + p.end) if p.bye else "").encode()


def test_hidden_two_clients(p):
    store, rng = {}, hidden(p)
    with Server(p) as server:
        clients = [server.connect(), server.connect()]
        for request in conversation(rng, p):
            assert server.ask(rng.choice(clients), request) == reply(request, store, p) + p.end


def test_hidden_client_that_breaks_off(p):
    store = {}
    with Server(p) as server:
        bad = server.connect()
        bad.write(b"GET")
        bad.flush()
        bad.close()
        client = server.connect()
        for request in conversation(hidden(p), p, 4):
            assert server.ask(client, request) == reply(request, store, p) + p.end
