# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: the prototypes, layouts and constants of kqueue(2) and waitid(2).

A layout is a format string of the struct module. With "@" it has the C compiler's sizes and
alignment, so that one format serves 32 and 64 bits, however the processor aligns a 64-bit
number. "0q" pads the end where such a number is aligned to 8 bytes.
"""

import os
import select
from collections import namedtuple
from errno import EINTR, ENOENT
from functools import partial
from struct import Struct, calcsize, pack
from types import SimpleNamespace

from ..._base.errors import Failed, call, not_by_handler
from ..bindings import PLATFORM, WaitId

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Adapter, Any, KQueue, Rows

# flags of struct kevent
EV_ADD, EV_DELETE, EV_ENABLE, EV_ONESHOT = 0x1, 0x2, 0x4, 0x10
# fflags, for EVFILT_PROC
NOTE_EXIT = 0x80000000
NOTE_EXITSTATUS = 0x04000000  # macOS; on FreeBSD this bit waits for the reaping
PROC, TIMER, READ = 0, 1, 2  # kinds of filters

_NOBODY = 2**31 - 1  # a pid that no process can have: all systems have lower limits
_UNTOUCHED = b"\xa5"

# What is peculiar to one system:
#   kevents      the versions of kevent(), newest first: its symbol, and the layout of struct
#                kevent: ident, filter, flags, fflags, data, udata, and unused fields
#   filters      the numbers of EVFILT_PROC, EVFILT_TIMER, EVFILT_READ
#   counts       the type of kevent()'s nchanges and nevents
#   status_flag  a flag in fflags, without which data is not the wait status
KqueueTable = namedtuple("KqueueTable", "kevents waitid filters counts timespec status_flag")
_USUAL = KqueueTable((), None, (-5, -7, -1), "int", "@ql0q", 0)

# int waitid(idtype_t idtype, id_t id, siginfo_t *infop, int options);
# P_PID; WEXITED | WNOHANG | WNOWAIT; the prototype; and the offsets of si_code, si_pid and
# si_status in siginfo_t.
WaitIdTable = namedtuple("WaitIdTable", "p_pid look prototype offsets")
_WAITID = ("int", "unsigned int", "unsigned int", "void *", "int")

_I386 = calcsize("P") == 4 and calcsize("@iq") == 12
_UNION = calcsize("@iii0q")  # the offset of the union in siginfo_t
_FREEBSD_WAITID = WaitIdTable(
    0, 16 | 1 | 8, ("int", "unsigned int", "int64_t", "void *", "int"), (8, 12, 20)
)

TABLES = {
    "freebsd": _USUAL._replace(
        kevents=(("kevent", "@PhHIqP32x0q"),),  # FreeBSD 12
        waitid=_FREEBSD_WAITID,
        timespec="@ll" if _I386 else "@ql0q",
    ),
    "netbsd": _USUAL._replace(
        # NetBSD 11 and later, then older; the symbol kevent takes the timespec of NetBSD 5
        kevents=(("__kevent100", "@PIIIqP32x0q"), ("__kevent50", "@PIIIqP0q")),
        waitid=WaitIdTable(1, 32 | 1 | 0x10000, _WAITID, (4, _UNION, _UNION + 8)),
        filters=(4, 6, 0),  # unsigned
        counts="uintptr_t",
    ),
    "openbsd": _USUAL._replace(
        kevents=(("kevent", "@PhHIqP0q"),),
        waitid=WaitIdTable(2, 4 | 1 | 16, _WAITID, (4, _UNION, calcsize("@iii0qii0qqq"))),
    ),
    "dragonfly": _USUAL._replace(kevents=(("kevent", "@PhHInP"),), waitid=_FREEBSD_WAITID),
    "darwin": _USUAL._replace(
        kevents=(("kevent", "=QhHIqQ"),),  # #pragma pack(4)
        waitid=WaitIdTable(1, 4 | 1 | 32, _WAITID, (8, 12, 20)),
        status_flag=NOTE_EXITSTATUS,
    ),
}


def table() -> KqueueTable:
    return TABLES[PLATFORM]


# struct kevent, as select.kevent
Kevent = namedtuple("Kevent", "ident filter flags fflags data udata")


class BoundKqueue:
    """Makes kqueues like select's by a binding; LookupError if kevent() does not fit the table."""

    def __init__(self, binding: "Adapter", name: str) -> None:
        self._pointer, self._null = binding.pointer, binding.null
        self._kqueue = binding.function("kqueue", ("int",))
        # int kevent(int kq, const struct kevent *changelist, int nchanges,
        #            struct kevent *eventlist, int nevents, const struct timespec *timeout);
        counts = table().counts
        prototype = ("int", "int", "void *", counts, "void *", counts, "void *")
        nobody = Kevent(_NOBODY, table().filters[PROC], EV_ADD, NOTE_EXIT, 0, 0)
        found = []
        for symbol, layout in table().kevents:
            self._struct = Struct(layout)
            try:
                self._kevent = binding.function(symbol, prototype)
            except not_by_handler(LookupError) as error:
                found.append(str(error))
                continue
            # An older system has another struct under the same name: FreeBSD 11. So measure an
            # event that it writes, here for the error ESRCH.
            events = bytearray(_UNTOUCHED * 128)
            kqueue = self()
            try:
                kqueue.control([nobody], 1, 0, events)
            finally:
                kqueue.close()
            size = len(events.rstrip(_UNTOUCHED))
            if size == self._struct.size:
                return
            found.append("%s: a struct of %d bytes, not %d" % (symbol, size, self._struct.size))
        raise LookupError("no known version of kevent: " + "; ".join(found))

    def __call__(self) -> SimpleNamespace:
        fd = self._kqueue()
        call(os.set_inheritable, fd, False)
        control, close_ = partial(self._control, fd), partial(os.close, fd)
        return SimpleNamespace(fileno=lambda: fd, control=control, close=close_)

    def _control(
        self, fd: int, changes: "Any", room: int, seconds: float, events: "bytearray | None" = None
    ) -> "list[Kevent]":
        """``events``: the memory that kevent() writes to."""
        written = [self._struct.pack(*change) for change in changes or ()]
        given = bytearray(b"".join(written).ljust(128, b"\0"))  # the wrong struct may be longer
        events = events or bytearray(self._struct.size * room)
        nanoseconds = -int(-seconds * 1e9 // 1)  # rounded up
        wait = bytearray(pack(table().timespec, *divmod(nanoseconds, 10**9)))
        pointer = self._pointer
        # When a change fails, DragonFly writes one event even if nevents is 0, unless eventlist
        # is NULL: sys/kern/kern_event.c, kern_kevent().
        place = pointer(events) if room else self._null
        try:
            count = self._kevent(fd, pointer(given), len(written), place, room, pointer(wait))
        except Failed as why:
            if why.errno != EINTR:
                raise
            return []  # the signal handler runs now; a sleep may end early
        size = self._struct.size * count
        return [Kevent(*fields) for fields in self._struct.iter_unpack(events[:size])]


KQUEUE_ROWS: "Rows" = {
    "kqueue": ("select", BoundKqueue),
    "waitid": ("os", lambda binding, name: WaitId(binding, *table().waitid[2:])),
}


def waitid_numbers() -> "dict[str, int]":
    numbers = {"P_PID": table().waitid.p_pid, "LOOK": table().waitid.look, "WALL": 0}
    return dict(numbers, MAXRSS=1 if PLATFORM == "darwin" else 1024)  # in bytes, see getrusage(2)


def change(
    kq: "KQueue", kind: int, ident: int, flags: int, fflags: int = 0, data: int = 0, udata: int = 0
) -> bool:
    """Change a registration; return False if it does not exist."""
    make = Kevent if isinstance(kq, SimpleNamespace) else select.kevent  # type: ignore[attr-defined]
    event = make(ident, table().filters[kind], flags, fflags, data, udata)
    try:
        # With no room for events, the call raises an error, and takes no event from the kqueue: on
        # FreeBSD and DragonFly a zombie's exit is there at once.
        call(kq.control, [event], 0, 0)
    except Failed as why:
        if why.errno != ENOENT or flags & EV_ADD:
            raise
        return False
    return True
