# SPDX-License-Identifier: BSD-3-Clause
"""Linux: a pidfd and poll(2).

pidfd_open         Linux 5.3; an fd that is readable once all threads have ended
pidfd_send_signal  Linux 5.1
waitid, P_PIDFD    Linux 5.4; this very child, whatever became of its pid
fstat              Linux 6.9; the inode number identifies the process
POLLHUP            about Linux 6.12; tells that the process has been reaped
PIDFD_GET_INFO     Linux 6.13; tells the exit status from 6.15 on
"""

import os
import select
import sys
from errno import EINVAL, ENOENT, ENOSYS
from io import UnsupportedOperation

from .. import _checks
from .._deadline import GRACE, NOW, Deadline
from .._errors import (
    is_of_signal_handler,
    log,
    no_such_process,
    os_error,
    pass_over,
    raise_of_handler,
)
from .._fd import own, poll
from .._ffi import calls, linux
from .._outcome import RUNNING, NotYet
from .._sources import exitcodes, procfs
from . import polled, polled_procfs, polling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable

    from .._outcome import Outcome
    from .contract import Checks, Handle, Identity


C_FUNCTION: "Any" = type(len)


class PidfdHandle:
    """A pidfd."""

    is_child = False
    _fallback: "Handle | None" = None
    # Whether it has been reaped, if it is known to have exited and not to be our child.
    _reaped: "bool | None" = None

    def __init__(self, pid: int, owner: "Any" = None, reaped: "bool | None" = None) -> None:
        """``owner``: of the pidfd, if it has been opened; ``reaped``: see above."""
        self._owner = open_pidfd(pid) if owner is None else owner
        self.fd: int = self._owner.fileno()
        self.pid: "int | None" = pid
        self._reaped = reaped

    @property
    def backend(self) -> str:
        return "pidfd" if self._fallback is None else self._fallback.backend

    def fileno(self) -> int:
        if self._fallback is not None:
            raise UnsupportedOperation("a process that is polled has no fileno")
        return self.fd

    def close(self) -> None:
        self.fd = -1
        try:
            self._owner.close()
        except OSError as error:  # somebody else has closed it
            pass_over(error, "close")

    def wait(self, deadline: Deadline, reap: bool) -> "Outcome":
        if self._fallback is not None:
            return self._fallback.wait(deadline, reap)
        if self._reaped is not None:
            return self._code_of_other(self._reaped, deadline)
        # After the sleep the caches are cold, and each name and call costs: tidier code cost
        # half of the time that a wait takes outside its system calls.
        event = info = None
        fd, ready, idtype, by_exit = self.fd, select.POLLIN, linux.P_PIDFD, linux.CLD_EXITED
        options = linux.REAP if reap else linux.LOOK
        try:
            waitid = calls.get("waitid")
            if self.is_child and (may_block() if deadline.timeout is None else reap):
                info = self._ask_as_parent(waitid, options, deadline)
            if info is None:
                event = poll(fd, ready, deadline)
            if event == ready:
                info = waitid(idtype, fd, options)
        except OSError as error:
            if is_of_signal_handler(error):
                raise
            if event is None:
                return self._fall_back(error, deadline, reap)
            code = exitcodes.without_waitid(error, self.pid, reap)
            return self._code_of_other(False, deadline) if code is None else code
        if info is not None:
            status: int = info.si_status
            return status if info.si_code == by_exit else -status
        if not event:
            return RUNNING
        if event == ready and reap:
            if self.seems_exited():
                raise NotYet
            return self.wait(deadline, reap)
        return self._code_of_other(bool(event & select.POLLHUP), deadline)

    def _ask_as_parent(self, waitid: "Any", options: int, deadline: Deadline) -> "Any":
        """The result of waitid alone, which saves three calls; None if poll is needed."""
        try:
            if deadline.timeout is None:
                options &= ~linux.WNOHANG
            return waitid(linux.P_PIDFD, self.fd, options)
        except OSError as error:
            # ECHILD does not prove an exit: after a fork it may be our sibling.
            pass_over(error, "pid %s, waitid", self.pid)
            return None

    def reaping(self, block: bool = True) -> "Iterable[object] | None":
        waitid = calls.get("waitid")
        # A function written in Python has bytecodes between the system call and its return.
        if self._fallback is not None or type(waitid) is not C_FUNCTION:
            return None
        if block and not may_block():
            return None
        return map(waitid, (linux.P_PIDFD,), (self.fd,), (linux.WEXITED if block else linux.REAP,))

    def _fall_back(self, error: OSError, deadline: Deadline, reap: bool) -> "Outcome":
        """Go on by polling."""
        # poll(2): ENOMEM; EINVAL when RLIMIT_NOFILE is 0; our EBADF.
        log("pid %s is polled: %s", self.pid, error)
        if self.pid is None:
            raise error
        try:
            fallback = polling.open_polled(self.pid)
        except ProcessLookupError as gone:
            raise_of_handler(gone)
            return self._code_of_other(True, deadline)
        # The fallback was opened by the pid, which may have gone to another process before: so
        # the pidfd is asked afterwards.
        if self._is_reaped():
            return self._code_of_other(True, deadline)
        self._fallback = fallback
        return fallback.wait(deadline, reap)

    def _is_reaped(self) -> "bool | None":
        """Whether the pid may belong to another process by now; None if that can't be told."""
        try:
            calls.get("pidfd_send_signal")(self.fd, 0)
        except ProcessLookupError as error:
            raise_of_handler(error)
            return True
        except OSError as error:
            pass_over(error, "pidfd_send_signal")
            if not is_forbidden(error):
                return self._has_no_task()
        return False

    def _has_no_task(self) -> "bool | None":
        info = self.get_info()
        if info is not None:
            return info[0]
        try:
            return int(procfs.fd_info(self.fd)["Pid"]) < 0  # Linux 5.5
        except (OSError, LookupError) as error:
            pass_over(error, "pid %s", self.pid)
            return None

    def _code_of_other(self, reaped: bool, deadline: Deadline) -> "Outcome":
        """The exit code of a process that is not our child, or that somebody else reaped."""
        if reaped:
            return self._told()
        # When poll looked, it was not reaped. What /proc says about the pid is about our
        # process if the pidfd says afterwards that it still is not reaped.
        code = exitcodes.from_zombie(self.pid)
        if code is None and not self.seems_exited():
            self._reaped = None
            return self.wait(deadline, False)
        info = self.get_info()
        if info is None:
            return None if code is None or self._is_reaped() is not False else code
        reaped, status = info
        if reaped or code is not None:
            return status if reaped else code
        # /proc does not show the code. The parent may reap it in a moment: then the pidfd will.
        try:
            reaped = bool(poll(self.fd, 0, Deadline(deadline.at_most(GRACE))))
        except OSError as error:
            pass_over(error, "pid %s, poll", self.pid)
        return self._told() if reaped else None

    def seems_exited(self) -> bool:
        """Whether poll tells an exit; if it tells one twice in a row, there was one."""
        # When a thread other than the main one calls execve(2), it takes over the pid, and for a
        # moment poll takes the old main thread for the last one: seen for 1 of 1,400 calls of
        # execve() on Linux 6.18, in fs/pidfs.c, pidfd_poll().
        try:
            return bool(poll(self.fd, select.POLLIN, NOW))
        except OSError as error:
            pass_over(error, "pid %s, poll", self.pid)
            return True

    def _told(self) -> "int | None":
        """The exit code that the kernel keeps of a process that has been reaped."""
        info = self.get_info()
        return None if info is None else info[1]

    def get_info(self) -> "tuple[bool, int | None] | None":
        """Whether it has been reaped, and if so its code; None if the system does not tell."""
        if not _checks.works(check_get_info):
            return None
        try:
            return exitcodes.from_pidfd(self.fd)
        except OSError as error:  # a policy that came after the probe
            pass_over(error, "PIDFD_GET_INFO")
            return None

    def send_signal(self, sig: int) -> None:
        if _checks.works(check_send_signal):
            try:
                calls.get("pidfd_send_signal")(self.fd, sig)
                return
            except ProcessLookupError:
                raise
            except OSError as error:
                raise_of_handler(error)
                if _checks.still_works(check_send_signal):
                    raise
                log("pidfd_send_signal: %s", error)  # a policy that came after the probe
        if self.pid is None or self.wait(NOW, False) is not RUNNING:
            raise no_such_process(self.pid)
        polled.kill(self.pid, sig)

    def keeps_identity(self) -> bool:
        return _checks.known(check_pidfs, 0) is None

    def identify(self) -> "Identity | None":
        if _checks.known(check_pidfs, 0) is None or _checks.surely_works(check_pidfs):
            try:
                return "pidfd", os.fstat(self.fd).st_ino
            except OSError as error:
                pass_over(error, "pid %s, fstat", self.pid)
        identity = None if self.pid is None else polled_procfs.identify(self.pid)
        return identity if self._is_reaped() is False else None


