"""Packed, padded, cached and replayed rows are all the same forward."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t1_jax.config import load_config
from t1_jax.kernels.delta_rule import chunk_size
from t1_jax.model.config import ModelConfig
from t1_jax.model.transformer import forward, init_cache, logits
from tests.fresh import fresh_params

CONFIG = ModelConfig(
    vocab_size=64,
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
    full_attention_interval=2,  # two periods: the outer scan too has something to get wrong
    initializer_range=0.2,
    dtype="float32",
)
LENGTHS = (5, 9, 13)
ROW = 32
PARAMS = fresh_params(CONFIG)
RNG = np.random.default_rng(0)
DOCUMENTS = [RNG.integers(0, CONFIG.vocab_size, length) for length in LENGTHS]
TOKENS = jnp.asarray(RNG.integers(0, CONFIG.vocab_size, (3, ROW)))


@jax.jit
def run(tokens, segment_ids=None, positions=None, routed_experts=None):
    """Logits, and the experts that were used."""
    out = forward(
        PARAMS, CONFIG, tokens, segment_ids=segment_ids, positions=positions, routed_experts=routed_experts
    )
    return logits(PARAMS, CONFIG, out.hidden), out.routed_experts


@partial(jax.jit, static_argnames="remat_policy")
def loss_and_gradient(params, tokens, segment_ids, positions, weights, routed_experts=None, *, remat_policy):
    """A weighed sum over the valid tokens' logits; each token has the same weights wherever it lies."""

    def total(params):
        out = forward(
            params, CONFIG, tokens, segment_ids=segment_ids, positions=positions,
            routed_experts=routed_experts, remat_policy=remat_policy,
        )  # fmt: skip
        return jnp.sum(jnp.sin(logits(params, CONFIG, out.hidden)) * weights[..., None])

    return jax.value_and_grad(total)(params)


def rows(plan):
    """Rows of documents in a plan such as [[0, 1], [2]]: tokens, segment ids, positions; 3 rows always."""
    tokens, segments, positions = (np.zeros((3, ROW), np.int32) for _ in range(3))
    places = {}
    for row, members in enumerate(plan):
        at = 0
        for number, member in enumerate(members, 1):
            end = at + LENGTHS[member]
            tokens[row, at:end], segments[row, at:end] = DOCUMENTS[member], number
            positions[row, at:end] = np.arange(LENGTHS[member])
            places[member], at = (row, slice(at, end)), end
    return (tokens, segments, positions), places


PACKED, ALONE = rows([[2, 0, 1]]), rows([[0], [1], [2]])


