# SPDX-License-Identifier: BSD-3-Clause
"""Many at once, on one kqueue: what is peculiar to it, on the stand-in."""

import errno
import gc
import importlib
import logging
import os
import signal
import subprocess
import threading

import pytest

from .. import pidwait
from ..faults.test_fds import fds_left
from ..processes import become_zombie, eventually, exiting, sleeping
from . import systems
from .kernel import has_exited
from .test_kqueue import BINDINGS, SYSTEMS, late

kqueue = importlib.import_module(pidwait.__name__ + "._backends.kqueue")
kqueue_set = importlib.import_module(pidwait.__name__ + "._backends.kqueue_set")

Queue = importlib.import_module(pidwait.__name__ + "._backends.queue").Queue

FIRE_FOR_ZOMBIES = [name for name in SYSTEMS if systems.SYSTEMS[name].zombies]


class Job:
    """An object that stands for a process: so one process can be in a set more than once."""

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
    return (
        [member.pid for member in waiting._engine.sets.polled._looks] if is_polling(waiting) else []
    )


def is_polling(waiting):
    return waiting._engine.sets.polled is not None


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
            child.send_signal(number + 8)  # not SIGHUP, which is ignored under nohup
        assert sorted(everything(waiting)) == sorted(zip(pids, range(-8, -16, -1)))
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
def test_pid_that_was_passed_on(on, start, sleeper, system):
    """The old process's event, still in the kqueue, is not taken for the new process's."""
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
def test_several_with_one_pid(on, start, system):
    on(system)
    child = start(*sleeping(60))
    jobs = [Job(child.pid) for _ in range(3)]
    with pidwait.WaitSet(jobs) as waiting:
        waiting.discard(jobs[0])
        child.kill()
        become_zombie(child.pid)
        assert everything(waiting) == [(job, -9) for job in jobs[1:]]


def test_our_zombies_of_a_private_set(on, start):
    """The set of wait_procs() has no bell."""
    on("openbsd")
    children = [start(*exiting(code)) for code in (3, 4)]
    for child in children:
        become_zombie(child.pid)
    pids = [child.pid for child in children]
    assert pidwait.wait_procs(pids) == (list(zip(pids, (3, 4))), [])


def test_zombie_that_is_added_wakes_a_waiting_thread(on, start, sleeper):
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
    """macOS denies NOTE_EXITSTATUS for them."""
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
        waiting.add(pid)  # it is a member already, and has not exited
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


def test_added_again_after_its_exit(on, start_told, sleeper):
    """The pid then stands for the process that has it now, as well as for the old one."""
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
    """take() returns at once, to be called again; when the time is up, it reports no code."""
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
    """None for the kqueue: all are polled. None for its bell: a waiting thread looks again."""
    on("freebsd12", binding)
    assert pidwait.probe()["backend"] == "kqueue"
    caplog.set_level(logging.INFO)
    child = start(*exiting(7, after=0.1))
    with fds_left(left), pidwait.WaitSet([child.pid]) as waiting:
        assert is_polling(waiting) is (left == 0)
        told = "without a bell" if left else "all processes are polled"
        assert "%s: [Errno %d]" % (told, errno.EMFILE) in caplog.text
        assert waiting.wait() == [(child.pid, 7)]


@pytest.mark.parametrize("binding", BINDINGS)
def test_in_a_forked_child(on, start, sleeper, caplog, binding):
    """It has no such kqueue: the set polls, and leaves the fd number alone."""
    on("freebsd12", binding)
    caplog.set_level(logging.INFO)
    waiting = pidwait.WaitSet([sleeper.pid])
    number = waiting.fileno()
    bell = waiting._engine.sets.best._queue._bell.fileno()
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
    """Then the kqueue can't be asked whether the process has exited."""
    kernel = on("dragonfly", "ctypes")
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        kernel.queues.pop(waiting.fileno()).close()
        waiting.add(sleeper.pid)
        sleeper.kill()
        assert waiting.wait() == [(sleeper.pid, -9)]


def start_and_reap():
    child = subprocess.Popen(exiting(3))
    child.wait()
    return child
