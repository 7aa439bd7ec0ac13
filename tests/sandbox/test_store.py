import os
import signal
import subprocess
import sys

import pytest

from sandbox.errors import InputError
from sandbox.store import Rollout, Store


def rollouts(count: int, group: str = "g") -> list[Rollout]:
    return [
        Rollout(rollout_id=f"{group}/{k}", group_id=group, task="/t", seed=k, temperature=1.0)
        for k in range(count)
    ]


@pytest.fixture
async def store(tmp_path):
    opened = await Store.open(tmp_path / "deep" / "store.sqlite")
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


async def test_two_processes_cannot_share_a_store(store):
    with pytest.raises(InputError, match="another rollout service"):
        await Store.open(store.path)


async def test_unwritable_paths_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "s.sqlite", tmp_path):
        with pytest.raises(InputError, match="expected a writable SQLite file"):
            await Store.open(path)
    (tmp_path / "other.sqlite").write_text("this is no database" * 100)
    with pytest.raises(InputError, match="expected a writable SQLite file"):
        await Store.open(tmp_path / "other.sqlite")


WRITER = """
import asyncio, sys
from sandbox.store import Rollout, Store

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


async def test_kill_9_loses_nothing_that_was_announced(tmp_path):
    path = tmp_path / "s.sqlite"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    announced = [int(process.stdout.readline()) for _ in range(40)]
    os.kill(process.pid, signal.SIGKILL)
    announced += [int(line) for line in process.stdout if line.endswith("\n")]
    process.wait()
    process.stdout.close()

    store = await Store.open(path)
    counts = await store.counts()
    assert sum(counts.values()) == 4000 and counts["running"] == 0
    payloads = await store.lease(4000, 60)
    # At most the one rollout whose announcement the kill cut off is there beside the announced ones.
    assert set(payloads) >= {b"payload %d" % k for k in announced}
    assert len(payloads) <= len(announced) + 1
    assert len(payloads) + counts["queued"] == 4000
    await store.close()
