import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sandbox.errors import InputError
from t1_jax.data.packing import pack, split_microbatches
from t1_jax.data.trajectories import to_document
from t1_jax.sharding import make_mesh
from t1_jax.train.losses import LossConfig, make_loss, sft_loss
from t1_jax.train.optimizer import OptimizerConfig, learning_rate_schedule, make_optimizer
from t1_jax.train.state import abstract_state, init_state, state_shardings
from t1_jax.train.step import batch_logprobs, make_train_step, place_batch
from tests.train.micro import MICRO, micro_params, trajectory

pytestmark = pytest.mark.quick_compile

PARAMS = micro_params()
OPTIMIZER = make_optimizer(OptimizerConfig(learning_rate=1e-2, weight_decay=0.1), 10)
DOCUMENTS = [
    to_document(
        trajectory(f"r{i}", n, seed=i, routes=i % 2 == 0, version=1),
        MICRO,
        advantage=0.5 - i % 2,
        policy_version=3,
    )
    for i, n in enumerate([11, 17, 9, 22, 14, 8])
]
# One compiled function for all tests of values and gradients.
LOSS = make_loss(LossConfig(name="ppo"))


@jax.jit
def loss_and_gradient(params, batch):
    def total(params):
        logprobs, _, _ = batch_logprobs(params, MICRO, batch)
        return (LOSS(logprobs, batch).loss * batch["loss_weights"]).sum()

    return jax.value_and_grad(total)(params)


def close(one, other):
    """Losses to 1e-5; gradients, through four layers of float32, to 1e-4 of each parameter's norm."""
    assert float(one[0]) == pytest.approx(float(other[0]), rel=1e-5)
    for a, b in zip(jax.tree.leaves(one[1]), jax.tree.leaves(other[1]), strict=True):
        assert np.linalg.norm(a - b) <= 1e-4 * np.linalg.norm(b) + 1e-7


def test_packed_is_standalone():
    packed = pack(DOCUMENTS, row_length=32, num_rows=6, routes_shape=(4, 2))
    alone = pack(DOCUMENTS, row_length=32, num_rows=6, plan=[[i] for i in range(6)], routes_shape=(4, 2))
    assert (packed["segment_ids"] > 1).any()
    close(loss_and_gradient(PARAMS, packed), loss_and_gradient(PARAMS, alone))


def test_order_changes_nothing():
    one = pack(DOCUMENTS, row_length=32, num_rows=6)
    other = pack(DOCUMENTS[::-1], row_length=32, num_rows=6)
    close(loss_and_gradient(PARAMS, one), loss_and_gradient(PARAMS, other))


@pytest.fixture(scope="module")
def step():
    return make_train_step(MICRO, OPTIMIZER, make_loss(LossConfig()))


