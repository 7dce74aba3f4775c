# SPDX-License-Identifier: BSD-3-Clause
"""Many processes in one kqueue: what is peculiar to each system, on the stand-in."""

import errno
import gc
import logging
import os
import select
import signal
import subprocess
import threading
import time

import pytest

from .. import pidwait
from ..conftest import open_fds
from ..processes import OnPurpose, become_zombie, eventually, exiting, interrupted_by, sleeping
from ..waiting.crowd import in_a_fork, room
from .test_kqueue import any_, by_each_binding, each, swallow_events

pytestmark = pytest.mark.kqueue


class Job:
    """An object that stands for a process, so that one process can be in a set twice."""

    def __init__(self, pid):
        self.pid = pid


def everything(waiting):
    seen = []
    while len(waiting):
        seen += waiting.wait()
    return seen


def end(*children):
    for child in children:
        child.kill()
        become_zombie(child.pid)


def is_readable(waiting):
    return bool(select.select([waiting], [], [], 0)[0])


def start_and_reap():
    child = subprocess.Popen(exiting(3))
    child.wait()
    return child


@by_each_binding
@each
def test_one_kqueue_serves_all(on, start, system, binding):
    """Several events come at once, as far apart as the system's struct is long."""
    kernel = on(system, binding)
    children = [start(*sleeping(60)) for _ in range(8)]
    pids = [child.pid for child in children]
    with pidwait.WaitSet(pids) as waiting:
        assert list(kernel.queues) == [waiting.fileno()]
        for number, child in enumerate(children):
            child.send_signal(number + 8)  # not SIGHUP, which is ignored under nohup
        for pid in pids:
            become_zombie(pid)
        assert sorted(everything(waiting)) == sorted(zip(pids, range(-8, -16, -1)))
    assert not kernel.queues


@any_
def test_hundreds_of_exits_come_in_their_order(on, herd, system):
    on(system)
    pids = [herd.fork(0) for _ in range(room(300))]
    with pidwait.WaitSet(pids) as waiting:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGTERM)
            become_zombie(pid)
        assert everything(waiting) == [(pid, -signal.SIGTERM) for pid in reversed(pids)]


@each
def test_the_event_of_the_process_that_had_the_pid_before_is_not_the_new_ones(
    on, start, sleeper, system
):
    kernel = on(system)
    children = [start(*sleeping(60)) for _ in range(3)]
    first = children[-1]
    with pidwait.WaitSet([child.pid for child in children]) as waiting:
        end(*children)
        kernel.passed_on[first.pid] = sleeper.pid
        job = Job(first.pid)
        waiting.add(job)
        seen = []
        while len(waiting) > 1:
            seen += waiting.wait()
        assert sorted(seen) == sorted((child.pid, -9) for child in children)
        assert waiting.wait(0.01) == [] and list(waiting) == [job]
        sleeper.kill()
        assert [one for one, _ in waiting.wait()] == [job]


@each
def test_a_pid_that_is_added_again_after_its_exit_stands_for_both(on, start_told, sleeper, system):
    kernel = on(system)
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
        assert [pid for pid, _ in waiting.wait()] == [child.pid]


@each
def test_the_codes_of_somebody_elses(on, keeper, system):
    """A zombie's is told by ps, where the kernel watches no zombies."""
    on(system)
    zombie = keeper.start(*exiting(7))
    become_zombie(zombie)
    pids = [keeper.start(*sleeping(60)) for _ in range(2)]
    with pidwait.WaitSet([zombie] + pids) as waiting:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        codes = dict(everything(waiting))
    assert codes == {zombie: 7, pids[0]: -signal.SIGTERM, pids[1]: -signal.SIGTERM}
    for pid in [zombie] + pids:
        keeper.reap(pid)


@each
def test_a_member_that_may_not_be_watched_is_polled(on, keeper, sleeper, caplog, system):
    """The others are not."""
    kernel = on(system)
    pid = keeper.start(*sleeping(60))
    kernel.denied[pid] = errno.EPERM
    caplog.set_level(logging.INFO)
    with pidwait.WaitSet([pid, sleeper.pid]) as waiting:
        assert "pid %d" % pid in caplog.text and "pid %d" % sleeper.pid not in caplog.text
        waiting.add(pid)  # it is a member already, and has not exited
        assert len(waiting) == 2
        os.kill(pid, signal.SIGKILL)
        assert waiting.wait() == [(pid, -9)]
        sleeper.kill()
        assert waiting.wait() == [(sleeper.pid, -9)]
    keeper.reap(pid)


