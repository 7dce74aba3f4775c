# SPDX-License-Identifier: BSD-3-Clause
"""macOS and the BSDs: kqueue(2), EVFILT_PROC, and poll(2) on the kqueue.

A kqueue refers to the process, not to its pid. Once the process has exited it is readable,
for all threads that wait. The event carries the wait status:

    FreeBSD, DragonFly   always
    NetBSD, OpenBSD      from NetBSD 8 and OpenBSD 6.9 on
    macOS                with NOTE_EXITSTATUS, which is allowed for our own children, and in
                         newer versions for processes that we may send a signal to

The event can be taken only once; after that something else keeps the kqueue readable.
"""

import os
import select
from _thread import RLock
from errno import EACCES, EAGAIN, ENOSYS
from io import UnsupportedOperation
from weakref import WeakValueDictionary

from .. import _checks
from .._deadline import GRACE, NOW, Deadline, poll
from .._errors import (
    is_of_signal_handler,
    log,
    no_such_process,
    os_error,
    pass_over,
    raise_of_handler,
)
from .._ffi import bsd
from .._ffi.kqueue import NOBODY
from .._outcome import RUNNING, NotYet, from_status
from .._sources import exitcodes, ps
from . import polled, polling
from .queue import Queue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._outcome import Outcome
    from .contract import Checks, Handle, Identity

# The latest handle for each pid, to tell whether a new one is for the same process.
_latest: "WeakValueDictionary[int, KqueueHandle]" = WeakValueDictionary()


