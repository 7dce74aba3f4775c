# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's event loops for the tests, and the ways to wait in them for one process."""

import asyncio
import gc
import importlib

import pytest

from .. import pidwait

aio = importlib.import_module(pidwait.__name__ + ".aio")

all_tasks = getattr(asyncio, "all_tasks", None) or asyncio.Task.all_tasks


class Blind(asyncio.SelectorEventLoop):
    """Like Windows' proactor: it can't watch a file descriptor."""

    def add_reader(self, fd, callback, *args):
        raise NotImplementedError

    def remove_reader(self, fd):
        raise NotImplementedError


async def by_wait(proc):
    return await aio.wait(proc)


async def by_wait_procs(proc):
    exited, alive = await aio.wait_procs([proc], 20)
    assert alive == []
    ((found, code),) = exited
    assert found is proc
    return code


async def by_as_completed(proc):
    codes = []
    async for found, code in aio.as_completed([proc]):
        assert found is proc
        codes.append(code)
    (code,) = codes
    return code


WAYS = [by_wait, by_wait_procs, by_as_completed]
every_way = pytest.mark.parametrize("way", WAYS)


async def gathered(coroutines):
    return await asyncio.gather(*coroutines)


async def seen_in(completed):
    return [one async for one in completed]


def readers(loop):
    """What the loop watches, but for its own end of a socketpair."""
    own = loop._ssock.fileno()
    return [key.fd for key in loop._selector.get_map().values() if key.fd != own]


def timers(loop):
    handles = list(loop._ready) + loop._scheduled
    return [handle for handle in handles if not getattr(handle, "_cancelled", False)]


def turns(loop, number=3):
    for _ in range(number):
        loop.run_until_complete(asyncio.sleep(0))


def left_in(loop):
    """What the loop still has to do, once it has had a few turns."""
    turns(loop)
    for _ in range(3):
        if readers(loop) or timers(loop):  # PyPy frees an iterator later
            gc.collect()
            turns(loop)
    left = {"readers": readers(loop), "timers": timers(loop)}
    left["tasks"] = [task for task in all_tasks(loop) if not task.done()]
    return {name: what for name, what in left.items() if what}


def nothing_left_in(loop):
    left = left_in(loop)
    assert left == {}, left


@pytest.fixture
def loop():
    """An event loop; a test that leaves something in it fails."""
    loop = asyncio.new_event_loop()
    yield loop
    if not loop.is_closed():
        try:
            nothing_left_in(loop)
        finally:
            loop.close()


@pytest.fixture
def run(loop):
    """run(coroutine) runs it in the loop; returns its result."""
    return loop.run_until_complete
