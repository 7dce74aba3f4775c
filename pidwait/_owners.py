# SPDX-License-Identifier: BSD-3-Clause
"""Who reaps what: the kinds of objects that stand for a process.

Each is known by what it has, not by its class: two copies of a library can live
in one process, and asking for a class would import its module. The owner's own
code is what reaps; it is called once the process has exited.
"""

import sys

from . import _polling
from ._deadline import Deadline
from ._errors import TimeoutExpired

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol, Union  # novm

    class HasPid(Protocol):  # novm
        @property
        def pid(self) -> "int | None": ...

    Proc = Union[int, HasPid]

_PID_MAX = 2**31 - 1  # of C's pid_t


def check_pid(pid: "Any", name: str = "pid") -> int:
    if isinstance(pid, bool) or not hasattr(pid, "__index__"):
        raise TypeError("%s must be an int, not %s" % (name, type(pid).__name__))
    number: int = pid.__index__()
    if number <= 0:
        raise ValueError("%s must be positive, not %d" % (name, number))
    if number > _PID_MAX:
        raise ValueError("%s must be at most %d, not %d" % (name, _PID_MAX, number))
    return number


class Owner:
    """A process that nobody here reaps: a number, or any object with a pid."""

    def __init__(self, proc: "Any", pid: int) -> None:
        self.proc = proc
        self.pid = pid

    def known(self) -> "int | None":
        """The exit code that the object already has."""
        return None

    def is_gone(self) -> bool:
        """Whether the object knows that its process is not the one with its pid any more."""
        return False

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        """Let the owner reap; return the exit code, which is ``code`` if we could look."""
        return code


class Asyncio(Owner):
    """asyncio.subprocess.Process and its like: reaped by an event loop, in its own time."""

    def known(self) -> "int | None":
        code: "int | None" = self.proc.returncode
        return code

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        return self.known() if code is None else code


class Popen(Asyncio):
    """subprocess.Popen and its like: poll() reaps, and sets returncode."""

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        lost = code is None and self._is_lost()
        # While another thread is inside wait() or poll(), poll() does not wait
        # for it: it returns None, though the process has exited.
        if self.proc.poll() is None and not _polling.poll(self._has_polled, deadline):
            raise TimeoutExpired(self.pid, deadline.timeout)
        return self.known() if code is None and not lost else code

    def _has_polled(self) -> bool:
        return self.proc.poll() is not None

    def _is_lost(self) -> bool:
        """Whether somebody else reaped it, which a Popen reports as exit code 0."""
        # Popen reaps and sets returncode under this lock. So when the child is
        # no more, nobody is inside, and there is still no returncode, it was
        # not the Popen. Is somebody inside, then that one is about to set it.
        if hasattr(self.proc, "_handle"):  # Windows: it can always tell
            return False
        lock = getattr(self.proc, "_waitpid_lock", None)
        if lock is None:
            return True
        if not lock.acquire(False):
            return False
        try:
            return self.proc.returncode is None
        finally:
            lock.release()


class Multiprocessing(Owner):
    """multiprocessing.Process and its like: join() reaps, or asks the fork server."""

    def known(self) -> "int | None":
        # The property looks, and reaps if it can.
        code: "int | None" = self.proc.exitcode
        return None if self._is_any_signal(code) else code

    def is_gone(self) -> bool:
        return self._is_any_signal(self.proc.exitcode)

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        self.proc.join(deadline.remaining())
        known = self.proc.exitcode
        # Without a code, and with time left: somebody else reaped it.
        if code is None and known is None and deadline.expired():
            raise TimeoutExpired(self.pid, deadline.timeout)
        # The fork server of Python 3.6 exits with another code than it tells,
        # and 255 is also what is told when it could not tell.
        return code if known in (None, 255) else known

    def _is_any_signal(self, code: "int | None") -> bool:
        """Whether it is 255 of a fork server that can't tell negative codes: Python 3.6."""
        method = getattr(getattr(self.proc, "_popen", None), "method", None)
        server = sys.modules.get("multiprocessing.forkserver")
        return code == 255 and method == "forkserver" and hasattr(server, "read_unsigned")


class Psutil(Owner):
    """psutil.Process: not an owner, but it remembers when its process started."""

    def is_gone(self) -> bool:
        return not self.proc.is_running()


class Child(Owner):
    """Our Child, perhaps another copy's: wait() reaps."""

    def known(self) -> "int | None":
        code: "int | None" = self.proc.exitcode if self.proc.reaped else None
        return code

    def settle(self, code: "int | None", deadline: Deadline) -> "int | None":
        known: "int | None" = self.proc.wait(deadline.remaining())
        return code if known is None else known


_KINDS = (
    (Child, ("reaped", "exitcode")),
    (Psutil, ("is_running", "create_time")),
    (Popen, ("returncode", "poll")),
    (Asyncio, ("returncode",)),
    (Multiprocessing, ("exitcode", "join")),
    (Owner, ()),
)


def find(proc: "Proc") -> Owner:
    """Who owns the process; TypeError or ValueError if ``proc`` is none."""
    if type(proc) is int:
        return Owner(proc, check_pid(proc, "proc"))
    if hasattr(proc, "__index__"):
        return Owner(proc, check_pid(proc, "proc"))
    if not hasattr(proc, "pid"):
        raise TypeError(
            "proc must be a process ID or an object with a pid, not %s" % type(proc).__name__
        )
    if proc.pid is None:
        raise ValueError("proc has no pid: it has not been started")
    pid = check_pid(proc.pid, "proc.pid")
    for kind, attributes in _KINDS:
        if all(hasattr(proc, name) for name in attributes):
            return kind(proc, pid)
    raise AssertionError("the last kind has no attributes")
