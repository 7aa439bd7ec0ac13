"""How far the learner is from the engine on the same episodes, in three settings.

    a   the text of the episodes encoded again, experts routed live: what a text pipeline trains on
    b   the recorded tokens, experts routed live
    c   the recorded tokens and the recorded experts

The learner runs as in the train step: packed rows, the checkpoint's dtype, one forward without a cache.
Compared is r = learner probability / engine probability of every sampled token that counts for the loss:

    mean_abs_logprob_diff, max_abs_logprob_diff    |log r|, nats
    k3                          mean of r - 1 - log r
    extreme_fraction            share of tokens with r outside [1/2, 2] (arXiv 2510.11370)
    expert_mismatch_fraction    share of (token, layer), of all recorded rows, with another set of experts
    tokens                      sampled tokens
    misaligned_tokens           sampled tokens that the new encoding of setting a does not contain

A sampled token is "contained" in the new encoding when a token with its id covers the same characters. One
that is not has no learner log-prob: it counts as extreme, and its experts as other ones; the means run over
the tokens
that are.
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
from t1_jax.tools.retokenize import Retokenized, retokenize
from t1_jax.train.step import batch_logprobs

SETTINGS = ("a", "b", "c")
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
) -> dict[str, dict[str, float]]:
    """Measure the mismatch of recorded episodes.

    Tokens that another policy version than the checkpoint's sampled are left out: their difference is
    training.

    Args:
      checkpoint: the model checkpoint (with its tokenizer) that the episodes were sampled from.
      trajectories: a frames file, a folder of them, or trajectories. Each is scored at the temperature that
        its metadata names, as the engine recorded it (1 when there is none; greedy is recorded at 1 too).
      out: where to write the result as JSON.
      settings: which of "a", "b", "c".
      dtype: of activations and matrix products; the checkpoint's own when None.
      limit: at most so many trajectories, the first ones.

    Returns:
      The metrics by setting; expert_mismatch_fraction is None when no experts were recorded.

    Raises:
      InputError: bad checkpoint or trajectories, or nothing that this checkpoint sampled, or setting "c"
        without recorded experts.
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
    if "c" in settings and all(case.document.routed_experts is None for case in cases):
        raise InputError("mismatch: no trajectory has recorded experts, expected them for setting c")
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
            result[setting] = _metrics(cases, scored, again=setting == "a")
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
    return dataclasses.replace(
        live,
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
    deltas, misaligned, other, pairs = [], 0, 0, 0
    for case, (logprobs, experts) in zip(cases, scored, strict=True):
        # Where each recorded token stands in what the learner read; -1 where it does not.
        place = case.again.positions if again else np.arange(len(case.document.tokens))
        found = case.sampled[place[case.sampled] >= 0]
        misaligned += len(case.sampled) - len(found)
        deltas.append(logprobs[place[found]] - case.trajectory.rollout_logprobs[found])
        if case.document.routed_experts is not None and case.document.routed_valid is not None:
            recorded = np.flatnonzero(case.document.routed_valid)
            contained = recorded[place[recorded] >= 0]
            used = np.sort(experts[place[contained]], axis=-1)
            expected = np.sort(case.document.routed_experts[contained].astype(np.int32), axis=-1)
            layers = expected.shape[1]
            other += int((used != expected).any(axis=-1).sum()) + layers * (len(recorded) - len(contained))
            pairs += layers * len(recorded)
    delta = np.concatenate(deltas).astype(np.float64)
    tokens = len(delta) + misaligned
    extreme = int((np.abs(delta) > np.log(2.0)).sum()) + misaligned
    return {
        "mean_abs_logprob_diff": float(np.abs(delta).mean()) if len(delta) else None,
        "max_abs_logprob_diff": float(np.abs(delta).max()) if len(delta) else None,
        "k3": float((np.expm1(delta) - delta).mean()) if len(delta) else None,
        "extreme_fraction": extreme / tokens,
        "expert_mismatch_fraction": other / pairs if pairs else None,
        "tokens": tokens,
        "misaligned_tokens": misaligned,
    }
