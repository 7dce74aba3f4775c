# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: kqueue(2) and EVFILT_PROC, for one process and for many.

A kqueue refers to the process, not to its pid. The event of its exit can be taken only once, by
one thread. It carries the wait status:

    FreeBSD, DragonFly   always
    NetBSD, OpenBSD      from NetBSD 8 on, and OpenBSD since about 5.x
    macOS                for our own children (NOTE_EXITSTATUS), and in newer versions for
                         processes that we may send a signal to

The event may come before the process is a zombie: on macOS, older OpenBSDs, and on FreeBSD for a
process that was exiting when it was registered. In each case it has exited once the event comes.

A forked child does not inherit a kqueue, and another file may soon have its number there. So the
child does not use the number, and does not even close it.
"""

import os
import select
import time
from _thread import RLock
from errno import EACCES, EAGAIN, EBADF, ENOSYS, ESRCH
from itertools import count
from weakref import WeakValueDictionary

from .._base.deadline import LONGEST, NOW, Deadline
from .._base.errors import Failed, call, failed, log
from .._base.handle import PENDING, RUNNING
from .._base.probe import works
from .calls import ask
from .kqueue_calls import (
    EV_ADD,
    EV_ADD_ONCE,
    EV_DELETE,
    EV_ENABLE,
    NOTE_EXIT,
    PROC,
    READ,
    TIMER,
    change,
    check_filters,
    table,
)
from .posix import check_bsd_waitid, close, code_of_status, may_block, own, poll
from .ps import PsHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Handle, Identity, Iterator, Outcome

_BATCH_OF_EVENTS = 256
# A thread that goes to sleep at a certain moment is not woken by the bell of DragonFly and of
# older OpenBSDs: kqueue_scan(). So no sleep is longer than this.
_LONGEST_NAP = 60.0

# select.kqueue objects of the parent: before Python 3.13 these do not know of the fork. When one
# is freed, it would close the file that has the number now. So they are never freed.
_kept: "list[Any]" = []
# The latest handle for each pid, to tell whether a new one is for the same process.
_latest: "WeakValueDictionary[int, KqueueHandle]" = WeakValueDictionary()


class Registration:
    """A process in a kqueue, and the number in its event, by which it is told from another one."""

    def __init__(self, pid: int, number: int) -> None:
        self.pid = pid
        self.number = number
        self.fflags = NOTE_EXIT
        self.event: "Any" = None
        self.members: "dict[Any, None]" = {}  # the handles that share it


class KqueueHandle(PsHandle):
    """A process in a kqueue of its own, which is readable once it has exited, or in a sleeper's.

    It is polled if there is no kqueue any more: in a forked child, or as somebody has closed it.
    """

    backend = "kqueue"
    _exited = False  # once True, it stays so
    _identity: "object | None" = None

    def __init__(self, pid: int, sleeper: "Any" = None, target: "Any" = None) -> None:
        self.pid, self.target = pid, target
        self._is_alone = sleeper is None  # in its kqueue
        self.registration = Registration(pid, 0)
        self.queue: "KqueueSleeper" = sleeper or KqueueSleeper(True, False)
        try:
            self.queue.register(self)
        except Failed:
            self.close()
            raise

    def fileno(self) -> int:
        if self.backend == "polling" or self.queue.is_copy():
            return super().fileno()
        return self.queue.fileno()

    def close(self) -> None:
        if self._is_alone:
            self.queue.close()
        else:
            self.queue.forget(self)

    def _has_event(self, deadline: Deadline) -> bool:
        """Whether it exits by the deadline; Failed if the kqueue does not tell."""
        if self._is_alone:
            if not poll(self.queue.fileno(), select.POLLIN, deadline):
                return False
            try:
                # First keep the kqueue readable: other threads may be in poll(2), and a program
                # may poll fileno(). If that fails, the event is left in the kqueue.
                self.queue.ring(True)
            except Failed as why:
                log("pid %d, kevent: %s", self.pid, why)
                return True
        return not self.queue.is_watched(self.registration)

    def _tells_exit(self, deadline: Deadline) -> bool:
        """Whether the kqueue tells by the deadline that it has exited."""
        if self.backend == "kqueue" and not self._exited:
            try:
                if self._has_event(deadline):
                    self._exited = True
            except Failed as why:  # poll(2): ENOMEM, EINVAL; our EBADF
                log("pid %d is polled: %s", self.pid, why)
                self.backend = "polling"
        return self._exited

    def _is_running(self) -> bool:
        """False also if the kqueue can't tell any more."""
        return not self._tells_exit(NOW) and self.backend == "kqueue"

    def sleep(self, deadline: Deadline, interval: "list[float]") -> bool:
        if self._tells_exit(deadline):
            return True
        return self.backend == "polling" and super().sleep(deadline, interval)

    def look(self, reap: bool = False) -> "Outcome":
        if not self._tells_exit(NOW):
            return super().look(reap) if self.backend == "polling" else RUNNING
        event = self.registration.event
        code = told_code(event)
        if code is not None and not reap:
            return code
        found = self._code_of_child(reap)
        if found is RUNNING and reap and not self._is_passed_on():
            return PENDING
        if code is None and (found is RUNNING or (found is None and event is None)):
            # It is not a zombie yet; or another thread brings the event.
            return PENDING
        return found if code is None else code

    def _is_passed_on(self) -> bool:
        """Whether the pid belongs to a running process: not to this one, then."""
        try:
            other = KqueueHandle(self.pid)
        except Failed:
            return False
        is_running = other._is_running()
        other.close()
        return is_running

    def identify(self) -> "Identity | None":
        if self._identity is None:
            self._identity = object()
            latest = _latest.get(self.pid)
            # If neither has exited, both are for the process that has the pid now.
            if latest is not None and latest._is_running() and self._is_running():
                self._identity = latest._identity
            _latest[self.pid] = self
        return "kqueue", self._identity


