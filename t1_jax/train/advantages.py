"""Advantages of the rollouts of one group (the attempts at one task), on the host.

Legend: n rollouts of a group, rewards float64 [n]. Groups are explicit: a function sees exactly the rollouts
of one group that have a reward, whatever their number, so that a partial group cannot shift into its
neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

AdvantageName = Literal["centred", "grpo", "leave_one_out", "maxrl"]

# Below this a standard deviation or a mean is noise of the rewards' representation, not signal to divide by.
_EPS = 1e-6


def centred(rewards: np.ndarray) -> np.ndarray:
    """A_i = R_i - mean(R): Dr. GRPO (arXiv 2503.20783, section 3.2), GRPO without its bias toward easy and
    hard tasks.
    """
    return rewards - rewards.mean()


def grpo(rewards: np.ndarray) -> np.ndarray:
    """A_i = (R_i - mean(R)) / (std(R) + eps): GRPO (arXiv 2402.03300, section 4.1.2), population std."""
    return (rewards - rewards.mean()) / (rewards.std() + _EPS)


def leave_one_out(rewards: np.ndarray) -> np.ndarray:
    """A_i = R_i - mean of the others = n/(n-1) (R_i - mean(R)): RLOO (arXiv 2402.14740, eq. 8)."""
    n = len(rewards)
    return (rewards - rewards.mean()) * (n / (n - 1) if n > 1 else 0.0)


def maxrl(rewards: np.ndarray) -> np.ndarray:
    """A_i = (R_i - mean(R)) / mean(R): MaxRL (arXiv 2602.02710); 0 for a group without any reward."""
    mean = rewards.mean()
    return (rewards - mean) / mean if mean > _EPS else np.zeros_like(rewards)


ADVANTAGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "centred": centred,
    "grpo": grpo,
    "leave_one_out": leave_one_out,
    "maxrl": maxrl,
}


def group_advantages(
    rewards: list[float], name: AdvantageName = "centred", negative_scale: float = 1.0
) -> np.ndarray:
    """Advantages float64 [n] of one group's rewards; exactly 0 for a single rollout and for equal rewards.

    `negative_scale` multiplies those below 0. Pushing a token down says nothing of what should stand in its
    place, and what it frees goes to whatever is near; so fewer of the bad and all of the good is the stabler
    step: 0 is RAFT's choice (arXiv 2504.11343), between 0 and 1 that of asymmetric REINFORCE (2506.20520).
    """
    values = np.asarray(rewards, np.float64)
    if len(values) < 2 or np.ptp(values) < _EPS:
        # Without this, rounding of the mean would leave 1e-17s, which a division by std would blow up.
        return np.zeros(len(values))
    advantages = ADVANTAGES[name](values)
    return np.where(advantages < 0, negative_scale * advantages, advantages)
