# SPDX-License-Identifier: BSD-3-Clause
"""A seccomp filter that answers the system calls of the fast path with an error.

Containers and sandboxes do the same. It needs no root.
"""

import errno
import os
import signal
import subprocess

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, Stranger, raises, times_out
from ..processes import is_open
from . import system

TRANSIENT = (errno.ENFILE,)
ERRORS = {
    "pidfd_open": ("EPERM", "EACCES", "ENOSYS", "EINVAL", "ENODEV", "ENFILE"),
    "ioctl": ("EPERM", "EACCES", "ENOSYS", "EINVAL", "ENOTTY"),
    "pidfd_send_signal": ("EPERM", "EACCES", "ENOSYS", "EINVAL"),
    "waitid": ("EPERM", "EACCES", "ENOSYS", "EINVAL"),
}


@pytest.fixture(autouse=True)
def possible():
    reason = system.why_no_policy() or faults.why_no_pidfd()
    if reason:
        pytest.skip(reason)


def run(function, *args):
    """Run it in a fresh interpreter, where nothing has been asked yet."""
    connects = pidwait.probe()["backends"]["connector"]["available"]
    faults.run(function, "connector" if connects else "polling", *args)


def under_policy(instead, rules, ffi="auto", backend=""):
    """Run everything() in two forks: in the second the probe is asked before the policy comes.

    ``instead``: the backend that is chosen where pidfd_open is refused.
    """
    os.environ["PIDWAIT_FFI"] = ffi
    os.environ["PIDWAIT_BACKEND"] = backend
    tells = faults.kernel_tells()
    for asked in (False, True):
        expected = backend or expected_under(rules, asked, instead)
        certain = tells and expected == "pidfd" and "ioctl" not in rules
        faults.forked(everything, rules, asked, expected, certain)


def expected_under(rules, asked, instead):
    if "pidfd_open" not in rules:
        return "pidfd"
    # Once pidfds are chosen, or for a time that will pass, the one handle alone is polled.
    return "polling" if asked or rules["pidfd_open"] in TRANSIENT else instead


def everything(rules, asked, expected, certain):
    child = Child()
    fd = system.pidfd_open(child.pid)
    if asked:
        pidwait.probe()
    system.forbid(rules)
    child_of_ours(0 if asked else -signal.SIGKILL)
    child_of_others(6 if asked else 0, certain)
    handles(expected)
    received(child, fd)
    several()
    if asked:
        faults.probe.forget()
    it_is_probed(rules)


def child_of_ours(code):
    child = Child()
    times_out(lambda timeout: pidwait.wait(child.pid, timeout), 0)
    times_out(lambda timeout: pidwait.wait(child.pid, timeout), 0.01)
    child.become_zombie(7)
    assert pidwait.wait(child.pid) == 7
    assert pidwait.pid_exists(child.pid)
    assert child.reap() == 7
    assert pidwait.wait(child.pid) is None
    assert not pidwait.pid_exists(child.pid)
    child = Child()
    child.end(code)
    assert pidwait.wait(child.pid, LONG) == code
    assert pidwait.wait(child.pid, 0, reap=True) == code
    raises(ChildProcessError, os.waitpid, child.pid, 0)
    child.forget()
    popen = subprocess.Popen(["sh", "-c", "exit 4"])
    assert pidwait.wait(popen, LONG) == popen.returncode == 4


def child_of_others(code, certain):
    stranger = Stranger()
    times_out(lambda timeout: pidwait.wait(stranger.pid, timeout), 0)
    with pidwait.Process(stranger.pid) as process:
        stranger.become_zombie(code)
        assert pidwait.wait(stranger.pid, LONG) in (code, None)
        assert stranger.reap() == code
        assert process.wait(LONG) in ((code,) if certain else (code, None))
    assert pidwait.wait(stranger.pid) is None


def handles(expected):
    child = Child()
    with pidwait.Process(child.pid) as process, pidwait.Process(child.pid) as other:
        assert process.backend == expected, process.backend
        assert process == other
        assert not process.has_exited()
        process.send_signal(0)
        process.terminate()
        assert process.wait(LONG) == -signal.SIGTERM
        raises(ProcessLookupError, process.kill)
        assert child.reap() == -signal.SIGTERM
        assert other.wait(LONG) in (-signal.SIGTERM, None)
        raises(ProcessLookupError, other.kill)


