"""The train step of SFT and RL: one jitted function from (state, batch) to (state, metrics).

Legend: M microbatches, B rows, T tokens, D hidden, L MoE layers, K experts per token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sandbox.errors import InputError
from t1_jax.model import transformer
from t1_jax.model.config import ModelConfig
from t1_jax.model.mtp import head_only, mtp_hidden
from t1_jax.model.parameters import abstract
from t1_jax.parallel.axes import SINGLE, Parallel
from t1_jax.parallel.parameters import sum_gradients
from t1_jax.sharding import DATA_AXES, batch_spec, param_shardings
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
    parallel: Parallel = SINGLE,
) -> tuple[jax.Array, jax.Array, transformer.Output]:
    """Log-prob of every token given those before it, and the entropy there (nats): (float32 [B, T], float32
    [B, T], the forward's output).

    Entry t is of tokens[t] and comes from hidden[t-1]; entry 0 is 0, and entries at the start of a segment
    are conditioned on another document: the loss mask must be 0 there. `temperature` is the one the tokens
    were sampled with, so that learner and engine speak of the same distribution.

    On a mesh a device runs its part of its rows' tokens, but log-probs are of whole rows on all of their
    devices: they are few numbers, and losses may look at all of a segment.
    """

    def part(tokens: jax.Array) -> jax.Array:
        return parallel.part(tokens, "context", 1)

    output = transformer.forward(
        params,
        config,
        part(batch["tokens"]),
        segment_ids=part(batch["segment_ids"]),
        positions=part(batch["positions"]),
        routed_experts=batch.get("routed_experts"),
        remat_policy=remat_policy,
        parallel=parallel,
    )
    # Shifted by rolling, not by slicing to T - 1: an odd length would not divide over the mesh's axes.
    targets = part(jnp.roll(batch["tokens"], -1, axis=1))
    statistics = transformer.token_statistics(
        params, config, output.hidden, targets, temperature, parallel=parallel
    )
    logprobs, entropy = (parallel.gather(values, "context", dim=1) for values in statistics)
    logprobs, entropy = (jnp.roll(values, 1, axis=1).at[:, 0].set(0.0) for values in (logprobs, entropy))
    return logprobs, entropy, output


def mtp_logprobs(
    params: Any,
    config: ModelConfig,
    batch: Mapping[str, jax.Array],
    hidden: jax.Array,
    *,
    remat_policy: transformer.RematPolicy = "none",
    parallel: Parallel = SINGLE,
) -> tuple[jax.Array, jax.Array]:
    """Log-prob by the MTP head of every token given all before it but one, and where there are such: (float32
    [B, T], bool [B, T], False at the first two tokens of a document and on padding).

    Only the head's parameters get a gradient: what it learns must not bend the policy that it drafts for.
    `hidden` is of the forward that made this device's part of the batch's log-probs.
    """

    def part(tokens: jax.Array) -> jax.Array:
        return parallel.part(tokens, "context", 1)

    params, segments = head_only(params), batch["segment_ids"]
    out = mtp_hidden(
        params,
        config,
        jax.lax.stop_gradient(hidden),
        part(jnp.roll(batch["tokens"], -1, axis=1)),
        part(segments),
        part(batch["positions"]),
        remat_policy=remat_policy,
        parallel=parallel,
    )
    targets = part(jnp.roll(batch["tokens"], -2, axis=1))
    logprobs, _ = transformer.token_statistics(params, config, out, targets, parallel=parallel)
    logprobs = jnp.roll(parallel.gather(logprobs, "context", dim=1), 2, axis=1)
    known = (segments > 0) & (jnp.roll(segments, 2, axis=1) == segments)
    return logprobs, known.at[:, :2].set(False)


def make_train_step(
    config: ModelConfig,
    optimizer: optax.GradientTransformation,
    loss: Loss,
    mesh: Mesh | None = None,
    *,
    temperature: float = 1.0,
    remat_policy: transformer.RematPolicy = "none",
    router_aux_loss_coef: float = 0.0,
    mtp_loss_weight: float = 0.0,
    dispatch_tokens: int | None = None,
) -> TrainStep:
    """Build the step. The state is donated: use the returned one, never the argument again.

    The batch has leaves [M, B, T] (see data/packing.py); gradients are summed over M by a scan, and because
    the normalisation lies in `loss_weights`, the split into microbatches changes nothing. Microbatches of
    padding are skipped.

    Args:
      config: the model's shape.
      optimizer: of train/optimizer.py.
      loss: `sft_loss` or `make_loss(...)`.
      mesh: None runs on the default device. Rows of a microbatch must divide over its data axes, tokens of a
        row over its context axis.
      temperature: of the sampled tokens.
      remat_policy: of the model.
      router_aux_loss_coef: weight of the load-balancing loss, a token-weighted mean over microbatches; 0 in
        RL.
      mtp_loss_weight: weight of the MTP head's loss, the negative log-likelihood of the loss tokens with
        their `loss_weights`; 0 leaves the head as it is. Only the head learns from it.
      dispatch_tokens: tokens that a device sends to experts at a time; None sends all of a microbatch.

    Returns:
      A function (state, batch) -> (state, metrics), metrics being float32 scalars on the device: train/loss,
      train/grad_norm (before clipping), train/entropy, train/tokens (in the loss), train/packed_tokens (all
      but padding), router/replayed_fraction (of the packed tokens), router/load_imbalance and the loss's own.
    """
    parallel = SINGLE if mesh is None else Parallel.of(mesh, dispatch_tokens)
    config.of_tensor_rank(parallel.size("tensor"))  # refuses what does not divide

    def microbatch_loss(
        params: Any, batch: Mapping[str, jax.Array], total_tokens: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Metrics]]:
        logprobs, entropy, output = batch_logprobs(
            params, config, batch, temperature=temperature, remat_policy=remat_policy, parallel=parallel
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
        sums["router/load_imbalance"] = _expert_loads(config, output.routed_experts, batch, parallel)
        if "routed_experts" in batch:
            recorded = (batch["routed_experts"] >= 0).all((-1, -2))
            recorded = parallel.gather(recorded, "context", dim=1) & real
            sums["router/replayed_fraction"] = recorded.sum().astype(jnp.float32)
        if router_aux_loss_coef:
            packed = parallel.part(real, "context", 1)
            balance = load_balancing_loss(output.router_logits, output.routed_experts, packed, parallel)
            balance = balance * parallel.sum(real.sum(), *DATA_AXES) / total_tokens
            # All devices computed the same value; it is to be counted once.
            balance = balance / parallel.size(*DATA_AXES)
            sums["router/load_balancing_loss"] = balance
            value = value + router_aux_loss_coef * balance
        if mtp_loss_weight:
            ahead, known = mtp_logprobs(
                params, config, batch, output.hidden, remat_policy=remat_policy, parallel=parallel
            )
            sums["train/mtp_loss"] = -jnp.sum(jnp.where(mask & known, ahead, 0.0) * batch["loss_weights"])
            value = value + mtp_loss_weight * sums["train/mtp_loss"]
        peaks = {name: jnp.max(jnp.where(mask, array, 0.0), initial=0.0) for name, array in maxima.items()}
        # Devices along context and tensor computed the same value, too: see t1_jax/parallel.
        return value / parallel.size("context", "tensor"), (sums, peaks)

    gradient = jax.grad(microbatch_loss, has_aux=True)

    def accumulated(params: Any, batch: Mapping[str, jax.Array]) -> tuple[Any, tuple[Metrics, Metrics]]:
        """Gradients and metrics of all microbatches; on a mesh, of this device's rows, then of all."""
        total_tokens = jnp.maximum(parallel.sum((batch["segment_ids"] > 0).sum(), *DATA_AXES), 1)
        first = {name: leaf[0] for name, leaf in batch.items()}
        count = len(batch["tokens"])
        if count == 1:
            grads, (sums, peaks) = gradient(params, first, total_tokens)
        else:
            empty = jax.tree.map(
                lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                jax.eval_shape(gradient, params, first, total_tokens),
            )

            def accumulate(carry: Any, microbatch: Mapping[str, jax.Array]) -> tuple[Any, None]:
                def add(carry: Any) -> Any:
                    grads, (sums, peaks) = carry
                    more, (more_sums, more_peaks) = gradient(params, microbatch, total_tokens)
                    grads, sums = jax.tree.map(jnp.add, (grads, sums), (more, more_sums))
                    return grads, (sums, jax.tree.map(jnp.maximum, peaks, more_peaks))

                # The same answer on all devices, since the branch talks to them.
                used = parallel.max((microbatch["segment_ids"] > 0).any().astype(jnp.int32), *DATA_AXES)
                return jax.lax.cond(used > 0, add, lambda carry: carry, carry), None

            (grads, (sums, peaks)), _ = jax.lax.scan(accumulate, empty, dict(batch))
        sums = {name: parallel.sum(value, *DATA_AXES) for name, value in sums.items()}
        peaks = {name: parallel.max(value, *DATA_AXES) for name, value in peaks.items()}
        return sum_gradients(parallel, abstract(config), grads), (sums, peaks)

    def gradients(params: Any, batch: Mapping[str, jax.Array]) -> tuple[Any, tuple[Metrics, Metrics]]:
        if mesh is None:
            return accumulated(params, batch)
        stored = jax.tree.map(lambda sharding: sharding.spec, param_shardings(abstract(config), mesh))
        rows = {name: batch_spec(name) for name in batch}
        return jax.shard_map(
            accumulated,
            mesh=mesh,
            in_specs=(stored, rows),
            out_specs=(stored, PartitionSpec()),
            check_vma=False,
        )(params, dict(batch))

    def step(state: TrainState, batch: Mapping[str, jax.Array]) -> tuple[TrainState, Metrics]:
        grads, (sums, peaks) = gradients(state.params, batch)
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


LiveForward = Callable[[Any, Mapping[str, Any]], tuple[jax.Array, jax.Array]]


def make_live_forward(
    config: ModelConfig,
    mesh: Mesh | None = None,
    *,
    temperature: float = 1.0,
    dispatch_tokens: int | None = None,
) -> LiveForward:
    """A function (params, microbatch) -> (log-probs float32 [B, T], experts int32 [B, T, L, K]) that routes
    every token live, whatever is recorded: for a reference policy, and to hold a record against.

    The microbatch has leaves [B, T], as `batch_logprobs` reads them.
    """
    parallel = SINGLE if mesh is None else Parallel.of(mesh, dispatch_tokens)

    def forward(params: Any, batch: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        logprobs, _, output = batch_logprobs(
            params, config, batch, temperature=temperature, parallel=parallel
        )
        return logprobs, output.routed_experts

    names = ("tokens", "segment_ids", "positions")
    function: Callable = forward
    if mesh is not None:
        stored = jax.tree.map(lambda sharding: sharding.spec, param_shardings(abstract(config), mesh))
        rows = {name: PartitionSpec(*batch_spec(name)[1:]) for name in names}
        results = tuple(PartitionSpec(*batch_spec(name)[1:]) for name in ("tokens", "routed_experts"))
        function = jax.shard_map(
            forward, mesh=mesh, in_specs=(stored, rows), out_specs=results, check_vma=False
        )
    compiled = jax.jit(function)
    return lambda params, batch: compiled(params, {name: batch[name] for name in names})


def place_batch(batch: Mapping[str, np.ndarray], mesh: Mesh | None = None) -> dict[str, jax.Array]:
    """Put a batch of leaves [M, B, T, ...] on the device, or on the mesh: see `batch_spec`.

    Raises InputError when rows or tokens do not divide over the mesh.
    """
    if mesh is None:
        return {name: jnp.asarray(leaf) for name, leaf in batch.items()}
    _, rows, length = batch["tokens"].shape
    for what, count, axes in (("rows", rows, DATA_AXES), ("row_length", length, ("context",))):
        size = math.prod(mesh.shape[axis] for axis in axes)
        if count % size:
            raise InputError(f"mesh: {' x '.join(axes)} is {size}, which does not divide {what} {count}")
    return {name: jax.device_put(leaf, NamedSharding(mesh, batch_spec(name))) for name, leaf in batch.items()}


def _expert_loads(
    config: ModelConfig, experts: jax.Array, batch: Mapping[str, jax.Array], parallel: Parallel
) -> jax.Array:
    """How many of a microbatch's tokens each expert of a layer got: float32 [L, E].

    `experts` is int32 [B, T, L, K], on a mesh this device's part.
    """
    real = parallel.part(batch["segment_ids"] > 0, "context", 1)
    # Compared rather than scattered: this fuses into one reduction.
    taken = (experts[..., None] == jnp.arange(config.num_experts)) & real[..., None, None, None]
    counts = taken.sum((0, 1, 3)).astype(jnp.float32)
    return parallel.sum(counts, "context")


def _finish(sums: Metrics) -> Metrics:
    """Divide sums by what they were summed over: loss tokens, except for totals and what is normalised
    already.
    """
    loss_tokens = jnp.maximum(sums["train/tokens"], 1.0)
    loads = sums["router/load_imbalance"]
    imbalance = (loads.max(-1) / jnp.maximum(loads.mean(-1), 1e-6)).mean()
    sums = sums | {"router/load_imbalance": imbalance}
    divisors: dict[str, jax.Array | float] = {
        "train/loss": 1.0,
        "train/mtp_loss": 1.0,
        "train/packed_tokens": 1.0,
        "train/tokens": 1.0,
        "router/replayed_fraction": jnp.maximum(sums["train/packed_tokens"], 1.0),
        "router/load_balancing_loss": 1.0,
        "router/load_imbalance": 1.0,
    }
    return {name: value / divisors.get(name, loss_tokens) for name, value in sums.items()}
