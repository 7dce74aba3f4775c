# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: kqueue(2) and waitid(2), their prototypes, layouts, constants.

A layout is a format string of the struct module. With "@" it has the C compiler's sizes and
alignment, so that one format serves 32 and 64 bits, however the processor aligns a 64-bit
number. "0q" pads the end where such a number is aligned to 8 bytes.
"""

import os
from collections import namedtuple
from errno import EINTR, ENOSYS, ESRCH
from functools import partial
from struct import Struct, calcsize, pack

from .._base.errors import Failed, call, failed
from . import calls
from .calls import CALLS, WAITID, WaitId

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable

# flags of struct kevent: what to do, and what has happened
EV_ADD = 0x0001
EV_DELETE = 0x0002
EV_ENABLE = 0x0004
EV_ONESHOT = 0x0010
EV_ERROR = 0x4000

# fflags of struct kevent, for EVFILT_PROC
NOTE_EXIT = 0x80000000
NOTE_EXITSTATUS = 0x04000000  # macOS; on FreeBSD this bit waits for the reaping

NOBODY = 2**31 - 1  # a pid that no process can have: all systems have a lower limit
_UNTOUCHED = 0xA5


class KeventVersion:
    """A version of kevent(): its symbol, the layout of struct kevent, the type of its counts.

    The fields are ident, filter, flags, fflags, data, udata, and in later versions ext[4].
    """

    def __init__(self, symbol: str, layout: str, counts: str = "int") -> None:
        # int kevent(int kq, const struct kevent *changelist, int nchanges,
        #            struct kevent *eventlist, int nevents, const struct timespec *timeout);
        self.prototype = ("int", "int", "void *", counts, "void *", counts, "void *")
        self.symbol = symbol
        self.struct = Struct(layout)
        self.fields = len(self.struct.unpack(bytes(self.struct.size)))


class WaitIdTable:
    """int waitid(idtype_t idtype, id_t id, siginfo_t *infop, int options);

    Its numbers, the type that id_t is, and where siginfo_t has si_code, si_pid and si_status.
    """

    def __init__(self, p_pid: int, look: int, id_: str, offsets: "tuple[int, int, int]") -> None:
        self.numbers = {"P_PID": p_pid, "LOOK": look}  # WEXITED | WNOHANG | WNOWAIT
        self.prototype = ("int", "unsigned int", id_, "void *", "int")
        self.offsets = offsets


class KqueueTable:
    """What is peculiar to one system. ``kevents`` are its versions of kevent(), newest first."""

    def __init__(
        self,
        kevents: "tuple[KeventVersion, ...]",
        waitid: WaitIdTable,
        filters: "tuple[int, int, int]" = (-5, -7, -1),
        timespec: str = "@ql0q",
        status_flag: int = 0,
        told_since_waitid: bool = False,
    ) -> None:
        self.kevents = kevents
        self.waitid = waitid
        self.filter_proc, self.filter_timer, self.filter_read = filters
        self.timespec = timespec
        self.status_flag = status_flag  # in fflags; without it data is not the wait status
        # Whether data is the wait status only in versions that have waitid(2).
        self.told_since_waitid = told_since_waitid


_I386 = calcsize("P") == 4 and calcsize("@iq") == 12
_UNION = calcsize("@iii0q")  # the offset of the union in siginfo_t

# NetBSD and OpenBSD have put the status into data since they got waitid(2) (NetBSD 8,
# OpenBSD 6.9); in older versions data may be 0.
TABLES = {
    "freebsd": KqueueTable(
        # FreeBSD 12 and later, then older: this depends on the C library, not on the kernel
        (KeventVersion("kevent", "@PhHIqP4Q0q"), KeventVersion("kevent", "@PhHInP")),
        WaitIdTable(0, 16 | 1 | 8, "int64_t", (8, 12, 20)),
        timespec="@ll" if _I386 else "@ql0q",
    ),
    "netbsd": KqueueTable(
        # NetBSD 11 and later, then older; the symbol kevent takes the timespec of NetBSD 5
        (
            KeventVersion("__kevent100", "@PIIIqP4Q0q", "uintptr_t"),
            KeventVersion("__kevent50", "@PIIIqP0q", "uintptr_t"),
        ),
        WaitIdTable(1, 32 | 1 | 0x10000, "unsigned int", (4, _UNION, _UNION + 8)),
        filters=(4, 6, 0),  # unsigned
        told_since_waitid=True,
    ),
    "openbsd": KqueueTable(
        (KeventVersion("kevent", "@PhHIqP0q"),),
        WaitIdTable(2, 4 | 1 | 16, "unsigned int", (4, _UNION, calcsize("@iii0qii0qqq"))),
        told_since_waitid=True,
    ),
    "dragonfly": KqueueTable(
        (KeventVersion("kevent", "@PhHInP"),),
        WaitIdTable(0, 16 | 1 | 8, "int64_t", (8, 12, 20)),
    ),
    "darwin": KqueueTable(
        (KeventVersion("kevent", "=QhHIqQ"),),  # #pragma pack(4)
        WaitIdTable(1, 4 | 1 | 32, "unsigned int", (8, 12, 20)),
        status_flag=NOTE_EXITSTATUS,
    ),
}


def table() -> KqueueTable:
    """That of the system that we run on; Failed (ENOSYS) if it has no kqueue."""
    try:
        return TABLES[calls.PLATFORM]
    except KeyError:
        raise failed(ENOSYS, "this system has no kqueue") from None


# struct kevent, as select.kevent
Kevent = namedtuple("Kevent", "ident filter flags fflags data udata")


class Kqueue:
    """A kqueue, as select.kqueue. Exec closes it, and a forked child does not inherit it."""

    def __init__(self, functions: "BoundKqueue") -> None:
        self._fd = -1
        self._pid = os.getpid()
        self._fd = functions.kqueue()
        call(os.set_inheritable, self._fd, False)
        self.control = partial(functions.control, self._fd)  # no method: see call()

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        # In a forked child the number may belong to another file.
        if fd >= 0 and self._pid == os.getpid():
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class BoundKqueue:
    """Makes kqueues by a binding; LookupError if this system's do not match the table."""

    def __init__(self, binding: "Any", name: str) -> None:
        self._pointer, self._null = binding.pointer, binding.null
        self.kqueue: "Callable[[], int]" = binding.function("kqueue", ("int",))
        self._table = table()
        found = []
        for version in self._table.kevents:
            try:
                self._kevent: "Any" = binding.function(version.symbol, version.prototype)
            except LookupError as error:
                found.append(str(error))
                continue
            self._version = version
            size = self._size_in_use()
            if size == version.struct.size:
                return
            text = "%s: a struct of %d bytes, not %d"
            found.append(text % (version.symbol, size, version.struct.size))
        raise LookupError("no known version of kevent: " + "; ".join(found))

    def __call__(self) -> Kqueue:
        return Kqueue(self)

    def _size_in_use(self) -> int:
        """How many bytes kevent() writes for one event; here the event is an error, ESRCH."""
        # FreeBSD's C library has one of two kevents as its default, and the kernel's version
        # does not tell which. The change written here looks the same in both.
        change = Kevent(NOBODY, self._table.filter_proc, EV_ADD, NOTE_EXIT, 0, 0)
        answer = bytearray([_UNTOUCHED]) * 128
        queue = Kqueue(self)
        try:
            if self._call(queue.fileno(), [change], answer, 1, 0) != 1:
                return 0
        finally:
            queue.close()
        size = len(answer.rstrip(bytes([_UNTOUCHED])))
        if size == self._version.struct.size:
            event = self._read(answer, 0)
            if not (event.flags & EV_ERROR and event.data == ESRCH and event.ident == NOBODY):
                return 0
        return size

    def _call(
        self, fd: int, changes: "list[Any]", events: bytearray, room: int, timeout: "float | None"
    ) -> int:
        more = (0,) * (self._version.fields - len(Kevent._fields))
        written = b"".join(self._version.struct.pack(*change, *more) for change in changes)
        pointer, wait = self._pointer, self._null
        if timeout is not None:
            nanoseconds = -int(-timeout * 1e9 // 1)  # rounded up
            wait = pointer(bytearray(pack(self._table.timespec, *divmod(nanoseconds, 10**9))))
        # When a change fails, DragonFly writes one event even if nevents is 0, unless eventlist
        # is NULL: sys/kern/kern_event.c, kern_kevent().
        place = pointer(events) if room else self._null
        # 128 bytes: the wrong struct may be longer.
        given = pointer(bytearray(written.ljust(128, b"\0")))
        try:
            return self._kevent(fd, given, len(changes), place, room, wait)  # type: ignore[no-any-return]
        except Failed as why:
            if why.errno != EINTR:
                raise
            return 0  # the signal's handler runs now; a sleep may end early

    def _read(self, events: bytearray, number: int) -> Kevent:
        struct = self._version.struct
        return Kevent(*struct.unpack_from(events, struct.size * number)[: len(Kevent._fields)])

    def control(
        self, fd: int, changes: "list[Any] | None", room: int, timeout: "float | None" = None
    ) -> "list[Kevent]":
        events = bytearray(self._version.struct.size * room)
        count = self._call(fd, changes or [], events, room, timeout)
        return [self._read(events, number) for number in range(count)]


def _bind_waitid(binding: "Any", name: str) -> WaitId:
    waitid = table().waitid
    return WaitId(binding, waitid.prototype, waitid.offsets)


ROWS: "dict[str, tuple[str | None, Any]]" = {
    "kqueue": ("select", BoundKqueue),
    "kevent": ("select", lambda binding, name: Kevent),
    "waitid": ("os", _bind_waitid),
}
if calls.PLATFORM in TABLES:
    CALLS.update(ROWS)
    WAITID.update(table().waitid.numbers)
