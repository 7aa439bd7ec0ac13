"""Packets in a hexadecimal dump, taken apart by a program that must read any dump.

Hard: IPv4 headers of any length, ports of two protocols, checksums and fragments, all by hand.
"""

from sandbox.factory.kit import given, word, words
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

SKILLS = ("IPv4", "UDP and TCP", "binary formats", "Python")

# The solution has `pk`: dicts with src, dst, proto, ttl, sport, dport, data (bytes), size, good, id, off, more.
REPORTS = {
    "sources": ("the source addresses of the packets, in order", "[k['src'] for k in pk]", lambda f: [x["src"] for x in f]),
    "protocols": ("the number of UDP packets (protocol 17), then that of TCP packets (6), then that of all others", "[sum(k['proto'] == n for k in pk) for n in (17, 6)] + [sum(k['proto'] not in (6, 17) for k in pk)]", lambda f: [sum(x["proto"] == 17 for x in f), sum(x["proto"] == 6 for x in f), sum(x["proto"] not in (17, 6) for x in f)]),
    "ports": ("the destination ports of UDP and TCP packets, each once, ascending", "sorted({k['dport'] for k in pk if k['dport'] is not None})", lambda f: sorted({x["dport"] for x in f} - {None})),
    "broken": ("the numbers of the packets, the first being 1, whose IPv4 header checksum is wrong", "[i + 1 for i, k in enumerate(pk) if not k['good']]", lambda f: [n for n, x in enumerate(f, 1) if not x["good"]]),
    "texts": ("the data of the UDP packets, in order (it is ASCII without spaces)", "[k['data'].decode() for k in pk if k['proto'] == 17]", lambda f: [x["data"].decode() for x in f if x["proto"] == 17]),
    "bytes": ("the sum of the total lengths that the headers tell", "sum(k['size'] for k in pk)", lambda f: sum(x["size"] for x in f)),
    "ttl": ("the smallest time to live of a packet, and the number of the first packet that has it, counted from 1", "min((k['ttl'], i + 1) for i, k in enumerate(pk))", lambda f: [min(x["ttl"] for x in f), [x["ttl"] for x in f].index(min(x["ttl"] for x in f)) + 1]),
    "syn": ("SOURCE:PORT for each TCP packet with the SYN flag and without the ACK flag, in order, with its source port", "[f\"{k['src']}:{k['sport']}\" for k in pk if k['proto'] == 6 and k['flags'] & 18 == 2]", lambda f: [f"{x['src']}:{x['sport']}" for x in f if x["proto"] == 6 and x["flags"] & 2 and not x["flags"] & 16]),
    "options": ("how many packets have a header of more than 20 bytes", "sum(k['head'] > 20 for k in pk)", lambda f: sum(x["head"] != 20 for x in f)),
    "talkers": ("ADDRESS=COUNT for the source addresses in alphabetical order, with the number of their packets", "[f\"{a}={[k['src'] for k in pk].count(a)}\" for a in sorted({k['src'] for k in pk})]", lambda f: [f"{a}={sum(x['src'] == a for x in f)}" for a in sorted({x["src"] for x in f})]),
    "replies": ("how many UDP or TCP packets have source and destination, addresses and ports, of an earlier packet of the same protocol exchanged", "sum(any(j['proto'] == k['proto'] != 1 and (j['src'], j['sport'], j['dst'], j['dport']) == (k['dst'], k['dport'], k['src'], k['sport']) for j in pk[:i]) for i, k in enumerate(pk))",
        lambda f: sum(x["dport"] is not None and any(y["proto"] == x["proto"] and y["src"] == x["dst"] and y["dst"] == x["src"] and y["sport"] == x["dport"] and y["dport"] == x["sport"] for y in f[:n]) for n, x in enumerate(f))),
}  # fmt: skip


