# SPDX-License-Identifier: BSD-3-Clause
"""No file descriptor left while probing, before or during a wait; or somebody closes ours."""

import os
import resource
import signal
import subprocess

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, Stranger, at_line, calls, raises, times_out
from ..faults.system import limit_becomes_zero, limit_is_zero
from ..processes import run_python
from . import system

pytest.importorskip("ctypes")


@pytest.fixture(autouse=True)
def possible():
    reason = faults.why_no_pidfd()
    if reason:
        pytest.skip(reason)


class fds_left:
    """In the block only so many more file descriptors can be opened."""

    def __init__(self, number):
        self._number = number

    def __enter__(self):
        self._limits = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 100), hard))
        self._fds = []
        try:
            while True:
                self._fds.append(os.dup(0))
        except OSError:
            pass
        for _ in range(self._number):
            os.close(self._fds.pop())

    def __exit__(self, *exc_info):
        for fd in self._fds:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)


# While probing


def first_waits():
    """Each runs in a fork, in which no check has been made yet."""
    for number in range(6):
        faults.forked(first_wait, number)


def first_wait(number):
    child, zombie, stranger = Child(), Child(), Stranger()
    zombie.become_zombie(3)
    stranger.become_zombie(4)
    with fds_left(number):
        with pidwait.Process(child.pid) as one, pidwait.Process(zombie.pid) as other:
            assert one != other
        child.end(5)
        # If a binding is needed to look, it can't be loaded now.
        assert pidwait.wait(child.pid, LONG) in ((5,) if hasattr(os, "waitid") else (5, None))
        assert pidwait.wait(zombie.pid, LONG, reap=True) == 3
        assert pidwait.wait(stranger.pid, LONG) in (4, None)
        assert pidwait.pid_exists(stranger.pid)
    stranger.reap()
    zombie.forget()
    answer = pidwait.probe()  # no failure was remembered
    assert answer["backend"] == "pidfd"
    assert answer["calls"]["pidfd_send_signal"]["available"]
    assert answer["calls"]["waitid"]["available"]
    with pidwait.Process(child.pid) as process:
        assert process.backend == "pidfd"
        assert process.wait(0) == 5
    child.reap()


def test_while_probing():
    faults.run(first_waits)


# Run in an interpreter that has loaded the names, and nothing else: not even fcntl.
LOADING = """if True:
    import os, resource, sys
    import {package} as pidwait

    pidwait.Process, pidwait.probe  # the names are there

    def use(left):
        go, start = os.pipe()
        number, answer = os.pipe()
        parent = os.fork()
        if parent == 0:
            pid = os.fork()
            if pid == 0:
                os.read(go, 1)
                os._exit(3)
            os.write(answer, b"%d" % pid)
            os.waitpid(pid, 0)
            os._exit(0)
        stranger = int(os.read(number, 20))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (answer + 1 + left, limits[1]))
        with pidwait.Process(stranger) as process:
            os.write(start, b".")
            assert process.wait(30) in (3, None)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.waitpid(parent, 0)

    for left in range(6):
        if os.fork() == 0:
            use(left)
            print(pidwait.probe(), flush=True)
            os._exit(0)
        os.wait()
"""


def test_while_loading(monkeypatch):
    monkeypatch.delenv("PIDWAIT_BACKEND", raising=False)
    done = run_python(LOADING.format(package=pidwait.__name__))
    assert (done.returncode, done.stderr) == (0, "")
    answers = done.stdout.splitlines()
    assert answers == [repr(pidwait.probe())] * 6


# Before a wait


