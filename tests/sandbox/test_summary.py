import io
from itertools import combinations
from statistics import mean, stdev

import pytest
from rich.console import Console

from sandbox.attempt import Attempt
from sandbox.summary import pass_at_k, summarize
from sandbox.summary_table import print_summary
from sandbox.task import Task


@pytest.fixture
def tasks(write_task):
    return [Task.load(write_task(name)) for name in ("one", "two")]


def attempt(task, k, reward, ending="finish", **more):
    return Attempt(task=task, attempt=k, reward=reward, ending=ending, **more)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 1, 4), (4, 0, 2), (4, 4, 2), (5, 3, 5)])
def test_pass_at_k_is_the_share_of_samples_with_a_success(n, c, k):
    samples = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(mean(any(sample) for sample in samples))


@pytest.mark.parametrize(("n", "c", "k"), [(2, 1, 3), (2, 3, 1), (2, 1, 0)])
def test_pass_at_k_of_too_few_attempts_is_refused(n, c, k):
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at_k(n, c, k)


def test_scores_over_attempts_and_tasks(tasks):
    result = summarize(
        tasks,
        [
            attempt("one", 0, 1.0, rounds=2, tokens=10, seconds=1.0),
            attempt("one", 1, 1.0, rounds=4, tokens=30, seconds=3.0, retries=1),
            attempt("two", 0, 0.25, "timeout", rounds=2),
            attempt("two", 1, 1.0, rounds=8),
        ],
    )
    assert result["solved"] == 0.75 and result["mean_reward"] == pytest.approx((1 + 0.625) / 2)
    assert result["pass_at"] == {"1": 0.75, "2": 1.0}
    assert result["solved_by_attempt"] == [0.5, 1.0]
    assert result["solved_standard_error"] == pytest.approx(stdev([0.5, 1.0]) / 2**0.5)
    assert result["rounds"] == 4 and result["retried"] == 1 and result["failures"] == {"timeout": 1}
    one, two = result["per_task"]
    assert (one["solved"], one["rounds"], one["tokens"], one["seconds"]) == (1.0, 3, 20, 2.0)
    assert (two["attempts"], two["mean_reward"], two["failures"]) == (2, 0.625, {"timeout": 1})
    assert result["by_family"]["write"]["tasks"] == 2 and result["by_difficulty"]["1"]["solved"] == 0.75


def test_infrastructure_failures_are_errors_and_no_rewards(tasks):
    attempts = [
        attempt("one", 0, 0.5, rounds=3),
        attempt("one", 1, None, "infra_error", problem="engine: gone"),
        attempt("two", 0, None, "infra_error"),
    ]
    result = summarize(tasks, attempts)
    assert result["tasks"] == {"one": [0.5], "two": []} and result["errors"] == 2 and result["attempts"] == 3
    assert result["mean_reward"] == 0.5 and result["per_task"][1]["solved"] is None
    assert result["infrastructure"][0] == {"task": "one", "attempt": 1, "problem": "engine: gone"}
    assert result["failures"] == {"infra_error": 2, "tests_failed": 1}
    assert summarize(tasks, attempts[1:])["mean_reward"] is None


@pytest.mark.parametrize(
    ("made", "failure"),
    [
        ({"reward": 1.0}, None),
        ({"reward": 0.5}, "tests_failed"),
        ({"reward": 0.0, "ending": "max_turns"}, "max_turns"),
        ({"reward": 0.0, "verifier": "timeout"}, "verifier_timeout"),
        ({"reward": None, "ending": "infra_error"}, "infra_error"),
        ({"reward": 1.0, "ending": "timeout"}, None),
    ],
)
def test_kinds_of_failure(made, failure):
    made = Attempt(**{"task": "x", "attempt": 0, "ending": "finish", **made})
    assert made.failure == failure and Attempt.from_record(made.record()) == made


def test_the_printed_table_shows_scores_and_what_failed(tasks):
    attempts = [attempt("one", 0, 1.0), attempt("one", 1, 0.5), attempt("two", 0, None, problem="no [disk]")]
    text = io.StringIO()
    print_summary(summarize(tasks, attempts), Console(file=text, width=140))
    shown = text.getvalue()
    for part in ("50.0 % ±", "pass@2", "100.0 %", "infra_error 1", "no [disk]", "1 attempts failed"):
        assert part in shown
    print_summary(summarize(tasks, attempts[2:]), Console(file=text, width=140))  # nothing graded
