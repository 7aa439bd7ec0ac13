"""The train step of SFT and RL: one jitted function from (state, batch) to (state, metrics).

Legend: M microbatches, B rows, T tokens, D hidden, L MoE layers, K experts per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from t1_jax.model import transformer
from t1_jax.model.config import ModelConfig
from t1_jax.sharding import batch_sharding
from t1_jax.train.losses import Loss, load_balancing_loss
from t1_jax.train.state import TrainState, state_shardings

Metrics = dict[str, jax.Array]
TrainStep = Callable[[TrainState, Mapping[str, Any]], tuple[TrainState, Metrics]]


def batch_logprobs(
    params: Any,
    config: ModelConfig,
    batch: Mapping[str, jax.Array],
    *,
    temperature: float = 1.0,
    remat_policy: transformer.RematPolicy = "none",
) -> tuple[jax.Array, jax.Array, transformer.Output]:
    """Log-prob of every token given those before it, and the entropy there (nats): (float32 [B, T], float32
    [B, T], the forward's output).

    Entry t is of tokens[t] and comes from hidden[t-1]; entry 0 is 0, and entries at the start of a segment
    are
    conditioned on another document: the loss mask must be 0 there. `temperature` is the one the tokens were
      sampled with, so that learner and engine speak of the same distribution.
    """
    output = transformer.forward(
        params,
        config,
        batch["tokens"],
        segment_ids=batch["segment_ids"],
        positions=batch["positions"],
        routed_experts=batch.get("routed_experts"),
        remat_policy=remat_policy,
    )
    # Shifted by rolling, not by slicing to T - 1: an odd length would not divide over the mesh's axes.
    targets = jnp.roll(batch["tokens"], -1, axis=1)
    logprobs, entropy = transformer.token_statistics(params, config, output.hidden, targets, temperature)
    logprobs, entropy = (jnp.roll(values, 1, axis=1).at[:, 0].set(0.0) for values in (logprobs, entropy))
    return logprobs, entropy, output


def make_train_step(
    config: ModelConfig,
    optimizer: optax.GradientTransformation,
    loss: Loss,
    mesh: Mesh | None = None,
    *,
    temperature: float = 1.0,
    remat_policy: transformer.RematPolicy = "none",
    router_aux_loss_coef: float = 0.0,
) -> TrainStep:
    """Build the step. The state is donated: use the returned one, never the argument again.

    The batch has leaves [M, B, T] (see data/packing.py); gradients are summed over M by a scan, and because
    the normalisation lies in `loss_weights`, the split into microbatches changes nothing. Microbatches of
    padding are skipped.

    Args:
      config: the model's shape.
      optimizer: of train/optimizer.py.
      loss: `sft_loss` or `make_loss(...)`.
      mesh: None runs on the default device.
      temperature: of the sampled tokens.
      remat_policy: of the model.
      router_aux_loss_coef: weight of the load-balancing loss, a token-weighted mean over microbatches; 0 in
        RL.

    Returns:
      A function (state, batch) -> (state, metrics), metrics being float32 scalars on the device: train/loss,
      train/grad_norm (before clipping), train/entropy, train/tokens (in the loss), train/packed_tokens (all
      but padding), router/replayed_fraction (of the packed tokens) and the loss's own.
    """

    def microbatch_loss(
        params: Any, batch: Mapping[str, jax.Array], total_tokens: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Metrics]]:
        logprobs, entropy, output = batch_logprobs(
            params, config, batch, temperature=temperature, remat_policy=remat_policy
        )
        real = batch["segment_ids"] > 0
        mask = batch["loss_mask"] > 0
        per_token, means, maxima = loss(logprobs, batch)
        value = jnp.sum(jnp.where(mask, per_token, 0.0) * batch["loss_weights"])
        sums = {name: jnp.sum(jnp.where(mask, array, 0.0)) for name, array in means.items()}
        sums["train/loss"] = value
        sums["train/entropy"] = jax.lax.stop_gradient(jnp.sum(jnp.where(mask, entropy, 0.0)))
        sums["train/packed_tokens"] = real.sum().astype(jnp.float32)
        sums["train/tokens"] = mask.sum().astype(jnp.float32)
        if "routed_experts" in batch:
            recorded = (batch["routed_experts"] >= 0).all((-1, -2)) & real
            sums["router/replayed_fraction"] = recorded.sum().astype(jnp.float32)
        if router_aux_loss_coef:
            balance = load_balancing_loss(output.router_logits, output.routed_experts, real)
            balance = balance * real.sum() / total_tokens
            sums["router/load_balancing_loss"] = balance
            value = value + router_aux_loss_coef * balance
        peaks = {name: jnp.max(jnp.where(mask, array, 0.0), initial=0.0) for name, array in maxima.items()}
        return value, (sums, peaks)

    gradient = jax.grad(microbatch_loss, has_aux=True)

    def step(state: TrainState, batch: Mapping[str, jax.Array]) -> tuple[TrainState, Metrics]:
        total_tokens = jnp.maximum((batch["segment_ids"] > 0).sum(), 1)
        first = {name: leaf[0] for name, leaf in batch.items()}
        count = len(batch["tokens"])
        if count == 1:
            grads, (sums, peaks) = gradient(state.params, first, total_tokens)
        else:
            empty = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                jax.eval_shape(gradient, state.params, first, total_tokens),
            )

            def accumulate(carry: Any, microbatch: Mapping[str, jax.Array]) -> tuple[Any, None]:
                def add(carry: Any) -> Any:
                    grads, (sums, peaks) = carry
                    more, (more_sums, more_peaks) = gradient(state.params, microbatch, total_tokens)
                    grads, sums = jax.tree.map(jnp.add, (grads, sums), (more, more_sums))
                    return grads, (sums, jax.tree.map(jnp.maximum, peaks, more_peaks))

                return jax.lax.cond(
                    (microbatch["segment_ids"] > 0).any(), add, lambda carry: carry, carry
                ), None

            (grads, (sums, peaks)), _ = jax.lax.scan(accumulate, empty, dict(batch))
        with jax.named_scope("optimizer"):
            updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(grads)))
        metrics = _finish(sums) | peaks | {"train/grad_norm": norm}
        return TrainState(step=state.step + 1, params=params, opt_state=opt_state), metrics

    if mesh is None:
        return jax.jit(step, donate_argnums=0)
    shardings = state_shardings(config, optimizer, mesh)
    replicated = NamedSharding(mesh, PartitionSpec())
    return jax.jit(
        step, donate_argnums=0, in_shardings=(shardings, None), out_shardings=(shardings, replicated)
    )


def place_batch(batch: Mapping[str, np.ndarray], mesh: Mesh | None = None) -> dict[str, jax.Array]:
    """Put a batch of leaves [M, B, T, ...] on the device, or on the mesh split over B and T."""
    if mesh is None:
        return {name: jnp.asarray(leaf) for name, leaf in batch.items()}
    sharding = batch_sharding(mesh, leading=1)
    return {name: jax.device_put(leaf, sharding) for name, leaf in batch.items()}


def _finish(sums: Metrics) -> Metrics:
    """Divide sums by what they were summed over: loss tokens, except for totals and what is normalised
    already.
    """
    loss_tokens = jnp.maximum(sums["train/tokens"], 1.0)
    divisors: dict[str, jax.Array | float] = {
        "train/loss": 1.0,
        "train/packed_tokens": 1.0,
        "train/tokens": 1.0,
        "router/replayed_fraction": jnp.maximum(sums["train/packed_tokens"], 1.0),
        "router/load_balancing_loss": 1.0,
    }
    return {name: value / divisors.get(name, loss_tokens) for name, value in sums.items()}
