# SPDX-License-Identifier: BSD-3-Clause
"""File descriptors that have an owner from the moment they are opened."""

import ast
import errno
import functools
import importlib
import itertools
import operator
import os
import platform
import signal

import pytest

from . import pidwait
from .processes import not_on_windows
from .test_waitset import is_readable

timers = importlib.import_module(pidwait.__name__ + "._backends.timers")
fd = importlib.import_module(pidwait.__name__ + "._fd")
deadlines = importlib.import_module(pidwait.__name__ + "._deadline")


@not_on_windows("timers")
def test_timer_of_a_set(use_variant):
    use_variant("pidfd-ctypes")
    timer = timers.open_timer()
    try:
        timer.set(50)
        assert not is_readable(timer, 0) and left(timer) != (0, 0)
        timer.set(None)
        assert left(timer) == (0, 0)
        for at_once in 0, -1, 1e-12:
            timer.set(at_once)
            assert left(timer) < (0, 1000)  # seconds, nanoseconds
            assert is_readable(timer, 20)
            timer.set(50)
            assert not is_readable(timer, 0)
    finally:
        timer.close()


def left(timer):
    with open("/proc/self/fdinfo/%d" % timer.fileno()) as file:
        return next(ast.literal_eval(line[10:]) for line in file if line.startswith("it_value:"))


@not_on_windows("timers")
def test_timer_that_does_not_go_off(monkeypatch):
    monkeypatch.setattr(timers, "poll", lambda fd, mask, deadline: 0)
    with pytest.raises(OSError, match="does not go off"):
        timers.check()


@not_on_windows("timers")
def test_timer_that_goes_off_late(use_variant, monkeypatch):
    """On a busy machine, say; the check waits for it."""
    use_variant("pidfd-ctypes")
    set_timer = timers.TimerFd.set
    monkeypatch.setattr(timers.TimerFd, "set", lambda timer, seconds: set_timer(timer, 0.05))
    timers.check()


class Stop(Exception):
    pass


def stop(*args):
    raise Stop


def interrupted():
    """An iterator that opens a file, then has a signal come: all in C, so the handler waits."""
    steps = itertools.chain(
        map(os.open, [os.devnull], [os.O_RDONLY]),
        map(signal.setitimer, [signal.ITIMER_REAL], [1e-6]),
        map(sum, [range(200000)]),  # long enough for the timer to go off
    )
    return filter(functools.partial(operator.contains, range(3, 1000)), steps)


@not_on_windows("setitimer")
@pytest.mark.skipif(platform.python_implementation() == "PyPy", reason="PyPy interprets map")
def test_interrupted():
    """The file is closed: conftest.nothing_left checks that."""
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Stop):
            fd.opened(max, interrupted())
    finally:
        signal.signal(signal.SIGALRM, before)


@not_on_windows("select.epoll")
def test_owner():
    owner = fd.opened(os.open, os.devnull, os.O_RDONLY)
    number = owner.fileno()
    os.fstat(number)
    owner.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    owner.close()


def test_error_of_the_function(tmp_path):
    with pytest.raises(FileNotFoundError):
        fd.opened(os.open, str(tmp_path / "none"), os.O_RDONLY)


# poll(2) on one


NVAL = 0x020


class Polls:
    """The select module, with a poll() that gives these answers in turn."""

    POLLNVAL = NVAL

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def register(self, number, mask):
        self.asked.append((number, mask))

    def poll(self, *milliseconds):
        if not milliseconds:
            return self
        self.asked.append(*milliseconds)
        return self.answers.pop(0)


def polled(monkeypatch, polls, mask, deadline):
    monkeypatch.setattr(fd, "select", polls)
    return fd.poll(7, mask, deadline)


def test_poll_tells_the_event(monkeypatch):
    polls = Polls([], [(7, 17)])
    assert polled(monkeypatch, polls, 1, deadlines.FOREVER) == 17
    assert polls.asked == [(7, 1), None, None]


def test_poll_looks_once_where_the_time_is_up(monkeypatch):
    polls = Polls([])
    assert polled(monkeypatch, polls, 1, deadlines.NOW) == 0
    assert polls.asked == [(7, 1), 0] and polls.answers == []


def test_poll_of_what_is_not_open(monkeypatch):
    with pytest.raises(OSError, match="fd 7") as raised:
        polled(monkeypatch, Polls([(7, NVAL)]), 1, deadlines.NOW)
    assert raised.value.errno == errno.EBADF
    assert polled(monkeypatch, Polls([(7, NVAL)]), NVAL, deadlines.NOW) == NVAL  # if asked for


def test_poll_that_was_removed(monkeypatch):
    with pytest.raises(OSError, match="no poll") as raised:
        polled(monkeypatch, object(), 1, deadlines.NOW)
    assert raised.value.errno == errno.ENOSYS


class File:
    def __init__(self, error=None):
        self.error, self.closes = error, 0

    def close(self):
        self.closes += 1
        if self.error is not None:
            raise self.error


def test_close_of_what_somebody_else_has_closed():
    for error in None, OSError(errno.EBADF, "on purpose"):
        file = File(error)
        fd.close(file)
        assert file.closes == 1
