# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's child watcher: it waits for the subprocesses that asyncio itself starts."""

import asyncio
from weakref import WeakValueDictionary

from ._errors import log, raise_of_handler
from ._loops import add, discard
from ._outcome import RUNNING
from ._sources import exitcodes
from ._targets import OwnerTarget, check_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractChildWatcher, AbstractEventLoop
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import Self  # novm

    from ._outcome import Outcome
else:
    AbstractChildWatcher = getattr(asyncio, "AbstractChildWatcher", None)


class ChildWatcher(AbstractChildWatcher or object):  # type: ignore[misc]
    """Has asyncio's own subprocesses waited for by the engine of their loop, without a thread.

    asyncio.set_child_watcher(ChildWatcher()) does it for each loop, in any thread; Pythons from
    3.14 on have no watchers: NotImplementedError. If somebody else reaps a child, the exit code
    is told where the system knows it, and is 255 elsewhere, as with asyncio's watchers.
    """

    # From Python 3.12 on the base warns of all classes that are not in its own module.
    __module__ = getattr(AbstractChildWatcher, "__module__", __name__)

    def __init__(self) -> None:
        if AbstractChildWatcher is None:
            raise NotImplementedError(
                "asyncio has no child watchers here: nor does it on Windows, or since Python 3.14"
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
        handler = self._handlers[pid] = _Handler(self._handlers, loop, pid, callback, args)
        try:
            _call(loop, add, loop, [_WatchedTarget(pid, pid, handler)])
        except BaseException:
            self.remove_child_handler(pid)
            raise

    def remove_child_handler(self, pid: int) -> bool:
        """Do not call the callback, nor reap; return whether there was one."""
        handler = self._handlers.pop(pid, None)
        if handler is None:
            return False
        if not handler.loop.is_closed():
            _call(handler.loop, discard, handler.loop, [handler])
        return True

    def attach_loop(self, loop: "AbstractEventLoop | None") -> None:
        """Use this loop for handlers that are added outside of a running loop."""
        self._loop = loop

    def is_active(self) -> bool:
        return True

    def close(self) -> None:
        """Remove all handlers."""
        for pid in list(self._handlers):
            self.remove_child_handler(pid)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        return


def _call(loop: "AbstractEventLoop", function: "Callable[..., object]", *args: object) -> None:
    """Call it in the loop: now, or soon if the loop runs in another thread."""
    if loop is asyncio._get_running_loop() or not loop.is_running():
        function(*args)
    else:
        loop.call_soon_threadsafe(function, *args)


class _Handler:
    def __init__(
        self,
        handlers: "WeakValueDictionary[int, _Handler]",
        loop: "AbstractEventLoop",
        pid: int,
        callback: "Callable[..., object]",
        args: "tuple[Any, ...]",
    ) -> None:
        self._handlers = handlers
        self.loop = loop
        self._pid = pid
        self._callback = callback
        self._args = args

    def tell(self, code: "int | None") -> None:
        # By the loop, which handles what the callback raises.
        self.loop.call_soon(self._run, code)

    def _run(self, code: "int | None") -> None:
        if self._handlers.get(self._pid) is not self:  # it has been removed, or told twice
            return
        del self._handlers[self._pid]
        if code is None:
            log("pid %d: somebody else has reaped it; its return code is told as 255", self._pid)
        self._callback(self._pid, 255 if code is None else code, *self._args)


class _WatchedTarget(OwnerTarget):
    """A child that asyncio has started; we reap it."""

    __slots__ = ()

    def _confirm(self) -> "Outcome":
        try:
            return exitcodes.look_at_child(self.proc)
        except ChildProcessError as error:  # somebody else has reaped it already
            raise_of_handler(error)
            return None

    def _settle(self, code: "int | None") -> "Outcome":
        try:
            reaped = exitcodes.reap_child(self.proc)
        except ChildProcessError as error:
            raise_of_handler(error)
            return code
        return self.not_reaped(code) if reaped is RUNNING else reaped
