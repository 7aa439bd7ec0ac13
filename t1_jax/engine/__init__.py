"""The inference engine: a JAX server in its own process that records every token's experts."""

from t1_jax.engine.server import ServeConfig, serve

__all__ = ["ServeConfig", "serve"]
