# SPDX-License-Identifier: BSD-3-Clause
"""Linux: prototypes, system call numbers, layouts, constants."""

import os
import sys
from struct import Struct

from .calls import CALLS, PLATFORM, WAITID, WaitId

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable

# name: (result, arguments...)
PROTOTYPES = {
    # int syscall(SYS_pidfd_open, pid_t pid, unsigned int flags);                   Linux 5.3
    "pidfd_open": ("long", "long", "long", "long"),
    # int syscall(SYS_pidfd_send_signal, int pidfd, int sig, siginfo_t *info,
    #             unsigned int flags);                                              Linux 5.1
    "pidfd_send_signal": ("long", "long", "long", "long", "long", "long"),
    # int waitid(idtype_t idtype, id_t id, siginfo_t *infop, int options);
    "waitid": ("int", "int", "unsigned int", "void *", "int"),
    # int timerfd_create(int clockid, int flags);                   Linux 2.6.27, glibc 2.8
    "timerfd_create": ("int", "int", "int"),
    # int timerfd_settime(int fd, int flags, const struct itimerspec *new_value,
    #                     struct itimerspec *old_value);
    "timerfd_settime": ("int", "int", "int", "void *", "void *"),
    # int prctl(int op, ...);
    "prctl": ("int", "int", "long", "long", "long", "long"),
}

# name: number in the common table
SYSCALLS = {"pidfd_open": 434, "pidfd_send_signal": 424}

# Architectures, by the first part of a triplet or uname(2)'s machine. From 424 on a call has
# the same number on all of _COMMON; offset() tells what the others add to it. On an
# architecture that is not listed the numbers are not known.
_COMMON = (
    "aarch64 aarch64_be arc arceb arm armv5l armv5tel armv6l armv7l armv8l csky "
    "hexagon i386 i486 i586 i686 loongarch32 loongarch64 m68k microblaze "
    "microblazeel nios2 or1k parisc parisc64 hppa powerpc powerpcle powerpc64 "
    "powerpc64le ppc ppcle ppc64 ppc64le riscv32 riscv64 s390 s390x sh sh4 sparc "
    "sparc64 x86_64 xtensa"
).split()
_MIPS = ("mips", "mipsel", "mipsisa32r6", "mipsisa32r6el")
_MIPS64 = ("mips64", "mips64el", "mipsisa64r6", "mipsisa64r6el")

# idtype_t and options of waitid(2)
P_PID = 1
P_PIDFD = 3  # Linux 5.4
WNOHANG = 0x00000001
WEXITED = 0x00000004
WNOWAIT = 0x01000000
# Also a child of clone(2) that sends another signal than SIGCHLD. waitid(2) takes it from
# Linux 4.7 on, wait4(2) always.
WALL = 0x40000000
REAP = WEXITED | WNOHANG | WALL
LOOK = REAP | WNOWAIT

PR_SET_CHILD_SUBREAPER = 36  # Linux 3.4

# ioctl(pidfd, PIDFD_GET_INFO, struct pidfd_info *): Linux 6.13, the exit status
# 6.15. _IOWR(0xFF, 11, 64 bytes) is the same number on every architecture.
PIDFD_GET_INFO = 0xC040FF0B
PIDFD_INFO_EXIT = 1 << 3  # of the mask
# u64 mask, cgroupid; u32 pid, tgid, ppid, eight of the user's; s32 exit_code
PIDFD_INFO = Struct("=Q8x3i32xi")
PIDFD_INFO_REQUEST = PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0, 0, 0, 0)

CLOCK_MONOTONIC = 1
# asm-generic/resource.h, and MIPS', Alpha's and SPARC's own
RLIMIT_NOFILE = {"mips": 5, "alpha": 6, "sparc": 6}.get(
    getattr(os, "uname", lambda: [""] * 5)()[4].rstrip("64"), 7
)
# struct itimerspec: it_interval and it_value, each in seconds and nanoseconds. The functions
# by these names take longs for both, on 32 bits, too.
ITIMERSPEC = Struct("@4l")

