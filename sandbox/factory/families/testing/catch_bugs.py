"""A check of a module that must accept every right version of it and refuse each wrong one.

Hard: the wrong versions differ from the right ones at edges only, and the right ones may be written in another way.
"""

from sandbox.factory.kit import at, hidden, put, run, scratch, word

SKILLS = ("writing tests", "Python", "edge cases", "exit codes")

# Function -> its specification, two right bodies, wrong ones, and assertions of the solution.
FUNCTIONS = {
    "clamp(x, low, high)": ("gives x, or low if x is lower, or high if x is higher", ["return max(low, min(x, high))", "return low if x < low else high if x > high else x"],
        ["return min(low, max(x, high))", "return x if low < x < high else low", "return max(low, x)", "return min(x, high)"],
        ["clamp(5, 1, 9) == 5", "clamp(0, 1, 9) == 1", "clamp(10, 1, 9) == 9", "clamp(9, 1, 9) == 9"]),
    "words(text)": ("gives the list of the words of a text, in lower case; words are parted by any number of spaces", ["return text.lower().split()", "return [w.lower() for w in text.split(' ') if w]"],
        ["return text.split()", "return text.lower().split(' ')", "return sorted(text.lower().split())", "return list(set(text.lower().split()))"],
        ["words('b  A a') == ['b', 'a', 'a']", "words('') == []", "words(' x ') == ['x']"]),
    "pages(count, size)": ("gives how many pages of the given size are needed for count items; none for no items", ["return -(-count // size)", "return (count + size - 1) // size"],
        ["return count // size", "return count // size + 1", "return max(1, -(-count // size))", "return round(count / size)"],
        ["pages(0, 5) == 0", "pages(5, 5) == 1", "pages(6, 5) == 2", "pages(9, 5) == 2", "pages(1, 5) == 1"]),
    "leap(year)": ("tells, by True or False, whether a year is a leap year of the Gregorian calendar", ["return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)", "return (year % 400 == 0) if year % 100 == 0 else year % 4 == 0"],
        ["return year % 4 == 0", "return year % 4 == 0 and year % 100 != 0", "return year % 400 == 0", "return year % 4 == 0 and year % 400 != 0"],
        ["leap(2000) is True", "leap(1900) is False", "leap(2024) is True", "leap(2023) is False"]),
    "median(numbers)": ("gives the median of a list, of an even count the mean of the two in the middle, and leaves the list as it was", ["s = sorted(numbers)\n    return (s[(len(s) - 1) // 2] + s[len(s) // 2]) / 2", "import statistics\n    return statistics.median(numbers)"],
        ["s = sorted(numbers)\n    return s[len(s) // 2]", "numbers.sort()\n    s = numbers\n    return (s[(len(s) - 1) // 2] + s[len(s) // 2]) / 2", "s = numbers\n    return (s[(len(s) - 1) // 2] + s[len(s) // 2]) / 2", "return sum(numbers) / len(numbers)"],
        ["median([1, 2, 9]) == 2", "median([9, 1, 2, 4]) == 3", "median(XS) == 2 and XS == [3, 2, 1]"]),
    "title(text)": ("makes the first letter of each word upper case and leaves all else, spaces included, as it is", ["out = ''\n    for i, c in enumerate(text):\n        out += c.upper() if i == 0 or text[i - 1] == ' ' else c\n    return out", "return ' '.join(w[:1].upper() + w[1:] for w in text.split(' '))"],
        ["return text.title()", "return text.capitalize()", "return ' '.join(w[:1].upper() + w[1:] for w in text.split())", "return text[:1].upper() + text[1:]"],
        ["title('a bC  it\\'s') == 'A BC  It\\'s'", "title('') == ''"]),
    "chunks(items, size)": ("gives the list cut into lists of the size, the last of which may be shorter", ["return [items[i:i + size] for i in range(0, len(items), size)]", "out = []\n    while items:\n        out.append(items[:size])\n        items = items[size:]\n    return out"],
        ["return [items[i:i + size] for i in range(0, len(items) - size + 1, size)]", "return [items[i:i + size] for i in range(0, len(items) + 1, size)]", "return [items[i::size] for i in range(size)]", "return [items[i:i + size] for i in range(0, len(items), size)] or [[]]"],
        ["chunks([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]", "chunks([1, 2, 3, 4], 2) == [[1, 2], [3, 4]]", "chunks([], 3) == []"]),
    "unique(items)": ("gives the list without repetitions, in the order of the first appearances", ["return list(dict.fromkeys(items))", "out = []\n    for x in items:\n        if x not in out:\n            out.append(x)\n    return out"],
        ["return sorted(set(items))", "return [x for i, x in enumerate(items) if not i or items[i - 1] != x]", "return list(dict.fromkeys(items[::-1]))[::-1]", "return [x for x in items if items.count(x) == 1]"],
        ["unique([3, 1, 3, 2, 1]) == [3, 1, 2]", "unique([]) == []"]),
    "version(text)": ("gives a version such as 1.10.2 as a tuple of whole numbers, so that versions can be compared", ["return tuple(int(p) for p in text.split('.'))", "return tuple(map(int, text.split('.')))"],
        ["return tuple(text.split('.'))", "return tuple(int(p) for p in text.split('.'))[:2]", "return list(map(int, text.split('.')))", "return tuple(int(c) for c in text if c != '.')"],
        ["version('1.10.2') == (1, 10, 2)", "version('3') == (3,)"]),
    "overlap(a, b, c, d)": ("tells, by True or False, whether the times from a to b and from c to d have more than an end in common, where a < b and c < d", ["return a < d and c < b", "return max(a, c) < min(b, d)"],
        ["return a <= d and c <= b", "return a <= c < b", "return a < c < b or a < d < b", "return c < a < d or c < b < d"],
        ["overlap(1, 3, 3, 5) is False", "overlap(1, 9, 3, 5) is True", "overlap(3, 5, 1, 9) is True", "overlap(1, 4, 1, 4) is True", "overlap(1, 4, 3, 6) is True", "overlap(3, 6, 1, 4) is True", "overlap(1, 2, 5, 6) is False", "overlap(5, 6, 1, 2) is False", "overlap(3, 5, 1, 3) is False"]),
}  # fmt: skip
# What the check prints for a refused module.
OUTPUTS = {
    "the names of the functions that are wrong, one a line, in the order of the list above": lambda bad: bad,
    "the number of functions that are wrong": lambda bad: [str(len(bad))],
    "the names of the functions that are wrong on one line, in alphabetical order, parted by commas": lambda bad: [
        ",".join(sorted(bad))
    ],
}
PRINTS = ["print(*bad, sep='\\n')", "print(len(bad))", "print(','.join(sorted(bad)))"]


