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

A registration stays until its event is taken, also if nobody waits for it any more: before NetBSD
10, a thread that deletes it while another one takes its event hangs with that one in the kernel.

A forked child does not inherit a kqueue, and another file may soon have its number there. So the
child does not use the number, and does not even close it.
"""

import os
import select
import time
from errno import EACCES, EAGAIN, EBADF, ENOSYS, ESRCH
from itertools import chain, compress, count, repeat, tee
from operator import attrgetter, is_
from weakref import WeakValueDictionary

from .._base import run_through
from .._base.deadline import NOW, SHORTEST, Deadline
from .._base.errors import Failed, call, failed, is_python, log
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
    table,
)
from .posix import check_bsd_waitid, close, code_of_status, opened_bell, poll
from .ps import PsHandle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Identity, Outcome

_EXITS = 256  # that one sleep brings at most
# A thread that goes to sleep at a certain moment is not woken by the bell of DragonFly and of
# older OpenBSDs: kqueue_scan(). So no sleep is longer than this.
LONGEST_NAP = 60.0
_BELL = 1  # the number of its events; that of the timer's, 0, is nobody's

# select.kqueue objects of the parent: before Python 3.13 these do not know of the fork. When one
# is freed, it would close the file that has the number now. So they are never freed.
_kept: "list[Any]" = []
# The latest handle for each pid, to tell whether a new one is for the same process.
_latest: "WeakValueDictionary[int, KqueueHandle]" = WeakValueDictionary()


class Registration:
    """A process in a kqueue, and the number in its event, which no other process has."""

    __slots__ = ("events", "fflags", "later", "number", "pid")  # as a set has many of them

    def __init__(self, pid: int, number: int) -> None:
        self.pid, self.number = pid, number
        self.fflags = 0  # until the kqueue has it
        self.events: "list[Any]" = []  # the one event, once it has been read; None: it is lost
        # What comes after its exit: {None: that of the next process with the pid}, or something
        # else if it was the last one.
        self.later: "dict[None, Any]" = {}


class Kqueue:
    """A kqueue, and what is registered in it. It is closed when nobody refers to it any more."""

    def __init__(self, bell: "Any" = None) -> None:
        """``bell``: if several threads sleep in it."""
        self._pid = os.getpid()
        self.bell = bell
        self._numbers = count(_BELL + 1)
        self._by_pid: "dict[int, Registration]" = {}  # the first; the latest by ``later``
        self.by_number: "dict[int, Any]" = {_BELL: bell}
        # The events that have been taken, and that nobody has read.
        self.hot: "dict[Any, Any]" = {}
        self._kqueue: "Any" = None
        self._kqueue = ask("kqueue")

    def opened(self) -> "Any":
        if self._kqueue is None or self._pid != os.getpid():
            raise failed(EBADF, "the kqueue is closed, or the parent's")
        return self._kqueue

    def close(self) -> None:
        kqueue, self._kqueue = self._kqueue, None
        if self._pid != os.getpid():
            _kept.append(kqueue)
            kqueue = None
        for file in filter(None, (self.bell, kqueue)):
            close(file)

    __del__ = close

    def register(self, pid: int) -> Registration:
        """Have the exit reported; Failed (EAGAIN) if there may be no process to watch."""
        new = Registration(pid, next(self._numbers))
        one: "Any" = None
        for _ in range(100):
            one = self._by_pid.setdefault(pid, new)
            # That process may have been reaped, and another one may have the pid now. EV_ADD would
            # give its registration another number: the old exit would be the new one's.
            while type(one) is Registration and (one.fflags or self.event_of(one)):
                if self.is_watched(one):
                    return one
                one = one.later.setdefault(None, new)
            if one is new:
                break
            time.sleep(SHORTEST)  # another thread is about to add it, or to forget the last one
        else:
            raise failed(EAGAIN, "another thread is busy with the pid")
        self.by_number[new.number] = new
        try:
            self._add(new)
        except BaseException:
            self.forget(new)
            raise
        return new  # type: ignore[no-any-return]

    def _add(self, one: Registration) -> None:
        for fflags in (NOTE_EXIT | table().status_flag, NOTE_EXIT):
            try:
                change(self.opened(), PROC, one.pid, EV_ADD_ONCE, fflags, 0, one.number)
                one.fflags = fflags
                return
            except Failed as why:
                if why.errno == ESRCH:  # also for a zombie: macOS, NetBSD, OpenBSD
                    raise failed(EAGAIN, "gone, exiting, or a zombie") from None
                # NOTE_EXITSTATUS is not allowed for every process.
                if why.errno != EACCES or fflags == NOTE_EXIT:
                    raise

    def forget(self, one: Registration) -> None:
        """Its event, if there is one, is nobody's any more."""
        self.by_number.pop(one.number, None)
        end = [object()]
        is_last = map(is_, map(one.later.setdefault, repeat(None, 1), end), end)
        run_through(map(self._by_pid.pop, compress((one.pid,), is_last), (None,)))

    def event_of(self, one: Registration) -> "Any":
        """Its event, if it has been taken."""
        event = self.hot.get(one)  # first: from there it goes on
        return event or next(filter(None, one.events), None)

    def is_watched(self, one: Registration) -> bool:
        """Whether there has been no event yet, not even one that is lost, or on its way."""
        self.take(0, len(self.by_number) + 1)
        if one.later or self.event_of(one) or not self._find(one, one.fflags):
            return False
        if not one.later:
            return True
        # If another thread has registered the next one meanwhile, that has got this one's number.
        later: "Any" = self._by_pid.get(one.pid)
        while type(later) is Registration:
            last, later = later, later.later.get(None)
            if last is not one and not later and not self._find(last, last.fflags or one.fflags):
                last.events.append(None)  # its event has been taken as this one's
                self.hot.setdefault(last, None)
        return False

    def _find(self, one: Registration, fflags: int) -> bool:
        # Without EV_ADD this finds the registration, and leaves it as it is.
        return change(self.opened(), PROC, one.pid, EV_ENABLE, fflags, 0, one.number)

    def take(self, seconds: float, room: int = _EXITS) -> None:
        """Sleep until there are events, for ``seconds`` at most, and put them into ``hot``."""
        control = self.opened().control
        one, two = tee(chain.from_iterable(map(control, (None,), (room,), (seconds,))))
        whose = map(self.by_number.get, map(attrgetter("udata"), one))
        try:
            call(self.hot.update, zip(whose, two))
        except BaseException:
            if is_python(control):  # a handler's exception there can lose what the kernel gave
                for there in list(self.by_number.values()):
                    self.hot.setdefault(there, None)
            raise

    def ring(self) -> None:
        """Have all sleeps end, and the kqueue be readable, until the bell's event is read."""
        self.bell = self.bell or opened_bell()
        kqueue, fd = self.opened(), self.bell.fileno()
        try:
            # If it rings, EV_ADD alone would wake nobody on DragonFly and NetBSD.
            change(kqueue, READ, fd, EV_DELETE)
        finally:
            change(kqueue, READ, fd, EV_ADD, 0, 0, _BELL)


