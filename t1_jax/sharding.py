"""The device mesh and the rules that place every array on it. Axes of size one stay, so specs never change.

replica: copies of the parameters, each with its share of the batch; fsdp: parameters split, gathered when
used; expert: experts split; context: the sequence split; tensor: heads and expert width split.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sandbox.errors import InputError

AXES = ("replica", "fsdp", "expert", "context", "tensor")

# Logical axis of a parameter -> mesh axis. What is not named here is never split.
RULES = {
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "expert": "expert",
}


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Devices along each axis; -1 (at most once) takes all that are left."""

    replica: int = 1
    fsdp: int = -1
    expert: int = 1
    context: int = 1
    tensor: int = 1


def make_mesh(config: MeshConfig | None = None, devices: list[Any] | None = None) -> Mesh:
    """Lay the devices out on the five axes. Raises InputError when the sizes do not fit."""
    devices = jax.devices() if devices is None else devices
    sizes = [getattr(config or MeshConfig(), axis) for axis in AXES]
    if sizes.count(-1) > 1:
        raise InputError("mesh: at most one axis may be -1")
    if -1 in sizes and 0 not in sizes:
        sizes[sizes.index(-1)] = max(1, len(devices) // abs(math.prod(sizes)))
    if math.prod(sizes) != len(devices) or min(sizes) < 1:
        shape = " x ".join(f"{axis} {size}" for axis, size in zip(AXES, sizes, strict=True))
        raise InputError(f"mesh: {shape} does not use exactly the {len(devices)} devices present")
    return Mesh(np.asarray(devices).reshape(sizes), AXES)


def param_shardings(specs: Any, mesh: Mesh) -> Any:
    """Shardings for a tree of `ParamSpec`. A dimension that its mesh axis does not divide stays whole."""

    def place(spec: Any) -> NamedSharding:
        used: set[str] = set()
        parts: list[str | None] = []
        for size, name in zip(spec.shape, spec.axes, strict=True):
            axis = RULES.get(name)
            if axis in used or axis is None or size % mesh.shape[axis]:
                axis = None
            else:
                used.add(axis)
            parts.append(axis)
        return NamedSharding(mesh, PartitionSpec(*parts))

    return jax.tree.map(place, specs, is_leaf=lambda leaf: hasattr(leaf, "axes"))


def batch_sharding(mesh: Mesh, leading: int = 0) -> NamedSharding:
    """Rows over every data axis (experts included: their devices hold different rows), tokens over context.

    `leading` counts unsplit axes before the rows, such as the microbatches of a step.
    """
    return NamedSharding(mesh, PartitionSpec(*[None] * leading, ("replica", "fsdp", "expert"), "context"))


def replicated(mesh: Mesh) -> NamedSharding:
    """The same value on every device."""
    return NamedSharding(mesh, PartitionSpec())
