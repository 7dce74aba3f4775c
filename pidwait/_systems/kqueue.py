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
from io import UnsupportedOperation
from itertools import chain
from weakref import WeakValueDictionary

from .._base.deadline import NOW, Deadline
from .._base.errors import Failed, call, failed, log
from .._base.handle import PENDING, RUNNING, Handle
from .._base.probe import checks, works
from . import calls
from .calls import ask, native
from .kqueue_calls import (
    EV_ADD,
    EV_DELETE,
    EV_ENABLE,
    EV_ERROR,
    EV_ONESHOT,
    NOBODY,
    NOTE_EXIT,
    table,
)
from .posix import close, code_of_status, kill, look_at_child, own, poll, reap_child
from .ps import PsHandle, check_ps, is_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Identity, Iterator, Outcome

# select.kqueue objects of the parent: before Python 3.13 these do not know of the fork. When one
# is freed, it would close the file that has the number now. So they are never freed.
_kept: "list[Any]" = []


class Queue:
    """A kqueue, and a bell that makes it readable."""

    def __init__(self) -> None:
        self._kqueue: "Any" = None
        # What is readable for ever, and for every thread: a pipe whose writer is closed. A timer
        # would be late, and timers are few.
        self.bell: "Any" = None
        self._pid = os.getpid()
        self._kqueue = ask("kqueue")
        self._fd: int = self._kqueue.fileno()

    def is_copy(self) -> bool:
        """Whether this is the copy in a forked child, which has no kqueue."""
        return self._pid != os.getpid()

    def fileno(self) -> int:
        if self._kqueue is None or self.is_copy():
            raise failed(EBADF, "the kqueue is closed, or the parent's")
        return self._fd

    def close(self) -> None:
        queue, self._kqueue = self._kqueue, None
        if queue is None:
            return
        if self.bell is not None:
            close(self.bell)
        if self.is_copy():
            _kept.append(queue)
        else:
            close(queue)

    def __del__(self) -> None:
        self.close()

    def change(
        self, ident: int, filter_: int, flags: int, fflags: int = 0, data: int = 0, udata: int = 0
    ) -> None:
        event = native("kevent")(ident, filter_, flags, fflags, data, udata)
        # With no room for events, an error is raised by the call, and no event is taken from
        # the kqueue: on FreeBSD and DragonFly a zombie's exit is there at once.
        call(self._kqueue.control, [event], 0, 0)

    def has(self, *change: int) -> bool:
        """Make a change without EV_ADD; return whether there was something to change."""
        try:
            self.change(*change)
        except Failed as why:
            if why.errno != ENOENT:
                raise
            return False
        return True

    def drop(self, ident: int, filter_: int) -> None:
        """Forget this, and its event."""
        try:
            self.has(ident, filter_, EV_DELETE)
        except Failed as why:  # somebody else has closed the kqueue
            log("kevent, %d: %s", ident, why)

    def make_bell(self) -> None:
        if self.bell is None:
            reader, writer = map(own, call(os.pipe))
            writer.close()
            self.bell = reader

    def ring(self, on: bool) -> None:
        """Wake all threads, and be readable, whatever is taken; or no more."""
        self.make_bell()
        if on:
            self.change(self.bell.fileno(), table().filter_read, EV_ADD)
        else:  # EV_DISABLE would leave it readable
            self.drop(self.bell.fileno(), table().filter_read)

    def take(self, events: "list[Any]", room: int, seconds: float) -> None:
        """Append the events that happen within ``seconds``, at most ``room`` of them."""
        # With select.kqueue there is no bytecode between the system call and the list: if a
        # signal handler raised there, the exit codes would be lost.
        control = self._kqueue.control
        call(events.extend, chain.from_iterable(map(control, (None,), (room,), (seconds,))))


def register(queue: Queue, pid: int, udata: int = 0) -> int:
    """Watch the process; its event carries ``udata``. Return the fflags that were accepted.

    Failed (EAGAIN) if it is exiting, or a zombie, and can't be watched any more.
    """
    filter_, status_flag = table().filter_proc, table().status_flag
    try:
        for fflags in (NOTE_EXIT | status_flag, NOTE_EXIT):
            try:
                queue.change(pid, filter_, EV_ADD | EV_ONESHOT, fflags, 0, udata)
                return fflags
            except Failed as why:
                # NOTE_EXITSTATUS is not allowed for every process.
                if why.errno != EACCES or fflags == NOTE_EXIT:
                    raise
    except Failed as why:
        if why.errno != ESRCH or not is_there(pid):
            raise
    # ESRCH though the process is there: macOS, NetBSD, OpenBSD.
    raise failed(EAGAIN, "exiting, or a zombie")


def told_code(event: "Any") -> "int | None":
    """The exit code that an event carries; None if it carries none."""
    flag = table().status_flag
    if event is None or (flag and not event.fflags & flag):
        return None
    if event.data == 0 and table().told_since_waitid and not works(check_bsd_waitid):
        return None
    return code_of_status(event.data)


# The latest handle for each pid, to tell whether a new one is for the same process.
_latest: "WeakValueDictionary[int, KqueueHandle]" = WeakValueDictionary()


