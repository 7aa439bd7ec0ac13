import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys

import aiohttp
import jsonschema
import numpy as np
import pytest
from openapi_spec_validator import validate

from sandbox.agent import EpisodeLimits
from sandbox.backends import BACKENDS
from sandbox.engine_client import EnginePolicy, RouteShape
from sandbox.errors import InputError
from sandbox.service import RolloutConfig, RolloutService, rollout_seed, serve
from sandbox.store import Store
from sandbox.trajectory import read_frames

TASK = "a real task"
SHAPE = RouteShape(layers=3, experts_per_token=2, num_experts=16)


@pytest.fixture
def config(tmp_path, tokenizer_dir, engine):
    return RolloutConfig(
        checkpoint=str(tokenizer_dir),
        engine_url=engine.url,
        store=str(tmp_path / "s.sqlite"),
        port=0,
        concurrency=4,
        limits=EpisodeLimits(max_new_tokens=300),
    )


@pytest.fixture
async def client(config, chat, engine):
    """An HTTP client of a service that runs in this process."""
    store = await Store.open(config.store)
    policy = EnginePolicy(engine.url, stop_ids=chat.stop_ids, shape=SHAPE, patience=2.0)
    async with policy:
        service = RolloutService(config, store, chat, policy, BACKENDS["bubblewrap"])
        runner = aiohttp.web.AppRunner(service.app)
        await runner.setup()
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        running = asyncio.create_task(service.run())
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as session:
            session.service, session.store = service, store  # for the tests that look behind the border
            yield session
        service.stop()
        await running
        await runner.cleanup()
    await store.close()


async def post(client, path, **body):
    async with client.post(path, json=body) as response:
        return response.status, await response.json()


async def lease(client, count, wait=30.0):
    async with client.post("/v1/lease", json={"max": count, "wait_seconds": wait}) as response:
        assert response.status == 200
        frames = list(read_frames(await response.read()))
        assert int(response.headers["X-Rollouts"]) == len(frames)
        return frames


async def status(client):
    async with client.get("/v1/status") as response:
        return await response.json()


async def collect(client, count):
    frames = []
    while len(frames) < count:
        new = await lease(client, count)
        assert new, "the lease ran into its wait"
        frames += new
    return frames


async def test_groups_are_played_leased_and_acknowledged(client, engine, write_task, run_text):
    engine.script = [run_text("echo hello > out.txt"), run_text("touch done.txt")]
    tasks = [str(write_task(name)) for name in ("one", "two")]
    groups = [{"group_id": f"s0/{k}", "task": task, "attempts": 3, "seed": 7} for k, task in enumerate(tasks)]
    assert await post(client, "/v1/groups", groups=groups) == (200, {"accepted": 6, "known": 0})
    # A learner that repeats itself after a lost answer gets no second episode.
    assert await post(client, "/v1/groups", groups=groups) == (200, {"accepted": 0, "known": 6})
    frames = await collect(client, 6)
    assert {t.rollout_id for t in frames} == {f"s0/{k}/{i}" for k in range(2) for i in range(3)}
    for trajectory in frames:
        assert trajectory.reward == 1.0 and trajectory.group_id == trajectory.rollout_id.rpartition("/")[0]
        forwarded = trajectory.turns[-1].sampled[1] - 1
        routes = engine.expected_routes(trajectory.tokens.tolist())
        assert np.array_equal(trajectory.routed_experts[:forwarded], routes[:forwarded])
    seeds = {t.rollout_id[-1]: t.metadata["seed"] for t in frames}
    assert seeds == {str(k): rollout_seed(7, k) for k in range(3)}
    assert (await status(client))["states"]["leased"] == 6
    assert await post(client, "/v1/ack", rollout_ids=[t.rollout_id for t in frames]) == (200, {"acked": 6})
    state = await status(client)
    assert state["states"]["delivered"] == 6 and state["in_flight"] == 0
    assert state["endings"] == {"finish": 6} and state["mean_turns"] == 3 and state["turns_per_second"] > 0
    assert await lease(client, 6, wait=0) == []


