# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: layouts and numbers as in their headers, and what is peculiar to each."""

import ctypes
import os

c = ctypes
EVENT = ("ident", "filter", "flags", "fflags", "data", "udata")
NOTE_EXIT = 0x80000000
NOTE_EXITSTATUS = 0x04000000
EV_ADD, EV_DELETE, EV_ENABLE, EV_ONESHOT = 0x1, 0x2, 0x4, 0x10
EV_EOF, EV_ERROR = 0x8000, 0x4000


def event_type(*types, ext=False, pack=None):
    fields = list(zip(EVENT, types))
    if ext:
        fields.append(("ext", c.c_uint64 * 4))
    names = {"_fields_": fields}
    if pack:
        names.update(_pack_=pack, _layout_="ms")
    return type("kevent", (c.Structure,), names)


def info_type(names, rest):
    """A siginfo_t: ints by these names, and that many bytes more."""
    fields = [("si_" + name, c.c_int64 if "time" in name else c.c_int) for name in names.split()]
    return type("siginfo_t", (c.Structure,), {"_fields_": fields + [("rest", c.c_char * rest)]})


class System:
    """One system, in one of its versions, and what is peculiar to it."""

    symbol = "kevent"
    counts = c.c_int
    filters = -5, -7, -1  # for processes, timers, reading
    zombies = False  # a process that has exited can still be watched
    status_flag = 0
    more_flags = 0
    has_waitid = True  # all Pythons have os.waitid there
    tick = 0.001  # in seconds; timers are up to two ticks late
    # The kernel writes an event for a change that fails, even without room for one.
    writes_unasked = False
    ors_errors = False  # such an event keeps the change's flags
    keeps_udata = False  # a change without EV_ADD leaves it
    zero_timers = True  # a timer may be due at once
    restarts_timers = True  # by EV_ADD
    watches_own_user = False  # only root can watch other users' processes
    # While a thread takes an event that stays ready, another one may find nothing, and go to
    # sleep: it is not woken when the first is done.
    misses = False
    forgives = False  # EV_DELETE of an event that another thread takes succeeds,
    sticks = False  # or leaves both stuck in the kernel
    # What becomes of close(), and of a thread that sleeps in the kqueue: close() "waits" for that
    # sleep's end; or that "ends" with EBADF; or it "goes on".
    close = "ends"

    def __init__(self, platform, event, info, waits, **more):
        self.platform, self.event, self.info = platform, event, info
        self.p_pid, self.wexited, self.wnowait = waits
        self.__dict__.update(more)
        self.filter_proc, self.filter_timer, self.filter_read = self.filters


_SHORT = (c.c_size_t, c.c_short, c.c_ushort, c.c_uint)
_WIDE = (c.c_size_t, c.c_uint32, c.c_uint32, c.c_uint32)
_FREEBSD = info_type("signo errno code pid uid status", 56), (0, 16, 8)
_NETBSD = info_type("signo code errno pad pid uid status", 100), (1, 0x20, 0x10000)
_OPENBSD = info_type("signo code errno pad pid uid utime stime status", 92), (2, 4, 16)
_DARWIN = info_type("signo errno code pid uid status", 80), (1, 4, 32)
_OF_NETBSD = {
    "counts": c.c_size_t,
    "filters": (4, 6, 0),
    "tick": 0.01,
    "zero_timers": False,
    "watches_own_user": True,
    "forgives": True,
}
_INTPTR = event_type(*_SHORT, c.c_ssize_t, c.c_void_p)

SYSTEMS = {
    "freebsd12": System(
        "freebsd",
        event_type(*_SHORT, c.c_int64, c.c_void_p, ext=True),
        *_FREEBSD,
        zombies=True,
        close="goes on",
    ),
    "netbsd11": System(
        "netbsd",
        event_type(*_WIDE, c.c_int64, c.c_void_p, ext=True),
        *_NETBSD,
        symbol="__kevent100",
        **_OF_NETBSD,
    ),
    "netbsd10": System(
        "netbsd",
        event_type(*_WIDE, c.c_int64, c.c_void_p),
        *_NETBSD,
        symbol="__kevent50",
        restarts_timers=False,
        misses=True,
        sticks=True,
        close="waits",
        **_OF_NETBSD,
    ),
    "openbsd": System(
        "openbsd",
        event_type(*_SHORT, c.c_int64, c.c_void_p),
        *_OPENBSD,
        tick=0.01,
        keeps_udata=True,
        misses=True,
    ),
    "dragonfly": System(
        "dragonfly",
        _INTPTR,
        *_FREEBSD,
        zombies=True,
        more_flags=0x1000,
        tick=0.01,
        writes_unasked=True,
        restarts_timers=False,
        misses=True,
        close="goes on",
    ),
    "darwin": System(
        "darwin",
        event_type(c.c_uint64, c.c_int16, c.c_uint16, c.c_uint32, c.c_int64, c.c_uint64, pack=4),
        *_DARWIN,
        status_flag=NOTE_EXITSTATUS,
        ors_errors=True,
        has_waitid=False,  # from Python 3.13 on
    ),
}
NAMED = os.environ.get("KQUEUE_STANDIN", "").split()


def named(holds=lambda system: True):
    """For a test's parameter: those systems in KQUEUE_STANDIN for which this holds."""
    return [name for name in NAMED if holds(SYSTEMS[name])]
