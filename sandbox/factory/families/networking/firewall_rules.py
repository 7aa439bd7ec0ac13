"""Which connections a list of firewall rules lets through, told by a program for any rules and connections.

Hard: networks and port ranges overlap, and which of several rules that fit decides is a rule of its own.
"""

from sandbox.factory.kit import at, given, hidden, output, put, read, scratch, word

SKILLS = ("CIDR", "firewalls", "Python", "ipaddress", "ports")

# Which rule decides, of those that fit: Python in the solution (of `fits`, rules [number, action, proto, source, target,
# low, high], the networks being of `ipaddress`), and the reference's, of dicts.
DECIDERS = {
    "the first one": ("fits[0]", lambda rs: rs[0]),
    "the last one": ("fits[-1]", lambda rs: rs[-1]),
    "the one with the longest prefix of its target network (of several, the first)": (
        "max(fits, key=lambda r: r[4].prefixlen)", lambda rs: sorted(rs, key=lambda r: (-r["to"][1], r["line"]))[0]),
    "the one with the longest prefix of its source network (of several, the last)": (
        "max(reversed(fits), key=lambda r: r[3].prefixlen)", lambda rs: sorted(rs, key=lambda r: (r["from"][1], r["line"]))[-1]),
    "the one with the fewest ports (of several, the first)": (
        "min(fits, key=lambda r: r[6] - r[5])", lambda rs: sorted(rs, key=lambda r: (len(r["ports"]), r["line"]))[0]),
    "a rule that denies, if there is one (of several, the first), otherwise the first": (
        "min(fits, key=lambda r: (r[1] != 'deny', r[0]))", lambda rs: next((r for r in rs if r["action"] == "deny"), rs[0])),
}  # fmt: skip
# What is printed, of (connection's line, source, target, port, proto, action, rule's line or 0) in the order of the file.
REPORTS = {
    "ACTION and the number of the deciding rule (0 if no rule fits), with a space between, for each connection": (
        "for c in done: print(c[5], c[6])", lambda cs: [f"{c[5]} {c[6]}" for c in cs]),
    "the connections that are denied, as `SOURCE TARGET PORT`": (
        "for c in done:\n    if c[5] == 'deny': print(*c[1:4])", lambda cs: [f"{c[1]} {c[2]} {c[3]}" for c in cs if c[5] == "deny"]),
    "`SOURCE COUNT` for each source with allowed connections, with their number, sorted by the number of the address": (
        "n = collections.Counter(ip_address(c[1]) for c in done if c[5] == 'allow')\nfor a in sorted(n): print(a, n[a])",
        lambda cs: [f"{a} {sum(c[1] == a for c in cs if c[5] == 'allow')}" for a in sorted({c[1] for c in cs if c[5] == "allow"}, key=number)]),
    "`NUMBER COUNT` for each rule, in their order, with the number of connections that it decides (0 included)": (
        "n = collections.Counter(c[6] for c in done)\nfor r in rules: print(r[0], n[r[0]])", None),
    "the numbers of the rules that decide no connection, one a line": (
        "n = {c[6] for c in done}\nfor r in rules:\n    if r[0] not in n: print(r[0])", None),
}  # fmt: skip


def number(address):
    value = 0
    for part in address.split("."):
        value = value * 256 + int(part)
    return value


def draw(rng, level):
    return {
        "rules": f"{word(rng)}.rules",
        "seen": f"{word(rng)}.txt",
        "program": f"{word(rng)}.py",
        "out": f"{word(rng)}.out",
        "decider": rng.choice(list(DECIDERS)[: 2 + level]),
        "report": rng.choice(list(REPORTS)),
        "default": rng.choice(["allow", "deny"]),
        "order": rng.sample(["ACTION", "PROTO", "SOURCE", "TARGET", "PORTS"], 5)
        if level > 1
        else ["ACTION", "PROTO", "SOURCE", "TARGET", "PORTS"],
        "any": rng.random() < 0.6,
        "comments": level > 2 and rng.random() < 0.6,
        "groups": level > 3,
        "disabled": level > 2 and rng.random() < 0.5,
        "count": 4 + 3 * level,
    }


def network(rng):
    bits = rng.choice([0, 8, 16, 24, 28, 32])
    value = (
        number(f"10.{rng.randint(0, 2)}.{rng.randint(0, 2)}.{rng.randint(0, 40)}")
        >> (32 - bits)
        << (32 - bits)
    )
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0)) + f"/{bits}"


