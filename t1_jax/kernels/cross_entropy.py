"""Token log-probabilities from hidden states, a chunk of tokens at a time: [B, T, vocab] never exists."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t1_jax.kernels.rounding import pinned
from t1_jax.kernels.sums import log_probability, total
from t1_jax.parallel.axes import SINGLE, Parallel


def token_logprobs(
    hidden: Float[Array, "N D"],
    head: Float[Array, "D V"],
    targets: Int[Array, " N"],
    temperature: Float[Array, ""] | float = 1.0,
    *,
    chunk: int = 1024,
    parallel: Parallel = SINGLE,
    ordered: bool = False,
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Log-probability of each target and entropy (nats) of softmax(hidden @ head / temperature).

    Logits are float32 whatever the dtype of the operands. Each chunk's logits are recomputed in the backward
    pass. On a mesh `head` is this device's columns of the vocabulary (the tensor axis); of each chunk only
    maxima and sums travel. `ordered` sums as kernels/sums.py says.
    """
    inverse = 1.0 / jnp.float32(temperature)  # a compiler would do so with a constant; the engine does
    first = parallel.rank("tensor") * head.shape[1]
    count = hidden.shape[0]
    chunk = min(chunk, count)
    pad = -count % chunk
    hidden = jnp.pad(hidden, ((0, pad), (0, 0))).reshape(-1, chunk, hidden.shape[-1])
    targets = jnp.pad(targets, (0, pad)).reshape(-1, chunk)

    @jax.checkpoint
    def body(_, part):
        hidden, targets = part
        logits = pinned(jnp.dot(hidden, head, preferred_element_type=jnp.float32) * inverse)
        return None, _statistics(logits, targets - first, parallel, ordered)

    _, (logprobs, entropy) = jax.lax.scan(body, None, (hidden, targets))
    return logprobs.reshape(-1)[:count], entropy.reshape(-1)[:count]


def _statistics(
    logits: Float[Array, "N W"], targets: Int[Array, " N"], parallel: Parallel, ordered: bool
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Log-probability and entropy. Each tensor device has W of a token's logits; `targets` count from the
    first of them.
    """
    width = logits.shape[1]
    peak = parallel.max(jax.lax.stop_gradient(jnp.max(logits, axis=-1)), "tensor")
    shifted = logits - peak[:, None]
    exponentials = jnp.exp(shifted)
    here = (targets >= 0) & (targets < width)
    own = jnp.take_along_axis(shifted, jnp.clip(targets, 0, width - 1)[:, None], axis=-1)[:, 0]
    sums = jnp.stack(
        [total(exponentials, ordered), jnp.sum(exponentials * shifted, axis=-1), jnp.where(here, own, 0.0)]
    )
    mass, weighted, target = parallel.sum(sums, "tensor")
    return log_probability(target, mass), jnp.log(mass) - weighted / mass
