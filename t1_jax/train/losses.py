"""Token losses of SFT and RL.

Legend: B rows, T tokens. pi: the learner's probability of a sampled token now; mu: the one recorded when it
was sampled; r = pi / mu; A: the advantage; sg: stop-gradient.

The recorded mu is the only denominator: there is no second forward of an old policy, so r carries both the
mismatch between engine and learner and the age of the policy. A loss gets log pi [B, T] and the batch and
returns the loss of each token; `loss_weights` of the batch then average them (see data/packing.py). Tokens
outside the loss mask are replaced before any exponential: exp(overflow) * 0 would be NaN, in the value or in
the gradient. So are tokens that pi or mu gives no probability at all (a log-prob of -inf): no ratio can weigh
them. They count as masked; NaN is passed on, since it means a broken model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from sandbox.errors import InputError
from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.sharding import DATA_AXES

LossName = Literal["icepop", "ppo", "gspo", "cispo", "tis", "dppo"]

# Bounds on r (of dppo: on how far pi may lie below and above mu) when a config names none, and where they
# come from.
DEFAULT_BOUNDS: dict[str, tuple[float, float]] = {
    "icepop": (0.5, 2.0),  # NeMo-RL's and TRL's reference bounds
    "ppo": (0.8, 1.28),  # DAPO, arXiv 2503.14476, section 4.1
    "gspo": (1 - 3e-4, 1 + 4e-4),  # arXiv 2507.18071, section 5.1
    "cispo": (0.0, 5.0),  # no lower bound (arXiv 2506.13585, section 3.1); upper as ScaleRL, arXiv 2510.13786
    "tis": (0.0, 2.0),  # truncated importance sampling, C = 2
    "dppo": (0.2, 0.2),  # prime-rl's
}

# log r is cut here before exp in the losses that bound r only afterwards: exp(20) is far outside every bound.
_LOG_RATIO_LIMIT = 20.0
# A token is extreme when pi and mu differ by more than this factor (tau of R3, arXiv 2510.11370).
EXTREME_RATIO = 2.0


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """Which policy loss, and its bounds on r (None: `DEFAULT_BOUNDS`).

    `probability_weight` w multiplies each token's advantage by w mu + 1 - w (arXiv 2505.12929, eq. 5). The
    gradient of log pi is largest on tokens that were improbable, so that they drown the others: with w = 0 a
    small batch moves the policy by its accidents.

    Two penalties can be added to any of them, on every loss token: `squared_penalty` times
    `squared_log_ratio`, and `reference_kl` times `reference_k3`, which reads `reference_logprobs`.
    """

    name: LossName = "icepop"
    low: float | None = None
    high: float | None = None
    dual_clip: float | None = None  # ppo only: an upper bound c on r where A < 0
    probability_weight: float = 0.0
    squared_penalty: float = 0.0
    reference_kl: float = 0.0

    def __post_init__(self) -> None:
        low, high = self.bounds
        if self.name == "dppo":
            if not (0 <= low <= 1 and 0 <= high <= 1):
                raise InputError(
                    f"loss.low and loss.high are {low} and {high}, expected differences of probabilities "
                    "from 0 to 1 with the dppo loss"
                )
        elif not 0 <= low <= 1 <= high:
            raise InputError(f"loss.low and loss.high are {low} and {high}, expected 0 <= low <= 1 <= high")
        if self.dual_clip is not None and (self.name != "ppo" or self.dual_clip <= 1):
            raise InputError(
                f"loss.dual_clip is {self.dual_clip}, expected above 1 and only with the ppo loss"
            )

        if not 0 <= self.probability_weight <= 1:
            raise InputError(
                f"loss.probability_weight is {self.probability_weight}, expected a number from 0 to 1"
            )
        for name in ("squared_penalty", "reference_kl"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"loss.{name} is {getattr(self, name)}, expected a number of 0 or more")

    @property
    def bounds(self) -> tuple[float, float]:
        """(low, high): on r, or of dppo how far pi may lie below and above mu."""
        low, high = DEFAULT_BOUNDS[self.name]
        return (low if self.low is None else self.low, high if self.high is None else self.high)


class TokenLoss(NamedTuple):
    """`loss` [B, T] per token, and metrics [B, T] to be averaged, or maximised, over loss tokens."""

    loss: jax.Array
    means: dict[str, jax.Array]
    maxima: dict[str, jax.Array]


Loss = Callable[[jax.Array, Mapping[str, jax.Array]], TokenLoss]


def sft_loss(logprobs: jax.Array, batch: Mapping[str, jax.Array]) -> TokenLoss:
    """Negative log-likelihood: -log pi on loss tokens, 0 elsewhere. float32 [B, T]."""
    return TokenLoss(-jnp.where(batch["loss_mask"] > 0, logprobs, 0.0), {}, {})


def icepop(
    logprobs: jax.Array, batch: Mapping[str, jax.Array], low: float, high: float
) -> tuple[jax.Array, jax.Array]:
    """-M(r) r A with M(r) = 1 where low <= r <= high, else 0.

    IcePop's double-sided mask (Ling Team, arXiv 2510.18855, section 3.2) on r = pi / mu, as GLM-5 uses it
    without an old policy: a token whose probabilities disagree too much gives no gradient at all.
    Returns (loss [B, T], masked-out tokens bool [B, T]), as all policy losses here do.
    """
    delta = _log_ratio(logprobs, batch)
    outside = (delta < _log(low)) | (delta > _log(high))
    ratio = jnp.exp(jnp.where(outside, 0.0, delta))
    return jnp.where(outside, 0.0, -ratio * batch["advantages"]), outside


def ppo(
    logprobs: jax.Array,
    batch: Mapping[str, jax.Array],
    low: float,
    high: float,
    dual_clip: float | None = None,
) -> tuple[jax.Array, jax.Array]:
    """max(-r A, -clip(r, low, high) A): PPO (arXiv 1707.06347, eq. 7); high apart from low as
    in DAPO (eq. 8).

    `dual_clip` c bounds the loss of negative advantages: min(loss, -c A) (arXiv 1912.09729, eq. 5).
    """
    advantages = batch["advantages"]
    ratio = _ratio(logprobs, batch)
    loss = jnp.maximum(-ratio * advantages, -jnp.clip(ratio, low, high) * advantages)
    clipped = jnp.where(advantages > 0, ratio > high, ratio < low) & (advantages != 0)
    if dual_clip is not None:
        loss = jnp.where(advantages < 0, jnp.minimum(loss, -dual_clip * advantages), loss)
        clipped |= (advantages < 0) & (ratio > dual_clip)
    return loss, clipped


def gspo(
    logprobs: jax.Array, batch: Mapping[str, jax.Array], low: float, high: float
) -> tuple[jax.Array, jax.Array]:
    """max(-s A, -clip(s, low, high) A) with s = exp(mean over the segment's loss tokens of log r).

    GSPO (arXiv 2507.18071, eqs. 5 and 7). The scope of s is one packed document. GSPO averages over
    sequences: use `aggregation: sequence` for the paper's weighting.
    """
    mask = _weighable(logprobs, batch).astype(jnp.float32)
    segments = batch["segment_ids"]

    def segment_means(values: jax.Array, mask: jax.Array, ids: jax.Array) -> jax.Array:
        sums = jax.ops.segment_sum(values * mask, ids, num_segments=ids.shape[0] + 1)
        counts = jax.ops.segment_sum(mask, ids, num_segments=ids.shape[0] + 1)
        return (sums / jnp.maximum(counts, 1.0))[ids]

    delta = jax.vmap(segment_means)(_log_ratio(logprobs, batch), mask, segments)
    ratio = jnp.exp(jnp.clip(delta, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT))
    advantages = batch["advantages"]
    loss = jnp.maximum(-ratio * advantages, -jnp.clip(ratio, low, high) * advantages)
    return loss, jnp.where(advantages > 0, ratio > high, ratio < low) & (advantages != 0)


def cispo(
    logprobs: jax.Array, batch: Mapping[str, jax.Array], low: float, high: float
) -> tuple[jax.Array, jax.Array]:
    """-sg(clip(r, low, high)) A log pi: CISPO (MiniMax-M1, arXiv 2506.13585, eqs. 4 and 5). No token loses
    its gradient.
    """
    mask = _weighable(logprobs, batch)
    ratio = _ratio(logprobs, batch)
    weight = jax.lax.stop_gradient(jnp.clip(ratio, low, high))
    return -weight * batch["advantages"] * jnp.where(mask, logprobs, 0.0), (ratio < low) | (ratio > high)


def tis(
    logprobs: jax.Array, batch: Mapping[str, jax.Array], low: float, high: float
) -> tuple[jax.Array, jax.Array]:
    """-sg(clip(r, low, high)) (pi / sg(pi)) A: truncated importance sampling (Yao et al. 2025, "Your
    efficient RL framework secretly brings you off-policy RL training", eq. 3) with pi_old = pi, as one
    optimizer step per batch has it.
    """
    mask = _weighable(logprobs, batch)
    ratio = _ratio(logprobs, batch)
    weight = jax.lax.stop_gradient(jnp.clip(ratio, low, high))
    logprobs = jnp.where(mask, logprobs, 0.0)
    one = jnp.exp(logprobs - jax.lax.stop_gradient(logprobs))
    return -weight * one * batch["advantages"], (ratio < low) | (ratio > high)


def dppo(
    logprobs: jax.Array, batch: Mapping[str, jax.Array], low: float, high: float
) -> tuple[jax.Array, jax.Array]:
    """-M r A with M = 0 where A > 0 and pi - mu > high, or A < 0 and mu - pi > low, else 1.

    DPPO's binary total-variation mask (arXiv 2602.04879): a token is dropped only when its step leads further
    out of the trust region, and that is drawn in probability, not in its ratio, which is large for a rare
    token that hardly moved. `low` and `high` are differences of probabilities.
    """
    kept = _weighable(logprobs, batch)
    advantages = batch["advantages"]
    pi, mu = (jnp.exp(jnp.where(kept, x, 0.0)) for x in (logprobs, batch["rollout_logprobs"]))
    outside = jnp.where(advantages > 0, pi - mu > high, (advantages < 0) & (mu - pi > low))
    return jnp.where(outside, 0.0, -_ratio(logprobs, batch) * advantages), outside


def squared_log_ratio(logprobs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """(log r)^2 on loss tokens, 0 elsewhere: float32 [B, T].

    The penalty in Kimi k1.5's policy gradient (arXiv 2501.12599, eq. 3, with the factor tau / 2), on
    r = pi / mu; twice Schulman's k2. It holds the policy near the one that sampled, also at tokens that a
    trust region dropped.
    """
    return jnp.square(jnp.clip(_log_ratio(logprobs, batch), -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT))


def reference_k3(logprobs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """ref / pi - 1 - log(ref / pi) on loss tokens, 0 elsewhere: float32 [B, T].

    The k3 estimate of KL(pi || ref) as GRPO adds it to its loss (arXiv 2402.03300, eq. 4). Reads
    `reference_logprobs` [B, T] of the batch, which no gradient passes.
    """
    reference = jax.lax.stop_gradient(batch["reference_logprobs"])
    usable = _weighable(logprobs, batch) & ~jnp.isneginf(reference)
    delta = jnp.where(usable, reference, 0.0) - jnp.where(usable, logprobs, 0.0)
    delta = jnp.clip(delta, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
    return jnp.expm1(delta) - delta


def make_loss(config: LossConfig) -> Loss:
    """The policy loss of a config, with the mismatch metrics that every one of them reports.

    Metrics, over loss tokens: train/masked_fraction (masked or clipped by the loss), of these
    train/masked_positive and train/masked_negative by the sign of A, mismatch/k1 = mean of -log r and
    mismatch/k3 = mean of r - 1 - log r (Schulman's estimates of KL(mu || pi),
    http://joschu.net/blog/kl-approx.html), the mean and the largest |log pi - log mu|,
    mismatch/ratio_mean and its largest, mismatch/extreme_fraction (r above 2 or below 1/2), and the staleness
    in versions. With a reference, train/reference_kl.
    """
    low, high = config.bounds
    functions = {"icepop": icepop, "gspo": gspo, "cispo": cispo, "tis": tis, "dppo": dppo}

    def loss(logprobs: jax.Array, batch: Mapping[str, jax.Array]) -> TokenLoss:
        if config.probability_weight:
            weight = config.probability_weight * jnp.exp(batch["rollout_logprobs"])
            weight = weight + 1 - config.probability_weight
            batch = {**batch, "advantages": batch["advantages"] * weight}
        if config.name == "ppo":
            per_token, touched = ppo(logprobs, batch, low, high, config.dual_clip)
        else:
            per_token, touched = functions[config.name](logprobs, batch, low, high)
        kept = _weighable(logprobs, batch)
        per_token, touched = jnp.where(kept, per_token, 0.0), touched | ~kept
        delta = _log_ratio(logprobs, batch)
        bounded = jnp.clip(delta, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
        means = {
            "train/masked_fraction": touched.astype(jnp.float32),
            "train/masked_positive": (touched & (batch["advantages"] > 0)).astype(jnp.float32),
            "train/masked_negative": (touched & (batch["advantages"] < 0)).astype(jnp.float32),
            "mismatch/k1": -delta,
            "mismatch/ratio_mean": jnp.exp(bounded),
            "mismatch/k3": jnp.expm1(bounded) - bounded,
            "mismatch/mean_abs_logprob_diff": jnp.abs(delta),
            "mismatch/extreme_fraction": (jnp.abs(delta) > _log(EXTREME_RATIO)).astype(jnp.float32),
            "train/staleness": batch["policy_age"].astype(jnp.float32),
        }
        maxima = {
            "mismatch/max_abs_logprob_diff": jnp.abs(delta),
            "mismatch/ratio_max": jnp.exp(bounded),
            "train/staleness_max": batch["policy_age"].astype(jnp.float32),
        }
        if config.squared_penalty:
            per_token = per_token + config.squared_penalty * squared_log_ratio(logprobs, batch)
        if config.reference_kl:
            divergence = reference_k3(logprobs, batch)
            per_token = per_token + config.reference_kl * divergence
            means["train/reference_kl"] = divergence
        return TokenLoss(per_token, means, maxima)

    return loss


def load_balancing_loss(
    router_logits: jax.Array, selected: jax.Array, mask: jax.Array, parallel: Parallel = SINGLE
) -> jax.Array:
    """E * sum over experts of (assignments to it a token) x (its mean probability); K when balanced.

    Switch Transformer (arXiv 2101.03961, eqs. 4 to 6) as transformers computes it for top-K
    (`load_balancing_loss_func`): both factors are means over the tokens of all layers. Only for SFT: in RL
    it would pull the router away from the recorded routes.

    Args:
      router_logits: float32 [B, T, L, E].
      selected: int32 [B, T, L, K].
      mask: bool [B, T], False on padding.
      parallel: on a mesh the arguments are a device's, the result is of all.
    """

    def over_tokens(x: jax.Array) -> jax.Array:
        return parallel.sum(x, *DATA_AXES, "context")

    experts, layers = router_logits.shape[-1], router_logits.shape[-2]
    rows = layers * jnp.maximum(over_tokens(mask.sum()), 1)
    weight = mask.astype(jnp.float32)[..., None, None] / rows
    probability = over_tokens((jax.nn.softmax(router_logits, axis=-1) * weight).sum((0, 1, 2)))
    assignments = over_tokens((jax.nn.one_hot(selected, experts).sum(-2) * weight).sum((0, 1, 2)))
    return experts * (probability * assignments).sum()


def _weighable(logprobs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Loss tokens that have a ratio: bool [B, T]."""
    impossible = jnp.isneginf(logprobs) | jnp.isneginf(batch["rollout_logprobs"])
    return (batch["loss_mask"] > 0) & ~impossible


def _log_ratio(logprobs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """log r on loss tokens that have one, 0 elsewhere."""
    return jnp.where(_weighable(logprobs, batch), logprobs - batch["rollout_logprobs"], 0.0)


def _ratio(logprobs: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """r, bounded far outside of every bound; 1 where there is none."""
    return jnp.exp(jnp.clip(_log_ratio(logprobs, batch), -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
