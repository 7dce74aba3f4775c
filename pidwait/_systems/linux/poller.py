# SPDX-License-Identifier: BSD-3-Clause
"""Linux, many at once: epoll(7) over pidfds, and the wake-up of its sleepers.

A pidfd becomes ready twice: when its process is a zombie, and when it has been reaped. And a
closed pidfd stays in the epoll, and ready, while a forked child has a copy of it. So each pidfd
is armed for one event (EPOLLONESHOT), which the kernel gives to one of the sleeping threads.

The wake-up fd is the reader of a pipe without a writer: while it is in the epoll, all sleeps end. A
timer ends sleeps later, for a program that polls the file descriptor.

The pidfds take no file descriptors from the program. RLIMIT_NOFILE limits the number of a new file
descriptor, not the count of open ones: getrlimit(2). A file descriptor that was moved up while the
soft limit was raised stays valid after the limit has been restored.
"""

import os
import select
import time
from errno import EEXIST, EINVAL, ENOENT, ENOSYS
from struct import pack

from ..._base.deadline import LONGEST, LONGEST_SLEEP, Deadline
from ..._base.errors import Failed, call, log, not_by_handler
from ..._base.steps import atomically
from ..calls import CALLS, Calls, ask
from ..posix import EventSource, may_block, opened, opened_wakeup, own, poll
from .calls import RLIMIT_NOFILE
from .handle import PidfdHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Adapter, Any, Call, Callable, File, Handle, Iterable, Member, Target

_ONESHOT = 1 << 30
_ARMED = 0x001 | _ONESHOT  # EPOLLIN
_EVENTS = 256  # exits that one sleep returns at most
_LOW = 1024  # numbers left to the program if the hard limit prevents higher ones
_HIGH = 65536  # the kernel's table has room up to the highest number, and a fork copies it
_DUPFD_CLOEXEC = 1030  # the same on every Linux; PyPy 3.11 lacks the name


class _TimerfdCreate:
    """os.timerfd_create()."""

    def __init__(self, binding: "Adapter", name: str) -> None:
        prototype = "int", "int", "int"
        self._function = binding.function(name, prototype)
        self.flags = (os.O_CLOEXEC,)
        # The function in C; it returns -1. See opened().
        self.raw = binding.function(name, prototype, None)
        self.refusal: "Callable[[], Failed]" = binding.refusal

    def __call__(self, clock: int) -> int:
        return self._function(clock, *self.flags)


class _TimerfdSettime:
    """os.timerfd_settime(), with the argument ``initial`` alone."""

    def __init__(self, binding: "Adapter", name: str) -> None:
        # fd, flags, new and old struct itimerspec
        self._function = binding.function(name, ("int", "int", "int", "void *", "void *"))

    def __call__(self, fd: int, *, initial: float) -> None:
        seconds = int(initial)
        # Interval and value, each in seconds and nanoseconds: longs, also on 32 bits.
        new = bytearray(pack("@4l", 0, 0, seconds, int((initial - seconds) * 1e9)))
        self._function(fd, 0, new, None)


TIMER_CALLS = Calls(
    {"timerfd_create": ("os", _TimerfdCreate), "timerfd_settime": ("os", _TimerfdSettime)}
)


