# SPDX-License-Identifier: BSD-3-Clause
"""WaitSet: a long-lived set that reports each exit once."""

import contextlib
import copy
import errno
import gc
import io
import os
import select
import selectors
import signal
import subprocess
import threading
import time
import weakref

import pytest

from .. import pidwait
from ..conftest import KQUEUES, open_fds
from ..needs import need_quick_looks
from ..processes import (
    HERD,
    WINDOWS,
    OnPurpose,
    Pid,
    become_zombie,
    eventually,
    everywhere,
    gone_pid,
    interrupted_by,
    is_open,
    state,
)
from ..seam import get
from .crowd import Crowd, in_a_fork, room, those_that_may_be_told
from .threads import Thread

in_threads = pytest.mark.threads


def end(child):
    """Have a child of start_told() exit."""
    child.stdin.close()
    become_zombie(child.pid)


def all_exits(waiting):
    """All that the set reports until nothing is left in it."""
    return sum(iter(waiting.wait, []), [])


class LikePopen:
    returncode = None

    def __init__(self, pid):
        self.pid = pid


# Members


@everywhere
def test_members(variant, start_told, sleeper):
    """One that was added twice is in it once; one that was reported is not in it any more."""
    one, other = start_told(1), start_told(2)
    with pidwait.WaitSet([one, sleeper]) as waiting:
        for proc in other, other, Pid(sleeper.pid), sleeper.pid:  # numbers need not be ints
            waiting.add(proc)
        assert len(waiting) == 4 and Pid(sleeper.pid) in waiting and sleeper.pid in waiting
        waiting.discard(sleeper.pid)
        assert one in waiting and 1 not in waiting
        assert set(waiting) == {one, sleeper, other}
        other.stdin.close()
        assert waiting.wait(60) == [(other, 2)] and other.returncode == 2
        assert other not in waiting and len(waiting) == 2
        assert waiting.wait(0.01) == [] == waiting.wait(0)
        waiting.discard(sleeper)
        waiting.discard(other)
        one.stdin.close()
        assert waiting.wait() == [(one, 1)]
        waiting.add(one)
        assert waiting.wait() == [(one, 1)]


@everywhere
def test_wait_on_an_empty_set_returns_at_once(variant, sleeper):
    with pidwait.WaitSet() as waiting:
        assert waiting.wait() == waiting.wait(60) == waiting.wait(float("inf")) == []
        waiting.add(sleeper)
        waiting.discard(sleeper)
        assert waiting.wait() == [] and len(waiting) == 0


@everywhere
def test_discarded_after_its_exit(variant, zombie, start_told):
    """It is not reported, unless it is added again."""
    child = start_told(3)
    with pidwait.WaitSet([child, child.pid, zombie(4).pid]) as waiting:
        end(child)
        waiting.discard(child)
        waiting.discard(child.pid)
        assert [code for _, code in all_exits(waiting)] == [4]
        for proc in child.pid, child:
            waiting.add(proc)
            assert waiting.wait() == [(proc, 3)]


@pytest.mark.kqueue
def test_what_was_reported_is_forgotten(variant, zombie, sleeper):
    process = pidwait.Process(zombie(3).pid)
    reference = weakref.ref(process)
    with pidwait.WaitSet([process, sleeper]) as waiting:
        with process:
            assert waiting.wait() == [(process, 3)]
        del process
        eventually(lambda: [gc.collect()] and reference() is None)


def test_what_was_discarded_is_forgotten_though_nobody_waits(variant):
    class Known:
        pid = os.getpid()

    references = []
    with pidwait.WaitSet() as waiting:
        for _ in range(500):
            proc = Known()
            waiting.add(proc)
            waiting.discard(proc)
            references.append(weakref.ref(proc))
        del proc
        gc.collect()
        assert len([one for one in references if one() is not None]) < 100


@everywhere
def test_a_bad_process_changes_nothing(variant, sleeper):
    with pidwait.WaitSet([sleeper]) as waiting:
        for proc, error in ("x", TypeError), (0, ValueError), (None, TypeError):
            with pytest.raises(error):
                waiting.add(proc)
            with pytest.raises(error):
                pidwait.WaitSet([sleeper, proc])
        assert list(waiting) == [sleeper] and waiting.wait(0) == []
        waiting.add(1)
        waiting.discard(True)
        assert [one in waiting for one in (1, True)] == [True, False]


