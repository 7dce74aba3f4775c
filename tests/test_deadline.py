# SPDX-License-Identifier: BSD-3-Clause
"""Deadlines and the polling schedule, with a clock that the test sets."""

import importlib
import itertools

import pytest

from . import pidwait

deadline = importlib.import_module(pidwait.__name__ + "._deadline")
polling = importlib.import_module(pidwait.__name__ + "._deadline")


class Clock:
    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(deadline, "monotonic", clock.monotonic)
    monkeypatch.setattr(polling.time, "sleep", clock.sleep)
    return clock


@pytest.mark.parametrize("timeout", [None, float("inf"), 10**400])
def test_for_ever(clock, timeout):
    end = deadline.Deadline(timeout)
    clock.now += 1e9
    assert not end.expired()
    assert end.remaining() is None
    assert end.milliseconds() is None
    assert end.at_most(7) == 7


@pytest.mark.parametrize("timeout", [0, -1, -1e300, float("-inf"), -(10**400)])
def test_no_time(clock, timeout):
    end = deadline.Deadline(timeout)
    assert end.expired()
    assert end.remaining() == 0
    assert end.milliseconds() == 0


def test_time_that_began_before(clock):
    end = deadline.Deadline(10, clock.now - 4)
    assert end.remaining() == 6 and end.milliseconds() == 6000 and end.timeout == 10
    assert end.at_most(7) == 6 and end.at_most(5) == 5
    assert deadline.Deadline(10, 0.0).expired()
    assert deadline.Deadline(10, None).remaining() == 10


def test_one_look_and_no_end():
    """Whenever they are used after the import."""
    assert polling.NOW.timeout <= 0 and polling.NOW.expired()
    assert not polling.FOREVER.expired() and polling.FOREVER.remaining() is None


@pytest.mark.parametrize("cost", [0.001, 1.0])
def test_looking_takes_a_small_share(cost):
    assert 0.02 < cost / (cost + polling.share(cost)) < 0.05


@pytest.mark.parametrize(
    "seconds, milliseconds",
    [(0.001, 1), (0.0005, 1), (5e-7, 1), (0.0015, 2), (0.25, 250), (0.2500001, 251), (2, 2000)],
)
def test_rounded_up(clock, seconds, milliseconds):
    clock.now = 0.0
    assert deadline.Deadline(seconds).milliseconds() == milliseconds


@pytest.mark.parametrize("timeout", [2147483.648, 2147484, 1e10, 2**63, 1e308])
def test_more_than_one_poll_can_take(clock, timeout):
    end = deadline.Deadline(timeout)
    assert end.milliseconds() == 2**31 - 1
    clock.now += 2147483.647
    assert not end.expired()


def test_schedule():
    first = list(itertools.islice(polling.intervals(), 12))
    assert first[:4] == [0.0001, 0.0002, 0.0004, 0.0008]
    assert first[9:] == [0.04] * 3
    assert first == sorted(first)


def test_polling_looks_after_the_deadline(clock):
    looks = []

    def look():
        looks.append(clock.now)
        clock.now += 0.03  # a look may begin before the deadline and end after it
        return False

    assert not polling.poll(look, deadline.Deadline(0.1))
    assert looks[0] == 1000.0
    assert looks[-1] >= 1000.1
    assert looks[-2] < 1000.1


def test_polling_looks_once_without_time(clock):
    looks = []
    assert not polling.poll(lambda: looks.append(True), deadline.Deadline(0))
    assert len(looks) == 1 and clock.slept == []


def test_polling_ends_once_a_look_is_true(clock):
    answers = iter([False, False, True])
    assert polling.poll(lambda: next(answers), deadline.Deadline(None))
    assert clock.slept == [0.0001, 0.0002]
