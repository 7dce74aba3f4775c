# SPDX-License-Identifier: BSD-3-Clause
# ruff: noqa: F403, F405
"""Names for annotations, and what a Poller must do. Only type checkers import this module."""

from enum import Enum

from typing_extensions import *

from ._base.deadline import Deadline as Deadline
from ._base.handle import Handle as Handle
from ._base.handle import Usage as Usage
from ._systems.bindings import Adapter as Adapter
from ._systems.bsd.calls import Kevent as Kevent
from ._waiting.members import Member as Member
from ._waiting.owners import Target as Target


class _NoCodeYet(Enum):
    RUNNING = 0
    PENDING = 1


RUNNING: Final = _NoCodeYet.RUNNING
PENDING: Final = _NoCodeYet.PENDING
Outcome = Union[int, None, _NoCodeYet]
Identity = tuple[object, ...]
Check = Callable[[], object]
# Rows of probe()'s report: a name, the call that is checked (or None), and the check.
Checks = list[tuple[str, "str | None", Check]]
# For each system call: the module that may have the interpreter's own function, and a factory that
# makes one from a binding. Either can be None.
Rows = dict[str, tuple["str | None", "Make | None"]]
Make = Callable[["Adapter", str], "Function"]
Function = Callable[..., Any]  # the arguments and the result depend on the call
Prototype = Sequence[str]  # the C types of the result and of the arguments
Pointer = Any  # memory for a C function: an object of ctypes or cffi
Clock = Callable[[], float]
Call = tuple[Any, ...]  # a function and its arguments
Table = dict[Any, Any]
Opener = Callable[[int], Handle]


class File(Protocol):  # what owns a file descriptor: see own()
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class KQueue(File, Protocol):  # of select, or of a binding
    control: Callable[..., list[Kevent]]


class HasPid(Protocol):
    @property
    def pid(self) -> "int | None": ...


Proc = Union[int, HasPid]
# The type of the processes; Any if it can't be inferred, as for WaitSet().
P = TypeVar("P", bound=Proc, default=Any)
E = TypeVar("E", bound=BaseException)
P_co = TypeVar("P_co", bound=Proc, default=Proc, covariant=True)


class Poller(Protocol):
    """Sleeps for many handles. Any number of threads may be in poll() at once."""

    # Members, and other sources, with an event that nobody has looked at yet.
    ready: "dict[object, Any]"

    def open(self, target: Target) -> Handle:
        """A handle by ``target.pid``, or by ``target.proc`` if that is None.

        Failed if it can't be opened; UnsupportedOperation if the object has no file descriptor.
        """

    def arm(self, member: Member, *calls: Call) -> None:
        """Have its next event taken, and make the calls in the same step; not if it is polled."""

    def drop(self, member: Member) -> None:
        """Forget a member."""

    def poll(self, seconds: "float | None") -> None:
        """Sleep until there is an event, for ``seconds`` at most, or less."""

    def flush(self) -> None:
        """Put into ``ready`` the events that an interrupted poll() has taken."""

    def read(self, who: Any) -> "Iterable[Member]":
        """The members to look at for an event that is not a member's own."""

    def wake(self, seconds: float) -> bool:
        """Wake at least one sleeper, and make fileno() readable, in ``seconds`` or earlier.

        Return False if earlier: a program that polls fileno() would spin. Each woken thread wakes
        the next one while there is work for others.
        """

    def fileno(self) -> int:
        """A file descriptor, readable when there is work; UnsupportedOperation without one."""

    def close(self) -> None: ...
