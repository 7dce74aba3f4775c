# SPDX-License-Identifier: BSD-3-Clause
"""Many at once: what can happen between the exit of a process and its report."""

import errno
import importlib
import queue
import threading
import time
from types import SimpleNamespace

import pytest

from . import faults, pidwait
from .faults import at_line
from .processes import become_zombie, exiting, gone_pid, interrupted_by
from .test_waitset import Waiter, is_readable, turns_until


def module(name):
    return importlib.import_module("%s.%s" % (pidwait.__name__, name))


calls = module("_ffi.calls")
exitcodes = module("_sources.exitcodes")
pidfd_set = module("_backends.pidfd_set")
polling_set = module("_backends.polling_set")
ROOMS = "_engine _combined _kinds _targets _waitset epoll_set pidfd_set polling_set _highfds"
FILES = tuple(name + ".py" for name in ROOMS.split())


# No lock of ours is held while an owner's code runs


class Blocking:
    """Like a Popen, but one of its attributes blocks until the test releases it."""

    _waitpid_lock = threading.Lock()

    def __init__(self, pid, name):
        self.pid, self.name = pid, name
        self.is_armed = False
        self.entered, self.released = threading.Event(), threading.Event()
        self.in_time = None

    def block(self, name):
        if name == self.name and self.is_armed and not self.entered.is_set():
            self.entered.set()
            self.in_time = self.released.wait(10)

    @property
    def returncode(self):
        self.block("returncode")
        return None

    def poll(self):
        self.block("poll")
        return 5


def use_while_it_blocks(waiting, owner, proc):
    assert owner.entered.wait(10)
    waiting.add(proc)
    waiting.discard(proc)
    assert owner in waiting or owner.name == "returncode"
    assert len(waiting) > 0 and list(waiting)
    owner.released.set()


def test_owner_that_blocks_while_it_reaps(either, start, sleeper):
    child = start(*exiting(3))
    become_zombie(child.pid)
    owner = Blocking(child.pid, "poll")
    owner.is_armed = True
    with pidwait.WaitSet([owner]) as waiting:
        waiter = Waiter(waiting)
        use_while_it_blocks(waiting, owner, sleeper)
        assert waiter.result() == [(owner, 3)]
        assert owner.in_time is True


def test_owner_that_blocks_while_it_is_added(either, start_told, sleeper):
    child = start_told(3)
    owner = Blocking(child.pid, "returncode")
    with pidwait.WaitSet([sleeper]) as waiting:
        target = module("_kinds").find(owner)
        owner.is_armed = True
        adder = threading.Thread(target=waiting._add, args=([target],))
        adder.start()
        use_while_it_blocks(waiting, owner, child)
        adder.join()
        assert owner.in_time is True
        child.stdin.close()
        assert waiting.wait(20) == [(owner, 3)]


def test_child_that_a_thread_reaps_while_its_signal_handler_uses_the_set(either, sleeper):
    """AB-BA: one thread holds the Child and wants the set, one holds the set, wants the Child."""
    child = pidwait.spawn(exiting(3))
    become_zombie(child.pid)
    with pidwait.WaitSet([child, sleeper]) as waiting:
        child._reaper["is"] = None  # main is about to reap it
        exits = []
        waiter = threading.Thread(target=lambda: exits.extend(waiting.wait(0.05)), daemon=True)
        waiter.start()
        waiting.discard(sleeper)
        waiter.join(20)
        assert not waiter.is_alive() and exits == []
        child._reaper.clear()
        assert waiting.wait(20) == [(child, 3)] and child.reaped
    child.close()


# A signal handler that raises, at any line


class Told:
    """Like a Process, which the set asks whether it has exited."""

    backend = "other"
    exitcode = 7

    def __init__(self, pid):
        self.pid = pid

    def has_exited(self):
        return False


@pytest.fixture
def locks():
    """Make the lock new: a trace, unlike a handler, can raise at a ``with``'s end and keep it."""
    yield
    module("_highfds").raised._start()


