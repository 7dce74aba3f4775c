# SPDX-License-Identifier: BSD-3-Clause
"""Dress this interpreter up as one on another system: see tests/matrix/dressed.py.

First goes what only Linux has, before anybody has asked for it; then comes the stand-in for kqueue.
"""

import os
import select
import signal
import sys
import types
from pathlib import Path

# sys.platform, what uname(3) tells, the stand-in, and names of os and signal that it lacks, too.
SYSTEMS = {
    "darwin": (
        "darwin",
        ("Darwin", "24.6.0", "x86_64"),
        "darwin",
        "getresgid getresuid pipe2 posix_fadvise setresgid setresuid SIGRTMIN SIGRTMAX "
        "sigtimedwait sigwaitinfo",
    ),
    "freebsd": ("freebsd14", ("FreeBSD", "14.3-RELEASE", "amd64"), "freebsd12", ""),
    "netbsd": ("netbsd10", ("NetBSD", "11.0", "amd64"), "netbsd11", "getresgid getresuid"),
    "openbsd": ("openbsd7", ("OpenBSD", "7.8", "amd64"), "openbsd", "SIGRTMIN SIGRTMAX"),
}
LINUX_ALONE = (
    "eventfd EFD_ EPOLL epoll getxattr listxattr memfd_ MFD_ P_PIDFD PIDFD_ pidfd_ prlimit "
    "removexattr sched_getaff sched_setaff SCHED_BATCH setns "
    "setxattr SIGCLD SIGPOLL SIGPWR SIGSTKFLT splice SPLICE timerfd_ TFD_ unshare"
).split()


def undress(lacking):
    """Take away what only Linux has."""
    import resource

    for module in os, select, signal, resource, sys.modules["posix"]:
        for name in list(vars(module)):
            if name.startswith(tuple(LINUX_ALONE)) or name in lacking:
                delattr(module, name)
    if hasattr(os, "process_cpu_count"):  # which calls sched_getaffinity
        os.process_cpu_count = os.cpu_count
    sys.modules["psutil"] = None  # it is Linux's, and wants /proc


def behind(path):
    """The path at which the stand-in finds this file of /proc."""
    return os.environ["DRESSED_ROOT"] + path if path.startswith("/proc") else path


def dress(standin):
    """Put in the stand-in, as this interpreter's own."""
    from tests.systems import kqueue

    kernel = kqueue.install(standin, kqueue.set_or_delete)
    kqueue.set_ps("/bin/ps", setattr)  # which is the stand-in's
    kqueue.Path = lambda path: Path(behind(path))
    # The C library is Linux's; on macOS it has a function for its environ.
    from pidwait._starting import libc_spawn, posix_spawn

    flags = dict(libc_spawn.SPAWN_FLAGS, **libc_spawn.FLAGS["linux"])
    libc_spawn.SPAWN_FLAGS = posix_spawn.SPAWN_FLAGS = flags
    import ctypes

    environ = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ"))
    kernel._symbols["_NSGetEnviron"] = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: environ)


def main():
    sys.platform, (system, release, machine), standin, lacking = SYSTEMS[os.environ["DRESSED"]]
    uname = os.uname_result((system, "here", release, system + " " + release, machine))
    os.uname = sys.modules["posix"].uname = lambda: uname
    # For the stand-in, which is made of what Linux has.
    open_, stat = os.open, os.stat
    own = [types.SimpleNamespace(**vars(module)) for module in (os, select)]
    own[0].open = lambda path, flags: open_(behind(path), flags)
    own[0].stat = lambda path: stat(behind(path))
    undress(lacking.split())
    import selectors  # noqa: F401  # before there is a kqueue: the stand-in does not serve it

    from tests.systems.kqueue import kernel

    kernel.os, kernel.select = own
    dress(standin)


main()
