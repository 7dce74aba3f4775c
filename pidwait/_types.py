# SPDX-License-Identifier: BSD-3-Clause
"""Names for annotations. Type checkers read this module; it is never imported at run time."""

from collections import deque as deque
from collections.abc import AsyncIterator as AsyncIterator
from collections.abc import Callable as Callable
from collections.abc import Iterable as Iterable
from collections.abc import Iterator as Iterator
from collections.abc import Sequence as Sequence
from enum import Enum
from typing import Any as Any
from typing import Final, Protocol
from typing import Generic as Generic
from typing import Union as Union

from typing_extensions import Self as Self
from typing_extensions import TypeVar

from ._base.deadline import Deadline as Deadline
from ._base.handle import Handle as Handle
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
Clock = Callable[[], float]
Opener = Callable[[int], Handle]


class HasPid(Protocol):
    @property
    def pid(self) -> "int | None": ...


Proc = Union[int, HasPid]
# The type of the processes. If nothing tells it, as for an empty set: all that wait() takes.
P = TypeVar("P", bound=Proc, default=Proc)
P_co = TypeVar("P_co", bound=Proc, default=Proc, covariant=True)
Exits = list[tuple[Target, "int | None"]]


class Sleeper(Protocol):
    """What sleeps for many handles; any number of threads may be in sleep() at once."""

    # Those that have been taken from the system, and that nobody has looked at.
    events: Any

    def open(self, target: Any) -> None:
        """Open ``target.handle``, by ``target.pid``, or by ``target.proc`` if that is None.

        Failed if that can't be; UnsupportedOperation if the object has no file descriptor.
        """

    def watch_again(self, handle: Any) -> None:
        """Have the next event of a handle reported, after a false alarm."""

    def discard(self, handle: Any) -> None:
        """Close a handle."""

    def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is an event, for ``seconds`` at most; it may end earlier."""

    def worth_a_look(self) -> "Iterator[Handle]":
        """The handles that have had an event since."""

    def wake(self, seconds: "float | None") -> None:
        """End each sleep, and have fileno() readable, after ``seconds``; None: never."""

    def fileno(self) -> int:
        """Readable when there is something to look at; UnsupportedOperation if there is none."""

    def forked(self) -> "Sleeper":
        """What replaces it in a forked child; Failed if its handles can't go on there."""

    def close(self) -> None: ...


class Facts(Protocol):
    """What a system tells about a process: also a method for each name of _listing.ATTRIBUTES."""

    @property
    def pid(self) -> int: ...

    def started(self) -> int:
        """When it started: the same for one process, and more for one that started later."""

    def close(self) -> None:
        """Nothing is read after it."""


class Source(Protocol):
    """What lists the processes of a system."""

    WHERE: str  # what tells the facts, for messages

    # The facts are of one process, even if its pid is given to another one meanwhile.
    def read(self, pid: int) -> Facts:
        """Failed (ESRCH), here or with the first fact, if no process has the pid."""

    def read_all(self) -> "Iterator[Facts]":
        """In the order of the pids. OSError if processes can't be listed."""

    def now(self) -> int:
        """The time, comparable with Facts.started()."""
