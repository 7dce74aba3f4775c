# SPDX-License-Identifier: BSD-3-Clause
"""What a child does before its exec: the file actions and attributes of posix_spawn.

posix_spawn                 everywhere; from glibc 2.24 on it reports a failed exec
..._addchdir_np             glibc 2.29, musl 1.1.24
..._addclosefrom_np         glibc 2.34; before that, a list of all file descriptors to close
POSIX_SPAWN_SETSID          glibc 2.26, musl 1.1.17
POSIX_SPAWN_CLOEXEC_DEFAULT macOS, which has no closefrom
"""

# signal without its enums, which take longer to load than this whole module.
import _signal  # type: ignore[import-not-found]
import os
import sys
from errno import ENOSYS

from ._base.errors import failed
from ._base.probe import checks, works
from ._systems import libc_spawn
from ._systems.calls import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, List, Optional, Tuple  # novm

    # What a child gets as 0, 1 and 2: file descriptors, INHERIT or DEVNULL.
    Stdio = Tuple[int, int, int]

INHERIT = -1
DEVNULL = -3  # as in subprocess

# The longest list of file descriptors to close: it takes 32 bytes for each.
_LONGEST_LIST = 4096
_INT_MAX = 2**31 - 1
# Only on Linux may a file action close an fd that is not open: glibc ignores EBADF below the
# limit, musl ignores all errors.
_CLOSES_ANYTHING = sys.platform == "linux"


class Unable(Exception):
    """posix_spawn can't do it here; the message says why."""


class Structure:
    """An initialised, opaque structure of the C library; it is destroyed with its last user."""

    _destroy: "Any" = None

    def __init__(self, kind: str) -> None:
        destroy = native(kind + "_destroy")
        pointer = native("spawn_memory")()
        _check(native(kind + "_init")(pointer))
        self.pointer = pointer
        self._destroy = destroy

    def __del__(self) -> None:
        # No hasattr(): in a subinterpreter that ends, Python 3.8 has cleared the builtins.
        if self._destroy is not None:
            self._destroy(self.pointer)


def _check(error: int) -> None:
    if error:
        raise failed(error)


def fd_limit() -> int:
    """The limit below which all file descriptors are closed one by one, without closefrom."""
    limit = os.sysconf("SC_OPEN_MAX")
    if not _CLOSES_ANYTHING or not 0 < limit <= _LONGEST_LIST:
        raise Unable("without closefrom, and with a limit of %d file descriptors" % limit)
    # The limit may have been lowered since an fd was opened; a new fd can't be above it.
    try:
        highest = max(map(int, os.listdir("/proc/self/fd")))
    except OSError as error:
        raise Unable("/proc/self/fd: %s" % error) from None
    if highest >= limit:
        raise Unable("file descriptor %d is above the limit" % highest)
    return limit


def build_actions(
    cwd: "Optional[bytes]",
    stdio: "Stdio",
    close_fds: bool,
    pass_fds: "Tuple[int, ...]",
    limit: "Optional[int]",
) -> Structure:
    """Build the file actions.

    ``limit`` is None with CLOEXEC_DEFAULT, 0 with closefrom, and fd_limit() without both.
    """
    structure = Structure("posix_spawn_file_actions")

    def add(name: str, *arguments: "Any") -> None:
        error = native("posix_spawn_file_actions_" + name)(structure.pointer, *arguments)
        if error:  # EBADF for an fd above the limit
            raise Unable("%s%r: %s" % (name, arguments, os.strerror(error)))

    if cwd is not None:
        if not works(check_chdir):
            raise Unable("no addchdir_np")
        add("addchdir_np", cwd)
    used = set(stdio + pass_fds)
    if min(pass_fds, default=0) < 0 or not DEVNULL <= min(used) <= max(used) <= _INT_MAX:
        raise Unable("not all of %s are file descriptors" % sorted(used))
    numbers = (fd for fd in range(3, sys.maxsize) if fd not in used)
    spares: "List[int]" = []

    def spare() -> int:
        # An fd that is free in the child: all fds but those in use will be closed.
        if not close_fds:
            raise Unable("no file descriptor is known to be free")
        spares.append(next(numbers))
        return spares[-1]

    for fd in pass_fds:
        if 0 <= fd <= 2 and stdio[fd] != INHERIT:
            # The stream that takes its place is passed anyway; but the fd has to be open.
            add("adddup2", fd, fd)
    sources = list(stdio)
    for target, source in enumerate(sources):
        # It would be overwritten before its turn, or it would stay close-on-exec: before glibc
        # 2.29 a dup2 onto itself does not change that.
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
        for fd in _others(passed, limit):
            add("addclose", fd)
        if not limit:
            add("addclosefrom_np", max(passed + [2]) + 1)
    return structure


