# SPDX-License-Identifier: BSD-3-Clause
"""Process: a handle."""

import copy
import errno
import gc
import io
import os
import pickle
import select
import signal
import sys
import threading
import warnings

import pytest

from . import pidwait
from .processes import (
    WINDOWS,
    become_zombie,
    eventually,
    exiting,
    gone_pid,
    is_open,
    not_on_windows,
    sleeping,
    state,
)


def test_attributes(variant, backend, sleeper):
    with pidwait.Process(sleeper.pid) as process:
        assert process.pid == sleeper.pid
        assert process.backend == backend
        assert process.exitcode is None
        assert not process.has_exited()
        assert repr(sleeper.pid) in repr(process) and backend in repr(process)


def test_wait(variant, start_told):
    child = start_told(7)
    with pidwait.Process(child.pid) as process:
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0)
        child.stdin.close()
        assert process.wait() == 7
        assert process.exitcode == 7
        assert process.has_exited()
        assert state(child.pid) == "Z"
        assert process.wait(0, reap=True) == 7
        assert state(child.pid) == ("Z" if WINDOWS else None)
        assert process.wait(0) == 7


def test_exited_finds_the_exit_code(variant, start):
    child = start(*exiting(2))
    with pidwait.Process(child.pid) as process:
        become_zombie(child.pid)
        assert process.has_exited()
        assert process.exitcode == 2


def test_wait_of_a_process_object(variant, start):
    child = start(*exiting(3))
    with pidwait.Process(child.pid) as process:
        assert pidwait.wait(process, 30) == 3
        assert process.exitcode == 3


def test_no_such_process(variant):
    with pytest.raises(ProcessLookupError) as caught:
        pidwait.Process(gone_pid())
    assert "pid" in str(caught.value)


def test_survives_the_reaping(variant, start):
    child = start(*exiting(0, after=0.02))
    with pidwait.Process(child.pid) as process:
        child.wait()
        assert process.wait(30) in (0, None)
        assert process.has_exited()


def test_fileno(variant, backend, start, sleeper):
    child = start(*exiting(0, after=0.05))
    with pidwait.Process(child.pid) as process:
        if backend not in ("pidfd", "kqueue"):
            with pytest.raises(io.UnsupportedOperation):
                process.fileno()
            return
        assert select.select([process], [], [], 30)[0] == [process]
        assert not os.get_inheritable(process.fileno())


@not_on_windows("signals")
def test_signals(variant, start):
    child = start("sh", "-c", "trap 'exit 3' TERM; echo; while :; do sleep 0.01; done", stdout=-1)
    child.stdout.readline()
    with pidwait.Process(child.pid) as process:
        process.send_signal(0)
        process.terminate()
        assert process.wait() == 3
        for send in (process.terminate, process.kill, lambda: process.send_signal(0)):
            with pytest.raises(ProcessLookupError):
                send()
    child = start(*sleeping(60))
    with pidwait.Process(child.pid) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL


@not_on_windows("limit of file descriptors")
def test_open_handle_needs_no_more_file_descriptors(variant, backend, keeper):
    import resource

    if backend == "polling" and "kqueue" in pidwait.probe()["backends"]:
        pytest.skip("only ps shows somebody else's zombie, and it needs file descriptors")
    pid = keeper.start(*sleeping(60))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pidwait.Process(pid) as process:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free_fd(), limits[1]))
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                os.dup(0)
            with pytest.raises(pidwait.TimeoutExpired):
                process.wait(0.01)
            process.kill()
            # Now we can't check whether a status of 0 in /proc is real, nor read a zombie's.
            assert process.wait(30) in (-signal.SIGKILL, None)
            assert process.has_exited()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert keeper.reap(pid) == signal.SIGKILL


def lowest_free_fd():
    fd = os.dup(0)
    os.close(fd)
    return fd


def test_closed(variant, sleeper):
    process = pidwait.Process(sleeper.pid)
    process.close()
    process.close()
    for use in (process.has_exited, process.wait, process.kill, process.fileno):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert process.pid == sleeper.pid and process.exitcode is None
    assert "closed" in repr(process)


def test_close_leaves_a_wait_intact(variant, start_told):
    child = start_told(4)
    process = pidwait.Process(child.pid)
    codes = []
    waiter = threading.Thread(target=lambda: codes.append(process.wait()))
    waiter.start()
    eventually(lambda: len(process._guard._users) == 1)
    process.close()
    with pytest.raises(ValueError, match="closed"):
        process.wait()
    child.stdin.close()
    waiter.join()
    assert codes == [4]


def test_closed_handles_are_equal_as_before(variant, sleeper):
    """They are compared for the first time when the system can't be asked any more."""
    first, second = pidwait.Process(sleeper.pid), pidwait.Process(sleeper.pid)
    other = pidwait.Process(os.getpid())
    for process in (first, second, other):
        process.close()
    assert first == second and first != other


def test_forgotten_close_warns(variant, sleeper):
    process = pidwait.Process(sleeper.pid)
    with pytest.warns(ResourceWarning, match=str(sleeper.pid)) as caught:
        del process
        gc.collect()
    if hasattr(sys, "getrefcount"):  # else the warning points to where the collector ran
        assert caught[0].filename == __file__


def test_failed_construction_does_not_warn(variant):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ProcessLookupError):
            pidwait.Process(gone_pid())
        gc.collect()


def test_equal_by_process(variant, start):
    one, other = start(*sleeping(60)), start(*sleeping(60))
    with pidwait.Process(one.pid) as a, pidwait.Process(one.pid) as b:
        with pidwait.Process(other.pid) as c:
            assert a == b and hash(a) == hash(b)
            assert a != c
            assert a != one.pid and (a == one.pid) is False
            assert len({a, b, c}) == 2
        one.kill()
        one.wait()
        assert a == b
    assert a == b
    assert a == a


def test_not_copied(variant, sleeper):
    with pidwait.Process(sleeper.pid) as process:
        for make in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match="handle"):
                make(process)


@not_on_windows("fork")
def test_forked_copy(variant, start):
    child = start(*exiting(6, after=0.1))
    with pidwait.Process(child.pid) as process:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                # It is not this fork's child, so its code may be unknown.
                status = 0 if process.wait(30) in (6, None) and process.has_exited() else 2
                process.close()
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert process.wait() == 6


@not_on_windows("fork")
def test_fork_while_another_thread_waits(variant, sleeper):
    process = pidwait.Process(sleeper.pid)
    waiter = threading.Thread(target=lambda: process.wait())
    waiter.start()
    eventually(lambda: len(process._guard._users) == 1)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            fd = process.fileno() if process.backend == "pidfd" else None
            process.close()
            status = 2 if fd is not None and is_open(fd) else 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    sleeper.kill()
    waiter.join()
    process.close()


@pytest.mark.parametrize("make", [pidwait.Process, pidwait.Child])
def test_closed_with_a_known_code(variant, start_told, make):
    """A closed handle still tells the code that it knows, but can't look for an unknown one."""
    child = start_told(3)
    process, unseen = make(child.pid), pidwait.Process(child.pid)
    unseen.close()
    child.stdin.close()
    assert process.wait(30) == 3
    process.close()
    assert process.wait(0) == process.wait() == process.exitcode == 3
    assert process.has_exited()
    for ask in unseen.wait, unseen.has_exited:
        with pytest.raises(ValueError, match="closed"):
            ask()
    child.returncode = 3
    if make is pidwait.Process and not WINDOWS:
        with pytest.raises(ValueError, match="closed"):
            process.wait(0, reap=True)
        os.waitpid(child.pid, 0)
