"""Log-probs and experts of given token sequences: what the learner's forward says about them."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sandbox.errors import InputError
from t1_jax.checkpoint.manager import load_checkpoint
from t1_jax.model import transformer
from t1_jax.model.config import ModelConfig
from t1_jax.observability.progress import progress

_SHORTEST = 64  # lengths are padded to this times a power of two, so that few shapes compile


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequence:
    """One line of the input: int32 [T] token ids, and int32 [T, L, K] experts (-1 rows: live) or None."""

    id: str
    tokens: np.ndarray
    routed_experts: np.ndarray | None = None


def score(
    checkpoint: str | Path,
    input: str | Path,
    out: str | Path,
    *,
    replay: Literal["on", "off"] = "on",
    dtype: Literal["float32", "bfloat16"] | None = None,
    router_logits: bool = False,
) -> dict[str, int]:
    """Score the sequences of a JSON lines file, each alone, and write an .npz file.

    Sequences are read, scored and written one at a time; `out` appears when all are.

    Args:
      checkpoint: a model checkpoint folder, ours or Hugging Face's.
      input: a line each: {"id": str, "tokens": [int...], "routed_experts": null | [[[int] * K] * L] * T},
        where a row of -1s was not recorded.
      out: receives "<id>/logprobs" float32 [T - 1] (of token t + 1 given 0..t), "<id>/routed_experts" int32
        [T, L, K] (the selection used, in descending router weight when live) and, if asked for,
        "<id>/router_logits" float32 [T, L, E].
      replay: "on" uses the recorded experts where there are some, "off" routes live everywhere.
      dtype: of activations and matrix products; the checkpoint's own when None.
      router_logits: whether to write them.

    Returns:
      {"sequences", "rows" (tokens of all of them), "replayed_rows" (those whose experts were replayed)}.

    Raises:
      InputError: a bad checkpoint, or a bad line (file, line and field are named).
    """
    params, config, _ = load_checkpoint(checkpoint)
    if dtype is not None:
        config = dataclasses.replace(config, dtype=dtype)
    params = transformer.cast_params(params, config)
    told = {"sequences": 0, "rows": 0, "replayed_rows": 0}
    with _archive(Path(out)) as archive, progress("score", _count_lines(input), "sequences") as bar:
        for sequence in read_sequences(input, config):
            routes = sequence.routed_experts if replay == "on" else None
            batch = _padded(sequence.tokens, routes, config)
            output = _forward(params, **batch, config=config, router_logits=router_logits)
            for name, value in jax.device_get(output).items():
                length = len(sequence.tokens) - (name == "logprobs")
                with archive.open(f"{sequence.id}/{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, value[0, :length], allow_pickle=False)
            told["sequences"] += 1
            told["rows"] += len(sequence.tokens)
            if routes is not None:
                told["replayed_rows"] += int((routes >= 0).all((1, 2)).sum())
            bar.advance()
    return told


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """An .npz file to add arrays to, which is at `path` when the block ends well, and nowhere otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w") as archive:
            yield archive
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _count_lines(path: str | Path) -> int:
    _require_input(path)
    with open(path, "rb") as file:
        return sum(1 for line in file if line.strip())


def _require_input(path: str | Path) -> None:
    if not Path(path).is_file():
        raise InputError(
            f"score {path}: no such file, expected JSON lines with id, tokens and routed_experts"
        )


def read_sequences(path: str | Path, config: ModelConfig) -> Iterator[Sequence]:
    """The checked lines of an input file. Raises InputError that names the line and the field."""
    _require_input(path)
    seen: set[str] = set()
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{where} is not JSON, expected one object a line") from error
            if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not row["id"]:
                raise InputError(f"{where}: id is missing, expected a non-empty string")
            if row["id"] in seen:
                raise InputError(f"{where}: id {row['id']!r} occurs twice, expected unique ids")
            seen.add(row["id"])
            yield Sequence(
                id=row["id"], tokens=_tokens(row, where, config), routed_experts=_routes(row, where, config)
            )


def _tokens(row: dict[str, Any], where: str, config: ModelConfig) -> np.ndarray:
    tokens = row.get("tokens")
    # bool is an int to Python, and true is no token id.
    if not isinstance(tokens, list) or not tokens or any(type(token) is not int for token in tokens):
        raise InputError(f"{where}: tokens is no list of ids, expected at least one integer")
    for position, token in enumerate(tokens):
        if not 0 <= token < config.vocab_size:
            raise InputError(
                f"{where}: tokens[{position}] is {token}, expected an id below {config.vocab_size}"
            )
    return np.asarray(tokens, np.int32)


def _routes(row: dict[str, Any], where: str, config: ModelConfig) -> np.ndarray | None:
    if row.get("routed_experts") is None:
        return None
    shape = (len(row["tokens"]), config.num_moe_layers, config.num_experts_per_tok)
    try:
        routes = np.asarray(row["routed_experts"])
    except ValueError as error:
        raise InputError(
            f"{where}: routed_experts is ragged, expected integers of shape {list(shape)}"
        ) from error
    if routes.shape != shape or routes.dtype.kind != "i":
        raise InputError(
            f"{where}: routed_experts is {routes.dtype} of shape {list(routes.shape)}, "
            f"expected integers of shape {list(shape)}"
        )
    live = (routes == -1).all(axis=(1, 2))
    ordered = np.sort(routes, axis=-1)
    bad = (routes < 0) | (routes >= config.num_experts)
    repeated = (ordered[..., 1:] == ordered[..., :-1]).any(axis=(1, 2))
    wrong = ~live & (bad.any(axis=(1, 2)) | repeated)
    if wrong.any():
        t = int(wrong.argmax())
        raise InputError(
            f"{where}: routed_experts[{t}] is no selection, expected {shape[2]} different ids below "
            f"{config.num_experts} in every layer, or only -1"
        )
    return routes.astype(np.int32)


def _padded(tokens: np.ndarray, routes: np.ndarray | None, config: ModelConfig) -> dict[str, np.ndarray]:
    """A batch of one row, padded to a length that other sequences share."""
    length = _SHORTEST
    while length < len(tokens):
        length *= 2
    shape = (1, length, config.num_moe_layers, config.num_experts_per_tok)
    batch = {
        "tokens": np.zeros((1, length), np.int32),
        "segment_ids": np.zeros((1, length), np.int32),
        "routed_experts": np.full(shape, -1, np.int32),
    }
    batch["tokens"][0, : len(tokens)] = tokens
    batch["segment_ids"][0, : len(tokens)] = 1
    if routes is not None:
        batch["routed_experts"][0, : len(tokens)] = routes
    return batch


@partial(jax.jit, static_argnames=("config", "router_logits"))
def _forward(
    params: Any,
    *,
    tokens: jax.Array,
    segment_ids: jax.Array,
    routed_experts: jax.Array,
    config: ModelConfig,
    router_logits: bool,
) -> dict[str, jax.Array]:
    output = transformer.forward(
        params, config, tokens, segment_ids=segment_ids, routed_experts=routed_experts
    )
    targets = jnp.roll(tokens, -1, axis=1)
    result = {
        "logprobs": transformer.token_logprobs(params, config, output.hidden, targets),
        "routed_experts": output.routed_experts,
    }
    return result | ({"router_logits": output.router_logits} if router_logits else {})
