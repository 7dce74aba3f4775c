# SPDX-License-Identifier: BSD-3-Clause
"""Process: its answers, its use by several threads, and its close."""

import copy
import errno
import gc
import io
import os
import pickle
import select
import signal
import sys

import pytest

from .. import pidwait
from .. import seam as table
from ..processes import (
    WINDOWS,
    become_zombie,
    everywhere,
    exiting,
    is_open,
    not_on_windows,
    run_python,
    sleeping,
    state,
)
from .threads import Thread
from .ways import by_set, by_wait, by_wait_procs


@everywhere
def test_a_handle_tells_what_it_is_for_and_kills_it(variant, backend, sleeper):
    with pidwait.Process(sleeper.pid) as process:
        assert (process.pid, process.backend, process.exitcode) == (sleeper.pid, backend, None)
        assert process.has_exited() is False
        assert str(sleeper.pid) in repr(process) and backend in repr(process)
        process.kill()
        assert process.wait() == (1 if WINDOWS else -9)


@everywhere
def test_a_wait_ends_with_the_exit_code_and_reaps_only_if_told(variant, start_told):
    child = start_told(7)
    with pidwait.Process(child.pid) as process:
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0)
        waiter = Thread(process.wait).asleep()
        with pidwait.Process(child.pid) as other:
            child.stdin.close()
            become_zombie(child.pid)
            assert other.has_exited() is True and other.exitcode == 7  # a look tells it, too
        assert waiter.result() == process.exitcode == process.wait() == 7
        assert process.has_exited() is True
        assert state(child.pid) == "Z"
        assert pidwait.wait(process, 0, reap=True) == 7
        assert state(child.pid) == ("Z" if WINDOWS else None)
        assert process.wait(0) == process.wait(reap=True) == pidwait.wait(process) == 7


@everywhere
def test_a_popen_beside_a_handle_gets_the_code_too(variant, start_told):
    child = start_told(6)
    with pidwait.Process(child.pid) as process, pidwait.Process(child.pid) as other:
        waiters = [Thread(child.wait).asleep(), Thread(process.wait).asleep()]
        child.stdin.close()
        assert waiters[0].result() == child.returncode == 6
        assert waiters[1].result() in (6, None)
        assert other.wait(30) in (6, None) and other.has_exited()


@everywhere
def test_fileno_is_readable_once_it_has_exited(variant, backend, start_told):
    child = start_told(5)
    with pidwait.Process(child.pid) as process:
        if backend not in ("pidfd", "kqueue"):
            with pytest.raises(io.UnsupportedOperation):
                process.fileno()
            return
        assert select.select([process], [], [], 0)[0] == []
        child.stdin.close()
        assert select.select([process], [], [], 30)[0] == [process]
        assert not os.get_inheritable(process.fileno())
        assert process.wait() == 5
        assert select.select([process], [], [], 30)[0] == [process]


@not_on_windows("signals")
@pytest.mark.kqueue
def test_signals_reach_the_process_until_it_has_exited(variant, start):
    child = start("sh", "-c", "trap 'exit 3' TERM; echo; while :; do sleep 0.01; done", stdout=-1)
    child.stdout.readline()
    with pidwait.Process(child.pid) as process:
        process.send_signal(0)
        process.terminate()
        assert process.wait() == 3
        # A zombie takes every signal without an error.
        for send in (process.terminate, process.kill, lambda: process.send_signal(0)):
            with pytest.raises(ProcessLookupError, match=str(child.pid)):
                send()
        assert state(child.pid) == "Z"


AUDITED = """if True:
    import signal, sys
    import {package} as pidwait
    seen = []

    def hook(event, args):
        if event == "os.kill":
            seen.append(args)
            if args[1] == signal.SIGTERM:
                raise PermissionError("on purpose")

    with pidwait.Process(int(sys.argv[1])) as process:
        process.has_exited()
        sys.addaudithook(hook)
        process.send_signal(0)
        try:
            process.terminate()
        except PermissionError as error:
            print(error, process.has_exited())
    # By polling, a look at whether there is a process is seen, too.
    print(set(seen) == {{(process.pid, 0), (process.pid, signal.SIGTERM)}})
"""


@pytest.mark.windows
@pytest.mark.skipif(not hasattr(sys, "addaudithook"), reason="audit hooks are new in Python 3.8")
def test_audit_hooks_see_each_signal_and_may_forbid_it(variant, sleeper):
    done = run_python(AUDITED.format(package=pidwait.__name__), str(sleeper.pid))
    assert done.stdout == "on purpose False\nTrue\n", done.stderr


@everywhere
@pytest.mark.parametrize(
    "sig, error",
    [(sig, TypeError) for sig in ("9", 9.0, None, True)]
    + [(sig, ValueError) for sig in (-1, signal.NSIG, 1000, 2**40)],
)
def test_what_is_no_signal_is_refused(sig, error):
    with pidwait.Process(os.getpid()) as process, pytest.raises(error, match="^sig must be"):
        process.send_signal(sig)


