# SPDX-License-Identifier: BSD-3-Clause
"""What the system says about a process, by pid or pidfd: whose child, and its exit code.

A code is certain, or None. What can tell it depends on whose child it is, and on whether it
has been reaped:

    waitid(2), WNOWAIT    our own child, until somebody reaps it
    /proc/<pid>/stat      a zombie, if we may see its status
    PIDFD_GET_INFO        anybody's, once it has been reaped, Linux >= 6.15
    kevent(2), data       anybody's that was watched: macOS and the BSDs
"""

import os
from errno import ENOSYS

from .. import _checks
from .._errors import log
from .._ffi import bsd, calls, linux
from .._outcome import RUNNING, NotYet, from_status
from . import procfs, ps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._outcome import Outcome


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
    # A policy, or P_PIDFD on Linux 5.3 (EINVAL). wait4(2) can't look without reaping, so a
    # mere look is left to the other sources.
    log("waitid: %s", error)
    if pid is None or not reap:
        return None
    try:
        code = reap_child(pid)
    except ChildProcessError:
        return None
    if code is RUNNING:
        raise NotYet
    return code


def reap_child(pid: int) -> "Outcome":
    """RUNNING, or the exit code of our child, which is reaped; else ChildProcessError."""
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return from_status(status) if reaped else RUNNING


def look_at_child(pid: int) -> "Outcome":
    """RUNNING, or the exit code of our child, None where waitid(2) does not tell it.

    ChildProcessError where it is not our child, another OSError where there is no waitid(2).
    Never blocks, nor reaps.
    """
    info = calls.get("waitid")(*_look_by(pid))
    if info is None:
        return RUNNING
    if info.si_code == bsd.CLD_EXITED:
        # All 32 bits of what was given to _exit(2), of which wait(2) tells the last 8.
        status: int = info.si_status & 0xFF
        return status
    # macOS has 0 here, whatever the signal: xnu, bsd/kern/kern_exit.c, waitidcontinue().
    return -info.si_status or None


def _look_by(pid: int) -> "tuple[int, int, int]":
    """The arguments of waitid(2) that look at a child of that pid."""
    system = bsd.system()
    if system is None:
        return linux.P_PID, pid, linux.LOOK
    return system.waitid.p_pid, pid, system.waitid.look


def is_our_child(pid: int) -> "bool | None":
    """Whether a child of ours, running or a zombie, has the pid; None where nobody tells."""
    if os.name == "nt":
        return None
    try:
        calls.get("waitid")(*_look_by(pid))
    except ChildProcessError:
        return False
    except OSError as error:  # a policy, or there is no waitid
        log("waitid, pid %d: %s", pid, error)
        return None
    return True


def is_our_sibling(pid: int) -> bool:
    """Whether a child of our parent has the pid; where /proc does not tell, any process."""
    stat = procfs.read_stat(pid)
    return exists(pid) if stat is None else stat.parent == os.getppid()


def check_waitid() -> None:
    """Look for a child that can't be, this very process: for macOS and the BSDs."""
    table = bsd.table().waitid
    for name, number in (("P_PID", table.p_pid), ("WEXITED", table.look), ("WNOWAIT", table.look)):
        own = getattr(os, name, number)
        if own != number if name == "P_PID" else not own & number:
            raise OSError(ENOSYS, "os.%s is %d here" % (name, own))
    try:
        calls.get("waitid")(*_look_by(os.getpid()))
    except ChildProcessError:
        return


def is_found(pid: int) -> bool:
    """Whether kill(2) finds a process or thread with the pid."""
    try:
        os.kill(pid, 0)
    except PermissionError:  # there is one, of somebody else
        return True
    except ProcessLookupError:
        return False
    return True


def exists(pid: int) -> bool:
    """Whether a process or thread, or a zombie of it, has the pid."""
    if is_found(pid):
        return True
    if bsd.system() is None:
        return False
    # Older OpenBSDs' kill() does not find a zombie. waitid(2) finds our own; releases that
    # have no waitid(2) still have ps.
    is_ours = is_our_child(pid)
    return ps.read_stat(pid) is not None if is_ours is None else is_ours


def from_zombie(pid: "int | None") -> "int | None":
    """The exit code that /proc shows for a zombie.

    None where there is none, or it may not be seen. It is up to the caller to make sure that
    the pid still belongs to the same process.
    """
    stat = None if pid is None else procfs.read_stat(pid)
    if pid is None or stat is None or not stat.exited:
        return None
    if stat.status == 0:
        return 0 if _shows_status(pid) else None
    return from_status(stat.status)


def _shows_status(pid: int) -> bool:
    # The status is 0, too, for a reader without PTRACE_MODE_READ_FSCREDS on the
    # process: fs/proc/array.c, do_task_stat(). The link to its user namespace
    # wants exactly that right and, unlike other links, outlives the memory.
    return procfs.shows_namespace(pid) and _checks.surely_works(check_status)


def check_status() -> None:
    """Whether /proc tells the wait status: gVisor's always says 0."""
    # arg_start, which stands before it and needs the same right, is never 0
    # for oneself on Linux, and always on gVisor.
    if procfs.self_fields()[45:46] == [b"0"]:
        raise OSError(ENOSYS, "/proc does not tell the wait status")


def from_pidfd(fd: int) -> "tuple[bool, int | None]":
    """Whether the process has been reaped, and its exit code then.

    OSError where the kernel has no such call.
    """
    for _ in range(2):
        try:
            mask, _, _, _, status = get_info(fd)
        except ProcessLookupError:
            # Just while it is being reaped, neither the task nor its status is found: seen
            # for 666 of 15,000 exits on Linux 6.18. The status is there at the second call.
            continue
        return (True, from_status(status)) if mask & linux.PIDFD_INFO_EXIT else (False, None)
    # Linux 6.13 and 6.14 keep no status.
    return True, None


def get_info(fd: int) -> "tuple[int, int, int, int, int]":
    """What ioctl(fd, PIDFD_GET_INFO) answers with: mask, pid, tgid, ppid, wait status."""
    info = bytearray(linux.PIDFD_INFO_REQUEST)
    calls.get("ioctl")(fd, linux.PIDFD_GET_INFO, info, True)
    return linux.PIDFD_INFO.unpack(info)
