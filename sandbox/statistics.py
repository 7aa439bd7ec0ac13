"""Bootstrap intervals over tasks: attempts of one task are not independent, so tasks are resampled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sandbox.errors import InputError

RESAMPLES = 10_000
_CHUNK = 256  # resamples at a time, so that many tasks do not need a large index array


def bootstrap_ci(values: Sequence[float], *, seed: int = 0, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of the mean of `values` (one value a task), by 10,000 seeded resamples.

    (nan, nan) without values; a point for one value.
    """
    data = np.asarray(values, np.float64)
    if not len(data):
        return float("nan"), float("nan")
    rng = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, _CHUNK):
        count = min(_CHUNK, RESAMPLES - start)
        means[start : start + count] = data[rng.integers(len(data), size=(count, len(data)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean of `values`: their sample deviation over sqrt(n). None for fewer than two values."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], *, seed: int = 0, level: float = 0.95
) -> tuple[float, tuple[float, float]]:
    """Mean of `second - first` over paired tasks, and its interval: tasks are resampled, pairs stay together.

    Raises ValueError when the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values, expected pairs")
    difference = np.asarray(second, np.float64) - np.asarray(first, np.float64)
    mean = float(difference.mean()) if len(difference) else float("nan")
    return mean, bootstrap_ci(difference.tolist(), seed=seed, level=level)


def compare(first: str | Path, second: str | Path, *, seed: int = 0) -> dict[str, Any]:
    """Compare two evaluation files over the tasks that both graded: second minus first, paired over tasks.

    Keys: tasks, only_in_first, only_in_second, mean_reward [first, second], difference {"mean", "ci95"},
    solved and solved_difference likewise, better / worse / equal (numbers of tasks), significant (the
    interval leaves out 0), per_task [{"task", "first", "second"}] (mean rewards). Raises InputError when a
    file is no evaluation or nothing is common.
    """
    results = [_read_result(Path(path)) for path in (first, second)]
    means = [
        {name: _mean(rewards) for name, rewards in result["tasks"].items() if rewards} for result in results
    ]
    solved = [
        {
            name: _mean([float(r >= 1.0) for r in rewards])
            for name, rewards in result["tasks"].items()
            if rewards
        }
        for result in results
    ]
    common = sorted(means[0].keys() & means[1].keys())
    if not common:
        raise InputError(f"eval compare: {first} and {second} have no graded task in common")
    pairs = [[side[name] for name in common] for side in means]
    solved_pairs = [[side[name] for name in common] for side in solved]
    difference, interval = paired_bootstrap(*pairs, seed=seed)
    solved_difference, solved_interval = paired_bootstrap(*solved_pairs, seed=seed)
    changes = [b - a for a, b in zip(*pairs, strict=True)]
    return {
        "tasks": len(common),
        "only_in_first": len(means[0].keys() - means[1].keys()),
        "only_in_second": len(means[1].keys() - means[0].keys()),
        "mean_reward": [_mean(side) for side in pairs],
        "difference": {"mean": difference, "ci95": list(interval)},
        "solved": [_mean(side) for side in solved_pairs],
        "solved_difference": {"mean": solved_difference, "ci95": list(solved_interval)},
        "better": sum(change > 1e-9 for change in changes),
        "worse": sum(change < -1e-9 for change in changes),
        "equal": sum(abs(change) <= 1e-9 for change in changes),
        "significant": not interval[0] <= 0.0 <= interval[1],
        "per_task": [
            {"task": name, "first": a, "second": b} for name, a, b in zip(common, *pairs, strict=True)
        ],
    }


def _read_result(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"eval compare: {path} does not exist, expected the output of eval")
    try:
        result = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InputError(f"eval compare: {path} is not JSON ({error})") from error
    if not isinstance(result, dict) or not isinstance(result.get("tasks"), dict):
        raise InputError(f"eval compare: {path} holds no tasks, expected the output of eval")
    return result


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
