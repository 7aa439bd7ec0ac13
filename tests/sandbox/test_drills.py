"""Drills: reproducible, solvable, and worth nothing to an idle agent or a junk writer."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from random import Random

import pytest

from sandbox.errors import InputError
from sandbox.factory import corpus, junk_command, render
from sandbox.factory.drills import FAMILIES, HELD_OUT_FAMILIES, TRAINING_FAMILIES, build
from sandbox.factory.drills.base import MAX_SIZE, MIN_SIZE
from sandbox.factory.drills.build import identity
from sandbox.factory.drills.words import EXTENSIONS, KEYS, SWAPS, WORDS


def play(instance, commands, folder: Path) -> dict[str, bool]:
    """Runs the commands with bash in the instance's files under `folder`, then its tests: name -> passed."""
    render.write(folder, instance.files)
    folder.mkdir(exist_ok=True)
    for command in commands:
        subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, timeout=10)
    namespace: dict = {}
    exec(instance.test_files["test_outputs.py"], namespace)
    namespace["APP"] = str(folder)
    return {name: passes(test) for name, test in list(namespace.items()) if name.startswith("test_")}


def commands(instance) -> list[str]:
    return list(instance.steps)


def passes(test) -> bool:
    try:
        test()
    except Exception:
        return False
    return True


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode) for path in files}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_solution_solves_and_idle_or_junk_earns_nothing(family, tmp_path):
    for seed, size in ((0, MIN_SIZE), (1, MIN_SIZE), (2, MAX_SIZE)):
        instance = family.instance(Random(seed), size)
        assert len(instance.checks) == size
        solved = play(instance, commands(instance), tmp_path / f"solved{seed}")
        assert len(solved) == size
        assert all(solved.values()), (instance, solved)
        assert not any(play(instance, [], tmp_path / f"noop{seed}").values())
        junk = junk_command(instance.instruction)
        assert not any(play(instance, [junk], tmp_path / f"stub{seed}").values())


# Families whose one command handles all the requirements together.
JOINT = ("delete", "sweep")


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in JOINT])
def test_each_requirement_can_be_met_alone(name, tmp_path):
    instance = FAMILIES[name].generate(Random(3))
    lines = "\n".join(commands(instance)).split("\n")[-3:]
    for number, command in enumerate(lines):
        passed = play(instance, [command], tmp_path / str(number))
        assert [i for i, value in enumerate(passed.values()) if value] == [number]


def test_the_solution_of_another_instance_earns_nothing(tmp_path):
    def files(instance) -> set[str]:
        return set(WORDS) & set(re.findall(r"(\w+)\.\w", " ".join([*instance.files, *commands(instance)])))

    for number, family in enumerate(FAMILIES.values()):
        mine = family.generate(Random(1))
        # File names come from small pools: an instance with a file in common may well do a part.
        others = (family.generate(Random(seed)) for seed in range(2, 10_000))
        other = next(instance for instance in others if not files(instance) & files(mine))
        assert not any(play(mine, commands(other), tmp_path / str(number)).values()), family.name


def test_deleting_everything_earns_nothing(tmp_path):
    assert not any(play(FAMILIES["delete"].generate(Random(0)), ["rm *"], tmp_path / "app").values())


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_instances_fit_a_tiny_model(family):
    for seed in range(40):
        instance = family.generate(Random(seed))
        assert 24 <= len(instance.instruction.split()) <= 70
        assert 1 <= len(instance.steps) <= 5
        for step in commands(instance):
            assert all(len(re.findall(r"\w+|\S", line)) <= 25 for line in step.split("\n")), step
            assert not re.search(r"\b(python|perl|curl|apt)", step)
        assert sum(len(content) for content in instance.files.values()) < 1000
        names = [check.name for check in instance.checks]
        assert len(set(names)) == len(names) and all(name.isidentifier() for name in names)


