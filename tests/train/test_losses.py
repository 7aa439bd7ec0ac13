import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sandbox.errors import InputError
from t1_jax.train.losses import LossConfig, load_balancing_loss, make_loss, sft_loss

B, T = 3, 12


def sample(spread=1.0, seed=0):
    rng = np.random.default_rng(seed)
    mask = (rng.random((B, T)) < 0.7).astype(np.float32)
    segments = np.repeat([[1] * 5 + [2] * 5 + [0] * 2], B, axis=0)
    mask[segments == 0] = 0
    mask[:, [0, 5]] = 0
    logprobs = -rng.random((B, T)).astype(np.float32) * 3 - 0.01
    recorded = np.minimum(logprobs + spread * rng.standard_normal((B, T)), -1e-3).astype(np.float32)
    advantages = np.where(segments == 1, 0.7, -0.4).astype(np.float32) * mask
    batch = {
        "loss_mask": mask,
        "segment_ids": segments.astype(np.int32),
        "rollout_logprobs": recorded,
        "advantages": advantages,
        "policy_age": np.full((B, T), 2, np.int32),
    }
    return logprobs, batch


def reference(name, logprobs, batch, low, high, dual_clip=None):
    """(loss [B, T], d loss.sum() / d logprobs [B, T]) in float64, straight from the formulas."""
    mask, advantages = batch["loss_mask"] > 0, batch["advantages"].astype(np.float64)
    logprobs = logprobs.astype(np.float64)
    delta = np.where(mask, logprobs - batch["rollout_logprobs"], 0.0)
    ratio = np.exp(delta)
    if name == "icepop":
        kept = (ratio >= low) & (ratio <= high)
        loss = np.where(kept, -ratio * advantages, 0)
        return loss, loss
    if name in ("cispo", "tis"):
        weight = np.clip(ratio, low, high) * advantages
        return (-weight * logprobs * mask if name == "cispo" else -weight), -weight * mask
    if name == "dppo":
        change = np.exp(logprobs) - np.exp(batch["rollout_logprobs"].astype(np.float64))
        out = ((advantages > 0) & (change > high)) | ((advantages < 0) & (-change > low))
        assert out.any() and not out.all()
        loss = np.where(out, 0, -ratio * advantages)
        return loss, loss
    share = np.zeros((*mask.shape, mask.shape[1]))  # d log s_t / d logprobs_u
    for row in range(len(mask)):
        for t in range(mask.shape[1]):
            if name == "ppo":
                share[row, t, t] = mask[row, t]
                continue
            members = (batch["segment_ids"][row] == batch["segment_ids"][row, t]) & mask[row]
            share[row, t, members] = 1 / max(members.sum(), 1)
            ratio[row, t] = np.exp(delta[row, members].mean()) if members.any() else 1.0
    plain, clipped = -ratio * advantages, -np.clip(ratio, low, high) * advantages
    loss = np.maximum(plain, clipped)
    slope = np.where((plain >= clipped), -ratio * advantages, 0)
    if dual_clip is not None:
        over = (advantages < 0) & (-dual_clip * advantages < loss)
        loss, slope = np.where(over, -dual_clip * advantages, loss), np.where(over, 0, slope)
    return loss, np.einsum("bt,btu->bu", slope, share)


