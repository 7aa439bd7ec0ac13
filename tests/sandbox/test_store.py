import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from sandbox.errors import InputError
from sandbox.store import Rollout, Store, StoreFull


def rollouts(count: int, group: str = "g") -> list[Rollout]:
    return [
        Rollout(rollout_id=f"{group}/{k}", group_id=group, task="/t", seed=k, temperature=1.0)
        for k in range(count)
    ]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request, tmp_path) -> str:
    """Where a store can be opened: a path, or the URL of an empty PostgreSQL database."""
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "store.sqlite")
    return request.getfixturevalue("postgres_url")


@pytest.fixture
async def store(place):
    opened = await Store.open(place)
    yield opened
    await opened.close()


async def states(store: Store) -> dict[str, str]:
    return {row["rollout_id"]: row["state"] for row in await store.rows()}


async def test_a_rollout_passes_through_every_state_once(store):
    assert await store.add(rollouts(3)) == 3
    assert [r.rollout_id for r in await store.claim(2)] == ["g/0", "g/1"]
    assert await store.finish("g/1", b"one") and await store.finish("g/0", b"zero")
    assert not await store.finish("g/1", b"again")
    assert not await store.finish("g/2", b"not running")
    # In the order in which they finished.
    assert await store.lease(5, 60) == [b"one", b"zero"]
    assert await store.lease(5, 60) == []
    assert await store.ack(["g/0", "g/1", "unknown"]) == 2
    assert await store.ack(["g/0"]) == 0
    assert await states(store) == {"g/0": "delivered", "g/1": "delivered", "g/2": "queued"}


async def test_adding_again_changes_nothing(store):
    await store.add(rollouts(2))
    await store.claim(1)
    assert await store.add(rollouts(3)) == 1
    assert await states(store) == {"g/0": "running", "g/1": "queued", "g/2": "queued"}


async def test_a_lease_that_ran_out_is_handed_out_again_and_a_late_ack_counts(store):
    await store.add(rollouts(1))
    await store.claim(1)
    await store.finish("g/0", b"zero")
    assert await store.lease(1, 10, now=100.0) == [b"zero"]
    assert await store.lease(1, 10, now=109.0) == []
    assert await store.lease(1, 10, now=111.0) == [b"zero"]
    assert await store.ack(["g/0"]) == 1
    assert await store.lease(1, 10, now=999.0) == []


async def test_a_lease_is_bounded_in_bytes_but_never_empty(store):
    await store.add(rollouts(3))
    await store.claim(3)
    for k in range(3):
        await store.finish(f"g/{k}", bytes(100))
    assert len(await store.lease(3, 60, limit_bytes=10)) == 1
    assert len(await store.lease(3, 60, limit_bytes=200)) == 2


async def test_cancel_ends_all_but_the_ended_and_drops_late_results(store):
    await store.add(rollouts(4) + rollouts(1, "other"))
    await store.claim(3)
    await store.finish("g/0", b"zero")
    await store.lease(1, 60)
    await store.ack(["g/0"])
    await store.finish("g/1", b"one")
    assert sorted(await store.cancel(["g"], "stale")) == ["g/1", "g/2", "g/3"]
    assert not await store.finish("g/2", b"late")
    assert await store.lease(9, 60) == []
    assert await store.cancel(["g"], "again") == []
    counts = await store.counts()
    assert counts["delivered"] == 1 and counts["cancelled"] == 3 and counts["queued"] == 1
    assert [row["reason"] for row in await store.rows() if row["state"] == "cancelled"] == ["stale"] * 3


async def test_a_rollout_with_a_reason_is_handed_out_and_ends_as_failed(store):
    await store.add(rollouts(1))
    await store.claim(1)
    await store.finish("g/0", b"empty", reason="task is gone")
    assert await store.lease(1, 60) == [b"empty"]
    await store.ack(["g/0"])
    assert await states(store) == {"g/0": "failed"}


async def test_running_rollouts_are_queued_again_on_reopening(tmp_path):
    store = await Store.open(tmp_path / "s.sqlite")
    await store.add(rollouts(2))
    await store.claim(1)
    await store.close()
    store = await Store.open(tmp_path / "s.sqlite")
    assert [r.rollout_id for r in await store.claim(5)] == ["g/0", "g/1"]
    await store.requeue(["g/1"])
    assert await states(store) == {"g/0": "running", "g/1": "queued"}
    await store.close()


async def test_two_processes_cannot_share_a_file(tmp_path):
    store = await Store.open(tmp_path / "s.sqlite")
    with pytest.raises(InputError, match="another rollout service"):
        await Store.open(store.path)
    await store.close()


