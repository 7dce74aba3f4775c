# SPDX-License-Identifier: BSD-3-Clause
"""Where there is no pidfd: the proc connector and inotify tell of exits."""

import errno
import os
import threading

import pytest

from .. import pidwait
from ..processes import eventually
from .events import KINDS, in_a_fork, listening, module, use


@pytest.fixture(params=list(KINDS))
def kind(request, use_variant, monkeypatch):
    """Only events tell of an exit: the looks in between are an hour apart."""
    use(request.param, use_variant, monkeypatch)
    assert pidwait.probe()["calls"]["inotify_add_watch"]["reason"] is None
    monkeypatch.setattr(KINDS[request.param], "longest", 3600.0)
    return request.param


def test_one(kind, keeper, tmp_path):
    pid = keeper.start_told(3, tmp_path / "fifo")
    with pidwait.Process(pid) as process:
        assert process.backend == kind
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.3)  # by then the looks are rare
        threading.Timer(0.3, (tmp_path / "fifo").open("w").close).start()
        assert process.wait() == 3


def test_many(kind, start_own):
    children = [start_own(code) for code in (3, 4)]
    with pidwait.WaitSet(children) as waiting:
        listening(waiting, kind)
        for child in children:
            child.stdin.close()
            assert waiting.wait() == [(child, child.returncode)]
    assert [child.returncode for child in children] == [3, 4]


def test_readable(kind, start_own):
    child = start_own(3)
    with pidwait.WaitSet([child]) as waiting:
        listening(waiting, kind)
        fd = waiting.fileno()
        child.stdin.close()
        with module("timers").select.epoll() as other:
            other.register(fd, 1)
            seen = []
            while not seen:
                assert other.poll() != []
                seen = waiting.wait(0)
    assert seen == [(child, 3)]


def test_read_of_a_hub(kind, start_own, monkeypatch):
    """eventlet's os.read() does not return before there is something to read."""

    def read(fd, size):
        assert os.get_blocking(fd), "would block"
        return real(fd, size)

    real = os.read
    monkeypatch.setattr(os, "read", read)
    child = start_own(3)
    with pidwait.WaitSet([child]) as waiting:
        listening(waiting, kind)
        child.stdin.close()
        assert waiting.wait() == [(child, 3)]


def test_handler_that_raises_while_events_are_read(kind, start_own, monkeypatch):
    """What had been read is lost: then all members are looked at."""
    child = start_own(3)
    with pidwait.WaitSet([child]) as waiting:
        source = listening(waiting, kind)
        read = source.read

        def lose():
            if list(read()):
                monkeypatch.setattr(source, "read", read)
                raise KeyboardInterrupt
            return []

        monkeypatch.setattr(source, "read", lose)
        child.stdin.close()
        with pytest.raises(KeyboardInterrupt):
            waiting.wait()
        assert waiting.wait() == [(child, 3)]


def test_another_thread_adds(kind, start_own, own_sleeper):
    """Nobody wakes the thread that sleeps but the set."""
    child, seen = start_own(3), []
    with pidwait.WaitSet([own_sleeper]) as waiting:
        listening(waiting, kind)
        thread = threading.Thread(target=lambda: seen.extend(waiting.wait()))
        thread.start()
        eventually(lambda: waiting._sleeping)
        waiting.add(child)
        child.stdin.close()
        thread.join()
    assert seen == [(child, 3)]


def test_forked_child(kind, start_own):
    """It has events of its own, and leaves the parent's alone."""
    child = start_own(3)
    with pidwait.WaitSet([child.pid]) as waiting:
        listening(waiting, kind)

        def use():
            with pytest.raises(IndexError):
                waiting.wait(0.1)[0]
            waiting.close()

        assert in_a_fork(use)
        child.stdin.close()
        assert waiting.wait() == [(child.pid, 3)]


def test_events_that_end(kind, start_own, monkeypatch):
    """Then the members are polled as without events."""
    child = start_own(3)
    with pidwait.WaitSet([child]) as waiting:
        sources = listening(waiting, kind)

        def fail():
            raise OSError(errno.EIO, "it has ended")

        monkeypatch.setattr(sources, "read", fail)
        assert waiting.wait(0) == []
        assert waiting._engine.sets.polled._events is None
        assert waiting._engine.delay() < 1
        child.stdin.close()
        assert waiting.wait() == [(child, 3)]
