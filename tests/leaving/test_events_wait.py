# SPDX-License-Identifier: BSD-3-Clause
"""The wait for one process, with events and looks that are scripted."""

import errno
import importlib
import os
import threading
import time
from types import SimpleNamespace

import pytest

from .. import pidwait
from .events import Script, connector, module

events = module("events")
deadlines = importlib.import_module(pidwait.__name__ + "._deadline")
PID = os.getpid()


class Looks:
    """Looks that find no exit until there are events; from then on ``answer(number)`` decides."""

    def __init__(self, script, answer):
        self.script, self.answer = script, answer
        self.before = self.count = 0

    def __call__(self):
        if not self.script.heard:
            self.before += 1
            return False
        self.count += 1
        return self.answer(self.count)


@pytest.fixture
def script(monkeypatch):
    script = Script()
    opened = []

    def open_events(pid):
        assert pid == PID
        opened.append(script)
        return script

    monkeypatch.setattr(events, "open_events", open_events)
    yield script
    if opened:
        assert not script.fds, "it was not closed"
    script.close()


def wait(look, deadline=None):
    return events.wait(look, deadline or events.Deadline(None), PID)


def test_message_before_the_look(script):
    def answer(count):
        if count == 3:
            script.tell(PID, True, 3 << 8)
        return count == 3

    has_exited, status = wait(Looks(script, answer))
    assert has_exited is True and status.code() == 3


def test_message_after_the_look(script, monkeypatch):
    monkeypatch.setattr(connector.Status, "patience", 3600.0)

    def answer(count):
        timer = threading.Timer(0.05, script.tell, (PID, True, 3 << 8))
        timer.start()
        return True

    has_exited, status = wait(Looks(script, answer))
    assert has_exited is True and status.code() == 3


@pytest.fixture
def deadline():
    """A deadline that a look can bring forward: no time is up before there are events."""
    return events.Deadline(None)


def test_only_the_shortest_pauses_are_not_ended_by_events(script, monkeypatch):
    told, slept, real = [], [], time.sleep

    def sleep(seconds):
        slept.append(seconds)
        real(min(seconds, 0.01))

    def tell():
        told.append(True)
        script.tell(PID, True, 0)

    monkeypatch.setattr(events, "time", SimpleNamespace(sleep=sleep))
    script.longest = 1.0
    threading.Timer(0.2, tell).start()  # after the looks that follow upon the beginning
    assert wait(Looks(script, lambda count: bool(told)))[0] is True
    assert slept and max(slept) < 0.003


def test_message_that_does_not_come(script, monkeypatch):
    monkeypatch.setattr(connector.Status, "patience", 0.05)
    has_exited, status = wait(Looks(script, lambda count: True))
    assert has_exited is True and status.code() is None


def test_time_is_up_before_the_message(script, monkeypatch, deadline):
    monkeypatch.setattr(connector.Status, "patience", 3600.0)

    def answer(count):
        deadline._at = time.monotonic() + 0.05
        return True

    has_exited, status = wait(Looks(script, answer), deadline)
    assert has_exited is True and status.code() is None


def test_message_about_a_thread_that_ended_before(script, monkeypatch):
    """The process runs on, and a later message counts."""
    add_again, again = script.add_again, []

    def calm(key, pid):
        again.append(pid)
        return add_again(key, pid)

    monkeypatch.setattr(script, "add_again", calm)

    def answer(count):
        if count == 1:
            script.tell(PID, True, 0)
        if again and not script.messages:
            script.tell(PID, True, 15)
            return True
        return False

    has_exited, status = wait(Looks(script, answer))
    assert has_exited is True and status.code() == -15 and again == [PID]


def test_messages_of_several_threads(script):
    """The code is taken from all that have come when the exit is seen."""

    def answer(count):
        if count == 1:
            script.tell(PID, True, 0)
        if script.messages:
            return False
        script.tell(PID, False, 7 << 8)
        return True

    has_exited, status = wait(Looks(script, answer))
    assert has_exited is True and status.code() is None


@pytest.mark.parametrize("name", ["connector", "inotify"])
def test_check_is_that_of_the_events(monkeypatch, name):
    def check():
        raise OSError(errno.EPERM, "on purpose")

    monkeypatch.setattr(module(name), "check", check)
    with pytest.raises(PermissionError, match="on purpose"):
        getattr(events, "check_" + name)()


def test_end_of_the_time(script, deadline):
    """One more look follows."""

    def answer(count):
        if count == 3:
            deadline._at = 0.0
        return False

    looks = Looks(script, answer)
    has_exited, _ = wait(looks, deadline)
    assert has_exited is False and looks.count == 4


@pytest.mark.parametrize("seconds", [0, -1])
def test_one_look(script, seconds):
    looks = Looks(script, lambda count: False)
    assert wait(looks, events.Deadline(seconds)) == (False, None)
    assert looks.before == 1 and not script.heard


