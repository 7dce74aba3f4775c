# SPDX-License-Identifier: BSD-3-Clause
"""Targets: what is waited for. A pid, or an object that stands for a process, and may reap it.

The life of a target:

    known()     before anything is opened: an object may already have the exit code
    open        a handle, or a place in a set, is opened by the pid
    confirm()   known() again, and more: if the process was reaped before the handle was
                opened, the pid may already belong to another process
    wait        the handle, or the set, reports the exit
    settle()    the owner reaps; this never blocks, so RUNNING means: not yet, ask again

The three methods run the object's own code, which may do anything. If it raises, the error is
logged, and the wait goes on without the answer. If a signal handler raises meanwhile, its
exception is not caught.

A target belongs to one wait, or to one engine.
"""

from time import monotonic

from ._errors import TRANSIENT, log, raise_of_handler
from ._outcome import RUNNING
from ._sources import exitcodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol, Union  # novm

    from ._outcome import Outcome

    class HasPid(Protocol):  # novm
        @property
        def pid(self) -> "int | None": ...

    Proc = Union[int, HasPid]

# How many seconds an owner has to tell the exit code after its child is gone: another thread
# may have just reaped it.
_PATIENCE = 1.0
PID_MAX = 2**31 - 1  # of C's pid_t


def check_pid(pid: "Any", name: str = "pid", instead: str = "") -> int:
    if isinstance(pid, bool) or not hasattr(pid, "__index__"):
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
    return proc.__index__() if hasattr(proc, "__index__") else ("id", id(proc))


class Target:
    """A pid, or any object with a pid, that does not reap its process."""

    # Slots, as a set has many of them. ``ticket`` is for the backend's set, ``is_member`` for
    # the engine: whether the target is still to be reported.
    __slots__ = ("is_member", "key", "pid", "proc", "ticket")

    # Whether confirm() has seen that the process is our child.
    is_child = False

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
        """RUNNING if the pid still belongs to the object's process; else its exit code or None."""
        return RUNNING

    def settle(self, code: "int | None", last: bool = False) -> "Outcome":
        """Have the owner reap the process, which has exited; return RUNNING until it has.

        ``code`` is the exit code that we have seen. With ``last`` the time is up: then that
        code is enough if the owner can't reap any more. This may be called again afterwards.
        """
        return code


class GuardedTarget(Target):
    """An object whose own code we call; its errors are logged."""

    __slots__ = ()

    def known(self) -> "Outcome":
        try:
            return self._known()
        except Exception as error:
            return self._after(error, RUNNING, False)

    def confirm(self) -> "Outcome":
        try:
            return self._confirm()
        except Exception as error:
            return self._after(error, RUNNING, False)

    def settle(self, code: "int | None", last: bool = False) -> "Outcome":
        try:
            return self._settle(code, last)
        except Exception as error:
            return self._after(error, code, last)

    def _known(self) -> "Outcome":
        return RUNNING

    def _confirm(self) -> "Outcome":
        return self._known()

    def _settle(self, code: "int | None", last: bool) -> "Outcome":
        return code

    def _after(self, error: Exception, otherwise: "Outcome", last: bool) -> "Outcome":
        """The outcome after an error of the object's code: ``otherwise``, as far as we know."""
        raise_of_handler(error)
        log("pid %s, %s: %r", self.pid, type(self.proc).__name__, error)
        return otherwise


class OwnerTarget(GuardedTarget):
    """An object that reaps its process."""

    __slots__ = ("_until",)

    def __init__(self, proc: "Any", pid: "int | None", key: object) -> None:
        super().__init__(proc, pid, key)
        self._until: "float | None" = None

    def not_reaped(self, code: "int | None", last: bool) -> "Outcome":
        """What settle() returns if the owner has not reaped, though the process has exited."""
        # It is still our zombie: a tracer, or another thread in the owner, prevents the reaping.
        if self.pid is not None and exitcodes.is_our_child(self.pid):
            return RUNNING
        return self.not_told(code, last)

    def not_told(self, code: "int | None", last: bool) -> "Outcome":
        """What settle() returns if the process has been reaped, but the owner has no code yet."""
        if self._until is None:
            self._until = monotonic() + _PATIENCE
        if last and code is not None:
            return code
        return RUNNING if monotonic() < self._until else code

    def _after(self, error: Exception, otherwise: "Outcome", last: bool) -> "Outcome":
        super()._after(error, otherwise, last)
        # An import also fails if no file descriptor is left.
        transient = isinstance(error, ImportError) or (
            isinstance(error, OSError) and error.errno in TRANSIENT
        )
        if otherwise is RUNNING or not transient:
            return otherwise
        return self.not_reaped(otherwise, last)
