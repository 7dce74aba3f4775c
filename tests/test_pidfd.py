# SPDX-License-Identifier: BSD-3-Clause
"""pidfds: what still works where a call is missing, and exit codes that come late."""

import errno
import importlib
import io
import os
import select
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from . import pidwait
from .conftest import not_on_kqueue
from .events import VARIANT
from .processes import (
    become_zombie,
    eventually,
    exiting,
    gone_pid,
    interrupted_by,
    not_on_windows,
    sleeping,
    state,
)
from .test_engine import refuse

Deadline = importlib.import_module(pidwait.__name__ + "._deadline").Deadline
outcome = importlib.import_module(pidwait.__name__ + "._outcome")
RUNNING = outcome.RUNNING
calls = importlib.import_module(pidwait.__name__ + "._ffi.calls")
checks = importlib.import_module(pidwait.__name__ + "._checks")
exitcodes = importlib.import_module(pidwait.__name__ + "._sources.exitcodes")
linux = importlib.import_module(pidwait.__name__ + "._ffi.linux")
process_module = importlib.import_module(pidwait.__name__ + ".process")
pidfd = importlib.import_module(pidwait.__name__ + "._backends.pidfd")
pidfd_set = importlib.import_module(pidwait.__name__ + "._backends.pidfd_set")
pidfd_wait = importlib.import_module(pidwait.__name__ + "._backends.pidfd_wait")
polled_procfs = importlib.import_module(pidwait.__name__ + "._backends.polled_procfs")
polling = importlib.import_module(pidwait.__name__ + "._backends.polling")
procfs = importlib.import_module(pidwait.__name__ + "._sources.procfs")

pytestmark = [not_on_windows("pidfds"), not_on_kqueue]


@pytest.fixture
def lacking(use_variant, monkeypatch):
    """lacking(names...) makes calls fail as on a system without them; "/proc" can be a name."""
    use_variant("pidfd-ctypes")
    pidwait.probe()

    def lacking(*names):
        def missing(*arguments):
            raise OSError(errno.ENOSYS, "not there")

        for name in names:
            if name == "/proc":
                monkeypatch.setitem(checks._answers, procfs.check, OSError(errno.ENOENT, "hidden"))
            else:
                monkeypatch.setitem(calls._resolved, name, missing)
        for check in (pidfd.check_send_signal, pidfd.check_get_info):
            checks._answers.pop(check, None)

    return lacking


def test_signal_that_goes_by_the_pid_reaps_nothing(lacking, start):
    lacking("pidfd_send_signal")
    child = start(*exiting(3))
    handle = pidfd.PidfdHandle(child.pid)
    try:
        become_zombie(child.pid)
        with pytest.raises(ProcessLookupError):
            handle.send_signal(9)
    finally:
        handle.close()
    assert state(child.pid) == "Z"
    assert child.wait() == 3


def test_pidfd_from_elsewhere_whose_pid_is_unknown(lacking, start_told):
    child = start_told(4)
    file = pidfd.open_pidfd(child.pid)
    fd = os.dup(file.fileno())
    file.close()
    lacking("/proc", "ioctl")
    with pidwait.Process.from_fd(fd) as process:
        assert process.pid is None
        assert not process.has_exited()
        child.stdin.close()
        assert process.wait(30) == 4


def test_pidfd_from_elsewhere_that_is_stdin(use_variant, start_told):
    """A pidfd may be fd 0, in a program that has closed its stdin."""
    use_variant("pidfd-ctypes")
    child, stdin = start_told(4), os.dup(0)
    try:
        file = pidfd.open_pidfd(child.pid)
        os.dup2(file.fileno(), 0)
        file.close()
        with pidwait.Process.from_fd(0) as process:
            assert (process.fileno(), process.pid) == (0, child.pid)
            child.stdin.close()
            assert process.wait(30) == 4
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)


def test_pid_that_only_the_pidfd_tells(lacking, start_told):
    child = start_told(4)
    file = pidfd.open_pidfd(child.pid)
    fd = os.dup(file.fileno())
    file.close()
    lacking("/proc")
    with pidwait.Process.from_fd(fd) as process:
        assert process.pid == (child.pid if checks.works(pidfd.check_get_info) else None)
        child.stdin.close()
        assert process.wait(30) == 4


@pytest.mark.parametrize("pid", [0, -1, 1], ids=["in another namespace", "reaped", "init"])
def test_pidfd_without_a_pid(use_variant, sleeper, monkeypatch, pid):
    use_variant("pidfd-ctypes")
    monkeypatch.setattr(procfs, "fd_info", lambda fd: {"Pid": str(pid), "flags": "02"})
    file = pidfd.open_pidfd(sleeper.pid)
    with pidwait.Process.from_fd(os.dup(file.fileno())) as process:
        assert process.pid == (1 if pid == 1 else None)
    file.close()


def test_pidfd_of_a_thread(use_variant, sleeper, monkeypatch):
    """It says nothing about the process, and stays open."""
    use_variant(VARIANT)
    monkeypatch.setattr(procfs, "fd_info", lambda fd: {"Pid": "7", "flags": "0202"})
    file = pidfd.open_pidfd(sleeper.pid)
    with pytest.raises(ValueError, match="fd %d is the pidfd of a thread" % file.fileno()):
        pidwait.Process.from_fd(file.fileno())
    os.fstat(file.fileno())
    file.close()


def test_pidfd_from_elsewhere_is_not_inherited(use_variant, sleeper):
    """It may have been inherited itself."""
    use_variant(VARIANT)
    file = pidfd.open_pidfd(sleeper.pid)
    fd = os.dup(file.fileno())
    file.close()
    os.set_inheritable(fd, True)
    with pidwait.Process.from_fd(fd):
        assert not os.get_inheritable(fd)


