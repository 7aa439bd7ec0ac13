"""Sandboxes that are started before they are needed."""

import asyncio
import os
import signal

from sandbox.backends import BubblewrapBackend
from sandbox.backends.pool import WarmPool
from sandbox.backends.processes import children
from sandbox.task import Task


def left(backend) -> int:
    return len(list(backend._host.base.glob("s?*"))) - len(list(backend._host.base.glob("skeleton")))


async def test_a_warm_sandbox_is_handed_out_once_and_a_dead_one_never(write_task):
    backend = BubblewrapBackend()
    one, two = Task.load(write_task("one")), Task.load(write_task("two"))
    async with WarmPool(backend, 3) as pool:
        await pool.expect([one, one, two, two])  # the last one is beyond the size
        first, second = [await making for path, making in pool._warm if path == one.path]
        assert len(pool._warm) == 3
        box = await pool.create(one)
        assert box is first and (await box.terminal("cat notes.txt", 10)).output == "notes\n"
        os.kill(children(second._session._guest.process.pid)[0], signal.SIGKILL)
        third = await pool.create(one)
        assert third is not second and (await third.terminal("echo hi", 10)).output == "hi\n"
        # What is no longer expected is closed; what is, stays.
        await pool.expect([two, one])
        assert [path for path, _ in pool._warm] == [two.path, one.path]
        await pool.expect([])
        await asyncio.gather(box.close(), third.close())
        assert left(backend) == 0
        await pool.expect([two])
    assert left(backend) == 0


async def test_what_cannot_be_started_says_so_to_the_episode_that_needs_it(write_task):
    folder = write_task("bad")
    (folder / "environment/Dockerfile").write_text("FROM debian\nRUN make\n")
    async with WarmPool(BubblewrapBackend(), 2) as pool:
        task = Task.load(folder)
        await pool.expect([task])
        await asyncio.sleep(0.05)
        try:
            await pool.create(task)
        except Exception as error:
            assert "RUN make" in str(error)
        else:
            raise AssertionError("it was started")
