"""The model is transformers' Qwen3_5MoeForCausalLM: logits, experts, balancing loss, gradients, bfloat16.

Against torch where it is installed (`pip install -e '.[parity]'`), and against what torch said (golden/).
Documents are packed into one row here and run one at a time there.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.checkpoint.names import hub_shape, is_matrix, leaves, placements
from t1_jax.model.transformer import forward, logits
from t1_jax.train.losses import load_balancing_loss
from tests.model import oracle


def to_tree(config, made):
    """Tensors by transformers' names as parameters."""
    tree = {}
    for leaf, spec in leaves(config).items():
        parts = [made[place.name].reshape(-1) for place in placements(config) if place.leaf == leaf]
        flat = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        array = flat.reshape(hub_shape(leaf, spec.shape))
        *groups, name = leaf.split("/")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = np.swapaxes(array, -1, -2) if is_matrix(leaf) else array
    return tree


def to_tensors(config, tree):
    """The inverse of `to_tree`."""
    found = {}
    for place in placements(config):
        array = tree
        for key in place.leaf.split("/"):
            array = array[key]
        flat = np.asarray(np.swapaxes(array, -1, -2) if is_matrix(place.leaf) else array).reshape(-1)
        found[place.name] = flat[place.offset : place.offset + place.size].reshape(place.shape)
    return found


def row_of(docs):
    """tokens, segment ids and positions [1, T] of documents in one row."""
    segments = [np.full(len(tokens), number) for number, tokens in enumerate(docs, 1)]
    parts = docs, segments, [np.arange(len(tokens)) for tokens in docs]
    return [np.concatenate(part)[None].astype(np.int32) for part in parts]


# Compiling is all the work here.
@partial(jax.jit, static_argnums=1, compiler_options={"xla_backend_optimization_level": 0})
def only_logits(params, config, tokens, segment_ids, positions):
    out = forward(params, config, tokens, segment_ids=segment_ids, positions=positions)
    return logits(params, config, out.hidden)


@partial(jax.jit, static_argnums=(1, 5), compiler_options={"xla_backend_optimization_level": 0})
def run(params, config, tokens, segment_ids, positions, count):
    """The same loss as `oracle.torch_results`: (gradient, (logits, Output, aux loss of every document))."""

    def loss(params):
        out = forward(params, config, tokens, segment_ids=segment_ids, positions=positions)
        given = logits(params, config, out.hidden)
        follows = (segment_ids == jnp.roll(segment_ids, -1, 1)).at[:, -1].set(False)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(given), jnp.roll(tokens, -1, 1)[..., None], -1)
        aux = jnp.stack(
            [
                load_balancing_loss(out.router_logits, out.routed_experts, segment_ids == number)
                for number in range(1, count + 1)
            ]
        )
        total = -jnp.sum(jnp.where(follows, chosen[..., 0], 0)) + oracle.AUX_COEFFICIENT * aux.sum()
        return total, (given, out, aux)

    return jax.grad(loss, has_aux=True)(params)


def compare(config, made, docs, found):
    gradient, (given, out, aux) = run(to_tree(config, made), config, *row_of(docs), len(docs))
    start = 0
    for number, tokens in enumerate(docs):
        part, start = slice(start, start + len(tokens)), start + len(tokens)
        expected = found[f"{number}/logits"]
        scale = np.abs(expected).max()
        assert np.abs(given[0, part] - expected).max() <= 1e-4 * scale, len(tokens)
        router = found[f"{number}/router"]
        ordered = np.sort(router, axis=-1)
        k = config.num_experts_per_tok
        clear = np.ones(router.shape[:2], bool)
        if k < config.num_experts:
            clear = ordered[..., -k] - ordered[..., -k - 1] > 1e-5
        chosen = np.sort(np.argsort(-router, axis=-1)[..., :k])
        np.testing.assert_array_equal(np.sort(out.routed_experts[0, part])[clear], chosen[clear])
        assert clear.mean() > 0.99
        assert float(aux[number]) == pytest.approx(float(found[f"{number}/aux"]), rel=1e-5)
    for name, mine in to_tensors(config, gradient).items():
        theirs = found[f"gradient/{name}"]
        assert np.linalg.norm(mine - theirs) <= 1e-4 * np.linalg.norm(theirs), name
        assert np.linalg.norm(theirs) > 0, name


