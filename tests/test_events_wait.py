# SPDX-License-Identifier: BSD-3-Clause
"""The wait for one process that events end, step by step: both events and looks are scripted."""

import errno
import os
import threading

import pytest

from .events import Script, connector, module

events = module("events")
Deadline = events.Deadline
PID = os.getpid()


class Looks:
    """``answer(count)`` tells what the look finds of which that is the number, once it listens."""

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


def wait(look, seconds=None):
    return events.wait(look, Deadline(seconds), PID)


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


@pytest.mark.parametrize("patience, seconds", [(0.05, None), (3600.0, 0.1)])
def test_message_that_does_not_come(script, monkeypatch, patience, seconds):
    monkeypatch.setattr(connector.Status, "patience", patience)
    has_exited, status = wait(Looks(script, lambda count: True), seconds)
    assert has_exited is True and (status is None or status.code() is None)


def test_message_about_a_thread_that_ended_before(script, monkeypatch):
    """It runs on; what comes later counts."""
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


def test_end_of_the_time(script):
    looks = Looks(script, lambda count: False)
    has_exited, status = wait(looks, 0.3)
    assert has_exited is False and looks.count > 1


@pytest.mark.parametrize("seconds", [0, -1])
def test_one_look(script, seconds):
    looks = Looks(script, lambda count: False)
    assert wait(looks, seconds) == (False, None)
    assert looks.before == 1 and not script.heard


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


@pytest.mark.parametrize("pid, may_have_exited", [("its", True), ("its", False), ("other", True)])
def test_looks_after_an_event(script, monkeypatch, pid, may_have_exited):
    """Many if it may be about the process; else one."""
    key = PID if pid == "its" else PID + 1
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
    assert (len(calmed) == 2) is (pid == "its" and may_have_exited)
