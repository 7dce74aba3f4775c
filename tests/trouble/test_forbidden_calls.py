# SPDX-License-Identifier: BSD-3-Clause
"""A seccomp filter refuses the system calls of the fast path, as in containers and sandboxes."""

import errno
import logging
import os
import queue
import resource
import select
import threading

import pytest

from .. import pidwait, trouble
from .. import seam as table
from ..processes import eventually, gone_pid, is_open
from . import LONG, Child, asleep, every_wait_works, forked, raises, system, times_out

PASSING = ("ENFILE",)  # it is polled this time alone


@pytest.fixture(autouse=True)
def possible():
    reason = system.why_no_policy() or trouble.why_no_pidfd()
    if reason:
        pytest.skip(reason)


def refused(calls, error="EPERM"):
    return dict.fromkeys(calls.split(), getattr(errno, error))


def everything(calls, error, asked, backend="auto"):
    """``asked``: the probe is asked before the policy comes."""
    os.environ["PIDWAIT_BACKEND"] = backend
    table.forget()
    told = trouble.kernel_tells() and not any(
        call in calls for call in ("pidfd_o", "ioctl", "epoll")
    )
    has_pidfds = "pidfd_open" not in calls and backend != "polling"
    child = Child()
    fd = system.pidfd_open(child.pid)
    if asked:
        pidwait.probe()
    system.forbid(refused(calls, error))
    used = every_wait_works(0 if asked else -9, told=told and has_pidfds)
    assert (used == "pidfd") is has_pidfds, used
    with pidwait.Process.from_fd(fd) as process:
        assert (process.pid, process.backend) == (child.pid, "pidfd")
        process.send_signal(0)
        child.end(8)
        assert process.wait(LONG) == child.reap() == 8
    assert not is_open(fd)
    if asked:
        table.forget()
    answer = pidwait.probe()["calls"]
    for call in calls.split():
        row = answer.get("PIDFD_GET_INFO" if call == "ioctl" else call)
        if row is not None:
            assert row["available"] is (error in PASSING), row
            is_asked = backend != "polling" or call == "waitid"
            reason = os.strerror(getattr(errno, error)) if is_asked else "not checked"
            assert row["available"] or reason in row["reason"], row


REFUSED = [
    ("pidfd_open", "EPERM ENOSYS EINVAL ENFILE"),
    ("ioctl", "EPERM ENOTTY EINVAL"),
    ("pidfd_send_signal", "EPERM ENOSYS"),
    ("waitid", "EPERM EINVAL ENOSYS"),
    ("ioctl pidfd_send_signal waitid", "ENOSYS"),
    ("pidfd_open ioctl pidfd_send_signal waitid", "EPERM"),
    ("pidfd_open ioctl waitid epoll_create1 timerfd_create", "ENOSYS"),
    ("epoll_create1", "EPERM EMFILE"),
    ("epoll_ctl", "EPERM"),
    ("epoll_wait epoll_pwait", "EPERM"),
    ("timerfd_create timerfd_settime prlimit64", "EPERM"),
]


@pytest.mark.parametrize("calls, errors", REFUSED)
def test_every_wait_works_without_these_calls(calls, errors):
    for error in errors.split():
        for asked in (False, True):
            forked(everything, calls, error, asked)


POLLING = ["waitid", "waitid epoll_create1 timerfd_create", "clock_gettime"]


@pytest.mark.parametrize("calls", POLLING)
def test_polling_works_without_these_calls(calls):
    forked(everything, calls, "EPERM", False, "polling")


def kill_is_refused(error, calls):
    """What is gone is gone, and what runs runs."""
    child, gone = Child(), gone_pid()
    with pidwait.Process(child.pid) as process, pidwait.WaitSet([child.pid]) as waiting:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        system.forbid(refused("kill " + calls, error))
        table.forget()
        assert pidwait.wait(gone, LONG) is None and not pidwait.pid_exists(gone)
        assert pidwait.wait_procs([gone, child.pid], 0.01) == ([(gone, None)], [child.pid])
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        assert not process.has_exited() and waiting.wait(0.01) == []
        times_out(lambda timeout: pidwait.wait(child.pid, timeout), 0.01)
        child.end(7)
        assert process.wait(LONG) == 7 and waiting.wait(LONG) == [(child.pid, 7)]
    child.reap()


@pytest.mark.parametrize("calls", ["", "pidfd_open"])
@pytest.mark.parametrize("error", ["EPERM", "EACCES", "ENOSYS"])
def test_every_wait_works_where_kill_is_refused(error, calls):
    forked(kill_is_refused, error, calls)


