"""Model checkpoints (a folder that engine, evaluation and training read) and run states (what a run resumes
from).

A model checkpoint holds config.json (Hugging Face field names), the tokenizer's files, params/ (an Orbax
StandardCheckpoint of float32 masters) and t1.json ({"version": policy version, "step": optimizer steps}). It
appears under its name in one rename, so that a reader never sees half of it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import orbax.checkpoint as ocp

from sandbox.errors import InputError
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
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(temporary / "params", params)
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


def load_config(folder: Path | str) -> ModelConfig:
    """The model's shape from a checkpoint's config.json. Raises InputError when it is missing or wrong."""
    path = Path(folder) / "config.json"
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"checkpoint {folder}: cannot read config.json ({error.strerror})") from None
    except json.JSONDecodeError as error:
        raise InputError(f"checkpoint {path}: not valid JSON ({error})") from None
    return ModelConfig.from_hf(values, str(path))


def load_checkpoint(folder: Path | str, shardings: Any = None) -> tuple[Any, ModelConfig, dict[str, int]]:
    """Read a model checkpoint: (float32 params, config, {"version", "step"}).

    Args:
      folder: written by `save_checkpoint`.
      shardings: a tree of NamedShardings in the form of the parameters, to place each shard where it belongs.

    Raises:
      InputError: the folder is not such a checkpoint, or its parameters have other shapes than its config
      says.
    """
    folder = Path(folder).absolute()
    config = load_config(folder)
    if not (folder / "params").is_dir():
        raise InputError(
            f"checkpoint {folder}: holds no params/ (an Orbax checkpoint of t1-jax was expected)"
        )
    target = shapes(config)
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    places = jax.tree.map(lambda _: device, target) if shardings is None else shardings
    target = jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), target, places
    )
    with ocp.StandardCheckpointer() as checkpointer:
        stored = checkpointer.metadata(folder / "params").item_metadata.tree
        _check_shapes(folder, stored, target)
        params = checkpointer.restore(folder / "params", target)
    meta_path = folder / _META
    meta = json.loads(meta_path.read_text()) if meta_path.is_file() else {"version": 0, "step": 0}
    return params, config, meta


def _check_shapes(folder: Path, stored: Any, target: Any) -> None:
    def by_name(tree: Any) -> dict[str, tuple[int, ...]]:
        leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda leaf: hasattr(leaf, "shape"))
        return {
            jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape) for path, leaf in leaves
        }

    found, expected = by_name(stored), by_name(target)
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
