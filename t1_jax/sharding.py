"""The device mesh and the rules that place every array on it. Axes of size one stay, so specs never change.

replica: copies of the parameters, each with its share of the batch; fsdp: rows split; expert: experts split
(its devices hold different rows, too); context: the sequence split; tensor: heads, vocabulary and expert
width split. Parameters are stored once per replica, spread over all other axes, and gathered when used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sandbox.errors import InputError

AXES = ("replica", "fsdp", "expert", "context", "tensor")
DATA_AXES = ("replica", "fsdp", "expert")  # whose devices hold different rows

# Logical axis of a parameter -> mesh axes that its storage is split over, slowest first. `rows` is the input
# of a product whose other operand is split over tensor (a device uses its own rows of the matrix); `embed` is
# the residual stream's width, where a device uses columns, so that tensor varies fastest and one all-to-all
# turns the one split into the other. What is not named here is stored whole.
STORAGE = {
    "expert": ("expert",),
    "rows": ("tensor", "fsdp", "expert", "context"),
    "embed": ("fsdp", "expert", "context", "tensor"),
}


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Devices along each axis; -1 (at most once) takes all that are left.

    `dispatch_tokens`: tokens that a device sends to experts at a time; null sends all of a microbatch.
    """

    replica: int = 1
    fsdp: int = -1
    expert: int = 1
    context: int = 1
    tensor: int = 1
    dispatch_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.dispatch_tokens is not None and self.dispatch_tokens < 1:
            raise InputError(f"mesh.dispatch_tokens is {self.dispatch_tokens}, expected 1 or more, or null")


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


def storage_axes(spec: Any, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """Mesh axes that each dimension of a `ParamSpec` is stored split over.

    An axis is used once (a dimension of experts comes before all others), and left out where it does not
    divide what is left of the dimension: the parameter is then the same on all devices along it.
    """
    used: set[str] = set()
    placed = []
    for size, name in zip(spec.shape, spec.axes, strict=True):
        axes: list[str] = []
        taken = used | ({"expert"} if "expert" in spec.axes and name != "expert" else set())
        for axis in STORAGE.get(name, ()):
            if axis not in taken and size % sizes[axis] == 0:
                axes.append(axis)
                size //= sizes[axis]
        used.update(axes)
        placed.append(tuple(axes))
    return tuple(placed)


def param_shardings(specs: Any, mesh: Mesh) -> Any:
    """Shardings for a tree of `ParamSpec`, as `storage_axes` places them."""

    def place(spec: Any) -> NamedSharding:
        parts = [axes or None for axes in storage_axes(spec, mesh.shape)]
        return NamedSharding(mesh, PartitionSpec(*parts))

    return jax.tree.map(place, specs, is_leaf=lambda leaf: hasattr(leaf, "axes"))


def batch_spec(name: str) -> PartitionSpec:
    """Of a batch leaf [M, B, T, ...]: rows over all data axes. Numbers of tokens lie whole on every context
    device, which is nothing beside the record of routes; that is split over context.
    """
    return PartitionSpec(None, DATA_AXES, "context" if name == "routed_experts" else None)


def replicated(mesh: Mesh) -> NamedSharding:
    """The same value on every device."""
    return NamedSharding(mesh, PartitionSpec())