def may_block() -> bool:
    """Whether a call that blocks holds up no more than its own thread.

    It holds up all greenlets where gevent has replaced poll, or eventlet has removed it. That
    may happen at any time, also when a set has been made already.
    """
    return type(getattr(select, "poll", None)) is C_FUNCTION


def is_forbidden(error: OSError) -> bool:
    """Whether the process is there, but we may not send it a signal."""
    # A policy may answer so for every process: then it proves nothing.
    return isinstance(error, PermissionError) and _checks.still_works(check_send_signal)


def open_pidfd(pid: int) -> "Any":
    """What owns the pidfd: see _fd.own."""
    try:  # as opened() does
        return next(map(own, map(calls.get("pidfd_open"), (pid,), (0,))))
    except OSError as error:
        raise _why_not_opened(error, pid) from None


def _why_not_opened(error: OSError, pid: int) -> OSError:
    raise_of_handler(error)
    if error.errno == ENOENT:
        return no_such_process(pid, "a thread's ID, not a process's")
    # EINVAL can mean a thread's ID on older kernels, or a process that is just exiting
    # (psutil#2715): polling finds out which.
    return os_error(error.errno or 0, "pidfd_open", pid, error.strerror or str(error))


def check() -> None:
    """Open and poll a pidfd of our own process."""
    # Before Android 12 an unlisted system call is answered with a signal that kills.
    if getattr(sys, "getandroidapilevel", lambda: 31)() < 31:
        raise OSError(ENOSYS, "Android before 12 kills a process that calls pidfd_open")
    # Load these now: later there may be no file descriptor left to load them with.
    for name in ("waitid", "pidfd_send_signal", "ioctl"):
        try:
            calls.get(name)
        except OSError as error:
            pass_over(error, "%s", name)
    with_self(_check_poll)


