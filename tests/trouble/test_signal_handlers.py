# SPDX-License-Identifier: BSD-3-Clause
"""Signals during a wait: it goes on (PEP 475), or what the handler raises comes out at once."""

import contextlib
import errno
import functools
import gc
import os
import resource
import signal
import sys
import threading
import time

import pytest

from .. import pidwait, trouble
from ..conftest import KQUEUES
from ..needs import THERE
from ..processes import OnPurpose, become_zombie, eventually, gone_pid, interrupted_by, state, stop
from . import LONG, Child, Popen, Stranger, by_handle, by_set, each_line, forked, raises, times_out

pytest.importorskip("ctypes")


@contextlib.contextmanager
def on_signal(handler, number):
    """In the block, a signal has that handler."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextlib.contextmanager
def storm(handler):
    """In the block a signal comes every half millisecond, whatever is running."""
    start = functools.partial(signal.setitimer, signal.ITIMER_REAL, 0.0005, 0.0005)
    calls = []  # of the handler, since it has interrupted the block
    is_over = []

    def handle(*args):
        is_first = not calls
        if len(calls) < 5:  # some take longer than that: they would nest, and nothing go on
            calls.append(None)
            try:
                handler(*args)
            finally:
                if is_first:
                    del calls[:]
                    if not is_over:
                        start()

    with on_signal(handle, signal.SIGALRM):
        start()
        try:
            yield
        finally:
            is_over.append(True)
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def signalled_asleep(handler):
    """In the block, SIGUSR1 comes once the main thread sleeps in a system call."""

    def send():
        begun.wait()  # start() sleeps, too
        if tid is None:  # nobody can tell: most probably it sleeps by then
            time.sleep(0.1)
        else:
            eventually(lambda: trouble.sleeps(tid))
        signal.pthread_kill(main, signal.SIGUSR1)

    main, thread = threading.get_ident(), threading.Thread(target=send)
    begun = threading.Event()
    tid = trouble.thread_id() if THERE["/proc"] else None
    with on_signal(handler, signal.SIGUSR1):
        thread.start()
        begun.set()
        try:
            yield
        finally:
            thread.join()


# A handler that raises


def by_wait_procs(pid, timeout):
    ((_, code),) = pidwait.wait_procs([os.getpid(), pid], timeout)[0]
    return code


def by_as_completed(pid, timeout):
    return next(iter(pidwait.as_completed([os.getpid(), pid], timeout)))[1]


RAISED = [
    TimeoutError("on purpose"),
    ProcessLookupError(errno.ESRCH, "on purpose"),
    ChildProcessError(errno.ECHILD, "on purpose"),
    InterruptedError(errno.EINTR, "on purpose"),
    OSError(errno.EMFILE, "on purpose"),
    ValueError("on purpose"),
    IndexError("on purpose"),
    KeyError("on purpose"),
    AttributeError("on purpose"),
    StopIteration("on purpose"),
    SystemExit("on purpose"),
    OnPurpose("on purpose"),
]


TELLS = sys.version_info >= (3, 7) and sys.implementation.name == "cpython"


def comes_out(wait, error):
    """What the wait raises is what the handler raised."""
    raised = []

    def handler(*args):
        raised.append(type(error)(*error.args))
        raise raised[-1]

    # Python makes a RuntimeError of a StopIteration that would end a generator.
    kinds = (type(error), RuntimeError) if isinstance(error, StopIteration) else type(error)
    with signalled_asleep(handler), pytest.raises(kinds) as caught:
        wait()
    came = caught.value.__cause__ if type(caught.value) is RuntimeError else caught.value
    assert [came] == raised and type(came) is type(error)
    for one in came, caught.value:
        one.__traceback__ = one.__context__ = None  # whose frames refer to what they had open


IN_SUBPROCESS = "polling sleeps in subprocess, with ps(1), where a child may be left"


@pytest.fixture
def sleeping_itself(variant, backend):
    if backend == "polling" and KQUEUES:
        pytest.skip(IN_SUBPROCESS)


@pytest.mark.kqueue
@pytest.mark.parametrize("way", [pidwait.wait, by_handle, by_wait_procs, by_as_completed, by_set])
def test_the_exception_of_a_handler_comes_out_of_the_call_that_sleeps(
    sleeping_itself, herd, no_garbage, way
):
    pid = herd.fork(3)
    for error, timeout in zip(RAISED, [None, 60] * len(RAISED)):
        if isinstance(error, StopIteration) and way not in (pidwait.wait, by_handle) and not TELLS:
            continue  # LIMITS.md: before Python 3.7 it ends any generator, on PyPy a set's sleep
        comes_out(functools.partial(way, pid, timeout), error)
    os.kill(pid, signal.SIGKILL)
    become_zombie(pid)
    assert pidwait.wait(pid) == -signal.SIGKILL


@pytest.mark.kqueue
def test_a_set_and_a_child_go_on_after_the_exception_of_a_handler(
    sleeping_itself, herd, no_garbage
):
    pids = [herd.fork(code) for code in range(3)]
    with pidwait.spawn(["sleep", "60"]) as child, pidwait.WaitSet([*pids, child]) as waiting:
        for error in RAISED:
            if TELLS or not isinstance(error, StopIteration):
                comes_out(waiting.wait, error)
            comes_out(child.wait, error)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            assert waiting.wait(LONG) == [(pid, -9)]
        child.kill()
        # Another thread finds no lock of the interrupted waits.
        found = []
        thread = threading.Thread(target=lambda: found.extend(waiting.wait(LONG)))
        thread.start()
        thread.join()
        assert found == [(child, -9)] and child.exitcode == -9


# Handlers that the traceback alone shows: none of their frames still has the signal and the frame.


def dropping(error, signum, frame):
    del signum, frame  # as some style guides ask of unused arguments
    raise error


def rebinding(error, *args):
    args = [error]
    raise args[0]


class Raising:
    def __init__(self, error):
        self._error = error

    def method(self, signum, frame):
        dropping(self._error, signum, frame)

    __call__ = method


HANDLERS = {
    "dropping": lambda error: lambda signum, frame: dropping(error, signum, frame),
    "rebinding": lambda error: lambda *args: rebinding(error, *args),
    "object": Raising,
    "method": lambda error: Raising(error).method,
    "partial": lambda error: functools.partial(dropping, error),
    "partial of an object": lambda error: functools.partial(Raising(error)),
    "partial of a method": lambda error: functools.partial(Raising(error).method),
}


def in_an_owners_poll(wait, pid):
    """The signal comes while code of the caller's runs, in the middle of the wait."""

    class Owner:
        returncode = None

        def __init__(self):
            self.pid = pid

        def poll(self):
            time.sleep(LONG)

    return lambda: wait(Owner())