WORD = 8 if sys.maxsize > 2**32 else 4
# si_pid, si_uid and si_status stand in a union that is aligned to a word.
SIGINFO_PID = 16 if WORD == 8 else 12
SIGINFO_STATUS = SIGINFO_PID + 8
# On MIPS si_code stands before si_errno.
SIGINFO_CODE = 4 if os.name == "posix" and os.uname().machine.startswith("mips") else 8


def offset(machine: str, abi: str, word: int) -> int:
    """What the architecture adds to the common system call numbers.

    ``machine`` is uname's, ``abi`` the interpreter's triplet or "", ``word`` the
    size of a pointer: a 32-bit interpreter can run on a 64-bit kernel. LookupError
    for an architecture that is not in the table: never a guess.
    """
    if abi.endswith("gnux32"):
        return 0x40000000
    architecture = abi.partition("-")[0] or machine
    if architecture in _COMMON:
        return 0
    if architecture == "alpha":
        return 110
    if architecture in _MIPS:
        return 4000
    if architecture in _MIPS64:
        if word == 8:
            return 5000
        if "abin32" in abi:
            return 6000
    raise LookupError("the system call numbers of %s are not known" % architecture)


def number(call: str) -> int:
    """The number of a system call on the running system; LookupError if not known."""
    abi = getattr(sys.implementation, "_multiarch", "")
    return SYSCALLS[call] + offset(os.uname().machine, abi, WORD)


class _Syscall:
    """syscall(2), which takes more arguments than its callers give."""

    def __init__(self, binding: "Any", name: str) -> None:
        self._number = number(name)
        prototype = PROTOTYPES[name]
        self._function = binding.function("syscall", prototype)
        self._zeros = (0,) * (len(prototype) - 2)

    def __call__(self, *arguments: int) -> int:
        result: int = self._function(self._number, *(arguments + self._zeros)[: len(self._zeros)])
        return result


def _bind(binding: "Any", name: str) -> "Callable[..., int]":
    function: "Callable[..., int]" = binding.function(name, PROTOTYPES[name])
    return function


def _waitid(binding: "Any", name: str) -> WaitId:
    return WaitId(binding, PROTOTYPES[name], (SIGINFO_CODE, SIGINFO_PID, SIGINFO_STATUS))


class _TimerfdCreate:
    """os.timerfd_create()."""

    def __init__(self, binding: "Any", name: str) -> None:
        self._function = _bind(binding, name)

    def __call__(self, clock: int) -> int:
        return self._function(clock, os.O_CLOEXEC)


class _TimerfdSettime:
    """os.timerfd_settime(), with the argument ``initial`` alone."""

    def __init__(self, binding: "Any", name: str) -> None:
        self._function, self._binding = _bind(binding, name), binding

    def __call__(self, fd: int, *, initial: float) -> None:
        seconds = int(initial)
        new = bytearray(ITIMERSPEC.pack(0, 0, seconds, int((initial - seconds) * 1e9)))
        self._function(fd, 0, self._binding.pointer(new), self._binding.null)


if PLATFORM in ("linux", "android"):
    WAITID.update(P_PID=P_PID, LOOK=LOOK & ~WALL, WALL=WALL)
    # _signal is signal without its enums: it is always loaded, so that no file has to be opened
    # for it when no file descriptor is left.
    CALLS.update(
        pidfd_open=("os", _Syscall),
        pidfd_send_signal=("_signal", _Syscall),
        waitid=("os", _waitid),
        ioctl=("fcntl", None),
        fcntl=("fcntl", None),
        getrlimit=("resource", None),
        setrlimit=("resource", None),
        prlimit=("resource", None),
        epoll=("select", None),
        timerfd_create=("os", _TimerfdCreate),
        timerfd_settime=("os", _TimerfdSettime),
        prctl=(None, _bind),
        socket=("_socket", None),
        array=("array", None),
    )
