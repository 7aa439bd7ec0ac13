"""A commit-msg hook that lets only well-formed commit messages pass, and names each rule that one breaks.

Hard: rules concern the subject, the body or the trailers; comments and exempt messages must be seen through first.
"""

from sandbox.factory.gitkit import history
from sandbox.factory.kit import (
    PEOPLE,
    at,
    given,
    hidden,
    mode,
    put,
    raw,
    read,
    run,
    scratch,
    tidy,
    word,
)

SKILLS = ("git hooks", "bash", "regular expressions", "text fields")
BINARIES = ("git",)

KINDS = ("feat", "fix", "docs", "perf", "test", "build")
# Rule -> what it says, when it is broken in awk (s: subject, l[1..n]: all lines) and in Python (s, t: all lines, k: kinds).
RULES = {
    "length": ("the subject has at most 50 characters", "length(s) > 50", lambda s, t, k: len(s) > 50),
    "kind": ("the subject begins with one of {kinds}, followed by a colon and a space", "s !~ /^({pipes}): /", lambda s, t, k: not s.startswith(tuple(f"{kind}: " for kind in k))),
    "stop": ("the subject does not end with a full stop", "s ~ /\\.$/", lambda s, t, k: s.endswith(".")),
    "draft": ("the word WIP, in upper case, is nowhere in the subject", "s ~ /WIP/", lambda s, t, k: "WIP" in s),
    "capital": ("the last word of the subject is in lower case", "last(s) ~ /[A-Z]/", lambda s, t, k: s.split(" ")[-1] != s.split(" ")[-1].lower()),
    "gap": ("the second line is empty, if there is one", 'n > 1 && l[2] != ""', lambda s, t, k: len(t) > 1 and t[1] != ""),
    "wide": ("no line after the first has more than 60 characters", "wide()", lambda s, t, k: any(len(x) > 60 for x in t[1:])),
    "blank": ("no line ends with a space", "blank()", lambda s, t, k: any(x.endswith(" ") for x in t)),
    "ticket": ("the last line is `Ticket: ` and a number, without leading zeros", "l[n] !~ /^Ticket: [1-9][0-9]*$/", lambda s, t, k: not (t[-1].startswith("Ticket: ") and t[-1][8:].isdigit() and t[-1][8] != "0")),
    "signed": ("exactly one line begins with `Signed-off-by: `", "signed() != 1", lambda s, t, k: sum(x.startswith("Signed-off-by: ") for x in t) != 1),
    "tabs": ("there is no tab in the message", "tabs()", lambda s, t, k: any("\t" in x for x in t)),
}  # fmt: skip
HELPERS = {
    "last": "function last(t,  w) { w = t; sub(/.* /, \"\", w); return w }",
    "wide": "function wide(  i) { for (i = 2; i <= n; i++) if (length(l[i]) > 60) return 1; return 0 }",
    "blank": "function blank(  i) { for (i = 1; i <= n; i++) if (l[i] ~ / $/) return 1; return 0 }",
    "signed": "function signed(  i, c) { c = 0; for (i = 1; i <= n; i++) if (index(l[i], \"Signed-off-by: \") == 1) c++; return c }",
    "tabs": "function tabs(  i) { for (i = 1; i <= n; i++) if (l[i] ~ /\\t/) return 1; return 0 }",
}  # fmt: skip


def draw(rng, level):
    chosen = rng.sample(list(RULES), 2 + level)
    return {
        "rules": [name for name in RULES if name in chosen],
        "kinds": sorted(rng.sample(KINDS, 3)),
        "folder": f"{word(rng)}-messages",
        "out": f"{word(rng)}.txt",
        "comments": level > 1,
        "exempt": rng.choice(["Merge ", "Revert "]) if level > 2 else "",
        "form": rng.choice(["broken: {}", "rule {} is broken", "- {}"]),
        "count": 4 + 2 * level,
    }


def message(rng, p):
    """A message that keeps all rules but one or two, or keeps all."""
    kind = rng.choice(p.kinds)
    wrong = rng.sample(p.rules, rng.choice([0, 0, 1, 1, 2]))
    subject = f"{kind}: {word(rng)} the {word(rng)}"
    if "kind" in wrong:
        subject = rng.choice(
            [f"chore: {word(rng)}", f"{kind} {word(rng)}", f"{kind}:{word(rng)}", f"re{kind}: {word(rng)}"]
        )
    if "draft" in wrong:
        subject = subject.replace(": ", ": WIP ") + f" {word(rng)}"
    if "length" in wrong:
        subject += " and everything that belongs to it in here"
    if "capital" in wrong:
        subject += f" {word(rng).title()}"
    subject += "." * ("stop" in wrong)
    body = [f"It was a {word(rng)} for {word(rng, PEOPLE)}." for _ in range(rng.randint(0, 3))]
    if "wide" in wrong:
        body.append(f"A long sentence of {word(rng)} and {word(rng)} which nobody will ever want to read")
    if "blank" in wrong:
        body.append(f"See {word(rng)}. ")
    if "tabs" in wrong:
        body.append(f"\tindented {word(rng)}")
    signed = [f"Signed-off-by: {word(rng, PEOPLE)}"] if "signed" in p.rules else []
    if "signed" in wrong:
        signed *= rng.choice([0, 2])
    ticket = [f"Ticket: {rng.randint(1, 900)}"] if "ticket" in p.rules else []
    if "ticket" in wrong:
        ticket = [rng.choice(["Ticket: 007", "Ticket: none", "ticket: 12", f"Ticket: {word(rng)} 4"])]
    rest = [*body, *signed, *ticket]
    lines = [subject, *([""] if rest and "gap" not in wrong else []), *(rest or ["more"] * ("gap" in wrong))]
    if p.exempt and rng.random() < 0.15:
        lines[0] = f"{p.exempt}branch {word(rng)} of WIP."
    if p.comments:
        for _ in range(rng.randint(0, 3)):
            lines.insert(
                rng.randint(0, len(lines)),
                f"# {word(rng)}\tof a line that git puts here for whoever writes the message. ",
            )
    return "\n".join(lines) + "\n"


