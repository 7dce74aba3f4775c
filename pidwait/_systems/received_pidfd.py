# SPDX-License-Identifier: BSD-3-Clause
"""Linux: a pidfd that we did not open. It came over a socket, or was inherited."""

import os
from errno import EBADF, ESRCH

from .._base.errors import Failed, call, log
from .._base.probe import works
from .calls import ask
from .pidfd import PidfdHandle, get_info, is_forbidden
from .posix import own
from .procfs import check_procfs, fd_info


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
