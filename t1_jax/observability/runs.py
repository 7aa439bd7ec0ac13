"""Two or more RL runs side by side, such as training with and without replay on the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from sandbox.errors import InputError
from sandbox.files import write_whole
from t1_jax.config import read_yaml
from t1_jax.observability.charts import Rows
from t1_jax.observability.metrics import read_metrics
from t1_jax.observability.page import figure, key, page, section
from t1_jax.observability.svg import Series, line_chart, number, percent

_COLORS = ("var(--teal)", "var(--base)", "var(--rl)", "var(--violet)", "var(--sft)")
_PANELS = (
    ("rollout/reward", "Reward", "mean of a step's episodes", number),
    ("mismatch/k3", "Mismatch k3", "between the engine that sampled and the learner", number),
    ("mismatch/extreme_fraction", "Extreme tokens", "ratio of probabilities outside ½ to 2", percent),
    ("mismatch/mean_abs_logprob_diff", "Log-prob difference", "mean |learner − engine|, nats", number),
    ("train/entropy", "Entropy", "of the policy, nats a token", number),
    ("train/grad_norm", "Gradient norm", "before clipping", number),
)


def read_rl_run(folder: Path) -> tuple[str, Rows]:
    """(name, metrics by step) of an RL run's folder, or of one that holds it as `rl/`.

    The name is the folder's, with "with replay" or "without replay" where its config.yaml tells.

    Raises:
      InputError: there is no metrics.jsonl, or it holds no step.
    """
    found = next((root for root in (folder, folder / "rl") if (root / "metrics.jsonl").is_file()), None)
    if found is None:
        raise InputError(f"report {folder}: no metrics.jsonl and no rl/metrics.jsonl, expected an RL run")
    rows = read_metrics(found / "metrics.jsonl")
    if not rows:
        raise InputError(f"report {found / 'metrics.jsonl'}: holds no step, expected an RL run's metrics")
    name = folder.resolve().name
    if (found / "config.yaml").is_file() and "replay" in (config := read_yaml(found / "config.yaml")):
        name += ", with replay" if config["replay"] else ", without replay"
    return name, rows


def compare_runs(folders: Sequence[Path], out: Path) -> None:
    """Write one HTML file with the runs' reward, mismatch and extreme tokens over steps, and their means.

    Raises InputError as `read_rl_run` does.
    """
    runs = [read_rl_run(folder) for folder in folders]
    colors = dict(enumerate(_COLORS))
    panels = ""
    for metric, title, note, form in _PANELS:
        lines = []
        for index, (_, rows) in enumerate(runs):
            points = [(row["step"], row[metric]) for row in rows if metric in row]
            x, y = [step for step, _ in points], [value for _, value in points]
            lines.append(Series(name=chr(ord("A") + index), x=x, y=y, color=colors[index % len(_COLORS)]))
        lines = [line for line in lines if line.x]
        if lines:
            drawing = line_chart(lines, label=f"{title} by step", form=form, width=500, low=0)
            panels += figure(title, drawing, note)
    names = [f"{chr(ord('A') + index)}: {name}" for index, (name, _) in enumerate(runs)]
    legend = key([(colors[index % len(_COLORS)], name) for index, name in enumerate(names)])
    body = f'{legend}<div class="two">{panels}</div>{_table(names, [rows for _, rows in runs])}'
    text = (
        "One point an optimizer step; strong lines are moving averages. The table holds means over all steps."
    )
    title = " · ".join(name for name, _ in runs)
    html = page(
        title=f"{title} · t1-jax",
        header='<p class="eyebrow">t1-jax</p><h1>Training runs side by side</h1>',
        sections=[("runs", "Runs", section("runs", "Over steps", text, body))],
        footer="Written by t1-jax.",
    )
    write_whole(out, html)


def _table(names: Sequence[str], runs: Sequence[Rows]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for metric, title, _, form in _PANELS:
        cells = ""
        for rows in runs:
            values = [row[metric] for row in rows if metric in row and row[metric] == row[metric]]
            cells += f"<td>{form(sum(values) / len(values)) if values else 'n/a'}</td>"
        body += f"<tr><th>{escape(title)}</th>{cells}</tr>"
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
