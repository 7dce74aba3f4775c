# SPDX-License-Identifier: BSD-3-Clause
"""spawn(), which starts processes by posix_spawn, and Child: our own child, reaped once."""

import os
from errno import ENOSYS, ESRCH
from io import UnsupportedOperation

from .._base.arguments import check_fd, check_pid
from .._base.checks import works
from .._base.deadline import NOW, Deadline
from .._base.errors import Failed, TimeoutExpired, log, not_by_handler
from .._base.handle import PENDING, RUNNING, Handle, settled
from .._process import Process
from .._systems import backend, open_handle
from .._systems.posix import load_usage
from .standard import is_standard, with_group

if os.name != "nt":
    from .posix_spawn import SpawnRequest, error_of_start, start_by_posix_spawn, without_audit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Iterable, Mapping, Outcome, Protocol, Sequence, Union, Usage

    class HasFileno(Protocol):  # novm
        def fileno(self) -> int: ...

    StrOrBytesPath = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]
    Env = Union[Mapping[str, StrOrBytesPath], Mapping[bytes, StrOrBytesPath]]
    File = Union[int, HasFileno]

# As in the standard library's subprocess.
_PIPE, _STDOUT, _DEVNULL = -1, -2, -3
_INHERIT = -1


def spawn(
    args: "StrOrBytesPath | Sequence[StrOrBytesPath]",
    env: "Env | None" = None,
    cwd: "StrOrBytesPath | None" = None,
    stdin: "File | None" = None,
    stdout: "File | None" = None,
    stderr: "File | None" = None,
    process_group: "int | None" = None,
    start_new_session: bool = False,
    close_fds: bool = True,
    pass_fds: "Iterable[int]" = (),
) -> "Child":
    """Start a program by posix_spawn(3); return its Child.

    ``args`` is the program and its arguments, or the program alone. A program without a slash
    is looked up in the PATH of ``env`` or os.environ. ``stdin``, ``stdout`` and ``stderr`` are
    file descriptors, objects with a fileno(), or subprocess.DEVNULL; stderr can also be
    subprocess.STDOUT. ``process_group`` 0 makes a new group (CREATE_NEW_PROCESS_GROUP on
    Windows); another number joins that group: setpgid(2). With ``close_fds`` the child keeps
    only 0, 1, 2 and ``pass_fds``. Signals that Python ignores get their default action.

    A Popen takes less CPU time to start. A Child has a handle, and other threads run while it
    starts. To get a program's output, use this package's subprocess. The standard subprocess
    starts the child if posix_spawn can't, or if a debugger has replaced the interpreter's
    functions that start processes.

    Raises the same OSError as subprocess, with the name of the program or of ``cwd``, and
    TypeError or ValueError for invalid arguments.

    >>> import sys
    >>> with spawn([sys.executable, "-c", "raise SystemExit(3)"]) as child:
    ...     child.wait(timeout=60)
    3
    """
    if isinstance(args, (str, bytes)) or hasattr(args, "__fspath__"):
        argv: "list[Any]" = [args]
    elif hasattr(args, "__iter__"):
        argv = list(args)
    else:
        raise TypeError("args must be a program or a sequence, not %s" % type(args).__name__)
    if not argv:
        raise ValueError("args must not be empty")
    if env is not None and not hasattr(env, "items"):
        raise TypeError("env must be a mapping, not %s" % type(env).__name__)
    group = -1 if process_group is None else _checked_group(process_group, start_new_session)
    stdio = _stream("stdin", stdin), _stream("stdout", stdout), _stream("stderr", stderr)
    passed = [check_fd("pass_fds", fd) for fd in pass_fds] if pass_fds else ()
    if passed and not close_fds:
        raise ValueError("pass_fds needs close_fds")
    if os.name == "nt" and (passed or start_new_session):
        raise ValueError("pass_fds and start_new_session can't be used on Windows")
    _reap_left()
    backend()  # it may raise: do that before there is a child
    request: "SpawnRequest | None" = None
    if os.name != "nt":
        if stdio[2] == _STDOUT:
            stdio = stdio[:2] + (1 if stdio[1] == _INHERIT else stdio[1],)
        files = stdio, close_fds, passed
        request = SpawnRequest(argv, argv[0], env, cwd, files, (group, start_new_session, True))
        event = "os.posix_spawn", argv[0], argv, os.environ if env is None else env
        try:
            pid = start_by_posix_spawn(request, *event)
            if pid is not None:
                return _own(pid, args)
        except BaseException:
            # A signal handler may have raised. The caller never gets the child, so it is reaped
            # like a Child that was closed while running.
            if request.started[0]:
                _leave(request.started[0])
            raise
    options: "dict[str, Any]" = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    options.update(env=env, cwd=cwd, start_new_session=start_new_session, close_fds=close_fds)
    if group >= 0:
        options["process_group"] = group
    return _by_subprocess(request, args, argv, dict(options, pass_fds=passed))


def _by_subprocess(
    request: "SpawnRequest | None", args: "Any", argv: "list[Any]", options: "dict[str, Any]"
) -> "Child":
    """Have the standard Popen start it."""
    error = None if request is None else request.error
    try:
        import subprocess
    except ImportError as why:  # after a chroot, say
        raise error_of_start(error or ENOSYS, argv[0]) from why
    start: "Any" = subprocess.Popen
    original = getattr(start, "_execute_child", None)
    if error is not None and is_standard(original):
        # os.posix_spawn has that event, too.
        quiet_start = without_audit(original, _USE_POSIX_SPAWN=False)
        start = type("Popen", (start,), {"_execute_child": quiet_start})
    # Python 3.13 starts a path by os.posix_spawn(), whose errors have a str; but not on the BSDs.
    names = "_HAVE_POSIX_SPAWN_CLOSEFROM", "_USE_POSIX_SPAWN"
    if all(getattr(subprocess, name, False) for name in names) and os.path.dirname(argv[0]):
        argv = [os.fspath(argv[0]), *argv[1:]]
    popen = start(argv, **with_group(options))
    child = _own(popen.pid, args)
    popen.returncode = 0  # so that the Popen does not reap the child
    return child