@everywhere
def test_a_closed_set(variant, sleeper):
    waiting = pidwait.WaitSet([sleeper])
    assert "WaitSet of 1 process" in repr(waiting)
    with pytest.raises(TypeError, match="a WaitSet can't be pickled or copied"):
        copy.copy(waiting)
    waiting.close()
    waiting.close()
    uses = [waiting.wait, lambda: waiting.wait(0), waiting.fileno]
    for use in uses + [lambda: waiting.add(sleeper), lambda: waiting.discard(sleeper)]:
        with pytest.raises(ValueError, match="closed"):
            use()
    assert "closed" in repr(waiting)


@pytest.mark.kqueue
def test_a_forgotten_close_warns(variant, sleeper):
    waiting = pidwait.WaitSet([sleeper])
    with pytest.warns(ResourceWarning, match="WaitSet"):
        del waiting
        gc.collect()


@pytest.mark.kqueue
def test_a_handle_may_be_closed_while_it_is_waited_for(variant, start_told):
    child = start_told(3)
    with pidwait.Process(child.pid) as process:
        waiting = pidwait.WaitSet([process])
    with waiting:
        child.stdin.close()
        assert waiting.wait() == [(process, 3)]


@everywhere
def test_herd(variant, herd):
    """They exit at once, soon or never; none is reported twice or lost, and all codes are right."""
    codes = {herd.fork(number, number % 5 / 50.0): number for number in range(HERD)}
    alive = [herd.fork(0) for _ in range(3)]
    with pidwait.WaitSet(list(codes) + alive) as waiting:
        seen = []
        while len(waiting) > len(alive):
            seen += waiting.wait(60)
        assert sorted(seen) == sorted(codes.items())
        assert list(waiting) == alive


def test_a_thousand_members(variant, herd):
    """While none exits, looking at them takes 5 % of a core at most."""
    need_quick_looks(variant)
    with Crowd(room(1000)) as crowd, pidwait.WaitSet([herd.fork(0)]) as waiting:
        pids = list(crowd.codes)
        for pid in pids:
            waiting.add(pid)
        assert waiting.wait(0) == [] and len(waiting) == len(pids) + 1
        began = time.process_time()
        assert waiting.wait(0.5) == []
        assert time.process_time() - began < 0.3  # with two looks at all, and much to spare
        crowd.end(pids[-1])
        assert waiting.wait() == [(pids[-1], crowd.codes.pop(pids[-1]))]
        for pid in pids[:20]:
            waiting.discard(pid)
        for pid in pids[:10]:
            waiting.add(pid)
        crowd.end(*crowd.codes)
        seen = []
        while len(waiting) > 1:
            seen += waiting.wait()
        expected = [exit for exit in crowd.codes.items() if exit[0] not in pids[10:20]]
        assert sorted(seen) == sorted(expected) and len(expected) == len(pids) - 11


# Several threads


@in_threads
@everywhere
def test_add_while_another_thread_waits(variant, start_told, zombie, sleeper):
    """Also what has exited, what has its code already, and what is gone."""
    child, done, gone = start_told(3), zombie(4), gone_pid()
    done.wait()
    with pidwait.WaitSet([sleeper]) as waiting:
        waiter = Thread(waiting.wait).asleep()
        waiting.add(child)
        child.stdin.close()
        assert waiter.result() == [(child, 3)]
        for proc, code in (zombie(5), 5), (done, 4), (gone, None):
            waiter = Thread(waiting.wait).asleep()
            waiting.add(proc)
            assert waiter.result() == [(proc, code)]


@in_threads
@everywhere
def test_discard_while_another_thread_waits(variant, start_told, sleeper):
    child = start_told(3)
    with pidwait.WaitSet([sleeper, child]) as waiting:
        waiter = Thread(waiting.wait).asleep()
        waiting.discard(child)
        end(child)
        assert waiting.wait(0) == [] == waiting.wait(0.02)  # its own time-out counts
        waiting.discard(sleeper)  # nothing is left to wait for
        assert waiter.result() == []


