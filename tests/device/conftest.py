"""Tests of an accelerator. They run where JAX sees one: `JAX_PLATFORMS= pytest tests/device`."""

import jax
import pytest


@pytest.fixture(autouse=True)
def accelerator():
    """The first accelerator's platform; where there is none there is nothing that these tests could check."""
    if jax.default_backend() == "cpu":
        pytest.skip("JAX sees no GPU or TPU here; run JAX_PLATFORMS= pytest tests/device where there is one")
    return jax.default_backend()
