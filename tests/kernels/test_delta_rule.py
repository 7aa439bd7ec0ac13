import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.kernels.delta_rule import (
    chunk_size,
    delta_rule_chunked,
    delta_rule_reference,
    delta_rule_resumed,
    unit_lower_inverse,
)

LENGTHS = (2, 33, 70)


def inputs(length, segments):
    keys = jax.random.split(jax.random.key(length), 6)
    shape = (2, length, 2)
    q, k = (jax.random.normal(key, (*shape, 4)) / 2 for key in keys[:2])
    v = jax.random.normal(keys[2], (*shape, 3))
    g = -jax.random.exponential(keys[3], shape)
    beta = jax.nn.sigmoid(jax.random.normal(keys[4], shape))
    state = jax.random.normal(keys[5], (2, 2, 4, 3))
    return (q, k, v, g, beta, state), jnp.asarray(segments, jnp.int32)


def layouts(length):
    """Rows of one document; a document that ends early beside many short ones; a document a token."""
    place = np.arange(length)
    return (
        np.ones((2, length)),
        np.stack([1 + (place > length // 3), 1 + place // 5]),
        np.stack([1 + place, np.where(place < length - 1, 1, 0)]),
    )


def weighed(function):
    @jax.jit
    def run(arrays, segments):
        def total(arrays):
            *parts, state = arrays
            out, state = function(*parts, segments, state)
            return jnp.sum(jnp.sin(out)) + jnp.sum(jnp.cos(state)), (out, state)

        return jax.value_and_grad(total, has_aux=True)(arrays)

    return run


chunked, reference = weighed(delta_rule_chunked), weighed(delta_rule_reference)


@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_are_token_by_token(length):
    for segments in layouts(length):
        arrays, segments = inputs(length, segments)
        one, other = chunked(arrays, segments), reference(arrays, segments)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def test_padding_tokens_leave_the_state():
    (q, k, v, g, beta, state), segments = inputs(8, np.ones((2, 8)))
    place = jnp.arange(8)[None, :, None]
    g, beta = jnp.where(place < 5, g, 0.0), jnp.where(place < 5, beta, 0.0)
    (_, (_, padded)), _ = chunked((q, k, v, g, beta, state), segments)
    short = tuple(x[:, :5] for x in (q, k, v, g, beta))
    _, expected = delta_rule_reference(*short, segments[:, :5], state)
    np.testing.assert_allclose(padded, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 4, 8, 16, 32])
def test_inverse_of_unit_lower_triangular(size):
    a = np.tril(np.random.default_rng(size).normal(size=(3, size, size)), -1).astype(np.float32) / 2
    expected = np.linalg.inv(np.eye(size) + a.astype(np.float64))
    np.testing.assert_allclose(
        unit_lower_inverse(jnp.asarray(a)), expected, rtol=1e-4, atol=1e-5 * abs(expected).max()
    )


def test_gradient_of_the_inverse():
    a = jnp.tril(jax.random.normal(jax.random.key(0), (2, 16, 16)), -1) / 4
    weights = jax.random.normal(jax.random.key(1), a.shape)

    def by_numpy(a):
        return jnp.sum(jnp.linalg.inv(jnp.eye(16) + jnp.tril(a, -1)) * weights)

    gradient = jax.grad(lambda a: jnp.sum(unit_lower_inverse(a) * weights))(a)
    np.testing.assert_allclose(gradient, jax.grad(by_numpy)(a), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("pieces", [[70], [1] * 70, [3, 1, 29, 1, 1, 16, 19], [16, 16, 32, 6]])
def test_pieces_give_the_bits_of_one_pass(pieces):
    """The second row is five tokens shorter: they are padding in the piece that they fall in."""
    (q, k, v, g, beta, _), segments = inputs(70, np.ones((2, 70)))
    shape, chunk = (2, 2, 4, 3), chunk_size()
    whole, _ = jax.jit(delta_rule_chunked)(q, k, v, g, beta, segments, jnp.zeros(shape))
    resumed, read, start = jax.jit(delta_rule_resumed), jnp.zeros(2, jnp.int32), 0
    pending, state, outs = jnp.zeros((2, chunk, 2 * (4 + 3 + 2))), jnp.zeros(shape), []
    for size in pieces:
        parts = [x[:, start : start + size] for x in (q, k, v, g, beta)]
        count = jnp.clip(jnp.array([70, 65]) - start, 0, size)
        out, pending, state = resumed(*parts, count, read, pending, state)
        outs.append(out)
        read, start = read + count, start + size
    out = np.concatenate(outs, axis=1)
    assert np.array_equal(out[0], whole[0]) and np.array_equal(out[1, :65], whole[1, :65])