@oracle.with_torch
@pytest.mark.parametrize("name", oracle.CONFIGS)
def test_the_model_is_that_of_transformers(name):
    config = oracle.CONFIGS[name]
    made, docs = oracle.weights(config), oracle.documents(config)
    compare(config, made, docs, oracle.torch_results(config, made, docs))


@oracle.with_torch
@pytest.mark.parametrize("name", oracle.GOLDEN_CONFIGS)
def test_the_oracle_is_exact_enough_to_be_one(name):
    """What float32 alone does to it: random weights of another scale make that 1e-3 and more."""
    config = oracle.CONFIGS[name]
    made, docs = oracle.weights(config), oracle.documents(config, oracle.GOLDEN_LENGTHS)
    found = oracle.torch_results(config, made, docs)
    with oracle.in_float64():
        exact = oracle.torch_results(config, made, docs, "float64")
    for key, array in exact.items():
        assert array.dtype == np.float64 and np.linalg.norm(found[key] - array) > 0, key
        assert np.linalg.norm(found[key] - array) <= 1e-4 * np.linalg.norm(array), key


@oracle.with_torch
@pytest.mark.parametrize("name", oracle.GOLDEN_CONFIGS)
def test_golden_arrays_are_what_torch_says(name):
    config, found = oracle.CONFIGS[name], np.load(oracle.golden_path(name))
    made = oracle.weights(config)
    again = oracle.torch_results(config, made, oracle.documents(config, oracle.GOLDEN_LENGTHS))
    assert oracle.checksum(made) == found["weights"] and {*found.files} == {*again, "weights"}
    for key, array in again.items():
        assert np.linalg.norm(found[key] - array) <= 1e-4 * np.linalg.norm(array), key


@oracle.without_torch
@pytest.mark.parametrize("name", oracle.GOLDEN_CONFIGS)
def test_golden_arrays(name):
    config = oracle.CONFIGS[name]
    made = oracle.weights(config)
    found = np.load(oracle.golden_path(name))
    assert oracle.checksum(made) == found["weights"], (
        "NumPy draws other weights: python -m tests.model.oracle"
    )
    compare(config, made, oracle.documents(config, oracle.GOLDEN_LENGTHS), found)


@oracle.with_torch
def test_bfloat16_is_as_near_to_float32_as_that_of_transformers():
    """Mean KL divergence from the float32 distribution, over several models."""
    ours, theirs = [], []
    for name in ("four to one", "sixteen to one", "wide shared expert"):
        config = oracle.CONFIGS[name]
        made, docs = oracle.weights(config), oracle.documents(config, (65, 200))
        narrow = dataclasses.replace(config, dtype="bfloat16")
        given = only_logits(to_tree(config, made), narrow, *row_of(docs))
        exact, rounded = (oracle.torch_model(config, made, dtype) for dtype in ("float32", "bfloat16"))
        start = 0
        for tokens in docs:
            target, other, mine = (
                np.asarray(jax.nn.log_softmax(side))
                for side in (
                    oracle.torch_run(exact, tokens)[0],
                    oracle.torch_run(rounded, tokens)[0],
                    given[0, start : start + len(tokens)],
                )
            )
            start += len(tokens)
            theirs.append(np.sum(np.exp(target) * (target - other), -1))
            ours.append(np.sum(np.exp(target) * (target - mine), -1))
    ours_mean, theirs_mean = np.concatenate(ours).mean(), np.concatenate(theirs).mean()
    assert 0 < ours_mean <= 1.2 * theirs_mean, (ours_mean, theirs_mean)
