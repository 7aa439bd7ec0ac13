"""An evaluation as tables in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

MOST_TASKS = 40
"""Tasks that are printed; all of them are in the JSON and on the page."""


def print_summary(result: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the headline, the tables by area and difficulty and by task, and what failed and why."""
    console = console or Console()
    console.print(_headline(result))
    for name, title in (("by_area", "area"), ("by_difficulty", "difficulty")):
        if len(result[name]) > 1 or "unknown" not in result[name]:
            console.print(_groups(title, result[name]))
    rows = result["per_task"]
    # What is not solved is what people look for.
    shown = sorted(rows, key=lambda row: (row["solved"] is not None, row["mean_reward"] or 0.0))[:MOST_TASKS]
    console.print(_tasks(shown))
    if len(rows) > len(shown):
        console.print(f"{len(rows) - len(shown)} tasks with higher rewards are left out here.")
    if result["failures"]:
        console.print("failures: " + ", ".join(f"{kind} {n}" for kind, n in result["failures"].items()))
    for error in result["infrastructure"][:10]:
        console.print(
            f"infrastructure: {error['task']} attempt {error['attempt']}: {error['problem']}", markup=False
        )
    if result["errors"]:
        console.print(f"{result['errors']} attempts failed by the infrastructure are in no number above.")


def _headline(result: Mapping[str, Any]) -> Table:
    table = Table("", "value", "95 % over tasks", box=None)
    error = result["solved_standard_error"]
    solved = percent(result["solved"]) + (f" ± {100 * error:.1f}" if error is not None else "")
    table.add_row("solved ± standard error over attempts", solved, interval(result["solved_ci95"]))
    for k, value in result["pass_at"].items():
        if k == "1" or int(k) == len(result["pass_at"]) or int(k) in (2, 4, 8, 16, 32):
            table.add_row(f"pass@{k}", percent(value), "")
    table.add_row("mean reward", number(result["mean_reward"]), interval(result["mean_reward_ci95"], 1.0))
    table.add_row("attempts, of them errors", f"{result['attempts']}, {result['errors']}", "")
    table.add_row(
        "rounds, tokens, seconds of an attempt",
        f"{result['rounds']:.1f}, {result['tokens']:.0f}, {result['attempt_seconds']:.1f}",
        "",
    )
    return table


def _groups(title: str, groups: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title, "tasks", "solved", "mean reward", "95 %")
    for name, scores in groups.items():
        table.add_row(
            name,
            str(scores["tasks"]),
            percent(scores["solved"]),
            number(scores["mean_reward"]),
            interval(scores["mean_reward_ci95"], 1.0),
        )
    return table


def _tasks(rows: Sequence[Mapping[str, Any]]) -> Table:
    name = Column("task", min_width=16, overflow="fold")
    table = Table(name, "area", "solved", "reward", "rounds", "tokens", "seconds", "failures")
    for row in rows:
        errors = {"infra_error": row["errors"]} if row["errors"] else {}
        failures = row["failures"] | errors
        table.add_row(
            row["task"],
            row["area"],
            percent(row["solved"]),
            number(row["mean_reward"]),
            number(row["rounds"], 1),
            number(row["tokens"], 0),
            number(row["seconds"], 1),
            ", ".join(f"{kind} {n}" for kind, n in failures.items()),
        )
    return table


def percent(value: float | None) -> str:
    """0.5 as "50.0 %"; None, which nothing graded gives, as a dash."""
    return "–" if value is None else f"{100 * value:.1f} %"


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval(bounds: Sequence[float] | None, scale: float = 100.0) -> str:
    """An interval as "low to high"."""
    digits = 1 if scale == 100.0 else 3
    return "" if bounds is None else f"{scale * bounds[0]:.{digits}f} to {scale * bounds[1]:.{digits}f}"
