"""SFT batches through Grain: shuffled by seed, repeated by epoch, packed by first-fit, resumable to the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grain

from t1_jax.data.packing import Batch, pack, place_first_fit, places, split_microbatches
from t1_jax.data.trajectories import Document

# Documents that may wait for a later batch because no row has room: enough to fill rows well, few enough that
# a document is seen close to its place in the shuffled order.
_LOOKAHEAD = 16


class PackPlan(grain.IterDataset):
    """Groups a stream of document indices into batches: each element is document indices by row.

    The iterator's state holds the parent's state and the indices that wait, so that it is small, is JSON, and
    resumes exactly.
    """

    def __init__(self, parent: grain.IterDataset, lengths: Sequence[int], row_length: int, num_rows: int):
        super().__init__(parent)
        self.lengths, self.row_length, self.num_rows = lengths, row_length, num_rows

    def __iter__(self) -> grain.DatasetIterator:
        return _PackPlanIterator(self._parent.__iter__(), self.lengths, self.row_length, self.num_rows)


class _PackPlanIterator(grain.DatasetIterator):
    def __init__(self, parent: grain.DatasetIterator, lengths: Sequence[int], row_length: int, num_rows: int):
        super().__init__(parent)
        self._lengths, self._row_length, self._num_rows = lengths, row_length, num_rows
        self._waiting: list[int] = []

    def __next__(self) -> list[list[int]]:
        rows: list[list[int]] = []
        free: list[int] = []
        waiting, self._waiting = self._waiting, []
        for index in waiting:
            self._place(index, rows, free)
        while len(self._waiting) < _LOOKAHEAD:
            following = next(self._parent, None)
            if following is None:
                break
            self._place(int(following), rows, free)
        if not rows:
            raise StopIteration
        return rows

    def _place(self, index: int, rows: list[list[int]], free: list[int]) -> None:
        if not place_first_fit(index, self._lengths[index], rows, free, self._row_length, self._num_rows):
            self._waiting.append(index)

    def get_state(self) -> dict[str, Any]:
        return {"parent": self._parent.get_state(), "waiting": list(self._waiting)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._parent.set_state(state["parent"])
        self._waiting = list(state["waiting"])


def sft_dataset(
    documents: Sequence[Document],
    *,
    row_length: int,
    rows: int,
    microbatches: int = 1,
    epochs: int | None = 1,
    seed: int = 0,
    routes_shape: tuple[int, int] | None = None,
    align: int = 1,
) -> grain.IterDataset:
    """A Grain dataset of batches with leaves [M, B, T]; its iterator has `get_state()` / `set_state()`.

    Args:
      documents: all at most `row_length` long.
      row_length, rows, microbatches: T, B and M.
      epochs: passes over the documents, each in another order; None repeats without end.
      seed: of the shuffle.
      routes_shape: (L, K) when routing records are to be replayed.
      align: documents start at multiples of it.
    """

    def fill(plan: list[list[int]]) -> Batch:
        # Numbered by place, not by document: at the border of two epochs a document can be twice in a batch.
        places = iter(range(sum(map(len, plan))))
        local = [[next(places) for _ in row] for row in plan]
        members = [documents[index] for row in plan for index in row]
        batch = pack(
            members,
            row_length=row_length,
            num_rows=rows * microbatches,
            plan=local,
            routes_shape=routes_shape,
            align=align,
        )
        return split_microbatches(batch, rows, num_microbatches=microbatches)

    return plan_dataset(documents, row_length, rows * microbatches, epochs, seed, align).map(fill)


def plan_dataset(
    documents: Sequence[Document],
    row_length: int,
    num_rows: int,
    epochs: int | None,
    seed: int,
    align: int = 1,
) -> grain.IterDataset:
    """The plans of `sft_dataset`, without the data."""
    indices = grain.MapDataset.range(len(documents)).shuffle(seed=seed).repeat(epochs)
    # One reader thread: the indices are counted, not read, so prefetching them would only make the state lag.
    stream = indices.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
    return PackPlan(stream, places(documents, row_length, align), row_length, num_rows)


def count_batches(
    documents: Sequence[Document], *, row_length: int, rows: int, epochs: int, seed: int, align: int = 1
) -> int:
    """How many batches of `rows` rows (all microbatches together) `epochs` passes give."""
    return sum(1 for _ in plan_dataset(documents, row_length, rows, epochs, seed, align))