class KqueueHandle:
    """A kqueue that watches one process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_child = False
        self._fallback: "Handle | None" = None
        self._has_exited = False  # once True, it stays True
        self._events: "list[Any]" = []
        self._lock = RLock()
        self._identity: "object | None" = None
        self._queue = watch(pid)

    @property
    def backend(self) -> str:
        return "kqueue" if self._fallback is None else self._fallback.backend

    def fileno(self) -> int:
        if self._fallback is not None or self._queue.is_copy():
            raise UnsupportedOperation("a process that is polled has no fileno")
        return self._queue.fileno()

    def close(self) -> None:
        if self._queue.is_copy():  # another thread of the parent may have held the lock
            self._queue.close()
            return
        with self._lock:
            self._queue.close()

    def wait(self, deadline: Deadline, reap: bool) -> "Outcome":
        if self._queue.is_copy() and self._fallback is None and not self._has_exited:
            self._fall_back("a fork has closed the kqueue")
        if self._fallback is not None:
            return self._fallback.wait(deadline, reap)
        if not self._has_exited:
            try:
                exited = self._queue.is_readable(deadline)
            except OSError as error:  # poll(2): ENOMEM, EINVAL; our EBADF
                if is_of_signal_handler(error):
                    raise
                self._fall_back(error)
                return self.wait(deadline, reap)
            if exited:
                self._has_exited = True
            # Another thread may have seen the exit since this one looked.
            if not self._has_exited:
                return RUNNING
        return self._code(deadline, reap)

    def _fall_back(self, why: object) -> None:
        log("pid %d is polled: %s", self.pid, why)
        try:
            self._fallback = polling.open_polled(self.pid)
        except ProcessLookupError as error:
            raise_of_handler(error)
            self._has_exited = True

    def _code(self, deadline: Deadline, reap: bool) -> "int | None":
        code = self._told()
        if not reap and code is not None:
            return code
        found = ask_child(self.pid, reap, Deadline(deadline.at_most(GRACE)))
        if found is RUNNING:
            if reap and not self._is_passed_on():
                raise NotYet
            return code
        return found if code is None else code

    def _is_passed_on(self) -> bool:
        """Whether the pid belongs to a running process: not to this one, then."""
        try:
            queue = watch(self.pid)
        except OSError as error:
            raise_of_handler(error)
            return False
        try:
            return not queue.is_readable(NOW)
        finally:
            queue.close()

    def _told(self) -> "int | None":
        """The exit code that the event carries."""
        if not self._queue.is_copy():
            try:
                with self._lock:
                    if not self._events:
                        self._take()
            except OSError as error:
                pass_over(error, "pid %d, kevent", self.pid)
        for event in self._events:
            if event.filter == bsd.table().filter_proc:
                return told(event)
        return None

    def _take(self) -> None:
        # First keep the kqueue readable: other threads may be in poll(2), and a program may
        # poll fileno(). If that fails, the event is left in the kqueue.
        self._queue.keep_readable()
        self._queue.take(self._events, 2)

    def send_signal(self, sig: int) -> None:
        if self.wait(NOW, False) is not RUNNING:
            raise no_such_process(self.pid)
        polled.kill(self.pid, sig)

    def reaping(self, block: bool = True) -> None:
        return None

    def keeps_identity(self) -> bool:
        return False

    def identify(self) -> "Identity | None":
        if self._identity is None:
            self._identity = object()
            latest = _latest.get(self.pid)
            # If neither has exited, both are for the process that has the pid now.
            if latest is not None and latest._is_running() and self._is_running():
                self._identity = latest._identity
            _latest[self.pid] = self
        return "kqueue", self._identity

    def _is_running(self) -> bool:
        if self._queue.is_copy() or self._has_exited:
            return False
        with self._lock:  # so that no other thread closes it meanwhile
            try:
                return not self._queue.is_readable(NOW)
            except OSError as error:
                raise_of_handler(error)
                return False


def watch(pid: int) -> Queue:
    """A kqueue that watches the process."""
    queue = Queue()
    try:
        register(queue, pid)
    except BaseException:
        queue.close()
        raise
    return queue


def register(queue: Queue, pid: int, udata: int = 0) -> int:
    """Watch the process; its event carries ``udata``. Return the fflags that were accepted.

    BlockingIOError if it is exiting, or a zombie, and can't be watched any more.
    """
    table = bsd.table()
    flags, status_flag = bsd.EV_ADD | bsd.EV_ONESHOT, table.status_flag
    try:
        for fflags in (bsd.NOTE_EXIT | status_flag, bsd.NOTE_EXIT):
            try:
                queue.change(pid, table.filter_proc, flags, fflags, 0, udata)
                return fflags
            except PermissionError as error:
                raise_of_handler(error)
                # NOTE_EXITSTATUS is not allowed for every process.
                if error.errno != EACCES or fflags == bsd.NOTE_EXIT:
                    raise
    except ProcessLookupError as error:
        raise_of_handler(error)
        if not exitcodes.exists(pid):
            raise no_such_process(pid) from None
    # ESRCH though the process is there: macOS, NetBSD, OpenBSD.
    raise os_error(EAGAIN, "kevent", pid, "exiting, or a zombie")


def told(event: "Any") -> "int | None":
    """The exit code that an event carries; None if it carries none."""
    table = bsd.table()
    if table.status_flag and not event.fflags & table.status_flag:
        return None
    if event.data == 0 and table.told_since_waitid and not _checks.works(check_waitid):
        return None
    return from_status(event.data)


def ask_child(pid: int, reap: bool, deadline: Deadline) -> "Outcome":
    """Ask our child for its exit code, after the event: by waitid(2), to reap it by waitpid(2).

    None if it is not our child, or there is no waitid; RUNNING if it is not a zombie yet.
    """
    found: "list[Outcome]" = [None]

    def look() -> bool:
        found[0] = (exitcodes.reap_child if reap else exitcodes.look_at_child)(pid)
        return found[0] is not RUNNING

    # The event may come before our child can be reaped: always on OpenBSD, where another
    # thread makes it a zombie; seen on macOS (libuv#3521); on FreeBSD for a process that is
    # exiting when it is registered.
    try:
        poll(look, deadline)
    except OSError as error:
        raise_of_handler(error)
        return None
    return found[0]


def check() -> None:
    """Look for a process that can't exist, and watch our own."""
    table = bsd.table()
    _compare(table)
    queue = watch(os.getpid())
    try:
        if queue.is_readable(NOW):
            raise OSError(ENOSYS, "poll takes a running process for an exited one")
        try:
            queue.change(NOBODY, table.filter_proc, bsd.EV_ADD, bsd.NOTE_EXIT)
        except ProcessLookupError as error:
            raise_of_handler(error)
        else:
            raise OSError(ENOSYS, "kevent watches a process that can't exist")
        queue.keep_readable()
        if not queue.is_readable(Deadline(1)):
            raise OSError(ENOSYS, "poll does not see that a kqueue is readable")
    finally:
        queue.close()


def _compare(table: "bsd.System") -> None:
    """Compare the table's numbers with those that the interpreter was compiled with."""
    for name, number in (
        ("KQ_FILTER_PROC", table.filter_proc),
        ("KQ_FILTER_TIMER", table.filter_timer),
        ("KQ_FILTER_READ", table.filter_read),
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


def check_waitid() -> None:
    """Look for a child that can't exist: our own process."""
    table = bsd.table().waitid
    for name, number in (("P_PID", table.p_pid), ("WEXITED", table.look), ("WNOWAIT", table.look)):
        own = getattr(os, name, number)
        if own != number if name == "P_PID" else not own & number:
            raise OSError(ENOSYS, "os.%s is %d here" % (name, own))
    try:
        exitcodes.look_at_child(os.getpid())
    except ChildProcessError as error:
        raise_of_handler(error)


CHECKS: "Checks" = (
    ("kqueue", "kqueue", check),
    ("waitid", "waitid", check_waitid),
    ("ps", None, ps.check),
)
