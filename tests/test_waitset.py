# SPDX-License-Identifier: BSD-3-Clause
"""Many at once: WaitSet."""

import copy
import gc
import importlib
import io
import os
import pickle
import select
import signal
import threading
import time
import weakref

import pytest

from . import pidwait
from .conftest import STANDIN, VARIANTS, not_on_kqueue
from .processes import (
    HERD,
    WINDOWS,
    OnPurpose,
    Pid,
    become_zombie,
    eventually,
    exiting,
    gone_pid,
    held_by_a_thread_that_is_not_here,
    not_on_windows,
    sleeping,
)

EVENTS = "_backends.win32_set" if WINDOWS else "_backends.pidfd_set"
if STANDIN:
    EVENTS = "_backends.kqueue_set"
HAVE_FILENO = "pidfd", "kqueue"


def test_set(variant, start, sleeper):
    one, other = start(*exiting(1, after=0.05)), start(*exiting(2, after=0.1))
    with pidwait.WaitSet([one, sleeper]) as waiting:
        waiting.add(other)
        waiting.add(other)
        assert len(waiting) == 3 and one in waiting and 1 not in waiting
        assert set(waiting) == {one, sleeper, other}
        seen = []
        while len(waiting) > 1:
            batch = waiting.wait(30)
            assert batch
            seen += batch
        assert sorted(seen, key=lambda exit: exit[1]) == [(one, 1), (other, 2)]
        assert one not in waiting
        assert waiting.wait(0.01) == [] == waiting.wait(0)
        waiting.discard(sleeper)
        waiting.discard(one)
        assert waiting.wait() == [] and len(waiting) == 0
        waiting.add(one)  # it was forgotten when it was reported
        assert waiting.wait() == [(one, 1)]


def test_alarm_ends_one_sleep_of_a_wait_with_a_time_out(variant, sleeper, monkeypatch):
    with pidwait.WaitSet([sleeper]) as waiting:
        sets, sleeps = waiting._engine.sets, []
        sleep = sets.sleep
        monkeypatch.setattr(sets, "sleep", lambda *args: sleeps.append(args) or sleep(*args))
        waiting._engine.alarm(0)
        assert waiting.wait(0.2) == []
        # A polled member, and a set that nothing can wake, need more.
        assert len(sleeps) < 100


def test_numbers_that_are_equal_pids(variant, start):
    """They need not be ints."""
    pid = start(*exiting(3, 60)).pid
    with pidwait.WaitSet([Pid(pid)]) as waiting:
        waiting.add(pid)
        assert len(waiting) == 1 and pid in waiting and Pid(pid) in waiting
        waiting.discard(Pid(pid))
        assert len(waiting) == 0


def test_what_was_reported_is_forgotten(variant, start, sleeper):
    process = pidwait.Process(start(*exiting(3)).pid)
    reference = weakref.ref(process)
    with pidwait.WaitSet([process, sleeper]) as waiting:
        with process:
            assert waiting.wait() == [(process, 3)]
        del process

        def is_forgotten():
            gc.collect()
            return reference() is None

        eventually(is_forgotten)
        assert len(waiting) == 1


def test_nothing_is_added_if_one_is_wrong(variant, sleeper):
    with pidwait.WaitSet() as waiting:
        with pytest.raises(TypeError):
            waiting.add("x")
        assert len(waiting) == 0
    with pytest.raises(TypeError):
        pidwait.WaitSet([sleeper, "x"])


def test_closed_set(variant, sleeper):
    waiting = pidwait.WaitSet([sleeper])
    assert "1 processes, open" in repr(waiting)
    waiting.close()
    waiting.close()
    for use in (
        waiting.wait,
        waiting.fileno,
        lambda: waiting.add(sleeper),
        lambda: waiting.discard(sleeper),
    ):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert "closed" in repr(waiting)


def test_forgotten_close_of_a_set_warns(variant, sleeper):
    waiting = pidwait.WaitSet([sleeper])
    with pytest.warns(ResourceWarning, match="1 processes"):
        del waiting
        gc.collect()


def test_set_is_not_copied(variant):
    with pidwait.WaitSet() as waiting:
        for make in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match="handle"):
                make(waiting)


class Waiter(threading.Thread):
    """A thread in WaitSet.wait()."""

    def __init__(self, waiting, timeout=None):
        super().__init__()
        self.waiting, self.timeout = waiting, timeout
        self.start()
        # It may also have got its exits and ended by now.
        eventually(lambda: len(waiting._waiting) > 0 or not self.is_alive())

    def run(self):
        self.exits = self.waiting.wait(self.timeout)

    def result(self):
        self.join()
        return self.exits


