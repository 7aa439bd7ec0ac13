"""Metrics as JSON lines, one object a step, and the one table of their names."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from sandbox.errors import InputError

# Every metric a job writes, with its meaning. None is ever renamed: plots and scripts elsewhere read them.
NAMES: dict[str, str] = {
    "train/loss": "loss that was minimised, mean per trained token",
    "train/mtp_loss": "the multi-token prediction head's loss, mean per trained token",
    "train/grad_norm": "global norm of the gradient before clipping",
    "train/learning_rate": "learning rate of the step",
    "train/entropy": "entropy of the policy, nats per trained token",
    "train/tokens": "tokens in the loss of the step",
    "train/packed_tokens": "tokens that the step ran forward, without padding",
    "train/masked_fraction": "share of sampled tokens that the trust region left out of the loss",
    "train/masked_positive": "the same among tokens with a positive advantage, as a share of all",
    "train/masked_negative": "the same among tokens with a negative advantage, as a share of all",
    "train/reference_kl": "k3 estimate of KL(policy || reference), mean over trained tokens",
    "train/staleness": "learner version minus the version that sampled a token, mean over trained tokens",
    "train/staleness_max": "the same, maximum",
    "router/load_balancing_loss": "auxiliary loss that spreads tokens over experts; 0 in RL",
    "router/load_imbalance": "busiest expert's load over the mean load, mean over layers",
    "router/agreement": "share of recorded experts that live routing chooses too, on a part of the step",
    "router/replayed_fraction": "share of (token, layer) rows whose experts were replayed",
    "rollout/reward": "mean reward of the step's episodes",
    "rollout/reward_std": "standard deviation of the step's rewards over episodes",
    "rollout/episodes": "episodes in the step",
    "rollout/solved": "share of episodes that passed every test",
    "rollout/turns": "mean assistant turns an episode",
    "rollout/tokens": "mean tokens an episode",
    "rollout/format_errors": "share of assistant turns without a valid tool call",
    "rollout/sampled_tokens": "mean sampled tokens an episode",
    "rollout/reward_std_in_groups": "standard deviation of rewards within a group, mean over groups",
    "rollout/cancelled": "episodes that the service gave up, so far",
    "rollout/infra_errors": "episodes of the step that the infrastructure failed",
    "rollout/stale_dropped": "episodes dropped because their policy was too old",
    "rollout/too_long": "episodes dropped because they do not fit a packed row",
    "rollout/truncated": "share of episodes that a limit ended",
    "rollout/zero_variance_groups": "share of groups whose episodes all earned the same reward",
    "mismatch/mean_abs_logprob_diff": "mean |learner log-prob - engine log-prob| over sampled tokens",
    "mismatch/max_abs_logprob_diff": "the same, maximum",
    "mismatch/k1": "mean of -log r: the plain estimate of KL(engine || learner)",
    "mismatch/ratio_mean": "mean of r; 1 when engine and learner agree",
    "mismatch/ratio_max": "the same, maximum",
    "mismatch/k3": "mean of r - 1 - log r, r = learner probability / engine probability",
    "mismatch/extreme_fraction": "share of sampled tokens with r outside [1/2, 2]",
    "mismatch/expert_mismatch_fraction": "share of (token, layer) where live routing picks another set",
    "throughput/tokens_per_second": "tokens trained on per second of the whole step",
    "throughput/episodes_per_second": "episodes finished per second",
    "throughput/step_seconds": "wall time of the step",
    "throughput/wait_seconds": "time the learner waited for episodes",
    "throughput/train_seconds": "time in the training step",
    "throughput/publish_seconds": "time from the end of the step until the engine served the new weights",
}


class MetricsWriter:
    """Appends metrics to a JSON lines file; each line is on disk when `write` returns.

    Use as a context manager, or call `close`. Appending makes a resumed run continue its file, behind its
    last whole line: one that a crash cut is dropped. `read_metrics` keeps the last line of a step that was
    written twice.
    """

    def __init__(self, path: str | Path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab+")  # noqa: SIM115 (closed by close)
        self._file.seek(0)
        self._file.truncate(self._file.read().rfind(b"\n") + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line: {"step": step, "time": seconds since the epoch, **metrics}.

        Args:
          step: the optimizer step that the values belong to.
          metrics: name -> scalar (anything `float` takes). NaN and infinities become null, so that the file
          is JSON.
        """
        values = {name: float(value) for name, value in metrics.items()}
        line = {name: value if math.isfinite(value) else None for name, value in values.items()}
        text = json.dumps({"step": int(step), "time": round(time.time(), 3), **line}) + "\n"
        self._file.write(text.encode())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: str | Path) -> list[dict[str, float]]:
    """The lines of a metrics file in order of step, null as NaN.

    The last of several lines of one step wins (a resumed run repeats steps), and a last line that was cut by
    a crash is left out.

    Raises:
      InputError: a line before the last is not JSON, or has no "step".
    """
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    rows: dict[int, dict[str, float]] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):  # no newline behind it: the process died while writing
                break
            raise InputError(f"{path}: line {number} is not JSON, expected one object a line") from error
        if not isinstance(row, dict) or "step" not in row:
            raise InputError(f"{path}: line {number} has no step, expected an object with a step")
        rows[row["step"]] = {name: math.nan if value is None else value for name, value in row.items()}
    return [rows[step] for step in sorted(rows)]