@in_threads
@pytest.mark.kqueue
def test_each_exit_goes_to_one_thread(variant, herd):
    codes = {herd.fork(number, 0.05 + number % 7 / 50.0): number for number in range(HERD)}
    with pidwait.WaitSet(codes) as waiting:
        threads = [Thread(all_exits, waiting) for _ in range(4)]
        seen = sum((thread.result() for thread in threads), [])
    assert sorted(seen) == sorted(codes.items())


@in_threads
@everywhere
def test_close_leaves_the_wait_of_another_thread_intact(variant, start_told):
    """What the set has opened is closed after that wait."""
    child, before = start_told(4), [] if WINDOWS else open_fds()
    waiting = pidwait.WaitSet([child])
    waiter = Thread(waiting.wait).asleep()
    waiting.close()
    with pytest.raises(ValueError, match="closed"):
        waiting.add(child)
    with pytest.raises(ValueError, match="closed"):
        waiting.wait()
    child.stdin.close()
    assert waiter.result() == [(child, 4)]
    # PyPy does so at a collection.
    eventually(lambda: [gc.collect()] and (WINDOWS or set(open_fds()) < set(before)))
    assert waiting is not None


@in_threads
def test_handles_of_the_discarded_go_to_the_next(by_pidfd, herd):
    """A thread may have seen an event of the old one: it is never taken for the new one's."""
    lives, other = herd.fork(0), herd.fork(0)
    with pidwait.WaitSet([other]) as waiting:
        for _ in range(20):
            dies = herd.fork(0)
            waiting.add(dies)
            waiter = Thread(waiting.wait).asleep()
            os.kill(dies, signal.SIGKILL)
            waiting.discard(dies)
            waiting.add(lives)
            waiting.add(dies)
            assert waiter.result() == [(dies, -signal.SIGKILL)]
            waiting.discard(dies)  # it may have been reported before it was added again
            assert list(waiting) == [other, lives]
            waiting.discard(lives)


class Blocking:
    """In the block, the threads that call the function wait until it is over."""

    def __init__(self, function):
        self._function, self._pid = function, os.getpid()
        self.entered, self._released = threading.Event(), threading.Event()

    def __call__(self, *args):
        if os.getpid() == self._pid:  # not in a forked child, where nobody would release it
            self.entered.set()
            self._released.wait()
        return self._function(*args)

    def __enter__(self):
        return self

    def release(self, *exc_info):
        self._released.set()

    __exit__ = release


@in_threads
@pytest.mark.kqueue
def test_an_owner_may_block(variant, start_told, sleeper):
    """While it is asked, other threads add, discard and wait."""
    children = [start_told(code) for code in (3, 4)]
    owner = LikePopen(children[0].pid)
    with Blocking(lambda: 3) as owner.poll, pidwait.WaitSet([owner, sleeper]) as waiting:
        waiter = Thread(waiting.wait)
        end(children[0])
        owner.poll.entered.wait()
        waiting.add(children[1])
        waiting.discard(sleeper)
        assert children[1] in waiting and len(waiting) > 0
        end(children[1])
        assert waiting.wait() == [(children[1], 4)]
        owner.poll.release()
        assert waiter.result() == [(owner, 3)]


# Signals


@contextlib.contextmanager
def handling_alarms(handler):
    """In the block, pytest's time limit, which needs the same timer, does not count."""
    old = signal.signal(signal.SIGALRM, handler)
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, *timer)


@in_threads
def test_a_member_that_is_discarded_during_a_look_is_not_reaped(by_pidfd, seam, start_told):
    child, waitid = start_told(3), seam.get("waitid")

    def look(*args):
        found = waitid(*args)
        waiting.discard(child)
        return found

    with pidwait.WaitSet([child]) as waiting:
        end(child)
        become_zombie(child.pid)
        seam.put("waitid", look)
        assert waiting.wait(0) == []
    assert child.returncode is None and state(child.pid) == "Z"


def test_ctrl_c_during_the_look_at_an_exit_leaves_it_to_another_thread(by_pidfd, seam, herd):
    pids = [herd.fork(0) for _ in range(3)]
    with pidwait.WaitSet(pids) as waiting, interrupted_by(KeyboardInterrupt()) as interrupted:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            become_zombie(pid)
        real = get("waitid")
        seam.put("waitid", lambda *args: seam.put("waitid", real) or interrupted())
        with pytest.raises(KeyboardInterrupt):
            waiting.wait()
        assert list(waiting) == pids
        assert sorted(Thread(all_exits, waiting).result()) == sorted((pid, -15) for pid in pids)