def test_add_while_another_thread_waits(variant, start, sleeper):
    with pidwait.WaitSet([sleeper]) as waiting:
        waiter = Waiter(waiting)
        child = start(*exiting(3, after=0.05))
        waiting.add(child)
        assert waiter.result() == [(child, 3)]
        # One whose code is known already, and one that is gone.
        for proc, code in (child, 3), (gone_pid(), None):
            waiter = Waiter(waiting)
            waiting.add(proc)
            assert waiter.result() == [(proc, code)]


def test_discard_while_another_thread_waits(variant, start_told, sleeper):
    child = start_told(3)
    with pidwait.WaitSet([sleeper, child]) as waiting:
        waiter = Waiter(waiting)
        waiting.discard(child)
        child.stdin.close()
        become_zombie(child.pid)
        assert waiting.wait(0.05) == []
        waiting.discard(sleeper)  # nothing is left to wait for
        assert waiter.result() == []


def test_each_exit_goes_to_one_thread(variant, herd):
    codes = {herd.fork(number, after=0.1 + number % 7 / 50.0): number for number in range(HERD)}
    seen = []

    def run():
        while True:
            batch = waiting.wait()
            if not batch:
                return
            seen.extend(batch)

    with pidwait.WaitSet(codes) as waiting:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen) == sorted(codes.items())


def test_close_leaves_the_wait_of_a_set_intact(variant, start):
    child = start(*exiting(4, after=0.2))
    waiting = pidwait.WaitSet([child])
    waiter = Waiter(waiting)
    waiting.close()
    with pytest.raises(ValueError, match="closed"):
        waiting.add(child)
    assert waiter.result() == [(child, 4)]
    assert waiting._engine._is_closed


def test_add_and_discard_under_load(variant, start):
    """One thread waits; others add processes that soon exit, and discard some that do not."""
    rounds = 3 if WINDOWS else 12
    errors, seen, expected = [], [], []
    with pidwait.WaitSet([start(*sleeping(60)).pid]) as waiting:

        def churn(number):
            try:
                for round in range(rounds):
                    pid = start(*exiting(number, after=round % 3 / 500.0)).pid
                    other = start(*sleeping(60)).pid
                    waiting.add(pid)
                    waiting.add(other)
                    waiting.discard(other)
                    expected.append((pid, number))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while len(seen) < 4 * rounds and not errors:
            seen += waiting.wait(60)
        for thread in threads:
            thread.join()
        assert errors == []
        assert waiting.wait(0) == []
    assert sorted(seen) == sorted(expected)


def test_look_that_stands_still(use_variant, no_events, start_told, monkeypatch):
    """Time that a look loses to other threads, or to a stopped machine, delays no later look."""
    use_variant(next((name for name in VARIANTS if name.startswith("polling")), "polling"))
    module = importlib.import_module(pidwait.__name__ + "._backends.polling_set")
    monkeypatch.setattr(module, "clock", time.process_time)
    stops = []
    monkeypatch.setattr(module, "monotonic", lambda: time.monotonic() + 1000 * len(stops))
    child = start_told(3)
    with pidwait.WaitSet([child]) as waiting:
        looks = waiting._engine.sets.polled._looks
        ((target, look),) = looks.items()

        def stopped():
            stops.append(1)
            return look()

        looks[target] = stopped
        assert waiting.wait(0) == [] and stops
        looks[target] = look
        child.stdin.close()
        assert waiting.wait() == [(child, 3)]


@not_on_windows("pidfds")
@not_on_kqueue
def test_event_of_a_discarded_process(use_variant, start, sleeper):
    """Another thread has taken its event, and its pidfd's number goes to the next member."""
    use_variant("pidfd-ctypes")
    child = start(*exiting(3))
    become_zombie(child.pid)
    with pidwait.WaitSet([child.pid]) as waiting:
        pidfds = waiting._engine.sets.best
        pidfds.sleep(0)
        ((fd, _),) = pidfds._events
        waiting.discard(child.pid)
        waiting.add(sleeper.pid)
        assert list(pidfds._members) == [fd]
        assert waiting.wait(0) == []
        sleeper.kill()
        assert waiting.wait() == [(sleeper.pid, -signal.SIGKILL)]


