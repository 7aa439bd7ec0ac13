"""The charts of the report, section by section. A part whose numbers are missing is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox.trajectory import Trajectory
from t1_jax.observability.metrics import NAMES
from t1_jax.observability.page import figure, key
from t1_jax.observability.progress import duration
from t1_jax.observability.svg import Bar, Series, bars, histograms, line_chart, number, percent

STAGES = {"base": ("base", "var(--base)"), "sft": ("SFT", "var(--sft)"), "rl": ("RL", "var(--rl)")}
MISMATCH_SETTINGS = {
    "a": ("text again", "text encoded again, experts chosen live", "var(--base)"),
    "b": ("tokens", "recorded tokens, experts chosen live", "var(--violet)"),
    "c": ("+ experts", "recorded tokens and recorded experts", "var(--teal)"),
    "d": ("text + experts", "text encoded again, the recorded experts that fit it", "var(--sft)"),
}
MISMATCH_METRICS = {
    "mean_abs_logprob_diff": ("Log-prob difference, mean", "|learner − engine| over sampled tokens", number),
    "max_abs_logprob_diff": ("Log-prob difference, largest", "the worst single token, nats", number),
    "k3": ("k3 divergence", "mean of r − 1 − log r, r the ratio of probabilities", number),
    "k3_reverse": ("k3, the other way", "mean of r log r − r + 1", number),
    "js": ("Jensen-Shannon divergence", "estimated from sampled tokens, nats", number),
    "extreme_fraction": ("Extreme tokens", "ratio of probabilities outside ½ to 2", percent),
    "expert_mismatch_fraction": ("Other experts", "(token, layer) pairs routed to another set", percent),
}
_STAGE_NAMES = {"sft": "SFT", "rl": "RL"}
Rows = Sequence[Mapping[str, float]]


def reward_of(entry: Any) -> tuple[float, float | None, float | None]:
    """(mean reward, interval low, interval high) of a score entry: an object, or just a number."""
    if not isinstance(entry, Mapping):
        return float(entry), None, None
    low, high = entry.get("ci95") or entry.get("mean_reward_ci95") or (None, None)
    return float(entry["mean_reward"]), low, high


def solved_of(entry: Mapping[str, Any]) -> tuple[float, float | None, float | None]:
    """(share solved, interval low, interval high) of a score entry."""
    low, high = entry.get("solved_ci95") or (None, None)
    return float(entry["solved"]), low, high


def graded(entry: Any) -> bool:
    """Whether a score entry holds a mean: an evaluation in which nothing could be graded has None there."""
    return entry is not None and (not isinstance(entry, Mapping) or entry.get("mean_reward") is not None)


def _bar(label: str, color: str, values: tuple[float, float | None, float | None]) -> Bar:
    return Bar(label=label, color=color, value=values[0], low=values[1], high=values[2])


def scores(scores: Mapping[str, Any], held_out: set[str]) -> str:
    """Mean reward and solved by stage, then mean reward by family, held-out families last and marked."""
    stages = [(stage, *STAGES[stage]) for stage in STAGES if graded(scores.get(stage))]
    reward = [_bar(name, color, reward_of(scores[stage])) for stage, name, color in stages]
    solved = [
        _bar(n, color, solved_of(scores[stage])) for stage, n, color in stages if "solved" in scores[stage]
    ]
    large: dict[str, Any] = {"width": 500.0, "thick": 20.0, "top": 1.0, "names": 44.0}
    html = '<div class="two">' + figure(
        "Mean reward",
        bars(reward, label="mean reward by stage", form=lambda v: f"{v:.2f}", **large),
        "half for the share of requirements met, half for meeting all of them",
    )
    if solved:
        html += figure(
            "Solved",
            bars(solved, label="solved by stage", form=percent, **large),
            "attempts that passed every test",
        )
    html += "</div>"
    families = {name for stage, _, _ in stages for name in scores[stage].get("by_family") or {}}
    panels = []
    for family in sorted(families, key=lambda name: (name in held_out, name)):
        rows = [
            _bar(name, color, reward_of(scores[stage]["by_family"][family]))
            for stage, name, color in stages
            if graded((scores[stage].get("by_family") or {}).get(family))
        ]
        small: dict[str, Any] = {"width": 310.0, "thick": 11.0, "top": 1.0, "names": 40.0}
        drawing = bars(rows, label=f"mean reward in {family}", form=lambda v: f"{v:.2f}", **small)
        panels.append(figure(family.replace("_", " "), drawing, tag="held out" if family in held_out else ""))
    if panels:
        html += (
            '<h3 class="over">Mean reward by task family</h3><div class="grid">' + "".join(panels) + "</div>"
        )
    return html


# What the RL section shows: names of a metrics file, title, note, format, fixed bottom of the axis.
_RL_PANELS: tuple[tuple[tuple[str, ...], str, str, Callable[[float], str], float | None], ...] = (
    (("rollout/solved",), "Solved", "episodes of the step that passed every test", percent, 0),
    (("train/entropy",), "Entropy", "of the policy, nats a token; near 0 it stops exploring", number, 0),
    (("mismatch/k3",), "Mismatch k3", "between the engine that sampled and the learner", number, 0),
    (("train/grad_norm",), "Gradient norm", "before clipping", number, 0),
    (
        ("train/staleness", "train/staleness_max"),
        "Staleness",
        "versions between sampling and training",
        number,
        0,
    ),
    (
        ("rollout/zero_variance_groups",),
        "Groups without a signal",
        "all attempts earned the same",
        percent,
        0,
    ),
    (("rollout/format_errors",), "Format errors", "turns without a valid tool call", percent, 0),
    (("rollout/turns",), "Turns", "per episode", number, 0),
    (("train/masked_fraction",), "Masked tokens", "left out of the loss by the trust region", percent, 0),
)
_COLORS = ("var(--rl)", "var(--violet)", "var(--teal)")


def _column(rows: Rows, name: str) -> tuple[list[float], list[float]]:
    return [row["step"] for row in rows if name in row], [row[name] for row in rows if name in row]


def curve(rows: Rows, names: Sequence[str], *, color: str, **options: Any) -> str:
    """A line chart of metrics over steps, "" when the file has none of them."""
    series = []
    for i, name in enumerate(name for name in names if any(name in row for row in rows)):
        x, y = _column(rows, name)
        shade = color if i == 0 else _COLORS[i]
        series.append(Series(name="max" if name.endswith("_max") else "mean", x=x, y=y, color=shade))
    return line_chart(series, **options) if series else ""


def reward_curve(rows: Rows) -> str:
    """Mean reward of the episodes of each step, with a 95 % band from their spread; "" without rewards."""
    rows = [row for row in rows if "rollout/reward" in row]
    if not rows:
        return ""
    low = high = None
    if all("rollout/reward_std" in row and "rollout/episodes" in row for row in rows):
        half = [1.96 * row["rollout/reward_std"] / math.sqrt(max(row["rollout/episodes"], 1)) for row in rows]
        low = [max(row["rollout/reward"] - h, 0.0) for row, h in zip(rows, half, strict=True)]
        high = [min(row["rollout/reward"] + h, 1.0) for row, h in zip(rows, half, strict=True)]
    x, y = _column(rows, "rollout/reward")
    series = Series(name="reward", x=x, y=y, low=low, high=high, color="var(--rl)")
    options: dict[str, Any] = {"width": 1050, "height": 260, "form": lambda v: f"{v:.2f}"}
    return line_chart([series], label="training reward by step", **options)


def rl(rows: Rows) -> str:
    """RL learning curves: the reward across the page, the rest as small multiples, others folded away."""
    html, panels = "", ""
    shown = {"rollout/reward", "rollout/reward_std", "rollout/episodes"}
    if drawing := reward_curve(rows):
        html = figure(
            "Reward", drawing, "mean of a step's episodes and its 95 % interval; tasks differ by step"
        )
    for names, title, note, form, low in _RL_PANELS:
        drawing = curve(rows, names, color="var(--rl)", label=f"{title} by step", form=form, low=low)
        if drawing:
            panels += figure(title, drawing, note)
        shown |= set(names)
    html += f'<div class="grid under">{panels}</div>'
    return html + other_curves(rows, shown, "var(--rl)")


def sft(rows: Rows) -> str:
    """SFT loss across the page, the other metrics folded away."""
    drawing = curve(
        rows, ["train/loss"], color="var(--sft)", label="SFT loss by step", width=1050, height=230
    )
    note = "cross-entropy of the demonstrations' own tokens, nats a token"
    return (figure("Loss", drawing, note) if drawing else "") + other_curves(
        rows, {"train/loss"}, "var(--sft)"
    )


def other_curves(rows: Rows, shown: set[str], color: str) -> str:
    """Every metric of the file that has no panel yet, behind a fold."""
    names = sorted({name for row in rows for name in row if "/" in name} - shown)
    panels = [
        figure(name, curve(rows, [name], color=color, label=f"{name} by step"), NAMES.get(name, ""))
        for name in names
    ]
    if not panels:
        return ""
    summary = f"<summary>All other metrics ({len(panels)})</summary>"
    return f'<details class="more">{summary}<div class="grid">{"".join(panels)}</div></details>'


def mismatch(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Bars of each mismatch metric by setting, then the differences along the episodes and by layer."""
    present = [name for name in MISMATCH_SETTINGS if name in settings]
    html = key(
        [(MISMATCH_SETTINGS[name][2], f"{name.upper()}: {MISMATCH_SETTINGS[name][1]}") for name in present]
    )
    panels = ""
    for metric, (title, note, form) in MISMATCH_METRICS.items():
        rows = [
            _bar(
                MISMATCH_SETTINGS[name][0],
                MISMATCH_SETTINGS[name][2],
                (float(settings[name][metric]), None, None),
            )
            for name in present
            if settings[name].get(metric) is not None
        ]
        if rows:
            panels += figure(title, bars(rows, label=title, form=form, names=92), note)
    for field, title, x_name in (("by_turn", "By turn", "turn"), ("by_position", "By position", "token")):
        lines = []
        for name in present:
            parts = settings[name].get(field) or ()
            x = [(part["from"] + part["to"] - 1) / 2 for part in parts]
            y = [part["mean_abs_logprob_diff"] for part in parts]
            lines.append(Series(name=name.upper(), x=x, y=y, color=MISMATCH_SETTINGS[name][2]))
        panels += _lines(f"Log-prob difference {title.lower()}", lines, x_name, "mean |learner − engine|")
    lines = [
        Series(name=name.upper(), x=range(len(layers)), y=layers, color=MISMATCH_SETTINGS[name][2])
        for name in present
        if (layers := settings[name].get("expert_mismatch_by_layer"))
    ]
    panels += _lines("Other experts by layer", lines, "MoE layer", "share of tokens routed to another set")
    return f'{html}<div class="grid">{panels}</div>'


