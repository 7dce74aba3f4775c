# SPDX-License-Identifier: BSD-3-Clause
"""Who reaps what: the kinds of objects that stand for a process.

Each is known by what it has, not by its class: two copies of a library can live
in one process, and asking for a class would import its module. The owner's own
code is what reaps; it is called once the process has exited.
"""

import sys
from time import monotonic

from . import _polling
from ._deadline import Deadline
from ._errors import TimeoutExpired, log
from ._exitcodes import RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol, Union  # novm

    class HasPid(Protocol):  # novm
        @property
        def pid(self) -> "int | None": ...

    Proc = Union[int, HasPid]

# How long an owner may take that is not sure to reap: somebody else may have done so.
_PATIENCE = 1.0
_PID_MAX = 2**31 - 1  # of C's pid_t


def check_pid(pid: "Any", name: str = "pid") -> int:
    if isinstance(pid, bool) or not hasattr(pid, "__index__"):
        raise TypeError("%s must be an int, not %s" % (name, type(pid).__name__))
    number: int = pid.__index__()
    if number <= 0:
        raise ValueError("%s must be positive, not %d" % (name, number))
    if number > _PID_MAX:
        raise ValueError("%s must be at most %d, not %d" % (name, _PID_MAX, number))
    return number


class Owner:
    """A process that nobody here reaps: a number, or any object with a pid."""

    # There are as many as a WaitSet has members. What a backend needs to find its
    # own is in ``ticket``.
    __slots__ = ("pid", "proc", "ticket")

    def __init__(self, proc: "Any", pid: "int | None") -> None:
        self.proc = proc
        self.pid = pid
        self.ticket: "Any" = None

    def known(self) -> "int | None":
        """The exit code that the object already has."""
        return None

    def is_gone(self) -> bool:
        """Whether the object knows that its process is not the one with its pid any more."""
        return False

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        """Let the owner reap; return the exit code, which is ``code`` if we could look."""
        return code

    def has_settled(self) -> bool:
        """Whether the owner has done its part, after a settle() that had no time to wait for it."""
        return True


class Asyncio(Owner):
    """asyncio.subprocess.Process and its like: reaped by an event loop, in its own time."""

    __slots__ = ()

    def known(self) -> "int | None":
        code: "int | None" = self.proc.returncode
        return code

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        return self.known() if code is None else code


class Popen(Asyncio):
    """subprocess.Popen and its like: poll() reaps, and sets returncode."""

    __slots__ = ()

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        lost = code is None and self._is_lost()
        # While another thread is inside wait() or poll(), poll() does not wait
        # for it: it returns None, though the process has exited.
        if self.proc.poll() is None and not _polling.poll(self._has_polled, deadline):
            raise TimeoutExpired(self.pid, deadline.timeout)
        return self.known() if code is None and not lost else code

    def _has_polled(self) -> bool:
        return self.proc.poll() is not None

    def _is_lost(self) -> bool:
        """Whether somebody else reaped it, which a Popen reports as exit code 0."""
        # Popen reaps and sets returncode under this lock. So when the child is
        # no more, nobody is inside, and there is still no returncode, it was
        # not the Popen. Is somebody inside, then that one is about to set it.
        if hasattr(self.proc, "_handle"):  # Windows: it can always tell
            return False
        lock = getattr(self.proc, "_waitpid_lock", None)
        if lock is None:
            return True
        if not lock.acquire(False):
            return False
        try:
            return self.proc.returncode is None
        finally:
            lock.release()