def test_pidfd_in_another_namespace_without_proc(lacking, sleeper, monkeypatch):
    lacking("/proc")
    monkeypatch.setattr(exitcodes, "get_info", lambda fd: (0, 0, 0, 0, 0))
    file = pidfd.open_pidfd(sleeper.pid)
    with pidwait.Process.from_fd(os.dup(file.fileno())) as process:
        assert process.pid is None
    file.close()


def test_pidfd_of_another_user_without_proc(lacking, sleeper, monkeypatch):
    lacking("/proc", "ioctl")
    file = pidfd.open_pidfd(sleeper.pid)
    fd = os.dup(file.fileno())
    refuse(monkeypatch, "pidfd_send_signal", lambda number, sig: number == fd)
    with pidwait.Process.from_fd(fd) as process:
        assert process.pid is None
    file.close()


def test_pidfd_of_which_the_system_tells_nothing(lacking, sleeper):
    """Whether it is one can't be told then, and that is not its fault."""
    lacking("/proc", "ioctl", "pidfd_send_signal")
    file = pidfd.open_pidfd(sleeper.pid)
    with pytest.raises(OSError) as caught:
        pidwait.Process.from_fd(file.fileno())
    assert caught.value.errno == errno.ENOSYS
    file.close()


@pytest.mark.parametrize("names", [("/proc",), ("/proc", "ioctl")])
def test_other_files_are_no_pidfds(lacking, names):
    lacking(*names)
    reader, writer = os.pipe()
    try:
        with pytest.raises(ValueError, match="fd %d is not a pidfd" % reader):
            pidwait.Process.from_fd(reader)
    finally:
        os.close(reader), os.close(writer)


def test_signal_that_is_refused_does_not_go_by_the_pid(lacking, sleeper, monkeypatch):
    """The process may be another user's, and by then the pid may belong to one of ours."""
    lacking()
    refuse(monkeypatch, "pidfd_send_signal", lambda fd, sig: sig != 0)
    with pidwait.Process(sleeper.pid) as process:
        with pytest.raises(PermissionError):
            process.kill()
        assert not process.has_exited()
    assert sleeper.poll() is None


def test_child_that_is_waited_for_is_not_polled(lacking, start_told, monkeypatch):
    """waitid(2) sleeps by itself, which saves three calls."""
    lacking()
    child = start_told(5)
    own = calls.get("waitid")
    asked = []

    def waitid(idtype, id_, options):
        asked.append((idtype, options & linux.WNOHANG))
        if len(asked) == 2:
            child.stdin.close()
        return own(idtype, id_, options)

    monkeypatch.setitem(calls._resolved, "waitid", waitid)
    monkeypatch.setattr(pidfd, "poll", None)
    assert pidwait.wait(child) == child.returncode == 5
    assert asked[:2] == [(linux.P_PID, linux.WNOHANG), (linux.P_PIDFD, 0)]


def test_what_the_kernel_lacks_is_asked_once(lacking, keeper, monkeypatch):
    lacking("ioctl")
    missing, asked = calls.get("ioctl"), []

    def ioctl(*arguments):
        asked.append(arguments)
        missing()

    monkeypatch.setitem(calls._resolved, "ioctl", ioctl)
    for code in 3, 4:
        pid = keeper.start(*exiting(code))
        assert pidwait.wait(pid) in (code, None)
        keeper.reap(pid)
    assert len(asked) == 1


def test_identity_while_no_file_descriptor_is_left(use_variant, monkeypatch, sleeper):
    """Whether pidfds have inodes of their own can't be found out then: they may all share one."""
    use_variant("pidfd-ctypes")

    def no_fd(handle):
        raise OSError(errno.EMFILE, "no fds")

    monkeypatch.setattr(pidfd, "_check_inode", no_fd)
    monkeypatch.delitem(checks._answers, pidfd.check_pidfs, raising=False)
    with pidwait.Process(sleeper.pid) as process, pidwait.Process(sleeper.pid) as same:
        assert process._identity[:2] == ("start", sleeper.pid)
        assert process == same


def test_identity_of_a_pidfd_that_somebody_else_has_closed(use_variant, monkeypatch, sleeper):
    """There is a Process all the same, and the pid and the start time tell it from others."""
    use_variant("pidfd-ctypes")
    pidwait.Process(sleeper.pid).close()  # finds out whether pidfds have inodes
    real = os.fstat

    def closed(fd):
        if "pidfd" in os.readlink("/proc/self/fd/%d" % fd):
            raise OSError(errno.EBADF, "closed")
        return real(fd)

    monkeypatch.setattr(os, "fstat", closed)
    with pidwait.Process(sleeper.pid) as process, pidwait.Process(os.getpid()) as other:
        assert process._identity[:2] == ("start", sleeper.pid)
        assert process != other and not process.has_exited()


@pytest.fixture
def executing(use_variant, monkeypatch):
    """executing() has another thread call execve(2) as poll looks, which then tells an exit."""
    use_variant("pidfd-ctypes")
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    lies, real = [], pidfd.poll

    def poll(*arguments):
        return lies.pop() if lies else real(*arguments)

    monkeypatch.setattr(pidfd, "poll", poll)
    monkeypatch.setattr(pidfd_set, "poll", poll)
    return lambda: lies.append(select.POLLIN)


