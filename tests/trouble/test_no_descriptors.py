# SPDX-License-Identifier: BSD-3-Clause
"""No file descriptor left: while probing, before or during a wait; and the limits of sets."""

import contextlib
import errno
import os
import resource
import select
import signal

import pytest

from .. import pidwait
from .. import seam as table
from ..processes import is_open, run_python
from . import (
    LONG,
    Child,
    Stranger,
    each_line,
    every_wait_works,
    forked,
    interrupt,
    kernel_tells,
    raises,
    system,
    times_out,
)
from .system import limit_becomes_zero, limit_is_zero

pytest.importorskip("ctypes")
NOFILE = resource.RLIMIT_NOFILE


class fds_left:
    """In the block only so many more file descriptors can be opened."""

    def __init__(self, number):
        self._number = number

    def __enter__(self):
        resource.setrlimit(NOFILE, (100, 100))
        self._fds = []
        try:
            while True:
                self._fds.append(os.dup(0))
        except OSError:
            pass
        for _ in range(self._number):
            os.close(self._fds.pop())

    def __exit__(self, *exc_info):
        for fd in self._fds:
            os.close(fd)


def first_wait(number):
    table.forget()
    child, zombie, stranger = Child(), Child(), Stranger()
    zombie.become_zombie(3)
    stranger.become_zombie(4)
    with fds_left(number):
        with pidwait.Process(child.pid) as one, pidwait.Process(zombie.pid) as other:
            assert one != other
        child.end(5)
        # If a binding is needed to look, it can't be loaded now.
        assert pidwait.wait(child.pid, LONG) in ((5,) if hasattr(os, "waitid") else (5, None))
        assert pidwait.wait(zombie.pid, LONG, reap=True) == 3
        assert pidwait.wait(stranger.pid, LONG) in (4, None)
    stranger.reap()
    zombie.forget()
    answer = pidwait.probe()
    assert answer["backend"] == "pidfd"
    assert answer["calls"]["pidfd_send_signal"]["available"]
    assert answer["calls"]["waitid"]["available"]
    with pidwait.Process(child.pid) as process:
        assert (process.backend, process.wait(0)) == ("pidfd", 5)
    child.reap()


def test_what_fails_for_want_of_a_descriptor_is_not_remembered(pidfds, monkeypatch):
    monkeypatch.setenv("PIDWAIT_BACKEND", "auto")
    for number in range(6):
        forked(first_wait, number)


# It has imported the names alone, not even fcntl.
FIRST = """if True:
    import os, resource
    from {package} import *
    from {package} import Process, WaitSet, probe

    for left in range(4):
        go, start = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(start), os.read(go, 1)
            os._exit(3)
        resource.setrlimit(resource.RLIMIT_NOFILE, (start + 1 + left, 1000))
        with WaitSet([pid]) as waiting, Process(pid) as process:
            os.close(start)
            assert process.wait(30) in (3, None)
            ((found, code),) = waiting.wait(30)
            assert found == pid and code in (3, None)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 1000))
        os.waitpid(pid, 0), os.close(go)
    print(probe()["backend"])
"""


def test_the_first_wait_works_where_no_descriptor_is_left(pidfds, monkeypatch):
    monkeypatch.delenv("PIDWAIT_BACKEND")
    done = run_python(FIRST.replace("{package}", pidwait.__name__))
    assert (done.returncode, done.stdout, done.stderr) == (0, "pidfd\n", "")


PROBE = """if True:
    import os, resource
    from {package} import probe
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    print(sorted(probe()))
"""


def a_set_without_its_wakeup():
    """fileno() still becomes readable, by the timer."""
    pidwait.probe()
    zombie = Child()
    zombie.become_zombie(3)
    with fds_left(1):
        waiting = pidwait.WaitSet()
    with waiting:
        fd = waiting.fileno()
        waiting.add(zombie.pid)
        assert select.select([fd], [], [], LONG)[0] and waiting.wait(0) == [(zombie.pid, 3)]
    zombie.reap()


def test_a_set_that_was_made_with_the_last_descriptor_tells_a_selector(pidfds):
    forked(a_set_without_its_wakeup)


