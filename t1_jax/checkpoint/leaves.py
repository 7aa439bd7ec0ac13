"""Parameters on disk as ranges: reading them wherever they lie, and the arrays that `convert` writes.

A leaf is read in the hub's orientation (see names.py), as one long row of elements. It may lie in safetensors
files, in the chunks of an array that `convert` wrote, or in any other array that Orbax wrote.

`convert` writes Orbax's Zarr v3 arrays with a transpose codec, so that a chunk's bytes are a range of the
hub's bytes as they are: nothing is rearranged, and a chunk is a part of one layer or one expert.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import ml_dtypes
import numpy as np
import tensorstore as ts

from sandbox.errors import InputError
from t1_jax.checkpoint.names import hub_shape, is_matrix
from t1_jax.checkpoint.shards import StoredTensor, read_bytes

BLOCK_BYTES = 1 << 26  # the unit of all work: what one chunk, and one read, may hold


class Leaf(Protocol):
    """A parameter on disk. `shape` is in the hub's orientation."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Elements [start, stop) of the C-ordered leaf, one-dimensional."""
        ...


@dataclass(frozen=True, kw_only=True)
class BlockScale:
    """The scales of a block-quantised matrix [rows, columns]: one for each block of it."""

    tensor: StoredTensor
    columns: int
    block: tuple[int, int]

    def dequantise(self, values: np.ndarray, start: int) -> np.ndarray:
        """values * scale as bfloat16, for the elements of whole rows from element `start` on."""
        scale = np.empty(math.prod(self.tensor.shape), self.tensor.dtype)
        read_bytes(self.tensor.path, self.tensor.start, scale)
        rows = start // self.columns + np.arange(len(values) // self.columns)
        by_row = scale.astype(np.float32).reshape(self.tensor.shape)[rows // self.block[0]]
        wide = np.repeat(by_row, self.block[1], axis=1)[:, : self.columns]
        scaled = values.reshape(-1, self.columns).astype(np.float32) * wide
        return scaled.astype(ml_dtypes.bfloat16).reshape(-1)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Elements [start, stop) of a leaf, stored at byte `at` of a file."""

    start: int
    stop: int
    path: Path
    at: int
    dtype: np.dtype
    scale: BlockScale | None = None

    @property
    def value_dtype(self) -> np.dtype:
        """The dtype that reading gives."""
        return self.dtype if self.scale is None else np.dtype(ml_dtypes.bfloat16)


class FileLeaf:
    """A leaf in pieces of files. Pieces of several dtypes are read as float32, which holds them exactly."""

    def __init__(self, shape: tuple[int, ...], segments: Sequence[Segment]) -> None:
        self.shape = shape
        self.segments = segments
        dtypes = {segment.value_dtype for segment in segments}
        self.dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.float32)
        self._starts = np.asarray([segment.start for segment in segments])

    def read(self, start: int, stop: int) -> np.ndarray:
        """See `Leaf`. Quantised pieces are read in whole rows."""
        out = np.empty(stop - start, self.dtype)
        number = max(0, int(np.searchsorted(self._starts, start, side="right")) - 1)
        while number < len(self.segments) and self.segments[number].start < stop:
            piece = self.segments[number]
            first, last = max(start, piece.start), min(stop, piece.stop)
            target = out[first - start : last - start]
            direct = piece.dtype == self.dtype
            values = target if direct else np.empty(last - first, piece.dtype)
            read_bytes(piece.path, piece.at + (first - piece.start) * piece.dtype.itemsize, values)
            if piece.scale is not None:
                values = piece.scale.dequantise(values, first - piece.start)
            if not direct:
                target[:] = values.astype(self.dtype)
            number += 1
        return out


class ArrayLeaf:
    """A leaf in an array of Orbax's, whatever its chunks and codecs."""

    def __init__(self, store: ts.TensorStore, leaf: str) -> None:
        axes = list(range(store.ndim))
        if is_matrix(leaf):
            axes[-2:] = axes[:-3:-1]
        self._store = store[ts.d[axes].transpose[:]] if axes else store
        self.shape = tuple(self._store.shape)
        self.dtype = np.dtype(store.dtype.numpy_dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        """See `Leaf`; the range must be a box (`box`)."""
        return np.ascontiguousarray(self._store[box(self.shape, start, stop)].read().result()).reshape(-1)


def box(shape: tuple[int, ...], start: int, stop: int) -> tuple[slice, ...]:
    """Elements [start, stop) of a C-ordered array as slices, for a range that is a box."""
    size, index = math.prod(shape), []
    for length in shape:
        size //= length
        first, last = start // size, (stop - 1) // size
        index.append(slice(first, last + 1))
        start, stop = start - first * size, stop - first * size
        if last > first:
            break
    return (*index, *(slice(0, length) for length in shape[len(index) :]))


def blocks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """The shape of the blocks of at most BLOCK_BYTES (or one row) that an array is cut into.

    Every block is one contiguous range: ones, then some of an axis, then whole axes.
    """
    rest = math.prod(shape) * itemsize
    for axis, length in enumerate(shape):
        rest //= max(length, 1)
        if rest <= BLOCK_BYTES and length:
            parts = -(-length * rest // BLOCK_BYTES) or 1
            return (*[1] * axis, -(-length // parts), *shape[axis + 1 :])
    return tuple(max(length, 1) for length in shape)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A chunk of an array: its file, the elements [start, stop) in it, and the size with padding."""

    path: Path
    start: int
    stop: int
    size: int


def chunks(folder: Path, leaf: str, shape: tuple[int, ...], block: tuple[int, ...]) -> Iterator[Chunk]:
    """The chunks of an array of a shape in the hub's orientation, in order."""
    size = math.prod(block)
    grid = [-(-length // part) for length, part in zip(shape, block, strict=True)]
    for index in np.ndindex(*grid):
        first = [place * part for place, part in zip(index, block, strict=True)]
        start = int(np.ravel_multi_index(first, shape)) if shape else 0
        covered = [min(p, n - f) for p, n, f in zip(block, shape, first, strict=True)]
        path = folder.joinpath("c", *map(str, hub_shape(leaf, index)))
        yield Chunk(path=path, start=start, stop=start + math.prod(covered), size=size)


def create_array(folder: Path, leaf: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Write the metadata of an array for a leaf of a shape in the hub's orientation, unless it is there."""
    spec = _array_spec(folder, leaf, shape, blocks(shape, dtype.itemsize), dtype.name)
    ts.open(spec, create=True, open=True).result()


def _array_spec(
    folder: Path, leaf: str, shape: tuple[int, ...], block: tuple[int, ...], dtype: str
) -> dict[str, object]:
    codecs: list[dict[str, object]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if is_matrix(leaf):
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        codecs.insert(0, {"name": "transpose", "configuration": {"order": order}})
    metadata = {
        "shape": list(hub_shape(leaf, shape)),
        "data_type": dtype,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": list(hub_shape(leaf, block))},
        },
        "codecs": codecs,
    }
    kvstore = {"driver": "file", "path": f"{folder}/"}
    return {"driver": "zarr3", "kvstore": kvstore, "metadata": metadata}


def open_array(params: Path, name: str, leaf: str) -> Leaf:
    """A leaf of an Orbax tree, where it is called `name`: by its files if `convert` wrote it, else by
    tensorstore.

    Raises InputError when it is missing or unreadable.
    """
    try:
        written = json.loads((params / "_METADATA").read_text())
        if written["use_ocdbt"]:
            kvstore = {"driver": "ocdbt", "base": f"file://{params}", "path": f"{name}/"}
        else:
            kvstore = {"driver": "file", "path": f"{params / name}/"}
        driver = "zarr3" if written["use_zarr3"] else "zarr"
        store = ts.open({"driver": driver, "kvstore": kvstore}, open=True, read=True).result()
    except (OSError, ValueError, KeyError) as error:
        told = " ".join(str(error).split())[:200]
        raise InputError(f"checkpoint {params}: parameter {leaf} cannot be read ({told})") from None
    shape = hub_shape(leaf, tuple(store.shape))
    dtype = np.dtype(store.dtype.numpy_dtype)
    block = hub_shape(leaf, tuple(store.chunk_layout.read_chunk.shape or ()))  # type: ignore[arg-type]
    if driver == "zarr3" and not written["use_ocdbt"] and block == blocks(shape, dtype.itemsize):
        metadata = json.loads((params / name / "zarr.json").read_text())
        spec = _array_spec(params / name, leaf, shape, block, dtype.name)
        if metadata["codecs"] == spec["metadata"]["codecs"]:  # type: ignore[index]
            return FileLeaf(
                shape,
                [
                    Segment(start=chunk.start, stop=chunk.stop, path=chunk.path, at=0, dtype=dtype)
                    for chunk in chunks(params / name, leaf, shape, block)
                ],
            )
    return ArrayLeaf(store, leaf)
