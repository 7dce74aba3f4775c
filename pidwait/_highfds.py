# SPDX-License-Identifier: BSD-3-Clause
"""File descriptors where they are in nobody's way: above the soft limit.

RLIMIT_NOFILE bounds the number of a new file descriptor, not how many are open
(getrlimit(2)): what was moved up while the soft limit was raised stays valid once it
is put back, and the program keeps getting low numbers under its own limit.
"""

from _thread import RLock
from errno import EMFILE

from ._errors import log
from ._fd import opened
from ._fork import Creator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


_LOW = 1024  # numbers that are left to the program where the hard limit is in the way
_HIGH = 65536  # the kernel's table grows up to the highest number, and a fork copies it
_F_DUPFD_CLOEXEC = 1030  # the same on every Linux; PyPy 3.11 lacks the name


class Raised:
    """Calls a function while the soft limit is the hard one, and gives it what moves fds up.

    The limit is the whole process's. A child forked meanwhile inherits the raised limit: keep
    the call short.
    """

    def __init__(self) -> None:
        self._limits = (0, 0)
        self._is_up = False
        self._start()

    def _start(self) -> None:
        self._lock = RLock()
        self._creator = Creator()

    def __call__(self, use: "Callable[..., Any]", *args: object) -> "Any":
        """``use(move, *args)``; ``move(file)`` is the same with a high number, or an OSError."""
        if not self._creator.is_me():  # a thread of the parent may have been inside
            self._start()
            self._restore()
        with self._lock:
            if self._is_up:  # by whom this signal handler has interrupted
                return use(self._move, *args)
            try:
                try:
                    self._raise()
                    return use(self._move, *args)
                finally:
                    self._restore()
            finally:  # Ctrl-C may come anywhere, before the other one, too
                self._restore()

    def _raise(self) -> None:
        try:
            import resource

            self._limits = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft != hard and soft <= _HIGH:
                self._is_up = True
                self._limits = _exchange((hard, hard))
        except (OSError, ValueError, ImportError) as error:  # forbidden, perhaps
            log("RLIMIT_NOFILE: %s", error)

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
            if soft <= _HIGH:
                try:
                    return opened(fcntl.fcntl, file, _F_DUPFD_CLOEXEC, soft)
                except OSError as error:  # EINVAL: that is the hard limit; EMFILE: up to it
                    log("F_DUPFD_CLOEXEC, %d: %s", soft, error)
            return opened(fcntl.fcntl, file, _F_DUPFD_CLOEXEC, min(soft // 2, _LOW))
        except ImportError as error:  # for want of a file descriptor
            raise OSError(EMFILE, str(error)) from None
        finally:
            file.close()


def _exchange(limits: "tuple[int, int]") -> "tuple[int, int]":
    """Set the limits, and return what they were: in one call, as other threads may set them."""
    import resource

    if hasattr(resource, "prlimit"):
        return resource.prlimit(0, resource.RLIMIT_NOFILE, limits)
    # PyPy has no prlimit(2). There is a window between these two.
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return found


raised = Raised()


def moved_up(file: "Any") -> "Any":
    """One ``file``, moved."""
    return raised(lambda move: move(file))
