# SPDX-License-Identifier: BSD-3-Clause
"""Windows, many at once: the system's pool waits, and posts each exit to a completion port.

The callback that the pool runs is C code of CPython's own, RegisterWaitWithQueue, on which
asyncio rests: no Python runs in the system's threads, and nothing has to be undone when the
interpreter ends. Any number of threads sleep in the port; each packet goes to one of them.

A packet has a number. None is used twice: so one of a handle that was discarded says nothing.
"""

import sys
from _thread import get_ident
from errno import ENOSYS
from io import UnsupportedOperation
from itertools import count
from os import getpid

from .._base.deadline import Deadline
from .._base.errors import failed
from .._base.handle import RUNNING
from .._base.probe import works
from .calls import ask
from .windows_calls import INVALID_HANDLE, SLICE
from .windows_handles import Owned, Win32Handle, call_milliseconds, is_signalled, wait_for_handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Checks, Handle, Iterator

_WAKE = 1  # the number of wake()'s packets; 0 would be an error
_SLACK = 0.01  # seconds that wake() may be late
_numbers = count(_WAKE + 1)


def _open_port() -> Owned:
    # The last argument is how many threads may run. With 1, one that took a packet would keep
    # the others asleep while it computes.
    return Owned(ask("CreateIoCompletionPort", INVALID_HANDLE, 0, 0, 0xFFFFFFFF))


def _register(owned: Owned, port: Owned, number: int) -> None:
    """Have a packet with this number posted when the process has exited."""
    wait = ask("RegisterWaitWithQueue", owned.number, port.number, number, 0xFFFFFFFF)  # INFINITE
    # INVALID_HANDLE: return when the callback has. It is undefined what comes of a wait whose
    # HANDLE, or whose port, is closed before.
    owned.closing.append(("UnregisterWaitEx", wait, INVALID_HANDLE))
    if not owned.number:  # another thread has closed it meanwhile
        owned.close()


class PortSleeper:
    """Sleeps for many handles. Any number of threads may be in sleep() at once."""

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether HANDLEs can be used."""
        self._opens = opens
        self._port = _open_port()
        # The main thread, which Ctrl-C interrupts; without threading, it is this one.
        threading = sys.modules.get("threading")
        self._main = get_ident() if threading is None else threading.main_thread().ident
        self._can_wait = works(check_port_wait)
        self._handles: "dict[int, Win32Handle]" = {}  # by their packets' numbers
        # Packets that have been taken, and that nobody has looked at.
        self.events: "dict[int, None]" = {}
        # By thread: when its sleep ends by itself.
        self._asleep: "dict[int, float]" = {}

    def open(self, target: "Any") -> None:
        if not self._opens:
            raise failed(ENOSYS, "HANDLEs are not used")
        handle = target.handle = Win32Handle(target.pid)
        handle.target = target
        handle.packet = next(_numbers)
        self._handles[handle.packet] = handle  # the packet may come at once
        try:
            _register(handle.owned, self._port, handle.packet)
        except BaseException:
            target.handle = None  # first, so that nobody looks at a closed one
            self.discard(handle)
            raise

    def watch_again(self, handle: "Handle") -> None:
        """A HANDLE stays signalled, so there are no false alarms: its packet is still to come."""

    def discard(self, handle: "Any") -> None:
        if isinstance(handle, Win32Handle):  # else it is polled
            self._handles.pop(handle.packet, None)
        handle.close()

    def sleep(self, seconds: "float | None") -> None:
        milliseconds, me = call_milliseconds(Deadline(seconds)), get_ident()
        self._asleep[me] = Deadline.now() + milliseconds / 1000
        try:
            if not self.events:
                self._receive(milliseconds, me == self._main)
        finally:
            self._asleep.pop(me, None)
        if seconds == 0:  # the pool may not have posted all packets yet
            for number, handle in list(self._handles.items()):
                if handle.look() is not RUNNING or handle.backend == "polling":
                    self.events[number] = None

    def _receive(self, milliseconds: int, is_main: bool) -> None:
        if is_main and milliseconds:  # Ctrl-C does not end GetQueuedCompletionStatus
            if self._can_wait:
                wait_for_handle(self._port.number, milliseconds)
                milliseconds = 0
            milliseconds = min(milliseconds, SLICE)
        packet = ask("GetQueuedCompletionStatus", self._port.number, milliseconds)
        while packet is not None and packet[3] != _WAKE:
            self.events[packet[3]] = None
            packet = ask("GetQueuedCompletionStatus", self._port.number, 0)

    def worth_a_look(self) -> "Iterator[Handle]":
        for number in list(self.events):
            self.events.pop(number, None)
            handle = self._handles.get(number)
            if handle is not None:
                yield handle

    def wake(self, seconds: "float | None") -> None:
        """End one sleep within ``seconds``; None: none. Whoever has slept calls this again.

        So all wake up, one after the other, for as long as there is something to do.
        """
        if seconds is None:
            return
        latest = Deadline.now() + seconds + _SLACK
        if all(until > latest for until in list(self._asleep.values())):
            ask("PostQueuedCompletionStatus", self._port.number, 0, 0, _WAKE)

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
    handle = Win32Handle(getpid())
    with _open_port() as port, handle.owned as owned:
        _register(owned, port, _WAKE)
        if ask("GetQueuedCompletionStatus", port.number, 0) is not None:
            raise failed(ENOSYS, "the port reports a running process as exited")


def check_port_wait() -> None:
    """Whether a port can be waited for: it is signalled while a packet is there."""
    # The list of objects in the documentation of the calls that wait does not name ports.
    with _open_port() as port:
        answers = [is_signalled(port.number)]
        ask("PostQueuedCompletionStatus", port.number, 0, 0, _WAKE)
        answers += [wait_for_handle(port.number, 0), is_signalled(port.number)]
        if answers != [False, True, True] or not ask("GetQueuedCompletionStatus", port.number, 0):
            raise failed(ENOSYS, "a port can't be waited for")


PORT_CHECKS: "Checks" = [
    ("completion port", "RegisterWaitWithQueue", check_port),
    ("wait for a port", None, check_port_wait),
]
