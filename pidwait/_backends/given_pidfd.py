# SPDX-License-Identifier: BSD-3-Clause
"""A pidfd that we did not open: it came over a socket, or was inherited."""

import os
import sys
from errno import EBADF, ENOSYS

from .. import _checks
from .._errors import pass_over, raise_of_handler
from .._fd import own
from .._ffi import calls
from .._sources import exitcodes, procfs
from . import pidfd


class GivenPidfdHandle(pidfd.PidfdHandle):
    """Takes over a pidfd; ``pid`` is None if the process has been reaped, or has no pid here."""

    def __init__(self, fd: int) -> None:
        self.pid = _examine(fd)
        self._owner = own(fd)
        self.fd = fd


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
    except OSError as error:  # no file descriptor left, or /proc has been unmounted
        pass_over(error, "fd %d", fd)
        return None


def _ask_pid(fd: int) -> "int | None":
    """The pid of a pidfd, without /proc; None if it has been reaped, or can't be told."""
    try:
        return exitcodes.get_info(fd)[1] or None
    except ProcessLookupError as error:
        raise_of_handler(error)
        return None
    except OSError as error:  # Linux < 6.13, a policy, or not a pidfd
        pass_over(error, "PIDFD_GET_INFO")
    try:
        calls.get("pidfd_send_signal")(fd, 0)
    except ProcessLookupError as error:
        raise_of_handler(error)
        return None
    except OSError as error:
        raise_of_handler(error)
        if error.errno == EBADF:
            raise ValueError("fd %d is not a pidfd" % fd) from None
        if not pidfd.is_forbidden(error):
            raise
    return None
