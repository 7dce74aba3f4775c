# SPDX-License-Identifier: BSD-3-Clause
"""Linux: a pidfd and poll(2).

pidfd_open         Linux 5.3; an fd that is readable once all threads have ended
pidfd_send_signal  Linux 5.1
waitid, P_PIDFD    Linux 5.4; just this child, whatever became of its number
fstat              Linux 6.9; the inode number names the process
POLLHUP            Linux 6.12, about; tells that it has been reaped
PIDFD_GET_INFO     Linux 6.13; with the exit status 6.15
"""

import os
import select
import sys
from errno import EBADF, EINVAL, ENOENT, ENOSYS
from io import UnsupportedOperation

from .. import _checks
from .._deadline import GRACE, NOW, Deadline
from .._errors import is_of_signal_handler, log, no_such_process, os_error
from .._fd import opened, own, poll
from .._ffi import calls, linux
from .._outcome import RUNNING, NotYet
from .._sources import exitcodes, procfs
from . import polled, polled_procfs, polling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from .._outcome import Outcome
    from .contract import Checks, Handle, Identity


class PidfdHandle:
    """A pidfd."""

    def __init__(self, pid: int) -> None:
        self._owner = open_pidfd(pid)
        self._start(self._owner.fileno(), pid)

    def _start(self, fd: int, pid: "int | None") -> None:
        self.fd = fd
        self.pid = pid
        self.is_child = False
        self._fallback: "Handle | None" = None

    @classmethod
    def from_fd(cls, fd: int) -> "PidfdHandle":
        """Take over a pidfd; the pid is None if it has none here, or none any more."""
        pid = _examine(fd)
        handle = cls.__new__(cls)
        handle._owner = own(fd)
        handle._start(fd, pid)
        return handle

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
            log("close: %s", error)

    def wait(self, deadline: Deadline, reap: bool) -> "Outcome":
        if self._fallback is not None:
            return self._fallback.wait(deadline, reap)
        # After the sleep the caches are cold, and each name and call costs: tidier
        # code took half of the time that a wait needs beside its system calls.
        event = info = None
        fd, ready, idtype, by_exit = self.fd, select.POLLIN, linux.P_PIDFD, linux.CLD_EXITED
        options = linux.REAP if reap else linux.LOOK
        try:
            waitid = calls.get("waitid")
            if self.is_child and (reap or deadline.timeout is None):
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
            raise NotYet
        return self._code_of_other(bool(event & select.POLLHUP), deadline)

    def _ask_as_parent(self, waitid: "Any", options: int, deadline: Deadline) -> "Any":
        """What waitid tells without poll, which takes three calls more; None if poll has to."""
        try:
            if deadline.timeout is None:
                options &= ~linux.WNOHANG
            return waitid(linux.P_PIDFD, self.fd, options)
        except OSError as error:
            if is_of_signal_handler(error):
                raise
            # ECHILD does not prove an exit: after a fork it may be our sibling.
            log("pid %s, waitid: %s", self.pid, error)
            return None

    def _fall_back(self, error: OSError, deadline: Deadline, reap: bool) -> "Outcome":
        """Go on by polling."""
        # poll(2): ENOMEM; EINVAL when RLIMIT_NOFILE is 0; our EBADF.
        log("pid %s is polled: %s", self.pid, error)
        if self.pid is None:
            raise error
        try:
            fallback = polling.open_polled(self.pid)
        except ProcessLookupError:
            return self._code_of_other(True, deadline)
        # The number could have gone to another process before the look, so the
        # pidfd is asked after it.
        if self._is_reaped():
            return self._code_of_other(True, deadline)
        self._fallback = fallback
        return fallback.wait(deadline, reap)

    def _is_reaped(self) -> "bool | None":
        """Whether the pid may be somebody else's by now; None if that can't be told."""
        try:
            calls.get("pidfd_send_signal")(self.fd, 0)
        except ProcessLookupError:
            return True
        except OSError as error:
            log("pidfd_send_signal: %s", error)
            if not _is_forbidden(error):
                return self._has_no_task()
        return False

    def _has_no_task(self) -> "bool | None":
        info = self.get_info()
        if info is not None:
            return info[0]
        try:
            return int(procfs.fd_info(self.fd)["Pid"]) < 0  # Linux 5.5
        except (OSError, LookupError) as error:
            log("pid %s: %s", self.pid, error)
            return None

    def _code_of_other(self, reaped: bool, deadline: Deadline) -> "int | None":
        """The exit code of a process that is not our child, or was reaped by somebody else."""
        if reaped:
            return (self.get_info() or (True, None))[1]
        # Ready, but not reaped when poll looked. What /proc says of the pid is
        # ours if the pidfd says afterwards that it still is not.
        code = exitcodes.from_zombie(self.pid)
        info = self.get_info()
        if info is None:
            return None if code is None or self._is_reaped() is not False else code
        reaped, status = info
        if reaped or code is not None:
            return status if reaped else code
        # Not to be seen in /proc: a moment later the parent may have reaped it.
        try:
            reaped = bool(poll(self.fd, 0, Deadline(deadline.at_most(GRACE))))
        except OSError as error:
            if is_of_signal_handler(error):
                raise
            log("pid %s, poll: %s", self.pid, error)
        return (self.get_info() or (True, None))[1] if reaped else None

    def get_info(self) -> "tuple[bool, int | None] | None":
        """Whether it has been reaped, and its code then; None if the system does not tell."""
        if not _checks.works(check_get_info):
            return None
        try:
            return exitcodes.from_pidfd(self.fd)
        except OSError as error:  # a policy that came after the probe
            log("PIDFD_GET_INFO: %s", error)
            return None

    def send_signal(self, sig: int) -> None:
        if _checks.works(check_send_signal):
            try:
                calls.get("pidfd_send_signal")(self.fd, sig)
                return
            except ProcessLookupError:
                raise
            except OSError as error:
                if _checks.still_works(check_send_signal):
                    raise
                log("pidfd_send_signal: %s", error)  # a policy that came after the probe
        if self.pid is None or self.wait(NOW, False) is not RUNNING:
            raise no_such_process(self.pid)
        polled.kill(self.pid, sig)

    def identify(self) -> "Identity | None":
        if _checks.works(check_pidfs):
            return "pidfd", os.fstat(self.fd).st_ino
        identity = None if self.pid is None else polled_procfs.identify(self.pid)
        return identity if self._is_reaped() is False else None


