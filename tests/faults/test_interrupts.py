# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C at any point: nothing is lost, and the next wait is right."""

import gc
import os
import resource
import threading
import warnings

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, at_line

pytest.importorskip("ctypes")

# Not the bindings: for two lines, only they know an fd that was just opened.
FILES = tuple(
    name
    for folder in ("", "_backends", "_sources")
    for name in os.listdir(os.path.join(os.path.dirname(pidwait.__file__), folder))
    if name.endswith(".py")
)


def by_pid(pid):
    pidwait.wait(pid, LONG)


def by_handle(pid):
    with pidwait.Process(pid) as process:
        process.wait(LONG)


def by_handle_twice(pid):
    with pidwait.Process(pid) as process:
        process.has_exited()
        process.wait(LONG)
        process.wait(0)


def among_many(pid):
    assert pidwait.wait_procs([pid], LONG) == ([(pid, 7)], [])


def in_a_set(pid):
    with pidwait.WaitSet([pid]) as waiting:
        assert waiting.wait(LONG) == [(pid, 7)]


def limited():
    """Set a soft limit of file descriptors below the hard one; return both."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    return hard // 2, hard


def at_any_line(backend, name):
    use, limits = globals()[name], limited()
    child = Child()
    child.become_zombie(7)
    use(child.pid)  # makes the checks whose answers are kept
    before = faults.open_fds()
    number, reached = 0, True
    with warnings.catch_warnings():
        # Of the sets that were interrupted; PyPy may free one at any later moment.
        warnings.simplefilter("ignore", ResourceWarning)
        while reached:
            number += 1
            try:
                with at_line(number, faults.interrupt, FILES) as line:
                    use(child.pid)
            except KeyboardInterrupt:
                pass
            if faults.open_fds() != before:
                for _ in range(3):  # PyPy collects the handle only after what refers to it
                    gc.collect()
            reached = line.reached
            assert faults.open_fds() == before, line.where
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits, line.where
            assert pidwait.wait(child.pid, LONG) == 7, line.where
        gc.collect()
    assert number > 20
    assert os.waitpid(child.pid, 0) == (child.pid, 7 << 8)
    child.forget()


@pytest.mark.timeout(300)  # a new wait for each line of one
@pytest.mark.parametrize(
    "name", ["by_pid", "by_handle", "by_handle_twice", "among_many", "in_a_set"]
)
def test_at_any_line(name):
    faults.run_on_each_backend(at_any_line, name)


def waited_for_again(backend, by_another_thread, has_exited):
    """Wherever a wait is interrupted, the next wait on the same set is right."""
    # Only these if another thread waits next: a trace, unlike a signal handler, can raise at
    # the end of a ``with``, which then keeps its lock.
    files = ("_waitset.py", "_turn.py") if by_another_thread else FILES
    number, reached = 0, True
    while reached:
        number += 1
        child, exits = Child(), []
        if has_exited:
            child.become_zombie(7)
        with pidwait.WaitSet([child.pid]) as waiting:
            try:
                with at_line(number, faults.interrupt, files) as line:
                    exits += waiting.wait(LONG if has_exited else 0)
            except KeyboardInterrupt:
                pass
            if not has_exited:
                child.end(7)
            if by_another_thread:
                other = threading.Thread(target=lambda: exits.extend(waiting.wait()), daemon=True)
                other.start()
                other.join(LONG)
            else:
                exits += waiting.wait(LONG)
            reached = line.reached
            assert exits == [(child.pid, 7)], line.where
        child.reap()
    assert number > 20


@pytest.mark.parametrize("has_exited", [False, True])
@pytest.mark.parametrize("by_another_thread", [False, True])
def test_waited_for_again(by_another_thread, has_exited):
    faults.run_on_each_backend(waited_for_again, by_another_thread, has_exited)


def reaped_again(backend):
    """A Child whose reaping is interrupted is reaped by the next wait."""
    number, reached = 0, True
    while reached:
        number += 1
        child = Child()
        child.become_zombie(7)
        with pidwait.Child(child.pid) as process:
            try:
                with at_line(number, faults.interrupt, FILES) as line:
                    process.wait(LONG)
            except KeyboardInterrupt:
                pass
            reached = line.reached
            assert process.wait(5) == 7, line.where
            assert process.reaped
        child.forget()
    assert number > 20


def test_reaped_again():
    faults.run_on_each_backend(reaped_again)


def handled_at_any_line(backend):
    """At each line of a wait, a signal handler waits for the same process."""
    limits = limited()
    child = Child()
    child.become_zombie(7)
    in_a_set(child.pid)
    before = faults.open_fds()
    number, reached = 0, True
    while reached:
        number += 1
        with at_line(number, lambda: in_a_set(child.pid), FILES) as line:
            in_a_set(child.pid)
        reached = line.reached
        assert faults.open_fds() == before, line.where
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits, line.where
    assert number > 20
    child.reap()


@pytest.mark.timeout(300)
def test_handled_at_any_line():
    faults.run_on_each_backend(handled_at_any_line)
