"""Checkpoints from Hugging Face's form to ours (Orbax) and back, without losing a bit.

hf -> orbax: params/ (and mtp/, the multi-token prediction head) are Orbax trees in the dtypes of the source;
hub/ keeps the form of the source and the tensors that are no part of the model; all other files are copied.
orbax -> hf: the kept form, that of another folder (`base`), or a fresh one.

Both are lists of blocks of at most 64 MiB, so memory does not grow with the checkpoint (see transfer.py).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orbax.checkpoint as ocp

from sandbox.errors import InputError
from sandbox.files import require_writable
from t1_jax.checkpoint.hub import HUB, HubForm, carried_headers, form_files, form_of, fresh_form, kept_form
from t1_jax.checkpoint.huggingface import HuggingFaceFolder, open_folder
from t1_jax.checkpoint.leaves import BLOCK_BYTES, Leaf, blocks, chunks, create_array, open_array
from t1_jax.checkpoint.manager import by_path, is_ours, load_config
from t1_jax.checkpoint.names import hub_shape, leaves, placements
from t1_jax.checkpoint.shards import StoredTensor, is_shard_folder, open_shards, parse_header, read_bytes
from t1_jax.model.config import ModelConfig
from t1_jax.tools.transfer import Block, remaining_bytes, unfinished, write_blocks

_MARGIN = 64 << 20  # bytes of disk for headers, metadata and folders


def convert(
    src: Path | str, dst: Path | str, to: Literal["orbax", "hf"], base: Path | str | None = None
) -> dict[str, Any]:
    """Convert a checkpoint folder; killed at any moment, the same call goes on from what is done.

    Args:
      src: for "orbax" a Hugging Face folder, for "hf" a checkpoint of ours.
      dst: must not exist, or be an empty folder. It appears when it is whole and verified.
      to: the form to write.
      base: for "hf": the Hugging Face folder, or what `convert` made of it, that training began from. The
        result has its files, names, dtypes and vision tower.

    Returns:
      {"checkpoint", "tensors", "bytes", "verified": True, "seconds"}.

    Raises:
      InputError: anything wrong with src, base or dst, too little disk, or a destination that reads back
        differently.
    """
    started = time.monotonic()
    src, dst = Path(src).absolute(), Path(dst).absolute()
    _check_folders(src, dst, to)
    if to == "orbax":
        if base is not None:
            raise InputError("convert: --base is for --to hf, expected none")
        folder = open_folder(src)
        form = form_of(folder)
        work, check = _to_orbax(folder, form), partial(_check_orbax, folder, form)
    else:
        config, found, form = _open_ours(src, None if base is None else Path(base).absolute())
        work, check = _to_hub(config, found, form), partial(_check_hub, form)
    _check_disk(dst, work.blocks)
    with unfinished(dst, {"to": to, "files": _fingerprint(src, base)}) as out:
        work.prepare(out)
        for name, content in work.files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_bytes(content)
        write_blocks(out, work.blocks)
        check(out)
    return {
        "checkpoint": str(dst),
        "tensors": len(form.tensors()),
        "bytes": sum(block.nbytes for block in work.blocks),
        "verified": True,
        "seconds": round(time.monotonic() - started, 2),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Work:
    """What makes a destination: `prepare` (metadata), then small files, then blocks."""

    files: Mapping[str, bytes]
    blocks: list[Block]
    prepare: Callable[[Path], None] = lambda out: None


def _check_folders(src: Path, dst: Path, to: str) -> None:
    wanted, other = ("a Hugging Face folder", "orbax") if to == "orbax" else ("a checkpoint of t1-jax", "hf")
    if not (is_shard_folder(src) if to == "orbax" else is_ours(src)):
        raise InputError(f"convert --src {src}: expected {wanted} for --to {other}")
    require_writable(dst, folder=True)
    if dst.exists() and any(dst.iterdir()):
        raise InputError(f"convert --dst {dst}: is not empty, expected a new or empty folder")


def _check_disk(dst: Path, work: list[Block]) -> None:
    above = next(place for place in dst.parents if place.exists())
    needed, free = remaining_bytes(dst, work) + _MARGIN, shutil.disk_usage(above).free
    if needed > free:
        raise InputError(
            f"convert --dst {dst}: {needed / 1e9:.2f} GB are needed, but only {free / 1e9:.2f} GB are free"
        )


def _fingerprint(*folders: Path | str | None) -> list[Any]:
    """Names, sizes and times of all files: a source that changes between two runs is copied anew."""
    return [
        [str(path), path.stat().st_size, path.stat().st_mtime_ns]
        for folder in folders
        if folder is not None
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    ]


def _to_orbax(folder: HuggingFaceFolder, form: HubForm) -> _Work:
    made: list[Block] = []
    for leaf, found in folder.leaves.items():
        for chunk in chunks(_array_path(leaf), leaf, found.shape, blocks(found.shape, found.dtype.itemsize)):
            nbytes = chunk.size * found.dtype.itemsize
            read = partial(_read_chunk, found, chunk.start, chunk.stop, chunk.size)
            made.append(Block(path=str(chunk.path), at=0, nbytes=nbytes, read=read))
    for file, header in carried_headers(form).items():
        made.append(_header_block(f"{HUB}/{file}", header))
        for tensor in parse_header(header, Path(HUB, file), exists=False):
            made += _raw_blocks(form.carried[tensor.name], tensor)
    files = {**form_files(form), "t1.json": b'{"version": 0, "step": 0}\n'}
    return _Work(files=files, blocks=made, prepare=partial(_write_trees, folder.leaves))


def _array_path(leaf: str) -> Path:
    """Where an array lies. The MTP head is a tree of its own, which most readers leave alone."""
    tree = "mtp" if leaf.startswith("mtp/") else "params"
    return Path(tree, leaf.removeprefix("mtp/").replace("/", "."))


def _read_chunk(found: Leaf, start: int, stop: int, size: int) -> np.ndarray:
    values = found.read(start, stop)
    return values if len(values) == size else np.pad(values, (0, size - len(values)))


def _header_block(path: str, header: bytes) -> Block:
    content = len(header).to_bytes(8, "little") + header
    return Block(path=path, at=0, nbytes=len(content), read=lambda: np.frombuffer(content, np.uint8))


def _raw_blocks(source: StoredTensor, target: StoredTensor) -> Iterator[Block]:
    """A tensor's bytes as they are."""

    def read(start: int, nbytes: int) -> np.ndarray:
        data = np.empty(nbytes, np.uint8)
        read_bytes(source.path, source.start + start, data)
        return data

    for start in range(0, source.nbytes, BLOCK_BYTES):
        nbytes = min(BLOCK_BYTES, source.nbytes - start)
        at = target.start + start
        yield Block(path=str(target.path), at=at, nbytes=nbytes, read=partial(read, start, nbytes))


