"""A small HTTP service on the loopback interface that keeps things for its clients.

Hard: status codes, headers and bodies are exact, state is shared, and bad requests must not stop it.
"""

import json

from sandbox.factory.kit import at, hidden, put, read, word, words

SKILLS = ("HTTP", "Python", "JSON", "servers")

# A route: what is said, the solution's branch (with `m` method, `path` list of parts, `body` text, `store` dict; gives
# status and text), and in `requests` what the tests send.
ROUTES = {
    "put": ("PUT /items/NAME keeps the body under NAME and answers 201, or 200 if there was something under that name before, with an empty body.", "if m == 'PUT' and len(path) == 2:\n    new = path[1] not in store\n    store[path[1]] = body\n    return (201 if new else 200), ''"),
    "get": ("GET /items/NAME answers 200 with what is kept under NAME, or 404 with the body `{missing}`.", "if m == 'GET' and len(path) == 2 and path[0] == 'items': return (200, store[path[1]]) if path[1] in store else (404, {missing!r})"),
    "delete": ("DELETE /items/NAME answers 204 with an empty body and forgets what was kept under NAME, or 404 with the body `{missing}` if there was nothing.", "if m == 'DELETE' and len(path) == 2: return (204, '') if store.pop(path[1], None) is not None else (404, {missing!r})"),
    "list": ("GET /items answers 200 with a JSON list of all names, sorted, and the header Content-Type: application/json.", "if m == 'GET' and path == ['items']: return 200, json.dumps(sorted(store))"),
    "size": ("GET /size answers 200 with the number of characters of all bodies that are kept, as text.", "if m == 'GET' and path == ['size']: return 200, str(sum(map(len, store.values())))"),
    "sum": ("POST /sum, with a JSON list of whole numbers as body, answers 200 with their sum as text; for any other body 400 with an empty body.", "if m == 'POST' and path == ['sum']:\n    try: return 200, str(sum(json.loads(body)))\n    except (ValueError, TypeError): return 400, ''"),
    "find": ("GET /find/TEXT answers 200 with the names, one a line and sorted, under which a body with TEXT in it is kept; 404 with the body `{missing}` if there are none.", "if m == 'GET' and path[:1] == ['find'] and len(path) == 2:\n    hits = sorted(n for n in store if path[1] in store[n])\n    return (200, '\\n'.join(hits)) if hits else (404, {missing!r})"),
    "append": ("POST /items/NAME puts the body at the end of what is kept under NAME (nothing: the body is kept alone) and answers 200 with the whole.", "if m == 'POST' and len(path) == 2:\n    store[path[1]] = store.get(path[1], '') + body\n    return 200, store[path[1]]"),
    "clear": ("DELETE /items forgets everything and answers 200 with the number of names that were forgotten, as text.", "if m == 'DELETE' and path == ['items']:\n    n = len(store)\n    store.clear()\n    return 200, str(n)"),
}  # fmt: skip


def draw(rng, level):
    routes = [
        "put",
        "get",
        *rng.sample([name for name in ROUTES if name not in ("put", "get")], min(7, level + 1)),
    ]
    return {
        "server": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "port": rng.randint(2000, 9000),
        "cases": routes,
        "missing": rng.choice(["not found", "nothing here", "no such item"]),
        "token": word(rng) if level > 2 and rng.random() < 0.6 else "",
        "header": rng.choice(["X-Token", "X-Key", "Authorization"]),
        "limit": rng.choice([0, 40, 60]) if level > 1 else 0,
        "served": f"X-{word(rng).title()}" if level > 3 else "",
        "names": words(rng, 4),
    }


def files(rng, p):
    return {"names.txt": "".join(f"{name} {word(rng)}\n" for name in p.names)}


def instruction(p):
    routes = "\n".join(f"- {ROUTES[name][0].format(**vars(p))}" for name in p.cases)
    rules = [
        f"Every other request is answered 404 with the body `{p.missing}`. NAME and TEXT are single words of letters; bodies are UTF-8 text."
    ]
    if p.token:
        rules.append(
            f"A request without the header {p.header}: {p.token} is answered 401 with an empty body before anything else is looked at."
        )
    if p.limit:
        rules.append(
            f"A body of more than {p.limit} bytes is answered 413 with an empty body{', after the check of that header and' * bool(p.token)} before all else, and nothing is kept."
        )
    if p.served:
        rules.append(
            f"Each answer has the header {p.served} with the number of requests so far, this one included, whatever their answers were."
        )
    text = f"It serves these requests:\n{routes}\n\n{' '.join(rules)} It goes on when a client breaks off, and needs only Python's standard library."
    todo = f"Then start it on port {p.port}, keep under each name of /app/names.txt the word beside it, ask for each again, in the order of the lines, and write the bodies of these answers to /app/{p.out}, one a line."
    return [
        f"Write an HTTP server, /app/{p.server} (Python), for 127.0.0.1 with the port as its argument. {text}\n\n{todo}",
        f"`python3 /app/{p.server} PORT` shall be a small store behind HTTP on 127.0.0.1. {text}\n\nPlease write it. {todo}",
        f"We need a store for our scripts: /app/{p.server}, a Python program that listens for HTTP on 127.0.0.1 at the port given as its argument. {text}\n\n{todo} We shall start it again for tests.",
    ]


