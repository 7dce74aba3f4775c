# SPDX-License-Identifier: BSD-3-Clause
"""The epoll in which a set on Linux sleeps: what ends the sleep, and when."""

import errno
import importlib
import os
import select

import pytest

from . import pidwait
from .conftest import all_fds
from .events import VARIANT
from .processes import is_open, run_python
from .test_waitset import is_readable

calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
checks = importlib.import_module(pidwait.__name__ + "._checks")
epoll_set, polling_set, sets, timers = (
    importlib.import_module(pidwait.__name__ + "._backends." + name)
    for name in ("epoll_set", "polling_set", "sets", "timers")
)


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


class Recorder:
    """In place of an epoll: how long it is asked to sleep."""

    def __init__(self, real):
        self.fileno, self.close = real.fileno, real.close
        self.slept = []

    def poll(self, seconds, count):
        self.slept.append(seconds)
        return []


def slept(epoll, seconds):
    real = epoll._epoll
    epoll._epoll = recorder = Recorder(real)
    try:
        epoll.sleep(seconds)
    finally:
        epoll._epoll = real
    return recorder.slept


def test_sleep_is_in_a_poll_that_somebody_has_replaced(epoll, monkeypatch):
    """gevent's lets other greenlets run; a look needs none."""
    real, used = select.poll, []

    def poll():
        used.append(True)
        return real()

    monkeypatch.setattr(select, "poll", poll)
    epoll.sleep(0)
    assert not used
    assert slept(epoll, 0.01) == [0]
    assert used


def test_time_of_a_sleep(epoll):
    """It is in one call; the system takes no more than 24 days."""
    assert slept(epoll, 0) == [0] and slept(epoll, 0.5) == [0.5]
    (forever,), (ages,) = slept(epoll, None), slept(epoll, 1e9)
    assert forever < 0 and 1e6 < ages < 2**31 / 1000
    epoll._fading[7] = 0.0  # a code is waited for that comes soon or never
    for seconds in None, 1e9:
        assert slept(epoll, seconds) == [0.01]
    assert slept(epoll, 0.001) == [0.001]
    epoll._events.append((7, 1))
    assert slept(epoll, None) == []


def test_time_of_a_sleep_that_nothing_could_end(monkeypatch):
    def pipe():
        raise OSError(errno.EMFILE, "on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", pipe)
        epoll = epoll_set.EpollSet(True)
    try:
        assert slept(epoll, None) == slept(epoll, 1e9) == [0.04]
        assert slept(epoll, 0.001) == [0.001]
    finally:
        epoll.close()


def test_set_of_one_thread_needs_one_file_descriptor():
    before = all_fds()
    epoll = epoll_set.EpollSet(False)
    try:
        assert len(all_fds()) == len(before) + 1
        epoll.alarm(0)  # nobody else could sleep
        assert not is_readable(epoll)
    finally:
        epoll.close()
    assert all_fds() == before


def test_copy_in_a_forked_child(epoll):
    """Several threads may share it, also where one has made it."""
    fd = epoll.fileno()
    copy = epoll.forked()
    try:
        assert not is_open(fd)
        copy.alarm(0)
        assert is_readable(copy, 60)
    finally:
        copy.close()


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


def test_bell_does_not_ring_before_its_time(monkeypatch):
    monkeypatch.setattr(epoll_set.EpollSet, "_set_timer", lambda self, seconds: None)
    epoll = epoll_set.EpollSet(True)
    try:
        epoll.alarm(0.5)
        assert not is_readable(epoll)
        epoll.alarm(0)
        assert is_readable(epoll)
    finally:
        epoll.close()


def test_timer_is_there_once_it_is_needed(epoll):
    """Later there may be no file descriptor left for it."""
    before = len(all_fds())
    epoll.alarm(None)
    assert epoll.fileno(False) == epoll._epoll.fileno() and len(all_fds()) == before
    assert epoll.fileno() == epoll._epoll.fileno() and len(all_fds()) == before + 1
    epoll.alarm(0.001)
    assert is_readable(epoll, 60) and len(all_fds()) == before + 1


def test_timer_is_set_again_after_a_signal_handler_has_raised(epoll, monkeypatch):
    """It may have been set."""
    told = []

    def set_(self, seconds):
        told.append(seconds)
        if seconds == 5:
            raise KeyboardInterrupt

    timers.open_timerfd().close()  # it has been checked that timers go off
    monkeypatch.setattr(timers.TimerFd, "set", set_)
    with pytest.raises(KeyboardInterrupt):
        epoll.alarm(5)
    epoll.alarm(None)
    epoll.alarm(None)
    epoll.alarm(6)
    epoll.alarm(None)
    assert told == [5, None, 6, None]


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


@pytest.mark.parametrize(
    "variant, name", [(VARIANT, "PidfdSet"), ("polling", "EpollSet"), ("none", "PolledSet")]
)
@pytest.mark.parametrize("wake", [None, lambda: None], ids=["threads", "event loop"])
def test_best_set(request, use_variant, variant, name, wake):
    """An event loop's, too, which on Windows would be another one."""
    if variant == "none":
        request.getfixturevalue("no_events")
    use_variant("polling" if variant == "none" else variant)
    made = sets.open_set(False, wake)
    made.close()
    assert type(made).__name__ == name


LOADED = """
import importlib, sys
importlib.import_module("{package}._backends.sets")
print("{package}._backends.pidfd_set" in sys.modules)
"""


def test_best_set_is_loaded_before_it_is_needed():
    """By then there may be no file descriptor left to load it with."""
    assert run_python(LOADED.format(package=pidwait.__name__)).stdout == "True\n"


@pytest.mark.parametrize("variant", [VARIANT, "polling"])
def test_no_epoll_is_to_be_had(use_variant, monkeypatch, variant):
    """All members are polled then."""
    use_variant(variant)

    def refuse():
        raise OSError(errno.EMFILE, "on purpose")

    monkeypatch.setitem(calls._resolved, "epoll", refuse)
    for shared in False, True:
        assert type(sets.open_set(shared)) is polling_set.PolledSet


@pytest.mark.parametrize(
    "seconds, least, most",
    [(0, 1e-9, 1e-6), (-1, 1e-9, 1e-6), (0.001, 0.001, 0.001), (5, 5, 5), (None, 0, 0)],
)
def test_time_of_a_timer(monkeypatch, seconds, least, most):
    """timerfd_settime(2) takes 0 for never."""
    timer, told = timers.TimerFd(), []
    timer._settime = lambda fd, initial: told.append((fd, initial))
    try:
        timer.set(seconds)
        ((fd, initial),) = told
        assert fd == timer.fileno() and least <= initial <= most
    finally:
        timer.close()


def test_timer_that_does_not_go_off(monkeypatch):
    """It is given a while, as the machine may be busy."""
    waited, told = [], []

    def poll(fd, mask, deadline):
        waited.append(deadline.timeout)
        return 0

    def set_(self, seconds):
        told.append(seconds)

    monkeypatch.setattr(timers, "poll", poll)
    monkeypatch.setattr(timers.TimerFd, "set", set_)
    with pytest.raises(OSError, match="does not go off") as caught:
        timers.check()
    assert caught.value.errno == errno.ENOSYS and waited[0] > 0.5 and told[0] <= 0
    monkeypatch.setitem(checks._answers, timers.check, caught.value)
    with pytest.raises(OSError, match="does not go off"):
        timers.open_timer()