async def test_services_share_a_database_and_take_over_what_the_dead_left(postgres_url):
    first, second = await Store.open(postgres_url), await Store.open(postgres_url)
    await first.add(rollouts(4))
    taken = await first.claim(2, 10, now=100.0)
    assert [r.rollout_id for r in await second.claim(9, 10, now=101.0)] == ["g/2", "g/3"]
    assert await first.renew(["g/0"], 10, now=109.0) == {"g/0"}
    assert [(r.rollout_id, r.claims) for r in await second.claim(9, 10, now=112.0)] == [
        ("g/1", 2),
        ("g/2", 2),
        ("g/3", 2),
    ]
    # What the slow one still makes of it is dropped, so no rollout ends twice.
    assert taken[1].rollout_id == "g/1" and await first.renew(["g/0", "g/1"], 10, now=113.0) == {"g/0"}
    assert not await first.finish("g/1", b"slow") and await second.finish("g/1", b"quick")
    assert await first.lease(9, 60) == [b"quick"] and await second.lease(9, 60) == []
    await first.close()
    await second.close()


async def test_a_lost_connection_is_made_again(postgres_url):
    store = await Store.open(postgres_url)
    await store.add(rollouts(1))
    await store._run(lambda db: db._db.close())
    assert (await store.counts())["queued"] == 1
    await store.close()


async def test_a_full_queue_takes_nothing_more_but_knows_what_it_has(store):
    assert await store.add(rollouts(3), max_pending=4) == 3
    with pytest.raises(StoreFull, match="5 rollouts would be pending, at most 4"):
        await store.add(rollouts(2, "other"), max_pending=4)
    assert len(await store.rows()) == 3 and await store.add(rollouts(3), max_pending=1) == 0
    await store.cancel(["g"], "")
    assert await store.add(rollouts(2, "other"), max_pending=4) == 2


async def test_nothing_starts_while_too_much_waits_for_the_learner(store):
    await store.add(rollouts(4))
    for rollout in await store.claim(2, max_ready=2):
        await store.finish(rollout.rollout_id, b"x")
    assert await store.claim(2, max_ready=2) == []
    await store.lease(1, 60)
    assert await store.claim(2, max_ready=2) == []
    await store.ack(["g/0"])
    assert len(await store.claim(2, max_ready=2)) == 2


async def test_stale_rollouts_neither_start_nor_leave(store):
    await store.add([*rollouts(4), *(replace(r, min_version=5) for r in rollouts(2, "new"))])
    assert await store.wanted_version() == -1
    assert len(await store.claim(9, version=4)) == 4 and await store.wanted_version() == 5
    assert await store.claim(9, version=4) == []
    assert [r.rollout_id for r in await store.claim(9, version=5)] == ["new/0", "new/1"]
    for name, version in {"g/0": 2, "g/1": 3, "g/2": None, "new/0": 4, "new/1": 5}.items():
        await store.finish(name, name.encode(), oldest_version=version)
    assert await store.lease(9, 10, min_version=3, now=100.0) == [b"g/1", b"g/2", b"new/1"]
    reasons = {row["rollout_id"]: row["reason"] for row in await store.rows() if row["state"] == "cancelled"}
    assert reasons == {
        "g/0": "stale: sampled by policy version 2",
        "new/0": "stale: sampled by policy version 4",
    }
    # A learner that died with a lease may have moved on before it comes back.
    assert await store.lease(9, 10, min_version=4, now=111.0) == [b"g/2", b"new/1"]
    assert (await states(store))["g/1"] == "cancelled"


async def test_unwritable_paths_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "s.sqlite", tmp_path):
        with pytest.raises(InputError, match="expected a writable SQLite file"):
            await Store.open(path)
    with pytest.raises(InputError, match=r"postgresql://nobody@/x\?host=/none: .*expected a PostgreSQL"):
        await Store.open("postgresql://nobody:secret@/x?host=/none")
    (tmp_path / "other.sqlite").write_text("this is no database" * 100)
    with pytest.raises(InputError, match="expected a writable SQLite file"):
        await Store.open(tmp_path / "other.sqlite")


WRITER = """
import asyncio, sys
from sandbox.store import Rollout, Store, StoreFull

async def main():
    store = await Store.open(sys.argv[1])
    rest = dict(group_id="g", task="/t", seed=0, temperature=1.0)
    await store.add([Rollout(rollout_id=f"g/{k}", **rest) for k in range(4000)])
    for k in range(4000):
        await store.claim(1)
        await store.finish(f"g/{k}", b"payload %d" % k)
        if k % 3 == 0:
            await store.lease(1, 0.0)
        print(k, flush=True)

asyncio.run(main())
"""


async def test_kill_9_loses_nothing_that_was_announced(place):
    process = subprocess.Popen([sys.executable, "-c", WRITER, place], stdout=subprocess.PIPE, text=True)
    announced = [int(process.stdout.readline()) for _ in range(40)]
    os.kill(process.pid, signal.SIGKILL)
    announced += [int(line) for line in process.stdout if line.endswith("\n")]
    process.wait()
    process.stdout.close()

    store = await Store.open(place)
    await store.claim(0, now=time.time() + 100)  # what the killed one had claimed is free by then
    counts = await store.counts()
    assert sum(counts.values()) == 4000 and counts["running"] == 0
    payloads = await store.lease(4000, 60)
    # At most the one rollout whose announcement the kill cut off is there beside the announced ones.
    assert set(payloads) >= {b"payload %d" % k for k in announced}
    assert len(payloads) <= len(announced) + 1
    assert len(payloads) + counts["queued"] == 4000
    await store.close()
