import numpy as np
import pytest

from sandbox.statistics import bootstrap_ci, paired_bootstrap


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = sum(
        low <= 0.3 <= high for low, high in (bootstrap_ci(rng.random(40) < 0.3, seed=k) for k in range(60))
    )
    assert 50 <= hits <= 60


def test_the_interval_agrees_with_the_normal_one_and_is_reproducible():
    values = np.random.default_rng(1).normal(5.0, 2.0, 400)
    low, high = bootstrap_ci(values.tolist(), seed=3)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - half, abs=0.03)
    assert high == pytest.approx(values.mean() + half, abs=0.03)
    assert (low, high) == bootstrap_ci(values.tolist(), seed=3)


def test_edges():
    assert bootstrap_ci([0.25]) == (0.25, 0.25)
    assert all(np.isnan(bootstrap_ci([])))
    with pytest.raises(ValueError, match="pairs"):
        paired_bootstrap([1.0], [1.0, 2.0])


def test_pairing_sees_a_small_gain_that_varies_less_than_the_tasks():
    first = np.random.default_rng(2).random(50)
    second = first + 0.05
    mean, (low, high) = paired_bootstrap(first.tolist(), second.tolist())
    assert mean == pytest.approx(0.05)
    assert low == pytest.approx(0.05) and high == pytest.approx(0.05)
