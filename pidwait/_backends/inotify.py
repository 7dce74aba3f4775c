# SPDX-License-Identifier: BSD-3-Clause
"""Linux, without pidfds: an inotify(7) watch on the executable, which an exit closes.

A process keeps its executable open from execve(2) on, with a struct file of its own, that it
shares only with what it forks. The last one to exit closes it: IN_CLOSE_NOWRITE, shortly before
it becomes a zombie. So an event means that some process with this executable is exiting, or
has called execve(2), or that somebody else has read the file: it is worth a few looks. And a
process that was forked without an execve(2), or that leaves such children behind, can exit
without an event.

Nobody but the reader of the file descriptor notices anything. Watches are few in
number: fs.inotify.max_user_instances, 128, and max_user_watches, see inotify(7).
"""

import os
from errno import EINVAL, ENOSYS

from .._errors import pass_over, raise_of_handler
from .._fd import close, opened
from .._ffi import calls, linux
from .._fork import Creator
from .._highfds import raised
from .._sources import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .contract import Heard

_EVENT = linux.INOTIFY_EVENT
_SIZE = 4096 * _EVENT.size  # of files only, events have all the same size

# An inotify without watches, kept for the next wait: to close(2) one that had a watch takes 20 ms,
# as the kernel waits until nobody can use what was watched (measured on Linux 6.18).
_spare: "dict[str, tuple[Creator, Any]]" = {}
_KEY = "inotify"  # of the only one in it
# File descriptors that are not ours any more. They stay open, whoever has them now.
_lost: "list[Any]" = []


class ExecutableWatches:
    """Watches on the executables of the processes that have been added."""

    # Seconds between two looks at a process of which nothing is heard.
    longest = 1.0
    hears_all = False

    def __init__(self) -> None:
        # Not os.read(): eventlet puts one there that waits until there is something to read.
        import posix

        self._read = posix.read
        self._add = calls.get("inotify_add_watch")
        self._creator = Creator()
        self.file: "Any" = _take_spare() or raised(_open)
        # Whether /proc/<pid>/exe is gone when the event comes: gVisor is not Linux.
        self._is_linux = True
        # watch: how many processes it is for
        self._watches: "dict[int, int]" = {}

    def fileno(self) -> int:
        fd: int = self.file.fileno()
        return fd

    def add(self, pid: int) -> "tuple[int, None] | None":
        """Watch the executable; return None if the exit would cause no event.

        The process is to be looked at afterwards.
        """
        # Before the watch: if it has called execve(2), the link is to what it runs.
        stat = procfs.read_stat(pid)
        if stat is None or stat.flags & linux.PF_FORKNOEXEC:
            return None
        self._is_linux = bool(stat.flags)
        if not self._is_linux and _same_executable(pid, stat.parent):
            return None
        try:
            watch: int = self._watch(b"/proc/%d/exe" % pid)
        except OSError as error:  # another user's, or there are too many
            pass_over(error, "inotify_add_watch, pid %d", pid)
            return None
        self._watches[watch] = self._watches.get(watch, 0) + 1
        return watch, None

    def add_again(self, key: int, pid: int) -> "int | None":
        # It may have called execve(2).
        found = self.add(pid)
        self.discard(key)
        return found and found[0]

    def _watch(self, path: bytes) -> int:
        watch: int = self._add(self.file.fileno(), path, linux.IN_CLOSE_NOWRITE)
        return watch

    def discard(self, watch: int) -> None:
        count = self._watches.pop(watch, 0) - 1
        if count > 0:
            self._watches[watch] = count
            return
        try:
            calls.get("inotify_rm_watch")(self.file.fileno(), watch)
        except OSError as error:
            raise_of_handler(error)
            if error.errno != EINVAL:  # the file system is gone
                raise

    def read(self) -> "Iterable[Heard]":
        """The watches of executables that have been closed; None if something was lost."""
        heard: "dict[int | None, Heard]" = {}
        try:
            size = _SIZE
            while size == _SIZE:  # there may be more
                events = self._read(self.file.fileno(), _SIZE)
                place, size = 0, len(events)
                while place < size:
                    watch, mask, _, length = _EVENT.unpack_from(events, place)
                    key = None if mask & linux.IN_Q_OVERFLOW else watch
                    heard[key] = (key, ())
                    place += _EVENT.size + length
        except BlockingIOError as error:
            raise_of_handler(error)
        return heard.values()

    def may_have_exited(self, key: int, pid: int) -> bool:
        # The kernel takes the executable away from an exiting process before it closes it.
        try:
            watch = self._watch(b"/proc/%d/exe" % pid)  # the same again changes nothing
        except OSError as error:
            raise_of_handler(error)
            return True
        if watch not in self._watches:  # it has called execve(2)
            self.discard(watch)
        return watch != key or not self._is_linux

    def close(self) -> None:
        # The watches of a forked child's copy are the parent's.
        mine = self._creator, self.file
        # In one step: two waits that ended together both saw none, and left two (under load, once).
        if not (self._creator.is_me() and self._clear() and _spare.setdefault(_KEY, mine) is mine):
            close(self.file)

    def _clear(self) -> bool:
        """Remove all watches and events; return whether none are left."""
        try:
            for watch in list(self._watches):
                self._watches[watch] = 1
                self.discard(watch)
            self.read()
        except OSError as error:
            pass_over(error, "inotify")
            return False
        return _is_inotify(self.file)


def _open(move: "Callable[[Any], Any]") -> "Any":
    return move(opened(calls.get("inotify_init1"), os.O_NONBLOCK | os.O_CLOEXEC))


def _take_spare() -> "Any":
    creator, file = _spare.pop(_KEY, (None, None))
    if creator is None:
        return None
    if not _is_inotify(file):
        # A daemon closes all there is, without asking. Another file may have this number now.
        _lost.append(file)
    elif not creator.is_me():  # a forked child shares it with the parent
        close(file)
    else:
        return file
    return None


def _is_inotify(file: "Any") -> bool:
    try:
        return os.readlink("/proc/self/fd/%d" % file.fileno()).endswith("inotify")
    except OSError as error:
        pass_over(error, "/proc/self/fd")
        return False


def _same_executable(pid: int, parent: int) -> bool:
    """Where the system does not tell whether it was forked without an execve(2)."""
    try:
        return os.path.samefile("/proc/%d/exe" % pid, "/proc/%d/exe" % parent)
    except OSError as error:
        pass_over(error, "pid %d, exe", pid)
        return True


def check() -> None:
    """Close our own executable, and see the event."""
    watches = ExecutableWatches()
    try:
        watch = watches._watch(b"/proc/self/exe")
        opened(os.open, "/proc/self/exe", os.O_RDONLY | os.O_CLOEXEC).close()
        if (watch, ()) not in watches.read():
            raise OSError(ENOSYS, "inotify does not tell that an executable is closed")
    finally:
        close(watches.file)  # one who only asks is left with nothing