def draw(rng, level):
    return {
        "check": f"{word(rng)}.py",
        "module": f"{word(rng)}.py",
        "cases": rng.sample(list(FUNCTIONS), 1 + level),
        "code": rng.choice([1, 2, 3, 9]),
        "output": rng.choice(list(OUTPUTS)),
        "raises": level > 2,
    }


def source(bodies):
    return "\n\n".join(f"def {head}:\n    {body}" for head, body in bodies.items()) + "\n"


def right(rng, p):
    return {head: rng.choice(FUNCTIONS[head][1]) for head in p.cases}


def files(rng, p):
    return {p.module: source(right(rng, p))}


def instruction(p):
    spec = "\n".join(f"- {head} {FUNCTIONS[head][0]}" for head in p.cases)
    code = f"it exits with {p.code} if any function is wrong, and then prints {p.output}"
    if p.raises:
        code += "; a function that raises an exception where it should give a value is wrong, and the others are still checked"
    good = "It prints nothing and exits with 0 if all functions are right"
    return [
        f"Modules like /app/{p.module}, which is right, must have these functions:\n{spec}\n\nWrite a check, /app/{p.check}: `python3 {p.check} FILE` tests the module in FILE (any path). {good}; {code}. We shall give it right and wrong modules, wrong in one function or in more.",
        f"We get many versions of the module /app/{p.module}, and want to know which are wrong. This is what the functions of such a module do:\n{spec}\n\nPlease write /app/{p.check}, called as `python3 {p.check} FILE` with the path of a version. {good}; {code}. The version in /app is right, others may be so in another way.",
        f"Write tests for a module that has these functions, of which /app/{p.module} is a right version:\n{spec}\n\n`python3 /app/{p.check} FILE` checks the version in FILE, which may be anywhere. {good}; {code}. Mistakes may be small.",
    ]


def program(p, count=None):
    checks = "\n".join(f"    {head.split('(')[0]!r}: {FUNCTIONS[head][3][:count]!r}," for head in p.cases)
    return f"""import sys
CHECKS = {{
{checks}
}}
space, bad = {{}}, []
exec(open(sys.argv[1]).read(), space)
for name, checks in CHECKS.items():
    for check in checks:
        space["XS"] = [3, 2, 1]
        try: good = eval(check, space)
        except Exception: good = False
        if not good:
            bad.append(name)
            break
if bad:
    {PRINTS[list(OUTPUTS).index(p.output)]}
    sys.exit({p.code})"""


def solution(p):
    return [f"cat {p.module}", put(p.check, program(p)), f"python3 {p.check} {p.module}; echo $?"]


def lazy(p):
    """One assertion for each function."""
    return [*solution(p), put(p.check, program(p, 1))]


def verdict(p, bodies):
    path = scratch({"version.py": source(bodies)}) + "/version.py"
    done = run("python3", at(p.check), path, ok=False)
    return done.returncode, done.stdout.split("\n")[:-1] if done.stdout.endswith("\n") else [
        done.stdout
    ] * bool(done.stdout)


def test_hidden_right_versions(p):
    """Together with a wrong one, so that a check that accepts all does not pass."""
    rng = hidden(p)
    assert verdict(p, right(rng, p)) == (0, []) and verdict(
        p, {head: FUNCTIONS[head][1][1] for head in p.cases}
    ) == (0, [])
    assert verdict(p, {head: FUNCTIONS[head][2][0] for head in p.cases})[0] == p.code


def test_hidden_wrong_function(p, case):
    """Some of its mistakes."""
    rng = hidden(p)
    wrongs = FUNCTIONS[case][2] + (["raise KeyError(1)"] if p.raises else [])
    for wrong in rng.sample(wrongs, 3 if p.level < 4 else 2):
        code, lines = verdict(p, right(rng, p) | {case: wrong})
        assert code == p.code and lines == OUTPUTS[p.output]([case.split("(")[0]])


def test_hidden_several_mistakes(p):
    rng = hidden(p)
    bad = [head for head in p.cases if head in rng.sample(p.cases, 2)]
    code, lines = verdict(p, right(rng, p) | {head: FUNCTIONS[head][2][rng.randrange(4)] for head in bad})
    assert code == p.code and lines == OUTPUTS[p.output]([head.split("(")[0] for head in bad])
