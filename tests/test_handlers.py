# SPDX-License-Identifier: BSD-3-Clause
"""Signal handlers that raise what a system call could raise, such as an alarm's TimeoutError."""

import asyncio
import errno
import importlib
import os
import signal
from types import SimpleNamespace

import pytest

from . import faults, pidwait
from .faults import at_line
from .processes import become_zombie, exiting, interrupted_by, not_on_windows

fd = importlib.import_module(pidwait.__name__ + "._fd")
exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")
child_module = importlib.import_module(pidwait.__name__ + "._child")
ffi = importlib.import_module(pidwait.__name__ + "._ffi")
outcome = importlib.import_module(pidwait.__name__ + "._outcome")
pidfd = importlib.import_module(pidwait.__name__ + "._backends.pidfd")
spawn_actions = importlib.import_module(pidwait.__name__ + "._spawn_actions")
starting = importlib.import_module(pidwait.__name__ + "._posix_spawn")

pytestmark = not_on_windows("alarms")


ERRORS = [
    TimeoutError("time is up"),
    OSError(errno.EIO, "on purpose"),
    ChildProcessError(errno.ECHILD, "on purpose"),
]


@pytest.fixture(params=ERRORS)
def alarm(request, no_garbage):
    """alarm() makes SIGALRM's handler raise once, a moment later."""

    def handler(*arguments):
        stop()  # on a busy machine the next one could come before the test has caught this one
        alarm.calls += 1
        # A new exception: its traceback, and all that the frames hold, must not outlive the test.
        raise type(request.param)(*request.param.args)

    def alarm():
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)

    alarm.calls = 0

    old = signal.signal(signal.SIGALRM, handler)
    # The alarm repeats, in case the interpreter misses the first just before the system call.
    yield alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def stop():
    signal.setitimer(signal.ITIMER_REAL, 0)


def comes_out(alarm, wait, *arguments):
    alarm()
    with pytest.raises(OSError, match="time is up|on purpose") as raised:
        wait(*arguments)
    stop()
    return not isinstance(raised.value, pidwait.TimeoutExpired) and alarm.calls == 1


@pytest.mark.parametrize("timeout", [None, 60])
def test_wait(variant, sleeper, alarm, timeout):
    assert comes_out(alarm, pidwait.wait, sleeper.pid, timeout)


@pytest.mark.parametrize("timeout", [None, 60])
def test_wait_of_a_process(variant, sleeper, alarm, timeout):
    with pidwait.Process(sleeper.pid) as process:
        assert comes_out(alarm, process.wait, timeout)


def test_wait_for_a_code_that_only_the_reaping_tells(use_variant, keeper, alarm, monkeypatch):
    """The grace for the code is a sleep, too, which a handler can interrupt."""
    use_variant("pidfd-ctypes")
    if not faults.checks.works(pidfd.check_get_info):
        pytest.skip("PIDFD_GET_INFO: %s" % faults.checks.ask(pidfd.check_get_info))
    monkeypatch.setattr(pidfd, "GRACE", 60)
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(3))
    become_zombie(pid)
    alarm()
    with pytest.raises(OSError, match="time is up|on purpose"):
        pidwait.wait(pid, 60)
    stop()
    keeper.reap(pid)


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


PARTS = {
    "add": lambda waiting, pid: waiting.add(pid),
    "alarm": lambda waiting, pid: waiting._engine.alarm(0),
    "fileno": lambda waiting, pid: waiting.fileno(),
    "forked": lambda waiting, pid: waiting._engine.take_over(),
}


@pytest.mark.parametrize("method", sorted(PARTS))
def test_part_of_a_set_that_a_handler_interrupts(sleeper, monkeypatch, method):
    """Its error is not the system's, which would have the members polled."""
    error = OSError(errno.EIO, "on purpose")
    with pidwait.WaitSet() as waiting, interrupted_by(error) as interrupted:
        best = waiting._engine.sets.best
        with monkeypatch.context() as patched:
            patched.setattr(best, method, interrupted)
            with pytest.raises(OSError, match="on purpose") as raised:
                PARTS[method](waiting, sleeper.pid)
        assert raised.value is error
        if method == "add":
            assert len(waiting) == 0 and waiting._engine.sets.best is best


