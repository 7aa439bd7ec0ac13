"""The rollout service: plays episodes against an engine, many at a time, and hands trajectories out over
HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from aiohttp import web

from sandbox.agent import SYSTEM_PROMPT, EpisodeLimits, run_episode
from sandbox.api import Api, rollout_seed
from sandbox.backends import BACKENDS
from sandbox.backends.pool import WarmPool
from sandbox.engine_client import EnginePolicy, RouteShape
from sandbox.errors import InputError
from sandbox.store import Rollout, Store
from sandbox.task import Task
from sandbox.trajectory import Trajectory, write_frames
from sandbox.transcript import ChatFormat

if TYPE_CHECKING:
    from sandbox.backends import Backend

__all__ = ["RolloutConfig", "RolloutService", "rollout_seed", "serve"]

logger = logging.getLogger(__name__)
# A rollout whose service was killed so often is likely what kills it: it is given up, not taken again.
MAX_CLAIMS = 5


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """The `rollout` command. `checkpoint` gives the chat format (and the width of routes); times are in
    seconds.

    store: a path (SQLite), or the postgresql:// URL of a database that many services may share. max_pending:
    rollouts that may be queued and not have ended; a learner that submits more is told to wait. max_ready:
    ended rollouts that may wait for the learner; as long as there are so many, none starts. claim_seconds:
    after such a time without a sign of life a service's rollouts are played by another. warm: sandboxes that
    are started before they are needed.
    """

    checkpoint: str
    engine_url: str = "http://127.0.0.1:30000"
    store: str = "runs/rollout/store.sqlite"
    host: str = "127.0.0.1"
    port: int = 30100
    concurrency: int = 16
    backend: str = "bubblewrap"
    warm: int = 0
    system_prompt: str = SYSTEM_PROMPT
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    record_routes: bool = True
    lease_seconds: float = 600.0
    claim_seconds: float = 60.0
    max_pending: int = 100_000
    max_ready: int = 4096
    engine_patience: float = 300.0

    def __post_init__(self) -> None:
        for name in ("concurrency", "lease_seconds", "claim_seconds", "max_pending", "max_ready"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name}: {getattr(self, name)}, expected a number above 0")
        if self.warm < 0:
            raise InputError(f"warm: {self.warm}, expected 0 or more")


class RolloutService:
    """Dispatches queued rollouts to at most `config.concurrency` concurrent episodes, and answers the
    learner.

    `run` serves until `stop` is called. Episodes share one engine client; the store is written once when an
    episode starts and once when it ends, never per turn.
    """

    def __init__(
        self, config: RolloutConfig, store: Store, chat: ChatFormat, policy: EnginePolicy, backend: Backend
    ) -> None:
        self.config = config
        self.store = store
        self._chat = chat
        self._policy = policy
        self._backend: Backend = backend
        self._tasks: dict[str, Task] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._work = asyncio.Event()  # there may be something to start
        self._ended = asyncio.Condition()  # something may be leased
        self._stopping = asyncio.Event()
        self._started = time.monotonic()
        # (end, turns, sampled tokens) of the episodes that the status' rates are taken over
        self._recent: deque[tuple[float, int, int]] = deque(maxlen=4096)
        self._endings: Counter[str] = Counter()
        self.episodes = 0  # that have ended here
        # How often the store is looked at for what happened elsewhere: claims that ran out, other services.
        self.poll_seconds = min(1.0, config.claim_seconds / 3)
        self.app = Api(self).app

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask `run` to end: running episodes are stopped and queued again."""
        self._stopping.set()
        self._work.set()

    def wake(self) -> None:
        """Say that there may be something to start."""
        self._work.set()

    async def run(self) -> None:
        """Dispatch until stopped."""
        renewing = asyncio.create_task(self._renew())
        pool = WarmPool(self._backend, self.config.warm)
        try:
            async with pool:
                if self.config.warm:
                    self._backend = pool
                while not self._stopping.is_set():
                    await self._dispatch()
                    if self.config.warm:
                        await self._warm(pool)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._work.wait(), self.poll_seconds)
                    self._work.clear()
        finally:
            renewing.cancel()
            await self._announce()  # waiting learners get their empty answer before the server closes
            running = dict(self._running)
            for task in running.values():
                task.cancel()
            await asyncio.gather(renewing, *running.values(), return_exceptions=True)
            await self.store.requeue(list(running))

    async def _dispatch(self) -> None:
        free = self.config.concurrency - len(self._running)
        if free <= 0:
            return
        version = await self._policy_version() if await self.store.wanted_version() >= 0 else None
        claimed = await self.store.claim(
            free, self.config.claim_seconds, version=version, max_ready=self.config.max_ready
        )
        for rollout in claimed:
            task = asyncio.create_task(self._episode(rollout), name=rollout.rollout_id)
            self._running[rollout.rollout_id] = task
            task.add_done_callback(self._left)

    async def _policy_version(self) -> int:
        """What the engine serves; -1 when it does not say. It may have come back with older weights, so it
        is asked each time."""
        try:
            version = str((await self._policy.model_info()).get("weight_version"))
        except InputError:
            return -1
        return int(version) if version.isdigit() else -1

    async def _warm(self, pool: WarmPool) -> None:
        upcoming = []
        for path in await self.store.upcoming(self.config.warm):
            with contextlib.suppress(InputError):  # its episode will say so
                upcoming.append(self.task(path))
        await pool.expect(upcoming)

    async def _renew(self) -> None:
        """Keep the running rollouts' claims; stop those that are no longer ours."""
        while True:
            await asyncio.sleep(self.config.claim_seconds / 3)
            running = list(self._running)
            kept = await self.store.renew(running, self.config.claim_seconds)
            self.abandon([rollout_id for rollout_id in running if rollout_id not in kept])

    def abandon(self, rollout_ids: Sequence[str]) -> None:
        """Stop the episodes of these rollouts, where they run here."""
        for rollout_id in rollout_ids:
            if rollout_id in self._running:
                self._running[rollout_id].cancel()

    def rates(self) -> dict[str, Any]:
        """What the status says beside the store's counts."""
        now, window = time.monotonic(), 60.0
        recent = [entry for entry in self._recent if now - entry[0] < window]
        seconds = min(window, max(now - self._started, 1e-9))
        return {
            "in_flight": len(self._running),
            "concurrency": self.config.concurrency,
            "max_pending": self.config.max_pending,
            "max_ready": self.config.max_ready,
            "endings": dict(self._endings),
            "episodes_per_second": len(recent) / seconds,
            "turns_per_second": sum(turns for _, turns, _ in recent) / seconds,
            "sampled_tokens_per_second": sum(tokens for _, _, tokens in recent) / seconds,
            "mean_turns": sum(turns for _, turns, _ in recent) / max(len(recent), 1),
            "uptime_seconds": now - self._started,
        }

    def _left(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task.get_name(), None)
        self._work.set()

    async def _episode(self, rollout: Rollout) -> None:
        reason = ""
        try:
            if rollout.claims > MAX_CLAIMS:
                raise InputError(f"its service died {rollout.claims - 1} times while it was played")
            segments = await run_episode(
                self.task(rollout.task),
                self._policy,
                self._chat,
                self._backend,
                self.config.limits,
                rollout_id=rollout.rollout_id,
                group_id=rollout.group_id,
                seed=rollout.seed,
                temperature=rollout.temperature,
                system_prompt=self.config.system_prompt,
            )
        except InputError as error:
            # The task cannot be played (its folder changed, its prompt is too long). The learner still gets a
            # frame.
            reason = str(error)
        except Exception as error:
            # One episode's unforeseen fault must not stop the others, nor come back with every restart.
            logger.exception("rollout %s failed", rollout.rollout_id)
            reason = f"internal error: {error!r}"
        if reason:
            segments = [_empty(rollout, reason)]
        data = await asyncio.to_thread(write_frames, segments)
        versions = np.concatenate([segment.versions for segment in segments])
        sampled = versions[versions >= 0]
        oldest = int(sampled.min()) if len(sampled) else None
        if await self.store.finish(rollout.rollout_id, data, reason=reason, oldest_version=oldest):
            self._endings[segments[-1].ending] += 1
            turns = sum(len(segment.turns) for segment in segments)
            tokens = sum(int(segment.loss_mask.sum()) for segment in segments)
            self._recent.append((time.monotonic(), turns, tokens))
            await self._announce()

    async def _announce(self) -> None:
        async with self._ended:
            self.episodes += 1
            self._ended.notify_all()

    async def change(self, seen: int) -> None:
        """Return once more episodes have ended than the `seen` ones."""
        async with self._ended:
            await self._ended.wait_for(lambda: self.episodes != seen)

    def task(self, path: str) -> Task:
        """The task in a folder. Raises InputError."""
        if path not in self._tasks:
            self._tasks[path] = Task.load(Path(path))
        return self._tasks[path]


