# SPDX-License-Identifier: BSD-3-Clause
"""How does one wait for many processes?

A sleeper opens the handles, and one call of it sleeps for all of them: epoll(7), kqueue(2), a
completion port. What has no handle is looked at again and again; a sleeper that sleeps for
short times serves for that everywhere.
"""

import time
from errno import ENOSYS
from io import UnsupportedOperation

from .._base.deadline import LONGEST
from .._base.errors import Failed, failed, log
from . import backend, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Handle, Iterator, Sleeper


def _find_sleeper() -> "Callable[[bool, bool], Sleeper]":
    if system.backends[0] == "pidfd":
        from .epoll import EpollSleeper

        return EpollSleeper
    if system.backends[0] == "kqueue":
        from .kqueue import KqueueSleeper

        return KqueueSleeper
    from .windows_port import PortSleeper

    return PortSleeper


_make_sleeper = _find_sleeper()


def open_sleeper(shared: bool) -> "Sleeper":
    """What sleeps for many; ``shared``: whether several threads use it."""
    try:
        return _make_sleeper(backend() != "polling", shared)
    except Failed as why:
        log("all processes are polled: %s", why)
        return PollingSleeper()


class PollingSleeper:
    """Where nothing else works: it has no handles, and nothing ends its sleep early."""

    events = ()

    def open(self, target: "Any") -> None:
        raise failed(ENOSYS, "no handle can be used")

    def watch_again(self, handle: "Handle") -> None:
        """It has none."""

    def discard(self, handle: "Handle") -> None:
        handle.close()

    def sleep(self, seconds: "float | None") -> None:
        time.sleep(LONGEST if seconds is None else min(seconds, LONGEST))

    def worth_a_look(self) -> "Iterator[Handle]":
        return iter(())

    def wake(self, seconds: "float | None") -> None:
        """Each sleep is a short one."""

    def fileno(self) -> int:
        raise UnsupportedOperation("a set of polled processes has no fileno here")

    def forked(self) -> "PollingSleeper":
        return self

    def close(self) -> None:
        """Nothing is open."""
