# SPDX-License-Identifier: BSD-3-Clause
"""Signal handlers that raise what a system call could, as an alarm's TimeoutError."""

import errno
import os
import signal

import pytest

from . import pidwait
from .faults import at_line
from .processes import become_zombie, exiting, not_on_windows

pytestmark = not_on_windows("alarms")


@pytest.fixture(params=[TimeoutError("time is up"), OSError(errno.EIO, "on purpose")])
def alarm(request):
    """alarm() has SIGALRM's handler raise, again and again until stop()."""

    def handler(*arguments):
        alarm.calls += 1
        raise request.param

    def alarm():
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)

    alarm.calls = 0

    old = signal.signal(signal.SIGALRM, handler)
    # Again, for an interpreter that misses the first one, just before the system call.
    yield alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def stop():
    signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.parametrize("timeout", [None, 60])
def test_wait(variant, sleeper, alarm, timeout):
    alarm()
    with pytest.raises(OSError, match="time is up|on purpose") as raised:
        pidwait.wait(sleeper.pid, timeout)
    stop()
    assert not isinstance(raised.value, pidwait.TimeoutExpired)
    assert alarm.calls == 1


def test_wait_for_a_child(variant, alarm):
    with pidwait.spawn(["sleep", "60"]) as child:
        alarm()
        with pytest.raises(OSError, match="time is up|on purpose"):
            child.wait()
        stop()
        child.kill()
        assert child.wait() == -signal.SIGKILL


def test_wait_for_many(variant, sleeper, alarm):
    alarm()
    with pytest.raises(OSError, match="time is up|on purpose"):
        pidwait.wait_procs([sleeper.pid, os.getpid()])
    stop()


def test_set_goes_on(variant, backend, start, sleeper, alarm):
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        best = waiting._engine.sets.best
        alarm()
        with pytest.raises(OSError, match="time is up|on purpose"):
            waiting.wait()
        stop()
        assert waiting._engine.sets.best is best
        child = start(*exiting(3))
        become_zombie(child.pid)
        waiting.add(child.pid)
        assert waiting.wait() == [(child.pid, 3)]


def test_set_that_a_handler_uses_at_any_line(use_variant, herd):
    """It waits on the set, and changes it, in the middle of another wait: each is told once."""
    use_variant("pidfd-ctypes")
    number, reached = 0, True
    while reached:
        number += 1
        pids = [herd.fork(code, after=0) for code in (1, 2, 3)]
        other = herd.fork(4)
        for pid in pids:
            become_zombie(pid)
        seen = []
        with pidwait.WaitSet([*pids, other]) as waiting:

            def use(waiting=waiting, other=other, seen=seen):
                waiting.discard(other)
                seen += waiting.wait(0)
                waiting.add(other)

            with at_line(number, use, None) as line:
                while len(waiting) > 1:
                    seen += waiting.wait(0)
            assert waiting.wait(0) == []
            os.kill(other, signal.SIGKILL)
            seen += waiting.wait()
        assert sorted(seen) == sorted([*zip(pids, (1, 2, 3)), (other, -9)])
        reached = line.reached
        for pid in [*pids, other]:
            os.waitpid(pid, 0)
            herd.pids.remove(pid)
    assert number > 50