def _empty(rollout: Rollout, reason: str) -> Trajectory:
    """The frame of a rollout that could not be played: no tokens, no reward."""
    return Trajectory(
        rollout_id=rollout.rollout_id,
        group_id=rollout.group_id,
        task=Path(rollout.task).name,
        ending="infra_error",
        tokens=np.zeros(0, np.int32),
        loss_mask=np.zeros(0, bool),
        rollout_logprobs=np.zeros(0, np.float32),
        versions=np.zeros(0, np.int32),
        metadata={"infra_errors": [reason]},
    )


async def _serve(config: RolloutConfig) -> None:
    if config.backend not in BACKENDS:
        raise InputError(f"backend: {config.backend!r}, expected one of {', '.join(BACKENDS)}")
    backend = BACKENDS[config.backend]
    backend.check()
    chat = ChatFormat.load(config.checkpoint)
    engine = EnginePolicy(
        config.engine_url,
        stop_ids=chat.stop_ids,
        shape=RouteShape.from_checkpoint(config.checkpoint),
        record_routes=config.record_routes,
        patience=config.engine_patience,
    )
    store = await Store.open(config.store)
    try:
        async with engine:
            service = RolloutService(config, store, chat, engine, backend)
            runner = web.AppRunner(service.app, access_log=None, shutdown_timeout=5)
            await runner.setup()
            try:
                port = await _listen(runner, config)
                print(f"rollout service listening on http://{config.host}:{port}", flush=True)
                print(f"backend {backend.name}, {backend.limits()}", flush=True)
                loop = asyncio.get_running_loop()
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, service.stop)
                await service.run()
            finally:
                await runner.cleanup()
    finally:
        await store.close()


async def _listen(runner: web.AppRunner, config: RolloutConfig) -> int:
    """Start listening; returns the port (another than asked for only where 0 was)."""
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port: {config.port} on {config.host} is in use, expected a free port"
            ) from error
        raise InputError(f"host {config.host}, port {config.port}: {error.strerror}") from error
    return runner.addresses[0][1]


def serve(config: RolloutConfig) -> None:
    """Run the rollout service until SIGTERM or SIGINT; prints one line once it listens.

    Running episodes are then stopped and queued again. Raises InputError when the checkpoint, the backend,
    the store or the port cannot be used.
    """
    asyncio.run(_serve(config))