async def test_concurrency_is_bounded_and_used(client, engine, write_task):
    engine.gate = asyncio.Event()
    await post(client, "/v1/groups", groups=[{"group_id": "g", "task": str(write_task()), "attempts": 9}])
    while len(engine.requests) < 4:
        await asyncio.sleep(0.01)
    state = await status(client)
    assert state["in_flight"] == 4 and state["states"]["queued"] == 5 and state["states"]["running"] == 4
    engine.gate.set()
    await collect(client, 9)


async def test_cancelled_groups_stop_and_are_never_handed_out(client, engine, write_task):
    engine.gate = asyncio.Event()
    task = str(write_task())
    await post(client, "/v1/groups", groups=[{"group_id": "stale", "task": task, "attempts": 6}])
    while len(engine.requests) < 4:
        await asyncio.sleep(0.01)
    _, answer = await post(client, "/v1/cancel", group_ids=["stale"], reason="stale")
    assert answer["cancelled"] == 6
    await post(client, "/v1/groups", groups=[{"group_id": "fresh", "task": task, "attempts": 2}])
    engine.gate.set()
    assert {t.group_id for t in await collect(client, 2)} == {"fresh"}
    assert (await status(client))["states"]["cancelled"] == 6
    assert len(engine.aborted) == 4
    assert {row["reason"] for row in await client.store.rows() if row["state"] == "cancelled"} == {"stale"}


async def test_an_episode_that_cannot_be_played_still_gives_a_frame(client, engine, write_task):
    long, gone = write_task("long"), write_task("gone")
    (long / "instruction.md").write_text("very " * 9000)
    groups = [
        {"group_id": "long", "task": str(long), "attempts": 1},
        {"group_id": "gone", "task": str(gone), "attempts": 1},
    ]
    engine.statuses = [400] * 9
    await post(client, "/v1/groups", groups=groups)
    frames = {t.group_id: t for t in await collect(client, 2)}
    assert all(t.ending == "infra_error" and t.reward is None for t in frames.values())
    assert "its prompt has" in frames["long"].metadata["infra_errors"][0]
    assert len(frames["long"].tokens) == 0
    await post(client, "/v1/ack", rollout_ids=[t.rollout_id for t in frames.values()])
    states = (await status(client))["states"]
    assert states["failed"] == 1 and states["delivered"] == 1


async def test_a_group_waits_for_the_policy_version_that_it_asks_for(client, engine, write_task):
    task = str(write_task())
    groups = [{"group_id": f"g{v}", "task": task, "attempts": 2, "min_version": v} for v in (4, 6)]
    await post(client, "/v1/groups", groups=groups)
    assert {t.group_id for t in await collect(client, 2)} == {"g4"}  # the engine serves 4
    assert await lease(client, 2, wait=0.3) == []
    engine.version = 6
    frames = await collect(client, 2)
    assert {t.group_id for t in frames} == {"g6"} and min(t.versions[t.loss_mask].min() for t in frames) == 6


async def test_what_an_older_policy_sampled_is_not_handed_out(client, engine, write_task):
    await post(client, "/v1/groups", groups=[{"group_id": "a/b", "task": str(write_task()), "attempts": 2}])
    while (await status(client))["states"]["done"] < 2:
        await asyncio.sleep(0.02)
    async with client.post("/v1/lease", json={"max": 9, "min_version": 5}) as response:
        assert await response.read() == b""
    async with client.get("/v1/groups/a/b") as response:
        group = await response.json()
    assert group["complete"] and {r["state"] for r in group["rollouts"]} == {"cancelled"}
    assert {r["reason"] for r in group["rollouts"]} == {"stale: sampled by policy version 4"}
    async with client.get("/v1/groups/none") as response:
        assert response.status == 404


