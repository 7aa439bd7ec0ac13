"""A repository to be made from a plan: commits, branches, merges and tags, in their order.

Hard: up to forty steps in a row, where a commit on the wrong branch or a merge of the wrong kind shows for ever.
"""

from sandbox.factory.kit import PEOPLE, at, hidden, output, read, word, words

SKILLS = ("git commit", "git switch", "git merge", "git tag", "git cherry-pick", "patience")
BINARIES = ("git",)

COUNTS = {1: 5, 2: 9, 3: 15, 4: 24, 5: 36}
# A step: how people say it -> the commands.
STEPS = {
    "commit {f} with the line {w} (a new file, or added to it), message `{s}`": "echo {w} >> {f} && git add {f} && git commit -qm '{s}'",
    "make the branch {n} here and go to it": "git switch -qc {n}",
    "go to the branch {b}": "git switch -q {b}",
    "merge the branch {o} with a merge commit, message `{s}`": "git merge -q --no-ff -m '{s}' {o}",
    "set the tag {t} here (a plain one)": "git tag {t}",
    "set the annotated tag {t} here, message `{s}`": "git tag -a -m '{s}' {t}",
    "delete {f} in a commit, message `{s}`": "git rm -q {f} && git commit -qm '{s}'",
    "rename {f} to {g} in a commit, message `{s}`": "git mv {f} {g} && git commit -qm '{s}'",
    "change the message of the last commit to `{s}`": "git commit -q --amend -m '{s}'",
    "commit without any change, message `{s}`": "git commit -q --allow-empty -m '{s}'",
    "commit {f} with the line {w} (a new file, or added to it), message `{s}`, author {a} <{a}@example.org>": "echo {w} >> {f} && git add {f} && git commit -qm '{s}' --author='{a} <{a}@example.org>'",
    "commit {f} with {w} as its only line (a new file, or in the place of what it has), message `{s}`": "echo {w} > {f} && git add {f} && git commit -qm '{s}'",
    "make the branch {n} here, but stay": "git branch {n}",
    "set the tag {t} at the commit before this one (a plain one)": "git tag {t} HEAD~1",
}
# What is to be written about the repository in the end -> git's command, Python's lines of (commits, heads, branch).
REPORTS = {
    "the subjects of the commits that main has, in byte order": ("git log --format=%s main | LC_ALL=C sort", lambda c, h, b: sorted(c[n][0] for n in ancestors(c, h["main"]))),
    "the number of commits that the repository has": ("git rev-list --all --count", lambda c, h, b: [str(len({n for top in h.values() for n in ancestors(c, top)}))]),
    "the names of all branches, in byte order": ("git branch --format='%(refname:short)' | LC_ALL=C sort", lambda c, h, b: sorted(name for name in h if " " not in name)),
    "a line `BRANCH SUBJECT` for each branch with the subject of its last commit, in byte order": ("git branch --format='%(refname:short) %(subject)' | LC_ALL=C sort", lambda c, h, b: sorted(f"{name} {c[n][0]}" for name, n in h.items() if " " not in name)),
    "the files of the branch that is checked out, in byte order": ("git ls-files | LC_ALL=C sort", lambda c, h, b: sorted(c[h[b]][2])),
    "the number of merge commits that the repository has": ("git rev-list --all --merges --count", lambda c, h, b: [str(sum(len(c[n][1]) > 1 for n in {n for top in h.values() for n in ancestors(c, top)}))]),
    "the subjects of the commits that the branch checked out has and main has not, in byte order (nothing where it is main itself)": ("git log --format=%s main..HEAD | LC_ALL=C sort", lambda c, h, b: sorted(c[n][0] for n in ancestors(c, h[b]) - ancestors(c, h["main"]))),
    "the names of the branches whose commits are all in main, in byte order": ("git branch --merged main --format='%(refname:short)' | LC_ALL=C sort", lambda c, h, b: sorted(name for name, n in h.items() if " " not in name and n in ancestors(c, h["main"]))),
}  # fmt: skip


