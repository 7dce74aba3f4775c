# SPDX-License-Identifier: BSD-3-Clause
"""How does one wait for many processes?

A poller opens the handles, and one call sleeps for all of them: epoll(7), kqueue(2), a completion
port. That call takes the system's events, and puts their members into ``ready``. An event has a
number; a table of the poller has the member for each number.

Processes without a handle are looked at again and again. Without such a call, a poller that sleeps
for short times serves on all systems.
"""

import time
from errno import ENOSYS
from io import UnsupportedOperation

from .._base.deadline import LONGEST
from .._base.errors import Failed, log
from . import backend, open_handle
from .bindings import PLATFORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Call, Callable, Handle, Iterator, Member, Poller, Target


def _find_poller() -> "Callable[[bool, bool], Poller]":
    if PLATFORM == "win":
        from .windows.poller import PortPoller

        return PortPoller
    if PLATFORM in ("linux", "android"):
        from .linux.poller import EpollPoller

        return EpollPoller
    from .bsd.poller import KqueuePoller

    return KqueuePoller


_make_poller = _find_poller()


def open_poller(shared: bool) -> "Poller":
    """A poller by the best means that works; ``shared``: whether several threads use it."""
    try:
        return _make_poller(backend() != "polling", shared)
    except Failed as why:
        log("all processes are polled: %s", why)
        return PollingPoller()


class PollingPoller:
    """For systems where nothing else works: it has no events, and nothing ends its sleep early."""

    def __init__(self, replaced: "Poller | None" = None) -> None:
        """``replaced``: the poller before it, whose file descriptor stays open."""
        self.replaced = replaced
        self.ready: "dict[object, None]" = {}

    def open(self, target: "Target") -> "Handle":
        if target.pid is None:
            raise Failed(ENOSYS, "there is no pid")
        return open_handle(target.pid)

    def arm(self, member: "Member", *calls: "Call") -> None:
        """It has no events."""

    def drop(self, member: "Member") -> None:
        """It knows no members."""

    def poll(self, seconds: "float | None") -> None:
        time.sleep(LONGEST if seconds is None else min(seconds, LONGEST))

    def flush(self) -> None:
        """It has no events."""

    def read(self, who: object) -> "Iterator[Member]":
        return iter(())

    def wake(self, seconds: float) -> bool:
        """Each sleep is a short one."""
        return True

    def fileno(self) -> int:
        raise UnsupportedOperation("a set of polled processes has no fileno here")

    def close(self) -> None:
        """Nothing is open."""
