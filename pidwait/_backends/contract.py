# SPDX-License-Identifier: BSD-3-Clause
"""What a backend has: a Handle for one process, a Set for many, and checks."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol  # novm

    from .._checks import Check
    from .._deadline import Deadline
    from .._outcome import Outcome

    Identity = tuple[object, ...]  # novm
    Checks = tuple[tuple[str, str | None, Check], ...]  # novm

    class Handle(Protocol):  # novm
        """One process. Handle(pid) raises ProcessLookupError where there is none."""

        # Set for a child that only its owner reaps: it may be waited for in a shorter way.
        is_child: bool

        @property
        def pid(self) -> "int | None":
            """None for a pidfd that came from elsewhere, once its process has been reaped."""

        @property
        def backend(self) -> str:
            """The name of what it is waited for by now."""

        def wait(self, deadline: "Deadline", reap: bool) -> "Outcome":
            """RUNNING at the deadline; else the exit code, or None where nobody tells it.

            With ``reap``, our child is reaped: NotYet while a tracer keeps it from us.
            """

        def send_signal(self, sig: int) -> None:
            """ProcessLookupError if there is no such process any more."""

        def identify(self) -> "Identity | None":
            """Equal for all handles on one process; None if not known."""

        def fileno(self) -> int:
            """Readable once it has exited; UnsupportedOperation if polled, and on Windows."""

        def close(self) -> None: ...

    class Member(Protocol):  # novm
        """What a set waits for. Several may have one pid."""

        ticket: object  # what the set that has it finds its own by

        @property
        def pid(self) -> "int | None": ...

        def fileno(self) -> int:
            """The pidfd of a member without a pid; OSError where it has none."""

        def known(self) -> "Outcome":
            """The exit code that its object already has; RUNNING if it knows of no exit."""

    Report = Callable[[tuple[Member, Outcome]], object]  # novm

    class Set(Protocol):  # novm
        """Any number of processes. All but sleep() return at once."""

        def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
            """Have them waited for; return those that can't be, and why.

            ProcessLookupError where there is no such process.
            """

        def discard(self, member: "Member") -> None:
            """Do not report it any more, if it is there."""

        def has_exited(self, member: "Member") -> bool:
            """Whether a member that is there has exited, and is still to be reported."""

        def sleep(self, seconds: "float | None") -> None:
            """Block until there is something to take, or so long (None: for ever), or less."""

        def take(self, report: "Report", last: bool) -> None:
            """report((member, exit code or None)) for each that has exited, and forget it.

            With ``last`` the time is up: what has exited is reported, though its code may
            come a moment later. What is reported may have been discarded since.
            """

        def delay(self) -> "float | None":
            """Seconds until take() is to be called though nothing has happened; else None."""

        def alarm(self, seconds: "float | None") -> None:
            """End a sleep(), and make fileno() readable, in so many seconds; None: never.

            Each call replaces the last; once it has gone off it stays on until the next.
            OSError where the system has no timer for a number above 0.
            """

        def fileno(self) -> int:
            """Readable when take() would report something; UnsupportedOperation."""

        def recover(self) -> None:
            """Find again what an exception of a signal handler lost, in sleep() or take()."""

        def forked(self) -> "Set":
            """What takes its place in a forked child; OSError if all are to be polled there."""

        def close(self) -> None: ...


class Backend:
    """A way to wait: its name, handle and set, and the checks that the probe shows.

    ``checks`` are rows of a name, the call that is asked for (None if it is no call), and the
    check; the first one's check says whether the backend can be used at all.
    ``set(shared)`` is for several threads, or for one that only sleeps.
    """

    __slots__ = ("checks", "handle", "name", "set")

    def __init__(
        self,
        name: str,
        handle: "Callable[[int], Handle]",
        set: "Callable[[bool], Set]",
        checks: "Checks",
    ) -> None:
        self.name = name
        self.handle = handle
        self.set = set
        self.checks = checks

    @property
    def check(self) -> "Check":
        return self.checks[0][2]