def draw(rng, level):
    return {
        **names(rng, "dump"),
        "cases": some(rng, REPORTS, 2 + level // 2 + (level > 3)),
        "form": rng.choice(["pairs", "words"]) if level > 1 else "pairs",
        "offsets": level > 1 and rng.random() < 0.6,
        "padding": level > 2 and rng.random() < 0.7,
        "options": level > 1,
        "size": 4 + 2 * level,
    }


def total(header):
    """The checksum of an IPv4 header (RFC 791): 0 where it is right."""
    value = sum(header[i] << 8 | header[i + 1] for i in range(0, len(header), 2))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return value ^ 0xFFFF


def data(rng, p):
    hosts = [bytes([10, rng.randint(0, 9), 0, rng.randint(1, 250)]) for _ in range(4)]
    dumps, flows = [], []
    for _ in range(p.size):
        src, dst = rng.sample(hosts, 2)
        sport, dport = rng.choice([53, 80, 5353]), rng.choice([53, 443, 8080])
        proto = rng.choice([17, 17, 6, 6, 1])
        if flows and rng.random() < 0.3:
            dst, dport, src, sport, proto = rng.choice(flows)
        flows.append((src, sport, dst, dport, proto))
        text = "".join(words(rng, 2)).encode()
        ports = sport.to_bytes(2, "big") + dport.to_bytes(2, "big")
        udp = ports + (8 + len(text)).to_bytes(2, "big") + b"\0\0" + text
        tcp = ports + rng.randbytes(8) + bytes([0x50, rng.choice([2, 18, 16, 2, 1]), 1, 0]) + bytes(4) + text
        body = {17: udp, 6: tcp, 1: b"\x08\0" + rng.randbytes(6)}[proto]
        extra = bytes(4 * rng.randint(0, 2)) if p.options else b""
        size = 20 + len(extra) + len(body)
        head = bytearray(
            [
                0x45 + len(extra) // 4,
                0,
                *size.to_bytes(2, "big"),
                *rng.randbytes(2),
                0x40,
                0,
                rng.choice([1, 12, 63, 64]),
                proto,
                0,
                0,
                *src,
                *dst,
                *extra,
            ]
        )
        head[10:12] = total(head).to_bytes(2, "big")
        if rng.random() < 0.25:
            head[10] ^= 1 << rng.randrange(8)
        packet = bytes(head) + body + (bytes(rng.randint(1, 9)) if p.padding else b"")
        lines = [packet[i : i + 16] for i in range(0, len(packet), 16)]
        shown = [(line.hex(" ") if p.form == "pairs" else line.hex(" ", -2)) for line in lines]
        dumps.append(
            "\n".join(f"{16 * i:04x}: {line}" if p.offsets else line for i, line in enumerate(shown))
        )
    return "\n\n".join(dumps) + f"\n\n# {word(rng)}\n"


def files(rng, p):
    return {p.data: data(rng, p)}


def facts(text, p):
    found = []
    for block in text.split("\n\n"):
        if block[0] == "#":
            continue
        lines = [line.partition(": ")[2] if p.offsets else line for line in block.split("\n")]
        raw = bytes.fromhex("".join(lines).replace(" ", ""))
        head, size, proto = (raw[0] & 15) * 4, int.from_bytes(raw[2:4], "big"), raw[9]
        body = raw[head:size]
        sport, dport = (int.from_bytes(body[i : i + 2], "big") if proto in (6, 17) else None for i in (0, 2))
        found.append({
            "src": ".".join(map(str, raw[12:16])), "dst": ".".join(map(str, raw[16:20])), "proto": proto, "ttl": raw[8], "sport": sport, "dport": dport, "size": size,
            "good": total(raw[:head]) == 0, "head": head, "data": body[8:] if proto == 17 else b"", "flags": body[13] if proto == 6 else 0,
        })  # fmt: skip
    return found


def instruction(p):
    form = "in pairs of digits" if p.form == "pairs" else "in groups of four digits (the last may have two)"
    offsets = ", each line with its offset and a colon before" if p.offsets else ""
    about = f"The file is a dump of IPv4 packets in hexadecimal, {form}, 16 bytes a line{offsets}, with an empty line after each packet; a last line begins with # and means nothing."
    rules = [
        "A packet begins with its IPv4 header (RFC 791), whose length is in its first byte; UDP (RFC 768) or TCP (RFC 9293) follows, or something else."
    ]
    if p.padding:
        rules.append(
            "After the total length that the header tells, there may be padding, which is no part of the packet."
        )
    return asks(p, about, rules, REPORTS)


def source(p):
    offset = ".split(': ')[1]" if p.offsets else ""
    head = f"""import struct, sys
pk = []
for part in open(sys.argv[1]).read().strip().split("\\n\\n")[:-1]:
    b = bytes.fromhex("".join(line{offset} for line in part.split("\\n")))
    ihl = (b[0] & 15) * 4
    _, _, size, ident, frag, ttl, proto, check, s, d = struct.unpack("!BBHHHBBH4s4s", b[:20])
    t = sum(struct.unpack("!%dH" % (ihl // 2), b[:ihl]))
    t = (t & 0xffff) + (t >> 16)
    k = dict(src=".".join(map(str, s)), dst=".".join(map(str, d)), proto=proto, ttl=ttl, size=size, head=ihl, good=t == 0xffff, sport=None, dport=None, flags=0)
    if proto in (6, 17): k["sport"], k["dport"] = struct.unpack("!HH", b[ihl:ihl + 4])
    if proto == 17: k["data"] = b[ihl + 8:size]
    if proto == 6: k["flags"] = b[ihl + 13]
    pk.append(k)"""
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
