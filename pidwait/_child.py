# SPDX-License-Identifier: BSD-3-Clause
"""Child: our own child, which is reaped once, whichever thread or function waits for it."""

from _thread import get_ident
from io import UnsupportedOperation
from os import getpid

from . import _backends
from ._deadline import GRACE, NOW, Deadline, poll
from ._errors import log, no_such_process, pass_over, public, raise_of_handler
from ._guard import Guard
from ._outcome import RUNNING, NotYet
from ._sources import exitcodes
from .process import Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any, Sequence, Union  # novm

    from typing_extensions import Self  # novm

    from ._backends.contract import Handle, Identity

    Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

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
    _identity = None
    if TYPE_CHECKING:

        @property
        def pid(self) -> int: ...  # never None: it was known from the start

    def _start(self, handle: "Handle") -> None:
        # The result of the waitid(2) that reaped it.
        self._infos: "list[Any]" = []
        # The thread that reaps, if any: a polled child is reaped by its pid, so never twice.
        self._reaper: "dict[str, tuple[int]]" = {}
        if not handle.keeps_identity():
            self._identity = handle.identify()
        self._guard = Guard(handle)  # from here on, __del__ closes the handle

    def _identify(self) -> "Identity | None":
        # Most children are never compared.
        if self._identity is None:
            try:
                with self._guard as handle:
                    self._identity = handle.identify()
            except ValueError:  # it is closed
                return None
        return self._identity

    @property
    def reaped(self) -> bool:
        """Whether it has been reaped."""  # other copies of the package know a Child by this
        if self._infos and not self._was_reaped:
            self._exitcode = exitcodes.from_info(self._infos[0])
            self._exited = self._was_reaped = True
        return self._was_reaped

    @property
    def exitcode(self) -> "int | None":
        """The exit code, after has_exited() or wait() has seen the exit; until then, None."""
        return self._exitcode if self.reaped else super().exitcode

    def wait(self, timeout: "float | None" = None, reap: bool = True) -> "int | None":
        """Wait until it has exited, and reap it; return the exit code. ``reap`` is ignored.

        Raises TimeoutExpired if it is still running after ``timeout`` seconds.
        """
        guard = self._guard
        if timeout is None and not guard.closed:
            with guard as handle:
                reaping = handle.reaping()
                if reaping is not None:
                    try:
                        self._reap(self._infos.extend, reaping)
                    except OSError as error:  # in a forked child ECHILD, at once
                        pass_over(error, "pid %s, waitid", self.pid)
            if self.reaped:
                return self._exitcode
        return super().wait(timeout, guard.pid == getpid())

    def _is_done(self, reap: bool) -> bool:
        return self.reaped or super()._is_done(reap)

    def _look(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        if self.reaped:
            return True
        if self._exitcode is None and not self._see(handle, deadline, False):
            return False
        return not reap or self._reap_now(handle) or poll(lambda: self._reap_now(handle), deadline)

    def _see(self, handle: "Handle", deadline: Deadline, reap: bool) -> bool:
        seen = super()._see(handle, deadline, reap)
        if seen and self._exitcode is None and self._reaper:
            # Another thread may have just reaped it, and be about to store the code.
            poll(lambda: self.reaped or not self._reaper, Deadline(GRACE))
        return seen

    def _reap_now(self, handle: "Handle") -> bool:
        """Reap it, after its exit has been seen; return whether it has been reaped."""

        def reap() -> None:
            code = handle.wait(NOW, True)
            if self._exitcode is None and code is not RUNNING:
                self._exitcode = code
            self._exited = self._was_reaped = True

        try:
            self._reap(reap)
        except NotYet:  # a tracer prevents it
            return False
        return self.reaped

    def _reap(self, reap: "Callable[..., object]", *arguments: object) -> None:
        """Call ``reap``, unless the child has been reaped, or another thread is reaping it."""
        me = (get_ident(),)
        try:
            try:
                # In one thread these are equal: a signal handler may interrupt its reaping.
                is_ours = self._reaper.setdefault("is", me) == me
                if is_ours and not (self._infos or self._was_reaped):
                    reap(*arguments)
            finally:
                if self._reaper.get("is") is me:
                    del self._reaper["is"]
        finally:  # Ctrl-C may come anywhere, even in the lines above
            if self._reaper.get("is") is me:
                del self._reaper["is"]

    def close(self) -> None:
        """Release the handle. A child that has exited is reaped now, a running one later.

        After it, methods raise ValueError; but the attributes stay, and wait() and has_exited()
        still answer if the exit has been seen.
        """
        guard = self._guard
        if not (self._was_reaped or guard.closed or guard.is_copy() or self.reaped):
            self._leave()
        guard.close()

    def _leave(self) -> None:
        with self._guard as handle:
            if self._look(handle, NOW, False) and self._reap_now(handle):
                return
            if handle.pid is not None:
                leave(handle.pid)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.wait(_AFTER_CTRL_C if KeyboardInterrupt in exc_info else None)
        except TimeoutError as error:
            raise_of_handler(error)
            log("pid %s was left running by Ctrl-C", self.pid)
        finally:
            self.close()


class Gone:
    """The handle on a child that was reaped before a real handle could be opened.

    That happens if SIGCHLD is ignored, or if other code waits for all children.
    """

    backend = "polling"
    is_child = True

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def reaping(self, block: bool = True) -> None:
        return None

    def wait(self, deadline: Deadline, reap: bool) -> None:
        return None

    def send_signal(self, sig: int) -> None:
        raise no_such_process(self.pid)

    def fileno(self) -> int:
        raise UnsupportedOperation("a process that is gone has no fileno")

    def keeps_identity(self) -> bool:
        return True

    def identify(self) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""


# Handles on children that were closed while running. One thread gets each: pop() is atomic.
left: "list[Handle]" = []


def reap_left() -> None:
    for _ in range(len(left)):
        try:
            handle = left.pop(0)
        except IndexError:  # another thread was quicker
            return
        try:
            running = handle.wait(NOW, True) is RUNNING
        except NotYet:
            running = True
        if running:
            left.append(handle)
        else:
            handle.close()


def leave(pid: int) -> None:
    """Have a child reaped later; there is no Child object for it any more."""
    try:
        left.append(_backends.open_handle(pid))
    except ProcessLookupError as error:  # somebody else has reaped it
        pass_over(error, "pid %s", pid)


def own(pid: int, args: "Any") -> Child:
    """The Child for a process that has just been started."""
    child = Child.__new__(Child)
    child.args = args
    handle: "Handle"
    try:
        handle = _backends.open_handle(pid)
    except ProcessLookupError as error:
        raise_of_handler(error)
        handle = Gone(pid)
    handle.is_child = True
    child._start(handle)
    return child
