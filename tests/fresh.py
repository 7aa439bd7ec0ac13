"""Fresh parameters for tests."""

from __future__ import annotations

from typing import Any

import jax

from t1_jax.model.config import ModelConfig
from t1_jax.model.transformer import init_params

# One function is compiled faster than leaf by leaf, and what runs once is not worth LLVM's optimisations.
_init = jax.jit(init_params, static_argnums=0, compiler_options={"xla_backend_optimization_level": 0})


def fresh_params(config: ModelConfig, seed: int = 0) -> Any:
    """Float32 master parameters of the model, drawn by seed."""
    return _init(config, jax.random.key(seed))
