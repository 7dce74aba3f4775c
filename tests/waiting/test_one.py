# SPDX-License-Identifier: BSD-3-Clause
"""wait() for one process by its pid, and what it refuses."""

import errno
import os
import signal
import threading
import types

import pytest

from .. import pidwait
from ..conftest import another_thread
from ..processes import (
    WINDOWS,
    Pid,
    become_gone,
    codes,
    everywhere,
    exiting,
    gone_pid,
    kill,
    sleeping,
    state,
    stop,
)
from .threads import Thread

CODES = codes(0, 1, 7, 255, -signal.SIGTERM, -9, -signal.SIGSEGV)
if WINDOWS:
    # STILL_ACTIVE, which can be a real exit code; STATUS_ACCESS_VIOLATION
    CODES = [0, 7, 259, 0xC0000005, 0xFFFFFFFF]


@everywhere
@pytest.mark.parametrize("code", CODES)
def test_a_childs_exit_code_is_told_and_left_to_its_popen(variant, start_told, code):
    child = start_told(code)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(child.pid, 0)
    threading.Timer(0.02, child.stdin.close).start()
    assert pidwait.wait(child.pid, 30) == code
    assert state(child.pid) == "Z"
    assert child.wait() == code


@everywhere
@pytest.mark.parametrize("code", codes(0, 3, -9))
def test_a_zombie_childs_exit_code_is_told_again_and_again(variant, zombie, code):
    child = zombie(code)
    assert pidwait.wait(child.pid) == pidwait.wait(child.pid, 0) == code
    assert pidwait.wait(child.pid, -1) == pidwait.wait(proc=child.pid, timeout=5) == code
    assert pidwait.pid_exists(child.pid) is pidwait.pid_exists(os.getpid()) is True


@pytest.mark.kqueue
def test_a_stopped_process_has_not_exited(variant, start):
    child = start(*sleeping(60), start_new_session=True)
    waiter = Thread(pidwait.wait, child.pid, 60).asleep()
    stop(child.pid)
    for reap in False, True:  # while it is stopped, and when it goes on
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(child.pid, 0.01, reap)
        with pytest.raises(pidwait.TimeoutExpired):
            pidwait.wait(child.pid, 0, not reap)
        os.kill(child.pid, signal.SIGCONT)
    assert waiter.is_alive()
    child.kill()
    assert pidwait.wait(child.pid) == waiter.result() == -signal.SIGKILL


@pytest.mark.kqueue
@pytest.mark.threads
def test_of_several_threads_that_reap_at_least_one_gets_the_code(variant, start_told):
    child = start_told(8)
    threads = [Thread(pidwait.wait, child.pid, 60, reap=True).asleep() for _ in range(4)]
    child.stdin.close()
    assert {8} <= {thread.result() for thread in threads} <= {8, None}
    child.returncode = 8  # it has been reaped


@everywhere
def test_a_strangers_process(variant, keeper):
    pid = keeper.start(*sleeping(60))
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(pid, 0.01)
    waiter = Thread(pidwait.wait, pid).asleep()
    kill(pid)
    assert waiter.result() in ((9,) if WINDOWS else (-9, None))
    assert state(pid) == "Z"  # nobody has reaped it, and yet it has exited
    for reap in False, True:  # it is not ours to reap
        assert pidwait.wait(pid, 0, reap) in ((9,) if WINDOWS else (-9, None))
    assert keeper.reap(pid) == 9
    become_gone(pid)
    assert pidwait.wait(pid, 0) is None


@everywhere
def test_a_pid_that_is_gone_returns_none_at_once(variant):
    for pid in gone_pid(), 2**31 - 1:
        assert pidwait.wait(pid) is None
        assert pidwait.wait(pid, timeout=0, reap=True) is None
        assert pidwait.wait(pid, 60, True) is None
        no_process(pid)


@everywhere
def test_a_thread_is_not_a_process(variant):
    with another_thread() as tid:
        no_process(tid)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOENT])
def test_a_thread_is_not_a_process_whatever_the_kernel_calls_it(by_pidfd, seam, code):
    pidwait.probe()
    seam.refuse("pidfd_open", code)
    with another_thread() as tid:
        no_process(tid)


def no_process(tid):
    assert pidwait.wait(tid) is pidwait.wait(tid, 0) is None
    assert not pidwait.pid_exists(tid)
    with pytest.raises(ProcessLookupError, match=str(tid)) as caught:
        pidwait.Process(tid)
    assert WINDOWS or caught.value.errno == errno.ESRCH


TAKE_PID = {
    "wait": (pidwait.wait, "proc"),
    "Process": (pidwait.Process, "pid"),
    "pid_exists": (pidwait.pid_exists, "pid"),
}


@everywhere
@pytest.mark.parametrize("name", list(TAKE_PID))
def test_what_is_no_pid_is_refused(name):
    function, argument = TAKE_PID[name]
    for pid in 0, -1, -(2**31), 2**31, 2**32 + 1, 2**63, 2**64 + 5, 10**30:
        for number in pid, Pid(pid):
            with pytest.raises(ValueError, match="^%s must be" % argument):
                function(number)
    for pid in True, False, 1.0, "1", b"1", None, [1], object():
        kind = type(pid).__name__
        with pytest.raises(TypeError, match="^%s must be .*%s" % (argument, kind)):
            function(pid)


@everywhere
@pytest.mark.parametrize(
    "use, pid, error, message",
    [
        (pidwait.wait, None, ValueError, "proc has no pid: it has not been started"),
        (pidwait.wait, -5, ValueError, "proc.pid must be positive, not -5"),
        (pidwait.wait, 2**31, ValueError, "proc.pid must be at most 2147483647, not 2147483648"),
        (pidwait.wait, True, TypeError, "proc.pid must be an int, not bool"),
        (pidwait.Process, 7, TypeError, r"an int, not SimpleNamespace: wait\(\) takes objects"),
        (lambda it: pidwait.Process(str(it.pid)), 7, TypeError, "pid must be an int, not str$"),
        (lambda it: pidwait.wait([it]), 7, TypeError, r"use wait_procs\(\) for several"),
        (lambda it: pidwait.watch((it,), print), 7, TypeError, "not tuple: use wait_procs"),
    ],
)
def test_an_error_names_what_is_wrong_and_what_to_call_instead(use, pid, error, message):
    with pytest.raises(error, match=message):
        use(types.SimpleNamespace(pid=pid))


@everywhere
def test_a_number_that_is_no_int_is_a_pid(variant, start):
    """Such as numpy's."""
    child = start(*exiting(4))
    assert pidwait.wait(Pid(child.pid), 30) == 4
    assert pidwait.pid_exists(Pid(child.pid))
    with pidwait.Process(Pid(child.pid)) as process:
        assert process.wait(30) == 4 and process.pid == child.pid
