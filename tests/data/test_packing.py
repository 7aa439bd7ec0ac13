import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.errors import InputError
from t1_jax.data.packing import first_fit, loss_weights, pack, split_microbatches
from t1_jax.data.trajectories import to_document
from tests.train.micro import MICRO, trajectory


def documents(lengths, **kw):
    return [
        to_document(trajectory(f"r{i}", n, seed=i, **kw), MICRO, advantage=i - 1.5)
        for i, n in enumerate(lengths)
    ]


@given(st.lists(st.integers(1, 32), max_size=40))
@settings(max_examples=50, deadline=None)
def test_first_fit_places_every_item_once_and_never_overfills(lengths):
    rows = first_fit(lengths, 32)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 32 for row in rows)
    # Two half-empty rows cannot exist: the second one's items would have gone into the first.
    assert sum(sum(lengths[i] for i in row) <= 16 for row in rows) <= 1


def test_every_token_arrives_with_its_record():
    docs = documents([9, 14, 7, 20], routes=True)
    batch = pack(docs, row_length=24, num_rows=4)
    assert batch["tokens"].shape == (4, 24) and batch["routed_experts"].shape == (4, 24, 4, 2)
    for row, members in enumerate(first_fit([9, 14, 7, 20], 24)):
        for segment, index in enumerate(members, 1):
            at = np.flatnonzero(batch["segment_ids"][row] == segment)
            doc = docs[index]
            np.testing.assert_array_equal(batch["tokens"][row, at], doc.tokens)
            np.testing.assert_array_equal(batch["positions"][row, at], np.arange(len(doc.tokens)))
            np.testing.assert_array_equal(batch["loss_mask"][row, at], doc.loss_mask)
            np.testing.assert_array_equal(batch["advantages"][row, at], doc.advantage * doc.loss_mask)
            np.testing.assert_array_equal(batch["routed_experts"][row, at[:-1]], doc.routed_experts[:-1])
            assert (batch["routed_experts"][row, at[-1]] == -1).all(), "the last token was never forwarded"
            assert batch["loss_mask"][row, at[0]] == 0
    padding = batch["segment_ids"] == 0
    assert (batch["routed_experts"][padding] == -1).all() and not batch["loss_weights"][padding].any()


def test_weights_sum_to_one_and_follow_the_aggregation():
    docs = documents([9, 14, 7, 20])
    docs[1] = dataclasses.replace(docs[1], rollout_id="r0")
    counts = [doc.loss_mask.sum() for doc in docs]
    for name in ("token", "sequence", "rollout"):
        assert sum(w.sum() for w in loss_weights(docs, name)) == pytest.approx(1, abs=1e-6)
    token, sequence, rollout = (
        [w.max() for w in loss_weights(docs, name)] for name in ("token", "sequence", "rollout")
    )
    np.testing.assert_allclose(token, 1 / sum(counts), rtol=1e-6)
    np.testing.assert_allclose(sequence, [1 / (4 * c) for c in counts], rtol=1e-6)
    both = counts[0] + counts[1]
    np.testing.assert_allclose(rollout, [1 / (3 * c) for c in (both, both, counts[2], counts[3])], rtol=1e-6)


def test_no_loss_tokens_give_zero_weights_not_nan():
    doc = dataclasses.replace(documents([9])[0], loss_mask=np.zeros(9, np.float32))
    for name in ("token", "sequence", "rollout"):
        assert not loss_weights([doc], name)[0].any()


def test_too_long_and_too_many_are_refused():
    docs = documents([9, 30])
    with pytest.raises(InputError, match=r"r1.*30 tokens.*row_length 24"):
        pack(docs, row_length=24)
    with pytest.raises(InputError, match="need 2 rows, expected at most 1"):
        pack(docs, row_length=32, num_rows=1)


def test_microbatches_are_padded_to_a_power_of_two():
    batch = pack(documents([20] * 5, routes=True), row_length=24)
    split = split_microbatches(batch, 2)
    assert split["tokens"].shape == (4, 2, 24)
    np.testing.assert_array_equal(split["tokens"].reshape(8, 24)[:5], batch["tokens"])
    assert (split["routed_experts"].reshape(8, 24, 4, 2)[5:] == -1).all()
    assert not split["segment_ids"].reshape(8, 24)[5:].any()
