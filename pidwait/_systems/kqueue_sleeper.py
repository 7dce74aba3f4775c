# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs, many at once: all processes in one kqueue(2), in which the threads sleep."""

import select
from _thread import RLock
from errno import EBADF, ENOSYS
from itertools import count
from weakref import ref

from .._base.deadline import LONGEST, Deadline
from .._base.errors import Failed, failed, log
from .._base.handle import Handle
from .kqueue import KqueueHandle, Queue, register
from .kqueue_calls import (
    EV_ADD,
    EV_ENABLE,
    EV_ONESHOT,
    NOTE_EXIT,
    table,
)
from .posix import may_block, poll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Iterator

_TIMER = 1  # its ident
_LONGEST_MS_OF_TIMER = 86400000
_BATCH_OF_EVENTS = 256
# A thread that goes to sleep at a certain moment is not woken by the bell of DragonFly and of
# older OpenBSDs: kqueue_scan(). So no sleep is longer than this.
_LONGEST_NAP = 60.0


class Registration:
    """A process in a sleeper's kqueue: the number in its event, and the handles that share it."""

    def __init__(self, pid: int, number: int) -> None:
        self.pid = pid
        self.number = number
        self.fflags = NOTE_EXIT
        self.event: "Any" = None
        self.members: "dict[MemberHandle, None]" = {}


class MemberHandle(KqueueHandle):
    """A process in a sleeper's kqueue, for one target."""

    def __init__(self, sleeper: "KqueueSleeper", registration: Registration, target: "Any") -> None:
        self.pid = registration.pid
        self.registration = registration
        self.target = target
        self._sleeper = ref(sleeper)

    def _has_event(self, deadline: Deadline) -> bool:
        sleeper = self._sleeper()
        if sleeper is None:
            raise failed(EBADF, "there is no kqueue any more")
        return not sleeper.is_watched(self.registration)

    def _event(self) -> "Any":
        return self.registration.event

    def close(self) -> None:
        sleeper = self._sleeper()
        if sleeper is not None:
            sleeper.forget(self)


