# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's child watcher: it waits for the subprocesses that asyncio itself starts."""

import asyncio
from errno import ECHILD
from weakref import WeakValueDictionary

from ._base.errors import Failed, log
from ._base.handle import PENDING, RUNNING
from ._loop_engine import add_to_loop, call_soon, discard_from_loop
from ._systems.posix import look_at_child, reap_child
from ._waiting.owners import OwnerTarget, check_pid
from ._watching import watch_target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractChildWatcher, AbstractEventLoop

    from ._types import Any, Callable, Outcome, Self
else:
    AbstractChildWatcher = getattr(asyncio, "AbstractChildWatcher", None)


class ChildWatcher(AbstractChildWatcher or object):  # type: ignore[misc]
    """Has asyncio's own subprocesses waited for by their loop itself, without a thread.

    asyncio.set_child_watcher(ChildWatcher()) does it for each loop, in any thread; Pythons from
    3.14 on have no watchers: NotImplementedError. If somebody else reaps a child, the exit code
    is told where the system knows it, and is 255 elsewhere, as with asyncio's watchers.
    """

    # From Python 3.12 on the base warns of all classes that are not in its own module.
    __module__ = getattr(AbstractChildWatcher, "__module__", __name__)

    def __init__(self) -> None:
        if AbstractChildWatcher is None:
            raise NotImplementedError(
                "asyncio has no child watchers on Windows, nor from Python 3.14 on"
            )
        # Weak, as the engine of a loop goes with it, and what is left of its handlers, too.
        self._handlers: "WeakValueDictionary[int, _Handler]" = WeakValueDictionary()
        self._loop: "AbstractEventLoop | None" = None

    def add_child_handler(self, pid: int, callback: "Callable[..., object]", *args: "Any") -> None:
        """Call ``callback(pid, returncode, *args)`` after the child has exited; reap it."""
        check_pid(pid)
        loop = asyncio._get_running_loop() or self._loop
        if loop is None:
            raise RuntimeError("no event loop is running, and none is attached")
        self.remove_child_handler(pid)
        told = lambda code: callback(pid, code, *args)  # noqa: E731
        handler = self._handlers[pid] = _Handler(self._handlers, loop, pid, told)
        _call_in(loop, add_to_loop, loop, [handler])

    def remove_child_handler(self, pid: int) -> bool:
        """Do not call the callback, nor reap; return whether there was one."""
        handler = self._handlers.pop(pid, None)
        if handler is not None:
            _call_in(handler.loop, discard_from_loop, handler.loop, [handler])
        return handler is not None

    def attach_loop(self, loop: "AbstractEventLoop | None") -> None:
        """Use this loop for handlers that are added outside of a running loop."""
        self._loop = loop

    def is_active(self) -> bool:
        return True

    def close(self) -> None:
        """Remove all handlers."""
        # Not keys(): another loop's thread may add its own meanwhile.
        for handler in [reference() for reference in self._handlers.valuerefs()]:
            if handler is not None:
                self.remove_child_handler(handler.pid)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        return


def _call_in(loop: "AbstractEventLoop", function: "Callable[..., object]", *args: object) -> None:
    """Call it in the loop: now, or soon if the loop runs in another thread."""
    if loop is asyncio._get_running_loop() or not loop.is_running():
        function(*args)
    else:
        call_soon(loop, function, *args)


class _Handler(OwnerTarget):
    """A child that asyncio has started; we reap it, and call back."""

    pid: int

    def __init__(self, handlers: "Any", loop: "Any", pid: int, callback: "Any") -> None:
        super().__init__(pid, pid, self._tell)
        self.handlers = handlers
        self.loop: "AbstractEventLoop" = loop
        self.callback: "Callable[[int], object]" = callback

    def _is_wanted(self) -> bool:
        """Whether it has neither been removed, nor called back."""
        return self.handlers.get(self.pid) is self

    def confirm(self) -> "Outcome":
        try:
            return look_at_child(self.pid)
        except Failed as why:  # perhaps somebody else has reaped it already
            return None if why.errno == ECHILD else RUNNING

    def settle(self, code: "Any") -> "Outcome":
        try:
            reaped = reap_child(self.pid) if self._is_wanted() else code
        except Failed:
            return code  # type: ignore[no-any-return]
        return PENDING if reaped is RUNNING else reaped

    def _tell(self, code: "int | None") -> None:
        if not self._is_wanted():
            return
        if code is None:
            log("pid %d: somebody else has reaped it; its return code is told as 255", self.pid)
        try:
            self.callback(255 if code is None else code)
        except Exception as error:
            self.loop.call_exception_handler(
                {"message": "Exception in a child handler", "exception": error}
            )
        if self._is_wanted():  # else it has been replaced meanwhile
            del self.handlers[self.pid]

    def leave(self) -> None:
        """Have the thread of watch() reap it: the loop has been closed."""
        try:
            watch_target(self, lambda *_: None)
        except RuntimeError as error:  # the interpreter is shutting down
            log("pid %d is not reaped: %s", self.pid, error)