def broken(text, p):
    """The names of the rules that a message breaks."""
    lines = [line for line in text.splitlines() if not (p.comments and line.startswith("#"))]
    if p.exempt and lines[0].startswith(p.exempt):
        return []
    return [name for name in p.rules if RULES[name][2](lines[0], lines, p.kinds)]


def messages(rng, p):
    return {f"{number:02}.txt": message(rng, p) for number in range(1, p.count + 1)}


def files(rng, p):
    kept = {f"{p.folder}/{name}": text for name, text in messages(rng, p).items()}
    return repository(rng) | kept


def repository(rng):
    tree = {"README": f"{word(rng)}\n"}
    return history(rng, [tree], ["Begin"])[0].files(tree)


def instruction(p):
    rules = "\n".join(f"- {name}: {RULES[name][0].format(kinds=', '.join(p.kinds))}" for name in p.rules)
    shown = p.form.format(p.rules[0])
    notes = (
        " Lines that begin with # are comments, and are taken away before anything else is looked at."
        * p.comments
    )
    notes += (
        f" A message whose subject begins with `{p.exempt}` passes whatever it is like." if p.exempt else ""
    )
    does = (
        f"The subject is the first line of a message.{notes} If no rule is broken, the hook exits with 0 and prints nothing; otherwise it exits "
        f"with 1, and prints on standard error, in the order of the list, a line such as `{shown}` for each broken rule, and no other."
    )
    log = "one after another in the order of their names, a line `NAME CODE`, as in `01.txt 0`, with the exit code of the hook for that message"
    return [
        f"Write the commit-msg hook of the git repository /app, so that only messages that keep these rules can be committed:\n{rules}\n\n{does}\n\n"
        f"Then put into /app/{p.out} for the messages in /app/{p.folder}, {log}.",
        f"In the repository /app, commit messages must follow rules from now on:\n{rules}\n\nInstall a hook, .git/hooks/commit-msg, that sees to it. "
        f"{does}\n\nTry it on the files of /app/{p.folder} and write to /app/{p.out}, {log}.",
        f"Please set up .git/hooks/commit-msg in /app. git calls it with the path of a file with the message; it must check this:\n{rules}\n\n{does}\n\n"
        f"There are examples of messages in /app/{p.folder}. Save as /app/{p.out}, {log}.",
    ]  # fmt: skip


def program(p):
    tests = [(name, RULES[name][1].replace("{pipes}", "|".join(p.kinds))) for name in p.rules]
    lines = ["#!/bin/bash", "awk '"]
    lines += [text for name, text in HELPERS.items() if any(f"{name}(" in test for _, test in tests)]
    lines += ["/^#/ { next }"] * p.comments
    lines += ["{ l[++n] = $0 }", "END {", "  s = l[1]"]
    lines += [f'  if (index(s, "{p.exempt}") == 1) exit 0'] * bool(p.exempt)
    lines += [
        f'  if ({test}) {{ print "{p.form.format(name)}" > "/dev/stderr"; bad = 1 }}' for name, test in tests
    ]
    return "\n".join([*lines, "  exit bad", "}' \"$1\""])  # fmt: skip


def solution(p):
    return [
        f"ls {p.folder}; head -v -n 4 {p.folder}/0[123].txt",
        "mkdir -p .git/hooks",
        put(".git/hooks/commit-msg", program(p)) + "\nchmod +x .git/hooks/commit-msg",
        f"for f in {p.folder}/*; do .git/hooks/commit-msg $f 2> /dev/null; echo \"${{f##*/}} $?\"; done | tee {p.out}",
    ]  # fmt: skip


def lazy(p):
    return [*solution(p), "printf '#!/bin/bash\\ngrep -q : \"$1\"\\n' > .git/hooks/commit-msg"]


def test_examples(p):
    assert read(p.out) == "\n".join(
        f"{name} {int(bool(broken(text, p)))}" for name, text in messages(given(p), p).items()
    )


VERDICTS: list = []


def verdicts(p):
    """What the hook does with new messages, and the rules that they break: looked at once for all the tests."""
    if not VERDICTS:
        rng = hidden(p)
        for _ in range(16):
            text = message(rng, p)
            done = run(at(".git/hooks/commit-msg"), scratch({"message": text}) + "/message", ok=False)
            VERDICTS.append((done, broken(text, p)))
    return VERDICTS


def test_hidden_messages_pass_or_not(p):
    assert mode(".git/hooks/commit-msg") & 0o111
    assert all(done.returncode == int(bool(names)) for done, names in verdicts(p))


def test_hidden_messages_are_told_their_rules(p):
    for done, names in verdicts(p):
        assert tidy(done.stderr) == "\n".join(p.form.format(name) for name in names) and not done.stdout


def test_hidden_commits(p):
    """git itself lets a good message through and stops a bad one."""
    rng = hidden(p)
    made = [message(rng, p) for _ in range(40)]
    good = next(text for text in made if not broken(text, p))
    bad = next(text for text in made if broken(text, p))
    top = scratch(
        repository(rng) | {".git/hooks/commit-msg": raw(".git/hooks/commit-msg"), "good": good, "bad": bad}
    )
    run("chmod", "+x", f"{top}/.git/hooks/commit-msg")
    commit = ["git", "-C", top, "commit", "--allow-empty", "--cleanup=verbatim", "-F"]
    assert run(*commit, "bad", ok=False).returncode != 0
    run(*commit, "good")
