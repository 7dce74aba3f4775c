# SPDX-License-Identifier: BSD-3-Clause
"""What makes the system fail: system calls, policies, limits, namespaces, capabilities."""

import os
import signal
import struct
import subprocess
import sys

from .. import LINUX

try:
    import resource
except ImportError:  # Windows, where nothing here is called
    resource = None
try:
    import ctypes
except ImportError:
    ctypes = None
# For system calls that only Linux has; tests that need them are left out elsewhere.
WHY_NO_CALLS = "this interpreter has no ctypes" if LINUX else "this system is not Linux"
libc = ctypes.CDLL(None, use_errno=True) if LINUX and ctypes is not None else None

# Of asm-generic/unistd.h, which all processors have since Linux 5.1 but Alpha: the same numbers.
NUMBERS = {"pidfd_send_signal": 424, "pidfd_open": 434, "clone3": 435}
PIDFD_GET_INFO = 0xC040FF0B  # linux/pidfd.h
PIDFD_INFO_EXIT = 1 << 3

# System calls for which not every Python has a function

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
PR_SET_PTRACER = 0x59616D61


def call(name, *args):
    """Call a function of the C library; raise OSError if it fails."""
    result = getattr(libc, name)(*args)
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, "%s: %s" % (name, os.strerror(code)))
    return result


def prctl(option, *args):
    return call("prctl", option, *map(ctypes.c_ulong, (args + (0, 0, 0, 0))[:4]))


def pidfd_open(pid, flags=0):
    return call("syscall", *map(ctypes.c_long, (NUMBERS["pidfd_open"], pid, flags)))


def pidfd_info(fd):
    """The mask and the wait status of PIDFD_GET_INFO, without pidwait."""
    import fcntl

    info = bytearray(64)
    struct.pack_into("=Q", info, 0, 8)
    fcntl.ioctl(fd, PIDFD_GET_INFO, info, True)
    return struct.unpack_from("=Q", info, 0)[0], struct.unpack_from("=i", info, 60)[0]


# A policy

# machine: (AUDIT_ARCH, numbers of the system calls that differ between machines)
_NAMES = (
    "waitid ioctl seccomp epoll_create1 epoll_ctl epoll_wait epoll_pwait"
    " timerfd_create timerfd_settime prlimit64 kill clock_gettime execve setpgid"
).split()
_ARCHITECTURES = {
    "x86_64": (0xC000003E, "247 16 317 291 233 232 281 283 286 302 62 228 59 109"),
    # It has no epoll_wait(2): the C library calls epoll_pwait(2).
    "aarch64": (0xC00000B7, "95 29 277 20 21 22 22 85 86 261 129 113 221 154"),
}
_ARCHITECTURES = {
    machine: (arch, dict(zip(_NAMES, map(int, numbers.split()))))
    for machine, (arch, numbers) in _ARCHITECTURES.items()
}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCH, _SECOND_ARGUMENT = 0, 4, 24  # in struct seccomp_data
# Of some calls only those with this argument.
_ONLY = {"ioctl": (_SECOND_ARGUMENT, PIDFD_GET_INFO)}
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def why_no_policy():
    if libc is None:
        return WHY_NO_CALLS
    machine = os.uname().machine
    if machine not in _ARCHITECTURES or sys.maxsize < 2**32:
        return "the test has no system call numbers for %s" % machine
    return None


def forbid(rules, all_threads=False):
    """Have system calls fail from now on: {"pidfd_open": errno.EPERM}.

    Of ioctl only PIDFD_GET_INFO fails. This is for good, and for children, too: seccomp(2). It is
    for the calling thread, or for all.
    """
    arch, numbers = _ARCHITECTURES[os.uname().machine]
    program = [(_LOAD, 0, 0, _ARCH), (_JUMP_IF_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _ALLOW)]
    program.append((_LOAD, 0, 0, _NUMBER))
    for name, code in rules.items():
        number = numbers.get(name) or NUMBERS[name]
        answer = (_RETURN, 0, 0, _ERRNO | code)
        if name in _ONLY:
            place, argument = _ONLY[name]
            program.append((_JUMP_IF_EQUAL, 0, 4, number))
            program.append((_LOAD, 0, 0, place))
            program.append((_JUMP_IF_EQUAL, 0, 1, argument))
            program.append(answer)
            program.append((_LOAD, 0, 0, _NUMBER))
        else:
            program.append((_JUMP_IF_EQUAL, 0, 1, number))
            program.append(answer)
    program.append((_RETURN, 0, 0, _ALLOW))
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    header = ctypes.create_string_buffer(header)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if all_threads:  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
        arguments = numbers["seccomp"], 1, 1, ctypes.addressof(header)
        call("syscall", *map(ctypes.c_long, arguments))
    else:
        prctl(PR_SET_SECCOMP, 2, ctypes.addressof(header))


# No file descriptors


class limit_is_zero:
    """In the block no file descriptor can be opened, and poll(2) fails with EINVAL."""

    def __enter__(self):
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.start()

    def start(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, self._limits[1]))

    def __exit__(self, *exc_info):
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)


class limit_becomes_zero(limit_is_zero):
    """The limit is zero from the call of start() to the end of the block."""

    def __enter__(self):
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self


# Namespaces


def namespaces():
    """The command that runs another as root of its own user, PID and mount namespaces.

    Raise OSError with the reason if that is not allowed.
    """
    if not _namespaces:
        _namespaces.append(_find_namespaces())
    if isinstance(_namespaces[0], str):
        raise OSError(_namespaces[0])
    return _namespaces[0]


NAMESPACES = "--pid", "--fork", "--kill-child", "--mount-proc"
_namespaces = []


def _find_namespaces():
    reasons = []
    if not LINUX:
        return WHY_NO_CALLS
    for user in (("--user", "--map-root-user"), ()):
        command = ("unshare", *user, *NAMESPACES)
        try:
            done = subprocess.run(
                command + ("true",),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                universal_newlines=True,
            )
        except OSError as error:
            return str(error)
        if done.returncode == 0:
            return command
        reasons.append(done.stderr.strip())
    return "no namespaces of our own: " + "; ".join(reasons)


def command_fails(within):
    return subprocess.call(within + ("true",), stderr=subprocess.DEVNULL) != 0


def mount(kind, target, options=""):
    call("mount", b"none", target.encode(), kind.encode(), ctypes.c_ulong(0), options.encode())


def become(uid):
    """If we are root, become that user for good; else do nothing."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        if libc is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # setuid() has cleared it


def not_dumpable():
    """From now on nobody may look into this process, not even the same user."""
    prctl(PR_SET_DUMPABLE, 0)


def drop_capabilities():
    """Give up root's capabilities; it still owns its files and processes."""
    version_3 = 0x20080522
    call("capset", struct.pack("=Ii", version_3, 0), bytes(24))


def next_pid(pid):
    """Have the next process in this PID namespace get that pid."""
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(pid - 1))