@not_on_windows("signals")
def test_storm_of_signals(variant, herd):
    codes = {herd.fork(number, after=0.1 + number % 9 / 40.0): number for number in range(HERD)}
    count = []
    old = signal.signal(signal.SIGALRM, lambda *args: count.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        exited, alive = pidwait.wait_procs(codes)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert sorted(exited) == sorted(codes.items())
    assert alive == [] and count


@not_on_windows("signals")
def test_exceptions_of_signal_handlers_lose_nothing(variant, herd):
    pidwait.wait_procs([os.getpid()], 0)  # imports all that it needs
    # Once is enough, unless all signals came while the stand-in for a kqueue was at work.
    while not raise_while_waiting(herd):
        pass


def raise_while_waiting(herd):
    """Wait for the exits of a herd; return how often a signal handler raised meanwhile."""
    codes = {herd.fork(number, after=0.1 + number / 200.0): number for number in range(HERD)}

    # The handler raises in these files alone: not between the return of wait() and the
    # assignment of its result, nor where a file of /proc is open, which would leak.
    names = ["_engine", "_combined", "_waitset", EVENTS, "_backends.polling_set"]
    names += [] if WINDOWS else ["_backends.epoll_set"]
    modules = [importlib.import_module("%s.%s" % (pidwait.__name__, name)) for name in names]
    files = [module.__file__ for module in modules]

    def handler(signum, frame):
        if frame.f_code.co_filename in files and frame.f_code.co_name not in ("wait", "_wait"):
            raise OnPurpose
        if armed:
            signal.setitimer(signal.ITIMER_REAL, 0.0001)

    seen, armed, raised = [], [], 0
    old = signal.signal(signal.SIGALRM, handler)
    try:
        with pidwait.WaitSet(codes) as waiting:
            while len(waiting):
                batch = []
                try:
                    if raised < 500:
                        armed.append(True)
                        signal.setitimer(signal.ITIMER_REAL, 0.002)
                    batch = waiting.wait(15)  # pytest's time limit needs the same timer
                    armed.clear()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    assert batch
                except OnPurpose:
                    raised += 1
                seen += batch
            armed.clear()
    finally:
        armed.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert sorted(seen) == sorted(codes.items())
    return raised


@not_on_windows("signals")
def test_handler_that_changes_the_set_that_its_thread_waits_on(variant, start, sleeper):
    child = start(*exiting(3))
    become_zombie(child.pid)
    with pidwait.WaitSet([sleeper]) as waiting:

        def handler(*args):
            signal.setitimer(signal.ITIMER_REAL, 0)
            waiting.discard(sleeper)
            waiting.add(child)

        old = signal.signal(signal.SIGALRM, handler)
        # It repeats, in case the interpreter misses the first just before the system call.
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            assert waiting.wait() == [(child, 3)]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)


def test_callbacks_that_change_and_close_the_set(variant, start):
    first, second = start(*exiting(1)), start(*exiting(2))
    seen = []
    waiting = pidwait.WaitSet([first])

    def callback(proc, code):
        seen.append(code)
        waiting.add(second)
        waiting.discard(first)

    while len(waiting):
        for proc, code in waiting.wait():
            if seen:
                waiting.close()
                seen.append(code)
            else:
                callback(proc, code)
    assert seen == [1, 2]


@pytest.mark.parametrize("method", ["add", "discard"])
def test_closed_by_another_thread_just_before(variant, sleeper, method):
    """The set was still open when the method began."""
    with pidwait.WaitSet() as waiting:
        waiting._engine.close()
        with pytest.raises(ValueError, match="closed"):
            getattr(waiting, method)(sleeper.pid)


def test_close_while_another_thread_collects(sleeper):
    """It waits for the lock."""
    waiting = pidwait.WaitSet([sleeper.pid])
    thread = threading.Thread(target=waiting.close)
    with waiting._engine._lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join()
    assert "closed" in repr(waiting)


def test_turn_that_another_thread_has():
    """take() waits for it, but no longer than its time-out."""
    turn = importlib.import_module(pidwait.__name__ + "._turn").Turn()
    taken, told = threading.Event(), threading.Event()

    def take():
        with turn.lock:
            taken.set()
            told.wait(20)

    thread = threading.Thread(target=take)
    thread.start()
    assert taken.wait(20)
    held = []
    turn.take(held, 0.01)
    turn.give(held)
    assert held == []
    threading.Timer(0.05, told.set).start()
    turn.take(held, 20)
    assert held == [turn.lock]
    turn.give(held)
    assert held == []
    thread.join()


def is_readable(fd, timeout=0):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return poll.poll(timeout * 1000) != []


