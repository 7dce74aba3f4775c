# SPDX-License-Identifier: BSD-3-Clause
"""For asyncio: wait for any processes, your own children or not, in any event loop.

Each event loop watches one file descriptor for all its waits, and needs no thread. If a loop
can't watch file descriptors, as on Windows, the thread of watch() waits, and wakes the loop.
You can cancel a wait at any time; nothing is left behind.
"""

import asyncio
import sys
from contextlib import ExitStack
from functools import partial
from weakref import ref

from . import _ending
from ._base.deadline import LONGEST, LONGEST_SLEEP, PATIENCE, SHORTEST, Deadline
from ._base.errors import TimeoutExpired, log, not_by_handler
from ._loop import add_to_loop, call_soon, discard_from_loop, find_core, in_thread
from ._process import KILL, TERMINATE
from ._process import wait as wait_now
from ._starting.spawn import spawn as spawn_now
from ._waiting.owners import target_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import overload

    from ._starting.spawn import Child as BlockingChild
    from ._starting.spawn import StrOrBytesPath
    from ._types import Any, AsyncIterator, Callable, Iterable, P, Proc, Self, Target
    from ._types import run_async as run

__all__ = ["Child", "as_completed", "end_procs", "run", "spawn", "wait", "wait_procs"]


async def wait(proc: "Proc", timeout: "float | None" = None) -> "int | None":
    """Wait until the process has exited; return its exit code, as the blocking wait() does.

    Unlike Process.wait() of asyncio in Python 3.11 to 3.13, it does not wait for the end of pipes;
    asyncio may set the ``returncode`` of its Process a moment later. Cancelling a wait affects
    neither the process nor other waits, so asyncio.wait_for() and asyncio.timeout() work, too.

    Raises TimeoutExpired if the process is still running after ``timeout`` seconds, and
    TypeError or ValueError if ``proc`` can't be a process.

    >>> import asyncio, subprocess, sys
    >>> async def main():
    ...     popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    ...     return await wait(popen, 60)
    >>> asyncio.run(main())  # Python 3.7 or newer
    3
    """
    exited, alive = await wait_procs([proc], timeout)
    if alive:
        raise TimeoutExpired(target_of(proc).pid, timeout)
    return exited[0][1]


class _Group:
    """Processes for which one coroutine waits; an iterator over their exits.

    The core has a weak reference to the group, so that a freed iterator waits for nothing, and a
    strong one to ``sleepers``, as nothing else may refer to a waiting task.
    """

    def __init__(self, procs: "Iterable[Any]") -> None:
        # The caller's objects, by target, whose processes have not exited; and the exits.
        self.left: "dict[Target, Any]" = {}
        self.loop = getattr(asyncio, "get_running_loop", asyncio.get_event_loop)()
        self.exits: "dict[Target, tuple[Any, int | None]]" = {}
        self.sleepers: "list[asyncio.Future[None]]" = []  # of the sleeping task, if any
        for proc in procs:
            target = target_of(proc, object())
            target.on_exit = partial(_tell, ref(self), self.sleepers)
            self.left[target] = proc
        add_to_loop(self.loop, self.left)

    def look(self) -> None:
        """Note all exits until now."""
        core = find_core(self.loop)
        while core is not None and core.report(list(self.left)):
            pass  # each call reports a few
        for target in list(self.left) if core is None else ():
            try:  # the thread of watch() may not have reported it yet
                _tell(ref(self), self.sleepers, target, wait_now(target.proc, 0))
            except not_by_handler(TimeoutExpired, ValueError):  # ValueError: it has been closed
                continue

    def hasten(self, seconds: float) -> bool:
        """Wait so long at most for codes still to come; return whether there are any."""
        core = find_core(self.loop)
        pending = [] if core is None else [one for one in core.pending() if one.target in self.left]
        for one in pending:
            one.until = Deadline(one.until.at_most(seconds))  # type: ignore[union-attr]
        return bool(pending)

    def exit(self) -> "asyncio.Future[None]":
        """A future that is done at the next exit."""
        self.sleepers[:] = [self.loop.create_future()]
        return self.sleepers[0]

    def __aiter__(self) -> "Self":
        return self

    async def __anext__(self) -> "tuple[Any, int | None]":
        while not self.exits:
            if not self.left:
                raise StopAsyncIteration
            if self.sleepers and not self.sleepers[0].done():
                raise RuntimeError("another task is waiting for the same processes")
            await self.exit()
        return self.exits.pop(next(iter(self.exits)))

    def __del__(self) -> None:
        if self.left:  # perhaps in another thread
            call_soon(self.loop, discard_from_loop, self.loop, self.left)


