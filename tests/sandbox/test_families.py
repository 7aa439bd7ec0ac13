"""Full-size families: sound in real sandboxes, different in substance, the same bytes from the same seed."""

import datetime
import json
import os
import re
import tomllib
from collections import Counter
from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest

from sandbox.check import check_tasks
from sandbox.errors import InputError
from sandbox.factory import build, families, render
from sandbox.factory import family as family_module
from sandbox.factory.build import Deal, choose
from sandbox.factory.duplicates import NEAR, Seen, normalise, shingles
from sandbox.factory.family import LEVELS, Family
from sandbox.factory.kit import File, Link, tidy
from sandbox.task import Task

# What an f-string gone wrong leaves in a sentence.
SLIPS = re.compile(r"  |\{|\bNone\b|(?<!\.)\.\.(?!\.)|\s[,.](?=\s)")


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode) for path in files}


def this_week() -> list[str]:
    """A dozen families, neighbours of different areas: the next dozen every week, so that each has its turn.

    T1_FAMILIES=all takes them all.
    """
    places: Counter[str] = Counter()
    turns = []
    for family in families().values():
        places[family.area] += 1
        turns.append((places[family.area], family.area, family.name))
    names = [name for _, _, name in sorted(turns)]
    if os.environ.get("T1_FAMILIES") == "all":
        return names
    start = 12 * (datetime.date.today().toordinal() // 7)
    return [names[(start + turn) % len(names)] for turn in range(min(12, len(names)))]


def test_tasks_of_a_dozen_families_are_sound(tmp_path):
    """Each at a level of its own, so that a set of many families is of every level."""
    chosen = this_week()
    manifest = build(tmp_path / "tasks", len(chosen), 5, names=chosen)
    assert {name.rpartition("-")[0] for name in manifest["tasks"]} == set(chosen)
    check_tasks(tmp_path / "tasks", "bubblewrap", 3, tmp_path / "check.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "check.jsonl").read_text().splitlines()]
    assert [(line["task"], line["problems"]) for line in lines if not line["ok"]] == []
    for line in lines:
        assert len(line["oracle"]["tests"]) >= 3
        assert 0 <= line["lazy"]["reward"] < 1 and line["oracle"] == line["again"]


@pytest.mark.parametrize("family", families().values(), ids=lambda family: family.name)
def test_tasks_of_a_family_differ_in_substance_at_every_level(family):
    drawn = list(Deal([family], 3, LEVELS).tasks(25))
    assert len({task.params.level for _, task, _ in drawn}) == len(LEVELS)
    sets = [
        shingles(normalise(task.instruction)) | shingles(normalise("\n".join(task.steps)))
        for _, task, _ in drawn
    ]
    assert max(len(a & b) / len(a | b) for a, b in combinations(sets, 2)) < NEAR
    for _, task, _ in drawn:
        assert 30 <= len(task.instruction.split()) <= 400, task.instruction
        assert not SLIPS.search(task.instruction), task.instruction
        assert len(set(task.tests)) == len(task.tests) >= 3
        shown = json.dumps([str(getattr(content, "content", content)) for content in task.files.values()])
        assert task.params.seed not in shown + task.instruction + "".join(task.steps)


def test_the_longest_chain_needs_fifty_commands():
    assert max(len(family.draft("s", 5)[2]) for family in families().values()) >= 50


def test_build_is_reproducible_to_the_byte_and_its_manifest_tells_any_change(tmp_path):
    first, again = build(tmp_path / "a", 20, 7), build(tmp_path / "b", 20, 7)
    assert first == again and tree(tmp_path / "a") == tree(tmp_path / "b")
    assert json.loads((tmp_path / "a/manifest.json").read_text()) == first
    other = build(tmp_path / "c", 20, 8)
    assert not first["tasks"].keys() & other["tasks"].keys()
    assert not set(first["tasks"].values()) & set(other["tasks"].values())
    files = {"a.txt": "text", "b": File("x", mode=0o600), "c": Link("b"), "d": None}
    changes = [{"a.txt": "test"}, {"b": File("x")}, {"c": Link("a")}, {"d": "new"}, {"e": "new"}]
    assert len({render.digest(files | change) for change in [{}, *changes]}) == 6


def test_build_spreads_over_families_and_levels(tmp_path):
    count = 2 * len(families())
    names = build(tmp_path / "tasks", count, 1)["tasks"]
    tasks = [Task.load(tmp_path / "tasks" / name) for name in names]
    by_family = Counter(task.metadata["family"] for task in tasks)
    by_level = Counter(task.metadata["difficulty"] for task in tasks)
    assert set(by_family.values()) == {2} and len(by_family) == len(families())
    assert max(by_level.values()) - min(by_level.values()) <= count // 5
    task = next(task for task in tasks if task.metadata["family"] == "changelog")
    assert task.metadata["area"] == "git" and task.metadata["binaries"] == ["git"]


def test_task_folder_has_the_contract_shape(tmp_path):
    build(tmp_path / "tasks", len(families()), 2)
    for path in sorted(tmp_path.glob("tasks/*/task.toml")):
        metadata = tomllib.loads(path.read_text())["metadata"]
        assert metadata["family"] == path.parent.name.rpartition("-")[0] and metadata["seed"] == 2
        source = (path.parent / "tests/test_outputs.py").read_text()
        assert re.findall(r"^def (test_\w+)\(\):", source, re.M) == metadata["tests"]
        assert any(name.startswith("test_hidden") for name in metadata["tests"])
        assert (path.parent / "tests/kit.py").read_text() == render.source("kit.py")
        steps = [json.loads(line) for line in (path.parent / "solution/steps.jsonl").read_text().splitlines()]
        body = "\n".join(step["arguments"]["command"] for step in steps)
        assert (path.parent / "solution/solve.sh").read_text() == f"#!/bin/bash\ncd /app\n{body}\n"


def test_names_and_numbers_make_no_difference():
    assert normalise("Copy Amber.txt to /app/lagoon-17") == normalise("copy zinc.txt  to /app/tundra-4")
    seen = Seen()
    assert seen.refuse("Sort the file amber.txt into out", ["sort amber.txt > out"]) == ""
    assert seen.refuse("Please put cedar.txt in order", ["sort cedar.txt > out"]) == "same solution"
    assert seen.refuse("Sort the file cedar.txt into out, reversed", ["sort -r cedar.txt > out"]) == ""
    words = " ".join(f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz" * 4)
    assert seen.refuse(f"{words} a", ["run a"]) == ""
    assert seen.refuse(f"{words} a", ["run b"]) == "near duplicate"


def test_a_family_that_runs_out_leaves_its_turns_to_the_others():
    """At its first level a family of few choices has fewer tasks than are asked for."""
    few = families()["cron_times"]
    deal = Deal([few, families()["sealed_trail"]], 0, (1,))
    dealt = Counter(family.name for family, _, _ in deal.tasks(90))
    assert deal.exhausted == ["cron_times/1"] and dealt["cron_times"] < 45 < dealt["sealed_trail"]
    assert deal.refused["same solution"] > 0
    with pytest.raises(InputError, match="count is 90, expected at most"):
        list(Deal([few], 0, (1,)).tasks(90))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count is 0"),
        ({"names": ["nothing"]}, "families has 'nothing'"),
        ({"areas": ["nowhere"]}, "areas has 'nowhere'"),
        ({"names": ["changelog"], "areas": ["sql"]}, "nothing in common"),
        ({"levels": [6]}, "levels has 6"),
    ],
)
def test_bad_arguments_are_named(tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        build(tmp_path / "out", seed=0, **{"count": 1, **arguments})
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine\n")
    with pytest.raises(InputError, match="holds something; expected an empty folder"):
        build(tmp_path, 1, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_choose_by_area():
    assert {family.area for family in choose(None, ["sql", "git"])} == {"sql", "git"}


def module(**changes) -> ModuleType:
    made = ModuleType("made")
    made.draw = lambda rng, level: {"cases": [1, 2, 3]}
    made.files = lambda rng, p: {}
    made.instruction = lambda p: ["one", "two", "three"]
    made.solution = lambda p: ["true"]
    made.lazy = lambda p: ["false"]
    made.test_hidden = lambda p, case: None
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draw": lambda rng, level: {"cases": [object()]}}, "plain values"),
        ({"instruction": lambda p: ["one", "one", "two"]}, "wordings"),
        ({"draw": lambda rng, level: {"cases": [1, 2]}}, "fewer than 3 tests"),
    ],
)
def test_a_module_that_breaks_the_shape_is_named(changes, message):
    def instance(**changes):
        return Family(name="made", area="none", skills=(), module=module(**changes)).instance("seed", 1)

    assert instance().tests == ("test_hidden_1", "test_hidden_2", "test_hidden_3")
    with pytest.raises(ValueError, match=f"family made: .*{message}"):
        instance(**changes)


def test_paragraphs_and_lists_keep_their_lines():
    text = """
    One sentence that
    goes on:
    - first
      item
    - second

    The end.
    """
    assert family_module._paragraphs(text) == "One sentence that goes on:\n- first item\n- second\n\nThe end."
    assert tidy("\n\na  \nb\n\n") == "a\nb"


def test_the_environment_may_lie_outside_app(tmp_path):
    task = families()["changelog"].instance("seed", 1)
    moved = {"/etc/motd": "hello\n", "run.sh": File("#!/bin/sh\n", mode=0o700, time=10**9), "empty": None}
    drawn = type(task)(**{**vars(task), "files": {**moved, "link": Link("run.sh")}})
    render.write(tmp_path / "task", render.folder_files(families()["changelog"], drawn, 0))
    environment = tmp_path / "task/environment"
    assert (environment / "root/etc/motd").read_text() == "hello\n"
    stat = (environment / "files/run.sh").stat()
    assert (stat.st_mode & 0o777, stat.st_mtime) == (0o700, 10**9)
    assert (environment / "files/empty").is_dir() and (environment / "files/link").readlink() == Path(
        "run.sh"
    )
    lines = (environment / "Dockerfile").read_text().splitlines()
    assert lines[1:] == ["WORKDIR /app", "COPY files/ /app/", "COPY root/ /"]
