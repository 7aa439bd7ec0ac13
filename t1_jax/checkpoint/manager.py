"""Model checkpoints (a folder that engine, evaluation and training read) and run states (what a run resumes
from).

A model checkpoint holds config.json (Hugging Face field names), the tokenizer's files, params/ (an Orbax
StandardCheckpoint of float32 masters; of a converted checkpoint, in the dtypes of its source), mtp/ (the same
of the multi-token prediction head, if it has one) and t1.json ({"version": policy version, "step": optimizer
steps}). It appears under its name in one rename, so that a reader never sees half of it. Hugging Face folders
are read as they are.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import orbax.checkpoint as ocp

from sandbox.errors import InputError
from t1_jax.checkpoint.huggingface import load_params, open_folder, read_config
from t1_jax.checkpoint.shards import is_shard_folder
from t1_jax.distributed import barrier, is_first
from t1_jax.model.config import ModelConfig
from t1_jax.model.parameters import shapes

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
)
_META = "t1.json"


def save_checkpoint(
    folder: Path | str,
    params: Any,
    config: ModelConfig,
    *,
    tokenizer_dir: Path | str | None = None,
    version: int = 0,
    step: int = 0,
) -> Path:
    """Write a model checkpoint atomically; one that is there already is replaced.

    Args:
      folder: the checkpoint; its parent is created.
      params: the parameter tree, on any devices.
      config: its shape.
      tokenizer_dir: where the tokenizer's files are copied from; None writes a checkpoint without a
        tokenizer.
      version: policy version, what the engine stamps on sampled tokens.
      step: optimizer steps behind these parameters.

    Returns:
      The absolute folder.

    Raises:
      InputError: `tokenizer_dir` has no tokenizer.json.
    """
    folder = Path(folder).absolute()
    if tokenizer_dir is not None and not (Path(tokenizer_dir) / "tokenizer.json").is_file():
        raise InputError(f"tokenizer {tokenizer_dir}: holds no tokenizer.json")
    # Of several processes the first makes and renames folders; all write their parts of the parameters.
    own = os.getpid() if jax.process_count() == 1 else "all"
    temporary = folder.parent / f".{folder.name}.{own}.tmp"
    if is_first():
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
    barrier(f"begin {folder}")
    trees = {"params": {name: part for name, part in params.items() if name != "mtp"}}
    if "mtp" in params:
        trees["mtp"] = params["mtp"]
    with ocp.StandardCheckpointer() as checkpointer:
        for name, tree in trees.items():
            checkpointer.save(temporary / name, tree)
    if is_first():
        _complete(temporary, config, tokenizer_dir, {"version": int(version), "step": int(step)})
        _replace(folder, temporary)
    barrier(f"end {folder}")
    return folder


def _complete(temporary: Path, config: ModelConfig, tokenizer_dir: Path | str | None, meta: dict) -> None:
    if tokenizer_dir is not None:
        for name in TOKENIZER_FILES:
            if (Path(tokenizer_dir) / name).is_file():
                shutil.copyfile(Path(tokenizer_dir) / name, temporary / name)
    (temporary / "config.json").write_text(json.dumps(config.to_hf(), indent=2) + "\n")
    (temporary / _META).write_text(json.dumps(meta) + "\n")


def _replace(folder: Path, temporary: Path) -> None:
    replaced = folder.parent / f".{folder.name}.{os.getpid()}.old"
    shutil.rmtree(replaced, ignore_errors=True)
    if folder.exists():
        folder.rename(replaced)
    temporary.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)


def is_ours(folder: Path | str) -> bool:
    """Whether a folder is a checkpoint of this module's form (and not of Hugging Face's)."""
    return (Path(folder) / "params").is_dir()


def load_config(folder: Path | str, *, mtp: bool = False) -> ModelConfig:
    """The model's shape from a checkpoint's config.json, ours or Hugging Face's.

    `mtp` asks for the multi-token prediction head too. Raises InputError when the file is missing or wrong,
    or the checkpoint has no such head.
    """
    folder = Path(folder)
    if not is_ours(folder) and is_shard_folder(folder):
        config = open_folder(folder).config
        present = bool(config.mtp_num_hidden_layers)
    else:
        config = ModelConfig.from_hf(read_config(folder), str(folder / "config.json"))
        present = (folder / "mtp").is_dir()
    if mtp and not present:
        raise InputError(f"checkpoint {folder}: holds no MTP head, expected one to go on from")
    return dataclasses.replace(config, mtp_num_hidden_layers=1 if mtp else 0)


def load_checkpoint(
    folder: Path | str, shardings: Any = None, *, mtp: bool = False
) -> tuple[Any, ModelConfig, dict[str, int]]:
    """Read a model checkpoint: (float32 params, config, {"version", "step"}).

    Args:
      folder: written by `save_checkpoint` or `convert`, or a Hugging Face folder.
      shardings: a tree of NamedShardings in the form of the parameters, to place each shard where it belongs.
      mtp: whether to load the multi-token prediction head too.

    Raises:
      InputError: the folder is not such a checkpoint, or its parameters have other shapes than its config
      says.
    """
    folder = Path(folder).absolute()
    config = load_config(folder, mtp=mtp)
    if not is_ours(folder):
        if not is_shard_folder(folder):
            raise InputError(
                f"checkpoint {folder}: holds neither params/ (an Orbax checkpoint of t1-jax) nor "
                "*.safetensors (a Hugging Face folder)"
            )
        return load_params(open_folder(folder).leaves, config, shardings), config, {"version": 0, "step": 0}
    target = shapes(config)
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    places = jax.tree.map(lambda _: device, target) if shardings is None else shardings
    target = jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), target, places
    )
    head = target.pop("mtp", None)
    params = _restore(folder / "params", target)
    if head is not None:
        params["mtp"] = _restore(folder / "mtp", head)
    meta_path = folder / _META
    meta = json.loads(meta_path.read_text()) if meta_path.is_file() else {"version": 0, "step": 0}
    return params, config, meta


def _restore(tree: Path, target: Any) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        _check_shapes(tree.parent, checkpointer.metadata(tree).item_metadata.tree, target)
        return checkpointer.restore(tree, target)


def by_path(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a tree of arrays, or of their metadata, by path "linear/qkv"."""
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda leaf: hasattr(leaf, "shape"))
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves]


