"""Measurements side by side with a peer, in one run on one machine, as ratios: above 1 is better.

The two sides take turns, so that whatever else the machine does meets both. A ratio is the median over rounds
of the ratio within a round: a machine that is slow for a while is slow for both sides of those rounds.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sandbox.errors import InputError
from sandbox.files import write_json
from t1_jax.model import transformer
from t1_jax.model.config import ModelConfig
from t1_jax.observability.flops import step_flops

# Large enough that the products dominate as in a real model, small enough for two cores.
TRAIN_MODEL = ModelConfig(
    vocab_size=4096,
    hidden_size=256,
    num_hidden_layers=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    linear_num_key_heads=4,
    linear_num_value_heads=8,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    num_experts=32,
    num_experts_per_tok=4,
    moe_intermediate_size=128,
    shared_expert_intermediate_size=128,
    dtype="float32",
)
TRAIN_SHAPE = (4, 1024)
_ROUNDS = {"train": 7, "replay": 25}  # the claim about replay is of one per cent

Seconds = dict[str, list[float]]


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        model = next((value.strip() for name, _, value in lines if name.startswith("model name")), model)
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
    }


def take_turns(sides: dict[str, Callable[[], Any]], rounds: int) -> Seconds:
    """Seconds of each side by round; who begins changes from round to round. One round more, to compile and
    to warm up, is not counted.
    """
    seconds: Seconds = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            begun = time.perf_counter()
            jax.block_until_ready(sides[name]())
            if turn:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def _loss_and_gradient(config: ModelConfig) -> Any:
    """Compiled (params, tokens, routes or None) -> (mean loss, gradients)."""

    def loss(params: Any, tokens: jax.Array, routes: jax.Array | None) -> jax.Array:
        output = transformer.forward(params, config, tokens, routed_experts=routes)
        logprobs = transformer.token_logprobs(params, config, output.hidden[:, :-1], tokens[:, 1:])
        return -jnp.mean(logprobs)

    return jax.jit(jax.value_and_grad(loss))


def _matmul_peak(size: int = 2048) -> float:
    """Operations a second of one large float32 product."""
    x = jax.random.normal(jax.random.key(0), (size, size))
    multiply = jax.jit(lambda x: x @ x)
    return 2.0 * size**3 / statistics.median(take_turns({"matmul": lambda: multiply(x)}, 9)["matmul"])


def train(out: Path) -> dict[str, Any]:
    """Forward and backward against transformers on PyTorch: the same weights, tokens and loss, float32.

    Raises InputError when PyTorch is not there.
    """
    try:
        import torch
        from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as peer
        from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
    except ImportError as error:
        raise InputError(f"bench train: {error}; pip install -e '.[bench]' brings the peer") from None

    config = TRAIN_MODEL
    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = peer.Qwen3_5MoeForCausalLM(
        Qwen3_5MoeTextConfig(**config.to_hf(), attn_implementation="sdpa")  # type: ignore[call-arg]
    ).float()
    params = from_torch(model.state_dict(), config)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, TRAIN_SHAPE)
    theirs_tokens, ours_tokens = torch.from_numpy(tokens), jnp.asarray(tokens, jnp.int32)
    step = _loss_and_gradient(config)
    losses: dict[str, float] = {}

    def theirs() -> None:
        model.zero_grad(set_to_none=True)
        loss = model(input_ids=theirs_tokens, labels=theirs_tokens, use_cache=False).loss
        loss.backward()
        losses["peer"] = loss.item()

    def ours() -> Any:
        loss, gradients = step(params, ours_tokens, None)
        losses["ours"] = float(loss)
        return gradients

    seconds = take_turns({"ours": ours, "peer": theirs}, _ROUNDS["train"])
    if abs(losses["ours"] - losses["peer"]) > 1e-4:
        raise RuntimeError(f"bench train: the sides compute different losses, {losses}")
    count = tokens.size
    flops = step_flops(config, count, TRAIN_SHAPE[1])
    peak = _matmul_peak()
    compiled = step.lower(params, ours_tokens, None).compile().memory_analysis()
    row = compare("step", count, seconds, "transformers + torch")
    result = {
        "bench": "train",
        "machine": machine() | {"torch": torch.__version__},
        "rows": [row],
        "matmul_peak_flops": peak,
        "model_flops_share_of_peak": flops / statistics.median(seconds["ours"]) / peak,
        "bytes_per_token": compiled.temp_size_in_bytes / count,
    }
    write_json(out, result)
    return result


def replay(out: Path) -> dict[str, Any]:
    """A step that replays recorded experts against one that routes live; the records are the live choice."""
    config = TRAIN_MODEL
    params = jax.jit(lambda key: transformer.init_params(config, key))(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), TRAIN_SHAPE, 0, config.vocab_size)
    record = jax.jit(lambda params: transformer.forward(params, config, tokens).routed_experts)
    routes = record(params)
    step = _loss_and_gradient(config)
    sides = {"ours": lambda: step(params, tokens, routes), "peer": lambda: step(params, tokens, None)}
    row = compare("replayed step", tokens.size, take_turns(sides, _ROUNDS["replay"]), "live routing")
    result = {"bench": "replay", "machine": machine(), "rows": [row]}
    write_json(out, result)
    return result


def compare(work: str, count: int, seconds: Seconds, peer_name: str) -> dict[str, Any]:
    """A row of the result: medians of tokens a second, and the median and quartiles of the rounds' ratios."""
    ratios = [peer / ours for ours, peer in zip(seconds["ours"], seconds["peer"], strict=True)]
    return {
        "work": work,
        "unit": "tokens/s",
        "ours": count / statistics.median(seconds["ours"]),
        "peer": count / statistics.median(seconds["peer"]),
        "peer_name": peer_name,
        "ratio": statistics.median(ratios),
        "ratio_quartiles": np.percentile(ratios, (25, 75)).tolist(),
        "rounds": len(ratios),
    }


