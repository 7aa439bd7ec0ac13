"""Control groups, version 1 or 2, where this process may make them: memory, processes and CPU time of a
sandbox.

Where it may not, a backend falls back to per-process limits; `available` says which it is.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import lru_cache
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_PERIOD = 100_000  # microseconds
_CONTROLLERS = ("memory", "pids", "cpu")


@lru_cache(maxsize=1)
def available() -> dict[str, Path]:
    """controller -> the folder under which groups can be made; empty where none can."""
    if (ROOT / "cgroup.controllers").is_file():
        return _unified()
    found = {}
    for name in _CONTROLLERS:
        folder = ROOT / name
        own = next(
            (
                row.split(":", 2)[2]
                for row in _lines("/proc/self/cgroup")
                if name in row.split(":")[1].split(",")
            ),
            "",
        )
        parent = folder / own.strip("/")
        if own and os.access(parent, os.W_OK) and _works(parent):
            found[name] = parent
    return found


def _unified() -> dict[str, Path]:
    """Version 2: groups go beside this process's own, for one that holds processes cannot hand out
    controllers."""
    own = next((row.split(":", 2)[2] for row in _lines("/proc/self/cgroup") if row.startswith("0::")), "/")
    for parent in ((ROOT / own.strip("/")).parent, ROOT):
        if not parent.is_relative_to(ROOT) or not os.access(parent, os.W_OK):
            continue
        with contextlib.suppress(OSError):
            (parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
        with contextlib.suppress(OSError):
            enabled = (parent / "cgroup.subtree_control").read_text().split()
            if _works(parent):
                return {name: parent for name in _CONTROLLERS if name in enabled}
    return {}


def _works(parent: Path) -> bool:
    probe = parent / f"t1-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(path).read_text().splitlines()
    return []


class Usage:
    """Reads from control groups (controller -> folder) which limits their processes ran into."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self._folders = folders
        self._v2 = (ROOT / "cgroup.controllers").is_file()
        self._seen = self._counts()

    @classmethod
    def of(cls, pid: int) -> Usage:
        """The groups that a process is in."""
        rows = [row.split(":", 2) for row in _lines(f"/proc/{pid}/cgroup")]
        if (ROOT / "cgroup.controllers").is_file():
            folders = {
                name: ROOT / row[2].strip("/") for row in rows if row[0] == "0" for name in _CONTROLLERS
            }
        else:
            named = [(name, row[2]) for row in rows for name in row[1].split(",") if name in _CONTROLLERS]
            folders = {name: ROOT / name / path.strip("/") for name, path in named}
        return cls(folders)

    def _counts(self) -> dict[str, int]:
        counts = {}
        for limit, controller, file, word in (
            (
                "memory limit reached",
                "memory",
                "memory.events" if self._v2 else "memory.oom_control",
                "oom_kill",
            ),
            ("process limit reached", "pids", "pids.events", "max"),
        ):
            if controller in self._folders:
                rows = (row.split() for row in _lines(str(self._folders[controller] / file)))
                counts[limit] = next((int(row[1]) for row in rows if row[0] == word), 0)
        return counts

    def hit(self) -> str:
        """The limits that were run into since the last call, in words; empty when none was."""
        now = self._counts()
        hits = [limit for limit, count in now.items() if count > self._seen.get(limit, 0)]
        self._seen = now
        return ", ".join(hits)


class Cgroup(Usage):
    """One sandbox's own groups. memory_mb, pids and cpus are its limits; None sets none."""

    def __init__(self, name: str, *, memory_mb: int | None, pids: int | None, cpus: float | None) -> None:
        wanted = {"memory": memory_mb, "pids": pids, "cpu": cpus}  # each costs a start some milliseconds
        folders = {kind: parent / name for kind, parent in available().items() if wanted[kind]}
        for folder in dict.fromkeys(folders.values()):
            folder.mkdir()
        super().__init__(folders)
        if memory_mb and "memory" in self._folders:
            size = str(memory_mb << 20)
            self._set("memory", "memory.max" if self._v2 else "memory.limit_in_bytes", size)
            # Swap would only delay the end; a host without swap has no such file.
            swap = ("memory.swap.max", "0") if self._v2 else ("memory.memsw.limit_in_bytes", size)
            with contextlib.suppress(OSError):
                self._set("memory", *swap)
        if pids and "pids" in self._folders:
            self._set("pids", "pids.max", str(pids))
        if cpus and "cpu" in self._folders:
            quota = str(max(1000, int(cpus * _PERIOD)))
            if self._v2:
                self._set("cpu", "cpu.max", f"{quota} {_PERIOD}")
            else:
                self._set("cpu", "cpu.cfs_quota_us", quota)

    def _set(self, controller: str, name: str, value: str) -> None:
        (self._folders[controller] / name).write_text(value)

    def add(self, pid: int) -> None:
        """Move a process, and with it all that it will start, into the groups."""
        for folder in dict.fromkeys(self._folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove the groups, whose processes have ended. The kernel may take a moment to notice their end."""
        for folder in dict.fromkeys(self._folders.values()):
            for _ in range(100):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)
