# SPDX-License-Identifier: BSD-3-Clause
"""For asyncio: wait for any processes, your own children or not, in any event loop.

Each event loop watches one file descriptor for all its waits, and needs no thread. If a loop
can't watch file descriptors, as on Windows, the thread of watch() waits, and wakes the loop.
You can cancel a wait at any time; it leaves nothing behind.
"""

import asyncio
from functools import partial
from weakref import ref

from . import _spawning
from ._base.deadline import LONGEST_SLEEP, Deadline
from ._base.errors import TimeoutExpired, log
from ._loop_engine import ChildHandler, add_to_loop, call_soon, discard_from_loop, find_engine
from ._process import wait as wait_now
from ._waiting.owners import check_pid, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractChildWatcher, AbstractEventLoop
    from typing import overload

    from ._spawning import Child as _Child
    from ._spawning import Path
    from ._types import Any, AsyncIterator, Callable, Iterable, P, Proc, Self, Target
if not TYPE_CHECKING:
    AbstractChildWatcher = getattr(asyncio, "AbstractChildWatcher", None)

__all__ = ["Child", "ChildWatcher", "as_completed", "spawn", "wait", "wait_procs"]

_running_loop = getattr(asyncio, "get_running_loop", asyncio.get_event_loop)


async def wait(proc: "Proc", timeout: "float | None" = None) -> "int | None":
    """Wait until the process has exited; return its exit code, as the blocking wait() does.

    ``proc`` is as for the blocking wait(). Cancelling a wait affects neither the process nor
    other waits for it, so asyncio.wait_for() and asyncio.timeout() work, too.

    Raises TimeoutExpired if the process is still running after ``timeout`` seconds, and
    TypeError or ValueError if ``proc`` can't be a process.

    >>> import subprocess, sys
    >>> async def main():
    ...     popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    ...     return await wait(popen, 60)
    >>> asyncio.run(main())
    3
    """
    exited, _ = await wait_procs([proc], timeout)
    if not exited:
        raise TimeoutExpired(getattr(proc, "pid", proc), timeout)  # type: ignore[arg-type]
    return exited[0][1]


