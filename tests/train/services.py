"""The rollout service's and the engine's protocols, without episodes or a model, for tests of the learner's
loop.

Rewards and tokens depend on step, group and attempt only, so that two runs see the same rollouts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sandbox.trajectory import Trajectory, write_frames
from t1_jax.checkpoint.manager import load_checkpoint
from tests.train.micro import trajectory


class Services:
    """Both services on one port. `log` holds what was asked, in order; `before[path]` is called before an
    answer.
    """

    def __init__(self) -> None:
        self.version = "0"
        self.log: list[tuple[str, Any]] = []
        self.before: dict[str, Callable[[dict[str, Any]], None]] = {}
        self.done: dict[str, Trajectory] = {}  # not acknowledged yet
        self.known: set[str] = set()
        self.min_versions: dict[str, int] = {}  # of groups
        self.change: Callable[[Trajectory], Trajectory] = lambda record: record
        self.never: set[str] = set()  # suffixes of rollout ids that are cancelled at the service
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path: str, body: dict[str, Any]) -> bytes:
        if path in self.before:
            self.before[path](body)
        if path == "/get_model_info":
            return json.dumps({"weight_version": self.version}).encode()
        if path == "/update_weights_from_disk":
            _, _, meta = load_checkpoint(Path(body["model_path"]))
            assert str(meta["version"]) == body["weight_version"]
            self.version = body["weight_version"]
            self.log.append(("publish", int(self.version)))
            return json.dumps({"success": True}).encode()
        if path == "/v1/groups":
            self.log.append(("submit", sorted({int(g["group_id"].split("-")[1]) for g in body["groups"]})))
            return json.dumps({"accepted": sum(self._play(group) for group in body["groups"])}).encode()
        if path == "/v1/lease":  # delivers at least once: all that is not acknowledged, one of them twice
            served = int(self.version)
            ready = [r for r in self.done.values() if self.min_versions[r.group_id] <= served][: body["max"]]
            return write_frames(ready + ready[:1])
        if path == "/v1/ack":
            for rollout_id in body["rollout_ids"]:
                self.done.pop(rollout_id, None)
            return b"{}"
        assert path == "/v1/status"
        return json.dumps({"states": {"done": len(self.done), "delivered": 9}}).encode()

    def _play(self, group: dict[str, Any]) -> int:
        _, step, index = group["group_id"].split("-")
        self.min_versions[group["group_id"]] = group["min_version"]
        new = 0
        for attempt in range(group["attempts"]):
            rollout_id = f"{group['group_id']}/{attempt}"
            if rollout_id in self.known:
                continue
            self.known.add(rollout_id)
            new += 1
            if any(rollout_id.endswith(suffix) for suffix in self.never):
                continue
            number = 100 * int(step) + 10 * int(index) + attempt
            record = trajectory(
                rollout_id,
                9 + number % 7,
                seed=number,
                routes=True,
                group_id=group["group_id"],
                task=Path(group["task"]).name,
                reward=[0.0, 1.0, 0.5][attempt % 3],
                tests={"a": attempt % 3 == 1},
                version=int(self.version),
            )
            self.done[rollout_id] = self.change(record)
        return new

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        services = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._send(services.answer(self.path, body))

            def do_GET(self) -> None:
                self._send(services.answer(self.path, {}))

            def _send(self, data: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
