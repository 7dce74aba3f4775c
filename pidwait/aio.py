# SPDX-License-Identifier: BSD-3-Clause
"""For asyncio: wait for processes, whosever children they are, in any event loop of it.

One engine for each loop does it, without a thread. A wait can be cancelled at any time, and
leaves nothing behind; the time-outs are asyncio's own, as by asyncio.wait_for().
"""

import asyncio

from . import spawning
from ._child_watcher import ChildWatcher
from ._deadline import GRACE, Deadline
from ._errors import log
from ._kinds import find
from ._loops import DAY, add, discard, discard_soon, look
from ._queue import deque
from ._targets import key_of
from .waiting import given_again

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncIterator, Iterable, Iterator
    from types import TracebackType
    from typing import Any, overload

    from typing_extensions import Self  # novm

    from ._child import Child as _Child
    from ._child import Path
    from ._generic import P
    from ._targets import Proc, Target

__all__ = ["Child", "ChildWatcher", "as_completed", "spawn", "wait", "wait_procs"]

_running_loop = getattr(asyncio, "get_running_loop", asyncio.get_event_loop)


async def wait(proc: "Proc") -> "int | None":
    """Wait until the process has exited; return its exit code, as the blocking wait() does.

    ``proc`` is what the blocking wait() takes. For a time-out use asyncio.wait_for() or
    asyncio.timeout(). A cancelled wait leaves the process alone, and other waits for it.
    Raises TypeError or ValueError for what can't stand for a process.

    >>> import subprocess, sys
    >>> async def main():
    ...     popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    ...     return await asyncio.wait_for(wait(popen), 60)
    >>> asyncio.run(main())
    3
    """
    loop = _running_loop()
    waiter = _Waiter(loop)
    target = _target(proc, waiter)
    try:
        add(loop, [target])
        return await waiter.future
    except BaseException:
        discard(loop, [waiter])
        raise


def _target(proc: "Any", key: object) -> "Target":
    return find(proc._child if isinstance(proc, Child) else proc, key)


class _Waiter:
    __slots__ = ("future",)

    def __init__(self, loop: "AbstractEventLoop") -> None:
        self.future: "asyncio.Future[int | None]" = loop.create_future()

    def tell(self, code: "int | None") -> None:
        if not self.future.done():
            self.future.set_result(code)


class _Member:
    """A process of a group."""

    __slots__ = ("group", "is_taken", "proc")

    def __init__(self, group: "_Group", proc: "Any") -> None:
        self.group = group
        self.proc = proc
        self.is_taken = False

    def tell(self, code: "int | None") -> None:
        self.group.exits.append((self, code))
        self.group.wake()


class _Group:
    """Processes for which one coroutine waits."""

    def __init__(self, loop: "AbstractEventLoop", procs: "Iterable[Any]") -> None:
        self.loop = loop
        # Those that have not been taken, by the keys of their processes.
        self.left: "dict[object, _Member]" = {}
        self.exits: "deque[tuple[_Member, int | None]]" = deque()
        self._wanted = 1
        self._sleeper: "asyncio.Future[None] | None" = None
        for proc in procs:
            self.left.setdefault(key_of(proc), _Member(self, proc))

    def start(self) -> None:
        add(self.loop, [_target(member.proc, member) for member in self.left.values()])

    def stop(self) -> None:
        discard(self.loop, [*self.left.values()])

    def wake(self, is_due: bool = False) -> None:
        sleeper = self._sleeper
        if sleeper is None or sleeper.done():
            return
        if is_due or len(self.exits) >= self._wanted:
            sleeper.set_result(None)

    async def sleep(self, wanted: int, seconds: "float | None") -> None:
        """Sleep until there are so many exits, for ``seconds`` at most; it may end earlier."""
        if len(self.exits) >= wanted or seconds == 0:
            return
        sleeper = self._sleeper
        # Python 3.6's wait_for() goes on before the task that it has cancelled has ended.
        if sleeper is not None and not sleeper.cancelled():
            raise RuntimeError("another task is waiting for the same processes")
        timer = None
        try:
            self._wanted = wanted
            sleeper = self._sleeper = self.loop.create_future()
            if seconds is not None:
                timer = self.loop.call_later(min(seconds, DAY), self.wake, True)
            await sleeper
        finally:
            if self._sleeper is sleeper:
                self._sleeper = None
            if timer is not None:
                timer.cancel()

    def take(self) -> "Iterator[tuple[Any, int | None]]":
        """Take the exits: ``(proc, code)``."""
        while self.exits:
            member, code = self.exits.popleft()
            # It is told again if a signal handler has raised just after the first time.
            if not member.is_taken:
                member.is_taken = True
                del self.left[key_of(member.proc)]
                yield member.proc, code


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
    again = given_again(given)
    group = _Group(_running_loop(), given)
    exited: "list[tuple[Any, int | None]]" = []

    def take() -> None:
        for first, code in group.take():
            exited.extend((proc, code) for proc in again.get(key_of(first), (first,)))

    try:
        group.start()
        while group.left:
            seconds = deadline.remaining()
            await group.sleep(len(group.left), seconds)
            if seconds == 0 and look(group.loop):
                await group.sleep(len(group.left), GRACE)
                look(group.loop)
            take()
            if seconds == 0:
                break
    finally:
        group.stop()
    return exited, [proc for proc in given if key_of(proc) in group.left]


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
    given = list(procs)
    return _Completions(_Group(_running_loop(), given), given_again(given))


class _Completions:
    # The engine refers to the group only: once this is freed, the processes are watched no more.

    def __init__(self, group: _Group, again: "dict[object, list[Any]]") -> None:
        self._group = group
        self._again = again
        self._taken: "deque[tuple[Any, int | None]]" = deque()
        group.start()

    def __aiter__(self) -> "Self":
        return self

    async def __anext__(self) -> "tuple[Any, int | None]":
        group = self._group
        while not self._taken:
            if not group.left:
                raise StopAsyncIteration
            await group.sleep(1, None)
            for first, code in group.take():
                again = self._again.get(key_of(first), (first,))
                self._taken.extend((proc, code) for proc in again)
        return self._taken.popleft()

    def __del__(self) -> None:
        group = getattr(self, "_group", None)  # None: a signal handler has raised in __init__()
        if group is not None and group.left:
            discard_soon(group.loop, [*group.left.values()])


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
    return Child(spawning.spawn(args, **options))


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