def _tell(group_ref: "Any", sleepers: "list[Any]", target: "Target", code: "int | None") -> None:
    group: "_Group | None" = group_ref()
    if group is not None and target in group.left:  # else it is known already
        group.exits[target] = group.left[target], code
        del group.left[target]
    for sleeper in sleepers:
        if not sleeper.done():
            sleeper.set_result(None)


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

    The lists are those of the blocking wait_procs().

    >>> import asyncio, subprocess, sys
    >>> command = [sys.executable, "-c", "raise SystemExit(3)"]
    >>> async def main():
    ...     exited, alive = await wait_procs([subprocess.Popen(command) for _ in range(2)])
    ...     return [exitcode for popen, exitcode in exited], alive
    >>> asyncio.run(main())  # Python 3.7 or newer
    ([3, 3], [])
    """
    deadline, pause = Deadline(timeout), SHORTEST
    group = _Group(procs)
    try:
        while group.left:
            seconds = deadline.remaining()
            if seconds == 0:
                group.look()
                # The loop reports codes in its turns, however long these take: it gets some.
                if not group.hasten(PATIENCE if pause < LONGEST else 0.0):
                    break
                seconds, pause = pause, 2 * pause
            if seconds is None:
                await group.exit()
            else:
                await asyncio.wait([group.exit()], timeout=min(seconds, LONGEST_SLEEP))
        return list(group.exits.values()), list(group.left.values())
    finally:
        if group.left:
            discard_from_loop(group.loop, group.left)
            group.left = {}


if TYPE_CHECKING:

    @overload
    def as_completed(procs: "Iterable[P]") -> "AsyncIterator[tuple[P, int | None]]": ...
    @overload
    def as_completed(  # type: ignore[overload-cannot-match]
        procs: "Iterable[Proc]",
    ) -> "AsyncIterator[tuple[Proc, int | None]]": ...


def as_completed(procs: "Iterable[Any]") -> "AsyncIterator[tuple[Any, int | None]]":
    """Iterate over ``(proc, exitcode)`` of these processes as they exit: ``async for``.

    Call it in the event loop: the call starts the wait for all of them. To stop early, leave
    the ``async for``.

    >>> import asyncio, subprocess, sys
    >>> command = [sys.executable, "-c", "raise SystemExit(3)"]
    >>> async def main():
    ...     async for popen, exitcode in as_completed([subprocess.Popen(command)]):
    ...         print(exitcode)
    >>> asyncio.run(main())  # Python 3.7 or newer
    3
    """
    return _Group(procs)


async def end_procs(
    procs: "Iterable[Proc]",
    grace: float = 5.0,
    sig: int = TERMINATE,
    tree: bool = False,
    reap: bool = False,
    limit: "float | None" = None,
) -> "tuple[list[tuple[Any, int | None]], list[Any]]":
    """End these processes, as the blocking end_procs() does; return ``(exited, alive)``.

    A thread does the work. If the call is cancelled, the thread still ends the processes.

    >>> import asyncio, subprocess, sys
    >>> async def main():
    ...     popen = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ...     exited, alive = await end_procs([popen])
    ...     return exited == [(popen, popen.returncode)], alive
    >>> asyncio.run(main())  # Python 3.7 or newer
    (True, [])
    """
    ending = in_thread(_ending.end_procs, list(procs), grace, sig, None, tree, reap, limit)
    return await asyncio.shield(ending)


def spawn(args: "StrOrBytesPath | list[StrOrBytesPath]", **options: "Any") -> "Child":
    """Start a program by posix_spawn; return its Child, for ``async with``.

    Arguments and exceptions are those of the package's spawn(). The event loop is blocked
    until the program has started, for about a millisecond.

    >>> import asyncio, sys
    >>> async def main():
    ...     async with spawn([sys.executable, "-c", "raise SystemExit(3)"]) as child:
    ...         return await child.wait()
    >>> asyncio.run(main())  # Python 3.7 or newer
    3
    """
    return Child(spawn_now(args, **options))


class Child:
    """Returned by spawn(); do not create it yourself. wait() reaps the child.

    ``pid`` is its pid, and ``args`` is the argument of spawn(). The end of an ``async with`` block
    waits for the child. If the block is cancelled, the child keeps running, and is reaped later.
    """

    def __init__(self, child: "BlockingChild") -> None:
        self._child = child
        self.pid: int = child.pid
        self.args: "Any" = child.args

    @property
    def exitcode(self) -> "int | None":
        """The exit code. None before wait() has returned, or if the system does not report it."""
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
        finally:
            self.close()

    def __repr__(self) -> str:
        return "<%s %r>" % (type(self).__name__, self._child)


if not TYPE_CHECKING:  # type checkers see that of _types.py

    async def run(*args: "Any", **options: "Any") -> "Any":
        """Run a command as subprocess.run() does, without blocking the event loop.

        It takes the arguments of this package's subprocess.run(), ``tree`` and ``grace`` included,
        and raises the same exceptions. Cancelling it ends the command as a time-out does, and
        returns when the command has ended; more cancels change nothing, but a second Ctrl-C kills
        at once. Without ``tree``, a process that the command has started, and that holds a pipe,
        delays the return in both cases. Each call waits in a thread of its own.

        >>> import asyncio, subprocess, sys
        >>> async def main():
        ...     done = await run([sys.executable, "-c", "print(3)"], stdout=subprocess.PIPE)
        ...     return int(done.stdout)
        >>> asyncio.run(main())  # Python 3.7 or newer
        3
        """
        from . import subprocess

        started: "list[Any]" = []
        cancelled: "list[BaseException]" = []

        def end() -> None:
            for popen in started:
                if len(cancelled) > 1:
                    popen.send_signal(KILL)
                elif cancelled:
                    popen.kill()  # as at a time-out: a tree gets its grace

        def tell(popen: "Any") -> None:
            started.append(popen)
            end()  # if it was cancelled before

        def start() -> "Any":
            subprocess._started.tell = tell
            return subprocess.run(*args, **options)

        done = in_thread(start, daemon=True)  # not a task: asyncio.run() cancels tasks at its end
        cancelled += await _cancels(done)
        if not cancelled:
            return done.result()
        end()
        await _outlast_cancels(done, cancelled, end)
        log("a cancelled run() ended: %r", done.exception())
        raise cancelled.pop(0)  # not kept by this frame, which its traceback refers to


async def _outlast_cancels(
    done: "asyncio.Future[Any]", cancelled: "list[BaseException]", end: "Callable[[], None]"
) -> None:
    """Wait for the future, however often the task is cancelled; call end() at a second Ctrl-C."""
    first_interrupt = _interrupt()
    # A scope of anyio cancels its tasks in each turn of the loop, but not behind a shield.
    anyio: "Any" = sys.modules.get("anyio")
    scope = getattr(anyio, "CancelScope", None)
    is_scopes = scope and anyio.current_effective_deadline() < 0
    with scope(shield=True) if scope else ExitStack():
        while not done.done():
            again = await _cancels(done)
            if again and _interrupt() not in (None, first_interrupt):
                cancelled[1:] = again
                end()
            if again and is_scopes:  # this one is not, and must not be lost
                cancelled[:1] = again


async def _cancels(done: "asyncio.Future[Any]") -> "list[BaseException]":
    """Wait for the future; what the task is cancelled by, if that comes first."""
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError as error:
        return [error]
    return []


def _interrupt() -> "BaseException | None":
    """The Ctrl-C after which the loop runs again, to cancel all tasks; none that asyncio made."""
    error = sys.exc_info()[1]
    is_own = isinstance(getattr(error, "__context__", None), asyncio.CancelledError)
    return error if isinstance(error, KeyboardInterrupt) and not is_own else None
