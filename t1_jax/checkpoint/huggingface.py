"""Hugging Face folders of Qwen3.5-MoE: what they hold, checked, and as parameters on devices.

Read are the multimodal checkpoints of the hub and text-only ones, fused or per-expert experts, and block-wise
FP8 (dequantised to bfloat16). The vision tower is no part of the model; `convert` carries it along.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sandbox.errors import InputError
from t1_jax.checkpoint.leaves import BlockScale, FileLeaf, Leaf, Segment
from t1_jax.checkpoint.names import (
    MTP_PREFIX,
    VISION_PREFIXES,
    Placement,
    hub_shape,
    is_matrix,
    leaves,
    placements,
)
from t1_jax.checkpoint.shards import ShardFolder, StoredTensor, open_shards
from t1_jax.model.config import ModelConfig
from t1_jax.model.parameters import shapes

_SCALE = "_scale_inv"


@dataclass(frozen=True, kw_only=True)
class HuggingFaceFolder:
    """A checked folder. `config` has the MTP head if the folder holds one.

    `placements` are its text tensors and `leaves` the parameters that they make up; `carried` are the tensors
    that are in no parameter: the vision tower, a stored copy of tied embeddings.
    """

    config: ModelConfig
    values: dict[str, Any]  # config.json
    shards: ShardFolder
    placements: list[Placement]
    leaves: dict[str, Leaf]
    carried: dict[str, StoredTensor]

    @property
    def quantised(self) -> bool:
        """Whether some tensors are dequantised on reading."""
        return any(name.endswith(_SCALE) for name in self.shards.tensors)


def read_config(folder: Path | str) -> dict[str, Any]:
    """The content of a folder's config.json. Raises InputError."""
    path = Path(folder) / "config.json"
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"checkpoint {folder}: cannot read config.json ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"checkpoint {path}: not valid JSON ({error})") from None
    if not isinstance(values, dict):
        raise InputError(f"checkpoint {path}: expected a JSON object, got {type(values).__name__}")
    return values


def open_folder(folder: Path | str) -> HuggingFaceFolder:
    """Read the headers of a folder and check them against its config.json; no tensor is read.

    Raises InputError: what `open_shards` and `ModelConfig.from_hf` refuse, a missing tensor, one of another
    shape than config.json says or of another kind than floats, and one that belongs to nothing.
    """
    folder = Path(folder)
    values = read_config(folder)
    config = ModelConfig.from_hf(values, str(folder / "config.json"))
    shards = open_shards(folder)
    rest = dict(shards.tensors)
    depth = values.get("text_config", values).get("mtp_num_hidden_layers", 1)
    if depth == 1 and any(name.startswith(MTP_PREFIX) for name in rest):
        config = dataclasses.replace(config, mtp_num_hidden_layers=1)
    placed = list(placements(config, rest.keys()))
    segments: dict[str, list[Segment]] = {}
    for placement in placed:
        tensor = rest.pop(placement.name, None)
        scale = rest.pop(placement.name + _SCALE, None)
        segments.setdefault(placement.leaf, []).append(_segment(folder, values, placement, tensor, scale))
    for name, tensor in rest.items():
        tied = name == "lm_head.weight" and config.tie_word_embeddings
        if not (name.startswith((*VISION_PREFIXES, MTP_PREFIX)) or tied):
            raise InputError(f"checkpoint {tensor.path}: extra tensor {name}, which no part of the model is")
        if name.startswith(MTP_PREFIX) and depth == 1:
            raise InputError(f"checkpoint {tensor.path}: extra tensor {name} in the MTP head")
    specs = leaves(config)
    found: dict[str, Leaf] = {
        leaf: FileLeaf(hub_shape(leaf, specs[leaf].shape), segments.get(leaf, [])) for leaf in specs
    }
    return HuggingFaceFolder(
        config=config, values=values, shards=shards, placements=placed, leaves=found, carried=rest
    )


def _segment(
    folder: Path,
    values: dict[str, Any],
    placement: Placement,
    tensor: StoredTensor | None,
    scale: StoredTensor | None,
) -> Segment:
    if tensor is None:
        raise InputError(f"checkpoint {folder}: tensor {placement.name} is missing")
    if tensor.shape != placement.shape:
        raise InputError(
            f"checkpoint {tensor.path}: tensor {tensor.name} has shape {list(tensor.shape)}, expected "
            f"{list(placement.shape)}"
        )
    kinds = ("F8_E4M3",) if scale is not None else ("BF16", "F16", "F32")
    if tensor.code not in kinds:
        beside = f"beside {tensor.name}{_SCALE}" if scale is not None else f"without {_SCALE}"
        raise InputError(
            f"checkpoint {tensor.path}: tensor {tensor.name} is {tensor.code} {beside}, expected "
            + " or ".join(kinds)
        )
    blocks = None
    if scale is not None:
        rows, columns = placement.shape
        block = tuple(values.get("quantization_config", {}).get("weight_block_size") or (128, 128))
        expected = (-(-rows // block[0]), -(-columns // block[1]))
        if scale.shape != expected:
            raise InputError(
                f"checkpoint {scale.path}: tensor {scale.name} has shape {list(scale.shape)}, expected "
                f"{list(expected)} for blocks of {list(block)}"
            )
        blocks = BlockScale(tensor=scale, columns=columns, block=block)  # type: ignore[arg-type]
    return Segment(
        start=placement.offset,
        stop=placement.offset + placement.size,
        path=tensor.path,
        at=tensor.start,
        dtype=tensor.dtype,
        scale=blocks,
    )


def load_params(found: Mapping[str, Leaf], config: ModelConfig, shardings: Any = None) -> Any:
    """Float32 parameters of `config` on devices, each device's part read for itself.

    Args:
      found: the leaves to read, as `open_folder` gives them.
      config: which of them, and in which form.
      shardings: a tree of shardings in the form of the parameters; None places all on the first device.
    """
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = shapes(config)
    places = jax.tree.map(lambda _: device, target) if shardings is None else shardings

    def load(path: Any, leaf: jax.ShapeDtypeStruct, place: jax.sharding.Sharding) -> jax.Array:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return jax.make_array_from_callback(
            leaf.shape, place, lambda index: _read_part(found[name], name, index or ())
        )

    return jax.tree_util.tree_map_with_path(load, target, places)


def _read_part(found: Leaf, name: str, index: tuple[slice, ...]) -> np.ndarray:
    """A part of a parameter, by slices of its own (not the hub's) axes, as float32."""
    index = (*index[:-2], index[-1], index[-2]) if is_matrix(name) else index
    bounds = [part.indices(length)[:2] for part, length in zip(index, found.shape, strict=True)]
    part = np.empty([stop - start for start, stop in bounds], np.float32)
    # What follows the first axis that is cut is read whole, a row at a time, and cut then.
    rows, columns = (found.shape[-2], found.shape[-1]) if len(found.shape) > 1 else (1, found.shape[0])
    (row, row_end), (column, column_end) = bounds[-2:] if len(bounds) > 1 else ((0, 1), bounds[0])
    target = part.reshape(math.prod(part.shape[:-2]), row_end - row, column_end - column)
    for number, lead in enumerate(np.ndindex(*part.shape[:-2])):
        place = 0
        for offset, (start, _), length in zip(lead, bounds, found.shape, strict=False):
            place = place * length + start + offset
        first = (place * rows + row) * columns
        values = found.read(first, first + (row_end - row) * columns)
        target[number] = values.reshape(row_end - row, columns)[:, column:column_end]
    return np.swapaxes(part, -1, -2) if is_matrix(name) else part
