# SPDX-License-Identifier: BSD-3-Clause
"""posix_spawn, as subprocess would start a process, on whatever the system's library has.

posix_spawn                 everywhere; glibc 2.24 tells a failed exec
..._addchdir_np             glibc 2.29, musl 1.1.24
..._addclosefrom_np         glibc 2.34; before it, a list of all file descriptors to close
POSIX_SPAWN_SETSID          glibc 2.26, musl 1.1.17

What can't be done here is Unable: the standard library's own code is for it.
"""

# signal without its enums, which take longer to load than all of this.
import _signal  # type: ignore[import-not-found]
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
    ENOSYS,
    ENOTDIR,
    ETXTBSY,
)

from . import _probe
from ._ffi import calls, libc_spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping, NamedTuple, Optional, Tuple  # novm

    class Request(NamedTuple):
        argv: "list[bytes]"
        executable: bytes
        env: "Optional[Mapping[Any, Any]]"
        cwd: "Optional[bytes]"
        stdio: "Tuple[int, int, int]"
        close_fds: bool
        pass_fds: "Tuple[int, ...]"
        group: int
        session: bool
        restore_signals: bool

else:
    from collections import namedtuple

    # stdio: file descriptors for 0, 1 and 2, or INHERIT, or DEVNULL; group: -1 for none.
    Request = namedtuple(
        "Request",
        "argv executable env cwd stdio close_fds pass_fds group session restore_signals",
    )

INHERIT = -1
DEVNULL = -3  # as in subprocess

# An fd above it is not worth a list of all below: the list takes 32 bytes for each.
_LONGEST_LIST = 4096
_INT_MAX = 2**31 - 1
_KEPT = 16  # of each kind of what is built once
# Only there a file action may close what is not open: glibc ignores EBADF below the
# limit, musl all errors.
_CLOSES_ANYTHING = sys.platform == "linux"
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


class Unable(Exception):
    """posix_spawn can't do it here; says why, and the error number if there is one."""

    def __init__(self, why: str, errno: int = 0) -> None:
        super().__init__(why)
        self.errno = errno


class NotStarted(OSError):
    """The system's error; ``of_cwd`` tells whether it is of the working directory."""

    of_cwd = False


class Structure:
    """An opaque structure of the library, initialised, and destroyed with its last user."""

    __slots__ = ("_destroy", "pointer")

    def __init__(self, kind: str) -> None:
        destroy = calls.get(kind + "_destroy")
        pointer = calls.get("spawn_memory")()
        _check(calls.get(kind + "_init")(pointer))
        self.pointer = pointer
        self._destroy = destroy

    def __del__(self) -> None:
        if hasattr(self, "_destroy"):
            self._destroy(self.pointer)


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
        self._has_closefrom = _probe.works(check_closefrom)
        self._actions: "dict[Any, Structure]" = {}
        self._attributes: "dict[Any, Structure]" = {}
        self._environments: "dict[bool, Environment]" = {}

    def start(self, request: Request) -> int:
        """The pid; NotStarted, or Unable, or ValueError and TypeError for what is none."""
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
                    raise Unable("posix_spawn: " + os.strerror(error), error)
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
        limit = 0 if self._has_closefrom or not request.close_fds else _limit()
        # All that they depend on.
        key: "tuple[object, ...]" = request[3:7] + (limit,)
        actions = self._actions.get(key)
        if actions is None:
            actions = _keep(self._actions, key, _build_actions(request, limit))
        key = request[7:]
        attributes = self._attributes.get(key)
        if attributes is None:
            attributes = _keep(self._attributes, key, _build_attributes(*request[7:]))
        return actions, attributes


def _keep(kept: "dict[Any, Structure]", key: "Any", built: Structure) -> Structure:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = built
    return built


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


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


def _blame(error: int, request: Request) -> NotStarted:
    """Who the error is of: posix_spawn does not tell."""
    if DEVNULL in request.stdio and not os.access(os.devnull, os.R_OK | os.W_OK):
        raise Unable("%s can't be opened" % os.devnull)
    caught = None
    if request.cwd is not None:
        # Needs of the directory what chdir(2) needs.
        caught = _missing(os.path.join(request.cwd, b"."))
    failure = NotStarted(caught or error, os.strerror(caught or error))
    failure.of_cwd = bool(caught)
    return failure


def _limit() -> int:
    """Below which all file descriptors are to be closed one by one, without closefrom."""
    limit = os.sysconf("SC_OPEN_MAX")
    if not _CLOSES_ANYTHING or not 0 < limit <= _LONGEST_LIST:
        raise Unable("without closefrom, and with a limit of %d file descriptors" % limit)
    # The limit may have fallen since an fd was opened; a new one can't be above it.
    try:
        highest = max(map(int, os.listdir("/proc/self/fd")))
    except OSError as error:
        raise Unable("/proc/self/fd: %s" % error) from None
    if highest >= limit:
        raise Unable("file descriptor %d is above the limit" % highest)
    return limit


