# SPDX-License-Identifier: BSD-3-Clause
"""Targets: what is waited for, and its life.

The life of a target:

    known()     before anything is opened: an object may already have the exit code
    handle      is opened by the pid
    confirm()   known() again, and more: if the process was reaped before the handle was
                opened, the pid may already belong to another process
    peek()      asks the handle
    settle()    has the owner reap; this never blocks, so PENDING means: ask again

The object's own code may do anything. If it raises, the error is logged, and the wait goes on
without the answer. What a signal handler raises meanwhile comes through: the traceback has the
handler's code in it.
"""

import os

from .._base.deadline import Deadline
from .._base.errors import TRANSIENT, log, raise_of_handler
from .._base.handle import PENDING, RUNNING
from .._systems.posix import is_our_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Handle, Outcome

# How many seconds an owner has to tell the exit code after its child is gone: another thread
# may have just reaped it.
_PATIENCE = 1.0
PID_MAX = 2**31 - 1  # of C's pid_t


def check_pid(pid: "Any", name: str = "pid") -> int:
    # A mock has every attribute: what has a pid is no number.
    if isinstance(pid, bool) or not hasattr(pid, "__index__") or hasattr(pid, "pid"):
        instead = ": wait() takes objects with a pid" if hasattr(pid, "pid") else ""
        raise TypeError("%s must be an int, not %s%s" % (name, type(pid).__name__, instead))
    number: int = pid.__index__()
    if number <= 0:
        raise ValueError("%s must be positive, not %d" % (name, number))
    if number > PID_MAX:
        raise ValueError("%s must be at most %d, not %d" % (name, PID_MAX, number))
    return number


def key_of(proc: "Any") -> object:
    """The key of a caller's ``proc``: its pid, or the identity of an object, hashable or not."""
    if type(proc) is int:
        return proc
    if hasattr(proc, "__index__") and not hasattr(proc, "pid"):
        return proc.__index__()
    return "id", id(proc)


class Target:
    """An object with a pid that does not reap its process."""

    reaps = False
    # Slots, as a set has many of them.
    __slots__ = ("_is_inherited", "_until", "handle", "key", "pid", "proc", "seen")

    def __init__(self, proc: "Any", pid: "int | None", key: object = None) -> None:
        self.proc = proc
        self.pid = pid
        self.key = key
        self.handle: "Handle | None" = None
        # The exit code that the handle has seen; RUNNING until then.
        self.seen: "Outcome" = RUNNING
        self._until = 0.0
        self._is_inherited = False

    @property
    def longest(self) -> float:
        """Seconds between two looks at most, when it is polled."""
        return 0.04 if self.handle is None else self.handle.longest

    def known(self) -> "Outcome":
        """The exit code that the object already has; RUNNING if it knows of no exit."""
        return self._guarded(self._known, RUNNING)

    def confirm(self) -> "Outcome":
        """RUNNING if the pid still belongs to the object's process; else its exit code or None."""
        return self._guarded(self._confirm, RUNNING)

    def peek(self, last: bool = False) -> "Outcome":
        """The outcome as the handle sees it: nobody reaps."""
        if self.seen is not RUNNING:
            return self.seen
        if self.handle is None:  # a pidfd that we did not open, and can't copy
            return self.known()
        return self.handle.look(False, last)

    def settle(self, code: "Outcome") -> "Outcome":
        """Have the owner reap the process, which has exited with a code as far as we have seen."""
        self.seen = code
        return self._guarded(self._settle, code, code)

    def _known(self) -> "Outcome":
        return RUNNING

    def _confirm(self) -> "Outcome":
        return self._known()

    def _settle(self, code: "Any") -> "Outcome":
        return code  # type: ignore[no-any-return]

    def _guarded(
        self, function: "Callable[..., Outcome]", otherwise: "Outcome", *args: "Any"
    ) -> "Outcome":
        try:
            return function(*args)
        except Exception as error:
            raise_of_handler(error)
            log("pid %s, %s: %r", self.pid, type(self.proc).__name__, error)
            return otherwise if otherwise is RUNNING else self._unsettled(error, otherwise)

    def _unsettled(self, error: Exception, code: "Outcome") -> "Outcome":
        return code


class PidTarget(Target):
    """A pid."""

    __slots__ = ()

    def known(self) -> "Outcome":
        return RUNNING

    confirm = known

    def settle(self, code: "Outcome") -> "Outcome":
        return code


class OwnerTarget(Target):
    """An object that reaps its process."""

    reaps = True
    __slots__ = ()

    def not_reaped(self, code: "Outcome") -> "Outcome":
        """What settle() returns if the owner has not reaped, though the process has exited."""
        # It is still our zombie: a tracer, or another thread in the owner, prevents the reaping.
        if self.pid is not None and os.name != "nt" and is_our_child(self.pid):
            return PENDING
        return self.not_told(code)

    def not_told(self, code: "Outcome") -> "Outcome":
        """What settle() returns if the process has been reaped, but the owner has no code yet."""
        now = Deadline.now()
        self._until = self._until or now + _PATIENCE
        return PENDING if now < self._until else code

    def _unsettled(self, error: Exception, code: "Outcome") -> "Outcome":
        # An import also fails if no file descriptor is left.
        transient = isinstance(error, ImportError) or getattr(error, "errno", None) in TRANSIENT
        return self.not_reaped(code) if transient else code
