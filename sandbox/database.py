"""The two databases that a store may lie in, behind one small interface: SQLite and PostgreSQL.

Statements are written once, with `?` for values; what the two call differently is an attribute.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sandbox.errors import InputError

_T = TypeVar("_T")
_SCHEMES = ("postgresql://", "postgres://")
_SCHEMA_LOCK = 0x7431_6A61  # of PostgreSQL's advisory locks: two services may create the tables at once


class Database(Protocol):
    """One connection, used by one thread."""

    shared: bool  # other processes may work on the same rows
    for_update: str  # what makes a SELECT take its rows, leaving out those that another has taken

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """A cursor."""
        ...

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """How many rows were changed in sum."""
        ...

    def transaction(self, work: Callable[[Database], _T]) -> _T:
        """Run `work`; all that it changes is durable on return, and undone when it raises."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


def open_database(where: str | Path, schema: str) -> Database:
    """Open a file, or a postgresql:// URL, and create what `schema` names. Raises InputError.

    In `schema` {ordinal} is the type of a key that counts up by itself, {bytes} that of binary data.
    """
    if str(where).startswith(_SCHEMES):
        return Postgres(str(where), schema)
    return Sqlite(Path(where), schema)


class Sqlite:
    """A file that this process alone may use: its lock ends with the process, however that ends."""

    shared = False
    for_update = ""

    def __init__(self, path: Path, schema: str) -> None:
        schema = schema.format(ordinal="INTEGER PRIMARY KEY AUTOINCREMENT", bytes="BLOB")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(f"store {path}: {error.strerror}, expected a writable SQLite file") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._db = sqlite3.connect(path, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            # FULL: an acknowledged rollout stays so through a power cut, not only a killed process.
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(schema)
        except BlockingIOError as error:
            os.close(self._lock)
            raise InputError(
                f"store {path}: another rollout service uses it, expected one of its own"
            ) from error
        except sqlite3.Error as error:
            os.close(self._lock)
            raise InputError(
                f"store {path}: {error}, expected a writable SQLite file of this version"
            ) from error

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """See Database."""
        return self._db.execute(statement, values)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """See Database."""
        return max(self._db.executemany(statement, rows).rowcount, 0)

    def transaction(self, work: Callable[[Database], _T]) -> _T:
        """See Database."""
        with self._db:
            return work(self)

    def close(self) -> None:
        """See Database."""
        self._db.close()
        os.close(self._lock)


class Postgres:
    """A PostgreSQL server, which many services may share. Needs psycopg (the extra `postgres`).

    A lost connection is made again for up to `patience` seconds, and the transaction run once more. It may
    then have happened twice, so every transaction of the store is written to bear that.
    """

    shared = True
    for_update = " FOR UPDATE SKIP LOCKED"

    def __init__(self, url: str, schema: str, patience: float = 300.0) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise InputError(
                f"store {_shown(url)}: psycopg is not installed, expected pip install 't1-jax[postgres]'"
            ) from error
        self._psycopg = psycopg
        self._url = url
        self._patience = patience
        schema = schema.format(ordinal="BIGSERIAL PRIMARY KEY", bytes="BYTEA")
        try:
            self._db = self._connect()
            with self._db.transaction():
                self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
                self._db.execute(schema)
        except psycopg.Error as error:
            raise InputError(
                f"store {_shown(url)}: {' '.join(str(error).split())}, expected a PostgreSQL database where "
                "tables can be made"
            ) from error

    def _connect(self) -> Any:
        # Keepalives: rows that a vanished host holds locked are free again after about a minute.
        return self._psycopg.connect(
            self._url, autocommit=True, connect_timeout=10, application_name="t1-jax rollout service",
            keepalives_idle=30, keepalives_interval=10, keepalives_count=3,
        )  # fmt: skip

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """See Database."""
        return self._db.execute(statement.replace("?", "%s"), values)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """See Database."""
        if not rows:
            return 0
        with self._db.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), rows)
            return int(cursor.rowcount)

    def transaction(self, work: Callable[[Database], _T]) -> _T:
        """See Database."""
        end, pause = time.monotonic() + self._patience, 0.1
        while True:
            try:
                if self._db.closed:
                    self._db = self._connect()
                with self._db.transaction():
                    return work(self)
            except self._psycopg.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, 5.0)

    def close(self) -> None:
        """See Database."""
        self._db.close()


def _shown(url: str) -> str:
    """The URL without a password."""
    scheme, _, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{place}"
