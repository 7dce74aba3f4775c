# SPDX-License-Identifier: BSD-3-Clause
"""Owners: a wait for each kind ends with the right code and the owner's own bookkeeping right."""

import multiprocessing
import os
import signal
import threading
import types

import pytest

from . import pidwait
from .processes import (
    WINDOWS,
    become_zombie,
    codes,
    exiting,
    gone_pid,
    not_on_windows,
    run_python,
    run_script,
    state,
)


@pytest.mark.parametrize("code", codes(0, 3, -signal.SIGTERM))
def test_popen(variant, start, code):
    child = start(*exiting(code, after=0.05))
    assert pidwait.wait(child, 30) == code
    assert child.returncode == code  # without another call


def test_popen_that_has_its_code(variant, start):
    child = start(*exiting(5))
    child.wait()
    assert pidwait.wait(child, 0) == 5


@pytest.mark.parametrize("code", codes(0, 3, -9))
def test_popen_that_has_exited(variant, start, code):
    child = start(*exiting(code))
    become_zombie(child.pid)
    assert pidwait.wait(child) == code
    assert child.returncode == code
    other = start(*exiting(code))
    become_zombie(other.pid)
    assert pidwait.wait_procs([other]) == ([(other, code)], [])
    assert other.returncode == code


def test_popen_times_out(variant, sleeper):
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(sleeper, 0.01)
    assert sleeper.returncode is None


def test_popen_that_another_thread_waits_for(variant, start):
    child = start(*exiting(9, after=0.1))
    codes = []
    waiter = threading.Thread(target=lambda: codes.append(child.wait()))
    waiter.start()
    codes.append(pidwait.wait(child))
    waiter.join()
    assert codes == [9, 9]


@not_on_windows("lock that Popen.poll() takes")
def test_popen_whose_lock_is_held(variant, start):
    """poll() returns None while another thread is inside: that does not mean "running"."""
    child = start(*exiting(4))
    become_zombie(child.pid)
    child._waitpid_lock.acquire()
    try:
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(child, 0.05)
        assert child.returncode is None
        threading.Timer(0.05, child._waitpid_lock.release).start()
        assert pidwait.wait(child, 30) == 4
    finally:
        child.wait()


def test_popen_that_another_thread_is_just_reaping(variant):
    """The process is gone, and the other thread is about to store its code."""

    class Popen:
        pid = gone_pid()
        returncode = None
        left = 1000  # polls until the other thread is done
        _waitpid_lock = threading.Lock()

        def poll(self):
            self.left -= 1
            if self.left == 0:
                self.returncode = 4
                self._waitpid_lock.release()
            return self.returncode

    popen = Popen()
    popen._waitpid_lock.acquire()
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(popen, 0)
    popen.left = 3
    assert pidwait.wait(popen, 30) == 4


def test_popen_beside_a_handle(variant, start):
    child = start(*exiting(6, after=0.05))
    with pidwait.Process(child.pid) as process:
        assert process.wait() == 6
    assert child.wait() == 6


def test_object_with_a_pid(variant, start):
    class Job:
        pass

    job = Job()
    job.pid = start(*exiting(2, after=0.02)).pid
    assert pidwait.wait(job, 30) == 2
    assert state(job.pid) == "Z"


# In an interpreter of its own, with which the helper processes of multiprocessing end.
MULTIPROCESSING = """if True:
    import multiprocessing.connection, os, sys, time
    import {package} as pidwait

    def exit_with(code):
        time.sleep(0.05)
        sys.exit(code)

    def expect(error, function, *args):
        try:
            function(*args)
        except error:
            return
        raise AssertionError("no %s" % error)

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        process = context.Process(target=exit_with, args=(7,))
        expect(ValueError, pidwait.wait, process)  # not started
        process.start()
        assert pidwait.wait(process, 30) == 7
        assert process._popen.returncode == 7  # joined, without another call
        assert process not in multiprocessing.process._children
        assert pidwait.wait(process) == 7
        early = context.Process(target=sys.exit, args=(8,))
        early.start()
        multiprocessing.connection.wait([early.sentinel])
        assert pidwait.wait(early, 30) == 8
        assert early not in multiprocessing.process._children
        if hasattr(os, "fork"):
            pid = os.fork()
            if pid == 0:  # the fork may not join it
                os._exit(0 if pidwait.wait(early) == 8 else 1)
            assert os.waitpid(pid, 0)[1] == 0
        sleeper = context.Process(target=time.sleep, args=(60,))
        sleeper.start()
        expect(pidwait.TimeoutExpired, pidwait.wait, sleeper, 0.01)
        sleeper.terminate()
        code = pidwait.wait(sleeper, 30)
        assert code in eval(sys.argv[2]), code
        assert pidwait.wait(sleeper) in eval(sys.argv[2])  # it had exited before
        if hasattr(process, "close"):
            process.close()
            expect(ValueError, pidwait.wait, process)
"""


