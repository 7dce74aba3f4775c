# SPDX-License-Identifier: BSD-3-Clause
"""Linux, many at once: epoll(7) over pidfds, and a timerfd that ends the sleep.

A pidfd becomes ready twice: when its process is a zombie, and when it has been reaped. And a
closed one stays in the epoll, and ready, for as long as a forked child has a copy of it. So
each is armed for one event, which the kernel gives to one of the threads that sleep.

The pidfds take no file descriptors from the program. RLIMIT_NOFILE limits the number of a new
file descriptor, not how many are open: getrlimit(2). One that was moved up while the soft limit
was raised stays valid after the limit has been restored.
"""

import os
import select
import time
from _thread import RLock
from errno import EBADF, EINVAL, ENOENT, ENOSYS
from io import UnsupportedOperation

from .._base.deadline import LONGEST, LONGEST_SLEEP, Deadline
from .._base.errors import Failed, call, failed, log
from .calls import ask, native
from .linux_calls import CLOCK_MONOTONIC, RLIMIT_NOFILE
from .linux_hints import Hints
from .pidfd import PidfdHandle
from .posix import close, may_block, opened, own, poll
from .procfs import ProcfsHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Handle, Iterator, deque
if not TYPE_CHECKING:
    from _collections import deque  # collections loads more

_ONESHOT = 1 << 30
_ARMED = 0x001 | _ONESHOT  # EPOLLIN
_EVENTS = 256  # exits that one sleep brings at most
_LOW = 1024  # numbers that are left to the program if the hard limit prevents higher ones
_HIGH = 65536  # the kernel's table has room up to the highest number, and a fork copies it
_DUPFD_CLOEXEC = 1030  # the same on every Linux; PyPy 3.11 lacks the name


class EpollSleeper:
    """Sleeps for many handles. Any number of threads may be in sleep() at once.

    After a fork the epoll is still the parent's: forked() makes another one.
    """

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether pidfds can be used; ``shared``: whether wake() is needed."""
        self._opens = opens
        self._handles: "dict[int, PidfdHandle]" = {}
        self._hints: "Hints | None" = None  # about polled handles, from the first one on
        # Events that the epoll has reported, and that nobody has looked at.
        self.events: "deque[tuple[int, int]]" = deque()
        self._epoll: "Any" = None  # a low number: select() takes no other
        self._timer: "Any" = None
        self._bell: "Any" = None
        self._lock: "Any" = RLock()  # of the timer
        self._is_armed = False  # the timer
        self._is_set = False  # the bell
        self._is_shown = False
        # Where nothing can end a sleep, it is a short one.
        self._longest = LONGEST_SLEEP
        try:
            self._epoll = ask("epoll")
        except Failed as why:
            if why.errno != ENOSYS:
                raise
            log("all processes are polled: %s", why)  # gevent and eventlet take it away
        if shared or self._epoll is None:
            try:
                open_ = opened if self._epoll is None else opened_high
                self._timer = open_(native("timerfd_create"), CLOCK_MONOTONIC)
                if self._epoll is not None:
                    call(self._epoll.register, self._timer.fileno(), select.EPOLLIN)
            except Failed as why:
                log("without a timer: %s", why)
                self._longest = LONGEST

    def open(self, target: "Any") -> None:
        """Open ``target.handle``, by ``target.pid``, or by ``target.proc`` if that is None.

        Failed if that can't be; UnsupportedOperation if the object has no file descriptor.
        Where pidfds can't be used the handle is a polled one.
        """
        if not self._opens or self._epoll is None:
            self._open_polled(target)
            return
        file = opened_high(os.dup, target.proc.fileno()) if target.pid is None else None
        handle: PidfdHandle = PidfdHandle(target.pid, file, opened_high)
        handle.target = target
        target.handle = handle
        try:
            self._register(handle)
        except BaseException:
            target.handle = None  # first, so that nobody looks at a closed one
            self.discard(handle)
            raise

    def _open_polled(self, target: "Any") -> None:
        if target.pid is None or self._epoll is None:
            raise failed(ENOSYS, "pidfds are not used")
        target.handle = handle = ProcfsHandle(target.pid)
        handle.target = target
        self._hints = self._hints or Hints(self._epoll)
        self._hints.add(handle)

    def _register(self, handle: PidfdHandle) -> None:
        self._handles[handle.fd] = handle
        call(self._epoll.register, handle.fd, _ARMED)

    def watch_again(self, handle: "Handle") -> None:
        """Have its next event reported, after a false alarm."""
        if self._handles.get(handle.fd) is not handle:
            return
        try:
            call(self._epoll.modify, handle.fd, _ARMED)
        except Failed as why:
            if why.errno not in (EBADF, ENOENT):  # closed meanwhile, by another thread
                raise

    def discard(self, handle: "Handle") -> None:
        """Close the handle."""
        if self._handles.get(handle.fd) is handle:
            self._handles.pop(handle.fd, None)  # another thread may be quicker
        if self._hints is not None:
            self._hints.discard(handle)
        handle.close()

    def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is an event, for ``seconds`` at most; it may end earlier."""
        if self._hints is not None:
            self._hints.update()
        if self.events:
            return
        if seconds is None or seconds > self._longest:
            seconds = -1 if seconds is None and self._longest == LONGEST_SLEEP else self._longest
        if self._epoll is None or (self._bell is not None and self._is_set):
            time.sleep(LONGEST if seconds < 0 else min(seconds, LONGEST))
            return
        if not may_block() and seconds:
            poll(self._epoll.fileno(), select.POLLIN, Deadline(None if seconds < 0 else seconds))
            seconds = 0
        self.events.extend(call(self._epoll.poll, seconds, _EVENTS))

    def worth_a_look(self) -> "Iterator[Handle]":
        """The handles that have had an event since."""
        while self.events:
            try:
                fd = self.events.popleft()[0]
            except IndexError:  # another thread was quicker
                return
            if self._hints is not None and fd == self._hints.fd:
                yield from self._hints.read()
                continue
            handle = self._handles.get(fd)
            if handle is not None:
                yield handle

    def wake(self, seconds: "float | None") -> None:
        """End each sleep, and have fileno() readable, after ``seconds``; None: never."""
        if seconds is None and not (self._is_set or self._is_armed):
            return
        if self._timer is not None:
            initial = 0.0 if seconds is None else max(seconds, 1e-9)  # 0 would disarm it
            try:
                settime, fd = native("timerfd_settime"), self._timer.fileno()
                with self._lock:  # another thread may set it, too
                    self._is_armed = True
                    call(lambda: settime(fd, initial=initial))
                    self._is_armed = seconds is not None
                return
            except Failed as why:  # a policy that came later
                log("without a timer: %s", why)
                self._timer, self._longest = None, LONGEST
        if self._epoll is not None:
            # Without a timer fileno() is readable too early, but never too late.
            self._ring(seconds is not None and (seconds == 0 or self._is_shown))

    def _ring(self, is_on: bool) -> None:
        """Have the epoll ready, by a pipe without a writer, or ready no more."""
        if self._bell is None:
            reader, writer = call(os.pipe)
            os.close(writer)
            self._bell = own(reader)
        if is_on and not self._is_set:
            call(self._epoll.register, self._bell.fileno(), 0)  # EPOLLHUP is always reported
        elif self._is_set and not is_on:
            call(self._epoll.unregister, self._bell.fileno())
        self._is_set = is_on

    def fileno(self) -> int:
        file = self._epoll or self._timer
        if file is None:
            raise UnsupportedOperation("the set has no file descriptor here")
        self._is_shown = True
        fd: int = file.fileno()
        return fd

    def forked(self) -> "EpollSleeper":
        """What replaces it in a forked child; the child's copies of the pidfds are its own."""
        if self._epoll is not None:
            self._epoll.close()
        sleeper = EpollSleeper(self._opens, True)
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            sleeper._register(handle)
        if self._hints is not None:
            sleeper._hints = self._hints.forked(sleeper._epoll)
        return sleeper

    def close(self) -> None:
        for file in self._epoll, self._timer, self._bell:
            if file is not None:
                close(file)
        for handle in list(self._handles.values()):
            self.discard(handle)
        if self._hints is not None:
            self._hints.close()