@pytest.mark.timeout(300)  # a new set for each line
@pytest.mark.parametrize("kind", [int, Told], ids=["pid", "object"])
@pytest.mark.parametrize("method", ["add", "discard"])
def test_interrupted_at_any_line(either, locks, start, kind, method):
    """The change has happened or not; it can be made again, and the exit is reported once."""
    child = start(*exiting(7))
    become_zombie(child.pid)
    proc = kind(child.pid)
    number, reached = 0, True
    while reached:
        number += 1
        with pidwait.WaitSet([proc] if method == "discard" else ()) as waiting:
            try:
                with at_line(number, faults.interrupt, FILES) as line:
                    getattr(waiting, method)(proc)
            except KeyboardInterrupt:
                pass
            getattr(waiting, method)(proc)
            if method == "discard":
                assert proc not in waiting, line.where
                waiting.add(proc)
            assert list(waiting) == [proc] and len(waiting) == 1, line.where
            assert waiting.wait(20) == [(proc, 7)], line.where
            assert waiting.wait(0) == [] and len(waiting) == 0, line.where
        reached = line.reached
    assert number > 20


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [int, Told], ids=["pid", "object"])
def test_wait_interrupted_at_any_line(either, locks, start, kind):
    """The exit is reported by that wait or by the next one."""
    child = start(*exiting(7))
    become_zombie(child.pid)
    proc = kind(child.pid)
    number, reached = 0, True
    while reached:
        number += 1
        with pidwait.WaitSet([proc]) as waiting:
            exits = []
            try:
                with at_line(number, faults.interrupt, FILES) as line:
                    exits += waiting.wait(20)
            except KeyboardInterrupt:
                assert list(waiting) == [proc], line.where
                exits += waiting.wait(20)
            assert exits == [(proc, 7)], line.where
            assert waiting.wait(0) == [] and len(waiting) == 0, line.where
        reached = line.reached
    assert number > 20


def is_free(lock):
    taken = []

    def take():
        if lock.acquire(False):
            taken.append(lock)
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken != []


def test_turn_is_given_by_a_wait_interrupted_at_any_line(either, sleeper):
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        number, reached = 0, True
        while reached:
            number += 1
            try:
                with at_line(number, faults.interrupt, ["_turn.py"]) as line:
                    waiting.wait(0)
            except KeyboardInterrupt:
                pass
            reached = line.reached
            assert is_free(waiting._turn.lock), line.where
        assert number > 5


# Exit codes that only the reaping tells


@pytest.fixture
def hidden(use_variant, monkeypatch, keeper):
    """A zombie that is not our child; its code, 5, can't be read in /proc."""
    use_variant("pidfd-ctypes")
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(5))
    become_zombie(pid)
    return SimpleNamespace(pid=pid, reap=lambda: keeper.reap(pid))


def test_time_is_up_before_the_reaping(hidden):
    assert pidwait.wait_procs([hidden.pid], 0) == ([(hidden.pid, None)], [])
    assert list(pidwait.as_completed([hidden.pid], 0)) == [(hidden.pid, None)]
    with pidwait.WaitSet([hidden.pid]) as waiting:
        assert waiting.wait(0) == [(hidden.pid, None)]


def test_fileno_while_only_the_reaping_tells(hidden):
    """A timer makes the fd readable at the end of the grace, though nobody reaps."""
    with pidwait.WaitSet([hidden.pid]) as waiting:
        fd = waiting.fileno()
        assert turns_until(waiting, fd, [(hidden.pid, None)]) < 10


def test_sleeps_are_short_only_during_the_grace(hidden, sleeper):
    if not faults.kernel_tells():
        pytest.skip("before Linux 6.15 the reaping tells no code")
    with pidwait.WaitSet([hidden.pid, sleeper.pid]) as waiting:
        best = waiting._engine.sets.best
        best.sleep(20)
        waiting._engine.collect([])
        began = time.monotonic()
        best.sleep(10)  # for the grace
        assert time.monotonic() - began < 10
        assert waiting.wait(20) == [(hidden.pid, None)]
        began = time.monotonic()
        best.sleep(0.2)
        assert time.monotonic() - began > 0.1


@pytest.mark.parametrize("seconds, given", [(None, -1), (9.5, 9.5), (0, 0), (1e9, 2e6)])
def test_time_out_that_the_kernel_is_given(use_variant, sleeper, monkeypatch, seconds, given):
    use_variant("pidfd-ctypes")
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        best, asked = waiting._engine.sets.best, []
        with monkeypatch.context() as patched:
            poll = SimpleNamespace(poll=lambda *arguments: asked.append(arguments[0]) or [])
            patched.setattr(best, "_epoll", poll)
            best.sleep(seconds)
    assert asked == [given]


