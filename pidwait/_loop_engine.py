# SPDX-License-Identifier: BSD-3-Clause
"""What waits for the processes of an asyncio event loop: an engine that the loop runs.

A target's key is called in the loop once the process has exited: ``key(target, code)``.
"""

from os import getpid
from selectors import SelectSelector
from weakref import WeakValueDictionary, ref

from ._base.deadline import LONGEST_SLEEP
from ._base.errors import Failed, log, raise_of_handler
from ._base.handle import RUNNING
from ._systems.posix import reap_child
from ._waiting.engine import Engine
from ._watching import Watch, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ._types import Any, Callable, Iterable, Target


class LoopEngine(Engine):
    """An engine whose file descriptor the loop watches; it is used in the loop's thread alone.

    Only the loop's own handles refer to it, so it goes with the loop: closing a loop drops them.
    """

    fd = -1  # until the loop watches it, and after close()
    _timer: "Any" = None  # weakly: it refers to us

    def __init__(self, loop: "AbstractEventLoop") -> None:
        """Failed, OSError or NotImplementedError if the loop can't watch it."""
        super().__init__(False)
        self.loop = loop
        try:
            fd = self.sleeper.fileno()
            if fd >= 1024 and isinstance(getattr(loop, "_selector", None), SelectSelector):
                raise NotImplementedError("select() can't watch fd %d" % fd)
            loop.add_reader(fd, self.look)
        except BaseException:
            super().close()
            raise
        self.fd = fd

    def look(self, late: "Iterable[Target]" = ()) -> bool:
        """Report the exits, those of the polled in ``late``, too; return whether there were any."""
        if self.pid != getpid():  # a forked child has a copy, and shares the loop's epoll
            return False
        try:
            self.sleep(0)
            self.collect()
            for target in late:
                if target in self.looks.entries:
                    self._look(target, True)
            found: "list[tuple[Any, int | None]]" = list(self.codes.items())
            for target, code in found:  # twice, if an exception comes before the end
                target.key(target, code)
                self.discard(target)
        except BaseException:
            self.is_suspect = True
            raise
        finally:
            # The coroutines that have got these exits run first: they may add processes.
            self.loop.call_soon(self.arm)
        return bool(found)

    def arm(self) -> None:
        """Have the loop call when it is time to look; close the engine if it is not used."""
        timer = self._timer and self._timer()
        if timer is not None:
            timer.cancel()
        if not self.targets or self.loop.is_closed():
            self.close()
            return
        delay = self.delay()
        if delay is not None:
            self._timer = ref(self.loop.call_later(min(delay, LONGEST_SLEEP), self.look))

    def give_up(self, why: Failed) -> None:
        self.loop.remove_reader(self.fd)  # all are polled now
        self._unused = self.sleeper  # or close() might remove another reader of the same number
        super().give_up(why)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd < 0 or self.pid != getpid():  # a forked child shares the loop's epoll
            return
        if not self.loop.is_closed():
            self.loop.remove_reader(fd)
        _engines.pop((id(self.loop), self.pid), None)
        super().close()
        for target in self.targets:  # the loop has been closed
            if isinstance(target.proc, AsyncioChild) and not target.proc.is_removed:
                target.proc.leave()

    __del__ = close


# By id(loop) and process: a forked child makes its own.
_engines: "WeakValueDictionary[tuple[int, int], LoopEngine]" = WeakValueDictionary()


def find_engine(loop: "AbstractEventLoop") -> "LoopEngine | None":
    return _engines.get((id(loop), getpid()))


def add_to_loop(loop: "AbstractEventLoop", targets: "Iterable[Target]") -> None:
    """Have the exits of these reported."""
    engine = find_engine(loop)
    if engine is None:
        try:
            engine = _engines[id(loop), getpid()] = LoopEngine(loop)
        except (Failed, OSError, NotImplementedError) as why:
            log("the event loop can't watch file descriptors, so a thread waits: %r", why)
            for target in targets:
                _watch(loop, target)
            return
    for target in targets:
        engine.add(target)
    engine.arm()


def _watch(loop: "AbstractEventLoop", target: "Target") -> None:
    """Have the thread of watch() wait; its Watch becomes the key."""
    tell: "Any" = target.key
    target.key = watch(target.proc, lambda proc, code: call_soon(loop, tell, target, code))


def discard_from_loop(loop: "AbstractEventLoop", targets: "Iterable[Target]") -> None:
    """Do not report these."""
    engine = find_engine(loop)
    for target in targets:
        if isinstance(target.key, Watch):
            target.key.cancel()
        elif engine is not None:
            engine.discard(target)
    if engine is not None:
        engine.arm()


def call_soon(loop: "AbstractEventLoop", function: "Callable[..., object]", *args: object) -> None:
    """Call it in the loop, from any thread; not at all if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except Exception as error:  # if another thread is closing it, OSError or AttributeError, too
        raise_of_handler(error)
        log("can't wake an event loop: %r", error)


class AsyncioChild:
    """A child that asyncio has started. For a target it is a Popen, whose poll() reaps."""

    returncode = None
    is_removed = False  # from the watcher: then it must not be reaped

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> "int | None":
        code = 0 if self.is_removed else reap_child(self.pid)
        return None if code is RUNNING else code  # type: ignore[return-value]

    def leave(self) -> None:
        """Have the thread of watch() reap it: the loop has been closed."""
        try:
            watch(self, lambda child, code: None)
        except RuntimeError as error:  # the interpreter is shutting down
            log("pid %d is not reaped: %s", self.pid, error)
