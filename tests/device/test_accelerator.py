"""The accelerator's kernels and one training step against the CPU of the same machine, and its speed."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.config import load_config
from t1_jax.data.packing import pack, split_microbatches
from t1_jax.data.trajectories import to_document
from t1_jax.kernels.attention import packed_attention
from t1_jax.kernels.grouped_matmul import group_layout, grouped_matmul
from t1_jax.model.config import ModelConfig
from t1_jax.model.transformer import init_params
from t1_jax.parallel.platform import compiling_for
from t1_jax.sharding import MeshConfig, make_mesh
from t1_jax.train.losses import LossConfig, make_loss
from t1_jax.train.optimizer import OptimizerConfig, make_optimizer
from t1_jax.train.state import init_state
from t1_jax.train.step import make_train_step, place_batch
from tests.train.micro import trajectory

TINY = replace(load_config(ModelConfig, "configs/model/tiny.yaml"), dtype="float32")


def on_both(function, *arrays):
    """A function's results on the accelerator and on the CPU, with float32 products on both."""
    with jax.default_matmul_precision("highest"):
        found = jax.device_get(jax.jit(function)(*arrays))
        cpu = jax.local_devices(backend="cpu")[0]
        with jax.default_device(cpu), compiling_for("cpu"):
            expected = jax.device_get(jax.jit(lambda *xs: function(*xs))(*jax.device_put(arrays, cpu)))
    return found, expected


def close(found, expected, tolerance):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b)


def test_grouped_matmul():
    groups = jax.random.randint(jax.random.key(0), (4096,), 0, 8)
    layout = group_layout(groups, 8, 128)
    rows = jax.random.normal(jax.random.key(1), (len(layout.row_of_slot), 256))
    matrices = jax.random.normal(jax.random.key(2), (8, 256, 128))
    filled = layout.row_of_slot < 4096

    def run(rows, matrices):
        def total(rows, matrices):
            out = grouped_matmul(rows, matrices, layout.group_sizes, block=128)
            return jnp.sum(jnp.where(filled[:, None], jnp.sin(out), 0))

        return jax.value_and_grad(total, argnums=(0, 1))(rows, matrices)

    close(*on_both(run, rows, matrices), 1e-4)


def test_attention():
    q = jax.random.normal(jax.random.key(0), (2, 512, 8, 256))
    k, v = (jax.random.normal(jax.random.key(i), (2, 512, 2, 256)) for i in (1, 2))
    segments = jnp.asarray(np.stack([1 + np.arange(512) // 200, np.ones(512)]), jnp.int32)

    def run(q, k, v):
        def total(*qkv):
            return jnp.sum(jnp.sin(packed_attention(*qkv, segments)))

        return jax.value_and_grad(total, argnums=(0, 1, 2))(q, k, v)

    close(*on_both(run, q, k, v), 1e-4)


def batch(model, rows, length):
    documents = [
        to_document(
            trajectory(f"r{i}", length, seed=i, routes=True, version=1, model=model),
            model, advantage=0.5 - i % 2, policy_version=2,
        )
        for i in range(rows)
    ]  # fmt: skip
    return split_microbatches(pack(documents, row_length=length), rows)


def test_a_training_step():
    optimizer = make_optimizer(OptimizerConfig(), 10)
    params = jax.device_get(init_params(TINY, jax.random.key(0)))
    prepared = batch(TINY, 4, 256)

    def step():
        run = make_train_step(TINY, optimizer, make_loss(LossConfig()))
        return jax.device_get(run(init_state(TINY, optimizer, params), place_batch(prepared))[1])

    with jax.default_matmul_precision("highest"):
        found = step()
        with jax.default_device(jax.local_devices(backend="cpu")[0]), compiling_for("cpu"):
            expected = step()
    for name in ("train/loss", "train/grad_norm", "train/entropy"):
        assert found[name] == pytest.approx(expected[name], rel=1e-3), name


def test_tokens_a_second(record_property):
    """All devices of the machine; the number is printed and recorded, and has to be one."""
    model = replace(TINY, dtype="bfloat16", hidden_size=512, moe_intermediate_size=256)
    optimizer = make_optimizer(OptimizerConfig(), 10)
    mesh = make_mesh(MeshConfig())
    rows = 8 * len(jax.devices())
    step = make_train_step(model, optimizer, make_loss(LossConfig()), mesh, remat_policy="full")
    state = init_state(model, optimizer, init_params(model, jax.random.key(0)), mesh)
    prepared = place_batch(batch(model, rows, 1024), mesh)
    state, _ = step(state, prepared)
    begun = time.perf_counter()
    for _ in range(5):
        state, metrics = step(state, prepared)
    assert np.isfinite(float(metrics["train/loss"]))
    speed = 5 * rows * 1024 / (time.perf_counter() - begun)
    record_property("tokens_per_second", speed)
    print(f"{jax.devices()[0].device_kind} x {len(jax.devices())}: {speed:,.0f} tokens/s")
    assert speed > 0
