"""How much arithmetic a step needs, by formula: what utilisation is measured against.

A multiply-add is two operations. The backward pass is twice the forward pass. What an implementation adds
(padding, chunk algebra of the delta rule, recomputation, masked halves of blocks) is not model arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from t1_jax.model.config import ModelConfig
from t1_jax.model.parameters import count_params


@dataclass(frozen=True)
class ForwardFlops:
    """Of one token's forward pass: products with weights, attention's scores and sums, the delta rule."""

    weights: float
    attention: float
    delta_rule: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.attention + self.delta_rule


def forward_flops(config: ModelConfig, length: int) -> ForwardFlops:
    """Of a token of a document of `length` tokens, on average.

    weights: 2 x the parameters that a token meets, the embedding's rows (a look-up) left out. attention: a
    token sees (length + 1) / 2 others, each for 2 x head_dim operations in the scores and in the sum, for
    every head. delta rule: S^T k, k d^T and S^T q are 2 Dk Dv each, for every value head and layer.
    """
    _, active = count_params(config)
    lookup = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    full = config.num_periods
    linear = config.num_hidden_layers - full
    seen = (length + 1) / 2
    attention = full * 4 * config.num_attention_heads * config.head_dim * seen
    state = config.linear_key_head_dim * config.linear_value_head_dim
    return ForwardFlops(
        weights=2.0 * (active - lookup),
        attention=attention,
        delta_rule=linear * 6.0 * config.linear_num_value_heads * state,
    )


def step_flops(config: ModelConfig, tokens: int, length: int) -> float:
    """Of a training step over `tokens` tokens in documents of `length`: forward and backward."""
    return 3.0 * tokens * forward_flops(config, length).total