@pytest.mark.parametrize("is_ours", [False, True])
def test_thread_that_becomes_the_main_one(executing, is_ours, sleeper, keeper):
    pid = sleeper.pid if is_ours else keeper.start(*sleeping(60))
    with pidwait.Process(pid) as process:
        executing()
        assert not process.has_exited()
        executing()
        with pytest.raises(pidwait.TimeoutExpired):
            process.wait(0.05)


def test_thread_that_becomes_the_main_one_of_a_child_to_be_reaped(executing, sleeper):
    handle = pidfd.PidfdHandle(sleeper.pid)
    executing()
    try:
        assert handle.wait(Deadline(0.05), True) is RUNNING
    finally:
        handle.close()


def test_thread_that_becomes_the_main_one_in_a_set(executing, keeper):
    pid = keeper.start(*sleeping(60))
    with pidwait.WaitSet([pid]) as waiting:
        engine = waiting._engine
        (member,) = engine.members.values()
        engine.sets.best._events.append((member.ticket.fileno(), select.POLLIN))
        engine.sets.best._epoll.modify(member.ticket.fileno(), pidfd_set._ONESHOT)  # it was told
        executing()
        engine.collect([])
        assert member in engine.sets.best and not engine.sets.best._fading
        executing()
        assert not engine.sets.best.has_exited(member)
        assert waiting.wait(0.05) == []
        os.kill(pid, signal.SIGKILL)
        assert [pid for pid, _ in waiting.wait(20)] == [pid]


@pytest.mark.parametrize("ago, timeout", [(0, 0.05), (3600, 3600)], ids=["now", "long_ago"])
def test_stranger_with_a_thread_that_becomes_the_main_one(
    use_variant, monkeypatch, keeper, ago, timeout
):
    """The wait goes on, and still has its own time-out."""
    use_variant("pidfd-ctypes")
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    lies, real = [select.POLLIN], select.poll

    class Poll:
        def __init__(self):
            self._poll = real()

        def register(self, fd, events):
            self._fd = fd
            self._poll.register(fd, events)

        def poll(self, *timeout):
            return [(self._fd, lies.pop())] if lies else self._poll.poll(*timeout)

    names = {"POLLIN": select.POLLIN, "POLLHUP": select.POLLHUP}
    monkeypatch.setattr(pidfd_wait, "select", SimpleNamespace(poll=Poll, **names))
    # When it began.
    monkeypatch.setattr(process_module, "monotonic", lambda: time.monotonic() - ago)
    with pytest.raises(pidwait.TimeoutExpired):
        pidwait.wait(keeper.start(*sleeping(60)), timeout)
    assert not lies


@pytest.mark.parametrize("timeout", [None, 60, 60.0])
def test_own_child_by_its_pid_needs_no_handle(use_variant, monkeypatch, start, timeout):
    use_variant("pidfd-ctypes")
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    child = start(*sleeping(0.3))
    with monkeypatch.context() as patched:
        patched.setattr(pidfd, "PidfdHandle", None)
        assert pidwait.wait(child.pid, timeout) == 0
        assert pidwait.wait(child.pid, timeout, True) == 0
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)


def test_each_process_is_asked_in_one_way(use_variant, monkeypatch, keeper, start):
    """A stranger's pid once whether it is our child; the members of a set as the one before."""
    use_variant("pidfd-ctypes")
    pid = keeper.start(*exiting(3))
    assert pidwait.wait(pid, 60) in (3, None)
    asked, waitid = [], calls.get("waitid")

    def noting(*arguments):
        asked.append(arguments[0])
        return waitid(*arguments)

    monkeypatch.setitem(calls._resolved, "waitid", noting)
    assert pidwait.wait(pid, 60) in (3, None)
    assert asked == [linux.P_PIDFD]
    with pidwait.Process(pid) as process:
        del asked[:]
        assert process.wait() in (3, None)
        assert asked == [linux.P_PIDFD]
    children = [start(*exiting(3)).pid, start(*exiting(4)).pid]
    with pidwait.WaitSet(children) as waiting:
        waiting._engine.sets.best._ioctl = lambda *arguments: asked.append("ioctl")
        assert dict(pidwait.as_completed(children)) == dict(zip(children, (3, 4)))
        del asked[:]
        assert sorted(waiting.wait()) == sorted(zip(children, (3, 4)))
        assert asked == [linux.P_PIDFD] * 2


@pytest.mark.parametrize("reap", [False, True])
def test_pidfd_that_somebody_else_closes_during_the_wait(use_variant, monkeypatch, start, reap):
    """The close() of Python 3.15 then raises; the exit code is not lost by that."""
    use_variant("pidfd-ctypes")
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    real = pidfd_wait.own
    opened = []

    class Owner:
        def __init__(self, fd):
            self.file = real(fd)
            self.fileno = self.file.fileno
            opened.append(self)

        def close(self):
            self.file.close()
            raise OSError(errno.EBADF, "closed")

    monkeypatch.setattr(pidfd_wait, "own", Owner)
    assert pidwait.wait(start(*exiting(3)).pid, 60, reap) == 3
    assert len(opened) == 1 and opened[0].file.closed


@pytest.mark.parametrize("timeout", [None, 60])
def test_pidfd_that_somebody_else_closes_before_the_wait(use_variant, monkeypatch, start, timeout):
    use_variant("pidfd-ctypes")
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    real = pidfd.open_pidfd

    def closed(pid):
        file = real(pid)
        fd = file.fileno()
        file.close()
        return SimpleNamespace(fileno=lambda: fd, close=lambda: None)

    monkeypatch.setattr(pidfd, "open_pidfd", closed)
    assert pidwait.wait(start(*sleeping(0.1)).pid, timeout, True) == 0


