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


def info_type(*fields):
    return type("siginfo_t", (c.Structure,), {"_fields_": fields})


INTS = [(name, c.c_int) for name in ("si_signo", "si_errno", "si_code")]
_FREEBSD_INFO = info_type(
    *INTS,
    ("si_pid", c.c_int),
    ("si_uid", c.c_uint),
    ("si_status", c.c_int),
    ("rest", c.c_char * 56),
)
_NETBSD_INFO = info_type(
    ("si_signo", c.c_int),
    ("si_code", c.c_int),
    ("si_errno", c.c_int),
    ("pad", c.c_int),
    ("si_pid", c.c_int),
    ("si_uid", c.c_uint),
    ("si_status", c.c_int),
    ("rest", c.c_char * 100),
)
_OPENBSD_INFO = info_type(
    ("si_signo", c.c_int),
    ("si_code", c.c_int),
    ("si_errno", c.c_int),
    ("pad", c.c_int),
    ("si_pid", c.c_int),
    ("si_uid", c.c_uint),
    ("si_utime", c.c_int64),
    ("si_stime", c.c_int64),
    ("si_status", c.c_int),
    ("rest", c.c_char * 92),
)
_DARWIN_INFO = info_type(
    *INTS,
    ("si_pid", c.c_int),
    ("si_uid", c.c_uint),
    ("si_status", c.c_int),
    ("rest", c.c_char * 80),
)

_SHORT = (c.c_size_t, c.c_short, c.c_ushort, c.c_uint)
_WIDE = (c.c_size_t, c.c_uint32, c.c_uint32, c.c_uint32)


class System:
    """One system, in one of its versions, and what is peculiar to it."""

    def __init__(
        self,
        platform,
        event,
        info,
        waits,
        symbol="kevent",
        counts=c.c_int,
        filters=(-5, -7, -1),
        zombies=False,
        status_flag=0,
        more_flags=0,
        has_waitid=True,
        tells_signal=True,
        tick=0.001,
        writes_unasked=False,
    ):
        self.platform = platform
        self.event = event
        self.info = info
        self.p_pid, self.wexited, self.wnowait = waits
        self.symbol = symbol
        self.counts = counts
        self.filter_proc, self.filter_timer, self.filter_read = filters
        self.zombies = zombies  # a process that has exited can still be watched
        self.status_flag = status_flag
        self.more_flags = more_flags
        self.has_waitid = has_waitid  # all Pythons have os.waitid there
        self.tells_signal = tells_signal
        self.tick = tick  # in seconds; timers are up to two ticks late
        # The kernel writes an event for a change that fails, even without room for one.
        self.writes_unasked = writes_unasked


_NETBSD = {
    "info": _NETBSD_INFO,
    "waits": (1, 0x20, 0x10000),
    "counts": c.c_size_t,
    "filters": (4, 6, 0),
    "tick": 0.01,
}
SYSTEMS = {
    "freebsd12": System(
        "freebsd",
        event_type(*_SHORT, c.c_int64, c.c_void_p, ext=True),
        _FREEBSD_INFO,
        (0, 16, 8),
        zombies=True,
    ),
    "freebsd11": System(
        "freebsd",
        event_type(*_SHORT, c.c_ssize_t, c.c_void_p),
        _FREEBSD_INFO,
        (0, 16, 8),
        zombies=True,
    ),
    "netbsd11": System(
        "netbsd",
        event_type(*_WIDE, c.c_int64, c.c_void_p, ext=True),
        symbol="__kevent100",
        **_NETBSD,
    ),
    "netbsd10": System(
        "netbsd", event_type(*_WIDE, c.c_int64, c.c_void_p), symbol="__kevent50", **_NETBSD
    ),
    "openbsd": System(
        "openbsd",
        event_type(*_SHORT, c.c_int64, c.c_void_p),
        _OPENBSD_INFO,
        (2, 4, 16),
        tick=0.01,
    ),
    "dragonfly": System(
        "dragonfly",
        event_type(*_SHORT, c.c_ssize_t, c.c_void_p),
        _FREEBSD_INFO,
        (0, 16, 8),
        zombies=True,
        more_flags=0x1000,
        tick=0.01,
        writes_unasked=True,
    ),
    "darwin": System(
        "darwin",
        event_type(c.c_uint64, c.c_int16, c.c_uint16, c.c_uint32, c.c_int64, c.c_uint64, pack=4),
        _DARWIN_INFO,
        (1, 4, 32),
        status_flag=NOTE_EXITSTATUS,
        has_waitid=False,  # from Python 3.13 on
        tells_signal=False,
    ),
}


NAMED = os.environ.get("KQUEUE_STANDIN", "").split()


def named(holds=lambda system: True):
    """For a test's parameter: those systems in KQUEUE_STANDIN for which this holds."""
    return [name for name in NAMED if holds(SYSTEMS[name])]
