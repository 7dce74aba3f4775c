# SPDX-License-Identifier: BSD-3-Clause
"""A handle on one process, and the wait for it, written once.

A look has one of four outcomes:

    RUNNING       it has not exited
    PENDING       it has exited, but its code or its reaping is still to come: only the reaping
                  tells the code, a tracer or the owner's thread prevents it, the zombie is not
                  there yet. Look again, at growing intervals, until patience() ends.
    an exit code  or None, if the system does not tell it
"""

import os
from io import UnsupportedOperation

from .deadline import Deadline, patience, pause
from .errors import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import PENDING as PENDING
    from .._types import RUNNING as RUNNING
    from .._types import Any, Callable, Identity, Outcome
if not TYPE_CHECKING:
    RUNNING, PENDING = object(), object()  # loading enum would take longer than loading all of us


class Handle:
    """One process. The handle of each system is made by a pid; Failed (ESRCH) if there is none.

    Failed (EAGAIN): there may be none, and a polled handle can tell.
    """

    backend = "polling"
    pid: "int | None"
    fd = -1

    def look(self, reap: bool = False) -> "Outcome":
        """Look once, without blocking; with ``reap``, reap our child if it has exited."""
        raise NotImplementedError

    def sleep(self, deadline: Deadline, interval: "list[float]") -> bool:
        """Sleep until look() may answer otherwise; return False at the deadline.

        By default that is the ``interval`` of pause().
        """
        return pause(deadline, interval)

    def fileno(self) -> int:
        """A file descriptor that is readable once it has exited."""
        raise UnsupportedOperation("a polled process has no fileno")

    def send_signal(self, sig: int) -> None:
        """Failed (ESRCH) if it has been reaped.

        By default by kill(2). There is a window after the caller's look: to hit a wrong process
        in it, this one would have to exit and be reaped, and its pid be given to another one.
        """
        call(os.kill, self.pid, sig)

    def identify(self) -> "Identity | None":
        """An identity that all handles on one process share; None if it is not known."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open between two looks, by default."""

    def wait(self, deadline: Deadline, reap: bool = False) -> "Outcome":
        """The outcome of the process once it has exited; RUNNING at the deadline."""
        interval = [0.0]
        while self.sleep(deadline, interval):
            outcome = self.look(reap)
            if outcome is not RUNNING:
                return outcome
        return RUNNING

    def reap(self, deadline: Deadline) -> "Outcome":
        """wait(), and reap our child."""
        return self.wait(deadline, True)


def settled(look: "Callable[[], Outcome]", outcome: "Outcome", deadline: Deadline) -> "Outcome":
    """The outcome, looked for again as long as it is PENDING, and patience() lasts."""
    if outcome is PENDING:
        deadline, interval = patience(deadline), [0.0]
        while outcome is PENDING and pause(deadline, interval):
            outcome = look()
    return outcome


class Shared:
    """A handle that several threads use, and that any of them may close.

    ``with`` lends it; it is closed after the last use. After close(), ``with`` raises ValueError.
    ``ended``: whether it has been closed, by close() or end().
    """

    # It needs no lock: a user enters itself before it checks whether the handle is closed, and
    # close() sets ``closed`` before it looks for users.

    __slots__ = ("_open", "_users", "closed", "ended", "handle", "pid")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.closed = self.ended = False
        self.pid = os.getpid()
        self._open = [handle]
        # The pid of each user's process: a forked child's copy also has the parent's threads.
        self._users: "list[int]" = []

    def is_copy(self) -> bool:
        """Whether this is the copy in a forked child."""
        return self.pid != os.getpid()

    def __enter__(self) -> Handle:
        self._users.append(os.getpid())
        if self.closed:
            self.__exit__()
            raise ValueError("the handle is closed")
        return self.handle

    def __exit__(self, *exc_info: "Any") -> None:
        me = os.getpid()
        if me in self._users:  # else the parent entered
            self._users.remove(me)
        if self.ended:
            self.end()

    def close(self) -> None:
        """Close it now, or after the last use."""
        self.closed = True
        self.end()

    def end(self) -> None:
        """Close the handle as close() does; but ``with`` lends what is left of it, its pid."""
        self.ended = True
        if not self._open or (self._users and os.getpid() in self._users):
            return
        try:
            self._open.pop().close()  # one thread gets it
        except IndexError:
            return