@pytest.mark.kqueue
@pytest.mark.parametrize("kind", HANDLERS)
def test_the_exception_of_any_kind_of_handler_comes_out(
    sleeping_itself, herd, sleeper, no_garbage, kind
):
    pid, zombie = herd.fork(3), herd.fork(4, after=0)
    become_zombie(zombie)
    ways = [
        lambda: pidwait.wait(pid),
        lambda: pidwait.wait(sleeper),
        lambda: by_set(pid),
        lambda: by_wait_procs(pid, LONG),
    ]
    ways += [in_an_owners_poll(wait, zombie) for wait in (pidwait.wait, by_set)]
    for way in ways:
        error = TimeoutError("on purpose")
        began = time.monotonic()
        with signalled_asleep(HANDLERS[kind](error)), pytest.raises(TimeoutError) as caught:
            way()
        assert caught.value is error and time.monotonic() - began < LONG / 2
        error.__traceback__ = None  # whose frames refer to what they had open


def test_the_exception_comes_out_though_c_code_calls_the_handler(sleeping_itself, herd):
    """No frame of its traceback is the handler's own then: lru_cache is written in C."""
    error = TimeoutError(errno.ETIMEDOUT, "on purpose")

    @functools.lru_cache(maxsize=None)
    def handler(signum, frame):
        raise error

    with signalled_asleep(handler), pytest.raises(TimeoutError) as caught:
        pidwait.wait(herd.fork(3), LONG)
    assert caught.value is error
    error.__traceback__ = None


CALLS = ["pidfd_open", "waitid", "ioctl", "pidfd_send_signal", "epoll", "timerfd_create"]


