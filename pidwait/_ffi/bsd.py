# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: prototypes, layouts, constants of kqueue(2) and waitid(2).

A layout is a format string of the struct module. With "@" it has the C compiler's sizes and
alignment, so that one format serves 32 and 64 bits, however the processor aligns a 64-bit
number. "0q" pads the end where such a number is aligned to 8 bytes.
"""

from errno import ENOSYS
from struct import Struct, calcsize

from .. import _ffi

# name: (result, arguments...); the two of kevent() are named by the type of its counts.
PROTOTYPES = {
    # int kqueue(void);
    "kqueue": ("int",),
    # int kevent(int kq, const struct kevent *changelist, int nchanges,
    #            struct kevent *eventlist, int nevents, const struct timespec *timeout);
    "int": ("int", "int", "void *", "int", "void *", "int", "void *"),
    "size_t": ("int", "int", "void *", "uintptr_t", "void *", "uintptr_t", "void *"),
}

# flags of struct kevent: what to do, and what has happened
EV_ADD = 0x0001
EV_DELETE = 0x0002
EV_ENABLE = 0x0004
EV_ONESHOT = 0x0010
EV_ERROR = 0x4000

# fflags of struct kevent, for EVFILT_PROC
NOTE_EXIT = 0x80000000
NOTE_EXITSTATUS = 0x04000000  # macOS

# si_code of a SIGCHLD, for an exit
CLD_EXITED = 1


class Kevent:
    """A version of kevent(): its symbol, the type of its counts, the layout of struct kevent.

    The fields are ident, filter, flags, fflags, data, udata, and in later versions ext[4].
    """

    __slots__ = ("counts", "fields", "struct", "symbol")

    def __init__(self, symbol: str, layout: str, counts: str = "int") -> None:
        self.symbol = symbol
        self.struct = Struct(layout)
        self.fields = len(self.struct.unpack(bytes(self.struct.size)))
        self.counts = counts


class WaitId:
    """int waitid(idtype_t idtype, id_t id, siginfo_t *infop, int options);

    Its constants, the type that id_t is, and the offsets of the fields in siginfo_t.
    """

    __slots__ = ("code", "look", "p_pid", "pid", "prototype", "status")

    def __init__(self, p_pid: int, look: int, id_: str, offsets: "tuple[int, int, int]") -> None:
        self.prototype = ("int", "unsigned int", id_, "void *", "int")
        self.p_pid = p_pid
        self.look = look  # WEXITED | WNOHANG | WNOWAIT
        self.code, self.pid, self.status = offsets


class System:
    """What is peculiar to one system. ``kevents`` are its versions of kevent(), newest first."""

    __slots__ = (
        "filter_proc",
        "filter_read",
        "filter_timer",
        "kevents",
        "status_flag",
        "timespec",
        "told_since_waitid",
        "waitid",
    )

    def __init__(
        self,
        kevents: "tuple[Kevent, ...]",
        waitid: WaitId,
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
# The offset of the union in siginfo_t.
_UNION = calcsize("@iii0q")

# NetBSD and OpenBSD have put the status into data since they got waitid(2) (NetBSD 8,
# OpenBSD 6.9); in older versions data is 0.
SYSTEMS = {
    "freebsd": System(
        # FreeBSD 12 and later, then older: this depends on the C library, not on the kernel
        (Kevent("kevent", "@PhHIqP4Q0q"), Kevent("kevent", "@PhHInP")),
        WaitId(0, 16 | 1 | 8, "int64_t", (8, 12, 20)),
        timespec="@ll" if _I386 else "@ql0q",
    ),
    "netbsd": System(
        # NetBSD 11 and later, then older; the symbol kevent takes the timespec of NetBSD 5
        (
            Kevent("__kevent100", "@PIIIqP4Q0q", "size_t"),
            Kevent("__kevent50", "@PIIIqP0q", "size_t"),
        ),
        WaitId(1, 32 | 1 | 0x10000, "unsigned int", (4, _UNION, _UNION + 8)),
        filters=(4, 6, 0),  # unsigned
        told_since_waitid=True,
    ),
    "openbsd": System(
        (Kevent("kevent", "@PhHIqP0q"),),
        WaitId(2, 4 | 1 | 16, "unsigned int", (4, _UNION, calcsize("@iii0qii0qqq"))),
        told_since_waitid=True,
    ),
    "dragonfly": System(
        (Kevent("kevent", "@PhHInP"),),
        WaitId(0, 16 | 1 | 8, "int64_t", (8, 12, 20)),
    ),
    "darwin": System(
        (Kevent("kevent", "=QhHIqQ"),),  # #pragma pack(4)
        WaitId(1, 4 | 1 | 32, "unsigned int", (8, 12, 20)),
        status_flag=NOTE_EXITSTATUS,
    ),
}


def system() -> "System | None":
    """The entry for the system that we run on; None if it has no kqueue."""
    return SYSTEMS.get(_ffi.PLATFORM)


def table() -> System:
    """As system(), but OSError where there is no kqueue."""
    answer = system()
    if answer is None:
        raise OSError(ENOSYS, "this system has no kqueue")
    return answer
