"""`bench faults`: services, an engine and a learner, killed with -9 at random, and what is left then.

The parts are processes of their own: rollout services (several where the store is PostgreSQL), an engine that
plays a script, and a learner that submits groups, keeps what it leases in a ledger and "trains" on each group
once. A victim is killed while it works and started again at once. Afterwards the store, the ledger and the
host are compared: `problems` is empty when nothing was lost, trained twice or left behind.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from sandbox.backends import cgroups
from sandbox.errors import InputError
from sandbox.store import ENDED, Store
from sandbox.tools import ToolCall, format_tool_call
from sandbox.trajectory import read_frames
from sandbox.transcript import ChatFormat

GROUP_SIZE, WINDOW, COMMANDS = 4, 3, 6
_PATIENCE = 300.0  # a busy machine starts a service slowly
_KINDS = ("service", "engine", "learner")
_ROOT = Path(__file__).resolve().parents[1]


def run_faults(*, chat: Path, out: Path, kills: int, seed: int, store: str | None = None) -> dict[str, Any]:
    """Kill `kills` times, let the run end, and report; `out` is a new folder that keeps logs and ledger.

    chat: a folder with tokenizer.json and chat_template.jinja. store: a postgresql:// URL of an empty
    database, which two services then share; None for a file in `out` and one service. Returns {"bench",
    "kills" by kind, "rollouts", "groups", "retried", "excluded", "seconds", "problems"}. Raises InputError.
    """
    if kills < 1:
        raise InputError(f"kills: {kills}, expected 1 or more")
    ChatFormat.load(chat)
    if out.exists() and any(out.iterdir()):
        raise InputError(f"bench faults: {out} is not empty, expected a new folder")
    began = time.monotonic()
    run = _Run(chat.resolve(), out.resolve(), store)
    try:
        counts = run.kill_at_random(kills, random.Random(seed))
        run.finish()
    finally:
        run.end()
    rows = asyncio.run(_rows(run.store))
    problems = (
        _problems(rows, _lines(out / "ledger.jsonl"), _lines(out / "trained.jsonl")) + run.left_behind()
    )
    return {
        "bench": "faults",
        "kills": dict(counts),
        "rollouts": len(rows),
        "groups": len({row["group_id"] for row in rows}),
        "retried": sum(row["claims"] > 1 for row in rows),
        "excluded": sum(record["reward"] is None for record in _lines(out / "ledger.jsonl")),
        "seconds": round(time.monotonic() - began, 1),
        "problems": problems,
    }


class _Run:
    """The processes of a run."""

    def __init__(self, chat: Path, out: Path, store: str | None) -> None:
        self.out = out
        self.store = store or str(out / "store.sqlite")
        out.mkdir(parents=True, exist_ok=True)
        _write_task(out / "task")
        # Sandboxes belong to users that may not enter every folder; nothing else of anybody's is in there.
        self.temporary = Path(tempfile.mkdtemp(prefix="t1-faults-"))
        self.temporary.chmod(0o711)
        ports = _free_ports(3 if store else 2)
        config: dict[str, Any] = {"concurrency": 4, "claim_seconds": 6.0, "lease_seconds": 6.0}
        config |= {"checkpoint": str(chat), "engine_url": f"http://127.0.0.1:{ports[0]}", "store": self.store}
        self._commands = {"engine": ["engine", str(ports[0]), str(chat)]}
        for n, port in enumerate(ports[1:]):
            self._commands[f"service{n}"] = ["service", json.dumps(config | {"port": port})]
        self._urls = [f"http://127.0.0.1:{port}" for port in ports]
        self._commands["learner"] = ["learner", str(out), *self._urls[1:]]
        self._processes: dict[str, subprocess.Popen] = {}
        self._leases: set[str] = set()  # the folders that services made for their sandboxes
        for name in self._commands:
            self._start(name)

    def _start(self, name: str) -> None:
        with (self.out / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "sandbox.faults", *self._commands[name]], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=_ROOT, env={**os.environ, "TMPDIR": str(self.temporary)},
            )  # fmt: skip

    def kill_at_random(self, kills: int, rng: random.Random) -> Counter[str]:
        """Kill and restart, each time a part that is at work."""
        counts: Counter[str] = Counter()
        for _ in range(kills):
            kind = rng.choice(_KINDS)
            name = rng.choice([name for name in self._commands if name.startswith(kind)])
            self._until_working()
            time.sleep(rng.uniform(0.1, 1.5))
            self._note_leases()
            process = self._processes[name]
            process.send_signal(signal.SIGKILL)
            process.wait()
            self._start(name)
            counts[kind] += 1
        return counts

    def _until_working(self) -> None:
        """Wait until every part answers: a kill should meet episodes, not a start."""
        end = time.monotonic() + _PATIENCE
        while not all(_answers(f"{url}/health") for url in self._urls):
            self._check(end, "a service or the engine does not come up")
        seen = _size(self.out / "ledger.jsonl")
        while _size(self.out / "ledger.jsonl") == seen:
            self._check(end, "no rollout arrives")

    def _check(self, end: float, problem: str) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise InputError(f"bench faults: the {name} has ended by itself, see {self.out}/{name}.log")
        if time.monotonic() > end:
            raise InputError(f"bench faults: {problem} for {_PATIENCE:.0f} s, see the logs in {self.out}")
        time.sleep(0.05)

    def finish(self) -> None:
        """Have the learner end its open groups, then the services, as they are stopped in earnest."""
        (self.out / "stop").touch()
        try:
            self._processes["learner"].wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise InputError(f"bench faults: the run does not end, see the logs in {self.out}") from None
        self._note_leases()
        for name, process in self._processes.items():
            if name.startswith("service"):
                process.terminate()
                process.wait(60)

    def end(self) -> None:
        """End what still runs."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _note_leases(self) -> None:
        self._leases |= {folder.name for folder in self.temporary.glob("t1-sandbox-*")}

    def left_behind(self) -> list[str]:
        """Folders, mounts, control groups and processes of the services that are still there after 30 s."""
        end = time.monotonic() + 30
        while (found := self._traces()) and time.monotonic() < end:
            time.sleep(0.2)
        if not found:
            shutil.rmtree(self.temporary)
        return [f"left on the host: {trace}" for trace in found]

    def _traces(self) -> list[str]:
        place = str(self.temporary)
        found = [str(folder) for folder in self.temporary.glob("t1-sandbox-*")]
        found += [line for line in Path("/proc/mounts").read_text().splitlines() if place in line]
        for parent in dict.fromkeys(cgroups.available().values()):
            found += [str(group) for name in self._leases for group in parent.glob(f"{name}*")]
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if place.encode() in (entry / "cmdline").read_bytes():
                    found.append(f"process {entry.name}")
        return found