def close(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.linalg.norm(a - b) <= 1e-5 * (np.linalg.norm(b) + 1e-3)


def test_packed_documents_are_standalone_ones():
    (packed, experts), (alone, alone_experts) = run(*PACKED[0]), run(*ALONE[0])
    for document in range(len(LENGTHS)):
        here, there = PACKED[1][document], ALONE[1][document]
        np.testing.assert_allclose(packed[here], alone[there], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(experts[here], alone_experts[there])


def test_gradient_of_packed_documents_is_that_of_standalone_ones():
    results = []
    for arrays, _ in (PACKED, ALONE):
        valid = (arrays[1] > 0).astype(np.float32)
        results.append(loss_and_gradient(PARAMS, *arrays, valid, remat_policy="none"))
    close(*results)


def test_a_documents_neighbours_and_padding_change_nothing():
    (tokens, segments, positions), places = PACKED
    other = np.where(segments == 2, tokens, (tokens + 7) % CONFIG.vocab_size)
    before, after = run(tokens, segments, positions)[0], run(other, segments, positions)[0]
    np.testing.assert_allclose(before[places[0]], after[places[0]], rtol=1e-5, atol=1e-5)
    assert np.abs(before[places[2]] - after[places[2]]).max() > 0.1


@pytest.mark.parametrize("length", [1, 6])
def test_a_shorter_row_is_a_padded_one(length):
    segments = jnp.broadcast_to(jnp.arange(ROW) < length, TOKENS.shape).astype(jnp.int32)
    padded = run(TOKENS, segments)[0][:, :length]
    np.testing.assert_allclose(run(TOKENS[:, :length])[0], padded, rtol=1e-5, atol=1e-5)


@jax.jit
def advance(cache, tokens, token_mask):
    out = forward(PARAMS, CONFIG, tokens, cache=cache, token_mask=token_mask)
    return logits(PARAMS, CONFIG, out.hidden), out.routed_experts, out.cache


def test_prefill_and_decode_are_one_forward_wherever_they_meet():
    """Row r prefills r tokens and decodes the others one by one, over chunk boundaries of the delta rule."""
    length = 2 * chunk_size() + 4
    tokens = jnp.asarray(RNG.integers(0, CONFIG.vocab_size, length))
    (expected,), (experts,) = run(tokens[None])
    splits = jnp.arange(1, length)
    every = jnp.broadcast_to(tokens, (length - 1, length))
    cache = init_cache(CONFIG, length - 1, length)
    prefilled, routes, cache = advance(cache, every, jnp.arange(length) < splits[:, None])
    before = np.arange(length) < splits[:, None]
    tolerance = 1e-5 * np.abs(expected).max()
    there = jnp.broadcast_to(expected, prefilled.shape)[before]
    np.testing.assert_allclose(prefilled[before], there, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(routes[before], jnp.broadcast_to(experts, routes.shape)[before])
    np.testing.assert_array_equal(cache.lengths, splits)
    for step in range(length - 1):
        at = splits + step
        left = np.asarray(at < length)
        out, routes, cache = advance(cache, tokens[at % length][:, None], jnp.asarray(left)[:, None])
        here = np.asarray(at)[left]
        np.testing.assert_allclose(out[left, 0], expected[here], rtol=0, atol=tolerance)
        np.testing.assert_array_equal(routes[left, 0], experts[here])
    np.testing.assert_array_equal(cache.lengths, length)


def test_bfloat16_rounds_at_the_same_places_whatever_the_shape():
    """A compiler that keeps some intermediates in float32 does so by shape: with it, every router logit of a
    prefill or a decoded token differed from the packed forward's, and one expert set in a hundred.
    """
    config = load_config(ModelConfig, Path(__file__).parents[2] / "configs" / "model" / "tiny.yaml")
    params = fresh_params(config)
    tokens = jax.random.randint(jax.random.key(1), (4, 256), 0, config.vocab_size)
    packed = jax.jit(lambda tokens: forward(params, config, tokens))(tokens)

    @jax.jit
    def continued(tokens, cache):
        return forward(params, config, tokens, cache=cache)

    first = continued(tokens[:, :64], init_cache(config, 4, 256))
    second = continued(tokens[:, 64:65], first.cache)
    # What is left are float32 sums in another order (another block of a product, the delta rule by token).
    for part, place in ((first, slice(0, 64)), (second, slice(64, 65))):
        differs = np.asarray(part.router_logits != packed.router_logits[:, place]).mean()
        assert differs < 0.5


def test_padding_leaves_the_cache_as_it_is():
    _, _, cache = advance(init_cache(CONFIG, 3, ROW), TOKENS[:, :12], jnp.ones((3, 12), bool))
    _, _, after = advance(cache, TOKENS[:, :12], jnp.zeros((3, 12), bool))
    jax.tree.map(np.testing.assert_array_equal, after, cache)


def test_replay_of_ones_own_record_is_bit_identical():
    live, experts = run(TOKENS)
    replayed, used = run(TOKENS, None, None, experts)
    np.testing.assert_array_equal(replayed, live)
    np.testing.assert_array_equal(used, experts)


@pytest.mark.parametrize("remat_policy", ["none", "full"])
def test_gradient_under_replay_of_ones_own_record_is_the_live_one(remat_policy):
    """Bit for bit, in packed rows and others, in the one program that serves live and recorded rows."""
    for arrays, _ in (PACKED, ALONE):
        valid = (arrays[1] > 0).astype(np.float32)
        _, experts = run(*arrays)
        live, replayed = (
            loss_and_gradient(PARAMS, *arrays, valid, routes, remat_policy=remat_policy)
            for routes in (jnp.full_like(experts, -1), experts)
        )
        jax.tree.map(np.testing.assert_array_equal, live, replayed)


def test_one_tokens_experts_in_one_layer_matter_from_there_on():
    live, experts = run(TOKENS)
    token = 5
    for layer in range(CONFIG.num_moe_layers):
        other = experts.at[:, token, layer].set((experts[:, token, layer] + 3) % CONFIG.num_experts)
        changed, used = run(TOKENS, None, None, other)
        np.testing.assert_array_equal(used, other)
        np.testing.assert_array_equal(changed[:, :token], live[:, :token])
        assert np.abs(changed - live)[:, token].max(-1).min() > 1e-4, f"layer {layer}"


def test_the_order_of_recorded_experts_means_nothing():
    live, experts = run(TOKENS)
    permuted, used = run(TOKENS, None, None, experts[..., ::-1])
    np.testing.assert_array_equal(used, experts[..., ::-1])
    np.testing.assert_allclose(permuted, live, rtol=1e-6, atol=1e-6 * np.abs(live).max())


def test_one_layers_row_can_be_missing():
    _, experts = run(TOKENS)
    other = (experts + 3) % CONFIG.num_experts
    _, used = run(TOKENS, None, None, other.at[:, 7, 2].set(-1))
    recorded = np.ones(used.shape[:3], bool)
    recorded[:, 7, 2] = False
    np.testing.assert_array_equal(used[recorded], other[recorded])
    # The live choice there, on the hidden states that the other experts left.
    _, expected = run(TOKENS, None, None, other.at[:, 7:, 2].set(-1))
    np.testing.assert_array_equal(used[:, 7, 2], expected[:, 7, 2])


def test_other_experts_change_the_output_in_every_layer():
    live, experts = run(TOKENS)
    for layer in range(CONFIG.num_moe_layers):
        other = experts.at[:, :, layer].set((experts[:, :, layer] + 3) % CONFIG.num_experts)
        changed, used = run(TOKENS, None, None, other)
        np.testing.assert_array_equal(used, other)
        assert np.abs(changed - live).max(-1).min() > 1e-4, f"layer {layer}"


def test_rows_that_were_not_recorded_route_live():
    live, experts = run(TOKENS)
    nothing = jnp.full_like(experts, -1)
    out, used = run(TOKENS, None, None, nothing)
    np.testing.assert_array_equal(out, live)
    np.testing.assert_array_equal(used, experts)
    # The first half is recorded, and differently: what follows it routes live, on other hidden states.
    half = ROW // 2
    other = nothing.at[:, :half].set((experts[:, :half] + 3) % CONFIG.num_experts)
    _, used = run(TOKENS, None, None, other)
    np.testing.assert_array_equal(used[:, :half], other[:, :half])
    assert (used[:, half:] >= 0).all()
    # Even and odd tokens: the first layer's router sees what no expert has changed, but for its own mixer.
    even = (jnp.arange(ROW) % 2 == 0)[None, :, None, None]
    _, used = run(TOKENS, None, None, jnp.where(even, (experts + 3) % CONFIG.num_experts, -1))
    np.testing.assert_array_equal(used[:, 1::2, 0], experts[:, 1::2, 0])
    np.testing.assert_array_equal(used[:, ::2], (experts[:, ::2] + 3) % CONFIG.num_experts)
