"""Reinforcement learning on terminal tasks: the learner's loop.

    submit groups (up to max_staleness steps ahead) -> wait for the step's groups -> advantages, packing
    -> one optimizer step with tokens and experts replayed -> save -> publish the weights to the engine

Everything that a step needs is decided by (seed, step) or lies on disk before it is used, so that the same
command goes on after a crash: states in `state/`, rollouts in `trajectories/`, the run's own id in
`run.json`.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sandbox.errors import InputError
from sandbox.files import write_json
from t1_jax.checkpoint.manager import RunState, load_checkpoint, load_config, save_checkpoint
from t1_jax.config import save_config
from t1_jax.data.packing import Aggregation, pack, split_microbatches
from t1_jax.model.config import ModelConfig
from t1_jax.model.deltanet import document_alignment
from t1_jax.model.parameters import abstract, cast_params
from t1_jax.model.transformer import RematPolicy
from t1_jax.observability.metrics import MetricsWriter
from t1_jax.observability.progress import progress
from t1_jax.sharding import MeshConfig, make_mesh, param_shardings
from t1_jax.train.advantages import AdvantageName
from t1_jax.train.batch import make_rl_batch
from t1_jax.train.gate import GateConfig, check_metrics, check_records
from t1_jax.train.ledger import Ledger, RecordedLedger
from t1_jax.train.loop import StopRequest, initial_params, to_floats
from t1_jax.train.losses import LossConfig, make_loss
from t1_jax.train.optimizer import OptimizerConfig, learning_rate_schedule, make_optimizer
from t1_jax.train.rollout_client import EngineClient, Group, RolloutClient, Stopped
from t1_jax.train.state import TrainState, abstract_state, init_state
from t1_jax.train.step import LiveForward, make_live_forward, make_train_step, place_batch

# How long one request waits for rollouts: a stop is noticed this often.
_WAIT_SECONDS = 5.0
_KEEP_WEIGHTS = 3


@dataclass(frozen=True, kw_only=True)
class RLConfig:
    """One RL run. The rollout service and the engine must be running; the engine may serve any version."""

    out: Path
    checkpoint: Path  # where the policy starts
    tasks: Path  # folder of task folders
    rollout_url: str = "http://127.0.0.1:30100"
    engine_url: str = "http://127.0.0.1:30000"
    steps: int = 100
    groups_per_step: int = 16
    group_size: int = 8
    max_staleness: int = 1  # steps that rollouts may be ahead of training; 0 is synchronous
    temperature: float = 1.0
    row_length: int = 4096  # tokens in a packed row; longer segments are dropped and counted
    rows: int = 4  # rows in a microbatch
    advantage: AdvantageName = "centred"
    negative_scale: float = 1.0  # of advantages below 0, see train/advantages.py
    overlong_filtering: bool = False  # leave out rollouts that a limit cut off, see train/batch.py
    loss: LossConfig = field(default_factory=LossConfig)
    aggregation: Aggregation = "token"
    replay: bool = True  # replay recorded experts; False routes live
    reference: Path | None = None  # checkpoint that loss.reference_kl holds the policy to
    gate: GateConfig | None = field(default_factory=GateConfig)
    recorded: Path | None = None  # trajectories/ of an earlier run: train on them again, without services
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(learning_rate=1e-6, beta2=0.98)
    )
    mtp_loss_weight: float = 0.0  # of the multi-token prediction head's loss; 0 leaves the head out
    remat_policy: RematPolicy = "none"
    save_every: int = 1  # steps between states to resume from
    patience: float = 300.0  # seconds that a service may be unreachable
    seed: int = 0
    mesh: MeshConfig | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "groups_per_step", "row_length", "rows", "save_every"):
            if getattr(self, name) < 1:
                raise InputError(f"rl.{name} is {getattr(self, name)}, expected 1 or more")
        if self.group_size < 2:
            raise InputError(
                f"rl.group_size is {self.group_size}, expected 2 or more: a group of one has no contrast"
            )
        if self.max_staleness < 0:
            raise InputError(f"rl.max_staleness is {self.max_staleness}, expected 0 or more")
        if self.negative_scale < 0:
            raise InputError(f"rl.negative_scale is {self.negative_scale}, expected 0 or more")
        if self.mtp_loss_weight < 0:
            raise InputError(f"rl.mtp_loss_weight is {self.mtp_loss_weight}, expected 0 or more")
        if self.temperature <= 0:
            raise InputError(f"rl.temperature is {self.temperature}, expected a positive number")
        if (self.reference is None) != (self.loss.reference_kl == 0):
            raise InputError(
                f"rl.reference is {self.reference} and loss.reference_kl {self.loss.reference_kl}, expected "
                "a checkpoint exactly when there is a weight"
            )


def find_tasks(folder: Path) -> list[str]:
    """Absolute paths of the task folders in `folder`, by name. Raises InputError when there is none."""
    found = sorted(str(path.parent.absolute()) for path in folder.glob("*/task.toml"))
    if not found:
        raise InputError(f"tasks {folder}: holds no folder with a task.toml")
    return found


def step_groups(config: RLConfig, tasks: Sequence[str], run_id: str, step: int) -> list[Group]:
    """The groups of a step: a pure function of (config, tasks, run, step).

    Tasks are drawn without replacement: each epoch is a permutation of its own.
    """
    groups = []
    for index in range(step * config.groups_per_step, (step + 1) * config.groups_per_step):
        epoch, place = divmod(index, len(tasks))
        order = np.random.default_rng([config.seed, epoch]).permutation(len(tasks))
        seed = int(np.random.default_rng([config.seed, 1, index]).integers(2**31))
        groups.append(
            Group(
                group_id=f"{run_id}-{step:05d}-{index % config.groups_per_step:03d}",
                task=tasks[order[place]],
                attempts=config.group_size,
                seed=seed,
                temperature=config.temperature,
            )
        )
    return groups


class _Rollouts:
    """Submits groups, and brings a step's rollouts home."""

    def __init__(
        self,
        config: RLConfig,
        run_id: str,
        client: RolloutClient,
        ledger: Ledger,
        stop: StopRequest,
        step: int,
    ):
        self.config, self.run_id, self.client, self.ledger, self.stop = config, run_id, client, ledger, stop
        self.tasks = find_tasks(config.tasks)
        self._next = step  # the first step that was not submitted

    def groups(self, step: int, version: int) -> list[Group]:
        """The step's groups, for policies no older than may be trained on when the step's is `version`."""
        min_version = max(-1, version - self.config.max_staleness)
        groups = step_groups(self.config, self.tasks, self.run_id, step)
        return [replace(group, min_version=min_version) for group in groups]

    def submit(self, step: int, version: int) -> None:
        """Submit the groups up to max_staleness steps after `step`, whose policy is `version`, that were not
        submitted yet; after a restart the service may know them.
        """
        last = min(step + self.config.max_staleness, self.config.steps - 1)
        later = range(self._next, last + 1)
        groups = [group for other in later for group in self.groups(other, version + other - step)]
        if groups:
            self.client.submit(groups)
            self._next = last + 1

    def collect(self, step: int, version: int, serve: Callable[[], object]) -> int:
        """Wait until every rollout of the step has ended; returns how many never came (cancelled at the
        service).

        `serve` is called whenever a wait brought nothing: an engine that was restarted has the weights it was
        started with, and the service holds back what they must not sample.

        Raises Stopped when the run is asked to stop meanwhile.
        """
        groups = self.groups(step, version)
        expected = {rollout_id for group in groups for rollout_id in group.rollout_ids}
        while missing := expected - self.ledger.rollout_ids(step):
            if self.stop.requested:
                raise Stopped
            leased = self.client.lease(self.config.groups_per_step * self.config.group_size, _WAIT_SECONDS)
            for trajectory in leased:
                run_id, _, rest = trajectory.group_id.rpartition("-")[0].rpartition("-")
                if run_id == self.run_id:  # the store may still hold rollouts of an older run
                    self.ledger.add(int(rest), [trajectory])
            if leased:
                self.client.ack([trajectory.rollout_id for trajectory in leased])
            elif self.client.pending() == 0 and self.client.submit(groups) == 0:
                # Nothing is on its way and the service knows the groups: the missing were cancelled there.
                return len(missing - self.ledger.rollout_ids(step))
            else:
                serve()
        return 0