def from_torch(state: dict[str, Any], config: ModelConfig) -> Any:
    """Our parameters from a transformers model's state dict."""
    interval = config.full_attention_interval

    def leaf(name: str) -> np.ndarray:
        return state[name].detach().float().numpy()

    def stack(layers: list[list[int]], read: Callable[[str], np.ndarray]) -> jax.Array:
        rows = [np.stack([read(f"model.layers.{i}.") for i in row]) for row in layers]
        return jnp.asarray(np.stack(rows))

    every = np.arange(config.num_hidden_layers).reshape(-1, interval).tolist()
    mixers = [row[:-1] for row in every]
    last = [row[-1:] for row in every]

    def linear(name: str, change: Callable[[np.ndarray], np.ndarray] = lambda x: x) -> jax.Array:
        return stack(mixers, lambda layer: change(leaf(f"{layer}linear_attn.{name}")))

    def full(name: str, change: Callable[[np.ndarray], np.ndarray] = lambda x: x) -> jax.Array:
        return stack(last, lambda layer: change(leaf(f"{layer}self_attn.{name}.weight")))[:, 0]

    def moe(name: str, change: Callable[[np.ndarray], np.ndarray] = lambda x: x) -> jax.Array:
        return stack(every, lambda layer: change(leaf(f"{layer}{name}")))

    def swap(x: np.ndarray) -> np.ndarray:
        return x.swapaxes(-1, -2)

    shared = "mlp.shared_expert"
    gate_up = stack(
        every,
        lambda layer: (
            np.concatenate([leaf(f"{layer}{shared}.{part}_proj.weight") for part in ("gate", "up")]).T
        ),
    )
    return {
        "embed": jnp.asarray(leaf("model.embed_tokens.weight")),
        "final_norm": jnp.asarray(leaf("model.norm.weight")),
        "lm_head": jnp.asarray(leaf("lm_head.weight").T),
        "linear": {
            **{ours: linear(f"in_proj_{ours}.weight", swap) for ours in ("qkv", "z", "a", "b")},
            "conv": linear("conv1d.weight", lambda x: x[:, 0]),
            "A_log": linear("A_log"),
            "dt_bias": linear("dt_bias"),
            "norm": linear("norm.weight"),
            "out": linear("out_proj.weight", swap),
        },
        "full": {
            **{ours: full(f"{ours}_proj", swap) for ours in ("q", "k", "v", "o")},
            "q_norm": full("q_norm"),
            "k_norm": full("k_norm"),
        },
        "moe": {
            "input_norm": moe("input_layernorm.weight"),
            "post_norm": moe("post_attention_layernorm.weight"),
            "router": moe("mlp.gate.weight", swap),
            "gate_up": moe("mlp.experts.gate_up_proj", swap),
            "down": moe("mlp.experts.down_proj", swap),
            "shared_gate_up": gate_up,
            "shared_down": moe(f"{shared}.down_proj.weight", swap),
            "shared_gate": moe(f"{shared}_gate.weight", swap),
        },
    }


BENCHES: dict[str, Callable[[Path], dict[str, Any]]] = {"train": train, "replay": replay}
