# SPDX-License-Identifier: BSD-3-Clause
"""Objects that stand for a process, whatever their own code does."""

import importlib
import multiprocessing
import os
import signal
import threading

import pytest

from . import pidwait
from .processes import become_zombie, eventually, exiting, gone_pid, run_python, sleeping, state
from .ways import every_way

exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")
_kinds = importlib.import_module(pidwait.__name__ + "._kinds")
_targets = importlib.import_module(pidwait.__name__ + "._targets")


@pytest.fixture
def patience(monkeypatch):
    """Each look at the clock takes a third of the patience with an owner."""
    now = [0.0]

    def monotonic():
        now[0] += _targets._PATIENCE / 3
        return now[0]

    monkeypatch.setattr(_targets, "monotonic", monotonic)


@pytest.fixture
def forks():
    """forks(function, *arguments) runs it in a process of multiprocessing."""
    made = []

    def fork(function, *arguments):
        process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
        process.start()
        made.append(process)
        return process

    yield fork
    while made:
        process = made.pop()
        if process._popen.returncode is None:
            process._popen.returncode = 0  # somebody else has reaped it
        process.join()
        if hasattr(process, "close"):  # Python 3.7
            process.close()
        del process


@every_way
def test_multiprocessing_that_somebody_else_reaped(either, way, forks, patience):
    process = forks(os._exit, 3)
    os.waitpid(process.pid, 0)
    assert way(process) is None


@every_way
def test_multiprocessing_where_sigchld_is_ignored(either, way, forks, patience):
    reader, writer = os.pipe()
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        process = forks(os.read, reader, 1)
        threading.Timer(0.01, os.write, (writer, b"x")).start()
        assert way(process) in (None, 0)  # with a pidfd, the system may have told the code
    finally:
        signal.signal(signal.SIGCHLD, old)
        os.close(reader)
        os.close(writer)


PARENT = """if True:
    import multiprocessing, os, sys, threading
    import {package} as pidwait

    def child(exits, waits, reader, writer):
        os.close(writer)
        parent = multiprocessing.parent_process()
        told = threading.Event()
        pidwait.watch(parent, lambda *exit: told.set())
        with pidwait.WaitSet([parent]) as waiting:
            assert waiting.wait(0) == []
            os.write(waits, b"x")
            os.read(reader, 1)  # until the parent's end is closed
            assert [proc for proc, _ in waiting.wait(20)] == [parent]
        assert pidwait.wait_procs([parent], 20)[1] == []
        pidwait.wait(parent, 20)
        assert told.wait(20)
        os.write(1, b"good\\n")

    ends = os.pipe() + os.pipe()
    multiprocessing.get_context("fork").Process(target=child, args=ends).start()
    os.read(ends[0], 1)
    os._exit(5)
"""


@pytest.mark.skipif(
    not hasattr(multiprocessing, "parent_process"), reason="parent_process() is new in Python 3.8"
)
def test_parent_process(either):
    done = run_python(PARENT.format(package=pidwait.__name__))
    assert (done.stdout, done.stderr) == ("good\n", "")


@every_way
def test_popen_whose_pid_is_a_strangers_now(either, way, keeper, start):
    """Somebody else has reaped its child, and the pid was given out again."""
    child = start(*exiting(3))
    os.waitpid(child.pid, 0)
    child.pid = keeper.start(*sleeping(60))
    try:
        assert way(child) is None
        assert state(child.pid) not in (None, "Z")
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.returncode = 0  # so that the fixture does not kill it


@every_way
def test_psutil_popen(either, way):
    """It is a psutil.Process, too, but it also has to reap its child."""
    psutil = pytest.importorskip("psutil")
    child = psutil.Popen(exiting(3))
    assert way(child) == 3
    assert child.returncode == 3 and state(child.pid) is None


@every_way
def test_multiprocessing_that_exits_with_255(either, way, forks):
    """255 is reported as it is: only for a fork server's child can it mean "unknown"."""
    process = forks(os._exit, 255)
    become_zombie(process.pid)
    assert process.join() is None and process.exitcode == 255
    assert way(process) == 255
    process = forks(os._exit, 255)
    assert way(process) == 255


@every_way
@pytest.mark.parametrize("code", [5, 0])
def test_popen_without_a_lock_keeps_its_code(either, way, code):
    """Like gevent's Popen: the loop has reaped the child, and poll() tells the code."""

    class Popen:
        returncode = None

        def poll(self):
            self.returncode = code
            return code

    popen = Popen()
    popen.pid = gone_pid()
    assert way(popen) == code


@every_way
def test_popen_whose_code_only_its_own_poll_tells(either, way, start, monkeypatch):
    """As on macOS for signals; it does not mean that somebody else has reaped our child."""
    monkeypatch.setattr(exitcodes, "look_at_child", lambda pid: None)
    child = start(*exiting(3))
    become_zombie(child.pid)
    assert way(child) == child.returncode == 3


