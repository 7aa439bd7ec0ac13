"""A client that collects all items of a web service on the loopback interface, whatever the service does on the way.

Hard: pages, tokens, refusals that call for another try, and other forms of the answer, each by its own rule.
"""

import json

from sandbox.factory.kit import PEOPLE, PLACES, at, given, hidden, output, put, read, tidy, word, words

SKILLS = ("HTTP", "urllib", "JSON", "Python", "retries")

# How the service leads to the next page: the request for the first and the rule, as people say it, and the solution's
# lines that set `url` from the answer (`r`, with `body` and `page`), None at the end.
PAGINGS = {
    "number": ("GET /items?page=1 gives the first page, page=2 the second, and so on; the first page without items is behind the last one",
        "'/items?page=1'", "page += 1\n    url = f'/items?page={page}' if items else None"),
    "link": ("GET /items gives the first page; if there are more, the header Link has `<PATH>; rel=\"next\"`, where PATH is that of the next page",
        "'/items'", "link = r.headers.get('Link')\n    url = link.split('>')[0][1:] if link else None"),
    "cursor": ("GET /items gives the first page; if there are more, the header X-Next has a text, and the next page is at /items?after=TEXT",
        "'/items'", "after = r.headers.get('X-Next')\n    url = f'/items?after={after}' if after else None"),
    "offset": ("GET /items?offset=0 gives the first items; the header X-Total has the number of all items, and the next request begins at the number of those received so far",
        "'/items?offset=0'", "url = f'/items?offset={len(found)}' if len(found) < int(r.headers['X-Total']) else None"),
}  # fmt: skip
# What must be done for the service to answer well, at a given request.
QUIRKS = {
    "token": "Requests need the header `Authorization: Bearer TOKEN`, where TOKEN is the text that POST /login answers when sent the contents of /app/key.txt as its body.",
    "busy": "It may answer 503 to any GET. The header Retry-After then has the milliseconds after which the same request should be made again (as often as it takes).",
    "version": "Requests must carry the header `Accept: application/vnd.items.v2`; without it the service answers in an old form.",
    "moved": "It may send a redirect (302) to where the page now is.",
    "gzip": "Bodies of pages may be compressed: then the header Content-Encoding says gzip.",
    "agent": "It refuses clients whose User-Agent does not begin with `collector/`.",
}
BODIES = {
    "a JSON list of objects": ("json.loads(body)", json.dumps),
    "a JSON object whose field `items` is the list of objects": ("json.loads(body)['items']", lambda items: json.dumps({"count": len(items), "items": items})),
    "one JSON object a line": ("[json.loads(line) for line in body.splitlines()]", lambda items: "".join(json.dumps(i) + "\n" for i in items)),
    "lines `ID,NAME,CITY,AMOUNT`": ("[dict(zip(['id', 'name', 'city', 'amount'], [int(c) if c.isdigit() else c for c in line.split(',')])) for line in body.split()]",
        lambda items: "".join(f"{i['id']},{i['name']},{i['city']},{i['amount']}\n" for i in items)),
}  # fmt: skip
REPORTS = {
    "one line `ID NAME` for each item, sorted by the number id": (
        "for i in sorted(found, key=lambda i: i['id']): print(i['id'], i['name'])",
        lambda items: [f"{i['id']} {i['name']}" for i in sorted(items, key=lambda i: i["id"])]),
    "one line `CITY SUM` for each city, with the sum of its amounts, sorted by city": (
        "sums = {}\nfor i in found: sums[i['city']] = sums.get(i['city'], 0) + i['amount']\nfor c in sorted(sums): print(c, sums[c])",
        lambda items: [f"{c} {sum(i['amount'] for i in items if i['city'] == c)}" for c in sorted({i["city"] for i in items})]),
    "two lines, the number of items and the sum of all amounts": (
        "print(len(found))\nprint(sum(i['amount'] for i in found))",
        lambda items: [str(len(items)), str(sum(i["amount"] for i in items))]),
    "the names of the items with an amount above 500, in the order in which the service gives them, one a line": (
        "for i in found:\n    if i['amount'] > 500: print(i['name'])",
        lambda items: [i["name"] for i in items if i["amount"] > 500]),
}  # fmt: skip


