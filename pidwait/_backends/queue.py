# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: one kqueue(2), which poll(2) shows as readable while it has an event.

A forked child does not inherit it, and another file may soon have its number there. So the
child does not use the number, and does not even close it.
"""

import os
import select
from errno import EBADF
from itertools import chain

from .._errors import pass_over
from .._fd import close, own, poll
from .._ffi import bsd, calls, kqueue
from .._fork import Creator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any

    from .._deadline import Deadline

calls.add(kqueue.CALLS)

# The milliseconds that a timer is set to at most: no system has a lower limit, and one look
# too many a day costs nothing.
_LONGEST = 24 * 60 * 60 * 1000
_TIMER = 1  # its ident
# select.kqueue objects of the parent: see Queue.close().
_kept: "list[Any]" = []


class Queue:
    """A kqueue, and an alarm that makes it readable."""

    __slots__ = ("_bell", "_creator", "_is_ringing", "_is_timed", "_kqueue", "_table")

    def __init__(self) -> None:
        self._kqueue: "Any" = None
        self._bell: "Any" = None
        self._is_ringing = self._is_timed = False
        self._creator = Creator()
        self._table = bsd.table()
        self._kqueue = calls.get("kqueue")()  # last, so that no interrupt can lose it

    def is_copy(self) -> bool:
        """Whether this is the copy in a forked child, which has no kqueue."""
        return not self._creator.is_me()

    def fileno(self) -> int:
        if self._kqueue is None:
            raise OSError(EBADF, "the kqueue is closed")
        fd: int = self._kqueue.fileno()
        return fd

    def close(self) -> None:
        queue, self._kqueue = self._kqueue, None
        if queue is None:
            return
        if self._bell is not None:
            close(self._bell)
        if self.is_copy():
            # Before Python 3.13 a select.kqueue does not know of the fork: when it is freed, it
            # would close the file that has the number now. So it is never freed.
            _kept.append(queue)
        else:
            close(queue)

    def __del__(self) -> None:
        self.close()

    def change(
        self,
        ident: int,
        filter_: int,
        flags: int,
        fflags: int = 0,
        data: int = 0,
        udata: int = 0,
    ) -> None:
        event = calls.get("kevent")(ident, filter_, flags, fflags, data, udata)
        # With no room for events, an error is raised by the call, and no event is taken from
        # the kqueue: on FreeBSD and DragonFly a zombie's exit is there at once.
        self._kqueue.control([event], 0, 0)

    def drop(self, ident: int, filter_: int) -> None:
        """Stop watching this, and forget its events."""
        try:
            self.change(ident, filter_, bsd.EV_DELETE)
        except OSError as error:  # not registered: its event was taken, or it was never added
            pass_over(error, "kevent, %d", ident)

    def take(self, events: "list[Any] | deque[Any]", room: int) -> None:
        """Append the events that have happened, at most ``room`` of them."""
        # With select.kqueue there is no bytecode between the call and the list: if a signal
        # handler raised there, the exit codes would be lost. See _fd.opened().
        events.extend(chain.from_iterable(map(self._kqueue.control, (None,), (room,), (0,))))

    def is_readable(self, deadline: "Deadline") -> bool:
        """Whether there is an event by the deadline."""
        event = poll(self.fileno(), select.POLLIN, deadline)
        if event and not event & select.POLLIN:
            raise OSError(EBADF, "poll, kqueue %d: event %#x" % (self.fileno(), event))
        return event != 0

    def keep_readable(self) -> None:
        """Stay readable from now on, whatever events are taken; OSError if that fails."""
        self.set_alarm(0)

    def set_alarm(self, seconds: "float | None") -> None:
        """Be readable after ``seconds``, and stay so until the next call; None: no alarm."""
        if seconds is not None and seconds <= 0:
            try:
                self._ring(True)
                return
            except OSError as error:  # no file descriptor left for the bell: a timer needs none
                pass_over(error, "without a bell")
        elif self._is_ringing:
            self._ring(False)
        if self._is_timed:
            # EV_ADD does not restart a timer that is there already: FreeBSD before 12,
            # DragonFly, NetBSD.
            self.drop(_TIMER, self._table.filter_timer)
            self._is_timed = False
        if seconds is not None:
            self._is_timed = True  # first, so that the timer is known if an interrupt comes
            self._start_timer(seconds)

    def _start_timer(self, seconds: float) -> None:
        data = 1 if seconds <= 0 else min(-int(-seconds * 1000 // 1), _LONGEST)
        flags = bsd.EV_ADD | bsd.EV_ONESHOT
        self.change(_TIMER, self._table.filter_timer, flags, 0, data)

    def make_bell(self) -> None:
        """Make what is readable at once, and stays so: a pipe whose writer is closed.

        A timer would be late, by 10 to 20 ms where it counts in ticks (NetBSD, OpenBSD,
        DragonFly), and timers are few: FreeBSD and NetBSD have 4,096 for the whole system.
        """
        if self._bell is None:
            reader, writer = map(own, os.pipe())
            writer.close()
            self._bell = reader

    def _ring(self, on: bool) -> None:
        if on is self._is_ringing:
            return
        self.make_bell()
        fd, filter_ = self._bell.fileno(), self._table.filter_read
        if on:
            self.change(fd, filter_, bsd.EV_ADD)
        else:
            self.drop(fd, filter_)
        self._is_ringing = on


class KqueueTimer(Queue):
    """A kqueue with nothing but the timer."""

    __slots__ = ()

    def set(self, seconds: "float | None") -> None:
        self.set_alarm(seconds)
