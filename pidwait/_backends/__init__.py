# SPDX-License-Identifier: BSD-3-Clause
"""How does one wait for a process?

A parent has waitid(2), but that has no time-out, and works only for its own children. For
other processes, and with a time-out, the answer is a handle: the system's own reference to
the process, and one call that sleeps until the handle says that the process has exited:

    Linux 5.3          a pidfd, readable once all its threads have ended: poll(2), epoll(7)
    macOS, the BSDs    EVFILT_PROC in a kqueue(2), which itself can be passed to poll(2)
    Windows            a HANDLE, which stays signalled: WaitForMultipleObjects

A handle is opened by the pid. The process may have been reaped before, and its pid given to
another one; so code that can tell the two apart checks again once the handle is open.
From then on the handle refers to one process, whatever becomes of its pid.

Where no handle can be opened (an old kernel, a policy, no file descriptor left), we look at
the process again and again, at intervals that double from 0.1 to 40 ms: ``polling``. It has
to recognise a zombie, which still has its pid, and a process that got the pid of another
one; so it reads what the system tells about processes (``_sources``).

Each way to wait is a Backend: a handle for one process, a set for many (``sets``), and the
checks that tell whether it works here. The first backend that works is used for everything;
what it can't do, for one process or in one call, is done by polling.

A handle knows nothing of threads. A set's sleep() is called without a lock, and all its other
methods with one: while one thread sleeps, others may add and take.

Without a GIL: single operations of dicts, lists and deques are atomic all the same, and so is
a copy of a dict or a list, but not one of a deque. The package relies on no more than that
where several threads use something without a lock, and no code counts by ``+=`` there. What is
made at the first need (an answer, a binding, a backend) may be made by two threads at once:
either one is right, and the last one stays.
"""

import os
from errno import ENOSYS

from .. import _checks, _config, _ffi
from .._errors import pass_over

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._checks import Check
    from .contract import Checks, Handle


class Backend:
    """A way to wait: its name, its handle, and the checks that the probe shows.

    ``checks`` are rows of a name, the call that is checked (None if it is not a call), and the
    check. The first row's check tells whether the backend can be used at all.
    ``wait_or_open``, where there is one, takes a shorter way than by a handle to wait for the exit
    code of a child by its pid; where that does not work it returns a handle.
    """

    __slots__ = ("checks", "handle", "name", "wait_or_open")

    def __init__(
        self,
        name: str,
        handle: "Callable[[int], Handle]",
        checks: "Checks",
        wait_or_open: "Callable[[int, float | None, bool], int | Handle] | None" = None,
    ) -> None:
        self.name = name
        self.wait_or_open = wait_or_open
        self.handle = handle
        self.checks = checks

    @property
    def check(self) -> "Check":
        return self.checks[0][2]


_known: "dict[str, Backend]" = {}
chosen: "list[Backend]" = []  # by backend(), once, or by two threads alike


def known() -> "dict[str, Backend]":
    """All backends for this system, whether they work or not, best first."""
    if not _known:
        from . import polling

        if os.name == "nt":
            from . import win32

            best = Backend("win32", win32.Win32Handle, win32.CHECKS)
        elif _ffi.PLATFORM in ("linux", "android"):
            from . import (
                given_pidfd,  # noqa: F401, for Process.from_fd
                pidfd,
                pidfd_wait,
            )

            shorter = pidfd_wait.wait_or_open
            best = Backend("pidfd", pidfd.PidfdHandle, pidfd.CHECKS, shorter)
        else:
            from . import kqueue

            best = Backend("kqueue", kqueue.KqueueHandle, kqueue.CHECKS)
        last = Backend("polling", polling.open_polled, polling.CHECKS)
        _known[best.name] = best
        if best.name == "pidfd":
            from . import events, polled_procfs

            checks = (("connector", None, events.check_connector),)
            _known["connector"] = Backend("connector", polled_procfs.ConnectorHandle, checks)
        _known[last.name] = last
    return _known


def backend() -> Backend:
    """The backend for new handles and sets, chosen once."""
    if chosen:
        return chosen[0]
    choice = _choose()
    if _checks.is_known(choice.check):  # else the check failed for a transient reason
        chosen.append(choice)
    return choice


def _choose() -> Backend:
    backends = known()
    name = _config.backend()
    if name == "auto":
        return next(one for one in backends.values() if _checks.works(one.check))
    error = (
        _checks.ask(backends[name].check)
        if name in backends
        else OSError(ENOSYS, "not on this system")
    )
    if error is not None:
        raise OSError(error.errno, "%s is %s: %s" % (_config.BACKEND, name, error.strerror))
    return backends[name]


def forget() -> None:
    """Choose again when it is next needed, as after a change of the environment variables."""
    _known.clear()
    chosen.clear()


def open_handle(pid: int) -> "Handle":
    """A handle by the best means that works; ProcessLookupError if no process has the pid."""
    best = chosen[0] if chosen else backend()
    try:
        return best.handle(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        if best.name in ("connector", "polling"):
            raise
        return _open_polled(pid, error)


def _open_polled(pid: int, why: OSError) -> "Handle":
    pass_over(why, "pid %d is polled", pid)
    return known()["polling"].handle(pid)


known()  # load it now: with no file descriptor left, an import fails