def test_build_is_reproducible_to_the_byte_and_spread_evenly(tmp_path):
    first, again = build(tmp_path / "a", 46, 7), build(tmp_path / "b", 46, 7)
    assert [path.name for path in first] == [path.name for path in again]
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    counts = [sum(path.name.rsplit("-", 1)[0] == name for path in first) for name in TRAINING_FAMILIES]
    assert max(counts) - min(counts) <= 1 and sum(counts) == 46
    assert all(re.fullmatch(r"[a-z_]+-[0-9a-f]{8}", path.name) for path in first)


def test_modes_do_not_depend_on_the_umask(tmp_path):
    code = "import os, sys; os.umask(0o077)\nfrom pathlib import Path\n"
    code += "from sandbox.factory.drills import build\n"
    code += "build(Path(sys.argv[1]), 1, 1, ['permissions'])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "tight")], check=True)
    build(tmp_path / "usual", 1, 1, ["permissions"])
    assert tree(tmp_path / "tight") == tree(tmp_path / "usual")
    folder = next((tmp_path / "tight").glob("*/environment/files"))
    assert folder.stat().st_mode & 0o777 == 0o755


def test_instances_differ_within_a_build_and_between_seeds():
    def identities(seed):
        return {
            identity(instance.instruction, instance.steps)
            for family in FAMILIES.values()
            for i in range(50)
            for instance in [family.generate(Random(f"{family.name}/{seed}/{i}"))]
        }

    one, two = identities(1), identities(2)
    drawn = 50 * len(FAMILIES)  # a build draws again when it repeats itself, which must stay rare
    assert min(len(one), len(two)) > 0.99 * drawn
    assert len(one & two) < 0.01 * drawn


def test_build_of_two_seeds_shares_no_task(tmp_path):
    texts = [
        {(path / "instruction.md").read_text() + (path / "solution/solve.sh").read_text() for path in paths}
        for paths in (build(tmp_path / "a", 60, 1), build(tmp_path / "b", 60, 2))
    ]
    assert len(texts[0]) == len(texts[1]) == 60 and not texts[0] & texts[1]


def test_an_excluded_task_is_drawn_again(tmp_path):
    first = build(tmp_path / "first", 30, 1)
    with pytest.raises(InputError, match=r"exclude has .*nothing, expected a folder of tasks"):
        build(tmp_path / "second", 30, 1, exclude=[tmp_path / "nothing"])
    second = build(tmp_path / "second", 30, 1, exclude=[tmp_path / "first"])
    assert not {path.name for path in first} & {path.name for path in second}
    assert len(second) == 30


def test_a_family_with_too_few_instances_is_refused(tmp_path, monkeypatch):
    instance = FAMILIES["write"].generate(Random(0))
    stuck = FAMILIES["write"].__class__(
        name="write", area="files", skills=(), generate=lambda rng, size: instance
    )
    monkeypatch.setitem(FAMILIES, "write", stuck)
    with pytest.raises(InputError, match="'write' has no new instance at index 1"):
        build(tmp_path, 2, 0, ["write"])


def test_held_out_families_are_kept_apart(tmp_path):
    assert len(HELD_OUT_FAMILIES) >= 2 and len(TRAINING_FAMILIES) >= 14
    assert set(HELD_OUT_FAMILIES) | set(TRAINING_FAMILIES) == set(FAMILIES)
    assert not set(HELD_OUT_FAMILIES) & set(TRAINING_FAMILIES)
    trained = {skill for name in TRAINING_FAMILIES for skill in FAMILIES[name].skills}
    assert all(set(FAMILIES[name].skills) <= trained for name in HELD_OUT_FAMILIES)
    paths = build(tmp_path, 6, 0, held_out=True)
    assert {path.name.rsplit("-", 1)[0] for path in paths} == set(HELD_OUT_FAMILIES)
    with pytest.raises(InputError, match=r"'sweep' \(held-out\)"):
        build(tmp_path, 1, 0, ["sweep"])
    with pytest.raises(InputError, match=r"'write' \(training\)"):
        build(tmp_path, 1, 0, ["write"], held_out=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "count is 0"),
        ((1, 1, ["nothing"]), "families has 'nothing'"),
        ((1, 1, []), "families is empty"),
    ],
)
def test_bad_arguments_are_named(tmp_path, arguments, message):
    with pytest.raises(InputError, match=message):
        build(tmp_path, *arguments)