@pytest.mark.parametrize("method", sorted(multiprocessing.get_all_start_methods()))
def test_multiprocessing(variant, backend, method, tmp_path):
    codes = [-signal.SIGTERM]
    if method == "forkserver":
        from multiprocessing import forkserver

        if not hasattr(forkserver, "read_signed"):
            codes.append(None)  # Python 3.6: the server hides signals, the process is not our child
    code = MULTIPROCESSING.format(package=pidwait.__name__)
    run_script(tmp_path / "script.py", code, method, repr(codes))


class Job:
    """Like a multiprocessing.Process, whose join() finds the given exit code."""

    def __init__(self, pid, exitcode):
        self.pid = pid
        self._told = exitcode
        self.exitcode = None

    def join(self, timeout):
        self.exitcode = self._told


def test_fork_server_that_has_died(variant, start):
    """Its processes then report 255."""
    child = start(*exiting(3))
    become_zombie(child.pid)
    jobs = Job(child.pid, 255), Job(gone_pid(), 255)
    for job in jobs:
        job._popen = types.SimpleNamespace(method="forkserver")
    assert [pidwait.wait(job, 30) for job in jobs] == [3, None]


@not_on_windows("fork server")
def test_fork_server_that_could_not_tell(variant):
    """Its 255 is no exit code. The pid now belongs to another process."""
    job = Job(os.getpid(), 255)
    job.exitcode = 255
    assert pidwait.wait(job, 0) == 255
    job._popen = types.SimpleNamespace(method="forkserver")
    assert pidwait.wait(job, 0) is None


def test_multiprocessing_that_exits_just_before_the_wait(variant, start):
    """Its 255 is real: it means "unknown" only for a fork server's child, which it is not."""

    class Exiting(Job):
        exitcode = property(lambda self: next(self.codes), lambda self, code: None)

    child = start(*exiting(255))
    if not WINDOWS:
        become_zombie(child.pid)
    job = Exiting(child.pid, 255)
    job.codes = iter([None] * 3 + [255] * 9)  # it is asked three times before it has exited
    assert pidwait.wait(job, 30) == 255


def test_multiprocessing_that_knows_nothing(variant):
    assert pidwait.wait(Job(gone_pid(), None), 30) is None
    job = Job(gone_pid(), None)
    assert pidwait.wait(job, 0) is None
    job._popen, job._parent_pid = types.SimpleNamespace(method="fork"), os.getpid()
    with pytest.raises(pidwait.TimeoutExpired):  # another thread may be about to store the code
        pidwait.wait(job, 0)
    assert pidwait.wait(job, 30) is None


ASYNCIO = """if True:
    import asyncio, sys
    import {package} as pidwait

    async def main():
        process = await asyncio.create_subprocess_exec(*{command})
        code = await loop.run_in_executor(None, pidwait.wait, process, 30)
        return code, await process.wait(), pidwait.wait(process, 0)

    # Windows' default before Python 3.8 starts no processes.
    new_loop = getattr(asyncio, "ProactorEventLoop", asyncio.new_event_loop)
    loop = new_loop()
    asyncio.set_event_loop(loop)
    code, *rest = loop.run_until_complete(main())
    # Its watcher may have reaped it before the other thread could look.
    assert code in (3, None), code
    assert rest == [3, 3], rest
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
"""


def test_asyncio_is_left_to_its_loop(variant):
    done = run_python(ASYNCIO.format(package=pidwait.__name__, command=exiting(3, 0.1)))
    assert (done.stderr, done.returncode) == ("", 0)


def test_psutil(variant, start):
    psutil = pytest.importorskip("psutil")
    child = start(*exiting(5, after=0.05))
    process = psutil.Process(child.pid)
    assert pidwait.wait(process, 30) == 5
    assert state(child.pid) == "Z"
    child.wait()
    assert pidwait.wait(process, 0) is None


def test_psutil_knows_a_reused_pid(variant, sleeper):
    class Reused:
        pid = sleeper.pid

        def create_time(self):
            return 0.0

        def is_running(self):
            return False

    assert pidwait.wait(Reused()) is None
