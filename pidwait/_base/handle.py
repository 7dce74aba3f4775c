# SPDX-License-Identifier: BSD-3-Clause
"""A handle on one process, and the wait for it, written once.

A look returns one of these outcomes:

    RUNNING       the process has not exited
    PENDING       it has exited, but its code or its reaping is still to come: only the reaping
                  shows the code, a tracer or the owner's thread prevents the reaping, or there
                  is no zombie yet. Look again, at growing intervals, until patience() ends.
    an exit code
    None          it has exited, and the system does not report the code
"""

import os
from collections import namedtuple
from io import UnsupportedOperation
from weakref import ref

from .deadline import Backoff, Deadline, patience
from .errors import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import PENDING as PENDING
    from .._types import RUNNING as RUNNING
    from .._types import Any, Callable, Identity, NamedTuple, Outcome

    Usage = NamedTuple("Usage", [("user", float), ("system", float), ("max_rss", int)])
if not TYPE_CHECKING:
    RUNNING, PENDING = object(), object()  # importing enum takes longer than all of this package
    Usage = namedtuple("Usage", "user system max_rss")


Usage.__doc__ = """What a process has used: CPU time in seconds, peak memory in bytes.

    These are the numbers of getrusage(2). The times include those of all descendants that were
    waited for; ``max_rss`` is that of the largest of these processes. On Linux, a program that
    posix_spawn or vfork has started counts its starter's peak memory, too: a tree's does not.

    >>> import sys
    >>> with spawn([sys.executable, "-c", ""]) as child:
    ...     code = child.wait()
    >>> child.usage.user < 60
    True
    """


class Handle:
    """One process. Each system's handle is opened by a pid.

    Failed (ESRCH): no process has the pid. Failed (EAGAIN): maybe none has; open a polled handle,
    which finds out.
    """

    backend = "polling"
    pid: "int | None"
    fd = -1
    usage: "Usage | None" = None  # of our child, once look() has reaped it

    def look(self, reap: bool = False) -> "Outcome":
        """Look once, without blocking; with ``reap``, reap our child if it has exited."""
        raise NotImplementedError

    def sleep(self, deadline: Deadline, backoff: Backoff) -> bool:
        """Sleep until look() may answer otherwise; return False at the deadline.

        By default that is a pause.
        """
        return backoff.pause(deadline)

    def fileno(self) -> int:
        """A file descriptor that is readable once the process has exited."""
        raise UnsupportedOperation("a polled process has no fileno")

    def send_signal(self, sig: int) -> None:
        """Send a signal; Failed (ESRCH) if the process has been reaped.

        By default by kill(2). That hits a wrong process if, since the caller's look, this process
        has exited and been reaped, and its pid has been reused.
        """
        call(os.kill, self.pid, sig)

    def identify(self) -> "Identity | None":
        """An identity that all handles on one process share; None if it is not known."""
        return None

    def close(self) -> None:
        """Release it. From now on its methods raise ValueError, so that no loop can wait for it."""
        vars(self).update(_CLOSED)

    def wait(self, deadline: Deadline, reap: bool = False) -> "Outcome":
        """The outcome of the process once it has exited; RUNNING at the deadline."""
        backoff = Backoff()
        while self.sleep(deadline, backoff):
            outcome = self.look(reap)
            if outcome is not RUNNING:
                return outcome
        return RUNNING


def raise_closed(*args: object) -> "Any":
    raise ValueError("the handle is closed")


_CLOSED = dict.fromkeys(("look", "sleep", "fileno", "send_signal", "identify"), raise_closed)


def settled(look: "Callable[[], Outcome]", outcome: "Outcome", deadline: Deadline) -> "Outcome":
    """The outcome; while it is PENDING, look again until patience() ends."""
    if outcome is PENDING:
        deadline, backoff = patience(deadline), Backoff()
        while outcome is PENDING and backoff.pause(deadline):
            outcome = look()
    return outcome


class Shared:
    """A handle, or a socket, that several threads use, and any of them may close.

    ``with shared.use() as handle`` lends the handle, or None once it is closed. close() closes it;
    if uses are in progress, the last use does. No lock is needed: a use enters itself into ``uses``
    before it reads the handle, and close() takes the handle away before it reads ``uses``.

    A use that an exception has kept from leaving does not keep the handle open: close() drops our
    reference, and only uses have others. CPython closes the handle with the last reference.
    """

    __slots__ = ("handle", "pid", "uses")

    def __init__(self, handle: "Any") -> None:
        self.handle: "Any" = handle  # None once it is closed
        self.pid = os.getpid()
        # The pid of each use's process: a forked child also has the uses of its parent's threads.
        self.uses: "dict[ref[Use], int]" = {}

    def is_copy(self) -> bool:
        """Whether this is the copy in a forked child."""
        return self.pid != os.getpid()

    def use(self) -> "Use":
        return Use(self)

    def close(self) -> None:
        """Close it now, or after the last use."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self.release(handle)

    def release(self, handle: "Any") -> None:
        """Close a handle that was taken away, unless it is in use. Two threads may both do so."""
        me = os.getpid()
        if not [use for use, pid in self.uses.copy().items() if pid == me and use() is not None]:
            handle.close()


class Use:
    """One use of a handle, in a ``with`` block."""

    __slots__ = ("__weakref__", "_handle", "_shared")

    def __init__(self, shared: Shared) -> None:
        self._shared, self._handle = shared, None

    def __enter__(self) -> "Any":
        self._shared.uses[ref(self)] = os.getpid()
        self._handle = self._shared.handle
        return self._handle

    def __exit__(self, *exc_info: object) -> None:
        self._shared.uses.pop(ref(self), None)
        if self._handle is not self._shared.handle:  # it was taken away meanwhile
            self._shared.release(self._handle)
