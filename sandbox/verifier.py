"""From the files that a task's tests wrote to a reward.

The tests run in a fresh sandbox after the episode's processes are dead (backends); here their results are
read as untrusted input. With `tests` in task.toml's [metadata], results come from /logs/verifier/ctrf.json
(Common Test Report Format) and the reward is

    f  = sum(w_i * passed_i) / sum(w_i)    over the expected tests; a missing one has failed
    f' = max(0, (f - b) / (1 - b))         b = stub_baseline: what files of the right name and no content earn
    reward = 0.5 * f' + 0.5 * [all passed]

with w_i from [metadata.test_weights] (1 where absent). Without `tests`, as in public Harbor tasks, the
reward is the number in /logs/verifier/reward.json, else in reward.txt. Of a table in reward.json it is
"reward", or the mean of all values where there is no such key.
"""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sandbox.errors import InputError
from sandbox.task import Task

RESULT_LIMIT = 1 << 20  # bytes of a result file; a larger one counts as unreadable


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one verification.

    reward: 0..1. status: "scored"; "no_reward" (the tests left no result); "timeout"; "parse_error" (a
    result that is
    not what it must be). The last three have reward 0. log: what the tests printed, head and tail.
    """

    reward: float
    tests: dict[str, bool] = field(default_factory=dict)
    status: Literal["scored", "no_reward", "timeout", "parse_error"] = "scored"
    seconds: float = 0.0
    log: str = ""

    @property
    def solved(self) -> bool:
        """Whether every expected test passed; without named tests, whether the reward is full."""
        return self.status == "scored" and (all(self.tests.values()) if self.tests else self.reward >= 1.0)


def compute_reward(metadata: dict[str, Any], tests: dict[str, bool]) -> float:
    """The reward (0..1) of `tests` (expected test id -> passed). Raises InputError on unusable weights or
    baseline."""
    weights = metadata.get("test_weights", {})
    baseline = metadata.get("stub_baseline", 0)
    amounts = {test: weights.get(test, 1) for test in tests}
    if (
        not all(_is_number(amount) and amount >= 0 for amount in amounts.values())
        or not sum(amounts.values()) > 0
    ):
        raise InputError("task.toml [metadata.test_weights]: expected numbers >= 0 with a positive sum")
    if not _is_number(baseline) or not 0 <= baseline < 1:
        raise InputError(f"task.toml [metadata] stub_baseline is {baseline!r}, expected a number in [0, 1)")
    fraction = sum(amounts[test] for test, passed in tests.items() if passed) / sum(amounts.values())
    return 0.5 * max(0.0, (fraction - baseline) / (1 - baseline)) + 0.5 * all(tests.values())


def grade(task: Task, logs: Path, *, exit_code: int, timed_out: bool, seconds: float, log: str) -> Verdict:
    """Read the results under `logs` (the host's side of /logs/verifier) of tests that ended with `exit_code`.

    exit_code: 128 + n when the tests' process was killed by signal n; nothing that is left behind counts
    then.
    """
    expected = task.metadata.get("tests", [])
    failed = dict.fromkeys(expected, False)
    if timed_out:
        return Verdict(reward=0.0, tests=failed, status="timeout", seconds=seconds, log=log)
    if exit_code >= 128:
        return Verdict(reward=0.0, tests=failed, status="no_reward", seconds=seconds, log=log)
    try:
        if expected:
            text = _read_result(logs / "ctrf.json")
            tests = None if text is None else failed | _passed(text, set(expected))
            reward = None if tests is None else compute_reward(task.metadata, tests)
        else:
            tests, reward = {}, _read_reward(logs)
    except ValueError as error:
        return Verdict(
            reward=0.0, tests=failed, status="parse_error", seconds=seconds, log=f"{log}\n[{error}]"
        )
    if reward is None:
        return Verdict(reward=0.0, tests=failed, status="no_reward", seconds=seconds, log=log)
    return Verdict(reward=reward, tests=tests or {}, status="scored", seconds=seconds, log=log)


def _read_result(path: Path) -> str | None:
    """A result file's text, None when there is none. Raises ValueError when it is no small regular UTF-8
    file."""
    try:  # no link is followed and no FIFO is waited for: the name may have been planted
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path.name} is not a regular file")
        data = file.read(RESULT_LIMIT + 1)
    if len(data) > RESULT_LIMIT:
        raise ValueError(f"{path.name} is larger than {RESULT_LIMIT} bytes")
    return data.decode("utf-8")


def _passed(text: str, expected: set[str]) -> dict[str, bool]:
    """Expected test id -> passed, from CTRF. Only "passed" passes; a test named twice must pass twice."""
    report = _parse(text)
    try:
        entries = [(entry["name"], entry["status"]) for entry in report["results"]["tests"]]
    except (KeyError, TypeError):
        raise ValueError("ctrf.json: expected results.tests, a list of tables with name and status") from None
    passed: dict[str, bool] = {}
    for name, status in entries:
        if isinstance(name, str):
            short = name.rpartition("::")[2]  # pytest-json-ctrf writes file::test
            key = name if name in expected else short
            if key in expected:
                passed[key] = passed.get(key, True) and status == "passed"
    return passed


def _read_reward(logs: Path) -> float | None:
    text = _read_result(logs / "reward.json")
    if text is not None:
        value = _parse(text)
        parts = list(value.values()) if isinstance(value, dict) else [value]
        if isinstance(value, dict) and "reward" in value:
            parts = [value["reward"]]
        parts = [float(part) if isinstance(part, bool) else part for part in parts]
        if not parts or not all(_is_number(part) and 0 <= part <= 1 for part in parts):
            raise ValueError("reward.json: expected a number in [0, 1], or a table of them")
        value = sum(parts) / len(parts)
    else:
        text = _read_result(logs / "reward.txt")
        if text is None:
            return None
        value = float(text.strip())
    if not math.isfinite(value) or not 0 <= value <= 1:
        raise ValueError(f"reward {value!r}: expected a finite number in [0, 1]")
    return float(value)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