async def test_a_learner_that_submits_or_leaves_too_much_is_held_back(client, engine, write_task):
    object.__setattr__(client.service.config, "max_pending", 5)
    object.__setattr__(client.service.config, "max_ready", 1)
    task = str(write_task())
    group = {"task": task, "attempts": 5}
    assert (await post(client, "/v1/groups", groups=[group | {"group_id": "g"}]))[0] == 200
    async with client.post("/v1/groups", json={"groups": [group | {"group_id": "h"}]}) as response:
        assert response.status == 429 and response.headers["Retry-After"] == "1"
    # Four episodes start at once; the fifth has to wait until what ended is acknowledged.
    frames = await collect(client, 4)
    await asyncio.sleep(0.1)
    assert (await status(client))["states"]["queued"] == 1
    await post(client, "/v1/ack", rollout_ids=[t.rollout_id for t in frames])
    assert len(await collect(client, 1)) == 1


async def test_a_rollout_whose_service_keeps_dying_is_given_up(client, write_task):
    await client.store._run(lambda db: db.executemany(
        "INSERT INTO rollouts (rollout_id, group_id, task, seed, temperature, state, claims)"
        " VALUES (?, 'g', ?, 0, 1.0, 'queued', 5)", [("g/0", str(write_task()))]))  # fmt: skip
    [frame] = await collect(client, 1)
    assert frame.reward is None and "died 5 times" in frame.metadata["infra_errors"][0]


async def test_the_document_describes_what_is_served(client, write_task):
    async with client.get("/v1/openapi.json") as response:
        document = await response.json()
    validate(document)
    served = {(r.method.lower(), r.resource.canonical) for r in client.service.app.router.routes()}
    documented = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert documented == {(method, path) for method, path in served if method != "head"}

    def check(path, method, code, answer):
        content = document["paths"][path][method]["responses"][str(code)]["content"]["application/json"]
        jsonschema.validate(answer, content["schema"], jsonschema.Draft202012Validator)

    bodies = {
        "/v1/groups": {"groups": [{"group_id": "g", "task": str(write_task()), "attempts": 1}]},
        "/v1/cancel": {"group_ids": ["g"]},
        "/v1/ack": {"rollout_ids": ["g/0"]},
    }
    for path, body in bodies.items():
        schema = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        jsonschema.validate(body, schema, jsonschema.Draft202012Validator)
        check(path, "post", *await post(client, path, **body))
        check(path, "post", *await post(client, path))
    for path, real in {"/v1/status": "/v1/status", "/v1/groups/{group_id}": "/v1/groups/g"}.items():
        async with client.get(real) as response:
            check(path, "get", response.status, await response.json())


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/v1/groups",
            {"groups": [{"group_id": "g", "task": "/no/such", "attempts": 1}]},
            "task.toml is missing",
        ),
        ("/v1/groups", {"groups": [{"group_id": "g", "attempts": 1}]}, "groups[0].task: None, expected str"),
        (
            "/v1/groups",
            {"groups": [{"group_id": "g", "task": "/t", "attempts": True}]},
            "attempts: True, expected int",
        ),
        ("/v1/groups", {"groups": [{"group_id": "g", "task": "/t", "attempts": 0}]}, "attempts 0"),
        (
            "/v1/groups",
            {"groups": [{"group_id": "g", "task": TASK, "attempts": 1}] * 2},
            "groups[1].group_id: 'g' is there twice",
        ),
        ("/v1/groups", {}, "body.groups: None, expected list"),
        ("/v1/ack", {}, "rollout_ids"),
        ("/v1/lease", {"max": "3"}, "expected int"),
        ("/v1/lease", {"max": 0}, "max 0, wait_seconds 0, expected >= 1"),
        ("/v1/ack", {"rollout_ids": [1]}, "body.rollout_ids: expected a list of strings"),
    ],
)
async def test_bad_requests_are_answered_in_one_line(client, write_task, path, body, message):
    body = json.loads(json.dumps(body).replace(TASK, str(write_task())))
    code, answer = await post(client, path, **body)
    assert code == 400 and message in answer["error"] and "\n" not in answer["error"]


