# SPDX-License-Identifier: BSD-3-Clause
"""Waiting in asyncio's event loops on Windows: in both kinds of them, without a Python thread."""

import _thread
import asyncio
import gc
import importlib
import subprocess
import threading

import pytest

from . import pidwait
from .conftest import open_handles
from .processes import eventually, exiting, exiting_when_told, sleeping

aio = importlib.import_module(pidwait.__name__ + ".aio")
MANY = 70  # more than one WaitForMultipleObjects can take


@pytest.fixture(params=["ProactorEventLoop", "SelectorEventLoop"])
def loop(request):
    loop = getattr(asyncio, request.param)()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


def test_many_of_them(variant, loop, start_told):
    children = [start_told(number % 3) for number in range(MANY)]
    threads = threading.active_count(), _thread._count()

    async def main():
        waits = asyncio.gather(*[aio.wait(child) for child in children])
        await asyncio.sleep(0)
        for child in children:
            child.stdin.close()
        codes = await waits
        assert (threading.active_count(), _thread._count()) == threads
        return codes

    assert loop.run_until_complete(main()) == [number % 3 for number in range(MANY)]


def test_pid_of_anybody(variant, loop, start):
    child = start(*exiting(7))
    assert loop.run_until_complete(aio.wait(child.pid)) == 7
    assert loop.run_until_complete(aio.wait(child)) == 7


def test_wait_procs_and_as_completed(variant, loop, start, start_told):
    first, second, third = start_told(1), start_told(2), start(*sleeping(60))

    async def main():
        first.stdin.close()
        assert await aio.wait(first) == 1
        assert await aio.wait_procs([first, third], 0.01) == ([(first, 1)], [third])
        second.stdin.close()
        found = []
        async for proc, code in aio.as_completed([first, second]):
            found.append((proc, code))
        return sorted(code for _, code in found)

    assert loop.run_until_complete(main()) == [1, 2]


def test_cancelled_wait_leaves_the_others(variant, loop, start_told):
    child = start_told(3)

    async def main():
        tasks = [asyncio.ensure_future(aio.wait(child.pid)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        child.stdin.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    cancelled, *codes = loop.run_until_complete(main())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert codes == [3, 3]


def test_collecting_garbage_ends_no_wait(variant, loop, start_told):
    """Nothing but the loop refers to its engine, and on Windows no reader does."""
    child = start_told(3)

    async def main():
        waiting = asyncio.ensure_future(aio.wait(child))
        await asyncio.sleep(0)
        gc.collect()
        child.stdin.close()
        return await waiting

    assert loop.run_until_complete(main()) == 3


@pytest.mark.parametrize("name", ["ProactorEventLoop", "SelectorEventLoop"])
def test_nothing_is_left_of_a_loop_that_is_closed_while_it_waits(use_variant, name):
    use_variant("win32-ctypes")
    command = exiting_when_told(3)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:

        def wait_and_close():
            loop = getattr(asyncio, name)()
            task = loop.create_task(aio.wait(child.pid))
            task._log_destroy_pending = False
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()

        wait_and_close()
        gc.collect()
        before = len(open_handles())
        wait_and_close()
        eventually(lambda: gc.collect() is not None and len(open_handles()) <= before)
        child.stdin.close()


def test_spawn(variant, loop):
    async def main():
        async with aio.spawn(exiting(5)) as child:
            return await child.wait()

    assert loop.run_until_complete(main()) == 5
