"""The thread that owns the device. Everything that touches JAX state runs there, so that the HTTP loop never
waits for it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from t1_jax.engine.request import GenerateRequest, GenerateResult, RequestError
from t1_jax.engine.scheduler import Outcome, Scheduler

logger = logging.getLogger(__name__)
T = TypeVar("T")


class EngineThread:
    """Runs a scheduler. All methods may be called from any thread; the futures resolve in the engine's
    thread.
    """

    def __init__(self, build: Callable[[], Scheduler]) -> None:
        """`build` makes the scheduler inside the thread, so that start-up doesn't block the caller either."""
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._build = build
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.ready: Future[Scheduler] = Future()

    def start(self) -> None:
        """Start the thread; `ready` resolves with the scheduler, or with the exception that building it
        raised.
        """
        self._thread.start()

    def stop(self) -> None:
        """Abort what is in flight after the current step and end the thread."""
        self._inbox.put(None)
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def generate(self, request: GenerateRequest) -> Future[GenerateResult]:
        """Queue a request. The future raises RequestError when it is refused."""
        future: Future[GenerateResult] = Future()

        def finish(outcome: Outcome) -> None:
            # The client may have gone, and its future with it.
            if future.set_running_or_notify_cancel():
                if isinstance(outcome, RequestError):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

        self._inbox.put(lambda: self._scheduler.submit(request, finish))
        return future

    def call(self, function: Callable[[Scheduler], T]) -> Future[T]:
        """Run `function` between two steps."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function(self._scheduler))
            except Exception as error:
                future.set_exception(error)

        self._inbox.put(run)
        return future

    def _run(self) -> None:
        try:
            self._scheduler = self._build()
        except Exception as error:
            self.ready.set_exception(error)
            return
        self.ready.set_result(self._scheduler)
        while self._drain():
            if self._scheduler.has_work:
                self._step()

    def _drain(self) -> bool:
        """Carry out what was asked for, waiting when there is nothing else to do. False when told to stop."""
        while True:
            try:
                command = self._inbox.get(block=not self._scheduler.has_work)
            except queue.Empty:
                return True
            if command is None:
                self._scheduler.abort(None, "the engine is shutting down")
                return False
            command()

    def _step(self) -> None:
        try:
            self._scheduler.step()
        except Exception as error:
            # A failed device call (out of memory, say) fails the requests in flight, not the server.
            logger.exception("engine step failed")
            self._scheduler.fail_all(
                RequestError(f"engine step failed: {type(error).__name__}", kind="internal_error", status=500)
            )


def counters_text(scheduler: Scheduler) -> str:
    """The scheduler's state as Prometheus text."""
    counters = scheduler.counters
    rows: list[tuple[str, str, Any]] = [
        *((f"{name}_total", "counter", value) for name, value in vars(counters).items()),
        ("running_requests", "gauge", len(scheduler.running)),
        ("waiting_requests", "gauge", len(scheduler.waiting)),
        ("compiled_shapes", "gauge", len(scheduler.runner.compiled)),
        ("resident_sequences", "gauge", sum(row.length > 0 for row in scheduler.table.slots)),
        ("paused", "gauge", int(scheduler.paused)),
    ]
    return "".join(
        f"# TYPE t1_engine_{name} {kind}\nt1_engine_{name} {value}\n" for name, kind, value in rows
    )