_lock: "list[Any]" = [RLock(), os.getpid()]


def opened_high(function: "Callable[..., int]", *args: object) -> "Any":
    """``opened(function, *args)``, with a number above the soft limit, if the hard one allows it.

    The limit is that of the whole process, and a child forked meanwhile inherits the raised one.
    """
    if _lock[1] != os.getpid():  # a thread of the parent may hold the lock
        _lock[:] = [RLock(), os.getpid()]
    refused: "list[object]" = []
    with _lock[0]:
        soft, hard = _exchange(None, refused) or (0, 0)
        limits = None
        if soft != hard and soft <= _HIGH:
            limits = _exchange((hard, hard), refused)
        try:
            file = _moved_up(opened(function, *args), limits[0] if limits else min(soft // 2, _LOW))
        finally:
            found = limits and _exchange(limits, refused)
            if found and found != (hard, hard):
                _exchange(found, refused)  # another thread has set it meanwhile
    for why in refused:  # a policy, perhaps
        log("RLIMIT_NOFILE: %s", why)
    return file


def _moved_up(file: "Any", lowest: int) -> "Any":
    try:
        moved = opened(native("fcntl"), file, _DUPFD_CLOEXEC, lowest)
    except Failed as why:
        if why.errno == EINVAL:  # the limit is not up after all
            return file
        file.close()
        raise
    file.close()
    return moved


def _exchange(
    limits: "tuple[int, int] | None", refused: "list[object]"
) -> "tuple[int, int] | None":
    """Set the limits, if any; return the old ones, or None if that is refused."""
    found: "tuple[int, int]"
    try:
        if limits is not None:
            try:
                found = ask("prlimit", 0, RLIMIT_NOFILE, limits)
                return found
            except Failed as why:
                if why.errno != ENOSYS:  # PyPy has none; then there is a window between two calls
                    raise
        found = ask("getrlimit", RLIMIT_NOFILE)
        if limits is not None:
            ask("setrlimit", RLIMIT_NOFILE, limits)
        return found
    except (Failed, ValueError) as why:
        refused.append(why)
        return None