class Handle:
    """Like a Process that is polled: it sees the exit, but not the code."""

    backend = "polling"
    exitcode = None
    exited = False

    def __init__(self, pid):
        self.pid = pid

    def has_exited(self):
        return self.exited


def test_handle_that_does_not_know_the_code():
    handle = Handle(gone_pid())
    target = _kinds.find(handle)
    assert target.known() is exitcodes.RUNNING
    handle.exited = True
    assert target.known() is None
    assert target.settle(3) == 3


def test_look_that_told_the_main_threads_code(start):
    """It ended first, so it is 0. On Linux before 5.17, only who reaps is told the process's."""
    child = start(*exiting(9))
    become_zombie(child.pid)
    target = _kinds.find(child)
    assert target.settle(0) == 9 == child.returncode


class LateMultiprocessing:
    """It knows the code just after a join, which came too early."""

    joins = 0
    exitcode = property(lambda self: 3 if self.joins else None)

    def __init__(self, pid):
        self.pid = pid

    def join(self, timeout):
        self.joins += 1


@every_way
def test_multiprocessing_is_joined_once_it_knows(either, way, start):
    """Else multiprocessing would keep it among its children."""
    child = start(*exiting(3))
    become_zombie(child.pid)
    process = LateMultiprocessing(child.pid)
    assert way(process) == 3
    assert process.joins == 2


class Slow:
    """Like a Popen in which another thread is busy at the first poll()."""

    returncode = None
    asked = 0

    def __init__(self, pid):
        self.pid = pid

    def poll(self):
        self.asked += 1
        if self.asked > 1:
            self.returncode = 3
        return self.returncode


def test_owner_that_has_been_reported_is_not_asked_again(either, start, sleeper):
    child = start(*exiting(3))
    become_zombie(child.pid)
    slow = Slow(child.pid)
    with pidwait.WaitSet([slow, sleeper.pid]) as waiting:
        assert waiting.wait(20) == [(slow, 3)]
        asked = slow.asked
        assert asked > 1
        assert waiting.wait(0) == waiting.wait(0) == []
        assert slow.asked == asked


class Overtaken(Slow):
    """Like a Popen in which another thread has reaped the child, and is about to store the code."""

    def poll(self):
        if not self.asked:
            os.waitpid(self.pid, 0)
        return super().poll()


@every_way
def test_owner_that_is_about_to_have_the_code(either, way, start):
    child = start(*exiting(3))
    become_zombie(child.pid)
    owner = Overtaken(child.pid)
    assert way(owner) == owner.returncode == 3


class Stuck(Overtaken):
    """The other thread never stores the code."""

    def poll(self):
        super().poll()
        self.returncode = None


def by_one_look(proc):
    return pidwait.wait(proc, 0)


def by_one_look_of_a_set(proc):
    with pidwait.WaitSet([proc]) as waiting:
        ((_, code),) = waiting.wait(0)
        return code


@pytest.mark.parametrize("way", [by_one_look, by_one_look_of_a_set])
def test_code_is_told_once_the_time_is_up(either, way, start):
    child = start(*exiting(3))
    become_zombie(child.pid)
    assert way(Stuck(child.pid)) == 3


class Handing(Slow):
    """At its first poll() it is not ready, and another thread already sleeps in the set."""

    def poll(self):
        if not self.asked:
            eventually(lambda: self.waiting._sleeping)
        return super().poll()


def test_owner_is_asked_again_by_the_thread_that_sleeps(either, start_told):
    child = start_told(3)
    owner = Handing(child.pid)
    found = []
    with pidwait.WaitSet([owner]) as waiting:
        owner.waiting = waiting
        threads = [
            threading.Thread(target=lambda: found.extend(waiting.wait()), daemon=True)
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: len(waiting._waiting) == 2)
        child.stdin.close()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
    assert found == [(owner, 3)]


class Another:
    """Like a psutil.Process whose pid belongs to another process by now."""

    def __init__(self, pid):
        self.pid = pid

    def is_running(self):
        return False

    create_time = is_running


def test_process_that_is_another_one_by_now_leaves_nothing_open(either, sleeper):
    another = Another(sleeper.pid)
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        before = os.listdir("/proc/self/fd")
        waiting.add(another)
        assert waiting.wait(0) == [(another, None)]
        assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    "use, message",
    [
        (
            lambda popen: pidwait.Process(popen),
            r"pid must be an int, not Popen: wait\(\) takes obj",
        ),
        (lambda popen: pidwait.Process(str(popen.pid)), r"pid must be an int, not str$"),
        (lambda popen: pidwait.wait([popen.pid]), r"for several there is wait_procs\(\)"),
        (lambda popen: pidwait.wait((popen,), 0), r"not tuple: for several there is wait_procs"),
        (lambda popen: pidwait.watch([popen], print), r"not list: for several"),
    ],
)
def test_errors_name_what_to_call(sleeper, use, message):
    with pytest.raises(TypeError, match=message):
        use(sleeper)