def data(rng, p):
    """(text of the rules, text of the connections)."""
    lines, names = [], ["@inside", "@lab"]
    groups = {name: [network(rng) for _ in range(2)] for name in names} if p.groups else {}
    lines += [f"{name} = {', '.join(nets)}" for name, nets in groups.items()]
    for _ in range(p.count):
        low = rng.choice([1, 22, 80, 443, 1000, 8000])
        ports = rng.choice([str(low), f"{low}-{low + rng.choice([1, 100, 9000])}"])
        parts = {
            "ACTION": rng.choice(["allow", "deny"]), "PROTO": rng.choice(["tcp", "udp"]), "PORTS": ports,
            "SOURCE": network(rng), "TARGET": network(rng),
        }  # fmt: skip
        for name in ("PROTO", "SOURCE", "TARGET", "PORTS"):
            if p.any and rng.random() < 0.3:
                parts[name] = "any"
        if groups and rng.random() < 0.4:
            parts["SOURCE"] = rng.choice(names)
        if p.comments and rng.random() < 0.3:
            lines.append(rng.choice(["", f"# {word(rng)}"]))
        lines.append(
            ("! " if p.disabled and rng.random() < 0.2 else "") + " ".join(parts[name] for name in p.order)
        )
    seen = []
    for _ in range(3 * p.count):
        ends = [f"10.{rng.randint(0, 2)}.{rng.randint(0, 2)}.{rng.randint(0, 40)}" for _ in range(2)]
        seen.append(
            f"{ends[0]} {ends[1]} {rng.choice([22, 80, 443, 1050, 8000, 8001, 9500])} {rng.choice(['tcp', 'udp'])}"
        )
    return "\n".join(lines) + "\n", "\n".join(seen) + "\n"


def files(rng, p):
    rules, seen = data(rng, p)
    return {p.rules: rules, p.seen: seen}


def judged(rules, seen, p):
    """The report's lines."""
    groups, parsed = {}, []
    for line in rules.splitlines():
        if " = " in line:
            name, _, nets = line.partition(" = ")
            groups[name] = nets.split(", ")
        elif line and line[0] not in "#":
            fields = dict(zip(p.order, line.removeprefix("! ").split(" "), strict=True))
            fields["off"] = line.startswith("!")
            parsed.append(fields)
    made = []
    for place, r in enumerate(parsed, 1):
        sources = groups.get(r["SOURCE"], [r["SOURCE"]])
        low, _, high = ("1-65535" if r["PORTS"] == "any" else r["PORTS"]).partition("-")
        nets = {"from": [net(s) for s in sources], "to": net(r["TARGET"])}
        made.append(
            {
                "line": place,
                "off": r["off"],
                "action": r["ACTION"],
                "proto": r["PROTO"],
                "ports": range(int(low), int(high or low) + 1),
                **nets,
            }
        )
    done = []
    for line, text in enumerate(seen.splitlines(), 1):
        source, target, port, proto = text.split()
        fits = []
        for r in made:
            for origin in r["from"]:
                if (
                    not r["off"]
                    and r["proto"] in (proto, "any")
                    and int(port) in r["ports"]
                    and inside(source, origin)
                    and inside(target, r["to"])
                ):
                    fits.append(r | {"from": origin})
        chosen = DECIDERS[p.decider][1](fits) if fits else {"action": p.default, "line": 0}
        done.append((line, source, target, port, proto, chosen["action"], chosen["line"]))
    if REPORTS[p.report][1]:
        return REPORTS[p.report][1](done)
    counts = {r["line"]: sum(c[6] == r["line"] for c in done) for r in made if not r["off"]}
    return (
        [str(k) for k, n in counts.items() if not n]
        if p.report.startswith("the numbers")
        else [f"{k} {n}" for k, n in counts.items()]
    )


def net(text):
    """(first address as a number, bits)."""
    address, _, bits = ("0.0.0.0/0" if text == "any" else text).partition("/")
    return number(address), int(bits)


def inside(address, network):
    return network[1] == 0 or (number(address) ^ network[0]) >> (32 - network[1]) == 0


