"""A program whose commands give the right results, but take hours for large input; it must become fast.

Hard: each command needs another idea (a set, a sum carried along, a heap, memory of results), and none of its
results may change.
"""

from sandbox.factory.kit import at, hidden, output, raw, swap, word

SKILLS = ("performance", "Python", "algorithms", "data structures")

# Command -> what it prints, the slow lines and fast ones (numbers of standard input are in `xs`), and the range of the
# numbers for small and for large input: (count, low, high) each.
COMMANDS = {
    "distinct": ("how many different numbers there are", """\
    seen = []
    for x in xs:
        if x not in seen:
            seen.append(x)
    print(len(seen))""", "    print(len(set(xs)))", (20, 0, 9), (60000, 0, 10**9)),
    "pairs": ("how many pairs of two positions have numbers that add up to 1000", """\
    found = 0
    for i in range(len(xs)):
        for j in range(i):
            if xs[i] + xs[j] == 1000:
                found += 1
    print(found)""", """\
    found, seen = 0, {}
    for x in xs:
        found += seen.get(1000 - x, 0)
        seen[x] = seen.get(x, 0) + 1
    print(found)""", (40, 490, 510), (30000, -9000, 9000)),
    "crossing": ("how many times the sum of all numbers so far is above zero", """\
    count = 0
    for i in range(len(xs)):
        if sum(xs[:i + 1]) > 0:
            count += 1
    print(count)""", """\
    count = total = 0
    for x in xs:
        total += x
        count += total > 0
    print(count)""", (30, -9, 9), (70000, -900, 900)),
    "best": ("the largest sum of numbers that follow each other directly, at least one", """\
    print(max(sum(xs[i:j]) for i in range(len(xs)) for j in range(i + 1, len(xs) + 1)))""", """\
    best = here = xs[0]
    for x in xs[1:]:
        here = max(x, here + x)
        best = max(best, here)
    print(best)""", (25, -9, 9), (3000, -900, 900)),
    "inversions": ("how many pairs of positions there are where the number further left is the larger one", """\
    count = 0
    for i in range(len(xs)):
        for j in range(i + 1, len(xs)):
            if xs[i] > xs[j]:
                count += 1
    print(count)""", """\
    from bisect import bisect_right, insort
    count, seen = 0, []
    for x in xs:
        count += len(seen) - bisect_right(seen, x)
        insort(seen, x)
    print(count)""", (25, 0, 9), (30000, 0, 10**6)),
    "medians": ("the sum, over all positions, of the (lower) median of the numbers up to there", """\
    total = 0
    for i in range(len(xs)):
        ys = sorted(xs[:i + 1])
        total += ys[i // 2]
    print(total)""", """\
    from bisect import insort
    total, seen = 0, []
    for i, x in enumerate(xs):
        insort(seen, x)
        total += seen[i // 2]
    print(total)""", (21, 0, 99), (16000, 0, 10**9)),
    "steps": ("in how many ways 1, 2 and 3 add up to the first number, different orders being different ways, modulo 1000007", """\
    def ways(n):
        if n < 0:
            return 0
        return 1 if n == 0 else ways(n - 1) + ways(n - 2) + ways(n - 3)
    print(ways(xs[0]) % 1000007)""", """\
    a, b, c = 0, 0, 1
    for _ in range(xs[0]):
        a, b, c = b, c, (a + b + c) % 1000007
    print(c)""", (1, 0, 15), (1, 700, 900)),
    "rising": ("the length of the longest strictly rising sequence that is left when any numbers are left out", """\
    def longest(i, last):
        if i == len(xs):
            return 0
        without = longest(i + 1, last)
        return max(without, 1 + longest(i + 1, xs[i])) if last is None or xs[i] > last else without
    print(longest(0, None))""", """\
    from bisect import bisect_left
    tails = []
    for x in xs:
        place = bisect_left(tails, x)
        tails[place:place + 1] = [x]
    print(len(tails))""", (12, 0, 20), (900, 0, 10**6)),
    "windows": ("the largest sum of 40000 numbers in a row (of all numbers, if there are fewer)", """\
    size = min(40000, len(xs))
    print(max(sum(xs[i:i + size]) for i in range(len(xs) - size + 1)))""", """\
    size = min(40000, len(xs))
    here = best = sum(xs[:size])
    for new, old in zip(xs[size:], xs):
        here += new - old
        best = max(best, here)
    print(best)""", (20, -99, 99), (100000, -99, 99)),
    "closest": ("the smallest difference of two numbers at different positions", """\
    print(min(abs(xs[i] - xs[j]) for i in range(len(xs)) for j in range(i)))""", """\
    xs.sort()
    print(min(b - a for a, b in zip(xs, xs[1:])))""", (12, 0, 900), (20000, 0, 10**12)),
    "primes": ("how many of the numbers from 2 up to the first number are prime", """\
    print(sum(all(n % d for d in range(2, n)) for n in range(2, xs[0] + 1)))""", """\
    sieve = bytearray([1]) * (xs[0] + 1)
    for d in range(2, int(xs[0] ** 0.5) + 1):
        sieve[d * d::d] = bytes(len(sieve[d * d::d]))
    print(sum(sieve[2:]))""", (1, 2, 90), (1, 150000, 200000)),
    "change": ("the fewest coins of 1, 7, 10 and 25 that make the first number", """\
    def coins(n):
        return 0 if n == 0 else 1 + min(coins(n - c) for c in (1, 7, 10, 25) if c <= n)
    print(coins(xs[0]))""", """\
    least = [0]
    for n in range(1, xs[0] + 1):
        least.append(1 + min(least[n - c] for c in (1, 7, 10, 25) if c <= n))
    print(least[-1])""", (1, 3, 30), (1, 2000, 3000)),
}  # fmt: skip


