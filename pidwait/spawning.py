# SPDX-License-Identifier: BSD-3-Clause
"""Starting a process by posix_spawn: the cost grows neither with the heap nor with the threads."""

import os
from errno import ENOSYS

from . import _child, _systems
from ._child import Child
from ._waiting.owners import check_pid

if os.name != "nt":
    from . import _posix_spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Protocol, Sequence, Union  # novm

    from ._child import Path

    class HasFileno(Protocol):  # novm
        def fileno(self) -> int: ...

    Env = Union[Mapping[str, Path], Mapping[bytes, Path]]
    File = Union[int, HasFileno]

# As in the standard library's subprocess.
_PIPE, _STDOUT, _DEVNULL = -1, -2, -3
_INHERIT = -1
_ALL_INHERITED = _INHERIT, _INHERIT, _INHERIT


def spawn(
    args: "Path | Sequence[Path]",
    env: "Env | None" = None,
    cwd: "Path | None" = None,
    stdin: "File | None" = None,
    stdout: "File | None" = None,
    stderr: "File | None" = None,
    process_group: "int | None" = None,
    start_new_session: bool = False,
    close_fds: bool = True,
    pass_fds: "Iterable[int]" = (),
) -> Child:
    """Start a program by posix_spawn(3); return its Child.

    ``args`` is the program and its arguments, or the program alone. A name without a slash is
    searched in the PATH of ``env``, or of os.environ. ``stdin``, ``stdout`` and ``stderr`` are
    file descriptors, objects with a fileno(), or subprocess.DEVNULL; stderr can also be
    subprocess.STDOUT. ``process_group`` 0 makes a new group (CREATE_NEW_PROCESS_GROUP on
    Windows), a higher number joins that group: setpgid(2). With ``close_fds`` the child keeps
    only 0, 1, 2 and ``pass_fds``. Signals that Python ignores have their default action.

    Other threads of this interpreter run while the child starts. What posix_spawn can't do
    on this system is left to the standard library's subprocess.

    Raises the OSError that subprocess would, with the name of the program or of ``cwd``;
    TypeError and ValueError for invalid arguments.

    >>> import sys
    >>> with spawn([sys.executable, "-c", "raise SystemExit(3)"]) as child:
    ...     child.wait(timeout=60)
    3
    """
    argv = args if type(args) is list and args else _argv(args)
    if env is not None and not hasattr(env, "items"):
        raise TypeError("env must be a mapping, not %s" % type(env).__name__)
    group = -1 if process_group is None else _group(process_group, start_new_session)
    stdio = _ALL_INHERITED
    if stdin is not None or stdout is not None or stderr is not None:
        stdio = _file("stdin", stdin), _file("stdout", stdout), _file("stderr", stderr)
    passed = sorted({_fd("pass_fds", fd) for fd in pass_fds}) if pass_fds else ()
    if passed and not close_fds:
        raise ValueError("pass_fds needs close_fds")
    if _child.left:
        _child.reap_left()
    if not _prepared:
        _prepare()
    _systems.backend()  # it may raise: do that before there is a child
    request = None
    if os.name != "nt":
        if stdio[2] == _STDOUT:
            stdio = stdio[:2] + (1 if stdio[1] == _INHERIT else stdio[1],)
        request = _posix_spawn.Request(
            argv, argv[0], env, cwd, stdio, close_fds, passed, group, start_new_session
        )
        try:
            pid = _posix_spawn.start(request)
            if pid is not None:
                return _child.own(pid, args)
        except BaseException:
            # A signal handler may have raised. The caller never gets the child, so it is reaped
            # like a Child that was closed while running.
            if request.started[0]:
                _child.leave(request.started[0])
            raise
    try:
        from . import subprocess
    except ImportError as error:
        why = "posix_spawn can't do it (%s), and subprocess can't be imported: %s"
        raise OSError(ENOSYS, why % (request and request.refusal, error)) from error
    popen: "Any" = subprocess.Popen.__new__(subprocess.Popen)
    popen._refused = request  # so that posix_spawn is not tried again
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
    child = _child.own(popen.pid, args)
    popen.returncode = 0  # so that the Popen does not reap the child
    return child


_prepared: "list[bool]" = []


def _prepare() -> None:
    """Load what a later start may need: the program may have changed its root by then."""
    is_whole = False
    if os.name != "nt":
        is_whole = _posix_spawn.is_whole()
    if not is_whole:
        from . import subprocess

        subprocess.load()
    _prepared.append(True)


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


def _group(process_group: "Any", start_new_session: bool) -> int:
    if start_new_session:
        raise ValueError("process_group can't be combined with start_new_session")
    if process_group == 0 and isinstance(process_group, int) and process_group is not False:
        return 0
    return check_pid(process_group, "process_group")


def _file(name: str, value: "Any") -> int:
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
    return _fd(name, value)


def _fd(name: str, value: "Any") -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("%s must be a file descriptor, not %s" % (name, type(value).__name__))
    if not 0 <= value < 2**31:
        raise ValueError("%s is not a file descriptor: %d" % (name, value))
    return value
