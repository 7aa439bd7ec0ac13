"""The engine's invariants, on a real tiny model in float32: one truth however a token came to be computed."""

from __future__ import annotations

import numpy as np
import pytest

from t1_jax.engine.request import RequestError

from .conftest import CONFIG, MAX_LENGTH, Driver, prompt


def check_against_full(reference, ids, result, temperature=1.0, first_row=0):
    """Log-probs of the sampled tokens and experts of the forwarded ones are those of one plain forward."""
    whole = [*ids, *result.output_ids]
    logprobs, experts = reference(whole, temperature)
    count = len(result.output_ids)
    expected = [logprobs[len(ids) + t - 1, token] for t, token in enumerate(result.output_ids)]
    np.testing.assert_allclose(result.logprobs, expected, atol=1e-4)
    assert result.routed_experts.shape == (len(ids) + count - 1 - first_row, CONFIG.num_moe_layers, 2)
    assert result.routed_experts.dtype == np.uint8
    np.testing.assert_array_equal(result.routed_experts, experts[first_row:-1])


def test_cold_request_agrees_with_one_full_forward(driver, reference):
    ids = prompt(0)
    result = driver().generate(ids, seed=5, temperature=0.7, max_new_tokens=10)
    assert len(result.output_ids) == 10 and result.finish_reason == {"type": "length", "length": 10}
    assert result.cached_tokens == 0 and result.prompt_tokens == len(ids)
    check_against_full(reference, ids, result, 0.7)


def test_multi_turn_episode_forwards_each_token_once_and_resumes_its_rows(driver, reference):
    engine, ids, seen = driver(), prompt(1), 0
    for turn in range(4):
        result = engine.generate(ids, f"turn{turn}", seed=turn, max_new_tokens=5, start=seen)
        assert result.cached_tokens == seen
        check_against_full(reference, ids, result, first_row=seen)
        seen = len(ids) + len(result.output_ids) - 1
        ids = [*ids, *result.output_ids, *prompt(100 + turn, 6)]
    counters = engine.scheduler.counters
    forwarded_in_decode = (
        counters.decoded_tokens - 4
    )  # the token that ends a turn comes back with the next one
    assert counters.prefilled_tokens + forwarded_in_decode == seen
    assert counters.evictions == 0


def test_batch_company_changes_nothing(driver, reference):
    alone = driver().generate(prompt(2), seed=9, max_new_tokens=12)
    engine = driver()
    engine.submit(prompt(3, 40), "a", seed=1, max_new_tokens=20)
    engine.scheduler.step()
    engine.submit(prompt(2), "r", seed=9, max_new_tokens=12)  # joins while another decodes
    engine.submit(
        prompt(4, 5), "b", seed=9, max_new_tokens=3, top_k=4, top_p=0.8
    )  # and compiles the sorted variant in
    engine.finish()
    assert engine.result().output_ids == alone.output_ids
    np.testing.assert_allclose(engine.result().logprobs, alone.logprobs, atol=1e-4)
    np.testing.assert_array_equal(engine.result().routed_experts, alone.routed_experts)
    check_against_full(reference, prompt(3, 40), engine.result("a"))


def test_long_prompt_is_prefilled_in_chunks(driver, reference):
    engine = driver()
    engine.scheduler.runner.prefill_shapes = [(4, 16)]
    result = engine.generate(prompt(5, 40), max_new_tokens=4)
    assert {("prefill", 4, 16, MAX_LENGTH)} == {
        key for key in engine.scheduler.runner.compiled if key[0] == "prefill"
    }
    check_against_full(reference, prompt(5, 40), result)


def test_a_group_is_prefilled_once(driver, reference):
    engine, ids = driver(), prompt(6)
    for member in range(6):  # more than there are slots
        engine.submit(ids, f"m{member}", seed=member, max_new_tokens=4)
    engine.finish()
    assert engine.scheduler.counters.prefilled_tokens == len(ids)
    assert engine.scheduler.counters.copied_prompts == 5
    outputs = {tuple(engine.result(f"m{member}").output_ids) for member in range(6)}
    assert len(outputs) > 1
    for member in range(6):
        check_against_full(reference, ids, engine.result(f"m{member}"))
    assert sorted(engine.result(f"m{member}").cached_tokens for member in range(6)) == [0] + [len(ids)] * 5
    late = engine.generate(ids, "late", seed=3, max_new_tokens=4)  # the snapshot outlives its group
    assert late.output_ids == engine.result("m3").output_ids and late.cached_tokens == len(ids)