def _lines(title: str, lines: Sequence[Series], x_name: str, note: str) -> str:
    lines = [line for line in lines if len(line.x) > 1]
    return figure(title, line_chart(lines, label=title, x_name=x_name, low=0), note) if lines else ""


def distributions(episodes: Mapping[str, Sequence[Trajectory]]) -> str:
    """How rewards and rounds (assistant turns) spread over the evaluated episodes of each stage."""
    stages = [(stage, *STAGES[stage]) for stage in STAGES if episodes.get(stage)]
    rewards = [
        (name, color, [t.reward for t in episodes[stage] if t.reward is not None])
        for stage, name, color in stages
    ]
    rounds = [(name, color, [float(len(t.turns)) for t in episodes[stage]]) for stage, name, color in stages]
    most = max(1, int(max(max(values) for _, _, values in rounds)))
    width = max(1, math.ceil(most / 20))
    edges = [0.5 + width * i for i in range(math.ceil(most / width) + 1)]
    return (
        '<div class="two">'
        + figure(
            "Reward",
            histograms(rewards, [i / 10 for i in range(11)], label="rewards by stage", x_name="reward"),
            "share of episodes in each tenth; the right-most bar holds the perfect ones",
        )
        + figure(
            "Rounds",
            histograms(rounds, edges, label="rounds by stage", x_name="assistant turns in an episode"),
            "how long the agent worked before it ended, or was ended",
        )
        + "</div>"
    )


def timings(seconds: Mapping[str, float], rl_rows: Rows, sft_rows: Rows) -> str:
    """Wall time by stage, and throughput over steps."""
    stages = {name: value for name, value in seconds.items() if name != "total"}
    html = ""
    if stages:
        rows = [
            _bar(_STAGE_NAMES.get(name, name.replace("_", " ")), "var(--teal)", (value, None, None))
            for name, value in stages.items()
        ]
        longest = 10.0 + 6.4 * max(len(name) for name in stages)
        html += figure(
            "Time by stage",
            bars(rows, label="seconds by stage", form=duration, names=longest),
            f"{duration(seconds['total'])} in all" if "total" in seconds else "",
        )
    panels = ""
    for rows_of, stage, color in ((sft_rows, "SFT", "var(--sft)"), (rl_rows, "RL", "var(--rl)")):
        names = ["throughput/tokens_per_second"]
        drawing = curve(rows_of, names, color=color, label=f"{stage} tokens per second", low=0)
        if drawing:
            panels += figure(f"{stage} throughput", drawing, "tokens trained on a second, waiting included")
    return f'<div class="grid">{html}{panels}</div>'