class EpollPoller(EventSource):
    """Sleeps for many handles. Any number of threads may be in poll() at once."""

    _wakeup: "File | None" = None
    _timer: "Any" = None

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether pidfds can be used; ``shared``: whether wake() is needed."""
        super().__init__()
        self._opens = opens
        self._by_fd: "dict[int, Member | File]" = {}
        self.ready: "dict[object, None]" = {}
        self._epoll: "Any" = ask("epoll")  # a low number: select() takes no other
        # Without a wake-up fd, sleeps are short.
        self._longest = LONGEST_SLEEP
        try:
            if shared:
                self._wakeup = _moved_up(opened_wakeup())
                self._by_fd[self._wakeup.fileno()] = self._wakeup
        except Failed as why:
            log("no wake-up fd: %s", why)
            self._longest = LONGEST

    def open(self, target: "Target") -> "Handle":
        if not self._opens:
            raise Failed(ENOSYS, "pidfds are not used")
        if target.pid is None:
            return PidfdHandle(None, opened_high(os.dup, target.proc.fileno()))
        return PidfdHandle(target.pid, None, opened_high)

    def arm(self, member: "Member", *calls: "Call") -> None:
        handle = member.handle
        if handle is None or handle.fd < 0 or handle.backend == "polling":
            return
        fd = handle.fd
        controls = [self._epoll.register, self._epoll.modify]
        if self._by_fd.get(fd) is member:
            controls.reverse()
        for control in controls:
            try:
                call(
                    atomically,
                    (self._by_fd.__setitem__, fd, member),
                    (self.ready.pop, member, None),
                    *calls,
                    # Last: from here on another thread may get the event, and look.
                    (control, fd, _ARMED),
                )
                return
            except Failed as why:  # another thread has just armed it, or is about to
                if why.errno not in (EEXIST, ENOENT):
                    raise

    def drop(self, member: "Member") -> None:
        if member.handle is not None:
            self._by_fd.pop(member.handle.fd, None)

    def poll(self, seconds: "float | None") -> None:
        if self._batches:
            self.flush()
            seconds = 0 if self.ready else seconds
        seconds = self._longest if seconds is None else min(seconds, self._longest)
        if seconds and not may_block():
            poll(self._epoll.fileno(), select.POLLIN, Deadline(seconds))
            seconds = 0
        self.receive_from(self._epoll.poll, seconds, _EVENTS)

    def note(self, events: "list[tuple[int, int]]") -> None:
        self.ready.update([(self._by_fd.get(fd), None) for fd, _ in events])

    def read(self, who: "File | None") -> "Iterable[Member]":
        if who is None:  # a member has ended
            return ()
        try:
            if who is self._timer:
                self._set_timer(0.0)
            else:  # the wake-up fd; or a timer that fileno() in another thread has replaced
                call(self._epoll.unregister, who.fileno())
        except Failed as why:
            if why.errno != ENOENT:  # another thread was faster
                raise
        return ()

    def wake(self, seconds: float) -> bool:
        """End all sleeps, and make fileno() readable, now or after ``seconds``."""
        if self._timer is not None and (seconds or self._wakeup is None):
            try:
                self._set_timer(max(seconds, 1e-6))  # 0 would stop it
                return True
            except Failed as why:  # a policy that came later
                log("without a timer: %s", why)
                self._timer = None
        # Without a timer fileno() is readable too early, but never too late.
        if self._wakeup is not None:
            try:
                call(self._epoll.register, self._wakeup.fileno(), 0)  # EPOLLHUP is always reported
            except Failed as why:
                if why.errno != EEXIST:  # already registered
                    raise
        return not seconds

    def _set_timer(self, seconds: float) -> None:
        settime = TIMER_CALLS["timerfd_settime"]
        call(lambda: settime(self._timer.fileno(), initial=seconds))

    def fileno(self) -> int:
        if self._timer is None:
            try:
                timer = opened_high(TIMER_CALLS["timerfd_create"], time.CLOCK_MONOTONIC)
                self._by_fd[timer.fileno()] = timer
                call(self._epoll.register, timer.fileno(), select.EPOLLIN)
                self._timer = timer
            except Failed as why:
                log("without a timer: %s", why)
        fd: int = self._epoll.fileno()
        return fd

    def close(self) -> None:
        for file in self._epoll, self._wakeup, self._timer:
            if file is not None:
                file.close()


def opened_high(function: "Callable[..., int]", *args: object) -> "File":
    """``opened(function, *args)``, with a number above the soft limit, if the hard one allows it.

    The limit is that of the whole process, and a child forked meanwhile inherits the raised one.
    """
    return _moved_up(opened(function, *args))


def _moved_up(file: "File") -> "File":
    moved = None
    try:
        moved = _duplicate(file)
    finally:
        if moved is not file:
            file.close()  # PyPy would do so later
    return moved


def _duplicate(file: "File") -> "File":
    """A duplicate above the soft limit; the file itself if there can be none."""
    try:
        soft, hard = ask("getrlimit", RLIMIT_NOFILE)
    except Failed as why:  # a policy, perhaps
        log("RLIMIT_NOFILE: %s", why)
        return file
    raised: "list[bool]" = []
    moved: "list[File]" = []
    if soft != hard and soft <= _HIGH:
        restore, raise_ = [(CALLS["setrlimit"], RLIMIT_NOFILE, (to, hard)) for to in (soft, hard)]
        duplicate = map(own, map(CALLS["fcntl"], (file,), (_DUPFD_CLOEXEC,), (soft,)))
        try:
            # No handler's exception leaves the limit raised.
            call(atomically, raise_, (raised.append, True), (moved.extend, duplicate), restore)
        except not_by_handler(Failed, ValueError) as why:
            log("RLIMIT_NOFILE: %s", why)
            if raised:
                atomically(restore)
                if getattr(why, "errno", EINVAL) != EINVAL:
                    raise
    if not raised:
        return opened(CALLS["fcntl"], file, _DUPFD_CLOEXEC, min(soft // 2, _LOW))
    return moved[0] if moved else file
