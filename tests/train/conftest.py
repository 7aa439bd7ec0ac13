"""Runs that are stopped and resumed compile the same step again: the tests share what was compiled."""

import jax
import pytest


@pytest.fixture(scope="package", autouse=True)
def compilation_cache(tmp_path_factory):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    yield
    jax.config.update("jax_compilation_cache_dir", None)
