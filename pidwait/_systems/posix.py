# SPDX-License-Identifier: BSD-3-Clause
"""POSIX: our own child, kill(2), file descriptors, poll(2), names of users."""

import io
import os
import select
import sys
from collections import defaultdict
from errno import EBADF, ECHILD, ENOSYS, ESRCH
from functools import lru_cache, partial
from itertools import chain, starmap
from types import BuiltinFunctionType

from .._base.deadline import LONGEST_SLEEP, Deadline
from .._base.errors import Failed, call, log, not_by_handler, refusal
from .._base.handle import RUNNING, Usage
from .calls import CALLS, WAITID, removed_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, File, Function, KQueue, Outcome

CLD_EXITED = 1  # si_code of a SIGCHLD for an exit, on all systems; any other one is for a signal

# own(fd) is an object that closes the fd, at the latest when it is freed. Its type is written in C:
# a signal handler could interrupt a __del__ in Python, and an exception there is printed and lost.
# An epoll object can be made from any fd, and makes no system call but close(2). A FileIO would add
# an fstat(2), and refuses directories.
_epoll = getattr(select, "epoll", None) or removed_type("select", "epoll")
own: "Callable[[int], File]" = getattr(_epoll, "fromfd", io.FileIO)


def opened(function: "Callable[..., int]", *arguments: object) -> "File":
    """The function's file descriptor, owned: without a bytecode between the two calls.

    A signal handler that raised there would leak it, and polling opens files all the time. So a
    binding's wrapper has its function in C as ``raw``, and the arguments that it adds, in front and
    behind, as ``number`` and ``flags``.
    """
    numbers = (*getattr(function, "number", ()), *arguments, *getattr(function, "flags", ()))
    try:
        fds = map(getattr(function, "raw", function), *zip(numbers))
        file = next(map(own, filter((-1).__ne__, fds)), None)
    except OSError as error:
        raise refusal(function, error) from None
    if file is None:
        raise function.refusal()  # type: ignore[attr-defined]
    return file


class EventSource:
    """Takes events from the system, and keeps them until note() has noted them.

    One call takes and keeps them: a defaultdict keeps the result of its factory. So a signal
    handler may raise at any moment. An iterator would take a handler's StopIteration for its end.
    """

    def __init__(self) -> None:
        self._batches: "dict[int, defaultdict[None, Any]]" = {}  # of calls in progress, too

    def note(self, events: "Any") -> None:
        raise NotImplementedError

    def receive_from(self, function: "Function", *args: object) -> None:
        """Note the events that ``function(*args)`` returns; it may sleep."""
        batch: "defaultdict[None, Any]" = defaultdict(partial(function, *args))
        self._batches[id(batch)] = batch
        try:
            if hasattr(sys, "getrefcount"):
                events = batch[None]
            else:  # PyPy's defaultdict is written in Python, and may be interrupted
                batch.update(zip((None,), map(function, *zip(args))))
                events = batch.get(None, ())
        except OSError as error:
            raise refusal(batch.default_factory, error) from None
        finally:
            if not batch:
                del self._batches[id(batch)]
        self.note(events)
        self._batches.pop(id(batch), None)

    def flush(self) -> None:
        """Note the events of calls that an exception has interrupted."""
        for key, batch in self._batches.copy().items():
            there = list(batch.values())
            for events in there:
                self.note(events)
                self._batches.pop(key, None)


def opened_wakeup() -> "Any":
    """A file descriptor that stays readable, for every thread: a pipe whose writer is closed."""
    pipe = chain.from_iterable(starmap(os.pipe, [()]))
    reader, writer = call(list, map(own, pipe))
    writer.close()
    return reader


def close(file: "File | KQueue") -> None:
    try:
        file.close()
    except OSError as error:  # somebody else has closed it: Python >= 3.15 raises
        log("close: %s", refusal(file.close, error))


def poll(fd: int, mask: int, deadline: Deadline) -> int:
    """The event on the file descriptor, as poll(2) returns it; 0 at the deadline."""
    make_poller = getattr(select, "poll", None)
    if make_poller is None:  # eventlet, say, has removed it
        raise Failed(ENOSYS, "the select module has no poll")
    poller = make_poller()
    if fd < 0:  # a signal handler has closed it
        raise Failed(EBADF)
    poller.register(fd, mask)
    while True:
        milliseconds = deadline.milliseconds()
        events: "list[tuple[int, int]]" = call(poller.poll, milliseconds)
        for _, event in events:
            if event != mask and event & select.POLLNVAL:
                raise Failed(EBADF, "poll, fd %d" % fd)  # the fd is not open: not an exit
            return event
        if milliseconds < LONGEST_SLEEP * 1000:  # a test may have stopped the clock: do not ask it
            return 0


