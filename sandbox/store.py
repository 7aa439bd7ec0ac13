"""The durable queue of rollouts, in SQLite or PostgreSQL, which survives a killed process without losing one.

    queued -> running -> done -> leased -> delivered     a reward, or a verdict that the infrastructure failed
                                        -> failed        no episode was possible (the reason says why)
    queued | running | done | leased -> cancelled        the learner no longer wants it, or it is too old

Every rollout ends in exactly one of delivered, failed and cancelled. All but the cancelled ones are handed
out as frames, so that the learner can count a group's members. Two kinds of lease keep that true when
processes die: a running rollout belongs to a service until `lease_until`, and is queued again if that service
has not renewed it by then; a leased one belongs to a learner, and is handed out again (delivery is at least
once).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sandbox.database import Database, open_database
from sandbox.errors import InputError

STATES = ("queued", "running", "done", "leased", "delivered", "cancelled", "failed")
ENDED = ("delivered", "cancelled", "failed")
_PENDING = "('queued', 'running', 'done', 'leased')"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rollouts (
    ordinal {ordinal},
    rollout_id TEXT NOT NULL UNIQUE,
    group_id TEXT NOT NULL,
    task TEXT NOT NULL,
    seed BIGINT NOT NULL,
    temperature DOUBLE PRECISION NOT NULL,
    min_version BIGINT NOT NULL DEFAULT -1,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    owner TEXT NOT NULL DEFAULT '',
    claims BIGINT NOT NULL DEFAULT 0,
    lease_until DOUBLE PRECISION NOT NULL DEFAULT 0,
    oldest_version BIGINT,
    finished BIGINT,
    trajectory {bytes}
);
CREATE INDEX IF NOT EXISTS by_state ON rollouts (state, ordinal);
CREATE INDEX IF NOT EXISTS by_group ON rollouts (group_id);
CREATE INDEX IF NOT EXISTS by_finished ON rollouts (finished);
CREATE INDEX IF NOT EXISTS by_owner ON rollouts (owner);
"""
_T = TypeVar("_T")


class StoreFull(Exception):
    """The queue holds as many rollouts as it may: the caller has to wait."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One episode that is to be played: `task` is the path of its folder.

    min_version: the oldest policy version that may sample it; -1 for any. claims: how often a service has
    taken it, this time included.
    """

    rollout_id: str
    group_id: str
    task: str
    seed: int
    temperature: float
    min_version: int = -1
    claims: int = 0


