# SPDX-License-Identifier: BSD-3-Clause
"""Linux, many at once: epoll(7) over pidfds.

A pidfd gets ready twice, once its process is a zombie and once it has been reaped, and
one that was closed stays in the epoll, and ready, for as long as a forked child has a
copy of it. So each is armed for one event: EPOLLONESHOT. An event that a signal
handler's exception has swallowed comes again once all have been armed anew.
"""

import os
import select
from time import monotonic

from .. import _exitcodes, _probe
from .._deadline import Deadline
from .._errors import log
from .._exitcodes import RUNNING
from .._fd import opened, own
from .._ffi import calls, linux
from .._highfds import moved_up, raised
from . import pidfd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from .._owners import Owner

    Events = list[tuple[int, int]]  # novm
    Report = Callable[[tuple[Owner, int | None]], object]  # novm

# How many exits one thread takes at a time.
_BATCH = 256
# How long to wait for the reaping of a process whose exit code only that will tell.
_GRACE = 0.01
# How long to sleep at most where nobody could wake us.
_DEAF = 0.04
_AGES = 2e6  # of 2**31 ms that epoll_wait(2) takes

_ONESHOT = 1 << 30
_ARMED = 0x001 | _ONESHOT  # EPOLLIN
_REQUEST, _GET_INFO, _EXIT = linux.PIDFD_INFO_REQUEST, linux.PIDFD_GET_INFO, linux.PIDFD_INFO_EXIT
_unpack = linux.PIDFD_INFO.unpack


