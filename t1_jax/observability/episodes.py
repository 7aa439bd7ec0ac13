"""Trajectory pages of the report: which episodes to show, and each turn by turn."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from sandbox.trajectory import Trajectory, Turn
from t1_jax.observability.progress import duration
from t1_jax.observability.svg import strip

COLORS = {"base": "var(--base)", "sft": "var(--sft)", "rl": "var(--rl)", "training": "var(--violet)"}
STAGES = {"base": "base", "sft": "SFT", "rl": "RL", "training": "RL training"}
_ENDINGS = {
    "finish": "the agent called finish",
    "max_turns": "the turn limit",
    "context": "the context was full",
    "max_tokens": "a turn was cut by its length",
    "timeout": "the time limit",
    "format_errors": "malformed calls",
    "infra_error": "an infrastructure failure",
}
_CALLS = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)|<\|im_end\|>|<\|endoftext\|>", re.DOTALL)
_MAX_OUTPUT = 6000  # characters of one observation on the page


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An episode to show: why it was chosen, which stage's policy played it."""

    group: str
    stage: str
    trajectory: Trajectory
    remark: str = ""


def select(
    episodes: dict[str, list[Trajectory]], training: Sequence[Trajectory], held_out: set[str]
) -> list[Entry]:
    """About 24 episodes: improved by RL (beside SFT on the same task), held out, best, worst, training.

    No episode appears twice. Best and worst take at most one episode of a task and spread over families.

    Args:
      episodes: evaluated trajectories by stage ("base", "sft", "rl").
      training: trajectories that RL trained on.
      held_out: families that were never trained on.
    """
    graded = {stage: [t for t in items if t.reward is not None] for stage, items in episodes.items()}
    last = next((stage for stage in ("rl", "sft", "base") if graded.get(stage)), None)
    chosen: list[Entry] = []
    used: set[tuple[str, str]] = set()  # rollout ids repeat from one evaluation to the next

    def add(group: str, stage: str, trajectory: Trajectory, remark: str = "") -> None:
        used.add((stage, trajectory.rollout_id))
        chosen.append(Entry(group=group, stage=stage, trajectory=trajectory, remark=remark))

    if graded.get("rl") and graded.get("sft"):
        means = {stage: _mean_rewards(graded[stage]) for stage in ("sft", "rl")}
        common = means["sft"].keys() & means["rl"].keys()
        for loss, task in sorted((means["sft"][task] - means["rl"][task], task) for task in common)[:4]:
            if loss < 0:
                remark = (
                    f"mean reward here {means['sft'][task]:.2f} after SFT, {means['rl'][task]:.2f} after RL"
                )
                before = min((t for t in graded["sft"] if t.task == task), key=_reward)
                after = max((t for t in graded["rl"] if t.task == task), key=_reward)
                add("Improved by RL", "sft", before, remark)
                add("Improved by RL", "rl", after, remark)
    if last:
        pool = graded[last]
        for t in _spread([t for t in pool if _family(t) in held_out], last, used, 5):
            add("Held-out families", last, t)
        by_reward = sorted(pool, key=lambda t: (-_reward(t), -len(t.turns), t.rollout_id))
        for t in _spread([t for t in by_reward if _reward(t) > 0], last, used, 5):
            add("Best", last, t)
        for t in _spread([t for t in by_reward[::-1] if _reward(t) < 1], last, used, 5):
            add("Worst", last, t)

    def mixing(t: Trajectory) -> tuple[int, int, str]:
        return -len({version for _, _, version in t.version_spans}), -len(t.turns), t.rollout_id

    mixed = sorted(training, key=mixing)
    for t in _spread(mixed, "training", used, 3):
        add("From RL training", "training", t)
    return chosen


