# SPDX-License-Identifier: BSD-3-Clause
"""Linux: a pidfd and poll(2).

pidfd_open         Linux 5.3; an fd that is readable once all threads have ended
pidfd_send_signal  Linux 5.1
waitid, P_PIDFD    Linux 5.4; this very child, whatever became of its pid
fstat              Linux 6.9; the inode number identifies the process
POLLHUP            about Linux 6.12; reports that the process has been reaped
PIDFD_GET_INFO     Linux 6.13; reports the exit status from 6.15 on

An exit code is certain, or it is None. Its source depends on whose child the process is, and on
whether it has been reaped:

waitid, WNOWAIT    our own child, until somebody reaps it
/proc/<pid>/stat   any zombie, if we may see its status
PIDFD_GET_INFO     any process, once it has been reaped
"""

import os
import select
import sys
from errno import ECHILD, EINVAL, ENOENT, ENOSYS, ESRCH

from ..._base.arguments import check_fd
from ..._base.checks import still_works, works
from ..._base.deadline import NOW, Backoff, Deadline
from ..._base.errors import DENIED, Failed, call, log, not_by_handler
from ..._base.handle import PENDING, RUNNING, Handle, raise_closed
from ..calls import CALLS, ask
from ..posix import close, code_of_child, code_of_status, opened, own, poll, reap_child
from .calls import LOOK, P_PIDFD, PIDFD_INFO_EXIT, REAP, get_info
from .proc import ProcfsHandle, check_procfs, code_of_zombie, fd_info, read_stat, usage_of_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Any, Callable, Checks, File, Identity, Outcome


# Whether the last look has found a child of ours: the guess for a new handle. It decides what is
# asked first: in a set, two system calls fewer for each process of others. Not an attribute of the
# class: to set one, Python forgets what it has cached about the class.
_last_was_ours = [True]


class PidfdHandle(Handle):
    """A pidfd: opened here, or given as ``file`` (received, inherited, or duplicated)."""

    backend = "pidfd"

    def __init__(
        self, pid: "int | None", file: "File | None" = None, open_: "Callable[..., File]" = opened
    ) -> None:
        self.pid = pid
        try:
            self._file = file or open_(CALLS["pidfd_open"], pid, 0)
        except Failed as why:
            if why.errno == ENOENT:
                raise Failed(ESRCH, "a thread's ID, not a process's") from None
            # EINVAL can mean a thread's ID on older kernels, or a process that is just exiting
            # (psutil#2715): polling finds out which.
            raise Failed(why.errno, "pidfd_open: %s" % (why.error.strerror or why)) from None
        self.fd: int = self._file.fileno()
        self._is_ours = _last_was_ours[0]

    def look(self, reap: bool = False) -> "Outcome":
        if not (reap or self._is_ours):
            is_reaped, code = self._reap_state()
            if is_reaped:
                return code
        if reap:
            self.usage = usage_of_child(P_PIDFD, self.fd) or self.usage
        try:
            info = call(CALLS["waitid"], P_PIDFD, self.fd, REAP if reap else LOOK)
            self._is_ours = _last_was_ours[0] = True
            if info is not None:
                return code_of_child(info)
        except Failed as why:
            self._is_ours = _last_was_ours[0] = why.errno != ECHILD
            if self._is_ours:  # a policy, or P_PIDFD on Linux 5.3 (EINVAL)
                log("waitid: %s", why)
        try:
            # When a thread other than the main one calls execve(2), it takes over the pid, and for
            # a moment poll takes the old main thread for the last one: seen for 1 of 1,400 calls
            # of execve() on Linux 6.18, in fs/pidfs.c, pidfd_poll(). But not twice in a row.
            event = poll(self.fd, select.POLLIN, NOW) and poll(self.fd, select.POLLIN, NOW)
        except Failed as why:
            if self._fall_back(why):
                return self.look(reap)
            is_reaped, code = self._reap_state()
            return RUNNING if is_reaped is False else code
        if not event:
            return RUNNING
        if reap and self._is_ours and self.pid is not None:
            try:
                reaped = reap_child(self.pid)
                # Its tracer has not been notified yet, and is the first to reap it: ptrace(2).
                return PENDING if reaped is RUNNING else reaped
            except Failed as why:
                log("pid %d is not reaped: %s", self.pid, why)
        # /proc has shown our process if the pidfd afterwards reports it as not reaped.
        shown = None if event & select.POLLHUP else code_of_zombie(self.pid)
        is_reaped, code = self._reap_state()
        return code if shown is None or is_reaped is not False else shown

    def _reap_state(self) -> "tuple[bool | None, Outcome]":
        """Whether it has been reaped, None if that is unknown; and its code once it has been.

        The code is PENDING if it may still come. As long as the process has not been reaped, its
        pid is not reused.
        """
        # For a moment during the reaping neither the task nor its status is found: seen for
        # 666 of 15,000 exits on Linux 6.18. The second call finds the status, as release_task()
        # stores it before it removes the task. Linux 6.13 and 6.14 keep no status. And up to
        # some 6.18 a process is not found if its parent is outside of our PID namespace.
        for _ in range(2):
            try:
                mask, _, _, _, status = get_info(CALLS["ioctl"], self.fd)
                is_reaped = bool(mask & PIDFD_INFO_EXIT)
                return is_reaped, code_of_status(status) if is_reaped else PENDING
            except Failed as why:
                if why.errno != ESRCH:  # Linux < 6.13, or a policy
                    break
        try:
            ask("pidfd_send_signal", self.fd, 0)
            return False, None
        except Failed as why:
            # EPERM and EACCES: the process is there, unless a policy refuses every process.
            is_forbidden = why.errno in DENIED and still_works(check_send_signal)
            if why.errno == ESRCH or is_forbidden:
                return not is_forbidden, None
            log("pidfd_send_signal: %s", why)
        try:
            return int(fd_info(self.fd)["Pid"]) < 0, None  # Linux 5.5
        except not_by_handler(Failed, LookupError) as why:
            log("pid %s: %s", self.pid, why)
            return None, None

    def sleep(self, deadline: Deadline, backoff: Backoff) -> bool:
        try:
            return poll(self.fd, select.POLLIN, deadline) != 0
        except Failed as why:
            return not self._fall_back(why) or self.sleep(deadline, backoff)

    def _fall_back(self, why: Failed) -> bool:
        """Use a polled handle from here on; return False if the process is gone."""
        if self.fd < 0:  # the pid may be another process's
            raise_closed()
        # poll(2): ENOMEM; EINVAL when RLIMIT_NOFILE is 0. EBADF: somebody else has closed the fd.
        log("pid %s is polled: %s", self.pid, why)
        if self.pid is None:
            if self._reap_state()[0]:
                return False
            raise why.as_error("poll", None) from None
        try:
            polled = ProcfsHandle(self.pid)
        except Failed as gone:
            if gone.errno != ESRCH:
                raise
            return False
        # It was opened by the pid, which may have gone to another process before: so the pidfd
        # is asked afterwards.
        if self._reap_state()[0]:
            return False
        for name in ("backend", "fileno", "look", "send_signal", "sleep"):
            setattr(self, name, getattr(polled, name))
        return True

    def fileno(self) -> int:
        return self.fd

    def send_signal(self, sig: int) -> None:
        try:
            ask("pidfd_send_signal", self.fd, sig)
        except Failed as why:
            if why.errno == ESRCH or still_works(check_send_signal):
                raise
            log("pidfd_send_signal: %s", why)  # a policy
            if self.pid is None:
                raise
            super().send_signal(sig)

    def identify(self) -> "Identity | None":
        if works(check_pidfs):
            try:
                return "pidfd", call(os.fstat, self.fd).st_ino
            except Failed as why:
                log("pid %s, fstat: %s", self.pid, why)
        stat = None if self.pid is None else read_stat(self.pid)
        if stat is None or self._reap_state()[0] is not False:
            return None
        return "start", self.pid, stat.started

    def close(self) -> None:
        super().close()
        self.fd = -1  # the number may be reused soon; calls with -1 fail, see _fall_back()
        close(self._file)


