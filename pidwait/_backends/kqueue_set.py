# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, many at once: all processes in one kqueue(2).

As for one process, poll(2) tells that there is something to take. It is taken under the
lock: no thread has an event in hand while another one discards its process, or adds the
next one that has the number.
"""

import os
import select
from collections import deque
from errno import EBADF

from .._errors import log
from .._exitcodes import RUNNING
from .._fd import own
from .._ffi import bsd, calls
from . import kqueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from .._owners import Owner

    Report = Callable[[tuple[Owner, int | None]], object]  # novm

# How many events are taken by one call.
_BATCH = 256


class _Entry:
    """A process in the kqueue: who waits for it, and what was asked for."""

    __slots__ = ("fflags", "owners", "pid")

    def __init__(self, pid: int, owner: "Owner") -> None:
        self.pid = pid
        self.owners = [owner]
        self.fflags = bsd.NOTE_EXIT


class Many:
    def __init__(self, shared: bool) -> None:
        self._pid = os.getpid()
        self._table = kqueue.table()
        # Those in the kqueue, by their pids.
        self._entries: "dict[int, _Entry]" = {}
        # Those that have exited: who waited for them, and the exit code.
        self._ready: "deque[tuple[list[Owner], int | None]]" = deque()
        self._taking = self._wanted = self._ringing = False
        # A file descriptor that is always ready; it rings while the kqueue has it.
        self._bell: "Any" = None
        self._queue: "Any" = calls.get("kqueue")()
        try:
            if shared:
                self._bell, writer = map(own, os.pipe())
                writer.close()
        except BaseException:
            self._queue.close()
            raise

    def forked(self) -> "Many":
        self.close()
        raise OSError(EBADF, "a fork has closed the kqueue")

    def add(self, owners: "Sequence[Owner]") -> "list[tuple[Owner, OSError]]":
        failed = []
        for owner in owners:
            try:
                self._add(owner)
            except OSError as error:
                failed.append((owner, error))
        self._update_bell()
        return failed

    def _add(self, owner: "Owner") -> None:
        pid: "Any" = owner.pid
        if pid in self._entries:
            # That one may have exited and been reaped, and another one have the number.
            # EV_ADD would only change the entry that there is: kevent(2).
            self._take()
        known = self._entries.get(pid)
        if known is not None:
            owner.ticket = known
            known.owners.append(owner)
            return
        entry = owner.ticket = _Entry(pid, owner)
        try:
            self._entries[pid] = entry
            entry.fflags = kqueue.register(self._queue, pid)
        except OSError as error:
            self._entries.pop(pid, None)
            # Who is exiting, or a zombie, is not polled if it is our child.
            code = None
            if isinstance(error, BlockingIOError):
                code = kqueue.ask_child(pid, False)
            if code is None or code is RUNNING:
                raise
            self._ready.append((entry.owners, code))
        except BaseException:  # a signal handler's
            self._forget(pid)
            raise

    def discard(self, owner: "Owner") -> None:
        entry: "_Entry | None" = owner.ticket
        if entry is not None and owner in entry.owners:
            entry.owners.remove(owner)
            if not entry.owners and self._entries.get(entry.pid) is entry:
                self._forget(entry.pid)

    def poll(self, milliseconds: "float | None") -> None:
        if not self._ready:
            poll = select.poll()
            poll.register(self._queue.fileno(), select.POLLIN)
            poll.poll(milliseconds)

    def take(self, events: None, report: "Report") -> None:
        self._take()
        while self._ready:
            owners, code = self._ready[0]
            while owners:
                report((owners[0], code))
                del owners[0]
            self._ready.popleft()
        self._update_bell()

    def recover(self) -> None:
        try:
            if self._taking:
                self._take()
        except OSError as error:  # somebody else has closed it: take() says so
            log("kevent: %s", error)

    def _take(self) -> None:
        """Have all events that there are taken from the kqueue."""
        if self._taking:
            self._find_lost()
        self._taking = True
        count = _BATCH
        while count == _BATCH:
            events = self._queue.control(None, _BATCH, 0)
            for event in events:
                if event.filter == self._table.filter_proc and event.ident in self._entries:
                    self._has_exited(event.ident, kqueue.told(event))
            count = len(events)
        self._taking = False

    def _find_lost(self) -> None:
        """Those whose event a signal handler's exception has swallowed."""
        for pid, entry in list(self._entries.items()):
            try:
                kqueue.change(self._queue, pid, bsd.EV_ENABLE, entry.fflags)
            except FileNotFoundError:  # it is there until its event is taken
                self._has_exited(pid, None)

    def _has_exited(self, pid: int, code: "int | None") -> None:
        if code is None:
            code = kqueue.ask_child(pid, False)
        self._ready.append((self._entries[pid].owners, None if code is RUNNING else code))
        del self._entries[pid]

    def _forget(self, pid: int) -> None:
        self._entries.pop(pid, None)
        self._delete(pid, self._table.filter_proc)

    def _delete(self, ident: int, filter_: int) -> None:
        try:
            self._queue.control([calls.get("kevent")(ident, filter_, bsd.EV_DELETE)], 0, 0)
        except OSError as error:  # it is not there, for what a signal handler has raised
            log("kevent, %d: %s", ident, error)

    def ring(self, on: bool) -> None:
        self._wanted = on
        self._update_bell()

    def _update_bell(self) -> None:
        on = self._wanted or bool(self._ready)
        if self._bell is None or on is self._ringing:
            return
        fd, filter_ = self._bell.fileno(), self._table.filter_read
        if on:
            self._queue.control([calls.get("kevent")(fd, filter_, bsd.EV_ADD)], 0, 0)
        else:
            self._delete(fd, filter_)
        self._ringing = on

    def fileno(self) -> int:
        fd: int = self._queue.fileno()
        return fd

    def close(self) -> None:
        kqueue.release(self._queue, self._pid)
        if self._bell is not None:
            self._bell.close()
