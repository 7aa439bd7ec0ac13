"""The train step replays its own record bit for bit: over microbatches, on one and on eight devices."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

from t1_jax.data.packing import pack, split_microbatches
from t1_jax.data.trajectories import to_document
from t1_jax.sharding import MeshConfig, make_mesh
from t1_jax.train.losses import LossConfig, make_loss
from t1_jax.train.optimizer import OptimizerConfig, make_optimizer
from t1_jax.train.state import init_state
from t1_jax.train.step import batch_logprobs, make_train_step, place_batch
from tests.train.micro import MICRO, micro_params, trajectory


def step_live_and_replayed(mesh):
    """(state, metrics) of a step of two microbatches, routed live and by the record of that."""
    params = micro_params()
    optimizer = make_optimizer(OptimizerConfig(learning_rate=1e-2), 10)
    lengths = (11, 17, 9, 22, 14, 8, 12, 19)
    documents = [to_document(trajectory(f"r{i}", n, seed=i, routes=True), MICRO, advantage=0.5 - i % 2)
                 for i, n in enumerate(lengths)]  # fmt: skip
    batch = pack(documents, row_length=32, num_rows=8)
    batch["routed_experts"] = np.full_like(batch["routed_experts"], -1)
    record = jax.jit(lambda batch: batch_logprobs(params, MICRO, batch)[2].routed_experts)(batch)
    step = make_train_step(MICRO, optimizer, make_loss(LossConfig()), mesh)
    results = []
    for routes in (batch["routed_experts"], np.asarray(record)):
        split = split_microbatches({**batch, "routed_experts": routes}, 4)
        state, metrics = step(init_state(MICRO, optimizer, params, mesh), place_batch(split, mesh))
        replayed = metrics.pop("router/replayed_fraction")
        results.append(jax.device_get((state.params, state.opt_state, metrics)))
    assert float(replayed) == 1.0
    return results


def check(mesh=None):
    jax.tree.map(np.testing.assert_array_equal, *step_live_and_replayed(mesh))


def test_in_gradient_accumulation():
    check()


def on_eight_devices():
    check(make_mesh(MeshConfig(replica=1, fsdp=2, expert=2, context=2, tensor=1)))
    print("equal", len(jax.devices()))


def test_on_eight_devices():
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    script = "from tests.train.test_replay import on_eight_devices; on_eight_devices()"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "equal 8", done.stderr[-2000:]
