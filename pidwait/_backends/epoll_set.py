# SPDX-License-Identifier: BSD-3-Clause
"""Linux: an epoll(7), and what ends its sleep early: a bell, a timer, and others' events.

It has no members: it is what a set on Linux is made of. By itself it is the best set where
there is no pidfd; then all members are polled.
"""

import os
import select
from errno import ENOSYS

from .._deadline import GRACE, LONGEST, Deadline
from .._errors import pass_over
from .._fd import close, own, poll
from .._ffi import calls
from .._highfds import moved_up
from .._queue import deque
from . import pidfd, timers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .contract import Member, Report

# How many exits one sleep can bring.
_BATCH = 256
_AGES = 2e6  # seconds; epoll_wait(2) takes at most 2**31 ms


class EpollSet:
    def __init__(self, shared: bool) -> None:
        self._bell: "Any" = None
        self._timer: "timers.TimerFd | None" = None
        # Whether the bell rings, and whether the timer is set.
        self._is_ringing = self._is_timed = False
        # Events that the epoll has reported, and that have not been taken. The thread that sleeps
        # adds to them without the lock, at the right; others take at the left.
        self._events: "deque[tuple[int, int]]" = deque()
        # pidfd: when to give up its exit code; all are given the same time, so the first is next.
        # Here it stays empty; a sleep() of PidfdSet's own would cost a call in each turn.
        self._fading: "dict[int, float]" = {}
        self._epoll: "Any" = moved_up(calls.get("epoll")())
        if shared:
            self._make_bell()
        # Seconds of one sleep at most, where nothing could end it.
        self._longest = LONGEST if shared and self._bell is None else None

    def _make_bell(self) -> None:
        """Make a file descriptor that is always ready: it rings while it is in the epoll."""
        try:
            reader, writer = map(own, os.pipe())
            writer.close()
            self._bell = moved_up(reader)
        except OSError as error:
            pass_over(error, "without a bell")

    def forked(self) -> "EpollSet":
        # The parent still uses the epoll and the timer.
        try:
            return EpollSet(True)
        finally:
            self.close()

    def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
        error = OSError(ENOSYS, "no handle is used")
        return [(member, error) for member in members]

    def __contains__(self, member: "Member") -> bool:
        return False

    def discard(self, member: "Member") -> None:
        """It has no members."""

    def has_exited(self, member: "Member") -> bool:
        return False

    def sleep(self, seconds: "float | None") -> None:
        # A signal handler has raised before they were taken, or it is waiting itself.
        if self._events:
            return
        longest = GRACE if self._fading else self._longest
        if longest is not None and (seconds is None or seconds > longest):
            seconds = longest
        # As may_block() says, without a call: the caches are cold in the turn after a sleep.
        if type(getattr(select, "poll", None)) is not pidfd.C_FUNCTION and seconds != 0:
            poll(self._epoll.fileno(), select.POLLIN, Deadline(seconds))
            seconds = 0
        if seconds is None:
            seconds = -1  # any time-out, however long, would cost a timer
        elif seconds > _AGES:
            seconds = _AGES
        self._events.extend(self._epoll.poll(seconds, _BATCH))

    def take(self, report: "Report", last: bool) -> None:
        self._events.clear()

    def recover(self) -> None:
        """There is nothing to find: it has no members."""

    def delay(self) -> "float | None":
        return 0.0 if self._events else None

    def include(self, fd: int) -> None:
        """End a sleep, and have fileno() readable, while this is readable."""
        self._epoll.register(fd, 0x001)  # EPOLLIN

    def alarm(self, seconds: "float | None") -> None:
        self._ring(seconds is not None and seconds <= 0)
        self._set_timer(seconds if seconds is not None and seconds > 0 else None)

    def _ring(self, on: bool) -> None:
        if self._bell is None or on is self._is_ringing:
            return
        if on:
            self._epoll.register(self._bell, 0)  # EPOLLHUP is reported all the same
        else:
            self._epoll.unregister(self._bell)
        self._is_ringing = on

    def _set_timer(self, seconds: "float | None") -> None:
        if seconds is None and not self._is_timed:
            return
        self._is_timed = True
        self._make_timer().set(seconds)
        self._is_timed = seconds is not None

    def _make_timer(self) -> "timers.TimerFd":
        if self._timer is None:
            timer = timers.open_timerfd()
            timer.file = moved_up(timer.file)
            self._epoll.register(timer.fileno(), 0x001)
            self._timer = timer
        return self._timer

    def fileno(self, timed: bool = True) -> int:
        if timed:
            try:
                self._make_timer()  # later there may be no file descriptor left
            except OSError as error:
                pass_over(error, "without a timer")
        fd: int = self._epoll.fileno()
        return fd

    def close(self) -> None:
        self._epoll.close()
        for file in (self._bell, self._timer):
            if file is not None:
                close(file)
