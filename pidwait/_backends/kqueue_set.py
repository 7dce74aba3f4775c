# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, many at once: all processes in one kqueue(2).

poll(2) tells that there are events. They are taken under the lock of the threads that share
the set: so no thread holds an event while another one discards its process, or adds the next
process that has the pid.
"""

from errno import EAGAIN, EBADF
from itertools import count
from time import monotonic

from .._deadline import GRACE, LONGEST, NOW, SHORTEST, Deadline
from .._errors import is_of_signal_handler, pass_over, raise_of_handler
from .._ffi import bsd
from .._outcome import RUNNING
from .._queue import deque, drop
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
    """A watched process: its members, what was registered with the kqueue, and the exit code."""

    __slots__ = ("code", "fflags", "members", "number", "pid", "until")

    def __init__(self, pid: int, number: int, member: "Member") -> None:
        self.pid = pid
        # The udata of its event. A signal handler that runs between the call that takes an
        # event and the next line can discard the process, and add another one with its pid.
        self.number = number
        self.members = [member]
        self.fflags = bsd.NOTE_EXIT
        self.code: "Outcome" = RUNNING
        self.until = 0.0  # when to give up the exit code, if only the exit itself has been told


class KqueueSet:
    def __init__(self, shared: bool) -> None:
        # The entries that are registered with the kqueue, by pid.
        self._entries: "dict[int, _Entry]" = {}
        self._numbers = count(1)
        # Events taken from the kqueue, but not yet handled.
        self._events: "deque[Any]" = deque()
        self._is_taking = False
        # Exits whose code is due any moment, in the order of the exits; then those to report.
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
                pass_over(error, "without a bell")
                self._longest = LONGEST  # perhaps nothing can end a sleep

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
            # That process may have been reaped, and another one may have the pid now. EV_ADD
            # would only modify the existing registration: kevent(2).
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
            if isinstance(error, BlockingIOError):  # our own zombie need not be polled
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
        except OSError as error:  # somebody else has closed it: sleep() and take() raise
            pass_over(error, "kevent")
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
        """Take and handle all events that the kqueue has."""
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
        """Keep the alarm on until the next one, though the timer's event has been taken."""
        try:
            self._queue.keep_readable()
        except OSError as error:
            pass_over(error, "without an alarm")

    def _find_lost(self) -> None:
        """Find the exits whose events were lost when a signal handler raised."""
        self._see()
        filter_ = bsd.table().filter_proc
        for entry in list(self._entries.values()):
            try:
                self._queue.change(entry.pid, filter_, bsd.EV_ENABLE, entry.fflags, 0, entry.number)
            except FileNotFoundError as error:
                raise_of_handler(error)
                # Its event has been taken: until then it is registered.
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
        """Ask again for the codes that neither the event nor waitid(2) has told so far."""
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

    def fileno(self, timed: bool = True) -> int:
        return self._queue.fileno()

    def close(self) -> None:
        self._queue.close()
