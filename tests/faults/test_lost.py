# SPDX-License-Identifier: BSD-3-Clause
"""Children that somebody else reaps, and strangers that are reaped at the worst moment.

The code is certain from Linux 6.15 on, else it may be None, but never a made-up 0.
"""

import errno
import importlib
import os
import select
import signal
import subprocess
import threading

import pytest

from .. import faults, pidwait
from ..faults import LONG, Child, Stranger, at_line, calls, exit_code, times_out
from . import system

pytest.importorskip("ctypes")


def certain_here(backend, has_info=True):
    """Whether a code is always known here; without has_info, PIDFD_GET_INFO is forbidden first."""
    pidwait.probe()
    if not has_info:
        system.forbid({"ioctl": errno.ENOTTY})
        faults.probe.forget()
    return backend == "pidfd" and has_info and faults.kernel_tells()


class Popen(subprocess.Popen):
    """A child that exits when end() is called."""

    def __init__(self, code):
        super().__init__(["sh", "-c", "read end; exit %d" % code], stdin=subprocess.PIPE)

    def end(self):
        self.stdin.write(b"\n")
        self.stdin.close()

    def become_zombie(self):
        self.end()
        Child.stand(self)

    def steal(self):
        assert os.waitpid(self.pid, 0)[0] == self.pid


# SIGCHLD is ignored: the kernel reaps


def ignored(backend, has_info):
    certain = certain_here(backend, has_info)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for code in (0, 7, -signal.SIGKILL):
        child = Child()
        times_out(lambda timeout, pid=child.pid: pidwait.wait(pid, timeout), 0)
        with pidwait.Process(child.pid) as process:
            child.end(code)
            assert process.wait(LONG) in ((code,) if certain else (code, None))
            assert process.has_exited()
            assert process.wait(0, reap=True) in ((code,) if certain else (code, None))
        assert pidwait.wait(child.pid) is None
        child.forget()
    popen = Popen(7)
    times_out(lambda timeout: pidwait.wait(popen, timeout), 0)
    fd = system.pidfd_open(popen.pid)  # shows its exit, while poll() would reap it
    popen.end()
    select.select([fd], [], [], LONG)
    os.close(fd)
    # It was gone before we could open it.
    assert pidwait.wait(popen, LONG) is None
    assert popen.returncode == 0  # set by Popen itself
    popen = Popen(7)
    kinds = importlib.import_module(pidwait.__name__ + "._kinds")
    confirm = kinds.PopenTarget._confirm

    def end_after_the_look(target):
        code = confirm(target)
        popen.end()
        return code

    if backend == "pidfd":
        kinds.PopenTarget._confirm = end_after_the_look
        assert pidwait.wait(popen, LONG) == (7 if certain else None)
    else:
        popen.end()
        assert pidwait.wait(popen, LONG) in (7, None)
    assert popen.returncode == 0


@pytest.mark.parametrize("has_info", [True, False])
def test_sigchld_is_ignored(has_info):
    if not has_info and system.why_no_policy():
        pytest.skip(system.why_no_policy())
    faults.run_on_each_backend(ignored, has_info)


def multiprocessing_ignored(backend):
    import multiprocessing

    certain = certain_here(backend)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    process = multiprocessing.get_context("fork").Process(target=signal.pause)
    process.start()
    times_out(lambda timeout: pidwait.wait(process, timeout), 0.01)
    with pidwait.Process(process.pid) as handle:
        process.terminate()
        right = (-signal.SIGTERM,) if certain else (-signal.SIGTERM, None)
        assert handle.wait(LONG) in right
    assert pidwait.wait(process) is None
    assert pidwait.wait(process, LONG) is None
    multiprocessing.process._children.clear()  # it would keep the process, and its fds


def test_sigchld_is_ignored_under_multiprocessing():
    faults.run_on_each_backend(multiprocessing_ignored)


class Job:
    """Like a multiprocessing.Process that another thread makes reap right after known()."""

    def __init__(self, child):
        self.pid = child.pid
        self._child = child
        self._code = None
        self._looks = 0

    @property
    def exitcode(self):
        code = self._code
        self._looks += 1
        if self._looks == 2:  # the first finds out the kind of object
            self._code = self._child.reap()
        return code

    def join(self, timeout):
        pass


def reaped_by_multiprocessing(backend):
    for code in (255, 7):
        child = Child()
        child.become_zombie(code)
        assert pidwait.wait(Job(child), LONG) == code


def test_reaped_by_multiprocessing():
    faults.run_on_each_backend(reaped_by_multiprocessing)


# Another part of the program calls waitpid(2)


def stolen_before(backend):
    certain = certain_here(backend)
    for code in (0, 7):
        child = Child()
        with pidwait.Process(child.pid) as process:
            child.end(code)
            assert child.reap() == code
            assert pidwait.wait(child.pid) is None
            assert process.wait() in ((code,) if certain else (code, None))
            assert process.wait(0, reap=True) in ((code,) if certain else (code, None))
        popen = Popen(code)
        popen.end()
        popen.steal()
        assert pidwait.wait(popen) is None
        assert popen.returncode == 0


