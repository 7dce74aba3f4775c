# SPDX-License-Identifier: BSD-3-Clause
"""Processes that we may not look into or signal: those of other users, or not dumpable ones."""

import os
import signal

import pytest

from .. import faults, pidwait
from ..faults import LONG, Stranger, raises, times_out
from . import system

pytest.importorskip("ctypes")

US, THEM = 65432, 65433

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become two other users")


def become_them():
    system.become(THEM)


def of_another_user(backend, how=None):
    if how is not None:
        system.mount("proc", "/proc", how)
    strangers = [Stranger(become_them) for _ in range(3)]
    give_up_root()
    # If /proc is hidden, polling can't see that it is a zombie: only the reaping ends the wait.
    notices = backend == "pidfd" or how is None
    for code, stranger in zip((7, 0, -signal.SIGKILL), strangers):
        not_ours(stranger, code, notices, PermissionError)


def give_up_root():
    pidwait.probe()  # loads modules that another user may not be allowed to read
    faults.kernel_tells()
    system.become(US)


def not_ours(stranger, code, notices, refused=None):
    with pidwait.Process(stranger.pid) as process, pidwait.Process(stranger.pid) as other:
        certain = process.backend == "pidfd" and faults.kernel_tells()
        assert (process == other) is notices
        times_out(process.wait, 0.005)
        if refused:
            for send in (process.terminate, process.kill, lambda: process.send_signal(0)):
                assert not isinstance(raises(refused, send), ProcessLookupError)
        times_out(process.wait, 0.005)
        stranger.become_zombie(code)
        if notices:
            # Never the 0 that /proc shows to users without the right to see the code.
            assert pidwait.wait(stranger.pid, LONG) in (code, None)
            assert pidwait.wait(stranger.pid, LONG, reap=True) in (code, None)
            assert process.wait(LONG) in (code, None)
            raises(ProcessLookupError, process.kill)
        assert pidwait.pid_exists(stranger.pid)
        assert stranger.reap() == code
        assert process.wait(LONG) in ((code,) if certain else (code, None))
        assert other.wait(LONG) in ((code,) if certain else (code, None))
        raises(ProcessLookupError, process.kill)
    assert pidwait.wait(stranger.pid) is None
    assert not pidwait.pid_exists(stranger.pid)


@needs_root
def test_of_another_user():
    faults.run_on_each_backend(of_another_user)


@needs_root
def test_of_another_user_and_hidden(real_root):
    faults.run_on_each_backend(of_another_user, "hidepid=2", within=real_root)


def not_dumpable(backend):
    give_up_root()
    for code in (7, 0, -signal.SIGKILL):
        not_ours(Stranger(system.not_dumpable), code, True)


def test_not_dumpable():
    faults.run_on_each_backend(not_dumpable)


def own_children_after_giving_up_root(backend):
    """After a setuid() without an exec, a process and its forks are not dumpable."""
    give_up_root()
    for code in (7, 0):
        child = faults.Child()
        fd = system.pidfd_open(child.pid)
        with pidwait.Process(child.pid) as process:
            times_out(process.wait, 0.005)
            process.send_signal(0)
            child.end(code)
            assert process.wait(LONG) == code
        with pidwait.Process.from_fd(fd) as process:
            assert process.wait(LONG) == code
        assert pidwait.wait(child.pid, 0, reap=True) == code
        child.forget()


@needs_root
def test_own_children_after_giving_up_root():
    faults.run_on_each_backend(own_children_after_giving_up_root)
