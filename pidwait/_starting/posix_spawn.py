# SPDX-License-Identifier: BSD-3-Clause
"""A start by posix_spawn(3), as the standard library's subprocess would do it.

Failed inside means: posix_spawn can't do this here. Then the standard library's own code starts
the process, or raises the error.
"""

# signal without its enums, which take longer to load than this whole module.
import _signal  # type: ignore[import-not-found]
import errno
import os
import sys
from _thread import _count
from functools import lru_cache
from types import BuiltinFunctionType, SimpleNamespace

from .._base.checks import works
from .._base.errors import Failed, audit, call, log
from .._systems.bindings import PLATFORM
from .libc_spawn import SPAWN_CALLS, SPAWN_FLAGS, Structure
from .standard import with_globals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Checks, Iterable, Mapping, Sequence

    Stdio = tuple[int, int, int]
    # The working directory, the child's 0, 1 and 2, whether to close other fds, which fds to pass.
    Actions = tuple["bytes | None", Stdio, bool, tuple[int, ...]]

INHERIT, DEVNULL = -1, -3  # the second as in subprocess

# The longest list of file descriptors to close: each takes 32 bytes.
_LONGEST_LIST = 4096
# Whether a file action may close an fd that is not open: glibc, below the limit, and musl.
_CLOSES_ANYTHING = PLATFORM == "linux"
# The functions by which the standard library starts processes.
_OWN_STARTS = ("_posixsubprocess", "fork_exec"), ("subprocess", "_fork_exec"), ("os", "posix_spawn")


class SpawnRequest:
    """The arguments of a start, as Popen takes them, encoded for execve(2).

    ``files``: the child's 0, 1 and 2 (file descriptors, INHERIT or DEVNULL), whether to close the
    others, and which of these to pass. ``attributes``: the group or -1, whether to start a session,
    and whether to restore signals. TypeError or ValueError if an argument can't be encoded.
    """

    def __init__(
        self,
        args: "Sequence[Any]",
        executable: "Any",
        env: "Mapping[Any, Any] | None",
        cwd: "Any",
        files: "tuple[Stdio, Any, Iterable[int]]",
        attributes: "tuple[int, Any, Any]",
    ) -> None:
        self.argv = [os.fsencode(word) for word in args]
        self.executable = self.argv[0] if executable is args[0] else os.fsencode(executable)
        self.cwd = None if cwd is None else os.fsencode(cwd)
        self.environment: "list[bytes] | None" = None
        if env is not None:
            items = [(os.fsencode(name), os.fsencode(value)) for name, value in env.items()]
            if b"=" in b"".join(name for name, _ in items):
                raise ValueError("illegal environment variable name")
            self.environment = list(map(b"=".join, items))
        words = [*self.argv, self.executable, self.cwd or b"", *(self.environment or ())]
        if 0 in b"".join(words):
            raise ValueError("embedded null byte")
        self.given = executable, cwd, env
        stdio, close_fds, passed = files
        passed = tuple(sorted(set(passed))) if passed else ()
        self.actions = self.cwd, stdio, bool(close_fds), passed
        self.attributes = attributes
        # None until audit hooks have seen this start; then the result of posix_spawn.
        self.error: "int | None" = None
        # posix_spawn stores the pid here before any Python code runs.
        self.started: "Sequence[int]" = (0,)