def test_task_folder_has_the_contract_shape(tmp_path):
    for path in build(tmp_path, len(TRAINING_FAMILIES), 5):
        table = tomllib.loads((path / "task.toml").read_text())
        assert table["schema_version"] == "1.1"
        metadata = table["metadata"]
        assert metadata["family"] == path.name.rsplit("-", 1)[0] and metadata["seed"] == 5
        assert 1 <= metadata["difficulty"] <= 5 and metadata["skills"] and metadata["area"]
        source = (path / "tests/test_outputs.py").read_text()
        assert re.findall(r"^def (test_\w+)\(\):", source, re.M) == metadata["tests"]
        steps = [json.loads(line) for line in (path / "solution/steps.jsonl").read_text().splitlines()]
        assert all(step["tool"] == "terminal" and set(step["arguments"]) == {"command"} for step in steps)
        script = (path / "solution/solve.sh").read_text()
        body = "\n".join(step["arguments"]["command"] for step in steps)
        assert script == f"#!/bin/bash\ncd /app\n{body}\n"
        assert (path / "tests/test.sh").stat().st_mode & 0o100


def test_runner_scores_each_test_and_writes_ctrf(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_outputs.py").write_text(
        "def test_good():\n    assert True\n\n"
        "def test_bad():\n    raise ValueError('\"quote\" \\\\ \\n \u00e9 \U0001f600')\n\n"
        "def test_broken():\n    open('/missing/file')\n\ndef helper():\n    raise SystemExit\n"
    )
    runner = Path(render.__file__).parent / "run_tests.py"
    command = [sys.executable, "-I", "-S", str(runner), str(tmp_path / "tests"), str(tmp_path / "logs")]
    subprocess.run(command, check=True, capture_output=True)
    results = json.loads((tmp_path / "logs/ctrf.json").read_text())["results"]
    statuses = {test["name"]: test["status"] for test in results["tests"]}
    assert statuses == {"test_good": "passed", "test_bad": "failed", "test_broken": "failed"}
    messages = {test["name"]: test["message"] for test in results["tests"]}
    assert messages["test_bad"] == 'ValueError: "quote" \\ \n \u00e9 \ufffd'
    assert (results["summary"]["tests"], results["summary"]["passed"]) == (3, 1)
    assert float((tmp_path / "logs/reward.txt").read_text()) == pytest.approx(1 / 3)


def test_no_word_is_part_of_another():
    words = [*WORDS, *KEYS, *SWAPS, *EXTENSIONS]
    assert len(words) == len(set(words))
    assert not [(a, b) for a in words for b in words if a != b and a in b]


def test_corpus_has_every_text_of_a_task(tmp_path):
    paths = build(tmp_path, len(TRAINING_FAMILIES), 0)
    texts = list(corpus(paths))
    assert texts == list(corpus(paths))
    for path in paths:
        assert (path / "instruction.md").read_text().strip() in texts
        for line in (path / "solution/steps.jsonl").read_text().splitlines():
            assert json.loads(line)["arguments"]["command"] in texts
        for file in (path / "environment/files").rglob("*.txt"):
            assert file.read_text() in texts


def test_junk_command_covers_the_files_of_an_instruction():
    text = "Rename amber.txt to /app/cedar.txt, pack dune as fog.tar.gz, and move the log files. See a/b.csv."
    files = re.findall(r"> (\S+)", junk_command(text))
    assert files == ["/app/cedar.txt", "a/b.csv", "amber.txt", "fog.tar.gz"]
    assert junk_command("Delete what is old.") == "true"
