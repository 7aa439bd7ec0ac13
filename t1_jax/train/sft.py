"""Supervised fine-tuning on recorded demonstrations."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sandbox.errors import InputError
from sandbox.files import write_json
from t1_jax.checkpoint.manager import RunState, save_checkpoint
from t1_jax.config import save_config
from t1_jax.data.sft import count_batches, sft_dataset
from t1_jax.data.trajectories import (
    Document,
    read_trajectories,
    select_by_reward,
    split_by_length,
    to_document,
)
from t1_jax.distributed import any_process
from t1_jax.model.config import ModelConfig
from t1_jax.model.deltanet import document_alignment
from t1_jax.model.parameters import abstract
from t1_jax.model.transformer import RematPolicy
from t1_jax.observability.progress import progress
from t1_jax.sharding import MeshConfig, make_mesh, param_shardings
from t1_jax.train.loop import StopRequest, initial_params, metrics_writer, model_config, to_floats
from t1_jax.train.losses import sft_loss
from t1_jax.train.optimizer import OptimizerConfig, learning_rate_schedule, make_optimizer
from t1_jax.train.state import abstract_state, init_state
from t1_jax.train.step import make_train_step, place_batch


@dataclass(frozen=True, kw_only=True)
class SFTConfig:
    """One SFT run. Give `model` (with `tokenizer`) to start from random parameters, or `checkpoint` to go on
    from one.
    """

    out: Path
    data: tuple[Path, ...]  # frames files, or folders of them
    model: ModelConfig | None = None
    checkpoint: Path | None = None
    tokenizer: Path | None = None  # folder with tokenizer.json; default: the checkpoint
    row_length: int = 2048  # tokens in a packed row
    rows: int = 8  # rows in a microbatch
    microbatches: int = 1  # microbatches in an optimizer step
    epochs: int = 1
    steps: int | None = None  # optimizer steps; overrides epochs
    too_long: Literal["refuse", "drop"] = "refuse"  # demonstrations longer than a row
    replay: bool = True  # replay recorded routes where demonstrations have them
    min_reward: float | None = (
        None  # rejection sampling: rollouts below it, or without a reward, are left out
    )
    best_of: int | None = None  # of a group's rollouts, only so many, those with the highest rewards
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(schedule="cosine", warmup_steps=10)
    )
    router_aux_loss_coef: float = 0.001
    mtp_loss_weight: float = 0.0  # of the multi-token prediction head's loss; 0 leaves the head out
    remat_policy: RematPolicy = "none"
    save_every: int = 100  # steps between states to resume from
    seed: int = 0
    mesh: MeshConfig | None = None

    def __post_init__(self) -> None:
        for name in ("row_length", "rows", "microbatches", "epochs", "save_every"):
            if getattr(self, name) < 1:
                raise InputError(f"sft.{name} is {getattr(self, name)}, expected 1 or more")
        if self.mtp_loss_weight < 0:
            raise InputError(f"sft.mtp_loss_weight is {self.mtp_loss_weight}, expected 0 or more")
        if self.steps is not None and self.steps < 1:
            raise InputError(f"sft.steps is {self.steps}, expected 1 or more")
        if self.best_of is not None and self.best_of < 1:
            raise InputError(f"sft.best_of is {self.best_of}, expected 1 or more")
        if self.tokenizer is None and self.checkpoint is None:
            raise InputError("sft.tokenizer is missing; expected a folder with tokenizer.json")


def load_documents(config: SFTConfig, model: ModelConfig) -> list[Document]:
    """Read, check and filter the demonstrations. Raises InputError, as for long ones that are refused."""
    trajectories = select_by_reward(
        read_trajectories(config.data), min_reward=config.min_reward, best_of=config.best_of
    )
    documents = [to_document(trajectory, model) for trajectory in trajectories]
    kept, long = split_by_length(documents, config.row_length)
    if long and config.too_long == "refuse":
        raise InputError(
            f"trajectory {long[0].rollout_id}: {len(long[0].tokens)} tokens do not fit a row, expected at "
            f"most row_length {config.row_length} (or too_long: drop)"
        )
    kept = [document for document in kept if document.loss_mask.any()]
    if not kept:
        raise InputError(
            f"sft.data: none of {len(trajectories)} trajectories (after min_reward and best_of) has a token "
            "to train on and fits a row"
        )
    return kept


def run(config: SFTConfig) -> dict[str, Any]:
    """Train; the model checkpoint is `out/checkpoint`, metrics are in `out/metrics.jsonl`.

    The same call goes on from the last saved state, bit for bit as if it had never stopped. SIGINT and
    SIGTERM end the run after the present step, saved.

    Returns:
      {"steps", "loss", "dropped" (demonstrations longer than a row), "seconds", "finished", "checkpoint"}.

    Raises:
      InputError: bad config or data.
      FloatingPointError: loss or gradient is not finite.
    """
    started = time.monotonic()
    config.out.mkdir(parents=True, exist_ok=True)
    save_config(config, config.out / "config.yaml")
    model = model_config(config.model, config.checkpoint, mtp=config.mtp_loss_weight > 0)
    mesh = None if config.mesh is None else make_mesh(config.mesh)
    documents = load_documents(config, model)
    recorded = config.replay and any(document.routed_experts is not None for document in documents)
    routes_shape = (model.num_moe_layers, model.num_experts_per_tok) if recorded else None
    align = document_alignment(model)
    total = config.steps or count_batches(
        documents,
        row_length=config.row_length,
        rows=config.rows * config.microbatches,
        epochs=config.epochs,
        seed=config.seed,
        align=align,
    )
    dataset = sft_dataset(
        documents,
        row_length=config.row_length,
        rows=config.rows,
        microbatches=config.microbatches,
        epochs=None if config.steps else config.epochs,
        seed=config.seed,
        routes_shape=routes_shape,
        align=align,
    )
    batches = iter(dataset)
    optimizer = make_optimizer(config.optimizer, total)
    schedule = learning_rate_schedule(config.optimizer, total)
    step_fn = make_train_step(
        model,
        optimizer,
        sft_loss,
        mesh,
        remat_policy=config.remat_policy,
        router_aux_loss_coef=config.router_aux_loss_coef,
        mtp_loss_weight=config.mtp_loss_weight,
        dispatch_tokens=None if config.mesh is None else config.mesh.dispatch_tokens,
    )
    with RunState(config.out / "state") as states, StopRequest() as stop:
        if states.latest_step is None:
            places = None if mesh is None else param_shardings(abstract(model), mesh)
            params, _, _ = initial_params(
                config.model, config.checkpoint, config.seed, places, mtp=config.mtp_loss_weight > 0
            )
            state, step, loss = init_state(model, optimizer, params, mesh), 0, float("nan")
            del params
        else:
            state, data = states.restore(abstract_state(model, optimizer, mesh))
            step, loss = int(state.step), data["loss"]
            batches.set_state(data["iterator"])
        with metrics_writer(config.out) as writer, progress("sft", total) as bar:
            bar.advance(step)
            while step < total and not any_process(stop.requested):
                begun = time.monotonic()
                batch = place_batch(next(batches), mesh)
                state, device_metrics = step_fn(state, batch)
                metrics = to_floats(device_metrics, step)
                seconds = time.monotonic() - begun
                metrics["train/learning_rate"] = float(schedule(step))
                metrics["throughput/step_seconds"] = seconds
                metrics["throughput/tokens_per_second"] = metrics["train/packed_tokens"] / seconds
                step, loss = step + 1, metrics["train/loss"]
                writer.write(step, metrics)
                bar.advance(1, loss=loss, tokens_per_second=metrics["throughput/tokens_per_second"])
                if step % config.save_every == 0 or step == total:
                    states.save(step, state, {"iterator": batches.get_state(), "loss": loss})
        if step and step != states.latest_step:
            states.save(step, state, {"iterator": batches.get_state(), "loss": loss})
        states.wait()
        finished = step >= total
        checkpoint = config.out / "checkpoint"
        if finished:
            tokenizer = config.tokenizer or config.checkpoint
            save_checkpoint(checkpoint, state.params, model, tokenizer_dir=tokenizer, version=0, step=step)
    summary = {
        "steps": step,
        "loss": loss,
        "documents": len(documents),
        "seconds": time.monotonic() - started,
        "finished": finished,
        "checkpoint": str(checkpoint) if finished else None,
    }
    write_json(config.out / "summary.json", summary)
    return summary