@pytest.mark.kqueue
def test_an_exception_of_a_handler_inside_an_owner(variant, start_told):
    """It is not taken for the owner's, and no exit is lost that the same wait has found."""
    children = [start_told(code) for code in (4, 3, 5)]
    owner = LikePopen(children[1].pid)
    procs = [children[0].pid, owner, children[2].pid]
    with interrupted_by(OnPurpose()) as owner.poll, pidwait.WaitSet(procs) as waiting:
        for child in children:
            end(child)
        with pytest.raises(OnPurpose):
            waiting.wait()
        assert len(waiting) == 3
        owner.poll = lambda: 3
        exits = zip(procs, (4, 3, 5))
        assert sorted(all_exits(waiting), key=str) == sorted(exits, key=str)


@pytest.mark.kqueue
def test_a_handler_may_use_the_set_whose_wait_it_interrupts(variant, start_told, sleeper):
    """Nothing hangs."""
    child, seen = start_told(3), []
    with pidwait.WaitSet([sleeper, child]) as waiting:

        def use(*args):
            signal.setitimer(signal.ITIMER_REAL, 0)
            waiting.discard(sleeper)
            waiting.add(child)
            child.stdin.close()
            seen.extend(waiting.wait())

        with handling_alarms(use):
            # It repeats, in case the interpreter misses the first just before the system call.
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.05)
            seen += waiting.wait()
    assert (child, 3) in seen


# fileno()


def is_readable(fd, timeout=0):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return poll.poll(timeout * 1000) != []


def is_selected(fd, timeout):
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return selector.select(timeout) != []


def is_in_select(fd, timeout):
    """select(2) takes no file descriptor above 1023."""
    return select.select([fd], [], [], timeout)[0] != []


def turns_until(waiting, fd, exits, is_ready=is_readable):
    """The number of turns of an event loop that watches the fd, until the exits are reported."""
    turns, seen = 0, []
    while len(seen) < len(exits):
        assert is_ready(fd, 60)
        seen += waiting.wait(0)
        turns += 1
    assert sorted(seen, key=str) == sorted(exits, key=str)
    return turns


def turns_for(waiting, fd, seconds):
    """The number of turns of an event loop in that time; nothing exits."""
    turns, end = 0, time.monotonic() + seconds
    while is_readable(fd, max(0, end - time.monotonic())):
        assert waiting.wait(0) == []
        turns += 1
    return turns


@pytest.mark.kqueue
@pytest.mark.parametrize("is_ready", [is_readable, is_selected, is_in_select])
def test_fileno_is_readable_when_there_is_something_to_report(
    variant, backend, start_told, zombie, sleeper, is_ready
):
    child = start_told(3)
    with pidwait.WaitSet([child, sleeper]) as waiting:
        fd = waiting.fileno()
        assert not os.get_inheritable(fd)
        assert backend == "polling" or not is_readable(fd)
        child.stdin.close()
        turns_until(waiting, fd, [(child, 3)], is_ready)
        assert backend == "polling" or not is_readable(fd)
        # What is added later counts, too: what has exited, has its code, or is gone.
        exits = [(zombie(4), 4), (child, 3), (gone_pid(), None)]
        for proc, _ in exits:
            waiting.add(proc)
        turns_until(waiting, fd, exits, is_ready)
        assert backend == "polling" or not is_readable(fd)
        assert waiting.fileno() == fd


@in_threads
@pytest.mark.kqueue
def test_fileno_is_readable_for_what_another_thread_adds(variant, zombie, sleeper):
    proc = zombie(3)
    with pidwait.WaitSet([sleeper]) as waiting:
        watcher = Thread(turns_until, waiting, waiting.fileno(), [(proc, 3)]).asleep()
        waiting.add(proc)
        watcher.result()


def need_timer():
    if not KQUEUES:
        try:
            get("timerfd_create")
        except OSError as error:
            pytest.skip("without a timer it is readable too early: %s" % error)


