# SPDX-License-Identifier: BSD-3-Clause
"""Process and wait(), with a handle whose answers are scripted."""

import errno
import fractions
import importlib
import signal
import time
import warnings
from types import SimpleNamespace

import pytest

from . import pidwait

module = importlib.import_module(pidwait.__name__ + ".process")
_deadline = importlib.import_module(pidwait.__name__ + "._deadline")
_outcome = importlib.import_module(pidwait.__name__ + "._outcome")
RUNNING, NotYet = _outcome.RUNNING, _outcome.NotYet
PID = 77


class Scripted:
    """``asked`` has whether each wait was to reap, and ``sent`` the signals."""

    pid, backend = PID, "scripted"
    left = is_child = None

    def __init__(self, *answers, **attributes):
        self.answers, self.asked, self.sent, self.closed = list(answers), [], [], 0
        self.identity = attributes.get("identity")

    def identify(self):
        return self.identity

    def wait(self, deadline, reap):
        self.asked.append(reap)
        self.left = deadline.remaining()
        answer = self.answers.pop(0)
        if answer is NotYet or isinstance(answer, Exception):
            raise answer
        return answer

    def send_signal(self, sig):
        self.sent.append(sig)

    def close(self):
        self.closed += 1


def process_with(handle):
    process = pidwait.Process.__new__(pidwait.Process)
    process._start(handle)
    return process


def test_code_that_is_known_stays():
    """Even if somebody else has reaped the process when it is to be reaped."""
    handle = Scripted(RUNNING, RUNNING, 7, None)
    with process_with(handle) as process:
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0)
        assert process.has_exited() is False and process.exitcode is None
        assert process.wait() == process.exitcode == 7
        assert process.has_exited() is True and process.wait(0) == 7
        assert handle.asked == [False] * 3
        assert process.wait(0, reap=True) == process.exitcode == 7
        assert handle.asked == [False] * 3 + [True]
    assert handle.closed == 1
    assert process.has_exited() is True and process.wait(0) == 7


def test_exit_without_a_code():
    """The next look may tell it."""
    with process_with(Scripted(None, None, 3)) as process:
        assert process.has_exited() is True
        assert process.wait() is process.exitcode is None
        assert process.wait() == process.exitcode == 3
    process = process_with(Scripted(None))
    assert process.has_exited() is True
    process.close()
    assert process.has_exited() is True and process.wait() is None


def test_signals_are_sent_to_a_running_process_alone():
    last = signal.NSIG - 1
    handle = Scripted(RUNNING, RUNNING, RUNNING, 0, 0)
    with process_with(handle) as process:
        for sig in (0, last):
            process.send_signal(sig)
        for sig in (-1, last + 1):
            with pytest.raises(ValueError, match="sig must be from 0 to %d" % last):
                process.send_signal(sig)
        process.terminate()
        for send in (process.kill, process.terminate):
            with pytest.raises(ProcessLookupError):
                send()
    assert handle.sent == [0, last, signal.SIGTERM]
    assert handle.asked == [False] * 4  # a look never reaps


def test_equal_by_what_the_system_tells():
    """Without that, only a handle and itself are for the same process."""
    unknown, other = process_with(Scripted()), process_with(Scripted())
    first, second, third = (process_with(Scripted(identity=("start", PID, n))) for n in (5, 5, 6))
    assert unknown == unknown and unknown != other and unknown != first and first != unknown
    assert first == second and first != third
    for process in (unknown, other, first, second, third):
        process.close()


def test_child_that_a_tracer_keeps(monkeypatch):
    slept = []
    monkeypatch.setattr(_deadline.time, "sleep", slept.append)
    handle = Scripted(7, NotYet, NotYet, NotYet, 7)
    with process_with(handle) as process:
        assert process.wait(reap=True) == 7
    assert handle.asked == [False] + [True] * 4
    assert slept == [0.0001, 0.0002]
    process = process_with(Scripted(7, NotYet, NotYet))
    with process, pytest.raises(pidwait.TimeoutExpired):
        process.wait(0, reap=True)


@pytest.mark.parametrize("is_copy", [False, True])
def test_copy_in_a_forked_child_closes_without_a_warning(is_copy):
    handle = Scripted()
    process = process_with(handle)
    process._guard.pid += is_copy
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        process.__del__()
    assert len(caught) == (not is_copy) and handle.closed == 1
    process.__del__()
    assert handle.closed == 1


# wait(), and a shorter way where there is one


@pytest.fixture
def opens(monkeypatch):
    """opens(handle, shorter): what each wait for a pid opens, or raises, and its shorter way."""

    def opens(handle, shorter=None):
        def open_handle(pid):
            assert pid == PID
            if isinstance(handle, Exception):
                raise handle
            return handle

        monkeypatch.setattr(module._backends, "open_handle", open_handle)
        monkeypatch.setattr(module, "chosen", [SimpleNamespace(wait_or_open=shorter)])
        return handle

    return opens


