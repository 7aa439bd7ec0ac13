"""Compile the training step for a TPU slice, on a machine without one, and say what it needs and could give.

The step is the one that training runs, traced from abstract arrays and compiled by libtpu for the devices of
a described topology. Memory is what the compiler reserves; operations, kernels and collectives are counted in
the compiled module (tools/hlo.py). A step cannot be faster than the largest of compute, memory and
interconnect time; the roofline is that bound, not a forecast.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from sandbox.errors import InputError
from sandbox.files import write_json
from t1_jax.model.config import ModelConfig
from t1_jax.model.parameters import count_params
from t1_jax.model.remat import RematPolicy
from t1_jax.observability.flops import step_flops
from t1_jax.parallel.platform import compiling_for
from t1_jax.sharding import DATA_AXES, MeshConfig, batch_spec, make_mesh
from t1_jax.tools.chips import CHIPS, Chip, parse_topology
from t1_jax.tools.hlo import Module, Shape
from t1_jax.train.losses import LossConfig, make_loss, sft_loss
from t1_jax.train.optimizer import OptimizerConfig, make_optimizer
from t1_jax.train.state import abstract_state
from t1_jax.train.step import make_train_step

# Bytes that a trained parameter takes at the least, beside its moments: master and gradient in float32.
_STATE_BYTES = 8
# Tokens of a microbatch on a device in the leaner of the two meshes that a search tries.
_LEAN_TOKENS = 8192
_LIMIT = re.compile(r"Used ([\d.]+)([KMG]) of ([\d.]+)([KMG]) hbm")


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    """One training step on one slice. `rows` are of a microbatch, over all chips."""

    model: ModelConfig
    topology: str
    mesh: MeshConfig = field(default_factory=MeshConfig)
    job: Literal["sft", "rl"] = "rl"
    replay: bool = True
    rows: int = 64
    row_length: int = 32768
    microbatches: int = 1
    remat_policy: RematPolicy = "full"
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    router_aux_loss_coef: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rows", "row_length", "microbatches"):
            if getattr(self, name) < 1:
                raise InputError(f"plan.{name} is {getattr(self, name)}, expected 1 or more")


def describe(topology: str) -> list[Any]:
    """The devices of a slice that is not there. Raises InputError when libtpu is missing or refuses."""
    parse_topology(topology)
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # or libtpu asks for the metadata of a cloud machine
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # it holds no chip here
    from jax.experimental import topologies

    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"topology {topology}: {reason} (pip install -e '.[tpu]' brings libtpu)") from None


def lower_step(config: PlanConfig, mesh: Mesh) -> Any:
    """The train step, lowered for the mesh's devices from abstract arrays."""
    sizes = {axis: mesh.shape[axis] for axis in mesh.axis_names}
    data = int(np.prod([sizes[axis] for axis in DATA_AXES]))
    if config.rows % data or config.row_length % sizes["context"]:
        raise InputError(
            f"plan: {config.rows} rows of {config.row_length} tokens do not divide over {data} data devices "
            f"and {sizes['context']} context devices"
        )
    optimizer = make_optimizer(config.optimizer, 1000)
    step = make_train_step(
        config.model,
        optimizer,
        make_loss(config.loss) if config.job == "rl" else sft_loss,
        mesh,
        remat_policy=config.remat_policy,
        router_aux_loss_coef=config.router_aux_loss_coef,
        dispatch_tokens=config.mesh.dispatch_tokens,
    )
    shape = (config.microbatches, config.rows, config.row_length)

    def leaf(name: str, dtype: Any, *rest: int) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, batch_spec(name))
        return jax.ShapeDtypeStruct((*shape, *rest), dtype, sharding=sharding)

    integers = ("tokens", "segment_ids", "positions", "policy_age")
    numbers = ["loss_mask", "loss_weights", "rollout_logprobs", "advantages"]
    if config.job == "rl" and config.loss.reference_kl:
        numbers.append("reference_logprobs")
    batch = {name: leaf(name, np.int32) for name in integers}
    batch |= {name: leaf(name, np.float32) for name in numbers}
    if config.replay:
        layers, k = config.model.num_moe_layers, config.model.num_experts_per_tok
        batch["routed_experts"] = leaf("routed_experts", np.int32, layers, k)
    with compiling_for("tpu"):
        return step.lower(abstract_state(config.model, optimizer, mesh), batch)  # type: ignore[attr-defined]


def plan(config: PlanConfig) -> dict[str, Any]:
    """Compile and count: the fields of DESIGN's `plan` output. Raises InputError for a bad config."""
    chip, chips = parse_topology(config.topology)
    mesh = make_mesh(config.mesh, describe(config.topology))
    params, active = count_params(config.model)
    tokens = config.microbatches * config.rows * config.row_length
    result: dict[str, Any] = {
        "topology": config.topology,
        "chips": chips,
        "mesh": {axis: int(mesh.shape[axis]) for axis in mesh.axis_names},
        "hbm_per_chip_bytes": chip.hbm_bytes,
        "params": params,
        "active_params": active,
        "tokens_per_step": tokens,
        "model_flops_per_step": step_flops(config.model, tokens, config.row_length),
    }
    lowered = lower_step(config, mesh)
    started, worked = time.monotonic(), time.process_time()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        used = _LIMIT.search(str(error))
        scale = {"K": 2**10, "M": 2**20, "G": 2**30}
        peak = int(float(used.group(1)) * scale[used.group(2)]) * chip.devices if used else None
        return result | {
            "fits": False,
            "peak_hbm_bytes": peak,
            "compile_seconds": time.monotonic() - started,
            "compile_cpu_seconds": time.process_time() - worked,
        }
    seconds, cpu_seconds = time.monotonic() - started, time.process_time() - worked
    memory = compiled.memory_analysis()
    peak = chip.devices * max(
        memory.peak_memory_in_bytes,
        memory.argument_size_in_bytes + memory.temp_size_in_bytes
        + memory.output_size_in_bytes - memory.alias_size_in_bytes,
    )  # fmt: skip
    counted = count(compiled.as_text(), config, mesh)
    return result | {
        "peak_hbm_bytes": peak,
        "fits": peak <= chip.hbm_bytes,
        "compile_seconds": seconds,
        "compile_cpu_seconds": cpu_seconds,
        **_roofline(counted, chip, chips, result["model_flops_per_step"]),
    }