def _check_poll(handle: PidfdHandle) -> None:
    if poll(handle.fd, select.POLLIN, NOW):
        raise OSError(ENOSYS, "poll takes a running process for an exited one")


def with_self(use: "Callable[[PidfdHandle], object]") -> None:
    handle = PidfdHandle(os.getpid())
    try:
        use(handle)
    finally:
        handle.close()


def check_send_signal() -> None:
    """Send signal 0, which does nothing, to our own process."""
    with_self(lambda handle: calls.get("pidfd_send_signal")(handle.fd, 0))


def check_get_info() -> None:
    """Ask about our own process. That shows Linux 6.13; exit codes need 6.15."""
    with_self(lambda handle: exitcodes.get_info(handle.fd))


def check_pidfs() -> None:
    """Whether pidfds have an inode for each process; else all share one anonymous inode."""
    with_self(_check_inode)


def _check_inode(handle: PidfdHandle) -> None:
    # Before Linux 6.9 all pidfds, as epolls still do, share one anonymous inode.
    with calls.get("epoll")() as other:
        if os.fstat(handle.fd).st_dev == os.fstat(other.fileno()).st_dev:
            raise OSError(EINVAL, "pidfds have no inodes of their own")


def check_waitid() -> None:
    """Look for a child that can't exist: our own process."""
    try:
        with_self(lambda handle: calls.get("waitid")(linux.P_PIDFD, handle.fd, linux.WEXITED))
    except ChildProcessError as error:
        raise_of_handler(error)


CHECKS: "Checks" = (
    ("pidfd_open", "pidfd_open", check),
    ("pidfd_send_signal", "pidfd_send_signal", check_send_signal),
    ("waitid", "waitid", check_waitid),
    ("PIDFD_GET_INFO", "ioctl", check_get_info),
    ("pidfd inodes", None, check_pidfs),
    ("/proc", None, procfs.check),
    ("/proc exit status", None, exitcodes.check_status),
)