def draw(rng, level):
    names = rng.sample(list(COMMANDS), 2 + level)
    return {
        "program": f"{word(rng)}.py",
        "names": names,
        "cases": sorted(rng.sample(names, level if level > 1 else 2), key=names.index),
    }


def function(name, version):
    return f"def do_{name}(xs):\n{COMMANDS[name][version]}\n"


def files(rng, p):
    parts = ["import sys\n", *[function(name, 1 if name in p.cases else 2) for name in p.names]]
    manual = "".join(f"- {name}: {COMMANDS[name][0]}\n" for name in p.names)
    main = 'globals()["do_" + sys.argv[1]]([int(x) for x in sys.stdin.read().split()])\n'
    return {
        p.program: "\n\n".join([*parts, main]),
        "COMMANDS.md": f"python3 {p.program} COMMAND < NUMBERS prints, for the whole numbers of standard input:\n\n{manual}",
    }


def instruction(p):
    slow = ", ".join(f"`{name}`" for name in p.cases)
    large = "up to 100000 numbers, or one large number for a command that reads only the first"
    rest = f"No result may change, whatever the input; what the commands do is in /app/COMMANDS.md. {slow} must be done in ten seconds with large input ({large}); well written, each takes less than one."
    return [
        f"The program /app/{p.program} works, but these commands of it take for ever with large input: {slow}. "
        f"Make them fast, in place, with Python's standard library only. {rest}",
        f"Please speed up /app/{p.program}. Users wait for hours on {slow} when there is much input. {rest} Keep it one "
        "Python file without other packages.",
        f"`python3 /app/{p.program} COMMAND` reads numbers from standard input. For some commands, the way in which "
        f"it computes the result is hopelessly slow. {rest} Edit the program; it must go on to need "
        "nothing but the standard library.",
    ]


def solution(p):
    return [
        "cat COMMANDS.md",
        f"cat {p.program}",
        *[swap(p.program, function(name, 1), function(name, 2)) for name in p.cases],
        *[f"echo 20 7 7 13 | python3 {p.program} {name}" for name in p.cases],
    ]


def lazy(p):
    """All but one; that one answers for small input only."""
    name = p.cases[-1]
    return [*solution(p), swap(p.program, function(name, 2), f"def do_{name}(xs):\n    print(len(xs))\n")]


def result(name, version, xs):
    import io
    from contextlib import redirect_stdout

    space, out = {}, io.StringIO()
    exec(function(name, version), space)
    with redirect_stdout(out):
        space[f"do_{name}"](list(xs))
    return out.getvalue().strip()


def numbers(rng, size):
    count, low, high = size
    return rng.choices(range(low, high + 1), k=count)


def prints(p, name, xs, timeout=25.0):
    # A command that was left as it was need not be waited for.
    assert name not in p.cases or function(name, 1).encode() not in raw(p.program), "the command is as it was"
    return output("python3", at(p.program), name, stdin=" ".join(map(str, xs)), timeout=timeout)


def test_hidden_large_input(p, case):
    xs = numbers(hidden(p), COMMANDS[case][4])
    assert prints(p, case, xs, timeout=10.0) == result(case, 2, xs)


def test_hidden_small_input(p):
    rng = hidden(p)
    for name in p.cases:
        xs = numbers(rng, COMMANDS[name][3])
        assert prints(p, name, xs) == result(name, 1, xs)


def test_other_commands(p):
    """Together with one that must change, so that it fails while nothing is done."""
    for name in [p.cases[0], *(name for name in p.names if name not in p.cases)]:
        xs = numbers(hidden(p), COMMANDS[name][3])
        assert prints(p, name, xs) == result(name, 2, xs)