def received_pidfd(fd: int) -> PidfdHandle:
    """The handle for a pidfd; its ``pid`` is None if the process has no pid here any more."""
    check_fd("fd", fd)
    call(os.get_inheritable, fd)  # whether it is open
    pid = _pid_of(fd)
    call(os.set_inheritable, fd, False)
    return PidfdHandle(pid, own(fd))


def _pid_of(fd: int) -> "int | None":
    info: "dict[str, str]" = {}
    if works(check_procfs):
        try:
            info = fd_info(fd)
        except Failed as why:  # no file descriptor left, or /proc has been unmounted
            log("fd %d: %s", fd, why)
    if not info:
        try:
            return get_info(CALLS["ioctl"], fd)[1] or None
        except Failed as why:  # it has been reaped, Linux < 6.13, or a policy
            log("PIDFD_GET_INFO: %s", why)
            return None
    if "Pid" not in info:
        raise ValueError("fd %d is not a pidfd" % fd)
    if int(info["flags"], 8) & os.O_EXCL:  # PIDFD_THREAD, Linux 6.9
        raise ValueError("fd %d is the pidfd of a thread, not of a process" % fd)
    return max(int(info["Pid"]), 0) or None


# The checks


def _own_pidfd() -> "Any":
    return PidfdHandle(os.getpid())._file


def check_pidfd() -> None:
    """Open and poll a pidfd of our own process."""
    # Before Android 12 an unlisted system call gets a signal that kills.
    if getattr(sys, "getandroidapilevel", lambda: 31)() < 31:
        raise Failed(ENOSYS, "Android before 12 kills a process that calls pidfd_open")
    # Load these now: later there may be no file descriptor left to load them with.
    for name in "waitid pidfd_send_signal ioctl fcntl getrlimit setrlimit".split():
        try:
            CALLS[name]
        except Failed as why:
            log("%s: %s", name, why)
    with _own_pidfd() as file:
        if poll(file.fileno(), select.POLLIN, NOW):
            raise Failed(ENOSYS, "poll reports a running process as exited")


def check_send_signal() -> None:
    """Send signal 0, which does nothing, to our own process."""
    with _own_pidfd() as file:
        ask("pidfd_send_signal", file.fileno(), 0)


def check_get_info() -> None:
    """Ask about our own process. This works from Linux 6.13 on; exit codes need 6.15."""
    with _own_pidfd() as file:
        get_info(CALLS["ioctl"], file.fileno())


def check_pidfs() -> None:
    """Whether pidfds have an inode for each process."""
    # Before Linux 6.9 all pidfds, like epolls today, share one anonymous inode.
    with _own_pidfd() as file, ask("epoll") as other:
        if call(os.fstat, file.fileno()).st_dev == call(os.fstat, other.fileno()).st_dev:
            raise Failed(EINVAL, "pidfds have no inodes of their own")


PIDFD_CHECKS: "Checks" = [
    ("pidfd_open", "pidfd_open", check_pidfd),
    ("pidfd_send_signal", "pidfd_send_signal", check_send_signal),
    ("PIDFD_GET_INFO", "ioctl", check_get_info),
    ("pidfd inodes", None, check_pidfs),
]