@pytest.mark.parametrize("error", RAISED[1::3])
@pytest.mark.parametrize("name", CALLS)
def test_the_exception_of_a_handler_is_never_the_answer_of_a_system_call(
    use_variant, seam, herd, no_garbage, name, error
):
    """The handler raises in the middle of the call, with an error that can also report an exit."""
    if trouble.why_no_pidfd():
        pytest.skip(trouble.why_no_pidfd())
    use_variant("pidfd-ctypes")
    pid, other, stranger = herd.fork(3), herd.fork(4, after=0), Stranger()
    gone = gone_pid()
    become_zombie(other)
    stranger.become_zombie(5)
    calls, reached = [], []

    def signalled():
        with pidwait.Process(pid) as process:
            return process.send_signal(0) is None

    def readable():
        with pidwait.WaitSet([gone]) as waiting:
            return waiting.fileno() >= 0 and waiting.wait(0) == [(gone, None)]

    uses = [
        signalled,
        readable,
        lambda: by_handle(other, 0) == pidwait.wait(other) == by_set(other, 0) == 4,
        lambda: pidwait.wait(stranger.pid) in (5, None),
    ]
    with interrupted_by(error) as interrupted:
        for use in uses:
            seam.put(name, lambda *args, **kwargs: calls.append(args) or interrupted())
            try:
                assert use() and not calls
            except type(error) as caught:
                assert caught is error and calls
                error.__traceback__ = None  # whose frames refer to what they had open
                reached.append(use)
            seam.undo()
            del calls[:]
            assert use()
    assert reached
    stranger.reap()
    gc.collect()


# tests/explore has one exception at any line


def set_waits_after_two(step):
    """The second one comes while the first one is answered."""
    child = Child()
    child.become_zombie(7)
    for again in range(1, 40):
        for line in each_line(trouble.interrupt, step, again=again):
            with pidwait.WaitSet() as waiting:
                exits = []
                with contextlib.suppress(KeyboardInterrupt), line:
                    waiting.add(child.pid)
                    exits += waiting.wait(LONG)
                if not exits and len(waiting) == 0:  # it was not added
                    waiting.add(child.pid)
                exits += waiting.wait(LONG)
                where = again, line.where
                assert exits == [(child.pid, 7)] and waiting.wait(0) == [], where
    child.reap()


@pytest.mark.kqueue
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_exit_is_lost_wherever_ctrl_c_comes_twice(variant):
    if KQUEUES and variant.startswith("polling"):
        pytest.skip(IN_SUBPROCESS)
    if KQUEUES and not variant.endswith("own"):
        pytest.skip("a binding opens a kqueue and owns it in two steps")
    forked(set_waits_after_two, 17)


# A handler that goes on


def last(count, action):
    """An iterator over steps; the last one runs the action."""
    return iter([int] * (count - 1) + [action])


def take(steps):
    """The next step; a nested handler takes another one."""
    for step in steps:
        step()
        break


def in_a_storm():
    """Each wait goes on with the time that is left, and ends with the right code."""
    steps = iter(())
    for make, code in ((Child, 0), (Child, -9), (Stranger, 7)):
        process, right = make(), (code,) if make is Child else (code, None)
        with storm(lambda *args: take(steps)), pidwait.Process(process.pid) as handle:
            times_out(handle.wait, 0.02)
            times_out(lambda timeout: pidwait.wait(process.pid, timeout), 0.02)
            with pidwait.WaitSet([process.pid]) as waiting:
                assert waiting.wait(0.02) == []
                steps = last(20, functools.partial(process.end, code))
                ((_, found),) = waiting.wait()
            assert found in right and handle.wait() in right
        assert process.reap() == code


def used_by_the_handler():
    """The handler waits for the same process, by the same handle and by its pid."""
    child, seen = Child(), []
    steps = last(20, functools.partial(child.end, 7))
    with pidwait.Process(child.pid) as process:

        def look(*args):
            take(steps)
            seen.append(process.has_exited())
            with contextlib.suppress(pidwait.TimeoutExpired):
                seen.append(pidwait.wait(child.pid, 0))

        with storm(look):
            assert process.wait() == pidwait.wait(child.pid, LONG) == 7
    assert {False} <= set(seen) <= {False, True, 7}
    assert child.reap() == 7


