# SPDX-License-Identifier: BSD-3-Clause
"""Look again and again, at growing intervals.

A process is known by its number and its start time, from /proc. Where /proc is
can't be read for want of a file descriptor, its links still tell a zombie. Where
it is hidden, our own children are known by waitid(2); of others only kill(2)
tells, which takes a zombie for alive. Windows has its own, win32.Polled, and so have macOS
and the BSDs: ps.Polled.
"""

import os
import sys
import time
from errno import ENOSYS
from io import UnsupportedOperation

from .. import _exitcodes, _polling, _procfs
from .._deadline import Deadline
from .._errors import no_such_process
from .._ffi import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from .._owners import Owner


class Handle:
    """A process ID, and the start time of the process that had it at first."""

    __slots__ = ("_started", "_stat", "pid")

    backend = "polling"
    # What tells the cost of a look.
    clock = staticmethod(_polling.cpu_time)

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # What /proc told last; None where it did not.
        self._stat = _procfs.read_stat(pid)
        self._started = self._stat and self._stat.started
        if self._stat is None and not exists(pid):
            raise no_such_process(pid)
        if _procfs.thread_group(pid) not in (pid, None):
            raise no_such_process(pid, "a thread's ID, not a process's")

    def fileno(self) -> int:
        raise UnsupportedOperation("a process that is polled has no fileno")

    def close(self) -> None:
        """Nothing is open between two looks."""

    def wait(self, deadline: Deadline, reap: bool) -> "Any":
        if not _polling.poll(self._exited, deadline):
            return _exitcodes.RUNNING
        return self._collect(reap)

    def _exited(self) -> bool:
        stat = self._stat = _procfs.read_stat(self.pid)
        if stat is None:
            return self._exited_unseen()
        if self._started is None:
            self._started = stat.started
        return stat.exited or stat.started != self._started

    def _exited_unseen(self) -> bool:
        try:
            if _exitcodes.from_child(linux.P_PID, self.pid, self.pid, False) is not None:
                return True
        except _exitcodes.NotYet:
            return False
        return _procfs.links_tell_exit(self.pid) or not exists(self.pid)

    def _collect(self, reap: bool) -> "int | None":
        stat = self._stat
        if stat is None:
            if not exists(self.pid):
                return None
        elif stat.started != self._started:
            return None
        elif stat.status and not reap:
            return _exitcodes.from_status(stat.status)
        code = None
        try:
            code = _exitcodes.from_child(linux.P_PID, self.pid, self.pid, reap)
        except _exitcodes.NotYet:
            if reap:
                raise
        if code is None:
            code = _exitcodes.from_zombie(self.pid)
        # What was asked by number counts if the number has not changed hands.
        return code if reap or self._is_same() else None

    def _is_same(self) -> bool:
        stat = _procfs.read_stat(self.pid)
        return stat is None or stat.started == self._started

    def send_signal(self, sig: int) -> None:
        if self._exited():
            raise no_such_process(self.pid)
        # Between the look and kill is a window: it would have to exit, be
        # reaped, and all other pids be given out.
        os.kill(self.pid, sig)

    def identify(self) -> "tuple[object, ...] | None":
        return None if self._started is None else ("start", self.pid, self._started)


if sys.platform == "win32":  # where kill(2) would terminate the process
    from .win32 import Polled as Handle  # noqa: F401
elif sys.platform.startswith(("darwin", "dragonfly", "freebsd", "netbsd", "openbsd")):
    from .ps import Polled as Handle  # type: ignore[assignment]  # noqa: F401


def check() -> None:
    """It can be used everywhere."""


class Many:
    """None of them: each has a handle of its own, and is looked at between the sleeps."""

    def forked(self) -> "Many":
        return self

    def add(self, owners: "Sequence[Owner]") -> "list[tuple[Owner, OSError]]":
        return [(owner, OSError(ENOSYS, "the backend is polling")) for owner in owners]

    def discard(self, owner: "Owner") -> None:
        """There is none."""

    def poll(self, milliseconds: "float | None") -> None:
        seconds = _polling.LONGEST if milliseconds is None else milliseconds / 1000.0
        # Nobody can wake us, so it is never for long.
        time.sleep(min(seconds, _polling.LONGEST))

    def take(self, events: None, report: "Callable[[Any], object]") -> None:
        """There are none."""

    def recover(self) -> None:
        """Nothing gets lost."""

    def ring(self, on: bool) -> None:
        """Nobody sleeps for long."""

    def fileno(self) -> int:
        raise UnsupportedOperation("a process that is polled has no fileno")

    def close(self) -> None:
        """Nothing is open between two looks."""


def many(shared: bool) -> "Many":
    return Many()


def exists(pid: int) -> bool:
    """Whether a process or thread, or a zombie of it, has that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # there is one, of somebody else
        return True
    return True


def identify(pid: int) -> "tuple[object, ...] | None":
    stat = _procfs.read_stat(pid)
    return None if stat is None else ("start", pid, stat.started)
