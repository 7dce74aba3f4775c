# SPDX-License-Identifier: BSD-3-Clause
"""When polled sets look, and at which members, by a clock that the tests put forward."""

import errno
import importlib
import io
import os

import pytest

from .. import pidwait
from ..processes import become_zombie, exiting, gone_pid, interrupted_by, is_open
from .test_waitset import is_readable

paced_sets = importlib.import_module(pidwait.__name__ + "._backends.paced_sets")
polling_set = importlib.import_module(pidwait.__name__ + "._backends.polling_set")
RUNNING = polling_set.RUNNING
SETS = polling_set.PolledSet, paced_sets.EagerSet, paced_sets.QuietSet


class Clock:
    """``cost``: the seconds that a look takes."""

    def __init__(self):
        self.now = 1000.0
        self.cost = 0.0
        self.looked = []  # at the members with these numbers
        self.exited = {}  # number: code

    def __call__(self):
        return self.now

    def look_at(self, number):
        def look():
            self.now += self.cost
            self.looked.append(number)
            return self.exited.get(number, RUNNING)

        return look


class Member:
    def __init__(self, number, pid):
        self.number, self.pid = number, pid


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module, name in (
        (polling_set, "monotonic"),
        (polling_set, "clock"),
        (paced_sets, "monotonic"),
    ):
        monkeypatch.setattr(module, name, clock)
    return clock


def filled(kind, clock, count, pid=None):
    polled = kind()
    for number in range(count):
        polled.add_look(Member(number, pid), clock.look_at(number))
    return polled


def turns(polled, clock, count, last=False):
    """The members of each turn, and the seconds before it."""
    found = []
    for _ in range(count):
        delay = polled.delay()
        clock.now += delay
        del clock.looked[:]
        polled.look(last)
        found.append((list(clock.looked), round(delay, 9)))
    return found


@pytest.mark.parametrize("kind", SETS)
def test_without_members(kind, clock):
    polled = kind()
    assert polled.delay() is None and polled.members() == [] and len(polled) == 0
    polled.look(True)
    found = []
    polled.take(found.append, True)
    assert found == [] and polled.delay() is None


@pytest.mark.parametrize("kind", SETS[:2])
def test_share_of_a_core(kind, clock):
    clock.cost = 0.01
    polled = filled(kind, clock, 2)
    assert [delay for _, delay in turns(polled, clock, 3)] == [0, 0.58, 0.58]
    # A new one is looked at now; but where that comes often, the share counts.
    polled.add_look(Member(2, None), clock.look_at(2))
    assert polled.delay() == (0 if kind is polling_set.PolledSet else pytest.approx(0.58))


@pytest.mark.parametrize("kind", SETS)
def test_look_before_its_time(kind, clock):
    polled = filled(kind, clock, 2)
    if kind is not paced_sets.QuietSet:
        turns(polled, clock, 1)
    del clock.looked[:]
    polled.look()
    assert clock.looked == []
    polled.look(True)
    assert clock.looked == [0, 1]


@pytest.mark.parametrize("kind", SETS)
def test_found_is_reported_once(kind, clock):
    polled = filled(kind, clock, 3)
    first, second, third = polled.members()
    assert not polled.has_exited(second)
    clock.exited = {0: 7, 1: None}
    assert polled.has_exited(first) and polled.has_exited(second)
    polled.discard(first)
    assert not polled.has_exited(first)
    polled.look(True)
    assert polled.delay() == 0 and polled.members() == [third]
    found = []
    polled.take(found.append, False)
    polled.take(found.append, False)
    assert found == [(second, None)]
    assert polled.delay() > 0


@pytest.mark.parametrize("kind", SETS)
def test_discarded_by_another_look(kind, clock):
    """What has left the set meanwhile is not reported."""
    polled = filled(kind, clock, 1)
    other = Member(1, None)

    def look():
        polled.discard(other)
        return 7

    polled.add_look(other, look)
    polled.look(True)
    assert polled.delay() != 0 and other not in polled


def test_when_it_looked(clock):
    """Not while it looks."""
    polled = paced_sets.EagerSet()
    seen = []

    def look():
        clock.now += 1
        seen.append((polled.looked(), polled.delay()))
        polled.look(True)  # in vain
        return RUNNING

    polled.add_look(Member(0, None), look)
    assert polled.looked() < 1000
    began = clock.now
    polled.look()
    assert seen == [(None, 0.04)]
    assert polled.looked() == began
    polled.hurry()
    assert polled.delay() == pytest.approx(29)