def received(child, fd):
    with pidwait.Process.from_fd(fd) as process:
        assert (process.pid, process.backend) == (child.pid, "pidfd")
        process.send_signal(0)
        child.end(8)
        assert process.wait(LONG) == 8
        assert child.reap() == 8
    assert not is_open(fd)


def several():
    first, second, stranger = Child(), Child(), Stranger()
    with pidwait.WaitSet([first.pid, second.pid, stranger.pid]) as waiting:
        assert waiting.wait(0) == []
        first.become_zombie(3)
        assert waiting.wait(LONG) == [(first.pid, 3)]
        stranger.become_zombie(4)
        ((pid, code),) = waiting.wait(LONG)
        assert pid == stranger.pid and code in (4, None)
        second.end(5)
        assert waiting.wait(LONG) == [(second.pid, 5)]
    for process in first, second, stranger:
        process.reap()


PROBED = {"ioctl": "PIDFD_GET_INFO"}


def it_is_probed(rules):
    answer = pidwait.probe()["calls"]
    for call, code in rules.items():
        row = answer[PROBED.get(call, call)]
        if code in TRANSIENT:
            assert row["available"], row
        else:
            assert not row["available"] and os.strerror(code) in row["reason"], row


def each_error(instead, call, backend):
    for error in ERRORS[call]:
        under_policy(instead, {call: getattr(errno, error)}, backend=backend)


@pytest.mark.parametrize("call", list(ERRORS))
def test_one_call(call):
    run(each_error, call, "")


def test_polling():
    run(each_error, "waitid", "polling")


@pytest.mark.parametrize(
    "calls, error",
    [
        ("ioctl waitid", "EPERM"),
        ("ioctl pidfd_send_signal", "EPERM"),
        ("pidfd_send_signal waitid", "ENOSYS"),
        ("ioctl pidfd_send_signal waitid", "ENOSYS"),
        ("pidfd_open ioctl pidfd_send_signal waitid", "EPERM"),
    ],
)
def test_several_calls(calls, error):
    run(under_policy, {call: getattr(errno, error) for call in calls.split()})


@pytest.mark.parametrize("ffi", ["ctypes", "cffi"])
@pytest.mark.parametrize("calls", ["pidfd_open", "ioctl pidfd_send_signal waitid"])
def test_bindings(ffi, calls):
    reason = pidwait.probe()["bindings"][ffi]["reason"]
    if reason:
        pytest.skip(reason)
    run(under_policy, dict.fromkeys(calls.split(), errno.EPERM), ffi)


def told(instead, asked):
    import logging

    records = []

    class Records(logging.Handler):
        def emit(self, record):
            assert record.levelno == logging.INFO
            records.append(record.getMessage())

    logger = logging.getLogger(pidwait.__name__)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(Records())
    if asked:
        pidwait.probe()
        # In a PID namespace of its own a program can't listen to the proc connector.
        assert [record for record in records if "connector" not in record] == []
    system.forbid({"pidfd_open": errno.EPERM})
    child = Child()
    with pidwait.Process(child.pid) as process:
        assert process.backend == ("polling" if asked else instead)
        child.end(1)
        assert process.wait(LONG) == 1
    child.reap()
    said = [record for record in records if os.strerror(errno.EPERM) in record]
    assert said and all("pidfd_open" in record for record in said), records
    if asked:
        assert any("pid %d is polled" % child.pid in record for record in said), records
    assert pidwait.probe()["backend"] == ("pidfd" if asked else instead)
    faults.probe.forget()
    assert os.strerror(errno.EPERM) in pidwait.probe()["backends"]["pidfd"]["reason"]
    os.environ["PIDWAIT_BACKEND"] = "pidfd"
    faults.probe.forget()
    error = raises(PermissionError, pidwait.wait, os.getpid(), 0)
    assert "PIDWAIT_BACKEND is pidfd" in str(error)


@pytest.mark.parametrize("asked", [False, True])
def test_it_is_logged(asked):
    run(told, asked)
