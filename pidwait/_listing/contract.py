# SPDX-License-Identifier: BSD-3-Clause
"""What listing needs from each system: a module with three functions and a set.

    read(pid, full)     Facts of a process; ProcessLookupError if no process has the pid
    read_all(full)      Facts of each process, in order of their pids
    now()               the time, comparable with Facts.started()
    NEED_FULL           the names of facts to be read with ``full``

A file or table is read when the first fact of it is asked for, and then kept: Facts are for one
moment. They can be referred to weakly. With ``full`` all facts are of one process, even if its
pid is given to another one meanwhile. Without it, those in NEED_FULL may be of that other one.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol  # novm

    class Facts(Protocol):  # novm
        """A fact raises ProcessLookupError if the process is gone, PermissionError if we may not
        see it, and an OSError with ENOSYS if the system does not tell it.
        """

        @property
        def pid(self) -> int: ...

        def started(self) -> int:
            """When it started: the same for one process, and more for one that started later."""

        def name(self) -> str: ...

        def ppid(self) -> int: ...

        def cmdline(self) -> "list[str]":
            """Empty for a zombie, and for a kernel's thread."""

        def status(self) -> str:
            """A word of psutil's."""

        def create_time(self) -> float:
            """Seconds from the epoch."""

        def username(self) -> str:
            """The name of the real user; the number if it has no name."""

        def uids(self) -> "tuple[int, int, int]":
            """Real, effective, saved."""

        def terminal(self) -> "str | None":
            """The path of the controlling terminal; None without one."""

        def cpu_times(self) -> "tuple[float, float, float, float]":
            """Seconds: user, system, and both of the children that it has reaped."""

        def pgid(self) -> int: ...

        def sid(self) -> int: ...

        def close(self) -> None:
            """Nothing is read after it."""

    class Source(Protocol):  # novm
        NEED_FULL: "frozenset[str]"

        def read(self, pid: int, full: bool) -> Facts: ...

        def read_all(self, full: bool) -> "Iterator[Facts]": ...

        def now(self) -> int: ...
