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
from .._base.probe import checks, may_work, memories, still_works, why_not, works
from .calls import ask, native
from .linux_calls import (
    LOOK,
    P_PIDFD,
    PIDFD_GET_INFO,
    PIDFD_INFO,
    PIDFD_INFO_EXIT,
    PIDFD_INFO_REQUEST,
    REAP,
    WEXITED,
)
from .posix import (
    CLD_EXITED,
    kill,
    opened,
    poll,
    reap_child,
)
from .procfs import (
    ProcfsHandle,
    check_procfs,
    check_status,
    code_of_zombie,
    fd_info,
    read_stat,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Identity, Iterator, Outcome


_NOT_OURS: "Any" = object()
# Checks that have said yes: a look at a set costs less than a call.
_works: "set[Any]" = set()
memories.append(_works.clear)


def _note_work(check: "Any") -> bool:
    why = why_not(check)
    if why is None:
        _works.add(check)
    return why is None or why.is_transient


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
        try:
            call(self._file.close)
        except Failed as why:  # somebody else has closed it
            log("close: %s", why)

    def sleep(self, deadline: Deadline, pauses: "Iterator[float]") -> bool:
        if self._fallback is None:
            try:
                return poll(self.fd, select.POLLIN, deadline) != 0
            except Failed as why:
                self._fall_back(why)
        return self._fallback is None or self._fallback.sleep(deadline, pauses)

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

    def look(self, reap: bool = False, last: bool = False) -> "Outcome":
        if self._fallback is None:
            try:
                as_parent = reap or PidfdHandle._was_ours
                if as_parent:
                    outcome = self._look_as_parent(reap, last)
                    if outcome is not _NOT_OURS:
                        return outcome  # type: ignore[no-any-return]
                info = self._get_info()
                if info is not None and info[0]:
                    return self._told(info[1], last)
                return self._look_as_other(info is not None, not as_parent, last)
            except Failed as why:
                self._fall_back(why)
        if self._fallback is None:
            return (self._get_info() or (True, None))[1]
        return self._fallback.look(reap, last)

    def _look_as_parent(self, reap: bool, last: bool) -> "Any":
        try:
            info = call(native("waitid"), P_PIDFD, self.fd, REAP if reap else LOOK)
        except Failed as why:
            if why.errno == ECHILD:
                PidfdHandle._was_ours = False
                return _NOT_OURS
            if why.errno == EBADF:
                raise
            # A policy, or P_PIDFD on Linux 5.3 (EINVAL). wait4(2) can't look without reaping, so
            # only the other sources can look.
            log("waitid: %s", why)
            return self._reap_by_pid(self.pid, last) if reap and self.pid else _NOT_OURS
        if info is not None:
            PidfdHandle._was_ours = True
            return info.si_status if info.si_code == CLD_EXITED else -info.si_status
        if not self._is_readable():
            return RUNNING
        # Its tracer has not been told yet, and is the first to reap it: ptrace(2).
        return (RUNNING if last else PENDING) if reap else _NOT_OURS

    def _reap_by_pid(self, pid: int, last: bool) -> "Any":
        if not self._is_readable():
            return RUNNING
        try:
            code = reap_child(pid)
        except Failed:
            return _NOT_OURS
        return code if code is not RUNNING or last else PENDING

    def _look_as_other(self, tells: bool, may_be_ours: bool, last: bool) -> "Outcome":
        """The outcome of a process that had not been reaped.

        ``tells``: whether the pidfd tells its code once it is; ``may_be_ours``: our child.
        """
        if not self._is_readable():
            return RUNNING
        if may_be_ours:
            outcome = self._look_as_parent(False, last)
            if outcome is not _NOT_OURS:
                return outcome  # type: ignore[no-any-return]
        # What /proc says about the pid is about our process if the pidfd says afterwards that
        # it is not reaped.
        code = code_of_zombie(self.pid)
        if not tells:
            return None if code is None or self._is_reaped() is not False else code
        reaped, told = self._get_info() or (False, None)
        # If /proc does not show the code: the parent may reap it in a moment, then the pidfd does.
        return self._told(told if reaped else code, last)

    def _told(self, code: "int | None", last: bool) -> "Outcome":
        return PENDING if code is None and not last and self.is_code_due() else code

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
        except Failed as why:
            if why.errno == ESRCH:
                return True
            if not is_forbidden(why):
                log("pidfd_send_signal: %s", why)
                return self._has_no_task()
        return False

    def _has_no_task(self) -> "bool | None":
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
        if check_get_info not in _works and not _note_work(check_get_info):
            return None
        info = bytearray(PIDFD_INFO_REQUEST)
        try:
            call(native("ioctl"), self.fd, PIDFD_GET_INFO, info, True)
        except Failed as why:
            if why.errno != ESRCH:  # a policy that came after the probe
                log("PIDFD_GET_INFO: %s", why)
                return None
            # For a moment during the reaping neither the task nor its status is found: seen for
            # 666 of 15,000 exits on Linux 6.18. The second call finds it. Linux 6.13 and 6.14
            # keep no status.
            try:
                call(native("ioctl"), self.fd, PIDFD_GET_INFO, info, True)
            except Failed:
                return True, None
        mask, _, _, _, status = PIDFD_INFO.unpack(info)
        return bool(mask & PIDFD_INFO_EXIT), -(status & 0x7F) or status >> 8 & 0xFF

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
    _with_self(_check_poll)


def _check_poll(handle: PidfdHandle) -> None:
    if poll(handle.fd, select.POLLIN, NOW):
        raise failed(ENOSYS, "poll takes a running process for an exited one")


def _with_self(use: "Callable[[PidfdHandle], object]") -> None:
    handle = PidfdHandle(os.getpid())
    try:
        use(handle)
    finally:
        handle.close()


def check_send_signal() -> None:
    """Send signal 0, which does nothing, to our own process."""
    _with_self(lambda handle: ask("pidfd_send_signal", handle.fd, 0))


def check_get_info() -> None:
    """Ask about our own process. That shows Linux 6.13; exit codes need 6.15."""
    _with_self(lambda handle: get_info(handle.fd))


def check_pidfs() -> None:
    """Whether pidfds have an inode for each process; else all share one anonymous inode."""
    _with_self(_check_inode)


def _check_inode(handle: PidfdHandle) -> None:
    # Before Linux 6.9 all pidfds, as epolls still do, share one anonymous inode.
    with ask("epoll") as other:
        if call(os.fstat, handle.fd).st_dev == call(os.fstat, other.fileno()).st_dev:
            raise failed(EINVAL, "pidfds have no inodes of their own")


def check_waitid() -> None:
    """Look for a child that can't exist: our own process."""
    try:
        _with_self(lambda handle: ask("waitid", P_PIDFD, handle.fd, WEXITED))
    except Failed as why:
        if why.errno != ECHILD:
            raise


checks["pidfd"] += [
    ("pidfd_open", "pidfd_open", check_pidfd),
    ("pidfd_send_signal", "pidfd_send_signal", check_send_signal),
    ("waitid", "waitid", check_waitid),
    ("PIDFD_GET_INFO", "ioctl", check_get_info),
    ("pidfd inodes", None, check_pidfs),
    ("/proc", None, check_procfs),
    ("/proc exit status", None, check_status),
]
