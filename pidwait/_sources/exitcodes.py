# SPDX-License-Identifier: BSD-3-Clause
"""What the system says about a process, by pid or pidfd: whose child it is, and its exit code.

A code is certain, or it is None. Which source can tell it depends on whose child the process
is, and on whether it has been reaped:

    waitid(2), WNOWAIT    our own child, until somebody reaps it
    /proc/<pid>/stat      any zombie, if we may see its status
    PIDFD_GET_INFO        any process, once it has been reaped: Linux >= 6.15
    kevent(2), data       any process that was watched when it exited: macOS and the BSDs
"""

import os
from errno import ENOSYS

from .. import _checks
from .._errors import log, pass_over, raise_of_handler
from .._ffi import bsd, calls, linux
from .._outcome import RUNNING, NotYet, from_status
from . import procfs, ps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._outcome import Outcome


def from_child(idtype: int, id_: int, pid: "int | None", reap: bool) -> "int | None":
    """The exit code of our child that has exited; ``reap`` tells whether to reap it.

    None if it is not our child, or somebody else has reaped it; NotYet if it can't be reaped
    yet. Never blocks.
    """
    try:
        info = calls.get("waitid")(idtype, id_, linux.REAP if reap else linux.LOOK)
    except OSError as error:
        return without_waitid(error, pid, reap)
    if info is None:
        raise NotYet
    return from_info(info)


def from_info(info: "Any") -> int:
    """The exit code in what waitid(2) returned on Linux."""
    status: int = info.si_status
    return status if info.si_code == linux.CLD_EXITED else -status


def without_waitid(error: OSError, pid: "int | None", reap: bool) -> "int | None":
    """What from_child() returns after waitid has failed."""
    raise_of_handler(error)
    if isinstance(error, ChildProcessError):
        return None
    # A policy, or P_PIDFD on Linux 5.3 (EINVAL). wait4(2) can't look without reaping, so only
    # the other sources can look.
    log("waitid: %s", error)
    if pid is None or not reap:
        return None
    try:
        code = reap_child(pid)
    except ChildProcessError as gone:
        raise_of_handler(gone)
        return None
    if code is RUNNING:
        raise NotYet
    return code


def reap_child(pid: int) -> "Outcome":
    """Reap our child: its exit code, or RUNNING. ChildProcessError if it is not our child."""
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return from_status(status) if reaped else RUNNING


def look_at_child(pid: int) -> "Outcome":
    """Look at our child: RUNNING, or its exit code, or None if waitid(2) does not tell it.

    ChildProcessError if it is not our child, another OSError if there is no waitid(2).
    Neither blocks nor reaps.
    """
    info = calls.get("waitid")(*_look_by(pid))
    if info is None:
        return RUNNING
    if info.si_code == linux.CLD_EXITED:  # it is 1 everywhere
        # It has all 32 bits of the argument of _exit(2); wait(2) tells the last 8 of them.
        status: int = info.si_status & 0xFF
        return status
    # macOS says 0 here for every signal: xnu, bsd/kern/kern_exit.c, waitidcontinue().
    return -info.si_status or None


def _look_by(pid: int) -> "tuple[int, int, int]":
    """The arguments of waitid(2) that look at a child of that pid."""
    if bsd.system() is None:
        return linux.P_PID, pid, linux.LOOK
    waitid = bsd.table().waitid
    return waitid.p_pid, pid, waitid.look


def is_our_child(pid: int) -> "bool | None":
    """Whether a child of ours, running or a zombie, has the pid; None if that can't be told."""
    if os.name == "nt":
        return None
    try:
        calls.get("waitid")(*_look_by(pid))
    except ChildProcessError as error:
        raise_of_handler(error)
        return False
    except OSError as error:  # a policy, or there is no waitid
        pass_over(error, "waitid, pid %d", pid)
        return None
    return True


def is_our_sibling(pid: int) -> bool:
    """Whether a child of our parent has the pid; without /proc, whether any process has it."""
    stat = procfs.read_stat(pid)
    return exists(pid) if stat is None else stat.parent == os.getppid()


def is_found(pid: int) -> bool:
    """Whether kill(2) finds a process or thread with the pid."""
    try:
        os.kill(pid, 0)
    except (PermissionError, ProcessLookupError) as error:
        raise_of_handler(error)
        return isinstance(error, PermissionError)  # another user's
    return True


def exists(pid: int) -> bool:
    """Whether a process or thread, running or a zombie, has the pid."""
    if is_found(pid):
        return True
    if bsd.system() is None:
        return False
    # On older OpenBSDs kill() does not find a zombie. waitid(2) finds it if it is ours; where
    # there is no waitid(2), ps finds it.
    is_ours = is_our_child(pid)
    return ps.read_stat(pid) is not None if is_ours is None else is_ours


def from_zombie(pid: "int | None") -> "int | None":
    """The exit code that /proc shows for a zombie.

    None if there is no zombie, or we may not see its code. The caller has to make sure that
    the pid still belongs to the same process.
    """
    stat = None if pid is None else procfs.read_stat(pid)
    if pid is None or stat is None or not stat.exited:
        return None
    if stat.status == 0:
        return 0 if _shows_status(pid) and _is_of_process(pid) else None
    return from_status(stat.status)


def _shows_status(pid: int) -> bool:
    # A reader without PTRACE_MODE_READ_FSCREDS on the process sees 0, too: fs/proc/array.c,
    # do_task_stat(). The link to its user namespace needs exactly that right and, unlike
    # other links, can be read after the process has given up its memory.
    return procfs.shows_namespace(pid) and _checks.surely_works(check_status)


def check_status() -> None:
    """Whether /proc tells the wait status: gVisor always says 0."""
    # arg_start stands before it and needs the same right. For our own process it is never 0
    # on Linux, and always 0 on gVisor.
    if procfs.self_fields()[45:46] == [b"0"]:
        raise OSError(ENOSYS, "/proc does not tell the wait status")


def _is_of_process(pid: int) -> bool:
    # Before Linux 5.17 it is the main thread's status: 0 if that has ended before the others,
    # whatever code they gave the process afterwards. Without others it is the process's, too.
    return _checks.surely_works(check_status_of_process) or procfs.had_one_thread(pid)


def check_status_of_process() -> None:
    """Whether the kernel is surely newer than Linux 5.17."""
    os.stat("/proc/sys/kernel/arch")  # Linux 6.1


def from_pidfd(fd: int) -> "tuple[bool, int | None]":
    """Whether the process has been reaped, and if so its exit code.

    OSError if the kernel lacks PIDFD_GET_INFO.
    """
    for _ in range(2):
        try:
            mask, _, _, _, status = get_info(fd)
        except ProcessLookupError as error:
            raise_of_handler(error)
            # For a moment during the reaping neither the task nor its status is found: seen for
            # 666 of 15,000 exits on Linux 6.18. The second call finds the status.
            continue
        return (True, from_status(status)) if mask & linux.PIDFD_INFO_EXIT else (False, None)
    # Linux 6.13 and 6.14 keep no status.
    return True, None


def get_info(fd: int) -> "tuple[int, int, int, int, int]":
    """What ioctl(fd, PIDFD_GET_INFO) tells: mask, pid, tgid, ppid, wait status."""
    info = bytearray(linux.PIDFD_INFO_REQUEST)
    calls.get("ioctl")(fd, linux.PIDFD_GET_INFO, info, True)
    return linux.PIDFD_INFO.unpack(info)
