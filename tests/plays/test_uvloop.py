# SPDX-License-Identifier: BSD-3-Clause
"""Waiting in uvloop's event loop, which has handles, timers and subprocesses of its own.

The tests of asyncio's loop that use no more than any loop has run in this one, too.
"""

import asyncio
import gc

import pytest
import uvloop

from ..asyncio.loops import aio, begun, every_way, is_cancelled, some_turns
from ..asyncio.test_groups import (  # noqa: F401
    test_a_herd,
    test_alive_is_in_the_order_given,
    test_an_iteration_goes_on_after_a_cancelled_step,
    test_exited_is_in_the_order_of_exit,
    test_exits_come_as_the_processes_exit,
    test_what_has_exited_is_found_at_once,
)
from ..asyncio.test_wait import (  # noqa: F401
    test_a_process_that_has_exited_before_the_wait,
    test_a_thousand_waits_take_no_thread,
    test_an_exit_and_a_cancel_at_the_same_time,
    test_other_waits_for_the_same_process_go_on,
    test_the_exit_code_comes_once_the_process_exits,
)
from ..conftest import open_fds
from ..processes import eventually, exiting


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
