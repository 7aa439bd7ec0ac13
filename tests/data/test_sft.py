import numpy as np

from t1_jax.data.sft import count_batches, sft_dataset
from t1_jax.data.trajectories import to_document
from tests.train.micro import MICRO, trajectory

DOCUMENTS = [to_document(trajectory(f"d{i}", 6 + 5 * i % 19, seed=i), MICRO) for i in range(40)]


def dataset(**changes):
    settings = {"row_length": 24, "rows": 2, "microbatches": 2, "epochs": 2, "seed": 3} | changes
    return sft_dataset(DOCUMENTS, **settings)


def test_an_epoch_holds_every_document_once():
    batches = list(dataset(epochs=1))
    assert len(batches) == count_batches(DOCUMENTS, row_length=24, rows=4, epochs=1, seed=3)
    assert all(batch["tokens"].shape == (2, 2, 24) for batch in batches)
    assert sum((batch["segment_ids"] > 0).sum() for batch in batches) == sum(len(d.tokens) for d in DOCUMENTS)
    starts = sorted(
        tuple(batch["tokens"][(*index[:-1], slice(index[-1], index[-1] + 6))])
        for batch in batches
        for index in map(tuple, np.argwhere((batch["positions"] == 0) & (batch["segment_ids"] > 0)))
    )
    assert starts == sorted(tuple(d.tokens[:6]) for d in DOCUMENTS)


def test_epochs_differ_and_the_seed_decides():
    first, again, other = (next(iter(dataset(seed=seed)))["tokens"] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_iterator_resumes_to_the_batch():
    whole = list(dataset())
    for stop in (0, 1, len(whole) // 2, len(whole) - 1):
        iterator = iter(dataset())
        for _ in range(stop):
            next(iterator)
        resumed = iter(dataset())
        resumed.set_state(iterator.get_state())
        rest = list(resumed)
        assert len(rest) == len(whole) - stop
        for batch, expected in zip(rest, whole[stop:], strict=True):
            for name in expected:
                np.testing.assert_array_equal(batch[name], expected[name])
