# SPDX-License-Identifier: BSD-3-Clause
"""Many at once, on one kqueue: what is peculiar to it, on the stand-in."""

import errno
import gc
import importlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from .. import pidwait
from ..faults.test_fds import fds_left
from ..processes import OnPurpose, become_zombie, eventually, exiting, sleeping
from . import systems
from .kernel import has_exited
from .test_kqueue import BINDINGS, SYSTEMS, late

kqueue = importlib.import_module(pidwait.__name__ + "._backends.kqueue")
kqueue_set = importlib.import_module(pidwait.__name__ + "._backends.kqueue_set")

Queue = importlib.import_module(pidwait.__name__ + "._backends.queue").Queue

FIRE_FOR_ZOMBIES = [name for name in SYSTEMS if systems.SYSTEMS[name].zombies]


class Job:
    """What stands for a process: so one process can be in a set more than once."""

    ticket = None

    def __init__(self, pid):
        self.pid = pid


def everything(waiting):
    seen = []
    while len(waiting):
        seen += waiting.wait(30)
    return seen


def polled(waiting):
    """The pids of the members that are polled."""
    return [member.pid for member in waiting._engine._polled._looks] if is_polling(waiting) else []


def is_polling(waiting):
    return waiting._engine._polled is not None


def end(*children):
    for child in children:
        child.kill()
        become_zombie(child.pid)


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_one_kqueue_for_all(on, start, system, binding):
    kernel = on(system, binding)
    children = [start(*sleeping(60)) for _ in range(8)]
    pids = [child.pid for child in children]
    with pidwait.WaitSet(pids) as waiting:
        assert list(kernel.queues) == [waiting.fileno()]
        assert not is_polling(waiting)
        for number, child in enumerate(children):
            child.send_signal(number + 1)
        assert sorted(everything(waiting)) == sorted(zip(pids, range(-1, -9, -1)))
    assert not kernel.queues


@pytest.mark.parametrize("system", SYSTEMS)
def test_events_do_not_fit_into_one_batch(on, start, system):
    on(system, "ctypes")
    on.patch.setattr(kqueue_set, "_BATCH", 2)
    children = [start(*sleeping(60)) for _ in range(5)]
    with pidwait.WaitSet([child.pid for child in children]) as waiting:
        end(*children)
        assert len(waiting.wait()) == 5


@pytest.mark.parametrize("system", SYSTEMS)
def test_number_that_was_passed_on(on, start, sleeper, system):
    """The event of who had it is still in the kqueue: the next one is not taken for that one."""
    kernel = on(system)
    on.patch.setattr(kqueue_set, "_BATCH", 2)
    children = [start(*sleeping(60)) for _ in range(4)]
    first = children[-1]
    with pidwait.WaitSet([child.pid for child in children]) as waiting:
        end(*children)
        kernel.passed_on[first.pid] = sleeper.pid
        job = Job(first.pid)
        waiting.add(job)
        assert len(waiting.wait()) == 4
        assert waiting.wait(0.01) == [] and list(waiting) == [job]
        sleeper.kill()
        assert waiting.wait()[0][0] is job


@pytest.mark.parametrize("system", SYSTEMS)
def test_several_with_one_number(on, start, system):
    on(system)
    child = start(*sleeping(60))
    jobs = [Job(child.pid) for _ in range(3)]
    with pidwait.WaitSet(jobs) as waiting:
        waiting.discard(jobs[0])
        child.kill()
        become_zombie(child.pid)
        assert everything(waiting) == [(job, -9) for job in jobs[1:]]


def test_our_zombies_of_a_private_set(on, start):
    """It has no bell."""
    on("openbsd")
    children = [start(*exiting(code)) for code in (3, 4)]
    for child in children:
        become_zombie(child.pid)
    pids = [child.pid for child in children]
    assert pidwait.wait_procs(pids) == (list(zip(pids, (3, 4))), [])


