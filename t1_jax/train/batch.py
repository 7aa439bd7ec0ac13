"""From the rollouts of one RL step to the documents that are trained on, and their metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sandbox.trajectory import ENDINGS, Trajectory
from t1_jax.data.trajectories import Document, to_document
from t1_jax.model.config import ModelConfig
from t1_jax.train.advantages import AdvantageName, group_advantages

_TRUNCATED = ("max_turns", "context", "max_tokens", "timeout")


@dataclass(frozen=True, kw_only=True)
class RLBatch:
    """`documents` to train on, and metrics of all rollouts of the step."""

    documents: list[Document]
    metrics: dict[str, float]


def make_rl_batch(
    trajectories: Sequence[Trajectory],
    model: ModelConfig,
    *,
    advantage: AdvantageName,
    negative_scale: float = 1.0,
    policy_version: int,
    max_staleness: int,
    row_length: int,
    replay: bool,
    overlong_filtering: bool = False,
) -> RLBatch:
    """Sort out what cannot be trained on, compare rollouts within their groups, and check every record.

    Left out: rollouts without a reward (the infrastructure failed: they are in no baseline either), rollouts
    whose oldest token is more than `max_staleness` versions old, and segments longer than a row. Groups whose
    rewards are all equal have advantage 0 and would only take up rows; without them the token mean is over
    the tokens that have a gradient. A rollout of several segments counts once in its group, and all its
    segments get its advantage.

    Args:
      trajectories: all segments of all rollouts of the step, complete groups.
      model: shapes that records are checked against.
      advantage: which formula.
      negative_scale: of advantages below 0; with 0, rollouts below their group's mean are not trained on.
      policy_version: the learner's.
      max_staleness: in versions.
      row_length: tokens in a row.
      replay: False drops the routing records, so that all tokens are routed live.
      overlong_filtering: leave out, also from the baselines, rollouts that a limit of turns, context, tokens
        or time cut off (DAPO, arXiv 2503.14476, section 3.4). What they earned was earned without an end:
        where going on costs nothing, a policy that is trained on them unlearns to finish.

    Raises:
      InputError, RoutingRecordError: a record does not fit the model; the trajectory is named.
    """
    by_rollout: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        by_rollout[trajectory.rollout_id].append(trajectory)
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    stale = infra = 0
    for rollout_id, segments in by_rollout.items():
        reward = segments[-1].reward
        sampled = np.concatenate([segment.versions[segment.versions >= 0] for segment in segments])
        if reward is None:
            infra += 1
        elif len(sampled) and policy_version - int(sampled.min()) > max_staleness:
            stale += 1
        elif overlong_filtering and segments[-1].ending in _TRUNCATED:
            continue
        else:
            groups[segments[0].group_id][rollout_id] = reward
    documents: list[Document] = []
    too_long = 0
    for members in groups.values():
        advantages = group_advantages(list(members.values()), advantage, negative_scale)
        for rollout_id, value in zip(members, advantages, strict=True):
            if value == 0:
                continue
            for segment in by_rollout[rollout_id]:
                if len(segment.tokens) > row_length:
                    too_long += 1
                    continue
                document = to_document(segment, model, advantage=value, policy_version=policy_version)
                documents.append(
                    document if replay else replace(document, routed_experts=None, routed_valid=None)
                )
    metrics = _rollout_metrics(by_rollout, groups)
    metrics |= {
        "rollout/infra_errors": infra / max(len(by_rollout), 1),
        "rollout/stale_dropped": stale / max(len(by_rollout), 1),
        "rollout/too_long": float(too_long),
    }
    return RLBatch(documents=documents, metrics=metrics)


def _rollout_metrics(
    rollouts: dict[str, list[Trajectory]], groups: dict[str, dict[str, float]]
) -> dict[str, float]:
    scored = [segments for segments in rollouts.values() if segments[-1].reward is not None]
    endings = [segments[-1].ending for segments in rollouts.values()]
    metrics = {"rollout/episodes": float(len(rollouts))}
    metrics |= {f"rollout/ending_{name}": endings.count(name) / max(len(endings), 1) for name in ENDINGS}
    metrics["rollout/truncated"] = sum(metrics[f"rollout/ending_{name}"] for name in _TRUNCATED)
    if scored:
        rewards = [float(segments[-1].reward or 0.0) for segments in scored]
        turns = [[turn for segment in segments for turn in segment.turns] for segments in scored]
        count = sum(map(len, turns))
        metrics |= {
            "rollout/reward": float(np.mean(rewards)),
            "rollout/reward_std": float(np.std(rewards)),
            "rollout/solved": float(np.mean([segments[-1].solved for segments in scored])),
            "rollout/turns": count / len(scored),
            "rollout/tokens": float(np.mean([sum(len(s.tokens) for s in segments) for segments in scored])),
            "rollout/sampled_tokens": float(
                np.mean([sum(int(s.loss_mask.sum()) for s in seg) for seg in scored])
            ),
            "rollout/format_errors": sum(bool(turn.error) for of in turns for turn in of) / max(count, 1),
        }
    spreads = [float(np.std(list(members.values()))) for members in groups.values() if len(members) > 1]
    if spreads:
        metrics["rollout/reward_std_in_groups"] = float(np.mean(spreads))
        metrics["rollout/zero_variance_groups"] = float(np.mean([spread < 1e-6 for spread in spreads]))
    return metrics
