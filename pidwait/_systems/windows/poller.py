# SPDX-License-Identifier: BSD-3-Clause
"""Windows, many at once: the system's thread pool waits, and posts exits to a completion port.

The pool's callback is C code of CPython, RegisterWaitWithQueue, which asyncio uses, too: no Python
runs in the system's threads, and nothing has to be undone when the interpreter ends. Any number of
threads sleep in the port; each packet goes to one of them.

A packet has the number of its HANDLE. An old packet may come after its HANDLE was closed and the
number reused: that costs one look.
"""

import sys
from _thread import get_ident
from errno import ENOSYS
from functools import partial
from io import UnsupportedOperation
from itertools import chain, repeat, takewhile
from operator import itemgetter

from ..._base.checks import works
from ..._base.deadline import Deadline
from ..._base.errors import Failed, call
from ..._base.steps import atomically
from ..calls import CALLS
from .calls import INVALID_HANDLE, LONGEST_DEAF
from .handle import (
    LONGEST_CALL,
    Owned,
    Win32Handle,
    check_port,
    new_port,
    wait_for_handle,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Call, Handle, Iterable, Member, Target

_WAKEUP = 1  # the number of wake()'s packets; 0 would be an error, and no HANDLE is odd
_INFINITE = 0xFFFFFFFF
_HANDLES = 62  # in one call at most: Python 3.7 takes no more, to add the event that Ctrl-C sets
_LOOKS = 2 * _HANDLES  # at the end of a time-out: looks at 5,000 members would take 30 ms (Wine)


def _registering(owned: Owned, port: Owned) -> "Call":
    """The call that has a packet posted when the process has exited."""
    numbers = (owned.number,), (port.number,), (owned.number,), (_INFINITE,)
    wait = map(CALLS["RegisterWaitWithQueue"], *numbers)
    # INVALID_HANDLE: return after the callback has. Closing the HANDLE during a wait is undefined
    # behaviour.
    end = map(partial, (CALLS["UnregisterWaitEx"],), wait, (INVALID_HANDLE,))
    return owned.waits.extend, end


class PortPoller:
    """Sleeps for many handles. Any number of threads may be in poll() at once."""

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether HANDLEs can be used."""
        self._opens = opens
        self._by_number: "dict[int, Member]" = {}
        self.ready: "dict[object, None]" = {}
        self._turn = 0
        self._port = new_port()
        self._is_waitable = works(check_port)
        # The main thread, which Ctrl-C interrupts; without threading, it is this one.
        threading = sys.modules.get("threading")
        self._main = get_ident() if threading is None else threading.main_thread().ident

    def open(self, target: "Target") -> "Handle":
        """A handle by ``target.pid``; Failed if that can't be."""
        if target.pid is None or not self._opens:
            raise Failed(ENOSYS, "HANDLEs are not used")
        return Win32Handle(target.pid)

    def arm(self, member: "Member", *calls: "Call") -> None:
        """Have its packet taken, and make the calls in the same step; not if it is polled.

        A HANDLE stays signalled, and its packet is posted once: after a look that found the process
        running, the packet is still to come.
        """
        if not isinstance(member.handle, Win32Handle) or member.handle.backend == "polling":
            return
        owned = member.handle.owned
        if not owned.waits:
            calls = (_registering(owned, self._port), *calls)
        call(atomically, (self._by_number.__setitem__, owned.number, member), *calls)

    def drop(self, member: "Member") -> None:
        if isinstance(member.handle, Win32Handle):
            self._by_number.pop(member.handle.owned.number, None)

    def poll(self, seconds: "float | None") -> None:
        """Sleep until there is a packet, for ``seconds`` at most, or less."""
        # Ctrl-C does not end GetQueuedCompletionStatus, but a wait for the port.
        milliseconds, port = Deadline(seconds).milliseconds(LONGEST_CALL), self._port.number
        if not self._is_waitable:
            milliseconds = min(milliseconds, LONGEST_DEAF)
        elif milliseconds and get_ident() == self._main:
            wait_for_handle(milliseconds, port)
            milliseconds = 0
        receive = CALLS["GetQueuedCompletionStatus"]
        packets = takewhile(bool, map(receive, repeat(port), chain((milliseconds,), repeat(0))))
        members = map(self._by_number.get, map(itemgetter(3), packets))
        call(self.ready.update, zip(members, repeat(None)))
        if seconds == 0:  # the pool may not have posted all packets yet
            there = list(self._by_number)
            first = self._turn * _LOOKS % (len(there) or 1)
            self._turn += 1
            turn = (there[first:] + there[:first])[:_LOOKS]
            for some in turn[:_HANDLES], turn[_HANDLES:]:
                if some and _may_be_signalled(*some):
                    self.ready.update(dict.fromkeys(map(self._by_number.get, some)))

    def flush(self) -> None:
        """poll() puts all events into ``ready`` in one step."""

    def read(self, who: object) -> "Iterable[Member]":
        """There are no events but the members' own."""
        return ()

    def wake(self, seconds: float) -> bool:
        """Wake one sleeper, which wakes the next for as long as there is work for others."""
        call(CALLS["PostQueuedCompletionStatus"], self._port.number, 0, 0, _WAKEUP)
        return True

    def fileno(self) -> int:
        raise UnsupportedOperation("on Windows a set has no fileno")

    def close(self) -> None:
        self._port.close()


def _may_be_signalled(*handles: int) -> bool:
    """Whether one of these needs a look."""
    try:
        return wait_for_handle(0, *handles)
    except Failed:  # somebody else has closed one: a look shows which
        return True
