# SPDX-License-Identifier: BSD-3-Clause
"""When a set looks at its polled members, step by step."""

import errno
import importlib
import io
import os
import threading

import pytest

from . import pidwait
from .processes import become_zombie
from .test_engine import refuse
from .test_forks import in_a_fork

outcome = importlib.import_module(pidwait.__name__ + "._outcome")
polling_set = importlib.import_module(pidwait.__name__ + "._backends.polling_set")


class Clock:
    """A clock that only sleep() puts forward; looks take no time."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Member:
    def __init__(self, pid):
        self.pid = pid


@pytest.fixture
def time(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(polling_set, "monotonic", clock)
    monkeypatch.setattr(polling_set, "clock", lambda: 0.0)
    monkeypatch.setattr(polling_set, "time", clock)
    return clock


@pytest.fixture
def members(use_variant, no_events, sleeper):
    """A set with one member, which is polled."""
    use_variant("polling")
    with pidwait.WaitSet([sleeper.pid]) as members:
        yield members


def intervals(members, time, count):
    polled, found = members._engine.sets.polled, []
    for _ in range(count):
        assert members.wait(0) == []
        del time.slept[:]
        polled.sleep(None)
        found += time.slept
    return pytest.approx(found)


DOUBLED = [0.0001 * 2**number for number in range(9)] + [0.04, 0.04]


def test_intervals_double(members, time):
    assert intervals(members, time, 11) == DOUBLED


def test_what_is_found_is_no_reason_to_look(time):
    """It is there to be taken; the others are looked at when it is time."""
    polled, looks, one = polling_set.PolledSet(), [], Member(1)

    def look():
        looks.append(time())
        return outcome.RUNNING

    for member in one, Member(2):
        polled.add_look(member, look)
    polled.look()
    polled.find(one, 3)
    assert polled.delay() == 0
    polled.look()
    assert len(looks) == 2
    exits = []
    polled.take(exits.append, False)
    assert exits == [(one, 3)]


def test_intervals_start_again_with_a_new_member(members, time):
    assert intervals(members, time, 11) == DOUBLED
    members.add(os.getppid())
    assert members._engine.delay() == 0
    assert intervals(members, time, 11) == DOUBLED


def test_sleep_ends_with_its_time(members, time):
    assert intervals(members, time, 11) == DOUBLED
    assert members.wait(0) == []
    members._engine.sets.polled.sleep(0.03)
    assert time.slept[-1] == 0.03


def test_sleep_of_nothing_to_look_at_is_short(members, time, sleeper):
    """Nothing can end the sleep early."""
    members.discard(sleeper.pid)
    for seconds in None, 50:
        members._engine.sets.polled.sleep(seconds)
    assert time.slept == [0.04, 0.04]


def test_while_another_thread_looks(members, time):
    """No look is due until that thread is done; then one is due at once."""
    polled = members._engine.sets.polled
    polled._looker["is"] = object()
    polled.look()
    assert polled.delay() == 0.04
    del polled._looker["is"]
    assert polled.delay() == 0


def no_file_descriptors(monkeypatch, *names):
    for name in names:
        refuse(monkeypatch, name, error=OSError(errno.EMFILE, "no fds"))


def test_room_goes_to_those_that_still_need_it(
    use_variant, no_events, monkeypatch, start_told, sleeper
):
    use_variant("pidfd-ctypes")
    first, second = start_told(1), start_told(2)
    with pidwait.WaitSet([first.pid]) as members:
        with monkeypatch.context() as patch:
            no_file_descriptors(patch, "pidfd_open")
            members.add(second.pid)
            members.add(sleeper.pid)
        sets = members._engine.sets
        assert len(sets.polled) == 2
        second.stdin.close()
        assert second.wait() == 2
        assert members.wait(20) == [(second.pid, None)]
        first.stdin.close()
        assert members.wait(20) == [(first.pid, 1)]
        assert len(sets.polled) == 0 and not sets._without_room
        sleeper.kill()
        assert members.wait(20) == [(sleeper.pid, -9)]


def test_polled_member_in_a_forked_child(use_variant, no_events, monkeypatch, start_told, sleeper):
    """Some thread of the parent was looking at it."""
    use_variant("pidfd-ctypes")
    child = start_told(3)
    with pidwait.WaitSet([sleeper.pid]) as members:
        with monkeypatch.context() as patch:
            no_file_descriptors(patch, "pidfd_open")
            members.add(child.pid)
        sets = members._engine.sets
        assert sets.polled is not sets.best
        child.stdin.close()
        become_zombie(child.pid)
        sets.polled._looker["is"] = object()

        def wait():
            assert members.wait(20) == [(child.pid, 3)]

        assert in_a_fork(wait)


def test_fileno_for_which_there_is_no_timer(either, monkeypatch, sleeper):
    no_file_descriptors(monkeypatch, "pidfd_open", "timerfd_create")
    for name in "SHORTEST", "LONGEST":  # the first look is at once, the next one a minute later
        monkeypatch.setattr(polling_set, name, 60.0)
    with pidwait.WaitSet([sleeper.pid]) as members:
        assert members.wait(0) == []
        with pytest.raises(io.UnsupportedOperation, match="the set has no fileno: .*no fds"):
            members.fileno()
        assert members.wait(0) == []


def test_sleep_that_is_forbidden(members, time, monkeypatch):
    """Then waits fail, but the set stays usable for when sleeping is allowed again."""

    def forbidden(seconds):
        raise PermissionError(errno.EPERM, "a policy")

    monkeypatch.setattr(time, "sleep", forbidden)
    for _ in range(2):
        with pytest.raises(PermissionError):
            members.wait(1)
    assert len(members) == 1
    monkeypatch.undo()
    assert members.wait(0) == []


@pytest.mark.parametrize("variant", ["pidfd-ctypes", "polling", "no file descriptor"])
def test_whether_a_member_has_exited(use_variant, start_told, sleeper, monkeypatch, variant):
    use_variant("pidfd-ctypes" if variant.startswith("no") else variant)
    child = start_told(3)
    with pidwait.WaitSet() as members:
        if variant.startswith("no"):
            no_file_descriptors(monkeypatch, "pidfd_open")
        members.add(child.pid)
        members.add(sleeper.pid)
        sets = members._engine.sets
        one, other = members._engine
        assert not sets.has_exited(one) and not sets.has_exited(other)
        child.stdin.close()
        become_zombie(child.pid)
        assert sets.has_exited(one) and not sets.has_exited(other)
        sets.sleep(5)
        sets.look(True)
        sets.take(True)
        assert sets.has_exited(one) and not sets.has_exited(other)


def test_look_while_another_thread_takes():
    """A look adds to the exits that it has found without the set's lock."""
    count, told, polled = 20000, [], polling_set.PolledSet(True)
    members = [Member(number) for number in range(count)]
    for member in members:
        polled.add_look(member, lambda: 0)
    looking = threading.Thread(target=polled.look)
    looking.start()
    while len(told) < count:
        polled.take(told.append, False)
        if not looking.is_alive():
            polled.take(told.append, False)
            break
    looking.join()
    assert sorted(told, key=lambda one: one[0].pid) == [(member, 0) for member in members]
    polled.close()
