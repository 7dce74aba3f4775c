# SPDX-License-Identifier: BSD-3-Clause
"""Linux, many at once: epoll(7) over pidfds.

A pidfd becomes ready twice: when its process is a zombie, and when it has been reaped. And
a closed one stays in the epoll, and ready, for as long as a forked child has a copy of it.
So each pidfd is armed for one event: EPOLLONESHOT. If an event is lost because a signal
handler raises, it comes again when all pidfds are armed anew.
"""

import os
import select
from errno import EBADF, ENOENT
from time import monotonic

from .. import _checks
from .._deadline import GRACE, NOW
from .._errors import is_of_signal_handler, pass_over, raise_of_handler
from .._fd import close, opened, poll
from .._ffi import calls, linux
from .._highfds import raised
from .._outcome import RUNNING
from . import pidfd
from .epoll_set import EpollSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .._outcome import Outcome
    from .contract import Member, Report

_ONESHOT = 1 << 30
_ARMED = 0x001 | _ONESHOT  # EPOLLIN
_REQUEST, _GET_INFO, _EXIT = linux.PIDFD_INFO_REQUEST, linux.PIDFD_GET_INFO, linux.PIDFD_INFO_EXIT
_P_PIDFD, _LOOK, _CLD_EXITED = linux.P_PIDFD, linux.LOOK, linux.CLD_EXITED
_unpack = linux.PIDFD_INFO.unpack


class PidfdSet(EpollSet):
    def __init__(self, shared: bool) -> None:
        # pidfd: its member
        self._members: "dict[int, Member]" = {}
        self._tells = _checks.works(pidfd.check_get_info)
        self._ioctl: "Any" = calls.get("ioctl") if self._tells else None
        # Whether the latest zombie was our child: then waitid(2) is the quickest to tell.
        self._are_ours = True
        super().__init__(shared)

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

    def __contains__(self, member: "Member") -> bool:
        file: "Any" = member.ticket
        return file is not None and not file.closed

    def discard(self, member: "Member") -> None:
        if member in self:
            file: "Any" = member.ticket
            self._forget(file.fileno())

    def has_exited(self, member: "Member") -> bool:
        file: "Any" = member.ticket
        if member not in self or not poll(file.fileno(), select.POLLIN, NOW):
            return False
        return _Borrowed(file.fileno(), member.pid).seems_exited()

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
                if mask == select.POLLIN and self._are_ours:  # a zombie
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
                raise_of_handler(error)
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

    def close(self) -> None:
        super().close()
        while self._members:
            close(self._members.popitem()[1].ticket)


class _Borrowed(pidfd.PidfdHandle):
    """A handle for one look, which does not own its pidfd."""

    def __init__(self, fd: int, pid: "int | None") -> None:
        self.fd = fd
        self.pid = pid
