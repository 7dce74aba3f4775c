# SPDX-License-Identifier: BSD-3-Clause
"""Linux: what /proc shows of a process, see proc_pid_stat(5); and the polled handle.

A process is identified by its pid and start time. If /proc can't be read because no file
descriptor is left, its links still show a zombie. If /proc is hidden, there are waitid(2) for our
own children, and kill(2) for other processes; but kill(2) takes a zombie for alive.
"""

import os
from errno import ECHILD, ENOENT, ENOSYS, ESRCH
from functools import partial

from ..._base.checks import why_not, works
from ..._base.deadline import Backoff, Deadline
from ..._base.errors import GONE, Failed, call, log
from ..._base.handle import PENDING, RUNNING, Handle, Usage
from ..calls import CALLS
from ..posix import code_of_status, is_found, look_at_child, may_block, opened, reap_child
from .calls import LOOK, P_PID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Callable, Checks, Identity, Outcome

_THREADS, _STARTED = 17, 19  # the fields' places


class ProcStat:
    """What /proc/<pid>/stat shows."""

    def __init__(self, name: bytes, fields: "list[bytes]") -> None:
        self.name = os.fsdecode(name)
        self.state = chr(fields[0][0])
        # A main thread that has ended before the other threads is a zombie, too: the process
        # still runs, and has no exit code before the others have ended.
        self.exited = fields[0] in (b"Z", b"X") and int(fields[_THREADS]) <= 1
        self.parent, self.group = int(fields[1]), int(fields[2])
        self.started = int(fields[_STARTED])  # in clock ticks since boot
        # The wait status, Linux 3.5; 0 also if we may not see it.
        self.status = int(fields[49]) if len(fields) > 49 else 0


def split_stat(line: bytes) -> "tuple[bytes, list[bytes]]":
    """The name, and the fields from the third on, which is the state."""
    # The name stands in parentheses; it can contain spaces and parentheses itself.
    head, _, tail = line.rpartition(b")")
    return head.partition(b"(")[2], tail.split()


