"""What is compiled once is compiled once: one XLA cache for all tests, their processes, and the next run.

Set before anything imports jax. The folder is pytest's own cache, which `pytest --cache-clear` empties.
"""

import os
import sys
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "d" / "xla"

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The marker `quick_compile`, before any fixture. Processes that a test starts compile as users' do."""
    if jax := sys.modules.get("jax"):
        quick = item.get_closest_marker("quick_compile") is not None
        jax.config.update("jax_disable_most_optimizations", quick)
