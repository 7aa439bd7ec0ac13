"""What transformers says: random, well-scaled models of many shapes, torch's outputs and gradients of them.

Run as a script, this writes the golden arrays that the tests compare with where torch is not installed:

    python -m tests.model.oracle
"""

from __future__ import annotations

import importlib.util
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t1_jax.model.config import ModelConfig
from tests.checkpoint.hub_folders import tensors

_TORCH = importlib.util.find_spec("torch") is not None
with_torch = pytest.mark.skipif(not _TORCH, reason="needs torch: pip install -e '.[parity]'")
without_torch = pytest.mark.skipif(_TORCH, reason="torch is here to be compared with itself")
GOLDEN = Path(__file__).parent / "golden"
LENGTHS = (1, 2, 63, 64, 65, 200, 513)
GOLDEN_LENGTHS = (1, 2, 65)
# Large, since with one expert a token the router learns from this term alone: the expert's weight is 1
# whatever the router says, and token losses leave only rounding there (1e-3 of the gradient at 0.05).
AUX_COEFFICIENT = 2.0


def shape(
    heads: tuple[int, int, int],
    linear: tuple[int, int, int, int],
    experts: tuple[int, int],
    layers: tuple[int, int],
    *,
    hidden: int = 32,
    conv: int = 4,
    tied: bool = False,
    rotary: float = 0.25,
    theta: float = 1e4,
    widths: tuple[int, int] = (16, 24),
) -> ModelConfig:
    """heads: query, key-value, dim. linear: key heads, value heads, key dim, value dim. experts: how many,
    how many per token. layers: periods, layers a period. widths: of routed and shared experts.
    """
    return ModelConfig(
        vocab_size=48,
        hidden_size=hidden,
        num_hidden_layers=layers[0] * layers[1],
        full_attention_interval=layers[1],
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        head_dim=heads[2],
        linear_num_key_heads=linear[0],
        linear_num_value_heads=linear[1],
        linear_key_head_dim=linear[2],
        linear_value_head_dim=linear[3],
        linear_conv_kernel_dim=conv,
        num_experts=experts[0],
        num_experts_per_tok=experts[1],
        moe_intermediate_size=widths[0],
        shared_expert_intermediate_size=widths[1],
        partial_rotary_factor=rotary,
        rope_theta=theta,
        tie_word_embeddings=tied,
        dtype="float32",
    )


CONFIGS = {
    "four to one": shape((4, 1, 16), (2, 4, 8, 8), (8, 2), (1, 4)),
    "tied, top 1": shape((2, 2, 16), (1, 1, 16, 8), (4, 1), (2, 2), tied=True),
    "sixteen to one": shape((16, 1, 8), (1, 4, 8, 16), (16, 4), (1, 2), rotary=0.5),
    "two to one, period of three": shape((4, 2, 8), (2, 2, 16, 16), (8, 3), (1, 3), conv=3),
    "three periods": shape((2, 1, 32), (1, 2, 8, 8), (8, 2), (3, 2), hidden=24, theta=1e7),
    "many experts": shape((2, 1, 16), (2, 4, 8, 8), (64, 8), (1, 2), widths=(8, 8)),
    "all rotated": shape((4, 4, 8), (1, 1, 8, 8), (6, 2), (1, 2), rotary=1.0, tied=True),
    "short taps": shape((2, 1, 16), (1, 4, 16, 8), (8, 8), (1, 2), conv=2),
    "eight to one": shape((8, 1, 8), (2, 8, 8, 4), (12, 5), (2, 2), hidden=48),
    "wide values": shape((6, 3, 12), (3, 6, 4, 20), (10, 3), (1, 4), hidden=40, rotary=0.5),
    "attention only": shape((4, 2, 16), (1, 1, 8, 8), (8, 2), (3, 1)),
    "wide shared expert": shape((2, 2, 24), (2, 4, 12, 12), (32, 6), (2, 2), widths=(4, 64), tied=True),
}
GOLDEN_CONFIGS = ("four to one", "tied, top 1")


