# SPDX-License-Identifier: BSD-3-Clause
"""kqueue() and kevent(), with the interface of select.kqueue and select.kevent."""

import os
from errno import ESRCH
from struct import pack

from .._fork import Creator
from . import bsd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

NOBODY = 2**31 - 1  # a pid that no process can have: all systems have a lower limit
_UNTOUCHED = 0xA5


class Event:
    """struct kevent."""

    __slots__ = ("data", "fflags", "filter", "flags", "ident", "udata")

    def __init__(
        self,
        ident: int,
        filter: int,
        flags: int = bsd.EV_ADD,
        fflags: int = 0,
        data: int = 0,
        udata: int = 0,
    ) -> None:
        self.ident = ident
        self.filter = filter
        self.flags = flags
        self.fflags = fflags
        self.data = data
        self.udata = udata


class Kqueue:
    """A kqueue. Exec closes it, and a forked child does not inherit it: kqueue(2)."""

    def __init__(self, functions: "_Functions") -> None:
        self._fd = -1
        self._functions = functions
        self._creator = Creator()
        self._fd = functions.kqueue()  # last, so that no interrupt can lose it
        os.set_inheritable(self._fd, False)

    def fileno(self) -> int:
        return self._fd

    def control(
        self, changes: "Sequence[Event] | None", max_events: int, timeout: int
    ) -> "list[Event]":
        return self._functions.control(self._fd, changes or (), max_events, timeout)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        # In a forked child the number may belong to another file.
        if fd >= 0 and self._creator.is_me():
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class _Functions:
    """This system's kqueue() and kevent(); ImportError if they do not match the table."""

    def __init__(self, binding: "Any", system: "bsd.System") -> None:
        self._pointer = binding.pointer
        self._null = binding.null
        self.kqueue: "Callable[[], int]" = binding.function("kqueue", bsd.PROTOTYPES["kqueue"])
        self._timespec = system.timespec
        self._filter_proc = system.filter_proc
        found = []
        for kevent in system.kevents:
            try:
                prototype = bsd.PROTOTYPES[kevent.counts]
                self._kevent: "Callable[..., int]" = binding.function(kevent.symbol, prototype)
            except ImportError as error:
                found.append(str(error))
                continue
            self._layout = kevent
            size = self._size_in_use()
            if size == kevent.struct.size:
                return
            found.append(
                "%s: a struct of %d bytes, not %d" % (kevent.symbol, size, kevent.struct.size)
            )
        raise ImportError("no known version of kevent: " + "; ".join(found))

    def _size_in_use(self) -> int:
        """How many bytes kevent() writes for one event; here the event is an error, ESRCH."""
        # FreeBSD's C library has one of two kevents as its default, and the kernel's version
        # does not tell which. The change written here looks the same in both.
        change = bytearray(128)
        self._write(change, 0, Event(NOBODY, self._filter_proc, fflags=bsd.NOTE_EXIT))
        answer = bytearray([_UNTOUCHED]) * 128
        queue = Kqueue(self)
        try:
            if self._call(queue.fileno(), change, 1, answer, 1, 0) != 1:
                return 0
        finally:
            queue.close()
        size = len(answer.rstrip(bytes([_UNTOUCHED])))
        if size == self._layout.struct.size:
            event = self._read(answer, 0)
            if not (event.flags & bsd.EV_ERROR and event.data == ESRCH and event.ident == NOBODY):
                return 0
        return size

    def _call(
        self, fd: int, changes: bytearray, count: int, events: bytearray, room: int, timeout: int
    ) -> int:
        timespec = bytearray(pack(self._timespec, timeout, 0))
        pointer = self._pointer
        # When a change fails, DragonFly writes one event even if nevents is 0, unless eventlist
        # is NULL: sys/kern/kern_event.c, kern_kevent().
        place = pointer(events) if room else self._null
        return self._kevent(fd, pointer(changes), count, place, room, pointer(timespec))

    def _write(self, buffer: bytearray, offset: int, event: Event) -> None:
        fields = [event.ident, event.filter, event.flags, event.fflags, event.data, event.udata]
        fields += [0] * (self._layout.fields - len(fields))
        self._layout.struct.pack_into(buffer, offset, *fields)

    def _read(self, buffer: bytearray, offset: int) -> Event:
        return Event(*self._layout.struct.unpack_from(buffer, offset)[:6])

    def control(
        self, fd: int, changes: "Sequence[Event]", max_events: int, timeout: int
    ) -> "list[Event]":
        size = self._layout.struct.size
        written = bytearray(size * len(changes) or 1)
        for number, change in enumerate(changes):
            self._write(written, size * number, change)
        events = bytearray(size * max_events)
        count = self._call(fd, written, len(changes), events, max_events, timeout)
        return [self._read(events, size * number) for number in range(count)]


def make(binding: "Any") -> "Callable[[], Kqueue]":
    """A function that makes kqueues, as select.kqueue does."""
    system = bsd.system()
    if system is None:
        raise ImportError("this system has no kqueue")
    functions = _Functions(binding, system)
    return lambda: Kqueue(functions)


def _make(binding: "Any", name: str) -> "Any":
    return make(binding) if name == "kqueue" else Event


# As in calls.py.
CALLS = {"kqueue": ("select", _make), "kevent": ("select", _make)}