def read_file(path: str, open_: "Callable[..., int] | None" = None, is_long: bool = False) -> bytes:
    # One read() returns the whole file; open() would add an fstat, an ioctl and an lseek.
    file = opened(open_ or os.open, path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read = partial(call, os.read, file.fileno(), 8192)
        return b"".join(iter(read, b"")) if is_long else read()
    finally:
        file.close()


def _read_entry(pid: int, name: str) -> "bytes | None":
    if why_not(check_procfs) is not None:
        return None
    path = "/proc/%d/%s" % (pid, name)
    try:
        return read_file(path)
    except Failed as why:
        if why.errno not in GONE:  # no file descriptor left, or hidepid=1
            log("%s: %s", path, why)
        return None


def read_stat(pid: int) -> "ProcStat | None":
    """None if /proc does not show it, which does not mean that the process is gone."""
    return whole_stat(_read_entry, pid, "stat")


def whole_stat(read: "Callable[..., bytes | None]", *arguments: object) -> "ProcStat | None":
    """The result of ``read(*arguments)``; read again if it shows no threads."""
    # When a thread other than the main one calls execve(2), it takes over the pid, and the old
    # main thread is removed. A read at that moment shows the old one, as a zombie with no threads
    # and no parent: seen for 4 of 10,000 reads on Linux 6.18, and for two in a row if the process
    # does it again and again. A later read shows the process.
    for _ in range(10):
        name, fields = split_stat(read(*arguments) or b"")
        if fields[_THREADS : _THREADS + 1] != [b"0"]:
            break
    return ProcStat(name, fields) if len(fields) > _STARTED else None


def parent_of(pid: int) -> "int | None":
    """None if /proc does not show it."""
    return os.getppid() if pid == os.getpid() else getattr(read_stat(pid), "parent", None)


def _has_link(pid: int, name: str) -> "bool | None":
    """Whether a link of a process is there; None if we may not see it."""
    try:
        call(os.readlink, "/proc/%d/%s" % (pid, name))
    except Failed as why:
        return False if why.errno == ENOENT else None
    return True


def links_tell_exit(pid: int) -> bool:
    """Whether it has certainly exited, according to calls that need no file descriptor."""
    why = why_not(check_procfs)
    if why is not None and why.may_pass:
        return False
    # A thread that has ended has no current directory any more, but still has a user
    # namespace. Both links are the main thread's; the other threads are counted.
    if _has_link(pid, "cwd") is not False or not _has_link(pid, "ns/user"):
        return False
    try:
        links: int = call(os.stat, "/proc/%d/task" % pid).st_nlink
    except Failed:
        return False
    # Another thread may have called execve(2) since, and be the main thread now: see whole_stat().
    return links <= 3 and _has_link(pid, "cwd") is False


def _pairs(text: bytes) -> "dict[str, str]":
    """{name: value} of lines with a colon."""
    found = {}
    for line in text.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        found[name] = value.strip()
    return found


def fd_info(fd: int) -> "dict[str, str]":
    """What /proc/self/fdinfo shows of a file descriptor: see proc_pid_fdinfo(5)."""
    return _pairs(read_file("/proc/self/fdinfo/%d" % fd))


def check_procfs() -> None:
    """Whether there is a /proc that shows our PID namespace."""
    try:
        # A /proc that was mounted before unshare(2) shows other processes with the same pids. Our
        # pid can be the same in both namespaces by chance. NSpid (Linux 4.1) lists our pid in each
        # namespace from /proc's down to ours.
        pids = _pairs(read_file("/proc/self/status")).get("NSpid", "").split()
        if len(pids) > 1 or call(os.readlink, "/proc/self") != str(os.getpid()):
            raise Failed(ENOENT, "/proc shows another PID namespace")
    except Failed as why:
        why.may_pass = not why.is_passing  # it may be mounted later, or a chroot be left
        raise


# Exit codes of zombies


def code_of_zombie(pid: "int | None") -> "int | None":
    """The exit code that /proc shows for a zombie.

    None if there is no zombie, or its code is not certain. The caller must check that the pid
    still belongs to the same process.
    """
    stat = read_stat(pid) if pid else None
    if pid and stat and stat.exited and (stat.status or _is_success(pid)):
        return code_of_status(stat.status)
    return None


def _is_success(pid: int) -> bool:
    """Whether a wait status of 0 is that of the process."""
    # A reader without PTRACE_MODE_READ_FSCREDS on the process sees 0, too: fs/proc/array.c,
    # do_task_stat(). The link to its user namespace needs exactly that permission and, unlike
    # other links, can be read after the process has released its memory.
    if not (_has_link(pid, "ns/user") and works(check_status)):
        return False
    # Before Linux 5.17 this is the main thread's status: 0 if that thread has ended before the
    # others, whatever exit code they set afterwards. If there were no others, it is the process's,
    # too. A thread that starts has page faults, which count for the process when it has ended.
    if os.path.exists("/proc/sys/kernel/arch"):  # Linux 6.1
        return True
    texts = [_read_entry(pid, name) or b"" for name in ("stat", "task/%d/stat" % pid)]
    process, main = (split_stat(text)[1][7:10:2] for text in texts)
    return process == main != []


def check_status() -> None:
    """Whether /proc shows the wait status: gVisor always shows 0."""
    # arg_start comes before it and needs the same permission. For our own process it is never 0
    # on Linux, and always 0 on gVisor.
    if split_stat(read_file("/proc/self/stat"))[1][45:46] == [b"0"]:
        raise Failed(ENOSYS, "/proc does not show the exit status")


# The polled handle


class ProcfsHandle(Handle):
    """A pid, and the start time of the process that had it when the handle was opened."""

    _started: "int | None" = None
    # The time namespace of this process: /proc shows start times by it. "" if there is none.
    _clock: "str | None" = None

    def __init__(self, pid: int) -> None:
        self.pid: int = pid
        stat = read_stat(pid)
        self._is_same(stat)
        if stat is None and not is_found(pid):
            raise Failed(ESRCH)
        group = _pairs(_read_entry(pid, "status") or b"").get("Tgid")
        if group not in (None, "0", str(pid)):  # 0: of a thread that has just been removed
            raise Failed(ESRCH, "a thread's ID, not a process's")
        if group is None and pid != os.getpid() and os.path.exists("/proc/self/task/%d" % pid):
            raise Failed(ESRCH, "a thread of ours")  # known without a file descriptor

    def look(self, reap: bool = False) -> "Outcome":
        stat = read_stat(self.pid)
        if not self._is_same(stat):
            return None
        if stat is not None and not stat.exited:
            return RUNNING
        if stat is not None and stat.status and not reap:
            return code_of_status(stat.status)
        code: "Outcome" = None
        try:
            if reap:
                self.usage = usage_of_child(P_PID, self.pid) or self.usage
            code = (reap_child if reap else look_at_child)(self.pid)
        except Failed as why:
            if why.errno != ECHILD:  # a policy
                log("waitid, pid %d: %s", self.pid, why)
            if stat is None and not links_tell_exit(self.pid):
                return RUNNING if is_found(self.pid) else None
        if code is RUNNING and (stat is None or reap):
            return RUNNING if stat is None else PENDING  # a tracer prevents it
        if code is RUNNING or code is None:
            code = code_of_zombie(self.pid)
        if code is None and stat is None:
            return PENDING  # a file descriptor may be free in a moment
        # The code was found by the pid: it counts if the pid still belongs to this process.
        return code if reap or self._is_same(read_stat(self.pid)) else None

    def _is_same(self, stat: "ProcStat | None") -> bool:
        """Whether /proc shows this process for the pid, or no process."""
        if stat is None:
            return True
        try:
            clock: str = call(os.readlink, "/proc/self/ns/time")
        except Failed:
            clock = ""
        if self._clock != clock:  # at first, and in a forked child in another namespace
            self._started, self._clock = stat.started, clock
        return stat.started == self._started

    def sleep(self, deadline: Deadline, backoff: Backoff) -> bool:
        # Look first: the pid may be another child's of ours since this was opened.
        blocks = deadline.remaining() is None and may_block() and hasattr(os, "waitid")  # not PyPy
        if not (backoff.seconds and blocks):
            return super().sleep(deadline, backoff)
        try:
            call(os.waitid, os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            return True
        except Failed:  # it is not our child
            return super().sleep(deadline, backoff)

    def identify(self) -> "Identity | None":
        return None if self._started is None else ("start", self.pid, self._started)


def usage_of_child(idtype: int, id_: int) -> "Usage | None":
    """What our child has used, if it has exited: ask just before it is reaped."""
    if "waitid_usage" not in CALLS:  # see load_usage()
        return None
    longs = CALLS["rusage"]()  # seconds and microseconds of both times, KiB, and more
    CALLS["waitid_usage"](idtype, id_, 0, LOOK, longs)
    user, micros, system, more_micros, peak = longs[0:5]
    times = user + micros / 1e6, system + more_micros / 1e6
    return Usage(*times, peak * 1024) if peak else None


PROC_CHECKS: "Checks" = [
    ("/proc", None, check_procfs),
    ("/proc exit status", None, check_status),
]
