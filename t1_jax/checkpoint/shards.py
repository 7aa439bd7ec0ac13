"""Safetensors folders without loading them: headers, consistency, and ranges of bytes.

The format: 8 bytes, the little-endian length of a JSON header {name: {dtype, shape, data_offsets}}, then the
tensors' bytes. Files are read in ranges, not mapped: mapped pages would count as this process's memory.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from sandbox.errors import InputError

INDEX = "model.safetensors.index.json"
DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor's header entry: its file, and the bytes [start, start + nbytes) of that file."""

    name: str
    path: Path
    code: str  # safetensors' name of the dtype
    shape: tuple[int, ...]
    start: int

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype."""
        return DTYPES[self.code]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, kw_only=True)
class ShardFolder:
    """The safetensors files of a folder: headers as they are written, by file name, and every tensor."""

    folder: Path
    headers: dict[str, bytes]
    tensors: dict[str, StoredTensor]

    @property
    def nbytes(self) -> int:
        """Size of all tensors in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def is_shard_folder(folder: Path | str) -> bool:
    """Whether a folder holds safetensors files, or the index of some."""
    folder = Path(folder)
    return folder.is_dir() and ((folder / INDEX).is_file() or any(folder.glob("*.safetensors")))


def open_shards(folder: Path | str) -> ShardFolder:
    """Read all headers and check that they, the index and the files' sizes agree.

    Raises InputError for a missing shard, a truncated or overlong file, a header that is none, an index that
    names an absent tensor, and a tensor that the index does not name or that is stored twice.
    """
    folder = Path(folder)
    index_path = folder / INDEX
    weight_map: dict[str, str] | None = None
    if index_path.is_file():
        weight_map = _read_index(index_path)
        files = sorted(set(weight_map.values()))
    else:
        files = sorted(path.name for path in folder.glob("*.safetensors"))
    if not files:
        raise InputError(f"checkpoint {folder}: holds no *.safetensors file")
    headers: dict[str, bytes] = {}
    tensors: dict[str, StoredTensor] = {}
    for file in files:
        path = folder / file
        if not path.is_file():
            raise InputError(f"checkpoint {folder}: shard {file} is missing, expected it as {INDEX} names it")
        headers[file] = _read_header(path)
        for tensor in parse_header(headers[file], path):
            if tensor.name in tensors:
                raise InputError(
                    f"checkpoint {path}: tensor {tensor.name} is in {tensors[tensor.name].path.name} too"
                )
            tensors[tensor.name] = tensor
    for name, file in (weight_map or {}).items():
        if name not in tensors or tensors[name].path.name != file:
            raise InputError(f"checkpoint {index_path}: tensor {name} is not in {file}, where it is expected")
    for name, tensor in tensors.items():
        if weight_map is not None and name not in weight_map:
            raise InputError(f"checkpoint {tensor.path}: extra tensor {name}, which {INDEX} does not name")
    return ShardFolder(folder=folder, headers=headers, tensors=tensors)


def _read_index(path: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(path.read_text())["weight_map"]
        if all(isinstance(file, str) and Path(file).name == file for file in weight_map.values()):
            return weight_map
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        pass
    raise InputError(f"checkpoint {path}: expected a JSON object with weight_map, tensor to file name")


def _read_header(path: Path) -> bytes:
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise InputError(
                f"checkpoint {path}: truncated: {size} bytes, the header alone takes {8 + length}"
            )
        return file.read(length)


def parse_header(header: bytes, path: Path, *, exists: bool = True) -> list[StoredTensor]:
    """The tensors of a header, by offset. `exists`: compare their extent with the file's size.

    Raises InputError.
    """
    try:
        entries: dict[str, Any] = json.loads(header)
        entries.pop("__metadata__", None)
        rows = [
            (name, entry["dtype"], tuple(map(int, entry["shape"])), *map(int, entry["data_offsets"]))
            for name, entry in entries.items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"checkpoint {path}: its header is not that of a safetensors file") from None
    tensors, end = [], 0
    for name, code, shape, start, stop in sorted(rows, key=lambda row: (row[3], row[4])):
        if code not in DTYPES:
            raise InputError(
                f"checkpoint {path}: tensor {name} is {code}, expected one of {', '.join(DTYPES)}"
            )
        tensor = StoredTensor(name=name, path=path, code=code, shape=shape, start=8 + len(header) + start)
        if start != end or stop - start != tensor.nbytes:
            raise InputError(
                f"checkpoint {path}: tensor {name} lies at bytes {start} to {stop}, expected {end} to "
                f"{end + tensor.nbytes} for {code} {list(shape)}"
            )
        tensors.append(tensor)
        end = stop
    expected = 8 + len(header) + end
    if exists and path.stat().st_size != expected:
        size = path.stat().st_size
        kind = "truncated" if size < expected else "too long"
        raise InputError(f"checkpoint {path}: {kind}: {size} bytes, expected {expected}")
    return tensors


def make_header(tensors: list[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """The header of tensors (name, dtype code, shape) stored in this order, padded to 8 bytes."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, code, shape in tensors:
        start, end = end, end + math.prod(shape) * DTYPES[code].itemsize
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % 8)


def read_bytes(path: Path, start: int, out: np.ndarray) -> None:
    """Fill `out`, a C-contiguous array, with a file's bytes from `start` on. Raises InputError when cut."""
    view = out.reshape(-1).view(np.uint8).data
    with open(path, "rb", buffering=0) as file:
        done = 0
        while done < len(view):
            count = os.preadv(file.fileno(), [view[done:]], start + done)
            if count == 0:
                raise InputError(f"checkpoint {path}: truncated: ends {len(view) - done} bytes early")
            done += count
