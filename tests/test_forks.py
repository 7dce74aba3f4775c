# SPDX-License-Identifier: BSD-3-Clause
"""Copies in a forked child, whose locks are held by threads that exist only in the parent."""

import importlib
import os
import signal
import threading
import traceback

import pytest

from . import pidwait
from .processes import (
    become_zombie,
    exiting,
    held_by_a_thread_that_is_not_here,
    sleeping,
    state,
)
from .ways import WAYS, by_wait

_child = importlib.import_module(pidwait.__name__ + "._child")
_errors = importlib.import_module(pidwait.__name__ + "._errors")
_targets = importlib.import_module(pidwait.__name__ + "._targets")


def in_a_fork(function):
    """Call the function in a forked child; return whether it ended without an exception."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(40)  # ends what would hang
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def child():
    child = pidwait.spawn(exiting(3))
    yield child
    child._reaper.clear()
    child.wait()
    child.close()


@pytest.mark.parametrize("way", WAYS)
def test_child_that_a_thread_was_reaping(either, child, way):
    """The lock for the reaping stays held in the forked child, where no thread releases it."""
    become_zombie(child.pid)
    child._reaper["is"] = (0,)

    def wait():
        assert way(child) == 3
        assert not child.reaped
        child.close()

    assert in_a_fork(wait)


def test_child_in_a_fork_is_not_waited_for_by_the_end_of_a_block_for_ever(either, child):
    def wait():
        with child:
            assert child.wait(20) == 3
        assert child.has_exited()

    assert in_a_fork(wait)


@pytest.mark.parametrize("way", WAYS)
def test_popen_whose_lock_was_held(either, start, way, monkeypatch):
    """Nobody in the forked child releases it, so it is no use to wait for that."""
    monkeypatch.setattr(_targets, "_PATIENCE", 1000.0)
    popen = start(*exiting(3))
    become_zombie(popen.pid)
    popen._waitpid_lock.acquire()

    def wait():
        # Some users may not see the status in /proc.
        assert way(popen) in ((3,) if os.getuid() == 0 else (3, None))

    try:
        assert in_a_fork(wait)
    finally:
        popen._waitpid_lock.release()


@pytest.mark.parametrize("method", ["add", "discard"])
def test_set_that_is_first_changed_in_a_fork(either, start_told, method):
    """A thread of the parent holds its lock, and the parent's epoll has to stay unchanged."""
    child = start_told(3)
    with pidwait.WaitSet([child.pid]) as waiting:

        def change():
            waiting._engine._lock = held_by_a_thread_that_is_not_here()
            getattr(waiting, method)(child.pid)
            assert len(waiting) == (method == "add")
            waiting.close()

        assert in_a_fork(change)
        child.stdin.close()
        assert waiting.wait(20) == [(child.pid, 3)]


def test_set_that_is_only_closed_in_a_fork(either, sleeper):
    with pidwait.WaitSet([sleeper.pid]) as waiting:

        def close():
            waiting._engine._lock = held_by_a_thread_that_is_not_here()
            waiting.close()

        assert in_a_fork(close)
        assert len(waiting) == 1


@pytest.mark.parametrize("use", [lambda waiting: waiting.wait(0), lambda waiting: waiting.fileno()])
def test_set_that_is_first_used_in_a_fork(either, sleeper, use):
    """From then on the copy belongs to the forked child."""
    with pidwait.WaitSet([sleeper.pid]) as waiting:

        def in_the_child():
            use(waiting)
            assert waiting._pid == waiting._engine.pid == os.getpid()

        assert in_a_fork(in_the_child)


def test_owner_that_a_thread_of_the_parent_is_just_asking(either, start):
    """The forked child does not have that thread, so the owner is asked again there."""
    me, asked, end = os.getpid(), threading.Event(), threading.Event()

    class Owner:
        returncode = None

        def poll(self):
            if os.getpid() == me:
                asked.set()
                assert end.wait(60)
            return 3

    owner = Owner()
    owner.pid = start(*exiting(3)).pid
    become_zombie(owner.pid)

    def wait():
        assert waiting.wait(20) == [(owner, 3)] and len(waiting) == 0

    def discard():
        waiting.discard(owner)
        assert waiting.wait(0) == [] and not waiting._engine._settling

    with pidwait.WaitSet([owner]) as waiting:
        told = []
        thread = threading.Thread(target=lambda: told.extend(waiting.wait(60)))
        thread.start()
        assert asked.wait(60)
        forks = [in_a_fork(wait), in_a_fork(discard)]
        end.set()
        thread.join()
        assert forks == [True, True] and told == [(owner, 3)]


def test_popen_of_the_parent_whose_pid_is_a_strangers_now(either, start, keeper):
    """The parent has reaped its child, and the pid was given out again: not to its child."""
    popen = start(*exiting(3))
    os.waitpid(popen.pid, 0)
    popen.pid = keeper.start(*sleeping(60))

    def wait():
        assert pidwait.wait(popen, 10) is None
        assert state(popen.pid) not in (None, "Z")

    try:
        assert in_a_fork(wait)
    finally:
        os.kill(popen.pid, signal.SIGKILL)
        popen.returncode = 0  # so that the fixture does not kill it


def test_popen_of_the_forked_child(either, start):
    """A Popen that the forked child has started is reaped as usual."""

    def wait():
        popen = start(*exiting(4))
        become_zombie(popen.pid)
        popen._waitpid_lock.acquire()
        with pytest.raises(_errors.TimeoutExpired):
            pidwait.wait(popen, 0)
        popen._waitpid_lock.release()
        assert by_wait(popen) == popen.returncode == 4

    assert in_a_fork(wait)


def test_copy_of_a_child_that_runs_is_left_to_nobody():
    """It is not the forked child's to reap."""
    with pidwait.spawn(sleeping(60)) as child:

        def close():
            child.close()
            assert _child.left == []

        try:
            assert in_a_fork(close)
        finally:
            child.kill()
        assert child.wait() == -signal.SIGKILL
