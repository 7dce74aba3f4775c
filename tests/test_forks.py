# SPDX-License-Identifier: BSD-3-Clause
"""Copies in a forked child, whose locks are held by threads that only the parent has."""

import importlib
import os
import traceback

import pytest

from . import pidwait
from .processes import become_zombie, exiting, held_by_a_thread_that_is_not_here
from .ways import WAYS, by_wait

_errors = importlib.import_module(pidwait.__name__ + "._errors")
_targets = importlib.import_module(pidwait.__name__ + "._targets")


def in_a_fork(function):
    """Whether it returns, in a forked child."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
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
    """Held is what nobody lets go of in the forked child."""
    become_zombie(child.pid)
    child._reaper["is"] = None

    def wait():
        child._guard._lock = held_by_a_thread_that_is_not_here()
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
    """Nobody in the forked child lets go of it, so there is no use in patience."""
    monkeypatch.setattr(_targets, "_PATIENCE", 1000.0)
    popen = start(*exiting(3))
    become_zombie(popen.pid)
    popen._waitpid_lock.acquire()

    def wait():
        # /proc shows the status only to those who may see it.
        assert way(popen) in ((3,) if os.getuid() == 0 else (3, None))

    try:
        assert in_a_fork(wait)
    finally:
        popen._waitpid_lock.release()


def test_popen_of_the_forked_child(either, start):
    """It is the forked child's own, and reaped as ever."""

    def wait():
        popen = start(*exiting(4))
        become_zombie(popen.pid)
        popen._waitpid_lock.acquire()
        with pytest.raises(_errors.TimeoutExpired):
            pidwait.wait(popen, 0)
        popen._waitpid_lock.release()
        assert by_wait(popen) == popen.returncode == 4

    assert in_a_fork(wait)