class KqueueHandle(Handle):
    """A kqueue that watches one process, and is readable once that has exited."""

    backend = "kqueue"
    pid: int
    _identity: "object | None" = None
    _exited = False  # once True, it stays so
    # What polls the process if there is no kqueue any more.
    _fallback: "PsHandle | None" = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._events: "list[Any]" = []
        self._queue = Queue()
        try:
            register(self._queue, pid)
        except BaseException:
            self._queue.close()
            raise
        self.fd = self._queue.fileno()

    def fileno(self) -> int:
        if self._fallback is not None or self._queue.is_copy():
            raise UnsupportedOperation("a process that is polled has no fileno")
        return self._queue.fileno()

    def close(self) -> None:
        self.fd = -1
        self._queue.close()

    def wait(self, deadline: Deadline, reap: bool = False) -> "Outcome":
        outcome = super().wait(deadline, reap)
        if outcome is RUNNING and self._fallback is not None:
            return self._fallback.wait(deadline, reap)
        return outcome

    def sleep(self, deadline: Deadline, pauses: "Iterator[float]") -> bool:
        if self._fallback is not None:
            return False  # wait() has it sleep
        try:
            return self._exited or self._has_event(deadline)
        except Failed as why:  # poll(2): ENOMEM, EINVAL; our EBADF
            self._fall_back(why)
            return True

    def _has_event(self, deadline: Deadline) -> bool:
        """Whether it exits by the deadline; Failed if the kqueue does not tell."""
        return poll(self._queue.fileno(), select.POLLIN, deadline) != 0

    def _event(self) -> "Any":
        """The event of its exit; None if it is lost, or another thread is about to bring it."""
        if not self._events and not self._queue.is_copy():
            try:
                # First keep the kqueue readable: other threads may be in poll(2), and a program
                # may poll fileno(). If that fails, the event is left in the kqueue.
                self._queue.ring(True)
                self._queue.take(self._events, 2, 0)
            except Failed as why:
                log("pid %d, kevent: %s", self.pid, why)
        filter_ = table().filter_proc
        return next((event for event in list(self._events) if event.filter == filter_), None)

    def _fall_back(self, why: Failed) -> None:
        log("pid %d is polled: %s", self.pid, why)
        try:
            self._fallback = PsHandle(self.pid)
            self.backend = self._fallback.backend
        except Failed as gone:
            if gone.errno != ESRCH:
                raise
            self._exited = True

    def look(self, reap: bool = False, last: bool = False) -> "Outcome":
        if not self._exited and self._fallback is None:
            try:
                self._exited = self._has_event(NOW)
            except Failed as why:
                self._fall_back(why)
        if self._fallback is not None:
            return self._fallback.look(reap, last)
        return self._code(reap, last) if self._exited else RUNNING

    def _code(self, reap: bool, last: bool) -> "Outcome":
        event = self._event()
        code = told_code(event)
        if code is not None and not reap:
            return code
        found: "Outcome" = None
        try:
            found = (reap_child if reap else look_at_child)(self.pid)
        except Failed as why:  # it is not our child, or there is no waitid
            log("waitid, pid %d: %s", self.pid, why)
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

    def _is_running(self) -> bool:
        """False also if the kqueue can't tell any more."""
        try:
            return not self._exited and not self._has_event(NOW)
        except Failed:
            return False

    def send_signal(self, sig: int) -> None:
        if self._fallback is not None:
            return self._fallback.send_signal(sig)
        if self.look() is not RUNNING:
            raise failed(ESRCH)
        return kill(self.pid, sig)

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
    """Look for a process that can't exist, and watch our own."""
    filter_ = table().filter_proc
    for name, number in (
        ("KQ_FILTER_PROC", filter_),
        ("KQ_FILTER_TIMER", table().filter_timer),
        ("KQ_FILTER_READ", table().filter_read),
        ("KQ_EV_ADD", EV_ADD),
        ("KQ_EV_DELETE", EV_DELETE),
        ("KQ_EV_ENABLE", EV_ENABLE),
        ("KQ_EV_ONESHOT", EV_ONESHOT),
        ("KQ_EV_ERROR", EV_ERROR),
        ("KQ_NOTE_EXIT", NOTE_EXIT),
    ):
        theirs = getattr(select, name, number)
        if (theirs - number) % 2**32:  # a long of 32 bits is signed
            raise failed(ENOSYS, "select.%s is %d, not %d" % (name, theirs, number))
    try:
        native("waitid")  # load it now: later there may be no file descriptor left for that
    except Failed as why:
        log("waitid: %s", why)
    queue = Queue()
    try:
        register(queue, os.getpid())
        if poll(queue.fileno(), select.POLLIN, NOW):
            raise failed(ENOSYS, "poll takes a running process for an exited one")
        try:
            queue.change(NOBODY, filter_, EV_ADD, NOTE_EXIT)
        except Failed as why:
            if why.errno != ESRCH:
                raise
        else:
            raise failed(ENOSYS, "kevent watches a process that can't exist")
        queue.ring(True)
        if not poll(queue.fileno(), select.POLLIN, Deadline(1)):
            raise failed(ENOSYS, "poll does not see that a kqueue is readable")
    finally:
        queue.close()


def check_bsd_waitid() -> None:
    """Look for a child that can't exist: our own process."""
    numbers = calls.WAITID
    for name, key in (("P_PID", "P_PID"), ("WEXITED", "LOOK"), ("WNOWAIT", "LOOK")):
        theirs = getattr(os, name, numbers[key])
        if theirs != numbers[key] if name == "P_PID" else not theirs & numbers[key]:
            raise failed(ENOSYS, "os.%s is %d here" % (name, theirs))
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