def instruction(p):
    form = f"A rule is a line `{' '.join(p.order)}`: ACTION is allow or deny, PROTO tcp or udp, SOURCE and TARGET are networks in CIDR form, PORTS a port or LOW-HIGH (both included)."
    if p.any:
        form += " All but ACTION can be `any`, which is all protocols, 0.0.0.0/0 or 1-65535."
    if p.groups:
        form += " Lines such as `@lab = NETWORK, NETWORK` (before the rules) name groups; a rule whose SOURCE is a group stands for one rule for each network of it, in their order, all with the number of that rule."
    if p.comments:
        form += " Empty lines and lines that begin with # are no rules."
    form += " Rules are numbered from 1."
    if p.disabled:
        form += " A rule behind `! ` is switched off: it has a number, but never fits, and is not reported."
    decide = f"For a connection, the rule that decides is, of all that fit, {p.decider}. Where none fits, the action is {p.default}. A connection is a line `SOURCE TARGET PORT PROTO`."
    shape = f"It prints {p.report}; in the order of the file where nothing else is said, one a line."
    call = f"`python3 /app/{p.program} RULES CONNECTIONS`"
    return [
        f"/app/{p.rules} has firewall rules, /app/{p.seen} connections. {form} {decide}\n\nWrite {call}, a Python program "
        f"that applies a file of rules to a file of connections. {shape} Save its output for these two as /app/{p.out}. "
        "We will use it with other rules and connections.",
        f"Before we deploy the rules of /app/{p.rules}, we want to know what they do to the connections in /app/{p.seen}. "
        f"{form} {decide}\n\nPlease write a program for it, {call}. {shape} Its output for our files belongs in "
        f"/app/{p.out}; more files follow.",
        f"Simulate a firewall in Python: {call}. {form} {decide}\n\n{shape} Run it on /app/{p.rules} and /app/{p.seen}, "
        f"and keep the result in /app/{p.out}. The program must be right for any such files.",
    ]


def program(p):
    at_ = {name: f"f[{place}]" for place, name in enumerate(p.order)}
    any_of = {"SOURCE": "'0.0.0.0/0'", "TARGET": "'0.0.0.0/0'", "PORTS": "'1-65535'"}
    value = {k: (f"({v} if {at_[k]} == 'any' else {at_[k]})" if p.any else at_[k]) for k, v in any_of.items()}
    proto = "r[2] in (proto, 'any')" if p.any else "r[2] == proto"
    lines = [
        "import collections, sys",
        "from ipaddress import ip_address, ip_network",
        "rules, parts, done, n = [], [], [], 0",
    ]
    lines += ["groups = {}"] if p.groups else []
    lines += ["for line in open(sys.argv[1]):", "    line = line.rstrip('\\n')"]
    lines += ["    if not line or line.startswith('#'): continue"] if p.comments else []
    if p.groups:
        lines += [
            "    if ' = ' in line:",
            "        name, nets = line.split(' = ')",
            "        groups[name] = nets.split(', ')",
            "        continue",
        ]
    lines += ["    n += 1"]
    lines += ["    if line.startswith('! '): continue"] if p.disabled else []
    lines += ["    f = line.split()", f"    ports = {value['PORTS']}.split('-')"]
    lines += [
        f"    for s in groups.get({at_['SOURCE']}, [{value['SOURCE']}]):"
        if p.groups
        else f"    for s in [{value['SOURCE']}]:"
    ]
    lines += [
        f"        parts.append([n, {at_['ACTION']}, {at_['PROTO']}, ip_network(s), ip_network({value['TARGET']}), int(ports[0]), int(ports[-1])])"
    ]
    lines += [
        "    rules.append(parts[-1])",
        "for l, line in enumerate(open(sys.argv[2]), 1):",
        "    source, target, port, proto = line.split()",
    ]
    lines += [
        f"    fits = [r for r in parts if {proto} and r[5] <= int(port) <= r[6] and ip_address(source) in r[3] and ip_address(target) in r[4]]"
    ]
    lines += [
        f"    r = {DECIDERS[p.decider][0]} if fits else [0, {p.default!r}]",
        "    done.append([l, source, target, port, proto, r[1], r[0]])",
        REPORTS[p.report][0],
    ]
    return "\n".join(lines)


def solution(p):
    return [
        f"cat {p.rules}; head -n 3 {p.seen}",
        put(p.program, program(p)),
        f"python3 {p.program} {p.rules} {p.seen} > {p.out}; head {p.out}",
    ]


def lazy(p):
    return [*solution(p), f"echo \"print(open('/app/{p.out}').read())\" > {p.program}"]


def simulated(rng, p):
    rules, seen = data(rng, p)
    top = scratch({"next.rules": rules, "next.txt": seen})
    return output("python3", at(p.program), f"{top}/next.rules", f"{top}/next.txt") == "\n".join(
        judged(rules, seen, p)
    )


def test_report(p):
    text = read(p.out)
    assert text == "\n".join(judged(*data(given(p), p), p)) and read(p.program)


def test_hidden_rules(p):
    rng = hidden(p)
    assert simulated(rng, p) and simulated(rng, p)


def test_hidden_connections(p):
    rng = hidden(p)
    rules, seen = data(given(p), p)[0], data(rng, p)[1]
    top = scratch({"next.txt": seen})
    assert output("python3", at(p.program), at(p.rules), f"{top}/next.txt") == "\n".join(
        judged(rules, seen, p)
    )
