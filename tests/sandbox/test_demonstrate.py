import random
import shlex

import numpy as np
import pytest

from sandbox.backends import BACKENDS
from sandbox.demonstrate import demonstrate, load_actions, mistake
from sandbox.errors import InputError
from sandbox.task import Task
from sandbox.trajectory import read_frames


@pytest.fixture
def tasks(write_task):
    return [Task.load(write_task(f"task{k}")) for k in range(6)]


def run(tasks, chat, out, **options):
    return demonstrate(tasks, chat, BACKENDS["bubblewrap"], out, progress=False, **options)


def test_solutions_become_trajectories_that_train_their_turns(tasks, chat, tmp_path):
    report = run(tasks[:2], chat, tmp_path / "deep" / "demos.bin", recovery_fraction=0.0)
    assert (report.kept, report.recoveries, report.left_out) == (2, 0, {})
    kept = list(read_frames((tmp_path / "deep" / "demos.bin").read_bytes()))
    assert [t.task for t in kept] == ["task0", "task1"] and report.tokens == sum(len(t.tokens) for t in kept)
    for trajectory in kept:
        assert trajectory.reward == 1.0 and [t.tool for t in trajectory.turns] == ["terminal"] * 3 + [
            "finish"
        ]
        spans = np.zeros(len(trajectory.tokens), bool)
        for turn in trajectory.turns:
            spans[slice(*turn.sampled)] = True
            assert trajectory.tokens[turn.sampled[1] - 1] == chat.end_of_turn_id
        assert np.array_equal(trajectory.loss_mask, spans)


def test_recoveries_hold_a_mistake_that_is_never_learned(tasks, chat, tmp_path):
    report = run(tasks, chat, tmp_path / "a", recovery_fraction=1.0, seed=1)
    assert report.kept == 6 and report.recoveries >= 3
    for trajectory in read_frames((tmp_path / "a").read_bytes()):
        assert trajectory.reward == 1.0
        for index, turn in enumerate(trajectory.turns):
            wrong = index in trajectory.metadata.get("context_turns", [])
            assert trajectory.loss_mask[slice(*turn.sampled)].all() != wrong
            assert trajectory.loss_mask[slice(*turn.sampled)].any() != wrong
            if wrong:
                assert turn.exit_code != 0 and trajectory.turns[index + 1].exit_code == 0
    # The choice depends on the seed and the task alone.
    run(tasks, chat, tmp_path / "b", recovery_fraction=1.0, seed=1, concurrency=1)
    commands = [
        [[turn.arguments for turn in t.turns] for t in read_frames((tmp_path / name).read_bytes())]
        for name in ("a", "b")
    ]
    assert commands[0] == commands[1]


def test_only_full_rewards_are_kept_and_the_rest_is_explained(tasks, chat, tmp_path):
    (tasks[0].path / "solution/steps.jsonl").write_text(
        '{"tool": "terminal", "arguments": {"command": "touch done.txt"}}\n'
    )
    (tasks[1].path / "solution/steps.jsonl").unlink()
    report = run(tasks[:3], chat, tmp_path / "demos", recovery_fraction=0.0)
    assert report.kept == 1
    assert report.left_out["task0"] == "reward 0.25, ending finish, failed tests: test_out"
    assert report.left_out["task1"] == "no solution/steps.jsonl"
    with pytest.raises(InputError, match=r"task task0: reward 0\.25"):
        run(tasks[:1], chat, tmp_path / "none", recovery_fraction=0.0)


def test_mistakes_are_misspelt_and_do_nothing_else():
    commands = [
        "cat notes.txt",
        "sed -i 's/a/b/' conf/app.ini",
        "grep --count x a/b.log > out.txt",
        "mv a.txt b.txt && rm c",
        "python3 - <<'E'\nprint(1)\nE",
        "echo hi >> f",
    ]
    for seed in range(40):
        for command in commands:
            slip = mistake(command, random.Random(seed))
            assert slip and not set(slip) & set(";&|<>$`\n") and not command.startswith(slip)
            assert len(slip.split()) <= len(command.split("\n")[0].split())
            assert shlex.split(slip)
    assert mistake("(cd x; ls)", random.Random(0)) is None
    assert mistake("w ./1 -l", random.Random(0)) is None
    assert mistake("", random.Random(0)) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: expected"),
        ('{"tool": "x"}', "line 2: unknown function 'x'"),
        ('{"tool": "terminal", "arguments": {}}', "line 2: terminal needs"),
    ],
)
def test_bad_actions_are_refused_with_their_line(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text('{"tool": "finish"}\n' + line + "\n")
    with pytest.raises(InputError, match=message):
        load_actions(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="no such file"):
        load_actions(tmp_path / "b.jsonl")
