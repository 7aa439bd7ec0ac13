import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.kernels.sums import BLOCK, block_sum, tree_sum


@pytest.mark.parametrize("function", [tree_sum, block_sum])
@pytest.mark.parametrize("width", [1, 2, 15, 16, 100])
def test_sums(function, width):
    x = np.random.default_rng(width).normal(size=(3, 2, width)).astype(np.float32)
    np.testing.assert_allclose(function(x), x.astype(np.float64).sum(-1), rtol=1e-5, atol=1e-6)
    gradient = jax.grad(lambda x: jnp.sum(jnp.sin(function(x))))(x)
    expected = np.broadcast_to(np.cos(x.sum(-1, keepdims=True)), x.shape)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


def test_blocks_of_zeros_change_no_bit():
    x = np.random.default_rng(0).normal(size=(5, 100)).astype(np.float32)
    wide = np.zeros((5, 20 * BLOCK), np.float32)
    wide[:, 3 * BLOCK : 3 * BLOCK + 100] = x
    assert np.array_equal(jax.jit(block_sum)(wide), jax.jit(block_sum)(x))
