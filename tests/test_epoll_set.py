# SPDX-License-Identifier: BSD-3-Clause
"""The epoll in which a set on Linux sleeps: what ends the sleep, and when."""

import errno
import importlib
import os
import select

import pytest

from . import pidwait
from .test_waitset import is_readable

epoll_set = importlib.import_module(pidwait.__name__ + "._backends.epoll_set")


@pytest.fixture(params=["one thread's", "shared"])
def epoll(request):
    epoll = epoll_set.EpollSet(request.param == "shared")
    yield epoll
    epoll.close()


def test_event_is_there_until_it_is_taken(epoll):
    reader, writer = os.pipe()
    try:
        epoll.include(reader)
        epoll.sleep(0)
        assert epoll.delay() is None
        os.write(writer, b".")
        epoll.sleep(None)
        assert epoll.delay() == 0
        epoll.sleep(None)  # it is still there
        os.read(reader, 1)
        assert epoll.delay() == 0
        epoll.take(None, False)
        assert epoll.delay() is None
    finally:
        os.close(reader)
        os.close(writer)


def test_sleep_is_in_a_poll_that_somebody_has_replaced(epoll, monkeypatch):
    """gevent's lets other greenlets run; a look needs none."""
    real, used = select.poll, []

    def poll():
        used.append(True)
        return real()

    monkeypatch.setattr(select, "poll", poll)
    epoll.sleep(0)
    assert not used
    epoll.sleep(0.01)
    assert used


def test_alarms(epoll):
    for seconds in 0, -1, 0.001:
        epoll.alarm(seconds)
        if seconds > 0 or epoll._bell is not None:
            assert is_readable(epoll, 60)
            epoll.sleep(None)
            epoll.take(None, False)
        for other in 1000, None:
            epoll.alarm(other)
            assert not is_readable(epoll, 0)


def test_bell_rings_until_it_is_stopped():
    epoll = epoll_set.EpollSet(True)
    try:
        for _ in range(2):
            epoll.alarm(0)
            epoll.alarm(0)
            for _ in range(2):
                epoll.sleep(None)
                assert epoll.delay() == 0
                epoll.take(None, False)
            epoll.alarm(None)
            assert not is_readable(epoll, 0)
    finally:
        epoll.close()


def test_without_a_bell_it_looks_often(monkeypatch):
    """Nothing could end a sleep."""

    def pipe():
        raise OSError(errno.EMFILE, "on purpose")

    monkeypatch.setattr(os, "pipe", pipe)
    epoll = epoll_set.EpollSet(True)
    monkeypatch.undo()
    try:
        epoll.alarm(0)
        epoll.sleep(None)
        assert epoll.delay() is None
    finally:
        epoll.close()


def test_it_takes_no_members(epoll):
    member = object()
    ((one, error),) = epoll.add([member])
    assert one is member and isinstance(error, OSError)
    assert member not in epoll and not epoll.has_exited(member)
    epoll.discard(member)