@pytest.mark.parametrize("timeout", [None, 60])
def test_pidfd_that_somebody_else_closes_before_poll(use_variant, monkeypatch, start, timeout):
    """That is no exit."""
    use_variant(VARIANT)
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    real = pidfd_wait.own

    def closed(fd):
        real(fd).close()
        return SimpleNamespace(fileno=lambda: fd, close=lambda: None)

    monkeypatch.setattr(pidfd_wait, "own", closed)
    assert pidwait.wait(start(*sleeping(0.1)).pid, timeout, True) == 0


def test_errors_that_are_not_the_systems(use_variant, monkeypatch, sleeper):
    """They end the wait; after another one the handle goes on."""
    use_variant(VARIANT)
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    names = {"POLLIN": select.POLLIN, "POLLHUP": select.POLLHUP}

    class Poll:
        def register(self, fd, events):
            pass

        def poll(self, timeout):
            raise MemoryError

    monkeypatch.setattr(pidfd_wait, "select", SimpleNamespace(poll=Poll, **names))
    with pytest.raises(MemoryError):
        pidfd_wait.wait_or_open(sleeper.pid, 60, False)
    with interrupted_by(OSError(errno.ENOMEM, "on purpose")) as interrupted:
        monkeypatch.setattr(Poll, "poll", interrupted)
        with pytest.raises(OSError, match="on purpose"):
            pidfd_wait.wait_or_open(sleeper.pid, 60, False)


def test_what_poll_told_is_not_asked_again(use_variant, monkeypatch, sleeper):
    """That it has been reaped, say: its pid may be another one's by now."""
    use_variant(VARIANT)
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    names = {"POLLIN": select.POLLIN, "POLLHUP": select.POLLHUP}

    class Poll:
        def register(self, fd, events):
            self._fd = fd

        def poll(self, timeout):
            return [(self._fd, select.POLLIN | select.POLLHUP)]

    with monkeypatch.context() as patched:
        patched.setattr(pidfd_wait, "select", SimpleNamespace(poll=Poll, **names))
        patched.setitem(calls._resolved, "waitid", None)
        handle = pidfd_wait.wait_or_open(sleeper.pid, 60, False)
        patched.setattr(handle, "get_info", lambda: (True, 9))
        assert handle.wait(Deadline(0), False) == 9
    handle.close()


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EPERM])
def test_child_is_reaped_where_waitid_is_refused(lacking, monkeypatch, start, code):
    """As on Linux 5.3, whose waitid(2) takes no pidfd, or by a policy."""
    lacking("ioctl")
    child = start(*exiting(3))

    def refuse(*arguments):
        raise OSError(code, "on purpose")

    monkeypatch.setitem(calls._resolved, "waitid", refuse)
    assert pidwait.wait(child.pid, 60, True) == 3
    assert state(child.pid) is None


def test_child_that_can_not_be_reaped_yet(use_variant, monkeypatch, start):
    """Where a tracer prevents it, say, waitid(2) finds nothing."""
    use_variant(VARIANT)
    assert pidwait.pid_exists(os.getpid())  # the checks are made
    child, waitid, answers = start(*exiting(3)), calls.get("waitid"), [None] * 3

    def nothing_at_first(*arguments):
        return answers.pop() if answers else waitid(*arguments)

    become_zombie(child.pid)
    monkeypatch.setitem(calls._resolved, "waitid", nothing_at_first)
    handle = pidfd_wait.wait_or_open(child.pid, 60, True)
    try:
        with pytest.raises(outcome.NotYet):
            handle.wait(Deadline(0), True)
        assert handle.wait(Deadline(0), False) == 3  # to look, /proc is enough
        assert not answers and handle.wait(Deadline(0), True) == 3
        assert state(child.pid) is None
        assert handle.wait(Deadline(0), True) in (3, None)
    finally:
        handle.close()


def test_child_that_exits_after_poll_has_told_an_exit(executing, start_told, monkeypatch):
    """It is left to its owner."""
    child = start_told(3)
    handle = pidfd.PidfdHandle(child.pid)

    def seems_exited():
        child.stdin.close()
        return False

    monkeypatch.setattr(handle, "seems_exited", seems_exited)
    executing()
    try:
        assert handle.wait(Deadline(60), False) == 3
    finally:
        handle.close()
    assert child.wait() == 3


@pytest.mark.parametrize("is_child", [False, True])
@pytest.mark.parametrize("code", [0, 3, -9])
def test_child_by_its_handle(use_variant, start_told, is_child, code):
    use_variant(VARIANT)
    child = start_told(code)
    handle = pidfd.PidfdHandle(child.pid)
    handle.is_child = is_child
    try:
        for reap in False, True:
            assert handle.wait(Deadline(0.001), reap) is RUNNING
        child.stdin.close()
        assert handle.wait(Deadline(60), False) == code and state(child.pid) == "Z"
        assert handle.wait(Deadline(60), True) == code and state(child.pid) is None
    finally:
        handle.close()


def test_error_of_a_signal_handler_is_no_reason_to_poll(use_variant, sleeper, monkeypatch):
    use_variant(VARIANT)
    handle = pidfd.PidfdHandle(sleeper.pid)
    try:
        with interrupted_by(OSError(errno.ENOMEM, "on purpose")) as interrupted:
            monkeypatch.setattr(pidfd, "poll", interrupted)
            with pytest.raises(OSError, match="on purpose"):
                handle.wait(Deadline(60), False)
        assert handle.backend == "pidfd"
    finally:
        handle.close()


@pytest.fixture
def handle():
    """A handle whose answers a test can script."""
    return pidfd.PidfdHandle(gone_pid(), SimpleNamespace(fileno=lambda: 99, close=lambda: None))