def turns_until(waiting, fd, exits):
    """The number of turns of an event loop that polls the fd, until the exits are reported."""
    turns, told = 0, []
    while told != exits:
        assert is_readable(fd, 30)
        told += waiting.wait(0)
        turns += 1
    return turns


def test_fileno_of_a_set(variant, backend, start_told, sleeper):
    child = start_told(3)
    with pidwait.WaitSet([child, sleeper]) as waiting:
        if WINDOWS:
            with pytest.raises(io.UnsupportedOperation):
                waiting.fileno()
            return
        fd = waiting.fileno()
        assert not os.get_inheritable(fd)
        if backend in HAVE_FILENO:
            assert not is_readable(fd)
        child.stdin.close()
        assert turns_until(waiting, fd, [(child, 3)])
        if backend in HAVE_FILENO:
            assert not is_readable(fd)
        waiting.add(child)
        assert is_readable(fd)
        assert waiting.wait() == [(child, 3)]
        if backend in HAVE_FILENO:
            assert not is_readable(fd)


@not_on_windows("fileno")
def test_change_while_fileno_is_made(variant, sleeper):
    """Another thread makes the change, and does not know yet that somebody polls the fileno."""
    gone = gone_pid()  # no event tells its exit
    with pidwait.WaitSet([sleeper]) as waiting:
        make = waiting._engine.fileno

        def make_and_add():
            fd = make()
            waiting.add(gone)
            return fd

        waiting._engine.fileno = make_and_add
        fd = waiting.fileno()  # a later call would see the change
        assert is_readable(fd, 30)
        assert waiting.wait() == [(gone, None)]


@not_on_windows("lock that Popen.poll() takes")
def test_popen_that_can_not_be_reaped_yet(variant, backend, start, herd):
    """It does not hold up other exits, and is reported once it has been reaped."""
    child = start(*exiting(4))
    become_zombie(child.pid)
    child._waitpid_lock.acquire()
    try:
        with pidwait.WaitSet([child]) as waiting:
            assert waiting.wait(0.05) == []
            if not WINDOWS:
                assert is_readable(waiting.fileno(), 30)  # to look at it again
            pid = herd.fork(5, after=0.05)
            waiting.add(pid)
            assert waiting.wait() == [(pid, 5)]
            threading.Timer(0.05, child._waitpid_lock.release).start()
            assert waiting.wait() == [(child, 4)]
    finally:
        if child._waitpid_lock.locked():
            child._waitpid_lock.release()
        child.wait()


@not_on_windows("fork")
def test_forked_copy_of_a_set(variant, herd):
    pids = {herd.fork(code, after=0.3): code for code in (1, 2, 3)}
    with pidwait.WaitSet(pids) as waiting:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                # They are not this fork's children, so a code may be unknown.
                seen = []
                while len(waiting):
                    seen += waiting.wait()
                right = all(code in (pids[one], None) for one, code in seen)
                status = 0 if right and len(seen) == 3 else 2
                waiting.close()
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        seen = []
        while len(waiting):
            seen += waiting.wait(30)
        assert sorted(seen) == sorted(pids.items())


@not_on_windows("fork")
def test_copies_in_a_forked_child_do_not_wake_anybody(variant, herd, monkeypatch):
    """A closed pidfd of which a forked child has a copy would stay in the epoll, and be ready."""
    pids = [herd.fork(code, after=0.1) for code in (1, 2)]
    with pidwait.WaitSet(pids) as waiting:
        copy = herd.fork(0)
        waiting.discard(pids[0])
        assert waiting.wait() == [(pids[1], 2)]
        become_zombie(pids[0])
        waiting.add(copy)
        sleeps, kind = [], type(waiting._engine.sets.best)
        sleep = kind.sleep
        monkeypatch.setattr(kind, "sleep", lambda *args: sleeps.append(args) or sleep(*args))
        assert waiting.wait(0.5) == []
        # Other processes' exits wake the connector.
        assert 0 < len(sleeps) < (500 if variant == "connector" else 50)


@not_on_windows("fork")
def test_fork_while_a_thread_waits_on_a_set(variant, sleeper):
    with pidwait.WaitSet([sleeper]) as waiting:
        waiter = Waiter(waiting)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                waiting._engine._lock = held_by_a_thread_that_is_not_here()
                assert waiting._turn is not None and waiting._waiting
                status = 0 if waiting.wait(0.01) == [] and len(waiting) == 1 else 2
                waiting.close()
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        waiting.discard(sleeper)
        assert waiter.result() == []
