"""The report of a run: one HTML file that tells what was learned, how, and what the agent does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from sandbox.errors import InputError
from sandbox.files import write_whole
from sandbox.trajectory import Trajectory, read_frames
from t1_jax.observability import charts, episodes
from t1_jax.observability.metrics import read_metrics
from t1_jax.observability.page import page, section
from t1_jax.observability.progress import duration
from t1_jax.observability.svg import number, percent

_TRAINING_FILES = 3  # of the last RL steps, whose episodes may be shown


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run folder holds; parts that do not exist (yet) are empty."""

    name: str
    summary: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)  # stage -> mean_reward, intervals, solved, by_family
    mismatch: dict[str, Any] = field(default_factory=dict)  # "a" | "b" | "c" -> metrics
    sft: list[dict[str, float]] = field(default_factory=list)
    rl: list[dict[str, float]] = field(default_factory=list)
    evaluated: dict[str, list[Trajectory]] = field(default_factory=dict)  # by stage
    training: list[Trajectory] = field(default_factory=list)
    held_out: set[str] = field(default_factory=set)  # families
    tokenizer: Tokenizer | None = None


def load_run(run_dir: str | Path) -> Run:
    """Read a run folder: summary.json, mismatch.json, {sft,rl}/metrics.jsonl, eval/{base,sft,rl}.json
    and .frames, rl/trajectories/*.frames, and the first tokenizer.json below it (to show tokens).

    Held-out families are those that summary.json lists under "held_out_families", or that a trajectory's
    metadata marks by "held_out".

    Raises:
      InputError: the folder does not exist, holds none of these, or one of them is malformed.
    """
    root = Path(run_dir)
    if not root.is_dir():
        raise InputError(f"report {root}: no such folder, expected a run folder")
    summary = _json(root / "summary.json")
    scores = dict(summary.get("scores") or {})
    for stage in charts.STAGES:
        if stage not in scores and (measured := _json(root / "eval" / f"{stage}.json")):
            scores[stage] = measured
    evaluated = {}
    for stage in charts.STAGES:
        path = root / "eval" / f"{stage}.frames"
        if path.exists():
            evaluated[stage] = list(read_frames(path.read_bytes()))
    recent = sorted((root / "rl" / "trajectories").glob("*.frames"))[-_TRAINING_FILES:]
    held_out = set(summary.get("held_out_families") or ())
    held_out |= {
        t.metadata.get("family", "") for ts in evaluated.values() for t in ts if t.metadata.get("held_out")
    }
    tokenizers = sorted(root.rglob("tokenizer.json"))
    scores = {
        name: entry for name, entry in scores.items() if name not in charts.STAGES or charts.graded(entry)
    }
    run = Run(
        name=root.resolve().name,
        summary=summary,
        scores=scores,
        mismatch=_json(root / "mismatch.json") or dict(summary.get("mismatch") or {}),
        sft=_metrics(root / "sft" / "metrics.jsonl"),
        rl=_metrics(root / "rl" / "metrics.jsonl"),
        evaluated=evaluated,
        training=[t for path in recent for t in read_frames(path.read_bytes())],
        held_out=held_out,
        tokenizer=Tokenizer.from_file(str(tokenizers[0])) if tokenizers else None,
    )
    if not (run.scores or run.mismatch or run.sft or run.rl or run.evaluated):
        raise InputError(f"report {root}: nothing to report, expected summary.json, eval/, sft/ or rl/ in it")
    return run


def write_report(run_dir: str | Path) -> Path:
    """Write `run_dir`/report.html and return its path.

    The file stands alone: style, script and drawings are inside, every text from the run is escaped. Parts
    whose inputs are missing are left out, so it can be written while a run goes on. Raises InputError as
    `load_run` does.
    """
    html = render(load_run(run_dir))
    path = Path(run_dir) / "report.html"
    write_whole(path, html)
    return path


