"""Writing large folders block by block: resumable, verified, whole or absent.

All work is a list of blocks: some bytes, and a place in a file. What is written is recorded in a journal with
its checksum; a run that is killed goes on behind the journal, and reads everything back before it is done.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sandbox.errors import InputError
from t1_jax.checkpoint.shards import read_bytes
from t1_jax.observability.progress import progress

Sums = dict[tuple[str, int, int], int]  # checksums of blocks, by their keys
Result = TypeVar("Result")

_WORKERS = 3  # blocks in flight: one reads while one is summed and one is written


@dataclass(frozen=True, kw_only=True)
class Block:
    """`nbytes` bytes at byte `at` of the file `path` (relative), which `read` makes."""

    path: str
    at: int
    nbytes: int
    read: Callable[[], np.ndarray]

    @property
    def key(self) -> tuple[str, int, int]:
        """What the journal calls it."""
        return self.path, self.at, self.nbytes


@contextmanager
def unfinished(folder: Path, origin: Any) -> Iterator[Path]:
    """A folder to fill that becomes `folder` when the block ends, in one rename.

    Beside it lies the journal. What an earlier run for the same `origin` (JSON: what is copied, and how)
    left is gone on with; what it left of another origin is deleted.

    Raises InputError when another process is at it.
    """
    partial = folder.parent / f".{folder.name}.partial"
    partial.mkdir(parents=True, exist_ok=True)
    with open(partial / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{folder}: another process is writing it, expected to be the only one"
            ) from None
        begun = partial / "origin.json"
        told = json.dumps(origin, sort_keys=True)
        if not begun.is_file() or begun.read_text() != told:
            for left in partial.iterdir():
                if left.name != "lock":
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
            begun.write_text(told)
        out = partial / "out"
        out.mkdir(exist_ok=True)
        yield out
        out.rename(folder)
        shutil.rmtree(partial)


def journal_of(out: Path) -> Path:
    """The journal of a folder that `unfinished` gave."""
    return out.parent / "journal"


def remaining_bytes(folder: Path, blocks: Sequence[Block]) -> int:
    """How many bytes of the blocks an earlier run for `folder` has not written."""
    done = _read_journal(folder.parent / f".{folder.name}.partial" / "journal")
    return sum(block.nbytes for block in blocks if block.key not in done)


def write_blocks(out: Path, blocks: Sequence[Block]) -> None:
    """Write what the journal does not list yet, then read everything back and compare checksums.

    Raises InputError when the disk is full or, twice, gives back something else than was written.
    """
    done = _read_journal(journal_of(out))
    total = sum(block.nbytes for block in blocks)
    todo = [block for block in blocks if block.key not in done]
    with progress("convert", total, "bytes") as bar:
        bar.advance(total - sum(block.nbytes for block in todo))
        done |= _write(out, todo, bar.advance)
    bad = _different(out, blocks, done)
    if bad:  # a page that an earlier run had not on disk when the machine went down
        done |= _write(out, bad, lambda count: None)
        bad = _different(out, bad, done)
    if bad:
        raise InputError(f"cannot write {out / bad[0].path}: byte {bad[0].at} on reads back differently")


def _write(out: Path, blocks: Sequence[Block], advance: Callable[[int], None]) -> Sums:
    sums: Sums = {}
    for folder in {(out / block.path).parent for block in blocks}:
        folder.mkdir(parents=True, exist_ok=True)

    def copy(block: Block) -> tuple[Block, int]:
        data = block.read()
        assert data.nbytes == block.nbytes, block.key
        view = data.view(np.uint8).data
        descriptor = os.open(out / block.path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            written = 0
            while written < len(view):
                written += os.pwrite(descriptor, view[written:], block.at + written)
        except OSError as error:
            raise InputError(f"cannot write {out / block.path}: {error.strerror}") from None
        finally:
            os.close(descriptor)
        return block, zlib.crc32(view)

    with open(journal_of(out), "a") as journal:
        for block, checksum in _parallel(copy, blocks):
            journal.write(json.dumps([*block.key, checksum]) + "\n")
            journal.flush()
            sums[block.key] = checksum
            advance(block.nbytes)
    return sums


def _different(out: Path, blocks: Sequence[Block], sums: Sums) -> list[Block]:
    def check(block: Block) -> tuple[Block, bool]:
        data = np.empty(block.nbytes, np.uint8)
        try:
            read_bytes(out / block.path, block.at, data)
        except (OSError, InputError):
            return block, False
        return block, zlib.crc32(data.data) == sums[block.key]

    bad = []
    with progress("verify", sum(block.nbytes for block in blocks), "bytes") as bar:
        for block, same in _parallel(check, blocks):
            if not same:
                bad.append(block)
            bar.advance(block.nbytes)
    return bad


def _parallel(work: Callable[[Block], Result], blocks: Sequence[Block]) -> Iterator[Result]:
    """Results in order; an error, or an interrupt, drops what has not begun."""
    pool = ThreadPoolExecutor(_WORKERS)
    try:
        yield from pool.map(work, blocks)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _read_journal(path: Path) -> Sums:
    done: Sums = {}
    if path.is_file():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # a line that was cut was not finished
                name, at, nbytes, checksum = json.loads(line)
                done[name, at, nbytes] = checksum
    return done