def test_microbatch_split_changes_nothing(step):
    batch = pack(DOCUMENTS, row_length=32)
    rows = len(batch["tokens"])
    one = step(init_state(MICRO, OPTIMIZER, PARAMS), place_batch(split_microbatches(batch, rows)))
    other = step(
        init_state(MICRO, OPTIMIZER, PARAMS), place_batch(split_microbatches(batch, 1, num_microbatches=8))
    )
    for name in one[1]:
        assert float(one[1][name]) == pytest.approx(float(other[1][name]), rel=1e-5, abs=1e-6), name
    # Adam divides by the root of the second moment, which turns rounding of the smallest gradients into whole
    # steps; its first moment is the gradient itself.
    for a, b in zip(*(jax.tree.leaves(result[0].opt_state[1][0].mu) for result in (one, other)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    metrics = {name: float(value) for name, value in one[1].items()}
    assert metrics["train/packed_tokens"] == sum(len(d.tokens) for d in DOCUMENTS)
    assert metrics["train/tokens"] == sum(d.loss_mask.sum() for d in DOCUMENTS)
    recorded = sum(d.routed_valid.sum() for d in DOCUMENTS if d.routed_valid is not None)
    assert metrics["router/replayed_fraction"] == pytest.approx(recorded / metrics["train/packed_tokens"])
    assert metrics["train/staleness"] == metrics["train/staleness_max"] == 2
    assert 0 < metrics["train/entropy"] < np.log(64) + 1e-3


def test_metrics_and_routes_agree_with_the_forward(step):
    batch = pack(DOCUMENTS, row_length=32)
    logprobs, entropy, output = jax.jit(lambda params, batch: batch_logprobs(params, MICRO, batch))(
        PARAMS, batch
    )
    mask = batch["loss_mask"] > 0
    expected = (make_loss(LossConfig())(logprobs, batch).loss * batch["loss_weights"]).sum()
    rows = len(batch["tokens"])
    _, metrics = step(init_state(MICRO, OPTIMIZER, PARAMS), place_batch(split_microbatches(batch, rows)))
    assert float(metrics["train/loss"]) == pytest.approx(float(expected), rel=1e-5)
    assert float(metrics["train/entropy"]) == pytest.approx(float(np.asarray(entropy)[mask].mean()), rel=1e-5)
    difference = np.abs(np.asarray(logprobs) - batch["rollout_logprobs"])[mask]
    assert float(metrics["mismatch/mean_abs_logprob_diff"]) == pytest.approx(difference.mean(), rel=1e-4)
    assert float(metrics["mismatch/max_abs_logprob_diff"]) == pytest.approx(difference.max(), rel=1e-4)
    recorded = (batch["routed_experts"] >= 0).all((-1, -2))
    used = np.asarray(output.routed_experts)
    np.testing.assert_array_equal(used[recorded], batch["routed_experts"][recorded])
    assert recorded.any() and (used[~recorded] >= 0).all()
    taken = used[batch["segment_ids"] > 0]  # [tokens, L, K]
    loads = np.stack([np.bincount(taken[:, layer].ravel(), minlength=4) for layer in range(4)])
    expected = (loads.max(-1) / loads.mean(-1)).mean()
    assert float(metrics["router/load_imbalance"]) == pytest.approx(expected, rel=1e-5)


def test_sft_learns_with_the_balancing_loss():
    step = make_train_step(MICRO, OPTIMIZER, sft_loss, router_aux_loss_coef=0.01, remat_policy="full")
    batch = place_batch(split_microbatches(pack(DOCUMENTS, row_length=32), 2))
    state = init_state(MICRO, OPTIMIZER, PARAMS)
    losses = []
    for _ in range(8):
        state, metrics = step(state, batch)
        losses.append(float(metrics["train/loss"]))
    assert losses[-1] < 0.7 * losses[0]
    assert float(metrics["router/load_balancing_loss"]) >= 0.99
    assert int(state.step) == 8
    assert np.isfinite(np.asarray(PARAMS["embed"])).all(), "the caller's parameters must survive donation"


def test_schedules():
    config = OptimizerConfig(learning_rate=1.0, warmup_steps=4, schedule="cosine", final_fraction=0.1)
    rates = [float(learning_rate_schedule(config, 20)(step)) for step in range(21)]
    np.testing.assert_allclose(rates[:4], [0.25, 0.5, 0.75, 1.0])
    assert (
        rates[4] == 1.0 and rates[20] == pytest.approx(0.1) and rates[4:] == sorted(rates[4:], reverse=True)
    )
    constant = learning_rate_schedule(OptimizerConfig(learning_rate=0.5), 20)
    assert float(constant(0)) == float(constant(19)) == 0.5


def test_decay_spares_vectors():
    still = jax.jit(
        lambda params: OPTIMIZER.update(jax.tree.map(jnp.zeros_like, params), OPTIMIZER.init(params), params)
    )
    updates, _ = still(PARAMS)
    moved = {jax.tree_util.keystr(path, simple=True, separator="/"): bool(leaf.any())
             for path, leaf in jax.tree_util.tree_leaves_with_path(updates)}  # fmt: skip
    assert moved["full/q"] and moved["moe/down"] and moved["embed"]
    for name in (
        "final_norm",
        "linear/A_log",
        "linear/dt_bias",
        "linear/norm",
        "moe/post_norm",
        "full/q_norm",
    ):
        assert not moved[name], name


def test_moments_in_bfloat16_take_half_and_step_alike():
    narrow = make_optimizer(OptimizerConfig(learning_rate=1e-2, weight_decay=0.1, moments="bfloat16"), 10)
    gradients = jax.tree.map(lambda leaf: 0.1 * jnp.sin(1e3 * leaf + 1), PARAMS)

    def two_steps(optimizer):
        _, state = optimizer.update(gradients, optimizer.init(PARAMS), PARAMS)
        second, state = optimizer.update(gradients, state, PARAMS)
        return second, state[1][0]

    (found, moments), (expected, _) = jax.jit(lambda: (two_steps(narrow), two_steps(OPTIMIZER)))()
    assert {leaf.dtype for leaf in jax.tree.leaves((moments.mu, moments.nu))} == {jnp.dtype("bfloat16")}
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(a - b) <= 0.01 * np.linalg.norm(b)
    placed = state_shardings(MICRO, narrow, make_mesh(devices=jax.devices()[:1]))
    assert jax.tree.structure(placed) == jax.tree.structure(abstract_state(MICRO, narrow))
    with pytest.raises(InputError, match=r"optimizer.beta2 is 0.999"):
        OptimizerConfig(moments="bfloat16", beta2=0.999)
