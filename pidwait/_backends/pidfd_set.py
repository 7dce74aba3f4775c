# SPDX-License-Identifier: BSD-3-Clause
"""Linux, many at once: epoll(7) over pidfds.

A pidfd becomes ready twice: when its process is a zombie, and when it has been reaped. And
a closed one stays in the epoll, and ready, for as long as a forked child has a copy of it.
So each pidfd is armed for one event: EPOLLONESHOT. If an event is lost because a signal
handler raises, it comes again when all pidfds are armed anew.
"""

import os
from errno import EBADF, ENOENT
from select import POLLIN
from time import monotonic

from .. import _checks
from .._deadline import GRACE, LONGEST, NOW, Deadline
from .._errors import is_of_signal_handler, pass_over, raise_of_handler
from .._fd import close, opened, own, poll
from .._ffi import calls, linux
from .._highfds import moved_up, raised
from .._outcome import RUNNING
from .._queue import deque
from . import pidfd, timers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .._outcome import Outcome
    from .contract import Member, Report

# How many exits one sleep can bring.
_BATCH = 256
_AGES = 2e6  # seconds; epoll_wait(2) takes at most 2**31 ms

_ONESHOT = 1 << 30
_ARMED = 0x001 | _ONESHOT  # EPOLLIN
_REQUEST, _GET_INFO, _EXIT = linux.PIDFD_INFO_REQUEST, linux.PIDFD_GET_INFO, linux.PIDFD_INFO_EXIT
_P_PIDFD, _LOOK, _CLD_EXITED = linux.P_PIDFD, linux.LOOK, linux.CLD_EXITED
_unpack = linux.PIDFD_INFO.unpack


