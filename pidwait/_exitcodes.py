# SPDX-License-Identifier: BSD-3-Clause
"""The exit codes of processes that have exited: certain, or None.

Who can tell depends on whose child it is, and on whether it has been reaped:

    waitid(2), WNOWAIT    our own child, until somebody reaps it
    /proc/<pid>/stat      a zombie, to who may see it
    PIDFD_GET_INFO        whosever child, once it has been reaped, Linux >= 6.15
    kevent(2), data       whosever child, to who watched it: macOS and the BSDs
"""

import os
from errno import ENOSYS

from . import _probe, _procfs
from ._errors import log
from ._ffi import calls, linux

RUNNING = object()  # in the place of an exit code


class NotYet(Exception):
    """Our child has exited, but can't be reaped yet: a tracer holds it."""


def from_status(status: int) -> int:
    """The exit code in a wait status, see wait(2)."""
    signal = status & 0x7F
    return -signal if signal else status >> 8 & 0xFF


def from_child(idtype: int, id_: int, pid: "int | None", reap: bool) -> "int | None":
    """The exit code of our child, which is reaped only if asked for.

    None where it is not our child, or somebody else has reaped it. Never blocks.
    """
    try:
        info = calls.get("waitid")(idtype, id_, linux.REAP if reap else linux.LOOK)
    except OSError as error:
        return without_waitid(error, pid, reap)
    if info is None:
        raise NotYet
    status: int = info.si_status
    return status if info.si_code == linux.CLD_EXITED else -status


def without_waitid(error: OSError, pid: "int | None", reap: bool) -> "int | None":
    """What from_child() answers after an error of waitid."""
    if isinstance(error, ChildProcessError):
        return None
    # A policy, or P_PIDFD on Linux 5.3 (EINVAL). wait4(2) can't look without
    # reaping, so who only looks is left to the other sources.
    log("waitid: %s", error)
    if pid is None or not reap:
        return None
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if not reaped:
        raise NotYet
    return from_status(status)


def from_zombie(pid: "int | None") -> "int | None":
    """The exit code that /proc tells of a zombie.

    None where there is none, or it may not be seen. It is up to the caller to
    make sure that the pid has not changed hands.
    """
    stat = None if pid is None else _procfs.read_stat(pid)
    if pid is None or stat is None or not stat.exited:
        return None
    if stat.status == 0:
        return 0 if _shows_status(pid) else None
    return from_status(stat.status)


def _shows_status(pid: int) -> bool:
    # The status is 0, too, for a reader without PTRACE_MODE_READ_FSCREDS on the
    # process: fs/proc/array.c, do_task_stat(). The link to its user namespace
    # wants exactly that right and, unlike other links, outlives the memory.
    return _procfs.shows_namespace(pid) and _probe.surely_works(check_status)


def check_status() -> None:
    """Whether /proc tells the wait status: gVisor's always says 0."""
    # arg_start, which stands before it and needs the same right, is never 0
    # for oneself on Linux, and always on gVisor.
    if _procfs.self_fields()[45:46] == [b"0"]:
        raise OSError(ENOSYS, "/proc does not tell the wait status")


def from_pidfd(fd: int) -> "tuple[bool, int | None]":
    """Whether the process has been reaped, and its exit code then.

    OSError where the kernel has no such call.
    """
    reaped, code, _ = from_pidfd_or_parent(fd)
    return reaped, code


def from_pidfd_or_parent(fd: int) -> "tuple[bool, int | None, int]":
    """As from_pidfd(), and whose child it is as long as it has not been reaped."""
    for _ in range(2):
        try:
            mask, _, _, parent, status = get_info(fd)
        except ProcessLookupError:
            # Just while it is being reaped, neither the task nor its status is
            # found: seen for 666 of 15,000 exits on Linux 6.18. The status is
            # there at the second call.
            continue
        if mask & linux.PIDFD_INFO_EXIT:
            return True, from_status(status), 0
        return False, None, parent
    # Linux 6.13 and 6.14 keep no status.
    return True, None, 0


def get_info(fd: int) -> "tuple[int, int, int, int, int]":
    """What ioctl(fd, PIDFD_GET_INFO) answers with: mask, pid, tgid, ppid, wait status."""
    info = bytearray(linux.PIDFD_INFO_REQUEST)
    calls.get("ioctl")(fd, linux.PIDFD_GET_INFO, info, True)
    return linux.PIDFD_INFO.unpack(info)