class _Recorded:
    """The rollouts of an earlier run in their place: what it trained on is all in its trajectories."""

    def __init__(self, ledger: RecordedLedger, steps: int):
        for step in range(steps):
            ledger.path(step)

    def submit(self, step: int, version: int) -> None:
        """Nothing is to be played."""

    def collect(self, step: int, version: int, serve: Callable[[], object]) -> int:
        """Everything is there."""
        return 0


class _Versions:
    """Counts policy versions as `_Weights` does, for a run that no engine follows."""

    def __init__(self, first: int):
        self.first = first

    def publish(self, state: TrainState) -> int:
        """The version of this state."""
        return self.first + int(state.step)


class _Weights:
    """Publishes policy versions to the engine: `version` = the first checkpoint's + optimizer steps since."""

    def __init__(self, config: RLConfig, model: ModelConfig, client: EngineClient, first: int):
        self.config, self.model, self.client, self.first = config, model, client, first
        self.folder = config.out / "weights"
        self.published: int | None = None  # by this process

    def publish(self, state: TrainState) -> int:
        """Have the engine serve this state, unless it already does; returns the version.

        A version that this process did not publish is not trusted: an engine that was started with other
        weights may call them by the same number.
        """
        steps = int(state.step)
        version = self.first + steps
        folder = self.folder / f"v{version}" if steps else self.config.checkpoint.absolute()
        if steps and not folder.exists():
            self.save(folder, state, version)
        if self.published != version or self.client.version() != str(version):
            self.client.publish(folder.absolute(), version)
            self.published = version
        kept = sorted(self.folder.glob("v*"), key=lambda path: int(path.name[1:]))[:-_KEEP_WEIGHTS]
        for old in kept:
            shutil.rmtree(old)
        return version

    def save(self, folder: Path, state: TrainState, version: int) -> None:
        """Write the state's parameters as a model checkpoint."""
        _save_policy(self.config, self.model, folder, state, version)


