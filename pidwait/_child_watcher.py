# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's child watcher: it waits for the subprocesses that asyncio itself starts."""

import asyncio
from errno import ECHILD
from os import getpid
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
        handler = self._handlers[pid] = _Handler(self._handlers, loop, pid, (callback, args))
        _call_in(loop, add_to_loop, loop, _WatchedTarget(handler, pid, (handler, None)))

    def remove_child_handler(self, pid: int) -> bool:
        """Do not call the callback, nor reap; return whether there was one."""
        handler = self._handlers.pop(pid, None)
        if handler is None:
            return False
        handler.is_wanted = False
        # A forked child has a copy of its parent's loop, which shares the parent's epoll.
        if handler.creator == getpid() and not handler.loop.is_closed():
            _call_in(handler.loop, discard_from_loop, handler.loop, [(handler, None)])
        return True

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


class _Handler:
    def __init__(
        self,
        handlers: "WeakValueDictionary[int, _Handler]",
        loop: "AbstractEventLoop",
        pid: int,
        callback: "tuple[Callable[..., object], tuple[Any, ...]]",
    ) -> None:
        self._handlers = handlers
        self.creator = getpid()
        self.is_wanted = True  # until it has been removed, or told
        self.loop = loop
        self.pid = pid
        self.watches: "dict[object, Any]" = {}
        self._callback = callback

    def tell(self, key: object, code: "int | None") -> None:
        if not self.is_wanted:
            return
        if self._handlers.get(self.pid) is self:
            del self._handlers[self.pid]
        if code is None:
            log("pid %d: somebody else has reaped it; its return code is told as 255", self.pid)
        callback, args = self._callback
        try:
            callback(self.pid, 255 if code is None else code, *args)
        except Exception as error:
            self.loop.call_exception_handler(
                {"message": "Exception in a child handler", "exception": error}
            )
        self.is_wanted = False


class _WatchedTarget(OwnerTarget):
    """A child that asyncio has started; we reap it."""

    def confirm(self) -> "Outcome":
        try:
            return look_at_child(self.proc.pid)
        except Failed as why:  # perhaps somebody else has reaped it already
            return None if why.errno == ECHILD else RUNNING

    def settle(self, code: "Any") -> "Outcome":
        if not self.proc.is_wanted:
            return code  # type: ignore[no-any-return]
        try:
            reaped = reap_child(self.proc.pid)
        except Failed:
            return code  # type: ignore[no-any-return]
        return PENDING if reaped is RUNNING else reaped

    def leave(self) -> None:
        """Have the thread of watch() reap it."""
        try:
            watch_target(_WatchedTarget(self.proc, self.pid, None), lambda *_: None)
        except RuntimeError as error:  # the interpreter is shutting down
            log("pid %d is not reaped: %s", self.pid, error)
