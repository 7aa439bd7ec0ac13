"""A micro checkpoint with a real tokenizer, and episodes whose log-probs and experts are the model's own."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sandbox.trajectory import Trajectory, Turn
from t1_jax.checkpoint.manager import save_checkpoint
from t1_jax.data.tokenizer import train_tokenizer
from t1_jax.model.config import ModelConfig
from t1_jax.model.transformer import forward, token_logprobs
from tests.fresh import fresh_params

CONFIG = ModelConfig(
    vocab_size=320,
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    linear_num_key_heads=1,
    linear_num_value_heads=2,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
    initializer_range=0.2,
    dtype="float32",
)


@pytest.fixture(scope="session")
def params():
    return fresh_params(CONFIG)


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(["ls -la /app", "cat file.txt", "<|im_start|>user\n"] * 20, CONFIG.vocab_size, out)
    return out


@pytest.fixture(scope="session")
def checkpoint(params, tokenizer_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "checkpoint"
    return save_checkpoint(folder, params, CONFIG, tokenizer_dir=tokenizer_dir, version=3, step=7)


@pytest.fixture(scope="session")
def measure(params):
    """(log-probs [T] with 0 first, experts [T, L, K]) of tokens, as the model itself gives them."""

    @partial(jax.jit, static_argnums=1)
    def compiled(tokens, temperature):
        output = forward(params, CONFIG, tokens)
        targets = jnp.roll(tokens, -1, 1)
        return token_logprobs(params, CONFIG, output.hidden, targets, temperature), output.routed_experts

    def run(tokens, temperature=1.0):
        padded = np.zeros((1, 128), np.int32)
        padded[0, : len(tokens)] = tokens
        logprobs, experts = jax.device_get(compiled(padded, temperature))
        return np.concatenate([[0.0], logprobs[0, : len(tokens) - 1]]), experts[0, : len(tokens)]

    return run


@pytest.fixture(scope="session")
def make_episode(measure):
    """An episode of given ids: `sampled` spans by this checkpoint (version 3), with exact records."""

    def make(name, ids, spans, temperature=1.0, **fields):
        ids = np.asarray(ids, np.int32)
        logprobs, experts = measure(ids, temperature)
        mask = np.zeros(len(ids), bool)
        for start, end in spans:
            mask[start:end] = True
        starts = [*[start for start, _ in spans[1:]], len(ids)]
        trajectory = Trajectory(
            rollout_id=name,
            group_id=name,
            task=name,
            tokens=ids,
            loss_mask=mask,
            rollout_logprobs=np.where(mask, logprobs, 0).astype(np.float32),
            versions=np.where(mask, 3, -1).astype(np.int32),
            routed_experts=experts.astype(np.uint8),
            routed_valid=np.arange(len(ids)) < len(ids) - 1,
            reward=1.0,
            turns=tuple(Turn(sampled=s, observed=(s[1], n)) for s, n in zip(spans, starts, strict=True)),
            metadata={"temperature": temperature},
        )
        return dataclasses.replace(trajectory, **fields)

    return make
