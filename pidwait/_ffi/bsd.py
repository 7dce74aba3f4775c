# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: prototypes, layouts, constants of kqueue(2) and waitid(2).

A layout is a format of the module struct, whose native sizes and alignment, "@", are
those of the C compiler: one format serves 64 and 32 bits, whatever the processor aligns
a 64-bit number to. "0q" pads the end where such a number is aligned to 8.
"""

from errno import ENOSYS
from struct import Struct, calcsize

from .. import _ffi

# name, or for kevent() what it counts by: (result, arguments...)
PROTOTYPES = {
    # int kqueue(void);
    "kqueue": ("int",),
    # int kevent(int kq, const struct kevent *changelist, int nchanges,
    #            struct kevent *eventlist, int nevents, const struct timespec *timeout);
    "int": ("int", "int", "void *", "int", "void *", "int", "void *"),
    "size_t": ("int", "int", "void *", "uintptr_t", "void *", "uintptr_t", "void *"),
}

# Of struct kevent, flags: what to do, and what has happened
EV_ADD = 0x0001
EV_DELETE = 0x0002
EV_ENABLE = 0x0004
EV_ONESHOT = 0x0010
EV_ERROR = 0x4000

# and fflags, of EVFILT_PROC
NOTE_EXIT = 0x80000000
NOTE_EXITSTATUS = 0x04000000  # macOS

# si_code of a SIGCHLD
CLD_EXITED = 1


class Kevent:
    """A kevent(): its name, what it counts by, and struct kevent.

    That is ident, filter, flags, fflags, data, udata, and what came later: ext[4].
    """

    __slots__ = ("counts", "fields", "struct", "symbol")

    def __init__(self, symbol: str, layout: str, counts: str = "int") -> None:
        self.symbol = symbol
        self.struct = Struct(layout)
        self.fields = len(self.struct.unpack(bytes(self.struct.size)))
        self.counts = counts


class WaitId:
    """int waitid(idtype_t idtype, id_t id, siginfo_t *infop, int options);

    Its numbers, what an id_t is, and where siginfo_t has what it tells.
    """

    __slots__ = ("code", "look", "p_pid", "pid", "prototype", "status")

    def __init__(self, p_pid: int, look: int, id_: str, offsets: "tuple[int, int, int]") -> None:
        self.prototype = ("int", "unsigned int", id_, "void *", "int")
        self.p_pid = p_pid
        self.look = look  # WEXITED | WNOHANG | WNOWAIT
        self.code, self.pid, self.status = offsets


class System:
    """One of the systems; ``kevents`` are those that its versions have, the newest first."""

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
        self.status_flag = status_flag  # of fflags: without it, data is not the wait status
        self.told_since_waitid = told_since_waitid  # without waitid(), neither


_I386 = calcsize("P") == 4 and calcsize("@iq") == 12
# Where the union in siginfo_t begins.
_UNION = calcsize("@iii0q")

# Of NetBSD and OpenBSD, those that have waitid(2) put the status into data (NetBSD 8,
# OpenBSD 6.9): on older ones it is 0.
SYSTEMS = {
    "freebsd": System(
        # from FreeBSD 12 on, and before: the C library decides, not the kernel
        (Kevent("kevent", "@PhHIqP4Q0q"), Kevent("kevent", "@PhHInP")),
        WaitId(0, 16 | 1 | 8, "int64_t", (8, 12, 20)),
        timespec="@ll" if _I386 else "@ql0q",
    ),
    "netbsd": System(
        # from NetBSD 11 on, and before; kevent() itself takes the timespec of NetBSD 5
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
    """That of this interpreter, if it has kqueues."""
    return SYSTEMS.get(_ffi.PLATFORM)


def table() -> System:
    """The same; OSError where it has none."""
    answer = system()
    if answer is None:
        raise OSError(ENOSYS, "this system has no kqueue")
    return answer
