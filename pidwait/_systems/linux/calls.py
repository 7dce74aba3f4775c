# SPDX-License-Identifier: BSD-3-Clause
"""Linux: prototypes, system call numbers, layouts, constants."""

import os
import sys
from errno import EBADF
from struct import Struct, pack

from ..._base.errors import call, failed
from ..bindings import WaitId

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._base.errors import Failed
    from ..._types import Adapter, Callable, Function, Rows

# name: (result, arguments...)
PROTOTYPES = {
    # a system call number, and up to four arguments
    "syscall": ("long", "long", "long", "long", "long", "long"),
    "waitid": ("int", "int", "unsigned int", "void *", "int"),
    "timerfd_create": ("int", "int", "int"),
    # fd, flags, new and old struct itimerspec
    "timerfd_settime": ("int", "int", "int", "void *", "void *"),
}

# name: number in the common table
SYSCALLS = {"pidfd_open": 434, "pidfd_send_signal": 424}  # Linux 5.3, 5.1

# The offset that an architecture adds to the common numbers, by the first part of a triplet or
# uname(2)'s machine. From 424 on most have the same numbers. For others we never guess.
_COMMON = (
    "aarch64 aarch64_be arc arceb arm armv5l armv5tel armv6l armv7l armv8l csky hexagon i386 i486 "
    "i586 i686 loongarch32 loongarch64 m68k microblaze microblazeel nios2 or1k parisc parisc64 "
    "hppa powerpc powerpcle powerpc64 powerpc64le ppc ppcle ppc64 ppc64le riscv32 riscv64 s390 "
    "s390x sh sh4 sparc sparc64 x86_64 xtensa"
).split()
_OFFSETS = dict(dict.fromkeys(_COMMON, 0), alpha=110)
_OFFSETS.update(dict.fromkeys(("mips", "mipsel", "mipsisa32r6", "mipsisa32r6el"), 4000))
_MIPS64 = ("mips64", "mips64el", "mipsisa64r6", "mipsisa64r6el")

# idtype_t and options of waitid(2)
P_PID = 1
P_PIDFD = 3  # Linux 5.4
WNOHANG = 0x00000001
WEXITED = 0x00000004
WNOWAIT = 0x01000000
# Also a child of clone(2) that sends another signal than SIGCHLD. waitid(2) takes this flag from
# Linux 4.7 on, wait4(2) always.
WALL = 0x40000000
REAP = WEXITED | WNOHANG | WALL
LOOK = REAP | WNOWAIT

# ioctl(pidfd, PIDFD_GET_INFO, struct pidfd_info *): Linux 6.13, with the exit status 6.15.
# _IOWR(0xFF, 11, 64 bytes) is the same number on every architecture.
PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3  # of the mask
# u64 mask, cgroupid; u32 pid, tgid, ppid, eight of the user's; s32 exit_code
PIDFD_INFO = Struct("=Q8x3i32xi")

CLOCK_MONOTONIC = 1
_MACHINE = os.uname().machine if os.name == "posix" else ""
# asm-generic/resource.h, and MIPS', Alpha's and SPARC's own
RLIMIT_NOFILE = {"mips": 5, "alpha": 6, "sparc": 6}.get(_MACHINE.rstrip("64"), 7)

WORD = 8 if sys.maxsize > 2**32 else 4
# The offsets of si_code, si_pid and si_status in siginfo_t. On MIPS si_code comes before si_errno;
# the others, with si_uid between them, are in a union that is aligned to a word.
SIGINFO = (4 if _MACHINE.startswith("mips") else 8, 8 + WORD, 16 + WORD)


def get_info(ioctl: "Function", fd: int) -> "tuple[int, int, int, int, int]":
    """The result of ioctl(fd, PIDFD_GET_INFO): mask, pid, tgid, ppid, wait status."""
    if fd < 0:  # a signal handler has closed it
        raise failed(EBADF)
    info = bytearray(PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0, 0, 0, 0))
    call(ioctl, fd, PIDFD_GET_INFO, info, True)
    return PIDFD_INFO.unpack(info)


def offset(machine: str, abi: str, word: int) -> int:
    """The architecture's offset from the common numbers; LookupError if it is not known.

    ``machine`` is uname's, ``abi`` the interpreter's triplet or "", ``word`` the size of a
    pointer: a 32-bit interpreter can run on a 64-bit kernel.
    """
    if abi.endswith("gnux32"):
        return 0x40000000
    architecture = abi.partition("-")[0] or machine
    found = _OFFSETS.get(architecture)
    if architecture in _MIPS64:
        found = 5000 if word == 8 else 6000 if "abin32" in abi else None
    if found is None:
        raise LookupError("the system call numbers of %s are not known" % architecture)
    return found


class _Bound:
    """A function of the C library."""

    def __init__(self, binding: "Adapter", name: str) -> None:
        self._function = binding.function(name, PROTOTYPES[name])


class _Syscall(_Bound):
    """syscall(2), with one argument or two; the others are 0."""

    def __init__(self, binding: "Adapter", name: str) -> None:
        super().__init__(binding, "syscall")
        abi = getattr(sys.implementation, "_multiarch", "")
        self.number = (SYSCALLS[name] + offset(_MACHINE, abi, WORD),)
        # The function in C, with two arguments; it returns -1. See opened().
        self.raw = binding.function("syscall", ("long",) * 4, None)
        self.refusal: "Callable[[], Failed]" = binding.refusal

    def __call__(self, first: int, second: int = 0) -> int:
        return self._function(*self.number, first, second, 0, 0)


class _TimerfdCreate(_Bound):
    """os.timerfd_create()."""

    def __init__(self, binding: "Adapter", name: str) -> None:
        super().__init__(binding, name)
        self.flags = (os.O_CLOEXEC,)
        # As that of _Syscall.
        self.raw = binding.function(name, PROTOTYPES[name], None)
        self.refusal: "Callable[[], Failed]" = binding.refusal

    def __call__(self, clock: int) -> int:
        return self._function(clock, *self.flags)


class _TimerfdSettime(_Bound):
    """os.timerfd_settime(), with the argument ``initial`` alone."""

    def __call__(self, fd: int, *, initial: float) -> None:
        seconds = int(initial)
        # Interval and value, each in seconds and nanoseconds: longs, also on 32 bits.
        new = bytearray(pack("@4l", 0, 0, seconds, int((initial - seconds) * 1e9)))
        self._function(fd, 0, new, None)


LINUX_WAITID = {"P_PID": P_PID, "LOOK": LOOK & ~WALL, "WALL": WALL}
# _signal is signal without its enums. It is always loaded, so it is there when no file descriptor
# is left for an import.
LINUX_ROWS: "Rows" = {
    "pidfd_open": ("os", _Syscall),
    "pidfd_send_signal": ("_signal", _Syscall),
    "waitid": ("os", lambda binding, name: WaitId(binding, PROTOTYPES[name], SIGINFO)),
    "timerfd_create": ("os", _TimerfdCreate),
    "timerfd_settime": ("os", _TimerfdSettime),
    "ioctl": ("fcntl", None),
    "fcntl": ("fcntl", None),
    "getrlimit": ("resource", None),
    "setrlimit": ("resource", None),
    "prlimit": ("resource", None),
    "epoll": ("select", None),
}