def all_ways(backend):
    pidwait.probe()
    for code in (0, 7, -signal.SIGKILL):
        child, reaped, stranger = Child(), Child(), Stranger()
        popen = subprocess.Popen(["sh", "-c", "exit 4"])
        stranger.become_zombie(code)
        with fds_left(0):
            times_out(lambda timeout, pid=child.pid: pidwait.wait(pid, timeout), 0.005)
            with pidwait.Process(child.pid) as process:
                assert process.backend == "polling"
                process.send_signal(0)
                child.end(code)
                assert process.wait(LONG) == code
                raises(ProcessLookupError, process.kill)
            assert pidwait.wait(child.pid, 0) == code
            reaped.end(code)
            assert pidwait.wait(reaped.pid, LONG, reap=True) == code
            assert pidwait.wait(reaped.pid) is None
            assert pidwait.wait(popen, LONG) == popen.returncode == 4
            assert pidwait.wait(stranger.pid, LONG) in (code, None)
        child.reap()
        reaped.forget()
        stranger.reap()


def received():
    """A pidfd that came from elsewhere needs no other fd."""
    pidwait.probe()
    child = Child()
    fd = system.pidfd_open(child.pid)
    with fds_left(0), pidwait.Process.from_fd(fd) as process:
        times_out(process.wait, 0)
        child.end(7)
        assert process.wait(LONG) == 7
    child.reap()


def test_before():
    faults.run_on_each_backend(all_ways)


def test_received():
    faults.run(received)


# During a wait


def limit_falls():
    for code in (0, 7):
        child, stranger, popen = (
            Child(),
            Stranger(),
            subprocess.Popen(["sh", "-c", "read a"], stdin=-1),
        )
        with pidwait.Process(child.pid) as process, pidwait.Process(stranger.pid) as other:
            with limit_is_zero():
                times_out(process.wait, 0.005)
                assert process.backend == "polling"
                raises(OSError, process.fileno)
                process.send_signal(0)
                child.end(code)
                assert process.wait(LONG) == code
                raises(ProcessLookupError, process.kill)
                stranger.become_zombie(code)
                assert other.wait(LONG) in (code, None)
            assert process.wait(0) == code
            assert other.wait(0) in (code, None)
        child.reap()
        stranger.reap()
        popen.communicate()


def at_any_line():
    """The limit falls before each line of a wait."""
    pidwait.probe()
    for make in (Child, Stranger):
        process = make()
        process.become_zombie(6)
        number, reached = 0, True
        while reached:
            number += 1
            with limit_becomes_zero() as limit, at_line(number, limit.start) as line:
                code = pidwait.wait(process.pid, LONG)
            assert code in ((6,) if make is Child else (6, None)), line.where
            reached = line.reached
        assert number > 10
        process.reap()


def test_limit_falls():
    faults.run(limit_falls)


def test_limit_falls_at_any_line():
    faults.run(at_any_line)


# Somebody else closes our file descriptor


def closed_under_a_handle():
    for make in (Child, Stranger):
        target = make()
        with pidwait.Process(target.pid) as process:
            os.close(process.fileno())
            times_out(process.wait, 0.005)
            assert process.backend == "polling"
            target.end(7)
            assert process.wait(LONG) in ((7,) if make is Child else (7, None))
        assert target.reap() == 7
    with pidwait.Process(os.getpid()) as process:
        os.close(process.fileno())


def closed_under_a_wait():
    """It is closed right after it was opened, or between poll(2) and waitid(2)."""
    for name in ("pidfd_open", "waitid"):
        real = calls.get(name)
        opened = calls.get("pidfd_open")
        fds = []

        def open_and_tell(pid, flags):
            fds.append(opened(pid, flags))
            if name == "pidfd_open":
                os.close(fds[-1])
            return fds[-1]

        def close_and_look(*args):
            os.close(fds[-1])
            calls._resolved["waitid"] = real
            return real(*args)

        calls._resolved["pidfd_open"] = open_and_tell
        if name == "waitid":
            calls._resolved["waitid"] = close_and_look
        child = Child()
        child.become_zombie(7)
        assert pidwait.wait(child.pid, LONG) in ((7,) if name == "pidfd_open" else (7, None))
        assert child.reap() == 7
        faults.probe.forget()


def test_closed_under_a_handle():
    faults.run(closed_under_a_handle)


def test_closed_under_a_wait():
    faults.run(closed_under_a_wait)