def start_by_posix_spawn(request: SpawnRequest, *event: "Any") -> "int | None":
    """Start it; return its pid, or None if subprocess has to. Audit hooks get ``event``."""
    try:
        for module, name in _OWN_STARTS:  # debuggers replace these, to see each child
            kind = type(getattr(sys.modules.get(module), name, None))
            if kind not in (BuiltinFunctionType, type(None)) and not is_start_taken_away():
                raise Failed(errno.ENOTSUP, "%s has been replaced" % name)
        posix_spawn, strings = SPAWN_CALLS["posix_spawn"], SPAWN_CALLS["spawn_strings"]
        argv, items = strings(request.argv), request.environment
        limit = _closing_limit() if request.actions[2] else 0
        actions, attributes = _structures(limit, request.actions, request.attributes)
        request.error = 0
        if event:
            audit(*event)
        request.started = cell = SPAWN_CALLS["spawn_cell"]()
        # Another thread may change C's environ meanwhile.
        block = SPAWN_CALLS["spawn_environ"](_count()) if items is None else strings(items)
        rest = actions.pointer, attributes.pointer, argv, block
        if b"/" in request.executable:
            request.error = error = posix_spawn(cell, request.executable, *rest)
        else:
            request.error = error = _search(request, posix_spawn, cell, rest)
        if not error:
            return cell[0]  # type: ignore[no-any-return]
        request.started = (0,)
        raise Failed(error, "posix_spawn: " + os.strerror(error))
    except Failed as why:
        log("subprocess starts %r, not posix_spawn: %s", request.given[0], why.error.strerror)
        return None


def is_start_taken_away() -> bool:
    """Whether gevent has taken the interpreter's own start away from subprocess."""
    names = getattr(sys.modules.get("subprocess"), "__dict__", {})
    # Its name from Python 3.11 on, and the older name.
    return names.get("_fork_exec", 0) is None or names.get("_posixsubprocess", 0) is None


def without_audit(function: "Any", **names: "Any") -> "Any":
    """The standard _execute_child(), for a start that audit hooks have seen."""
    quiet = SimpleNamespace(**dict(vars(sys), audit=lambda *event: None))
    names["sys"] = quiet
    if is_start_taken_away():
        names["_posixsubprocess"] = module = __import__("_posixsubprocess")
        names["_fork_exec"] = module.fork_exec
    return with_globals(function, **names)


def _search(request: SpawnRequest, start: "Any", cell: "Any", rest: "Any") -> int:
    """Start the program in the PATH of the child; return 0, or an errno."""
    for folder in os.get_exec_path(request.given[2]):
        path = os.path.join(os.fsencode(folder), request.executable)
        if os.access(os.path.join(request.cwd or b"", path), os.X_OK):
            return start(cell, path, *rest)  # type: ignore[no-any-return]
    return errno.ENOENT


def error_of_start(error: int, name: "Any") -> OSError:
    """subprocess' error, about the program, the working directory or nothing."""
    text = os.strerror(error)
    if error == errno.ENOENT and not hasattr(sys, "audit"):  # before 3.8 subprocess says it twice
        text += ": %r" % (name,)
    return OSError(error, text, name)


@lru_cache(16)
def _structures(limit: "int | None", actions: "Actions", attributes: "Any") -> "Any":
    """Kept for later starts with the same arguments."""
    return _file_actions(limit, actions), _attributes(limit is None, *attributes)


def _closing_limit() -> "int | None":
    """The number below which fds are closed one by one; 0: closefrom; None: CLOEXEC_DEFAULT."""
    if works(check_closefrom):
        return 0
    if works(check_cloexec_default):
        return None
    limit = os.sysconf("SC_OPEN_MAX")
    # The limit may have been lowered since an fd was opened; a new fd can't be above it.
    highest = max(map(int, call(os.listdir, "/proc/self/fd")))
    if highest >= limit:
        raise Failed(errno.ENOTSUP, "file descriptor %d is above the limit, %d" % (highest, limit))
    return limit


