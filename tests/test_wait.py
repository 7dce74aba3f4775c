# SPDX-License-Identifier: BSD-3-Clause
"""wait(), on every backend and binding."""

import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from . import pidwait
from .processes import (
    MAIN_THREAD_ENDS,
    WINDOWS,
    Pid,
    become_gone,
    become_zombie,
    codes,
    eventually,
    exiting,
    gone_pid,
    kill,
    needs_ctypes,
    not_on_windows,
    sleeping,
    state,
    stop,
)

CODES = codes(0, 1, 7, 255, -9, -signal.SIGTERM, -signal.SIGSEGV)
if WINDOWS:
    # STILL_ACTIVE, which can be a real exit code; STATUS_ACCESS_VIOLATION
    CODES += [259, 0xC0000005, 0xFFFFFFFF]


@pytest.mark.parametrize("code", CODES)
def test_exit_code_of_a_child(variant, start, code):
    child = start(*exiting(code, after=0.05))
    assert pidwait.wait(child.pid, 30) == code
    # The wait has looked at it, and not reaped it.
    assert state(child.pid) == "Z"
    assert child.wait() == code


def test_exit_code_of_a_zombie_child(variant, start):
    child = start(*exiting(3))
    become_zombie(child.pid)
    assert pidwait.wait(child.pid) == 3
    assert pidwait.wait(child.pid, 0) == 3


@not_on_windows("zombies to reap")
def test_reap(variant, start):
    child = start(*exiting(5, after=0.05))
    assert pidwait.wait(child.pid, 30, reap=True) == 5
    assert state(child.pid) is None
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)


def test_reap_of_somebody_elses_child_only_waits(variant, keeper):
    pid = keeper.start(*sleeping(0.05))
    assert pidwait.wait(pid, 30, reap=True) in (0, None)
    assert keeper.reap(pid) == 0


def test_not_a_child(variant, keeper):
    pid = keeper.start(*sleeping(60))
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(pid, 0.01)
    threading.Timer(0.05, kill, (pid,)).start()
    pidwait.wait(pid)
    assert state(pid) == "Z"  # a zombie that its parent does not reap has exited
    pidwait.wait(pid, 0)
    assert keeper.reap(pid) == 9
    become_gone(pid)
    assert pidwait.wait(pid, 0) is None


def test_gone(variant):
    assert pidwait.wait(gone_pid()) is None
    assert pidwait.wait(gone_pid(), timeout=0, reap=True) is None


def test_time_out(variant, sleeper):
    start = time.monotonic()
    with pytest.raises(pidwait.TimeoutExpired) as caught:
        pidwait.wait(sleeper.pid, 0.25)
    assert time.monotonic() - start >= 0.25
    assert caught.value.pid == sleeper.pid
    assert caught.value.timeout == 0.25


@pytest.mark.parametrize("timeout", [0, -1, -math.inf, 0.0, False])
def test_no_time_looks_once(variant, sleeper, timeout, monkeypatch):
    def never(seconds):
        raise AssertionError("slept")

    monkeypatch.setattr(time, "sleep", never)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(sleeper.pid, timeout)


@pytest.mark.parametrize(
    "timeout", [None, math.inf, 1e10, 2147484, 2147483.647, sys.maxsize, 10**400, 1e308]
)
def test_long_time_outs(variant, start, timeout):
    assert pidwait.wait(start(*exiting(4, after=0.02)).pid, timeout) == 4


def test_shortest_time_out(variant, sleeper):
    start = time.monotonic()
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(sleeper.pid, 5e-7)
    assert time.monotonic() - start >= 5e-7


@not_on_windows("process states to look at")
def test_sleeps_interruptibly(variant, start, tmp_path):
    code = "import %s as p; print(flush=True); p.wait(%d)" % (pidwait.__name__, os.getpid())
    waiter = start(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert waiter.stdout.readline() == b"\n"
    # R only while it polls; not D, the sleep that no signal interrupts. It shows for a moment
    # when the waiter reads a file that it imports, or a page of the interpreter.
    eventually(lambda: {state(waiter.pid) for _ in range(20)} in ({"S"}, {"S", "R"}))


def test_thread_id_is_no_process(variant):
    with another_thread() as tid:
        assert pidwait.wait(tid) is None
        assert not pidwait.pid_exists(tid)
        with pytest.raises(ProcessLookupError):
            pidwait.Process(tid)


class another_thread:
    """The kernel's ID of a thread that runs during the block."""

    def __enter__(self):
        before = set() if WINDOWS else set(os.listdir("/proc/self/task"))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._over.wait)
        self._thread.start()
        if WINDOWS:
            return self._thread.ident
        (tid,) = set(os.listdir("/proc/self/task")) - before
        return int(tid)

    def __exit__(self, *exc_info):
        self._over.set()
        self._thread.join()


@not_on_windows("state of a main thread to look at")
@needs_ctypes
def test_main_thread_that_ended_first(variant, start):
    child = start(sys.executable, "-c", MAIN_THREAD_ENDS, stdin=subprocess.PIPE)
    become_zombie(child.pid)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(child.pid, 0)
    child.stdin.close()
    assert pidwait.wait(child.pid) == 9


@not_on_windows("SIGSTOP")
def test_stopped_and_continued_is_not_exited(variant, start):
    sleeper = start(*sleeping(60), start_new_session=True)
    stop(sleeper.pid)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(sleeper.pid, 0.01)
    os.kill(sleeper.pid, signal.SIGCONT)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(sleeper.pid, 0.01)
    sleeper.kill()
    assert pidwait.wait(sleeper.pid) == -signal.SIGKILL


@not_on_windows("setitimer")
def test_signal_handler_runs_and_the_wait_goes_on(variant, start):
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.005)
        began = time.monotonic()
        assert pidwait.wait(start(*exiting(6, after=0.3)).pid, 30) == 6
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(os.getpid(), 0.2)
        assert time.monotonic() - began >= 0.5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) > 3


@not_on_windows("setitimer")
def test_exception_of_a_signal_handler_comes_through(variant, sleeper, no_garbage):
    class Stop(Exception):
        pass

    def stop(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        # It repeats, in case the interpreter misses the first just before the system call.
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(Stop):
            pidwait.wait(sleeper.pid)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_two_threads_wait_for_one_process(variant, start):
    child = start(*exiting(8, after=0.1))
    codes = []
    threads = [
        threading.Thread(target=lambda: codes.append(pidwait.wait(child.pid))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [8] * 5


def test_pid_exists(variant, start, sleeper):
    assert pidwait.pid_exists(os.getpid())
    assert pidwait.pid_exists(sleeper.pid)
    zombie = start(*exiting(0))
    become_zombie(zombie.pid)
    assert pidwait.pid_exists(zombie.pid)
    assert not pidwait.pid_exists(gone_pid())


def test_pid_of_a_type_with_an_index_method(variant, start):
    child = start(*sleeping(0.01))
    assert pidwait.wait(Pid(child.pid), 30) == 0
