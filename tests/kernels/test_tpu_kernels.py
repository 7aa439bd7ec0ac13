"""The TPU kernels, run by Pallas's interpreter, against the references: values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.kernels.attention import packed_attention
from t1_jax.kernels.grouped_matmul import grouped_matmul, megablox_matmul
from t1_jax.kernels.splash import splash_attention


def close(one, other, tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


@pytest.mark.parametrize("sizes", [(128, 0, 128, 0), (0, 0, 384, 0), (128, 128, 0, 128)])
def test_megablox(sizes):
    rows, matrices = (
        jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(384, 128), (4, 128, 128)])
    )
    sizes = jnp.asarray(sizes)
    filled = (jnp.arange(384) < sizes.sum())[:, None]

    def total(multiply):
        return jax.value_and_grad(lambda a, b: jnp.sum(jnp.sin(multiply(a, b))), argnums=(0, 1))

    def reference(a, b):
        return jnp.where(filled, grouped_matmul(a, b, sizes, block=128, implementation="reference"), 0)

    found = total(lambda a, b: megablox_matmul(a, b, sizes, 128, True))(rows, matrices)
    close(found, total(reference)(rows, matrices), 1e-5)


def test_splash():
    keys = jax.random.split(jax.random.key(0), 4)
    q = jax.random.normal(keys[0], (2, 128, 4, 256))
    k, v = (jax.random.normal(key, (2, 128, 2, 256)) for key in keys[1:3])
    place = np.arange(128)
    segments = jnp.asarray(np.stack([1 + (place > 40) - 2 * (place > 110), np.ones(128)]), jnp.int32)
    weights = jax.random.normal(keys[3], q.shape) * (segments > 0)[:, :, None, None]

    def total(attend):
        return jax.value_and_grad(lambda *qkv: jnp.sum(attend(*qkv) * weights), argnums=(0, 1, 2))

    found = total(lambda *qkv: splash_attention(*qkv, segments, segments, interpret=True))(q, k, v)
    close(found, total(lambda *qkv: packed_attention(*qkv, segments))(q, k, v), 1e-5)


def test_splash_refuses_lengths_that_are_no_blocks():
    q, ids = jnp.zeros((1, 100, 2, 256)), jnp.zeros((1, 100), jnp.int32)
    with pytest.raises(ValueError, match="multiple of 128"):
        splash_attention(q, q, q, ids, ids)