def draw(rng, level):
    kinds = [kind for kind in STEPS if kind.startswith(("make", "go"))]
    kinds += rng.sample([kind for kind in STEPS if kind not in kinds], rng.randint(3, 5) + level // 3)
    fresh, here, tops = iter(words(rng, 110)), "main", {}
    steps, has = [], {"main": {}}  # branch -> its files, each with the branch that made it
    merged, head = {"main": set()}, 0
    while len(steps) < COUNTS[level]:
        kind = rng.choice(kinds) if steps else next(iter(STEPS))
        files, subject = has[here], f"{word(rng).title()} {word(rng)}"
        # A file belongs to the branch that made it, so that no merge has a conflict.
        mine = [f for f, owner in files.items() if owner == here]
        step = {}
        match kind.split(" ")[0]:
            case "commit" if "without" in kind:
                step = {"s": subject} if head else {}
                head += bool(step)
                merged[here] = merged[here] | {head}
            case "commit":
                step = {
                    "a": word(rng, PEOPLE),
                    "f": rng.choice([*mine, f"{next(fresh)}.txt"]),
                    "w": f"{word(rng)}{len(steps)}",
                    "s": subject,
                }
                files[step["f"]] = here
                head += 1
                merged[here] = merged[here] | {head}
                tops.pop(here, None)
            case "make":
                if len(has) < 2 + level // 2 and rng.random() < 0.7:
                    step = {"n": next(fresh)}
                    has[step["n"]], merged[step["n"]] = dict(files), set(merged[here])
                    here = here if "stay" in kind else step["n"]
            case "go":
                if len(has) > 1:
                    here = rng.choice([b for b in has if b != here])
                    step = {"b": here}
            case "merge":
                if new := [b for b in has if b != here and not merged[b] <= merged[here]]:
                    step = {"o": rng.choice(new), "s": subject}
                    files |= {f: owner for f, owner in has[step["o"]].items() if owner != here}
                    head += 1
                    merged[here] = merged[here] | merged[step["o"]] | {head}
                    tops[here] = "merge"
            case "set" if "before" not in kind or (
                steps and steps[-1][0].startswith("commit") and head > 1 and len(merged[here]) > 1
            ):
                step = {"t": f"{next(fresh)}-{len(steps)}", "s": subject}
            case "change":
                # Only a commit that nothing else has: the last step made it, on this branch.
                if steps and steps[-1][0].startswith("commit {f}"):
                    step = {"s": subject}
            case "delete" | "rename":
                if len(mine) > 1:
                    step = {"f": rng.choice(mine), "g": f"{next(fresh)}.md", "s": subject}
                    del files[step["f"]]
                    files |= {step["g"]: here} if kind.startswith("rename") else {}
                    head += 1
                    merged[here] = merged[here] | {head}
        if step:
            steps.append((kind, {key: value for key, value in step.items() if "{" + key + "}" in kind}))
    return {
        "folder": f"{word(rng)}-repo",
        "plan": f"{word(rng)}.plan",
        "steps": steps,
        "branches": list(has),
        "report": rng.choice(list(REPORTS)),
        "out": f"{word(rng)}.txt",
        "person": word(rng).title(),
    }


def secret(p):
    """What the last commit must have in it, which only the plan tells."""
    rng = hidden(p)
    return f"{word(rng)} {word(rng)} {rng.randint(100, 999)}"


def files(rng, p):
    lines = [f"{n}. {kind.format(**step)}" for n, (kind, step) in enumerate(p.steps, 1)]
    return {
        p.plan: "\n".join(
            [*lines, f"{len(lines) + 1}. commit SEAL with the line `{secret(p)}`, message `Seal`"]
        )
        + "\n"
    }


def instruction(p):
    rules = f"Every commit and tag is made by {p.person} <agent@example.org>, but for other authors that the plan names; messages are as in the plan, without more; steps that do not say commit or merge make none. In the end, write to /app/{p.out} {p.report}."
    return [
        f"Make the git repository /app/{p.folder} as the plan /app/{p.plan} says, its {len(p.steps) + 1} steps one after the other. It is a new repository whose first branch is main. {rules}",
        f"/app/{p.plan} tells the history of a repository in {len(p.steps) + 1} steps. Please make it: a new git repository in /app/{p.folder}, beginning with the branch main, then step by step as planned. {rules}",
        f"We teach git, and need a repository with a certain history for it. Start with an empty one in /app/{p.folder} (branch main) and carry out /app/{p.plan} from top to bottom. {rules}",
    ]


def solution(p):
    who = f"git config user.name '{p.person}' && git config user.email agent@example.org"
    start = f"git init -q -b main {p.folder} && cd {p.folder} && {who}"
    seal = f"cd /app/{p.folder} && grep -o 'line `[^`]*' ../{p.plan} | tail -n 1 | cut -d '`' -f 2 >> SEAL && git add SEAL && git commit -qm Seal"
    return [
        f"cat {p.plan}",
        start,
        *[f"cd /app/{p.folder} && {STEPS[kind].format(**step)}" for kind, step in p.steps],
        seal,
        f"cd /app/{p.folder} && {REPORTS[p.report][0]} > ../{p.out}",
    ]


def lazy(p):
    """The commits, all on one branch."""
    steps = [step for step in solution(p) if not any(word in step for word in ("git switch", "git merge"))]
    return [*steps[:-2], f"cd /app/{p.folder} && git commit -q --allow-empty -m Seal"]


def graph(lines):
    """Subjects with those of their parents: what is left of a history when the ids are taken away."""
    rows = [line.split("\t") for line in lines.split("\n")]
    subjects = {row[0]: row[2] for row in rows}
    return [(row[2], [subjects[parent] for parent in row[1].split()], row[3]) for row in rows]


def simulated(p):
    """(commits as (subject, parents, files), branch or tag -> its commit, the branch in the end).

    A file is changed on the branch that made it only, so a branch's files are told by how far it knows each other.
    """
    commits, heads, here = [], {"main": None}, "main"
    own, known = (
        {"main": [{}]},
        {"main": {"main": 0}},
    )  # a branch's files after each change; how many of them are known

    def commit(subject, parents):
        files = {f: text for branch, n in known[here].items() for f, text in own[branch][n].items()}
        commits.append((subject, parents, files, step.get("a", p.person)))
        heads[here] = len(commits) - 1

    for kind, step in [*p.steps, (next(iter(STEPS)), {"f": "SEAL", "w": secret(p), "s": "Seal"})]:
        top, files = heads[here], dict(own[here][-1])
        match kind.split(" ")[0]:
            case "make":
                new = step["n"]
                heads[new], own[new], known[new] = top, [{}], known[here] | {new: 0}
                here = here if "stay" in kind else new
            case "go":
                here = step["b"]
            case "merge":
                other = known[step["o"]]
                known[here] = {
                    branch: max(other.get(branch, 0), known[here].get(branch, 0))
                    for branch in other | known[here]
                }
                commit(step["s"], [top, heads[step["o"]]])
            case "set":
                heads["tag " + step["t"]] = commits[top][1][0] if "before" in kind else top
            case "change":
                commits[top] = (step["s"], *commits[top][1:])
            case "commit" if "without" in kind:
                commit(step["s"], [top])
            case _:
                if "only line" in kind:
                    files[step["f"]] = step["w"] + "\n"
                elif kind.startswith("commit"):
                    files[step["f"]] = files.get(step["f"], "") + step["w"] + "\n"
                else:
                    text = files.pop(step["f"])
                    files |= {step["g"]: text} if "g" in step else {}
                own[here].append(files)
                known[here][here] += 1
                commit(step["s"], [top] if top is not None else [])
    return commits, heads, here


def ancestors(commits, top):
    found, left = set(), [top]
    while left:
        n = left.pop()
        if n not in found:
            found.add(n)
            left += commits[n][1]
    return found


def names(p, name):
    return f"refs/tags/{name[4:]}" if name.startswith("tag ") else f"refs/heads/{name}"


def git(p, *arguments):
    return output("git", "-C", at(p.folder), *arguments)


def test_hidden_seal(p):
    assert git(p, "log", "-1", "--format=%s %an", simulated(p)[2]) == f"Seal {p.person}"
    assert git(p, "show", f"{simulated(p)[2]}:SEAL") == secret(p)


def test_branches_and_tags(p):
    heads = simulated(p)[1]
    assert sorted(git(p, "for-each-ref", "--format=%(refname)").split("\n")) == sorted(
        names(p, name) for name in heads
    )


def history_is_right(p, chosen):
    commits, heads, _ = simulated(p)
    for name in chosen:
        found = graph(git(p, "log", "--format=%H%x09%P%x09%s%x09%an", names(p, name)))
        wanted = [
            (commits[n][0], [commits[m][0] for m in commits[n][1]], commits[n][3])
            for n in ancestors(commits, heads[name])
        ]
        assert sorted(found) == sorted(wanted), name


def test_history_of_main(p):
    history_is_right(p, ["main"])


def test_histories(p):
    history_is_right(p, simulated(p)[1])


def test_files(p):
    commits, heads, _ = simulated(p)
    for name in p.branches:
        tree = commits[heads[name]][2]
        assert git(p, "ls-tree", "-r", "--name-only", name).split("\n") == sorted(tree)
        text = git(p, "grep", "-h", "", name).split("\n")
        assert text == [line for f in sorted(tree) for line in tree[f].splitlines()]


def test_report(p):
    wanted = REPORTS[p.report][1](*simulated(p))
    assert read(p.out).split("\n") == (wanted or [""]) and git(p, "log", "-1", "--format=%s") == "Seal"
