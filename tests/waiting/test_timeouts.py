# SPDX-License-Identifier: BSD-3-Clause
"""Time-outs: never cut short, whatever their number; and the intervals of polling."""

import copy
import decimal
import errno
import fractions
import itertools
import math
import os
import pickle
import sys
import time

import pytest

from .. import pidwait
from ..needs import THERE
from ..processes import become_zombie, eventually, everywhere, kill, run_python
from .threads import Thread


def waits(pid, timeout):
    """The ways to wait for one process that take a time-out."""
    yield lambda: pidwait.wait(pid, timeout)
    with pidwait.Process(pid) as process:
        yield lambda: process.wait(timeout)
        yield lambda: pidwait.wait(process, timeout)


TIMEOUTS = [0.05, 0.0155, 0.0001, 5e-7, decimal.Decimal("0.01"), fractions.Fraction(1, 200)]


@everywhere
@pytest.mark.parametrize("timeout", TIMEOUTS)
def test_a_time_out_is_never_cut_short(variant, herd, timeout):
    for pid in os.getpid(), herd.fork(0):
        for wait in waits(pid, timeout):
            began = time.monotonic()
            with pytest.raises(pidwait.TimeoutExpired) as caught:
                wait()
            assert time.monotonic() - began > float(timeout) - 1e-9  # the rounding of floats
            assert caught.value.pid == pid and caught.value.timeout is timeout


def test_a_time_out_is_not_waited_for_twice(variant, herd):
    """However busy the machine is, some wait ends before that."""

    def too_long(wait):
        began = time.monotonic()
        with pytest.raises(pidwait.TimeoutExpired):
            wait()
        return time.monotonic() - began >= 0.1

    for wait in itertools.chain(waits(os.getpid(), 0.05), waits(herd.fork(0), 0.05)):
        eventually(lambda wait=wait: not too_long(wait))


NONE = [0, -1, 0.0, -0.0, -1e300, -math.inf, False, -(10**400), decimal.Decimal("-0.5")]


@pytest.mark.windows
@pytest.mark.parametrize("timeout", NONE, ids=lambda value: str(value)[:8])
def test_no_time_looks_once(variant, herd, timeout, monkeypatch):
    def never(seconds, sleep=time.sleep):
        # Where ps is used, subprocess itself sleeps until that has exited.
        caller = sys._getframe(1).f_globals["__name__"]
        assert caller == "subprocess" and not THERE["/proc"], "it slept"
        sleep(seconds)

    zombie = herd.fork(3, 0)
    become_zombie(zombie)
    monkeypatch.setattr(time, "sleep", never)
    for wait in waits(os.getpid(), timeout):
        with pytest.raises(pidwait.TimeoutExpired) as caught:
            wait()
        assert caught.value.timeout == timeout
    for wait in waits(zombie, timeout):
        assert wait() == 3


LONG = [None, math.inf, 1e10, 2147484, 2147483.647, 4294967.295, sys.maxsize, 10**400, 1e308]


@everywhere
@pytest.mark.parametrize("timeout", LONG, ids=lambda value: str(value)[:12])
def test_no_time_out_is_too_long(variant, herd, timeout):
    pid = herd.fork(4, 0.05)
    with pidwait.Process(pid) as process:
        waiter = Thread(process.wait, timeout)
        assert pidwait.wait(pid, timeout) == waiter.result() == 4


@everywhere
@pytest.mark.parametrize(
    "timeout, error, text",
    [(it, TypeError, type(it).__name__) for it in ("1", b"1", [], (1,), object(), 1j)]
    + [(it, ValueError, "NaN") for it in (math.nan, decimal.Decimal("nan"))],
)
def test_what_is_no_time_out_is_refused(timeout, error, text):
    for wait in waits(os.getpid(), timeout):
        with pytest.raises(error, match="^timeout must .*%s" % text):
            wait()


