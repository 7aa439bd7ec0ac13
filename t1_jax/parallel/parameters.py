"""From the part of a parameter that a device stores to the part that it computes with.

Legend: t devices along the tensor axis, g along all others that store parts.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from t1_jax.parallel.axes import Parallel
from t1_jax.sharding import AXES

# Dimensions whose columns are computed on one tensor device each.
_COLUMNS = ("heads", "mlp", "vocab")


def gather_params(parallel: Parallel, specs: Any, params: Any) -> Any:
    """The parameters of a layer, each as this device computes with it: whole, but for experts (its own) and
    for heads, vocabulary and expert width (its share over tensor).

    Args:
      parallel: the device's view of the mesh.
      specs: tree of `ParamSpec`; leading "layers" dimensions may have been scanned away from `params`.
      params: in the same form, the stored parts.
    """
    if parallel.devices == 1:
        return params
    return jax.tree.map(
        lambda spec, leaf: _gather(parallel, spec, leaf), specs, params, is_leaf=lambda x: hasattr(x, "axes")
    )


def _gather(parallel: Parallel, spec: Any, leaf: jax.Array) -> jax.Array:
    names = spec.axes[-leaf.ndim :]
    stored = parallel.storage(spec)[-leaf.ndim :]
    columns = next((dim for dim, name in enumerate(names) if name in _COLUMNS), None)
    exchanged = parallel.size("tensor") == 1
    for dim, (name, axes) in enumerate(zip(names, stored, strict=True)):
        if name == "expert":
            continue
        if name == "rows":
            axes = tuple(axis for axis in axes if axis != "tensor")  # a device multiplies its own rows
        elif columns is not None and "tensor" in axes and not exchanged and _divides(parallel, spec):
            axes, exchanged = axes[:-1], True
            leaf = _by_rank(parallel, spec, leaf, columns)
            leaf = parallel.exchange(leaf, "tensor", split=columns, join=dim)
        leaf = parallel.gather(leaf, *axes, dim=dim)
    if columns is not None and not exchanged:
        leaf = _own_columns(parallel, spec, leaf, columns)
    return leaf


def _divides(parallel: Parallel, spec: Any) -> bool:
    return spec.units is None or spec.units % parallel.size("tensor") == 0


def _by_rank(parallel: Parallel, spec: Any, leaf: jax.Array, dim: int) -> jax.Array:
    """Columns reordered so that those of tensor rank 0 come first, of every part."""
    if len(spec.parts) < 2:
        return leaf
    t = parallel.size("tensor")
    ends = [sum(spec.parts[: i + 1]) for i in range(len(spec.parts) - 1)]
    parts = jnp.split(leaf, ends, axis=dim)
    split = [part.reshape(*part.shape[:dim], t, -1, *part.shape[dim + 1 :]) for part in parts]
    return jnp.concatenate(split, axis=dim + 1).reshape(leaf.shape)


def _own_columns(parallel: Parallel, spec: Any, leaf: jax.Array, dim: int) -> jax.Array:
    """This tensor rank's columns of a whole matrix. Ranks share a head where there are more ranks than heads:
    their gradients add up.
    """
    if _divides(parallel, spec):
        return parallel.part(_by_rank(parallel, spec, leaf, dim), "tensor", dim)
    width = leaf.shape[dim] // spec.units
    head = parallel.rank("tensor") * spec.units // parallel.size("tensor")
    return jax.lax.dynamic_slice_in_dim(leaf, head * width, width, dim)


def sum_gradients(parallel: Parallel, specs: Any, gradients: Any) -> Any:
    """Add up the gradients of the copies of each parameter, over the axes that do not split its storage."""

    def total(spec: Any, gradient: jax.Array) -> jax.Array:
        split = {axis for axes in parallel.storage(spec) for axis in axes}
        return parallel.sum(gradient, *(axis for axis in AXES if axis not in split))

    return jax.tree.map(total, specs, gradients, is_leaf=lambda x: hasattr(x, "axes"))
