"""Questions about a plan of IPv4 networks and hosts, by a program that must answer them for any plan.

Hard: networks lie in one another, and borders, gaps and the smallest network around a host are arithmetic on bits.
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

SKILLS = ("IPv4", "CIDR", "Python", "arithmetic")

# The solution has `nets`: name -> ipaddress network, `hosts`: name -> address; the reference (first, last, length) as numbers.
REPORTS = {
    "homes": ("HOST=NETWORK for every host, in the order of the file, with the smallest network that contains it (`-`: none)", "[f'{h}={home(a)}' for h, a in hosts.items()]",
        lambda f: [f"{h}={home(a, f)}" for h, a in f["hosts"].items()]),
    "strays": ("the hosts that are in no network, in alphabetical order", "sorted(h for h in hosts if home(hosts[h]) == '-')", lambda f: sorted(h for h, a in f["hosts"].items() if home(a, f) == "-")),
    "nested": ("the networks that lie wholly inside another one, in alphabetical order", "sorted(n for n in nets if any(m != n and nets[n].subnet_of(nets[m]) for m in nets))",
        lambda f: sorted(n for n, (a, z, _) in f["nets"].items() if any(b <= a and z <= y for m, (b, y, _) in f["nets"].items() if m != n))),
    "largest": ("the name of the network with most addresses, of several the first in the alphabet", "min(nets, key=lambda n: (nets[n].prefixlen, n))", lambda f: max(sorted(f["nets"]), key=lambda n: f["nets"][n][1] - f["nets"][n][0])),
    "usable": ("NETWORK=COUNT for each network, in the order of the file, with its number of addresses without the first and the last", "[f'{n}={nets[n].num_addresses - 2}' for n in nets]",
        lambda f: [f"{n}={z - a - 1}" for n, (a, z, _) in f["nets"].items()]),
    "masks": ("the network masks in dotted form, each once, from the one with fewest addresses to that with most", "list(dict.fromkeys(str(nets[n].netmask) for n in sorted(nets, key=lambda n: -nets[n].prefixlen)))",
        lambda f: [dotted((1 << 32) - (1 << 32 - s)) for s in sorted({s for _, _, s in f["nets"].values()}, reverse=True)]),
    "broadcasts": ("the last address of each network, in the order of the file", "[nets[n].broadcast_address for n in nets]", lambda f: [dotted(z) for _, z, _ in f["nets"].values()]),
    "wrong": ("the hosts whose address is the first or the last of any network, in alphabetical order", "sorted(h for h, a in hosts.items() if any(a in (n[0], n[-1]) for n in nets.values()))",
        lambda f: sorted(h for h, a in f["hosts"].items() if any(a in net[:2] for net in f["nets"].values()))),
    "total": ("how many addresses are in at least one network", "sum(n.num_addresses for n in ipaddress.collapse_addresses(nets.values()))", lambda f: covered(f)),
    "apart": ("how many pairs of networks have no address in common", "sum(not a.overlaps(b) for a, b in itertools.combinations(nets.values(), 2))",
        lambda f: sum(z < b for (_, z, _), (b, _, _) in ordered(f))),
    "low": ("the host with the lowest address, of several the first in the alphabet", "min(hosts, key=lambda h: (hosts[h], h))", lambda f: sorted(f["hosts"], key=lambda h: (f["hosts"][h], h))[0]),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "plan"),
        "cases": some(rng, REPORTS, 2 + level),
        "size": 4 + level,
        "notes": level > 1 and rng.random() < 0.5,
        "masks": level > 2 and rng.random() < 0.5,
    }


def dotted(number):
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def number(address):
    a, b, c, d = map(int, address.split("."))
    return ((a * 256 + b) * 256 + c) * 256 + d


def data(rng, p):
    base, rows, found = rng.randint(1, 220) << 24 | rng.randint(0, 255) << 16, [], []
    for name in words(rng, p.size):
        size = rng.choice([20, 22, 24, 25, 26, 28, 29])
        first = (base | rng.randrange(16) << 8 | rng.randrange(256)) >> 32 - size << 32 - size
        if (first, size) not in [net[:2] for net in found]:
            found.append((first, size, name))
            mask = f" {dotted((1 << 32) - (1 << 32 - size))}" if p.masks else f"/{size}"
            rows.append(f"net {name} {dotted(first)}{mask}\n")
    for name in words(rng, p.size + 2):
        first, size, _ = rng.choice(found)
        place = rng.choice([0, 1, 2, 5, (1 << 32 - size) - 1, (1 << 32 - size) - 2, 1 << 32 - size])
        rows.append(f"host h-{name} {dotted(first + place)}\n")
    if p.notes:
        rows.insert(rng.randrange(2, len(rows)), "# net old 10.0.0.0/8\n\n")
    return "".join(rows)


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    f = {"nets": {}, "hosts": {}}
    for row in text.splitlines():
        kind, *rest = row.split() or ["#"]
        if kind == "host":
            f["hosts"][rest[0]] = number(rest[1])
        elif kind == "net":
            first, size = rest[1:] if p.masks else rest[1].split("/")
            size = f"{number(size):b}".count("1") if p.masks else int(size)
            f["nets"][rest[0]] = (number(first), number(first) + (1 << 32 - size) - 1, size)
    return f


def home(address, f):
    return min(((z - a, n) for n, (a, z, _) in f["nets"].items() if a <= address <= z), default=(0, "-"))[1]


def ordered(f):
    nets = sorted(f["nets"].values())
    return [(a, b) for i, a in enumerate(nets) for b in nets[i + 1 :]]


def covered(f):
    return len({x for a, z, _ in f["nets"].values() for x in range(a, z + 1)})


def instruction(p):
    form = "ADDRESS MASK" if p.masks else "ADDRESS/LENGTH"
    about = f"The file has lines `net NAME {form}` and `host NAME ADDRESS`, all IPv4; no two lines name the same network."
    rules = ["Networks may lie in each other."]
    if p.notes:
        rules.append("Empty lines and lines that begin with # mean nothing.")
    return asks(p, about, rules, REPORTS)


def source(p):
    skip = "    if not w or w[0][0] == '#': continue\n" if p.notes else ""
    net = "w[2] + '/' + w[3]" if p.masks else "w[2]"
    head = f"""import ipaddress, itertools, sys
nets, hosts = {{}}, {{}}
for line in open(sys.argv[1]):
    w = line.split()
{skip}    if w[0] == "net": nets[w[1]] = ipaddress.ip_network({net})
    else: hosts[w[1]] = ipaddress.ip_address(w[2])
def home(a):
    return max((n for n in nets if a in nets[n]), key=lambda n: nets[n].prefixlen, default="-")"""
    return program(p, head, REPORTS)


def solution(p):
    return steps(p, source(p))


def lazy(p):
    return lazy_steps(p, source(p))


def test_output(p):
    check_output(p, REPORTS, facts(data(given(p), p), p))


def test_hidden_files(p, case):
    for text in fresh(p, data, 3):
        check_report(p, case, text, REPORTS, facts(text, p))
