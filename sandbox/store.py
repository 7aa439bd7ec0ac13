"""The durable queue of rollouts: one SQLite file that survives a killed process without losing a rollout.

    queued -> running -> done -> leased -> delivered     a reward, or a verdict that the infrastructure failed
                                        -> failed        no episode was possible (the reason says why)
    queued | running | done | leased -> cancelled        the learner no longer wants it

Every rollout ends in exactly one of delivered, failed and cancelled. All but the cancelled ones are handed
out as frames, so that the learner can count a group's members. Delivery is at least once: what is leased and
not acknowledged in time is handed out again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sandbox.errors import InputError

STATES = ("queued", "running", "done", "leased", "delivered", "cancelled", "failed")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rollouts (
    ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
    rollout_id TEXT NOT NULL UNIQUE,
    group_id TEXT NOT NULL,
    task TEXT NOT NULL,
    seed INTEGER NOT NULL,
    temperature REAL NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    lease_until REAL NOT NULL DEFAULT 0,
    finished INTEGER,
    trajectory BLOB
);
CREATE INDEX IF NOT EXISTS by_state ON rollouts (state, ordinal);
CREATE INDEX IF NOT EXISTS by_group ON rollouts (group_id);
CREATE INDEX IF NOT EXISTS by_finished ON rollouts (finished);
"""
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One episode that is to be played: `task` is the path of its folder."""

    rollout_id: str
    group_id: str
    task: str
    seed: int
    temperature: float


class Store:
    """The queue. All methods run on one writer thread, so they are safe to await from many tasks.

    `open` raises InputError when the file cannot be written or another process holds it. Rollouts that were
    running when the last process died are queued again.
    """

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: int, thread: ThreadPoolExecutor
    ) -> None:
        self.path = path
        self._db = connection
        self._lock = lock
        self._thread = thread

    @classmethod
    async def open(cls, path: str | Path) -> Store:
        """Open or create the store at `path`."""
        path = Path(path)
        thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            connection, lock = await asyncio.get_running_loop().run_in_executor(thread, _connect, path)
        except InputError:
            thread.shutdown()
            raise
        return cls(path, connection, lock, thread)

    async def close(self) -> None:
        """Finish pending work, then release the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._db.close)
        self._thread.shutdown()
        os.close(self._lock)

    async def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        def transaction() -> _T:
            with self._db:
                return work(self._db)

        # Shielded: a task that is cancelled must not leave the caller unsure whether its transaction will
        # happen.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, transaction))

    async def add(self, rollouts: Sequence[Rollout]) -> int:
        """Queue rollouts; ids that are known already are left as they are. Returns how many were new."""

        def work(db: sqlite3.Connection) -> int:
            before = db.total_changes
            db.executemany(
                "INSERT OR IGNORE INTO rollouts (rollout_id, group_id, task, seed, temperature, state)"
                " VALUES (?, ?, ?, ?, ?, 'queued')",
                [(r.rollout_id, r.group_id, r.task, r.seed, r.temperature) for r in rollouts],
            )
            return db.total_changes - before

        return await self._run(work)

    async def claim(self, count: int) -> list[Rollout]:
        """Move up to `count` of the oldest queued rollouts to running."""

        def work(db: sqlite3.Connection) -> list[Rollout]:
            rows = db.execute(
                "UPDATE rollouts SET state = 'running' WHERE ordinal IN"
                " (SELECT ordinal FROM rollouts WHERE state = 'queued' ORDER BY ordinal LIMIT ?)"
                " RETURNING ordinal, rollout_id, group_id, task, seed, temperature",
                (count,),
            ).fetchall()
            return [
                Rollout(rollout_id=r[1], group_id=r[2], task=r[3], seed=r[4], temperature=r[5])
                for r in sorted(rows)
            ]

        return await self._run(work)

    async def finish(self, rollout_id: str, trajectory: bytes, *, reason: str = "") -> bool:
        """Store the encoded trajectory of a running rollout. A `reason` makes it end as failed once
        acknowledged.

        False when the rollout was cancelled meanwhile: its trajectory is dropped.
        """

        def work(db: sqlite3.Connection) -> bool:
            changed = db.execute(
                "UPDATE rollouts SET state = 'done', trajectory = ?, reason = ?,"
                " finished = (SELECT coalesce(max(finished), 0) + 1 FROM rollouts)"
                " WHERE rollout_id = ? AND state = 'running'",
                (trajectory, reason, rollout_id),
            ).rowcount
            return changed == 1

        return await self._run(work)

    async def requeue(self, rollout_ids: Sequence[str]) -> None:
        """Put running rollouts back, when the service stops before they end."""
        await self._run(
            lambda db: db.executemany(
                "UPDATE rollouts SET state = 'queued' WHERE rollout_id = ? AND state = 'running'",
                [(r,) for r in rollout_ids],
            )
        )

    async def lease(
        self, count: int, seconds: float, *, limit_bytes: int = 1 << 30, now: float | None = None
    ) -> list[bytes]:
        """Encoded trajectories of up to `count` rollouts, in the order in which they finished, leased for
        `seconds`.

        Leases that ran out are handed out again. At least one trajectory, and no more than `limit_bytes`
        beyond it.
        """
        now = time.time() if now is None else now

        def work(db: sqlite3.Connection) -> list[bytes]:
            ready = db.execute(
                "SELECT ordinal, length(trajectory) FROM rollouts WHERE state = 'done'"
                " OR (state = 'leased' AND lease_until < ?) ORDER BY finished LIMIT ?",
                (now, count),
            ).fetchall()
            taken: list[int] = []
            size = 0
            for ordinal, length in ready:
                size += length
                if taken and size > limit_bytes:
                    break
                taken.append(ordinal)
            db.executemany(
                "UPDATE rollouts SET state = 'leased', lease_until = ? WHERE ordinal = ?",
                [(now + seconds, ordinal) for ordinal in taken],
            )
            one = "SELECT trajectory FROM rollouts WHERE ordinal = ?"
            return [db.execute(one, (ordinal,)).fetchone()[0] for ordinal in taken]

        return await self._run(work)

    async def ack(self, rollout_ids: Sequence[str]) -> int:
        """End leased rollouts (as delivered, or as failed where there is a reason) and drop their bytes.

        An acknowledgement that arrives after its lease ran out still counts: the learner has the frame.
        Returns how many ended now; a repeated acknowledgement ends none.
        """

        def work(db: sqlite3.Connection) -> int:
            before = db.total_changes
            db.executemany(
                "UPDATE rollouts SET state = CASE reason WHEN '' THEN 'delivered' ELSE 'failed' END,"
                " trajectory = NULL WHERE rollout_id = ? AND state IN ('leased', 'done')",
                [(r,) for r in rollout_ids],
            )
            return db.total_changes - before

        return await self._run(work)

    async def cancel(self, group_ids: Sequence[str], reason: str) -> list[str]:
        """Cancel what has not ended in these groups; returns the ids, so that running episodes can be
        stopped.
        """

        def work(db: sqlite3.Connection) -> list[str]:
            cancelled = []
            for group_id in group_ids:
                cancelled += db.execute(
                    "UPDATE rollouts SET state = 'cancelled', reason = ?, trajectory = NULL"
                    " WHERE group_id = ? AND state IN ('queued', 'running', 'done', 'leased')"
                    " RETURNING rollout_id",
                    (reason, group_id),
                ).fetchall()
            return [row[0] for row in cancelled]

        return await self._run(work)

    async def counts(self) -> dict[str, int]:
        """Number of rollouts in each state."""
        rows = await self._run(
            lambda db: db.execute("SELECT state, count(*) FROM rollouts GROUP BY state").fetchall()
        )
        return {state: dict(rows).get(state, 0) for state in STATES}

    async def rows(self) -> list[dict[str, Any]]:
        """Every rollout without its trajectory, in the order in which they were queued."""
        columns = ("rollout_id", "group_id", "task", "seed", "temperature", "state", "reason")
        query = f"SELECT {', '.join(columns)} FROM rollouts ORDER BY ordinal"
        return [
            dict(zip(columns, row, strict=True))
            for row in await self._run(lambda db: db.execute(query).fetchall())
        ]


def _connect(path: Path) -> tuple[sqlite3.Connection, int]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError(f"store {path}: {error.strerror}, expected a writable SQLite file") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        db = sqlite3.connect(path, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        # FULL: an acknowledged rollout stays acknowledged through a power cut, not only a killed process.
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_SCHEMA)
        with db:
            db.execute("UPDATE rollouts SET state = 'queued' WHERE state = 'running'")
    except BlockingIOError as error:
        os.close(lock)
        raise InputError(f"store {path}: another rollout service uses it, expected one of its own") from error
    except sqlite3.Error as error:
        os.close(lock)
        raise InputError(f"store {path}: {error}, expected a writable SQLite file") from error
    return db, lock