def test_fileno_of_polled_members(variant, backend, seam, start_told, sleeper):
    """It tells when a look is due, which is not all the time; no other descriptor is needed."""
    need_timer()
    child = start_told(3)
    with pidwait.WaitSet() as waiting:
        fd = waiting.fileno()
        if backend == "pidfd":
            seam.refuse("pidfd_open", errno.EMFILE)
        seam.refuse("timerfd_create", errno.EMFILE)
        waiting.add(child.pid)
        waiting.add(sleeper)
        assert waiting.wait(0) == []
        assert turns_for(waiting, fd, 0.2) < 60
        child.stdin.close()
        turns_until(waiting, fd, [(child.pid, 3)])
        waiting.discard(sleeper)
        assert turns_for(waiting, fd, 0.05) < 5


def test_polled_members_take_a_small_share_of_a_core(by_polling):
    """At most 5 %, also in a loop of short waits, each of which looks at its end, too. What needs
    no look is reported at once."""

    class Ours:
        pid = os.getpid()

    class Reaped(Ours):
        returncode = 4
        poll = int

    with pidwait.WaitSet([Ours() for _ in range(2000)]) as waiting:
        used, began = time.process_time(), time.monotonic()
        while time.monotonic() < began + 1:
            assert waiting.wait(0.02) == []
        share = (time.process_time() - used) / (time.monotonic() - began)
        waiting.add(Reaped())
        assert [code for _, code in waiting.wait(0)] == [4]
    assert share < 0.12  # to look at all of them each time takes 20 %


def test_a_slow_look_delays_others_by_a_second_at_most(by_polling, start_told):
    """It has used up its share for twelve seconds."""

    clock = getattr(time, "thread_time", time.process_time)

    class Slow(subprocess.Popen):
        def poll(self):
            end = clock() + 0.4
            while clock() < end:
                pass
            return super().poll()

    slow = Slow(["true"])
    become_zombie(slow.pid)
    assert pidwait.wait_procs([slow], 60) == ([(slow, 0)], [])
    child = start_told(3)
    with pidwait.WaitSet([child]) as waiting:
        assert waiting.wait(0) == []
        child.stdin.close()
        become_zombie(child.pid)
        began = time.monotonic()
        assert waiting.wait(60) == [(child, 3)]
        took = time.monotonic() - began
    # A busy machine may add to the second, but not make twelve of it.
    assert took < 6


@pytest.mark.parametrize("jump", [-300.0, 300.0])
def test_polled_members_are_looked_at_though_the_clock_jumps(by_polling, seam, start_told, jump):
    children = [start_told(3), start_told(4)]
    with pidwait.WaitSet(children) as waiting:
        assert waiting.wait(0.01) == []  # now the next look has its time
        seam.move_clock(jump)
        for child, code in zip(children, (3, 4)):
            child.stdin.close()
            assert waiting.wait() == [(child, code)]


# A code, or a reaping, that is still to come


def is_held(child, herd):
    """Wait for it while its lock is held; return whether that has taken less than a second."""
    child._waitpid_lock.acquire()  # as while another thread is in its poll()
    began = time.monotonic()
    try:
        with pidwait.WaitSet([child]) as waiting:
            held = waiting.wait(0) + waiting.wait(0.02)
            turns = turns_for(waiting, waiting.fileno(), 0.1)  # to ask it again
            pid = herd.fork(5, 0.01)
            waiting.add(pid)
            others = waiting.wait()
            waiter = Thread(waiting.wait).asleep()
            if time.monotonic() - began > 0.9:  # it may have been reported
                return False
            child._waitpid_lock.release()
            assert held == [] and turns in range(1, 60) and others == [(pid, 5)]
            assert waiter.result() == [(child, 4)] and child.returncode == 4
    finally:
        if child._waitpid_lock.locked():
            child._waitpid_lock.release()
    return True


@pytest.mark.kqueue
def test_a_popen_that_another_thread_holds(variant, zombie, herd):
    """It does not hold up other exits, and is reported once it has been reaped."""
    need_timer()
    assert any(is_held(zombie(4), herd) for _ in range(20))


def as_nobody(function, *args):
    """Call function(stranger, ...) where the code of a stranger's zombie can't be read."""
    from ..trouble import Stranger, system

    if system.libc is None:
        pytest.skip(system.WHY_NO_CALLS)

    def use():
        stranger = Stranger(system.not_dumpable)
        system.become(65432)
        function(stranger, *args)

    assert in_a_fork(use)


