# SPDX-License-Identifier: BSD-3-Clause
"""Linux: a pidfd and poll(2).

pidfd_open         Linux 5.3; an fd that is readable once all threads have ended
pidfd_send_signal  Linux 5.1
waitid, P_PIDFD    Linux 5.4; this very child, whatever became of its pid
fstat              Linux 6.9; the inode number identifies the process
POLLHUP            about Linux 6.12; tells that the process has been reaped
PIDFD_GET_INFO     Linux 6.13; tells the exit status from 6.15 on

An exit code is certain, or it is None. Which source can tell it depends on whose child the
process is, and on whether it has been reaped:

waitid, WNOWAIT    our own child, until somebody reaps it
/proc/<pid>/stat   any zombie, if we may see its status
PIDFD_GET_INFO     any process, once it has been reaped
"""

import os
import select
import sys
from errno import EACCES, EBADF, ECHILD, EINVAL, ENOENT, ENOSYS, EPERM, ESRCH

from .._base.deadline import NOW, Deadline
from .._base.errors import Failed, call, failed, log
from .._base.handle import PENDING, RUNNING, Handle
from .._base.probe import checks, may_work, still_works, works
from .calls import ask, native
from .linux_calls import (
    LOOK,
    P_PIDFD,
    PIDFD_GET_INFO,
    PIDFD_INFO,
    PIDFD_INFO_EXIT,
    PIDFD_INFO_REQUEST,
    REAP,
    WALL,
    WEXITED,
)
from .posix import CLD_EXITED, close, kill, may_block, opened, own, poll, reap_child
from .procfs import ProcfsHandle, check_procfs, code_of_zombie, fd_info, read_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Identity, Outcome


