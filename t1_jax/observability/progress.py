"""Progress of a long stage: a live bar on a terminal, one line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

QUIET_SECONDS = 10.0  # between lines when the output is not a terminal


def duration(seconds: float) -> str:
    """A duration for people: "0.42 s", "38 s", "12 min 05 s", "3 h 20 min"."""
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: float) -> str:
    """A number of bytes for people: "512 B", "1.50 MB", "12.0 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.4g} TB"


class Progress:
    """Counts work done; made by `progress`.

    The rate is taken from the first `advance` on: neither start-up nor work that an earlier, resumed run had
    done counts as speed.
    """

    def __init__(self, name: str, total: int, unit: str, stream: TextIO, clock: Callable[[], float]):
        self.name, self.total, self.unit = name, total, unit
        self.done = 0
        self._notes: dict[str, float | int | str] = {}
        self._stream, self._clock = stream, clock
        self._start = self._last_line = clock()
        self._first: tuple[float, int] | None = None  # time and count of the first advance
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def advance(self, count: int = 1, **notes: float | int | str) -> None:
        """Add `count` units of work; notes (reward=0.4) are shown beside it until replaced."""
        self.done += count
        if self._first is None:
            self._first = self._clock(), self.done
        self._notes.update(notes)
        if self._bar is not None and self._task is not None:
            told = f"{self._speed()}  {self._note_text()}"
            self._bar.update(self._task, completed=self.done, count=self._count(), notes=told)
        elif self._clock() - self._last_line >= QUIET_SECONDS:
            self._last_line = self._clock()
            print(self.line(), file=self._stream, flush=True)

    def line(self) -> str:
        """The state as one line: count, rate, time left (or taken, at the end) and notes."""
        rate = self._rate()
        if self.done >= self.total:
            left = f"{duration(self._clock() - self._start)} in all"
        else:
            left = f"{duration((self.total - self.done) / rate)} left" if rate else ""
        parts = [f"{self.name}: {self._count()}", self._speed(), left, self._note_text()]
        return ", ".join(part for part in parts if part)

    def _count(self) -> str:
        if self.unit == "bytes":
            return f"{size(self.done)} of {size(self.total)}"
        return f"{self.done}/{self.total} {self.unit}"

    def _rate(self) -> float:
        """Units a second since the first advance; 0 while unknown."""
        if self._first is None:
            return 0.0
        start, before = self._first
        elapsed = self._clock() - start
        return (self.done - before) / elapsed if elapsed > 0 else 0.0

    def _speed(self) -> str:
        rate = self._rate()
        if not rate:
            return ""
        if self.unit == "bytes":
            return f"{size(rate)}/s"
        return f"{rate:.3g} {self.unit}/s" if rate >= 1 else f"{duration(1 / rate)} each"

    def _note_text(self) -> str:
        return ", ".join(
            f"{name.replace('_', ' ')} {value:.3g}"
            if isinstance(value, float)
            else f"{name.replace('_', ' ')} {value}"
            for name, value in self._notes.items()
        )


@contextmanager
def progress(
    name: str,
    total: int,
    unit: str = "steps",
    *,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Progress]:
    """Show the progress of a stage while the block runs.

    Args:
      name: what is being done, in a word or two.
      total: units of work in all.
      unit: the unit's name, plural; "bytes" are shown as kB, MB, GB.
      stream: where to write; standard error by default. A terminal gets a live bar with rate and time left,
        anything else a line every ten seconds and one at the end.
      clock: monotonic seconds.
    """
    target = stream or sys.stderr
    state = Progress(name, total, unit, target, clock)
    if not target.isatty():
        try:
            yield state
        finally:
            print(state.line(), file=target, flush=True)
        return
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TextColumn("{task.fields[notes]}"),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(file=target)) as bar:
        state._bar, state._task = bar, bar.add_task(name, total=total, count="", notes="")
        yield state
