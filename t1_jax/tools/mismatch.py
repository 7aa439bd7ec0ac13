"""How far the learner is from the engine on the same episodes, in four settings.

    a   the text of the episodes encoded again, experts routed live: what a text pipeline trains on
    b   the recorded tokens, experts routed live
    c   the recorded tokens and the recorded experts
    d   the text encoded again, with the recorded experts of those recorded tokens that it contains: as much
        of the record as fits a text pipeline; the other tokens are routed live

The learner runs as in the train step: packed rows, the checkpoint's dtype, one forward without a cache.
Compared is r = learner probability / engine probability of every sampled token that counts for the loss:

    mean_abs_logprob_diff, max_abs_logprob_diff    |log r|, nats
    k1, k3, k3_reverse, js      divergences from sampled tokens alone, see tools/divergence.py
    extreme_fraction            share of tokens with r outside [1/2, 2] (arXiv 2510.11370)
    expert_mismatch_fraction    share of (token, layer), of all recorded rows, with another set of experts
    expert_mismatch_by_layer    the same by MoE layer
    sequence_log_ratio          of whole episodes: mean, mean_abs, max_abs, per_token_max_abs
    by_turn, by_position        the differences along the episodes
    tokens                      sampled tokens
    misaligned_tokens           sampled tokens that the new encoding of settings a and d does not contain

A sampled token is "contained" in the new encoding when a token with its id covers the same characters. One
that is not has no learner log-prob: it counts as extreme, and its experts as other ones; the means run over
the tokens that are.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from tokenizers import Tokenizer

from sandbox.errors import InputError
from sandbox.files import write_json
from sandbox.trajectory import Trajectory
from t1_jax.checkpoint.manager import load_checkpoint
from t1_jax.data.packing import aligned, first_fit, pack, split_microbatches
from t1_jax.data.trajectories import Document, check_agreement, read_trajectories, to_document
from t1_jax.model import transformer
from t1_jax.model.config import ModelConfig
from t1_jax.model.deltanet import document_alignment
from t1_jax.observability.progress import progress
from t1_jax.tools.divergence import EXTREME_RATIO, divergences, even_edges, profile, sequence_log_ratios
from t1_jax.tools.retokenize import Retokenized, retokenize
from t1_jax.train.step import batch_logprobs

SETTINGS = ("a", "b", "c", "d")
_RETOKENIZED, _REPLAYED = ("a", "d"), ("c", "d")
_PARTS = 24  # of the profiles along an episode
_ROWS = 4  # packed rows in one forward
_MULTIPLE = 64  # row lengths are multiples of it


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
    """A trajectory, what is compared of it, and its text encoded again."""

    trajectory: Trajectory
    document: Document  # recorded tokens, with recorded experts where there are some
    sampled: np.ndarray  # int [N], positions of compared tokens
    again: Retokenized


def find_run(run_dir: str | Path) -> tuple[Path, Path]:
    """(checkpoint, trajectories) of a quick-start run: the RL policy and its evaluated episodes.

    Raises InputError when the run has not got that far.
    """
    checkpoint, trajectories = Path(run_dir) / "rl" / "checkpoint", Path(run_dir) / "eval" / "rl.frames"
    for path in (checkpoint, trajectories):
        if not path.exists():
            raise InputError(
                f"mismatch {run_dir}: {path.relative_to(run_dir)} is missing, expected a finished run"
            )
    return checkpoint, trajectories


def mismatch(
    checkpoint: str | Path,
    trajectories: str | Path | Sequence[Trajectory],
    out: str | Path | None = None,
    *,
    settings: Sequence[str] = SETTINGS,
    dtype: Literal["float32", "bfloat16"] | None = None,
    limit: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Measure the mismatch of recorded episodes.

    Tokens that another policy version than the checkpoint's sampled are left out: their difference is
    training.

    Args:
      checkpoint: the model checkpoint (with its tokenizer) that the episodes were sampled from.
      trajectories: a frames file, a folder of them, or trajectories. Each is scored at the temperature that
        its metadata names, as the engine recorded it (1 when there is none; greedy is recorded at 1 too).
      out: where to write the result as JSON.
      settings: which of "a", "b", "c", "d".
      dtype: of activations and matrix products; the checkpoint's own when None.
      limit: at most so many trajectories, the first ones.

    Returns:
      The metrics by setting; expert_mismatch_fraction is None when no experts were recorded.

    Raises:
      InputError: bad checkpoint or trajectories, or nothing that this checkpoint sampled, or a setting
        that replays without recorded experts.
      RoutingRecordError: in setting "b", a record that is not of these tokens, such as one that is shifted.
    """
    params, config, meta = load_checkpoint(checkpoint)
    if dtype is not None:
        config = dataclasses.replace(config, dtype=dtype)
    params = transformer.cast_params(params, config)
    vocabulary = Path(checkpoint) / "tokenizer.json"
    if not vocabulary.is_file():
        raise InputError(
            f"checkpoint {checkpoint}: no tokenizer.json, expected one to encode the episodes' text with"
        )
    tokenizer = Tokenizer.from_file(str(vocabulary))
    if isinstance(trajectories, str | Path):
        trajectories = read_trajectories(trajectories)
    cases = _cases(trajectories[:limit], config, meta["version"], tokenizer)
    replayed = [setting for setting in settings if setting in _REPLAYED]
    if replayed and all(case.document.routed_experts is None for case in cases):
        raise InputError(
            f"mismatch: no trajectory has recorded experts, expected them for setting {replayed[0]}"
        )
    longest = max(max(len(case.document.tokens), len(case.again.tokens)) for case in cases)
    row_length = aligned(longest, _MULTIPLE)
    result = {}
    with progress("mismatch", len(settings), "settings") as bar:
        for setting in settings:
            documents = [_document(case, setting) for case in cases]
            scored = _learner(
                params, config, documents, [_temperature(c.trajectory) for c in cases], row_length
            )
            if setting == "b":  # the forward that chose freely, on the tokens that were recorded
                for case, (_, experts) in zip(cases, scored, strict=True):
                    check_agreement(case.trajectory, experts)
            result[setting] = _metrics(cases, scored, again=setting in _RETOKENIZED)
            bar.advance(setting=setting, k3=result[setting]["k3"])
    if out is not None:
        write_json(out, result)
    return result


