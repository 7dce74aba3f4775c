# SPDX-License-Identifier: BSD-3-Clause
"""What every backend has: a Handle for one process, a Set for many."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol  # novm

    from .._checks import Check
    from .._deadline import Deadline
    from .._outcome import Outcome

    Identity = tuple[object, ...]  # novm
    Checks = tuple[tuple[str, str | None, Check], ...]  # novm

    class Handle(Protocol):  # novm
        """One process. Handle(pid) raises ProcessLookupError if no process has the pid."""

        # Set for a child that only its owner reaps: there is a shorter way to wait for it.
        is_child: bool

        @property
        def pid(self) -> "int | None":
            """None for a pidfd that we did not open, once its process has been reaped."""

        @property
        def backend(self) -> str:
            """How the process is waited for now: "polling" after a fallback."""

        def wait(self, deadline: "Deadline", reap: bool) -> "Outcome":
            """RUNNING at the deadline; else the exit code, or None if the system does not tell.

            With ``reap``, our child is reaped; NotYet while a tracer prevents it.
            """

        def reaping(self, block: bool = True) -> "Iterable[object] | None":
            """What reaps our child when its one item is taken; None if the handle can't do that.

            The item is the result of waitid(2), and list.extend() takes it with no bytecode
            between the two. With ``block`` the call waits for the exit; else the item is None
            while the child runs. It raises OSError, as where somebody else has reaped the child.
            """

        def send_signal(self, sig: int) -> None:
            """ProcessLookupError if the process has exited."""

        def keeps_identity(self) -> bool:
            """Whether identify() tells the same for as long as the handle is open."""

        def identify(self) -> "Identity | None":
            """An identity that all handles on one process share; None if it is not known."""

        def fileno(self) -> int:
            """Readable after the exit; UnsupportedOperation if polled, and on Windows."""

        def close(self) -> None: ...

    class Member(Protocol):  # novm
        """What a set waits for. Several members may have the same pid."""

        ticket: object  # the set that has the member keeps its own record here

        @property
        def pid(self) -> "int | None": ...

        def fileno(self) -> int:
            """The pidfd of a member without a pid; OSError if it has none."""

        def known(self) -> "Outcome":
            """The exit code that the object already has; RUNNING if it knows of no exit."""

    class Status(Protocol):  # novm
        """What events have told about the exit code of one process."""

        def hear(self, is_main: bool, status: int, when: float) -> None:
            """A thread has ended with this wait status, at that time of the monotonic clock."""

        def forget(self, since: float) -> None:
            """It was seen running then: what was heard so far was not about its exit."""

        # Seconds for which the code may come after the exit can be seen.
        patience: float

        def is_due(self) -> bool:
            """Once the process has exited: whether its code may still come."""

        def code(self) -> "int | None":
            """The exit code, once the process has exited; None if it is not certain."""

    # The arguments of hear(), or none.
    Message = tuple[()] | tuple[bool, int, float]  # novm
    # A key, or None if events were lost; and a message about the process.
    Heard = tuple[int | None, Message]  # novm

    class Events(Protocol):  # novm
        """What tells that a process may have exited: a look has to follow."""

        # Seconds between two looks at a process of which nothing is heard.
        longest: float
        # Whether there is an event for each exit, if none is lost.
        hears_all: bool

        def fileno(self) -> int:
            """Readable while there is something to read()."""

        def add(self, pid: int) -> "tuple[int, Status | None] | None":
            """Start to report this process; return the key of its events, and its Status if any.

            None if its exit would cause no event.
            """

        def add_again(self, key: int, pid: int) -> "int | None":
            """The key from now on, after an event that was not about the exit; None as add()."""

        def discard(self, key: int) -> None:
            """One process less has this key."""

        def may_have_exited(self, key: int, pid: int) -> bool:
            """After an event: False if it is certain that it runs on, and has the key it had."""

        def read(self) -> "Iterable[Heard]":
            """What has been heard since the last call; it never blocks."""

        def close(self) -> None: ...

    Report = Callable[[tuple[Member, Outcome]], object]  # novm

    class Set(Protocol):  # novm
        """Any number of processes. All but sleep() return at once."""

        def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
            """Wait for these members, too; return those that can't be waited for, and why.

            The reason is a ProcessLookupError if no process has the pid.
            """

        def discard(self, member: "Member") -> None:
            """Do not report this member any more; nothing happens if it is not in the set."""

        def has_exited(self, member: "Member") -> bool:
            """Whether a member of the set has exited, and has not been reported yet."""

        def sleep(self, seconds: "float | None") -> None:
            """Block until there is something to take, for ``seconds`` at most (None: no limit).

            It may end earlier.
            """

        def take(self, report: "Report", last: bool) -> None:
            """Call report((member, exit code or None)) for each exit, and forget the member.

            With ``last`` the time is up: a member that has exited is reported even if its code
            may come a moment later. A reported member may have been discarded meanwhile.
            """

        def delay(self) -> "float | None":
            """Seconds until take() must be called even if there is no event; else None."""

        def alarm(self, seconds: "float | None") -> None:
            """End a sleep(), and make fileno() readable, after ``seconds``; None: never.

            Each call replaces the one before. An alarm that has gone off stays on until the
            next call. OSError for more than 0 seconds if the system has no timer.
            """

        def fileno(self, timed: bool = True) -> int:
            """Readable when take() would report something; may raise UnsupportedOperation.

            Without ``timed`` no alarm will be set, and what only a look finds is not told.
            """

        def recover(self) -> None:
            """Find the exits that were lost when a signal handler raised in sleep() or take()."""

        def forked(self) -> "Set":
            """The set that replaces this one in a forked child; OSError if there can be none."""

        def close(self) -> None: ...

    class Polled(Set, Protocol):  # novm
        """The members that are polled; the program may be sleeping in another set."""

        # The set in which the program sleeps.
        sleeper: "Set | None"
        # Whether no file descriptor was left for events, which would make most looks needless.
        lacks_room: bool

        def add_look(self, member: "Member", look: "Callable[[], Outcome]") -> None:
            """Call ``look()`` again and again until it does not return RUNNING."""

        def look(self, last: bool = False) -> None:
            """Look at those that are due, or with ``last`` at all of them, without the lock."""

        def hear(self) -> None:
            """Read the events, and see to it that those of which they tell are due."""

        def cover_all(self) -> None:
            """Try again to get events about the members that have none."""

        def deafen(self) -> None:
            """Go on without events."""

        def forked(self) -> "Polled": ...

        def __contains__(self, member: "Member") -> bool: ...

        def __len__(self) -> int: ...