def is_given_up(stranger, backend):
    """It is reported after a second at most."""
    pid = stranger.pid
    with pidwait.WaitSet([pid]) as waiting:
        fd = waiting.fileno()
        assert waiting.wait(0) == []
        stranger.become_zombie(7)
        assert pidwait.wait_procs([pid], 0) == ([(pid, None)], [])
        assert list(pidwait.as_completed([pid], 0)) == [(pid, None)]
        turns = turns_until(waiting, fd, [(pid, None)])
        assert backend == "polling" or turns <= 20
        waiting.add(pid)
        assert waiting.wait() == [(pid, None)]
    stranger.reap()


def is_told(stranger, seam):
    """It is reaped right after it was seen as a zombie."""
    real, calls = get("ioctl"), []

    def leave_after_the_first_look(*args):
        info = real(*args)
        calls.append(info)
        if len(calls) == 1:
            assert stranger.leave() == 7
        return info

    with pidwait.WaitSet([stranger.pid]) as waiting:
        stranger.become_zombie(7)
        seam.put("ioctl", leave_after_the_first_look)
        assert waiting.wait() == [(stranger.pid, 7)] and calls
    stranger.forget()


def test_a_code_that_only_the_reaping_tells(variant, backend):
    as_nobody(is_given_up, backend)


def test_a_code_that_only_the_reaping_tells_where_there_is_no_timer(by_pidfd, seam):
    """Nothing would make the set readable later: so nobody waits for the code."""
    seam.refuse("timerfd_create")
    as_nobody(is_given_up, "pidfd")


def test_a_code_that_the_reaping_tells_in_time(by_pidfd, seam):
    if those_that_may_be_told(7, "pidfd") != (7,):
        pytest.skip("before Linux 6.15 the reaping tells no code")
    as_nobody(is_told, seam)


# Where the best way does not work for all


@pytest.mark.parametrize("code", ["EMFILE", "ENFILE", "ENOMEM", "EPERM", "EINVAL", "ENODEV"])
def test_what_gets_no_handle_is_polled(by_pidfd, seam, herd, code):
    """Handles and polling together; what the exits free goes to the others."""
    real, opened = get("pidfd_open"), []

    def every_second(pid, flags):
        opened.append(pid)
        if len(opened) % 2:
            raise OSError(getattr(errno, code), "on purpose")
        return real(pid, flags)

    pids = [herd.fork(0) for _ in range(8)]
    with pidwait.WaitSet() as waiting:
        seam.put("pidfd_open", every_second)
        for pid in pids:
            waiting.add(pid)
        waiting.discard(pids[0])
        waiting.discard(pids[1])
        assert waiting.wait(0) == []
        for number, pid in enumerate(pids):
            os.kill(pid, signal.SIGTERM)
            become_zombie(pid)
            if number > 1:
                assert waiting.wait() == [(pid, -signal.SIGTERM)]
            if number == 4:
                seam.put("pidfd_open", real)
        assert waiting.wait() == []


def test_all_are_polled_where_there_is_no_epoll(variant, seam, herd):
    pids = [herd.fork(0) for _ in range(2)]
    seam.refuse("epoll", errno.EMFILE)
    with pidwait.WaitSet(pids[:1]) as waiting:
        waiting.add(pids[1])
        waiter = Thread(waiting.wait).asleep()
        os.kill(pids[0], signal.SIGTERM)
        assert waiter.result() == [(pids[0], -signal.SIGTERM)]
        assert waiting.wait(0.01) == [] and list(waiting) == pids[1:]
        assert in_a_fork(waiting.wait, 0.01)
        with pytest.raises(io.UnsupportedOperation):
            waiting.fileno()
        os.kill(pids[1], signal.SIGTERM)
        assert waiting.wait() == [(pids[1], -signal.SIGTERM)]


def test_codes_are_known_where_there_is_no_epoll(by_pidfd, seam, keeper, tmp_path):
    """gevent takes it away, but not the pidfds: they are looked at by polling."""
    seam.refuse("epoll", errno.ENOSYS)
    pid = keeper.start_told(5, tmp_path / "fifo")
    with pidwait.WaitSet([pid]) as waiting:
        keeper.reap_soon(pid)
        (tmp_path / "fifo").open("w").close()
        ((proc, code),) = waiting.wait(60)
        assert proc == pid and code in those_that_may_be_told(5, "pidfd")
    keeper.reaped()