def _checked_group(process_group: int, start_new_session: bool) -> int:
    if start_new_session:
        raise ValueError("process_group can't be combined with start_new_session")
    is_new = type(process_group) is int and process_group == 0
    return 0 if is_new else check_pid(process_group, "process_group")


def _stream(name: str, value: "Any") -> int:
    """A file descriptor, or _INHERIT, _DEVNULL or _STDOUT."""
    if value is None:
        return _INHERIT
    if not isinstance(value, int):
        if not hasattr(value, "fileno"):
            raise TypeError("%s must be a file descriptor, a file or DEVNULL" % name)
        value = value.fileno()
    elif value == _DEVNULL or (value == _STDOUT and name == "stderr"):
        return value
    elif value == _PIPE:
        raise ValueError("%s: spawn makes no pipes; pass an end of os.pipe(), or use Popen" % name)
    return check_fd(name, value)


class Child(Process):
    """A Process that is our own child. This object reaps it.

    spawn() returns a Child. ``Child(pid)`` takes over a child that other code has started; it
    raises ProcessLookupError if no process has the pid. ``args`` is the argument of spawn(),
    and ``reaped`` is true once the child has been reaped; then ``usage`` is a Usage, or None.

    The first wait that sees the exit reaps the child: wait(), or a function that takes the
    Child. Then the handle is released. The end of a ``with`` block waits, as Popen's does. If
    you close a running Child, the first spawn() after its exit reaps the child. In a forked
    process, a Child reaps nothing, and waits as a Process does.

    >>> import sys
    >>> with spawn([sys.executable, "-c", "raise SystemExit(3)"]) as child:
    ...     child.wait(timeout=60), child.reaped
    (3, True)
    """

    args: "StrOrBytesPath | Sequence[StrOrBytesPath] | None" = None
    reaped: bool = False
    usage: "Usage | None" = None
    if TYPE_CHECKING:

        @property
        def pid(self) -> int: ...  # never None: it was known from the start

    def _start(self, handle: "Handle") -> None:
        works(load_usage)
        super()._start(handle)

    def wait(self, timeout: "float | None" = None, reap: bool = True) -> "int | None":
        """Wait until the child has exited, and reap it; return its exit code.

        ``reap`` is ignored. Raises TimeoutExpired after ``timeout`` seconds.
        """
        deadline = Deadline(timeout)
        if self._shared.is_copy():
            return super().wait(timeout)
        with self._shared.use() as handle:
            if not (self.reaped or (self._is_closed and self._exited)):
                self._check_open()
                # Note the code before reaping: for other threads, and if a signal handler raises.
                if not self._look(handle, deadline, False):
                    raise TimeoutExpired(self.pid, timeout)
                settled(lambda: self._reap(handle), self._reap(handle), deadline)
        if self.reaped:
            self._release()
        return self._exitcode

    def _look(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        return self.reaped or super()._look(handle, deadline, False)

    def _reap(self, handle: "Handle") -> "Outcome":
        outcome = handle.look(True)
        if outcome is not RUNNING and outcome is not PENDING:
            self._note(outcome)
            self.usage = self.usage or handle.usage
            self.reaped = True
        return outcome

    def fileno(self) -> int:
        with self._shared.use() as handle:
            self._check_open()
            if self.reaped:
                raise UnsupportedOperation("a reaped child has no fileno")
            return handle.fileno()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Release the handle, as Process.close() does. Reap the child now if it has exited,
        otherwise later."""
        with self._shared.use() as handle:
            if not (self.reaped or self._is_closed or self._shared.is_copy()):
                if self._look(handle, NOW, False):
                    self._reap(handle)
                if not self.reaped:
                    _leave(self.pid)
        super().close()

    def __exit__(self, *exc_info: object) -> None:
        try:
            # The child got Ctrl-C, too: give it a moment to end.
            self.wait(0.25 if KeyboardInterrupt in exc_info else None)
        except not_by_handler(TimeoutExpired):
            log("pid %s is still running after Ctrl-C; it is reaped later", self.pid)
        finally:
            self.close()


def _own(pid: int, args: "Any") -> Child:
    """The Child for a process that has just been started."""
    child = Child.__new__(Child)
    child.args = args
    try:
        child._start(open_handle(pid))
    except Failed as why:
        if why.errno != ESRCH:
            raise why.as_error("open", pid) from None
        # It has been reaped: SIGCHLD is ignored, or other code waits for all children.
        handle = Handle()
        handle.pid = pid
        child._start(handle)
        child._exited = child.reaped = True
        child._release()
    return child


# Handles on children that were closed while running.
_left: "dict[Handle, None]" = {}
_looking: "dict[Handle, object]" = {}  # the call that is looking at the handle


def _leave(pid: int) -> None:
    """Have a child reaped later; there is no Child object for it any more."""
    try:
        _left[open_handle(pid)] = None
    except Failed as why:  # somebody else has reaped it
        log("pid %s: %s", pid, why)


def _reap_left() -> None:
    me = object()
    for handle in list(_left):
        try:
            # The handle stays in _left until the child has been reaped: a signal handler may raise.
            is_ours = _looking.setdefault(handle, me) is me and handle in _left
            if is_ours and handle.look(True) not in (RUNNING, PENDING):
                _left.pop(handle, None)
                handle.close()
        finally:
            if _looking.get(handle) is me:
                _looking.pop(handle, None)