def browser(entries: Sequence[Entry], tokenizer: Tokenizer | None) -> str:
    """The list of episodes and one article for each, as HTML."""
    buttons, articles, group = [], [], ""
    for i, entry in enumerate(entries):
        if entry.group != group:
            group = entry.group
            buttons.append(f"<h3>{escape(group)}</h3>")
        t = entry.trajectory
        sub = " · ".join(filter(None, [STAGES[entry.stage], _family(t), _count(len(t.turns), "turn")]))
        buttons.append(
            f'<button role="option" data-page="episode-{i}"><span class="name">'
            f'<span class="dot" style="background:{COLORS[entry.stage]}"></span>{escape(t.task)}</span>'
            f'<span class="score">{_score(t)}</span><span class="sub">{escape(sub)}</span></button>'
        )
        articles.append(article(entry, f"episode-{i}", tokenizer))
    return (
        f'<div class="browser"><div class="list" role="listbox" aria-label="Episodes">'
        f"{''.join(buttons)}</div><div>{''.join(articles)}</div></div>"
    )


def article(entry: Entry, anchor: str, tokenizer: Tokenizer | None) -> str:
    """One episode: facts, token strip, tests, instruction, turns and how it ended. All text is escaped."""
    t = entry.trajectory
    seconds = t.metadata.get("seconds")
    total = sum(seconds.values()) if isinstance(seconds, dict) else seconds
    facts = [
        STAGES[entry.stage],
        _family(t),
        f"difficulty {t.metadata['difficulty']}" if "difficulty" in t.metadata else "",
        _count(len(t.turns), "turn"),
        _count(len(t.tokens), "token"),
        duration(total) if total else "",
        entry.remark,
    ]
    tests = "".join(
        f'<li class="{"pass" if passed else "fail"}">{"✓" if passed else "✗"} {escape(name)}</li>'
        for name, passed in t.tests.items()
    )
    instruction = _instruction(t, tokenizer)
    passed = f"{sum(t.tests.values())} of {len(t.tests)} tests passed" if t.tests else "no test results"
    fact_line = escape(" · ".join(filter(None, facts)))
    turns = "".join(_turn(i, turn, t, tokenizer) for i, turn in enumerate(t.turns, 1))
    return (
        f'<article id="{anchor}"><div class="title"><h3>{escape(t.task)}</h3>'
        f"<b>{_score(t)}<small>reward</small></b></div>"
        f'<p class="facts">{fact_line}</p>{_token_strip(t, COLORS[entry.stage])}'
        + (f'<div class="instruction">{escape(instruction)}</div>' if instruction else "")
        + f'<ol class="turns">{turns}</ol>'
        f'<div class="end">Ended by {escape(_ENDINGS[t.ending])}. {escape(passed)}, reward {_score(t)}.'
        f'<ul class="tests">{tests}</ul></div></article>'
    )


def _turn(index: int, turn: Turn, t: Trajectory, tokenizer: Tokenizer | None) -> str:
    said = _CALLS.sub("", turn.text).strip()
    parts = [f'<p class="think">{escape(said)}</p>'] if said else []
    calls = [turn.__dict__, *turn.more]
    screens = "".join(_call(call) for call in calls if call.get("tool"))
    if turn.error:
        screens += (
            f'<pre class="cmd">{escape(turn.text)}</pre><pre class="out">{escape(turn.observation)}</pre>'
        )
    if screens:
        parts.append(f'<div class="screen">{screens}</div>')
    parts.append(_turn_note(turn, t, tokenizer))
    return f"<li><span>{index}</span><div>{''.join(parts)}</div></li>"


def _call(call: dict[str, Any]) -> str:
    """A tool call and its result, as one would have seen them on the terminal."""
    tool, arguments = call["tool"], call.get("arguments") or {}
    if tool == "terminal":
        extra = f"   # timeout {arguments['timeout']:g} s" if "timeout" in arguments else ""
        line = f"<i>$</i> {escape(str(arguments.get('command', '')))}{escape(extra)}"
    elif tool == "terminal_input":
        line = "<i>keys</i> " + " ".join(f"<kbd>{escape(str(k))}</kbd>" for k in arguments.get("keys", []))
    else:
        line = f"<i>{'■' if tool == 'finish' else '…'}</i> {escape(tool)}"
    output = str(call.get("observation") or "")
    if len(output) > _MAX_OUTPUT:
        half = _MAX_OUTPUT // 2
        output = f"{output[:half]}\n[{len(output) - _MAX_OUTPUT} characters not shown]\n{output[-half:]}"
    shown = f'<pre class="out">{escape(output)}</pre>' if output else ""
    return f'<pre class="cmd">{line}</pre>{shown}'


