# SPDX-License-Identifier: BSD-3-Clause
"""Signal handlers that raise while an event loop waits: each wait is still told, once."""

import asyncio
import signal
import sys

import pytest

from .faults import at_line
from .loops import aio, all_tasks, nothing_left_in, seen_in, turns, until_watched
from .processes import OnPurpose, become_zombie, exiting
from .test_engine import FILES, locks  # noqa: F401

FILES += "aio.py", "_loops.py"
# PyPy takes ten times as long to trace a line.
STEP = 5 if sys.implementation.name == "pypy" else 1


def end(loop, task):
    """The result of the task, which goes on where it was; None if the exception has ended it."""
    if not task.done():
        loop.run_until_complete(asyncio.wait([task], timeout=20))
    assert task.done()
    return None if task.exception() is not None else task.result()


@pytest.fixture
def handled(loop):
    """What the loop's exception handler was called with: what a callback of it has raised."""
    handled = []
    loop.set_exception_handler(lambda loop, context: handled.append(context.get("exception")))
    return handled


@pytest.mark.timeout(900)  # three waits for each line
@pytest.mark.parametrize("error", [KeyboardInterrupt, OnPurpose])
def test_interrupted_at_any_line(either, locks, loop, handled, start, error):  # noqa: F811
    """The exception ends the wait that runs, or comes out of the loop; the others go on."""
    child = start(*exiting(7))
    become_zombie(child.pid)
    pid = child.pid

    def interrupt():
        raise error("on purpose")

    async def iterate():
        return await seen_in(aio.as_completed([pid]))

    number, reached = 1 - STEP, True
    while reached:
        number += STEP
        tasks = [loop.create_task(one) for one in (aio.wait(pid), aio.wait_procs([pid]), iterate())]
        expected = [7, ([(pid, 7)], []), [(pid, 7)]]
        raised = []
        with at_line(number, interrupt, FILES) as line:
            for task in tasks:
                try:
                    loop.run_until_complete(asyncio.wait([task], timeout=20))
                except KeyboardInterrupt as caught:
                    raised.append(caught)
        raised += [task.exception() for task in tasks if task.done() and task.exception()]
        results = [end(loop, task) for task in tasks]
        told = [result for result in results if result is not None]
        assert told == [one for one in expected if one in told], line.where
        assert len(told) >= 2, line.where
        reached = line.reached
        assert len(told) == 3 or raised
        assert bool(raised or handled) is reached, line.where
        # Each look at the exception keeps a frame alive.
        del raised, tasks, results, task
        del handled[:]
        turns(loop)
    nothing_left_in(loop)
    assert number > 50


@pytest.mark.parametrize("error", [KeyboardInterrupt, OnPurpose])
def test_interrupted_as_a_timer_begins(use_variant, no_events, loop, handled, start_told, error):
    """The loop has dropped that timer already: what is polled must not stay without one."""
    use_variant("polling")
    child = start_told(3)
    for number in 1, 2, 3:
        task = loop.create_task(aio.wait(child.pid))
        turns(loop)

        def interrupt():
            raise error

        try:
            with at_line(number, interrupt, ["_loops.py"]) as line:
                while not line.reached:
                    pause = loop.create_task(asyncio.sleep(0.1))
                    loop.run_until_complete(pause)
        except KeyboardInterrupt:
            pass
        loop.run_until_complete(pause)
        if number == 3:
            child.stdin.close()
            assert end(loop, task) == 3
        else:
            loop.run_until_complete(asyncio.sleep(0))
            task.cancel()
            turns(loop)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OnPurpose])
def test_handler_that_raises_while_the_loop_sleeps(
    variant, loop, handled, start_told, no_garbage, error
):
    """Or while it looks at what is polled: then the exception goes to its exception handler."""
    child = start_told(3)
    raised = []

    def handler(*arguments):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise error

    old = signal.signal(signal.SIGALRM, handler)
    try:
        tasks = [loop.create_task(one) for one in (aio.wait(child), aio.wait_procs([child]))]
        loop.run_until_complete(until_watched(child))
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            while not (raised or handled):
                loop.run_until_complete(asyncio.sleep(0.2))
        except error as caught:
            raised.append(caught)
        assert [type(one) for one in raised + handled] == [error]
        child.stdin.close()
        assert loop.run_until_complete(tasks[0]) == 3
        assert loop.run_until_complete(tasks[1]) == ([(child, 3)], [])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    for task in all_tasks(loop):
        task.cancel()  # the sleep, which has not gone on
    turns(loop)
