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
from ..processes import become_zombie, eventually, gone_pid
from ..waiting.threads import Thread
from . import LONG, Child, raises

pytest.importorskip("ctypes")
pytestmark = [pytest.mark.threads, pytest.mark.kqueue]

THREADS = 8


def in_threads(functions):
    """Run them at the same time; return their results, in their order."""
    threads = [Thread(function) for function in functions]
    return [thread.result() for thread in threads]


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


class Epoll:
    """An epoll with a function of the test's in the place of unregister()."""

    def __init__(self, epoll, unregister):
        self._epoll = epoll
        self.unregister = lambda fd: unregister(epoll, fd)

    def __getattr__(self, name):
        return getattr(self._epoll, name)


@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_thread_that_adds_while_another_one_silences_the_bell_is_heard(backend, seam, comes):
    """Whatever it adds at that moment is told, and nothing is told twice."""
    if backend != "pidfd":
        pytest.skip("it is about the bell of an epoll")
    real, added = seam.get("epoll"), []

    def add():
        if not added:
            added.append(gone_pid())
            waiting.add(added[0])

    def unregister(epoll, fd):
        if comes == "before":
            add()
        epoll.unregister(fd)
        if comes == "after":
            add()

    seam.put("epoll", lambda: Epoll(real(), unregister))
    gone, seen = gone_pid(), []
    with pidwait.WaitSet([os.getppid()]) as waiting:
        fd = waiting.fileno()
        waiting.add(gone)
        while len(seen) < 2:
            assert select.select([fd], [], [], LONG)[0] == [fd]
            seen += waiting.wait(0)
        assert seen == [(gone, None), (added[0], None)]
        assert waiting.wait(0) == [] and select.select([fd], [], [], 0)[0] == []


# Watches


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