async def test_a_body_that_is_not_json(client):
    async with client.post("/v1/ack", data=b"{") as response:
        assert response.status == 400 and "not JSON" in (await response.json())["error"]


PROCESS = """
import json, sys
from sandbox.agent import EpisodeLimits
from sandbox.errors import InputError
from sandbox.service import RolloutConfig, serve
options = json.loads(sys.argv[1])
try:
    serve(RolloutConfig(**options, limits=EpisodeLimits(max_new_tokens=300)))
except InputError as error:
    sys.exit(f"input: {error}")
"""


@contextlib.asynccontextmanager
async def process(config):
    options = {
        key: getattr(config, key) for key in ("checkpoint", "engine_url", "store", "port", "concurrency")
    }
    (open_config := config_file(config)).write_text(
        json.dumps({"num_hidden_layers": 3, "num_experts_per_tok": 2, "num_experts": 16})
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, json.dumps(options), stdout=subprocess.PIPE
    )
    line = (await child.stdout.readline()).decode()
    assert line.startswith("rollout service listening on http://127.0.0.1:"), line
    try:
        async with aiohttp.ClientSession(line.split()[-1]) as session:
            yield session, child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
        open_config.unlink()


def config_file(config):
    from pathlib import Path

    return Path(config.checkpoint) / "config.json"


async def test_kill_9_and_restart_lose_and_duplicate_no_rollout(config, engine, write_task, run_text):
    engine.script = [run_text("touch done.txt")]
    task = str(write_task())
    seen = []
    async with process(config) as (client, child):
        assert (await post(client, "/v1/groups", groups=[{"group_id": "g", "task": task, "attempts": 10}]))[
            0
        ] == 200
        first = await collect(client, 1)
        await post(client, "/v1/ack", rollout_ids=[first[0].rollout_id])
        seen += first[:1]
        engine.gate = asyncio.Event()  # the kill finds episodes in flight
        child.send_signal(signal.SIGKILL)
        await child.wait()
    engine.gate.set()
    async with process(config) as (client, child):
        # What was leased by the killed process and never acknowledged comes when its lease ends; not waited
        # for here.
        pending = (await status(client))["states"]["leased"]
        seen += await collect(client, 9 - pending)
        states = (await status(client))["states"]
        assert states["queued"] == states["running"] == 0 and sum(states.values()) == 10
        child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), 20) == 0
    assert len({t.rollout_id for t in seen}) == len(seen) == 10 - pending
    assert all(t.reward == 0.25 for t in seen)


async def test_sigterm_queues_running_episodes_again(config, engine, write_task):
    engine.gate = asyncio.Event()
    async with process(config) as (client, child):
        await post(client, "/v1/groups", groups=[{"group_id": "g", "task": str(write_task()), "attempts": 3}])
        while len(engine.requests) < 3:
            await asyncio.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(child.wait(), 20) == 0
    store = await Store.open(config.store)
    assert (await store.counts())["queued"] == 3
    await store.close()
    assert len(engine.aborted) == 3


def test_bad_configurations_are_refused(tmp_path, tokenizer_dir):
    good = dict(checkpoint=str(tokenizer_dir), store=str(tmp_path / "s.sqlite"), port=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        serve(RolloutConfig(**{**good, "checkpoint": str(tmp_path)}))
    with pytest.raises(InputError, match="expected a writable"):
        serve(RolloutConfig(**{**good, "store": str(tmp_path / "file" / "s.sqlite")}))
    with pytest.raises(InputError, match="backend: 'vm', expected one of"):
        serve(RolloutConfig(**{**good, "backend": "vm"}))
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="is in use, expected a free port"):
            serve(RolloutConfig(**{**good, "port": taken.getsockname()[1]}))
    assert os.path.exists(tmp_path / "s.sqlite")
