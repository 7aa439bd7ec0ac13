"""What a run checks of every step before it goes on: mismatch, replay coverage, and the records themselves.

Legend: B rows, T tokens, L MoE layers, K experts per token.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sandbox.errors import InputError
from t1_jax.data.trajectories import RoutingRecordError

SHIFTS = (-1, 0, 1)


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Bounds of a run's metrics, and what happens outside of them; a bound of None is not checked.

    "warn" prints one line and goes on. "stop" ends the run with that line, before the step is saved. A record
    that belongs to other tokens always stops it.
    """

    action: Literal["warn", "stop"] = "warn"
    max_k3: float | None = 0.1  # of mismatch/k3
    max_mean_abs_logprob_diff: float | None = 0.3  # nats
    min_replayed_fraction: float | None = 0.8  # of the tokens that a step runs
    min_agreement: float | None = 0.8  # of recorded experts with those that live routing chooses
    probe_every: int = 10  # steps between comparisons with live routing; the first batch always is

    def __post_init__(self) -> None:
        if self.probe_every < 1:
            raise InputError(f"gate.probe_every is {self.probe_every}, expected 1 or more")


def agreement(routes: np.ndarray, live: np.ndarray, segments: np.ndarray, shift: int) -> float | None:
    """Share of the recorded experts of a token that live routing chose `shift` tokens later, too.

    Args:
      routes: int [B, T, L, K], -1 in rows that were not recorded.
      live: int [B, T, L, K], the experts that a live forward of the same tokens chose.
      segments: int [B, T], 0 on padding; only tokens of one document are compared.
      shift: 0 compares a token's record with the token itself.

    Returns:
      The share, by chance K / E; None when there is nothing to compare.
    """
    length = routes.shape[1]
    record = slice(max(-shift, 0), length - max(shift, 0))
    other = slice(max(shift, 0), length - max(-shift, 0))
    same_document = (segments[:, record] == segments[:, other]) & (segments[:, record] > 0)
    compared = same_document & (routes[:, record] >= 0).all((-1, -2))
    if not compared.any():
        return None
    pairs = routes[:, record][compared][..., :, None] == live[:, other][compared][..., None, :]
    return float(pairs.any(-1).mean())


def check_records(batch: Mapping[str, np.ndarray], live: np.ndarray) -> dict[str, float]:
    """Compare a microbatch's routing record with live routing.

    A record that is shifted by a token passes every other check, and replaying it trains each token through
    another one's experts.

    Args:
      batch: leaves [B, T, ...].
      live: int [B, T, L, K], the experts that a live forward of these tokens chose.

    Returns:
      router/agreement and mismatch/expert_mismatch_fraction; {} when nothing is recorded.

    Raises:
      RoutingRecordError: the record agrees better with the token before or after.
    """
    routes, segments = batch["routed_experts"], batch["segment_ids"]
    found = {shift: agreement(routes, live, segments, shift) for shift in SHIFTS}
    own = found[0]
    if own is None:
        return {}
    best = max(SHIFTS, key=lambda shift: found[shift] or 0.0)
    if best:
        raise RoutingRecordError(
            f"routed_experts: the records of the batch agree to {own:.2f} with live routing of their tokens, "
            f"but to {found[best]:.2f} with that of the token {'after' if best > 0 else 'before'}; expected "
            "row t to be of token t (the engine's records are off by one)"
        )
    recorded = (routes >= 0).all((-1, -2)) & (segments > 0)
    other = (np.sort(routes[recorded], -1) != np.sort(live[recorded], -1)).any(-1).mean()
    return {"router/agreement": own, "mismatch/expert_mismatch_fraction": float(other)}


def check_metrics(config: GateConfig, step: int, metrics: Mapping[str, float], *, replay: bool) -> None:
    """Hold a step's metrics against the bounds; those that a step does not have are not checked.

    Raises InputError when one is outside and the gate's action is "stop".
    """
    bounds: list[tuple[str, float | None, bool]] = [
        ("mismatch/k3", config.max_k3, True),
        ("mismatch/mean_abs_logprob_diff", config.max_mean_abs_logprob_diff, True),
    ]
    if replay:
        bounds += [
            ("router/replayed_fraction", config.min_replayed_fraction, False),
            ("router/agreement", config.min_agreement, False),
        ]
    wrong = [
        f"{name} is {metrics[name]:.4g}, expected at {'most' if upper else 'least'} {bound:g}"
        for name, bound, upper in bounds
        if bound is not None and name in metrics and not _inside(metrics[name], bound, upper)
    ]
    if not wrong:
        return
    message = f"gate: step {step}: {'; '.join(wrong)}"
    if config.action == "stop":
        raise InputError(f"{message}; the last saved state is untouched")
    print(f"warning: {message}", file=sys.stderr)


def _inside(value: Any, bound: float, upper: bool) -> bool:
    return not math.isnan(value) and (value <= bound if upper else value >= bound)
