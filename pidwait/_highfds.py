# SPDX-License-Identifier: BSD-3-Clause
"""File descriptors above the soft limit, where they take none away from the program.

RLIMIT_NOFILE limits the number of a new file descriptor, not how many are open: getrlimit(2).
An fd that was moved up while the soft limit was raised stays valid after the limit has been
restored, and the program still gets low numbers, under its own limit.
"""

from _thread import RLock
from errno import EMFILE

from ._errors import pass_over
from ._fd import opened
from ._fork import Creator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


_LOW = 1024  # numbers that are left to the program if the hard limit prevents higher ones
_HIGH = 65536  # the kernel's table has room up to the highest number, and a fork copies it
_F_DUPFD_CLOEXEC = 1030  # the same on every Linux; PyPy 3.11 lacks the name


class Raised:
    """Calls a function while the soft limit is raised to the hard one.

    The limit is that of the whole process, and a child forked meanwhile inherits the raised
    one: keep the call short.
    """

    def __init__(self) -> None:
        self._limits = (0, 0)
        self._is_up = False
        self._start()

    def _start(self) -> None:
        self._lock = RLock()
        self._creator = Creator()

    def __call__(self, use: "Callable[..., Any]", *args: object) -> "Any":
        """``use(move, *args)``; ``move(file)`` returns the file with a high fd, or an OSError."""
        if not self._creator.is_me():  # a thread of the parent may hold the lock
            self._start()
            self._restore()
        with self._lock:
            if self._is_up:  # by the code that this signal handler has interrupted
                return use(self._move, *args)
            try:
                try:
                    self._raise()
                    return use(self._move, *args)
                finally:
                    self._restore()
            finally:  # Ctrl-C may come anywhere, even just before the call above
                self._restore()

    def _raise(self) -> None:
        try:
            import resource

            self._limits = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft != hard and soft <= _HIGH:
                self._is_up = True
                self._limits = _exchange((hard, hard))
        except (OSError, ValueError, ImportError) as error:  # a policy, perhaps
            pass_over(error, "RLIMIT_NOFILE")

    def _restore(self) -> None:
        if not self._is_up:
            return
        hard = self._limits[1]
        found = _exchange(self._limits)
        if found != (hard, hard) and found != self._limits:
            _exchange(found)  # another thread has set it meanwhile
        self._is_up = False

    def _move(self, file: "Any") -> "Any":
        try:
            import fcntl

            soft = self._limits[0]
            if self._is_up:
                try:
                    return opened(fcntl.fcntl, file, _F_DUPFD_CLOEXEC, soft)
                except OSError as error:  # EINVAL: it is not up after all; EMFILE: none is free
                    pass_over(error, "F_DUPFD_CLOEXEC, %d", soft)
            return opened(fcntl.fcntl, file, _F_DUPFD_CLOEXEC, min(soft // 2, _LOW))
        except ImportError as error:  # no file descriptor is left
            raise OSError(EMFILE, str(error)) from None
        finally:
            file.close()


def _exchange(limits: "tuple[int, int]") -> "tuple[int, int]":
    """Set the limits, and return the old ones: in one call, as other threads may set them."""
    import resource

    if hasattr(resource, "prlimit"):
        return resource.prlimit(0, resource.RLIMIT_NOFILE, limits)
    # PyPy has no prlimit(2). There is a window between these two calls.
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return found


raised = Raised()


def moved_up(file: "Any") -> "Any":
    """The file with a high fd: see Raised."""
    return raised(lambda move: move(file))
