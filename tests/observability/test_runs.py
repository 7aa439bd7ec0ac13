import json
import re

import pytest

from launch import dispatch
from sandbox.errors import InputError


def write_run(folder, replay, k3, steps=5):
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"replay: {str(replay).lower()}\n")
    rows = [
        {"step": step, "rollout/reward": step / 10, "mismatch/k3": k3, "mismatch/extreme_fraction": k3 / 2}
        for step in range(1, steps + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_runs_with_and_without_replay_side_by_side(tmp_path):
    write_run(tmp_path / "one" / "rl", True, 0.001)
    write_run(tmp_path / "two", False, 0.25, steps=3)
    out = tmp_path / "figures" / "replay.html"
    assert (
        dispatch(["report", "compare", str(tmp_path / "one"), str(tmp_path / "two"), "--out", str(out)]) == 0
    )
    html = out.read_text()
    assert "A: one, with replay" in html and "B: two, without replay" in html
    for title in ("Reward", "Mismatch k3", "Extreme tokens"):
        assert f'aria-label="{title} by step"' in html
    assert "Entropy by step" not in html, "nothing is drawn of what no run has"
    rows = {row[0]: row[1:] for row in re.findall(r"<tr><th>([^<]+)</th><td>(.*?)</td><td>(.*?)</td>", html)}
    assert rows["Mismatch k3"] == ("0.001", "0.25") and rows["Reward"] == ("0.3", "0.2")


def test_folders_without_a_run_are_refused(tmp_path):
    out = tmp_path / "x.html"
    with pytest.raises(InputError, match=r"expected an RL run"):
        dispatch(["report", "compare", str(tmp_path), "--out", str(out)])
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(InputError, match="holds no step"):
        dispatch(["report", "compare", str(tmp_path), "--out", str(out)])
    assert not out.exists()