class PidfdHandle(Handle):
    """A pidfd; one that is given came over a socket, or was inherited, or is a copy."""

    backend = "pidfd"
    # Whether the latest exit was that of our child: what to ask first.
    _was_ours = True
    # What polls the process if poll(2) fails.
    _fallback: "ProcfsHandle | None" = None

    def __init__(self, pid: "int | None", file: "Any" = None) -> None:
        self.pid = pid
        self._file = open_pidfd(pid) if file is None else file
        self.fd: int = self._file.fileno()

    def fileno(self) -> int:
        return self.fd if self._fallback is None else self._fallback.fileno()

    def close(self) -> None:
        close(self._file)

    def sleep(self, deadline: Deadline, interval: "list[float]") -> bool:
        if self._fallback is None:
            try:
                return poll(self.fd, select.POLLIN, deadline) != 0
            except Failed as why:
                self._fall_back(why)
        return self._fallback is None or self._fallback.sleep(deadline, interval)

    def _fall_back(self, why: Failed) -> None:
        """Go on by polling; if the process is gone, without."""
        # poll(2): ENOMEM; EINVAL when RLIMIT_NOFILE is 0. EBADF: somebody else has closed the fd.
        log("pid %s is polled: %s", self.pid, why)
        if self.pid is None:
            raise why
        try:
            fallback = ProcfsHandle(self.pid)
        except Failed:
            return  # it is gone
        # The fallback was opened by the pid, which may have gone to another process before: so
        # the pidfd is asked afterwards.
        if not self._is_reaped():
            self._fallback = fallback
            self.backend = fallback.backend

    def wait(self, deadline: Deadline, reap: bool = False) -> "Outcome":
        # One call of waitid(2) sleeps until our child exits, tells the code, and reaps.
        if reap and deadline.timeout is None and self._fallback is None and may_block():
            try:
                return _code_of(call(native("waitid"), P_PIDFD, self.fd, WEXITED | WALL))
            except Failed as why:  # look() finds out why
                PidfdHandle._was_ours = why.errno != ECHILD
        return super().wait(deadline, reap)

    def look(self, reap: bool = False, last: bool = False) -> "Outcome":
        if self._fallback is not None:
            return self._fallback.look(reap, last)
        told = refused = None
        if not (reap or PidfdHandle._was_ours):
            told = self._get_info()
            if told is not None and told[0]:  # somebody has reaped it
                return self._told(told[1], last)
        try:
            info = call(native("waitid"), P_PIDFD, self.fd, REAP if reap else LOOK)
            if info is not None:
                PidfdHandle._was_ours = True
                return _code_of(info)
        except Failed as why:
            refused = why
            PidfdHandle._was_ours = why.errno != ECHILD
        try:
            return self._look_closer(reap, last, told, refused)
        except Failed as why:
            self._fall_back(why)
        if self._fallback is None:
            return (self._get_info() or (True, None))[1]
        return self._fallback.look(reap, last)

    def _told(self, code: "int | None", last: bool) -> "Outcome":
        return PENDING if code is None and not last and self.is_code_due() else code

    def _look_closer(
        self,
        reap: bool,
        last: bool,
        told: "tuple[bool, int | None] | None",
        refused: "Failed | None",
    ) -> "Outcome":
        """Look where waitid(2) tells no exit. ``told``: that nobody had reaped it, if asked."""
        if not self._is_readable():
            return RUNNING
        if refused is None:
            if reap:  # its tracer has not been told yet, and is the first to reap it: ptrace(2)
                return RUNNING if last else PENDING
        elif refused.errno != ECHILD:
            # A policy, or P_PIDFD on Linux 5.3 (EINVAL). wait4(2) can't look without reaping, so
            # only the other sources can look.
            log("waitid: %s", refused)
            if reap and self.pid is not None:
                try:
                    code = reap_child(self.pid)
                    return code if code is not RUNNING or last else PENDING
                except Failed as why:
                    log("pid %d is not reaped: %s", self.pid, why)
        told = told or self._get_info()
        if told is not None and told[0]:
            return self._told(told[1], last)
        # What /proc says about the pid is about our process if the pidfd says afterwards that it
        # is not reaped.
        code = code_of_zombie(self.pid)
        if told is None:
            return None if code is None or self._is_reaped() is not False else code
        is_reaped, later = self._get_info() or (False, None)
        # If /proc does not show the code: the parent may reap it in a moment, then the pidfd does.
        return self._told(later if is_reaped else code, last)

    def _is_readable(self) -> bool:
        """Whether poll tells an exit; if it tells one twice in a row, there was one."""
        # When a thread other than the main one calls execve(2), it takes over the pid, and for a
        # moment poll takes the old main thread for the last one: seen for 1 of 1,400 calls of
        # execve() on Linux 6.18, in fs/pidfs.c, pidfd_poll().
        return bool(poll(self.fd, select.POLLIN, NOW) and poll(self.fd, select.POLLIN, NOW))

    def _is_reaped(self) -> "bool | None":
        """Whether the pid may belong to another process by now; None if that can't be told."""
        try:
            ask("pidfd_send_signal", self.fd, 0)
            return False
        except Failed as why:
            if why.errno == ESRCH or is_forbidden(why):
                return why.errno == ESRCH
            log("pidfd_send_signal: %s", why)
        info = self._get_info()
        if info is not None:
            return info[0]
        try:
            return int(fd_info(self.fd)["Pid"]) < 0  # Linux 5.5
        except (Failed, LookupError) as why:
            log("pid %s: %s", self.pid, why)
            return None

    def _get_info(self) -> "tuple[bool, int | None] | None":
        """Whether it has been reaped, and if so its code; None if the system does not tell."""
        # For a moment during the reaping neither the task nor its status is found: seen for
        # 666 of 15,000 exits on Linux 6.18. The second call finds it. Linux 6.13 and 6.14
        # keep no status.
        info = bytearray(PIDFD_INFO_REQUEST)
        for _ in range(2):
            try:
                call(native("ioctl"), self.fd, PIDFD_GET_INFO, info, True)
                mask, _, _, _, status = PIDFD_INFO.unpack(info)
                return bool(mask & PIDFD_INFO_EXIT), -(status & 0x7F) or status >> 8 & 0xFF
            except Failed as why:
                if why.errno != ESRCH:  # Linux < 6.13, or a policy
                    return None
        return True, None

    def send_signal(self, sig: int) -> None:
        if self._fallback is not None:
            return self._fallback.send_signal(sig)
        if may_work(check_send_signal):
            try:
                ask("pidfd_send_signal", self.fd, sig)
                return None
            except Failed as why:
                if why.errno == ESRCH or still_works(check_send_signal):
                    raise
                log("pidfd_send_signal: %s", why)  # a policy that came after the probe
        if self.pid is None or self.look() is not RUNNING:
            raise failed(ESRCH)
        return kill(self.pid, sig)

    def identify(self) -> "Identity | None":
        if works(check_pidfs):
            try:
                return "pidfd", call(os.fstat, self.fd).st_ino
            except Failed as why:
                log("pid %s, fstat: %s", self.pid, why)
        stat = None if self.pid is None else read_stat(self.pid)
        if stat is None or self._is_reaped() is not False:
            return None
        return "start", self.pid, stat.started


def _code_of(info: "Any") -> int:
    status: int = info.si_status
    return status if info.si_code == CLD_EXITED else -status


def is_forbidden(why: Failed) -> bool:
    """Whether the process is there, but we may not send it a signal."""
    # A policy may answer so for every process: then it proves nothing.
    return why.errno in (EPERM, EACCES) and still_works(check_send_signal)


