# SPDX-License-Identifier: BSD-3-Clause
"""Several threads wait, reap, close, add and discard at the same time."""

import os
import queue
import select
import subprocess
import sys
import threading

import pytest

from .. import pidwait
from ..processes import become_zombie, eventually, gone_pid, state
from . import LONG, Child, asleep, raises, times_out

pytest.importorskip("ctypes")
pytestmark = [pytest.mark.threads, pytest.mark.kqueue]

THREADS = 8


def in_threads(functions):
    """Run them at the same time; return their results, in their order."""
    results = [None] * len(functions)

    def run(number):
        results[number] = functions[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_handle_that_is_closed_while_threads_wait_on_it(variant):
    """They wait with different time-outs; the close leaves their waits intact."""
    child, timed_out = Child(), []
    process = pidwait.Process(child.pid)

    def wait():
        return process.wait(LONG)

    def time_out():
        times_out(process.wait, 0.02)
        timed_out.append(True)

    def close():
        eventually(lambda: len(timed_out) == THREADS)
        process.close()
        raises(ValueError, process.wait, 0)
        raises(ValueError, process.fileno)
        child.end(7)

    waiting = [wait, time_out] * THREADS
    assert in_threads(waiting + [close])[:-1] == [7, None] * THREADS
    assert process.wait() == 7
    assert child.reap() == 7


def test_one_of_many_threads_reaps_and_all_get_the_code(variant):
    for code in range(10):
        child = Child()
        with pidwait.Process(child.pid) as process:
            child.end(code)
            codes = in_threads([lambda: process.wait(LONG, reap=True)] * THREADS)
        assert codes == [code] * THREADS
        raises(ChildProcessError, os.waitpid, child.pid, 0)
        child.forget()


@pytest.mark.parametrize("start", [pidwait.spawn, subprocess.Popen])
def test_many_threads_wait_for_one_owner(variant, start):
    for _ in range(5):
        child = start(["sh", "-c", "exit 3"])
        waits = [lambda: pidwait.wait(child, LONG), child.wait] * THREADS
        assert in_threads(waits) == [3] * 2 * THREADS
        getattr(child, "close", int)()


def test_a_thread_that_looks_when_another_one_has_just_reaped(variant, seam):
    """The other one has not remembered the code yet."""
    if not hasattr(os, "waitid"):
        pytest.skip("this interpreter has no waitid(2)")
    if not variant.startswith("pidfd"):
        pytest.skip("it reaps by waitpid(2)")
    reaped, both = threading.Event(), threading.Event()

    def waitid(idtype, number, options):
        info = os.waitid(idtype, number, options)
        if info is not None and not options & os.WNOWAIT:
            reaped.set()
            both.wait()
        return info

    child = Child()
    with pidwait.Process(child.pid) as process:
        child.become_zombie(7)
        pidwait.probe()
        seam.put("waitid", waitid)
        # The kernel's own answer for a reaped process would hide a wrong look.
        seam.refuse("ioctl")

        def second():
            reaped.wait()
            code = process.wait(LONG, reap=True)
            both.set()
            return code

        assert in_threads([lambda: process.wait(LONG, reap=True), second]) == [7, 7]
    child.forget()


# Sets


def test_each_exit_of_a_set_goes_to_one_of_the_threads(variant, herd):
    """While others add members."""
    told, pids = queue.Queue(), [herd.fork(code, after=0) for code in range(20)]
    with pidwait.WaitSet() as waiting:

        def add(part):
            for pid in part:
                waiting.add(pid)

        def collect():
            while told.qsize() < len(pids):
                for exit in waiting.wait(0.001):
                    told.put(exit)

        in_threads([collect] * 4 + [lambda: add(pids[:10]), lambda: add(pids[10:])])
        assert len(waiting) == 0
    found = [told.get() for _ in range(told.qsize())]
    assert sorted(found) == sorted(zip(pids, range(20)))


def test_a_thread_that_sleeps_in_a_set_hears_of_what_others_do(variant):
    """One adds what has exited, one discards the last member, one takes the last exit."""
    child, zombie = Child(), Child()
    zombie.become_zombie(5)
    with pidwait.WaitSet([child.pid]) as waiting:

        def sleeping():
            told = queue.Queue()
            return asleep(lambda: told.put(waiting.wait())), told

        thread, told = sleeping()
        waiting.add(zombie.pid)
        assert told.get(timeout=LONG) == [(zombie.pid, 5)]
        thread.join()
        thread, told = sleeping()
        waiting.discard(child.pid)
        assert told.get(timeout=LONG) == []
        thread.join()
        waiting.add(child.pid)
        threads = [sleeping()]
        second = queue.Queue()
        threads.append((threading.Thread(target=lambda: second.put(waiting.wait())), second))
        threads[1][0].start()
        child.end(3)
        # The one that comes too late finds the set empty.
        assert sorted(told.get(timeout=LONG) for _, told in threads) == [[], [(child.pid, 3)]]
        for thread, _ in threads:
            thread.join()
    child.reap()
    zombie.reap()


@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_thread_that_adds_while_another_one_sets_the_timer_is_heard(backend, seam, comes):
    """One resets the timer, as nothing is left to report; what the other one adds is to report."""
    if backend != "pidfd":
        pytest.skip("it is about the timer of an epoll")
    settime, added = seam.get("timerfd_settime"), []

    def add():
        if not added:
            added.append(gone_pid())
            waiting.add(added[0])

    def reset(fd, *, initial):
        if initial == 0 and comes == "before":
            add()
        settime(fd, initial=initial)
        if initial == 0 and comes == "after":
            add()

    gone = gone_pid()
    with pidwait.WaitSet([os.getppid()]) as waiting:
        fd = waiting.fileno()
        waiting.add(gone)
        seam.put("timerfd_settime", reset)
        assert waiting.wait(0) == [(gone, None)]
        assert select.select([fd], [], [], LONG)[0] == [fd] and added
        assert waiting.wait(0) == [(added[0], None)]
        assert select.select([fd], [], [], 0)[0] == []


# Watches


def test_watches_from_many_threads_are_told_once_each(variant, herd):
    told = queue.Queue()

    pids = [herd.fork(code, after=0) for code in range(THREADS)]
    in_threads(
        [lambda pid=pid: pidwait.watch(pid, lambda *exit: told.put(exit)) for pid in pids] * 2
    )
    found = [told.get(timeout=LONG) for _ in range(2 * THREADS)]
    assert sorted(found) == sorted(list(zip(pids, range(THREADS))) * 2)
    assert told.empty()


def test_a_watch_that_comes_while_the_thread_ends_is_told_once(variant, herd):
    pid, told = herd.fork(3, after=0), queue.Queue()
    become_zombie(pid)

    def watch_all(first):
        for number in range(first, first + 200):
            mine = queue.Queue()
            pidwait.watch(pid, lambda *exit, n=number, mine=mine: (told.put(n), mine.put(exit)))
            assert mine.get(timeout=LONG) == (pid, 3)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        in_threads([lambda first=200 * first: watch_all(first) for first in range(THREADS)])
        eventually(lambda: threading.active_count() == 1)
    finally:
        sys.setswitchinterval(interval)
    found = [told.get() for _ in range(told.qsize())]
    assert sorted(found) == list(range(200 * THREADS))


def test_a_child_that_a_thread_waits_for_without_a_deadline_is_reaped_by_another(variant):
    """The thread that blocks in waitid(2) or poll(2) ends, and neither gets a wrong code."""
    child, told = Child(), queue.Queue()
    thread = asleep(lambda: told.put(pidwait.wait(child.pid)))
    child.end(7)
    assert child.reap() == 7
    assert told.get(timeout=LONG) in (7, None)
    thread.join()
    assert state(child.pid) is None
