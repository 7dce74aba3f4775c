# SPDX-License-Identifier: BSD-3-Clause
"""What makes a set's kqueue readable besides exits: its bell and its timer, on the stand-in."""

import errno
import importlib
import select
import threading
import time

import pytest

from .. import pidwait
from ..faults.test_fds import fds_left
from ..processes import become_zombie, eventually
from .test_kqueue import SYSTEMS
from .test_many import kqueues_readable, polled, start_and_reap

kqueue_set = importlib.import_module(pidwait.__name__ + "._backends.kqueue_set")
Queue = importlib.import_module(pidwait.__name__ + "._backends.queue").Queue


@pytest.mark.parametrize("system", SYSTEMS)
def test_bell(on, sleeper, system):
    """It wakes every thread that has something to do, and stops when none has."""
    on(system)
    done = start_and_reap()
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        threads = [threading.Thread(target=waiting.wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(waiting._waiting) == 3)
        waiting.add(done)
        eventually(lambda: len(waiting._waiting) == 2)
        waiting.discard(sleeper.pid)
        for thread in threads:
            thread.join()
        assert not kqueues_readable(waiting)


def turns(waiting, seconds):
    """How often a loop that polls fileno() has to call wait()."""
    fd, count, end = waiting.fileno(), 0, time.monotonic() + seconds
    while select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
        assert waiting.wait(0) == []
        count += 1
    return count


@pytest.fixture(params=SYSTEMS)
def one_is_polled(on, request):
    """one_is_polled(pids) returns a set that polls the first, its fileno() in use; the Kernel."""

    def one_is_polled(pids):
        kernel = on(request.param)
        kernel.denied[pids[0]] = errno.EPERM
        waiting = pidwait.WaitSet(pids)
        waiting.fileno()
        assert polled(waiting) == pids[:1]
        return waiting, kernel

    return one_is_polled


def test_fileno_with_a_polled_member(one_is_polled, start_told, sleeper):
    child = start_told(3)
    waiting, kernel = one_is_polled([child.pid, sleeper.pid])
    with waiting:
        assert turns(waiting, 0.3) <= 16  # 0.1 ms doubling to 40
        child.stdin.close()
        become_zombie(child.pid)
        seen = []
        while not seen:
            assert select.select([waiting], [], [], 10)[0]
            seen = waiting.wait(0)
        assert seen == [(child.pid, 3)]
        assert kernel.timers == 0 and turns(waiting, 0.05) == 0
        sleeper.kill()
        assert select.select([waiting], [], [], 10)[0]
        assert waiting.wait(0) == [(sleeper.pid, -9)]


def test_fileno_of_a_set_of_polled_members(on, start_told):
    kernel = on("netbsd11")
    on.patch.setenv("PIDWAIT_BACKEND", "polling")
    child = start_told(3)
    with pidwait.WaitSet([child.pid]) as waiting:
        assert turns(waiting, 0.3) <= 16
        child.stdin.close()
        seen = []
        while not seen:
            assert select.select([waiting], [], [], 10)[0]
            seen = waiting.wait(0)
        assert seen == [(child.pid, 3)]
    assert not kernel.queues and kernel.timers == 0


def test_no_timer_left(on, start_told):
    """Then the member is looked at too often, rather than too late."""
    kernel = on("freebsd12")
    child = start_told(3)
    kernel.denied[child.pid] = errno.EPERM
    with pidwait.WaitSet([child.pid]) as waiting:
        fd, seen = waiting.fileno(), []
        kernel.max_timers = 0
        assert waiting.wait(0) == []
        child.stdin.close()
        become_zombie(child.pid)
        while not seen:
            assert select.select([fd], [], [], 10)[0]
            seen = waiting.wait(0)
        assert seen == [(child.pid, 3)]


@pytest.fixture
def members(on, request):
    on(getattr(request, "param", "openbsd"))
    members = kqueue_set.KqueueSet(True)
    yield members
    members.close()


@pytest.mark.parametrize("members", SYSTEMS, indirect=True)
def test_alarm(members):
    def goes_off(seconds):
        return bool(select.select([members], [], [], seconds)[0])

    members.alarm(0)
    assert goes_off(0)
    members.alarm(None)
    assert not goes_off(0)
    members.alarm(60)
    members.alarm(0.001)  # replaces the last alarm, though its timer is there
    assert goes_off(10)
    members.alarm(60)
    assert not goes_off(0)
    members.alarm(None)
    assert not goes_off(0)


def test_alarm_that_is_taken_stays_on(members):
    members.alarm(0.001)
    members.sleep(10)
    for _ in range(2):
        assert select.select([members], [], [], 0)[0]
        members.take(None, False)
    members.alarm(None)
    assert not select.select([members], [], [], 0)[0]


def test_change_without_a_bell_is_seen(on, sleeper):
    """Nothing can end a sleep early, so it is short."""
    on("freebsd12")
    assert pidwait.probe()["backend"] == "kqueue"
    done = start_and_reap()
    with fds_left(1), pidwait.WaitSet([sleeper.pid]) as waiting:
        thread = threading.Thread(target=waiting.wait)
        thread.start()
        eventually(lambda: waiting._sleeping)
        on.patch.setattr(Queue, "set_alarm", lambda self, seconds: None)
        waiting.add(done)
        thread.join()
