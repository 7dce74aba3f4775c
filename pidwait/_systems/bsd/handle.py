# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: kqueue(2) and EVFILT_PROC, for one process and for many.

A kqueue refers to the process, not to its pid. The event of its exit can be taken only once, by
one thread. It carries the wait status:

    FreeBSD, DragonFly   always
    NetBSD, OpenBSD      from NetBSD 8 on, and OpenBSD since about 5.x
    macOS                with NOTE_EXITSTATUS, for our own children, and from macOS 11 on for all
                         processes that we may kill

The event may come before the process is a zombie: on macOS, older OpenBSDs, and on FreeBSD for a
process that was exiting when it was registered. In each case the process has exited by then.

A registration stays until its event is taken, even if nobody waits for it any more: before NetBSD
10, if a thread deletes a one-shot event while another thread takes it, both hang in the kernel, or
the kernel crashes. So neither the wake-up pipe nor the timer is one-shot: reading deletes them.

A forked child does not inherit a kqueue, and another file may soon have its number there. So the
child does not use the number, and does not even close it.
"""

import os
import select
import time
from errno import EACCES, EAGAIN, EBADF, ENOSYS, ESRCH
from itertools import count, repeat
from operator import is_
from weakref import WeakValueDictionary

from ..._base.checks import works
from ..._base.deadline import NOW, SHORTEST, Backoff, Deadline
from ..._base.errors import Failed, is_python, log
from ..._base.handle import PENDING, RUNNING
from ..._base.steps import atomically_if
from ..calls import ask
from ..posix import EventSource, check_waitid, close, code_of_status, may_block, opened_wakeup, poll
from .calls import (
    EV_ADD,
    EV_DELETE,
    EV_ENABLE,
    EV_ONESHOT,
    NOTE_EXIT,
    PROC,
    READ,
    TIMER,
    change,
    table,
)
from .ps import PsHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._types import Any, File, Identity, Kevent, KQueue, Outcome

_EXITS = 256  # that one sleep returns at most
# On DragonFly and older OpenBSDs a thread that goes to sleep at a certain moment misses the
# wake-up: kqueue_scan(). So no sleep is longer than this.
LONGEST_NAP = 60.0

# select.kqueue objects of the parent: before Python 3.13 they do not know of the fork. Freeing one
# would close the file that has the number now. So they are never freed.
_kept: "list[KQueue]" = []
# The latest handle for each pid, to tell whether a new one is for the same process.
_latest: "WeakValueDictionary[int, KqueueHandle]" = WeakValueDictionary()


class Registration:
    """A process in a kqueue, and the number in its event, which is unique."""

    __slots__ = ("events", "fflags", "later", "number", "pid")  # as a set has many of them

    def __init__(self, pid: int, number: int) -> None:
        self.pid, self.number = pid, number
        self.fflags = 0  # until it is in the kqueue
        self.events: "list[Kevent | None]" = []  # the event, once it is read; None: it is lost
        # {None: the registration of the next process with the pid}, or another object if this was
        # the last one.
        self.later: "dict[None, object]" = {}


class Kqueue(EventSource):
    """A kqueue, and its registrations. It is closed with the last reference to it."""

    wakeup: "File | None" = None  # if several threads sleep in the kqueue
    _kqueue: "Any" = None

    def __init__(self, wakeup: "File | None" = None) -> None:
        super().__init__()
        self._pid = os.getpid()
        self.wakeup = wakeup
        self._numbers = count(READ + 1)
        self._by_pid: "dict[int, Registration]" = {}  # the first; ``later`` leads to the latest
        # Registrations of processes; of the wake-up pipe, READ, and the timer, TIMER, once used.
        self.by_number: "dict[int, Registration | tuple[int, int]]" = {}
        # The events that have been taken, and not read yet.
        self.ready: "dict[object, Kevent | None]" = {}
        self._kqueue = ask("kqueue")

    def is_open(self) -> bool:
        return self._kqueue is not None and self._pid == os.getpid()

    def opened(self) -> "KQueue":
        if not self.is_open():
            raise Failed(EBADF, "the kqueue is closed, or the parent's")
        return self._kqueue  # type: ignore[no-any-return]

    def close(self) -> None:
        kqueue, self._kqueue = self._kqueue, None
        if kqueue and self._pid != os.getpid():
            _kept.append(kqueue)
            kqueue = None
        for file in filter(None, (self.wakeup, kqueue)):
            close(file)

    def __del__(self) -> None:
        self.close()

    def register(self, pid: int) -> Registration:
        """Watch for the exit; Failed (EAGAIN) if there may be no process to watch."""
        new = Registration(pid, next(self._numbers))
        one: object = None
        for _ in range(100):
            one = self._by_pid.setdefault(pid, new)
            # Its process may have been reaped, and the pid reused. EV_ADD would give the old
            # registration another number: the old exit would be taken for the new process's.
            while type(one) is Registration and (one.fflags or self.event_of(one)):
                if self.is_watched(one):
                    return one
                one = one.later.setdefault(None, new)
            if one is new:
                break
            time.sleep(SHORTEST)  # another thread is adding it, or forgetting the last one
        else:
            raise Failed(EAGAIN, "another thread is busy with the pid")
        self.by_number[new.number] = new
        try:
            self._add(new)
        except BaseException:
            self.forget(new)
            raise
        return new

    def _add(self, one: Registration) -> None:
        for fflags in (NOTE_EXIT | table().status_flag, NOTE_EXIT):
            try:
                change(self.opened(), PROC, one.pid, EV_ADD | EV_ONESHOT, fflags, 0, one.number)
                one.fflags = fflags
                return
            except Failed as why:
                if why.errno == ESRCH:  # also for a zombie: macOS, NetBSD, OpenBSD
                    raise Failed(EAGAIN, "gone, exiting, or a zombie") from None
                # NOTE_EXITSTATUS is not allowed for every process.
                if why.errno != EACCES or fflags == NOTE_EXIT:
                    raise

    def forget(self, one: Registration) -> None:
        """Drop a registration, and its event, if there is one."""
        self.by_number.pop(one.number, None)
        end = [object()]
        is_last = map(is_, map(one.later.setdefault, repeat(None, 1), end), end)
        atomically_if((next, is_last), (self._by_pid.pop, one.pid, None))

    def event_of(self, one: Registration) -> "Kevent | None":
        """Its event, if it has been taken."""
        return self.ready.get(one) or next(filter(None, one.events), None)  # in this order

    def is_watched(self, one: Registration, seconds: float = 0.0) -> bool:
        """Whether there is no event yet, not even a lost one, and none comes in ``seconds``."""
        self.poll(0.0 if self.event_of(one) else seconds, len(self.by_number) + 1)
        if one.later or self.event_of(one) or not self._find(one, one.fflags):
            return False
        if not one.later:
            return True
        # If another thread has registered the pid again meanwhile, that changed this one's number.
        later: object = self._by_pid.get(one.pid)
        while type(later) is Registration:
            last, later = later, later.later.get(None)
            if last is not one and not later and not self._find(last, last.fflags or one.fflags):
                last.events.append(None)  # its event has been taken for this one's
                self.ready.setdefault(last, None)
        return False

    def _find(self, one: Registration, fflags: int) -> bool:
        # Without EV_ADD this finds the registration, and does not change it.
        return change(self.opened(), PROC, one.pid, EV_ENABLE, fflags, 0, one.number)

    def poll(self, seconds: float, room: int = _EXITS) -> None:
        """Sleep until there are events, for ``seconds`` at most, and put them into ``ready``."""
        if self._batches:
            self.flush()
            seconds = 0 if self.ready else seconds
        if seconds and not may_block():
            poll(self.opened().fileno(), select.POLLIN, Deadline(seconds))
            seconds = 0
        control = self.opened().control
        try:
            self.receive_from(control, None, room, seconds)
        except BaseException:
            if is_python(control):  # a handler's exception there can lose the kernel's events
                for there in list(self.by_number.values()):
                    self.ready.setdefault(there, None)
            raise

    def note(self, events: "list[Kevent]") -> None:
        self.ready.update([(self.by_number.get(event.udata), event) for event in events])

    def wake(self, seconds: float = 0.0) -> None:
        """End all sleeps, and be readable until the event is read: now, or every ``seconds``."""
        try:
            self._start(seconds)
        except Failed as why:  # ENOMEM: timers are few; EMFILE
            log("without the %s: %s", "timer" if seconds else "wake-up pipe", why)
            self._start(0.0 if seconds else SHORTEST)

    def _start(self, seconds: float) -> None:
        if seconds:
            what, data = (TIMER, 1), max(1, -int(-min(seconds, LONGEST_NAP) * 1000 // 1))
        else:
            self.wakeup = self.wakeup or opened_wakeup()
            what, data = (READ, self.wakeup.fileno()), 0
        self.by_number[what[0]] = what
        try:
            # On DragonFly and NetBSD, EV_ADD alone wakes nobody if the pipe is already registered.
            # There, and before FreeBSD 12, EV_ADD does not restart the timer.
            change(self.opened(), *what, EV_DELETE)
        finally:
            change(self.opened(), *what, EV_ADD, 0, data, what[0])


class KqueueHandle(PsHandle):
    """A process in a kqueue of its own, which is readable once it has exited, or in a poller's.

    The process is polled if its kqueue is gone: in a forked child, or if somebody has closed it.
    """

    backend = "kqueue"
    _exited = False  # once True, it stays so
    _identity: "object | None" = None

    def __init__(self, pid: int, queue: "Kqueue | None" = None) -> None:
        self.pid = pid
        self._is_alone = queue is None  # in its kqueue
        self._queue = queue or Kqueue()
        try:
            self.registration = self._queue.register(pid)
        except Failed:
            self.close()
            raise

    def look(self, reap: bool = False) -> "Outcome":
        if not self._tells_exit(NOW):
            return super().look(reap) if self.backend == "polling" else RUNNING
        event = self._queue.event_of(self.registration)
        code = told_code(event)
        if code is not None and not reap:
            return code
        found = self._code_of_child(reap)
        if found is RUNNING and reap and not self._is_passed_on():
            return PENDING
        if code is None and (found is RUNNING or (found is None and event is None)):
            # It is not a zombie yet; or another thread has the event.
            return PENDING
        return found if code is None else code

    def _is_passed_on(self) -> bool:
        """Whether a running process has the pid: not this one, then."""
        try:
            other = KqueueHandle(self.pid)
        except Failed:
            return False
        is_running = other._is_running()
        other.close()
        return is_running

    def sleep(self, deadline: Deadline, backoff: Backoff) -> bool:
        while not self._tells_exit(deadline):
            if self.backend == "polling":
                return super().sleep(deadline, backoff)
            if deadline.expired():
                return False
        return True

    def _tells_exit(self, deadline: Deadline) -> bool:
        """Whether the kqueue reports the exit by the deadline."""
        if self.backend == "kqueue" and not self._exited:
            nap = deadline.at_most(LONGEST_NAP) if self._is_alone else 0.0
            try:
                if not self._queue.is_watched(self.registration, nap):
                    self._exited = True
                    if self._is_alone:  # other threads sleep, and a program may poll fileno()
                        self._queue.wake()
            except Failed as why:  # EBADF; or there is neither a pipe nor a timer
                log("pid %d is polled: %s", self.pid, why)
                self.backend = "polling"
            except BaseException:
                # The event may be taken, and other threads that sleep for it not woken yet.
                self._exited = False
                self._tells_exit(NOW)
                raise
        return self._exited

    def _is_running(self) -> bool:
        """Whether it is running; False also if the kqueue is closed, or fails."""
        return self._queue.is_open() and not self._tells_exit(NOW) and self.backend == "kqueue"

    def fileno(self) -> int:
        if self.backend == "polling" or not self._queue.is_open():
            return super().fileno()
        return self._queue.opened().fileno()

    def identify(self) -> "Identity | None":
        if self._identity is None:
            self._identity = object()
            latest = _latest.get(self.pid)
            # If neither has exited, both are for the process that has the pid now.
            if latest is not None and latest._is_running() and self._is_running():
                self._identity = latest._identity
            _latest[self.pid] = self
        return "kqueue", self._identity

    def close(self) -> None:
        super().close()
        if self._is_alone:
            self._queue.close()


def told_code(event: "Kevent | None") -> "int | None":
    """The exit code that an event carries; None if it carries none."""
    flag = table().status_flag
    if event is None or (flag and not event.fflags & flag):
        return None
    # Where there is no waitid(2), before NetBSD 8 and OpenBSD 7.3, 0 may mean nothing.
    return code_of_status(event.data) if event.data or flag or works(check_waitid) else None


def check_kqueue() -> None:
    """Watch our own process."""
    works(check_waitid)  # load it now: later there may be no file descriptor left
    queue = Kqueue()
    queue.register(os.getpid())
    is_early = poll(queue.opened().fileno(), select.POLLIN, NOW)
    queue.wake()
    if is_early or not poll(queue.opened().fileno(), select.POLLIN, Deadline(1)):
        raise Failed(ENOSYS, "poll does not report a kqueue's events")
    queue.close()