def draw(rng, level):
    return {
        "client": f"{word(rng)}.py",
        "out": f"{word(rng)}.txt",
        "server": f"{word(rng)}_service.py",
        "port": rng.randint(2000, 9000),
        "paging": rng.choice(list(PAGINGS)),
        "quirks": sorted(rng.sample(list(QUIRKS), min(5, level)) if level > 1 else []),
        "body": rng.choice(list(BODIES)),
        "report": rng.choice(list(REPORTS)),
        "key": f"{word(rng)}-{rng.randint(1000, 9999)}",
        "size": rng.choice([3, 4, 5]),
    }


def stock(rng, count):
    ids, towns = rng.sample(range(1, 900), count), words(rng, 4, PLACES)
    return [
        {"id": i, "name": word(rng, PEOPLE), "city": rng.choice(towns), "amount": rng.randint(1, 999)}
        for i in ids
    ]


# The service, as the environment has it and as the tests start it: python3 FILE PORT ITEMS OPTIONS.
SERVICE = r"""import gzip, json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

items = json.load(open(sys.argv[2]))
o = json.load(open(sys.argv[3]))
size, quirks, seen = o["size"], o["quirks"], {}


def render(part):
    if o["body"] == "list":
        return json.dumps(part)
    if o["body"] == "object":
        return json.dumps({"count": len(part), "items": part})
    if o["body"] == "lines":
        return "".join(json.dumps(i) + "\n" for i in part)
    return "".join("%s,%s,%s,%s\n" % (i["id"], i["name"], i["city"], i["amount"]) for i in part)


class Service(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode().strip()
        if self.path == "/login" and body == o["key"]:
            return self.send(200, o["token"].encode())
        self.send(403)

    def do_GET(self):
        turn = seen[self.path] = seen.get(self.path, 0) + 1
        parts = urlsplit(self.path)
        moved = parts.path == "/moved"
        if parts.path not in ("/items", "/moved"):
            return self.send(404)
        if "agent" in quirks and not self.headers.get("User-Agent", "").startswith("collector/"):
            return self.send(403)
        if "token" in quirks and self.headers.get("Authorization") != "Bearer " + o["token"]:
            return self.send(401)
        if "busy" in quirks and turn < 1 + (len(self.path) + len(seen)) % 3:
            return self.send(503, Retry_After=20)
        if "moved" in quirks and not moved and len(seen) % 2:
            return self.send(302, Location=self.path.replace("/items", "/moved"))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        start, headers = 0, {}
        if o["paging"] == "number":
            start = (int(query.get("page", 1)) - 1) * size
        elif o["paging"] == "offset":
            start = int(query.get("offset", 0))
            headers["X_Total"] = len(items)
        else:
            start = next((n for n in range(len(items)) if "k%x" % (n * 7919 + 77) == query.get("after")), 0)
        after = "k%x" % ((start + size) * 7919 + 77)
        if start + size < len(items) and o["paging"] == "link":
            headers["Link"] = '</items?after=%s>; rel="next"' % after
        if start + size < len(items) and o["paging"] == "cursor":
            headers["X_Next"] = after
        part = items[start : start + size]
        if "version" in quirks and self.headers.get("Accept") != "application/vnd.items.v2":
            part = [{"id": i["id"], "name": "?", "city": "?", "amount": 0} for i in part]
        body = render(part).encode()
        if "gzip" in quirks and start // size % 2 == 0:
            body, headers["Content_Encoding"] = gzip.compress(body), "gzip"
        self.send(200, body, **headers)


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
"""


def options(p, token):
    shape = dict(zip(BODIES, ("list", "object", "lines", "csv"), strict=True))[p.body]
    return json.dumps(
        {"size": p.size, "quirks": p.quirks, "paging": p.paging, "body": shape, "key": p.key, "token": token}
    )


def files(rng, p):
    items, token = stock(rng, 17), f"t{rng.randint(10**8, 10**9)}"
    return {
        p.server: SERVICE,
        "items.json": json.dumps(items),
        "options.json": options(p, token),
        "key.txt": p.key + "\n",
    }


