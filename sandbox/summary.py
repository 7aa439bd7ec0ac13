"""From attempts to the numbers of an evaluation: means over tasks, intervals, pass@k, tables."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from sandbox.attempt import Attempt
from sandbox.statistics import bootstrap_ci, standard_error
from sandbox.task import Task


def pass_at_k(attempts: int, solved: int, k: int) -> float:
    """Unbiased estimate, from `solved` of `attempts`, of the chance that one of k attempts solves a task.

    1 - C(n-c, k) / C(n, k): Chen et al., "Evaluating Large Language Models Trained on Code", equation 1.
    Raises ValueError unless 1 <= k <= attempts and 0 <= solved <= attempts.
    """
    if not 1 <= k <= attempts or not 0 <= solved <= attempts:
        raise ValueError(f"pass@{k} of {solved} solved in {attempts} attempts")
    return 1.0 - math.comb(attempts - solved, k) / math.comb(attempts, k)


def summarize(tasks: Sequence[Task], attempts: Sequence[Attempt], *, seed: int = 0) -> dict[str, Any]:
    """The result of an evaluation, from its attempts. Rates are 0 to 1; means are over tasks.

    Keys: tasks {name: [reward, ...]}; mean_reward, solved and their 95 % intervals over tasks; pass_at
    {"k": pass@k} for k up to the attempts (tasks with fewer graded attempts are left out); solved_by_attempt
    (the share solved by the n-th attempts) and solved_standard_error (of their mean, None for one attempt);
    attempts, errors (attempts that the infrastructure failed: they are in no mean), infrastructure (which,
    and why), retried (graded, after such a failure); failures {kind: number}, endings; rounds, tokens and
    attempt_seconds (means of attempts); format_error_rate (malformed turns per turn); by_family, by_area and
    by_difficulty; per_task; per_attempt.
    """
    graded: dict[str, list[Attempt]] = {task.name: [] for task in tasks}
    for attempt in attempts:
        if attempt.reward is not None:
            graded[attempt.task].append(attempt)
    every = [attempt for of_task in graded.values() for attempt in of_task]
    rounds = sum(attempt.rounds for attempt in attempts)
    failed = [attempt for attempt in attempts if attempt.reward is None]
    errors = Counter(attempt.task for attempt in failed)

    def table(group: Callable[[Task], str]) -> dict[str, Any]:
        names: dict[str, list[str]] = defaultdict(list)
        for task in tasks:
            names[group(task)].append(task.name)
        return {
            key: {"tasks": len(members), **_scores([graded[name] for name in members], seed)}
            for key, members in sorted(names.items())
        }

    return {
        "tasks": {name: [a.reward for a in of_task] for name, of_task in graded.items()},
        **_scores(list(graded.values()), seed),
        "pass_at": _pass_at(list(graded.values())),
        **_over_attempts(every),
        "attempts": len(attempts),
        "errors": len(failed),
        "infrastructure": [{"task": a.task, "attempt": a.attempt, "problem": a.problem} for a in failed],
        "retried": sum(a.retries > 0 for a in every),
        "failures": dict(Counter(a.failure for a in attempts if a.failure).most_common()),
        "endings": dict(Counter(attempt.ending for attempt in attempts)),
        "rounds": rounds / max(len(attempts), 1),
        "tokens": _mean([a.tokens for a in every]) if every else 0.0,
        "attempt_seconds": _mean([a.seconds for a in every]) if every else 0.0,
        "format_error_rate": sum(attempt.format_errors for attempt in attempts) / max(rounds, 1),
        "by_family": table(lambda task: str(task.metadata.get("family", "unknown"))),
        "by_area": table(area),
        "by_difficulty": table(lambda task: str(task.metadata.get("difficulty", "unknown"))),
        "per_task": [_task_row(task, graded[task.name], errors[task.name]) for task in tasks],
        "per_attempt": [attempt.record() for attempt in attempts],
    }


def area(task: Task) -> str:
    """The area of a task of ours, the category of a public one."""
    return str(task.metadata.get("area", task.metadata.get("category", "unknown")))


def _task_row(task: Task, graded: Sequence[Attempt], errors: int) -> dict[str, Any]:
    def mean(values: Sequence[float]) -> float | None:
        return _mean(values) if values else None

    return {
        "task": task.name,
        "area": area(task),
        "difficulty": task.metadata.get("difficulty"),
        "attempts": len(graded),
        "errors": errors,
        "solved": mean([float(a.solved) for a in graded]),
        "mean_reward": mean([a.reward or 0.0 for a in graded]),
        "rounds": mean([a.rounds for a in graded]),
        "tokens": mean([a.tokens for a in graded]),
        "seconds": mean([a.seconds for a in graded]),
        "failures": dict(Counter(a.failure for a in graded if a.failure)),
    }


def _pass_at(by_task: Sequence[Sequence[Attempt]]) -> dict[str, float]:
    most = max((len(of_task) for of_task in by_task), default=0)
    return {
        str(k): _mean(
            [
                pass_at_k(len(of_task), sum(a.solved for a in of_task), k)
                for of_task in by_task
                if len(of_task) >= k
            ]
        )
        for k in range(1, most + 1)
    }  # fmt: skip


def _over_attempts(graded: Sequence[Attempt]) -> dict[str, Any]:
    by_attempt: dict[int, list[float]] = defaultdict(list)
    for a in graded:
        by_attempt[a.attempt].append(float(a.solved))
    shares = [_mean(solved) for _, solved in sorted(by_attempt.items())]
    return {"solved_by_attempt": shares, "solved_standard_error": standard_error(shares)}


def _scores(by_task: Sequence[Sequence[Attempt]], seed: int) -> dict[str, Any]:
    """Means over tasks of the tasks' own means. Without a graded task they are None: no score is not a score
    of 0.
    """
    rewards = [_mean([a.reward or 0.0 for a in of_task]) for of_task in by_task if of_task]
    solved = [_mean([float(a.solved) for a in of_task]) for of_task in by_task if of_task]
    if not rewards:
        return {"mean_reward": None, "mean_reward_ci95": None, "solved": None, "solved_ci95": None}
    return {
        "mean_reward": _mean(rewards),
        "mean_reward_ci95": list(bootstrap_ci(rewards, seed=seed)),
        "solved": _mean(solved),
        "solved_ci95": list(bootstrap_ci(solved, seed=seed)),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