def test_reaping_within_the_grace(hidden, monkeypatch):
    if not faults.kernel_tells():
        pytest.skip("before Linux 6.15 the reaping tells no code")
    monkeypatch.setattr(pidfd_set, "GRACE", 50.0)
    with pidwait.WaitSet([hidden.pid]) as waiting:
        assert is_readable(waiting.fileno(), 20)
        waiting._engine.sets.best.sleep(0)
        exits = []
        waiting._engine.collect(exits)
        assert exits == [] and 0 < waiting._engine.delay() <= 50
        hidden.reap()
        assert waiting.wait(20) == [(hidden.pid, 5)]


def test_reaping_within_the_grace_of_somebodys_loop(hidden, monkeypatch):
    """The loop's wait(0) leaves the exit to the timer, which goes off after the grace."""
    if not faults.kernel_tells():
        pytest.skip("before Linux 6.15 the reaping tells no code")
    monkeypatch.setattr(pidfd_set, "GRACE", 50.0)
    with pidwait.WaitSet([hidden.pid]) as waiting:
        fd = waiting.fileno()
        assert is_readable(fd, 20)
        assert waiting.wait(0) == [] and not is_readable(fd)
        hidden.reap()
        assert turns_until(waiting, fd, [(hidden.pid, 5)]) < 10


# fileno(), and members that are polled


@pytest.fixture
def slow_looks(monkeypatch):
    """The first look is at once, the next one a minute later."""
    monkeypatch.setattr(polling_set, "LONGEST", 60.0)
    monkeypatch.setattr(polling_set, "SHORTEST", 60.0)


def test_fileno_with_a_member_that_is_polled(
    use_variant, no_events, start_told, sleeper, slow_looks
):
    """A program that polls the fileno is not woken before the next look is due."""
    use_variant("polling")
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        fd = waiting.fileno()
        assert is_readable(fd, 20)
        assert waiting.wait(0) == []
        assert not is_readable(fd, 0.05)
        assert 0 < waiting._engine.delay() <= 60


def refuse(monkeypatch, name, when=lambda *arguments: True, error=None):
    """Forbid a system call from now on."""
    own = calls.get(name)

    def refused(*arguments, **keywords):
        if when(*arguments):
            raise error or PermissionError(errno.EPERM, "a policy")
        return own(*arguments, **keywords)

    monkeypatch.setitem(calls._resolved, name, refused)


def test_fileno_with_a_later_member_that_is_polled(
    use_variant, no_events, start_told, slow_looks, monkeypatch
):
    """There is no file descriptor for its pidfd; to poll it needs none."""
    use_variant("pidfd-ctypes")
    child = start_told(3)
    with pidwait.WaitSet() as waiting:
        fd = waiting.fileno()
        no_fd = OSError(errno.EMFILE, "no fds")
        for name in "pidfd_open", "timerfd_create":
            refuse(monkeypatch, name, error=no_fd)
        waiting.add(child.pid)
        assert is_readable(fd, 20)
        assert waiting.wait(0) == []
        assert not is_readable(fd, 0.05)
        child.stdin.close()
        become_zombie(child.pid)
        waiting._engine.sets.polled._next_look = 0.0
        waiting._rearm()
        assert turns_until(waiting, fd, [(child.pid, 3)]) == 1
        assert waiting.fileno() == fd


@pytest.mark.parametrize("interrupted", [False, True])
def test_fileno_without_a_member_that_is_polled(
    use_variant, no_events, sleeper, monkeypatch, interrupted
):
    """The timer for its looks goes with it, also if a signal handler raises once that is set."""
    use_variant("polling")
    with pidwait.WaitSet() as waiting:
        fd = waiting.fileno()  # a later call would set the timer anew
        best = waiting._engine.sets.best
        real = best.alarm

        def alarm(seconds):
            real(seconds)
            raise KeyboardInterrupt

        if interrupted:
            monkeypatch.setattr(best, "alarm", alarm)
            with pytest.raises(KeyboardInterrupt):
                waiting.add(sleeper.pid)
            monkeypatch.setattr(best, "alarm", real)
        else:
            waiting.add(sleeper.pid)
        waiting.discard(sleeper.pid)
        assert not is_readable(fd, 0.1)