def _problems(
    rows: list[dict[str, Any]], ledger: list[dict[str, Any]], trained: list[dict[str, Any]]
) -> list[str]:
    """What went wrong. Every rollout has ended, is in the ledger once, and in one trained group."""
    problems = [f"{row['rollout_id']} ended as {row['state']!r}" for row in rows if row["state"] not in ENDED]
    arrived = Counter(record["rollout_id"] for record in ledger)
    for row in rows:
        if arrived[row["rollout_id"]] != 1:
            problems.append(f"{row['rollout_id']} is {arrived[row['rollout_id']]} times in the ledger")
    known = {row["rollout_id"] for row in rows}
    problems += [f"{name} was never submitted" for name in arrived if name not in known]
    for group, times in Counter(record["group_id"] for record in trained).items():
        if times != 1:
            problems.append(f"{group} was trained {times} times")
    missing = {row["group_id"] for row in rows} - {record["group_id"] for record in trained}
    problems += [f"{group} was not trained" for group in sorted(missing)]
    members = Counter(name for record in trained for name in record["rollout_ids"])
    problems += [f"{name} was trained {times} times" for name, times in members.items() if times != 1]
    # The script solves its task: any other reward is a fault that was booked to the policy.
    wrong = [record for record in ledger if record["reward"] not in (1.0, None)]
    return problems + [f"{record['rollout_id']} has reward {record['reward']}" for record in wrong]


async def _rows(where: str) -> list[dict[str, Any]]:
    store = await Store.open(where)
    try:
        return await store.rows()
    finally:
        await store.close()


def _write_task(folder: Path) -> None:
    for name in ("tests", "environment"):
        (folder / name).mkdir(parents=True)
    (folder / "task.toml").write_text("")
    (folder / "instruction.md").write_text("Count.\n")
    (folder / "environment/Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\n")
    counted = "".join(f"{n}\\n" for n in range(COMMANDS))
    (folder / "tests/test.sh").write_text(
        f"printf '{counted}' | cmp -s - /app/count && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n"
    )


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


# -- the engine ----------------------------------------------------------------------------------------------