@pytest.mark.parametrize(
    "config",
    [
        LossConfig(),
        LossConfig(name="icepop", low=0.8, high=1.2),
        LossConfig(name="ppo"),
        LossConfig(probability_weight=0.7),
        LossConfig(name="ppo", dual_clip=1.5),
        LossConfig(name="gspo", low=0.9, high=1.1),
        LossConfig(name="cispo"),
        LossConfig(name="cispo", low=0.7, high=1.3),
        LossConfig(name="tis"),
        LossConfig(name="dppo", low=0.1, high=0.05),
    ],
    ids=lambda c: f"{c.name}-{c.low}-{c.dual_clip}-{c.probability_weight}",
)
def test_values_and_gradients_are_the_formulas(config):
    logprobs, batch = sample()
    weight = config.probability_weight * np.exp(batch["rollout_logprobs"]) + 1 - config.probability_weight
    weighed = batch | {"advantages": batch["advantages"] * weight}
    value, slope = reference(config.name, logprobs, weighed, *config.bounds, config.dual_clip)
    loss = make_loss(config)
    got = loss(jnp.asarray(logprobs), jax.tree.map(jnp.asarray, batch)).loss
    np.testing.assert_allclose(got, value, rtol=2e-5, atol=1e-6)
    gradient = jax.grad(lambda x: loss(x, batch).loss.sum())(jnp.asarray(logprobs))
    np.testing.assert_allclose(gradient, slope, rtol=2e-5, atol=1e-6)


def test_penalties_are_the_formulas():
    logprobs, batch = sample()
    mask = batch["loss_mask"] > 0
    batch["reference_logprobs"] = (logprobs + np.random.default_rng(1).standard_normal((B, T))).astype("f4")
    plain = jax.value_and_grad(lambda x: make_loss(LossConfig())(x, batch).loss.sum())(logprobs)

    def added(config):
        """What a penalty adds to the loss and its gradient."""
        value, slope = jax.value_and_grad(lambda x: make_loss(config)(x, batch).loss.sum())(logprobs)
        return value - plain[0], slope - plain[1]

    delta = np.where(mask, logprobs.astype(np.float64) - batch["rollout_logprobs"], 0)
    value, slope = added(LossConfig(squared_penalty=0.25))
    np.testing.assert_allclose(value, 0.25 * (delta**2).sum(), rtol=1e-4)
    np.testing.assert_allclose(slope, 0.5 * delta, rtol=1e-4, atol=1e-5)

    d = np.where(mask, logprobs.astype(np.float64) - batch["reference_logprobs"], 0)
    config = LossConfig(reference_kl=0.5)
    value, slope = added(config)
    np.testing.assert_allclose(value, 0.5 * (np.exp(-d) - 1 + d).sum(), rtol=1e-4)
    np.testing.assert_allclose(slope, 0.5 * (1 - np.exp(-d)), rtol=1e-4, atol=1e-5)
    reported = np.asarray(make_loss(config)(logprobs, batch).means["train/reference_kl"])
    assert reported.sum() == pytest.approx(2 * float(value), rel=1e-4)


@pytest.mark.parametrize("name", ["icepop", "ppo", "gspo", "cispo", "tis", "dppo"])
def test_gradients_stay_finite_whatever_the_probabilities(name):
    logprobs, batch = sample()
    batch["rollout_logprobs"] = np.full((B, T), -500.0, np.float32)
    batch["reference_logprobs"] = np.full((B, T), -500.0, np.float32)
    batch["loss_mask"][1] = batch["advantages"][1] = 0  # a row without a loss token
    logprobs[batch["loss_mask"] == 0] = -np.inf  # what no token of the loss may be touched by
    inside = np.argwhere(batch["loss_mask"] > 0)
    logprobs[tuple(inside[0])] = -np.inf  # neither by one that the learner holds for impossible
    batch["rollout_logprobs"][tuple(inside[1])] = -np.inf
    batch["reference_logprobs"][tuple(inside[2])] = -np.inf
    batch["rollout_logprobs"][tuple(inside[3])] = logprobs[tuple(inside[3])]
    loss = make_loss(LossConfig(name=name, squared_penalty=0.1, reference_kl=0.1))

    def total(logprobs):
        result = loss(logprobs, batch)
        return result.loss.sum(), result

    function = jax.jit(jax.value_and_grad(total, has_aux=True))
    (value, result), gradient = jax.device_get(function(logprobs))
    assert np.isfinite(value) and np.isfinite(gradient).all()
    assert not gradient[batch["loss_mask"] == 0].any() and not gradient[tuple(inside[0])]
    # GSPO clips the whole segment, for the sake of its far tokens.
    assert gradient[tuple(inside[3])] or name == "gspo"
    for array in (*result.means.values(), *result.maxima.values()):
        assert np.isfinite(array[batch["loss_mask"] > 0]).all()
    assert result.means["train/masked_fraction"][tuple(inside[0])]
    logprobs[tuple(inside[3])] = np.nan
    assert np.isnan(function(logprobs)[0][0]), "a broken model is not hidden"


