# SPDX-License-Identifier: BSD-3-Clause
"""For asyncio: wait for processes, whosever children they are, in any event loop of it.

One engine for each loop does it, without a thread: the loop watches its file descriptor. Where
the loop can't, as on Windows, the thread of watch() waits, and wakes the loop. A wait can be
cancelled at any time, and leaves nothing behind.
"""

import asyncio

from . import _spawning
from ._base.deadline import LONGEST_SLEEP, Deadline
from ._base.errors import TimeoutExpired, log
from ._child_watcher import ChildWatcher
from ._loop_engine import add_to_loop, call_soon, discard_from_loop, find_engine
from ._sets import given_again
from ._sets import wait_procs as wait_procs_now
from ._waiting.owners import find, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from types import TracebackType
    from typing import overload

    from ._spawning import Child as _Child
    from ._spawning import Path
    from ._types import Any, AsyncIterator, Iterable, P, Proc, Self, deque
else:
    from _collections import deque  # collections loads more

__all__ = ["Child", "ChildWatcher", "as_completed", "spawn", "wait", "wait_procs"]

_running_loop = getattr(asyncio, "get_running_loop", asyncio.get_event_loop)


async def wait(proc: "Proc", timeout: "float | None" = None) -> "int | None":
    """Wait until the process has exited; return its exit code, as the blocking wait() does.

    ``proc`` is what the blocking wait() takes. A cancelled wait leaves the process alone, and
    other waits for it; so asyncio.wait_for() and asyncio.timeout() can be used, too.

    Raises TimeoutExpired if the process is still running after ``timeout`` seconds, TypeError or
    ValueError for what can't stand for a process.

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
    """Processes for which one coroutine waits."""

    def __init__(self, loop: "AbstractEventLoop", procs: "list[Any]") -> None:
        self.loop = loop
        self._again = given_again(procs)
        # Those that have not exited.
        self.left: "dict[object, Any]" = {key_of(proc): proc for proc in procs}
        self.exits: "deque[tuple[Any, int | None]]" = deque()
        self.watches: "dict[object, Any]" = {}
        self._sleeper: "asyncio.Future[None] | None" = None

    def start(self) -> None:
        for key, proc in list(self.left.items()):
            process = proc._child if isinstance(proc, Child) else proc
            add_to_loop(self.loop, find(process, (self, key)))

    def stop(self) -> None:
        discard_from_loop(self.loop, [(self, key) for key in self.left])

    def tell(self, key: object, code: "int | None") -> None:
        proc = self.left.pop(key, self)
        if proc is not self:  # else it has been reported already
            self.exits.extend([(one, code) for one in self._again.get(key, (proc,))])
            self.wake()

    def look(self) -> None:
        """Report all that have exited by now."""
        engine = find_engine(self.loop)
        if engine is not None:
            while engine.look(True):  # each look brings so many
                pass
        elif self.left:  # the thread of watch() has not reported them yet
            for proc, code in wait_procs_now(self.left.values(), 0)[0]:
                self.tell(key_of(proc), code)

    def wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def sleep(self, seconds: "float | None") -> None:
        """Sleep until there is an exit, for ``seconds`` at most; it may end earlier."""
        # Python 3.6's wait_for() goes on before the task that it has cancelled has ended.
        if self._sleeper is not None and not self._sleeper.cancelled():
            raise RuntimeError("another task is waiting for the same processes")
        sleeper = self._sleeper = self.loop.create_future()
        timer = None
        if seconds is not None:
            timer = self.loop.call_later(min(seconds, LONGEST_SLEEP), self.wake)
        try:
            await sleeper
        finally:
            if self._sleeper is sleeper:
                self._sleeper = None
            if timer is not None:
                timer.cancel()


if TYPE_CHECKING:  # for mixed lists: see waiting.py

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

    ``exited`` is a list of ``(proc, exitcode)`` in the order in which they exited, ``alive`` a
    list of those that still run after ``timeout`` seconds, in the order given. A process given
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
    group = _Group(_running_loop(), given)
    try:
        group.start()
        while group.left:
            seconds = deadline.remaining()
            if seconds == 0:
                group.look()
                break
            await group.sleep(seconds)
    finally:
        group.stop()
    return list(group.exits), [proc for proc in given if key_of(proc) in group.left]


if TYPE_CHECKING:

    @overload
    def as_completed(procs: "Iterable[P]") -> "AsyncIterator[tuple[P, int | None]]": ...
    @overload
    def as_completed(  # type: ignore[overload-cannot-match]
        procs: "Iterable[Proc]",
    ) -> "AsyncIterator[tuple[Proc, int | None]]": ...


def as_completed(procs: "Iterable[Any]") -> "AsyncIterator[tuple[Any, int | None]]":
    """Iterate over ``(proc, exitcode)`` of these processes as they exit: ``async for``.

    All are watched from the call on, which must be made in the event loop. To stop early, leave
    the loop over them.

    >>> import subprocess, sys
    >>> command = [sys.executable, "-c", "raise SystemExit(3)"]
    >>> async def main():
    ...     async for popen, exitcode in as_completed([subprocess.Popen(command)]):
    ...         print(exitcode)
    >>> asyncio.run(main())
    3
    """
    return _Completions(_Group(_running_loop(), list(procs)))


class _Completions:
    # The engine refers to the group only: once this is freed, the processes are watched no more.

    def __init__(self, group: _Group) -> None:
        self._group = group
        group.start()

    def __aiter__(self) -> "Self":
        return self

    async def __anext__(self) -> "tuple[Any, int | None]":
        group = self._group
        while not group.exits:
            if not group.left:
                raise StopAsyncIteration
            await group.sleep(None)
        return group.exits.popleft()

    def __del__(self) -> None:
        group = getattr(self, "_group", None)  # None: a signal handler has raised in __init__()
        if group is not None and group.left:
            call_soon(group.loop, group.stop)


def spawn(args: "Path | list[Path]", **options: "Any") -> "Child":
    """Start a program by posix_spawn; return its Child, for ``async with``.

    It takes what the package's spawn() takes, and raises what that raises. The event loop
    stands still until the program has been started, a millisecond or so.

    >>> import sys
    >>> async def main():
    ...     async with spawn([sys.executable, "-c", "raise SystemExit(3)"]) as child:
    ...         return await child.wait()
    >>> asyncio.run(main())
    3
    """
    return Child(_spawning.spawn(args, **options))


class Child:
    """What spawn() returns: the child is reaped by wait().

    Leaving its ``async with`` block waits for the child; if the block is cancelled, the child
    is left running, and reaped later.
    """

    def __init__(self, child: "_Child") -> None:
        self._child = child

    @property
    def pid(self) -> "int | None":
        return self._child.pid

    @property
    def args(self) -> "Any":
        """As given to spawn()."""
        return self._child.args

    @property
    def exitcode(self) -> "int | None":
        """The exit code, after wait() has returned; until then, None."""
        return self._child.exitcode

    async def wait(self) -> "int | None":
        """Wait until it has exited, and reap it; return the exit code."""
        return await wait(self._child)

    def send_signal(self, sig: int) -> None:
        """Send a signal; ProcessLookupError if the child has exited."""
        self._child.send_signal(sig)

    def terminate(self) -> None:
        """Send SIGTERM; on Windows, end the process."""
        self._child.terminate()

    def kill(self) -> None:
        """Send SIGKILL; on Windows, end the process."""
        self._child.kill()

    def close(self) -> None:
        """Release the handle. A child that runs is reaped later."""
        self._child.close()

    async def __aenter__(self) -> "Self":
        return self

    async def __aexit__(
        self,
        kind: "type[BaseException] | None",
        value: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        try:
            if value is None or isinstance(value, Exception) and not _is_cancelled(value):
                await self.wait()
            elif not self._child.has_exited():
                log("pid %s was left running: %r", self.pid, value)
        finally:
            self._child.close()

    def __repr__(self) -> str:
        return "<%s %r>" % (type(self).__name__, self._child)


def _is_cancelled(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError)  # an Exception before Python 3.8


ChildWatcher.__module__ = __name__