def _file_actions(limit: "int | None", actions: "Actions") -> Structure:
    cwd, stdio, close_fds, pass_fds = actions
    structure = Structure("posix_spawn_file_actions")
    add = structure.call
    if cwd is not None:
        add("addchdir_np", cwd)
    numbers = (fd for fd in range(3, sys.maxsize) if fd not in stdio + pass_fds)
    spares: "list[int]" = []

    def spare() -> int:
        # An fd that is free in the child: all fds not in use will be closed.
        if not close_fds:
            raise Failed(errno.ENOTSUP, "no free file descriptor is known")
        spares.append(next(numbers))
        return spares[-1]

    for fd in pass_fds:
        if 0 <= fd <= 2 and stdio[fd] != INHERIT:
            # The stream in its place is passed anyway; but this fails if the fd is not open.
            add("adddup2", fd, fd)
    sources = list(stdio)
    for target, source in enumerate(sources):
        # The source would be overwritten before its turn, or stay close-on-exec: before glibc 2.29
        # a dup2 of an fd onto itself does not clear that flag.
        if 0 <= source <= 2 and sources[source] != INHERIT:
            sources[target] = spare()
            add("adddup2", source, sources[target])
    for target, source in enumerate(sources):
        if source == DEVNULL:
            add("addopen", target, os.fsencode(os.devnull), os.O_RDWR, 0)
        elif source != INHERIT:
            add("adddup2", source, target)
        elif limit is None:
            add("addinherit_np", target)
    if limit is None:
        for fd in pass_fds:
            add("addinherit_np", fd)
        for fd in spares:
            add("addclose", fd)
    elif close_fds:
        passed = [fd for fd in pass_fds if fd > 2 or stdio[fd] == INHERIT]
        if passed:
            free = spare()
            for fd in passed:
                add("adddup2", fd, free)
                add("adddup2", free, fd)
        end = limit or max(passed + [2])
        if end > _LONGEST_LIST or (end > 3 and not _CLOSES_ANYTHING):
            raise Failed(errno.ENOTSUP, "%d file descriptors can't be closed one by one" % end)
        for fd in range(3, end):
            if fd not in passed:
                add("addclose", fd)
        if not limit:
            add("addclosefrom_np", end + 1)
    return structure


def _flag(name: str) -> int:
    if not SPAWN_FLAGS[name]:
        raise Failed(errno.ENOSYS, "this system has no POSIX_SPAWN_" + name)
    return SPAWN_FLAGS[name]


def _attributes(closes: bool, group: int, session: bool, restore_signals: bool) -> Structure:
    structure = Structure("posix_spawnattr")
    restore, flags = _flag("SETSIGDEF"), SPAWN_FLAGS["USEVFORK"] | SPAWN_FLAGS["RETURNERROR"]
    if closes:
        flags |= _flag("CLOEXEC_DEFAULT")
    if restore_signals:
        flags |= restore
        signals = SPAWN_CALLS["spawn_memory"]()
        SPAWN_CALLS["sigemptyset"](signals)
        for number in _signal.SIGPIPE, _signal.SIGXFSZ:  # Python itself ignores these
            SPAWN_CALLS["sigaddset"](signals, number)
        structure.call("setsigdefault", signals)
    if group >= 0:
        flags |= SPAWN_FLAGS["SETPGROUP"]
        structure.call("setpgroup", group)
    if session:
        flags |= _flag("SETSID")
    structure.call("setflags", flags)
    return structure


def check_posix_spawn() -> None:
    _attributes(False, 0, False, True)
    Structure("posix_spawn_file_actions")
    SPAWN_CALLS["posix_spawn"]


def check_setsid() -> None:
    Structure("posix_spawnattr").call("setflags", _flag("SETSID"))


def check_chdir() -> None:
    Structure("posix_spawn_file_actions").call("addchdir_np", b"/")


def check_closefrom() -> None:
    Structure("posix_spawn_file_actions").call("addclosefrom_np", 3)


def check_cloexec_default() -> None:
    _attributes(True, -1, False, False)
    Structure("posix_spawn_file_actions").call("addinherit_np", 0)


_FILE_ACTION = "posix_spawn_file_actions_"
SPAWN_CHECKS: "Checks" = [
    ("posix_spawn", "posix_spawn", check_posix_spawn),
    ("POSIX_SPAWN_SETSID", "posix_spawnattr_setflags", check_setsid),
    ("addchdir_np", _FILE_ACTION + "addchdir_np", check_chdir),
    ("addclosefrom_np", _FILE_ACTION + "addclosefrom_np", check_closefrom),
    ("POSIX_SPAWN_CLOEXEC_DEFAULT", _FILE_ACTION + "addinherit_np", check_cloexec_default),
]
if not SPAWN_FLAGS["CLOEXEC_DEFAULT"]:
    del SPAWN_CHECKS[-1]
