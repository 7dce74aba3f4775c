# SPDX-License-Identifier: BSD-3-Clause
"""aio.wait_procs() and aio.as_completed(): waiting for many processes in an event loop."""

import asyncio
import os
import signal
import time
from types import SimpleNamespace

import pytest

from ..processes import HERD, Job, become_zombie, gone_pid
from .loops import aio, begun, gathered, is_cancelled, nothing_left_in, seen_in

pytestmark = pytest.mark.kqueue
FOREVER = [None, float("inf"), 1e300, 10**400]
OVER = [0, -1, -0.0, float("-inf"), 0.01]


@pytest.mark.parametrize("timeout", FOREVER, ids=["None", "inf", "1e300", "10**400"])
def test_exited_is_in_the_order_of_exit(variant, run, herd, timeout):
    """Each process is ended once another task has seen the exit of the one before it."""
    pids = [herd.fork(0) for _ in range(5)]

    async def main():
        waiting = await begun(aio.wait_procs(pids, timeout))
        for pid in pids[::-1]:
            os.kill(pid, signal.SIGTERM)
            await aio.wait(pid)
        return await waiting

    assert run(main()) == ([(pid, -signal.SIGTERM) for pid in pids[::-1]], [])


@pytest.mark.parametrize("is_pid", [False, True])
def test_what_had_exited_before_the_call_is_first(variant, run, zombie, start_told, is_pid):
    """The other one exits before the loop looks for the first time."""
    done, child = zombie(3), start_told(4)
    procs = [done, child.pid if is_pid else child]

    async def main():
        waiting = asyncio.ensure_future(aio.wait_procs(procs))
        await asyncio.sleep(0)
        child.stdin.close()
        become_zombie(child.pid)
        return await waiting

    assert run(main()) == (list(zip(procs, (3, 4))), [])


def test_a_pid_beside_its_popen_that_had_exited(variant, run, zombie):
    """The Popen's reaping must not take the code from the pid."""
    done = zombie(3)
    exited, alive = run(aio.wait_procs([done, done.pid]))
    assert [code for _, code in exited] == [3, 3] and alive == []


@pytest.mark.parametrize("timeout", [0, 0.001])
def test_a_code_that_the_loop_has_yet_to_report(variant, run, timeout):
    """A busy loop gets its turns for it, however long these take."""
    proc = SimpleNamespace(pid=gone_pid(), returncode=None)

    async def main():
        loop = asyncio.get_event_loop()

        def be_busy(turns):
            time.sleep(0.03)
            if turns:
                loop.call_soon(be_busy, turns - 1)
            else:
                proc.returncode = 3

        loop.call_soon(be_busy, 5)
        return await aio.wait_procs([proc], timeout)

    assert run(main()) == ([(proc, 3)], [])


def test_a_code_that_only_the_popen_inside_has(variant, run, zombie):
    """tornado's Subprocess has one, for which a program may wait itself."""
    child = zombie(3)
    proc = SimpleNamespace(pid=child.pid, returncode=None, proc=child)
    child.wait()
    assert run(aio.wait_procs([proc], 0)) == ([(proc, 3)], [])


def test_a_code_that_no_loop_reports(variant, run):
    proc = SimpleNamespace(pid=gone_pid(), returncode=None)
    began = time.monotonic()
    assert run(aio.wait_procs([proc], 0)) == ([(proc, None)], [])
    assert time.monotonic() - began >= 0.01


@pytest.mark.parametrize("timeout", OVER)
def test_alive_is_in_the_order_given(variant, run, herd, timeout):
    pids = [herd.fork(0) for _ in range(5)]
    assert run(aio.wait_procs(pids[::-1], timeout)) == ([], pids[::-1])


@pytest.mark.windows
def test_a_time_out_is_not_cut_short(variant, run, sleeper):
    began = time.monotonic()
    assert run(aio.wait_procs([sleeper.pid], 0.1)) == ([], [sleeper.pid])
    assert time.monotonic() - began >= 0.1


def test_an_exit_right_before_the_time_is_up_is_found(variant, run, start_told, seam):

    async def main(child):
        began = time.monotonic()
        waiting = asyncio.ensure_future(aio.wait_procs([child], 0.16))
        await asyncio.sleep(0)
        await asyncio.sleep(began + 0.15 - time.monotonic())
        child.stdin.close()
        become_zombie(child.pid)  # the loop does not run meanwhile
        is_late = waiting.done()
        return is_late or await waiting

    for _ in range(3):
        child = start_told(3)
        assert run(main(child)) in (True, ([(child, 3)], []))


class NeverReaped:
    """A Popen of a zombie that something else keeps from being reaped; it counts the looks."""

    returncode = None
    looks = 0

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        self.looks += 1


def test_the_end_of_one_wait_takes_no_look_at_what_others_poll(variant, run, zombie, sleeper):
    """Else a thousand waits that time out together would block the loop for seconds."""
    other = NeverReaped(zombie(0).pid)

    async def main():
        waiting = await begun(aio.wait(other))
        before = other.looks
        for _ in range(200):
            assert await aio.wait_procs([sleeper.pid], 0) == ([], [sleeper.pid])
        assert other.looks - before < 100
        assert await is_cancelled(waiting)

    run(main())


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_what_has_exited_is_found_at_once(variant, run, zombie, sleeper, timeout):
    done, pid, popen, gone = zombie(5), zombie(6).pid, zombie(7), gone_pid()
    done.wait()
    exited, alive = run(aio.wait_procs([done, sleeper, gone, pid, popen], timeout))
    assert dict(exited) == {done: 5, gone: None, pid: 6, popen: 7}
    assert len(exited) == 4 and alive == [sleeper]
    assert popen.returncode == 7 and sleeper.returncode is None


