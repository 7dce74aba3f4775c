# SPDX-License-Identifier: BSD-3-Clause
"""Waiting in uvloop's event loop, which has handles, timers and subprocesses of its own."""

import _thread
import asyncio
import gc
import os
import signal
import time

import pytest
import uvloop

from ..asyncio.loops import aio, begun, every_way, is_cancelled, some_turns
from ..conftest import open_fds
from ..processes import become_zombie, eventually, exiting

MANY = 50


@pytest.fixture(scope="module", autouse=True)
def first_loop():
    """libuv opens a pipe for signals with the first loop, and keeps it."""
    uvloop.new_event_loop().close()


@pytest.fixture
def loop(variant):
    loop = uvloop.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def run(loop):
    return loop.run_until_complete


def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGTERM)


def test_many_waits_at_once(run, herd):
    """They exit at once or later: all codes are right."""
    codes = {herd.fork(code, after=code % 5 / 50.0): code for code in range(MANY)}

    async def main():
        threads = _thread._count()
        assert await asyncio.gather(*map(aio.wait, codes)) == list(codes.values())
        assert _thread._count() == threads

    run(main())


@every_way
def test_exit_while_it_is_waited_for(run, start_told, way):
    child = start_told(3)

    async def main():
        waiting = await begun(way(child))
        gc.collect()  # only the loop refers to what waits
        child.stdin.close()
        return await waiting

    assert run(main()) == 3 == child.returncode


@every_way
def test_exit_before_the_wait(run, start, way):
    child = start(*exiting(3))
    become_zombie(child.pid)
    assert run(way(child)) == 3


def test_groups(run, herd):
    pids = [herd.fork(0) for _ in range(MANY)]
    ended, alive = pids[: MANY // 2], pids[MANY // 2 :]

    async def main():
        assert await aio.wait_procs(pids, 0) == ([], pids)
        began = time.monotonic()
        assert await aio.wait_procs(pids, 0.05) == ([], pids)
        assert time.monotonic() - began >= 0.05
        waiting = await begun(aio.wait_procs(ended))
        end(ended)
        exited, left = await waiting
        assert sorted(exited) == [(pid, -signal.SIGTERM) for pid in sorted(ended)] and left == []
        seen = []
        end(alive[:1])
        async for one in aio.as_completed(alive):
            seen.append(one)
            end(alive[len(seen) :][:1])
        assert seen == [(pid, -signal.SIGTERM) for pid in alive]

    run(main())


@every_way
def test_one_of_several_is_cancelled(run, start_told, way):
    child = start_told(3)

    async def main():
        tasks = [await begun(way(child)) for _ in range(3)]
        assert await is_cancelled(tasks[1])
        child.stdin.close()
        return await tasks[0], await tasks[2]

    assert run(main()) == (3, 3)


@every_way
def test_the_last_wait_that_is_cancelled_leaves_nothing(run, sleeper, way):
    async def main():
        assert await is_cancelled(await begun(way(sleeper)))

    run(some_turns())  # from its first turn on, it has a few file descriptors more
    before = open_fds()
    run(main())
    run(some_turns())  # an iterator is freed later
    gc.collect()
    assert open_fds() == before


@every_way
def test_loop_that_is_closed_while_it_waits(variant, sleeper, way):
    gc.collect()
    before = open_fds()
    loop = uvloop.new_event_loop()
    messages = []
    loop.set_exception_handler(lambda loop, context: messages.append(context["message"]))

    async def main():
        await begun(way(sleeper))

    loop.run_until_complete(main())
    loop.close()
    gc.collect()
    assert open_fds() == before
    del loop
    eventually(lambda: (gc.collect(), messages)[1])
    assert messages == ["Task was destroyed but it is pending!"]


async def started(code):
    return await asyncio.create_subprocess_exec(*exiting(code, 0.01))


def test_its_own_subprocesses(run):
    """The loop reaps them, and its owner is told the code, too."""

    async def main():
        processes = [await started(code) for code in range(5)]
        exited, alive = await aio.wait_procs(processes)
        assert alive == []
        assert sorted(code for _, code in exited) == list(range(5))
        assert [await process.wait() for process in processes] == list(range(5))

    run(main())


def test_spawn(run):
    async def main():
        async with aio.spawn(exiting(3, 0.01)) as child:
            return await child.wait()

    assert run(main()) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(
    not hasattr(asyncio, "set_child_watcher"), reason="asyncio has no child watchers any more"
)
def test_child_watcher_is_not_asked(run):
    """uvloop waits for its subprocesses itself, whatever child watcher asyncio has."""
    asked = []

    class Noted(aio.ChildWatcher):
        def add_child_handler(self, pid, callback, *args):
            asked.append(pid)
            super().add_child_handler(pid, callback, *args)

    async def main():
        return await (await started(3)).wait()

    asyncio.set_child_watcher(Noted())
    try:
        assert run(main()) == 3
        assert asked == []
        # asyncio's own loop asks it.
        own = asyncio.new_event_loop()
        assert own.run_until_complete(main()) == 3
        own.close()
        assert len(asked) == 1
    finally:
        asyncio.set_child_watcher(None)
