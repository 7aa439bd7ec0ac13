"""The report: whole, alone, escaped, and written from whatever part of a run exists."""

import dataclasses
import json
import re
import shutil
from html.parser import HTMLParser

import pytest

from sandbox.errors import InputError
from sandbox.trajectory import Turn, read_frames, write_frames
from t1_jax.observability.episodes import Entry, article, select
from t1_jax.observability.report import load_run, render, write_report

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Checker(HTMLParser):
    """Every element is closed in order; collects elements, ids, links and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen, self.attributes, self.text = [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def html(run_dir):
    return write_report(run_dir).read_text()


def test_everything_is_there(html):
    page = Checker(html)
    text = "".join(page.text)
    for title in (
        "What the agent can do",
        "Reinforcement learning",
        "Learning from demonstrations",
        "Mismatch k3",
        "Entropy",
        "Gradient norm",
        "Staleness",
        "Groups without a signal",
        "Format errors",
        "Other experts",
        "Rounds",
        "Time by stage",
        "Watch it work",
    ):
        assert title in text, title
    assert text.count("held out") == 2
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value for name, value in page.attributes if name == "data-page"]
    assert 18 <= len(targets) <= 28 and set(targets) <= set(ids)
    assert {value[1:] for name, value in page.attributes if name == "href"} <= set(ids)


def test_nothing_is_loaded_from_elsewhere(html):
    assert not re.search(r"""(?:src|href)=["'](?!#)|@import|url\(|https?://""", html)
    assert Checker(html).seen.count("script") == 1


def test_terminal_output_cannot_become_markup(run_dir):
    bad = '</pre><script>alert("x")</script><img src=x onerror=1>&amp;\x1b[31m"\''
    trajectory = next(read_frames((run_dir / "eval" / "rl.frames").read_bytes()))
    turn = Turn(
        sampled=(5, 9),
        observed=(9, 12),
        tool="terminal",
        arguments={"command": bad},
        observation=bad,
        error=bad,
        text=bad,
    )
    hostile = dataclasses.replace(
        trajectory,
        task=bad,
        tests={bad: False},
        turns=(
            turn,
            dataclasses.replace(
                turn,
                tool="terminal_input",
                error="",
                arguments={"keys": [bad]},
                more=({"tool": "terminal", "arguments": {"command": bad}, "observation": bad},),
            ),
        ),
        metadata={"family": bad, "instruction": bad},
    )
    page = Checker(
        article(
            Entry(group=bad, stage="rl", trajectory=hostile, remark=bad),
            "episode-0",
            load_run(run_dir).tokenizer,
        )
    )
    assert "script" not in page.seen and "img" not in page.seen
    assert "".join(page.text).count("<script>alert") >= 8


def test_an_episode_is_shown_as_it_went(run_dir):
    run = load_run(run_dir)
    trajectory = next(t for t in run.evaluated["rl"] if t.solved)
    text = "".join(
        Checker(article(Entry(group="", stage="rl", trajectory=trajectory), "e", run.tokenizer)).text
    )
    assert "Count the requests that ended with status 500" in text
    assert "$ ls -la /app" in text and "total 24" in text and "exit 1" in text
    assert "# timeout 30 s" in text and "policy v40" in text
    assert (
        "<tool_call>\n<function=terminal>\n<parameter=command>\nls -la /app\n</parameter>" in text
    )  # the sampled tokens
    assert "4 of 4 tests passed, reward 1.00" in text


def test_selection(run_dir):
    run = load_run(run_dir)
    entries = select(run.evaluated, run.training, run.held_out)
    by_group = {group: [e for e in entries if e.group == group] for group in {e.group for e in entries}}
    keys = [(e.stage, e.trajectory.rollout_id) for e in entries]
    assert len(keys) == len(set(keys))
    improved = by_group["Improved by RL"]
    assert [e.stage for e in improved] == ["sft", "rl"] * 4
    assert all(
        a.trajectory.task == b.trajectory.task for a, b in zip(improved[::2], improved[1::2], strict=True)
    )
    assert all(
        a.trajectory.reward < b.trajectory.reward for a, b in zip(improved[::2], improved[1::2], strict=True)
    )
    assert {e.trajectory.metadata["family"] for e in by_group["Held-out families"]} == run.held_out
    assert all(e.trajectory.reward == 1 for e in by_group["Best"])
    assert all(e.trajectory.reward < 1 for e in by_group["Worst"])
    assert len({e.trajectory.metadata["family"] for e in by_group["Best"]}) == 5


@pytest.mark.parametrize(
    "kept",
    [
        "summary.json",
        "rl/metrics.jsonl",
        "sft/metrics.jsonl",
        "mismatch.json",
        "eval/rl.json",
        "eval/sft.frames",
    ],
)
def test_any_part_alone_gives_a_report(run_dir, tmp_path, kept):
    (tmp_path / kept).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(run_dir / kept, tmp_path / kept)
    Checker(write_report(tmp_path).read_text())


def test_an_evaluation_without_a_graded_task(run_dir, tmp_path):
    (tmp_path / "eval").mkdir()
    nothing = {"mean_reward": None, "mean_reward_ci95": None, "solved": None, "solved_ci95": None}
    measured = {"mean_reward": 0.5, "mean_reward_ci95": [0.4, 0.6], "solved": 0.25, "solved_ci95": [0.1, 0.4]}
    (tmp_path / "eval" / "base.json").write_text(json.dumps({**nothing, "tasks": {"a": []}}))
    families = {"x": {"tasks": 1, **measured}, "y": {"tasks": 1, **nothing}}
    (tmp_path / "eval" / "sft.json").write_text(json.dumps({**measured, "tasks": {}, "by_family": families}))
    text = "".join(Checker(write_report(tmp_path).read_text()).text)
    assert "95 % interval 0.40 to 0.60" in text and "0.50" in text


def test_ungraded_episodes_are_left_out(run_dir, tmp_path):
    (tmp_path / "eval").mkdir()
    ungraded = [
        dataclasses.replace(t, reward=None, ending="infra_error", tests={}, turns=())
        for t in read_frames((run_dir / "eval" / "rl.frames").read_bytes())
    ]
    (tmp_path / "eval" / "rl.frames").write_bytes(write_frames(ungraded))
    assert 'data-page="' not in render(load_run(tmp_path))


def test_bad_folders(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        write_report(tmp_path / "missing")
    with pytest.raises(InputError, match="nothing to report"):
        write_report(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(InputError, match=r"summary\.json: not JSON"):
        write_report(tmp_path)