def test_the_probe_answers_where_no_descriptor_is_left():
    done = run_python(PROBE.replace("{package}", pidwait.__name__))
    expected = "['backend', 'backends', 'bindings', 'calls', 'python', 'system']\n"
    assert (done.stdout, done.stderr) == (expected, "")


def all_ways():
    pidwait.probe()
    for code in (0, 7, -signal.SIGKILL):
        assert every_wait_works(code, fds_left(0)) != "pidfd"


def test_every_wait_works_where_no_descriptor_is_left(variant):
    forked(all_ways)


class hard_limit_becomes_zero:
    """From the block on no file descriptor can be opened, and none of the limits be raised."""

    def __enter__(self):
        resource.setrlimit(NOFILE, (0, 0))

    def __exit__(self, *exc_info):
        assert resource.getrlimit(NOFILE) == (0, 0)


def all_ways_for_good():
    """As in a sandbox, which takes the file descriptors away last."""
    pidwait.probe()
    process, early, late = Child(), Child(), Child()
    with pidwait.Process(process.pid) as handle, pidwait.WaitSet([early.pid]) as waiting:
        assert waiting.wait(0) == []
        assert every_wait_works(7, hard_limit_becomes_zero()) == "polling"
        waiting.add(late.pid)
        times_out(handle.wait, 0.005)
        assert waiting.wait(0.005) == []
        for code, child in enumerate((process, early, late)):
            child.end(code)
        assert handle.wait(LONG) == 0
        assert sorted(waiting.wait(LONG) + waiting.wait(LONG)) == [(early.pid, 1), (late.pid, 2)]
        assert len(waiting) == 0
    for child in process, early, late:
        child.reap()


def test_every_wait_works_where_the_hard_limit_is_zero(variant):
    forked(all_ways_for_good)


# Python before 3.9 ends a thread by pthread_exit(3), for which glibc loads a library, or aborts.
WATCH = """if True:
    import os, resource, sys, threading
    import {package} as pidwait

    orders, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end), os.read(orders, 1)
        os._exit(3)
    told = threading.Event()
    watches = [pidwait.watch(pid, lambda *exit: (print(*exit), told.set()))]
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    if sys.argv[1] == "left":  # the thread is still there at the end
        watches.append(pidwait.watch(os.getppid(), print))
    os.close(end)
    assert told.wait(30)
    if sys.argv[1] == "ended":
        while threading.active_count() > 1:
            pass
    print("end", pid)
"""


@pytest.mark.parametrize("thread", ["left", "ended"])
def test_a_thread_of_watch_ends_where_no_descriptor_is_left(variant, thread):
    done = run_python(WATCH.format(package=pidwait.__name__), thread)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, ""), done
    (pid, code), (end, same) = lines
    assert (code, end, same) == ("3", "end", pid)


# During a wait


def received():
    """A pidfd from elsewhere needs no other descriptor."""
    child = Child()
    fd = system.pidfd_open(child.pid)
    with fds_left(0), pidwait.Process.from_fd(fd) as process:
        times_out(process.wait, 0)
        child.end(7)
        assert process.wait(LONG) == 7
    child.reap()


def limit_falls():
    for make in (Child, Stranger):
        target = make()
        with pidwait.Process(target.pid) as process:
            with limit_is_zero():
                times_out(process.wait, 0.005)
                assert process.backend == "polling"
                raises(OSError, process.fileno)
                process.send_signal(0)
                target.become_zombie(7)
                assert process.wait(LONG) in ((7,) if make is Child else (7, None))
                raises(ProcessLookupError, process.kill)
            assert process.wait(0) in ((7,) if make is Child else (7, None))
        target.reap()


def limit_falls_at_any_line():
    for make in (Child, Stranger):
        process, limit = make(), limit_becomes_zero()
        process.become_zombie(6)
        for line in each_line(limit.start):
            with limit, line:
                code = pidwait.wait(process.pid, 0.02)  # so long it waits for the code
            assert code in ((6,) if make is Child else (6, None)), line.where
        process.reap()