def _engine(port: int, chat: ChatFormat) -> None:
    """Answers /generate with the script's turn that the request names, and with routes."""

    async def generate(request: web.Request) -> web.Response:
        body = await request.json()
        turn = int(body["rid"].rpartition(":")[2])
        call = ToolCall(name="finish")
        if turn < COMMANDS:
            call = ToolCall(name="terminal", arguments={"command": f"sleep 0.02; echo {turn} >> count"})
        ids = chat.assistant_ids(chat.assistant_text(format_tool_call(call)))
        rows = len(body["input_ids"]) + len(ids) - 1 - body["routed_experts_start_len"]
        routes = np.zeros((rows, 2, 2), np.uint8)
        meta = {
            "finish_reason": {"type": "stop"},
            "output_token_logprobs": [[-0.5, token, None] for token in ids],
            "weight_version": "1",
            "routed_experts": base64.b64encode(routes.tobytes()).decode(),
            "routed_experts_dtype": "uint8",
            "routed_experts_shape": list(routes.shape),
        }
        await asyncio.sleep(0.02)
        return web.json_response({"output_ids": ids, "meta_info": meta})

    async def ok(_: web.Request) -> web.Response:
        return web.json_response({"weight_version": "1"})

    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.post("/generate", generate), web.post("/abort_request", ok)])
    app.add_routes([web.get("/health", ok), web.get("/get_model_info", ok)])
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


# -- the learner ---------------------------------------------------------------------------------------------


class _Log:
    """Lines of JSON that are on disk once `add` returns; a line that a kill tore is cut off."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes() if path.is_file() else b""
        if data and not data.endswith(b"\n"):
            os.truncate(path, data.rfind(b"\n") + 1)
        self.records = _lines(path)
        self._file = path.open("a", encoding="utf-8")

    def add(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.records.append(record)


def _lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _learner(out: Path, urls: list[str]) -> None:
    """Keep WINDOW groups on their way until there is a file `stop`, then end the open ones."""
    ledger, trained = _Log(out / "ledger.jsonl"), _Log(out / "trained.jsonl")
    groups: dict[str, set[str]] = {}
    for record in ledger.records:
        groups.setdefault(record["group_id"], set()).add(record["rollout_id"])
    done = {record["group_id"] for record in trained.records}
    turn = 0

    def post(path: str, body: dict[str, Any]) -> bytes:
        """From whichever service answers; all of this may be sent twice."""
        nonlocal turn
        data = json.dumps(body).encode()
        while True:
            turn += 1
            request = urllib.request.Request(
                urls[turn % len(urls)] + path, data, {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    return response.read()
            except Exception as error:
                print(f"{path}: {error!r}", flush=True)
                time.sleep(0.2)

    # It may have been killed between the ledger and the acknowledgement.
    post("/v1/ack", {"rollout_ids": [record["rollout_id"] for record in ledger.records]})
    # Which groups were submitted is decided before they are, so that a restart submits the same ones.
    plan = _Log(out / "plan.jsonl")
    while True:
        opened = len(plan.records)
        if not (out / "stop").exists() and opened - len(done) < WINDOW:
            plan.add({"group_id": f"g{opened}"})
        wanted = [record["group_id"] for record in plan.records if record["group_id"] not in done]
        if not wanted:
            return
        task = str(out / "task")
        post(
            "/v1/groups", {"groups": [{"group_id": g, "task": task, "attempts": GROUP_SIZE} for g in wanted]}
        )
        frames = list(read_frames(post("/v1/lease", {"max": 8, "wait_seconds": 1})))
        for frame in frames:
            members = groups.setdefault(frame.group_id, set())
            if frame.rollout_id not in members:
                members.add(frame.rollout_id)
                digest = hashlib.sha256(frame.tokens.tobytes()).hexdigest()
                ledger.add({"rollout_id": frame.rollout_id, "group_id": frame.group_id,
                            "reward": frame.reward, "ending": frame.ending, "tokens": digest})  # fmt: skip
        if frames:
            post("/v1/ack", {"rollout_ids": [frame.rollout_id for frame in frames]})
        for group in wanted:
            if len(groups.get(group, ())) == GROUP_SIZE:
                trained.add({"group_id": group, "rollout_ids": sorted(groups[group])})
                done.add(group)


def _service(options: dict[str, Any]) -> None:
    from sandbox.agent import EpisodeLimits
    from sandbox.service import RolloutConfig, serve

    limits = EpisodeLimits(max_context=32768, max_new_tokens=2048)
    serve(RolloutConfig(**options, limits=limits, engine_patience=_PATIENCE))


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if kind == "engine":
        _engine(int(words[0]), ChatFormat.load(words[1]))
    elif kind == "service":
        _service(json.loads(words[0]))
    else:
        _learner(Path(words[0]), words[1:])
