# SPDX-License-Identifier: BSD-3-Clause
"""What waits for the processes of an asyncio event loop.

One engine for each loop, whose file descriptor the loop watches. Where the loop can't, as on
Windows, the thread of watch() waits, and wakes the loop.
"""

from errno import EBADF
from os import getpid
from selectors import SelectSelector
from weakref import WeakValueDictionary, ref

from ._base.deadline import LONGEST_SLEEP
from ._base.errors import Failed, log
from ._waiting.engine import Engine
from ._watching import watch_target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ._types import Any, Callable, Exits, Iterable, Target

_FD_SETSIZE = 1024


class LoopEngine:
    """An engine whose file descriptor the loop watches; it is used in the loop's thread alone.

    Only the loop's own handles refer to it, so it goes with the loop: closing a loop drops them.
    """

    def __init__(self, loop: "AbstractEventLoop") -> None:
        """Failed, OSError or NotImplementedError if the loop can't watch it."""
        self.loop = loop
        self._fd: "int | None" = None
        self._timer: "Any" = lambda: None  # weakly: it refers to us
        self._engine = Engine(False)
        self._sleeper = self._engine.sleeper
        try:
            self._fd = self._sleeper.fileno()
            if self._fd >= _FD_SETSIZE and isinstance(
                getattr(loop, "_selector", None), SelectSelector
            ):
                raise OSError(EBADF, "select() can't watch fd %d" % self._fd)
            loop.add_reader(self._fd, self.look)
        except BaseException:
            self._engine.close()
            raise

    def is_of(self, loop: "AbstractEventLoop") -> bool:
        """Whether it can be used in this loop; a forked child needs another one."""
        return self.loop is loop and self._fd is not None and self._engine.pid == getpid()

    def add(self, target: "Target") -> None:
        self._engine.add(target)
        self._arm()

    def discard(self, key: object) -> None:
        for target in self._engine.find(key):
            self._engine.discard(target)
        self._close_unused()

    def look(self, last: bool = False) -> bool:
        """Report the processes that have exited; return whether there were any."""
        engine = self._engine
        exits: "Exits" = []
        if self._fd is None or engine.pid != getpid():
            return False
        told = False
        try:
            engine.sleep(0)
            engine.collect(last)
            engine.take(exits)
            while exits:
                target, code = exits[0]
                pair: "Any" = target.key
                group, key = pair
                group.tell(key, code)
                del exits[0]
                told = True
        except BaseException:  # of a signal handler, or of a child watcher's callback
            engine.put_back(exits)
            engine.is_suspect = True
            raise
        finally:
            # Those that have been reported go on first; perhaps they wait for the next process.
            if engine.targets:
                self._arm()
            else:
                self.loop.call_soon(self._close_unused)
        return told

    def _arm(self) -> None:
        """Have the loop call when it is time to look."""
        if self._engine.sleeper is not self._sleeper and self._fd is not None:
            self.loop.remove_reader(self._fd)  # all are polled now
            self._sleeper = self._engine.sleeper
        self._cancel_timer()
        delay = self._engine.delay()
        if delay is not None:
            self._timer = ref(self.loop.call_later(min(delay, LONGEST_SLEEP), self.look))

    def _cancel_timer(self) -> None:
        timer = self._timer()
        if timer is not None:
            timer.cancel()

    def _close_unused(self) -> None:
        if not self._engine.targets:
            self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None and self._engine.pid == getpid() and not self.loop.is_closed():
            self.loop.remove_reader(fd)
            self._cancel_timer()
        self._engine.close()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None:  # else a signal handler has raised in __init__()
            engine.close()
            for target in engine.targets:  # the loop has been closed
                if hasattr(target, "leave") and engine.pid == getpid():
                    target.leave()


_engines: "WeakValueDictionary[int, LoopEngine]" = WeakValueDictionary()


def find_engine(loop: "AbstractEventLoop") -> "LoopEngine | None":
    engine = _engines.get(id(loop))
    return engine if engine is not None and engine.is_of(loop) else None


def add_to_loop(loop: "AbstractEventLoop", target: "Target") -> None:
    """Call ``group.tell(key, code)`` in the loop once the process has exited.

    ``target.key`` is the pair of both. Where a thread waits, ``group.watches`` stops it.
    """
    engine = find_engine(loop)
    try:
        if engine is None:
            # Where objects are freed late, those of closed loops are still there.
            # Not values(): another thread may add its own meanwhile.
            for other in [reference() for reference in _engines.valuerefs()]:
                if other is not None and other.loop.is_closed():
                    other.close()
            engine = _engines[id(loop)] = LoopEngine(loop)
    except (Failed, OSError, NotImplementedError) as why:
        log("the event loop can't watch, a thread waits for pid %s: %r", target.pid, why)
        pair: "Any" = target.key
        group, key = pair
        tell = group.tell
        group.watches[key] = watch_target(target, lambda _, code: call_soon(loop, tell, key, code))
        return
    engine.add(target)


def discard_from_loop(loop: "AbstractEventLoop", keys: "Iterable[Any]") -> None:
    """Do not report these."""
    engine = find_engine(loop)
    for group, key in keys:
        watch = group.watches.pop(key, None)
        if watch is not None:
            watch.cancel()
        elif engine is not None:
            engine.discard((group, key))


def call_soon(loop: "AbstractEventLoop", function: "Callable[..., object]", *args: object) -> None:
    """Call it in the loop, from any thread; not at all if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except Exception as error:
        # A closed loop raises RuntimeError. One that another thread is closing raises what its
        # socket does: OSError, and AttributeError in Python 3.7.
        if not loop.is_closed() and isinstance(error, RuntimeError):
            raise
        log("an event loop can't be woken: %r", error)
