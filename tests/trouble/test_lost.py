# SPDX-License-Identifier: BSD-3-Clause
"""Children that somebody else reaps, and strangers that are reaped at the worst moment.

The code is certain from Linux 6.15 on, else it may be None, but never a made-up 0.
"""

import contextlib
import errno
import fcntl
import importlib
import multiprocessing
import os
import signal

import pytest

from .. import pidwait, trouble
from .. import seam as table
from ..needs import needs
from . import LONG, Child, Popen, Stranger, by_handle, by_set, each_line, forked, system, times_out

pytest.importorskip("ctypes")


@pytest.fixture(params=["told", "untold"])
def where(request, backend):
    """Run a scenario in a fork: where the kernel tells codes, or PIDFD_GET_INFO is forbidden.

    The scenario is given a function that tells all right answers for a code.
    """
    told = backend == "pidfd" and trouble.kernel_tells() and request.param == "told"
    if request.param == "untold" and (backend != "pidfd" or system.why_no_policy()):
        pytest.skip(system.why_no_policy() or "there is no such call to forbid")

    def within(scenario):
        if request.param == "untold":
            system.forbid({"ioctl": errno.ENOTTY})
            table.forget()
        pidwait.probe()
        scenario(lambda code: (code,) if told else (code, None))

    return lambda scenario: forked(within, scenario)


def ignored(right):
    """SIGCHLD is ignored: the kernel reaps."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for code in (0, 7, -signal.SIGKILL):
        child, popen = Child(), Popen(7)
        with pidwait.Process(child.pid) as process, pidwait.WaitSet([child.pid, popen]) as waiting:
            assert waiting.wait(0) == []
            child.end(code)
            assert process.wait(LONG) in right(code)
            assert process.has_exited() and process.wait(0, reap=True) in right(code)
            ((_, found),) = waiting.wait(LONG)
            assert found in right(code)
            popen.end()
            ((_, found),) = waiting.wait(LONG)
            assert found in right(7) and popen.returncode == 0  # set by Popen itself
        assert pidwait.wait(child.pid) is None
        child.forget()
    popen = Popen(7)
    with pidwait.Process(popen.pid) as process:
        times_out(lambda timeout: pidwait.wait(popen, timeout), 0)
        popen.end()
        process.wait(LONG)
    # It was gone before we could open it.
    assert pidwait.wait(popen, LONG) is None and popen.returncode == 0


def ignored_by_run(right):
    """Without a time-out, too."""
    ours = importlib.import_module(pidwait.__name__ + ".subprocess")
    codes = [code or 0 for code in right(7)]  # a Popen says 0 where nothing is known
    for handler in signal.SIG_IGN, lambda *args: os.waitpid(-1, 0):
        signal.signal(signal.SIGCHLD, handler)
        for timeout in None, LONG:
            # It runs until the wait has begun.
            assert ours.run(["sh", "-c", "sleep 0.1; exit 7"], timeout=timeout).returncode in codes


def ignored_under_multiprocessing(right):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    process = multiprocessing.get_context("fork").Process(target=signal.pause)
    process.start()
    times_out(lambda timeout: pidwait.wait(process, timeout), 0.005)
    with pidwait.Process(process.pid) as handle:
        process.terminate()
        assert handle.wait(LONG) in right(-signal.SIGTERM)
    assert pidwait.wait(process) is None
    multiprocessing.process._children.clear()  # it would keep the process, and its fds


def stolen(right):
    """Another part of the program calls waitpid(2)."""
    for code in (0, 7):
        child, popen = Child(), Popen(code)
        with pidwait.Process(child.pid) as process, pidwait.WaitSet([child.pid, popen]) as waiting:
            assert waiting.wait(0) == []
            child.end(code)
            assert child.reap() == code
            assert pidwait.wait(child.pid) is None
            assert process.wait() in right(code) and process.wait(0, reap=True) in right(code)
            ((_, found),) = waiting.wait(LONG)
            assert found in right(code)
            popen.end()
            os.waitpid(popen.pid, 0)
            ((_, found),) = waiting.wait(LONG)
            assert found in right(code) and popen.returncode == 0
        popen = Popen(code)
        popen.end()
        os.waitpid(popen.pid, 0)
        assert pidwait.wait(popen) is None and popen.returncode == 0


def stolen_at_any_line(right):
    def steal():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)

    for line in each_line(steal, step=4):
        popen = Popen(7)
        popen.become_zombie()
        with pidwait.Process(popen.pid) as process:
            with line:
                code = pidwait.wait(popen, LONG)
            assert process.wait(LONG) in right(7), line.where
        assert code in (7, None) and popen.returncode in (0, 7), line.where


def reaped_at_any_line(right):
    """Somebody else's child."""
    for wait, step in ((pidwait.Process.wait, 5), (by_set, 60)):
        for line in each_line(lambda: stranger.leave(), step):
            stranger = Stranger()
            with pidwait.Process(stranger.pid) as process:
                stranger.become_zombie(7)
                with line:
                    code = wait(process, LONG)
                assert code in right(7), line.where
            stranger.forget() if line.reached else stranger.reap()


