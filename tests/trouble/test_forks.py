# SPDX-License-Identifier: BSD-3-Clause
"""Copies in a forked child, where the threads are missing that hold the parent's locks."""

import multiprocessing
import os
import queue
import resource
import select
import signal
import subprocess
import threading
import warnings

import pytest

from .. import pidwait, trouble
from ..processes import become_zombie, eventually, gone_pid, is_open, state
from ..waiting.ways import WAYS
from . import LONG, Child, asleep, each_line, fork, forked, raises, times_out

pytest.importorskip("ctypes")
pytestmark = pytest.mark.kqueue


def in_a_fork(function):
    """Call it in a forked child, whose open files are the parent's copies."""
    assert os.waitpid(fork(function), 0)[1] == 0


def test_copies_of_a_process_answer_and_leave_the_parents_own_as_they_are(variant):
    child = Child()
    fresh, used, closed = [pidwait.Process(child.pid) for _ in range(3)]
    times_out(used.wait, 0)
    closed.close()
    opened = trouble.open_fds()

    def use():
        for process in (fresh, used):
            times_out(process.wait, 0.005)
        raises(ValueError, closed.has_exited)
        fd = os.open(os.devnull, os.O_RDONLY)  # gets the number that ``closed`` had
        closed.close()
        assert is_open(fd)
        used.send_signal(9)
        # It is somebody else's zombie, so its code may be hidden.
        assert used.wait(LONG) in (-9, None)
        fresh.close()
        used.close()

    in_a_fork(use)
    assert trouble.open_fds() == opened
    assert fresh.wait(LONG) == used.wait(LONG) == child.reap() == -9
    fresh.close()
    used.close()


def test_the_copy_of_an_open_handle_does_not_count_as_forgotten(variant):
    kept = [pidwait.Process(os.getpid()), pidwait.WaitSet([os.getpid()])]

    def drop():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del kept[:]

    in_a_fork(drop)
    for each in kept:
        each.close()


def wait_while_a_thread_forks():
    """At any line of a wait another thread forks; the copies work in its child."""
    process = Child()
    process.become_zombie(7)
    asked, statuses = queue.Queue(), queue.Queue()

    def use():
        assert trouble.by_set(process.pid, LONG) in (7, None)
        assert pidwait.wait(process.pid, LONG) in (7, None) and handle.wait(LONG) in (7, None)
        assert waiting.wait(LONG) in ([(process.pid, 7)], [(process.pid, None)], [])

    def serve():
        while asked.get():
            statuses.put(os.waitpid(fork(use), 0)[1])

    def ask():
        asked.put(True)
        assert statuses.get() == 0

    thread = threading.Thread(target=serve)
    thread.start()
    for line in each_line(ask, step=17):
        with pidwait.Process(process.pid) as handle, pidwait.WaitSet([process.pid]) as waiting:
            with line:
                codes = pidwait.wait(process.pid), handle.wait(LONG), waiting.wait(LONG)
            assert codes == (7, 7, [(process.pid, 7)]), line.where
    asked.put(False)
    thread.join()
    process.reap()


@pytest.mark.threads
def test_a_fork_in_the_middle_of_a_wait(variant):
    forked(wait_while_a_thread_forks)


# Children of the parent


@pytest.mark.threads
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("start", [pidwait.spawn, subprocess.Popen])
def test_a_child_that_a_thread_of_the_parent_waits_for(variant, way, start):
    """The thread holds the lock for the reaping, or that of Popen; nobody releases the copy."""
    reader, writer = os.pipe()
    child = start(["sh", "-c", "read line; exit 3"], stdin=reader)
    os.close(reader)
    eventually(lambda: state(child.pid) == "S")
    thread = asleep(child.wait)

    def wait():
        os.write(writer, b"\n")
        assert way(child) in (3, None)

    in_a_fork(wait)
    os.close(writer)
    assert thread.result() == child.wait() == 3
    getattr(child, "close", int)()


def test_the_copy_of_a_child_is_left_to_the_parent(variant):
    """Neither the end of a block nor close() waits for it or reaps it."""
    with pidwait.spawn(["sleep", "60"]) as child, pidwait.spawn(["true"]) as zombie:
        become_zombie(zombie.pid)

        def leave():
            with zombie:
                assert zombie.wait(LONG) in (0, None)
            child.close()
            # Its own are reaped as usual.
            with pidwait.spawn(["sh", "-c", "exit 5"]) as other:
                assert other.wait(LONG) == 5
            popen = subprocess.Popen(["sh", "-c", "exit 4"])
            assert pidwait.wait(popen, LONG) == popen.returncode == 4
            raises(ChildProcessError, os.waitpid, -1, os.WNOHANG)

        in_a_fork(leave)
        child.kill()
        assert (child.wait(), zombie.wait()) == (-signal.SIGKILL, 0)


