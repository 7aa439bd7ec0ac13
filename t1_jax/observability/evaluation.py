"""The pages of `eval` and `eval compare`: one HTML file each, with its plots inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from sandbox.files import write_whole
from t1_jax.observability.page import figure, page, section
from t1_jax.observability.svg import Bar, Series, bars, line_chart, number, percent, scatter

_COLOR, _OTHER = "var(--rl)", "var(--teal)"
Row = Mapping[str, Any]


def write_evaluation(result: Row, path: Path) -> None:
    """Write the page of an evaluation's result (`sandbox.summary.summarize`)."""
    title = f"Evaluation: {result['agent']} on {len(result['tasks'])} tasks"
    sections = [
        ("scores", "Scores", section("scores", "Scores", _headline(result), _score_figures(result))),
        ("failures", "Failures", section("failures", "Failures", _failure_text(result), _failures(result))),
        (
            "tasks",
            "Tasks",
            section("tasks", "Tasks", "Means over each task's graded attempts.", _tasks(result)),
        ),
    ]
    footer = f"backend {result['backend']}, seed {result['seed']}, temperature {result['temperature']}"
    write_whole(path, page(title=title, header=f"<h1>{escape(title)}</h1>", sections=sections, footer=footer))


def write_comparison(result: Row, first: str, second: str, path: Path) -> None:
    """Write the page of a comparison (`sandbox.statistics.compare`) of two evaluations with these names."""
    title = f"{second} against {first}"
    rows = result["per_task"]
    changes = sorted(row["second"] - row["first"] for row in rows)
    body = '<div class="two">' + "".join([
        figure(
            "Mean reward of each task",
            scatter(
                [(row["first"], row["second"], row["task"]) for row in rows],
                label=f"mean reward under {second} against {first}", x_name=first, y_name=second,
            ),
            "A point a task; above the diagonal the second is better.",
        ),
        figure(
            "Difference, task by task",
            line_chart(
                [Series(name="", x=list(range(1, len(rows) + 1)), y=changes, color=_COLOR)],
                label="sorted differences of the tasks",
            ),
            "Second minus first, sorted.",
        ),
    ]) + "</div>"  # fmt: skip
    text = (
        f"Mean reward {number(result['mean_reward'][0])} against {number(result['mean_reward'][1])}: "
        f"difference {_signed(result['difference'])}; solved {percent(result['solved'][0])} against "
        f"{percent(result['solved'][1])}: difference {_signed(result['solved_difference'])}. "
        f"{result['better']} tasks are better, {result['worse']} worse, {result['equal']} equal. Intervals: "
        "95 %, bootstrap over tasks, pairs kept together."
    )
    ordered = sorted(rows, key=lambda row: row["second"] - row["first"])
    cells = [
        (row["task"], number(row["first"]), number(row["second"]), f"{row['second'] - row['first']:+.3f}")
        for row in ordered
    ]
    table = _table(("task", first, second, "difference"), cells)
    sections = [
        ("difference", "Difference", section("difference", "Difference", text, body)),
        ("tasks", "Tasks", section("tasks", "Tasks", "From the largest loss to the largest gain.", table)),
    ]
    footer = f"{result['tasks']} tasks in common"
    write_whole(path, page(title=title, header=f"<h1>{escape(title)}</h1>", sections=sections, footer=footer))


def _headline(result: Row) -> str:
    if result["solved"] is None:
        return "No attempt could be graded."
    error = result["solved_standard_error"]
    spread = "" if error is None else f" ± {percent(error)} (standard error over attempts)"
    tries = ", ".join(f"pass@{k} {percent(value)}" for k, value in result["pass_at"].items())
    return (
        f"Solved {percent(result['solved'])}{spread}, 95 % interval over tasks "
        f"{percent(result['solved_ci95'][0])} to {percent(result['solved_ci95'][1])}; {tries}. Mean reward "
        f"{number(result['mean_reward'])}. An attempt took {number(result['rounds'])} rounds, "
        f"{number(result['tokens'])} tokens and {number(result['attempt_seconds'])} s on average."
    )


def _score_figures(result: Row) -> str:
    drawings = []
    for name, title in (
        ("by_area", "By area"),
        ("by_difficulty", "By difficulty"),
        ("by_family", "By family"),
    ):
        rows = [
            Bar(
                label=f"{group} ({scores['tasks']})", value=scores["mean_reward"], color=_COLOR,
                low=scores["mean_reward_ci95"][0], high=scores["mean_reward_ci95"][1],
            )
            for group, scores in result[name].items() if scores["mean_reward"] is not None
        ]  # fmt: skip
        if rows:
            drawing = bars(rows, label=f"mean reward {title.lower()}", width=620, names=230, top=1.0)
            drawings.append(figure(title, drawing, "Mean reward, 95 % interval over tasks; number of tasks."))
    return "".join(drawings)


def _failure_text(result: Row) -> str:
    return (
        "Why graded attempts did not solve their task, and what the infrastructure failed: "
        f"{result['errors']} of {result['attempts']} attempts, which are in no score; {result['retried']} "
        "more were played again after such a failure and then graded."
    )


def _failures(result: Row) -> str:
    rows = [Bar(label=kind, value=float(n), color=_OTHER) for kind, n in result["failures"].items()]
    drawing = bars(rows, label="attempts by kind of failure", width=620, names=230) if rows else ""
    errors = [(e["task"], str(e["attempt"]), e["problem"]) for e in result["infrastructure"]]
    table = _table(("task", "attempt", "infrastructure failure"), errors) if errors else ""
    return (figure("Kinds of failure", drawing, "Attempts.") if drawing else "") + table


def _tasks(result: Row) -> str:
    def shown(value: float | None) -> str:
        return "–" if value is None else number(value)

    cells = [
        (
            row["task"], row["area"], str(row["difficulty"] or ""), str(row["attempts"]),
            *(shown(row[name]) for name in ("solved", "mean_reward", "rounds", "tokens", "seconds")),
            ", ".join(f"{kind} {n}" for kind, n in row["failures"].items()),
        )
        for row in result["per_task"]
    ]  # fmt: skip
    names = (
        "task", "area", "difficulty", "graded", "solved", "reward", "rounds", "tokens", "seconds", "failures"
    )  # fmt: skip
    return _table(names, cells)


def _signed(entry: Row) -> str:
    low, high = entry["ci95"]
    return f"{entry['mean']:+.3f} ({low:+.3f} to {high:+.3f})"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
