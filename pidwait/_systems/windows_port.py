# SPDX-License-Identifier: BSD-3-Clause
"""Windows, many at once: the system's pool waits, and posts each exit to a completion port.

The callback that the pool runs is C code of CPython's own, RegisterWaitWithQueue, on which
asyncio rests: no Python runs in the system's threads, and nothing has to be undone when the
interpreter ends. Any number of threads sleep in the port; each packet goes to one of them.

A packet has a number. None is used twice: so one of a handle that was discarded says nothing.
"""

import os
import sys
from _thread import get_ident
from errno import ENOSYS
from io import UnsupportedOperation
from itertools import count

from .._base.deadline import Deadline
from .._base.errors import Failed, failed
from .._base.probe import checks, works
from .calls import ask
from .windows_calls import INFINITE, INVALID_HANDLE, SLICE, Owned, opened_handle
from .windows_handles import (
    LONGEST_CALL,
    Win32Handle,
    call_milliseconds,
    is_signalled,
    wait_for_handle,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Handle, Iterator, deque
else:
    from _collections import deque  # collections loads more

_WAKE = 1  # the number of wake()'s packets; 0 would be an error
_numbers = count(_WAKE + 1)


def _open_port() -> Owned:
    # The last argument is how many threads may run. With 1, one that took a packet would keep
    # the others asleep while it computes.
    return opened_handle("CreateIoCompletionPort", INVALID_HANDLE, 0, 0, 0xFFFFFFFF)


def _register(handle: Win32Handle, port: Owned, number: int) -> None:
    """Have a packet with this number posted when the process has exited."""
    handle.packet = number
    wait = ask("RegisterWaitWithQueue", handle.number, port.number, number, INFINITE)
    # The last argument: return when the callback has. It is undefined what comes of a wait whose
    # HANDLE, or whose port, is closed before.
    handle.registered = Owned(wait, ("UnregisterWaitEx", INVALID_HANDLE), (handle.owned, port))
    if not handle.number:  # another thread has closed it meanwhile
        handle.registered.close()


def _main_thread() -> "int | None":
    """The main thread, which Ctrl-C interrupts; without threading, it is this one."""
    threading = sys.modules.get("threading")
    return get_ident() if threading is None else threading.main_thread().ident


class PortSleeper:
    """Sleeps for many handles. Any number of threads may be in sleep() at once."""

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether HANDLEs can be used."""
        self._opens = opens
        self._port = _open_port()
        self._main = _main_thread()
        self._can_wait = works(check_port_wait)
        # By their packets' numbers, those that nobody has looked at.
        self._handles: "dict[int, Win32Handle]" = {}
        self.events: "deque[int]" = deque()
        # When wake() ends each sleep: a new list for each call, or None.
        self._alarm: "list[float] | None" = None
        # By thread: when it wakes up at the latest, and the last alarm that it has seen.
        self._asleep: "dict[int | None, float]" = {}
        self._told: "dict[int | None, list[float] | None]" = {}

    def open(self, target: "Any") -> None:
        """Open ``target.handle``, by ``target.pid``; Failed if that can't be."""
        if not self._opens:
            raise failed(ENOSYS, "HANDLEs are not used")
        handle = target.handle = Win32Handle(target.pid)
        handle.target = target
        try:
            self._add(handle)
        except BaseException:
            self.discard(handle)
            raise

    def _add(self, handle: Win32Handle) -> None:
        number = next(_numbers)
        self._handles[number] = handle  # the packet may come at once
        _register(handle, self._port, number)

    def watch_again(self, handle: "Any") -> None:
        """Have its exit reported, after a false alarm."""
        if handle.backend == "polling":
            raise failed(ENOSYS, "the system does not wait for it")
        # A HANDLE stays signalled. So nearly always the first packet is still to come.
        if handle.number and handle.packet not in self._handles:
            handle.registered.close()
            self._add(handle)

    def discard(self, handle: "Any") -> None:
        """Close the handle."""
        if isinstance(handle, Win32Handle):  # else it is polled
            self._handles.pop(handle.packet, None)
        handle.close()

    def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is a packet, for ``seconds`` at most; it may end earlier."""
        me, now, is_look = get_ident(), Deadline.now(), seconds == 0
        try:
            self._asleep[me] = now + LONGEST_CALL  # from here on wake() ends this sleep
            alarm = self._alarm
            if alarm is not None and self._told.get(me) is not alarm:
                left = max(0.0, alarm[0] - now)
                seconds = left if seconds is None else min(seconds, left)
                if left == 0:
                    self._told[me] = alarm
            if not self.events:
                self._receive(me, call_milliseconds(seconds))
            if is_look:
                self._look_at_all()
        finally:
            self._asleep.pop(me, None)

    def _look_at_all(self) -> None:
        """Find those that have exited, also if the pool has posted no packet yet."""
        for number, handle in list(self._handles.items()):
            try:
                has_exited = is_signalled(handle.number)
            except Failed:  # somebody else has closed it: a look tells more
                has_exited = True
            if has_exited:
                self.events.append(number)

    def _receive(self, me: int, milliseconds: int) -> None:
        if milliseconds and me == self._main:  # Ctrl-C does not end GetQueuedCompletionStatus
            if self._can_wait:
                wait_for_handle(self._port.number, milliseconds / 1000)
                milliseconds = 0
            milliseconds = min(milliseconds, SLICE)
        packet = ask("GetQueuedCompletionStatus", self._port.number, milliseconds)
        while packet is not None:
            if packet[3] == _WAKE:
                self._told[me] = self._alarm
                self._ring()
                return
            self.events.append(packet[3])
            packet = ask("GetQueuedCompletionStatus", self._port.number, 0)

    def _ring(self) -> None:
        """Wake a thread that has not been told of the alarm; it will wake the next one."""
        alarm, now = self._alarm, Deadline.now()
        for thread, until in list(self._asleep.items()):
            if until > now and self._told.get(thread) is not alarm:
                ask("PostQueuedCompletionStatus", self._port.number, 0, 0, _WAKE)
                return

    def worth_a_look(self) -> "Iterator[Handle]":
        """The handles whose processes have exited since."""
        while self.events:
            try:
                handle = self._handles.pop(self.events.popleft(), None)
            except IndexError:  # another thread was quicker
                return
            if handle is not None:
                yield handle

    def wake(self, seconds: "float | None") -> None:
        """End each sleep after ``seconds``; None: never."""
        old, now = self._alarm, Deadline.now()
        self._alarm = None if seconds is None else [now + seconds]
        # Who sleeps knows the old one: it ends the sleep early enough if it is the earlier one.
        if seconds is not None and (old is None or not now < old[0] <= now + seconds):
            self._ring()

    def fileno(self) -> int:
        raise UnsupportedOperation("on Windows a set has no fileno")

    def forked(self) -> "PortSleeper":
        raise failed(ENOSYS, "Windows has no fork")

    def close(self) -> None:
        for handle in list(self._handles.values()):
            self.discard(handle)
        self._port.close()


def check_port() -> None:
    """Have the pool wait for a process that runs, and no more."""
    port, handle = _open_port(), Win32Handle(os.getpid())
    try:
        _register(handle, port, _WAKE)
        if ask("GetQueuedCompletionStatus", port.number, 0) is not None:
            raise failed(ENOSYS, "the port takes a running process for an exited one")
    finally:
        handle.close()
        port.close()


def check_port_wait() -> None:
    """Whether a port can be waited for: it is signalled while a packet is there."""
    # The list of objects in the documentation of the calls that wait does not name ports.
    port = _open_port()
    try:
        answers = [is_signalled(port.number)]
        ask("PostQueuedCompletionStatus", port.number, 0, 0, _WAKE)
        answers += [wait_for_handle(port.number, 0), is_signalled(port.number)]
        if answers != [False, True, True] or not ask("GetQueuedCompletionStatus", port.number, 0):
            raise failed(ENOSYS, "a port can't be waited for")
    finally:
        port.close()


checks["win32"] += [
    ("completion port", "RegisterWaitWithQueue", check_port),
    ("wait for a port", None, check_port_wait),
]