def render(run: Run) -> str:
    """The report as HTML."""
    parts: list[tuple[str, str, str]] = []

    def add(anchor: str, name: str, title: str, text: str, body: str) -> None:
        parts.append((anchor, name, section(anchor, title, text, body)))

    if run.scores:
        add(
            "results",
            "Results",
            "What the agent can do",
            "Every stage's policy was evaluated on the same tasks. Bars are means, thin lines 95 % intervals "
            "by bootstrap over tasks. No task of a held-out family was seen in training.",
            charts.scores(run.scores, run.held_out),
        )
    if run.rl:
        add(
            "rl",
            "RL",
            "Reinforcement learning",
            "One point an optimizer step. Faint lines are the steps, strong lines their moving average, and "
            "the numbers at the right are where it ended.",
            charts.rl(run.rl),
        )
    if run.sft:
        add(
            "sft",
            "SFT",
            "Learning from demonstrations",
            "The model starts by imitating recorded solutions, some of which recover from a mistake.",
            charts.sft(run.sft),
        )
    if run.mismatch:
        add(
            "mismatch",
            "Mismatch",
            "Does the learner see what the agent did?",
            "The same episodes, scored by the learner in three ways and compared with what the engine "
            "recorded while acting. Smaller is better; what is left in the last setting is arithmetic.",
            charts.mismatch(run.mismatch),
        )
    if any(run.evaluated.values()):
        add(
            "episodes",
            "Distributions",
            "How episodes go",
            "All evaluated episodes of each stage.",
            charts.distributions(run.evaluated),
        )
    seconds = run.summary.get("seconds") or {}
    if seconds or run.rl or run.sft:
        add(
            "time",
            "Time",
            "Time and throughput",
            "Wall-clock time on the machine of this run.",
            charts.timings(seconds, run.rl, run.sft),
        )
    entries = episodes.select(run.evaluated, run.training, run.held_out)
    if entries:
        add(
            "trajectories",
            "Trajectories",
            "Watch it work",
            "Single episodes, turn by turn: the command that the policy sampled, then what the terminal "
            "answered. Arrow keys walk through the list.",
            episodes.browser(entries, run.tokenizer),
        )
    seed = f", seed {run.summary['seed']}" if "seed" in run.summary else ""
    return page(
        title=f"{run.name} · t1-jax",
        header=_header(run),
        sections=parts,
        footer=f"Run {run.name}{seed}. Written by t1-jax.",
    )


def _header(run: Run) -> str:
    figures = "".join(
        f'<div class="figure"><b>{escape(value)}</b><span>{escape(name)}</span>'
        f"<small>{escape(note)}</small></div>"
        for value, name, note in _headline(run)
    )
    lead = _lead(run)
    return (
        f'<p class="eyebrow">t1-jax · {escape(run.name)}</p><h1>A terminal agent, trained</h1>'
        + (f'<p class="lead">{lead}</p>' if lead else "")
        + (f'<div class="figures">{figures}</div>' if figures else "")
    )


def _lead(run: Run) -> str:
    """The result in one or two sentences, as HTML."""
    means = {stage: charts.reward_of(run.scores[stage])[0] for stage in charts.STAGES if stage in run.scores}
    if not means:
        return ""
    clauses = {
        "base": "An untrained model earns <b>{:.2f}</b> of the reward",
        "sft": "imitating demonstrations brings it to <b>{:.2f}</b>",
        "rl": "reinforcement learning in real terminals to <b>{:.2f}</b>",
    }
    text = ", ".join(clauses[stage].format(mean) for stage, mean in means.items()) + "."
    text = text[0].upper() + text[1:]
    text = text[0].upper() + text[1:] if not text.startswith("<") else text
    k3 = {
        name: values.get("k3") or 0.0 for name, values in run.mismatch.items() if isinstance(values, Mapping)
    }
    if k3.get("a", 0.0) > k3.get("c", 0.0) > 0.0:
        text += (
            " Replaying tokens and experts exactly makes the learner’s mismatch with the engine "
            f"<b>{number(k3['a'] / k3['c'])} times</b> smaller."
        )
    return text


def _headline(run: Run) -> list[tuple[str, str, str]]:
    """(value, name, note) of the large numbers."""
    result = []
    last = next((stage for stage in ("rl", "sft", "base") if stage in run.scores), None)
    if last:
        mean, low, high = charts.reward_of(run.scores[last])
        note = f"95 % interval {low:.2f} to {high:.2f}" if low is not None else ""
        result.append((f"{mean:.2f}", f"mean reward, {charts.STAGES[last][0]}", note))
        if "solved" in run.scores[last]:
            solved, low, high = charts.solved_of(run.scores[last])
            note = (
                f"95 % interval {percent(low)} to {percent(high)}"
                if low is not None and high is not None
                else ""
            )
            result.append((percent(solved), f"solved, {charts.STAGES[last][0]}", note))
    gain = (run.summary.get("scores") or {}).get("rl_minus_sft")
    if gain:
        low, high = gain["ci95"]
        result.append(
            (
                f"{gain['mean']:+.2f}".replace("-", "−"),
                "RL over SFT",
                f"paired over tasks, {low:+.2f} to {high:+.2f}",
            )
        )
    a, c = run.mismatch.get("a") or {}, run.mismatch.get("c") or {}
    if a.get("k3") and c.get("k3"):
        note = f"k3 {number(a['k3'])} from text, {number(c['k3'])} with replay"
        result.append((f"÷ {number(a['k3'] / c['k3'])}", "mismatch by replay", note))
    total = (run.summary.get("seconds") or {}).get("total")
    if total:
        result.append(
            (duration(total), "from nothing to here", "tasks, demonstrations, SFT, RL and evaluation")
        )
    return result


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, {} when the file does not exist. Raises InputError when it is something else."""
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON ({error}), expected one object") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds a {type(value).__name__}, expected one object")
    return value


def _metrics(path: Path) -> list[dict[str, float]]:
    return read_metrics(path) if path.exists() else []
