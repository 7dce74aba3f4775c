# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: kqueue(2), EVFILT_PROC, and poll(2) on the kqueue.

What is watched is the process, not its number. The event is left in the kqueue, which
is readable by it, for all who wait: it is taken, once, for the wait status that it carries,

    FreeBSD, DragonFly   always
    NetBSD, OpenBSD      from NetBSD 8 and OpenBSD 6.9 on
    macOS                with NOTE_EXITSTATUS, which is for our own children, and in newer
                         versions for whom we may send a signal

and then a timer that nobody takes keeps the kqueue readable.
"""

import os
import select
from _thread import RLock
from errno import EACCES, EAGAIN, EBADF, ENOSYS
from io import UnsupportedOperation
from weakref import WeakValueDictionary

from .. import _polling, _probe
from .._deadline import Deadline
from .._errors import log, no_such_process, os_error
from .._exitcodes import RUNNING, NotYet, from_status
from .._ffi import bsd, calls
from .._ffi.kqueue import NOBODY
from . import polling, ps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# How long to wait for the exit code of our child, which is due any moment.
_GRACE = 0.01

# The last handle on each number, to tell whether another one is of the same process.
_latest: "WeakValueDictionary[int, Handle]" = WeakValueDictionary()
# select.kqueue objects of a parent, see Handle.close().
_kept: "list[Any]" = []


class Handle:
    """A kqueue with one process."""

    _queue: "Any" = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._creator = os.getpid()
        self._fallback: "polling.Handle | None" = None
        self._exited = False
        self._events: "list[Any]" = []
        self._lock = RLock()
        self._identity: "object | None" = None
        self._queue = _watch(pid)  # last, so that no interrupt can lose it

    @property
    def backend(self) -> str:
        return "kqueue" if self._fallback is None else self._fallback.backend

    def fileno(self) -> int:
        if self._fallback is not None or self._is_copy():
            raise UnsupportedOperation("a process that is polled has no fileno")
        fd: int = self._queue.fileno()
        return fd

    def close(self) -> None:
        if self._is_copy():
            release(self._queue, self._creator)
            return
        with self._lock:
            queue, self._queue = self._queue, None
            release(queue, self._creator)

    def __del__(self) -> None:
        self.close()

    def _is_copy(self) -> bool:
        return self._creator != os.getpid()

    def wait(self, deadline: Deadline, reap: bool) -> "Any":
        if self._is_copy() and self._fallback is None and not self._exited:
            self._fall_back("a fork has closed the kqueue")
        if self._fallback is not None:
            return self._fallback.wait(deadline, reap)
        if not self._exited:
            try:
                self._exited = self._poll(deadline)
            except OSError as error:  # poll(2): ENOMEM, EINVAL; our EBADF
                self._fall_back(error)
                return self.wait(deadline, reap)
            if not self._exited:
                return RUNNING
        return self._code(reap)

    def _poll(self, deadline: Deadline) -> bool:
        """Whether it has exited by the deadline."""
        poll = select.poll()
        poll.register(self._queue.fileno(), select.POLLIN)
        while True:
            for _, event in poll.poll(deadline.milliseconds()):
                if not event & select.POLLIN:
                    raise os_error(EBADF, "poll", self.pid)  # not an exit: it is not open
                return True
            if deadline.expired():
                return False

    def _fall_back(self, why: object) -> None:
        log("pid %d is polled: %s", self.pid, why)
        try:
            self._fallback = polling.Handle(self.pid)
        except ProcessLookupError:
            self._exited = True

    def _code(self, reap: bool) -> "int | None":
        code = self._told()
        if not reap and code is not None:
            return code
        found = ask_child(self.pid, reap)
        if found is RUNNING:
            if reap and not self._number_is_taken():
                raise NotYet
            return code
        return found if code is None else code

    def _number_is_taken(self) -> bool:
        """Whether a process that has not exited has the number: not this one."""
        try:
            other = Handle(self.pid)
        except OSError:
            return False
        try:
            return not other._poll(Deadline(0))
        finally:
            other.close()

    def _told(self) -> "int | None":
        """The exit code that the event carries."""
        if not self._is_copy():
            try:
                with self._lock:
                    if not self._events:
                        self._take()
            except OSError as error:
                log("pid %d, kevent: %s", self.pid, error)
        for event in self._events:
            if event.filter == table().filter_proc:
                return told(event)
        return None

    def _take(self) -> None:
        # First what keeps the kqueue readable: other threads may be in poll(2).
        filter_ = table().filter_timer
        timer = calls.get("kevent")(0, filter_, bsd.EV_ADD | bsd.EV_ONESHOT, 0, 1)
        self._queue.control([timer], 0, 0)
        self._events.extend(self._queue.control(None, 1, 0))

    def send_signal(self, sig: int) -> None:
        if self.wait(Deadline(0), False) is not RUNNING:
            raise no_such_process(self.pid)
        # Who has not exited has its number still. Between the look and kill is a window:
        # it would have to exit, be reaped, and its pid be given out again.
        os.kill(self.pid, sig)

    def identify(self) -> "tuple[object, ...] | None":
        if self._identity is None:
            self._identity = object()
            latest = _latest.get(self.pid)
            # It had the number when we came, if it has not exited since.
            if latest is not None and latest._has_number():
                self._identity = latest._identity
            _latest[self.pid] = self
        return "kqueue", self._identity

    def _has_number(self) -> bool:
        if self._is_copy() or self._exited:
            return False
        with self._lock:
            try:
                return self._queue is not None and not self._poll(Deadline(0))
            except OSError:
                return False


def table() -> "bsd.System":
    system = bsd.system()
    if system is None:
        raise OSError(ENOSYS, "this system has no kqueue")
    return system


def _watch(pid: int) -> "Any":
    """A kqueue with that process."""
    queue = calls.get("kqueue")()
    try:
        register(queue, pid)
    except BaseException:
        queue.close()
        raise
    return queue


def release(queue: "Any", creator: int) -> None:
    """Close a kqueue that this process has, if it is the one that made it."""
    if queue is None:
        return
    if creator != os.getpid():
        # A fork closes kqueues, but before Python 3.13 not the objects of select.kqueue,
        # which at their end would close what has the number now: so they have none.
        _kept.append(queue)
        return
    try:
        queue.close()
    except OSError as error:  # somebody else has closed it
        log("close: %s", error)


def register(queue: "Any", pid: int) -> int:
    """Have the kqueue tell of the process; return what it was asked for.

    BlockingIOError where it is exiting, or a zombie, and can't be watched any more.
    """
    status_flag = table().status_flag
    try:
        try:
            return change(queue, pid, bsd.EV_ADD | bsd.EV_ONESHOT, bsd.NOTE_EXIT | status_flag)
        except PermissionError as error:
            # NOTE_EXITSTATUS is not for everybody.
            if error.errno != EACCES or not status_flag:
                raise
            return change(queue, pid, bsd.EV_ADD | bsd.EV_ONESHOT, bsd.NOTE_EXIT)
    except ProcessLookupError:
        if not ps.exists(pid):
            raise no_such_process(pid) from None
        # macOS, NetBSD, OpenBSD.
        raise os_error(EAGAIN, "kevent", pid, "exiting, or a zombie") from None


def change(queue: "Any", pid: int, flags: int, fflags: int) -> int:
    event = calls.get("kevent")(pid, table().filter_proc, flags, fflags)
    # With no room for events, an error is one of the call, and nothing is taken from the
    # kqueue: FreeBSD and DragonFly have the exit of a zombie there at once.
    queue.control([event], 0, 0)
    return fflags


def told(event: "Any") -> "int | None":
    """The exit code that the event of an exit carries."""
    system = table()
    if system.status_flag and not event.fflags & system.status_flag:
        return None
    if event.data == 0 and system.told_since_waitid and not _probe.works(ps.check_waitid):
        return None
    return from_status(event.data)


def ask_child(pid: int, reap: bool) -> "Any":
    """What waitid(2), or to reap it waitpid(2), tells of our child whose exit was told.

    None where it is somebody else's, or there is no waitid; RUNNING if it is not ready.
    """
    found: "list[Any]" = []

    def look() -> bool:
        found[:] = [(ps.reap_child if reap else ps.look_at_child)(pid)]
        return found[0] is not RUNNING

    # The event can come before our child can be reaped: seen on macOS (libuv#3521);
    # on FreeBSD it fires early for who is exiting.
    try:
        _polling.poll(look, Deadline(_GRACE))
    except OSError:
        return None
    return found[0]


def check() -> None:
    """Look for a process that can't be, and watch this very one."""
    system = table()
    if not hasattr(select, "poll"):
        raise OSError(ENOSYS, "the select module has no poll")
    _compare(system)
    handle = Handle(os.getpid())
    try:
        if handle._poll(Deadline(0)):
            raise OSError(ENOSYS, "poll takes a running process for an exited one")
        try:
            change(handle._queue, NOBODY, bsd.EV_ADD, bsd.NOTE_EXIT)
        except ProcessLookupError:
            return
        raise OSError(ENOSYS, "kevent watches a process that can't be")
    finally:
        handle.close()


def _compare(system: "bsd.System") -> None:
    """The table's numbers with those that the interpreter was compiled with."""
    for name, number in (
        ("KQ_FILTER_PROC", system.filter_proc),
        ("KQ_FILTER_TIMER", system.filter_timer),
        ("KQ_FILTER_READ", system.filter_read),
        ("KQ_EV_ADD", bsd.EV_ADD),
        ("KQ_EV_DELETE", bsd.EV_DELETE),
        ("KQ_EV_ENABLE", bsd.EV_ENABLE),
        ("KQ_EV_ONESHOT", bsd.EV_ONESHOT),
        ("KQ_EV_ERROR", bsd.EV_ERROR),
        ("KQ_NOTE_EXIT", bsd.NOTE_EXIT),
    ):
        own = getattr(select, name, number)
        if (own - number) % 2**32:  # a long of 32 bits is signed
            raise OSError(ENOSYS, "select.%s is %d, not %d" % (name, own, number))


def many(shared: bool) -> "Any":
    from . import kqueues

    return kqueues.Many(shared)


# What the probe shows: name, the call it goes through, what asks for it.
CALLS = (
    ("kqueue", "kqueue", check),
    ("waitid", "waitid", ps.check_waitid),
    ("ps", None, ps.check),
)