SCENARIOS = (
    ignored,
    ignored_by_run,
    ignored_under_multiprocessing,
    stolen,
    stolen_at_any_line,
    reaped_at_any_line,
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_somebody_else_reaps(variant, where, scenario):
    where(scenario)


def test_a_child_is_reaped_between_two_system_calls(variant, backend, where, seam):
    """Between poll(2) and waitid(2), with and without ``reap``."""
    if not hasattr(os, "waitid") or backend != "pidfd":
        pytest.skip("it takes os.waitid() and pidfds")
    victims = []

    def waitid(*args):
        if victims:
            os.waitpid(victims.pop(), 0)
        return os.waitid(*args)

    def scenario(right):
        seam.put("waitid", waitid)
        for code in (0, 7):
            for reap in (False, True):
                child = Child()
                child.become_zombie(code)
                victims.append(child.pid)
                assert pidwait.wait(child.pid, LONG, reap=reap) in right(code)
                child.forget()
            popen = Popen(code)
            popen.become_zombie()
            victims.append(popen.pid)
            assert pidwait.wait(popen, LONG) in (code, None)
            assert popen.returncode == 0 and not victims

    where(scenario)


def test_a_popen_that_another_thread_has_reaped_without_having_stored_its_code(
    variant, backend, seam
):
    """It holds the Popen's lock: the handle is asked once more before the code is unknown."""
    if backend != "pidfd" or not trouble.kernel_tells() or not hasattr(os, "waitid"):
        pytest.skip("the system does not tell the code of what has been reaped")
    popen, unknown, ioctl = Popen(5), [None] * 2, seam.get("ioctl")

    def waitid(*args):
        info = os.waitid(*args)
        if not popen._waitpid_lock.locked():  # right after the Popen was found to run
            popen._waitpid_lock.acquire()
            popen.end()
            os.waitpid(popen.pid, 0)
        return info

    def asked(*args):
        if unknown:  # as during the reaping, see the pidfd backend
            unknown.pop()
            raise ProcessLookupError(errno.ESRCH, "on purpose")
        return ioctl(*args)

    seam.put("waitid", waitid)
    seam.put("ioctl", asked)
    assert pidwait.wait(popen, 0) == 5 and not unknown
    popen._waitpid_lock.release()
    popen.returncode = 5


WAITS = [pidwait.wait, lambda popen: pidwait.wait_procs([popen])[0][0][1]]


@pytest.mark.parametrize("wait", WAITS, ids=["wait", "wait_procs"])
def test_a_popen_that_the_system_is_just_reaping(variant, backend, seam, wait):
    """As if SIGCHLD were ignored: neither the child nor its code is found for a moment."""
    if backend != "pidfd" or not trouble.kernel_tells() or not hasattr(os, "waitid"):
        pytest.skip("the system does not tell the code of what has been reaped")
    popen, unknown, ioctl = Popen(5), [None] * 12, seam.get("ioctl")

    def waitid(*args):
        info = os.waitid(*args)
        if not popen.stdin.closed:  # right after the Popen was found to run
            popen.end()
            os.waitpid(popen.pid, 0)
        return info

    def asked(fd, request, info, *args):
        ioctl(fd, request, info, *args)
        if unknown:
            unknown.pop()
            info[:8] = bytes(8)  # no PIDFD_INFO_EXIT: it has not been reaped

    seam.put("waitid", waitid)
    seam.put("ioctl", asked)
    assert wait(popen) == 5 and not unknown
    assert popen.returncode == 0  # set by Popen itself


def test_an_owner_that_another_thread_has_reap_while_it_is_asked(variant):
    class Job:
        """Like a multiprocessing.Process."""

        looks, code = 0, None

        @property
        def exitcode(self):
            code, self.looks = self.code, self.looks + 1
            if self.looks == 2:  # the first finds out the kind of object
                self.code = child.reap()
            return code

        def join(self, timeout=None):
            pass

    for code in (255, 7):
        child, job = Child(), Job()
        child.become_zombie(code)
        job.pid = child.pid
        assert pidwait.wait(job, LONG) == code


# PIDFD_GET_INFO, and a kernel that has not come to an end


@pytest.fixture
def told(use_variant):
    row = pidwait.probe()["calls"].get("PIDFD_GET_INFO", {"reason": "there are no pidfds"})
    if row["reason"]:
        pytest.skip("PIDFD_GET_INFO: " + row["reason"])
    use_variant("pidfd-ctypes")
    pidwait.probe()
    return (7,) if trouble.kernel_tells() else (7, None)


@pytest.mark.parametrize("times", [1, 2])
def test_the_kernel_is_in_the_middle_of_reaping(seam, told, times):
    """PIDFD_GET_INFO first finds neither the process nor its status, then the status."""
    failures, stranger = [], Stranger()

    def ioctl(*args):
        if failures:
            raise failures.pop()
        return fcntl.ioctl(*args)

    seam.put("ioctl", ioctl)
    with pidwait.Process(stranger.pid) as process:
        stranger.end(7)
        assert stranger.reap() == 7
        failures[:] = [ProcessLookupError(errno.ESRCH, "just reaped")] * times
        assert process.wait(LONG) in (told if times == 1 else (7, None))
        del failures[:]
        assert process.wait(0) in told


@pytest.mark.parametrize("make", [Child, Stranger])
def test_the_kernel_does_not_find_what_runs(seam, told, make):
    """Linux 6.13 to 6.18, of a process whose parent is outside of our PID namespace."""
    seam.refuse("ioctl", errno.ESRCH)
    seam.refuse("epoll")  # so wait_procs() looks before there is an event
    it = make()
    with pidwait.Process(it.pid) as process:
        for _ in range(2):  # the first look finds out that it is a stranger
            assert pidwait.wait_procs([it.pid], 0) == ([], [it.pid])
            times_out(process.wait, 0)
        it.become_zombie(7)
        assert process.wait(LONG) == pidwait.wait(it.pid, LONG) == 7
        assert pidwait.wait_procs([it.pid], LONG) == ([(it.pid, 7)], [])
    assert it.reap() == 7


@pytest.mark.parametrize("when", [1, 20])  # at the first look, or after some 50 ms
def test_a_zombie_that_we_may_not_look_into_is_reaped_during_the_wait(seam, told, when):
    """Only the reaping tells its code, and a wait gives it up to a second."""

    def scenario():
        asked, stranger = [], Stranger(system.not_dumpable)

        def ioctl(*args):
            answer = fcntl.ioctl(*args)
            asked.append(args)
            if len(asked) == when:
                stranger.leave()
            return answer

        system.become(65432)
        with pidwait.Process(stranger.pid) as process:
            stranger.become_zombie(7)
            seam.put("ioctl", ioctl)
            assert process.wait(LONG) in told and asked
        stranger.forget()

    forked(scenario)


@pytest.mark.parametrize("wait", [pidwait.wait, by_handle, by_set])
def test_the_zombie_is_not_there_yet(use_variant, seam, told, wait):
    """A pidfd shows the exit of a child a moment before waitid(2) does."""
    if not hasattr(os, "waitid"):
        pytest.skip("this interpreter has no waitid(2)")
    early = [1, 2, 3]

    def waitid(*args):
        return None if early and early.pop() else os.waitid(*args)

    seam.put("waitid", waitid)
    child = Child()
    child.become_zombie(7)
    assert wait(child.pid, LONG) == child.reap() == 7
    assert len(early) < 3


@needs("clone(2)")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of clone(2) is x86-64's")
def test_a_child_of_clone_that_sends_no_sigchld(variant):
    """waitid(2) and wait4(2) want __WALL for it."""
    import ctypes

    def clone():
        # By PyDLL, which keeps the GIL: else another thread, which the child has not, may have it.
        library = getattr(ctypes, "PyDLL", ctypes.CDLL)(None)  # PyPy has no PyDLL
        pid = library.syscall(56, 0, 0, 0, 0, 0)
        if pid == 0:
            os._exit(7)
        return pid

    def by_child(pid):
        with pidwait.Child(pid) as child:
            return child.wait(LONG)

    for wait in (lambda pid: pidwait.wait(pid, LONG, reap=True)), by_child:
        pid = clone()
        assert wait(pid) == 7
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0x40000000)
