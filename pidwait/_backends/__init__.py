# SPDX-License-Identifier: BSD-3-Clause
"""How does one wait for a process?

A parent has waitid(2), which blocks without a time-out, and works for its own children
alone. For everybody else, and with a time-out, the answer is a handle of the system's on
the process, and one call that sleeps until the handle says that the process has exited:

    Linux 5.3          a pidfd, readable once all its threads have ended: poll(2), epoll(7)
    macOS, the BSDs    EVFILT_PROC in a kqueue(2), which can be polled itself
    Windows            a HANDLE, signalled for good: WaitForMultipleObjects

A handle is opened by the pid, so it may be on another process that got the pid meanwhile;
whoever knows more of the process than its pid asks again once the handle is open. From then
on the handle means one process, whatever becomes of its pid.

Where no handle is to be had (an old kernel, a policy, no file descriptor left), what is left
is to look again and again, at intervals that double from 0.1 to 40 ms: ``polling``. It needs
to know a zombie, which still has its pid, and a process that got the pid of another one; so
it reads what the system shows of processes (``_sources``).

Each way to wait is a Backend: a handle for one process, a set for many, and the checks that
tell whether it works here. The first that works is used for everything; whatever it can't
do, for one process or for one call, is done by polling.

A handle knows nothing of threads. Of a set, sleep() is called without a lock, and all else
with one: while a thread sleeps, others may add and take.
"""

import os
from errno import ENOSYS

from .. import _checks, _config, _ffi
from .._errors import log
from .contract import Backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .contract import Handle, Set

_known: "dict[str, Backend]" = {}
_chosen: "list[Backend]" = []


def known() -> "dict[str, Backend]":
    """All that this system may have, best first."""
    if not _known:
        from . import polling, polling_set

        if os.name == "nt":
            from . import win32, win32_set

            best = Backend("win32", win32.Win32Handle, win32_set.Win32Set, win32.CHECKS)
        elif _ffi.PLATFORM in ("linux", "android"):
            from . import pidfd, pidfd_set

            best = Backend("pidfd", pidfd.PidfdHandle, pidfd_set.PidfdSet, pidfd.CHECKS)
        else:
            from . import kqueue, kqueue_set

            best = Backend("kqueue", kqueue.KqueueHandle, kqueue_set.KqueueSet, kqueue.CHECKS)
        last = Backend("polling", polling.open_polled, polling_set.PolledSet, polling.CHECKS)
        _known.update({best.name: best, last.name: last})
    return _known


def backend() -> Backend:
    """The backend for new handles and sets, chosen once."""
    if _chosen:
        return _chosen[0]
    choice = _choose()
    if _checks.is_known(choice.check):  # else it could not be asked
        _chosen.append(choice)
    return choice


def _choose() -> Backend:
    backends = known()
    name = _config.choice(_config.BACKEND, "pidfd", "kqueue", "win32", "polling")
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
    """Choose again at the next need, as after a change of the environment variables."""
    _known.clear()
    _chosen.clear()


def open_set(shared: bool) -> "Set":
    """What waits for many by the best means that works."""
    best = backend()
    try:
        return best.set(shared)
    except OSError as error:
        log("all are polled: %s", error)
        return known()["polling"].set(shared)


def open_handle(pid: int) -> "Handle":
    """A handle by the best means that works; ProcessLookupError if there is none."""
    best = backend()
    try:
        return best.handle(pid)
    except ProcessLookupError:
        raise
    except OSError as error:
        if best.name == "polling":
            raise
        log("pid %d is polled: %s", pid, error)
        return known()["polling"].handle(pid)


known()  # load it now: with no file descriptor left, an import fails