def _cases(
    trajectories: Sequence[Trajectory], config: ModelConfig, version: int, tokenizer: Tokenizer
) -> list[_Case]:
    cases, versions = [], set()
    for trajectory in trajectories:
        versions |= {v for _, _, v in trajectory.version_spans}
        sampled = np.flatnonzero((trajectory.versions == version) & trajectory.loss_mask)
        if len(sampled):
            document = to_document(trajectory, config)
            again = retokenize(trajectory, tokenizer)
            cases.append(_Case(trajectory=trajectory, document=document, sampled=sampled, again=again))
    if not cases:
        raise InputError(
            f"mismatch: {len(trajectories)} trajectories were sampled by versions {sorted(versions)}, "
            f"expected some by the checkpoint's version {version}"
        )
    return cases


def _document(case: _Case, setting: str) -> Document:
    """What the learner reads in a setting."""
    if setting == "c":
        return case.document
    live = dataclasses.replace(case.document, routed_experts=None, routed_valid=None)
    if setting == "b":
        return live
    nothing = np.zeros(len(case.again.tokens))
    routes = valid = None
    if setting == "d" and case.document.routed_experts is not None:
        assert case.document.routed_valid is not None
        recorded = np.flatnonzero(case.document.routed_valid & (case.again.positions >= 0))
        places = case.again.positions[recorded]
        shape = (len(nothing), *case.document.routed_experts.shape[1:])
        routes, valid = np.zeros(shape, case.document.routed_experts.dtype), nothing > 0
        routes[places], valid[places] = case.document.routed_experts[recorded], True
    return dataclasses.replace(
        live,
        routed_experts=routes,
        routed_valid=valid,
        tokens=case.again.tokens,
        loss_mask=nothing.astype(np.float32),
        rollout_logprobs=nothing.astype(np.float32),
        policy_age=nothing.astype(np.int32),
    )


def _temperature(trajectory: Trajectory) -> float:
    temperature = float(trajectory.metadata.get("temperature", 1.0))
    return temperature if temperature > 0 else 1.0


