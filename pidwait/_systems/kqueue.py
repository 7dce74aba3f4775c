# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: kqueue(2) and EVFILT_PROC, for one process and for many.

A kqueue refers to the process, not to its pid. The event of its exit can be taken only once, by
one thread. It carries the wait status:

    FreeBSD, DragonFly   always
    NetBSD, OpenBSD      from NetBSD 8 on, and OpenBSD since about 5.x
    macOS                with NOTE_EXITSTATUS, which is allowed for our own children, and in
                         newer versions for processes that we may send a signal to

The event may come before the process is a zombie: on macOS, older OpenBSDs, and on FreeBSD for a
process that was exiting when it was registered. In each case it has exited once the event comes.

A forked child does not inherit a kqueue, and another file may soon have its number there. So the
child does not use the number, and does not even close it.
"""

import os
import select
from _thread import RLock
from errno import ECHILD, ENOSYS
from itertools import count
from weakref import WeakValueDictionary

from .._base.deadline import NOW, Deadline
from .._base.errors import Failed, failed, log
from .._base.handle import PENDING, RUNNING
from .._base.probe import checks, works
from .kqueue_calls import Queue, Registration, table
from .posix import code_of_status, look_at_child, may_block, poll
from .ps import PsHandle, check_ps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Handle, Identity, Iterator, Outcome

_BATCH_OF_EVENTS = 256
# A thread that goes to sleep at a certain moment is not woken by the bell of DragonFly and of
# older OpenBSDs: kqueue_scan(). So no sleep is longer than this.
_LONGEST_NAP = 60.0


def told_code(event: "Any") -> "int | None":
    """The exit code that an event carries; None if it carries none."""
    flag = table().status_flag
    if event is None or (flag and not event.fflags & flag):
        return None
    # NetBSD and OpenBSD have told the status since they got waitid(2) (NetBSD 8, OpenBSD 6.9);
    # in older versions 0 may mean nothing.
    if event.data == 0 and not flag and not works(check_bsd_waitid):
        return None
    return code_of_status(event.data)


# The latest handle for each pid, to tell whether a new one is for the same process.
_latest: "WeakValueDictionary[int, KqueueHandle]" = WeakValueDictionary()


class KqueueHandle(PsHandle):
    """A process in a kqueue, which is readable once it has exited.

    It is polled if there is no kqueue any more: in a forked child, or as somebody has closed it.
    """

    backend = "kqueue"
    _exited = False  # once True, it stays so
    _identity: "object | None" = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.registration = Registration(pid, 1)
        self._queue = Queue()
        try:
            self._queue.watch(self.registration)
        except Failed:
            self._queue.close()
            raise

    def fileno(self) -> int:
        if self.backend == "polling" or self._queue.is_copy():
            return super().fileno()
        return self._queue.fileno()

    def close(self) -> None:
        self._queue.close()

    def _has_event(self, deadline: Deadline) -> bool:
        """Whether it exits by the deadline; Failed if the kqueue does not tell."""
        if not poll(self._queue.fileno(), select.POLLIN, deadline):
            return False
        if self.registration.event is None:
            try:
                # First keep the kqueue readable: other threads may be in poll(2), and a program
                # may poll fileno(). If that fails, the event is left in the kqueue.
                self._queue.ring(True)
                for event in self._queue.take(2, 0):
                    if event.udata == self.registration.number:
                        self.registration.event = event
            except Failed as why:
                log("pid %d, kevent: %s", self.pid, why)
        return True

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

    def look(self, reap: bool = False, last: bool = False) -> "Outcome":
        if not self._tells_exit(NOW):
            return super().look(reap, last) if self.backend == "polling" else RUNNING
        event = self.registration.event
        code = told_code(event)
        if code is not None and not reap:
            return code
        found = self._code_of_child(reap)
        if found is RUNNING and reap and not self._is_passed_on():
            return RUNNING if last else PENDING
        if code is None and (found is RUNNING or (found is None and event is None)):
            # It is not a zombie yet; or another thread brings the event.
            return PENDING if not last and self.is_code_due() else None
        return found if code is None else code

    def _is_passed_on(self) -> bool:
        """Whether the pid belongs to a running process: not to this one, then."""
        try:
            other = KqueueHandle(self.pid)
        except Failed:
            return False
        try:
            return other._is_running()
        finally:
            other.close()

    def identify(self) -> "Identity | None":
        if self._identity is None:
            self._identity = object()
            latest = _latest.get(self.pid)
            # If neither has exited, both are for the process that has the pid now.
            if latest is not None and latest._is_running() and self._is_running():
                self._identity = latest._identity
            _latest[self.pid] = self
        return "kqueue", self._identity


class MemberHandle(KqueueHandle):
    """A process in a sleeper's kqueue, for one target."""

    def __init__(self, sleeper: "KqueueSleeper", one: Registration, target: "Any") -> None:
        self.pid = one.pid
        self.registration = one
        self.target = target
        self._queue: "KqueueSleeper" = sleeper

    def _has_event(self, deadline: Deadline) -> bool:
        one = self.registration
        return one.event is not None or not self._queue.is_watched(one)

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
        self.events: "dict[Registration, None]" = {}
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
            is_known = one.event is None and self._by_pid.get(one.pid) is one
            return is_known and self.is_registered(one)

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
                        self.unwatch(one)
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
        taken = self.take(_BATCH_OF_EVENTS, seconds)
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
        """End each sleep, and have fileno() readable, now (0); None: never.

        After ``seconds``, end one sleep; fileno() stays readable until an event is taken.
        """
        if self.is_copy():
            return
        if self.events:  # taken in between, by a look: others may be asleep
            seconds = 0.0
        refused = None
        with self._lock:
            if self._rings and seconds != 0:
                self.ring(False)
            self._rings = seconds == 0
            if self._timed or seconds:
                try:
                    self.set_timer(min(seconds, _LONGEST_NAP) if seconds else None)
                except Failed as why:  # ENOMEM: they are few
                    refused, self._rings = why, True
                self._timed = bool(seconds)
            if self._rings:
                self.ring(True)
        if refused is not None:
            log("without a timer: %s", refused)

    def forked(self) -> "KqueueSleeper":
        """What replaces it in a forked child, where the handles of this one are polled."""
        self.close()
        return KqueueSleeper(self._opens, True)


def check_kqueue() -> None:
    """Watch our own process."""
    names = "KQ_FILTER_PROC", "KQ_FILTER_TIMER", "KQ_FILTER_READ"
    for name, number in zip(names, table().filters):
        theirs = getattr(select, name, number)
        if theirs != number:
            raise failed(ENOSYS, "select.%s is %d, not %d" % (name, theirs, number))
    works(check_bsd_waitid)  # load it now: later there may be no file descriptor left for that
    queue = Queue()
    try:
        queue.watch(Registration(os.getpid(), 1))
        events = [poll(queue.fileno(), select.POLLIN, NOW)]
        queue.ring(True)
        events.append(poll(queue.fileno(), select.POLLIN, Deadline(1)))
        if events[0] or not events[1]:
            raise failed(ENOSYS, "poll does not tell whether a kqueue has an event")
    finally:
        queue.close()


def check_bsd_waitid() -> None:
    """Look for a child that can't exist: our own process."""
    try:
        look_at_child(os.getpid())
    except Failed as why:
        if why.errno != ECHILD:
            raise


checks["kqueue"].append(("kqueue", "kqueue", check_kqueue))
checks["polling"] += [
    ("waitid", "waitid", check_bsd_waitid),
    ("ps", None, check_ps),
]