def program(p):
    routes = "\n".join(ROUTES[name][1].format(**vars(p)) for name in sorted(p.cases))
    checks = [f"if head.get({p.header.lower()!r}) != {p.token!r}: return 401, ''"] * bool(p.token)
    checks += [f"if size > {p.limit}: return 413, ''"] * bool(p.limit)
    body = "\n".join(f"    {line}" for line in [*checks, *routes.split("\n")])
    served = f"extra = f'{p.served}: {{count[0]}}\\r\\n'" if p.served else "extra = ''"
    return f"""import json, socketserver, sys
store, count = {{}}, [0]
def answer(m, path, head, size, body):
{body}
    return 404, {p.missing!r}
class Client(socketserver.StreamRequestHandler):
    def handle(self):
        m, target, _ = self.rfile.readline().decode().split()
        head = {{}}
        while (line := self.rfile.readline().decode().strip()):
            k, _, v = line.partition(":")
            head[k.lower()] = v.strip()
        size = int(head.get("content-length", 0))
        body = self.rfile.read(size).decode()
        count[0] += 1
        path = target.strip("/").split("/")
        code, text = answer(m, path, head, size, body)
        kind = "application/json" if text[:1] == "[" and path == ["items"] else "text/plain"
        {served}
        data = text.encode()
        self.wfile.write(f"HTTP/1.1 {{code}} X\\r\\nContent-Type: {{kind}}\\r\\n{{extra}}Content-Length: {{len(data)}}\\r\\nConnection: close\\r\\n\\r\\n".encode() + data)
class Server(socketserver.TCPServer): allow_reuse_address = True
Server(("127.0.0.1", int(sys.argv[1])), Client).serve_forever()"""


def solution(p):
    head = f"{p.header}: {p.token}\\r\\n" if p.token else ""
    client = f"""import socket, time
def ask(m, path, body=""):
    for _ in range(200):
        try: s = socket.create_connection(("127.0.0.1", {p.port})); break
        except OSError: time.sleep(0.02)
    s.sendall(f"{{m}} {{path}} HTTP/1.1\\r\\nHost: x\\r\\n{head}Content-Length: {{len(body)}}\\r\\nConnection: close\\r\\n\\r\\n{{body}}".encode())
    return s.makefile().read().split("\\n\\n")[1]
pairs = [line.split() for line in open("names.txt")]
for name, text in pairs: ask("PUT", "/items/" + name, text)
for name, _ in pairs: print(ask("GET", "/items/" + name))"""
    return [
        "cat names.txt",
        put(p.server, program(p)),
        f"python3 {p.server} {p.port} > /tmp/log 2>&1 & echo $! > /tmp/pid",
        put("/tmp/client.py", client),
        f"python3 /tmp/client.py > {p.out}",
        f"cat {p.out}; kill $(cat /tmp/pid)",
    ]


def lazy(p):
    """Knows the names at hand only."""
    return [
        *solution(p),
        f"sed -i \"s/^    return 404/    return 200/; s/store\\[path\\[1\\]\\] = body/store[path[1]] = 'x'/\" {p.server}",
    ]


