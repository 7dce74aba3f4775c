# SPDX-License-Identifier: BSD-3-Clause
"""Starting a process by posix_spawn: at a cost that grows neither with the heap nor the threads."""

import os
from io import UnsupportedOperation

from . import _backends
from ._deadline import NOW, Deadline, poll
from ._errors import log, no_such_process
from ._fork import Creator
from ._outcome import RUNNING, NotYet
from ._targets import check_pid
from .process import Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Iterable, Mapping, Sequence, Union  # novm

    from ._backends.contract import Handle

    Path = Union[str, bytes, "os.PathLike[Any]"]

# As in the standard library's subprocess.
_PIPE, _STDOUT, _DEVNULL = -1, -2, -3
_INHERIT = -1
# How long a `with` block that Ctrl-C ends waits for the child, which got it, too.
_AFTER_CTRL_C = 0.25


class Child(Process):
    """A child of this process, which it reaps: spawn() returns one, Child(pid) takes one over.

    A wait() that sees the exit has reaped it, whether by this object or by the
    functions that take one. The end of a ``with`` block waits, as Popen's does. A child
    closed while running is reaped by the first spawn() after it exits. In a forked child
    it is a copy, which waits as a Process does.

    ``args`` is what it was started with. ``exitcode``, signals and all else are as in
    Process.
    """

    args: "Any" = None

    def _start(self, handle: "Handle") -> None:
        super()._start(handle)
        self.reaped = False  # by which other copies of this package know a Child, too
        # Who reaps, if anybody does: by the pid it must not be reaped twice.
        self._reaper: "dict[str, object]" = {}
        self._parent = Creator()

    def wait(self, timeout: "float | None" = None, reap: bool = True) -> "int | None":
        """Wait until it has exited, and reap it; return the exit code. ``reap`` is ignored.

        TimeoutExpired if it is still running after ``timeout`` seconds.
        """
        return super().wait(timeout, self._parent.is_me())

    def _is_done(self, reap: bool) -> bool:
        return self.reaped or super()._is_done(reap)

    def _look(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        # Of two threads that wait, each has looked, or can see what the other saw
        # before it reaped.
        if self.reaped:
            return True
        if self._exitcode is None and not self._see(handle, deadline, False):
            return False
        if not reap or self._reap(handle):
            return True
        return poll(lambda: self._reap(handle), deadline)

    def _reap(self, handle: "Handle") -> bool:
        """Whether it has been reaped: not yet if a tracer holds it, or another thread is at it."""
        me = object()
        try:
            try:
                if self._reaper.setdefault("is", me) is me and not self.reaped:
                    code = handle.wait(NOW, True)
                    if self._exitcode is None and code is not RUNNING:
                        self._exitcode = code
                    self._exited = self.reaped = True
            finally:
                self._end_reaping(me)
        except NotYet:
            return False
        finally:  # Ctrl-C may come anywhere, before the other one, too
            self._end_reaping(me)
        return self.reaped

    def _end_reaping(self, me: object) -> None:
        if self._reaper.get("is") is me:
            del self._reaper["is"]

    def close(self) -> None:
        """Give the handle back; a child that has exited is reaped, another one later.

        From then on, all but the attributes is a ValueError, and wait() and has_exited() if
        they have seen the exit.
        """
        if not self.reaped and not self._guard.closed and self._parent.is_me():
            self._leave()
        super().close()

    def _leave(self) -> None:
        with self._guard as handle:
            if self._look(handle, NOW, False) and self._reap(handle):
                return
            pid = handle.pid
            try:
                if pid is not None:
                    _left.append(_backends.open_handle(pid))
            except ProcessLookupError as error:  # somebody else has reaped it
                log("pid %s: %s", pid, error)

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        value: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        try:
            self.wait(_AFTER_CTRL_C if kind is KeyboardInterrupt else None)
        except TimeoutError:
            log("pid %s was left running by Ctrl-C", self.pid)
        finally:
            self.close()


class Gone:
    """The handle on a child that was reaped before there could be one.

    So it is where SIGCHLD is ignored, or somebody waits for all children.
    """

    backend = "polling"
    is_child = True

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self, deadline: Deadline, reap: bool) -> None:
        return None

    def send_signal(self, sig: int) -> None:
        raise no_such_process(self.pid)

    def fileno(self) -> int:
        raise UnsupportedOperation("a process that is gone has no fileno")

    def identify(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""


# Handles of our children that were closed while running.
_left: "list[Handle]" = []


def _reap_left() -> None:
    for _ in range(len(_left)):
        try:
            handle = _left.pop(0)
        except IndexError:  # another thread was quicker
            return
        try:
            running = handle.wait(NOW, True) is RUNNING
        except NotYet:
            running = True
        if running:
            _left.append(handle)
        else:
            handle.close()


def spawn(
    args: "Path | Sequence[Path]",
    env: "Mapping[Any, Any] | None" = None,
    cwd: "Path | None" = None,
    stdin: "Any" = None,
    stdout: "Any" = None,
    stderr: "Any" = None,
    process_group: "int | None" = None,
    start_new_session: bool = False,
    close_fds: bool = True,
    pass_fds: "Iterable[int]" = (),
) -> Child:
    """Start a program by posix_spawn(3); return its Child.

    ``args`` is the program and its arguments, or the program alone. A name without a
    slash is looked for in the PATH of ``env``, or of os.environ. ``stdin``, ``stdout``
    and ``stderr`` are a file descriptor, an object with a fileno(), or subprocess's
    DEVNULL; stderr can be its STDOUT. ``process_group`` 0 makes a new process group
    with the child's pid as its number, another number joins that one; on Windows 0 is
    CREATE_NEW_PROCESS_GROUP. ``pass_fds`` stay open in the child, with ``close_fds``
    nothing else but 0, 1 and 2. Signals that Python ignores are back at their default.

    Other threads of this interpreter run while the child starts. What the system's
    library can't do by posix_spawn is done by the standard library's subprocess.

    Raises the OSError that subprocess would, with the name of the program or of
    ``cwd``; TypeError and ValueError for invalid arguments.
    """
    argv = _argv(args)
    _check(env, process_group, start_new_session)
    stdio = (_file("stdin", stdin), _file("stdout", stdout), _file("stderr", stderr))
    passed = tuple(sorted({_fd("pass_fds", fd) for fd in pass_fds})) if pass_fds else ()
    if passed and not close_fds:
        raise ValueError("pass_fds needs close_fds")
    if _left:
        _reap_left()
    request = None
    if os.name != "nt":
        from . import _posix_spawn

        out = 1 if stdio[1] == _INHERIT else stdio[1]
        request = _posix_spawn.Request(
            args=argv,
            executable=argv[0],
            env=env,
            cwd=cwd,
            stdio=(stdio[0], stdio[1], out if stdio[2] == _STDOUT else stdio[2]),
            close_fds=close_fds,
            pass_fds=passed,
            group=-1 if process_group is None else process_group,
            session=start_new_session,
        )
        pid = _posix_spawn.start(request)
        if pid is not None:
            return _child(pid, args)
    from . import subprocess

    popen: "Any" = subprocess.Popen.__new__(subprocess.Popen)
    popen._refused = request  # posix_spawn is not asked again
    popen.__init__(  # novm
        argv,
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        process_group=process_group,
        start_new_session=start_new_session,
        close_fds=close_fds,
        pass_fds=passed,
    )
    child = _child(popen.pid, args)
    popen.returncode = 0  # it is not the Popen's any more
    return child


def _child(pid: int, args: "Any") -> Child:
    child = Child.__new__(Child)
    child.args = args
    handle: "Handle"
    try:
        handle = _backends.open_handle(pid)
    except ProcessLookupError:
        handle = Gone(pid)
    handle.is_child = True
    child._start(handle)
    return child


def _argv(args: "Any") -> "list[Any]":
    if isinstance(args, (str, bytes)) or hasattr(args, "__fspath__"):
        return [args]
    try:
        argv = list(args)
    except TypeError:
        raise TypeError(
            "args must be a program or a sequence, not %s" % type(args).__name__
        ) from None
    if not argv:
        raise ValueError("args must not be empty")
    return argv


def _check(env: "Any", process_group: "Any", start_new_session: bool) -> None:
    if env is not None and not hasattr(env, "items"):
        raise TypeError("env must be a mapping, not %s" % type(env).__name__)
    if process_group is None:
        return
    if process_group != 0 or isinstance(process_group, bool):
        check_pid(process_group, "process_group")
    elif not isinstance(process_group, int):
        raise TypeError("process_group must be an int, not %s" % type(process_group).__name__)
    if start_new_session:
        raise ValueError("process_group can't be combined with start_new_session")


def _file(name: str, value: "Any") -> int:
    """A file descriptor, or what stands for one."""
    if value is None:
        return _INHERIT
    if not isinstance(value, int):
        if not hasattr(value, "fileno"):
            raise TypeError("%s must be a file descriptor, a file or DEVNULL" % name)
        value = value.fileno()
    elif value == _DEVNULL or (value == _STDOUT and name == "stderr"):
        return value
    elif value == _PIPE:
        raise ValueError("%s: spawn makes no pipes; give an end of os.pipe(), or use Popen" % name)
    return _fd(name, value)


def _fd(name: str, value: "Any") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("%s must be a file descriptor, not %s" % (name, type(value).__name__))
    if not 0 <= value < 2**31:
        raise ValueError("%s is no file descriptor: %d" % (name, value))
    return value
