"""What the SFT and the RL loop share: stopping between steps, and where a run begins."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import jax
import numpy as np

from sandbox.errors import InputError
from t1_jax.checkpoint.manager import load_checkpoint, load_config
from t1_jax.distributed import is_first
from t1_jax.model.config import ModelConfig
from t1_jax.model.transformer import init_params
from t1_jax.observability.metrics import MetricsWriter


class StopRequest:
    """Turns SIGINT and SIGTERM into a flag while the block runs, so that a step ends before the run does.

    A second signal is answered by the handler that was there before: a run that hangs can still be killed.
    Outside the main thread, where Python delivers no signals, it only carries the flag.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """Whether the run is to end after the present step."""
        return self.event.is_set()

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.event.set()
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()


def initial_params(
    model: ModelConfig | None,
    checkpoint: Path | None,
    seed: int,
    shardings: Any = None,
    *,
    mtp: bool = False,
) -> tuple[Any, ModelConfig, dict[str, int]]:
    """Parameters to start from: a checkpoint's, or drawn by seed. Exactly one must be given.

    `mtp` asks for a checkpoint's MTP head too.

    Returns (params, config, {"version", "step"}). Raises InputError.
    """
    if (model is None) == (checkpoint is None):
        raise InputError(
            "model and checkpoint: expected exactly one of them (a fresh model or one to go on from)"
        )
    if checkpoint is not None:
        return load_checkpoint(checkpoint, shardings, mtp=mtp)
    assert model is not None
    # Said, as it is of restored parameters: left open, a step would be compiled anew when a run goes on.
    places = jax.sharding.SingleDeviceSharding(jax.devices()[0]) if shardings is None else shardings
    build = jax.jit(lambda key: init_params(model, key), out_shardings=places)
    return build(jax.random.key(seed)), model, {"version": 0, "step": 0}


def model_config(model: ModelConfig | None, checkpoint: Path | None, *, mtp: bool = False) -> ModelConfig:
    """The shape that `initial_params` will have. Raises InputError as it does, and for an MTP head that is
    asked for and not there.
    """
    if (model is None) == (checkpoint is None):
        raise InputError(
            "model and checkpoint: expected exactly one of them (a fresh model or one to go on from)"
        )
    if checkpoint is not None:
        return load_config(checkpoint, mtp=mtp)
    assert model is not None
    if mtp and not model.mtp_num_hidden_layers:
        raise InputError("model.mtp_num_hidden_layers is 0, expected 1 to train an MTP head")
    return model


def metrics_writer(out: Path) -> MetricsWriter:
    """Of `out/metrics.jsonl`; of several processes only the first one's lines are kept."""
    return MetricsWriter(out / "metrics.jsonl" if is_first() else os.devnull)


def to_floats(metrics: Mapping[str, Any], step: int) -> dict[str, float]:
    """Metrics of a step on the host, by one transfer.

    Raises FloatingPointError when loss or gradient is not finite: a state with NaN must never be saved over a
    good one.
    """
    values = {name: float(value) for name, value in jax.device_get(dict(metrics)).items()}
    for name in ("train/loss", "train/grad_norm"):
        if not np.isfinite(values[name]):
            raise FloatingPointError(
                f"step {step}: {name} is {values[name]}; the last saved state is untouched"
            )
    return values