def _check_shapes(folder: Path, stored: Any, target: Any) -> None:
    found, expected = ({name: tuple(leaf.shape) for name, leaf in by_path(tree)} for tree in (stored, target))
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise InputError(
                f"checkpoint {folder}: parameter {name} has shape {found.get(name)}, "
                f"config.json expects {expected.get(name)}"
            )


class RunState:
    """The last states of a run, kept by Orbax's CheckpointManager under `<run>/state/`; each is whole or
    absent.

    A save copies the arrays, and writes while the run goes on; a state is there when its folder has been
    renamed. Besides the train state a JSON object is stored with it: iterator states, ledgers, counters.
    """

    def __init__(self, folder: Path | str, keep: int = 2):
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=True, create=True)
        self._manager = ocp.CheckpointManager(Path(folder).absolute(), options=options)

    @property
    def latest_step(self) -> int | None:
        """The newest stored step, None when there is none. Waits for what is being written."""
        self.wait()
        return self._manager.latest_step()

    def save(self, step: int, state: Any, data: dict[str, Any]) -> None:
        """Store the state (a pytree of arrays) and `data` (JSON) of a step.

        Both are copied on return, and the arguments may be changed; they are on disk after `wait`, a later
        save, or `close`.
        """
        if step == self.latest_step:
            return
        self._manager.save(
            step,
            args=ocp.args.Composite(state=ocp.args.StandardSave(state), data=ocp.args.JsonSave(data)),
            force=True,
        )

    def wait(self) -> None:
        """Return when every state that was saved is on disk. Raises what writing it raised."""
        self._manager.wait_until_finished()

    def restore(self, abstract_state: Any) -> tuple[Any, dict[str, Any]]:
        """The newest stored state, in the shapes and shardings of `abstract_state`, and its data."""
        restored = self._manager.restore(
            self._manager.latest_step(),
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(abstract_state), data=ocp.args.JsonRestore()
            ),
        )
        return restored["state"], restored["data"]

    def close(self) -> None:
        """Finish writing, and release the manager's threads."""
        self._manager.close()

    def __enter__(self) -> RunState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
