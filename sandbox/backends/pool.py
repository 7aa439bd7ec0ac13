"""Sandboxes that are started before they are needed, for the tasks that come next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from sandbox.backends.base import Backend, Sandbox, SandboxError
from sandbox.errors import InputError
from sandbox.task import Task

_PROBE_SECONDS = 5.0


class WarmPool:
    """A backend that keeps up to `size` sandboxes of another one ready. `async with` closes what is left.

    A sandbox is probed before it is handed out: one that died while it waited is replaced by a fresh one, so
    that an episode never begins in it.
    """

    def __init__(self, backend: Backend, size: int) -> None:
        self.name = backend.name
        self.size = size
        self._backend = backend
        self._warm: list[tuple[Path, asyncio.Task[Sandbox]]] = []

    def check(self) -> None:
        """See Backend."""
        self._backend.check()

    def limits(self) -> str:
        """See Backend."""
        return self._backend.limits()

    async def __aenter__(self) -> WarmPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        warm, self._warm = self._warm, []
        await asyncio.gather(*(_discard(making) for _, making in warm))

    async def expect(self, tasks: Sequence[Task]) -> None:
        """Have a sandbox of each of the first `size` tasks ready or on its way; others are closed."""
        wanted = [task.path for task in tasks[: self.size]]
        for entry in list(self._warm):
            if entry[0] in wanted:
                wanted.remove(entry[0])
            else:
                self._warm.remove(entry)
                await _discard(entry[1])
        for task in tasks[: self.size]:
            if task.path in wanted:
                wanted.remove(task.path)
                self._warm.append((task.path, asyncio.create_task(self._backend.create(task))))

    async def create(self, task: Task) -> Sandbox:
        """See Backend."""
        for entry in self._warm:
            if entry[0] == task.path:
                self._warm.remove(entry)
                sandbox = await _alive(entry[1])
                if sandbox is not None:
                    return sandbox
                break
        return await self._backend.create(task)


async def _alive(making: asyncio.Task[Sandbox]) -> Sandbox | None:
    """The sandbox, if it was made and its shell answers."""
    try:
        sandbox = await making
    except (SandboxError, InputError):
        return None  # the caller makes one anew, and learns why that fails
    except asyncio.CancelledError:
        await asyncio.shield(_discard(making))
        raise
    try:
        result = await sandbox.terminal(":", _PROBE_SECONDS)
        if (result.status, result.exit_code) == ("ok", 0):
            return sandbox
    except SandboxError:
        pass
    except asyncio.CancelledError:
        await asyncio.shield(sandbox.close())
        raise
    await sandbox.close()
    return None


async def _discard(making: asyncio.Task[Sandbox]) -> None:
    making.cancel()
    with contextlib.suppress(SandboxError, InputError, asyncio.CancelledError):
        await (await making).close()
