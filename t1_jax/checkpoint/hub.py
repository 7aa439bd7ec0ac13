"""The form of a Hugging Face folder: which tensors lie in which file, in what order and dtype, and the rest.

A converted checkpoint keeps the form of the folder that it came from in `hub/` (the shards' headers as they
were, and the tensors that are in no parameter), so that the way back ends in the very same files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sandbox.errors import InputError
from t1_jax.checkpoint.huggingface import HuggingFaceFolder
from t1_jax.checkpoint.leaves import Leaf
from t1_jax.checkpoint.names import placements
from t1_jax.checkpoint.shards import CODES, INDEX, StoredTensor, make_header, open_shards, parse_header
from t1_jax.model.config import ModelConfig

HUB = "hub"  # folder in a converted checkpoint
_FORM = "form.json"
_SHARD_BYTES = 4 << 30  # of a folder whose form is ours to choose
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5", ".onnx")


@dataclass(frozen=True, kw_only=True)
class HubForm:
    """`headers` by file name; `files`: the folder's other files, name to content, config.json and the index
    among them; `carried`: tensors that no parameter holds; `leaves`: parameters to take from where the form
    came from when the checkpoint has none of its own (the MTP head).
    """

    headers: dict[str, bytes]
    files: dict[str, bytes]
    carried: dict[str, StoredTensor]
    leaves: dict[str, Leaf]

    def tensors(self) -> list[StoredTensor]:
        """All tensors; their paths are file names."""
        return tensors_of(self.headers)


def tensors_of(headers: Mapping[str, bytes]) -> list[StoredTensor]:
    """The tensors of headers by file name; their paths are these names."""
    return [
        tensor
        for file, header in headers.items()
        for tensor in parse_header(header, Path(file), exists=False)
    ]


def form_of(folder: HuggingFaceFolder) -> HubForm:
    """The form of a Hugging Face folder. That of a quantised one is its bfloat16 equal: no scales, no
    quantization_config.
    """
    path = folder.shards.folder
    files = _other_files(path)
    headers = folder.shards.headers
    if folder.quantised:
        headers = _without_scales(folder)
        files["config.json"] = _json(_without_quantisation(folder.values))
        if INDEX in files:
            files[INDEX] = _index(headers)
    mtp = {leaf: found for leaf, found in folder.leaves.items() if leaf.startswith("mtp/")}
    return HubForm(headers=headers, files=files, carried=folder.carried, leaves=mtp)


def _other_files(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(_WEIGHT_SUFFIXES)
    }


def _without_scales(folder: HuggingFaceFolder) -> dict[str, bytes]:
    names = {placement.name for placement in folder.placements}
    scaled = {
        name.removesuffix("_scale_inv") for name in folder.shards.tensors if name.endswith("_scale_inv")
    }
    by_file: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {}
    for tensor in folder.shards.tensors.values():
        if tensor.name in names or tensor.name in folder.carried:
            code = "BF16" if tensor.name in scaled else tensor.code
            by_file.setdefault(tensor.path.name, []).append((tensor.name, code, tensor.shape))
    return {file: make_header(tensors) for file, tensors in by_file.items()}


def _without_quantisation(values: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in values.items() if key != "quantization_config"}
    if isinstance(kept.get("text_config"), dict):
        kept["text_config"] = _without_quantisation(kept["text_config"])
    return kept


def _index(headers: Mapping[str, bytes]) -> bytes:
    tensors = tensors_of(headers)
    total = sum(tensor.nbytes for tensor in tensors)
    weight_map = {tensor.name: tensor.path.name for tensor in tensors}
    return _json({"metadata": {"total_size": total}, "weight_map": weight_map})


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def form_files(form: HubForm) -> dict[str, bytes]:
    """What a converted checkpoint keeps of a form, by path in it; `carried_headers` go with it."""
    kept = {name: content for name, content in form.files.items() if name != INDEX}
    index = form.files[INDEX].decode() if INDEX in form.files else None
    headers = {file: header.decode() for file, header in form.headers.items()}
    return {**kept, f"{HUB}/{_FORM}": json.dumps({"index": index, "headers": headers}).encode()}


def carried_headers(form: HubForm) -> dict[str, bytes]:
    """The headers of the files in `hub/` that hold the carried tensors, by file name."""
    by_file: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {}
    for tensor in form.carried.values():
        by_file.setdefault(tensor.path.name, []).append((tensor.name, tensor.code, tensor.shape))
    return {file: make_header(tensors) for file, tensors in by_file.items()}


def kept_form(folder: Path) -> HubForm | None:
    """The form that a converted checkpoint keeps; None when it was not converted from the hub's form.

    Raises InputError when it is damaged.
    """
    path = folder / HUB / _FORM
    if not path.is_file():
        return None
    try:
        kept = json.loads(path.read_text())
        headers = {file: header.encode() for file, header in kept["headers"].items()}
        files = {name: content for name, content in _other_files(folder).items() if name != "t1.json"}
        if kept["index"] is not None:
            files[INDEX] = kept["index"].encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"checkpoint {path}: damaged, expected the form of a Hugging Face folder") from None
    carried = open_shards(folder / HUB).tensors if any((folder / HUB).glob("*.safetensors")) else {}
    return HubForm(headers=headers, files=files, carried=carried, leaves={})


def fresh_form(folder: Path, config: ModelConfig, dtypes: Mapping[str, np.dtype]) -> HubForm:
    """The form of a checkpoint that was never on the hub: text only, fused experts, every tensor in the dtype
    in which its parameter is stored.
    """
    shards: list[list[tuple[str, str, tuple[int, ...]]]] = [[]]
    size = 0
    for placement in placements(config):
        dtype = dtypes[placement.leaf]
        nbytes = math.prod(placement.shape) * dtype.itemsize
        if shards[-1] and size + nbytes > _SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append((placement.name, CODES[dtype], placement.shape))
        size += nbytes
    names = _shard_names(len(shards))
    headers = {name: make_header(tensors) for name, tensors in zip(names, shards, strict=True)}
    files = {name: content for name, content in _other_files(folder).items() if name != "t1.json"}
    if len(shards) > 1:
        files[INDEX] = _index(headers)
    return HubForm(headers=headers, files=files, carried={}, leaves={})


def _shard_names(count: int) -> Iterable[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
