# SPDX-License-Identifier: BSD-3-Clause
"""Errors and messages: made in one place, so that they read alike."""

# warnings' core, so that nothing is imported at the interpreter's end.
import _warnings
import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

# Errors that may be gone at the next call: never remembered, never a reason to give a
# backend up for good.
TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)


class TimeoutExpired(TimeoutError):
    """The process was still running when the time was up.

    ``pid`` is its process ID and ``timeout`` what the caller gave, in seconds.
    """

    # OSError takes two arguments for errno and strerror; with an __init__ of
    # our own it sees only what is passed on, and ``errno`` stays None.
    def __init__(self, pid: "int | None", timeout: "float | None") -> None:
        super().__init__("process %s was still running after %s seconds" % (pid, timeout))
        self.pid = pid
        self.timeout = timeout

    def __reduce__(self) -> "tuple[object, ...]":
        return type(self), (self.pid, self.timeout)


def os_error(code: int, call: str, pid: "int | None", text: "str | None" = None) -> OSError:
    """The OSError subclass for an errno, naming the call and the process."""
    return OSError(code, "%s (%s, pid %s)" % (text or os.strerror(code), call, pid))


def no_such_process(pid: "int | None", why: "str | None" = None) -> OSError:
    text = "No such process" if why is None else why
    return ProcessLookupError(errno.ESRCH, "%s (pid %s)" % (text, pid))


def log(message: str, *args: object) -> None:
    """Tell the logger of the package, if this program uses logging at all.

    It is not imported for it: with no file descriptor left, an import fails.
    """
    get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
    if get_logger is not None:
        get_logger(__package__).info(message, *args)


def warn_unclosed(resource: object) -> None:
    """A ResourceWarning, of a ``__del__``."""
    _warnings.warn("unclosed %r" % resource, ResourceWarning, 3, resource)


def is_of_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler raised it, in the middle of the code that seems to have."""
    # A handler can be any callable, and may have put another one in its place before it
    # raised. But it is given the frame that it interrupts.
    traceback, interrupted = error.__traceback__, None
    while traceback is not None:
        frame = traceback.tb_frame
        if interrupted is not None and _has(frame, interrupted):
            return True
        interrupted, traceback = frame, traceback.tb_next
    return False


def _has(frame: "FrameType", wanted: object) -> bool:
    """Whether one of its local variables, or a tuple of ``*args``, is it."""
    values = frame.f_locals.values()
    return any(
        value is wanted or (type(value) is tuple and any(one is wanted for one in value))
        for value in values
    )
