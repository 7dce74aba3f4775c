# SPDX-License-Identifier: BSD-3-Clause
"""Child: our own child, which is reaped once, whichever thread or function waits for it."""

from _thread import get_ident
from errno import ESRCH

from . import _systems
from ._base.deadline import NOW, Deadline
from ._base.errors import Failed, TimeoutExpired, failed, log, public
from ._base.handle import PENDING, RUNNING, Handle, settled
from ._process import Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from ._types import Any, Identity, Outcome, Self, Sequence, Union

    Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]

# How many seconds a `with` block that Ctrl-C ends waits for the child, which got Ctrl-C, too.
_AFTER_CTRL_C = 0.25


@public
class Child(Process):
    """A Process that is our own child, and is reaped by this object.

    spawn() returns one; ``Child(pid)`` takes over a child that was started by other means,
    and raises ProcessLookupError if no process has the pid. ``args`` is what spawn() was
    given, ``reaped`` whether it has been reaped.

    A wait reaps the child when it has exited, be it this wait() or a function that takes
    the Child; so it is not reaped twice. The end of a ``with`` block waits, as Popen's
    does. A child closed while running is reaped by the first spawn() after it exits. The
    copy in a forked process reaps nothing, and waits as a Process does. A child that was
    closed before anybody compared it equals only itself.

    >>> import sys
    >>> with spawn([sys.executable, "-c", "raise SystemExit(3)"]) as child:
    ...     child.wait(timeout=60), child.reaped
    (3, True)
    """

    args: "Path | Sequence[Path] | None" = None
    _was_reaped = False
    if TYPE_CHECKING:

        @property
        def pid(self) -> int: ...  # never None: it was known from the start

    def _start(self, handle: "Handle") -> None:
        self._reaping: "dict[int, None]" = {}  # the threads that do it
        super()._start(handle)

    @property
    def reaped(self) -> bool:
        """Whether it has been reaped."""  # other copies of the package know a Child by this
        return self._was_reaped

    def wait(self, timeout: "float | None" = None, reap: bool = True) -> "int | None":
        """Wait until it has exited, and reap it; return the exit code. ``reap`` is ignored.

        Raises TimeoutExpired if it is still running after ``timeout`` seconds.
        """
        if self._was_reaped:
            Deadline(timeout)
            return self._exitcode
        return super().wait(timeout, not self._shared.is_copy())

    def _look(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        if self._was_reaped:
            return True
        # The code first: a reaped child has none to look at.
        if not super()._look(handle, deadline, False):
            return False
        return not reap or settled(lambda last: self._reap(handle), deadline) is not RUNNING

    def _reap(self, handle: "Handle") -> "Outcome":
        """Reap it, after its exit has been seen; PENDING while a tracer prevents it."""
        # Without a lock, as a look may write to the log. Of several threads one gets the code.
        me = get_ident()
        self._reaping[me] = None
        try:
            outcome = handle.look(True)
            if not self._was_reaped:
                is_late = outcome is None and len(self._reaping) > 1
                if outcome is RUNNING or outcome is PENDING or is_late:
                    return PENDING
                if self._exitcode is None:
                    self._exitcode = outcome
                self._was_reaped = True
        finally:
            self._reaping.pop(me, None)
        return self._exitcode

    def close(self) -> None:
        """Release the handle. A child that has exited is reaped now, a running one later.

        After it, methods raise ValueError; but the attributes stay, and wait() and has_exited()
        still answer if the exit has been seen.
        """
        shared = self._shared
        if not (self._was_reaped or shared.closed or shared.is_copy()):
            with shared as handle:
                if not self._look(handle, NOW, True) and handle.pid is not None:
                    leave(handle.pid)
        shared.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.wait(_AFTER_CTRL_C if KeyboardInterrupt in exc_info else None)
        except TimeoutExpired:
            log("pid %s was left running by Ctrl-C", self.pid)
        finally:
            self.close()


class GoneHandle(Handle):
    """The handle on a child that was reaped before a real handle could be opened.

    That happens if SIGCHLD is ignored, or if other code waits for all children.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def look(self, reap: bool = False, last: bool = False) -> None:
        return None

    def send_signal(self, sig: int) -> None:
        raise failed(ESRCH)

    def identify(self) -> "Identity | None":
        return None


# Handles on children that were closed while running. One thread gets each: pop() is atomic.
left: "list[Handle]" = []


def reap_left() -> None:
    for _ in range(len(left)):
        try:
            handle = left.pop(0)
        except IndexError:  # another thread was quicker
            return
        left.append(handle)  # until it is certain that it has been reaped
        outcome = handle.look(True)
        if outcome is not RUNNING and outcome is not PENDING and handle in left:
            left.remove(handle)
            handle.close()


def leave(pid: int) -> None:
    """Have a child reaped later; there is no Child object for it any more."""
    try:
        left.append(_systems.open_handle(pid))
    except Failed as why:  # somebody else has reaped it
        log("pid %s: %s", pid, why)


def own(pid: int, args: "Any") -> Child:
    """The Child for a process that has just been started."""
    child = Child.__new__(Child)
    child.args = args
    try:
        handle = _systems.open_handle(pid)
    except Failed as why:
        if why.errno != ESRCH:
            raise why.as_error("open", pid) from None
        handle = GoneHandle(pid)
    child._start(handle)
    return child