class PidfdSet:
    def __init__(self, shared: bool) -> None:
        self._bell: "Any" = None
        self._timer: "timers.TimerFd | None" = None
        # Whether the bell rings, and whether the timer is set.
        self._is_ringing = self._is_timed = False
        # pidfd: its member
        self._members: "dict[int, Member]" = {}
        # pidfd: when to give up its exit code; all are given the same time, so the first is next
        self._fading: "dict[int, float]" = {}
        # Events that the epoll has reported, and that have not been taken.
        self._events: "deque[tuple[int, int]]" = deque()
        self._tells = _checks.works(pidfd.check_get_info)
        self._ioctl: "Any" = calls.get("ioctl") if self._tells else None
        # Whether the latest zombie was our child: then waitid(2) is the quickest to tell.
        self._are_ours = True
        self._epoll: "Any" = moved_up(calls.get("epoll")())
        if shared:
            self._make_bell()
        # Seconds of one sleep at most; less if nothing could end it.
        self._longest = LONGEST if shared and self._bell is None else _AGES

    def _make_bell(self) -> None:
        """Make a file descriptor that is always ready: it rings while it is in the epoll."""
        try:
            reader, writer = map(own, os.pipe())
            writer.close()
            self._bell = moved_up(reader)
        except OSError as error:
            pass_over(error, "without a bell")

    def forked(self) -> "PidfdSet":
        # The parent still uses the epoll and the timer; our copies of the pidfds are ours.
        try:
            copy = PidfdSet(True)
            for fd, member in list(self._members.items()):
                copy._epoll.register(fd, _ARMED)
                copy._members[fd] = member
                del self._members[fd]
            return copy
        finally:
            self.close()

    def add(self, members: "Sequence[Member]") -> "list[tuple[Member, OSError]]":
        return raised(self._add_all, members)  # type: ignore[no-any-return]

    def _add_all(
        self, move: "Callable[[Any], Any]", members: "Sequence[Member]"
    ) -> "list[tuple[Member, OSError]]":
        failed = []
        for member in members:
            try:
                self._add(member, move)
            except OSError as error:
                if is_of_signal_handler(error):
                    raise
                failed.append((member, error))
        return failed

    def _add(self, member: "Member", move: "Callable[[Any], Any]") -> None:
        member.ticket = None
        if member.pid is None:  # a pidfd that we did not open
            file = opened(os.dup, member.fileno())
        else:
            file = pidfd.open_pidfd(member.pid)
        file = member.ticket = move(file)
        fd = file.fileno()
        try:
            self._fading.pop(fd, None)
            self._members[fd] = member
            self._epoll.register(fd, _ARMED)
        except BaseException:
            self._members.pop(fd, None)
            file.close()
            raise

    def discard(self, member: "Member") -> None:
        file: "Any" = member.ticket
        if file is not None and not file.closed:
            self._forget(file.fileno())

    def has_exited(self, member: "Member") -> bool:
        file: "Any" = member.ticket
        return file is not None and not file.closed and poll(file.fileno(), POLLIN, NOW) != 0

    def sleep(self, seconds: "float | None") -> None:
        # A signal handler has raised before they were taken, or it is waiting itself.
        if self._events:
            return
        if seconds is None or seconds > self._longest:
            seconds = self._longest
        if self._fading:
            seconds = min(seconds, GRACE)
        if seconds and not pidfd.may_block():
            poll(self._epoll.fileno(), POLLIN, Deadline(seconds))
            seconds = 0
        events = self._epoll.poll(seconds, _BATCH)
        self._events.extend(events)

    def take(self, report: "Report", last: bool) -> None:
        # After the sleep the caches are cold, and each name and call costs.
        members, events = self._members, self._events
        while events:
            try:
                fd, mask = event = events[0]
            except IndexError:  # a signal handler has taken it
                break
            member = members.get(fd)
            if member is not None:
                # The event may be another member's: a thread may have discarded that member,
                # and its fd gone to the next pidfd. So each source of the code has to say
                # itself that the process has exited.
                code: "Outcome" = RUNNING
                if mask == POLLIN and self._are_ours:  # a zombie
                    try:
                        found = calls.get("waitid")(_P_PIDFD, fd, _LOOK)
                        if found is not None:
                            code = found.si_status
                            if found.si_code != _CLD_EXITED:
                                code = -found.si_status
                    except OSError as error:
                        raise_of_handler(error)
                        self._are_ours = False
                if code is RUNNING and self._tells:
                    info = bytearray(_REQUEST)
                    try:
                        self._ioctl(fd, _GET_INFO, info, True)
                        mask, _, _, _, status = _unpack(info)
                        if mask & _EXIT:
                            code = -(status & 0x7F) or status >> 8 & 0xFF
                    except OSError as error:
                        pass_over(error, "PIDFD_GET_INFO")
                if code is RUNNING:
                    try:
                        code = self._look(fd, member.pid)
                    except OSError as error:
                        raise_of_handler(error)
                        if members.get(fd) is member:  # no signal handler has discarded it
                            raise
                if code is not RUNNING and members.get(fd) is member:
                    report((member, code))
                    other = members.pop(fd, None)
                    if other is not None and other is not member:  # a signal handler added it
                        members[fd] = other
                    file: "Any" = member.ticket
                    try:
                        file.close()
                    except OSError as error:
                        pass_over(error, "close")
            try:
                events.remove(event)  # as drop() does
            except ValueError:
                continue
        if self._fading:
            self._give_up(report, last)

    def recover(self) -> None:
        for fd in list(self._members):
            try:
                self._epoll.modify(fd, _ARMED)
            except OSError as error:
                # It was closed before the handler raised. Another error may be a policy's.
                if error.errno not in (EBADF, ENOENT):
                    raise
                self._members.pop(fd, None)

    def _look(self, fd: int, pid: "int | None") -> "Outcome":
        handle = _Borrowed(fd, pid)
        code = handle.wait(NOW, False)
        if code is RUNNING:
            self._epoll.modify(fd, _ARMED)
        elif code is None and handle.get_info() == (False, None):
            # Only the reaping, which is due any moment, will tell the code.
            self._epoll.modify(fd, _ONESHOT)  # EPOLLHUP is reported all the same
            self._fading.setdefault(fd, monotonic() + GRACE)
            return RUNNING
        return code

    def _give_up(self, report: "Report", last: bool) -> None:
        now = monotonic()
        for fd, until in list(self._fading.items()):
            member = self._members.get(fd)
            if member is None:
                del self._fading[fd]
            elif last or until <= now:
                report((member, _Borrowed(fd, member.pid).wait(NOW, False)))
                self._forget(fd)

    def _forget(self, fd: int) -> None:
        member = self._members.pop(fd, None)
        self._fading.pop(fd, None)
        if member is None:
            return
        try:
            self._epoll.unregister(fd)
        except OSError as error:  # somebody else has closed it
            pass_over(error, "fd %d", fd)
        close(member.ticket)

    def delay(self) -> "float | None":
        if self._events:
            return 0.0
        for until in self._fading.values():
            return max(0.0, until - monotonic())
        return None

    def alarm(self, seconds: "float | None") -> None:
        self._ring(seconds is not None and seconds <= 0)
        self._set_timer(seconds if seconds is not None and seconds > 0 else None)

    def _ring(self, on: bool) -> None:
        if self._bell is None or on is self._is_ringing:
            return
        if on:
            self._epoll.register(self._bell, 0)  # EPOLLHUP is reported all the same
        else:
            self._epoll.unregister(self._bell)
        self._is_ringing = on

    def _set_timer(self, seconds: "float | None") -> None:
        if seconds is None and not self._is_timed:
            return
        self._is_timed = True
        self._make_timer().set(seconds)
        self._is_timed = seconds is not None

    def _make_timer(self) -> "timers.TimerFd":
        if self._timer is None:
            timer = timers.open_timerfd()
            timer.file = moved_up(timer.file)
            self._epoll.register(timer.fileno(), 0x001)
            self._timer = timer
        return self._timer

    def fileno(self, timed: bool = True) -> int:
        if timed:
            try:
                self._make_timer()  # later there may be no file descriptor left
            except OSError as error:
                pass_over(error, "without a timer")
        fd: int = self._epoll.fileno()
        return fd

    def close(self) -> None:
        self._epoll.close()
        while self._members:
            close(self._members.popitem()[1].ticket)
        for file in (self._bell, self._timer):
            if file is not None:
                close(file)


class _Borrowed(pidfd.PidfdHandle):
    """A handle for one look, which does not own its pidfd."""

    def __init__(self, fd: int, pid: "int | None") -> None:
        self.fd = fd
        self.pid = pid
