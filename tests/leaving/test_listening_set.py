# SPDX-License-Identifier: BSD-3-Clause
"""What a set does with the proc connector's messages, step by step.

The messages are scripted, so that this runs in a PID namespace, too, where there is no connector.
"""

import os

import pytest

from .. import pidwait
from .events import Script, after_the_look, connector, end, module
from ..processes import become_zombie, eventually, exiting
from .test_forks import in_a_fork


@pytest.fixture
def script(use_variant, monkeypatch):
    use_variant("polling")
    script = Script()
    monkeypatch.setattr(module("listening_set"), "open_events", lambda: script)
    return script


@pytest.fixture
def gone(start, script):
    """gone(waiting, code): the pid of a process that was added before it exited and was reaped."""

    def gone(waiting, code=3):
        child = start(*exiting(code, 60))
        waiting.add(child.pid)
        child.kill()
        child.wait()
        return child.pid

    return gone


def test_code_that_only_a_message_tells(script, gone):
    with pidwait.WaitSet() as waiting:
        pid = gone(waiting)
        script.tell(pid, True, 3 << 8)
        assert waiting._engine.delay() > 1000
        assert waiting.wait() == [(pid, 3)]
        assert script.heard == []


def test_message_while_it_is_a_zombie(script, start):
    """waitid(2) tells the code, too, and counts."""
    child = start(*exiting(4))
    become_zombie(child.pid)
    other = os.getpid()
    with pidwait.WaitSet([other]) as waiting:
        waiting.add(child.pid)
        script.tell(child.pid, True, 3 << 8)
        assert waiting.wait() == [(child.pid, 4)]
        assert script.heard == [other]


def test_messages_of_several_threads(script, gone):
    """The code is taken from all that have come."""
    with pidwait.WaitSet() as waiting:
        pid = gone(waiting)
        script.tell(pid, True, 0)
        script.tell(pid, False, 7 << 8)
        assert waiting.wait() == [(pid, None)]


def test_end_of_a_thread(script, sleeper):
    """The process runs on, and later messages count."""
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        script.tell(sleeper.pid, True, 0)
        assert waiting.wait(0.02) == []
        while waiting._engine.delay() < 1000:
            assert waiting.wait(0.02) == []
        sleeper.terminate()
        sleeper.wait()
        script.tell(sleeper.pid, True, 15)
        assert waiting.wait() == [(sleeper.pid, -15)]


def test_message_after_the_exit_was_seen(script, gone, monkeypatch):
    monkeypatch.setattr(connector.Status, "patience", 3600.0)
    with pidwait.WaitSet() as waiting:
        pid = gone(waiting)
        script.tell(None)  # some were lost: all are looked at
        exits = []
        waiting._engine.sets.sleep(None)
        waiting._engine.collect(exits)
        assert exits == [] and waiting._engine.delay() == 0

        def looks_are_soon():  # but not at once
            waiting._engine.collect(exits)
            return 0 < waiting._engine.delay() < 1

        eventually(looks_are_soon)
        script.tell(pid, True, 3 << 8)
        assert waiting.wait() == [(pid, 3)]


def test_message_that_does_not_come(script, gone, monkeypatch):
    monkeypatch.setattr(connector.Status, "patience", 0.3)
    with pidwait.WaitSet() as waiting:
        pid = gone(waiting)
        script.tell(None)
        assert waiting.wait() == [(pid, None)]


def test_time_is_up_before_the_message(script, gone, monkeypatch):
    monkeypatch.setattr(connector.Status, "patience", 3600.0)
    with pidwait.WaitSet() as waiting:
        pid = gone(waiting)
        assert waiting.wait(0) == [(pid, None)]


def test_add_of_one_that_is_gone(script, sleeper):
    """What has been asked of the events for it is taken back."""
    never = 2**22 + 1
    with pidwait.WaitSet([sleeper.pid, never]) as waiting:
        assert waiting.wait(0) == [(never, None)]
        assert script.heard == [sleeper.pid]


def test_exit_right_after_the_look(script, start_told, monkeypatch):
    """The messages are read before the process is looked at: none of its exit is missed."""
    child = start_told(3)

    def exit_now():
        end(child)
        script.tell(child.pid, True, 3 << 8)

    after_the_look(monkeypatch, exit_now)
    with pidwait.WaitSet([child.pid]) as waiting:
        assert waiting._engine.delay() > 1000
        assert waiting.wait() == [(child.pid, 3)]


def test_forked_child(script, gone, monkeypatch):
    """It does not hear what its parent hears, nor takes anything from it."""
    with pidwait.WaitSet([os.getpid()]) as waiting:

        def look():
            monkeypatch.setattr(module("listening_set"), "open_events", lambda: None)
            assert waiting.wait(0) == []
            assert waiting._engine.sets.polled._events is None

        assert in_a_fork(look)
        pid = gone(waiting)
        script.tell(pid, True, 3 << 8)
        assert waiting.wait() == [(pid, 3)]
