"""The training state, and where its parts live on a mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from t1_jax.model.config import ModelConfig
from t1_jax.model.parameters import abstract, shapes
from t1_jax.sharding import param_shardings


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class TrainState:
    """What one optimizer step reads and writes: a pytree."""

    step: Any  # int32 scalar, optimizer steps taken
    params: Any  # nested dict of float32 arrays
    opt_state: Any  # of optax, float32 moments like params


def make_state(params: Any, optimizer: optax.GradientTransformation) -> TrainState:
    """A state at step 0. Traceable, so that it can be made sharded."""
    return TrainState(step=jnp.zeros((), jnp.int32), params=params, opt_state=optimizer.init(params))


def state_shardings(config: ModelConfig, optimizer: optax.GradientTransformation, mesh: Mesh) -> TrainState:
    """NamedShardings in the form of the state: moments lie where their parameters lie, scalars everywhere."""
    params = shapes(config)
    shardings = param_shardings(abstract(config), mesh)
    replicated = NamedSharding(mesh, PartitionSpec())
    opt_state = optax.tree_map_params(
        optimizer,
        lambda _, sharding: sharding,
        jax.eval_shape(optimizer.init, params),
        shardings,
        transform_non_params=lambda _: replicated,
    )
    return TrainState(step=replicated, params=shardings, opt_state=opt_state)


def abstract_state(
    config: ModelConfig, optimizer: optax.GradientTransformation, mesh: Mesh | None = None
) -> TrainState:
    """Shapes, dtypes and (with a mesh) shardings of a state, as restoring needs them."""
    state = jax.eval_shape(lambda params: make_state(params, optimizer), shapes(config))
    if mesh is None:
        return state
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        state,
        state_shardings(config, optimizer, mesh),
    )


def init_state(
    config: ModelConfig, optimizer: optax.GradientTransformation, params: Any, mesh: Mesh | None = None
) -> TrainState:
    """A state at step 0 from given parameters, placed on the mesh. Copies: a donated step must not eat the
    argument.
    """
    build = jax.jit(
        lambda params: make_state(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params), optimizer),
        out_shardings=None if mesh is None else state_shardings(config, optimizer, mesh),
    )
    return build(params)
