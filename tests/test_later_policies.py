# SPDX-License-Identifier: BSD-3-Clause
"""Policies that forbid a call after it has been used: all waits go on, by polling if need be."""

import errno
import queue

import pytest

from . import pidwait
from .conftest import open_fds
from .processes import become_zombie, eventually, exiting, gone_pid
from .test_engine import calls, module, refuse
from .test_waitset import Waiter


class Refusing:
    """An epoll with one forbidden method."""

    def __init__(self, epoll, name):
        self.epoll, self.name = epoll, name

    def __getattr__(self, name):
        if name == self.name:
            return self.refused
        return getattr(self.epoll, name)

    def refused(self, *arguments):
        raise PermissionError(errno.EPERM, "a policy")


def forbid(waiting, name, monkeypatch):
    if name == "ioctl":
        refuse(monkeypatch, name)
        waiting._engine.sets.best._ioctl = calls.get(name)
    else:
        set_ = waiting._engine.sets.best
        set_._epoll = Refusing(set_._epoll, name)


REFUSED = "ioctl", "poll", "register", "modify", "unregister"


@pytest.mark.parametrize("name", REFUSED)
def test_policy_that_comes_later(use_variant, monkeypatch, start_told, name):
    use_variant("pidfd-ctypes")
    first, second, third = start_told(1), start_told(2), start_told(3)
    with pidwait.WaitSet([first, second.pid]) as waiting:
        assert waiting.wait(0) == []
        forbid(waiting, name, monkeypatch)
        waiting.add(third)
        waiting.add(gone_pid())
        waiting.discard(third)
        waiting.add(third.pid)
        if name == "register":
            watched = waiting._engine.sets.best._members.values()
            assert {member.pid for member in watched} == {first.pid, second.pid}
        seen = []
        for child in first, second, third:
            child.stdin.close()
        while waiting:
            seen += waiting.wait(20)
            assert seen
        assert sorted(code for _, code in seen if code is not None) == [1, 2, 3]
        assert len(seen) == 4


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "register"])
def test_policy_that_comes_while_a_thread_waits(use_variant, monkeypatch, start_told, name):
    use_variant("pidfd-ctypes")
    first = start_told(1)
    with pidwait.WaitSet([first]) as waiting:
        waiter = Waiter(waiting)
        eventually(lambda: waiting._sleeping)
        forbid(waiting, name, monkeypatch)
        gone = gone_pid()
        waiting.add(gone)
        assert waiter.result() == [(gone, None)]
        first.stdin.close()
        assert waiting.wait(20) == [(first, 1)]


@pytest.mark.parametrize("name", REFUSED)
def test_policy_that_comes_after_watch(use_variant, monkeypatch, start_told, name):
    use_variant("pidfd-ctypes")
    first, second = start_told(1), start_told(2)
    told = queue.Queue()
    pidwait.watch(first, lambda *exit: told.put(exit))
    (watches,) = module("watching")._watcher()._sets.values()
    forbid(watches, name, monkeypatch)
    first.stdin.close()
    assert told.get(timeout=20) == (first, 1)
    pidwait.watch(second, lambda *exit: told.put(exit))
    second.stdin.close()
    assert told.get(timeout=20) == (second, 2)


def test_pidfd_that_can_not_be_registered_is_closed(use_variant, monkeypatch, sleeper):
    use_variant("pidfd-ctypes")
    with pidwait.WaitSet() as waiting:
        forbid(waiting, "register", monkeypatch)
        before = open_fds()
        waiting.add(sleeper.pid)
        assert open_fds() == before


def test_no_pidfd_is_left_open_for_those_that_are_polled(use_variant, monkeypatch, sleeper):
    use_variant("pidfd-ctypes")
    before = open_fds()
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        forbid(waiting, "poll", monkeypatch)
        assert waiting.wait(0) == []
        assert sleeper.pid in waiting and open_fds() == before


def test_policy_that_comes_before_a_code_that_only_the_reaping_tells(
    use_variant, monkeypatch, keeper
):
    """Then the set can't wait for the reaping any more."""
    use_variant("pidfd-ctypes")
    monkeypatch.setattr(module("_sources.exitcodes"), "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(5))
    become_zombie(pid)
    with pidwait.WaitSet([pid]) as waiting:
        forbid(waiting, "modify", monkeypatch)
        ((found, code),) = waiting.wait(20)
        assert found == pid and code in (5, None)
    keeper.reap(pid)


def test_policy_that_comes_before_an_interrupted_wait_goes_on(use_variant, monkeypatch, start_told):
    """Events that an exception may have lost can't be armed again."""
    use_variant("pidfd-ctypes")
    child = start_told(1)
    with pidwait.WaitSet([child]) as waiting:
        forbid(waiting, "modify", monkeypatch)
        waiting._engine.sets._has_lost = True
        assert waiting.wait(0) == []
        child.stdin.close()
        assert waiting.wait(20) == [(child, 1)]