@pytest.mark.parametrize("answer", [0, 3, -9, None, RUNNING, OSError(errno.EIO, "x")])
@pytest.mark.parametrize("reap", [False, True])
def test_handle_of_a_wait_is_closed(opens, answer, reap):
    handle = opens(Scripted(answer))
    if answer is RUNNING or isinstance(answer, Exception):
        with pytest.raises(OSError) as caught:
            pidwait.wait(PID, 0, reap)
        assert isinstance(caught.value, pidwait.TimeoutExpired) is (answer is RUNNING)
    else:
        assert pidwait.wait(PID, 0, reap) == answer
    assert (handle.closed, handle.asked) == (1, [reap])


def test_wait_for_a_child_that_a_tracer_keeps(opens):
    handle = opens(Scripted(NotYet, NotYet, NotYet, 3))
    assert pidwait.wait(PID, reap=True) == 3
    assert (handle.closed, handle.asked) == (1, [True] * 4)
    handle = opens(Scripted(NotYet, NotYet))
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(PID, 0, reap=True)
    assert handle.closed == 1


def test_wait_for_an_object_whose_process_is_gone(opens):
    """Whoever has the pid now is not waited for."""
    handle = opens(Scripted())
    job = SimpleNamespace(pid=PID, create_time=lambda: 1.0, is_running=lambda: False)
    assert pidwait.wait(job) is None
    assert (handle.closed, handle.asked) == (1, [])


def test_code_that_is_known_needs_no_handle(opens):
    opens(OSError(errno.EMFILE, "no fds"))
    popen = SimpleNamespace(pid=PID, returncode=3, poll=lambda: 3)
    assert pidwait.wait(popen) == 3


def test_no_process_to_open(opens):
    opens(ProcessLookupError())
    assert pidwait.wait(PID) is None and pidwait.wait(SimpleNamespace(pid=PID), 0) is None
    assert pidwait.pid_exists(PID) is False
    opens(Scripted())
    assert pidwait.pid_exists(PID) is True
    opens(OSError(errno.EMFILE, "no fds"))
    for use in (pidwait.wait, pidwait.pid_exists):
        with pytest.raises(OSError, match="no fds"):
            use(PID)


@pytest.mark.parametrize("timeout", [None, 5, 0.5, 1e6])
@pytest.mark.parametrize("reap", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_shorter_way(opens, timeout, reap, code):
    took = []
    opens(None, lambda *arguments: took.append(arguments) or code)
    assert pidwait.wait(PID, timeout, reap) == code
    assert took == [(PID, timeout, reap)]


@pytest.mark.parametrize("timeout", [0, -0.5, -5, 0.0, 2.5e6, False, fractions.Fraction(1, 2)])
def test_time_that_the_shorter_way_does_not_take(opens, timeout):
    def shorter(*arguments):
        raise AssertionError(arguments)

    handle = opens(Scripted(3), shorter)
    assert pidwait.wait(PID, timeout) == 3
    assert handle.closed == 1


def test_shorter_way_that_ends_in_a_handle(opens, monkeypatch):
    """The time goes on from where the wait began."""
    handle, real = Scripted(RUNNING), time.monotonic
    opens(None, lambda *arguments: handle)
    monkeypatch.setattr(module, "monotonic", lambda: real() - 3600)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(PID, 4000)
    assert 0 < handle.left <= 400 and handle.closed == 1


def test_shorter_way_that_fails(opens):
    def shorter(pid, timeout, reap):
        raise error

    error = ProcessLookupError()
    opens(Scripted(), shorter)
    assert pidwait.wait(PID) is None
    error = OSError(errno.EMFILE, "no fds")
    opens(Scripted(3), shorter)
    assert pidwait.wait(PID) == 3


def test_first_wait_chooses(opens, monkeypatch):
    opens(None)
    monkeypatch.setattr(module, "chosen", [])
    backend = SimpleNamespace(wait_or_open=lambda *arguments: 3)
    monkeypatch.setattr(module._backends, "backend", lambda: backend)
    assert pidwait.wait(PID) == 3


def test_process_is_waited_for_by_its_own_handle(opens):
    opens(OSError(errno.EMFILE, "no fds"))
    handle = Scripted(7, 7)
    with process_with(handle) as process:
        assert pidwait.wait(process, 0, reap=True) == process.exitcode == 7
        assert (handle.asked, handle.closed) == ([False, True], 0)


def test_process_of_another_copy_without_a_pid():
    process = SimpleNamespace(pid=None, backend="other", has_exited=lambda: False, exitcode=None)
    with pytest.raises(ValueError, match="proc has no pid: it has been reaped"):
        pidwait.wait(process)
