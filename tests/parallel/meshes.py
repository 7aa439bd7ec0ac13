"""Train steps on meshes of eight virtual devices against one device. A program of its own: XLA fixes the
number of devices when it starts.
"""

import os

# Little optimisation: these programs run for a moment, and compiling them is what takes time.
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true"
)

import sys
from dataclasses import replace

import jax
import numpy as np
import optax

from t1_jax.data.packing import pack, split_microbatches
from t1_jax.data.trajectories import to_document
from t1_jax.model.transformer import init_params
from t1_jax.sharding import MeshConfig, make_mesh
from t1_jax.train.losses import LossConfig, make_loss
from t1_jax.train.state import init_state
from t1_jax.train.step import make_train_step, place_batch
from tests.train.micro import MICRO, trajectory

# Enough heads and experts for eight devices along any axis, and few key-value heads, which are then shared.
MODEL = replace(
    MICRO,
    num_hidden_layers=2,
    full_attention_interval=2,
    initializer_range=0.1,
    num_attention_heads=8,
    num_key_value_heads=2,
    linear_num_key_heads=8,
    linear_num_value_heads=8,
    num_experts=8,
    moe_intermediate_size=16,
)
MESHES = {
    "replica": {"replica": 8},
    "fsdp": {"fsdp": 8, "remat": "full"},
    "expert": {"expert": 8},
    "context": {"context": 8},
    "tensor": {"tensor": 8},
    "fsdp x expert x context": {"fsdp": 2, "expert": 2, "context": 2, "remat": "dispatch"},
    "replica x fsdp x tensor": {"replica": 2, "fsdp": 2, "tensor": 2},
    "expert x tensor": {"expert": 4, "tensor": 2, "dispatch_tokens": 32},
    "context x tensor": {"context": 2, "tensor": 4},
    "replica x expert x context": {"replica": 2, "expert": 2, "context": 2, "dispatch_tokens": 16},
    "fsdp x context": {"fsdp": 4, "context": 2},
}
LENGTH, ROWS = 64, 8


def batches():
    """Packed rows of the same documents: replayed where they are recorded, live, all tokens on one set of
    experts (the other experts are empty), and routes that leave a device of the expert axis without work.
    """
    documents = [
        to_document(
            trajectory(f"r{i}", n, seed=i, routes=i % 3 > 0, version=1, model=MODEL),
            MODEL,
            advantage=0.5 - i % 2,
            policy_version=2,
        )
        for i, n in enumerate([64, 40, 17, 9, 22, 50, 33, 12, 60, 7, 15, 28, 44, 61, 19, 30, 64])
    ]
    packed = pack(documents, row_length=LENGTH)
    routes = packed["routed_experts"]
    one = np.broadcast_to(np.arange(MODEL.num_experts_per_tok), routes.shape)
    two = np.where(np.arange(LENGTH)[:, None, None] % 2, one, one + 4)
    given = {"replayed": routes, "live": np.full_like(routes, -1), "one": one, "some empty": two}
    return {
        name: split_microbatches({**packed, "routed_experts": np.ascontiguousarray(value)}, ROWS)
        for name, value in given.items()
    }


def run(params, mesh, batches, sizes):
    """Loss metrics and gradients by batch. The optimizer's state is the gradient itself."""
    optimizer = optax.trace(decay=0.0)
    step = make_train_step(
        MODEL, optimizer, make_loss(LossConfig(name="gspo")), mesh, remat_policy=sizes.get("remat", "none"),
        router_aux_loss_coef=0.1, dispatch_tokens=sizes.get("dispatch_tokens"),
    )  # fmt: skip
    results = {}
    for name, batch in batches.items():
        state, metrics = step(init_state(MODEL, optimizer, params, mesh), place_batch(batch, mesh))
        results[name] = jax.device_get((metrics, state.opt_state.trace))
    return results


def main(names):
    prepared = batches()
    params = jax.device_get(jax.jit(lambda key: init_params(MODEL, key))(jax.random.key(0)))
    expected = run(params, None, prepared, {})
    for name in names:
        axes = {axis: size for axis, size in MESHES[name].items() if axis != "remat"}
        found = run(params, make_mesh(MeshConfig(**{"fsdp": 1, **axes})), prepared, MESHES[name])
        for kind, (metrics, gradients) in found.items():
            for metric, value in metrics.items():
                np.testing.assert_allclose(
                    value, expected[kind][0][metric], rtol=1e-5, atol=1e-6, err_msg=f"{name} {kind} {metric}"
                )
            pairs = zip(
                jax.tree_util.tree_leaves_with_path(gradients),
                jax.tree.leaves(expected[kind][1]),
                strict=True,
            )
            for (path, gradient), reference in pairs:
                error = np.linalg.norm(gradient - reference) / np.linalg.norm(reference)
                assert error <= 1e-5, f"{name}, {kind}: gradient of {jax.tree_util.keystr(path)} {error}"
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(MESHES))