def test_a_signal_that_we_may_not_send_does_not_go_by_the_pid(by_pidfd, sleeper, seam):
    """The process may be another user's, and by then the pid may belong to one of ours."""
    real = table.get("pidfd_send_signal")

    def send(fd, sig):
        if sig:
            raise PermissionError(errno.EPERM, "on purpose")
        real(fd, sig)

    with pidwait.Process(sleeper.pid) as process:
        process.send_signal(0)
        seam.put("pidfd_send_signal", send)
        with pytest.raises(PermissionError):
            process.kill()
        assert not process.has_exited()
    assert sleeper.poll() is None


@everywhere
def test_a_closed_handle_can_not_be_used(variant, start_told):
    child = start_told(3)
    process = pidwait.Process(child.pid)
    assert not process.has_exited()
    process.close()
    process.close()
    child.stdin.close()
    become_zombie(child.pid)
    for use in (process.has_exited, process.wait, process.kill, process.fileno):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert process.pid == child.pid and process.exitcode is None
    assert "closed" in repr(process)


@everywhere
@pytest.mark.parametrize("way", [by_wait, by_wait_procs, by_set])
def test_no_wait_takes_a_closed_handle(variant, sleeper, way):
    """It does not go by the pid, which may be another process's by then."""
    process = pidwait.Process(sleeper.pid)
    process.close()
    with pytest.raises(ValueError, match="closed"):
        way(process)


@everywhere
@pytest.mark.parametrize("make", [pidwait.Process, pidwait.Child])
def test_a_closed_handle_tells_a_code_that_it_has_seen(variant, start, make):
    child = start(*exiting(3))
    process = make(child.pid)
    assert process.wait(30) == 3
    process.close()
    assert process.wait(0) == process.wait() == process.exitcode == 3
    assert pidwait.wait(process) == 3 and process.has_exited()
    if make is pidwait.Process and not WINDOWS:
        with pytest.raises(ValueError, match="closed"):
            process.wait(0, reap=True)
    else:
        child.returncode = 3


@everywhere
@pytest.mark.threads
@pytest.mark.parametrize("timeout", [None, 60])
def test_close_leaves_the_waits_of_other_threads_intact(variant, backend, start_told, timeout):
    child = start_told(4)
    process = pidwait.Process(child.pid)
    waiters = [Thread(process.wait, timeout).asleep() for _ in range(3)]
    fd = process.fileno() if backend in ("pidfd", "kqueue") else None
    process.close()
    for use in process.wait, process.has_exited:
        with pytest.raises(ValueError, match="closed"):
            use()
    assert fd is None or is_open(fd)
    child.stdin.close()
    assert [waiter.result() for waiter in waiters] == [4] * 3
    assert fd is None or not is_open(fd)
    assert process.exitcode == process.wait() == 4


@everywhere
@pytest.mark.threads
def test_several_threads_share_a_handle(variant, start_told):
    child = start_told(4)
    with pidwait.Process(child.pid) as process:
        waiters = [Thread(process.wait, timeout).asleep() for timeout in (None, 60, 60)]
        waiters += [Thread(process.wait, 60, reap=True).asleep() for _ in range(3)]
        child.stdin.close()
        assert [waiter.result() for waiter in waiters] == [4] * 6
    if not WINDOWS:
        with pytest.raises(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)
        child.returncode = 4


@everywhere
def test_a_handle_that_nobody_closed_warns(variant, sleeper):
    process = pidwait.Process(sleeper.pid)
    with pytest.warns(ResourceWarning, match=str(sleeper.pid)) as caught:
        del process
        gc.collect()
    if hasattr(sys, "getrefcount"):  # else the warning points to where the collector ran
        assert caught[0].filename == __file__


@everywhere
def test_handles_on_one_process_are_equal(variant, start):
    one, other = start(*sleeping(60)), start(*sleeping(60))
    with pidwait.Process(one.pid) as a, pidwait.Process(one.pid) as b:
        with pidwait.Process(other.pid) as c:
            assert a == b and hash(a) == hash(b)
            assert a != c and (a != b) is False
            assert a != one.pid and (a == one.pid) is False
            assert len({a, b, c}) == 2
            d, e = pidwait.Process(one.pid), pidwait.Process(other.pid)
            for process in d, e:
                process.close()
        assert a == d and d != e and c == e  # for the first time when they are closed
        one.kill()
        one.wait()
        assert a == b == d and a != c
    assert a == b and a == a and a != c