class Many:
    def __init__(self, shared: bool) -> None:
        self._bell: "Any" = None
        self._ringing = False
        # fd: whose it is
        self._owners: "dict[int, Owner]" = {}
        # fd: until when its exit code is waited for
        self._fading: "dict[int, float]" = {}
        self._pid = os.getpid()
        self._tells = _probe.works(pidfd.check_get_info)
        self._ioctl: "Any" = calls.get("ioctl") if self._tells else None
        self._epoll: "select.epoll" = moved_up(select.epoll())
        if shared:
            self._make_bell()
        # Seconds of a sleep.
        self._at_most = self._longest = _DEAF if shared and self._bell is None else _AGES

    def _make_bell(self) -> None:
        """A file descriptor that is always ready; it rings while the epoll has it."""
        try:
            reader, writer = map(own, os.pipe())
            writer.close()
            self._bell = moved_up(reader)
        except OSError as error:
            log("without a bell: %s", error)

    def forked(self) -> "Many":
        """What takes its place in a forked child: the epoll is still the parent's, too."""
        try:
            many = Many(True)
            for fd, owner in list(self._owners.items()):
                many._epoll.register(fd, _ARMED)
                many._owners[fd] = owner
                del self._owners[fd]
            return many
        finally:
            self.close()

    def add(self, owners: "Sequence[Owner]") -> "list[tuple[Owner, OSError]]":
        return raised(self._add_all, owners)  # type: ignore[no-any-return]

    def _add_all(
        self, move: "Callable[[Any], Any]", owners: "Sequence[Owner]"
    ) -> "list[tuple[Owner, OSError]]":
        failed = []
        for owner in owners:
            try:
                self._add(owner, move)
            except OSError as error:
                failed.append((owner, error))
        return failed

    def _add(self, owner: "Owner", move: "Callable[[Any], Any]") -> None:
        owner.ticket = None
        if owner.pid is None:  # a pidfd from elsewhere
            pidfd_ = opened(os.dup, owner.proc.fileno())
        else:
            pidfd_ = pidfd.open_pidfd(owner.pid)
        owner.ticket = move(pidfd_)
        fd = owner.ticket.fileno()
        try:
            self._fading.pop(fd, None)
            self._owners[fd] = owner
            self._epoll.register(fd, _ARMED)
        except BaseException:
            self._owners.pop(fd, None)
            owner.ticket.close()
            raise

    def discard(self, owner: "Owner") -> None:
        if owner.ticket is not None and not owner.ticket.closed:
            self._forget(owner.ticket.fileno())

    def poll(self, milliseconds: "float | None") -> "Events":
        seconds = _AGES if milliseconds is None else milliseconds / 1000.0
        if seconds > self._at_most:
            seconds = self._at_most
        return self._epoll.poll(seconds, _BATCH)

    def take(self, events: "Events", report: "Report") -> None:
        owners = self._owners
        for fd, _ in events:
            owner = owners.get(fd)
            if owner is None:
                continue
            # The event need not be for this owner: another thread may have discarded
            # whose it was, and a third one been given the number. So each source of
            # the code has to say itself that the process has exited.
            code: "Any" = RUNNING
            if self._tells:
                # After the sleep the caches are cold, as in pidfd.Handle.wait().
                info = bytearray(_REQUEST)
                try:
                    self._ioctl(fd, _GET_INFO, info, True)
                    mask, _, _, _, status = _unpack(info)
                except OSError as error:
                    log("PIDFD_GET_INFO: %s", error)
                else:
                    if mask & _EXIT:
                        code = -(status & 0x7F) or status >> 8 & 0xFF
            if code is RUNNING:
                code = self._look(fd, owner.pid)
                if code is RUNNING:
                    continue
            report((owner, code))
            del owners[fd]
            try:
                owner.ticket.close()
            except OSError as error:
                log("close: %s", error)
        if self._fading:
            self._give_up(report)

    def recover(self) -> None:
        for fd in list(self._owners):
            try:
                self._epoll.modify(fd, _ARMED)
            except OSError:  # closed, before the exception came
                self._owners.pop(fd, None)

    def _look(self, fd: int, pid: "int | None") -> "Any":
        code = self._code(fd, pid)
        if code is RUNNING:
            self._epoll.modify(fd, _ARMED)
        elif code is None and self._tells and not _exitcodes.from_pidfd(fd)[0]:
            # Only its reaping, which is due any moment, will tell.
            self._epoll.modify(fd, _ONESHOT)  # EPOLLHUP comes all the same
            self._fading.setdefault(fd, monotonic() + _GRACE)
            self._at_most = _GRACE
            return RUNNING
        return code

    def _code(self, fd: int, pid: "int | None") -> "Any":
        if self._tells:
            reaped, code, parent = _exitcodes.from_pidfd_or_parent(fd)
            if reaped:
                return code
            if parent == self._pid:
                try:
                    code = _exitcodes.from_child(linux.P_PIDFD, fd, pid, False)
                except _exitcodes.NotYet:  # or it is running
                    code = None
                if code is not None:
                    return code
        return _Borrowed(fd, pid).wait(Deadline(0), False)

    def _give_up(self, report: "Report") -> None:
        now = monotonic()
        for fd, until in list(self._fading.items()):
            owner = self._owners.get(fd)
            if owner is None:
                del self._fading[fd]
            elif until <= now:
                report((owner, self._code(fd, owner.pid)))
                self._forget(fd)
        if not self._fading:
            self._at_most = self._longest

    def _forget(self, fd: int) -> None:
        owner = self._owners.pop(fd)
        try:
            self._epoll.unregister(fd)
        except OSError as error:  # somebody else has closed it
            log("fd %d: %s", fd, error)
        _close(owner.ticket)

    def ring(self, on: bool) -> None:
        if self._bell is not None and on is not self._ringing:
            self._ringing = on
            if on:
                self._epoll.register(self._bell, 0)  # EPOLLHUP comes all the same
            else:
                self._epoll.unregister(self._bell)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        self._epoll.close()
        while self._owners:
            _close(self._owners.popitem()[1].ticket)
        if self._bell is not None:
            _close(self._bell)


class _Borrowed(pidfd.Handle):
    """A look through a pidfd that is not to be closed after it."""

    def __init__(self, fd: int, pid: "int | None") -> None:
        self._start(fd, pid)


def _close(ticket: "Any") -> None:
    try:
        ticket.close()
    except OSError as error:  # somebody else has closed it; Python >= 3.15 tells
        log("close: %s", error)