def _turn_note(turn: Turn, t: Trajectory, tokenizer: Tokenizer | None) -> str:
    """Small print of a turn: tokens, how sure the policy was, its version, time, exit code; the tokens."""
    start, end = turn.sampled
    versions = sorted({int(v) for v in t.versions[start:end] if v >= 0})
    parts = [_count(end - start, "token")]
    if versions:
        parts.append(f"policy {', '.join(f'v{v}' for v in versions)}")
        parts.append(f"mean token probability {math.exp(float(t.rollout_logprobs[start:end].mean())):.2f}")
    if turn.seconds >= 0.001:
        parts.append(duration(turn.seconds))
    html = escape(" · ".join(parts))
    if turn.error:
        html = f'<span class="fail">malformed: {escape(turn.error)}</span> {html}'
    elif turn.exit_code:
        html = f'<span class="fail">exit {turn.exit_code}</span> {html}'
    if tokenizer is not None and versions:
        probabilities = np.exp(np.minimum(t.rollout_logprobs[start:end], 0)).tolist()
        spans = "".join(
            f'<span style="--p:{p:.2f}" title="id {token}, probability {p:.3f}">'
            f"{escape(tokenizer.decode([token], skip_special_tokens=False))}</span>"
            for token, p in zip(t.tokens[start:end].tolist(), probabilities, strict=True)
        )
        html += f' · <details><summary>tokens</summary><div class="tokens">{spans}</div></details>'
    return f'<div class="note">{html}</div>'


def _token_strip(t: Trajectory, color: str) -> str:
    """Where the episode's tokens came from: instruction, policy (one shade a version) or terminal."""
    spans = t.version_spans
    names = sorted({version for _, _, version in spans})
    mix = {version: 100 - 80 * i // len(names) for i, version in enumerate(names)}
    shades = {version: f"color-mix(in srgb,{color} {part}%,var(--teal))" for version, part in mix.items()}
    drawn = [(a, b, shades[v], f"tokens {a} to {b}, sampled by policy version {v}") for a, b, v in spans]
    if not drawn:
        drawn = [(*turn.sampled, "var(--base)", "assistant turn") for turn in t.turns]
    counted = sum(b - a for a, b, *_ in drawn)
    who = f"policy {', '.join(f'v{v}' for v in names)}" if names else "a script"
    return (
        strip(len(t.tokens), drawn, label="tokens of the episode", width=900)
        + f'<p class="legend">{counted} of {len(t.tokens)} tokens sampled by {who} (coloured), '
        "the others are the prompt and what the terminal answered</p>"
    )


def _instruction(t: Trajectory, tokenizer: Tokenizer | None) -> str:
    """The task's text: the prompt's last user turn."""
    if "instruction" in t.metadata:
        return str(t.metadata["instruction"])
    if tokenizer is None or not t.turns:
        return ""
    prompt = tokenizer.decode(t.tokens[: t.turns[0].sampled[0]].tolist(), skip_special_tokens=False)
    return prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0].strip()


def _spread(
    ordered: Sequence[Trajectory], stage: str, used: set[tuple[str, str]], count: int
) -> list[Trajectory]:
    """The first `count` unused episodes of different tasks, taking each family once before any twice."""
    candidates: dict[str, Trajectory] = {}
    for t in ordered:
        if (stage, t.rollout_id) not in used:
            candidates.setdefault(t.task, t)
    rank: dict[str, int] = defaultdict(int)
    ranked = []
    for position, t in enumerate(candidates.values()):
        ranked.append((rank[_family(t)], position, t))
        rank[_family(t)] += 1
    return [t for _, _, t in sorted(ranked, key=lambda item: item[:2])[:count]]


def _mean_rewards(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    rewards: dict[str, list[float]] = defaultdict(list)
    for t in trajectories:
        rewards[t.task].append(_reward(t))
    return {task: float(np.mean(values)) for task, values in rewards.items()}


def _reward(t: Trajectory) -> float:
    return -1.0 if t.reward is None else t.reward


def _score(t: Trajectory) -> str:
    return "–" if t.reward is None else f"{t.reward:.2f}"


def _family(t: Trajectory) -> str:
    return str(t.metadata.get("family", ""))


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
