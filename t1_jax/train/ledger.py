"""The learner's durable copy of what it was given: one frames file a step."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import InputError
from sandbox.trajectory import Trajectory, read_frames, write_frames
from t1_jax.data.trajectories import read_trajectories


class Ledger:
    """Trajectories by step and rollout id, on disk before the rollout service is told that they arrived.

    A killed run finds here what it had received; what the service then delivers again is recognised by its
    rollout id and segment. Files are `step_XXXX.frames`, readable as any frames file.
    """

    def __init__(self, folder: Path, first_step: int = 0):
        """Read the files of `first_step` and later ones, cutting off a frame that a crash tore."""
        self.folder = folder
        self._steps: dict[int, dict[tuple[str, int], Trajectory]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("step_*.frames")):
            step = int(path.stem.removeprefix("step_"))
            if step >= first_step:
                self._steps[step] = {
                    (trajectory.rollout_id, trajectory.segment): trajectory
                    for trajectory in _read_whole_frames(path)
                }

    def add(self, step: int, trajectories: Iterable[Trajectory]) -> int:
        """Append those that are new; they are on disk on return. Returns how many were new."""
        known = self._steps.setdefault(step, {})
        fresh = {(t.rollout_id, t.segment): t for t in trajectories if (t.rollout_id, t.segment) not in known}
        if fresh:
            with (self.folder / f"step_{step:04d}.frames").open("ab") as file:
                file.write(write_frames(list(fresh.values())))
                file.flush()
                os.fsync(file.fileno())
            known.update(fresh)
        return len(fresh)

    def rollout_ids(self, step: int) -> set[str]:
        """Rollouts of a step that have arrived, with all their segments: a crash may have cut some off."""
        known = self._steps.get(step, {})
        return {
            rollout_id
            for (rollout_id, _), trajectory in known.items()
            if all((rollout_id, n) in known for n in range(trajectory.metadata.get("segments", 1)))
        }

    def trajectories(self, step: int) -> list[Trajectory]:
        """A step's trajectories by rollout id and segment: not in the order in which they arrived."""
        return [trajectory for _, trajectory in sorted(self._steps.get(step, {}).items())]

    def forget(self, step: int) -> None:
        """Release the memory of a step that was trained on; its file stays."""
        self._steps.pop(step, None)


class RecordedLedger:
    """The ledger of an earlier run, only read, a step at a time."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, step: int) -> Path:
        """The file of a step. Raises InputError when it is missing."""
        path = self.folder / f"step_{step:04d}.frames"
        if not path.is_file():
            raise InputError(
                f"recorded {self.folder}: {path.name} is missing, expected the rollouts of every step"
            )
        return path

    def trajectories(self, step: int) -> list[Trajectory]:
        """A step's trajectories by rollout id and segment, as the earlier run trained on them."""
        found = {(t.rollout_id, t.segment): t for t in read_trajectories(self.path(step))}
        return [trajectory for _, trajectory in sorted(found.items())]

    def forget(self, step: int) -> None:
        """Nothing is kept."""


def _read_whole_frames(path: Path) -> list[Trajectory]:
    data = path.read_bytes()
    end = 0
    while end + 8 <= len(data):
        size = int.from_bytes(data[end : end + 8], "little")
        if end + 8 + size > len(data):
            break
        end += 8 + size
    if end < len(data):
        os.truncate(path, end)
    return list(read_frames(data[:end]))
