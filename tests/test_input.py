# SPDX-License-Identifier: BSD-3-Clause
"""Bad input: an error of the right kind, which names the argument."""

import decimal
import fractions
import os
import pickle

import pytest

from . import pidwait
from .processes import exiting, not_on_windows

TAKE_PID = {
    "wait": (pidwait.wait, "proc"),
    "Process": (pidwait.Process, "pid"),
    "pid_exists": (pidwait.pid_exists, "pid"),
}


@pytest.fixture(params=list(TAKE_PID))
def take_pid(request):
    return TAKE_PID[request.param]


@pytest.mark.parametrize("pid", [0, -1, -(2**31), 2**31, 2**32 + 1, 2**63, 2**64 + 5, 10**30])
def test_pid_out_of_range(take_pid, pid):
    function, name = take_pid
    with pytest.raises(ValueError, match="^%s must be" % name):
        function(pid)


@pytest.mark.parametrize("pid", [True, False, 1.0, "1", b"1", None, [1], object()])
def test_pid_of_another_type(take_pid, pid):
    function, name = take_pid
    with pytest.raises(TypeError, match="^%s must be .*%s" % (name, type(pid).__name__)):
        function(pid)


@pytest.mark.parametrize(
    "pid, error, text",
    [
        (None, ValueError, "proc has no pid: it has not been started"),
        (0, ValueError, "proc.pid must be positive, not 0"),
        (-5, ValueError, "proc.pid must be positive, not -5"),
        (2**31, ValueError, "proc.pid must be at most 2147483647, not 2147483648"),
        ("7", TypeError, "proc.pid must be an int, not str"),
    ],
)
def test_pid_of_an_object(pid, error, text):
    class Job:
        pass

    job = Job()
    job.pid = pid
    with pytest.raises(error, match="^%s$" % text):
        pidwait.wait(job)


def test_largest_pid():
    assert not pidwait.pid_exists(2**31 - 1)
    assert pidwait.wait(2**31 - 1) is None


def waits(timeout):
    yield lambda: pidwait.wait(os.getpid(), timeout)
    with pidwait.Process(os.getpid()) as process:
        yield lambda: process.wait(timeout)


@pytest.mark.parametrize("timeout", ["1", b"1", [], (1,), object(), 1j])
def test_timeout_of_another_type(timeout):
    for wait in waits(timeout):
        with pytest.raises(TypeError, match="^timeout must be .*%s" % type(timeout).__name__):
            wait()


@pytest.mark.parametrize("timeout", [float("nan"), decimal.Decimal("nan")])
def test_timeout_nan(timeout):
    for wait in waits(timeout):
        with pytest.raises(ValueError, match="^timeout .*NaN"):
            wait()


@pytest.mark.parametrize("timeout", [decimal.Decimal("0.01"), fractions.Fraction(1, 100)])
def test_timeout_of_any_real_type(timeout):
    for wait in waits(timeout):
        with pytest.raises(pidwait.TimeoutExpired) as caught:
            wait()
        assert caught.value.timeout == timeout


@pytest.mark.parametrize("sig", ["9", 9.0, None, True])
def test_signal_of_another_type(sig):
    with pidwait.Process(os.getpid()) as process, pytest.raises(TypeError, match="^sig must be"):
        process.send_signal(sig)


@pytest.mark.parametrize("sig", [-1, 1000, 2**40])
def test_signal_out_of_range(sig):
    with pidwait.Process(os.getpid()) as process, pytest.raises(ValueError, match="^sig must be"):
        process.send_signal(sig)


@pytest.mark.parametrize("fd", [True, 1.0, "1", None])
def test_fd_of_another_type(fd):
    with pytest.raises(TypeError, match="^fd must be"):
        pidwait.Process.from_fd(fd)


@not_on_windows("pidfds")
def test_fd_that_is_no_pidfd():
    with pytest.raises(ValueError, match="^fd must not be negative"):
        pidwait.Process.from_fd(-1)
    with open(os.devnull) as file:
        with pytest.raises(ValueError, match="^fd %d is not a pidfd" % file.fileno()):
            pidwait.Process.from_fd(file.fileno())
        assert file.read() == ""  # the file is still open, and the caller's
        fd = file.fileno()
    with pytest.raises(OSError):
        pidwait.Process.from_fd(fd)


def test_time_out_error():
    error = pidwait.TimeoutExpired(123, 4.5)
    assert isinstance(error, TimeoutError)
    assert (error.pid, error.timeout, error.errno) == (123, 4.5, None)
    assert "123" in str(error) and "4.5" in str(error)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))
        assert type(copy) is type(error)
        assert (copy.pid, copy.timeout, copy.errno, str(copy)) == (123, 4.5, None, str(error))


@not_on_windows("negative exit codes")
def test_negative_exit_code_is_no_bad_status(start):
    assert pidwait.wait(start(*exiting(-15)).pid) == -15
