# SPDX-License-Identifier: BSD-3-Clause
"""Waiting in uvloop's event loop, which has handles, timers and subprocesses of its own."""

import _thread
import asyncio
import gc
import os
import signal
import time
import weakref

import pytest
import uvloop

from ..conftest import open_fds
from ..loops import aio, engine_of, every_way, gathered, seen_in, turns, until_watched, waits_for
from ..processes import become_zombie, eventually, exiting

MANY = 50


@pytest.fixture(scope="module", autouse=True)
def first_loop():
    """libuv opens a pipe for signals with the first loop, and keeps it."""
    uvloop.new_event_loop().close()


@pytest.fixture
def loop(either):
    """Its engine goes with the last wait, and leaves no timer."""
    loop = uvloop.new_event_loop()
    yield loop
    if not loop.is_closed():
        turns(loop)
        left = engine_of(loop)
        loop.close()
        assert left is None


def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGTERM)


def test_many_waits_at_once(loop, run, herd):
    """They exit at once or later: all codes are right."""
    codes = {herd.fork(code, after=code % 5 / 50.0): code for code in range(MANY)}

    async def main():
        threads = _thread._count()
        waits = [asyncio.ensure_future(aio.wait(pid)) for pid in codes]
        assert await gathered(waits) == list(codes.values())
        assert _thread._count() == threads

    run(main())


@every_way
def test_exit_while_it_is_waited_for(loop, run, start_told, way):
    child = start_told(3)

    async def main():
        waiting = asyncio.ensure_future(way(child))
        await until_watched(child)
        child.stdin.close()
        return await waiting

    assert run(main()) == 3 == child.returncode


@every_way
def test_exit_before_the_wait(loop, run, start, way):
    child = start(*exiting(3))
    become_zombie(child.pid)
    assert run(way(child)) == 3


def test_wait_procs(loop, run, herd):
    pids = [herd.fork(0) for _ in range(MANY)]
    ended, alive = pids[: MANY // 2], pids[MANY // 2 :]

    async def main():
        assert await aio.wait_procs(pids, 0) == ([], pids)
        began = time.monotonic()
        assert await aio.wait_procs(pids, 0.05) == ([], pids)
        assert time.monotonic() - began >= 0.05
        waiting = asyncio.ensure_future(aio.wait_procs(ended))
        await until_watched(*ended)
        end(ended)
        exited, left = await waiting
        assert sorted(exited) == [(pid, -signal.SIGTERM) for pid in sorted(ended)] and left == []
        exited, left = await aio.wait_procs(pids, 0.01)
        assert sorted(pid for pid, _ in exited) == sorted(ended) and left == alive

    run(main())


def test_as_completed(loop, run, herd):
    """Each is ended once the one before it has been told."""
    pids = [herd.fork(0) for _ in range(5)]

    async def main():
        seen = []
        completed = aio.as_completed(pids)
        end(pids[:1])
        async for one in completed:
            seen.append(one)
            end(pids[len(seen) :][:1])
        assert seen == [(pid, -signal.SIGTERM) for pid in pids]
        assert sorted(await seen_in(aio.as_completed(pids))) == sorted(seen)

    run(main())


@every_way
def test_one_of_several_is_cancelled(loop, run, start_told, way):
    child = start_told(3)

    async def main():
        tasks = [asyncio.ensure_future(way(child)) for _ in range(3)]
        while waits_for(loop) < 3:
            await asyncio.sleep(0)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        child.stdin.close()
        return await tasks[0], await tasks[2]

    assert run(main()) == (3, 3)


@every_way
def test_last_wait_is_cancelled(loop, run, sleeper, way):
    """The engine is freed: the loop has neither its reader nor its timers any more."""

    async def main():
        task = asyncio.ensure_future(way(sleeper))
        await until_watched(sleeper)
        engine = engine_of(loop)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return weakref.ref(engine)

    turns(loop)  # from its first turn on, it has a few file descriptors more
    before = open_fds()
    engine = run(main())
    turns(loop)  # an iterator is freed later
    gc.collect()
    assert engine() is None
    assert open_fds() == before


def test_engine_lives_while_only_the_loop_refers_to_it(loop, run, start_told):
    """The engine refers to its timers weakly, and uvloop's own handles allow that."""
    child = start_told(3)

    async def main():
        waiting = asyncio.ensure_future(aio.wait(child))
        await until_watched(child)
        gc.collect()
        await asyncio.sleep(0.05)
        gc.collect()
        child.stdin.close()
        return await waiting

    assert run(main()) == 3


@every_way
def test_loop_that_is_closed_while_it_waits(either, sleeper, way):
    gc.collect()
    before = open_fds()
    loop = uvloop.new_event_loop()
    messages = []
    loop.set_exception_handler(lambda loop, context: messages.append(context["message"]))

    async def main():
        task = asyncio.ensure_future(way(sleeper))
        await until_watched(sleeper)
        del task

    loop.run_until_complete(main())
    loop.close()
    gc.collect()
    assert open_fds() == before
    assert engine_of(loop) is None
    del loop
    eventually(lambda: (gc.collect(), messages)[1])
    assert messages == ["Task was destroyed but it is pending!"]


# Children of its own, and ours


async def started(code):
    return await asyncio.create_subprocess_exec(*exiting(code, 0.01))


def test_its_own_subprocesses(loop, run):
    """The loop reaps them, and its owner is told the code, too."""

    async def main():
        processes = [await started(code) for code in range(5)]
        exited, alive = await aio.wait_procs(processes)
        assert alive == []
        assert sorted(code for _, code in exited) == list(range(5))
        assert [await process.wait() for process in processes] == list(range(5))

    run(main())


def test_spawn(loop, run):
    async def main():
        async with aio.spawn(exiting(3, 0.01)) as child:
            return await child.wait()

    assert run(main()) == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(
    not hasattr(asyncio, "set_child_watcher"), reason="asyncio has no child watchers any more"
)
def test_child_watcher_is_not_asked(loop, run):
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
