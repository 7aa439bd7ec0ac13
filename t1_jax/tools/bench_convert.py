"""`bench convert`: conversions next to a plain copy of the same bytes, and their peak memory.

The checkpoint has the tensor shapes of Qwen3.5-122B-A10B (256 experts of 1024, hidden 3072, the whole
vocabulary) and as few layers as make up the size asked for. Contents are random bits, which nothing shortens.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sandbox.errors import InputError
from t1_jax.checkpoint.names import placements
from t1_jax.checkpoint.shards import INDEX, make_header
from t1_jax.model.config import ModelConfig
from t1_jax.tools.bench import machine

_SHARD_BYTES = 4 << 30
_SIDES: dict[str, tuple[str, str, str]] = {
    "hf to orbax": ("source", "orbax", "orbax"),
    "orbax to hf": ("orbax", "hf", "hf"),
}


def layer_shapes(layers: int) -> ModelConfig:
    """Qwen3.5-122B-A10B with fewer layers: pairs of a DeltaNet and an attention layer."""
    return ModelConfig(
        vocab_size=248320,
        hidden_size=3072,
        num_hidden_layers=layers,
        full_attention_interval=2,
        num_attention_heads=32,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=64,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        num_experts=256,
        num_experts_per_tok=8,
        moe_intermediate_size=1024,
        shared_expert_intermediate_size=1024,
    )


def write_checkpoint(folder: Path, config: ModelConfig) -> tuple[int, int]:
    """Write a Hugging Face folder of random bfloat16 tensors: (bytes of all tensors, of the largest)."""
    folder.mkdir(parents=True)
    block = np.random.default_rng(0).integers(0, 256, 1 << 26, np.uint8)
    parts: list[list[tuple[str, str, tuple[int, ...]]]] = [[]]
    sizes = [0]
    largest = 0
    for place in placements(config):
        nbytes = 2 * place.size
        largest = max(largest, nbytes)
        if parts[-1] and sizes[-1] + nbytes > _SHARD_BYTES:
            parts.append([])
            sizes.append(0)
        parts[-1].append((place.name, "BF16", place.shape))
        sizes[-1] += nbytes
    weight_map: dict[str, str] = {}
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True), 1):
        file = f"model.safetensors-{number:05d}-of-{len(parts):05d}.safetensors"
        header = make_header(part)
        weight_map |= {name: file for name, _, _ in part}
        with open(folder / file, "wb") as out:
            out.write(len(header).to_bytes(8, "little") + header)
            for start in range(0, size, len(block)):
                block[:8] = np.frombuffer(np.int64(start + number).tobytes(), np.uint8)  # no two alike
                out.write(block[: min(len(block), size - start)].data)
    index = {"metadata": {"total_size": sum(sizes)}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config.to_hf()))
    return sum(sizes), largest


def bench_convert(gigabytes: float, work: Path | None = None) -> dict[str, Any]:
    """Measure both directions; every side ends with its bytes on the disk (sync).

    Args:
      gigabytes: size of the checkpoint, at least; three times as much is taken on the disk.
      work: where to put it; a temporary folder by default. What is made there is deleted.

    Returns:
      {"bench", "machine", "bytes", "largest_tensor", "rows"}: MB/s of each direction, verification included,
      next to a copy of the same files, and peak memory in MB next to the bound 1 GiB + 2 times the largest
      tensor.
    """
    size = lambda layers: sum(2 * place.size for place in placements(layer_shapes(layers)))  # noqa: E731
    pair = size(4) - size(2)
    layers = 2 + 2 * max(0, math.ceil((gigabytes * 1e9 - size(2)) / pair))
    with tempfile.TemporaryDirectory(dir=work, prefix="bench-convert-") as name:
        folder = Path(name)
        total, largest = write_checkpoint(folder / "source", layer_shapes(layers))
        os.sync()
        bound = (1 << 30) + 2 * largest
        rows: list[dict[str, Any]] = []
        for side, (source, target, to) in _SIDES.items():
            copied = _timed(lambda source=source: shutil.copytree(folder / source, folder / "copy"))  # type: ignore[misc]
            shutil.rmtree(folder / "copy")
            words = ["convert", "--src", folder / source, "--dst", folder / target, "--to", to]
            peaks: list[int] = []
            taken = _timed(lambda words=words, peaks=peaks: peaks.append(_run(words)))  # type: ignore[misc]
            rows.append(_row(side, "MB/s", total / 1e6 / taken, total / 1e6 / copied, "copy", larger=True))
            rows.append(
                _row(f"{side}, peak memory", "MB", peaks[0] / 1e6, bound / 1e6, "bound", larger=False)
            )
        for file in (folder / "source").iterdir():
            if subprocess.run(["cmp", "-s", file, folder / "hf" / file.name]).returncode:
                raise InputError(f"bench convert: {file.name} came back differently")
    return {
        "bench": "convert",
        "machine": machine(),
        "bytes": total,
        "largest_tensor": largest,
        "rows": rows,
    }


def _row(work: str, unit: str, ours: float, peer: float, name: str, *, larger: bool) -> dict[str, Any]:
    ratio = ours / peer if larger else peer / ours
    return {
        "work": work, "unit": unit, "ours": round(ours, 1), "peer": round(peer, 1), "peer_name": name,
        "ratio": round(ratio, 3),
    }  # fmt: skip


def _timed(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    os.sync()
    return time.monotonic() - started


def _run(words: list[Any]) -> int:
    """Run the command line as a process of its own; its peak resident memory in bytes."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, str(root / "launch.py"), *map(str, words)], stdout=2)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InputError(f"bench convert: {words[0]} ended with exit code {process.returncode}")
    return usage.ru_maxrss * 1024
