# SPDX-License-Identifier: BSD-3-Clause
"""Waiting in asyncio's event loops: wait, wait_procs, as_completed."""

import asyncio
import os
import signal
import time
from types import SimpleNamespace

import pytest

from .loops import aio, engine_of, every_way, gathered, seen_in, until_watched, waits_for
from .processes import HERD, become_zombie, exiting, gone_pid, state

FOREVER = (None, float("inf"), 1e300, 10**400)


# One process


@every_way
@pytest.mark.parametrize("code", [0, 3, 255, -9])
def test_exit_while_it_is_waited_for(variant, run, start_told, way, code):
    child = start_told(code)

    async def main():
        waiting = asyncio.ensure_future(way(child.pid))
        await until_watched(child)
        child.stdin.close()
        return await waiting

    assert run(main()) == code
    assert state(child.pid) == "Z"  # a pid is never reaped


@every_way
def test_exit_before_the_wait(variant, run, start, way):
    child = start(*exiting(3))
    become_zombie(child.pid)
    assert run(way(child.pid)) == 3
    assert run(way(child)) == 3 == child.returncode
    assert run(way(child)) == 3  # it knows its code


@every_way
def test_exit_right_after_the_registration(variant, run, start_told, way):
    """It is a zombie before the loop gets to look."""
    child = start_told(3)

    async def main():
        waiting = asyncio.ensure_future(way(child))
        await asyncio.sleep(0)
        child.stdin.close()
        become_zombie(child.pid)
        return await waiting

    assert run(main()) == 3


@every_way
def test_pid_that_is_gone(variant, run, way):
    assert run(way(gone_pid())) is None


@every_way
def test_process_that_exits_at_any_moment(variant, run, herd, way):
    async def main():
        for number in range(20):
            pid = herd.fork(number, after=number / 10000.0)
            assert await way(pid) == number

    run(main())


def test_loop_goes_on_meanwhile(variant, run, start_told):
    child = start_told(3)

    async def main():
        waiting = asyncio.ensure_future(aio.wait(child))
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert not waiting.done()
        child.stdin.close()
        return await waiting

    assert run(main()) == 3


BAD = [(0, ValueError, "positive"), (-1, ValueError, "positive"), (2**31, ValueError, "at most")]
BAD += [(True, TypeError, "bool"), (1.5, TypeError, "float"), ("1", TypeError, "str")]
BAD += [(None, TypeError, "NoneType"), ([1], TypeError, "wait_procs")]


@pytest.mark.parametrize("proc, error, text", BAD, ids=[repr(one[0]) for one in BAD])
def test_bad_process(variant, loop, proc, error, text):
    """The coroutine raises, and not the call; nothing is left, also by the good one beside it."""
    coroutine = aio.wait(proc)
    with pytest.raises(error, match="proc must.*" + text):
        loop.run_until_complete(coroutine)
    coroutine = aio.wait_procs([os.getpid(), proc])
    with pytest.raises(error, match="proc must.*" + text):
        loop.run_until_complete(coroutine)

    async def iterate():
        aio.as_completed([os.getpid(), proc])

    with pytest.raises(error, match="proc must.*" + text):
        loop.run_until_complete(iterate())
    assert engine_of(loop) is None


def test_process_that_was_not_started(run):
    class NotStarted:
        pid = None

    with pytest.raises(ValueError, match="has not been started"):
        run(aio.wait(NotStarted()))


def test_outside_of_a_loop():
    with pytest.raises(RuntimeError):
        asyncio.set_event_loop(None)
        aio.as_completed([os.getpid()])


# wait_procs


def test_wait_procs(variant, run, start, sleeper):
    children = [start(*exiting(code, 0.05 * code)) for code in (1, 2, 3)]
    exited, alive = run(aio.wait_procs(children, 60))
    assert sorted(exited, key=lambda one: one[1]) == list(zip(children, (1, 2, 3)))
    assert alive == []
    assert [child.returncode for child in children] == [1, 2, 3]
    exited, alive = run(aio.wait_procs([sleeper] + children, 0.01))
    assert exited == list(zip(children, (1, 2, 3)))
    assert alive == [sleeper]
    assert sleeper.returncode is None


def test_in_the_order_of_exit(variant, run, herd):
    """Each process is ended once another task has been told of the one before it."""
    pids = [herd.fork(0) for _ in range(5)]

    async def end():
        for pid in pids[::-1]:
            os.kill(pid, signal.SIGTERM)
            await aio.wait(pid)

    async def main():
        waiting = asyncio.ensure_future(aio.wait_procs(pids))
        await until_watched(*pids)
        await end()
        return await waiting

    assert run(main()) == ([(pid, -signal.SIGTERM) for pid in pids[::-1]], [])


