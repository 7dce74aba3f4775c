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
from errno import EACCES, EAGAIN, EBADF, ECHILD, ENOENT, ENOSYS, ESRCH
from weakref import WeakValueDictionary

from .._base.deadline import NOW, Deadline
from .._base.errors import Failed, call, failed, log
from .._base.handle import PENDING, RUNNING
from .._base.probe import checks, works
from .calls import ask, native
from .kqueue_calls import EV_ADD, EV_DELETE, EV_ONESHOT, NOTE_EXIT, table
from .posix import close, code_of_status, look_at_child, own, poll
from .ps import PsHandle, check_ps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Identity, Iterator, Outcome

# select.kqueue objects of the parent: before Python 3.13 these do not know of the fork. When one
# is freed, it would close the file that has the number now. So they are never freed.
_kept: "list[Any]" = []


class Registration:
    """A process in a kqueue, and the number in its event, by which it is told from another one."""

    def __init__(self, pid: int, number: int) -> None:
        self.pid = pid
        self.number = number
        self.fflags = NOTE_EXIT
        self.event: "Any" = None
        self.members: "dict[Any, None]" = {}  # the handles that share it


class Queue:
    """A kqueue, and a bell that makes it readable."""

    _kqueue: "Any" = None
    # What is readable for ever, and for every thread: a pipe whose writer is closed. A timer
    # would be late, and timers are few.
    _bell: "Any" = None

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._kqueue = ask("kqueue")

    def is_copy(self) -> bool:
        """Whether this is the copy in a forked child, which has no kqueue."""
        return self._pid != os.getpid()

    def _open_kqueue(self) -> "Any":
        if self._kqueue is None or self.is_copy():
            raise failed(EBADF, "the kqueue is closed, or the parent's")
        return self._kqueue

    def fileno(self) -> int:
        fd: int = self._open_kqueue().fileno()
        return fd

    def close(self) -> None:
        queue, self._kqueue = self._kqueue, None
        if queue is None:
            return
        if self._bell is not None:
            close(self._bell)
        if self.is_copy():
            _kept.append(queue)
        else:
            close(queue)

    def __del__(self) -> None:
        self.close()

    def take(self, room: int, seconds: float) -> "list[Any]":
        """The events that happen within ``seconds``, at most ``room`` of them."""
        return call(self._open_kqueue().control, None, room, seconds)  # type: ignore[no-any-return]

    def change(
        self, ident: int, filter_: int, flags: int, fflags: int = 0, data: int = 0, udata: int = 0
    ) -> bool:
        """Return whether there was something to change; with EV_ADD there always is."""
        event = native("kevent")(ident, filter_, flags, fflags, data, udata)
        try:
            # With no room for events, an error is raised by the call, and no event is taken from
            # the kqueue: on FreeBSD and DragonFly a zombie's exit is there at once.
            call(self._open_kqueue().control, [event], 0, 0)
        except Failed as why:
            if why.errno != ENOENT or flags & EV_ADD:
                raise
            return False
        return True

    def watch(self, one: Registration) -> None:
        """Have the exit of a process reported; Failed (EAGAIN) if there may be none to watch."""
        filter_, flags = table().filter_proc, EV_ADD | EV_ONESHOT
        one.fflags = NOTE_EXIT | table().status_flag
        try:
            try:
                self.change(one.pid, filter_, flags, one.fflags, 0, one.number)
            except Failed as why:
                if why.errno != EACCES:
                    raise
                one.fflags = NOTE_EXIT  # NOTE_EXITSTATUS is not allowed for every process
                self.change(one.pid, filter_, flags, one.fflags, 0, one.number)
        except Failed as why:
            if why.errno != ESRCH:
                raise
            # So say macOS, NetBSD and OpenBSD of a zombie, too. Polling will tell.
            raise failed(EAGAIN, "gone, exiting, or a zombie") from None

    def ring(self, on: bool) -> None:
        """Wake all threads, and be readable, whatever is taken; or no more."""
        if self._bell is None:
            reader, writer = map(own, call(os.pipe))
            writer.close()
            self._bell = reader
        flags = EV_ADD if on else EV_DELETE  # EV_DISABLE would leave it readable
        self.change(self._bell.fileno(), table().filter_read, flags)


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

    def sleep(self, deadline: Deadline, pauses: "Iterator[float]") -> bool:
        if self._tells_exit(deadline):
            return True
        return self.backend == "polling" and super().sleep(deadline, pauses)

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


def check_kqueue() -> None:
    """Watch our own process."""
    system = table()
    for name, number in (
        ("KQ_FILTER_PROC", system.filter_proc),
        ("KQ_FILTER_TIMER", system.filter_timer),
        ("KQ_FILTER_READ", system.filter_read),
        ("KQ_NOTE_EXIT", NOTE_EXIT),
    ):
        theirs = getattr(select, name, number)
        if (theirs - number) % 2**32:  # a long of 32 bits is signed
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


checks["kqueue"] += [
    ("kqueue", "kqueue", check_kqueue),
    ("waitid", "waitid", check_bsd_waitid),
    ("ps", None, check_ps),
]