class KqueueSleeper:
    """Sleeps for many processes in one kqueue. Any number of threads may be in sleep() at once."""

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether processes can be watched; ``shared``: whether wake() is needed."""
        self._opens = opens
        self._lock = RLock()  # not held in sleep()
        self._numbers = count(1)
        # Those that the kqueue watches; and all that have members.
        self._by_pid: "dict[int, Registration]" = {}
        self._by_number: "dict[int, Registration]" = {}
        # Events that the kqueue has reported, and that nobody has looked at. A list: other than
        # a deque, it can be copied while another thread appends to it.
        self.events: "list[Any]" = []
        self._sleeping: "dict[object, None]" = {}
        self._rings = self._timed = self._closed = False  # True: perhaps
        self._longest = _LONGEST_NAP
        self._queue = Queue()
        if shared:
            try:
                self._queue.make_bell()
            except Failed as why:
                log("without a bell: %s", why)
                self._longest = LONGEST  # perhaps nothing can end a sleep

    def open(self, target: "Any") -> None:
        if not self._opens:
            raise failed(ENOSYS, "kqueue is not used")
        pid: "int | None" = target.pid
        if pid is None:
            raise failed(ENOSYS, "it has no pid to be watched by")
        with self._lock:
            if self._closed:
                raise ValueError("the set is closed")
            there = self._by_pid.get(pid)
            # That process may have been reaped, and another one may have the pid now. EV_ADD would
            # give its registration another number: the old exit would be the new one's.
            is_new = there is None or not self.is_watched(there)
            if there is None or is_new:
                there = Registration(pid, next(self._numbers))
            handle = target.handle = MemberHandle(self, there, target)
            there.members[handle] = None
            if is_new:
                self._by_pid[pid] = self._by_number[there.number] = there
                try:
                    there.fflags = register(self._queue, pid, there.number)
                except BaseException:
                    self.forget(handle)
                    raise

    def is_watched(self, registration: Registration) -> bool:
        """Whether there has been no event yet, not even one that is lost, or on its way."""
        if self._queue.is_copy():
            raise failed(EBADF, "the kqueue is the parent's")
        pid, fflags, number = registration.pid, registration.fflags, registration.number
        with self._lock:
            if self._closed:
                raise failed(EBADF, "the kqueue is closed")
            is_full = True
            while is_full:
                taken: "list[Any]" = []
                self._queue.take(taken, _BATCH_OF_EVENTS, 0)
                self.events.extend(taken)
                is_full = len(taken) == _BATCH_OF_EVENTS
            for event in list(self.events):
                self._note(event)
            # Else the pid's registration may be another one's.
            return self._by_pid.get(pid) is registration and self._queue.has(
                pid, table().filter_proc, EV_ENABLE, fflags, 0, number
            )

    def watch_again(self, handle: "Any") -> None:
        """A kqueue gives no false alarms; Failed if it does not watch this one any more."""
        if handle.backend != "kqueue":
            raise failed(EBADF, "there is no kqueue any more")

    def discard(self, handle: "Any") -> None:
        handle.close()

    def forget(self, handle: MemberHandle) -> None:
        if self._queue.is_copy():
            return
        registration = handle.registration
        with self._lock:
            registration.members.pop(handle, None)
            if registration.members or self._closed:
                return
            self._by_number.pop(registration.number, None)  # an event on its way finds nobody
            if self._by_pid.get(registration.pid) is registration:
                self._queue.drop(registration.pid, table().filter_proc)
                del self._by_pid[registration.pid]

    def sleep(self, seconds: "float | None") -> None:
        if self.events:
            return
        seconds = self._longest if seconds is None else min(seconds, self._longest)
        if seconds and not may_block():
            poll(self._queue.fileno(), select.POLLIN, Deadline(seconds))
            seconds = 0
        self._take(seconds)

    def _take(self, seconds: float) -> None:
        me = object()
        self._sleeping[me] = None  # before the look at _closed: close() does it the other way round
        try:
            if not self._closed:
                self._queue.take(self.events, _BATCH_OF_EVENTS, seconds)
        finally:
            self._sleeping.pop(me, None)
            self._leave()

    def worth_a_look(self) -> "Iterator[Handle]":
        while self.events:
            try:
                registration = self._note(self.events.pop(0))
            except IndexError:  # another thread was quicker
                return
            if registration is not None:
                yield from list(registration.members)

    def _note(self, event: "Any") -> "Registration | None":
        """Whose event it is; None if it is nobody's any more."""
        if event.filter != table().filter_proc:  # the bell's number may be a pid, too
            return None
        registration = self._by_number.get(event.udata)
        if registration is not None:
            registration.event = event
            with self._lock:
                if self._by_pid.get(registration.pid) is registration:
                    del self._by_pid[registration.pid]
        return registration

    def wake(self, seconds: "float | None") -> None:
        """End each sleep, and have fileno() readable, now (0); None: never.

        After ``seconds``, end one sleep; fileno() stays readable until an event is taken.
        """
        if self._queue.is_copy():
            return
        if self.events:  # taken in between, by a look: others may be asleep
            seconds = 0.0
        filter_ = table().filter_timer
        with self._lock:
            if self._closed:
                return
            rings = seconds is not None and seconds <= 0 and self._queue.bell is not None
            if self._rings and not rings:
                self._queue.ring(False)
            if self._timed:
                # EV_ADD would not restart it: DragonFly, FreeBSD before 12, NetBSD before 10.
                self._queue.drop(_TIMER, filter_)
            self._rings, self._timed = rings, not rings and seconds is not None
            if self._timed:
                data = max(1, min(_LONGEST_MS_OF_TIMER, -int(-(seconds or 0) * 1000 // 1)))
                try:
                    self._queue.change(_TIMER, filter_, EV_ADD | EV_ONESHOT, 0, data)
                except Failed as why:  # ENOMEM: they are few
                    log("without a timer: %s", why)
                    self._rings = self._queue.bell is not None
            if self._rings:
                self._queue.ring(True)

    def fileno(self) -> int:
        return self._queue.fileno()

    def forked(self) -> "KqueueSleeper":
        """What replaces it in a forked child, where the handles of this one are polled."""
        self.close()
        return KqueueSleeper(self._opens, True)

    def close(self) -> None:
        if self._queue.is_copy():
            self._queue.close()
            return
        if self._sleeping:  # FreeBSD and DragonFly would leave them asleep
            self.wake(0)
        with self._lock:
            self._closed = True
        self._leave()

    def _leave(self) -> None:
        if self._closed and not self._sleeping:  # the last one out
            self._queue.close()


# The checks
