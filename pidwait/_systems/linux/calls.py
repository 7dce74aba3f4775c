# SPDX-License-Identifier: BSD-3-Clause
"""Linux: prototypes, system call numbers, layouts, constants."""

import os
import sys
from errno import EBADF
from functools import partial
from struct import Struct

from ..._base.errors import Failed, call
from ..bindings import WaitId

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Adapter, Any, Callable, Function, Rows

# name: (result, arguments...)
_PROTOTYPES = {
    # a system call number, and up to four arguments
    "syscall": ("long", "long", "long", "long", "long", "long"),
    "waitid": ("int", "int", "unsigned int", "void *", "int"),
    "waitid_usage": ("long", "long", "long", "long", "long", "long", "void *"),
}

# From 424 on, a system call has the same number on every architecture but these.
SYSCALLS = {"pidfd_open": 434, "pidfd_send_signal": 424}  # Linux 5.3, 5.1
_OTHERS = ("alpha", "ia64", "mips")
# waitid(2) on 32 and on 64 bits, by how uname's machine begins.
_WAITID_NUMBERS = {"x86_64": (284, 247), "i": (284,), "arm": (280,), "aarch64": (280, 95)}
_WAITID_NUMBERS.update({"ppc": (272, 272), "s390": (281, 281)}, riscv=(95, 95), loongarch=(95, 95))

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

_MACHINE = os.uname().machine if os.name == "posix" else ""
_ABI = getattr(sys.implementation, "_multiarch", "")
# asm-generic/resource.h, and MIPS', Alpha's and SPARC's own
RLIMIT_NOFILE = {"mips": 5, "alpha": 6, "sparc": 6}.get(_MACHINE.rstrip("64"), 7)

WORD = 8 if sys.maxsize > 2**32 else 4
# The offsets of si_code, si_pid and si_status in siginfo_t. The last two, with si_uid between them,
# are in a union that is aligned to a word. MIPS has another layout, and os.waitid().
SIGINFO = (8, 8 + WORD, 16 + WORD)


def get_info(ioctl: "Function", fd: int) -> "tuple[int, int, int, int, int]":
    """The result of ioctl(fd, PIDFD_GET_INFO): mask, pid, tgid, ppid, wait status."""
    if fd < 0:  # a signal handler has closed it
        raise Failed(EBADF)
    info = bytearray(PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0, 0, 0, 0))
    call(ioctl, fd, PIDFD_GET_INFO, info, True)
    return PIDFD_INFO.unpack(info)


def number_of(name: str, machine: str, abi: str) -> int:
    """The number of a system call on uname's ``machine``; ``abi``: the interpreter's triplet."""
    if machine.startswith(_OTHERS) or abi.endswith("x32"):
        raise LookupError("the system call numbers of %s are not known" % machine)
    if name in SYSCALLS:
        return SYSCALLS[name]
    found = [numbers for begin, numbers in _WAITID_NUMBERS.items() if machine.startswith(begin)]
    return found[0][WORD // 8]  # IndexError is a LookupError


class _Syscall:
    """syscall(2), with one argument or two; the others are 0."""

    def __init__(self, binding: "Adapter", name: str) -> None:
        self._function = binding.function("syscall", _PROTOTYPES["syscall"])
        self.number = (number_of(name, _MACHINE, _ABI),)
        # The function in C, with two arguments; it returns -1. See opened().
        self.raw = binding.function("syscall", ("long",) * 4, None)
        self.refusal: "Callable[[], Failed]" = binding.refusal

    def __call__(self, first: int, second: int = 0) -> int:
        return self._function(*self.number, first, second, 0, 0)


def _bind_usage(binding: "Adapter", name: str) -> "Function":
    """waitid(2) with its fifth argument, a struct rusage: idtype, id, 0, options, longs.

    No Python code converts the arguments, as a signal handler may raise there.
    """
    function: "Any" = binding.function("syscall", _PROTOTYPES[name], None)
    if binding.name == "ctypes":
        function.argtypes = None
    return partial(function, number_of(name, _MACHINE, _ABI))


LINUX_WAITID = {"P_PID": P_PID, "LOOK": LOOK & ~WALL, "WALL": WALL, "MAXRSS": 1024}
# _signal is signal without its enums. It is always loaded, so it is there when no file descriptor
# is left for an import.
LINUX_ROWS: "Rows" = {
    "pidfd_open": ("os", _Syscall),
    "pidfd_send_signal": ("_signal", _Syscall),
    "waitid": ("os", lambda binding, name: WaitId(binding, _PROTOTYPES[name], SIGINFO)),
    "waitid_usage": (None, _bind_usage),
    "rusage": (None, lambda binding, name: binding.longs),
    "ioctl": ("fcntl", None),
    "fcntl": ("fcntl", None),
    "getrlimit": ("resource", None),
    "setrlimit": ("resource", None),
    "epoll": ("select", None),
}
