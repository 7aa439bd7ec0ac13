import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.engine.sampler import sample, seed_data, truncation_mask

LOGITS = np.log(np.array([0.5, 0.2, 0.15, 0.1, 0.05], np.float32))


ROWS = 10000
jitted = jax.jit(sample, static_argnames="truncate")


def draw(*, temperature=1.0, top_p=1.0, top_k=-1, seed=0, truncate=True):
    """One draw at each of ROWS positions: (ids, log-probs)."""
    ids, logprobs = jitted(
        np.tile(LOGITS, (ROWS, 1)),
        np.tile(np.array(seed_data(seed), np.uint32), (ROWS, 1)),
        np.arange(ROWS, dtype=np.int32),
        np.full(ROWS, temperature, np.float32),
        np.full(ROWS, top_p, np.float32),
        np.full(ROWS, top_k, np.int32),
        truncate=truncate,
    )
    return np.asarray(ids), np.asarray(logprobs)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, 2),
        ({"top_p": 0.5}, 1),
        ({"top_p": 0.6}, 2),
        ({"top_p": 0.9}, 4),
        ({}, 5),
        ({"top_k": 3, "top_p": 0.8}, 2),  # 0.5 and 0.2 are 0.82 of what top_k leaves
        ({"top_p": 1e-6}, 1),
        ({"top_k": 99}, 5),
    ],
)
def test_truncation_keeps_the_most_likely(options, kept):
    top_p, top_k = options.get("top_p", 1.0), options.get("top_k", -1)
    mask = truncation_mask(jnp.asarray(LOGITS)[None], jnp.array([top_p]), jnp.array([top_k]))
    assert np.asarray(mask)[0].tolist() == [i < kept for i in range(5)]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_draws_follow_the_distribution_that_their_logprobs_tell(temperature):
    ids, logprobs = draw(temperature=temperature, truncate=False)
    expected = np.asarray(jax.nn.softmax(LOGITS / temperature))
    np.testing.assert_allclose(np.bincount(ids, minlength=5) / ROWS, expected, atol=0.02)
    np.testing.assert_allclose(np.exp(logprobs), expected[np.asarray(ids)], rtol=1e-5)


def test_logprobs_are_those_of_the_truncated_distribution():
    ids, logprobs = draw(top_k=2)
    assert set(np.asarray(ids).tolist()) == {0, 1}
    np.testing.assert_allclose(np.exp(logprobs), np.array([0.5, 0.2])[np.asarray(ids)] / 0.7, rtol=1e-5)


def test_truncated_variant_agrees_where_nothing_is_cut():
    plain, sorted_ = draw(truncate=False), draw(truncate=True)
    np.testing.assert_array_equal(plain[0], sorted_[0])
    np.testing.assert_allclose(plain[1], sorted_[1], atol=1e-6)


def test_greedy_ignores_the_seed_and_truncation():
    ids, logprobs = draw(temperature=0.0, top_k=1, seed=3)
    assert set(np.asarray(ids).tolist()) == {0}
    np.testing.assert_allclose(logprobs, np.log(0.5), atol=1e-6)


def test_both_words_of_a_seed_matter():
    low, high = draw(seed=5)[0], draw(seed=5 + 2**32)[0]
    assert (np.asarray(low) != np.asarray(high)).any()
    np.testing.assert_array_equal(low, draw(seed=5)[0])