def _build_actions(request: Request, limit: int) -> Structure:
    structure = Structure("posix_spawn_file_actions")

    def add(name: str, *arguments: "Any") -> None:
        error = calls.get("posix_spawn_file_actions_" + name)(structure.pointer, *arguments)
        if error:  # EBADF for what is above the limit
            raise Unable("%s%r: %s" % (name, arguments, os.strerror(error)))

    if request.cwd is not None:
        if not _probe.works(check_chdir):
            raise Unable("no addchdir_np")
        add("addchdir_np", request.cwd)
    used = set(request.stdio + request.pass_fds)
    if not DEVNULL <= min(used) <= max(used) <= _INT_MAX:
        raise Unable("%s is no file descriptor" % sorted(used))
    spares = (fd for fd in range(3, sys.maxsize) if fd not in used)

    def spare() -> int:
        # A number that is free in the child: all but those in use will be closed.
        if not request.close_fds:
            raise Unable("no number is known to be free")
        return next(spares)

    sources = list(request.stdio)
    for target, source in enumerate(sources):
        # It would be overwritten before its turn; or stay close-on-exec, as dup2 to
        # itself does nothing about that before glibc 2.29.
        if 0 <= source <= 2 and (source == target or sources[source] != INHERIT):
            sources[target] = spare()
            add("adddup2", source, sources[target])
    for target, source in enumerate(sources):
        if source == DEVNULL:
            add("addopen", target, os.fsencode(os.devnull), os.O_RDWR, 0)
        elif source != INHERIT:
            add("adddup2", source, target)
    if request.close_fds:
        passed = [fd for fd in request.pass_fds if fd > 2 or request.stdio[fd] == INHERIT]
        if passed:
            free = spare()
            for fd in passed:
                add("adddup2", fd, free)
                add("adddup2", free, fd)
        for fd in _others(passed, limit):
            add("addclose", fd)
        if not limit:
            add("addclosefrom_np", max(passed + [2]) + 1)
    return structure


def _others(passed: "list[int]", limit: int) -> "Iterator[int]":
    """The numbers to be closed one by one."""
    end = limit or max(passed + [2])
    if end > _LONGEST_LIST:
        raise Unable("file descriptor %d is to be passed" % end)
    if end > 3 and not _CLOSES_ANYTHING:
        raise Unable("pass_fds")
    return (fd for fd in range(3, end) if fd not in passed)


def _build_attributes(group: int, session: bool, restore_signals: bool) -> Structure:
    structure = Structure("posix_spawnattr")
    flags = libc_spawn.USEVFORK
    if restore_signals:
        flags |= libc_spawn.SETSIGDEF or 0
        signals = calls.get("spawn_memory")()
        calls.get("sigemptyset")(signals)
        for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ"):  # what Python itself ignores
            if hasattr(_signal, name):
                _check(calls.get("sigaddset")(signals, getattr(_signal, name)))
        _check(calls.get("posix_spawnattr_setsigdefault")(structure.pointer, signals))
    if group > _INT_MAX:
        raise Unable("%d is no process group" % group)
    if group >= 0:
        flags |= libc_spawn.SETPGROUP
        _check(calls.get("posix_spawnattr_setpgroup")(structure.pointer, group))
    if session:
        if not _probe.works(check_setsid):
            raise Unable("no POSIX_SPAWN_SETSID")
        flags |= libc_spawn.SETSID or 0
    _check(calls.get("posix_spawnattr_setflags")(structure.pointer, flags))
    return structure


_starters: "list[Starter]" = []


def start(request: Request) -> int:
    """Start a process; return its pid.

    NotStarted with the system's error, Unable where posix_spawn can't do it here,
    ValueError and TypeError for arguments that are none.
    """
    try:
        posix_spawn = calls.get("posix_spawn")
        # Structures are of the binding that made them.
        if not _starters or _starters[0].posix_spawn is not posix_spawn:
            check()
            _starters[:] = [Starter(posix_spawn)]
    except OSError as error:
        raise Unable(str(error.strerror)) from None
    return _starters[0].start(request)


def check() -> None:
    """Have attributes with all flags that are always needed."""
    if os.name == "nt":
        raise OSError(ENOSYS, "Windows has no posix_spawn")
    if libc_spawn.SETSIGDEF is None:
        raise OSError(ENOSYS, "the flags of posix_spawn are not known here")
    _build_attributes(0, False, True)
    Structure("posix_spawn_file_actions")
    calls.get("posix_spawn")


def check_setsid() -> None:
    """Set the flag."""
    if libc_spawn.SETSID is None:
        raise OSError(ENOSYS, "the number of POSIX_SPAWN_SETSID is not known here")
    structure = Structure("posix_spawnattr")
    _check(calls.get("posix_spawnattr_setflags")(structure.pointer, libc_spawn.SETSID))


def check_chdir() -> None:
    """Add the file action to some."""
    structure = Structure("posix_spawn_file_actions")
    _check(calls.get("posix_spawn_file_actions_addchdir_np")(structure.pointer, b"/"))


def check_closefrom() -> None:
    """Add the file action to some."""
    structure = Structure("posix_spawn_file_actions")
    _check(calls.get("posix_spawn_file_actions_addclosefrom_np")(structure.pointer, 3))


# What the probe shows: name, the call it goes through, what asks for it.
CALLS = (
    ("posix_spawn", "posix_spawn", check),
    ("POSIX_SPAWN_SETSID", "posix_spawnattr_setflags", check_setsid),
    ("addchdir_np", "posix_spawn_file_actions_addchdir_np", check_chdir),
    ("addclosefrom_np", "posix_spawn_file_actions_addclosefrom_np", check_closefrom),
)
