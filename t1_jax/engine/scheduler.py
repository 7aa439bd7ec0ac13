"""Continuous batching: requests join and leave between blocks, an episode's state stays between its turns.

Synchronous and single-threaded; `engine.py` gives it a thread. One `step` admits what fits, prefills it, then
decodes one block over all running rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from t1_jax.engine.cache import Row, RowTable
from t1_jax.engine.request import GenerateRequest, GenerateResult, RequestError
from t1_jax.engine.runner import Params, Runner
from t1_jax.model.config import ModelConfig

Outcome = GenerateResult | RequestError


@dataclass(eq=False)
class Running:
    """A request from its arrival to its end."""

    request: GenerateRequest
    finish: Callable[[Outcome], None]
    arrived: float
    row: Row | None = None
    output_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    cached_tokens: int | None = None
    keep_snapshot: bool = False
    routes: np.ndarray | None = None  # rows recorded before a preemption

    @property
    def ids(self) -> np.ndarray:
        """Every token so far, int32 [prompt + sampled]."""
        return np.concatenate([self.request.input_ids, np.asarray(self.output_ids, np.int32)])

    @property
    def missing(self) -> int:
        """How many tokens its row has yet to forward before it can sample."""
        assert self.row is not None
        return len(self.request.input_ids) + len(self.output_ids) - self.row.length

    @property
    def budget(self) -> int:
        """How many tokens it may still sample."""
        return self.request.sampling.max_new_tokens - len(self.output_ids)


@dataclass
class Counters:
    """Totals since the start."""

    requests: int = 0
    prefilled_tokens: int = 0
    decoded_tokens: int = 0
    cached_tokens: int = 0
    copied_prompts: int = 0
    evictions: int = 0
    preemptions: int = 0
    weight_updates: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    decode_steps: int = 0


class Scheduler:
    """The engine without its thread. `submit`, then `step` until `has_work` is False."""

    def __init__(
        self,
        params: Params,
        config: ModelConfig,
        *,
        slots: int,
        snapshots: int,
        max_length: int,
        decode_block: int,
        max_waiting: int,
        version: str = "0",
    ) -> None:
        self.runner = Runner(
            params, config, rows=slots + snapshots, slots=slots, max_length=max_length, steps=decode_block
        )
        self.table = RowTable.create(config, slots, snapshots, max_length)
        self.waiting: deque[Running] = deque()
        self.running: list[Running] = []
        self.counters = Counters()
        self.version = version
        self.max_waiting = max_waiting
        self.paused = False

    # --- what clients ask -----------------------------------------------------------------------------------

    def submit(self, request: GenerateRequest, finish: Callable[[Outcome], None]) -> None:
        """Queue a request; `finish` is called once with its result or a RequestError. A request in flight
        under the same rid is aborted.
        """
        if len(self.waiting) >= self.max_waiting:
            finish(
                RequestError(f"{len(self.waiting)} requests are waiting", kind="overloaded_error", status=429)
            )
            return
        # A client that lost its connection asks again under the same rid; the older one has no reader any
        # more.
        self.abort(request.rid, "another request has the same rid")
        self.counters.requests += 1
        self.waiting.append(Running(request=request, finish=finish, arrived=time.monotonic()))

    def abort(self, rid: str | None, message: str = "aborted by request") -> int:
        """End one request, or all of them (None), with what they have so far. Returns how many there were."""
        hit = [one for one in (*self.running, *self.waiting) if rid is None or one.request.rid == rid]
        for one in hit:
            self._end(one, {"type": "abort", "message": message})
        return len(hit)

    def cancel(self, request: GenerateRequest) -> None:
        """End this very request, whose client has gone; another one under its rid goes on."""
        for one in (*self.running, *self.waiting):
            if one.request is request:
                self._end(one, {"type": "abort", "message": "the client closed the connection"})

    def pause(self, mode: str) -> None:
        """Stop stepping: "in_place" keeps all state, "retract" gives the slots back, "abort" ends what is in
        flight.
        """
        self.paused = True
        if mode == "abort":
            self.abort(None, "generation was paused")
        elif mode == "retract":
            self._preempt()

    def resume(self) -> None:
        """Step again after a pause."""
        self.paused = False

    def update_weights(self, params: Params, version: str) -> int:
        """Serve `params` from the next token on. Returns how many running requests go on under them.

        No state made by the old weights survives: idle slots and snapshots are dropped, and running requests
        are forwarded again. The experts that they recorded stay as they were: those rows tell what sampled
        their tokens.
        """
        count = len(self.running)
        self._preempt()
        self.table.flush()
        self.runner.set_params(params)
        self.version = version
        self.counters.weight_updates += 1
        return count

    def fail_all(self, error: RequestError) -> None:
        """After a failed device call: answer everyone in flight and start over with an empty cache."""
        for one in (*self.running, *self.waiting):
            if one.row is not None:
                one.row.owner = None
            one.finish(error)
        self.running.clear()
        self.waiting.clear()
        self.table.flush()
        self.runner.reset()

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return not self.paused and bool(self.waiting or self.running)

    # --- one step -------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Admit and prefill until every running request can sample, then decode one block."""
        self._admit()
        while behind := [one for one in self.running if one.missing]:
            self._prefill(behind)
            self._admit()
        if self.running:
            self._decode()

    def _admit(self) -> None:
        copies: list[tuple[int, int]] = []
        held: list[Running] = []
        # Members of a group arrive together: one prefills the prompt, the others wait for its snapshot.
        coming = {
            one.request.input_ids.tobytes() for one in self.running if one.keep_snapshot and one.missing
        }
        # Turns of resident episodes first: a new prompt must not evict the state that the next one in the
        # queue needs.
        queue = deque(sorted(self.waiting, key=lambda one: self.table.slot_match(one.ids) is None))
        self.waiting.clear()
        while queue:
            one = queue.popleft()
            ids = one.ids
            match = self.table.match(ids)
            if ids.tobytes() in coming and (match is None or match.length < len(ids)):
                held.append(one)
                continue
            resumes = match is not None and not self.table.is_snapshot(match)
            slot = match if resumes else self.table.free_slot()
            if slot is None:
                held.append(one)
                break
            if not resumes:
                self.counters.evictions += slot.length > 0
                slot.clear()
                if match is not None:
                    slot.copy_from(match)
                    copies.append((match.index, slot.index))
                    self.table.touch(match)
                    self.counters.copied_prompts += 1
            slot.owner = one
            one.row = slot
            if one.routes is not None:
                slot.routes[: len(one.routes)] = one.routes
                slot.recorded = max(slot.length, len(one.routes))
                one.routes = None
            if one.cached_tokens is None:
                one.cached_tokens = slot.length
                self.counters.cached_tokens += slot.length
            # An episode's later turns are its own; only a fresh prompt is worth keeping for others.
            one.keep_snapshot = (
                not resumes and slot.length < len(ids) and not one.output_ids and bool(self.table.snapshots)
            )
            if one.keep_snapshot:
                coming.add(ids.tobytes())
            self.running.append(one)
        # those that found no slot keep their place by arrival
        self.waiting.extend(sorted((*held, *queue), key=lambda one: one.arrived))
        if copies:
            self.runner.copy(copies)

    def _prefill(self, behind: list[Running]) -> None:
        """One call over rows of about one length: the shape that suits the oldest one."""
        started = time.monotonic()
        shape, batch = self._pick(behind)
        chunks = [one.ids[one.row.length :][: shape[1]] for one in batch]  # type: ignore[union-attr]
        rows: list[Row] = [one.row for one in batch]  # type: ignore[misc]
        lengths = [row.length for row in rows]
        experts = self.runner.prefill(
            [row.index for row in rows], chunks, [length == 0 for length in lengths], lengths, shape
        )
        for row, chunk, routes in zip(rows, chunks, experts, strict=True):
            row.append(chunk, routes[: len(chunk)])
            self.table.touch(row)
            self.counters.prefilled_tokens += len(chunk)
        self._snapshot([one for one in batch if one.keep_snapshot and not one.missing])
        self.counters.prefill_seconds += time.monotonic() - started

    def _pick(self, behind: list[Running]) -> tuple[tuple[int, int], list[Running]]:
        shapes = self.runner.prefill_shapes
        widths = {width for _, width in shapes}

        def suits(one: Running) -> int:
            # Several narrow calls cost less than one wide call that is mostly padding.
            return max((width for width in widths if 2 * one.missing >= width), default=min(widths))

        width = suits(behind[0])
        fitting = [one for one in behind if suits(one) == width]
        most = max(rows for rows, some in shapes if some == width)
        rows = next((r for r, w in shapes if w == width and r >= len(fitting)), most)
        return (rows, width), fitting[:rows]

    def _snapshot(self, ready: list[Running]) -> None:
        copies: dict[int, int] = {}
        for one in ready:
            one.keep_snapshot = False
            target = self.table.free_snapshot()
            if target is None:
                return
            assert one.row is not None
            target.copy_from(one.row)
            self.table.touch(target)
            copies[target.index] = one.row.index  # a later prompt may take over an earlier one's snapshot
        if copies:
            self.runner.copy([(source, target) for target, source in copies.items()])

    def _decode(self) -> None:
        started = time.monotonic()
        batch = list(self.running)
        rows: list[Row] = [one.row for one in batch]  # type: ignore[misc]
        block = self.runner.decode(
            [row.index for row in rows],
            [row.length for row in rows],
            [one.request.sampling for one in batch],
            [one.budget for one in batch],
            # Short blocks while requests wait for a slot, which a row that ends may free.
            max(1, self.runner.steps // 2) if self.waiting else None,
        )
        for i, (one, row) in enumerate(zip(batch, rows, strict=True)):
            emitted, forwarded = int(block.emitted[i]), int(block.forwarded[i])
            one.output_ids += block.tokens[:emitted, i].tolist()
            one.logprobs += block.logprobs[:emitted, i].tolist()
            one.versions += [self.version] * emitted
            row.append(block.tokens[:forwarded, i], block.routed_experts[:forwarded, i])
            self.table.touch(row)
            self.counters.decoded_tokens += emitted
            if forwarded < emitted:
                last = one.output_ids[-1]
                stopped = last in one.request.sampling.stop_token_ids
                self._end(
                    one,
                    {"type": "stop", "matched": last}
                    if stopped
                    else {"type": "length", "length": len(one.output_ids)},
                )
        self.counters.decode_steps += block.steps
        self.counters.decode_seconds += time.monotonic() - started

    # --- leaving --------------------------------------------------------------------------------------------

    def _end(self, one: Running, reason: dict[str, Any]) -> None:
        request = one.request
        start, routes = request.routed_experts_start, None
        if start is not None:
            record = one.routes if one.row is None else one.row.routes[: one.row.recorded]
            routes = record[start:].copy() if record is not None else self._no_routes()
        if one.row is not None:
            # A request cut while it was forwarded again has more records than state.
            one.row.recorded = one.row.length
            one.row.owner = None
            self.running.remove(one)
        else:
            self.waiting.remove(one)
        one.finish(
            GenerateResult(
                rid=request.rid,
                output_ids=one.output_ids,
                logprobs=one.logprobs,
                versions=one.versions,
                finish_reason=reason,
                prompt_tokens=len(request.input_ids),
                cached_tokens=one.cached_tokens or 0,
                routed_experts_start=start,
                routed_experts=routes,
                seconds=time.monotonic() - one.arrived,
            )
        )

    def _no_routes(self) -> np.ndarray:
        return self.table.slots[0].routes[:0].copy()

    def _preempt(self) -> None:
        """Give every running request's slot back and queue it first, keeping what it sampled and recorded."""
        for one in reversed(self.running):
            assert one.row is not None
            one.routes = one.row.routes[: one.row.recorded].copy()
            one.row.recorded = one.row.length
            one.row.owner = None
            one.row = None
            one.keep_snapshot = False
            self.counters.preemptions += 1
            self.waiting.appendleft(one)
        self.running.clear()
