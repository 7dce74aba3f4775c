# SPDX-License-Identifier: BSD-3-Clause
"""What the polled handles of all systems have in common, and sending a signal by pid."""

import os
import time
from io import UnsupportedOperation

from .._deadline import Deadline, poll
from .._errors import no_such_process
from .._outcome import RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._outcome import Outcome
    from .contract import Identity


class PolledHandle:
    """A pid, and what identifies the process that had it when the handle was opened."""

    __slots__ = ("is_child", "pid")

    backend = "polling"
    # It measures what a look costs.
    clock: "Callable[[], float]"

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_child = False

    def wait(self, deadline: Deadline, reap: bool) -> "Outcome":
        return self.collect(reap) if poll(self.has_exited, deadline) else RUNNING

    def has_exited(self) -> bool:
        raise NotImplementedError

    def collect(self, reap: bool) -> "int | None":
        """The exit code of a process that has exited, or None; raises NotYet as wait() does."""
        raise NotImplementedError

    def reaping(self, block: bool = True) -> None:
        return None

    def keeps_identity(self) -> bool:
        return False

    def identify(self) -> "Identity | None":
        raise NotImplementedError

    def send_signal(self, sig: int) -> None:
        if self.has_exited():
            raise no_such_process(self.pid)
        kill(self.pid, sig)

    def fileno(self) -> int:
        raise UnsupportedOperation("a process that is polled has no fileno")

    def close(self) -> None:
        """Nothing is open between two looks."""


def cpu_time() -> float:
    """Seconds of processor time that this thread has used."""
    if hasattr(time, "CLOCK_THREAD_CPUTIME_ID"):
        return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
    clock: "Callable[[], float]" = getattr(time, "thread_time", time.process_time)
    return clock()


def kill(pid: int, sig: int) -> None:
    """kill(2), right after a look that found the process running.

    There is a window between the two. To hit a wrong process in it, the process would have to
    exit and be reaped, and its pid be given to another one.
    """
    os.kill(pid, sig)