def _write_trees(found: Mapping[str, Leaf], out: Path) -> None:
    """What Orbax keeps beside the arrays of a tree, as Orbax writes it; and the metadata of the arrays."""
    for tree, names in itertools.groupby(sorted(found), key=lambda leaf: _array_path(leaf).parts[0]):
        skeleton: dict[str, Any] = {}
        for leaf in names:
            *groups, name = leaf.removeprefix("mtp/").split("/")
            functools.reduce(lambda node, key: node.setdefault(key, {}), groups, skeleton)[name] = np.zeros(1)
            create_array(out / _array_path(leaf), leaf, found[leaf].shape, found[leaf].dtype)
        written = out.parent / f"{tree}.skeleton"
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=True)
        with _quiet("Skipping merge of OCDBT"), ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(written, args=ocp.args.PyTreeSave(skeleton), force=True)
        for path in written.iterdir():
            if path.is_file():
                shutil.copyfile(path, out / tree / path.name)


@contextmanager
def _quiet(message: str) -> Iterator[None]:
    """Keep one of Orbax's warnings, that it has nothing to do, from the user."""

    def other(record: logging.LogRecord) -> bool:
        return message not in record.getMessage()

    logger = logging.getLogger("absl")
    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def _check_orbax(folder: HuggingFaceFolder, form: HubForm, out: Path) -> None:
    """Open the result as readers do and compare names, shapes and dtypes. Raises InputError."""
    trees = {_array_path(leaf).parts[0] for leaf in folder.leaves}
    with ocp.StandardCheckpointer() as checkpointer:
        stored = {
            str(Path(tree, *keys.split("/"))): (tuple(leaf.shape), np.dtype(leaf.dtype))
            for tree in sorted(trees)
            for keys, leaf in by_path(checkpointer.metadata(out / tree).item_metadata.tree)
        }
    expected = {
        leaf if leaf.startswith("mtp/") else f"params/{leaf}": (hub_shape(leaf, found.shape), found.dtype)
        for leaf, found in folder.leaves.items()
    }
    carried = open_shards(out / HUB).tensors if form.carried else {}
    if (
        stored != expected
        or _kinds(carried) != _kinds(form.carried)
        or load_config(out) != dataclasses.replace(folder.config, mtp_num_hidden_layers=0)
    ):
        raise InputError(f"cannot write {out}: it reads back with other names, shapes or dtypes")


