"""The multi-token prediction head: its equations in NumPy float64, its gradient, and what it leaves alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sandbox.errors import InputError
from t1_jax.data.packing import pack, split_microbatches
from t1_jax.data.trajectories import to_document
from t1_jax.model.transformer import forward
from t1_jax.train.loop import model_config
from t1_jax.train.losses import sft_loss
from t1_jax.train.optimizer import OptimizerConfig, make_optimizer
from t1_jax.train.state import init_state
from t1_jax.train.step import make_train_step, mtp_logprobs, place_batch
from tests.fresh import fresh_params
from tests.train.micro import MICRO, trajectory

CONFIG = dataclasses.replace(MICRO, mtp_num_hidden_layers=1, num_hidden_layers=2, full_attention_interval=2)
LENGTHS = (11, 2, 9)


@pytest.fixture(scope="module")
def params():
    """Random, with norms that differ from one."""
    drawn = fresh_params(CONFIG)
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: leaf + 0.1 * rng.standard_normal(leaf.shape, np.float32), drawn)


@pytest.fixture(scope="module")
def batch():
    documents = [to_document(trajectory(f"r{n}", n, seed=n), CONFIG) for n in LENGTHS]
    return pack(documents, row_length=24)


@jax.jit
def loss_of_head(params, batch):
    """((loss, log-probs, where they are), gradient); weights differ by token."""

    def loss(params):
        hidden = forward(
            params, CONFIG, batch["tokens"], segment_ids=batch["segment_ids"], positions=batch["positions"]
        ).hidden
        logprobs, known = mtp_logprobs(params, CONFIG, batch, hidden)
        weights = 1 + jnp.arange(known.shape[1]) % 5
        return -jnp.sum(jnp.where(known, logprobs, 0) * weights), (logprobs, known, hidden)

    return jax.value_and_grad(loss, has_aux=True)(params)


def normed(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + CONFIG.rms_norm_eps) * (1 + weight)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def swiglu(x, gate_up):
    gate, up = np.split(x @ gate_up, 2, axis=-1)
    return gate * sigmoid(gate) * up


def turned(x):
    """Rotary positions of [T, heads, dim], one pair of dimensions after the other."""
    half = CONFIG.rotary_dim // 2
    out = x.copy()
    for position in range(len(x)):
        for pair in range(half):
            angle = position * CONFIG.rope_theta ** (-pair / half)
            a, b = x[position, :, pair], x[position, :, pair + half]
            out[position, :, pair] = a * np.cos(angle) - b * np.sin(angle)
            out[position, :, pair + half] = b * np.cos(angle) + a * np.sin(angle)
    return out


def attention(x, p):
    count, heads, kv, dim = len(x), CONFIG.num_attention_heads, CONFIG.num_key_value_heads, CONFIG.head_dim
    q, gate = np.split((x @ p["q"]).reshape(count, heads, 2 * dim), 2, axis=-1)
    q = turned(normed(q, p["q_norm"]))
    k = turned(normed((x @ p["k"]).reshape(count, kv, dim), p["k_norm"]))
    v = (x @ p["v"]).reshape(count, kv, dim)
    out = np.zeros((count, heads, dim))
    for head in range(heads):
        of = head * kv // heads
        for t in range(count):
            scores = np.exp(k[: t + 1, of] @ q[t, head] * dim**-0.5)
            out[t, head] = scores @ v[: t + 1, of] / scores.sum()
    return (out * sigmoid(gate)).reshape(count, -1) @ p["o"]


def experts(x, p):
    out = sigmoid(x @ p["shared_gate"]) * (swiglu(x, p["shared_gate_up"]) @ p["shared_down"])
    odds = np.exp(x @ p["router"])
    for t, row in enumerate(odds):
        chosen = np.argsort(-row)[: CONFIG.num_experts_per_tok]
        for expert in chosen:
            value = swiglu(x[t], p["gate_up"][expert]) @ p["down"][expert]
            out[t] += row[expert] / row[chosen].sum() * value
    return out


def reference(params, hidden, tokens):
    """Log-probs of tokens[2:] of one document; `hidden` is of its tokens."""
    head, moe = params["mtp"], params["mtp"]["moe"]
    embedded = normed(params["embed"][tokens[1:]], head["pre_fc_norm_embedding"])
    x = np.concatenate([embedded, normed(hidden[:-1], head["pre_fc_norm_hidden"])], -1) @ head["fc"]
    x = x + attention(normed(x, moe["input_norm"]), head["full"])
    x = x + experts(normed(x, moe["post_norm"]), moe)
    logits = normed(x, head["norm"]) @ params["lm_head"]
    logits = logits[:-1] - logits[:-1].max(-1, keepdims=True)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return logprobs[np.arange(len(tokens) - 2), tokens[2:]]


def reference_loss(params, hidden, batch):
    weights, total = 1 + np.arange(batch["tokens"].shape[1]) % 5, 0.0
    for row, segments in enumerate(batch["segment_ids"]):
        for number in range(1, segments.max() + 1):
            places = np.flatnonzero(segments == number)
            if len(places) > 2:
                logprobs = reference(params, hidden[row, places], batch["tokens"][row, places])
                total -= (logprobs * weights[places[2:]]).sum()
    return total


def test_log_probs_and_gradient_are_those_of_the_equations(params, batch):
    (value, (logprobs, known, hidden)), gradient = loss_of_head(params, batch)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    hidden = np.asarray(hidden, np.float64)
    assert known.sum() == sum(max(0, length - 2) for length in LENGTHS)
    first = np.flatnonzero(batch["segment_ids"][0] == 1)
    np.testing.assert_allclose(
        logprobs[0, first[2:]],
        reference(exact, hidden[0, first], batch["tokens"][0, first]),
        rtol=1e-5,
        atol=1e-5,
    )
    assert float(value) == pytest.approx(reference_loss(exact, hidden, batch), rel=1e-5)
    rng = np.random.default_rng(2)
    paths, structure = jax.tree_util.tree_flatten_with_path(exact["mtp"])
    for number, (path, leaf) in enumerate(paths):
        direction, step = rng.standard_normal(leaf.shape), 1e-6
        sides = []
        for sign in (1, -1):
            moved = [other for _, other in paths]
            moved[number] = leaf + sign * step * direction
            head = jax.tree.unflatten(structure, moved)
            sides.append(reference_loss({**exact, "mtp": head}, hidden, batch))
        slope = (sides[0] - sides[1]) / (2 * step)
        mine = np.asarray(jax.tree.leaves(gradient["mtp"])[number], np.float64)
        scale = np.linalg.norm(mine) * np.linalg.norm(direction) / np.sqrt(leaf.size)
        assert abs((mine * direction).sum() - slope) <= 1e-4 * scale, jax.tree_util.keystr(path)
        assert scale > 0


def test_only_the_head_learns_from_it(params, batch):
    gradient = loss_of_head(params, batch)[1]
    for name, part in gradient.items():
        if name != "mtp":
            assert not any(np.any(leaf) for leaf in jax.tree.leaves(part)), name


def test_a_step_trains_it_when_asked(params, batch):
    optimizer = make_optimizer(OptimizerConfig(learning_rate=1e-2), 10)
    split = place_batch(split_microbatches(batch, len(batch["tokens"])))
    results = {}
    for weight in (0.0, 0.5):
        step = make_train_step(CONFIG, optimizer, sft_loss, mtp_loss_weight=weight)
        state, losses = init_state(CONFIG, optimizer, params), []
        for _ in range(3):
            state, metrics = step(state, split)
            losses.append(metrics)
        results[weight] = state.params, losses
    assert "train/mtp_loss" not in results[0.0][1][0]
    trained, losses = results[0.5]
    assert losses[0]["train/mtp_loss"] > losses[1]["train/mtp_loss"] > losses[2]["train/mtp_loss"] > 0
    moved = [
        np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (trained["mtp"], params["mtp"])), strict=True)
    ]
    assert all(moved)
    # The gradients' common norm is clipped, and the loss of the policy is the same one.
    assert float(losses[0]["train/loss"]) == pytest.approx(float(results[0.0][1][0]["train/loss"]), rel=1e-6)


def test_a_head_to_train_must_be_there():
    assert model_config(CONFIG, None, mtp=True) == CONFIG
    with pytest.raises(InputError, match="mtp_num_hidden_layers is 0, expected 1 to train an MTP head"):
        model_config(MICRO, None, mtp=True)


def test_it_is_no_part_of_the_routing_record(params, batch):
    without = {name: part for name, part in params.items() if name != "mtp"}
    plain = dataclasses.replace(CONFIG, mtp_num_hidden_layers=0)
    run = jax.jit(lambda params, config: forward(params, config, batch["tokens"]), static_argnums=1)
    with_head, alone = run(params, CONFIG), run(without, plain)
    assert with_head.routed_experts.shape[2] == CONFIG.num_moe_layers == CONFIG.num_hidden_layers
    np.testing.assert_array_equal(with_head.routed_experts, alone.routed_experts)
    np.testing.assert_array_equal(with_head.hidden, alone.hidden)
