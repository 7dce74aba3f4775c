# SPDX-License-Identifier: BSD-3-Clause
"""What Linux tells about a process in /proc: see proc_pid_stat(5)."""

import os
import sys
from errno import ENOENT

from .. import _checks
from .._errors import pass_over, raise_of_handler
from .._fd import opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar  # novm

    B = TypeVar("B", bytes, "bytes | None")

_THREADS = 17


class Stat:
    """Fields of /proc/<pid>/stat: whether the process has exited, which one it is, its name."""

    __slots__ = ("flags", "name", "parent", "started", "state", "status", "threads")

    def __init__(self, line: bytes) -> None:
        name, fields = split_stat(line)
        self.name = name.decode("utf-8", "replace")
        self.state = fields[0]
        self.parent = int(fields[1])
        self.flags = int(fields[6])  # PF_* of the kernel; gVisor says 0
        self.threads = int(fields[_THREADS])
        self.started = int(fields[19])  # in clock ticks since boot
        # The wait status, Linux >= 3.5; also 0 if we may not see it.
        self.status = int(fields[49]) if len(fields) > 49 else 0

    @property
    def exited(self) -> bool:
        # A main thread that has ended before the other threads is a zombie, too: the process
        # still runs, and its exit code is not known before they have ended.
        return self.state in (b"Z", b"X") and self.threads <= 1


def split_stat(line: bytes, count: int = -1) -> "tuple[bytes, list[bytes]]":
    """The name, and the fields from the third on, which is the state.

    With ``count`` so many of them, and what follows in one piece.
    """
    # The name stands in parentheses; it can contain spaces and parentheses itself.
    head, _, tail = line.rpartition(b")")
    return head.partition(b"(")[2], tail.split(None, count)


def read_stat(pid: int) -> "Stat | None":
    """None if /proc does not tell, which does not mean that the process is gone."""
    text = whole_stat(_read_entry, pid, "stat")
    return Stat(text) if text else None


def whole_stat(read: "Callable[..., B]", *arguments: object) -> "B":
    """The text of /proc/<pid>/stat, which ``read(*arguments)`` returns, with a thread in it."""
    # When a thread other than the main one calls execve(2), it takes over the pid, and the old
    # main thread is removed. A read at that moment shows the latter, as a zombie with no threads
    # and no parent: seen for 4 of 10,000 reads on Linux 6.18, and for two in a row if the process
    # does it again and again. A later read shows the process.
    for _ in range(10):
        text = read(*arguments)
        if not text or split_stat(text, _THREADS + 1)[1][_THREADS:][:1] != [b"0"]:
            break
    return text


def has_executable(pid: int) -> bool:
    """Whether a process, or its main thread, has certainly not exited yet."""
    try:
        os.readlink("/proc/%d/exe" % pid)  # exit(2) takes it away first
    except OSError as error:  # or we may not see it
        raise_of_handler(error)
        return False
    return True


def links_tell_exit(pid: int) -> bool:
    """Whether it has certainly exited, as seen by calls that need no file descriptor."""
    if not _checks.works(check) or not _lacks_directory(pid):
        return False
    # A thread that has ended has no current directory any more, but still has a user
    # namespace. Both links are the main thread's; the other threads are counted.
    if not shows_namespace(pid) or _link_count("/proc/%d/task" % pid) > 3:
        return False
    # Another thread may have called execve(2) since, and be the main one now: see whole_stat().
    return _lacks_directory(pid)


def _lacks_directory(pid: int) -> bool:
    try:
        os.readlink("/proc/%d/cwd" % pid)
    except OSError as error:
        raise_of_handler(error)
        return error.errno == ENOENT  # else we may not see it
    return False


def had_one_thread(pid: int) -> bool:
    """Whether a zombie never had another thread."""
    # A thread that starts has page faults. What it had is the process's when it has ended.
    process, main = (_read_entry(pid, name) for name in ("stat", "task/%d/stat" % pid))
    return bool(process and main) and _faults(process) == _faults(main)


def _faults(line: "bytes | None") -> "list[bytes]":
    fields = split_stat(line or b"")[1]
    return [fields[7], fields[9]]


def shows_namespace(pid: int) -> bool:
    """Whether we have PTRACE_MODE_READ_FSCREDS on a process, running or a zombie."""
    try:
        os.readlink("/proc/%d/ns/user" % pid)
    except OSError as error:
        raise_of_handler(error)
        return False
    return True


def _link_count(path: str) -> int:
    try:
        return os.stat(path).st_nlink
    except OSError as error:
        raise_of_handler(error)
        return sys.maxsize


def thread_group(pid: int) -> "int | None":
    """The pid of the process that a pid or thread ID belongs to; None if /proc does not tell."""
    for line in (_read_entry(pid, "status") or b"").splitlines():
        if line.startswith(b"Tgid:"):
            return int(line[5:]) or None  # 0: of a thread that has just been removed
    return None


def _read_entry(pid: int, name: str) -> "bytes | None":
    if not _checks.works(check):
        return None
    path = "/proc/%d/%s" % (pid, name)
    try:
        return read(path)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise_of_handler(error)
        return None
    except OSError as error:  # no file descriptor left, or hidepid=1
        pass_over(error, "%s", path)
        return None


def fd_info(fd: int) -> "dict[str, str]":
    """What /proc/self/fdinfo tells about a file descriptor: see proc_pid_fdinfo(5)."""
    text = read("/proc/self/fdinfo/%d" % fd).decode("ascii", "replace")
    pairs = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in pairs}


def check() -> None:
    """Raise an OSError if there is no /proc, or it shows another PID namespace."""
    # A /proc that was mounted before unshare(2) shows other processes by the same pids.
    foreign = os.readlink("/proc/self") != str(os.getpid())
    # Our pid can be the same in both namespaces by chance. NSpid lists it for each namespace
    # from that of /proc down to ours, Linux 4.1.
    for line in read("/proc/self/status").splitlines():
        foreign = foreign or (line.startswith(b"NSpid:") and len(line.split()) > 2)
    if foreign:
        raise OSError(ENOENT, "/proc shows another PID namespace")


def self_fields() -> "list[bytes]":
    """The fields of /proc/self/stat from the third on, which is the state."""
    return split_stat(read("/proc/self/stat"))[1]


def numbers() -> "list[int]":
    """What /proc has processes by: their pids, if it is that of our PID namespace."""
    return sorted(map(int, filter(str.isdigit, os.listdir("/proc"))))


def read(path: str, open_: "Callable[..., int] | None" = None, is_long: bool = False) -> bytes:
    # One read() returns the whole file; open() would add an fstat, an ioctl and an lseek.
    file = opened(open_ or os.open, path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(file.fileno(), 8192)
        while is_long:
            more = os.read(file.fileno(), 65536)
            if not more:
                break
            text += more
        return text
    finally:
        file.close()