def test_a_members_own_turns_go_on_beside_its_group(driver, reference):
    engine, ids = driver(), prompt(7)
    engine.submit(ids, "a", seed=1, max_new_tokens=1)  # its slot then holds exactly the prompt
    engine.submit(ids, "b", seed=2, max_new_tokens=4)
    engine.finish()
    first = engine.result("a")
    engine.submit(ids, "c", seed=3, max_new_tokens=2)  # may not take a's slot
    second_ids = [*ids, *first.output_ids, 1, 2, 3]
    engine.submit(second_ids, "a2", seed=4, max_new_tokens=3, start=len(ids))
    engine.finish()
    assert engine.result("a2").cached_tokens == len(ids)
    check_against_full(reference, second_ids, engine.result("a2"), first_row=len(ids))


def test_seeds(driver):
    engine = driver()
    first = engine.generate(prompt(8), "a", seed=11).output_ids
    assert engine.generate(prompt(8), "b", seed=11).output_ids == first
    assert engine.generate(prompt(8), "c", seed=2**40 + 11).output_ids != first  # the upper word counts too
    greedy = engine.generate(prompt(8), "d", seed=1, temperature=0.0).output_ids
    assert engine.generate(prompt(8), "e", seed=2, temperature=0.0).output_ids == greedy


def test_greedy_takes_the_most_likely_token(driver, reference):
    result = driver().generate(prompt(9), temperature=0.0, max_new_tokens=6)
    logprobs, _ = reference([*prompt(9), *result.output_ids])
    assert result.output_ids == logprobs[len(prompt(9)) - 1 : -1].argmax(-1).tolist()
    check_against_full(reference, prompt(9), result)


def test_stop_ids_end_a_row_inside_a_block(driver):
    free = driver().generate(prompt(10), seed=3, max_new_tokens=12)
    stop = free.output_ids[5]
    cut = driver().generate(prompt(10), seed=3, max_new_tokens=12, stop_token_ids=(63, stop))
    end = free.output_ids.index(stop) + 1
    assert cut.output_ids == free.output_ids[:end]
    assert cut.finish_reason == {"type": "stop", "matched": stop}
    np.testing.assert_array_equal(cut.routed_experts, free.routed_experts[: len(prompt(10)) + end - 1])


@pytest.mark.parametrize("count", [1, 4, 5])
def test_max_new_tokens_around_the_block_boundary(driver, count):
    result = driver().generate(prompt(11), max_new_tokens=count)
    assert len(result.output_ids) == len(result.logprobs) == count
    assert len(result.routed_experts) == len(prompt(11)) + count - 1


def test_cache_can_be_filled_to_its_end(driver, reference):
    ids = prompt(12, 55)
    result = driver().generate(ids, max_new_tokens=MAX_LENGTH - 55)
    check_against_full(reference, ids, result)


def test_least_recently_used_slot_is_evicted(driver, reference):
    engine = driver(slots=2, snapshots=0)
    episodes = {name: prompt(20 + i) for i, name in enumerate("abc")}
    for name, ids in episodes.items():
        episodes[name] = [*ids, *engine.generate(ids, name, max_new_tokens=3).output_ids, 7, 8]
    assert engine.scheduler.counters.evictions == 1
    assert engine.generate(episodes["c"], "c2").cached_tokens == 14
    evicted = engine.generate(
        episodes["a"], "a2"
    )  # its state is gone: everything is forwarded and recorded again
    assert evicted.cached_tokens == 0
    check_against_full(reference, episodes["a"], evicted)


def test_resident_turn_goes_before_a_prompt_that_would_evict_it(driver):
    engine = driver(slots=1, snapshots=0)
    ids = prompt(30)
    ids = [*ids, *engine.generate(ids, "a").output_ids, 5]
    engine.submit(prompt(31), "other", max_new_tokens=2)
    engine.submit(ids, "a2", max_new_tokens=2)
    engine.finish()
    assert engine.result("a2").cached_tokens == len(ids) - 2


def test_weight_update_marks_spans_and_drops_stale_state(driver, reference, other_params):
    engine, ids = driver(), prompt(40)
    engine.generate(prompt(41), "idle")
    engine.submit(ids, "r", seed=1, max_new_tokens=10)
    engine.scheduler.step()  # prompt and one block of 4 under version 0
    assert engine.scheduler.update_weights(other_params, "7") == 1
    engine.finish()
    result = engine.result()
    assert result.version_spans == [
        {"version": "0", "start": 0, "end": 4},
        {"version": "7", "start": 4, "end": 10},
    ]
    whole = [*ids, *result.output_ids]
    old_logprobs, old_experts = reference(whole)
    new_logprobs, new_experts = reference(whole, weights=other_params)
    at = len(ids)
    expected = [
        (old_logprobs if t < 4 else new_logprobs)[at + t - 1, token]
        for t, token in enumerate(result.output_ids)
    ]
    np.testing.assert_allclose(result.logprobs, expected, atol=1e-4)
    # Rows stay with the weights that first forwarded them: prompt and four tokens, then the rest.
    expected_rows = np.concatenate([old_experts[: at + 4], new_experts[at + 4 : -1]])
    np.testing.assert_array_equal(result.routed_experts, expected_rows)
    assert engine.generate(prompt(41), "idle2").cached_tokens == 0
    assert engine.generate(ids, "again").cached_tokens == 0


