# SPDX-License-Identifier: BSD-3-Clause
"""Signal handlers in the middle of a set's work, on the stand-in."""

import functools
import importlib
import signal
import subprocess
import sys
import time

import pytest

from .. import pidwait
from ..processes import OnPurpose, become_zombie, sleeping
from .test_kqueue import BINDINGS, SYSTEMS
from .test_many import everything

kqueue = importlib.import_module(pidwait.__name__ + "._backends.kqueue")
exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")
ps = importlib.import_module(pidwait.__name__ + "._sources.ps")
Queue = importlib.import_module(pidwait.__name__ + "._backends.queue").Queue


@pytest.fixture
def alarm(no_garbage):
    """alarm(seconds) makes a signal handler raise TimeoutError, which is an OSError."""

    def handler(*args):
        raise TimeoutError("on purpose")

    old = signal.signal(signal.SIGALRM, handler)
    yield functools.partial(signal.setitimer, signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def test_error_of_a_signal_handler_in_a_wait(on, sleeper, alarm):
    """It is not taken for an error of poll(2), after which the process would be polled."""
    on("freebsd12")
    with pidwait.Process(sleeper.pid) as process:
        alarm(0.05)
        with pytest.raises(TimeoutError, match="on purpose"):
            process.wait(30)
        assert process.backend == "kqueue"


def test_error_of_a_signal_handler_in_ps(on, keeper, alarm):
    on("freebsd12")
    pid = keeper.start(*sleeping(60))

    def popen(*args, **kwargs):
        alarm(0.001)
        time.sleep(30)

    on.patch.setattr(subprocess, "Popen", popen)
    for function in (lambda: ps.read_stat(pid), lambda: pidwait.ProcessInfo(pid)):
        with pytest.raises(TimeoutError, match="^on purpose"):
            function()


def test_error_of_a_signal_handler_in_add(on, sleeper, alarm):
    on("freebsd12")
    real = kqueue.register

    def register(*args):
        on.patch.setattr(kqueue, "register", real)
        alarm(0.001)
        time.sleep(30)

    with pidwait.WaitSet() as waiting:
        on.patch.setattr(kqueue, "register", register)
        with pytest.raises(TimeoutError, match="on purpose"):
            waiting._engine.sets.best.add([sleeper])
        assert waiting._engine.sets.best.add([sleeper]) == []


def test_error_of_a_signal_handler_in_a_look(on, start_told, alarm):
    on("netbsd10")
    child = start_told(5)
    with pidwait.Process(child.pid) as process:
        child.stdin.close()
        become_zombie(child.pid)

        def look(pid):
            alarm(0.001)
            time.sleep(30)

        on.patch.setattr(kqueue, "told", lambda event: None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exitcodes, "look_at_child", look)
            with pytest.raises(TimeoutError, match="on purpose"):
                process.wait(30)
        assert process.wait(30) == 5


@pytest.fixture
def raise_once(on):
    """raise_once(object, name) makes the next call raise OnPurpose after its work."""

    def raise_once(object_, name):
        real = getattr(object_, name)

        def call(*args):
            on.patch.setattr(object_, name, real)
            real(*args)
            raise OnPurpose

        on.patch.setattr(object_, name, call)

    return raise_once


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_events_that_a_signal_handler_has_swallowed(
    on, raise_once, start_told, sleeper, system, binding
):
    """The events are gone from the kqueue, but their exits are found; other members stay."""
    on(system, binding)
    children = [start_told(code) for code in (3, 4, 5)]
    with pidwait.WaitSet([child.pid for child in children] + [sleeper.pid]) as waiting:
        for child in children:
            child.stdin.close()
            become_zombie(child.pid)
        take = Queue.take
        on.patch.setattr(Queue, "take", lambda self, events, room: take(self, [], room))
        raise_once(Queue, "take")
        with pytest.raises(OnPurpose):
            waiting.wait()
        on.patch.setattr(Queue, "take", take)
        seen = waiting.wait() + waiting.wait(0)
        assert sorted(seen) == sorted((c.pid, code) for c, code in zip(children, (3, 4, 5)))
        assert list(waiting) == [sleeper.pid]
        sleeper.kill()
        assert waiting.wait() == [(sleeper.pid, -9)]


@pytest.mark.parametrize("system", ["freebsd12", "openbsd"])
def test_events_that_a_signal_handler_left_in_hand(on, raise_once, keeper, tmp_path, system):
    """The events still have the codes, which nothing else would tell."""
    on(system)
    pids = [keeper.start_told(code, tmp_path / str(code)) for code in (3, 4, 5)]
    with pidwait.WaitSet(pids) as waiting:
        for pid, code in zip(pids, (3, 4, 5)):
            keeper.reap_soon(pid)
            (tmp_path / str(code)).open("w").close()
            keeper.reaped()
        raise_once(kqueue, "told")
        with pytest.raises(OnPurpose):
            waiting.wait()
        assert sorted(everything(waiting)) == sorted(zip(pids, (3, 4, 5)))


def test_no_bytecode_between_an_event_and_its_list(on):
    """A signal handler could run between them, and its exception would lose the event."""
    on("openbsd")
    queue, taken, events, seen = Queue(), [], [], []

    class OneEvent:
        def control(self, changes, room, timeout):
            taken.append("event")
            return ["event"]

    def trace(frame, kind, arg):
        if frame.f_code is not Queue.take.__code__:
            return None
        if hasattr(frame, "f_trace_opcodes"):  # Python 3.7; before, only lines are traced
            frame.f_trace_opcodes = True
        seen.append((list(taken), list(events)))
        return trace

    before, queue._kqueue = queue._kqueue, OneEvent()
    old = sys.gettrace()
    sys.settrace(trace)
    try:
        queue.take(events, 1)
    finally:
        sys.settrace(old)
        queue._kqueue = before
        queue.close()
    assert len(seen) > 1 and all(taken == events for taken, events in seen)
    assert events == ["event"]


def test_signal_handler_that_changes_the_set(on, start_told, sleeper):
    """The event that was taken is for the process that had the pid before."""
    kernel = on("netbsd10")
    child = start_told(3)
    with pidwait.WaitSet([child.pid]) as waiting:
        child.stdin.close()
        child.wait()
        real = Queue.take

        def take(self, events, room):
            on.patch.setattr(Queue, "take", real)
            taken = []
            real(self, taken, room)
            waiting.discard(child.pid)
            kernel.passed_on[child.pid] = sleeper.pid
            waiting.add(child.pid)
            events.extend(taken)

        on.patch.setattr(Queue, "take", take)
        assert waiting.wait(0.01) == [] and list(waiting) == [child.pid]
        sleeper.kill()
        assert waiting.wait() == [(child.pid, -9)]