def closed_by_others():
    for make in (Child, Stranger):
        target = make()
        with pidwait.Process(target.pid) as process:
            os.close(process.fileno())
            times_out(process.wait, 0.005)
            assert process.backend == "polling"
            target.end(7)
            assert process.wait(LONG) in ((7,) if make is Child else (7, None))
        target.reap()


def received_once_reaped():
    """It has no pid to poll it by."""
    child, right = Child(), (7,) if kernel_tells() else (7, None)
    fds = [system.pidfd_open(child.pid) for _ in range(2)]
    child.end(7)
    assert child.reap() == 7
    with pidwait.Process.from_fd(fds[0]) as process, limit_is_zero():
        assert process.has_exited() and process.wait(LONG) in right
        raises(ProcessLookupError, process.kill)
    with pidwait.Process.from_fd(fds[1]) as process:
        os.close(fds[1])
        for use in process.has_exited, process.wait, process.kill:
            assert raises(OSError, use).errno == errno.EBADF


SCENARIOS = [received, limit_falls, limit_falls_at_any_line, closed_by_others, received_once_reaped]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_wait_goes_on_without_its_descriptor(pidfds, scenario):
    forked(scenario)


@pytest.mark.parametrize("name", ["pidfd_open", "waitid"])
def test_a_descriptor_that_others_close_right_after_it_was_opened_or_used(pidfds, seam, name):
    if name == "waitid" and not hasattr(os, "waitid"):
        pytest.skip("this interpreter has no waitid(2)")
    fds, child = [], Child()

    def pidfd_open(*args):
        fds.append(system.pidfd_open(*args))
        return name == "waitid" and fds[-1] or os.close(fds[-1]) or fds[-1]

    def waitid(*args):
        if fds and is_open(fds[-1]):
            os.close(fds[-1])
        return os.waitid(*args)

    child.become_zombie(7)
    seam.put("pidfd_open", pidfd_open)
    if name == "waitid":
        seam.put("waitid", waitid)
    assert pidwait.wait(child.pid, LONG) == 7
    assert fds and not is_open(fds[-1])
    child.reap()


# The descriptors of a set


def set_with_limits(soft, hard, number):
    resource.setrlimit(NOFILE, (soft, hard))
    children = [Child() for _ in range(number)]
    before = set(os.listdir("/proc/self/fd"))
    with pidwait.WaitSet([child.pid for child in children]) as waiting:
        assert waiting.wait(0) == []
        opened = sorted(int(fd) for fd in set(os.listdir("/proc/self/fd")) - before)
        assert resource.getrlimit(NOFILE) == (soft, hard)
        if soft < hard:  # beside the pidfds it may have one low descriptor, for fileno()
            assert len(opened) > number and opened[-number] >= soft
            no_exception_leaves_the_limit_raised(waiting, soft, hard)
        else:
            os.close(os.dup(0))  # the program still gets some
        for code, child in enumerate(children):
            child.end(code)
            assert waiting.wait(LONG) == [(child.pid, code)]
            child.reap()


def no_exception_leaves_the_limit_raised(waiting, soft, hard):
    """A signal handler raises at any line of add()."""
    for line in each_line(interrupt):
        with contextlib.suppress(KeyboardInterrupt), line:
            waiting.add(os.getpid())
        waiting.discard(os.getpid())
        assert resource.getrlimit(NOFILE) == (soft, hard), line.where


def test_a_set_spares_the_descriptors_below_the_soft_limit(pidfds):
    hard = resource.getrlimit(NOFILE)[1]
    if hard < 300:
        pytest.skip("the hard limit leaves no room for a lower one")
    forked(set_with_limits, 100, hard, 4)


def test_a_set_polls_those_for_whom_the_hard_limit_leaves_no_descriptor(pidfds):
    forked(set_with_limits, 40, 40, 20)


@pytest.mark.parametrize("name", ["getrlimit", "setrlimit"])
def test_a_set_works_where_limits_may_not_be_touched(pidfds, monkeypatch, herd, name):
    monkeypatch.setattr(resource, name, table.refusing(errno.EPERM), raising=False)
    with pidwait.WaitSet([herd.fork(3, after=0)]) as waiting:
        assert waiting.wait(LONG) == [(herd.pids[0], 3)]