class KqueueHandle(PsHandle):
    """A process in a kqueue of its own, which is readable once it has exited, or in a poller's.

    It is polled if there is no kqueue any more: in a forked child, or as somebody has closed it.
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

    def sleep(self, deadline: Deadline, interval: "list[float]") -> bool:
        while not self._tells_exit(deadline):
            if self.backend == "polling":
                return super().sleep(deadline, interval)
            if deadline.expired():
                return False
        return True

    def _tells_exit(self, deadline: Deadline) -> bool:
        """Whether the kqueue reports the exit by the deadline."""
        if self.backend == "kqueue" and not self._exited:
            try:
                if self._has_event(deadline):
                    self._exited = True
            except Failed as why:  # poll(2): ENOMEM, EINVAL; our EBADF
                log("pid %d is polled: %s", self.pid, why)
                self.backend = "polling"
        return self._exited

    def _has_event(self, deadline: Deadline) -> bool:
        """Whether it exits by the deadline; Failed if the kqueue does not tell."""
        queue, one = self._queue, self.registration
        if self._is_alone and queue.event_of(one) is None:
            nap = Deadline(deadline.at_most(LONGEST_NAP))
            if poll(queue.opened().fileno(), select.POLLIN, nap) == 0:
                return False
        if queue.is_watched(one):
            return False
        if self._is_alone:
            # Keep it readable: other threads may be in poll(2), and a program may poll fileno().
            try:
                queue.ring()
            except Failed as why:
                log("pid %d, without a bell: %s", self.pid, why)
                change(queue.opened(), TIMER, 1, EV_ADD, 0, 1)  # each ms
        return True

    def _is_running(self) -> bool:
        """False also if the kqueue can't tell any more."""
        return not self._tells_exit(NOW) and self.backend == "kqueue"

    def fileno(self) -> int:
        try:
            fd: int = self._queue.opened().fileno()
        except Failed:
            return super().fileno()
        return super().fileno() if self.backend == "polling" else fd

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
        if self._is_alone:
            self._queue.close()


def told_code(event: "Any") -> "int | None":
    """The exit code that an event carries; None if it carries none."""
    flag = table().status_flag
    if event is None or (flag and not event.fflags & flag):
        return None
    # Where there is no waitid(2), before NetBSD 8 and OpenBSD 6.9, 0 may mean nothing.
    return code_of_status(event.data) if event.data or flag or works(check_bsd_waitid) else None


def check_kqueue() -> None:
    """Watch our own process."""
    works(check_bsd_waitid)  # load it now: later there may be no file descriptor left for that
    queue = Kqueue()
    queue.register(os.getpid())
    is_early = poll(queue.opened().fileno(), select.POLLIN, NOW)
    queue.ring()
    if is_early or not poll(queue.opened().fileno(), select.POLLIN, Deadline(1)):
        raise failed(ENOSYS, "poll does not report a kqueue's events")
    queue.close()
