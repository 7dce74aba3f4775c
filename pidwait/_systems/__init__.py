# SPDX-License-Identifier: BSD-3-Clause
"""How does one wait for a process?

A parent has waitid(2), but that has no time-out, and works only for its own children. For
other processes, and with a time-out, the answer is a handle: the system's own reference to
the process, and one call that sleeps until the handle reports that the process has exited:

    Linux 5.3          a pidfd, readable once all its threads have ended: poll(2), epoll(7)
    macOS, the BSDs    EVFILT_PROC in a kqueue(2), which itself can be passed to poll(2)
    Windows            a HANDLE, which stays signalled: WaitForMultipleObjects

A handle is opened by the pid. The process may have been reaped before, and its pid reused; so
code that can recognise its process checks again once the handle is open. From then on the
handle refers to one process, whatever becomes of its pid.

Where no handle can be opened (an old kernel, a policy, no file descriptor left), we look at
the process again and again, at intervals that double from 0.1 to 40 ms: ``polling``. Polling has
to recognise a zombie, which still has its pid, and a process that has reused a pid; so it reads
the system's information about processes: /proc, ps(1), the snapshot of Windows.

open_handle() opens the handle on one process by the best means that works; the pollers of
pollers.py sleep for many processes. Each system has a folder: this module, calls, pollers and
listers choose the folder.

Single operations of dicts, lists and deques are atomic, without a GIL, too. So is a copy of a
dict or a list, but not a copy of a deque. Where several threads share an object without a lock,
the package relies on no more than that.
"""

import os
from errno import ENOSYS, ESRCH

from .._base.checks import BACKEND, BACKENDS, choice, why_not
from .._base.errors import Failed, log
from .bindings import PLATFORM
from .posix import is_found

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Handle
    from .system import System


def _find_system() -> "System":
    if PLATFORM == "win":
        from .windows.system import WINDOWS

        return WINDOWS
    if PLATFORM in ("linux", "android"):
        from .linux.system import LINUX

        return LINUX
    from .bsd.system import BSD

    __import__("resource")  # os.wait4() would do that after the reaping
    return BSD


system = _find_system()
_backend: "list[str]" = []


def backend() -> str:
    """The name of the backend for new handles: the best one that works, chosen once.

    OSError if the environment forces one that does not work.
    """
    if _backend:
        return _backend[0]
    asked, there = choice(BACKEND, *BACKENDS), system.backends
    name = there[0] if asked == "auto" else asked
    why = why_not(system.checks[name]) if name in there else Failed(ENOSYS, "not on this system")
    if why is not None and why.is_passing:
        return name
    if why is not None and asked != "auto":
        raise OSError(why.errno, "%s is %s: %s" % (BACKEND, name, why.error.strerror))
    _backend[:] = [name if why is None else "polling"]
    return _backend[0]


def open_handle(pid: int) -> "Handle":
    """A handle by the best means that works; Failed (ESRCH) if no process has the pid."""
    if backend() != "polling":
        try:
            return system.handle(pid)
        except Failed as why:
            if why.errno == ESRCH:
                raise
            log("pid %d is polled: %s", pid, why)
    return system.polled(pid)


def is_relative(pid: int, ancestor: int) -> bool:
    """Whether a child of our parent, or of the ancestor, has the pid.

    If the parent is not known: whether any process has the pid.
    """
    parent = system.parent_of(pid)
    return is_found(pid) if parent is None else parent in (os.getppid(), ancestor)
