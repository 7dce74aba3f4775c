# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: what waitid(2), kill(2) and ps(1) tell.

Their kernels' structures differ from version to version; what ps prints does not. It is a
process of its own, so that the cheap calls come first, and it gets 5 % of the time.
"""

import os
from errno import ENOSYS
from io import UnsupportedOperation
from time import monotonic, time

from .. import _polling
from .._deadline import Deadline
from .._errors import log, no_such_process
from .._exitcodes import RUNNING, NotYet, from_status
from .._ffi import bsd, calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PS = "/bin/ps"
# State, wait status and start time without a headline: "Z 900 Sat Nov 21 03:11:52 2026".
# The keywords are in no standard, but in keyword.c of all of these systems since 4.4BSD.
ARGUMENTS = ("-o", "stat=", "-o", "xstat=", "-o", "lstart=", "-p")
_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC0"}
_TIME_LIMIT = 1.0  # seconds, for what takes milliseconds
_SHARE = 20  # it may take one part of this many
_FIRST = 0.05  # seconds until it is asked within a wait
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


class Stat:
    """Whether, and since when, a process lives."""

    __slots__ = ("exited", "since", "started", "status")

    def __init__(self, line: str) -> None:
        words = line.split()
        self.exited = words[0].startswith("Z")
        self.status = int(words[1], 16)
        # Of a zombie NetBSD and OpenBSD print "-".
        self.started = _seconds(words[2:])
        self.since = None if self.started is None else self.started - time() + monotonic()

    def is_other(self, other: "Stat") -> bool:
        """Whether the two are of processes that started at different times."""
        if self.started is None or self.since is None:
            return False
        if other.started is None or other.since is None:
            return False
        # A clock that is set moves either the time of the start, where that is counted
        # from boot (FreeBSD), or else its distance from now: never both.
        return abs(self.started - other.started) > 1 and abs(self.since - other.since) > 2


def _seconds(words: "list[str]") -> "int | None":
    """Since the epoch, of a date as ctime(3) writes it."""
    if len(words) != 5 or words[1] not in _MONTHS:
        return None
    hours, minutes, seconds = map(int, words[3].split(":"))
    month, day, year = _MONTHS.index(words[1]) // 3 + 1, int(words[2]), int(words[4])
    # Years that begin in March have their leap day at the end.
    year, month = (year - 1, month + 9) if month < 3 else (year, month - 3)
    days = (
        year * 365 + year // 4 - year // 100 + year // 400 + (month * 153 + 2) // 5 + day - 719469
    )
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read_stat(pid: int) -> "Stat | None":
    """None where ps can't be run, or tells nothing."""
    import subprocess

    try:
        done = subprocess.run(
            (PS, *ARGUMENTS, str(pid)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT,
            timeout=_TIME_LIMIT,
        )
    except (OSError, subprocess.SubprocessError) as error:  # no file descriptor left, a sandbox
        log("%s: %s", PS, error)
        return None
    lines = done.stdout.decode("ascii", "replace").splitlines()
    return Stat(lines[0]) if lines and lines[0].strip() else None


def check() -> None:
    """Ask ps about this very process."""
    stat = read_stat(os.getpid())
    if stat is None or stat.exited or stat.started is None:
        raise OSError(ENOSYS, "%s does not tell state and start time" % PS)


def look_at_child(pid: int) -> "Any":
    """RUNNING, or the exit code of our child, None where waitid(2) does not tell it.

    ChildProcessError where it is not our child, another OSError where there is no
    waitid(2). Never blocks, nor reaps.
    """
    table = _table()
    info = calls.get("waitid")(table.p_pid, pid, table.look)
    if info is None:
        return RUNNING
    if info.si_code == bsd.CLD_EXITED:
        # All 32 bits of what was given to _exit(2), of which wait(2) tells the last 8.
        return info.si_status & 0xFF
    # macOS has 0 here, whatever the signal: xnu, bsd/kern/kern_exit.c, waitidcontinue().
    return -info.si_status or None


def reap_child(pid: int) -> "Any":
    """RUNNING, or the exit code of our child, which is no more; else ChildProcessError."""
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return from_status(status) if reaped else RUNNING


def check_waitid() -> None:
    """Look for a child that can't be: this very process."""
    table = _table()
    for name, number in (("P_PID", table.p_pid), ("WEXITED", table.look), ("WNOWAIT", table.look)):
        own = getattr(os, name, number)
        if own != number if name == "P_PID" else not own & number:
            raise OSError(ENOSYS, "os.%s is %d here" % (name, own))
    try:
        calls.get("waitid")(table.p_pid, os.getpid(), table.look)
    except ChildProcessError:
        return


def _table() -> "bsd.WaitId":
    system = bsd.system()
    if system is None:
        raise OSError(ENOSYS, "this system's waitid is not known")
    return system.waitid


def exists(pid: int) -> bool:
    """Whether a process, or a zombie of it, has that number."""
    try:
        os.kill(pid, 0)
    except PermissionError:  # there is one, of somebody else
        return True
    except ProcessLookupError:
        return False
    return True


class Polled:
    """A process ID, and the start time of the process that had it when ps was first asked."""

    __slots__ = ("_ask_again", "_is_child", "_stat", "pid")

    backend = "polling"
    clock = staticmethod(monotonic)  # ps is a process of its own

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._stat: "Stat | None" = None
        self._ask_again = 0.0
        self._is_child = False
        if not exists(pid):
            raise no_such_process(pid)

    def fileno(self) -> int:
        raise UnsupportedOperation("a process that is polled has no fileno")

    def close(self) -> None:
        """Nothing is open between two looks."""

    def wait(self, deadline: Deadline, reap: bool) -> "Any":
        self._ask_again = max(self._ask_again, monotonic() + _FIRST)
        if not _polling.poll(self._exited, deadline) and not self._exited_after_all():
            return RUNNING
        return self._collect(reap)

    def _exited(self) -> bool:
        self._is_child = False
        try:
            if look_at_child(self.pid) is not RUNNING:
                return True
            self._is_child = True
        except OSError:  # somebody else's, or there is no waitid
            if not exists(self.pid):
                return True
        return monotonic() >= self._ask_again and self._ps_tells_exit()

    def _exited_after_all(self) -> bool:
        # Of who is not our child, only ps tells a zombie.
        return not self._is_child and self._ps_tells_exit()

    def _ps_tells_exit(self) -> bool:
        began = monotonic()
        stat = read_stat(self.pid)
        now = monotonic()
        self._ask_again = now + (now - began) * _SHARE
        if stat is None:
            return not exists(self.pid)
        if self._stat is None or self._stat.started is None:
            self._stat = stat
        return stat.exited or stat.is_other(self._stat)

    def _collect(self, reap: bool) -> "int | None":
        # What was asked by number counts if the number has not changed hands.
        stat = None
        if self._stat is not None:
            stat = read_stat(self.pid)
            if stat is not None and stat.is_other(self._stat):
                return None
        code: "int | None" = None
        try:
            code = (reap_child if reap else look_at_child)(self.pid)
        except OSError:  # somebody else's, or there is no waitid
            pass
        if code is RUNNING:
            if reap:
                raise NotYet
            code = None
        if code is not None:
            return code
        stat = stat or read_stat(self.pid)
        # 0 may be that nothing is told.
        if stat is not None and stat.exited and stat.status:
            code = from_status(stat.status)
        return code

    def send_signal(self, sig: int) -> None:
        if self._exited() or self._ps_tells_exit():
            raise no_such_process(self.pid)
        # Between the look and kill is a window: it would have to exit, be
        # reaped, and its pid be given out again.
        os.kill(self.pid, sig)

    def identify(self) -> "tuple[object, ...] | None":
        if self._stat is None:
            self._ps_tells_exit()
        if self._stat is None or self._stat.started is None:
            return None
        return "start", self.pid, self._stat.started