def test_retract_and_resume_change_nothing(driver):
    plain = driver().generate(prompt(42), seed=2, max_new_tokens=11)
    engine = driver()
    engine.submit(prompt(42), seed=2, max_new_tokens=11)
    engine.scheduler.step()
    engine.scheduler.pause("retract")
    assert not engine.scheduler.has_work
    engine.scheduler.table.flush()  # as if its slot had been taken
    engine.scheduler.resume()
    engine.finish()
    assert engine.result().output_ids == plain.output_ids
    np.testing.assert_array_equal(engine.result().routed_experts, plain.routed_experts)
    assert engine.scheduler.counters.preemptions == 1


def test_abort_returns_what_there_is_and_frees_the_slot(driver, reference):
    engine, ids = driver(slots=1), prompt(50)
    engine.submit(ids, "a", max_new_tokens=40)
    engine.submit(prompt(51), "b", max_new_tokens=2)
    engine.scheduler.step()
    assert engine.scheduler.abort("a") == 1
    assert engine.scheduler.abort("nobody") == 0
    result = engine.result("a")
    assert result.finish_reason["type"] == "abort" and len(result.output_ids) == 2  # half a block: b waits
    # both were forwarded: the row that a finished request would lack is there
    np.testing.assert_array_equal(result.routed_experts, reference([*ids, *result.output_ids])[1])
    engine.finish()
    assert len(engine.result("b").output_ids) == 2
    engine.submit(ids, "c")
    engine.scheduler.abort(None)
    assert engine.result("c").output_ids == [] and engine.result("c").routed_experts.shape == (0, 4, 2)


def test_same_rid_takes_the_place_of_the_one_in_flight(driver):
    engine = driver()
    engine.submit(prompt(52), "r", max_new_tokens=30)
    engine.scheduler.step()
    engine.submit(prompt(52), "r", max_new_tokens=3)
    assert engine.result().finish_reason["type"] == "abort"
    engine.finish()
    assert len(engine.result().output_ids) == 3


def test_queue_is_bounded(driver):
    engine = driver(max_waiting=2)
    for name in "abc":
        engine.submit(prompt(53), name)
    refused = engine.outcomes["c"]
    assert isinstance(refused, RequestError) and refused.status == 429
    engine.finish()
    assert set(engine.outcomes) == {"a", "b", "c"}


def test_failed_step_fails_requests_and_leaves_a_working_engine(driver, reference):
    engine = driver()
    engine.submit(prompt(54), "a")
    engine.scheduler.step()
    engine.scheduler.fail_all(RequestError("device", status=500))
    assert isinstance(engine.outcomes["a"], RequestError)
    check_against_full(reference, prompt(54), engine.generate(prompt(54), "b"))


def test_random_traffic_against_full_forwards(params, reference):
    """Episodes of several turns, of groups and alone, more than there are slots, in random order."""
    rng = np.random.default_rng(0)
    engine = Driver(params, slots=3, snapshots=1, max_waiting=100)
    episodes = {
        f"e{i}": (prompt(60 + i // 3, int(rng.integers(3, 24))) if i % 3 == 0 else None) for i in range(9)
    }
    for i in range(9):
        episodes[f"e{i}"] = episodes[f"e{i}"] or episodes[f"e{i - i % 3}"]
    for turn in range(3):
        for name in rng.permutation(list(episodes)):
            engine.submit(
                episodes[name],
                f"{name}.{turn}",
                seed=turn,
                max_new_tokens=int(rng.integers(1, 9)),
                temperature=float(rng.choice([0.0, 1.0, 1.3])),
            )
            if rng.random() < 0.5:
                engine.scheduler.step()
        engine.finish()
        for name, ids in episodes.items():
            result = engine.result(f"{name}.{turn}")
            _, experts = reference([*ids, *result.output_ids])
            np.testing.assert_array_equal(result.routed_experts, experts[:-1])
            assert len(result.output_ids) == len(result.versions) == len(result.logprobs)
            episodes[name] = [*ids, *result.output_ids, *rng.integers(0, 64, 4).tolist()]