@pytest.mark.parametrize("kind", [OSError, NotImplementedError])
def test_loop_that_a_handler_interrupts(monkeypatch, sleeper, kind):
    """Its error does not say that the loop can't watch a file descriptor."""
    loops = importlib.import_module(pidwait.__name__ + "._loops")
    loop, error = asyncio.new_event_loop(), kind("on purpose")
    try:
        with interrupted_by(error) as interrupted:
            monkeypatch.setattr(loop, "add_reader", interrupted)
            with pytest.raises(kind) as raised:
                loops.add_reader(loop, 0, print)
            assert raised.value is error
            if kind is OSError:
                engine = loops.LoopEngine(loop)
                monkeypatch.setattr(engine._engine, "fileno", interrupted)
                with pytest.raises(OSError, match="on purpose") as raised:
                    engine._watch()
                assert raised.value is error
                engine._fd = None
                engine.close()
    finally:
        loop.close()


def test_close_that_a_handler_interrupts():
    error = OSError("on purpose")
    with interrupted_by(error) as interrupted:
        with pytest.raises(OSError, match="on purpose") as raised:
            fd.close(SimpleNamespace(close=interrupted))
        assert raised.value is error


@pytest.mark.timeout(300)  # a new set for each line
def test_set_that_a_handler_uses_at_any_line(use_variant, herd):
    """It changes the set and waits on it amid another wait: each exit is reported once."""
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


def test_child_that_still_runs_is_not_reaped_without_waitid(herd):
    with pytest.raises(outcome.NotYet):
        exitcodes.without_waitid(PermissionError(), herd.fork(3), True)


def test_error_while_a_child_is_reaped_without_waitid(herd):
    """ECHILD of a signal handler does not mean that the child is gone."""
    raised = None
    exitcodes.without_waitid(PermissionError(), herd.fork(3, after=0), False)

    def handler():
        raise raised

    number, reached = 0, True
    while reached:
        number += 1
        raised, caught, code = ChildProcessError(errno.ECHILD, "on purpose"), None, None
        pid = herd.fork(3, after=0)
        become_zombie(pid)
        try:
            with at_line(number, handler, ["exitcodes.py"]) as line:
                code = exitcodes.without_waitid(PermissionError(), pid, True)
        except ChildProcessError as error:
            caught = error
        reached = line.reached
        assert caught is (raised if reached else None), line.where
        assert code == (None if reached else 3)
        if caught is None:
            herd.pids.remove(pid)
    assert number > 5


@pytest.mark.parametrize("ask", [ffi.load, ffi.missing])
def test_loading_of_a_binding(monkeypatch, ask):
    """An error of the handler's is no reason why the binding can't be used."""
    module = importlib.import_module(pidwait.__name__ + "._ffi._ctypes")
    monkeypatch.delitem(ffi._loaded, "ctypes", raising=False)
    monkeypatch.setattr(ffi, "_missing", {})
    with interrupted_by(OSError(errno.EIO, "on purpose")) as interrupted:
        monkeypatch.setattr(module, "Adapter", interrupted)
        with pytest.raises(OSError, match="on purpose"):
            ask("ctypes")
    assert ffi._missing == {}


@pytest.mark.parametrize("take", [child_module.leave, lambda pid: child_module.own(pid, None)])
def test_opening_the_handle_of_a_child(monkeypatch, take):
    """An error of the handler's does not say that the child is gone."""
    with interrupted_by(ProcessLookupError(errno.ESRCH, "on purpose")) as interrupted:
        monkeypatch.setattr(child_module._backends, "open_handle", interrupted)
        with pytest.raises(ProcessLookupError, match="on purpose"):
            take(os.getpid())


@pytest.mark.parametrize(
    "name, ask",
    [
        ("stat", lambda: starting._missing(b"/")),
        ("fstat", lambda: starting._is_open(0)),
        ("listdir", spawn_actions.fd_limit),
    ],
)
def test_what_a_start_asks(monkeypatch, name, ask):
    interrupting = interrupted_by(OSError(errno.EIO, "on purpose"))
    raises = pytest.raises(OSError, match="on purpose")
    with interrupting as interrupted, monkeypatch.context() as patched, raises:
        patched.setattr(os, "sysconf", lambda name: 100)
        patched.setattr(os, name, interrupted)
        ask()


def test_check_before_the_first_start(monkeypatch):
    inherited = (spawn_actions.INHERIT,) * 3
    request = starting.Request(["true"], "true", None, None, inherited, True, (), -1, False)
    with interrupted_by(OSError(errno.EIO, "on purpose")) as interrupted:
        monkeypatch.setattr(starting, "_starters", [])
        monkeypatch.setattr(spawn_actions, "check", interrupted)
        with pytest.raises(OSError, match="on purpose"):
            starting.start(request)