def test_more_zombies_than_one_look_brings(variant, run, herd):
    zombies = [herd.fork(3, after=0) for _ in range(20)]
    for pid in zombies:
        become_zombie(pid)
    given = [SimpleNamespace(pid=pid) for pid in zombies for _ in range(15)]
    exited, alive = run(aio.wait_procs(given, 0))
    assert [code for _, code in exited] == [3] * 300 and alive == []


def test_no_processes(variant, run):
    assert run(aio.wait_procs([])) == run(aio.wait_procs(iter(()), timeout=0)) == ([], [])

    async def main():
        return await seen_in(aio.as_completed([]))

    assert run(main()) == []


def test_what_was_given_twice_is_reported_twice(variant, run, zombie, sleeper):
    child = zombie(3)
    one, other = Job(child.pid), Job(sleeper.pid)
    exited, alive = run(aio.wait_procs([one, other, one, other], 0.01))
    assert [(proc is one, code) for proc, code in exited] == [(True, 3)] * 2
    assert [proc is other for proc in alive] == [True] * 2
    given = [child, sleeper, child.pid, child, sleeper.pid, sleeper]
    exited, alive = run(aio.wait_procs(given, 0.01))
    assert sorted(exited, key=str) == sorted([(child, 3), (child, 3), (child.pid, 3)], key=str)
    assert alive == [sleeper, sleeper.pid, sleeper]

    async def main():
        return await seen_in(aio.as_completed([child, child]))

    assert run(main()) == [(child, 3)] * 2


def test_a_herd(variant, run, herd):
    """They exit at once, later or never: none is reported twice or lost, all codes are right."""
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
    assert sorted(seen) == sorted(exited[:-3]) == sorted(codes.items())
    assert sorted(exited[-3:]) == sorted((pid, -9) for pid in alive) and left == []


@pytest.mark.windows
def test_what_can_not_be_waited_for_is_refused(run):
    """Nothing is left of the wait for the good one beside it."""
    me = os.getpid()

    async def iterate():
        return aio.as_completed([me, 0])

    for coroutine in aio.wait_procs([me, 0]), iterate(), aio.wait_procs([me], float("nan")):
        with pytest.raises(ValueError):
            run(coroutine)
    for timeout in "1", 1j, [1]:
        with pytest.raises(TypeError):
            run(aio.wait_procs([me], timeout))
    asyncio.set_event_loop(None)
    with pytest.raises(RuntimeError):  # no loop is running
        aio.as_completed([me])


# as_completed


@pytest.mark.windows
def test_exits_come_as_the_processes_exit(variant, run, start_told):
    """Each is ended once the one before it has been reported."""
    children = [start_told(code) for code in (1, 2, 3)]

    async def main():
        left, seen = children[:], []
        completed = aio.as_completed(children)
        left.pop().stdin.close()
        async for one in completed:
            seen.append(one)
            if left:
                left.pop().stdin.close()
        assert await seen_in(completed) == []  # it stays at its end
        return seen

    assert run(main()) == list(zip(children, (1, 2, 3)))[::-1]
    assert [child.returncode for child in children] == [1, 2, 3]


def test_processes_are_watched_from_the_call_on(variant, run, start_told):
    """This one is gone before the iteration, so that only an earlier watch knows the code."""
    child = start_told(7)

    async def main():
        completed = aio.as_completed([child.pid])
        child.stdin.close()
        become_zombie(child.pid)
        await asyncio.sleep(0.05)
        assert await aio.wait(child) == 7  # reaps it
        return await seen_in(completed)

    assert run(main()) == [(child.pid, 7)]


def test_an_iteration_that_is_left_early_leaves_nothing_in_the_loop(variant, loop, run, herd):
    child, sleeping = herd.fork(3, after=0), herd.fork(0)

    async def main():
        aio.as_completed([sleeping])  # never used
        async for one in aio.as_completed([child, sleeping]):
            assert one == (child, 3)
            break

    run(main())
    nothing_left_in(loop)


def test_two_tasks_can_not_share_an_iterator(variant, run, start_told):
    child = start_told(3)

    async def main():
        completed = aio.as_completed([child])
        first = await begun(completed.__anext__())
        with pytest.raises(RuntimeError, match="another task is waiting"):
            await completed.__anext__()
        child.stdin.close()
        return await first

    assert run(main()) == (child, 3)


def test_an_iteration_goes_on_after_a_cancelled_step(variant, run, start_told):
    child, other = start_told(3), start_told(4)

    async def main():
        completed = aio.as_completed([child, other])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(completed.__anext__(), 0.01)
        step = await begun(completed.__anext__())
        child.stdin.close()
        become_zombie(child.pid)
        # If its exit is not in this step, it is in the next one.
        exit = await completed.__anext__() if await is_cancelled(step) else step.result()
        other.stdin.close()
        return [exit] + await seen_in(completed)

    assert run(main()) == [(child, 3), (other, 4)]