def test_zombie_that_is_added_wakes_who_waits(on, start, sleeper):
    on("openbsd")
    child = start(*exiting(3))
    become_zombie(child.pid)
    seen = []
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        thread = threading.Thread(target=lambda: seen.extend(waiting.wait()))
        thread.start()
        eventually(lambda: waiting._waiting)
        waiting.add(child.pid)
        thread.join()
    assert seen == [(child.pid, 3)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_discarded_while_its_event_is_there(on, start, sleeper, system):
    on(system)
    child = start(*sleeping(60))
    with pidwait.WaitSet([child.pid, sleeper.pid]) as waiting:
        end(child)
        assert kqueues_readable(waiting)
        waiting.discard(child.pid)
        assert not kqueues_readable(waiting)
        assert waiting.wait(0.01) == []


def kqueues_readable(waiting):
    return has_exited(waiting.fileno())


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("system", SYSTEMS)
def test_our_zombies_are_not_polled(on, start, system, code):
    on(system)
    children = [start(*exiting(code)) for _ in range(3)]
    for child in children:
        become_zombie(child.pid)
    with pidwait.WaitSet([child.pid for child in children]) as waiting:
        assert not is_polling(waiting)
        assert kqueues_readable(waiting)
        assert sorted(waiting.wait()) == sorted((child.pid, code) for child in children)
        assert not kqueues_readable(waiting)


@pytest.mark.parametrize("system", SYSTEMS)
def test_zombies_of_somebody_else(on, keeper, system):
    on(system)
    pid = keeper.start(*exiting(7))
    become_zombie(pid)
    with pidwait.WaitSet([pid]) as waiting:
        assert is_polling(waiting) is (system not in FIRE_FOR_ZOMBIES)
        assert waiting.wait() == [(pid, 7)]
    keeper.reap(pid)


@pytest.mark.parametrize("system", ["darwin", "netbsd10"])
def test_of_somebody_else(on, keeper, system):
    """macOS denies NOTE_EXITSTATUS."""
    on(system)
    pids = [keeper.start(*sleeping(60)) for _ in range(3)]
    with pidwait.WaitSet(pids) as waiting:
        assert not is_polling(waiting)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        code = None if system == "darwin" else -signal.SIGTERM
        assert sorted(everything(waiting)) == [(pid, code) for pid in sorted(pids)]
    for pid in pids:
        keeper.reap(pid)


def test_one_that_is_forbidden(on, keeper, sleeper):
    """It is polled, the others are not."""
    kernel = on("netbsd11")
    pid = keeper.start(*sleeping(60))
    kernel.denied[pid] = errno.EACCES
    with pidwait.WaitSet([pid, sleeper.pid]) as waiting:
        assert polled(waiting) == [pid]
        waiting.add(pid)  # which is there already, and has not exited
        assert len(waiting) == 2
        os.kill(pid, signal.SIGKILL)
        assert waiting.wait() == [(pid, -9)]
        sleeper.kill()
        assert waiting.wait() == [(sleeper.pid, -9)]
    keeper.reap(pid)


def test_event_before_the_child_can_be_reaped(on, start):
    """Its Popen's poll() finds nothing: the set asks it again."""
    on("darwin")
    child = start(*sleeping(60))
    with pidwait.WaitSet([child]) as waiting:
        end(child)
        late(on.patch.setattr, 3)
        assert waiting.wait() == [(child, -9)]
        assert child.returncode == -9


def test_event_before_the_child_can_be_looked_at(on, start_told):
    kernel = on("netbsd10")
    kernel.tells_status = False
    child = start_told(5)
    with pidwait.WaitSet([child.pid]) as waiting:
        on.patch.setattr(kqueue, "told", lambda event: None)
        child.stdin.close()
        become_zombie(child.pid)
        late(on.patch.setattr, 3)
        assert waiting.wait() == [(child.pid, 5)]


@pytest.fixture
def raise_once(on):
    """raise_once(object, name) has the next call raise OnPurpose once it is done."""

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
    """They are gone from the kqueue, and so are their processes: those of the others are not."""
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
    """They still have the code, which nothing else would tell."""
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
    """Where a signal handler would be run: what it raises would lose the event."""
    on("openbsd")
    queue, taken, events, seen = Queue(), [], [], []

    class OneEvent:
        def control(self, changes, room, timeout):
            taken.append("event")
            return ["event"]

    def trace(frame, kind, arg):
        if frame.f_code is not Queue.take.__code__:
            return None
        frame.f_trace_opcodes = True  # from Python 3.7 on; before, for each line
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
    """The event that is in hand is for the process that had the pid before."""
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


def test_added_again_after_its_exit(on, start_told, sleeper):
    """A pid stands for the process that has it now, besides the one that had it."""
    kernel = on("openbsd")
    child = start_told(3)
    with pidwait.WaitSet([child.pid]) as waiting:
        waiting.add(child.pid)
        assert len(waiting) == 1
        child.stdin.close()
        child.wait()
        kernel.passed_on[child.pid] = sleeper.pid
        waiting.add(child.pid)
        assert len(waiting) == 2
        assert waiting.wait() == [(child.pid, 3)]
        assert waiting.wait(0.01) == []
        sleeper.kill()
        assert waiting.wait() == [(child.pid, -9)]


def test_code_that_is_late_keeps_nobody(on, start_told):
    """take() returns at once, and is called again; or, when time is up, goes without the code."""
    kernel = on("netbsd10")
    for looks, last, code in ((2, False, 5), (99, True, None)):
        child = start_told(5)
        member = Job(child.pid)
        members = kqueue_set.KqueueSet(False)
        seen = []
        try:
            assert members.add([member]) == []
            child.stdin.close()
            become_zombie(child.pid)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kqueue, "told", lambda event: None)
                late(patch.setattr, looks)
                members.take(seen.append, False)
                assert seen == [] and members.has_exited(member)
                assert 0 <= members.delay() < 0.01
                members.take(seen.append, last)
            assert seen == [(member, code)] and members.delay() is None
        finally:
            members.close()
    assert not kernel.queues


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("left", [0, 1, 2])
def test_no_file_descriptor_left(on, start, caplog, binding, left):
    """For the kqueue: all are polled. For its bell: a thread that waits looks for changes."""
    on("freebsd12", binding)
    assert pidwait.probe()["backend"] == "kqueue"
    caplog.set_level(logging.INFO)
    child = start(*exiting(7, after=0.1))
    with fds_left(left), pidwait.WaitSet([child.pid]) as waiting:
        assert is_polling(waiting) is (left == 0)
        told = "without a bell" if left else "all are polled"
        assert "%s: [Errno %d]" % (told, errno.EMFILE) in caplog.text
        assert waiting.wait() == [(child.pid, 7)]