class _Group:
    """Processes for which one coroutine waits; an iterator over their exits.

    The engine refers to it weakly: what has been freed waits for nothing.
    """

    def __init__(self, procs: "list[Any]") -> None:
        # By their places in the list: the targets of those that have not exited, and exit codes.
        self.left: "dict[int, Target]" = {}
        self.exits: "dict[int, int | None]" = {}
        self._procs = procs
        self._sleeper: "asyncio.Future[None] | None" = None
        self._loop = _running_loop()
        for place, proc in enumerate(procs):
            process = proc._child if isinstance(proc, Child) else proc
            self.left[place] = find(process, partial(_tell, ref(self), place))
        add_to_loop(self._loop, self.left.values())

    def look(self) -> None:
        """Report all that have exited by now."""
        engine = find_engine(self._loop)
        while engine is not None and engine.look(True):
            pass  # each look brings so many
        for place, target in list(self.left.items()) if engine is None else ():
            try:  # the thread of watch() may not have reported it yet
                code = wait_now(target.proc, 0)
            except TimeoutExpired:
                continue
            _tell(ref(self), place, target.proc, code)

    def wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is an exit, for ``seconds`` at most; it may end earlier."""
        if self._sleeper is not None and not self._sleeper.done():
            raise RuntimeError("another task is waiting for the same processes")
        self._sleeper = self._loop.create_future()
        timer = None
        if seconds is not None:
            timer = self._loop.call_later(min(seconds, LONGEST_SLEEP), self.wake)
        try:
            await self._sleeper
        finally:
            if timer is not None:
                timer.cancel()

    def __aiter__(self) -> "Self":
        return self

    async def __anext__(self) -> "tuple[Any, int | None]":
        while not self.exits:
            if not self.left:
                raise StopAsyncIteration
            await self.sleep(None)
        place = next(iter(self.exits))
        return self._procs[place], self.exits.pop(place)

    def stop(self) -> None:
        left, self.left = self.left, {}
        if left:
            discard_from_loop(self._loop, left.values())

    def __del__(self) -> None:
        if self.left:  # perhaps in another thread
            call_soon(self._loop, discard_from_loop, self._loop, self.left.values())


def _tell(reference: "ref[_Group]", place: int, proc: object, code: "int | None") -> None:
    group = reference()
    if group is None:
        return
    if place in group.left:  # else it is known already
        group.exits[place] = code
        del group.left[place]
    group.wake()


if TYPE_CHECKING:  # for mixed lists: see _sets.py

    @overload
    async def wait_procs(
        procs: "Iterable[P]", timeout: "float | None" = ...
    ) -> "tuple[list[tuple[P, int | None]], list[P]]": ...
    @overload
    async def wait_procs(  # type: ignore[overload-cannot-match]
        procs: "Iterable[Proc]", timeout: "float | None" = ...
    ) -> "tuple[list[tuple[Proc, int | None]], list[Proc]]": ...


async def wait_procs(
    procs: "Iterable[Any]", timeout: "float | None" = None
) -> "tuple[list[tuple[Any, int | None]], list[Any]]":
    """Wait until all of these processes have exited; return ``(exited, alive)``.

    ``exited`` is a list of ``(proc, exitcode)``, in the order of the exits. ``alive`` lists the
    processes that still run after ``timeout`` seconds, in the order given. A process given
    twice is reported twice. A pid that no process has counts as exited.

    >>> import subprocess, sys
    >>> command = [sys.executable, "-c", "raise SystemExit(3)"]
    >>> async def main():
    ...     exited, alive = await wait_procs([subprocess.Popen(command) for _ in range(2)])
    ...     return [exitcode for popen, exitcode in exited], alive
    >>> asyncio.run(main())
    ([3, 3], [])
    """
    deadline = Deadline(timeout)
    given = list(procs)
    group = _Group(given)
    try:
        while group.left:
            seconds = deadline.remaining()
            if seconds == 0:
                group.look()
                break
            await group.sleep(seconds)
        exited = [(given[place], code) for place, code in group.exits.items()]
        return exited, [given[place] for place in group.left]
    finally:
        group.stop()


if TYPE_CHECKING:

    @overload
    def as_completed(procs: "Iterable[P]") -> "AsyncIterator[tuple[P, int | None]]": ...
    @overload
    def as_completed(  # type: ignore[overload-cannot-match]
        procs: "Iterable[Proc]",
    ) -> "AsyncIterator[tuple[Proc, int | None]]": ...


def as_completed(procs: "Iterable[Any]") -> "AsyncIterator[tuple[Any, int | None]]":
    """Iterate over ``(proc, exitcode)`` of these processes as they exit: ``async for``.

    Call it in the event loop: the call starts to watch all of them. To stop early, leave the
    ``async for``.

    >>> import subprocess, sys
    >>> command = [sys.executable, "-c", "raise SystemExit(3)"]
    >>> async def main():
    ...     async for popen, exitcode in as_completed([subprocess.Popen(command)]):
    ...         print(exitcode)
    >>> asyncio.run(main())
    3
    """
    return _Group(list(procs))


def spawn(args: "Path | list[Path]", **options: "Any") -> "Child":
    """Start a program by posix_spawn; return its Child, for ``async with``.

    Arguments and exceptions are those of the package's spawn(). The event loop is blocked
    until the program has started, for about a millisecond.

    >>> import sys
    >>> async def main():
    ...     async with spawn([sys.executable, "-c", "raise SystemExit(3)"]) as child:
    ...         return await child.wait()
    >>> asyncio.run(main())
    3
    """
    return Child(_spawning.spawn(args, **options))


class Child:
    """The result of spawn(). wait() reaps the child. ``args`` is the argument of spawn().

    The end of an ``async with`` block waits for the child. If the block is cancelled, the child
    keeps running, and is reaped later.
    """

    def __init__(self, child: "_Child") -> None:
        self._child = child
        self.pid: int = child.pid
        self.args: "Any" = child.args

    @property
    def exitcode(self) -> "int | None":
        """The exit code; None until wait() has returned."""
        return self._child.exitcode

    async def wait(self) -> "int | None":
        """Wait until the child has exited, and reap it; return its exit code."""
        return await wait(self._child)

    def send_signal(self, sig: int) -> None:
        """Send a signal to the child; raise ProcessLookupError if it has exited."""
        self._child.send_signal(sig)

    def terminate(self) -> None:
        """Send SIGTERM; on Windows, end the process."""
        self._child.terminate()

    def kill(self) -> None:
        """Send SIGKILL; on Windows, end the process."""
        self._child.kill()

    def close(self) -> None:
        """Release the handle. If the child is still running, it is reaped later."""
        self._child.close()

    async def __aenter__(self) -> "Self":
        return self

    async def __aexit__(self, kind: object, value: "Any", traceback: object) -> None:
        is_cancelled = isinstance(value, asyncio.CancelledError)  # an Exception before Python 3.8
        try:
            if value is None or isinstance(value, Exception) and not is_cancelled:
                await self.wait()
            elif not self._child.has_exited():
                log("pid %s is still running; it is reaped later: %r", self.pid, value)
        finally:
            self.close()

    def __repr__(self) -> str:
        return "<%s %r>" % (type(self).__name__, self._child)


class ChildWatcher(AbstractChildWatcher or object):  # type: ignore[misc]
    """Makes asyncio wait for its own subprocesses in the event loop, without a thread.

    asyncio.set_child_watcher(ChildWatcher()) is for all loops, in any thread. Raises
    NotImplementedError on Windows, and from Python 3.14 on, which have no watchers. If other code
    reaps a child, its exit code is 255, as with asyncio's watchers, unless the system tells it.
    """

    # From Python 3.12 on the base warns of all classes that are not in its own module.
    __module__ = getattr(AbstractChildWatcher, "__module__", __name__)

    def __init__(self) -> None:
        if AbstractChildWatcher is None:
            raise NotImplementedError("no child watchers on Windows, nor from Python 3.14 on")
        self._handlers: "dict[int, ChildHandler]" = {}
        self._loop: "AbstractEventLoop | None" = None

    def add_child_handler(self, pid: int, callback: "Callable[..., object]", *args: "Any") -> None:
        """Call ``callback(pid, returncode, *args)`` after the child has exited; reap it."""
        check_pid(pid)
        loop = asyncio._get_running_loop() or self._loop
        if loop is None:
            raise RuntimeError("no event loop is running or attached")
        self.remove_child_handler(pid)
        ChildHandler(self._handlers, pid, loop, lambda code: callback(pid, code, *args))

    def remove_child_handler(self, pid: int) -> bool:
        """Remove the handler of this pid, and do not reap; return whether there was one."""
        handler = self._handlers.pop(pid, None)
        if handler is not None:
            handler.in_loop(discard_from_loop)
        return handler is not None

    def attach_loop(self, loop: "AbstractEventLoop | None") -> None:
        """Use this loop for handlers that are added while no loop is running."""
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


ChildWatcher.__module__ = __name__
