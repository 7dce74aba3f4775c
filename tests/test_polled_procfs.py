# SPDX-License-Identifier: BSD-3-Clause
"""A polled handle on Linux, with scripted answers of the system."""

import importlib
import os
from types import SimpleNamespace

import pytest

from . import pidwait

polled = importlib.import_module(pidwait.__name__ + "._backends.polled_procfs")
parts = importlib.import_module(pidwait.__name__ + "._backends.polled")

RUNNING, NotYet = polled.RUNNING, polled.NotYet
PID = 77


def shown(started=5, exited=False, status=0):
    """What /proc/<pid>/stat tells."""
    return SimpleNamespace(started=started, exited=exited, status=status)


class System:
    """Answers of the system about one pid; ``asked`` lists the questions about its exit code."""

    stat = None
    found = True  # by kill(2)
    group = None
    links = False
    child = None  # what waitid(2) tells: a code, NotYet, or None if it is not our child
    zombie = None

    def __init__(self):
        self.asked = []

    def read_stat(self, pid):
        assert pid == PID
        return self.stat

    def exists(self, pid):
        assert pid == PID
        return self.found

    def from_child(self, idtype, id_, pid, reap):
        assert (idtype, id_, pid) == (polled.linux.P_PID, PID, PID)
        self.asked.append("reaped" if reap else "looked")
        if self.child is NotYet:
            raise NotYet
        return self.child

    def from_zombie(self, pid):
        assert pid == PID
        self.asked.append("zombie")
        return self.zombie


@pytest.fixture
def system(monkeypatch):
    system = System()
    monkeypatch.setattr(
        polled,
        "procfs",
        SimpleNamespace(
            read_stat=system.read_stat,
            thread_group=lambda pid: system.group,
            links_tell_exit=lambda pid: system.links,
        ),
    )
    monkeypatch.setattr(
        polled,
        "exitcodes",
        SimpleNamespace(
            exists=system.exists, from_child=system.from_child, from_zombie=system.from_zombie
        ),
    )
    return system


def opened(system, **answers):
    vars(system).update(answers)
    return polled.ProcfsHandle(PID)


@pytest.mark.parametrize("stat, group", [(shown(), PID), (None, None), (shown(), None)])
def test_open(system, stat, group):
    handle = opened(system, stat=stat, group=group)
    assert handle.pid == PID and not handle.is_child and not handle.keeps_identity()
    assert handle.identify() == (None if stat is None else ("start", PID, 5))


def test_no_process(system):
    with pytest.raises(ProcessLookupError, match="No such process"):
        opened(system, found=False)
    with pytest.raises(ProcessLookupError, match="a thread's ID"):
        opened(system, found=True, stat=shown(), group=PID - 1)


def test_identity(system):
    assert polled.identify(PID) is None
    system.stat = shown(started=8)
    assert polled.identify(PID) == ("start", PID, 8)


def test_was_running(system):
    assert not opened(system).was_running()
    assert not opened(system, stat=shown(exited=True)).was_running()
    handle = opened(system, stat=shown())
    assert handle.was_running()
    system.stat = shown(exited=True)
    assert handle.was_running()  # as far as the latest look could tell
    assert handle.has_exited() and not handle.was_running()


def test_exit_that_proc_shows(system):
    handle = opened(system, stat=shown())
    assert handle.has_exited() is False
    system.stat = shown(exited=True)
    assert handle.has_exited() is True
    system.stat = shown(started=6)
    assert handle.has_exited() is True  # another process has the pid
    assert system.asked == []


def test_start_that_is_seen_later(system):
    """There was no file descriptor left when the handle was opened."""
    handle = opened(system)
    system.stat = shown(started=5)
    assert handle.has_exited() is False
    assert handle.identify() == ("start", PID, 5)
    system.stat = shown(started=6)
    assert handle.has_exited() is True
    assert handle.identify() == ("start", PID, 5)


@pytest.mark.parametrize(
    "found, child, links, has_exited",
    [
        (False, None, False, True),
        (True, 3, False, True),
        (True, 0, False, True),
        (True, NotYet, True, False),
        (True, None, True, True),
        (True, None, False, False),
    ],
)
def test_exit_that_proc_does_not_show(system, found, child, links, has_exited):
    handle = opened(system, stat=shown())
    vars(system).update(stat=None, found=found, child=child, links=links)
    assert handle.has_exited() is has_exited
    assert system.asked == (["looked"] if found else [])


