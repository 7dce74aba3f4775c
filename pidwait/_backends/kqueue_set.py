# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, many at once: all processes in one kqueue(2).

poll(2) tells that there is something to take. It is taken under the lock of whoever shares
the set: no thread has an event in hand while another one discards its process, or adds the
next one that has the pid.
"""

from collections import deque
from errno import EAGAIN, EBADF
from itertools import count
from time import monotonic

from .._deadline import GRACE, LONGEST, NOW, SHORTEST, Deadline
from .._errors import is_of_signal_handler, log
from .._ffi import bsd
from .._outcome import RUNNING
from .._queue import drop
from . import kqueue
from .queue import Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._outcome import Outcome
    from .contract import Member, Report

# How many events are taken by one call.
_BATCH = 256


class _Entry:
    """A process: the members that wait for it, what was asked of the kqueue, and its answer."""

    __slots__ = ("code", "fflags", "members", "number", "pid", "until")

    def __init__(self, pid: int, number: int, member: "Member") -> None:
        self.pid = pid
        # What its event has in udata. A signal handler that comes between the call that takes
        # an event and the next line can discard the process, and add the next one of that pid.
        self.number = number
        self.members = [member]
        self.fflags = bsd.NOTE_EXIT
        self.code: "Outcome" = RUNNING
        self.until = 0.0  # when its exit code is given up, if only the exit has been told


class KqueueSet:
    def __init__(self, shared: bool) -> None:
        # Those in the kqueue, by their pids.
        self._entries: "dict[int, _Entry]" = {}
        self._numbers = count(1)
        # What the kqueue told, and has not been looked at.
        self._events: "deque[Any]" = deque()
        self._is_taking = False
        # Exits whose code is due any moment, in the order of the exits; and those to report.
        self._fading: "dict[_Entry, None]" = {}
        self._ready: "deque[_Entry]" = deque()
        self._pause = SHORTEST
        self._next_look = 0.0
        self._longest: "float | None" = None
        self._queue = Queue()
        if shared:
            try:
                self._queue.make_bell()
            except OSError as error:
                log("without a bell: %s", error)
                self._longest = LONGEST  # perhaps nobody can end a sleep

    def forked(self) -> "KqueueSet":
        self.close()
        raise OSError(EBADF, "a fork has closed the kqueue")

    def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
        failed = []
        for member in members:
            try:
                self._add(member)
            except OSError as error:
                if is_of_signal_handler(error):
                    raise
                failed.append((member, error))
        return failed

    def _add(self, member: "Member") -> None:
        member.ticket = None
        pid = member.pid
        if pid is None:
            raise OSError(EAGAIN, "it has no pid to be watched by")
        if pid in self._entries:
            # That process may have exited and been reaped, and another one have the pid.
            # EV_ADD would only change the entry that there is: kevent(2).
            self._take()
        known = self._entries.get(pid)
        if known is not None:
            member.ticket = known
            known.members.append(member)
            return
        entry = member.ticket = _Entry(pid, next(self._numbers), member)
        try:
            self._entries[pid] = entry
            entry.fflags = kqueue.register(self._queue, pid, entry.number)
        except OSError as error:
            if is_of_signal_handler(error):
                self._forget(entry)
                raise
            self._entries.pop(pid, None)
            code: "Outcome" = None
            if isinstance(error, BlockingIOError):  # our own zombie is not polled
                code = kqueue.ask_child(pid, False, NOW)
            if code is None or code is RUNNING:
                member.ticket = None
                raise
            entry.code = code
            self._ready.append(entry)
        except BaseException:  # a signal handler's
            self._forget(entry)
            raise

    def discard(self, member: "Member") -> None:
        entry: "Any" = member.ticket
        if entry is not None and member in entry.members:
            entry.members.remove(member)
            if not entry.members:
                self._forget(entry)

    def _forget(self, entry: _Entry) -> None:
        self._fading.pop(entry, None)
        if self._entries.get(entry.pid) is entry:
            del self._entries[entry.pid]
            self._queue.drop(entry.pid, bsd.table().filter_proc)

    def has_exited(self, member: "Member") -> bool:
        entry: "Any" = member.ticket
        if entry is None or member not in entry.members:
            return False
        try:
            self._take()
        except OSError as error:  # somebody else has closed it: sleep() and take() say so
            log("kevent: %s", error)
        return self._entries.get(entry.pid) is not entry

    def sleep(self, seconds: "float | None") -> None:
        for limit in (self._longest, self.delay()):
            if limit is not None and (seconds is None or limit < seconds):
                seconds = limit
        self._queue.is_readable(Deadline(seconds))

    def take(self, report: "Report", last: bool) -> None:
        self._take()
        if self._fading:
            self._look_again(last)
        ready = self._ready
        for entry in list(ready):
            for member in list(entry.members):
                report((member, entry.code))
                drop(entry.members, member)
            drop(ready, entry)

    def recover(self) -> None:
        if self._is_taking:
            self._take()

    def _take(self) -> None:
        """Have all events that there are taken from the kqueue."""
        if self._is_taking:
            self._find_lost()
        is_full = True
        while is_full:
            self._see()
            self._is_taking = True
            self._queue.take(self._events, _BATCH)
            self._is_taking = False
            is_full = len(self._events) >= _BATCH
        self._see()

    def _see(self) -> None:
        table, events = bsd.table(), self._events
        for event in list(events):
            if event.filter == table.filter_proc:
                entry = self._entries.get(event.ident)
                if entry is not None and entry.number == event.udata:
                    self._has_exited(entry, kqueue.told(event))
            elif event.filter == table.filter_timer:
                self._stay_alarmed()
            drop(events, event)

    def _stay_alarmed(self) -> None:
        """The timer has been taken, but the alarm is on until the next."""
        try:
            self._queue.keep_readable()
        except OSError as error:
            log("without an alarm: %s", error)

    def _find_lost(self) -> None:
        """Those whose event a signal handler's exception has swallowed."""
        self._see()
        filter_ = bsd.table().filter_proc
        for entry in list(self._entries.values()):
            try:
                self._queue.change(entry.pid, filter_, bsd.EV_ENABLE, entry.fflags, 0, entry.number)
            except FileNotFoundError:  # it is there until its event is taken
                self._has_exited(entry, None)

    def _has_exited(self, entry: _Entry, code: "int | None") -> None:
        entry.code = kqueue.ask_child(entry.pid, False, NOW) if code is None else code
        if entry.code is RUNNING:
            entry.until = monotonic() + GRACE
            self._pause = SHORTEST
            self._next_look = 0.0
            self._fading[entry] = None
        else:
            self._ready.append(entry)
        if self._entries.get(entry.pid) is entry:
            del self._entries[entry.pid]

    def _look_again(self, last: bool) -> None:
        """Those of our children whose code neither the event told nor waitid(2), so far."""
        now = monotonic()
        for entry in list(self._fading):
            code = kqueue.ask_child(entry.pid, False, NOW)
            if code is RUNNING and not last and now < entry.until:
                continue
            entry.code = None if code is RUNNING else code
            self._ready.append(entry)
            self._fading.pop(entry, None)
        self._next_look = now + self._pause
        self._pause = min(self._pause * 2, LONGEST)

    def delay(self) -> "float | None":
        if self._ready or self._events:
            return 0.0
        return max(0.0, self._next_look - monotonic()) if self._fading else None

    def alarm(self, seconds: "float | None") -> None:
        self._queue.set_alarm(seconds)

    def fileno(self) -> int:
        return self._queue.fileno()

    def close(self) -> None:
        self._queue.close()