# File descriptors


@pytest.mark.kqueue
def test_low_file_descriptors_are_spared(variant, backend, seam, herd):
    """Pidfds are above the soft limit, which stays as it is, and close on exec."""
    import resource

    pids, before = [herd.fork(0) for _ in range(HERD)], set(open_fds())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(limits[0], 256), limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, lower)
    try:
        with pidwait.WaitSet(pids) as waiting:
            new = set(open_fds()) - before
            assert not any(map(os.get_inheritable, new))
            if lower[0] < lower[1]:
                assert len([fd for fd in new if fd < lower[0]]) <= 3  # for all of them together
            if backend == "pidfd":
                assert len(new) > HERD
                with interrupted_by(OnPurpose()) as interrupted, pytest.raises(OnPurpose):
                    seam.put("pidfd_open", interrupted)
                    waiting.add(os.getpid())
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == lower
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# Forks


@pytest.mark.kqueue
@pytest.mark.parametrize("polls", [False, True])
def test_a_forked_copy(variant, backend, seam, herd, polls):
    """Parent and child go on by themselves, with what was added before; nothing is shared."""
    pids = {herd.fork(0): -signal.SIGTERM for _ in range(3)}
    first = next(iter(pids))
    with pidwait.WaitSet([first]) as waiting:
        fd = waiting.fileno()
        if polls and backend == "pidfd":
            seam.refuse("pidfd_open", errno.EMFILE)
        for pid in pids:
            waiting.add(pid)

        def use():
            waiting.discard(first)
            assert len(waiting) == 2 and waiting.wait(0) == []
            assert is_open(waiting.fileno())
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
            # They are not its children, so a code may be unknown.
            assert {code for _, code in all_exits(waiting)} <= {-signal.SIGTERM, None}
            waiting.add(os.getppid())
            assert waiting.wait(0) == []
            waiting.close()

        assert in_a_fork(waiting.close)
        assert in_a_fork(use)
        assert waiting.fileno() == fd
        turns_until(waiting, fd, list(pids.items()))


@in_threads
@pytest.mark.parametrize("use", ["add", "discard", "wait", "fileno", "close"])
def test_a_fork_while_another_thread_adds(by_pidfd, seam, sleeper, use):
    """Whatever lock that thread holds, nobody would release it in the child."""
    parent = os.getpid()
    args = {"add": [os.getppid()], "discard": [parent], "wait": [0]}.get(use, [])
    with pidwait.WaitSet([parent]) as waiting:
        with Blocking(get("pidfd_open")) as blocking:
            seam.put("pidfd_open", blocking)
            adder = Thread(waiting.add, sleeper.pid)
            blocking.entered.wait()
            assert in_a_fork(lambda: (getattr(waiting, use)(*args), waiting.close()))
        adder.result()
        assert set(waiting) == {parent, sleeper.pid}


@in_threads
@pytest.mark.kqueue
def test_a_fork_while_another_thread_reaps(variant, zombie):
    """The child's copy asks the owner again, as that thread is not there."""
    owner = LikePopen(zombie(3).pid)

    def use():
        assert waiting.wait() == [(owner, 3)] and len(waiting) == 0

    def discard():
        waiting.discard(owner)
        assert waiting.wait(0) == []

    with Blocking(lambda: 3) as owner.poll, pidwait.WaitSet([owner]) as waiting:
        waiter = Thread(waiting.wait)
        owner.poll.entered.wait()
        assert in_a_fork(use) and in_a_fork(discard)
        owner.poll.release()
        assert waiter.result() == [(owner, 3)]


@pytest.mark.kqueue
def test_copies_in_a_forked_child_wake_nobody(backend, herd):
    """If a forked child has a copy of a closed pidfd, the pidfd stays in the epoll, and ready."""
    pids = [herd.fork(0) for _ in range(2)]
    with pidwait.WaitSet(pids) as waiting:
        copy = herd.fork(0)
        waiting.discard(pids[0])
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            become_zombie(pid)
        assert waiting.wait() == [(pids[1], -signal.SIGTERM)]
        waiting.add(copy)
        began = time.process_time()
        assert waiting.wait(0.5) == []
        assert time.process_time() - began < 0.25
        assert backend != "pidfd" or not is_readable(waiting.fileno())
