# SPDX-License-Identifier: BSD-3-Clause
"""/proc that hides processes, is not there, or belongs to another PID namespace."""

import os
import signal

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, Stranger, raises, times_out
from . import system

CLONE_NEWPID = 0x20000000

pytest.importorskip("ctypes")


def hide(how):
    if how == "tmpfs":
        system.mount("tmpfs", "/proc")
    else:
        system.mount("proc", "/proc", how)
    # /proc hides nothing from a process that has capabilities.
    system.drop_capabilities()


def hidden(backend, how):
    """Run processes() in two forks: /proc is hidden before the probe is asked, or after it."""
    for asked in (False, True):
        faults.forked(processes, how, asked, backend == "pidfd")


def processes(how, asked, has_handle):
    received = Child()
    fd = system.pidfd_open(received.pid)
    if asked:
        pidwait.probe()
    hide(how)
    for prepare in (None, system.not_dumpable):
        child_of_ours(prepare)
        child_of_others(prepare, has_handle, visible=how != "tmpfs" and prepare is None)
    if has_handle:
        with pidwait.Process.from_fd(fd) as process:
            assert process.pid in (received.pid, None)
            times_out(process.wait, 0)
            received.end(5)
            assert process.wait(LONG) == 5
    else:
        os.close(fd)
        received.end(5)
    assert received.reap() == 5


def child_of_ours(prepare):
    child = Child(prepare)
    with pidwait.Process(child.pid) as process:
        times_out(process.wait, 0.005)
        child.end(7)
        assert pidwait.wait(child.pid, LONG) == 7
        assert process.wait(LONG) == 7
        assert process.wait(LONG, reap=True) == 7
        raises(ChildProcessError, os.waitpid, child.pid, 0)
    child.forget()
    assert pidwait.wait(child.pid) is None
    assert not pidwait.pid_exists(child.pid)
    child = Child(prepare)
    child.end(0)
    assert pidwait.wait(child.pid, LONG, reap=True) == 0
    child.forget()


def child_of_others(prepare, has_handle, visible):
    certain = has_handle and faults.kernel_tells()
    for code in (0, 7):
        stranger = Stranger(prepare)
        with pidwait.Process(stranger.pid) as process:
            times_out(process.wait, 0)
            stranger.become_zombie(code)
            if has_handle or visible:
                assert pidwait.wait(stranger.pid, LONG) in (code, None)
            assert pidwait.pid_exists(stranger.pid)
            assert stranger.reap() == code
            assert process.wait(LONG) in ((code,) if certain else (code, None))
            raises(ProcessLookupError, process.terminate)
        assert pidwait.wait(stranger.pid) is None
    stranger = Stranger(prepare)
    with pidwait.Process(stranger.pid) as process:
        process.terminate()
        assert stranger.reap() == -signal.SIGTERM


@pytest.mark.parametrize("how", ["hidepid=1", "hidepid=2", "tmpfs"])
def test_hidden(namespaces, how):
    faults.run_on_each_backend(hidden, how, within=namespaces)


# The old /proc in a new PID namespace


def foreign(backend):
    """In two forks: the namespace is entered before the probe is asked, or after it."""
    for asked in (False, True):
        faults.forked(in_another_namespace, asked, backend == "pidfd")


def in_another_namespace(asked, has_handle):
    if asked:
        pidwait.probe()
    system.call("unshare", CLONE_NEWPID)
    faults.forked(under_the_old_proc, has_handle)


def under_the_old_proc(has_handle):
    assert os.getpid() == 1
    child_of_ours(None)
    child_of_others(None, has_handle, visible=False)
    child = Child()
    with pidwait.Process.from_fd(system.pidfd_open(child.pid)) as process:
        assert process.pid in (child.pid, None)
        child.end(7)
        assert process.wait(LONG) == 7
    child.reap()


def twins(backend):
    """Our process has the same pid in both namespaces, so that /proc/self looks right."""
    system.next_pid(5000)
    other = Child()
    assert other.pid == 5000
    other.become_zombie(3)
    faults.forked(twin_in_another_namespace)
    other.reap()


def twin_in_another_namespace():
    system.call("unshare", CLONE_NEWPID)
    system.next_pid(1000)
    faults.forked(first_of_its_namespace)


def first_of_its_namespace():
    system.next_pid(1001)
    faults.forked(is_its_own_twin)


def is_its_own_twin():
    assert os.getpid() == 1001 and os.readlink("/proc/self") == "1001"
    system.next_pid(5000)
    child = Child()
    assert child.pid == 5000
    # In this /proc the pid is another process's, a zombie's.
    times_out(lambda timeout: pidwait.wait(child.pid, timeout), 0.005)
    with pidwait.Process(child.pid) as process:
        assert not process.has_exited()
        child.end(7)
        assert process.wait(LONG) == 7
    child.reap()


@pytest.mark.parametrize("scenario", [foreign, twins])
def test_of_another_namespace(namespaces, scenario):
    faults.run_on_each_backend(scenario, within=namespaces)