@pytest.mark.parametrize("binding", BINDINGS)
def test_in_a_forked_child(on, start, sleeper, caplog, binding):
    """Where there is no such kqueue: the set polls, and the number is left alone."""
    on("freebsd12", binding)
    caplog.set_level(logging.INFO)
    waiting = pidwait.WaitSet([sleeper.pid])
    number = waiting.fileno()
    bell = waiting._engine._set._queue._bell.fileno()
    assert not os.get_inheritable(number) and not os.get_inheritable(bell)
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), number)
            alive = waiting.wait(0.01) == [] and list(waiting) == [sleeper.pid]
            told = "a fork has closed the kqueue" in caplog.text
            waiting.close()
            del waiting
            gc.collect()
            os.fstat(number)
            with pytest.raises(OSError):
                os.fstat(bell)
            status = 0 if alive and told else 8
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    sleeper.kill()
    assert waiting.wait() == [(sleeper.pid, -9)]
    waiting.close()


def test_set_that_a_forked_child_only_drops(on, sleeper):
    on("freebsd12")
    waiting = pidwait.WaitSet([sleeper.pid])
    number = waiting.fileno()
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            os.dup2(2, number)
            del waiting
            gc.collect()
            os.fstat(number)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    waiting.close()


def test_closed_by_somebody_else(on, sleeper):
    kernel = on("dragonfly", "ctypes")
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        kernel.queues.pop(waiting.fileno()).close()
        assert waiting.wait(0.01) == [] and polled(waiting) == [sleeper.pid]
        sleeper.kill()
        assert waiting.wait() == [(sleeper.pid, -9)]


def test_added_again_to_a_set_that_somebody_else_closed(on, sleeper):
    """It can't be asked then whether the process has exited."""
    kernel = on("dragonfly", "ctypes")
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        kernel.queues.pop(waiting.fileno()).close()
        waiting.add(sleeper.pid)
        sleeper.kill()
        assert waiting.wait() == [(sleeper.pid, -9)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_bell(on, sleeper, system):
    """It wakes every thread, until it is taken away; what is waited for rings on."""
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


# fileno() of a set with members that are polled


def turns(waiting, seconds):
    """How often a loop that polls fileno() has to call wait()."""
    fd, count, end = waiting.fileno(), 0, time.monotonic() + seconds
    while select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
        assert waiting.wait(0) == []
        count += 1
    return count


@pytest.fixture(params=SYSTEMS)
def one_is_polled(on, request):
    """one_is_polled(pids) is a set in which the first is polled, and its fileno() used."""

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
    """It is looked at too often, not too late."""
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
    members.alarm(0.001)  # which replaces the last, though there is a timer already
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
    """Nobody can end a sleep, so it is short."""
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


def start_and_reap():
    child = subprocess.Popen(exiting(3))
    child.wait()
    return child
