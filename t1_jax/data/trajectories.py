"""Recorded trajectories as training documents: reading, checking and what a packed row is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sandbox.errors import InputError
from sandbox.trajectory import Trajectory, read_frames

if TYPE_CHECKING:
    from t1_jax.model.config import ModelConfig


# A record of this many rows in which a layer never changes is no record: its buffer was not written.
_CONSTANT_ROWS = 16
MIN_AGREEMENT = 0.5


class RoutingRecordError(InputError):
    """A routing record that cannot belong to the model: it is refused, never reshaped or clipped."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """One trajectory as the learner packs it. Shapes: T tokens, L MoE layers, K experts per token.

    `advantage` is one number for all sampled tokens of the episode. `policy_age` counts policy versions
    between sampling and training, 0 on tokens that no policy sampled.
    """

    rollout_id: str
    tokens: np.ndarray  # int32 [T]
    loss_mask: np.ndarray  # float32 [T], 0 at the first token
    rollout_logprobs: np.ndarray  # float32 [T]
    advantage: float = 0.0
    policy_age: np.ndarray  # int32 [T]
    routed_experts: np.ndarray | None = None  # uint8 or uint16 [T, L, K]
    routed_valid: np.ndarray | None = None  # bool [T]


def read_trajectories(paths: Path | str | Iterable[Path | str]) -> list[Trajectory]:
    """Read frames files, or every `*.frames` file of folders, in the order of their names.

    Raises InputError when a path is missing, holds no frames, or a file is cut or corrupt (the file is
    named).
    """
    paths = [paths] if isinstance(paths, Path | str) else list(paths)
    trajectories: list[Trajectory] = []
    for path in map(Path, paths):
        files = sorted(path.glob("*.frames")) if path.is_dir() else [path]
        if not files:
            raise InputError(f"data {path}: no *.frames file in this folder")
        for file in files:
            try:
                trajectories.extend(read_frames(file.read_bytes()))
            except FileNotFoundError:
                raise InputError(f"data {file}: no such file") from None
            except InputError as error:
                raise InputError(f"data {file}: {error}") from None
    return trajectories


def check_routes(
    trajectory: Trajectory, *, num_experts: int, num_layers: int, num_experts_per_tok: int
) -> None:
    """Raise RoutingRecordError, naming trajectory and token, unless the record can be replayed as it is.

    Checked on valid rows: L and K are the model's, ids are below `num_experts`, the K ids of a layer differ
    (a repeated id would count one expert's weight twice), and no layer is one constant row. Rows that are not
    valid may hold anything.
    """
    routes, valid = trajectory.routed_experts, trajectory.routed_valid
    if routes is None or valid is None:
        return
    where = f"trajectory {trajectory.rollout_id}"
    if routes.shape[1:] != (num_layers, num_experts_per_tok):
        raise RoutingRecordError(
            f"{where}: routed_experts has [L, K] = {list(routes.shape[1:])}, "
            f"expected [{num_layers}, {num_experts_per_tok}]"
        )
    out_of_range = valid & (routes >= num_experts).any(axis=(1, 2))
    if out_of_range.any():
        t = int(out_of_range.argmax())
        raise RoutingRecordError(
            f"{where}: routed_experts at token {t} holds id {int(routes[t].max())}, "
            f"expected ids below {num_experts}"
        )
    ordered = np.sort(routes, axis=-1)
    repeated = valid & (ordered[..., 1:] == ordered[..., :-1]).any(axis=(1, 2))
    if repeated.any():
        t = int(repeated.argmax())
        raise RoutingRecordError(f"{where}: routed_experts at token {t} names an expert twice in one layer")
    rows = routes[valid]
    if len(rows) >= _CONSTANT_ROWS and num_experts_per_tok < num_experts:
        constant = (rows == rows[:1]).all(axis=(0, 2))
        if constant.any():
            layer, t = int(constant.argmax()), int(valid.argmax())
            raise RoutingRecordError(
                f"{where}: routed_experts from token {t} on is {rows[0, layer].tolist()} at every token of "
                f"layer {layer}, expected the experts of each token"
            )


def check_agreement(
    trajectory: Trajectory, probe: np.ndarray, *, threshold: float = MIN_AGREEMENT
) -> float | None:
    """Compare a record with a probe, the experts that a live forward of the same tokens chose.

    A record that is shifted by a token passes every other check, and replaying it trains each token through
    another one's experts.

    Args:
      trajectory: with its record.
      probe: int [T, L, K].
      threshold: least share of recorded experts that the probe must name too, for the same token and layer.
        Numerics and a policy update or two move a few percent of them; chance names K/E.

    Returns:
      The agreement; None without a record.

    Raises:
      RoutingRecordError: too low; trajectory and the first token that disagrees everywhere are named, and the
        shift that agrees better, if one does.
    """
    routes, valid = trajectory.routed_experts, trajectory.routed_valid
    if routes is None or valid is None or not valid.any():
        return None

    def agreement(shift: int) -> np.ndarray:
        """By token, of the record read `shift` tokens later; NaN where there is no such row."""
        by_token = np.full(len(probe), np.nan)
        at = np.flatnonzero(valid)
        at = at[(at - shift >= 0) & (at - shift < len(probe))]
        same = routes[at][..., :, None] == probe[at - shift][..., None, :]
        by_token[at - shift] = same.any(-1).mean((1, 2))
        return by_token

    own = agreement(0)
    mean = float(np.nanmean(own))
    if mean >= threshold:
        return mean
    others = {shift: np.nan_to_num(agreement(shift), nan=0.0).mean() for shift in (-1, 1)}
    best = max(others, key=lambda shift: others[shift])
    hint = f"; shifted by {best:+d} it agrees to {others[best]:.2f}" if others[best] > mean else ""
    t = int(np.nanargmin(own))
    raise RoutingRecordError(
        f"trajectory {trajectory.rollout_id}: routed_experts agrees to {mean:.2f} with a forward of its "
        f"tokens (to {own[t]:.2f} at token {t}), expected at least {threshold}{hint}"
    )


def to_document(
    trajectory: Trajectory, model: ModelConfig, *, advantage: float = 0.0, policy_version: int | None = None
) -> Document:
    """Check a trajectory against the model and turn it into a document.

    Args:
      trajectory: the record; its tokens must lie in [0, vocab_size) and its first token must not be sampled
        (no log-prob can be given to a token that nothing precedes).
      model: shapes to check against.
      advantage: of the whole rollout.
      policy_version: the learner's current version, for `policy_age`; None leaves ages at 0.

    Raises:
      InputError, RoutingRecordError: with the trajectory's id and the token's position.
    """
    where = f"trajectory {trajectory.rollout_id}"
    tokens, mask = trajectory.tokens, trajectory.loss_mask
    if len(tokens) == 0:
        raise InputError(f"{where}: holds no tokens")
    outside = (tokens < 0) | (tokens >= model.vocab_size)
    if outside.any():
        t = int(outside.argmax())
        raise InputError(
            f"{where}: token {t} is id {int(tokens[t])}, expected an id below {model.vocab_size}"
        )
    if mask[0]:
        raise InputError(f"{where}: loss_mask is set on token 0, which no token precedes")
    logprobs = trajectory.rollout_logprobs
    wrong = mask & ~(np.isfinite(logprobs) & (logprobs <= 1e-3))
    if wrong.any():
        t = int(wrong.argmax())
        raise InputError(
            f"{where}: rollout_logprobs at token {t} is {logprobs[t]}, expected a finite log-probability"
        )
    check_routes(
        trajectory,
        num_experts=model.num_experts,
        num_layers=model.num_moe_layers,
        num_experts_per_tok=model.num_experts_per_tok,
    )
    age = np.zeros(len(tokens), np.int32)
    if policy_version is not None:
        age = np.where(trajectory.versions >= 0, policy_version - trajectory.versions, 0).astype(np.int32)
    return Document(
        rollout_id=trajectory.rollout_id,
        tokens=tokens.astype(np.int32),
        loss_mask=mask.astype(np.float32),
        rollout_logprobs=np.where(mask, logprobs, 0.0).astype(np.float32),
        advantage=float(advantage),
        policy_age=age,
        routed_experts=trajectory.routed_experts,
        routed_valid=trajectory.routed_valid,
    )


def select_by_reward(
    trajectories: Sequence[Trajectory], *, min_reward: float | None = None, best_of: int | None = None
) -> list[Trajectory]:
    """The segments of the rollouts that a reward selects, in the given order; all without a criterion.

    A rollout's reward is that of its last segment; one without a reward is never selected by a criterion. Of
    equal rewards the rollout that comes first counts as the better one.

    Args:
      trajectories: of any number of groups.
      min_reward: rejection sampling (RAFT, arXiv 2304.06767, when with best_of 1).
      best_of: how many of each group at most.
    """
    if min_reward is None and best_of is None:
        return list(trajectories)
    last: dict[str, Trajectory] = {}
    for trajectory in trajectories:
        known = last.get(trajectory.rollout_id)
        if known is None or trajectory.segment >= known.segment:
            last[trajectory.rollout_id] = trajectory
    groups: dict[str, list[tuple[float, str]]] = {}
    for rollout_id, trajectory in last.items():
        reward = trajectory.reward
        if reward is not None and (min_reward is None or reward >= min_reward):
            groups.setdefault(trajectory.group_id, []).append((reward, rollout_id))
    selected = {
        rollout_id
        for members in groups.values()
        for _, rollout_id in sorted(members, key=lambda member: -member[0])[:best_of]
    }
    return [trajectory for trajectory in trajectories if trajectory.rollout_id in selected]


def split_by_length(documents: Sequence[Document], row_length: int) -> tuple[list[Document], list[Document]]:
    """(documents that fit a row, documents that do not), each in the given order."""
    fits = [document for document in documents if len(document.tokens) <= row_length]
    return fits, [document for document in documents if len(document.tokens) > row_length]