def test_looks_while_idle_are_few(use_variant, no_events, sleeper, monkeypatch):
    # Without events: one that comes of another use of sleep's program would be a turn more.
    use_variant("polling")
    now = [1000.0]
    monkeypatch.setattr(polling_set, "monotonic", lambda: now[0])
    with pidwait.WaitSet([sleeper.pid]) as waiting:
        turns, polled = 0, waiting._engine.sets.polled
        while now[0] < 1010:
            assert waiting.wait(0) == []
            turns += 1
            now[0] += polled.delay()
        assert turns <= 10 * 30


# A pid that the system gives out again


@pytest.fixture
def numbers(use_variant, monkeypatch):
    """numbers[pid] is the pid of the process that pidfd_open(pid) opens instead."""
    use_variant("pidfd-ctypes")
    numbers = {}
    own = calls.get("pidfd_open")

    def pidfd_open(pid, flags):
        return own(numbers.get(pid, pid), flags)

    monkeypatch.setitem(calls._resolved, "pidfd_open", pidfd_open)
    return numbers


@pytest.mark.parametrize("is_seen", [False, True], ids=["not seen", "seen"])
def test_set_that_is_given_a_pid_again(numbers, start_told, is_seen):
    """It waits for the new process as well as for the old one, and reports both."""
    pid, first, second = gone_pid(), start_told(1), start_told(2)
    numbers[pid] = first.pid
    with pidwait.WaitSet([pid]) as waiting:
        waiting.add(pid)
        assert len(waiting) == 1
        first.stdin.close()
        become_zombie(first.pid)
        waiting.add(pid)  # still the same process, a zombie
        assert len(waiting) == 1
        if is_seen:  # another thread has seen the exit, but not reported it yet
            waiting._engine.sets.best.sleep(0)
        numbers[pid] = second.pid
        waiting.add(pid)
        assert len(waiting) == 2 and list(waiting) == [pid, pid]
        assert waiting.wait(20) == [(pid, 1)]
        assert pid in waiting
        second.stdin.close()
        assert waiting.wait(20) == [(pid, 2)]
        assert len(waiting) == 0


def test_pid_is_added_again_while_a_signal_handler_raises(monkeypatch, start):
    """Its error does not say that no process has the pid."""
    child = start(*exiting(3))
    become_zombie(child.pid)
    error = ProcessLookupError("on purpose")
    with pidwait.WaitSet([child.pid]) as waiting, interrupted_by(error) as interrupted:
        with monkeypatch.context() as patched:
            patched.setattr(module("_backends"), "open_handle", interrupted)
            with pytest.raises(ProcessLookupError) as raised:
                waiting.add(child.pid)
        assert raised.value is error
        assert waiting.wait(20) == [(child.pid, 3)]


def test_discard_of_a_pid_that_two_processes_had(numbers, start_told):
    pid, first, second = gone_pid(), start_told(1), start_told(2)
    numbers[pid] = first.pid
    with pidwait.WaitSet([pid]) as waiting:
        first.stdin.close()
        become_zombie(first.pid)
        numbers[pid] = second.pid
        waiting.add(pid)
        waiting.discard(pid)
        assert len(waiting) == 0 and waiting.wait(0) == []


def test_watch_of_a_pid_that_is_given_out_again(numbers, start_told):
    """While the thread runs a callback, the first process's exit has not been reported yet."""
    pid, first, second, other = gone_pid(), start_told(1), start_told(2), start_told(9)
    numbers[pid] = first.pid
    told, entered, released = queue.Queue(), threading.Event(), threading.Event()
    pidwait.watch(other, lambda *exit: (entered.set(), released.wait(20)))
    pidwait.watch(pid, lambda *exit: told.put(("first", exit)))
    other.stdin.close()
    assert entered.wait(20)
    first.stdin.close()
    become_zombie(first.pid)
    numbers[pid] = second.pid
    pidwait.watch(pid, lambda *exit: told.put(("second", exit)))
    released.set()
    assert told.get(timeout=20) == ("first", (pid, 1))
    second.stdin.close()
    assert told.get(timeout=20) == ("second", (pid, 2))