@each
def test_the_event_comes_before_the_popen_can_reap(on, sleeper, system):
    kernel = on(system)
    with pidwait.WaitSet([sleeper]) as waiting:
        end(sleeper)
        kernel.late = 3
        assert waiting.wait() == [(sleeper, -9)] and sleeper.returncode == -9


@pytest.mark.parametrize("looks, code", [(1, 5), (10**9, None)])
@each
def test_a_code_that_is_late_is_waited_for_a_moment(on, start_told, system, looks, code):
    """A signal handler has swallowed the event, and the child is not yet a zombie."""
    kernel = on(system, "ctypes")
    child = start_told(5)
    with pidwait.WaitSet([child.pid]) as waiting:
        child.stdin.close()
        become_zombie(child.pid)
        swallow_events(kernel)
        kernel.late = looks
        with pytest.raises(OnPurpose):
            waiting.wait()
        assert waiting.wait() == [(child.pid, code)]
    kernel.late = 0


@by_each_binding
@each
def test_exits_whose_events_a_signal_handler_has_swallowed_are_found(
    on, start_told, sleeper, system, binding
):
    kernel = on(system, binding)
    children = [start_told(code) for code in (3, 4, 5)]
    with pidwait.WaitSet([child.pid for child in children] + [sleeper.pid]) as waiting:
        for child in children:
            child.stdin.close()
            become_zombie(child.pid)
        with interrupted_by(OnPurpose()), pytest.raises(OnPurpose):
            kernel.interrupt = signal.SIGUSR1
            waiting.wait()
        seen = []
        while len(waiting) > 1:
            seen += waiting.wait()
        assert sorted(seen) == sorted(zip([child.pid for child in children], (3, 4, 5)))
        assert waiting.wait(0.01) == []


# Few file descriptors, forks, a close by somebody else


@pytest.mark.parametrize("left", [0, 1, 2])
@by_each_binding
@any_
def test_a_set_waits_with_no_file_descriptor_left(
    on, start_told, fds_left, caplog, system, binding, left
):
    """With fewer than two all are polled."""
    on(system, binding)
    assert pidwait.probe()["backend"] == "kqueue"
    caplog.set_level(logging.INFO)
    child = start_told(7)
    with fds_left(left), pidwait.WaitSet([child.pid]) as waiting:
        assert ("[Errno %d]" % errno.EMFILE in caplog.text) == (left < 2)
        assert waiting.wait(0.01) == []
        child.stdin.close()
        assert waiting.wait() == [(child.pid, 7)]


@any_
def test_a_change_is_seen_with_one_file_descriptor_left(on, fds_left, sleeper, system):
    on(system)
    assert pidwait.probe()["backend"] == "kqueue"
    done = start_and_reap()
    found = []
    with fds_left(1), pidwait.WaitSet([sleeper.pid]) as waiting:
        thread = threading.Thread(target=lambda: found.extend(waiting.wait()))
        thread.start()
        waiting.add(done)
        thread.join()
    assert found == [(done, 3)]


@pytest.mark.parametrize("how", ["used", "dropped"])
@by_each_binding
@any_
def test_a_forked_child_has_no_such_kqueue(on, sleeper, system, binding, how):
    """Its copy polls, leaves the number alone, which may be another file's, and closes the rest."""
    on(system, binding)
    before = set(open_fds())
    waiting = pidwait.WaitSet([sleeper.pid])
    number = waiting.fileno()
    mine = set(open_fds()) - before
    assert number in mine and not any(map(os.get_inheritable, mine))

    def use():
        nonlocal waiting
        os.dup2(2, number)
        if how == "used":
            assert waiting.wait(0.01) == [] and list(waiting) == [sleeper.pid]
            waiting.close()
        del waiting
        gc.collect()
        os.fstat(number)
        assert set(open_fds()) - before == {number}

    assert in_a_fork(use)
    sleeper.kill()
    assert waiting.wait() == [(sleeper.pid, -9)]
    waiting.close()


@pytest.mark.parametrize("adds", [False, True])
@any_
def test_a_set_whose_kqueue_somebody_else_closed_goes_on(on, sleeper, system, adds):
    kernel = on(system, "ctypes")
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        kernel.queues.pop(waiting.fileno()).close()
        if adds:
            waiting.add(sleeper.pid)
        else:
            assert waiting.wait(0.01) == []
        sleeper.kill()
        assert waiting.wait() == [(sleeper.pid, -9)]