def weights(config: ModelConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Float32 tensors by transformers' names, scaled so that every term counts and nothing explodes."""
    made: dict[str, np.ndarray] = {}
    for name, array in tensors(config, prefix="model.", mtp=None, vision=False, seed=seed).items():
        drawn = array.astype(np.float32) / 0.2  # standard normal
        if "layernorm" in name or name.endswith(("q_norm.weight", "k_norm.weight", "model.norm.weight")):
            drawn = 0.3 * drawn  # the difference from one
        elif name.endswith("linear_attn.norm.weight"):
            drawn = 1 + 0.3 * drawn
        elif name.endswith("A_log"):
            drawn = 0.8 * drawn - 1
        elif name.endswith("dt_bias"):
            drawn = drawn - 2
        elif name.endswith("conv1d.weight"):
            drawn = 0.5 * drawn
        elif not name.endswith("embed_tokens.weight"):
            drawn = drawn * array.shape[-1] ** -0.5
        made[name] = np.ascontiguousarray(drawn, np.float32)
    return made


def documents(config: ModelConfig, lengths: tuple[int, ...] = LENGTHS) -> list[np.ndarray]:
    """Random token ids."""
    rng = np.random.default_rng(1)
    return [rng.integers(0, config.vocab_size, length) for length in lengths]


@contextmanager
def in_float64() -> Iterator[None]:
    """transformers computes in float64 what it otherwise takes to float32 whatever the model's type."""
    import torch
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling

    class Wide:
        def __getattr__(self, name: str) -> Any:
            return torch.float64 if name in ("float", "float32") else getattr(torch, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling, "torch", Wide())
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


def torch_model(config: ModelConfig, made: dict[str, np.ndarray], dtype: str = "float32") -> Any:
    """transformers' model with these weights."""
    import torch
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    torch.set_num_threads(1)  # its threads wait for each other busily, and small models gain nothing
    # Its grouped products know no float64, and in bfloat16 only widths of whole 16 bytes.
    experts = {} if dtype == "float32" else {"experts_implementation": "eager"}
    model = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**config.to_hf(), **experts))
    missing, unexpected = model.load_state_dict(
        {k: torch.from_numpy(v) for k, v in made.items()}, strict=False
    )
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.to(getattr(torch, dtype)).eval()


def torch_run(model: Any, tokens: np.ndarray) -> tuple[np.ndarray, list[np.ndarray], Any, Any]:
    """(logits [T, V], router logits [T, E] of every layer, aux loss, sum of token losses) of one document."""
    import torch

    ids = torch.from_numpy(tokens)[None]
    out = model(ids, output_router_logits=True, use_cache=False)
    logprobs = torch.log_softmax(out.logits[0, :-1].float(), -1)
    loss = -logprobs.gather(-1, ids[0, 1:, None]).sum()
    logits = out.logits[0].detach().float().numpy()
    return logits, [layer.detach().float().numpy() for layer in out.router_logits], out.aux_loss, loss


def torch_results(
    config: ModelConfig, made: dict[str, np.ndarray], docs: list[np.ndarray], dtype: str = "float32"
) -> dict[str, np.ndarray]:
    """Logits, router logits and aux loss of every document, and the gradient of every tensor of the sum of
    token losses plus AUX_COEFFICIENT times the sum of aux losses.
    """
    model = torch_model(config, made, dtype)
    found: dict[str, np.ndarray] = {}
    for number, tokens in enumerate(docs):
        logits, router, aux, loss = torch_run(model, tokens)
        (loss + AUX_COEFFICIENT * aux).backward()
        found[f"{number}/logits"], found[f"{number}/router"] = logits, np.stack(router, 1)
        found[f"{number}/aux"] = aux.detach().numpy()
    for name, parameter in model.named_parameters():
        found[f"gradient/{name}"] = parameter.grad.numpy()
    return found


def golden_path(name: str) -> Path:
    """The file of a configuration's golden arrays."""
    return GOLDEN / (name.replace(",", "").replace(" ", "_") + ".npz")


def checksum(made: dict[str, np.ndarray]) -> int:
    """Of weights: golden arrays belong to these and no others."""
    return zlib.crc32(b"".join(name.encode() + array.tobytes() for name, array in sorted(made.items())))


def write_golden() -> None:
    """Write the golden arrays. Needs torch."""
    GOLDEN.mkdir(exist_ok=True)
    for name in GOLDEN_CONFIGS:
        config = CONFIGS[name]
        made = weights(config)
        found = torch_results(config, made, documents(config, GOLDEN_LENGTHS))
        np.savez_compressed(golden_path(name), weights=checksum(made), **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    write_golden()