def test_no_processes(variant, run):
    assert run(aio.wait_procs([])) == ([], [])
    assert run(aio.wait_procs(iter(()), timeout=0)) == ([], [])

    async def main():
        async for _ in aio.as_completed([]):
            raise AssertionError("there was none")

    run(main())


@pytest.mark.parametrize("timeout", [0, -1, -0.0, float("-inf"), 0.01])
def test_alive_in_the_order_given(variant, run, herd, timeout):
    pids = [herd.fork(0) for _ in range(5)]
    assert run(aio.wait_procs(pids[::-1], timeout)) == ([], pids[::-1])


def test_time_out_is_not_cut_short(variant, run, sleeper):
    began = time.monotonic()
    assert run(aio.wait_procs([sleeper.pid], 0.1)) == ([], [sleeper.pid])
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("timeout", FOREVER, ids=["None", "inf", "1e300", "10**400"])
def test_long_time_out(variant, run, start, timeout):
    child = start(*exiting(3, 0.01))
    assert run(aio.wait_procs([child], timeout)) == ([(child, 3)], [])


def test_bad_time_out(run):
    with pytest.raises(ValueError, match="timeout must not be NaN"):
        run(aio.wait_procs([os.getpid()], float("nan")))
    for timeout in "1", 1j, [1]:
        with pytest.raises(TypeError, match="timeout must be a number"):
            run(aio.wait_procs([os.getpid()], timeout))


def test_what_has_exited_is_found_at_once(variant, run, start, sleeper):
    done = start(*exiting(5))
    done.wait()
    zombie = start(*exiting(6))
    become_zombie(zombie.pid)
    gone = gone_pid()
    exited, alive = run(aio.wait_procs([done, sleeper, gone, zombie.pid], timeout=0))
    assert sorted(exited, key=str) == sorted([(done, 5), (gone, None), (zombie.pid, 6)], key=str)
    assert alive == [sleeper]


def test_more_zombies_than_one_look_brings(variant, run, herd):
    """The pidfd set's epoll tells 256 at a time."""
    zombies = [herd.fork(3, after=0) for _ in range(20)]
    for pid in zombies:
        become_zombie(pid)
    given = [SimpleNamespace(pid=pid) for pid in zombies for _ in range(15)]
    exited, alive = run(aio.wait_procs(given, 0))
    assert [code for _, code in exited] == [3] * 300 and alive == []


def test_given_twice(variant, run, start, sleeper):
    child = start(*exiting(3))
    become_zombie(child.pid)
    given = [child, sleeper, child, sleeper.pid, sleeper.pid, child]
    exited, alive = run(aio.wait_procs(given, 0.01))
    assert exited == [(child, 3)] * 3
    assert alive == [sleeper, sleeper.pid, sleeper.pid]


def test_given_twice_is_waited_for_once(variant, loop, run, sleeper):
    async def main():
        waiting = asyncio.ensure_future(aio.wait_procs([sleeper.pid] * 3))
        await until_watched(sleeper)
        count = waits_for(loop)
        sleeper.kill()
        return count, await waiting

    assert run(main()) == (1, ([(sleeper.pid, -9)] * 3, []))


def test_unhashable(variant, run, start, sleeper):
    class Job:
        __hash__ = None

        def __init__(self, pid):
            self.pid = pid

        def __eq__(self, other):
            return True

    one, other = Job(start(*exiting(3)).pid), Job(sleeper.pid)
    become_zombie(one.pid)
    exited, alive = run(aio.wait_procs([one, other, one], 0.01))
    assert [(proc is one, code) for proc, code in exited] == [(True, 3)] * 2
    assert len(alive) == 1 and alive[0] is other


def test_herd(variant, run, herd):
    """They exit at once, later or never: none is told twice or lost, all codes are right."""
    codes = {herd.fork(number, after=number % 5 / 50.0): number for number in range(HERD)}
    alive = [herd.fork(0) for _ in range(3)]

    async def main():
        whole = asyncio.ensure_future(aio.wait_procs(list(codes) + alive))
        one_by_one = await gathered(map(aio.wait, codes))
        seen = await seen_in(aio.as_completed(codes))
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        return one_by_one, seen, await whole

    one_by_one, seen, (exited, left) = run(main())
    assert one_by_one == list(codes.values())
    assert sorted(seen) == sorted(codes.items())
    assert sorted(exited[:-3]) == sorted(codes.items())
    assert sorted(exited[-3:]) == sorted((pid, -9) for pid in alive) and left == []
