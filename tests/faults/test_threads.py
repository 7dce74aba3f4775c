# SPDX-License-Identifier: BSD-3-Clause
"""Several threads that wait, reap, close and fork at the same time with one handle."""

import os
import threading
import warnings

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, Stranger, at_line, calls, linux
from ..processes import eventually, is_open

pytest.importorskip("ctypes")

THREADS = 16


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


def all_wait(backend):
    """They wait with different time-outs, and one thread closes the handle meanwhile."""
    child = Child()
    process = pidwait.Process(child.pid)
    timed_out = []

    def wait():
        return process.wait(LONG)

    def time_out():
        faults.times_out(process.wait, 0.02)
        timed_out.append(True)
        return "timed out"

    def close():
        eventually(lambda: len(timed_out) == len(process._guard._users) == THREADS // 2)
        process.close()
        faults.raises(ValueError, process.wait, 0)
        child.end(7)

    waiting = [wait, time_out] * (THREADS // 2)
    assert in_threads(waiting + [close])[:-1] == [7, "timed out"] * (THREADS // 2)
    assert child.reap() == 7


def all_reap(backend):
    """Only one can; the others get the right code, too."""
    for _ in range(20):
        child = Child()
        with pidwait.Process(child.pid) as process:
            child.end(7)
            codes = in_threads([lambda: process.wait(LONG, reap=True)] * THREADS)
        assert codes == [7] * THREADS
        faults.raises(ChildProcessError, os.waitpid, child.pid, 0)
        child.forget()


def has_just_reaped(backend):
    """One thread has reaped, but not remembered the code yet, when another one looks."""
    real = calls.get("waitid")
    reaped, both = threading.Event(), threading.Event()

    def waitid(idtype, id_, options):
        info = real(idtype, id_, options)
        if options == linux.REAP:
            reaped.set()
            both.wait()
        return info

    child = Child()
    with pidwait.Process(child.pid) as process:
        child.become_zombie(7)
        calls._resolved["waitid"] = waitid
        # The kernel's own answer for a reaped process would hide a wrong look.
        calls._resolved["ioctl"] = refuse

        def second():
            reaped.wait()
            code = process.wait(LONG, reap=True)
            both.set()
            return code

        assert in_threads([lambda: process.wait(LONG, reap=True), second]) == [7, 7]
    child.forget()


def refuse(*args):
    raise PermissionError(1, "not allowed")


@pytest.mark.parametrize("scenario", [all_wait, all_reap, has_just_reaped])
def test_one_handle(scenario):
    faults.run_on_each_backend(scenario)


def overtaken(backend):
    """One thread is about to sleep in a set when another one reports the last exit."""
    child = Child()
    child.become_zombie(7)
    exits = []
    with pidwait.WaitSet([child.pid]) as waiting:
        inner = waiting._engine.sets.best
        sleep = inner.sleep

        def overtaken_sleep(seconds):
            if not exits:
                sleep(0)
                exits.extend(in_threads([lambda: waiting.wait(0)])[0])
                assert exits == [(child.pid, 7)]
            sleep(seconds)

        inner.sleep = overtaken_sleep
        assert waiting.wait() == []
    child.reap()


def test_overtaken_in_a_set():
    faults.run_on_each_backend(overtaken)


# A fork in the middle


class Forker:
    """A thread that forks when another one asks; only it lives on in the child."""

    def __init__(self, use):
        self._use = use
        self._asked = threading.Event()
        self._done = threading.Event()
        self._over = False
        self.codes = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._over:
                return
            pid = faults.fork(self._use)
            self.codes.append(os.waitpid(pid, 0)[1])
            self._done.set()

    def fork(self):
        """Have the thread fork; return once its child has ended."""
        self._done.clear()
        self._asked.set()
        self._done.wait()

    def end(self):
        self._over = True
        self._asked.set()
        self._thread.join()


def fork_at_any_line(backend, of_ours):
    """Both go on: the parent with its wait, the forked child with its copies."""
    process = Child() if of_ours else Stranger()
    process.become_zombie(7)
    handles = []

    def use():
        others = [handle.fileno() for handle in handles if backend == "pidfd"]
        for handle in handles:
            assert handle.wait(LONG) in (7, None)  # it is not the forked child's own child
            assert handle.has_exited()
            handle.close()
        assert not any(map(is_open, others))
        opened = faults.open_fds()
        assert pidwait.wait(process.pid, LONG) in (7, None)
        assert faults.open_fds() == opened

    forker = Forker(use)
    files = faults.LOOKING + (
        "process.py",
        "_guard.py",
        "_checks.py",
        "_targets.py",
        "_kinds.py",
        "_fork.py",
    )
    number, reached = 0, True
    while reached:
        number += 1
        with pidwait.Process(process.pid) as handle:
            handles.append(handle)
            with at_line(number, forker.fork, files) as line:
                code = pidwait.wait(process.pid, LONG), handle.wait(LONG)
            reached = line.reached
            assert code == (7, 7), line.where
            assert set(forker.codes) <= {0}, line.where
            handles.remove(handle)
    forker.end()
    assert number > 20 and len(forker.codes) == number - 1
    assert process.reap() == 7


@pytest.mark.parametrize("of_ours", [True, False])
def test_fork_at_any_line(of_ours):
    faults.run_on_each_backend(fork_at_any_line, of_ours)


def forked_copies(backend):
    """Copies of a fresh, a used and a closed handle; the parent's own stay as they are."""
    child = Child()
    fresh, used, closed = [pidwait.Process(child.pid) for _ in range(3)]
    faults.times_out(used.wait, 0)
    closed.close()
    opened = faults.open_fds()

    def use():
        for process in (fresh, used):
            faults.times_out(process.wait, 0.01)
        faults.raises(ValueError, closed.has_exited)
        fd = os.open(os.devnull, os.O_RDONLY)  # gets the number that ``closed`` had
        closed.close()
        assert is_open(fd)
        os.close(fd)
        used.send_signal(9)
        # It is somebody else's zombie, so its code may be hidden.
        assert used.wait(LONG) in (-9, None)
        fresh.close()
        used.close()

    assert os.waitpid(faults.fork(use), 0)[1] == 0
    assert faults.open_fds() == opened
    assert fresh.wait(LONG) == used.wait(LONG) == -9
    fresh.close()
    used.close()
    assert child.reap() == -9


def forgotten_copies(backend):
    """In the forked child, the parent's open handle does not count as forgotten."""
    child = Child()
    process = pidwait.Process(child.pid)

    def use():
        nonlocal process
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del process

    assert os.waitpid(faults.fork(use), 0)[1] == 0
    child.end(0)
    assert process.wait(LONG) == 0
    process.close()
    assert child.reap() == 0


@pytest.mark.parametrize("scenario", [forked_copies, forgotten_copies])
def test_forked(scenario):
    faults.run_on_each_backend(scenario)