# What makes a set's kqueue readable besides exits


@each
def test_a_change_wakes_each_thread_that_has_something_to_do(on, sleeper, system):
    """And it stops to wake any when nobody has."""
    on(system)
    done = start_and_reap()
    found = []
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        threads = [threading.Thread(target=lambda: found.append(waiting.wait())) for _ in range(3)]
        for thread in threads:
            thread.start()
        waiting.add(done)
        eventually(lambda: sum(thread.is_alive() for thread in threads) == 2)
        waiting.discard(sleeper.pid)
        for thread in threads:
            thread.join()
        assert waiting.wait(0) == []  # one may have rung for another, which was gone by then
        assert not is_readable(waiting)
    assert sorted(found) == [[], [], [(done, 3)]]


def turns(waiting, seconds):
    """How often a loop that polls fileno() has to call wait()."""
    fd, count, end = waiting.fileno(), 0, time.monotonic() + seconds
    while select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
        assert waiting.wait(0) == []
        count += 1
    return count


def turn_until(waiting, fd, exits):
    seen = []
    while not seen:
        assert select.select([fd], [], [], 60)[0]
        seen = waiting.wait(0)
    assert seen == exits


@pytest.mark.parametrize("backend", ["kqueue", "polling"])
@each
def test_fileno_serves_polled_members_by_a_timer(on, start_told, sleeper, system, backend):
    """It is readable when a look is due, and an exit not reported."""
    kernel = on(system)
    on.patch.setenv("PIDWAIT_BACKEND", backend)
    child = start_told(3)
    kernel.denied[child.pid] = errno.EPERM
    with pidwait.WaitSet([child.pid, sleeper.pid]) as waiting:
        fd = waiting.fileno()
        assert turns(waiting, 0.15) <= 26  # 0.1 ms doubling to 40, for each of two
        child.stdin.close()
        turn_until(waiting, fd, [(child.pid, 3)])
        if backend == "kqueue":
            assert turns(waiting, 0.02) == 0
        sleeper.kill()
        turn_until(waiting, fd, [(sleeper.pid, -9)])
    assert kernel.timers == 0


@each
def test_without_a_timer_the_member_is_looked_at_more_often(on, start_told, system):
    kernel = on(system)
    child = start_told(3)
    kernel.denied[child.pid] = errno.EPERM
    with pidwait.WaitSet([child.pid]) as waiting:
        fd = waiting.fileno()
        kernel.max_timers = 0
        assert waiting.wait(0) == []
        child.stdin.close()
        turn_until(waiting, fd, [(child.pid, 3)])


@any_
def test_without_a_timer_no_thread_is_busy(on, sleeper, system):
    kernel = on(system)
    kernel.denied[sleeper.pid], kernel.max_timers = errno.EPERM, 0
    exits = []
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        waiters = [threading.Thread(target=lambda: exits.extend(waiting.wait())) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        time.sleep(0.2)
        spent = time.process_time()
        time.sleep(1)
        spent = time.process_time() - spent
        sleeper.kill()
        for waiter in waiters:
            waiter.join()
    assert spent < 0.25 and exits == [(sleeper.pid, -9)]


@any_
def test_no_lock_is_held_while_a_message_is_logged(on, start_told, sleeper, caplog, system):
    """That a timer is refused."""
    kernel = on(system)
    child = start_told(3)
    kernel.denied[child.pid] = errno.EPERM
    stuck = []

    def add_meanwhile(record):
        if not stuck and "timer" in record.getMessage():
            stuck.append(True)
            thread = threading.Thread(target=waiting.add, args=[sleeper.pid])
            thread.start()
            thread.join(10)
            stuck[0] = thread.is_alive()
        return True

    caplog.set_level(logging.INFO)
    with pidwait.WaitSet([child.pid]) as waiting:
        waiting.fileno()
        kernel.max_timers = 0
        on.patch.setattr(logging.getLogger(pidwait.__name__), "filters", [add_meanwhile])
        while not stuck:  # if the next look is due already, no timer is needed
            assert waiting.wait(0) == []
        assert stuck == [False]
        assert sleeper.pid in waiting
        child.stdin.close()
        assert waiting.wait() == [(child.pid, 3)]