def test_handles_are_equal_where_all_pidfds_have_one_inode(by_pidfd, start, monkeypatch):
    """As before Linux 6.9: the pid and the start time count then."""
    fstat, child, other = os.fstat, start(*sleeping(60)), start(*sleeping(60))

    def shared(fd):
        link = os.readlink("/proc/self/fd/%d" % fd) if isinstance(fd, int) else ""
        return fstat(epoll.fileno() if "pidfd" in link else fd)

    with select.epoll() as epoll, monkeypatch.context() as patched:
        patched.setattr(os, "fstat", shared)
        table.forget()
        a, b, c = map(pidwait.Process, (child.pid, child.pid, other.pid))
    assert a == b and hash(a) == hash(b) and a != c
    for process in a, b, c:
        process.close()


@everywhere
def test_a_handle_is_not_copied(variant, sleeper):
    with pidwait.Process(sleeper.pid) as process:
        for make in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="a Process can't be pickled or copied"):
                make(process)


@pytest.fixture
def pidfd_of(by_pidfd):
    """pidfd_of(pid, flags) opens one without pidwait."""
    from ..trouble import system

    if system.libc is None:
        pytest.skip(system.WHY_NO_CALLS)
    return system.pidfd_open


def test_from_fd_takes_a_pidfd_over(pidfd_of, start_told):
    child = start_told(4)
    fd = pidfd_of(child.pid)
    os.set_inheritable(fd, True)
    with pidwait.Process.from_fd(fd) as process, pidwait.Process(child.pid) as other:
        assert (process.pid, process.fileno(), process.backend) == (child.pid, fd, "pidfd")
        assert process == other and hash(process) == hash(other)
        assert not os.get_inheritable(fd)
        assert not process.has_exited()
        waiter = Thread(process.wait).asleep()
        child.stdin.close()
        assert waiter.result() == process.wait(reap=True) == 4
        child.returncode = 4
    assert not is_open(fd)


def test_from_fd_of_stdin(pidfd_of, start_told):
    """A pidfd may be fd 0, in a program that has closed its stdin."""
    child, stdin = start_told(4), os.dup(0)
    fd = pidfd_of(child.pid)
    try:
        os.dup2(fd, 0)
        with pidwait.Process.from_fd(0) as process:
            assert (process.fileno(), process.pid) == (0, child.pid)
            process.kill()
            assert process.wait(30) == -9
        assert not is_open(0)
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(fd)


def test_from_fd_of_a_process_that_has_been_reaped(pidfd_of, start):
    child = start(*exiting(4))
    fd = pidfd_of(child.pid)
    child.wait()
    with pidwait.Process.from_fd(fd) as process:
        assert process.pid is None
        assert process.wait() in (4, None) and process.has_exited()
        with pytest.raises(ProcessLookupError):
            process.kill()


@pytest.mark.parametrize("way", [by_wait, by_wait_procs, by_set])
def test_from_fd_of_a_reaped_process_tells_its_code_after_close(pidfd_of, start, way):
    child = start(*exiting(4))
    fd = pidfd_of(child.pid)
    child.wait()
    with pidwait.Process.from_fd(fd) as process:
        code = process.wait()
    assert process.pid is None and way(process) == code


def test_from_fd_of_a_reaped_process_hashes_as_its_equals(pidfd_of, start):
    child = start(*exiting(4))
    fd = pidfd_of(child.pid)
    with pidwait.Process(child.pid) as other:
        child.wait()
        with pidwait.Process.from_fd(fd) as process:
            assert (process.pid, other.pid) == (None, child.pid)
            # Before Linux 6.9 all pidfds have one inode: they can't be told to be equal.
            is_told = pidwait.probe()["calls"]["pidfd inodes"]["available"]
            assert (process == other) is is_told
            assert len({process, other}) == (1 if is_told else 2)


def test_from_fd_of_a_thread_is_a_value_error(pidfd_of):
    """It says nothing about the process."""
    try:
        fd = pidfd_of(os.getpid(), os.O_EXCL)  # PIDFD_THREAD
    except OSError as error:
        pytest.skip("before Linux 6.9 threads have no pidfds: %s" % error)
    with pytest.raises(ValueError, match="fd %d is the pidfd of a thread" % fd):
        pidwait.Process.from_fd(fd)
    os.close(fd)  # it is still open, and the caller's


def test_from_fd_of_what_is_no_pidfd_is_refused(by_pidfd):
    for fd in True, 1.0, "1", None:
        with pytest.raises(TypeError, match="^fd must be"):
            pidwait.Process.from_fd(fd)
    with pytest.raises(ValueError, match="^fd is not a file descriptor: -1"):
        pidwait.Process.from_fd(-1)
    ends = os.pipe()
    for fd in ends:
        os.set_inheritable(fd, True)
        with pytest.raises(ValueError, match="^fd %d is not a pidfd" % fd):
            pidwait.Process.from_fd(fd)
        assert os.get_inheritable(fd)  # it is still the caller's
        os.close(fd)
    with pytest.raises(OSError) as caught:
        pidwait.Process.from_fd(ends[0])
    assert caught.value.errno == errno.EBADF