def instruction(p):
    quirks = "".join(f"\n- {QUIRKS[name]}" for name in p.quirks)
    more = f" What else there is to know:{quirks}" if quirks else ""
    start = f"Start the service with `python3 /app/{p.server} {p.port} /app/items.json /app/options.json` (it serves 127.0.0.1:{p.port} until it is ended)"
    fields = "Items have the fields id and amount (whole numbers), name and city."
    api = f"{PAGINGS[p.paging][0]}. The body of a page is {p.body}. {fields}{more}"
    only = "It must take the items from the service at BASE alone, as we use it with services that have other items."
    return [
        f"/app/{p.server} is a web service with items on several pages. {start}. {api}\n\nWrite the client "
        f"/app/{p.client} in Python (standard library only), called as `python3 {p.client} BASE` with a base such as "
        f"http://127.0.0.1:{p.port}. It fetches all items and prints {p.report}. Save what it prints in /app/{p.out}. {only}",
        f"Please write `/app/{p.client}`, a Python program that gets the base of a web service as argument, as in "
        f"http://127.0.0.1:{p.port}, collects the items of all pages, and prints {p.report}. Only the standard library "
        f"may be used. {only} {start} to try it, and keep its output as /app/{p.out}.\n\nThe service works like this: {api}",
        f"A colleague's web service pages its items: {api}\n\n{start}, and collect all items by a Python program "
        f"that needs only the standard library, `python3 /app/{p.client} BASE` (BASE is like http://127.0.0.1:{p.port}). It "
        f"prints {p.report}. Put the output into /app/{p.out}. {only}",
    ]


def program(p):
    _, first, onward = PAGINGS[p.paging]
    has = p.quirks.__contains__
    lines = [
        "import gzip, json, sys, time, urllib.error, urllib.request",
        "base, headers = sys.argv[1].rstrip('/'), {}",
        "def get(path, data=None):",
    ]
    if has("busy"):
        lines += ["    while True:", "        try:", "            return urllib.request.urlopen(urllib.request.Request(base + path, data, headers))",
                  "        except urllib.error.HTTPError as e:", "            if e.code != 503: raise", "            time.sleep(int(e.headers['Retry-After']) / 1000)"]  # fmt: skip
    else:
        lines += ["    return urllib.request.urlopen(urllib.request.Request(base + path, data, headers))"]
    if has("agent"):
        lines += ["headers['User-Agent'] = 'collector/1'"]
    if has("version"):
        lines += ["headers['Accept'] = 'application/vnd.items.v2'"]
    if has("token"):
        lines += [
            "headers['Authorization'] = 'Bearer ' + get('/login', open('/app/key.txt', 'rb').read()).read().decode()"
        ]
    lines += [f"found, page, url = [], 1, {first}", "while url:", "    r = get(url)", "    body = r.read()"]
    if has("gzip"):
        lines += ["    if r.headers.get('Content-Encoding') == 'gzip': body = gzip.decompress(body)"]
    lines += [
        "    body = body.decode()",
        f"    items = {BODIES[p.body][0]}",
        "    found += items",
        f"    {onward}",
        REPORTS[p.report][0],
    ]
    return "\n".join(lines)


def solution(p):
    wait = f"import socket, time\nfor _ in range(200):\n    try: socket.create_connection(('127.0.0.1', {p.port})).close(); break\n    except OSError: time.sleep(0.05)"
    return [
        f"python3 {p.server} {p.port} items.json options.json > /dev/null 2>&1 & echo $! > /tmp/pid",
        f"python3 - <<'END'\n{wait}\nEND",
        put(p.client, program(p)),
        f"python3 {p.client} http://127.0.0.1:{p.port} | tee {p.out}",
        "kill $(cat /tmp/pid)",
    ]


def lazy(p):
    return [*solution(p), f"echo \"print(open('/app/{p.out}').read())\" > {p.client}"]


def collected(p, rng, count):
    """What the client prints, and what it should, against a service of other items on a free port."""
    import os
    import socket
    import subprocess
    import time

    from sandbox.factory.kit import scratch

    assert os.path.isfile(at(p.client)), "there is no client"
    items = stock(rng, count)
    top = scratch(
        {
            "service.py": SERVICE,
            "items.json": json.dumps(items),
            "options.json": options(p, f"t{rng.randint(1, 10**9)}"),
        }
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    service = subprocess.Popen(
        ["python3", "service.py", str(port), "items.json", "options.json"], cwd=top, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        printed = output("python3", at(p.client), f"http://127.0.0.1:{port}")
    finally:
        service.kill()
        service.wait()
    return printed, tidy("\n".join(REPORTS[p.report][1](items)))


def test_items_of_the_service(p):
    assert read(p.out) == tidy("\n".join(REPORTS[p.report][1](stock(given(p), 17))))


def test_hidden_items(p):
    printed, want = collected(p, hidden(p), 23)
    assert printed == want


def test_hidden_full_last_page(p):
    printed, want = collected(p, hidden(p), 2 * p.size)
    assert printed == want