def stolen_between_poll_and_waitid(backend, has_info):
    certain = certain_here(backend, has_info)
    real = calls.get("waitid")
    victims = []

    def waitid(*args):
        victim = victims.pop() if victims else None
        if isinstance(victim, int):
            os.waitpid(victim, 0)
        info = real(*args)
        if callable(victim):
            victim()
        return info

    calls._resolved["waitid"] = waitid
    for code in (0, 7):
        right = (code,) if certain else (None,) if backend == "pidfd" else (code, None)
        for reap in (False, True):
            child = Child()
            child.become_zombie(code)
            victims.append(child.pid)
            got = pidwait.wait(child.pid, LONG, reap=reap)
            assert got in right, (got, right, code, reap, certain)
            del victims[:]
            try:
                child.reap()
            except ChildProcessError:
                child.forget()
            else:  # polling did not need waitid
                assert backend == "polling" and not reap
        # The first call asks whether it is our child, and may find that it has exited.
        for late, right_then in ((True, right), (False, (None,))):
            popen = Popen(code)
            if not late:
                popen.become_zombie()
            victims[:] = [popen.pid] + [popen.become_zombie] * late
            assert pidwait.wait(popen, LONG) in right_then
            assert popen.returncode in ((0,) if backend == "pidfd" else (0, code))
            del victims[:]


def stolen_at_any_line(backend, has_info):
    """Another part of the program waits for any child, and reaps ours."""
    certain = certain_here(backend, has_info)

    def steal():
        os.waitpid(-1, 0)

    files = faults.LOOKING + ("_targets.py", "_kinds.py")
    number, reached = 0, True
    while reached:
        number += 1
        child = Child()
        child.become_zombie(7)
        owner = Owner(child.pid)
        with pidwait.Process(child.pid) as process:
            with at_line(number, lambda: steal_quietly(), files) as line:
                code = pidwait.wait(owner, LONG)
            reached = line.reached
            assert code in (7, None), line.where
            assert owner.returncode in (0, 7)
            assert process.wait(LONG) in ((7,) if certain else (7, None))
        child.forget()
    assert number > 10


def steal_quietly():
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        pass


class Owner:
    """Reaps like subprocess.Popen: if the child is gone, it takes the code for 0."""

    def __init__(self, pid):
        self._waitpid_lock = threading.Lock()
        self.pid = pid
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.returncode = 0
            else:
                if pid:
                    self.returncode = exit_code(status)
        return self.returncode


@pytest.mark.parametrize("has_info", [True, False])
@pytest.mark.parametrize("scenario", [stolen_between_poll_and_waitid, stolen_at_any_line])
def test_stolen(scenario, has_info):
    if not has_info and system.why_no_policy():
        pytest.skip(system.why_no_policy())
    faults.run_on_each_backend(scenario, has_info)


def test_stolen_before():
    faults.run_on_each_backend(stolen_before)


# Somebody else's child, reaped between two of our calls


def reaped_at_any_line(backend, has_info):
    certain = certain_here(backend, has_info)
    number, reached = 0, True
    while reached:
        number += 1
        stranger = Stranger()
        with pidwait.Process(stranger.pid) as process:
            stranger.become_zombie(7)
            with at_line(number, stranger.leave) as line:
                code = process.wait(LONG)
            assert code in ((7,) if certain else (7, None)), line.where
            reached = line.reached
        if reached:
            stranger.forget()
        else:
            stranger.reap()
    assert number > 10


@pytest.mark.parametrize("has_info", [True, False])
def test_reaped_at_any_line(has_info):
    if not has_info and system.why_no_policy():
        pytest.skip(system.why_no_policy())
    faults.run_on_each_backend(reaped_at_any_line, has_info)


def in_the_middle_of_being_reaped():
    """PIDFD_GET_INFO first finds neither the process nor its status, then the status."""
    certain = certain_here("pidfd")
    real = calls.get("ioctl")
    failures = []

    def ioctl(*args):
        if failures:
            raise failures.pop()
        return real(*args)

    calls._resolved["ioctl"] = ioctl
    for times, right in ((1, (7,) if certain else (7, None)), (2, (None,))):
        stranger = Stranger()
        with pidwait.Process(stranger.pid) as process:
            stranger.end(7)
            assert stranger.reap() == 7
            failures[:] = [ProcessLookupError(errno.ESRCH, "just reaped")] * times
            assert process.wait(LONG) in right
            assert failures == [] or not certain
            del failures[:]
            assert process.wait(0) in ((7,) if certain else (7, None))


def reaped_in_the_window():
    """A zombie that we may not look into is reaped during the grace of the wait."""
    certain = certain_here("pidfd")
    real = calls.get("ioctl")
    importlib.import_module(pidwait.__name__ + "._backends.pidfd").GRACE = LONG
    asked = []
    stranger = Stranger(system.not_dumpable)

    def ioctl(*args):
        if not asked:
            asked.append(real(*args))
            stranger.leave()
            return asked[0]
        return real(*args)

    if os.getuid() == 0:
        system.become(65432)
    with pidwait.Process(stranger.pid) as process:
        stranger.become_zombie(7)
        calls._resolved["ioctl"] = ioctl
        assert process.wait(LONG) in ((7,) if certain else (7, None))
        if not asked:
            stranger.leave()
    stranger.forget()


@pytest.mark.parametrize("scenario", [in_the_middle_of_being_reaped, reaped_in_the_window])
def test_pidfd_get_info(scenario):
    if not pidwait.probe()["calls"]["PIDFD_GET_INFO"]["available"]:
        pytest.skip("PIDFD_GET_INFO: " + pidwait.probe()["calls"]["PIDFD_GET_INFO"]["reason"])
    faults.run(scenario)
