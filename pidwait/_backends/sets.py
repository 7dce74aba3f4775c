# SPDX-License-Identifier: BSD-3-Clause
"""The set of each backend, in a module of its own: a wait for one process needs no set."""

from .. import _ffi
from .._errors import pass_over
from . import backend, known
from .polling_set import PolledSet

if _ffi.PLATFORM in ("linux", "android"):
    from . import events
    from .listening_set import ListeningSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .contract import Polled, Set


def _set_of(name: str) -> "Callable[[bool], Set]":
    """The set class of a backend; it is called with whether several threads share the set."""
    if name == "pidfd":
        from .pidfd_set import PidfdSet

        return PidfdSet
    if name == "kqueue":
        from .kqueue_set import KqueueSet

        return KqueueSet
    if name == "win32":
        from .win32_set import Win32Set

        return Win32Set
    if _ffi.PLATFORM in ("linux", "android") and events.work():
        from .epoll_set import EpollSet

        return EpollSet
    return PolledSet


def polled_set(sleeper: "Set") -> "Polled":
    """A polled set; ``sleeper`` is the set in which the program sleeps."""
    if hasattr(sleeper, "include") and _ffi.PLATFORM in ("linux", "android") and events.work():
        return ListeningSet(sleeper)
    return PolledSet()


def open_set(shared: bool, wake: "Callable[[], object] | None" = None) -> "Set":
    """A set by the best means that works.

    For an event loop, which can't call sleep(): where the set has no fileno(), ``wake()`` is
    called, in any thread, when there may be something to take.
    """
    try:
        name = backend().name
        if name == "win32" and wake is not None:
            from .win32_pool_set import Win32PoolSet

            return Win32PoolSet(wake)
        return _set_of(name)(shared)
    except OSError as error:
        pass_over(error, "all processes are polled")
        return PolledSet(shared)


_set_of(next(iter(known())))  # load it now: with no file descriptor left, an import fails