def _is_forbidden(error: OSError) -> bool:
    """Whether the process is there, but we must not send it a signal."""
    # A policy may say so of every process.
    return isinstance(error, PermissionError) and _checks.still_works(check_send_signal)


def open_pidfd(pid: int) -> "Any":
    try:
        return opened(calls.get("pidfd_open"), pid, 0)
    except OSError as error:
        if error.errno == ENOENT:
            raise no_such_process(pid, "a thread's ID, not a process's") from None
        # EINVAL may be a thread on older kernels, or a process that is just
        # exiting (psutil#2715): polling finds out.
        raise os_error(error.errno or 0, "pidfd_open", pid, error.strerror) from None


def _examine(fd: int) -> "int | None":
    if isinstance(fd, bool) or not isinstance(fd, int):
        raise TypeError("fd must be a file descriptor, not %s" % type(fd).__name__)
    if fd < 0:
        raise ValueError("fd must not be negative: %d" % fd)
    if not sys.platform.startswith(("linux", "android")):
        raise OSError(ENOSYS, "this is not Linux: it has no pidfds")
    os.set_inheritable(fd, False)
    info = _fd_info(fd)
    if info is None:
        return _ask_pid(fd)
    if "Pid" not in info:
        raise ValueError("fd %d is not a pidfd" % fd)
    if int(info["flags"], 8) & os.O_EXCL:  # PIDFD_THREAD, Linux 6.9
        raise ValueError("fd %d is the pidfd of a thread, not of a process" % fd)
    pid = int(info["Pid"])
    return pid if pid > 0 else None


def _fd_info(fd: int) -> "dict[str, str] | None":
    if not _checks.works(procfs.check):
        return None
    try:
        return procfs.fd_info(fd)
    except OSError as error:  # no file descriptor left, or /proc is no more
        log("fd %d: %s", fd, error)
        return None


def _ask_pid(fd: int) -> "int | None":
    """The pid of a pidfd, without /proc; None if it has been reaped, or who knows."""
    try:
        return exitcodes.get_info(fd)[1] or None
    except ProcessLookupError:
        return None
    except OSError as error:  # Linux < 6.13, a policy, or not a pidfd
        log("PIDFD_GET_INFO: %s", error)
    try:
        calls.get("pidfd_send_signal")(fd, 0)
    except ProcessLookupError:
        return None
    except OSError as error:
        if error.errno == EBADF:
            raise ValueError("fd %d is not a pidfd" % fd) from None
        if not _is_forbidden(error):
            raise
    return None


def check() -> None:
    """Open and poll a pidfd of this very process."""
    # Before Android 12 the answer to an unlisted system call is a signal that kills.
    if getattr(sys, "getandroidapilevel", lambda: 31)() < 31:
        raise OSError(ENOSYS, "Android before 12 kills who calls pidfd_open")
    # What will be needed once there is no file descriptor left to load it with.
    for name in ("waitid", "pidfd_send_signal", "ioctl"):
        try:
            calls.get(name)
        except OSError as error:
            log("%s: %s", name, error)
    with_self(_check_poll)


def _check_poll(handle: PidfdHandle) -> None:
    if poll(handle.fd, select.POLLIN, NOW):
        raise OSError(ENOSYS, "poll takes a running process for an exited one")


def with_self(use: "Callable[[PidfdHandle], None]") -> None:
    handle = PidfdHandle(os.getpid())
    try:
        use(handle)
    finally:
        handle.close()


def check_send_signal() -> None:
    """Send signal 0, which is none, to this very process."""
    with_self(lambda handle: calls.get("pidfd_send_signal")(handle.fd, 0))


def check_get_info() -> None:
    """Ask about this very process: which tells of Linux 6.13, not yet of exit codes."""
    with_self(lambda handle: exitcodes.get_info(handle.fd) and None)


def check_pidfs() -> None:
    """Whether each process has an inode, or all pidfds share that of other anonymous files."""
    with_self(_check_inode)


def _check_inode(handle: PidfdHandle) -> None:
    # Before Linux 6.9 all pidfds, as epolls still do, share one anonymous inode.
    with calls.get("epoll")() as other:
        if os.fstat(handle.fd).st_dev == os.fstat(other.fileno()).st_dev:
            raise OSError(EINVAL, "pidfds have no inodes of their own")


def check_waitid() -> None:
    """Look for a child that can't be: this very process."""
    try:
        with_self(lambda handle: calls.get("waitid")(linux.P_PIDFD, handle.fd, linux.WEXITED))
    except ChildProcessError:
        return


CHECKS: "Checks" = (
    ("pidfd_open", "pidfd_open", check),
    ("pidfd_send_signal", "pidfd_send_signal", check_send_signal),
    ("waitid", "waitid", check_waitid),
    ("PIDFD_GET_INFO", "ioctl", check_get_info),
    ("pidfd inodes", None, check_pidfs),
    ("/proc", None, procfs.check),
    ("/proc exit status", None, exitcodes.check_status),
)
