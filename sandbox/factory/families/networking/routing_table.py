"""Where packets go by a routing table, by a program that must tell it for any table.

Hard: the longest prefix wins, then the metric, then the place in the table; links that are down change the choice.
"""

from sandbox.factory.kit import given, words
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

SKILLS = ("IPv4", "longest prefix match", "Python", "bits")

REPORTS = {
    "links": ("for each packet, in order, the link that it leaves by, `-` for none", "[r[1] if r else '-' for r in went]",
        lambda f: [r["link"] if r else "-" for r in f["went"]]),
    "lost": ("the addresses of the packets without a route, in order", "[a for a, r in zip(packets, went) if not r]",
        lambda f: [a for a, r in zip(f["packets"], f["went"], strict=True) if r is None]),
    "loads": ("LINK=COUNT for every link of the table in alphabetical order, with the number of packets that leave by it, zero included", "[f'{n}={sum(r is not None and r[1] == n for r in went)}' for n in sorted({r[1] for r in table})]",
        lambda f: [f"{n}={[r and r['link'] for r in f['went']].count(n)}" for n in sorted({r["link"] for r in f["routes"]})]),
    "unused": ("how many routes of the table no packet takes", "len(table) - len({r[4] for r in went if r})",
        lambda f: sum(all(r is not w for w in f["went"]) for r in f["routes"])),
    "narrowest": ("the largest prefix length of a route that a packet takes, `-` if no packet has a route", "max((r[3] for r in went if r), default='-')",
        lambda f: max((r["size"] for r in f["went"] if r), default="-")),
    "networks": ("the network (as in the table) of the route of each packet, in order, `-` for none", "[r[0] if r else '-' for r in went]",
        lambda f: [r["net"] if r else "-" for r in f["went"]]),
    "cost": ("the sum of the metrics of the routes that the packets take", "sum(r[2] for r in went if r)", lambda f: sum(r["metric"] for r in f["went"] if r)),
    "first": ("the link of the route for the lowest of the packets' addresses (by number), `-` for none", "min((number(a), r[1] if r else '-') for a, r in zip(packets, went))[1]",
        lambda f: next(r["link"] if r else "-" for a, r in sorted(zip(f["packets"], f["went"], strict=True), key=lambda x: bits(x[0])))),
    "shadowed": ("how many routes can never be taken by any packet, as another of the same network always goes before", "sum(any(o is not r and o[3] == r[3] and o[5] == r[5] and key(o) > key(r) for o in table) for r in table)",
        lambda f: sum(any(rank(o) < rank(r) for o in f["routes"] if o["net"] == r["net"]) for r in f["routes"])),
    "covered": ("how many addresses the network of the first route of the table has", "2 ** (32 - table[0][3])", lambda f: 1 << 32 - f["routes"][0]["size"]),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "routes"),
        "cases": some(rng, REPORTS, 2 + level),
        "size": 5 + 2 * level,
        "down": rng.choice(["down", "off"]) if level > 1 and rng.random() < 0.7 else "",
        "metric": rng.choice(["smallest", "largest"]),
        "ties": rng.choice(["further up", "further down"]),
        "reject": level > 2 and rng.random() < 0.6,
    }


def bits(address):
    return "".join(f"{int(part):08b}" for part in address.split("."))


def dotted(number):
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def data(rng, p):
    links = [f"{name}{rng.randint(0, 3)}" for name in words(rng, 4)]
    base = rng.randint(1, 220) << 24 | rng.randint(0, 255) << 16
    rows, nets = [], []
    for number in range(p.size):
        size = rng.choice([8, 12, 16, 18, 20, 22, 24, 27, 30])
        net = (base | rng.choice([0, 0, 1, 128]) << 8 | rng.choice([0, 64, 128])) >> 32 - size << 32 - size
        if number and rng.random() < 0.35:
            net, size = rng.choice(nets)
        nets.append((net, size))
        link = "reject" if p.reject and rng.random() < 0.15 else rng.choice(links)
        state = f" {p.down}" if p.down and rng.random() < 0.2 and number else ""
        rows.append(f"route {dotted(net)}/{size} {link} {rng.randint(1, 4) * 10}{state}")
    packets = [dotted(rng.choice(nets)[0] + rng.randint(0, 3)) for _ in range(p.size)] + [
        dotted(base | 70000)
    ]
    return "\n".join([*rows, *(f"packet {packet}" for packet in packets)]) + "\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    routes, packets = [], []
    for line in text.splitlines():
        kind, *rest = line.split()
        if kind == "packet":
            packets.append(rest[0])
        elif not p.down or rest[-1] != p.down:
            metric = int(rest[2]) * (1 if p.metric == "smallest" else -1)
            place = len(routes) * (1 if p.ties == "further up" else -1)
            routes.append({"net": rest[0], "size": int(rest[0].split("/")[1]), "link": rest[1], "metric": int(rest[2]), "rank": (metric, place)})  # fmt: skip
    return {"routes": routes, "packets": packets, "went": [best(bits(a), routes) for a in packets]}


def rank(route):
    return route["rank"]


def best(address, routes):
    here = [r for r in routes if address.startswith(bits(r["net"].split("/")[0])[: r["size"]])]
    found = min(here, key=lambda r: (-r["size"], r["rank"]), default=None)
    return None if found is None or found["link"] == "reject" else found


def instruction(p):
    about = "The file has lines `route NETWORK/LENGTH LINK METRIC` and, after them, lines `packet ADDRESS` (IPv4)."
    rules = [
        "A packet takes the route with the longest prefix that contains its address; of several, that with the "
        f"{p.metric} metric; of several still, that {p.ties} in the table."
    ]
    if p.down:
        rules.append(
            f"A route whose line ends in the word {p.down} is to be treated as if it were not there."
        )
    if p.reject:
        rules.append(
            "Where the route chosen so has `reject` as its link, the packet has no route; in all else reject is a link like the others."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    skip = f"        if w[-1] == {p.down!r}: continue\n" if p.down else ""
    sign = "-" if p.metric == "smallest" else ""
    turn = "-" if p.ties == "further up" else ""
    reject = "    if r and r[1] == 'reject': r = None\n" if p.reject else ""
    head = f"""import sys
def number(a):
    n = 0
    for part in a.split("."): n = n * 256 + int(part)
    return n
table, packets, went = [], [], []
for line in open(sys.argv[1]):
    w = line.split()
    if w[0] == "route":
{skip}        net, size = w[1].split("/")
        table.append((w[1], w[2], int(w[3]), int(size), len(table), number(net)))
    else:
        packets.append(w[1])
def key(r): return (r[3], {sign}r[2], {turn}r[4])
for a in packets:
    r = max((r for r in table if number(a) >> (32 - r[3]) == r[5] >> (32 - r[3])), key=key, default=None)
{reject}    went.append(r)"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_tables(p, case):
    for text in fresh(p, data):
        check_report(p, case, text, REPORTS, facts(text, p))