def may_block() -> bool:
    """Whether a call that blocks holds up no more than its own thread.

    It would hold up all greenlets where gevent has replaced poll, or eventlet has removed it. They
    may do so at any time, also when a set has been made already.
    """
    return type(getattr(select, "poll", None)) is BuiltinFunctionType


def code_of_status(status: int) -> int:
    """The exit code in a wait status, see wait(2)."""
    signal = status & 0x7F
    return -signal if signal else status >> 8 & 0xFF


def look_at_child(pid: int) -> "Outcome":
    """RUNNING, or the exit code of our child; None if waitid(2) does not report it.

    Failed (ECHILD) if it is not our child. It does not reap.
    """
    info = call(CALLS["waitid"], WAITID["P_PID"], pid, WAITID["LOOK"])
    return RUNNING if info is None else code_of_child(info)


def code_of_child(info: "Any") -> "int | None":
    """The exit code that waitid(2) reports; None if it does not report it."""
    if info.si_code == CLD_EXITED:
        # si_status has all 32 bits of the argument of _exit(2); wait(2) reports the last 8.
        status: int = info.si_status & 0xFF
        return status
    # Before macOS 11, 0 for every signal: xnu, bsd/kern/kern_exit.c, waitid_nocancel().
    return -info.si_status or None


def reap_child(pid: int) -> "Outcome":
    """Reap our child: its exit code, or RUNNING. Failed (ECHILD) if it is not our child."""
    reaped, status = call(os.waitpid, pid, os.WNOHANG | WAITID["WALL"])
    return code_of_status(status) if reaped else RUNNING


def load_usage() -> object:
    """Load what shows the usage of a child on Linux: later there may be no fd left for that."""
    return "rusage" in CALLS.rows and (CALLS["rusage"], CALLS["waitid_usage"])


def usage_by_wait4(rusage: "Any") -> "Usage | None":
    """From the last one of os.wait4()'s results."""
    return rusage and Usage(rusage[0], rusage[1], rusage[2] * WAITID["MAXRSS"])


def is_our_child(pid: int) -> "bool | None":
    """Whether a child of ours, running or a zombie, has the pid; None if that is unknown."""
    try:
        look_at_child(pid)
    except Failed as why:
        if why.errno == ECHILD:
            return False
        log("waitid, pid %d: %s", pid, why)  # a policy, or there is no waitid
        return None
    return True


def check_waitid() -> None:
    """Look for a child that can't exist: our own process."""
    try:
        look_at_child(os.getpid())
    except Failed as why:
        if why.errno != ECHILD:
            raise


def is_found(pid: int) -> bool:
    """Whether kill(2) finds a process or thread with the pid."""
    try:
        call(os.kill, pid, 0)
    except Failed as why:
        if why.errno == ESRCH:
            return False
        try:
            call(os.kill, os.getpid(), 0)
        except Failed:  # a policy refuses kill() for every process
            return os.path.exists("/proc/%d" % pid) or not os.path.exists("/proc/self/stat")
    return True  # perhaps another user's


def whole_name(name: str, words: "list[str]") -> str:
    """The whole name of a program. The system keeps a part; the arguments may have the rest."""
    first = "".join(words[:1])
    # The process may have written a title over its arguments: "name: text", or "name text".
    title = first.partition(": ")[0].rstrip(":")
    found = [title, os.path.basename(first).partition(": ")[0]]
    if not any(words[1:]):  # else a space belongs to the name
        found = [title.partition(" ")[0], *found * ("/" in first)]
    for longer in [os.path.basename(one) for one in found]:
        # As bytes: the system may have cut the name within a character.
        if os.fsencode(longer).startswith(os.fsencode(name)):
            return longer
    return name


@lru_cache(maxsize=None)  # for one listing
def user_name(uid: int) -> str:
    """The name of a user; the number if there is none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except not_by_handler(KeyError):
        return str(uid)
