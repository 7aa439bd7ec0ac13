"""Token log-probabilities from hidden states, a chunk of tokens at a time: [B, T, vocab] never exists."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def token_logprobs(
    hidden: Float[Array, "N D"],
    head: Float[Array, "D V"],
    targets: Int[Array, " N"],
    temperature: Float[Array, ""] | float = 1.0,
    *,
    chunk: int = 1024,
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Log-probability of each target and entropy (nats) of softmax(hidden @ head / temperature).

    Logits are float32 whatever the dtype of the operands. Each chunk's logits are recomputed in the backward
    pass.
    """
    count = hidden.shape[0]
    chunk = min(chunk, count)
    pad = -count % chunk
    hidden = jnp.pad(hidden, ((0, pad), (0, 0))).reshape(-1, chunk, hidden.shape[-1])
    targets = jnp.pad(targets, (0, pad)).reshape(-1, chunk)

    @jax.checkpoint
    def body(_, part):
        hidden, targets = part
        logits = jnp.dot(hidden, head, preferred_element_type=jnp.float32) / temperature
        logprobs = jax.nn.log_softmax(logits, axis=-1)
        entropy = -jnp.sum(jnp.exp(logprobs) * logprobs, axis=-1)
        return None, (jnp.take_along_axis(logprobs, targets[:, None], axis=-1)[:, 0], entropy)

    _, (logprobs, entropy) = jax.lax.scan(body, None, (hidden, targets))
    return logprobs.reshape(-1)[:count], entropy.reshape(-1)[:count]