@pytest.mark.parametrize("calls", ["pidfd_open", "ioctl pidfd_send_signal waitid"])
def test_each_binding_tells_what_is_refused(binding, calls):
    forked(everything, calls, "EPERM", False)


def test_every_wait_works_where_poll_is_missing(monkeypatch):
    """As where gevent has taken it from the module."""
    monkeypatch.setenv("PIDWAIT_BACKEND", "auto")
    monkeypatch.delattr(select, "poll")
    table.forget()
    forked(every_wait_works)


def tells(asked):
    records = []

    class Records(logging.Handler):
        def emit(self, record):
            assert record.levelno == logging.INFO
            records.append(record.getMessage())

    os.environ["PIDWAIT_BACKEND"] = ""
    table.forget()
    logger = logging.getLogger(pidwait.__name__)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(Records())
    if asked:
        pidwait.probe()
        assert not any("pidfd" in record for record in records), records
    system.forbid({"pidfd_open": errno.EACCES})
    with pidwait.Process(os.getpid()) as process:
        assert process.backend != "pidfd"
    said = [record for record in records if os.strerror(errno.EACCES) in record]
    assert said and all("pidfd_open" in record for record in said), records
    assert not asked or any("pid %d is polled" % os.getpid() in record for record in said), said
    assert (pidwait.probe()["backend"] == "pidfd") is asked
    table.forget()
    assert os.strerror(errno.EACCES) in pidwait.probe()["backends"]["pidfd"]["reason"]
    os.environ["PIDWAIT_BACKEND"] = "pidfd"
    table.forget()
    error = raises(PermissionError, pidwait.wait, os.getpid(), 0)
    assert "PIDWAIT_BACKEND is pidfd" in str(error)


@pytest.mark.parametrize("asked", [False, True])
def test_the_backend_and_the_logger_tell_what_is_refused(asked):
    forked(tells, asked)


# Policies that come later

LATER = ["ioctl", "epoll_ctl", "epoll_wait epoll_pwait", "pidfd_open", "waitid", "timerfd_settime"]


def low_fds():
    """Those that select() takes; a set's pidfds are above the soft limit."""
    return [fd for fd in trouble.open_fds() if fd < resource.getrlimit(resource.RLIMIT_NOFILE)[0]]


def set_goes_on(calls):
    children, gone = [Child() for _ in range(4)], gone_pid()
    pids = [child.pid for child in children]
    with pidwait.WaitSet(pids[:2]) as waiting:
        assert waiting.wait(0) == []
        opened = low_fds()
        system.forbid(refused(calls))
        waiting.add(pids[2])
        waiting.discard(pids[2])
        for pid in pids[2:]:
            waiting.add(pid)
        # A pidfd that is of no use is closed.
        assert "epoll" not in calls or len(low_fds()) <= len(opened)
        waiting.add(gone)
        assert waiting.wait(LONG) == [(gone, None)]
        for code, child in enumerate(children):
            child.end(code)
            assert waiting.wait(LONG) == [(child.pid, code)]
            child.reap()
        assert len(waiting) == 0


def watch_goes_on(calls):
    told = queue.Queue()
    for code in (1, 2):
        child = Child()
        pidwait.watch(child.pid, lambda *exit: told.put(exit))
        if code == 1:
            system.forbid(refused(calls), all_threads=True)
        child.end(code)
        assert told.get(timeout=LONG) == (child.pid, code)
        child.reap()
    eventually(lambda: threading.active_count() == 1)


def thread_goes_on(calls):
    """The policy comes while another thread sleeps in the set."""
    child, gone, told = Child(), gone_pid(), queue.Queue()
    with pidwait.WaitSet([child.pid]) as waiting:
        thread = asleep(lambda: told.put(waiting.wait()))
        system.forbid(refused(calls), all_threads=True)
        waiting.add(gone)
        assert told.get(timeout=LONG) == [(gone, None)]
        thread.join()
        child.end(3)
        assert waiting.wait(LONG) == [(child.pid, 3)]
    child.reap()


LATER = [(scenario, calls) for scenario in (set_goes_on, watch_goes_on) for calls in LATER] + [
    (thread_goes_on, calls) for calls in LATER if calls != "epoll_ctl"
]


@pytest.mark.parametrize("scenario, calls", LATER)
def test_a_policy_that_comes_later_stops_no_wait(use_variant, scenario, calls):
    use_variant("pidfd-ctypes")
    pidwait.probe()
    forked(scenario, calls)
