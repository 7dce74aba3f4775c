# SPDX-License-Identifier: BSD-3-Clause
"""File descriptors where they are in nobody's way: above the soft limit.

RLIMIT_NOFILE bounds the number of a new file descriptor, not how many are open
(getrlimit(2)): what was moved up while the soft limit was raised stays valid once it
is put back, and the program keeps getting low numbers under its own limit.
"""

import os
from _thread import RLock

from ._errors import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType
    from typing import Any, Callable


_LOW = 1024  # numbers that are left to the program where the hard limit is in the way
_HIGH = 65536  # the kernel's table grows up to the highest number, and a fork copies it
_F_DUPFD_CLOEXEC = 1030  # the same on every Linux; PyPy 3.11 lacks the name


def modules() -> "tuple[ModuleType, ModuleType]":
    """fcntl and resource: loaded on first need, which takes a file descriptor."""
    import fcntl
    import resource

    return fcntl, resource


class Raised:
    """A ``with`` block in which the soft limit is the hard one; gives what moves fds up.

    The limit is the whole process's, and who is forked meanwhile keeps it: be short.
    """

    def __init__(self) -> None:
        self._limits = self._raised = (0, 0)
        self._start()

    def _start(self) -> None:
        self._lock = RLock()
        self._depth = 0
        self._pid = os.getpid()

    def __enter__(self) -> "Callable[[Any], int]":
        if self._pid != os.getpid():  # a thread of the parent may have been inside
            if self._depth:
                self._restore()
            self._start()
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            try:
                self._raise()
            except (OSError, ValueError, ImportError) as error:  # forbidden, perhaps
                log("RLIMIT_NOFILE: %s", error)
        return self._move

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        value: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        try:
            if self._depth == 1:
                self._restore()
        finally:
            self._depth -= 1
            self._lock.release()

    def _raise(self) -> None:
        _, resource = modules()
        self._limits = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._raised = (hard, hard)
        if soft != hard and soft <= _HIGH:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._raised)

    def _restore(self) -> None:
        if self._limits == self._raised:
            return
        _, resource = modules()
        # Not over what somebody else has set meanwhile.
        if resource.getrlimit(resource.RLIMIT_NOFILE) == self._raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)

    def _move(self, file: "Any") -> int:
        """A high number for what ``file`` is, which is closed; OSError if there is none."""
        try:
            fcntl, _ = modules()
            soft = self._limits[0]
            if soft <= _HIGH:
                try:
                    return fcntl.fcntl(file, _F_DUPFD_CLOEXEC, soft)  # type: ignore[no-any-return]
                except OSError as error:  # EINVAL: that is the hard limit; EMFILE: up to it
                    log("F_DUPFD_CLOEXEC, %d: %s", soft, error)
            floor = min(soft // 2, _LOW)
            return fcntl.fcntl(file, _F_DUPFD_CLOEXEC, floor)  # type: ignore[no-any-return]
        finally:
            file.close()


raised = Raised()
