"""Assert what a quick start promises of its run folder: `python .ci/check_summary.py RUN`."""

import json
import math
import sys
from pathlib import Path
from typing import Any

SCORES = ("mean_reward", "ci95", "solved", "solved_ci95", "by_family")
MISMATCH = (
    "mean_abs_logprob_diff",
    "max_abs_logprob_diff",
    "k3",
    "extreme_fraction",
    "expert_mismatch_fraction",
    "tokens",
)


def numbers(value: Any, path: str) -> list[tuple[str, float]]:
    """Every number in a JSON value, with the path to it."""
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in numbers(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [pair for i, item in enumerate(value) for pair in numbers(item, f"{path}[{i}]")]
    return [(path, value)] if isinstance(value, int | float) else []


def check(run: Path) -> None:
    """Raise AssertionError that names what is wrong with a run folder."""
    summary = json.loads((run / "summary.json").read_text())
    for stage in ("base", "sft", "rl"):
        for key in SCORES:
            assert key in summary["scores"][stage], f"scores.{stage}.{key} is missing"
        assert 0 <= summary["scores"][stage]["mean_reward"] <= 1, f"scores.{stage}.mean_reward"
    for key in ("mean", "ci95"):
        assert key in summary["scores"]["rl_minus_sft"], f"scores.rl_minus_sft.{key} is missing"
    for kind in ("a", "b", "c"):
        for key in MISMATCH:
            assert key in summary["mismatch"][kind], f"mismatch.{kind}.{key} is missing"
    assert "total" in summary["seconds"] and isinstance(summary["seed"], int)
    bad = [path for path, number in numbers(summary, "summary") if not math.isfinite(number)]
    assert not bad, f"not finite: {', '.join(bad)}"
    b, c = summary["mismatch"]["b"], summary["mismatch"]["c"]
    for key in ("mean_abs_logprob_diff", "k3"):
        assert c[key] <= b[key], f"mismatch {key}: c {c[key]} is more than b {b[key]}"
    assert c["expert_mismatch_fraction"] == 0, "replay used other experts than were recorded"
    assert (run / "report.html").stat().st_size > 0


if __name__ == "__main__":
    check(Path(sys.argv[1]))
    print(f"{sys.argv[1]}: summary and report are as promised")
