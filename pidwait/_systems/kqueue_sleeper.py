# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, many at once: all processes in one kqueue(2), in which the threads sleep."""

import select
from _thread import RLock
from errno import ENOSYS
from itertools import count

from .._base.deadline import Deadline
from .._base.errors import Failed, failed, log
from .kqueue import KqueueHandle, Queue, Registration
from .kqueue_calls import EV_ADD, EV_DELETE, EV_ENABLE, EV_ONESHOT, table
from .posix import may_block, poll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Handle, Iterator

_TIMER = 1  # its ident
_LONGEST_MS_OF_TIMER = 86400000
_BATCH_OF_EVENTS = 256
# A thread that goes to sleep at a certain moment is not woken by the bell of DragonFly and of
# older OpenBSDs: kqueue_scan(). So no sleep is longer than this.
_LONGEST_NAP = 60.0


class MemberHandle(KqueueHandle):
    """A process in a sleeper's kqueue, for one target."""

    def __init__(self, sleeper: "KqueueSleeper", one: Registration, target: "Any") -> None:
        self.pid = one.pid
        self.registration = one
        self.target = target
        self._queue: "KqueueSleeper" = sleeper

    def _has_event(self, deadline: Deadline) -> bool:
        return not self._queue.is_watched(self.registration)

    def close(self) -> None:
        self._queue.forget(self)


class KqueueSleeper(Queue):
    """Sleeps for many processes in one kqueue. Any number of threads may be in sleep() at once."""

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether processes can be watched; ``shared``: whether wake() is needed."""
        super().__init__()
        self._opens = opens
        self._lock = RLock()  # not held in sleep(), nor while a message is logged
        self._numbers = count(1)  # 0 is that of the bell's events, and the timer's
        # The latest registration for each pid; and all that have members.
        self._by_pid: "dict[int, Registration]" = {}
        self._by_number: "dict[int, Registration]" = {}
        # Those whose event has been taken, and that nobody has looked at.
        self.events: "list[Registration]" = []
        self._rings = self._timed = False  # True: perhaps
        try:
            if shared:
                self.ring(False)  # make the bell while there is a file descriptor for it
        except Failed:
            self.close()
            raise

    def open(self, target: "Any") -> None:
        if not self._opens or target.pid is None:
            raise failed(ENOSYS, "kqueue is not used, or there is no pid")
        try:
            with self._lock:
                one = self._by_pid.get(target.pid)
                # That process may have been reaped, and another one may have the pid now. EV_ADD
                # would give its registration another number: the old exit would be the new one's.
                is_new = one is None or not self.is_watched(one)
                if one is None or is_new:
                    one = Registration(target.pid, next(self._numbers))
                target.handle = MemberHandle(self, one, target)
                one.members[target.handle] = None
                if is_new:
                    self._by_pid[one.pid] = self._by_number[one.number] = one
                    self.watch(one)
        except Failed:
            if target.handle is not None:
                target.handle.close()
            raise

    def is_watched(self, one: Registration) -> bool:
        """Whether there has been no event yet, not even one that is lost, or on its way."""
        self.fileno()  # before the lock: a thread that only the parent has may hold it
        with self._lock:
            self._take(0)
            if one.event is not None or self._by_pid.get(one.pid) is not one:
                return False
            # Without EV_ADD this finds the registration, and leaves it as it is.
            filter_ = table().filter_proc
            return self.change(one.pid, filter_, EV_ENABLE, one.fflags, 0, one.number)

    def watch_again(self, handle: "Any") -> None:
        """A kqueue gives no false alarms."""

    def discard(self, handle: "Any") -> None:
        handle.close()

    def forget(self, handle: MemberHandle) -> None:
        if self.is_copy():
            return
        one = handle.registration
        try:
            with self._lock:
                one.members.pop(handle, None)
                if one.members:
                    return
                self._by_number.pop(one.number, None)  # an event on its way finds nobody
                if self._by_pid.get(one.pid) is one:
                    del self._by_pid[one.pid]
                    if one.event is None:
                        self.change(one.pid, table().filter_proc, EV_DELETE)
        except Failed as why:  # the kqueue is closed, perhaps by somebody else
            log("kevent, pid %d: %s", one.pid, why)

    def sleep(self, seconds: "float | None") -> None:
        if self.events:
            return
        seconds = _LONGEST_NAP if seconds is None else min(seconds, _LONGEST_NAP)
        if seconds and not may_block():
            poll(self.fileno(), select.POLLIN, Deadline(seconds))
            seconds = 0
        self._take(seconds)

    def _take(self, seconds: float) -> None:
        """Note all events that there are within ``seconds``."""
        is_full = True
        while is_full:
            taken = self.take(_BATCH_OF_EVENTS, seconds)
            for event in taken:
                one = self._by_number.get(event.udata)
                if one is not None:
                    one.event = event
                    self.events.append(one)
            is_full, seconds = len(taken) == _BATCH_OF_EVENTS, 0

    def worth_a_look(self) -> "Iterator[Handle]":
        while self.events:
            try:
                one = self.events.pop(0)
            except IndexError:  # another thread was quicker
                return
            yield from list(one.members)

    def wake(self, seconds: "float | None") -> None:
        """End each sleep, and have fileno() readable, now (0); None: never.

        After ``seconds``, end one sleep; fileno() stays readable until an event is taken.
        """
        if self.is_copy():
            return
        if self.events:  # taken in between, by a look: others may be asleep
            seconds = 0.0
        filter_, refused = table().filter_timer, None
        with self._lock:
            rings = seconds is not None and seconds <= 0
            if self._rings and not rings:
                self.ring(False)
            if self._timed:
                # EV_ADD would not restart it: DragonFly, FreeBSD before 12, NetBSD before 10.
                self.change(_TIMER, filter_, EV_DELETE)
            self._rings, self._timed = rings, not rings and seconds is not None
            if seconds is not None and not rings:
                data = max(1, min(_LONGEST_MS_OF_TIMER, -int(-seconds * 1000 // 1)))
                try:
                    self.change(_TIMER, filter_, EV_ADD | EV_ONESHOT, 0, data)
                except Failed as why:  # ENOMEM: they are few
                    refused, self._rings = why, True
            if self._rings:
                self.ring(True)
        if refused is not None:
            log("without a timer: %s", refused)

    def forked(self) -> "KqueueSleeper":
        """What replaces it in a forked child, where the handles of this one are polled."""
        self.close()
        return KqueueSleeper(self._opens, True)