@pytest.mark.parametrize(
    "info, in_proc, is_reaped, code",
    [
        (None, None, False, None),
        (None, 7, False, 7),
        (None, 7, True, None),  # what /proc shows may be another process
        (None, 7, None, None),
        ((True, 9), None, True, 9),
        ((True, 9), 7, True, 9),
        ((False, None), 7, False, 7),
    ],
)
def test_code_of_a_stranger(handle, monkeypatch, info, in_proc, is_reaped, code):
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: in_proc)
    handle.get_info, handle._is_reaped = lambda: info, lambda: is_reaped
    handle.seems_exited = lambda: True
    assert handle._code_of_other(False, Deadline(0)) == code


@pytest.mark.parametrize("event, code", [(0, None), (select.POLLHUP, 9)])
def test_code_of_a_stranger_that_is_about_to_be_reaped(handle, monkeypatch, event, code):
    """Only the reaping ends that last moment: it has been a zombie all the time."""
    masks, infos = [], [(True, 9), (False, None)]

    def poll(fd, mask, deadline):
        masks.append(mask)
        return event

    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    monkeypatch.setattr(pidfd, "poll", poll)
    handle.get_info, handle.seems_exited = infos.pop, lambda: True
    assert handle._code_of_other(False, Deadline(60)) == code
    assert masks == [0]


def test_code_that_the_kernel_does_not_keep(handle):
    handle.get_info = lambda: None
    assert handle._code_of_other(True, Deadline(0)) is None


def test_exit_is_not_doubted_where_poll_fails(handle):
    assert handle.seems_exited() is True  # 99 is no file descriptor


@pytest.mark.parametrize(
    "info, in_proc, has_no_task",
    [
        ((True, None), 5, True),
        ((False, None), -1, False),
        (None, 5, False),
        (None, 1, False),
        (None, 0, False),  # it is in another namespace
        (None, -1, True),
        (None, None, None),
    ],
)
def test_whether_it_has_been_reaped_without_a_signal(
    handle, monkeypatch, info, in_proc, has_no_task
):
    def fd_info(fd):
        return {} if in_proc is None else {"Pid": str(in_proc)}

    def send(fd, sig):
        raise OSError(errno.ENOSYS, "on purpose")

    handle.get_info = lambda: info
    monkeypatch.setattr(procfs, "fd_info", fd_info)
    monkeypatch.setitem(calls._resolved, "pidfd_send_signal", send)
    assert handle._is_reaped() is has_no_task


@pytest.mark.parametrize("error, is_reaped", [(None, False), (errno.ESRCH, True), (errno.EPERM, 0)])
def test_whether_it_has_been_reaped(handle, monkeypatch, error, is_reaped):
    """A signal that can not be sent to another user's process tells it, too."""

    def send(fd, sig):
        assert (fd, sig) == (99, 0)
        if error is not None:
            raise OSError(error, "on purpose")

    monkeypatch.setitem(calls._resolved, "pidfd_send_signal", send)
    monkeypatch.setattr(checks, "still_works", lambda check: True)
    handle._has_no_task = lambda: None
    assert handle._is_reaped() is bool(is_reaped)


def test_forbidden_signal_proves_that_a_process_is_there(monkeypatch):
    """But not where a policy forbids all signals."""
    for works in True, False:
        monkeypatch.setattr(checks, "still_works", lambda check, works=works: works)
        for code in errno.EPERM, errno.EINVAL:
            forbidden = pidfd.is_forbidden(OSError(code, "on purpose"))
            assert forbidden is (works and code == errno.EPERM)


def test_signal_where_only_the_pidfd_is_known(use_variant, sleeper):
    use_variant(VARIANT)
    handle = pidfd.PidfdHandle(sleeper.pid)
    handle.pid = None  # in another PID namespace
    handle.send_signal(signal.SIGKILL)
    handle.close()
    assert sleeper.wait() == -9


def test_pid_that_went_to_another_process_before_it_is_polled(handle, monkeypatch):
    """The pidfd is asked once the process with the pid is known."""
    order = []

    def poll(*arguments):
        raise OSError(errno.ENOMEM, "on purpose")

    monkeypatch.setattr(pidfd, "poll", poll)
    monkeypatch.setattr(polling, "open_polled", lambda pid: order.append("opened"))
    handle._is_reaped = lambda: order.append("asked") or True
    handle.get_info = lambda: (True, 9)
    assert handle.wait(Deadline(0), False) == 9
    assert order == ["opened", "asked"] and handle.backend == "pidfd"


def test_error_without_a_number(monkeypatch):
    """As an audit hook's."""

    def pidfd_open(pid, flags):
        raise OSError("on purpose")

    monkeypatch.setitem(calls._resolved, "pidfd_open", pidfd_open)
    with pytest.raises(OSError, match="on purpose") as caught:
        pidfd.open_pidfd(4711)
    assert type(caught.value) is OSError and caught.value.errno == 0


@pytest.mark.parametrize("level, works", [(30, False), (31, True), (None, True)])
def test_android_before_12_kills(monkeypatch, level, works):
    opened = []
    if level is None:
        monkeypatch.delattr(sys, "getandroidapilevel", raising=False)
    else:
        monkeypatch.setattr(sys, "getandroidapilevel", lambda: level, raising=False)
    monkeypatch.setattr(pidfd, "with_self", opened.append)
    if works:
        pidfd.check()
    else:
        with pytest.raises(OSError, match="Android before 12"):
            pidfd.check()
    assert bool(opened) is works


