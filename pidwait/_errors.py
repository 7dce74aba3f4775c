# SPDX-License-Identifier: BSD-3-Clause
"""Errors and messages: made in one place, so that they read alike."""

# The core of warnings: then nothing has to be imported when the interpreter shuts down.
import _warnings
import errno
import os
import sys

from . import _parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, TypeVar  # novm

    C = TypeVar("C", bound="type[Any]")

# Errors that may not come at the next call: they are not remembered, and are no reason to give
# up a backend for good.
TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN)

# Where zipimport loads this, __package__ is not set yet, before Python 3.10.
_PACKAGE = __name__.rpartition(".")[0]
if _parts.SINGLE_FILE:
    _PACKAGE = __name__


def public(cls: "C") -> "C":
    """Make the package the module of a class: that is where its users import it from."""
    # And of its methods: from Python 3.13 on pydoc shows their module if it is another one.
    for value in (cls, *vars(cls).values()):
        named = getattr(value, "__func__", value)  # of a classmethod
        if named is cls or isinstance(named, type(public)):
            named.__module__ = _PACKAGE
    return cls


@public
class TimeoutExpired(TimeoutError):
    """The process was still running when the time was up: a built-in TimeoutError.

    ``pid`` is the pid of the process, or of one of them if there were several; ``timeout``
    is the time-out in seconds, as the caller gave it. ``errno`` is None.

    >>> import os
    >>> try:
    ...     wait(os.getpid(), timeout=0)
    ... except TimeoutExpired as error:
    ...     print(error.timeout, error.pid == os.getpid())
    0 True
    """

    # OSError takes two arguments for errno and strerror. With an __init__ of our own it sees
    # only the one that we pass on, and ``errno`` stays None.
    def __init__(self, pid: "int | None", timeout: "float | None") -> None:
        super().__init__("process %s was still running after %s seconds" % (pid, timeout))
        self.pid = pid
        self.timeout = timeout

    def __reduce__(self) -> "tuple[object, ...]":
        return type(self), (self.pid, self.timeout)


def os_error(code: int, call: str, pid: "int | None", text: "str | None" = None) -> OSError:
    """The OSError subclass for an errno; its message names the call and the process."""
    return OSError(code, "%s (%s, pid %s)" % (text or os.strerror(code), call, pid))


def no_such_process(pid: "int | None", why: str = "No such process") -> OSError:
    return ProcessLookupError(errno.ESRCH, "%s (pid %s)" % (why, pid))


def log(message: str, *args: object) -> None:
    """Write to the package's logger, if the program has imported logging.

    We do not import it: with no file descriptor left, an import fails.
    """
    get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
    if get_logger is not None:
        get_logger(_PACKAGE).info(message, *args)


def warn_unclosed(resource: object) -> None:
    """Warn in a ``__del__``, by a ResourceWarning."""
    _warnings.warn("unclosed %r" % resource, ResourceWarning, 3, resource)


def is_of_signal_handler(error: BaseException) -> bool:
    """Whether the error comes from a signal handler, which ran in the middle of other code."""
    # A handler can be any callable, and may have installed another handler before it raised.
    # But its second argument is the frame that it interrupts: look for that in its variables.
    traceback, interrupted = error.__traceback__, None
    while traceback is not None:
        frame = traceback.tb_frame
        if interrupted is not None and _has(frame, interrupted):
            return True
        interrupted, traceback = frame, traceback.tb_next
    return False


def raise_of_handler(error: BaseException) -> None:
    """Raise the error again if a signal handler raised it: it is not the system's answer."""
    if is_of_signal_handler(error):
        raise error


def pass_over(error: BaseException, message: str, *args: object) -> None:
    """Log an error and go on; but raise it again if a signal handler raised it."""
    raise_of_handler(error)
    log(message + ": %s", *args, error)


def _has(frame: "FrameType", wanted: object) -> bool:
    """Whether the object is a local variable of the frame, or in a tuple such as ``*args``."""
    values = frame.f_locals.values()
    return any(
        value is wanted or (type(value) is tuple and any(one is wanted for one in value))
        for value in values
    )
