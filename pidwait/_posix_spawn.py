# SPDX-License-Identifier: BSD-3-Clause
"""A start by posix_spawn, as subprocess would do it: for spawn and for Popen.

What can't be done here is Unable: the standard library's own code is for it.
"""

import os
from errno import (
    E2BIG,
    EACCES,
    EISDIR,
    ELOOP,
    ENAMETOOLONG,
    ENOENT,
    ENOEXEC,
    ENOTDIR,
    EPERM,
    ETXTBSY,
)

from . import _spawn_actions
from ._errors import log
from ._ffi import calls
from ._spawn_actions import DEVNULL, Structure, Unable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Sequence

    from ._spawn_actions import Stdio

_KEPT = 16  # of each kind of what is built once
# What execve(2) says of the program, and nothing else in the child would.
_OF_THE_PROGRAM = (
    E2BIG,
    EACCES,
    EISDIR,
    ELOOP,
    ENAMETOOLONG,
    ENOENT,
    ENOEXEC,
    ENOTDIR,
    ETXTBSY,
)


class Request:
    """What a start needs, from arguments as Popen has them, encoded for execve(2).

    ``stdio`` has what the child gets as 0, 1 and 2: file descriptors, INHERIT or DEVNULL.
    ``group`` is -1 for none. TypeError or ValueError for what can't be encoded.
    """

    def __init__(
        self,
        args: "Sequence[Any]",
        executable: "Any",
        env: "Mapping[Any, Any] | None",
        cwd: "Any",
        stdio: "Stdio",
        close_fds: "Any",
        pass_fds: "Iterable[Any]",
        group: int,
        session: "Any",
        restore_signals: "Any" = True,
    ) -> None:
        self.argv = [os.fsencode(arg) for arg in args]
        self.executable = os.fsencode(executable)
        self.env = env
        self.cwd = None if cwd is None else os.fsencode(cwd)
        self.named = executable, cwd  # for errors: as they were given
        self.stdio = stdio
        self.close_fds = bool(close_fds)
        passed = tuple(sorted(set(map(int, pass_fds))))
        # All that the file actions depend on, and all that the attributes do.
        self.actions = (self.cwd, stdio, self.close_fds, passed)
        self.attributes = (group, bool(session), bool(restore_signals))
        self.group_is_refused = False  # by setpgid(2): start() tells


class Environment:
    """The block for execve(2), and where it says programs are; built once for equal mappings."""

    def __init__(self, snapshot: "dict[Any, Any]") -> None:
        items = []
        for key, value in snapshot.items():
            key = os.fsencode(key)
            if b"=" in key:
                raise ValueError("illegal environment variable name")
            items.append(key + b"=" + os.fsencode(value))
        self.snapshot = snapshot
        self.block = calls.get("spawn_strings")(items)
        self.path = [os.fsencode(folder) for folder in os.get_exec_path(snapshot)]


class Starter:
    """What is built once, by one binding."""

    def __init__(self, posix_spawn: "Any") -> None:
        self.posix_spawn = posix_spawn
        self._strings = calls.get("spawn_strings")
        self._has_closefrom = _spawn_actions.has_closefrom()
        self._actions: "dict[Any, Structure]" = {}
        self._attributes: "dict[Any, Structure]" = {}
        self._environments: "dict[bool, Environment]" = {}

    def start(self, request: Request) -> int:
        """The pid; Unable, or what start() below raises."""
        environment = self._environment(request.env)
        argv = self._strings(request.argv)
        if b"\0" in request.executable + (request.cwd or b""):
            raise ValueError("embedded null byte")
        actions, attributes = self._structures(request)
        first = error = ENOENT
        candidates = _candidates(request.executable, environment.path)
        for path in candidates:
            error = 0
            if len(candidates) > 1:
                error = _missing(os.path.join(request.cwd or b"", path))
            if not error:
                error, pid = self.posix_spawn(
                    path, actions.pointer, attributes.pointer, argv, environment.block
                )
                if not error:
                    return pid  # type: ignore[no-any-return]
                if error not in _OF_THE_PROGRAM:
                    request.group_is_refused = _is_of_group(error, request)
                    raise Unable("posix_spawn: " + os.strerror(error))
            # As in subprocess: the first error that tells more than that it is not there.
            if first in (ENOENT, ENOTDIR):
                first = error
        raise _blame(first, request)

    def _environment(self, env: "Mapping[Any, Any] | None") -> Environment:
        own = env is None
        mapping: "Mapping[Any, Any]" = os.environ if env is None else env
        # The bytes behind os.environ: to compare them takes 1 µs, to read them 30.
        data = getattr(os.environ, "_data", mapping) if own else mapping
        known = self._environments.get(own)
        if known is not None and known.snapshot == data:
            return known
        built = Environment(dict(data))
        # Other objects, such as a path, may be equal and have changed.
        if {type(value) for value in built.snapshot.values()} <= {str, bytes}:
            self._environments[own] = built
        return built

    def _structures(self, request: Request) -> "tuple[Structure, Structure]":
        by_list = request.close_fds and not self._has_closefrom
        wanted = request.actions + (_spawn_actions.fd_limit() if by_list else 0,)
        actions = self._actions.get(wanted)
        if actions is None:
            actions = _keep(self._actions, wanted, _spawn_actions.build_actions(*wanted))
        attributes = self._attributes.get(request.attributes)
        if attributes is None:
            built = _spawn_actions.build_attributes(*request.attributes)
            attributes = _keep(self._attributes, request.attributes, built)
        return actions, attributes


def _keep(kept: "dict[Any, Structure]", key: "Any", built: Structure) -> Structure:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = built
    return built


def _missing(path: bytes) -> int:
    """The error of a path that leads to no file: to start a process for it takes longer."""
    try:
        os.stat(path)
    except OSError as error:
        return error.errno or 0
    return 0


def _candidates(executable: bytes, path: "list[bytes]") -> "list[bytes]":
    if b"/" in executable:
        return [executable]
    return [os.path.join(folder, executable) for folder in path]


def _is_of_group(error: int, request: Request) -> bool:
    """Whether setpgid(2) failed: a group elsewhere, or the child leads a session."""
    group, session, _ = request.attributes
    return error == EPERM and (group > 0 or (group == 0 and session))


def _blame(error: int, request: Request) -> OSError:
    """The error of the program or of the working directory: posix_spawn does not tell which."""
    if DEVNULL in request.stdio and not os.access(os.devnull, os.R_OK | os.W_OK):
        raise Unable("%s can't be opened" % os.devnull)
    program, folder = request.named
    if request.cwd is not None:
        # Needs of the directory what chdir(2) needs.
        caught = _missing(os.path.join(request.cwd, b"."))
        if caught:
            return OSError(caught, os.strerror(caught), folder)
    return OSError(error, os.strerror(error), program)


_starters: "list[Starter]" = []


def _starter() -> Starter:
    try:
        posix_spawn = calls.get("posix_spawn")
        # Structures are of the binding that made them.
        if not _starters or _starters[0].posix_spawn is not posix_spawn:
            _spawn_actions.check()
            _starters[:] = [Starter(posix_spawn)]
    except OSError as error:
        raise Unable(str(error.strerror)) from None
    return _starters[0]


def start(request: Request) -> "int | None":
    """Start a process; return its pid, or None where posix_spawn can't do it here.

    Raises the system's OSError, with the program or the working directory for its
    filename, as they were given; ValueError and TypeError for invalid arguments.
    """
    try:
        return _starter().start(request)
    except Unable as why:
        log("%r is started by the standard library: %s", request.named[0], why)
        return None