def test_checks_of_a_pidfd_that_is_right(monkeypatch):
    own = SimpleNamespace(fd=99)
    monkeypatch.setattr(pidfd, "poll", lambda fd, mask, deadline: 0)
    pidfd._check_poll(own)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", lambda fd: SimpleNamespace(st_dev=fd))
        pidfd._check_inode(own)


def test_signal_after_a_policy(lacking, sleeper, monkeypatch):
    """It goes by the pid then."""
    lacking()
    handle = pidfd.PidfdHandle(sleeper.pid)
    handle.send_signal(0)
    refuse(monkeypatch, "pidfd_send_signal")
    handle.send_signal(signal.SIGKILL)
    handle.close()
    assert sleeper.wait() == -9


def test_identity_is_the_inode_where_there_is_one(lacking, sleeper):
    """Also where it was not known whether there is."""
    lacking()
    handle = pidfd.PidfdHandle(sleeper.pid)
    checks._answers.pop(pidfd.check_pidfs, None)
    kinds = [handle.identify()[0] for _ in range(2)]
    handle.close()
    assert kinds == ["pidfd" if checks.works(pidfd.check_pidfs) else "start"] * 2


@pytest.mark.parametrize("is_reaped", [False, True, None])
def test_identity_of_a_pid_that_may_be_another_ones(handle, monkeypatch, is_reaped):
    answer = OSError(errno.EINVAL, "no inodes of their own")
    monkeypatch.setitem(checks._answers, pidfd.check_pidfs, answer)
    monkeypatch.setattr(polled_procfs, "identify", lambda pid: ("start", pid, 5))
    handle._is_reaped = lambda: is_reaped
    assert handle.identify() == (("start", handle.pid, 5) if is_reaped is False else None)


def test_check_loads_what_is_needed_later(use_variant, monkeypatch):
    """By then there may be no file descriptor left; what is missing is no reason to poll."""
    use_variant(VARIANT)
    get, asked = calls.get, []

    def lacking(name):
        asked.append(name)
        if name in ("waitid", "pidfd_send_signal", "ioctl"):
            raise OSError(errno.ENOSYS, "on purpose")
        return get(name)

    monkeypatch.setattr(calls, "get", lacking)
    pidfd.check()
    assert {"waitid", "pidfd_send_signal", "ioctl"} <= set(asked)


def test_checks_of_what_works_here(use_variant, monkeypatch):
    use_variant(VARIANT)
    assert checks.ask(pidfd.check_send_signal) is None
    assert checks.ask(pidfd.check_waitid) is None
    for check in pidfd.check_send_signal, pidfd.check_waitid:
        monkeypatch.delitem(checks._answers, check)

    def missing(*arguments):
        raise OSError(errno.ENOSYS, "on purpose")

    for name in "waitid", "pidfd_send_signal":
        monkeypatch.setitem(calls._resolved, name, missing)
    assert checks.ask(pidfd.check_send_signal).errno == errno.ENOSYS
    assert checks.ask(pidfd.check_waitid).errno == errno.ENOSYS


def test_identity_before_linux_6_9(lacking, start):
    """The identity is the pid and the start time, until the process has been reaped."""
    lacking()
    checks._answers[pidfd.check_pidfs] = OSError(errno.EINVAL, "no inodes of their own")
    child, other = start(*exiting(3)), start(*exiting(3))
    one, same, another = map(pidwait.Process, (child.pid, child.pid, other.pid))
    with one, same, another:
        assert one == same and one != another
    handles = pidfd.PidfdHandle(child.pid), pidfd.PidfdHandle(child.pid)
    try:
        assert [handle.identify()[:2] for handle in handles] == [("start", child.pid)] * 2
        handles[1].pid = None  # in another PID namespace
        assert handles[1].identify() is None
        child.wait()
        assert [handle.identify() for handle in handles] == [None, None]
    finally:
        for handle in handles:
            handle.close()


def test_open_with_a_threads_id(lacking, monkeypatch):
    lacking()

    def pidfd_open(pid, flags):
        raise OSError(errno.ENOENT, "no such file")  # as newer kernels say

    monkeypatch.setitem(calls._resolved, "pidfd_open", pidfd_open)
    with pytest.raises(ProcessLookupError, match="a thread's ID"):
        pidfd.PidfdHandle(4711)


def test_identity_is_kept_by_the_pidfd(lacking, sleeper):
    lacking()
    handle = pidfd.PidfdHandle(sleeper.pid)
    try:
        checks._answers.pop(pidfd.check_pidfs, None)
        assert handle.keeps_identity() is False  # it is not known yet
        has_inodes = checks.works(pidfd.check_pidfs)
        assert handle.keeps_identity() is has_inodes
    finally:
        handle.close()


def use_own_waitid(monkeypatch):
    """Use Python's waitid, and return it; PyPy has none."""
    own = getattr(os, "waitid", None)
    if own is not None:
        monkeypatch.setitem(calls._resolved, "waitid", own)
    return own


def test_reaping_that_does_not_block(lacking, monkeypatch, sleeper):
    lacking()
    own = use_own_waitid(monkeypatch)
    handle = pidfd.PidfdHandle(sleeper.pid)
    try:
        reaping = handle.reaping(False)
        assert (reaping if own is None else next(iter(reaping))) is None
        assert sleeper.poll() is None
        with monkeypatch.context() as patched:
            patched.setattr(select, "poll", lambda: None)  # as gevent's
            assert handle.reaping() is None
            assert (handle.reaping(False) is None) is (own is None)
        handle._fallback = handle
        assert handle.reaping(False) is None
    finally:
        handle.close()