class Multiprocessing(Owner):
    """multiprocessing.Process and its like: join() reaps, or asks the fork server."""

    __slots__ = ()

    def known(self) -> "int | None":
        # The property looks, and reaps if it can; join() does the rest.
        code: "int | None" = self.proc.exitcode
        if code is None or self._is_any_signal(code):
            return None
        try:
            self.proc.join(0)
        except AssertionError:  # in a fork of its parent, where there is nothing to be done
            log("pid %s is not our child", self.pid)
        return code

    def is_gone(self) -> bool:
        return self._is_any_signal(self.proc.exitcode)

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        self.proc.join(deadline.remaining())
        known = self.proc.exitcode
        # Without a code, and with time left: somebody else reaped it.
        if code is None and known is None and deadline.expired():
            raise TimeoutExpired(self.pid, deadline.timeout)
        # The fork server of Python 3.6 exits with another code than it tells,
        # and 255 is also what is told when it could not tell.
        return code if known in (None, 255) else known

    def _is_any_signal(self, code: "int | None") -> bool:
        """Whether it is 255 of a fork server that can't tell negative codes: Python 3.6."""
        method = getattr(getattr(self.proc, "_popen", None), "method", None)
        server = sys.modules.get("multiprocessing.forkserver")
        return code == 255 and method == "forkserver" and hasattr(server, "read_unsigned")

    def has_settled(self) -> bool:
        # The fork server reaps, and tells of it a moment later.
        return self.known() is not None


class Psutil(Owner):
    """psutil.Process: not an owner, but it remembers when its process started."""

    __slots__ = ()

    def is_gone(self) -> bool:
        return not self.proc.is_running()


class Handle(Owner):
    """Our Process, or another copy's: it remembers which process it is for."""

    __slots__ = ()

    def known(self) -> "int | None":
        return self.proc.exitcode if self.is_gone() else None

    def is_gone(self) -> bool:
        exited: bool = self.proc.exited()
        return exited

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        try:
            known = self._settled(deadline)
        except ValueError:  # closed meanwhile
            return code
        return code if known is None else known

    def _settled(self, deadline: Deadline) -> "int | None":
        return self.known()


class Child(Handle):
    """Our Child, perhaps another copy's: wait() reaps."""

    __slots__ = ()

    def known(self) -> "int | None":
        return self.proc.exitcode if self.proc.reaped else None

    def _settled(self, deadline: Deadline) -> "int | None":
        code: "int | None" = self.proc.wait(deadline.remaining())
        return code


_KINDS = (
    (Child, ("reaped", "exitcode")),
    (Handle, ("backend", "exited", "exitcode")),
    (Psutil, ("is_running", "create_time")),
    (Popen, ("returncode", "poll")),
    (Asyncio, ("returncode",)),
    (Multiprocessing, ("exitcode", "join")),
    (Owner, ()),
)


def find(proc: "Proc") -> Owner:
    """Who owns the process; TypeError or ValueError if ``proc`` is none."""
    if type(proc) is int:
        return Owner(proc, check_pid(proc, "proc"))
    if hasattr(proc, "__index__"):
        return Owner(proc, check_pid(proc, "proc"))
    if not hasattr(proc, "pid"):
        raise TypeError(
            "proc must be a process ID or an object with a pid, not %s" % type(proc).__name__
        )
    kind = next(kind for kind, names in _KINDS if all(hasattr(proc, name) for name in names))
    if proc.pid is not None:
        return kind(proc, check_pid(proc.pid, "proc.pid"))
    if not issubclass(kind, Handle):
        raise ValueError("proc has no pid: it has not been started")
    return kind(proc, None)  # of a pidfd from elsewhere


class Unsettled:
    """One that has exited: its owner is asked, again and again, until it has reaped."""

    def __init__(self, owner: Owner, code: "Any") -> None:
        self._owner = owner
        self._code = code
        self._until = monotonic() + _PATIENCE

    def wait(self, deadline: Deadline, reap: bool) -> "Any":
        if self._code is RUNNING:  # one that only its owner knows
            return self._owner.known() if self._owner.is_gone() else RUNNING
        code = RUNNING
        try:
            code = self._owner.settle(self._code, deadline)
        except TimeoutError:  # another copy's, too
            pass  # RUNNING says so
        if self._owner.has_settled():
            return code
        return self._code if self._until < monotonic() else RUNNING