def asked(rng, p):
    """The requests of a session: (route, method, path, body)."""
    pool = words(rng, 4)
    made = [("put", "PUT", f"/items/{name}", f"{word(rng)} {word(rng)}") for name in pool[:3]]
    for name in [*p.cases, *rng.choices(p.cases, k=14)]:
        item, text = f"/items/{rng.choice(pool)}", f"{word(rng)} {rng.choice(pool)}"
        if p.limit and rng.random() < 0.15:
            text = text + "x" * p.limit
        made.append({
            "put": (name, "PUT", item, text), "get": (name, "GET", item, ""), "delete": (name, "DELETE", item, ""), "list": (name, "GET", "/items", ""), "size": (name, "GET", "/size", ""),
            "sum": (name, "POST", "/sum", rng.choice([json.dumps([rng.randint(-9, 99) for _ in range(4)]), "[]", "nothing", '["a"]'])),
            "find": (name, "GET", f"/find/{rng.choice(pool)}", ""), "append": (name, "POST", item, text), "clear": (name, "DELETE", "/items", "") if rng.random() < 0.4 else ("get", "GET", item, ""),
        }[name])  # fmt: skip
    made.append(("clear", "DELETE", "/items", "") if "clear" in p.cases else ("other", "GET", "/nowhere", ""))
    return [
        *made,
        ("put", "PUT", f"/items/{pool[0]}", "last"),
        ("get", "GET", f"/items/{pool[0]}", ""),
        ("other", "GET", "/nothing/at/all", ""),
        ("other", "PATCH", "/items", ""),
    ]


def answered(request, store, p):
    """Status and body that a request should get."""
    name, _, path, body = request
    item = path.split("/")[-1]
    if p.limit and len(body) > p.limit:
        return 413, ""
    match name:
        case "put":
            code = 200 if item in store else 201
            store[item] = body
            return code, ""
        case "get":
            return (200, store[item]) if item in store else (404, p.missing)
        case "delete":
            return (404, p.missing) if store.pop(item, None) is None else (204, "")
        case "list":
            return 200, sorted(store)
        case "size":
            return 200, str(len("".join(store.values())))
        case "sum":
            return (200, str(sum(json.loads(body)))) if body[0] == "[" and "a" not in body else (400, "")
        case "find":
            names = [n for n in sorted(store) if item in store[n]]
            return (200, "\n".join(names)) if names else (404, p.missing)
        case "append":
            store[item] = store.get(item, "") + body
            return 200, store[item]
        case "clear":
            count = len(store)
            store.clear()
            return 200, str(count)
        case _:
            return 404, p.missing


SESSION: list = []


def session(p):
    """One session with the agent's server, held once: (route, whether it was answered rightly, status, headers) of each request."""
    if not SESSION:
        import socket
        import subprocess

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = subprocess.Popen(
            ["python3", at(p.server), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            SESSION.extend(talk(port, process, p))
        finally:
            process.kill()
            process.wait()
    return SESSION


def connect(port, process):
    import socket
    import time

    for _ in range(300):
        assert process.poll() is None, "the server has ended"
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except OSError:
            time.sleep(0.02)
    raise AssertionError("the server does not listen")


def talk(port, process, p):
    store = {}
    for number, request in enumerate(asked(hidden(p), p), 1):
        route, method, path, body = request
        head = f"{p.header}: {p.token}\r\n" if p.token else ""
        right = answered(request, store, p)
        code, headers, text = ask(
            port, process, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{head}", body
        )
        got = (code, json.loads(text) if isinstance(right[1], list) else text)
        good = got == right and (
            not isinstance(right[1], list) or headers.get("content-type", "").startswith("application/json")
        )
        yield route, good, right[0], headers, number
    if p.token:
        code, headers, text = ask(port, process, "GET /items HTTP/1.1\r\nHost: localhost\r\n", "")
        yield "token", (code, text) == (401, ""), 401, headers, number + 1


def ask(port, process, head, body):
    with connect(port, process) as peer:
        data = body.encode()
        peer.sendall(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        file = peer.makefile("rb")
        code = int(file.readline().split()[1])
        headers = {}
        while line := file.readline().decode().strip():
            key, _, value = line.partition(":")
            headers[key.lower()] = value.strip()
        text = (
            b""
            if code == 204
            else file.read(int(headers["content-length"]))
            if "content-length" in headers
            else file.read()
        )
        return code, headers, text.decode()


def test_output(p):
    from sandbox.factory.kit import given

    assert read(p.out) + "\n" == "".join(
        f"{line.split()[1]}\n" for line in files(given(p), p)["names.txt"].splitlines()
    )


def test_hidden_route(p, case):
    mine = [good for route, good, status, _, _ in session(p) if route == case and status != 413]
    assert mine and all(mine)


def test_hidden_rules(p):
    """Other requests, long bodies, the token and the count."""
    rest = [
        good
        for route, good, status, _, _ in session(p)
        if route in ("other", "token") or status in (401, 413)
    ]
    assert rest and all(rest)
    assert not p.served or all(
        headers.get(p.served.lower()) == str(number) for *_, headers, number in session(p)
    )