def test_reaping_that_blocks(lacking, monkeypatch, start):
    lacking()
    own = use_own_waitid(monkeypatch)
    child = start(*sleeping(0.1))
    handle = pidfd.PidfdHandle(child.pid)
    try:
        reaping = handle.reaping()
        assert reaping is None or [info.si_status for info in reaping] == [0]
        assert (state(child.pid) is None) is (own is not None)
    finally:
        handle.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EPERM])
def test_process_without_a_pid_whose_pidfd_can_not_be_duplicated(
    use_variant, start_told, monkeypatch, code
):
    """Only its own handle can tell the set whether it has exited."""
    use_variant("pidfd-ctypes")

    def refuse(fd):
        raise OSError(code, "on purpose")

    child = start_told(3)
    with pidwait.Process(child.pid) as process:
        process._guard.resource.pid = None  # in another PID namespace
        monkeypatch.setattr(os, "dup", refuse)
        with pidwait.WaitSet([process]) as waiting:
            assert waiting.wait(0) == []
            child.stdin.close()
            assert waiting.wait(20) == [(process, 3)]


def test_wait_of_a_set_sleeps(use_variant, start_told):
    """Without a time-out it sleeps until it is woken, and does not look in between."""
    use_variant("pidfd-ctypes")
    child, sleeps = start_told(3), []
    with pidwait.WaitSet([child]) as waiting:
        own = waiting._engine.sets.sleep

        def sleep(seconds):
            sleeps.append(seconds)
            child.stdin.close()
            own(seconds)

        waiting._engine.sets.sleep = sleep
        assert waiting.wait() == [(child, 3)]
    assert sleeps == [None]


def test_highest_pid():
    assert pidwait.wait(2**31 - 1, 0) is None
    assert not pidwait.pid_exists(2**31 - 1)


@pytest.mark.parametrize("code", [0, 7, 255, -9])
def test_look_at_a_child(start_told, code):
    child = start_told(code)
    assert exitcodes.look_at_child(child.pid) is exitcodes.RUNNING
    child.stdin.close()
    become_zombie(child.pid)
    assert exitcodes.look_at_child(child.pid) == exitcodes.look_at_child(child.pid) == code
    child.wait()
    with pytest.raises(ChildProcessError):
        exitcodes.look_at_child(child.pid)


@pytest.mark.parametrize("look", ["is_found", "exists", "is_our_child", "is_our_sibling"])
def test_looks_send_no_signal(look):
    sent = []
    old = signal.signal(signal.SIGHUP, lambda *arguments: sent.append(arguments))
    try:
        found = getattr(exitcodes, look)(os.getpid())
    finally:
        signal.signal(signal.SIGHUP, old)
    assert sent == [] and found is (look != "is_our_child")


def test_kernel_whose_pidfds_share_an_inode(use_variant, monkeypatch):
    use_variant("pidfd-ctypes")
    own = os.fstat
    with calls.get("epoll")() as epoll:
        monkeypatch.setattr(os, "fstat", lambda fd: own(epoll.fileno()))
        checks._answers.pop(pidfd.check_pidfs, None)
        assert "no inodes" in checks.ask(pidfd.check_pidfs).strerror
        monkeypatch.undo()


def test_kernel_whose_poll_takes_a_running_process_for_an_exited_one(use_variant, monkeypatch):
    use_variant("pidfd-ctypes")
    assert checks.ask(pidfd.check) is None
    monkeypatch.setattr(pidfd, "poll", lambda fd, mask, deadline: mask)
    checks.forget()
    assert "running process" in checks.ask(pidfd.check).strerror


def test_links_of_a_process_that_goes_between_two_looks(monkeypatch):
    """Its link count can't be read any more: then the links prove nothing."""

    def readlink(path, *arguments):
        if path.endswith("/cwd"):
            raise FileNotFoundError(errno.ENOENT, "no directory", path)
        return "user:[4026531837]"

    monkeypatch.setattr(os, "readlink", readlink)
    monkeypatch.setattr(procfs._checks, "works", lambda check: True)
    assert procfs.links_tell_exit(2**22 + 1) is False


def test_code_that_only_the_reaping_tells(use_variant, keeper, monkeypatch):
    """A set waits for the reaping, as /proc hides the code of somebody else's zombie."""
    use_variant("pidfd-ctypes")
    if not checks.works(pidfd.check_get_info):
        pytest.skip("PIDFD_GET_INFO: %s" % checks.ask(pidfd.check_get_info))
    module = importlib.import_module(pidwait.__name__ + "._backends.pidfd_set")
    monkeypatch.setattr(module, "GRACE", 60)
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(7))
    become_zombie(pid)
    told = []
    with pidwait.WaitSet([pid, os.getpid()]) as waiting:
        pidfds = waiting._engine.sets.best
        thread = threading.Thread(target=lambda: told.extend(waiting.wait(30)))
        thread.start()
        eventually(lambda: pidfds._fading or told)
        keeper.reap(pid)
        thread.join()
        assert told == [(pid, 7)]
        assert waiting.wait(0) == []


def test_last_moment_for_a_code_is_short(use_variant, keeper, monkeypatch):
    use_variant("pidfd-ctypes")
    if not checks.works(pidfd.check_get_info):
        pytest.skip("PIDFD_GET_INFO: %s" % checks.ask(pidfd.check_get_info))
    own, timeouts = pidfd.poll, []

    def poll(fd, mask, deadline):
        timeouts.append(deadline.timeout)
        return own(fd, mask, deadline)

    monkeypatch.setattr(pidfd, "poll", poll)
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(7))
    become_zombie(pid)
    assert pidwait.wait(pid) is None
    assert 0 < timeouts[-1] <= 0.01
    with pidwait.Process(pid) as process:
        assert process.wait() is None
    assert timeouts[-3:-1] == [None, 0] and 0 < timeouts[-1] <= 0.01
    keeper.reap(pid)


