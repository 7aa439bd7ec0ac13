"""Divergences between engine and learner from the log-probs of sampled tokens alone.

Legend: mu is the engine's probability of a token that it sampled, pi the learner's, r = pi / mu, d = log r.
All are means over tokens that mu sampled, so each estimates a divergence of the two whole distributions
without either being kept: D_f = E_mu[f(r)] for a convex f with f(1) = 0. Except in k1, f is flat at 1, so
that no term is negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

# A token is extreme when pi and mu differ by more than this factor (tau of R3, arXiv 2510.11370).
EXTREME_RATIO = 2.0
_LIMIT = 50.0  # of d before exp


def divergences(delta: np.ndarray) -> dict[str, float | None]:
    """Of d float64 [N], in nats; None for each when there is no token.

    k1                   mean of -d, estimates KL(mu || pi) without a bias, with signs
    k3                   mean of r - 1 - d, estimates KL(mu || pi)
    k3_reverse           mean of r d - r + 1, estimates KL(pi || mu)
    js                   mean of (r d - (1 + r) log((1 + r) / 2)) / 2, estimates the Jensen-Shannon divergence

    k1 and k3: Schulman, http://joschu.net/blog/kl-approx.html; the others follow from f(r) = r log r - r + 1
    and from JS = (KL(mu || m) + KL(pi || m)) / 2 with m = (mu + pi) / 2.
    """
    if not len(delta):
        return dict.fromkeys(
            ("mean_abs_logprob_diff", "max_abs_logprob_diff", "k1", "k3", "k3_reverse", "js")
        )
    bounded = np.clip(delta, -_LIMIT, _LIMIT)
    ratio, change = np.exp(bounded), np.expm1(bounded)
    js = (ratio * bounded - (1 + ratio) * np.log1p(change / 2)) / 2
    return {
        "mean_abs_logprob_diff": float(np.abs(delta).mean()),
        "max_abs_logprob_diff": float(np.abs(delta).max()),
        "k1": float(-delta.mean()),
        "k3": float((change - bounded).mean()),
        "k3_reverse": float((ratio * bounded - change).mean()),
        "js": float(np.maximum(js, 0.0).mean()),
    }


def sequence_log_ratios(deltas: Sequence[np.ndarray]) -> dict[str, float | None]:
    """The log-ratio of whole episodes, the sum of their tokens' d, which sequence-level weights use.

    `mean`, `mean_abs` and `max_abs` over episodes in nats, and `per_token_max_abs`, the largest mean of d.
    """
    sums = np.array([delta.sum() for delta in deltas if len(delta)])
    if not len(sums):
        return dict.fromkeys(("mean", "mean_abs", "max_abs", "per_token_max_abs"))
    means = np.array([delta.mean() for delta in deltas if len(delta)])
    return {
        "mean": float(sums.mean()),
        "mean_abs": float(np.abs(sums).mean()),
        "max_abs": float(np.abs(sums).max()),
        "per_token_max_abs": float(np.abs(means).max()),
    }


def profile(places: np.ndarray, delta: np.ndarray, edges: Sequence[int]) -> list[dict[str, Any]]:
    """Divergences by place: of the tokens with edges[i] <= place < edges[i + 1], parts without a token left
    out.

    Args:
      places: int [N], a turn or a position.
      delta: float64 [N].
      edges: ascending.

    Returns:
      {"from", "to", "tokens", "mean_abs_logprob_diff", "k3", "extreme_fraction"} each.
    """
    parts = []
    for start, end in pairwise(edges):
        inside = delta[(places >= start) & (places < end)]
        if len(inside):
            all_of_it = divergences(inside)
            parts.append(
                {
                    "from": int(start),
                    "to": int(end),
                    "tokens": len(inside),
                    "mean_abs_logprob_diff": all_of_it["mean_abs_logprob_diff"],
                    "k3": all_of_it["k3"],
                    "extreme_fraction": float((np.abs(inside) > np.log(EXTREME_RATIO)).mean()),
                }
            )
    return parts


def even_edges(last: int, parts: int) -> list[int]:
    """At most `parts` + 1 ascending edges that cover 0..last in steps of one size."""
    step = -(-(last + 1) // parts)
    return list(range(0, last + 1 + step, step))
