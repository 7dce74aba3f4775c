# SPDX-License-Identifier: BSD-3-Clause
"""asyncio's child watcher: it waits for the subprocesses that asyncio itself starts."""

import asyncio
from os import getpid
from weakref import WeakValueDictionary

from ._backends import open_handle
from ._deadline import NOW
from ._errors import is_of_signal_handler, log, pass_over, raise_of_handler
from ._loops import add, add_reader, call_soon, discard
from ._outcome import RUNNING, NotYet
from ._sources import exitcodes
from ._sources.exitcodes import from_info
from ._targets import OwnerTarget, check_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractChildWatcher, AbstractEventLoop
    from collections.abc import Callable
    from typing import Any

    from typing_extensions import Self  # novm

    from ._backends.contract import Handle
    from ._outcome import Outcome
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
        try:
            handler = _Handler(self._handlers, loop, pid, callback, args)
            self._handlers[pid] = handler
            _call(loop, handler.start)
        except BaseException:
            self.remove_child_handler(pid)
            raise

    def remove_child_handler(self, pid: int) -> bool:
        """Do not call the callback, nor reap; return whether there was one."""
        handler = self._handlers.pop(pid, None)
        if handler is None:
            return False
        handler.is_wanted = False
        # A forked child has a copy of its parent's loop, which shares the parent's epoll.
        if handler.creator == getpid() and not handler.loop.is_closed():
            _call(handler.loop, handler.stop)
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


def _call(loop: "AbstractEventLoop", function: "Callable[..., object]", *args: object) -> None:
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
        callback: "Callable[..., object]",
        args: "tuple[Any, ...]",
    ) -> None:
        self._handlers = handlers
        self.creator = getpid()
        self.is_wanted = True  # until it has been removed, or told
        self.loop = loop
        self.pid = pid
        self._callback = callback
        self._args = args
        # If the loop itself watches it.
        self._handle: "Handle | None" = None
        self._fd: "int | None" = None
        # What waitid(2) has said: not lost, wherever a signal handler raises.
        self._infos: "list[Any]" = []

    def start(self) -> None:
        """Have the loop watch the child's own file descriptor; where it can't, the engine."""
        # The engine takes twice the time for a child: it moves the file descriptor up, and looks
        # before it reaps; and for a lone child it makes an epoll.
        try:
            handle = self._handle = open_handle(self.pid)
            # If somebody else had reaped the child, the handle could be on another process.
            exitcodes.look_at_child(self.pid)
            if handle.backend == "pidfd":
                self._fd = handle.fileno()
                add_reader(self.loop, self._fd, self._on_event)
                return
        except OSError as error:
            pass_over(error, "pid %d is not watched by itself", self.pid)
            self._fd = None
        self._start_by_engine()

    def _start_by_engine(self) -> None:
        add(self.loop, [_WatchedTarget(self.pid, self.pid, self)])
        self._end()

    def _on_event(self) -> None:
        # After the sleep the caches are cold, and each name and call costs. If a signal handler
        # raises on the way, the event comes again.
        handle, infos = self._handle, self._infos
        if handle is None or self.creator != getpid():
            return
        if self.is_wanted:
            reaping = None if infos else handle.reaping(False)
            if reaping is not None:
                try:
                    infos.extend(reaping)
                except OSError as error:
                    pass_over(error, "pid %d, waitid", self.pid)
            code = from_info(infos[0]) if infos and infos[0] else self._reap(handle)
            if code is RUNNING:
                self._start_by_engine()
                return
            self.tell(code)
        self._end()

    def _reap(self, handle: "Handle") -> "Outcome":
        """The exit code; RUNNING if a tracer prevents the reaping: the event would not end."""
        if self._infos:
            return RUNNING
        try:
            return handle.wait(NOW, True)
        except NotYet:
            return RUNNING

    def tell(self, code: "int | None") -> None:
        if not self.is_wanted:
            return
        handlers, pid = self._handlers, self.pid
        found = handlers.pop(pid, None)
        if found is not None and found is not self:  # added by the callback that is called again
            handlers[pid] = found
        if code is None:
            log("pid %d: somebody else has reaped it; its return code is told as 255", pid)
        try:
            self._callback(pid, 255 if code is None else code, *self._args)
        except BaseException as error:
            # Then the callback is called again: an exit is told twice rather than never.
            if isinstance(error, KeyboardInterrupt) or is_of_signal_handler(error):
                handlers.setdefault(pid, self)
                raise
            self.is_wanted = False
            if not isinstance(error, Exception):
                raise
            self.loop.call_exception_handler(
                {"message": "Exception in a child handler", "exception": error}
            )
        self.is_wanted = False

    def stop(self) -> None:
        discard(self.loop, [self])
        self._end()

    def _end(self) -> None:
        if self._fd is not None:
            self.loop.remove_reader(self._fd)
            self._fd = None
        if self._handle is not None:
            self._handle.close()
            self._handle = None


class _WatchedTarget(OwnerTarget):
    """A child that asyncio has started; we reap it."""

    __slots__ = ()

    def _confirm(self) -> "Outcome":
        try:
            return exitcodes.look_at_child(self.proc)
        except ChildProcessError as error:  # somebody else has reaped it already
            raise_of_handler(error)
            return None

    def _settle(self, code: "int | None", last: bool) -> "Outcome":
        try:
            reaped = exitcodes.reap_child(self.proc)
        except ChildProcessError as error:
            raise_of_handler(error)
            return code
        return self.not_reaped(code, last) if reaped is RUNNING else reaped
