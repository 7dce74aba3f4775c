# SPDX-License-Identifier: BSD-3-Clause
"""A file descriptor that becomes readable after a while: for a set's fileno() in an event loop.

timerfd                 Linux 2.6.27
kqueue, EVFILT_TIMER    macOS and the BSDs
"""

import select
from errno import ENOSYS

from .. import _checks, _ffi
from .._deadline import Deadline
from .._fd import close, opened, poll
from .._ffi import bsd, calls, linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol  # novm

    class Timer(Protocol):  # novm
        def set(self, seconds: "float | None") -> None:
            """Be readable after ``seconds``, and from then on; None: never."""

        def fileno(self) -> int: ...

        def close(self) -> None: ...


# 0 would disarm the timer.
_AT_ONCE = 1e-9


class TimerFd:
    """timerfd_create(2)."""

    def __init__(self) -> None:
        self._settime = calls.get("timerfd_settime")
        self.file: "Any" = opened(calls.get("timerfd_create"), linux.CLOCK_MONOTONIC)

    def set(self, seconds: "float | None") -> None:
        initial = 0.0 if seconds is None else max(seconds, _AT_ONCE)
        self._settime(self.file.fileno(), initial=initial)

    def fileno(self) -> int:
        fd: int = self.file.fileno()
        return fd

    def close(self) -> None:
        close(self.file)


def check() -> None:
    """Let a timer go off."""
    timer = TimerFd()
    try:
        timer.set(0)
        # Where eventlet has removed poll, it is enough that the calls do not fail.
        if hasattr(select, "poll") and not poll(timer.fileno(), select.POLLIN, Deadline(1)):
            raise OSError(ENOSYS, "a timerfd does not go off")
    finally:
        timer.close()


def open_timerfd() -> TimerFd:
    error = _checks.ask(check)
    if error is not None:
        raise error
    return TimerFd()


def open_timer() -> "Timer":
    """A new timer; OSError if the system has none."""
    if _ffi.PLATFORM in ("linux", "android"):
        return open_timerfd()
    if bsd.system() is not None:
        from .queue import KqueueTimer

        return KqueueTimer()
    raise OSError(ENOSYS, "this system has no timer with a file descriptor")