def closed_by_the_handler():
    """The close leaves the interrupted wait intact."""
    child = Child()
    process = pidwait.Process(child.pid)
    with signalled_asleep(lambda *args: process.close() or child.end(7)):
        assert process.wait() == 7
    assert process.wait() == 7  # it knows the code
    raises(ValueError, process.kill)
    assert child.reap() == 7


def reaped_by_the_handler():
    """A SIGCHLD handler that reaps every exited child, as in many programs."""
    statuses = {}

    def reap(*args):
        with contextlib.suppress(ChildProcessError):
            for pid, status in iter(lambda: os.waitpid(-1, os.WNOHANG), (0, 0)):
                statuses[pid] = status

    for way in (pidwait.wait, by_handle, by_set):
        child = Child()
        with on_signal(reap, signal.SIGCHLD):
            with signalled_asleep(lambda *args: child.end(7)):
                assert way(child.pid, LONG) in (7, None)
            eventually(lambda: child.pid in statuses)
        assert statuses[child.pid] == 7 << 8
        assert len(statuses) == 1 or not THERE["/proc"]  # it may have reaped ps, too
        statuses.clear()
        child.forget()


def waited_for_by_the_handler_of_its_owner():
    """The owner's lock is held below the handler: after a second the code that was seen counts."""
    for timeout in (None, 0):
        popen, told = Popen(7), []

        def end(*args):
            popen.kill()
            eventually(lambda: state(popen.pid) == "Z")
            told.append(pidwait.wait(popen, timeout))

        with signalled_asleep(end):
            assert popen.wait() == -signal.SIGKILL
        assert told == [-signal.SIGKILL]
        popen.stdin.close()


def looked_at_by_the_handler():
    """A look that tells None does not overwrite the code that another one has told."""
    child = Child()
    with pidwait.Process(child.pid) as process:

        def end(*args):
            child.end(7)
            assert process.wait() == child.reap() == 7

        with signalled_asleep(end):
            assert process.wait() == process.exitcode == 7


def stopped_waiter():
    """A process that is stopped beyond the deadline of its wait still gets the code."""

    def wait_shortly():
        try:
            return pidwait.wait(child.pid, timeout) not in (7, None) and 2
        except pidwait.TimeoutExpired:
            return 1

    child, timeout = Child(), 0.05
    while True:
        timeout *= 2
        began, waiter = time.monotonic(), trouble.fork(wait_shortly)
        os.setpgid(waiter, waiter)
        eventually(lambda: state(waiter) in ("S", "Z"))
        stop(waiter)
        if state(waiter) == "T" and time.monotonic() < began + timeout:
            break
        # It may have looked for the last time before it was stopped.
        os.kill(waiter, signal.SIGCONT)
        os.waitpid(waiter, 0)
    child.become_zombie(7)
    time.sleep(timeout + 0.05)
    os.kill(waiter, signal.SIGCONT)
    assert os.waitpid(waiter, 0)[1] == 0, "no look after the deadline"
    child.reap()


def handled_at_any_line():
    """At each line of a wait, a handler waits for the same process."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = hard // 2, hard
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    child = Child()
    child.become_zombie(7)
    by_set(child.pid, LONG)
    before = trouble.open_fds()
    for line in each_line(lambda: by_set(child.pid, LONG), step=9):
        with line:
            assert by_set(child.pid, LONG) == 7
        assert trouble.open_fds() == before, line.where
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits, line.where
    child.reap()


def used_set_at_any_line():
    """A handler that uses the very set whose wait it interrupts: nothing hangs."""
    first, second = Child(), Child()
    first.become_zombie(1)

    def use():
        waiting.discard(second.pid)
        waiting.wait(0)
        waiting.add(second.pid)

    for line in each_line(use, step=9):
        with pidwait.WaitSet([first.pid, second.pid]) as waiting, line:
            waiting.wait(0.001)
    second.end(0)
    assert (first.reap(), second.reap()) == (1, 0)


GOES_ON = [
    in_a_storm,
    used_by_the_handler,
    closed_by_the_handler,
    reaped_by_the_handler,
    waited_for_by_the_handler_of_its_owner,
    looked_at_by_the_handler,
    stopped_waiter,
    handled_at_any_line,
    used_set_at_any_line,
]


@pytest.mark.parametrize("scenario", GOES_ON)
def test_a_wait_goes_on_after_a_handler(variant, scenario):
    forked(scenario)