def test_code_that_nobody_tells_in_time(use_variant, keeper, monkeypatch):
    """When the time is up, the exit is reported without its code."""
    use_variant("pidfd-ctypes")
    module = importlib.import_module(pidwait.__name__ + "._backends.pidfd_set")
    monkeypatch.setattr(module, "GRACE", 60)
    monkeypatch.setattr(exitcodes, "from_zombie", lambda pid: None)
    pid = keeper.start(*exiting(7))
    become_zombie(pid)
    assert pidwait.wait_procs([pid], 0) == ([(pid, None)], [])
    assert list(pidwait.as_completed([pid], 0)) == [(pid, None)]
    keeper.reap(pid)


def test_poll_that_lets_others_run_meanwhile(use_variant, start_told, monkeypatch):
    """Such as gevent's, put in place when the set is there: the wait has to block in it."""
    use_variant("pidfd-ctypes")
    child, poll = start_told(3), select.poll

    def patched():
        child.stdin.close()
        return poll()

    with pidwait.WaitSet([child]) as waiting:
        monkeypatch.setattr(select, "poll", patched)
        assert waiting.wait(20) == [(child, 3)]
        monkeypatch.undo()


def test_poll_that_is_removed(use_variant, start_told, monkeypatch):
    """As eventlet does: then the set is polled, with time.sleep, which eventlet replaces."""
    use_variant("pidfd-ctypes")
    child, sleep = start_told(3), time.sleep

    def replaced(seconds):
        child.stdin.close()
        sleep(seconds)

    with pidwait.WaitSet([child]) as waiting:
        monkeypatch.delattr(select, "poll")
        monkeypatch.setattr(time, "sleep", replaced)
        assert waiting.wait(20) == [(child, 3)]
        monkeypatch.undo()


def test_poll_that_fails_where_only_the_pidfd_is_known(monkeypatch):
    """As after from_fd(), of a process in another PID namespace: it can't be polled by its pid."""
    handle = pidfd.PidfdHandle(1, SimpleNamespace(fileno=lambda: 99, close=lambda: None))
    handle.pid = None
    error = OSError(errno.ENOMEM, "on purpose")

    def poll(*arguments):
        raise error

    monkeypatch.setattr(pidfd, "poll", poll)
    with pytest.raises(OSError) as caught:
        handle.wait(Deadline(0), False)
    assert caught.value is error


def test_poll_that_fails(use_variant, start_told, monkeypatch):
    """From then on the process is polled."""
    use_variant(VARIANT)
    child, opened, real = start_told(3), [], polling.open_polled

    def open_polled(pid):
        opened.append(real(pid))
        return opened[-1]

    def poll(*arguments):
        raise OSError(errno.ENOMEM, "on purpose")

    handle = pidfd.PidfdHandle(child.pid)
    try:
        assert handle.backend == "pidfd" and handle.fileno() == handle.fd
        monkeypatch.setattr(polling, "open_polled", open_polled)
        with monkeypatch.context() as patched:
            patched.setattr(pidfd, "poll", poll)
            assert handle.wait(Deadline(0), False) is RUNNING
        assert handle.backend == opened[0].backend != "pidfd"
        with pytest.raises(io.UnsupportedOperation):
            handle.fileno()
        assert handle.reaping() is None
        child.stdin.close()
        monkeypatch.setattr(pidfd, "poll", None)
        assert handle.wait(Deadline(60), False) == handle.wait(Deadline(60), True) == 3
        assert len(opened) == 1 and state(child.pid) is None
    finally:
        handle.close()
    assert handle.fd < 0  # 0 would be stdin


def test_poll_that_fails_where_the_process_has_been_reaped(monkeypatch):
    """The kernel still tells its exit code."""

    def poll(*arguments):
        raise OSError(errno.ENOMEM, "on purpose")

    handle = pidfd.PidfdHandle(gone_pid(), SimpleNamespace(fileno=lambda: 99, close=lambda: None))
    handle.get_info = lambda: (True, 9)
    monkeypatch.setattr(pidfd, "poll", poll)
    assert handle.wait(Deadline(0), False) == 9


def test_lost_process_that_a_signal_handler_raises(monkeypatch):
    """It does not tell that our process has been reaped."""
    handle = pidfd.PidfdHandle(1, SimpleNamespace(fileno=lambda: 99, close=lambda: None))
    with interrupted_by(ProcessLookupError("on purpose")) as send:
        monkeypatch.setitem(calls._resolved, "pidfd_send_signal", send)
        with pytest.raises(ProcessLookupError, match="on purpose"):
            handle._is_reaped()


def test_signal_handler_that_ends_a_call_after_a_policy(monkeypatch, sleeper):
    """Its error is not the policy's, after which kill(2) would send the signal."""
    handle = pidfd.PidfdHandle(sleeper.pid, SimpleNamespace(fileno=lambda: 99, close=lambda: None))
    monkeypatch.setitem(checks._answers, pidfd.check_send_signal, None)
    monkeypatch.setattr(checks, "still_works", lambda check: False)
    with interrupted_by(PermissionError("on purpose")) as interrupted:

        def send(fd, sig):
            if sig:  # else it is asked whether it has been reaped
                interrupted()

        monkeypatch.setitem(calls._resolved, "pidfd_send_signal", send)
        with pytest.raises(PermissionError, match="on purpose"):
            handle.send_signal(signal.SIGTERM)
    assert sleeper.poll() is None