def _save_policy(config: RLConfig, model: ModelConfig, folder: Path, state: TrainState, version: int) -> None:
    """Write the state's parameters as a model checkpoint with the first checkpoint's tokenizer."""
    save_checkpoint(
        folder,
        state.params,
        model,
        tokenizer_dir=config.checkpoint,
        version=version,
        step=int(state.step),
    )


class _Reference:
    """Log-probs of a frozen policy, routed live."""

    def __init__(self, folder: Path, model: ModelConfig, forward: LiveForward, places: Any, mtp: bool):
        if load_config(folder, mtp=mtp) != model:
            raise InputError(f"reference {folder}: is of another shape, expected the policy's")
        params, _, _ = load_checkpoint(folder, places, mtp=mtp)
        self.params, self.forward = cast_params(params, model), forward

    def logprobs(self, batch: dict[str, jax.Array]) -> jax.Array:
        """Of a batch with leaves [M, B, T]: float32 [M, B, T]."""
        return jnp.stack(
            [self.forward(self.params, _microbatch(batch, m))[0] for m in range(len(batch["tokens"]))]
        )


def _microbatch(batch: Mapping[str, Any], index: int) -> dict[str, Any]:
    return {name: leaf[index] for name, leaf in batch.items()}


def run(config: RLConfig) -> dict[str, Any]:
    """Train; the last policy is `out/checkpoint`, versions on their way are `out/weights/v{n}` (the last
    three).

    The same call goes on from the last saved step: version numbers, task order and received rollouts
    included. SIGINT and SIGTERM end the run after the present step (or wait for rollouts), saved.

    Returns:
      {"steps", "version", "reward" (mean of the last step), "seconds", "finished", "checkpoint"}.

    Raises:
      InputError: bad config, a record that does not fit the model, or a service that stays unreachable.
      FloatingPointError: loss or gradient is not finite.
    """
    started = time.monotonic()
    config.out.mkdir(parents=True, exist_ok=True)
    save_config(config, config.out / "config.yaml")
    mtp = config.mtp_loss_weight > 0
    model = load_config(config.checkpoint, mtp=mtp)
    mesh = None if config.mesh is None else make_mesh(config.mesh)
    optimizer = make_optimizer(config.optimizer, config.steps)
    schedule = learning_rate_schedule(config.optimizer, config.steps)
    step_fn = make_train_step(
        model,
        optimizer,
        make_loss(config.loss),
        mesh,
        temperature=config.temperature,
        remat_policy=config.remat_policy,
        mtp_loss_weight=config.mtp_loss_weight,
        dispatch_tokens=None if config.mesh is None else config.mesh.dispatch_tokens,
    )
    live = make_live_forward(
        model,
        mesh,
        temperature=config.temperature,
        dispatch_tokens=None if config.mesh is None else config.mesh.dispatch_tokens,
    )
    routes_shape = (model.num_moe_layers, model.num_experts_per_tok) if config.replay else None
    with RunState(config.out / "state") as states, StopRequest() as stop:
        data: dict[str, Any]
        places = None if mesh is None else param_shardings(abstract(model), mesh)
        reference = None
        if config.reference is not None:
            reference = _Reference(config.reference, model, live, places, mtp)
        if states.latest_step is None:
            params, _, meta = initial_params(None, config.checkpoint, config.seed, places, mtp=mtp)
            state, data = (
                init_state(model, optimizer, params, mesh),
                {"step": 0, "version": meta["version"], "reward": None},
            )
            del params
        else:
            state, data = states.restore(abstract_state(model, optimizer, mesh))
        step, reward, microbatches = data["step"], data["reward"], 1
        ledger, rollouts, weights = _partners(config, model, stop, step, data["version"])
        probed = None
        with MetricsWriter(config.out / "metrics.jsonl") as writer, progress("rl", config.steps) as bar:
            bar.advance(step)
            while step < config.steps and not stop.requested:
                begun = time.monotonic()
                try:
                    # Also at a resumed start, and when the engine came back with the weights it was started
                    # with.
                    version = weights.publish(state)
                    rollouts.submit(step, version)
                    cancelled = rollouts.collect(step, version, partial(weights.publish, state))
                except Stopped:
                    break
                waited = time.monotonic()
                batch = make_rl_batch(
                    ledger.trajectories(step),
                    model,
                    advantage=config.advantage,
                    negative_scale=config.negative_scale,
                    policy_version=version,
                    max_staleness=config.max_staleness,
                    row_length=config.row_length,
                    replay=config.replay,
                    overlong_filtering=config.overlong_filtering,
                )
                metrics = batch.metrics | {"rollout/cancelled": float(cancelled)}
                if batch.documents:
                    packed = pack(
                        batch.documents,
                        row_length=config.row_length,
                        aggregation=config.aggregation,
                        routes_shape=routes_shape,
                        align=document_alignment(model),
                    )
                    metrics["train/learning_rate"] = float(schedule(state.step))
                    split = split_microbatches(packed, config.rows, at_least=microbatches)
                    microbatches = len(split["tokens"])  # a smaller step compiles nothing new
                    placed = place_batch(split, mesh)
                    if reference is not None:
                        placed["reference_logprobs"] = reference.logprobs(placed)
                    gate = config.gate
                    if gate and config.replay and (probed is None or step - probed >= gate.probe_every):
                        probed, first = step, _microbatch(split, 0)
                        chosen = live(state.params, _microbatch(placed, 0))[1]
                        metrics |= check_records(first, np.asarray(chosen))
                    state, device_metrics = step_fn(state, placed)
                    metrics |= to_floats(device_metrics, step)
                    if gate:
                        check_metrics(gate, step, metrics, replay=config.replay)
                trained = time.monotonic()
                step, reward = step + 1, metrics.get("rollout/reward")
                data = {"step": step, "version": weights.first, "reward": reward}
                if step % config.save_every == 0 or step == config.steps or stop.requested:
                    states.save(step, state, data)
                ledger.forget(step - 1)
                states.wait()  # before the weights are published that a lost state would not know of
                try:
                    weights.publish(state)
                except Stopped:
                    break
                finally:
                    ended = time.monotonic()
                    metrics |= {
                        "throughput/wait_seconds": waited - begun,
                        "throughput/train_seconds": trained - waited,
                        "throughput/publish_seconds": ended - trained,
                        "throughput/step_seconds": ended - begun,
                        "throughput/tokens_per_second": metrics.get("train/packed_tokens", 0.0)
                        / (ended - begun),
                        "throughput/episodes_per_second": metrics["rollout/episodes"] / (ended - begun),
                    }
                    writer.write(step, metrics)
                bar.advance(1, reward=reward or 0.0, k3=metrics.get("mismatch/k3", 0.0))
        if step and step != states.latest_step:
            states.save(step, state, data)
        finished = step >= config.steps
        checkpoint = config.out / "checkpoint"
        version = weights.first + int(state.step)
        if finished:
            _save_policy(config, model, checkpoint, state, version)
    summary = {
        "steps": step,
        "version": version,
        "reward": reward,
        "seconds": time.monotonic() - started,
        "finished": finished,
        "checkpoint": str(checkpoint) if finished else None,
    }
    write_json(config.out / "summary.json", summary)
    return summary


def _partners(
    config: RLConfig, model: ModelConfig, stop: StopRequest, step: int, version: int
) -> tuple[Ledger | RecordedLedger, _Rollouts | _Recorded, _Weights | _Versions]:
    """Where rollouts come from and where weights go to: the services, or an earlier run's record and none."""
    if config.recorded is not None:
        earlier = RecordedLedger(config.recorded)
        return earlier, _Recorded(earlier, config.steps), _Versions(version)
    ledger = Ledger(config.out / "trajectories", step)
    client = RolloutClient(config.rollout_url, patience=config.patience, stop=stop.event)
    engine = EngineClient(config.engine_url, patience=config.patience, stop=stop.event)
    rollouts = _Rollouts(config, _run_id(config.out), client, ledger, stop, step)
    return ledger, rollouts, _Weights(config, model, engine, version)


def _run_id(out: Path) -> str:
    """The run's own id, kept in its folder: a new run must not be given the rollouts of an older one."""
    path = out / "run.json"
    if not path.is_file():
        write_json(path, {"run_id": uuid.uuid4().hex[:12]})
    return json.loads(path.read_text())["run_id"]
