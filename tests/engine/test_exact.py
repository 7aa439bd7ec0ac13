"""What a deterministic engine records, a learner computes to the last bit, however either batches."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.data.packing import pack
from t1_jax.data.trajectories import Document
from t1_jax.engine.request import GenerateRequest, GenerateResult, SamplingParams
from t1_jax.engine.scheduler import Scheduler
from t1_jax.model.deltanet import document_alignment
from t1_jax.train.step import batch_logprobs
from tests.engine.conftest import CONFIG
from tests.fresh import fresh_params

ROW = 256
TEMPERATURE = 0.8


def play(params, config):
    """Seven episodes of three turns, of many lengths, sampled together: Documents, and which turn sampled."""
    rng = np.random.default_rng(0)
    scheduler = Scheduler(params, config, slots=4, snapshots=2, max_length=ROW, decode_block=4, max_waiting=8)
    ids = [rng.integers(0, config.vocab_size, length).tolist() for length in (1, 5, 15, 16, 17, 70, 100)]
    logprobs = [[0.0] * len(episode) for episode in ids]
    routes = [[] for _ in ids]
    for turn in range(3):
        results: dict[int, GenerateResult] = {}
        for i, episode in enumerate(ids):
            start = sum(map(len, routes[i]))
            sampling = SamplingParams(max_new_tokens=3 + 11 * turn + i, temperature=TEMPERATURE, seed=i)
            request = GenerateRequest(
                rid=f"{i}-{turn}",
                input_ids=np.asarray(episode, np.int32),
                sampling=sampling,
                routed_experts_start=start,
            )
            scheduler.submit(request, lambda outcome, key=i, into=results: into.__setitem__(key, outcome))
        while scheduler.has_work:
            scheduler.step()
        for i, result in results.items():
            answer = rng.integers(0, config.vocab_size, 7).tolist()
            ids[i] += [*map(int, result.output_ids), *answer]
            logprobs[i] += [*map(float, result.logprobs), *[0.0] * 7]
            routes[i].append(result.routed_experts)
    documents = []
    for episode, scores, rows in zip(ids, logprobs, routes, strict=True):
        rows = np.concatenate(rows)
        length = len(rows)  # the last tokens were not forwarded
        documents.append(
            Document(
                rollout_id="r",
                tokens=np.asarray(episode[:length], np.int32),
                loss_mask=(np.asarray(scores[:length]) < 0).astype(np.float32),
                rollout_logprobs=np.asarray(scores[:length], np.float32),
                routed_experts=rows,
                routed_valid=np.ones(length, bool),
                policy_age=np.zeros(length, np.int32),
                advantage=1.0,
            )
        )
    return documents


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def episodes(request):
    """(config, parameters, Documents), played once for all that is computed of them."""
    config = dataclasses.replace(CONFIG, dtype=request.param, deterministic=True)
    params = fresh_params(config)
    return config, params, play(params, config)


@pytest.mark.parametrize("live", [True, False])
def test_the_learner_computes_what_the_engine_recorded(episodes, live):
    config, params, documents = episodes
    batch = pack(documents, row_length=ROW, align=document_alignment(config))
    assert len(batch["tokens"]) < len(documents)  # some rows hold several
    recorded = batch.pop("routed_experts")
    if not live:
        batch["routed_experts"] = recorded

    def loss(params):
        logprobs, _, output = batch_logprobs(params, config, batch, temperature=TEMPERATURE)
        return jnp.sum(logprobs * batch["loss_weights"]), (logprobs, output.routed_experts)

    plain = jax.jit(loss)(params)[1]
    trained = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)[0][1]
    sampled, read = batch["loss_mask"] > 0, batch["segment_ids"] > 0
    assert sampled.sum() > 200
    for logprobs, experts in (plain, trained):
        assert np.array_equal(experts[read], recorded[read])
        if config.dtype == "bfloat16":
            assert np.array_equal(logprobs[sampled], batch["rollout_logprobs"][sampled])
        else:  # XLA's float32 products of few columns sum in another order for another number of rows
            np.testing.assert_allclose(logprobs[sampled], batch["rollout_logprobs"][sampled], atol=5e-5)