def test_an_exit_in_the_last_sleep_is_seen(by_polling, herd, seam, monkeypatch):
    """There is a look after the deadline, too."""
    pid, sleep = herd.fork(3), time.sleep

    def end(seconds):
        monkeypatch.undo()
        kill(pid)
        become_zombie(pid)
        sleep(0.51)

    monkeypatch.setattr(time, "sleep", end)
    assert pidwait.wait(pid, 0.5) == -9


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.EPERM])
def test_one_deadline_runs_through_the_fast_path_and_the_fallback(
    by_pidfd, herd, seam, monkeypatch, code
):
    assert pidwait.pid_exists(os.getpid())  # it is probed
    sleep, slept, pauses = time.sleep, [], []

    def refuse(pid, flags):
        if pauses:
            sleep(pauses.pop())
        raise OSError(code, os.strerror(code))

    seam.put("pidfd_open", refuse)
    monkeypatch.setattr(time, "sleep", lambda seconds: slept.append(seconds) or sleep(seconds))
    for pid in os.getpid(), herd.fork(0):
        pauses[:] = [0.05]
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(pid, 0.04)
    assert slept == [] and pauses == []


@pytest.mark.kqueue
@pytest.mark.parametrize("timeout", [None, 60])
@pytest.mark.parametrize("reap", [False, True])
def test_a_wait_goes_on_after_a_signal_handler(variant, herd, alarms, timeout, reap):
    """PEP 475. The child ends once the handler has run three times."""
    pid, left = herd.fork(0), iter([2, 1, 0])
    alarms(lambda: next(left, None) == 0 and kill(pid))
    assert pidwait.wait(pid, timeout, reap) == -9
    assert list(left) == []


@pytest.mark.kqueue
def test_a_time_out_goes_on_after_a_signal_handler(variant, herd, alarms):
    seen, child = [], herd.fork(0)
    alarms(lambda: seen.append(0))
    for wait in itertools.chain(waits(os.getpid(), 0.04), waits(child, 0.04)):
        began = time.monotonic()
        with pytest.raises(pidwait.TimeoutExpired):
            wait()
        assert time.monotonic() - began >= 0.04
    assert seen


def test_polling_looks_after_a_tenth_of_a_millisecond_then_ever_later(
    by_polling, herd, seam, monkeypatch
):
    """As a program sees it that replaces time.sleep, as gevent does."""
    pid, sleep, slept = herd.fork(0), time.sleep, []

    def noting(seconds):
        slept.append(seconds)
        sleep(seconds)
        if len(slept) == 12:
            monkeypatch.undo()
            kill(pid)
            become_zombie(pid)

    monkeypatch.setattr(time, "sleep", noting)
    assert pidwait.wait(pid, 1e6) == -9
    assert slept[0] <= 0.0001 and slept[-2:] == [0.04] * 2
    assert len(slept) == 12 and max(slept) == 0.04


@everywhere
def test_timeout_expired_is_a_timeout_error_without_an_errno_and_can_be_pickled():
    error = pidwait.TimeoutExpired(123, 4.5)
    assert isinstance(error, TimeoutError) and error.errno is None
    assert "123" in str(error) and "4.5" in str(error)
    protocols = range(pickle.HIGHEST_PROTOCOL + 1)
    for one in [copy.copy(error)] + [pickle.loads(pickle.dumps(error, one)) for one in protocols]:
        assert type(one) is pidwait.TimeoutExpired
        assert (one.pid, one.timeout, one.errno, str(one)) == (123, 4.5, None, str(error))


@everywhere
def test_a_clock_that_a_test_has_stopped_stops_no_time_out(variant, herd, monkeypatch):
    pid, now = herd.fork(0), time.monotonic()
    pidwait.probe()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for wait in waits(pid, 0.05):
        with pytest.raises(pidwait.TimeoutExpired):
            wait()


FROZEN = """
import sys, time
now = time.monotonic()
time.monotonic = lambda: now
import {package} as pidwait
pid = int(sys.argv[1])
assert pidwait.wait_procs([pid], 0.05) == ([], [pid])
with pidwait.WaitSet([pid]) as waiting:
    assert waiting.wait(0.05) == []
try:
    pidwait.wait(pid, 0.05)
except pidwait.TimeoutExpired:
    print("after", time.monotonic() - now, "seconds")
"""


def test_a_clock_that_stopped_before_the_import_stops_no_time_out(variant, sleeper):
    done = run_python(FROZEN.format(package=pidwait.__name__), str(sleeper.pid), timeout=30)
    assert (done.stdout, done.stderr) == ("after 0.0 seconds\n", "")