def _others(passed: "list[int]", limit: int) -> "Iterator[int]":
    """The fds that are to be closed one by one."""
    end = limit or max(passed + [2])
    if end > _LONGEST_LIST:
        raise Unable("file descriptor %d is to be passed" % end)
    if end > 3 and not _CLOSES_ANYTHING:
        raise Unable("pass_fds")
    return (fd for fd in range(3, end) if fd not in passed)


def build_attributes(
    group: int, session: bool, restore_signals: bool, closes: bool = False
) -> Structure:
    """Build the attributes; ``closes`` tells whether CLOEXEC_DEFAULT closes file descriptors."""
    structure = Structure("posix_spawnattr")
    flags = libc_spawn.USEVFORK
    if closes:
        flags |= libc_spawn.CLOEXEC_DEFAULT or 0
    if restore_signals:
        flags |= libc_spawn.SETSIGDEF or 0
        signals = native("spawn_memory")()
        native("sigemptyset")(signals)
        for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ"):  # what Python itself ignores
            if hasattr(_signal, name):
                _check(native("sigaddset")(signals, getattr(_signal, name)))
        _check(native("posix_spawnattr_setsigdefault")(structure.pointer, signals))
    if group > _INT_MAX:
        raise Unable("%d can't be a process group" % group)
    if group >= 0:
        flags |= libc_spawn.SETPGROUP
        _check(native("posix_spawnattr_setpgroup")(structure.pointer, group))
    if session:
        if not works(check_setsid):
            raise Unable("no POSIX_SPAWN_SETSID")
        flags |= libc_spawn.SETSID or 0
    _check(native("posix_spawnattr_setflags")(structure.pointer, flags))
    return structure


def has_closefrom() -> bool:
    return works(check_closefrom)


def has_cloexec_default() -> bool:
    return works(check_cloexec_default)


def check() -> None:
    """Build attributes with all flags that every start needs."""
    if os.name == "nt":
        raise failed(ENOSYS, "Windows has no posix_spawn")
    if libc_spawn.SETSIGDEF is None:
        raise failed(ENOSYS, "the flags of posix_spawn are not known here")
    build_attributes(0, False, True)
    Structure("posix_spawn_file_actions")
    native("posix_spawn")


def check_setsid() -> None:
    """Set the flag."""
    if libc_spawn.SETSID is None:
        raise failed(ENOSYS, "the number of POSIX_SPAWN_SETSID is not known here")
    structure = Structure("posix_spawnattr")
    _check(native("posix_spawnattr_setflags")(structure.pointer, libc_spawn.SETSID))


def check_chdir() -> None:
    """Add the file action."""
    structure = Structure("posix_spawn_file_actions")
    _check(native("posix_spawn_file_actions_addchdir_np")(structure.pointer, b"/"))


def check_closefrom() -> None:
    """Add the file action."""
    structure = Structure("posix_spawn_file_actions")
    _check(native("posix_spawn_file_actions_addclosefrom_np")(structure.pointer, 3))


def check_cloexec_default() -> None:
    """Set the flag, and add the file action that goes with it."""
    if libc_spawn.CLOEXEC_DEFAULT is None:
        raise failed(ENOSYS, "only macOS has it")
    build_attributes(-1, False, False, True)
    structure = Structure("posix_spawn_file_actions")
    _check(native("posix_spawn_file_actions_addinherit_np")(structure.pointer, 0))


CHECKS: "List[Tuple[str, str, Callable[[], None]]]" = [
    ("posix_spawn", "posix_spawn", check),
    ("POSIX_SPAWN_SETSID", "posix_spawnattr_setflags", check_setsid),
    ("addchdir_np", "posix_spawn_file_actions_addchdir_np", check_chdir),
    ("addclosefrom_np", "posix_spawn_file_actions_addclosefrom_np", check_closefrom),
]
if libc_spawn.CLOEXEC_DEFAULT is not None:
    CHECKS.append(
        (
            "POSIX_SPAWN_CLOEXEC_DEFAULT",
            "posix_spawn_file_actions_addinherit_np",
            check_cloexec_default,
        )
    )
checks["polling"] += CHECKS  # which every system has
