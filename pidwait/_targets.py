# SPDX-License-Identifier: BSD-3-Clause
"""What is waited for: a pid, or an object that stands for a process, and reaps it or not.

The life of a target:

    known()     asked before anything is opened: an object that has its code answers with it
    open        a handle, or a place in a set, by the pid
    confirm()   asked again: the pid may already belong to another process, if the object's
                own was reaped before the handle was opened
    wait        the handle, or the set, reports the exit
    settle()    the owner reaps; it never blocks, so RUNNING says: not yet, ask again

The object's own code runs in all three, and may do anything. What it raises is logged, and
costs no more than its answer; what a signal handler raises in the middle of it comes through.
"""

from time import monotonic

from ._errors import TRANSIENT, is_of_signal_handler, log
from ._outcome import RUNNING
from ._sources import exitcodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, Union  # novm

    from ._outcome import Outcome

    class HasPid(Protocol):  # novm
        @property
        def pid(self) -> "int | None": ...

    Proc = Union[int, HasPid]

# Seconds that an owner may take when its child is no more: another thread may have reaped it,
# and be about to say so.
_PATIENCE = 1.0
_PID_MAX = 2**31 - 1  # of C's pid_t


def check_pid(pid: "Any", name: str = "pid", instead: str = "") -> int:
    if isinstance(pid, bool) or not hasattr(pid, "__index__"):
        raise TypeError("%s must be an int, not %s%s" % (name, type(pid).__name__, instead))
    number: int = pid.__index__()
    if number <= 0:
        raise ValueError("%s must be positive, not %d" % (name, number))
    if number > _PID_MAX:
        raise ValueError("%s must be at most %d, not %d" % (name, _PID_MAX, number))
    return number


def key_of(proc: "Any") -> object:
    """What a process is found by: its pid, or the object itself, hashable or not."""
    if type(proc) is int:
        return proc
    return proc.__index__() if hasattr(proc, "__index__") else ("id", id(proc))


class Target:
    """A process that nobody here reaps: a pid, or any object with one."""

    # A set has as many as it has members. ``ticket`` is for the backend's set, ``is_member``
    # for the engine: whether it is still to be reported.
    __slots__ = ("is_member", "key", "pid", "proc", "ticket")

    def __init__(self, proc: "Any", pid: "int | None", key: object) -> None:
        self.proc = proc
        self.pid = pid
        self.key = key
        self.ticket: object = None
        self.is_member = False

    def fileno(self) -> int:
        fd: int = self.proc.fileno()
        return fd

    def known(self) -> "Outcome":
        """The exit code that the object already has; RUNNING if it knows of no exit."""
        return RUNNING

    def confirm(self) -> "Outcome":
        """Not RUNNING if what has the pid now is not, or no more, the object's process."""
        return RUNNING

    def settle(self, code: "int | None", last: bool = False) -> "Outcome":
        """Have the owner reap the process, which has exited; RUNNING while it has not done so.

        ``code`` is what could be seen from outside. With ``last`` the time is up, so that the
        code will do if the owner can't reap any more. It may be called again after the end.
        """
        return code


class GuardedTarget(Target):
    """An object whose own code is asked."""

    __slots__ = ()

    def known(self) -> "Outcome":
        return self._guarded(RUNNING, self._known)

    def confirm(self) -> "Outcome":
        return self._guarded(RUNNING, self._confirm)

    def settle(self, code: "int | None", last: bool = False) -> "Outcome":
        return self._guarded(code, self._settle, code)

    def _known(self) -> "Outcome":
        return RUNNING

    def _confirm(self) -> "Outcome":
        return self._known()

    def _settle(self, code: "int | None") -> "Outcome":
        return code

    def _guarded(
        self, otherwise: "Outcome", ask: "Callable[..., Outcome]", *arguments: "int | None"
    ) -> "Outcome":
        try:
            return ask(*arguments)
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            log("pid %s, %s: %r", self.pid, type(self.proc).__name__, error)
            return self._after_error(error, otherwise)

    def _after_error(self, error: Exception, otherwise: "Outcome") -> "Outcome":
        return otherwise


class OwnerTarget(GuardedTarget):
    """An object that reaps its process."""

    __slots__ = ("_is_last", "_until")

    def __init__(self, proc: "Any", pid: "int | None", key: object) -> None:
        super().__init__(proc, pid, key)
        self._is_last = False
        self._until: "float | None" = None

    def settle(self, code: "int | None", last: bool = False) -> "Outcome":
        self._is_last = last
        return super().settle(code)

    def not_reaped(self, code: "int | None") -> "Outcome":
        """What settle() says where the owner has not reaped, though the process has exited."""
        # A tracer, or a thread inside of the owner, keeps our zombie from it.
        if self.pid is not None and exitcodes.is_our_child(self.pid):
            return RUNNING
        if self._until is None:
            self._until = monotonic() + _PATIENCE
        if self._is_last and code is not None:
            return code
        return RUNNING if monotonic() < self._until else code

    def _after_error(self, error: Exception, otherwise: "Outcome") -> "Outcome":
        # An import fails for want of a file descriptor, too.
        transient = isinstance(error, ImportError) or (
            isinstance(error, OSError) and error.errno in TRANSIENT
        )
        if otherwise is RUNNING or not transient:
            return otherwise
        return self.not_reaped(otherwise)
