# SPDX-License-Identifier: BSD-3-Clause
"""Linux, polled: /proc/<pid>/stat, and what can be found out without it.

A process is identified by its pid and start time. If /proc can't be read because no file
descriptor is left, its links still show a zombie. If it is hidden, waitid(2) tells about our
own children, and kill(2) about other processes; but kill(2) takes a zombie for alive.
"""

from .._errors import no_such_process
from .._ffi import linux
from .._outcome import RUNNING, NotYet, from_status
from .._sources import exitcodes, procfs
from . import events
from .polled import PolledHandle, cpu_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._deadline import Deadline
    from .._outcome import Outcome
    from .contract import Identity


class ProcfsHandle(PolledHandle):
    __slots__ = ("_started", "_stat")

    clock = staticmethod(cpu_time)

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        # What /proc told last; None if it told nothing.
        self._stat = procfs.read_stat(pid)
        self._started = self._stat and self._stat.started
        if self._stat is None and not exitcodes.exists(pid):
            raise no_such_process(pid)
        if procfs.thread_group(pid) not in (pid, None):
            raise no_such_process(pid, "a thread's ID, not a process's")

    def wait(self, deadline: "Deadline", reap: bool) -> "Outcome":
        exited, status = events.wait(self.has_exited, deadline, self.pid)
        if not exited:
            return RUNNING
        code = self.collect(reap)
        return status.code() if code is None and status is not None else code

    def was_running(self) -> bool:
        """Whether the latest look has certainly found it running."""
        return self._stat is not None and not self._stat.exited

    def has_exited(self) -> bool:
        stat = self._stat = procfs.read_stat(self.pid)
        if stat is None:
            return self._has_exited_unseen()
        if self._started is None:
            self._started = stat.started
        return stat.exited or stat.started != self._started

    def _has_exited_unseen(self) -> bool:
        if not exitcodes.exists(self.pid):
            return True
        try:
            if exitcodes.from_child(linux.P_PID, self.pid, self.pid, False) is not None:
                return True
        except NotYet:
            return False
        return procfs.links_tell_exit(self.pid)

    def collect(self, reap: bool) -> "int | None":
        stat = self._stat
        if stat is None:
            if not exitcodes.exists(self.pid):
                return None
        elif stat.started != self._started:
            return None
        elif stat.status and not reap:
            return from_status(stat.status)
        code = None
        try:
            code = exitcodes.from_child(linux.P_PID, self.pid, self.pid, reap)
        except NotYet:
            if reap:
                raise
        if code is None:
            code = exitcodes.from_zombie(self.pid)
        # The answers were found by the pid: they count if it still belongs to this process.
        return code if reap or self._is_same() else None

    def _is_same(self) -> bool:
        stat = procfs.read_stat(self.pid)
        return stat is None or stat.started == self._started

    def identify(self) -> "Identity | None":
        return None if self._started is None else ("start", self.pid, self._started)


class ConnectorHandle(ProcfsHandle):
    """A polled handle whose wait the proc connector ends as soon as the process exits."""

    __slots__ = ()

    backend = "connector"


def identify(pid: int) -> "Identity | None":
    stat = procfs.read_stat(pid)
    return None if stat is None else ("start", pid, stat.started)