def count(text: str, config: PlanConfig, mesh: Mesh) -> Module:
    """The compiled module, with the arithmetic of our kernels by formula."""
    experts = config.model.num_experts // mesh.shape["expert"]
    context = mesh.shape["context"]
    share = 1 / mesh.shape["expert"]

    def kernel_flops(name: str, operands: list[Shape], results: list[Shape]) -> float:
        if "gmm" in name:
            # The buffer holds the worst routing; the kernel's work follows the rows that are there, on
            # average an equal share for every device, and half a block of padding for each expert.
            large = sorted((sizes for _, sizes in [*operands, *results] if len(sizes) >= 2), key=len)
            (rows, _), (_, inner, outer) = max(s for s in large if len(s) == 2), large[-1]
            return 2.0 * (min(rows, rows * share + 128 * experts)) * inner * outer
        if "splash" in name or "flash" in name:
            matrices = [sizes for _, sizes in operands if len(sizes) >= 3]
            heads_tokens_dim = max(matrices, key=lambda s: int(np.prod(s)))
            *heads, tokens, dim = heads_tokens_dim
            # Scores and output; or, backward, scores again and four gradients, in one kernel or in two.
            fused = max(len(sizes) for _, sizes in results) > len(heads_tokens_dim)
            products = (5 if fused else 4) if "dkv" in name else 3 if "dq" in name else 2
            return products * 2.0 * float(np.prod(heads)) * tokens * tokens * context / 2 * dim
        return 0.0

    return Module(text, kernel_flops)


def _roofline(module: Module, chip: Chip, chips: int, model_flops: float) -> dict[str, Any]:
    cost = module.cost()
    received = {kind: float(value) * chip.devices for kind, value in sorted(cost.collective_bytes.items())}
    flops, traffic = cost.flops * chip.devices, cost.bytes * chip.devices
    bounds = {
        "compute": flops / chip.flops,
        "hbm": traffic / chip.hbm_bandwidth,
        "ici": sum(received.values()) / chip.ici_bandwidth,
    }
    seconds = max(bounds.values())
    return {
        "compiled_flops_per_step": flops * chips,
        "collective_bytes": received,
        "collectives": {kind: round(times) for kind, times in sorted(cost.collectives.items())},
        "hbm_traffic_bytes": traffic,
        "kernels": {name: round(times) for name, times in sorted(cost.kernels.items())},
        "roofline_seconds": bounds,
        "roofline_step_seconds": seconds,
        "roofline_mfu": model_flops / chips / chip.flops / seconds,
        "chip_source": chip.source,
    }


def candidates(config: PlanConfig, generation: str) -> Iterator[PlanConfig]:
    """Slices of a generation, smallest first, that could hold the trained state, each with two meshes.

    Experts lie over as many devices as a gather is cheap for, rows over the others, and the sequence is split
    where there are more devices than rows; then the same with the sequence split further and rows in turns,
    until a device has few tokens at a time: slower, since parameters are gathered in each turn, but leaner.
    Raises InputError for an unknown generation.
    """
    if generation not in CHIPS:
        raise InputError(f"plan --search {generation}: expected one of {', '.join(CHIPS)}")
    params, _ = count_params(config.model)
    state_bytes = params * (_STATE_BYTES + 2 * np.dtype(config.optimizer.moments).itemsize)
    for shape in CHIPS[generation].slices:
        topology = f"{generation}:{shape}"
        chip, chips = parse_topology(topology)
        if state_bytes > chips * chip.hbm_bytes:
            continue
        devices = chips * chip.devices
        context = 1
        while config.rows % (devices // context):
            context *= 2
        lean = context
        while lean < devices and config.row_length > lean * _LEAN_TOKENS:
            lean *= 2
        for split in sorted({context, lean}):
            rows = devices // split
            expert = max(e for e in (1, 2, 4, 8) if e <= config.model.num_experts_per_tok and rows % e == 0)
            mesh = replace(config.mesh, replica=1, fsdp=-1, expert=expert, context=split, tensor=1)
            yield replace(
                config, topology=topology, mesh=mesh, rows=rows,
                microbatches=config.microbatches * config.rows // rows,
            )  # fmt: skip


def run(config: PlanConfig, out: Path, search: str | None = None) -> dict[str, Any]:
    """`launch.py plan`: write one plan, or with `search` that of the generation's smallest slice that fits.

    Raises InputError when none fits.
    """
    if search is None:
        result = plan(config)
        write_json(out, result)
        return result
    tried = []
    for candidate in candidates(config, search):
        result = plan(candidate)
        tried.append({key: result[key] for key in ("topology", "mesh", "peak_hbm_bytes", "fits")})
        if result["fits"]:
            write_json(out, result | {"tried": tried})
            return result
    raise InputError(
        f"plan --search {search}: no slice fits; tried {', '.join(t['topology'] for t in tried)}"
    )
