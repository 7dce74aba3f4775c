# SPDX-License-Identifier: BSD-3-Clause
"""Errors and messages: made in one place, so that they read alike.

A signal handler can raise any exception, also one that looks like an error of a system call:
TimeoutError, ProcessLookupError. So the two are separated at the call itself: call() turns the
system's error into Failed, which no handler raises, as it is not an OSError. Failed stays inside;
where it would leave the package, it becomes an OSError again.
"""

# signal without its enums, which take long to load; and the core of warnings, so that nothing has
# to be imported when the interpreter shuts down.
import _signal  # type: ignore[import-not-found]
import _warnings
import errno
import os
import sys
from types import CodeType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, E, NoReturn

# Classes of errors. PASSING: the next call may work, so this is no reason to give up for good.
PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR)
# DENIED: by permissions, or a policy. ENOSYS: an old kernel lacks the call, or a policy hides it.
DENIED = (errno.EACCES, errno.EPERM)
REFUSED = (*DENIED, errno.ENOSYS)
# There is no such process, or it has no such file in /proc.
GONE = (errno.ESRCH, errno.ENOENT)

# The package; in a single file, the module.
PACKAGE = __name__.rpartition("._base")[0] or __name__
IS_WHOLE = __name__ != PACKAGE


class Failed(Exception):
    """The system refused a call; ``error`` is its OSError, or the errno for one of ours."""

    # Whether the next call may work.
    may_pass = False
    call: "str | None" = None  # which call, if that is not known where it becomes an OSError

    def __init__(self, error: "OSError | int", text: "str | None" = None) -> None:
        if isinstance(error, int):
            error = OSError(error, text or os.strerror(error))
        super().__init__(error)
        self.error = error.with_traceback(None)
        self.errno: int = error.errno or 0
        self.winerror: "int | None" = getattr(error, "winerror", None)  # on Windows alone

    @property
    def is_passing(self) -> bool:
        return self.may_pass or self.errno in PASSING

    def as_error(self, call: str, pid: "int | None") -> OSError:
        """The OSError for a caller; it names the call and the process."""
        text = "%s (%s, pid %s)" % (self.error.strerror or self.error, self.call or call, pid)
        if self.winerror is not None:
            return OSError(self.errno, text, None, self.winerror)
        return OSError(self.errno, text)


def is_python(function: object) -> bool:
    """Whether a function is written in Python, as hooks are, and some of PyPy's modules."""
    functions = [function]
    if hasattr(function, "func"):  # a partial, which PyPy has in Python
        functions = [function.func, type(function).__call__]
    return any(type(getattr(one, "__code__", None)) is CodeType for one in functions)


def call(function: "Any", *args: "Any") -> "Any":
    """``function(*args)``; Failed if the system refuses."""
    try:
        return function(*args)
    except OSError as error:
        raise refusal(function, error) from None


def refusal(function: object, error: OSError) -> Failed:
    """The Failed for an error of the function; the error of a signal handler is raised again."""
    if error.errno is None:  # the system's errors have one; gevent.Timeout's exceptions need not
        raise error
    # If C code has raised the error, the traceback ends at the call; if a handler has, it goes on
    # into the handler. In Python code, such as gevent's, it goes on, too.
    is_deep = error.__traceback__.tb_next is not None  # type: ignore[union-attr]
    if is_deep and (not is_python(function) or is_by_handler(error)):
        raise error
    return Failed(error)


def is_by_handler(error: "Any") -> bool:
    """Whether a signal handler has raised the error, in the middle of Python code."""
    traceback = error.__traceback__ and error.__traceback__.tb_next
    if traceback is None:  # C code has raised it, where it was called
        return False
    codes = []
    for number in range(1, _signal.NSIG):
        handler = _signal.getsignal(number)
        for called in handler, getattr(handler, "func", handler):  # of a functools.partial
            for function in called, type(called).__call__:
                codes.append(getattr(getattr(function, "__func__", function), "__code__", error))
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def not_by_handler(*classes: "type[E]") -> "tuple[type[E], ...]":
    """For an ``except``: these classes, unless a signal handler has raised the exception.

    Use it around other people's code, and around our own code that raises for callers. For system
    calls there is call().
    """
    return () if is_by_handler(sys.exc_info()[1]) else classes


def has(thing: object, name: str) -> bool:
    """hasattr(), but an AttributeError that a signal handler raises meanwhile comes through."""
    try:
        getattr(thing, name)
    except not_by_handler(AttributeError):
        return False
    return True


class TimeoutExpired(TimeoutError):
    """The process was still running at the time-out. This is a built-in TimeoutError.

    ``pid`` is the pid of the process. If several were still running, it is that of the first,
    and the message names a few. ``timeout`` is in seconds, as given. ``errno`` is None.

    >>> import os
    >>> try:
    ...     wait(os.getpid(), timeout=0)
    ... except TimeoutExpired as error:
    ...     print(error.timeout, error.pid == os.getpid())
    0 True
    """

    # OSError would take two arguments for errno and strerror; so it gets the message alone.
    def __init__(self, pid: "int | None", timeout: "float | None") -> None:
        super().__init__("process %s was still running after %s seconds" % (pid, timeout))
        self.pid = pid
        self.timeout = timeout

    def __reduce__(self) -> "tuple[object, ...]":
        return type(self), (self.pid, self.timeout), self.args

    def __setstate__(self, args: "Any") -> None:
        self.args = args


def log(message: str, *args: object, level: str = "info") -> None:
    """Write to the package's logger, if the program has imported logging.

    We do not import logging: with no file descriptor left, an import fails. Hold no lock here.
    """
    get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
    for error in args:
        # A log handler may keep the record; a traceback would keep frames, and so handles open.
        if isinstance(error, BaseException):
            error.__traceback__ = error.__context__ = None
    if get_logger is not None:
        try:
            getattr(get_logger(PACKAGE), level)(message, *args)
        except not_by_handler(Exception):  # a filter's; logging does the same for a log handler's
            sys.excepthook(*sys.exc_info())


# For audit hooks, from Python 3.8 on.
audit: "Callable[..., None]" = getattr(sys, "audit", lambda *event: None)


def refuse_copy(self: object) -> "NoReturn":
    """For a ``__reduce__``: a copy would close what the other one uses."""
    raise TypeError("a %s can't be pickled or copied" % type(self).__name__)


def warn_unclosed(resource: object) -> None:
    """Warn in a ``__del__``, by a ResourceWarning."""
    _warnings.warn("unclosed %r" % resource, ResourceWarning, 3, resource)