SHOWN = shown(exited=True, status=7 << 8)
UNTOLD = shown(exited=True)


@pytest.mark.parametrize(
    "stat, child, zombie, code, asked",
    [
        (SHOWN, None, None, 7, []),
        (UNTOLD, 3, 4, 3, ["looked"]),
        (UNTOLD, 0, 4, 0, ["looked"]),
        (UNTOLD, None, 4, 4, ["looked", "zombie"]),
        (UNTOLD, NotYet, 4, 4, ["looked", "zombie"]),
        (UNTOLD, None, None, None, ["looked", "zombie"]),
        (None, 3, 4, 3, ["looked"]),
        (None, None, 4, 4, ["looked", "zombie"]),
    ],
)
def test_code(system, stat, child, zombie, code, asked):
    handle = opened(system, stat=shown())
    vars(system).update(stat=stat, links=True)
    assert handle.has_exited()
    del system.asked[:]
    vars(system).update(child=child, zombie=zombie)
    assert handle.collect(False) == code
    assert system.asked == asked


@pytest.mark.parametrize("stat", [SHOWN, UNTOLD, None])
def test_code_of_a_child_that_is_reaped(system, stat):
    handle = opened(system, stat=stat)
    vars(system).update(child=3, zombie=4)
    assert handle.collect(True) == 3
    assert system.asked == ["reaped"]
    system.child = None
    assert handle.collect(True) == 4
    system.child = NotYet
    with pytest.raises(NotYet):
        handle.collect(True)
    system.child, system.stat = 3, shown(started=6)  # after the reaping the pid is free
    assert handle.collect(True) == 3


@pytest.mark.parametrize("reap", [False, True])
def test_code_of_another_process_is_not_told(system, reap):
    handle = opened(system, stat=shown())
    vars(system).update(stat=shown(started=6, exited=True, status=7 << 8), child=3, zombie=4)
    assert handle.has_exited()
    assert handle.collect(reap) is None
    handle = opened(system, stat=None)
    vars(system).update(found=False)
    assert handle.collect(reap) is None
    assert system.asked == []


def test_pid_that_is_given_away_while_the_code_is_looked_for(system):
    handle = opened(system, stat=shown(exited=True))
    vars(system).update(child=3, stat=shown(started=6))
    assert handle.collect(False) is None
    handle = opened(system, stat=shown(exited=True))
    system.stat = None  # nothing shows that another process has the pid
    assert handle.collect(False) == 3


@pytest.mark.parametrize("child, told, code", [(3, 9, 3), (0, 9, 0), (None, 9, 9), (3, None, 3)])
def test_code_that_is_heard_counts_where_no_other_is_found(system, monkeypatch, child, told, code):
    status = None if told is None else SimpleNamespace(code=lambda: told)
    answers = [(False, status), (True, status)]
    monkeypatch.setattr(polled, "events", SimpleNamespace(wait=lambda *args: answers.pop(0)))
    handle = opened(system, stat=UNTOLD, child=child)
    assert handle.wait(None, False) is RUNNING
    assert handle.wait(None, False) == code
    assert system.asked[:1] == ["looked"]


class Handle(parts.PolledHandle):
    """As on another system: each look takes an answer."""

    def __init__(self, *answers):
        super().__init__(os.getpid())
        self.answers = list(answers)

    def has_exited(self):
        return self.answers.pop(0)

    def collect(self, reap):
        return "reaped" if reap else "looked"


def test_wait_without_events():
    end = parts.Deadline(0)
    assert Handle(False).wait(end, True) is RUNNING
    assert Handle(True).wait(end, True) == "reaped"
    assert Handle(False, True).wait(parts.Deadline(None), False) == "looked"
    assert not Handle().is_child and Handle().reaping() is None


def test_signal_is_not_sent_after_the_exit(monkeypatch):
    sent = []
    monkeypatch.setattr(os, "kill", lambda *arguments: sent.append(arguments))
    with pytest.raises(ProcessLookupError):
        Handle(True).send_signal(15)
    assert sent == []
    Handle(False).send_signal(15)
    assert sent == [(os.getpid(), 15)]
