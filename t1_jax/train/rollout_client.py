"""The learner's HTTP clients: of the rollout service, which plays episodes, and of the engine."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.errors import InputError
from sandbox.trajectory import Trajectory, read_frames

# A request may move gigabytes of routing records, or load a large checkpoint.
_REQUEST_SECONDS = 1800.0
_RETRY_SECONDS = 1.0


class Stopped(Exception):
    """The run was asked to stop while a service could not be reached."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Attempts at one task that are compared with each other."""

    group_id: str
    task: str  # path of the task's folder
    attempts: int
    seed: int
    temperature: float = 1.0
    min_version: int = -1  # the oldest policy version that may sample it

    @property
    def rollout_ids(self) -> list[str]:
        """The ids that the service gives to the attempts."""
        return [f"{self.group_id}/{attempt}" for attempt in range(self.attempts)]


class HttpClient:
    """JSON over HTTP. A service that is down, or says 429 or 503, is waited for: all requests may be sent
    twice.

    Args:
      url: such as http://127.0.0.1:30000.
      patience: seconds that a service may be unreachable.
      stop: ends the waiting with `Stopped` when it is set.
    """

    def __init__(self, url: str, *, patience: float = 300.0, stop: threading.Event | None = None):
        if not url.startswith(("http://", "https://")):
            raise InputError(f"url {url!r}: expected http://host:port")
        self.url, self.patience = url.rstrip("/"), patience
        self._stop = stop or threading.Event()

    def request(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """POST the body as JSON, or GET without one. Raises InputError with what the service answered."""
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + self.patience
        while True:
            request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=_REQUEST_SECONDS) as response:
                    return response.read()
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503):  # busy: its queue is full, or it is starting
                    text = " ".join(error.read().decode(errors="replace").split())
                    raise InputError(f"{self.url}{path}: answered {error.code}: {text[:500]}") from None
                reason: Any = f"answered {error.code}"
            except (
                OSError,
                http.client.HTTPException,
            ) as error:  # refused, reset, or cut while it was answering
                reason = getattr(error, "reason", error)
            if time.monotonic() > deadline:
                raise InputError(f"{self.url}{path}: not reachable for {self.patience:.0f} s ({reason})")
            if self._stop.wait(_RETRY_SECONDS):
                raise Stopped

    def json(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """`request`, its answer parsed."""
        return json.loads(self.request(path, body))


class RolloutClient(HttpClient):
    """The rollout service."""

    def submit(self, groups: Sequence[Group]) -> int:
        """Queue groups; those that the service knows already are left as they are. Returns what is new."""
        entries = [
            {
                "group_id": group.group_id,
                "task": group.task,
                "attempts": group.attempts,
                "seed": group.seed,
                "temperature": group.temperature,
                "min_version": group.min_version,
            }
            for group in groups
        ]
        return int(self.json("/v1/groups", {"groups": entries})["accepted"])

    def lease(self, count: int, wait_seconds: float) -> list[Trajectory]:
        """Up to `count` ended rollouts, waiting for the first. Without an `ack` they come again."""
        return list(read_frames(self.request("/v1/lease", {"max": count, "wait_seconds": wait_seconds})))

    def ack(self, rollout_ids: Sequence[str]) -> None:
        """Tell the service that these rollouts are safely stored here."""
        self.json("/v1/ack", {"rollout_ids": list(rollout_ids)})

    def pending(self) -> int:
        """How many rollouts of the service have not ended yet."""
        states = self.json("/v1/status")["states"]
        return sum(states.get(name, 0) for name in ("queued", "running", "done", "leased"))


class EngineClient(HttpClient):
    """The inference engine."""

    def version(self) -> str:
        """The version of the weights that it serves."""
        return str(self.json("/get_model_info").get("weight_version"))

    def publish(self, checkpoint: Path, version: int) -> None:
        """Have it serve a checkpoint as `version`, and wait for that. Raises InputError when it refuses."""
        body = {"model_path": str(checkpoint), "weight_version": str(version)}
        answer = self.json("/update_weights_from_disk", body)
        if not answer.get("success"):
            raise InputError(
                f"{self.url}: refused {checkpoint} as version {version}: {answer.get('message')}"
            )
        served = self.version()
        if served != str(version):
            raise InputError(f"{self.url}: serves version {served} after it was given {version}")
