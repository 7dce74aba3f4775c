# SPDX-License-Identifier: BSD-3-Clause
"""A start by posix_spawn, as subprocess would do it: for spawn and for Popen.

What posix_spawn can't do raises Unable here: the standard library's own code has to do it.
"""

import os
import sys
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
from ._base.errors import Failed, call, log
from ._base.probe import works
from ._spawn_actions import DEVNULL, Structure, Unable
from ._systems.calls import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping, Sequence

    from ._spawn_actions import Stdio

_AS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_SLASH = ord("/")
_KEPT = 16  # how many structures are kept for later starts
# Errors of execve(2) that are about the program; nothing else in the child raises them.
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
    """What a start needs: arguments as Popen has them, encoded for execve(2).

    ``stdio`` is what the child gets as 0, 1 and 2: file descriptors, INHERIT or DEVNULL.
    ``group`` is -1 for none. Raises TypeError or ValueError for what can't be encoded.
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
        # As os.fsencode() does it.
        argv = [each.encode(*_AS) if type(each) is str else os.fsencode(each) for each in args]
        self.argv = argv
        self.executable = argv[0] if executable is args[0] else os.fsencode(executable)
        self.env = env
        self.cwd = None if cwd is None else os.fsencode(cwd)
        if 0 in b"".join(argv) + self.executable + (self.cwd or b""):
            raise ValueError("embedded null byte")
        self.named = executable, cwd  # as they were given, for errors
        passed = tuple(sorted(set(map(int, pass_fds)))) if pass_fds else ()
        # What the file actions depend on, and what the attributes depend on.
        self.actions = self.cwd, stdio, bool(close_fds), passed
        self.attributes = group, bool(session), bool(restore_signals)
        # start() sets these: why posix_spawn can't do it, and whether setpgid(2) failed.
        self.refusal = ""
        self.group_is_refused = False
        # posix_spawn puts the pid here, before any Python code runs.
        self.started: "Sequence[int]" = (0,)


class Environment:
    """The environment for execve(2), and the folders in its PATH; kept for equal mappings."""

    def __init__(self, snapshot: "dict[Any, Any]") -> None:
        items = []
        for key, value in snapshot.items():
            key = os.fsencode(key)
            if b"=" in key:
                raise ValueError("illegal environment variable name")
            items.append(key + b"=" + os.fsencode(value))
        if 0 in b"".join(items):
            raise ValueError("embedded null byte")
        self.snapshot = snapshot
        self.block = native("spawn_strings")(items)
        self._path: "list[bytes] | None" = None

    def path(self) -> "list[bytes]":
        """The folders in which to look for a program. A bad PATH raises only when this is used."""
        if self._path is None:
            self._path = [os.fsencode(folder) for folder in os.get_exec_path(self.snapshot)]
        return self._path


class Starter:
    """Starts processes, with one binding, and keeps what can serve later starts."""

    def __init__(self, posix_spawn: "Any") -> None:
        self.posix_spawn = posix_spawn
        self._strings = native("spawn_strings")
        self._cell = native("spawn_cell")
        self._has_closefrom = _spawn_actions.has_closefrom()
        self._has_cloexec_default = not self._has_closefrom and _spawn_actions.has_cloexec_default()
        self._structures: "dict[Any, tuple[Structure, Structure]]" = {}
        self._environments: "dict[bool, Environment]" = {}

    def start(self, request: Request) -> int:
        """Start a process; return its pid. Raises Unable, or what start() below raises."""
        environment = self._environment(request.env)
        argv = self._strings(request.argv)
        actions, attributes = self._structures_for(request)
        request.started = cell = self._cell()
        first = error = ENOENT
        candidates = [request.executable]
        # A byte, as to look for bytes costs an exception inside the interpreter.
        if _SLASH not in request.executable:
            candidates = [os.path.join(folder, request.executable) for folder in environment.path()]
        for path in candidates:
            error = 0
            if len(candidates) > 1:
                error = _missing(os.path.join(request.cwd or b"", path))
            if not error:
                error = self.posix_spawn(
                    cell, path, actions.pointer, attributes.pointer, argv, environment.block
                )
                if not error:
                    return cell[0]  # type: ignore[no-any-return]
                if error not in _OF_THE_PROGRAM:
                    request.group_is_refused = _is_of_group(error, request)
                    raise Unable("posix_spawn: " + os.strerror(error))
            # As in subprocess: the first error that is not just "not found" counts.
            if first in (ENOENT, ENOTDIR):
                first = error
        raise _blame(first, request)

    def _environment(self, env: "Mapping[Any, Any] | None") -> Environment:
        own = env is None
        mapping: "Mapping[Any, Any]" = os.environ if env is None else env
        # The bytes behind os.environ: comparing them takes 1 µs, reading os.environ takes 30.
        data = getattr(os.environ, "_data", mapping) if own else mapping
        known = self._environments.get(own)
        # With python -bb it is an error to compare mappings with str and with bytes as keys.
        if known is not None and (own or not sys.flags.bytes_warning) and known.snapshot == data:
            return known
        built = Environment(dict(data.items()))
        # Other objects, such as paths, may compare equal though they have changed.
        if {type(value) for value in built.snapshot.values()} <= {str, bytes}:
            self._environments[own] = built
        return built

    def _structures_for(self, request: Request) -> "tuple[Structure, Structure]":
        close_fds = request.actions[2]
        limit: "int | None" = 0
        if close_fds and not self._has_closefrom:
            limit = None if self._has_cloexec_default else _spawn_actions.fd_limit()
        wanted = limit, request.actions, request.attributes
        found = self._structures.get(wanted)
        if found is None:
            actions = _spawn_actions.build_actions(*request.actions, limit)
            found = actions, _spawn_actions.build_attributes(*request.attributes, limit is None)
            if len(self._structures) >= _KEPT:
                self._structures.clear()
            self._structures[wanted] = found
        return found


def _missing(path: bytes) -> int:
    """The errno if there is no file at the path, else 0: quicker than starting a process."""
    try:
        call(os.stat, path)
    except Failed as why:
        return why.errno
    return 0


def _is_of_group(error: int, request: Request) -> bool:
    """Whether setpgid(2) failed: the group is in another session, or the child leads one."""
    group, session, _ = request.attributes
    return error == EPERM and (group > 0 or (group == 0 and session))


def _blame(error: int, request: Request) -> OSError:
    """The error, with the program or cwd as its filename: posix_spawn does not tell which."""
    if DEVNULL in request.actions[1] and not os.access(os.devnull, os.R_OK | os.W_OK):
        raise Unable("%s can't be opened" % os.devnull)
    _, stdio, _, passed = request.actions
    for fd in stdio + passed:
        if fd >= 0 and not _is_open(fd):  # then it was dup2(2) that failed
            raise Unable("file descriptor %d is not open" % fd)
    program, folder = request.named
    if request.cwd is not None:
        # This needs the same rights on the directory as chdir(2).
        caught = _missing(request.cwd and os.path.join(request.cwd, b"."))
        if caught:
            return OSError(caught, os.strerror(caught), folder)
    return OSError(error, os.strerror(error), program)


def _is_open(fd: int) -> bool:
    try:
        call(os.fstat, fd)
    except Failed:
        return False
    return True


_starters: "list[Starter]" = []


def is_whole() -> bool:
    """Whether the system's library has all that posix_spawn can have."""
    closes = _spawn_actions.has_closefrom() or _spawn_actions.has_cloexec_default()
    others = (check for name, _, check in _spawn_actions.CHECKS if name != "addclosefrom_np")
    return all(map(works, others)) and closes


def start(request: Request) -> "int | None":
    """Start a process; return its pid, or None where posix_spawn can't do it here.

    Raises the system's OSError; its filename is the program or the working directory, as it
    was given. Raises ValueError or TypeError for invalid arguments.
    """
    try:
        try:
            posix_spawn = native("posix_spawn")
            # Structures can be used only by the binding that made them.
            if not _starters or _starters[0].posix_spawn is not posix_spawn:
                _spawn_actions.check()
                _starters[:] = [Starter(posix_spawn)]
        except Failed as why:
            raise Unable(str(why.error.strerror)) from None
        return _starters[0].start(request)
    except Unable as why:
        log("%r is started by the standard library: %s", request.named[0], why)
        request.refusal = str(why)
        return None
