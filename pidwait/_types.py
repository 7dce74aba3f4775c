# SPDX-License-Identifier: BSD-3-Clause
"""Names for annotations. Type checkers read this module; it is never imported at run time."""

from collections import defaultdict as defaultdict
from collections import deque as deque
from collections.abc import AsyncIterator as AsyncIterator
from collections.abc import Callable as Callable
from collections.abc import Collection as Collection
from collections.abc import Iterable as Iterable
from collections.abc import Iterator as Iterator
from collections.abc import Sequence as Sequence
from enum import Enum
from typing import Any as Any
from typing import Final, Protocol
from typing import Generic as Generic
from typing import Literal as Literal
from typing import Union as Union

from typing_extensions import Self as Self
from typing_extensions import TypeVar

from ._base.deadline import Deadline as Deadline
from ._base.handle import Handle as Handle
from ._waiting.members import Member as Member
from ._waiting.owners import Target as Target


class _Running(Enum):
    RUNNING = 0


class _Pending(Enum):
    PENDING = 0


RUNNING: Final = _Running.RUNNING
PENDING: Final = _Pending.PENDING
Outcome = Union[int, None, _Running, _Pending]
Identity = tuple[object, ...]
Check = Callable[[], object]
# For the report: a name, the call that is checked (None if it is no call), and the check.
Checks = list[tuple[str, "str | None", Check]]
# Of each system call: the module that may have the interpreter's own function, and what makes one
# of a binding. Either can be None.
Rows = dict[str, tuple["str | None", Any]]
Clock = Callable[[], float]
Call = tuple[Any, ...]  # a function and its arguments
Table = dict[Any, Any]
Opener = Callable[[int], Handle]


class HasPid(Protocol):
    @property
    def pid(self) -> "int | None": ...


Proc = Union[int, HasPid]
# The type of the processes; Any if nothing tells it, as for WaitSet().
P = TypeVar("P", bound=Proc, default=Any)
E = TypeVar("E", bound=BaseException)
P_co = TypeVar("P_co", bound=Proc, default=Proc, covariant=True)


class Poller(Protocol):
    """What sleeps for many handles; any number of threads may be in poll() at once."""

    # The members whose events have been taken, and that nobody has looked at.
    ready: "dict[Any, Any]"

    def open(self, target: Target) -> Handle:
        """A handle by ``target.pid``, or by ``target.proc`` if that is None.

        Failed if that can't be; UnsupportedOperation if the object has no file descriptor.
        """

    def arm(self, member: Member, *calls: Call) -> None:
        """Have its next event taken, and make the calls in the same step; not if it is polled."""

    def drop(self, member: Member) -> None:
        """Forget a member."""

    def poll(self, seconds: "float | None") -> None:
        """Sleep until there is an event, for ``seconds`` at most; it may end earlier."""

    def flush(self) -> None:
        """Put into ``ready`` also what an interrupted poll() has taken."""

    def read(self, who: Any) -> "Iterable[Any]":
        """The members to look at for an event that is not a member's own."""

    def wake(self, seconds: float) -> bool:
        """Wake at least one sleeper, and have fileno() readable; ``seconds`` later, or earlier.

        Return False if it is earlier, so that a program would ask again and again. Whoever has been
        woken wakes the next, for as long as there is work for others.
        """

    def fileno(self) -> int:
        """Readable when there is something to look at; UnsupportedOperation if there is none."""

    def close(self) -> None: ...