def test_looks_that_are_hurried(clock):
    """The next one is at once, and the intervals are the shortest ones again."""
    polled = filled(paced_sets.EagerSet, clock, 1)
    for hurry in polled.hurry, lambda: polled.add_look(Member(1, None), clock.look_at(1)):
        turns(polled, clock, 11)
        assert polled.delay() == pytest.approx(0.04)
        hurry()
        assert [delay for _, delay in turns(polled, clock, 3)] == [0, 0.0001, 0.0002]


def test_last_quiet_one_leaves_before_its_turn(clock):
    """Another thread has discarded it."""
    polled = paced_sets.QuietSet()
    assert polled._turn(False) == []


def test_quiet_ones_have_turns(clock):
    """A part has its turn at a time, from the last to the first."""
    polled = filled(paced_sets.QuietSet, clock, 300)
    numbers = list(range(300))
    first = polled.longest
    assert turns(polled, clock, 4) == [
        (numbers[172:], first),
        (numbers[44:172], pytest.approx(first * 128 / 300)),
        (numbers[:44], pytest.approx(first * 128 / 300)),
        (numbers[172:], pytest.approx(first * 44 / 300)),
    ]
    for member in polled.members()[:200]:  # those that are left move up
        polled.discard(member)
    assert [looked for looked, _ in turns(polled, clock, 2)] == [numbers[200:]] * 2


def test_quiet_ones_that_are_new(clock):
    """They do not delay the look at those that were there before."""
    polled = filled(paced_sets.QuietSet, clock, 1)
    clock.now += 0.75
    polled.add_look(Member(1, None), clock.look_at(1))
    assert turns(polled, clock, 2) == [([0, 1], 0.25), ([0, 1], 1)]


def test_quiet_looks_take_a_smaller_share(clock):
    clock.cost = 0.1
    polled = filled(paced_sets.QuietSet, clock, 1)
    assert [delay for _, delay in turns(polled, clock, 3)] == [
        1,
        *[pytest.approx(2.9 + 2 * 2.9)] * 2,
    ]


@pytest.mark.parametrize("hears_all", [False, True])
def test_last_look(clock, hears_all):
    """Where each exit is heard of, a quick look is enough, and no other look is put off."""
    polled = filled(paced_sets.QuietSet, clock, 1, os.getpid())
    polled.add_look(Member(1, gone_pid()), clock.look_at(1))
    polled.hears_all = hears_all
    clock.now += 0.75
    polled.look(True)
    assert clock.looked == ([1] if hears_all else [0, 1])
    assert polled.delay() == (0.25 if hears_all else 1)


@pytest.mark.parametrize("kind", SETS)
def test_what_can_not_be_polled(kind):
    polled = kind()
    nameless, gone, me = Member(0, None), Member(1, gone_pid()), Member(2, os.getpid())
    failed = polled.add([nameless, gone, me])
    assert [member for member, _ in failed] == [nameless, gone]
    assert failed[0][1].errno == errno.EAGAIN and isinstance(failed[1][1], ProcessLookupError)
    assert polled.members() == [me] and not polled.has_exited(me)
    polled.close()
    assert len(polled) == 0


def test_look_reaps_nothing(start):
    child, polled, found = start(*exiting(3)), polling_set.PolledSet(), []
    member = Member(0, child.pid)
    assert polled.add([member]) == []
    become_zombie(child.pid)
    polled.look()
    polled.take(found.append, False)
    assert found == [(member, 3)] and child.wait() == 3
    polled.close()


def test_error_that_a_signal_handler_raises(monkeypatch):
    """It says nothing about the member."""
    with interrupted_by(OSError(errno.EMFILE, "on purpose")) as interrupted:
        monkeypatch.setattr(polling_set, "open_polled", interrupted)
        with pytest.raises(OSError, match="on purpose"):
            polling_set.PolledSet().add([Member(0, os.getpid())])


def test_timer_of_a_polled_set():
    polled = polling_set.PolledSet()
    polled.alarm(0)  # there is no timer that could go off
    with pytest.raises(io.UnsupportedOperation):
        polled.fileno(False)
    fd = polled.fileno()
    assert polled.fileno() == fd and not is_readable(polled)
    polled.alarm(0.001)
    assert is_readable(polled, 60)
    polled.alarm(None)
    assert not is_readable(polled)
    polled.close()
    assert not is_open(fd)


def test_copy_of_a_polled_set(clock):
    """It reports what has been found, too, and looks at the others at once."""
    polled = filled(polling_set.PolledSet, clock, 3)
    first, second, third = polled.members()
    clock.exited = {0: 7}
    polled.look()
    copy = polled.forked()
    assert len(polled) == 0 and copy.members() == [second, third]
    assert copy.delay() == 0
    clock.exited = {1: 8}
    copy.look()
    found = []
    copy.take(found.append, False)
    assert found == [(first, 7), (second, 8)]
    assert copy.delay() == pytest.approx(0.0001)
