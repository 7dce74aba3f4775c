# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's event loops for the tests, and the ways to wait in them for one process."""

import asyncio
import concurrent.futures
import gc
import importlib

import pytest

from .. import pidwait

aio = importlib.import_module(pidwait.__name__ + ".aio")


def all_tasks(loop):
    if hasattr(asyncio, "all_tasks"):
        return asyncio.all_tasks(loop)
    while True:
        try:
            return asyncio.Task.all_tasks(loop)
        except RuntimeError:  # Python 3.6: another thread has made a task meanwhile
            continue


class Blind(asyncio.SelectorEventLoop):
    """Like Windows' proactor: it can't watch a file descriptor."""

    def add_reader(self, fd, callback, *args):
        raise NotImplementedError

    def remove_reader(self, fd):
        raise NotImplementedError


async def by_wait(proc):
    return await aio.wait(proc)


async def by_wait_procs(proc):
    exited, alive = await aio.wait_procs([proc], 100)
    ((found, code),) = exited
    assert found is proc and alive == []
    return code


async def by_as_completed(proc):
    ((found, code),) = await seen_in(aio.as_completed([proc]))
    assert found is proc
    return code


WAYS = [by_wait, by_wait_procs, by_as_completed]
every_way = pytest.mark.parametrize("way", WAYS)


async def seen_in(completed):
    return [one async for one in completed]


async def gathered(coroutines):
    return await asyncio.gather(*coroutines)


async def some_turns(number=5):
    for _ in range(number):
        await asyncio.sleep(0)


async def begun(coroutine, turns=5):
    """A task of it, which waits by now."""
    task = asyncio.ensure_future(coroutine)
    await some_turns(turns)
    assert not task.done(), task
    return task


async def ended(way, proc, end, turns=5):
    """The exit code of a process that ends once it is waited for."""
    task = await begun(way(proc), turns)
    end()
    return await task


async def is_cancelled(task):
    """Cancel the task, and wait for its end; return whether it says that it was cancelled."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


def readers(loop):
    """What the loop watches, but for its own end of a socketpair."""
    if not hasattr(loop._selector, "get_map"):
        return []  # Windows' proactor watches none
    own = loop._ssock.fileno()
    return [key.fd for key in loop._selector.get_map().values() if key.fd != own]


def timers(loop):
    """What the loop calls now or later, but for its own methods."""
    handles = [one for one in list(loop._ready) + loop._scheduled if not one._cancelled]
    return [one for one in handles if getattr(one._callback, "__self__", None) is not loop]


def nothing_left_in(loop):
    """Check that the loop has nothing to do, once it has had a few turns."""
    for _ in range(4):
        loop.run_until_complete(some_turns())
        tasks = [task for task in all_tasks(loop) if not task.done()]
        left = readers(loop), timers(loop), tasks
        if not any(left):
            return
        gc.collect()  # PyPy frees an iterator later
    raise AssertionError(left)


def run_in(loop, coroutine):
    """Run it in the loop, and close that; its result."""
    try:
        result = loop.run_until_complete(coroutine)
        nothing_left_in(loop)
        return result
    finally:
        loop.close()


def in_threads(function, arguments):
    """What function(argument) returns, in a thread for each argument."""
    with concurrent.futures.ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(function, arguments))


@pytest.fixture
def loop():
    """An event loop; a test fails that leaves something in it, or in which a callback raises."""
    loop, contexts = asyncio.new_event_loop(), []
    loop.set_exception_handler(lambda loop, context: contexts.append(context))
    yield loop
    if not loop.is_closed():
        run_in(loop, some_turns())
    assert contexts == []


@pytest.fixture
def run(loop):
    """run(coroutine) runs it in the loop; returns its result."""
    return loop.run_until_complete
