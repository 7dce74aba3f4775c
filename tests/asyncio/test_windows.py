# SPDX-License-Identifier: BSD-3-Clause
"""The event loops of Windows: one can watch no file descriptors, the other one only sockets."""

import asyncio
import gc
import threading

import pytest

from ..processes import become_gone, sleeping
from .loops import WAYS, aio, begun, gathered, is_cancelled, run_in, some_turns

pytestmark = pytest.mark.windows
LOOPS = ["ProactorEventLoop", "SelectorEventLoop"]


@pytest.fixture(params=LOOPS)
def loop(request):
    loop = getattr(asyncio, request.param)()
    yield loop
    run_in(loop, some_turns())


def test_many_waits_take_one_thread(variant, run, start_told):
    """That of watch(), as these loops can't watch a HANDLE."""
    children = [start_told(code) for code in (1, 2, 3)]
    before = threading.active_count()

    async def main():
        waits = [await begun(way(child)) for way in WAYS for child in children]
        assert await is_cancelled(waits.pop())
        assert threading.active_count() <= before + 1
        gc.collect()  # only the loop refers to what waits
        for child in children:
            child.stdin.close()
        return await gathered(waits)

    assert run(main()) == [1, 2, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_is_closed_while_it_waits_leaves_no_handle(variant, start, name):
    def wait_and_close():
        child = aio.spawn(sleeping(60))
        loop = getattr(asyncio, name)()
        task = loop.run_until_complete(begun(aio.wait(child.pid)))
        task._log_destroy_pending = False
        loop.close()
        child.kill()
        child.close()
        return child.pid

    pid = wait_and_close()
    gc.collect()
    become_gone(pid)  # which it is once nobody has a handle any more