def open_pidfd(pid: "int | None", open_: "Callable[..., Any]" = opened) -> "Any":
    try:
        return open_(native("pidfd_open"), pid, 0)
    except Failed as why:
        if why.errno == ENOENT:
            raise failed(ESRCH, "a thread's ID, not a process's") from None
        # EINVAL can mean a thread's ID on older kernels, or a process that is just exiting
        # (psutil#2715): polling finds out which.
        raise failed(why.errno, "pidfd_open: %s" % (why.error.strerror or why)) from None


def get_info(fd: int) -> "tuple[int, int, int, int, int]":
    """What ioctl(fd, PIDFD_GET_INFO) tells: mask, pid, tgid, ppid, wait status."""
    info = bytearray(PIDFD_INFO_REQUEST)
    ask("ioctl", fd, PIDFD_GET_INFO, info, True)
    return PIDFD_INFO.unpack(info)


def received_pidfd(fd: int) -> PidfdHandle:
    """The handle for a pidfd; its ``pid`` is None if the process has no pid here any more."""
    if isinstance(fd, bool) or not isinstance(fd, int):
        raise TypeError("fd must be a file descriptor, not %s" % type(fd).__name__)
    if fd < 0:
        raise ValueError("fd must not be negative: %d" % fd)
    call(os.set_inheritable, fd, False)
    pid = _pid_of(fd)
    return PidfdHandle(pid, own(fd))


def _pid_of(fd: int) -> "int | None":
    info: "dict[str, str]" = {}
    if works(check_procfs):
        try:
            info = fd_info(fd)
        except Failed as why:  # no file descriptor left, or /proc has been unmounted
            log("fd %d: %s", fd, why)
    if not info:
        return _ask_pid(fd)
    if "Pid" not in info:
        raise ValueError("fd %d is not a pidfd" % fd)
    if int(info["flags"], 8) & os.O_EXCL:  # PIDFD_THREAD, Linux 6.9
        raise ValueError("fd %d is the pidfd of a thread, not of a process" % fd)
    return max(int(info["Pid"]), 0) or None


def _ask_pid(fd: int) -> "int | None":
    """The pid of a pidfd, without /proc; None if it has been reaped, or can't be told."""
    try:
        return get_info(fd)[1] or None
    except Failed as why:
        if why.errno == ESRCH:
            return None
        log("PIDFD_GET_INFO: %s", why)  # Linux < 6.13, a policy, or not a pidfd
    try:
        ask("pidfd_send_signal", fd, 0)
    except Failed as why:
        if why.errno == EBADF:
            raise ValueError("fd %d is not a pidfd" % fd) from None
        if why.errno != ESRCH and not is_forbidden(why):
            raise
    return None


# The checks


def check_pidfd() -> None:
    """Open and poll a pidfd of our own process."""
    # Before Android 12 an unlisted system call is answered with a signal that kills.
    if getattr(sys, "getandroidapilevel", lambda: 31)() < 31:
        raise failed(ENOSYS, "Android before 12 kills a process that calls pidfd_open")
    # Load these now: later there may be no file descriptor left to load them with.
    for name in "waitid pidfd_send_signal ioctl fcntl getrlimit setrlimit prlimit".split():
        try:
            native(name)
        except Failed as why:
            log("%s: %s", name, why)
    with open_pidfd(os.getpid()) as file:
        if poll(file.fileno(), select.POLLIN, NOW):
            raise failed(ENOSYS, "poll reports a running process as exited")


def check_send_signal() -> None:
    """Send signal 0, which does nothing, to our own process."""
    with open_pidfd(os.getpid()) as file:
        ask("pidfd_send_signal", file.fileno(), 0)


def check_get_info() -> None:
    """Ask about our own process. That shows Linux 6.13; exit codes need 6.15."""
    with open_pidfd(os.getpid()) as file:
        get_info(file.fileno())


def check_pidfs() -> None:
    """Whether pidfds have an inode for each process; else all share one anonymous inode."""
    # Before Linux 6.9 all pidfds, as epolls still do, share one anonymous inode.
    with open_pidfd(os.getpid()) as file, ask("epoll") as other:
        if call(os.fstat, file.fileno()).st_dev == call(os.fstat, other.fileno()).st_dev:
            raise failed(EINVAL, "pidfds have no inodes of their own")


def check_waitid() -> None:
    """Look for a child that can't exist: our own process."""
    with open_pidfd(os.getpid()) as file:
        try:
            ask("waitid", P_PIDFD, file.fileno(), WEXITED)
        except Failed as why:
            if why.errno != ECHILD:
                raise


checks["pidfd"] += [
    ("pidfd_open", "pidfd_open", check_pidfd),
    ("pidfd_send_signal", "pidfd_send_signal", check_send_signal),
    ("waitid", "waitid", check_waitid),
    ("PIDFD_GET_INFO", "ioctl", check_get_info),
    ("pidfd inodes", None, check_pidfs),
]