def test_exit_that_comes_soon(script, monkeypatch):
    """Events are not worth their file descriptor before there have been a few looks."""
    first = []

    def poll_without(look, deadline, *interval):
        first.append(deadline.timeout)
        return look()

    monkeypatch.setattr(events, "poll_without", poll_without)
    assert wait(lambda: True) == (True, None)
    assert len(first) == 1 and 0.001 < first[0] < 0.02


def test_time_is_up_before_events_are_worth_it(script, monkeypatch, deadline):
    polled = []

    def poll_without(look, given, *interval):
        deadline._at = 0.0
        polled.append(interval)
        return False

    monkeypatch.setattr(events, "poll_without", poll_without)
    assert wait(lambda: False, deadline) == (False, None)
    assert polled == [(), (events.LONGEST,)] and not script.heard


@pytest.fixture
def clock(script, monkeypatch):
    """[now], by a clock that only sleep and poll put forward."""
    now = [1000.0]

    def sleep(seconds):
        now[0] += seconds

    def poll(fd, mask, given):
        if not script.messages:
            sleep(given.remaining())
        return mask if script.messages else 0

    for name in events, deadlines:
        monkeypatch.setattr(name, "monotonic", lambda: now[0])
        monkeypatch.setattr(name, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(connector, "monotonic", lambda: now[0])
    monkeypatch.setattr(events, "poll", poll)
    return now


def test_looks_follow_for_about_a_tenth_of_a_second(script, clock, monkeypatch):
    """At first, and after an event: it may come before the exit can be seen."""
    began, calmed, looked = [], [], []
    add, read, add_again = script.add, script.read, script.add_again

    def noting(call, times):
        def noting(*arguments):
            times.append(clock[0])
            return call(*arguments)

        return noting

    def look():
        looked.append(clock[0])
        if len(calmed) == 1 and clock[0] == calmed[0] + 3600:
            script.tell(PID)
        assert len(looked) < 100
        return len(calmed) == 2

    monkeypatch.setattr(script, "add", noting(add, began))
    monkeypatch.setattr(script, "read", noting(read, began))
    monkeypatch.setattr(script, "add_again", noting(add_again, calmed))
    assert wait(look)[0] is True
    for start, end in zip(began, calmed):
        assert 0.08 <= end - start < 0.12
        assert len([each for each in looked if start <= each < end]) > 5


def no_events(script, monkeypatch):
    monkeypatch.setattr(events, "open_events", lambda pid: None)


def no_room(script, monkeypatch):
    def fail(pid):
        raise OSError(errno.EMFILE, "on purpose")

    monkeypatch.setattr(events, "open_events", fail)


def not_for_this_one(script, monkeypatch):
    monkeypatch.setattr(script, "add", lambda pid: None)


def not_any_more(script, monkeypatch):
    monkeypatch.setattr(script, "add_again", lambda key, pid: None)


def events_end(script, monkeypatch):
    def fail():
        raise OSError(errno.EIO, "on purpose")

    monkeypatch.setattr(script, "read", fail)
    script.tell(PID, True, 0)


@pytest.mark.parametrize(
    "without", [no_events, no_room, not_for_this_one, not_any_more, events_end]
)
def test_without_events_it_is_polled(script, monkeypatch, caplog, without):
    without(script, monkeypatch)
    polled = []

    def poll_without(look, deadline, *first):
        polled.append(first)
        return len(polled) == 2

    def look():
        return False

    monkeypatch.setattr(events, "poll_without", poll_without)
    with caplog.at_level("DEBUG"):
        assert wait(look) == (True, None)
    assert polled == [(), (events.LONGEST,)]
    assert ("is polled without events: " in caplog.text) is (without in (no_room, events_end))


@pytest.mark.parametrize(
    "pid, may_have_exited", [("its", True), ("its", False), ("other", True), ("all", True)]
)
def test_looks_after_an_event(script, monkeypatch, pid, may_have_exited):
    """Several follow an event that may be about the exit, and one follows any other."""
    key = {"its": PID, "other": PID + 1, "all": None}[pid]
    monkeypatch.setattr(script, "may_have_exited", lambda key, pid: may_have_exited)
    add_again, calmed, since, told = script.add_again, [], [], []

    def calm(*arguments):
        calmed.append(arguments)
        return add_again(*arguments)

    def answer(count):
        if not calmed:
            return False
        since.append(count)
        told.append(not script.messages)  # the event has been read
        if len(since) <= 2:
            script.tell(key)
        return len(calmed) == 2 or (len(since) == 3 and told[-1])

    monkeypatch.setattr(script, "add_again", calm)
    has_exited, _ = wait(Looks(script, answer))
    assert has_exited
    assert (len(calmed) == 2) is (pid != "other" and may_have_exited)


def test_code_may_come_after_the_exit_can_be_seen():
    """With the patience as it is: other tests change it."""
    assert connector.Status().is_due()
