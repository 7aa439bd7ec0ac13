"""The host's view of the resident cache: which row holds which tokens, and which experts forwarded them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from t1_jax.model.config import ModelConfig


@dataclass(eq=False)
class Row:
    """One row of the device cache: the ids forwarded through it, their experts, and who uses it."""

    index: int
    ids: np.ndarray  # int32 [max_length], valid up to `length`
    routes: np.ndarray  # uint8 or uint16 [max_length, L, K], valid up to `recorded`
    length: int = 0
    recorded: int = 0  # >= length only while a preempted request is forwarded again
    last_used: int = 0
    owner: Any = None  # the running request, None when idle

    def clear(self) -> None:
        """Forget the sequence; the device row is emptied when the next one starts."""
        self.length = self.recorded = 0

    def append(self, ids: np.ndarray, routes: np.ndarray) -> None:
        """Note that `ids` [n] were forwarded with experts `routes` [n, L, K]. Rows recorded before stay as
        they were.
        """
        end = self.length + len(ids)
        self.ids[self.length : end] = ids
        if end > self.recorded:
            self.routes[self.recorded : end] = routes[self.recorded - self.length :]
            self.recorded = end
        self.length = end

    def copy_from(self, other: Row) -> None:
        """Take over another row's sequence and record."""
        self.length = self.recorded = other.length
        self.ids[: self.length] = other.ids[: self.length]
        self.routes[: self.length] = other.routes[: self.length]


@dataclass
class RowTable:
    """Slots, which requests run in and episodes rest in, and snapshots of freshly prefilled prompts, which
    are only copied.

    A recurrent state can't be cut back, so a row serves a request only if its WHOLE sequence is a prefix of
    the request's.
    """

    slots: list[Row]
    snapshots: list[Row]
    _clock: int = field(default=0)

    @classmethod
    def create(cls, config: ModelConfig, slots: int, snapshots: int, max_length: int) -> RowTable:
        """Empty rows 0..slots-1 for slots, then the snapshots."""
        shape = (max_length, config.num_moe_layers, config.num_experts_per_tok)
        rows = [
            Row(index=i, ids=np.zeros(max_length, np.int32), routes=np.zeros(shape, config.routes_dtype))
            for i in range(slots + snapshots)
        ]
        return cls(rows[:slots], rows[slots:])

    def touch(self, row: Row) -> None:
        """Make `row` the most recently used one."""
        self._clock += 1
        row.last_used = self._clock

    def match(self, ids: np.ndarray) -> Row | None:
        """The idle slot or snapshot that holds the longest full prefix of `ids` (int32 [n]).

        On a tie a snapshot wins: copying it leaves the episode that rests in the slot alone.
        """
        return self._longest([*self.snapshots, *self.slots], ids)

    def slot_match(self, ids: np.ndarray) -> Row | None:
        """As `match`, among the slots only."""
        return self._longest(self.slots, ids)

    @staticmethod
    def _longest(rows: list[Row], ids: np.ndarray) -> Row | None:
        best: Row | None = None
        for row in rows:
            if row.owner is None and (best.length if best else 0) < row.length <= len(ids):  # noqa: SIM102
                if np.array_equal(row.ids[: row.length], ids[: row.length]):
                    best = row
        return best

    def is_snapshot(self, row: Row) -> bool:
        """Whether `row` is a snapshot, to be copied and never run in."""
        return any(row is snapshot for snapshot in self.snapshots)

    def free_slot(self) -> Row | None:
        """An idle slot to overwrite: an empty one, else the least recently used. None when all run."""
        return _oldest(row for row in self.slots if row.owner is None)

    def free_snapshot(self) -> Row | None:
        """The snapshot to overwrite. None when the engine keeps none."""
        return _oldest(self.snapshots)

    def flush(self) -> None:
        """Forget every idle sequence and snapshot: their states belong to other weights."""
        for row in [*self.slots, *self.snapshots]:
            if row.owner is None:
                row.clear()


def _oldest(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=lambda row: (row.length > 0, row.last_used), default=None)