def test_a_popen_of_the_parent_whose_pid_another_process_has(variant, keeper):
    """The parent has reaped its child, and the pid was given out again: not to its child."""
    popen = subprocess.Popen(["true"])
    os.waitpid(popen.pid, 0)
    popen.pid, popen.returncode = keeper.start("sleep", "60"), None

    def wait():
        assert pidwait.wait(popen, LONG) is None
        assert state(popen.pid) not in (None, "Z")

    in_a_fork(wait)
    os.kill(popen.pid, signal.SIGKILL)
    popen.returncode = 0


def test_a_popen_of_the_grandparent_runs_on(variant):
    popen = subprocess.Popen(["sleep", "60"])
    in_a_fork(lambda: in_a_fork(lambda: times_out(lambda limit: pidwait.wait(popen, limit), 0.01)))
    popen.kill()
    popen.wait()


def test_a_process_of_multiprocessing_is_not_joined_by_another_child(variant):
    reader, writer = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=os.read, args=(reader, 1))
    process.start()

    def wait():
        times_out(lambda timeout: pidwait.wait(process, timeout), 0.005)
        os.write(writer, b".")
        assert pidwait.wait(process, LONG) in (0, None)

    in_a_fork(wait)
    assert pidwait.wait(process, LONG) == process.exitcode == 0
    os.close(reader)
    os.close(writer)


# WaitSet, watch, asyncio, hooks


USES = {
    "add": lambda waiting, pid: waiting.add(pid),
    "discard": lambda waiting, pid: waiting.discard(pid),
    "wait": lambda waiting, pid: waiting.wait(0),
    "fileno": lambda waiting, pid: waiting.fileno(),
    "close": lambda waiting, pid: waiting.close(),
}


@pytest.mark.threads
@pytest.mark.parametrize("name", sorted(USES))
def test_a_set_that_the_forked_child_uses_while_a_thread_waits_on_it(variant, name):
    """The thread holds its lock, and the parent's epoll or kqueue has to stay unchanged."""
    child = Child()
    with pidwait.WaitSet([child.pid]) as waiting:
        waiting.fileno()
        thread = asleep(waiting.wait)

        def use():
            USES[name](waiting, child.pid)
            if name != "close":
                assert len(waiting) == (name != "discard")
                assert waiting.wait(0.002) == []
                gone = gone_pid()
                waiting.add(gone)
                assert waiting.wait(LONG) == [(gone, None)]
                waiting.close()

        in_a_fork(use)
        assert len(waiting) == 1
        child.end(3)
        assert thread.result() == [(child.pid, 3)]
    child.reap()


def test_a_set_that_two_threads_of_the_forked_child_use_first(backend, seam):
    """Both use the same copy."""
    if backend != "pidfd":
        pytest.skip("it is about the making of an epoll")
    real, gone = seam.get("epoll"), [gone_pid() for _ in range(2)]

    def epoll():
        seam.put("epoll", real)
        waiting.add(gone[0])  # as another thread does
        return real()

    def use():
        seam.put("epoll", epoll)
        waiting.add(gone[1])
        assert len(waiting) == 3
        assert sorted(waiting.wait(LONG)) == sorted((pid, None) for pid in gone)
        waiting.close()

    with pidwait.WaitSet([os.getppid()]) as waiting:
        in_a_fork(use)


@pytest.mark.threads
def test_a_copy_without_file_descriptors_does_not_wake_the_parent(backend):
    if backend != "pidfd":
        pytest.skip("it is about the timer of an epoll")
    with pidwait.WaitSet([os.getppid()]) as waiting:
        fd = waiting.fileno()

        def use():
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
            assert waiting.wait(0) == []

        in_a_fork(use)
        assert select.select([fd], [], [], 0)[0] == [] == waiting.wait(0)


@pytest.mark.threads
def test_watches_of_the_parent_are_its_own(variant):
    """The forked child calls none of them, and has a thread for its own."""
    child, told = Child(), queue.Queue()
    watch = pidwait.watch(child.pid, lambda *exit: told.put(exit))

    def use():
        watch.cancel()
        other = Child()
        pidwait.watch(other.pid, lambda *exit: told.put(exit))
        other.end(4)
        assert told.get(timeout=LONG) == (other.pid, 4)
        other.reap()

    in_a_fork(use)
    child.end(3)
    assert told.get(timeout=LONG) == (child.pid, 3)
    assert told.empty()
    child.reap()


def hooks():
    seen, child = [], Child()
    child.become_zombie(7)
    process, waiting = pidwait.Process(child.pid), pidwait.WaitSet([os.getppid(), child.pid])

    def look():
        seen.append((process.has_exited(), pidwait.wait(child.pid, LONG) in (7, None)))

    os.register_at_fork(before=look, after_in_parent=look)
    os.register_at_fork(after_in_child=lambda: look() or seen.append(len(waiting.wait(LONG))))
    in_a_fork(lambda: seen != [(True, True)] * 2 + [1])
    assert seen == [(True, True)] * 2
    assert waiting.wait(LONG) == [(child.pid, 7)]
    process.close()
    waiting.close()
    child.reap()


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="Python 3.6 has no such hooks")
def test_hooks_at_a_fork_may_wait(variant):
    forked(hooks)
