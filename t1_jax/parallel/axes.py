"""One device's view of the mesh: sizes, ranks and collectives by axis. Axes of size one cost nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from t1_jax.sharding import AXES, storage_axes


@dataclass(frozen=True)
class Parallel:
    """Sizes of the mesh axes, in the order of `AXES`, for code that runs under `jax.shard_map`.

    `dispatch_tokens`: tokens that a device sends to its experts at a time (None: all of them), which bounds
    the memory of a dispatch whatever the routing.
    """

    sizes: tuple[int, ...] = (1,) * len(AXES)
    dispatch_tokens: int | None = None

    @classmethod
    def of(cls, mesh: Mesh, dispatch_tokens: int | None = None) -> Parallel:
        """The view of a device of this mesh."""
        return cls(tuple(mesh.shape[axis] for axis in AXES), dispatch_tokens)

    def size(self, *axes: str) -> int:
        """Devices along these axes together."""
        return math.prod(self.sizes[AXES.index(axis)] for axis in axes)

    @property
    def devices(self) -> int:
        """Devices of the whole mesh."""
        return math.prod(self.sizes)

    def split(self, *axes: str) -> tuple[str, ...]:
        """Those of the axes that have more than one device."""
        return tuple(axis for axis in axes if self.size(axis) > 1)

    def rank(self, axis: str) -> jax.Array | int:
        """This device's place along an axis, int32; 0 on an axis of size one."""
        return jax.lax.axis_index(axis) if self.size(axis) > 1 else 0

    def sum(self, x: jax.Array, *axes: str) -> jax.Array:
        """The sum over the devices along the axes, on each of them."""
        names = self.split(*axes)
        return jax.lax.psum(x, names) if names else x

    def max(self, x: jax.Array, *axes: str) -> jax.Array:
        """The largest over the devices along the axes; no gradient."""
        names = self.split(*axes)
        return jax.lax.pmax(jax.lax.stop_gradient(x), names) if names else x

    def gather(self, x: jax.Array, *axes: str, dim: int) -> jax.Array:
        """The parts of all devices along the axes, joined along `dim` (the first axis varies slowest)."""
        names = self.split(*axes)
        return jax.lax.all_gather(x, names, axis=dim % x.ndim, tiled=True) if names else x

    def scatter_sum(self, x: jax.Array, *axes: str, dim: int) -> jax.Array:
        """This device's part along `dim` of the sum over devices: the transpose of `gather`."""
        names = self.split(*axes)
        return jax.lax.psum_scatter(x, names, scatter_dimension=dim, tiled=True) if names else x

    def exchange(self, x: jax.Array, *axes: str, split: int, join: int) -> jax.Array:
        """All-to-all: part i along `split` goes to device i; what arrives is joined along `join`."""
        names = self.split(*axes)
        return jax.lax.all_to_all(x, names, split, join, tiled=True) if names else x

    def part(self, x: jax.Array, axis: str, dim: int) -> jax.Array:
        """This device's part of a value that all devices along the axis hold."""
        count = self.size(axis)
        if count == 1:
            return x
        width = x.shape[dim] // count
        return jax.lax.dynamic_slice_in_dim(x, self.rank(axis) * width, width, dim)

    def from_previous(self, x: jax.Array, axis: str) -> jax.Array:
        """The value of the device before this one along the axis; zeros on the first."""
        count = self.size(axis)
        if count == 1:
            return jnp.zeros_like(x)
        return jax.lax.ppermute(x, axis, [(i, i + 1) for i in range(count - 1)])

    def storage(self, spec: Any) -> tuple[tuple[str, ...], ...]:
        """Mesh axes that each dimension of a `ParamSpec` is stored split over."""
        return storage_axes(spec, dict(zip(AXES, self.sizes, strict=True)))


SINGLE = Parallel()