def opened_bell() -> "Any":
    """What is readable for ever, and for every thread: a pipe whose writer is closed."""
    # A timer would be late, and timers are few.
    reader, writer = map(own, call(os.pipe))
    writer.close()
    return reader


class KqueueSleeper:
    """Sleeps for many processes in one kqueue. Any number of threads may be in sleep() at once."""

    def __init__(self, opens: bool, shared: bool) -> None:
        """``opens``: whether processes can be watched; ``shared``: whether wake() is needed."""
        self._pid = os.getpid()
        self._kqueue: "Any" = None
        self._bell: "Any" = opened_bell() if shared else None  # while there is a fd for it
        self._kqueue = ask("kqueue")
        self._opens = opens
        self._lock = RLock()  # not held in sleep(), nor while a message is logged
        self._numbers = count(1)  # 0 is that of the bell's events, and the timer's
        # The latest registration for each pid; and all that have members.
        self._by_pid: "dict[int, Registration]" = {}
        self._by_number: "dict[int, Registration]" = {}
        # Those whose event has been taken, and that nobody has looked at.
        self.events: "dict[Registration, None]" = {}
        self._rings = self._timed = False  # True: perhaps

    def is_copy(self) -> bool:
        """Whether this is the copy in a forked child, which has no kqueue."""
        return self._pid != os.getpid()

    def _opened(self) -> "Any":
        if self._kqueue is None or self.is_copy():
            raise failed(EBADF, "the kqueue is closed, or the parent's")
        return self._kqueue

    def fileno(self) -> int:
        return self._opened().fileno()  # type: ignore[no-any-return]

    def close(self) -> None:
        kqueue, self._kqueue = self._kqueue, None
        if kqueue is None:
            return
        if self._bell is not None:
            close(self._bell)
        if self.is_copy():
            _kept.append(kqueue)
        else:
            close(kqueue)

    def __del__(self) -> None:
        self.close()

    def ring(self, on: bool) -> None:
        """Wake all threads, and be readable, whatever is taken; or no more."""
        self._bell = self._bell or opened_bell()
        flags = EV_ADD if on else EV_DELETE  # EV_DISABLE would leave it readable
        change(self._opened(), READ, self._bell.fileno(), flags)

    def open(self, target: "Any") -> None:
        if not self._opens or target.pid is None:
            raise failed(ENOSYS, "kqueue is not used, or there is no pid")
        KqueueHandle(target.pid, self, target)  # register() makes it the target's

    def register(self, handle: KqueueHandle) -> None:
        """Have the exit reported; Failed (EAGAIN) if there may be no process to watch."""
        with self._lock:
            one = self._by_pid.get(handle.pid)
            # That process may have been reaped, and another one may have the pid now. EV_ADD
            # would give its registration another number: the old exit would be the new one's.
            if one is None or not self.is_watched(one):
                one = Registration(handle.pid, next(self._numbers))
            handle.registration = one
            if handle.target is not None:
                handle.target.handle = handle  # first, so that no event comes too early
                one.members[handle] = None
            if self._by_pid.get(one.pid) is one:
                return
            self._by_pid[one.pid] = self._by_number[one.number] = one
            for one.fflags in (NOTE_EXIT | table().status_flag, NOTE_EXIT):
                try:
                    self._change(one, EV_ADD_ONCE)
                    return
                except Failed as why:
                    if why.errno == ESRCH:  # also for a zombie: macOS, NetBSD, OpenBSD
                        raise failed(EAGAIN, "gone, exiting, or a zombie") from None
                    # NOTE_EXITSTATUS is not allowed for every process.
                    if why.errno != EACCES or one.fflags == NOTE_EXIT:
                        raise

    def _change(self, one: Registration, flags: int) -> bool:
        return change(self._opened(), PROC, one.pid, flags, one.fflags, 0, one.number)

    def is_watched(self, one: Registration) -> bool:
        """Whether there has been no event yet, not even one that is lost, or on its way."""
        self.fileno()  # before the lock: a thread that only the parent has may hold it
        with self._lock:
            self._take(0)
            is_known = one.event is None and self._by_pid.get(one.pid) is one
            # Without EV_ADD this finds the registration, and leaves it as it is.
            return is_known and self._change(one, EV_ENABLE)

    def watch_again(self, handle: "Any") -> None:
        """A kqueue gives no false alarms."""

    def discard(self, handle: "Any") -> None:
        handle.close()

    def forget(self, handle: KqueueHandle) -> None:
        one = handle.registration
        try:
            self.fileno()  # before the lock, as above
            with self._lock:
                one.members.pop(handle, None)
                if one.members:
                    return
                self._by_number.pop(one.number, None)  # an event on its way finds nobody
                if self._by_pid.get(one.pid) is one:
                    del self._by_pid[one.pid]
                    self._change(one, EV_DELETE)
        except Failed as why:  # the kqueue is closed, perhaps by somebody else; or the parent's
            log("kevent, pid %d: %s", one.pid, why)

    def sleep(self, seconds: "float | None") -> None:
        if self.events:
            return
        seconds = _LONGEST_NAP if seconds is None else min(seconds, _LONGEST_NAP)
        if self._rings and self._timed:  # there is no timer, so it rings all the time
            time.sleep(min(seconds, LONGEST))
            seconds = 0
        if seconds and not may_block():
            poll(self.fileno(), select.POLLIN, Deadline(seconds))
            seconds = 0
        self._take(seconds)

    def _take(self, seconds: float) -> None:
        """Note all events that there are within ``seconds``."""
        taken = call(self._opened().control, None, _BATCH_OF_EVENTS, seconds)
        for event in taken:
            one = self._by_number.get(event.udata)
            if one is not None:
                one.event = event
                self.events[one] = None
        if len(taken) == _BATCH_OF_EVENTS:
            self._take(0)

    def worth_a_look(self) -> "Iterator[Handle]":
        for one in list(self.events):
            self.events.pop(one, None)
            yield from list(one.members)

    def wake(self, seconds: "float | None") -> None:
        """End each sleep, and have fileno() readable, now (0), or never (None); or after
        ``seconds`` end one sleep, and have fileno() readable until an event is taken."""
        if self.is_copy():
            return
        if self.events:  # taken in between, by a look: others may be asleep
            seconds = 0.0
        refused = None
        with self._lock:
            if self._rings and seconds != 0:
                self.ring(False)
            if self._timed:
                # EV_ADD would not restart it: DragonFly, FreeBSD before 12, NetBSD before 10.
                change(self._opened(), TIMER, 1, EV_DELETE)
            self._rings, self._timed = seconds == 0, bool(seconds)
            if seconds:
                milliseconds = max(1, -int(-min(seconds, _LONGEST_NAP) * 1000 // 1))
                try:
                    change(self._opened(), TIMER, 1, EV_ADD_ONCE, 0, milliseconds)
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


def told_code(event: "Any") -> "int | None":
    """The exit code that an event carries; None if it carries none."""
    flag = table().status_flag
    if event is None or (flag and not event.fflags & flag):
        return None
    # Where there is no waitid(2), before NetBSD 8 and OpenBSD 6.9, 0 may mean nothing.
    return code_of_status(event.data) if event.data or flag or works(check_bsd_waitid) else None


def check_kqueue() -> None:
    """Watch our own process."""
    check_filters()
    works(check_bsd_waitid)  # load it now: later there may be no file descriptor left for that
    queue = KqueueHandle(os.getpid()).queue
    try:
        is_early = poll(queue.fileno(), select.POLLIN, NOW)
        queue.ring(True)
        if is_early or not poll(queue.fileno(), select.POLLIN, Deadline(1)):
            raise failed(ENOSYS, "poll does not report a kqueue's events")
    finally:
        queue.close()
