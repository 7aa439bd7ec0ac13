"""What an evaluation has done so far, on disk: the same command goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.attempt import Attempt
from sandbox.errors import InputError
from sandbox.files import write_whole
from sandbox.trajectory import Trajectory, read_frames, write_frames


class Journal:
    """Attempts as lines of JSON behind a line of settings; trajectories as frames in a file beside it.

    `done` holds the graded attempts found, by (task, attempt): what the infrastructure failed is played
    again. A process that is killed while it writes leaves at most one cut record, which is dropped.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], frames: Path | None = None) -> None:
        """Raises InputError when the journal at `path` is of an evaluation with other settings."""
        self._path, self._frames = path, frames
        head = json.dumps({"settings": dict(settings)})
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        records = [record for line in lines if (record := _parse(line)) is not None]
        if records:
            _require_same(path, records[0].get("settings", {}), json.loads(head)["settings"])
        kept = self._trajectories()
        self.done: dict[tuple[str, int], Attempt] = {}
        for record in records[1:]:
            key = (record["task"], record["attempt"])
            if record["reward"] is not None and (frames is None or key in kept):
                self.done[key] = Attempt.from_record(record, kept.get(key))
        # Written anew, so that what follows stands behind whole records only.
        found = [json.dumps(attempt.record()) for attempt in self.done.values()]
        write_whole(path, "\n".join([head, *found]) + "\n")
        if frames is not None:
            write_whole(frames, write_frames([a.trajectory for a in self.done.values() if a.trajectory]))

    def add(self, attempt: Attempt) -> None:
        """Append an attempt: its trajectory first, so that every line has one."""
        if self._frames is not None and attempt.trajectory is not None:
            with self._frames.open("ab") as file:
                file.write(write_frames([attempt.trajectory]))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(attempt.record()) + "\n")

    def _trajectories(self) -> dict[tuple[str, int], Trajectory]:
        found: dict[tuple[str, int], Trajectory] = {}
        if self._frames is None or not self._frames.is_file():
            return found
        try:
            for trajectory in read_frames(self._frames.read_bytes()):
                found[trajectory.task, int(trajectory.rollout_id.rpartition("/")[2])] = trajectory
        except InputError:
            pass  # the last frame is cut: its attempt is played again
        return found


def _parse(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _require_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise InputError(
                f"eval: {path} holds attempts of an evaluation with another {key}, expected the same "
                "settings, another --out, or that file removed"
            )