def _kinds(tensors: Mapping[str, StoredTensor]) -> dict[str, tuple[Any, ...]]:
    return {name: (tensor.code, tensor.shape) for name, tensor in tensors.items()}


def _open_ours(src: Path, base: Path | None) -> tuple[ModelConfig, dict[str, Leaf], HubForm]:
    """The parameters of a checkpoint of ours, and the form to write them in. Raises InputError."""
    config, found = _open_trees(src)
    if base is None:
        dtypes = {leaf: value.dtype for leaf, value in found.items()}
        return config, found, kept_form(src) or fresh_form(src, config, dtypes)
    if is_shard_folder(base):
        original = open_folder(base)
        base_config, base_found, form = original.config, original.leaves, form_of(original)
    else:
        base_config, base_found = _open_trees(base)
        kept = kept_form(base)
        if kept is None:
            raise InputError(
                f"convert --base {base}: expected a Hugging Face folder, or one converted from it"
            )
        form = kept
    for leaf, value in found.items():
        if leaf not in base_found or base_found[leaf].shape != value.shape:
            raise InputError(f"convert --base {base}: its parameter {leaf} is absent or of another shape")
    tied = {name: tensor for name, tensor in form.carried.items() if name != "lm_head.weight"}
    return base_config, {**base_found, **found}, dataclasses.replace(form, carried=tied)


def _open_trees(folder: Path) -> tuple[ModelConfig, dict[str, Leaf]]:
    config = load_config(folder, mtp=(folder / "mtp").is_dir())
    found: dict[str, Leaf] = {}
    for leaf, spec in leaves(config).items():
        path = _array_path(leaf)
        found[leaf] = open_array(folder / path.parent, path.name, leaf)
        shape = hub_shape(leaf, found[leaf].shape)
        if shape != spec.shape:
            raise InputError(
                f"checkpoint {folder}: parameter {leaf} has shape {list(shape)}, "
                f"config.json expects {list(spec.shape)}"
            )
    return config, found


def _to_hub(config: ModelConfig, found: Mapping[str, Leaf], form: HubForm) -> _Work:
    tensors = form.tensors()
    placed = {placement.name: placement for placement in placements(config, {t.name for t in tensors})}
    if config.tie_word_embeddings:  # a stored copy of what is tied
        embed = next(placement for placement in placed.values() if placement.leaf == "embed")
        placed["lm_head.weight"] = dataclasses.replace(embed, name="lm_head.weight")
    made = [_header_block(file, header) for file, header in form.headers.items()]
    for tensor in tensors:
        if tensor.name in form.carried:
            made += _raw_blocks(form.carried[tensor.name], tensor)
        elif tensor.name in placed and placed[tensor.name].shape == tensor.shape:
            made += _tensor_blocks(found[placed[tensor.name].leaf], placed[tensor.name].offset, tensor)
        else:
            raise InputError(f"convert: tensor {tensor.name} of the form to write is in no parameter of src")
    return _Work(files=form.files, blocks=made)


def _tensor_blocks(found: Leaf, offset: int, target: StoredTensor) -> Iterator[Block]:
    """A tensor's part of a leaf, in the tensor's dtype."""

    def read(start: int, stop: int) -> np.ndarray:
        return found.read(offset + start, offset + stop).astype(target.dtype, copy=False)

    size = target.dtype.itemsize
    for chunk in chunks(Path(), "", target.shape, blocks(target.shape, max(size, found.dtype.itemsize))):
        yield Block(
            path=str(target.path),
            at=target.start + chunk.start * size,
            nbytes=(chunk.stop - chunk.start) * size,
            read=partial(read, chunk.start, chunk.stop),
        )


def _check_hub(form: HubForm, out: Path) -> None:
    """Open the result as a Hugging Face folder and compare names, shapes and dtypes. Raises InputError."""
    if open_folder(out).shards.headers != form.headers:
        raise InputError(f"cannot write {out}: it reads back with other names, shapes or dtypes")