class Store:
    """The queue. All methods run on one thread, so they are safe to await from many tasks.

    `open` raises InputError when the database cannot be used, or when another process holds the file.
    Of an SQLite file, rollouts that were running when the last process died are queued again at once; of
    PostgreSQL, which services share, when their claims run out.
    """

    def __init__(self, where: str | Path, database: Database, thread: ThreadPoolExecutor) -> None:
        self.path = where
        self.owner = uuid.uuid4().hex
        self._db = database
        self._thread = thread

    @classmethod
    async def open(cls, where: str | Path) -> Store:
        """Open or create the store at a path, or at a postgresql:// URL."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            loop = asyncio.get_running_loop()
            database = await loop.run_in_executor(thread, open_database, where, _SCHEMA)
        except InputError:
            thread.shutdown()
            raise
        store = cls(where, database, thread)
        if not database.shared:
            await store._run(
                lambda db: db.execute("UPDATE rollouts SET state = 'queued' WHERE state = 'running'").rowcount
            )
        return store

    async def close(self) -> None:
        """Finish pending work, then release the database."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._db.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[Database], _T]) -> _T:
        # Shielded: a task that is cancelled must not leave the caller unsure whether its transaction will
        # happen.
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, self._db.transaction, work))

    async def add(self, rollouts: Sequence[Rollout], max_pending: int | None = None) -> int:
        """Queue rollouts; ids that are known already are left as they are. Returns how many were new.

        Raises StoreFull, and queues none, when more than `max_pending` would then wait to end.
        """

        def work(db: Database) -> int:
            added = db.executemany(
                "INSERT INTO rollouts (rollout_id, group_id, task, seed, temperature, min_version, state)"
                " VALUES (?, ?, ?, ?, ?, ?, 'queued') ON CONFLICT (rollout_id) DO NOTHING",
                [(r.rollout_id, r.group_id, r.task, r.seed, r.temperature, r.min_version) for r in rollouts],
            )
            if added and max_pending is not None:
                query = f"SELECT count(*) FROM rollouts WHERE state IN {_PENDING}"
                (pending,) = db.execute(query).fetchone()
                if pending > max_pending:
                    raise StoreFull(f"{pending} rollouts would be pending, at most {max_pending} may")
            return added

        return await self._run(work)

    async def wanted_version(self) -> int:
        """The lowest policy version that any queued rollout asks for; -1 when one asks for none, or none is
        queued."""
        query = "SELECT min(min_version) FROM rollouts WHERE state = 'queued'"
        (found,) = await self._run(lambda db: db.execute(query).fetchone())
        return -1 if found is None else int(found)

    async def claim(
        self,
        count: int,
        seconds: float = 60.0,
        *,
        version: int | None = None,
        max_ready: int | None = None,
        now: float | None = None,
    ) -> list[Rollout]:
        """Take up to `count` of the oldest queued rollouts for `seconds`; see `renew`.

        version: the policy's; a rollout that asks for a newer one stays queued. max_ready: how many ended
        rollouts may wait for the learner; as long as there are so many, nothing is taken. Claims of other
        services that ran out are queued again first.
        """
        now = time.time() if now is None else now

        def work(db: Database) -> list[Rollout]:
            db.execute(
                "UPDATE rollouts SET state = 'queued' WHERE state = 'running' AND lease_until < ?", (now,)
            )
            if max_ready is not None:
                query = "SELECT count(*) FROM rollouts WHERE state IN ('done', 'leased')"
                (ready,) = db.execute(query).fetchone()
                if ready >= max_ready:
                    return []
            bound = "" if version is None else f" AND min_version <= {int(version)}"
            taken = db.execute(
                f"SELECT ordinal FROM rollouts WHERE state = 'queued'{bound} ORDER BY ordinal"
                f" LIMIT ?{db.for_update}",
                (count,),
            ).fetchall()
            db.executemany(
                "UPDATE rollouts SET state = 'running', owner = ?, lease_until = ?, claims = claims + 1"
                " WHERE ordinal = ?",
                [(self.owner, now + seconds, ordinal) for (ordinal,) in taken],
            )
            one = (
                "SELECT rollout_id, group_id, task, seed, temperature, min_version, claims FROM rollouts"
                " WHERE ordinal = ?"
            )
            names = ("rollout_id", "group_id", "task", "seed", "temperature", "min_version", "claims")
            rows = [db.execute(one, (ordinal,)).fetchone() for (ordinal,) in taken]
            return [Rollout(**dict(zip(names, row, strict=True))) for row in rows]

        return await self._run(work)

    async def upcoming(self, count: int) -> list[str]:
        """The task folders of the rollouts that are next to be claimed."""
        query = "SELECT task FROM rollouts WHERE state = 'queued' ORDER BY ordinal LIMIT ?"
        return [task for (task,) in await self._run(lambda db: db.execute(query, (count,)).fetchall())]

    async def renew(self, rollout_ids: Sequence[str], seconds: float, now: float | None = None) -> set[str]:
        """Keep these running rollouts for `seconds` more; returns those that this store still owns.

        Another was cancelled, or its claim had run out: whatever comes of it will be dropped.
        """
        now = time.time() if now is None else now

        def work(db: Database) -> set[str]:
            kept = set()
            for rollout_id in rollout_ids:
                changed = db.execute(
                    "UPDATE rollouts SET lease_until = ? WHERE rollout_id = ? AND owner = ?"
                    " AND state = 'running'",
                    (now + seconds, rollout_id, self.owner),
                ).rowcount
                if changed:
                    kept.add(rollout_id)
            return kept

        return await self._run(work)

    async def finish(
        self, rollout_id: str, trajectory: bytes, *, reason: str = "", oldest_version: int | None = None
    ) -> bool:
        """Store what became of a rollout that this store runs, as frames: one for each of its segments.

        A `reason` makes it end as failed once acknowledged; `oldest_version` is the oldest policy version
        that sampled any of it.

        False when the rollout was cancelled meanwhile or its claim ran out: its trajectory is dropped.
        """

        def work(db: Database) -> bool:
            changed = db.execute(
                "UPDATE rollouts SET state = 'done', trajectory = ?, reason = ?, oldest_version = ?,"
                " finished = (SELECT coalesce(max(finished), 0) + 1 FROM rollouts)"
                " WHERE rollout_id = ? AND state = 'running' AND owner = ?",
                (trajectory, reason, oldest_version, rollout_id, self.owner),
            ).rowcount
            return changed == 1

        return await self._run(work)

    async def requeue(self, rollout_ids: Sequence[str]) -> None:
        """Put running rollouts back, when the service stops before they end."""
        await self._run(
            lambda db: db.executemany(
                "UPDATE rollouts SET state = 'queued', claims = claims - 1"
                " WHERE rollout_id = ? AND state = 'running' AND owner = ?",
                [(rollout_id, self.owner) for rollout_id in rollout_ids],
            )
        )

    async def lease(
        self,
        count: int,
        seconds: float,
        *,
        min_version: int = -1,
        limit_bytes: int = 1 << 30,
        now: float | None = None,
    ) -> list[bytes]:
        """The frames of up to `count` rollouts, in the order in which they finished, leased for
        `seconds`.

        Leases that ran out are handed out again. At least one rollout, and no more than `limit_bytes` beyond
        it. What an older policy sampled than `min_version`, or than the rollout itself asks for, is
        cancelled instead: nothing stale is handed out.
        """
        now = time.time() if now is None else now
        ready = "(state = 'done' OR (state = 'leased' AND lease_until < ?))"

        def work(db: Database) -> list[bytes]:
            db.execute(
                "UPDATE rollouts SET state = 'cancelled', trajectory = NULL,"
                " reason = 'stale: sampled by policy version ' || oldest_version"
                f" WHERE {ready} AND (oldest_version < ? OR oldest_version < min_version)",
                (now, min_version),
            )
            rows = db.execute(
                f"SELECT ordinal, length(trajectory) FROM rollouts WHERE {ready}"
                f" ORDER BY finished LIMIT ?{db.for_update}",
                (now, count),
            ).fetchall()
            taken: list[int] = []
            size = 0
            for ordinal, length in rows:
                size += length
                if taken and size > limit_bytes:
                    break
                taken.append(ordinal)
            db.executemany(
                "UPDATE rollouts SET state = 'leased', lease_until = ? WHERE ordinal = ?",
                [(now + seconds, ordinal) for ordinal in taken],
            )
            one = "SELECT trajectory FROM rollouts WHERE ordinal = ?"
            return [bytes(db.execute(one, (ordinal,)).fetchone()[0]) for ordinal in taken]

        return await self._run(work)

    async def ack(self, rollout_ids: Sequence[str]) -> int:
        """End leased rollouts (as delivered, or as failed where there is a reason) and drop their bytes.

        An acknowledgement that arrives after its lease ran out still counts: the learner has the frame.
        Returns how many ended now; a repeated acknowledgement ends none.
        """
        return await self._run(
            lambda db: db.executemany(
                "UPDATE rollouts SET state = CASE reason WHEN '' THEN 'delivered' ELSE 'failed' END,"
                " trajectory = NULL WHERE rollout_id = ? AND state IN ('leased', 'done')",
                [(rollout_id,) for rollout_id in rollout_ids],
            )
        )

    async def cancel(self, group_ids: Sequence[str], reason: str) -> list[str]:
        """Cancel what has not ended in these groups; returns the ids, so that running episodes can be
        stopped.
        """

        def work(db: Database) -> list[str]:
            cancelled = []
            for group_id in group_ids:
                cancelled += db.execute(
                    "UPDATE rollouts SET state = 'cancelled', reason = ?, trajectory = NULL"
                    f" WHERE group_id = ? AND state IN {_PENDING} RETURNING rollout_id",
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

    async def rows(self, group_id: str | None = None) -> list[dict[str, Any]]:
        """Every rollout (of a group) without its trajectory, in the order in which they were queued."""
        columns = (
            "rollout_id", "group_id", "task", "seed", "temperature", "min_version", "state", "reason",
            "claims", "oldest_version",
        )  # fmt: skip
        where, values = ("", ()) if group_id is None else (" WHERE group_id = ?", (group_id,))
        query = f"SELECT {', '.join(columns)} FROM rollouts{where} ORDER BY ordinal"
        return [
            dict(zip(columns, row, strict=True))
            for row in await self._run(lambda db: db.execute(query, values).fetchall())
        ]