def test_on_policy_all_losses_have_the_policy_gradient():
    logprobs, batch = sample(spread=0.0)
    batch["rollout_logprobs"] = logprobs
    for name in ("icepop", "ppo", "cispo", "tis", "dppo"):
        gradient = jax.grad(lambda x, name=name: make_loss(LossConfig(name=name))(x, batch).loss.sum())(
            logprobs
        )
        np.testing.assert_allclose(gradient, -batch["advantages"], rtol=1e-6)


def test_mismatch_metrics():
    logprobs, batch = sample()
    mask = batch["loss_mask"] > 0
    _, means, maxima = make_loss(LossConfig())(logprobs, batch)
    delta = (logprobs - batch["rollout_logprobs"]).astype(np.float64)[mask]
    ratio = np.exp(delta)

    def mean(name):
        return np.asarray(means[name])[mask].mean()

    assert mean("mismatch/k3") == pytest.approx((ratio - 1 - delta).mean(), rel=1e-4)
    assert mean("mismatch/k1") == pytest.approx(-delta.mean(), rel=1e-4)
    assert mean("mismatch/ratio_mean") == pytest.approx(ratio.mean(), rel=1e-5)
    assert np.asarray(maxima["mismatch/ratio_max"])[mask].max() == pytest.approx(ratio.max(), rel=1e-5)
    masked = mean("train/masked_positive") + mean("train/masked_negative")
    assert masked == pytest.approx(mean("train/masked_fraction"))
    assert mean("mismatch/mean_abs_logprob_diff") == pytest.approx(np.abs(delta).mean(), rel=1e-5)
    assert mean("mismatch/extreme_fraction") == pytest.approx(((ratio > 2) | (ratio < 0.5)).mean(), rel=1e-5)
    assert mean("train/masked_fraction") == mean("mismatch/extreme_fraction")  # IcePop's bounds are 1/2 and 2
    assert np.asarray(maxima["mismatch/max_abs_logprob_diff"]).max() == pytest.approx(
        np.abs(delta).max(), rel=1e-5
    )
    assert mean("train/staleness") == 2


def test_sft_loss_is_the_negative_log_likelihood_of_loss_tokens():
    logprobs, batch = sample()
    np.testing.assert_array_equal(sft_loss(logprobs, batch).loss, -logprobs * batch["loss_mask"])


def test_load_balancing_is_top_k_when_balanced_and_larger_when_not():
    mask = jnp.array([[True] * 4 + [False] * 4])
    selected = jnp.array([0, 1, 2, 3, 0, 0, 0, 0])[None, :, None, None]
    assert load_balancing_loss(jnp.zeros((1, 8, 1, 4)), selected, mask) == pytest.approx(1.0)
    two = jnp.stack([selected, (selected + 1) % 4], -1)[..., 0, :]
    assert load_balancing_loss(jnp.zeros((1, 8, 1, 4)), two, mask) == pytest.approx(2.0)
    skewed = jnp.zeros((1, 8, 1, 4)).at[..., 0].set(3.0)
    assert load_balancing_loss(skewed, jnp.zeros_like(selected), mask) > 2


def test_impossible_bounds_are_refused():
    with pytest.raises(InputError, match=r"loss\.low"):
        LossConfig(low=1.5)
    with pytest.raises(InputError, match="dual_clip"):
        LossConfig(name="tis", dual_clip=3.0)
    with pytest.raises(InputError, match="differences of probabilities"):
        LossConfig(name="dppo", high=1.28)
    with pytest.raises(InputError, match=r"loss\.reference_kl is -1"):
        LossConfig(reference_kl=-1)