def _learner(
    params: Any,
    config: ModelConfig,
    documents: Sequence[Document],
    temperatures: Sequence[float],
    row_length: int,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per document: log-probs float32 [T] (entry t is of token t) and experts used int32 [T, L, K]."""
    align = document_alignment(config)
    groups: dict[float, list[int]] = defaultdict(list)
    for index, temperature in enumerate(temperatures):
        groups[temperature].append(index)
    results: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for temperature, members in groups.items():
        lengths = [len(documents[index].tokens) for index in members]
        plan = first_fit([aligned(length, align) for length in lengths], row_length)
        packed = pack([documents[index] for index in members], row_length=row_length, plan=plan, align=align)
        rows = min(_ROWS, len(plan))
        split = split_microbatches(packed, rows, num_microbatches=-(-len(plan) // rows))
        needed = ("tokens", "segment_ids", "positions", "routed_experts")
        for m in range(len(split["tokens"])):
            batch = {name: split[name][m] for name in needed if name in split}
            logprobs, experts = jax.device_get(
                _forward(params, batch, config=config, temperature=temperature)
            )
            for row, placed in enumerate(plan[m * rows : (m + 1) * rows]):
                start = 0
                for member in placed:
                    span = slice(start, start + lengths[member])
                    results[members[member]] = logprobs[row, span].copy(), experts[row, span].copy()
                    start = aligned(span.stop, align)
    # The first token of a packed document follows another document; nothing was sampled there.
    return [results[index] for index in range(len(documents))]


@partial(jax.jit, static_argnames=("config", "temperature"))
def _forward(
    params: Any, batch: dict[str, jax.Array], *, config: ModelConfig, temperature: float
) -> tuple[jax.Array, jax.Array]:
    logprobs, _, output = batch_logprobs(params, config, batch, temperature=temperature)
    return logprobs, output.routed_experts


def _metrics(
    cases: Sequence[_Case], scored: Sequence[tuple[np.ndarray, np.ndarray]], *, again: bool
) -> dict[str, Any]:
    """The metrics of a setting over all cases; `again` when it read the text encoded again."""
    deltas: list[np.ndarray] = []
    turns, positions = [], []
    misaligned = rows = 0
    other = np.zeros(0, np.int64)  # by layer
    for case, (logprobs, experts) in zip(cases, scored, strict=True):
        # Where each recorded token stands in what the learner read; -1 where it does not.
        place = case.again.positions if again else np.arange(len(case.document.tokens))
        found = case.sampled[place[case.sampled] >= 0]
        misaligned += len(case.sampled) - len(found)
        deltas.append((logprobs[place[found]] - case.trajectory.rollout_logprobs[found]).astype(np.float64))
        positions.append(found)
        starts = [turn.sampled[0] for turn in case.trajectory.turns]
        turns.append(np.maximum(np.searchsorted(starts, found, side="right") - 1, 0))
        if case.document.routed_experts is not None and case.document.routed_valid is not None:
            recorded = np.flatnonzero(case.document.routed_valid)
            contained = recorded[place[recorded] >= 0]
            used = np.sort(experts[place[contained]], axis=-1)
            expected = np.sort(case.document.routed_experts[contained].astype(np.int32), axis=-1)
            differ = (used != expected).any(axis=-1).sum(axis=0) + len(recorded) - len(contained)
            other = differ if not len(other) else other + differ
            rows += len(recorded)
    delta, turn, position = (np.concatenate(parts) for parts in (deltas, turns, positions))
    tokens = len(delta) + misaligned
    extreme = int((np.abs(delta) > np.log(EXTREME_RATIO)).sum()) + misaligned
    last_turn, last_position = (int(places.max(initial=0)) for places in (turn, position))
    return {
        **divergences(delta),
        "extreme_fraction": extreme / tokens,
        "expert_mismatch_fraction": float(other.mean() / rows) if rows else None,
        "expert_mismatch_by_layer": (other / rows).tolist() if rows else None,
        "sequence_log_ratio": sequence_log_ratios(deltas),
        "by_turn": profile(turn, delta, even_edges(last_turn, _PARTS)),
        "by_position": profile(position, delta, even_edges(last_position, _PARTS)),
        "tokens": tokens,
        "misaligned_tokens": misaligned,
    }
