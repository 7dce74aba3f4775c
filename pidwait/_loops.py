# SPDX-License-Identifier: BSD-3-Clause
"""One engine for each of asyncio's event loops.

The loop watches the engine's file descriptor, and calls it when its delay() is over. Only the
loop's own handles refer to the engine, so it goes with the loop: closing a loop drops them. A
coroutine must not refer to it, or the two would keep each other alive: it calls the functions
at the end of this module.

An engine is used in its loop's thread alone. Other threads reach it by call_soon() only,
and close it once its loop is closed.
"""

from errno import EBADF, ENOSYS
from io import UnsupportedOperation
from os import getpid
from selectors import SelectSelector
from weakref import WeakValueDictionary, ref

from ._deadline import LONGEST
from ._engine import Engine
from ._errors import pass_over, raise_of_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Handle
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol  # novm
    from weakref import ReferenceType

    from ._backends.contract import Set
    from ._engine import Exits
    from ._targets import Target

    class Waiter(Protocol):  # novm
        """The key of a target: each wait has its own, even if two are for the same process."""

        def tell(self, code: "int | None") -> None:
            """The process has exited. This may be called again, with the same code."""


_FOREVER = float("inf")
_FD_SETSIZE = 1024
DAY = 86400.0  # seconds; event loops limit their time-outs in different ways


class LoopEngine:
    def __init__(self, loop: "AbstractEventLoop") -> None:
        self._engine = Engine(False, _waker(ref(self)))
        self.loop = loop
        # The set whose file descriptor the loop watches, and that; None if it can't watch it.
        self._watched: "Set | None" = None
        self._fd: "int | None" = None
        self._is_blind = False
        # Weakly: they refer to us, and a closed loop drops them.
        self._timers: "list[ReferenceType[Handle]]" = []
        self._rings_at = _FOREVER
        self._anchors: "list[ReferenceType[Handle]]" = []
        self._is_looking = False
        self._is_closed = False

    def is_of(self, loop: "AbstractEventLoop") -> bool:
        """Whether it can be used in this loop; a forked child needs another one."""
        return self.loop is loop and not self._is_closed and self._engine.pid == getpid()

    def add(self, targets: "Sequence[Target]") -> None:
        try:
            self._engine.add(targets)
        finally:
            self._arm()

    def discard(self, keys: "Iterable[Waiter]") -> None:
        for key in keys:
            self._engine.discard(key)
        if self._engine or self._is_looking:
            self._arm()
        else:
            self.close()

    def _on_timer(self) -> None:
        self._rings_at = _FOREVER  # so that look() sets it anew
        self.look()

    def look(self, at_all: bool = False) -> bool:
        """Tell the waiters of the processes that have exited; return whether there were any.

        With ``at_all`` the polled ones are looked at even if it is not time to.
        """
        # After the sleep the caches are cold, and each name and call costs.
        engine = self._engine
        if self._is_closed or engine.pid != getpid():
            return False
        sets = engine.sets
        exits: "Exits" = []
        told = 0
        try:
            try:
                self._is_looking = True
                sets.sleep(0)
                if at_all:
                    sets.look(True)
                engine.collect(exits)
                for target, code in exits:
                    target.key.tell(code)  # type: ignore[attr-defined]
                    told += 1
            except BaseException:  # if a signal handler raises, no exit must be lost
                engine.put_back(exits[told:])
                raise
            finally:
                self._end_look()
        finally:  # Ctrl-C may come anywhere, even just before the call above
            if self._is_looking:
                self._end_look()
        return told > 0

    def _end_look(self) -> None:
        engine = self._engine
        if engine.members or engine.superseded:
            self._arm()
        else:
            # Those that have been told go on first; perhaps they wait for the next process.
            self.loop.call_soon(self._close_unused)
        self._is_looking = False

    def is_settling(self) -> bool:
        """Whether the exit of a process has been seen, but its code is still to come."""
        return self._engine.is_settling()

    def _arm(self) -> None:
        """Have the loop call when there is an event, or when it is time to look."""
        engine = self._engine
        if engine.sets.best is not self._watched:
            self._watch()
        delay = engine.delay()
        if self._is_blind and (delay is None or delay > LONGEST):
            delay = LONGEST
        if delay is None:
            self._cancel_timers()
            return
        at = self.loop.time() + delay
        if at < self._rings_at:
            self._set_timers(delay, at)

    def _set_timers(self, delay: float, at: float) -> None:
        loop, old = self.loop, self._timers
        timer = (
            loop.call_later(delay, self._on_timer) if delay > 0 else loop.call_soon(self._on_timer)
        )
        # The loop has dropped a timer before it calls it: if a signal handler raises right then,
        # only another one can find what is polled.
        spare = loop.call_later(delay + LONGEST, self._on_timer)
        self._timers = [ref(timer), ref(spare)]
        self._rings_at = at
        _cancel(old)

    def _cancel_timers(self) -> None:
        self._rings_at = _FOREVER
        _cancel(self._timers)

    def _watch(self) -> None:
        self._unwatch()
        self._is_blind = False
        try:
            # Noted first: if a signal handler raises right after add_reader(), it is removed.
            self._fd = self._engine.fileno(False)
            add_reader(self.loop, self._fd, self.look)
        except UnsupportedOperation:
            # Its delay() tells, or it wakes us, as on Windows. Then no reader keeps us alive.
            if self._engine.sets.best is not self._engine.sets.polled:
                self._anchor()
        except OSError as error:
            pass_over(error, "without a reader")
            self._fd = None
            self._is_blind = True
        self._watched = self._engine.sets.best

    def _anchor(self) -> None:
        handle = self.loop.call_later(DAY, self._anchor)
        self._anchors = [ref(handle)]

    def _unwatch(self) -> None:
        if self._fd is not None and not self.loop.is_closed():
            self.loop.remove_reader(self._fd)
        self._fd = None
        _cancel(self._anchors)

    def _close_unused(self) -> None:
        if not self._engine:
            self.close()

    def close(self) -> None:
        try:
            self._is_closed = True
            self._release()
        finally:  # Ctrl-C may come anywhere
            self._release()

    def _release(self) -> None:
        if self._engine.pid == getpid():  # else these are the parent's
            self._unwatch()
            self._cancel_timers()
        self._engine.close()

    def __del__(self) -> None:
        if hasattr(self, "_engine"):  # else a signal handler has raised in __init__()
            self._engine.close()


def add_reader(loop: "AbstractEventLoop", fd: int, callback: "Callable[[], object]") -> None:
    """loop.add_reader(); OSError if the loop can't watch this file descriptor."""
    selector = getattr(loop, "_selector", None)
    if fd >= _FD_SETSIZE and isinstance(selector, SelectSelector):
        # Each turn of the loop would raise a ValueError.
        raise OSError(EBADF, "the event loop can't watch fd %d: select() can't" % fd)
    try:
        loop.add_reader(fd, callback)
    except NotImplementedError as error:
        raise_of_handler(error)
        raise OSError(ENOSYS, "the event loop can't watch file descriptors") from error


def call_soon(loop: "AbstractEventLoop", function: "Callable[..., object]", *args: object) -> None:
    """Call it in the loop, from any thread; not at all if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


def _waker(get_engine: "Callable[[], LoopEngine | None]") -> "Callable[[], object]":
    """A function that wakes the loop, from any thread, and does not keep the engine alive."""

    def wake() -> None:
        engine = get_engine()
        if engine is not None:
            engine.loop.call_soon_threadsafe(engine.look)

    return wake


def _cancel(timers: "list[ReferenceType[Handle]]") -> None:
    for timer in timers:
        handle = timer()
        if handle is not None:
            handle.cancel()


_engines: "WeakValueDictionary[int, LoopEngine]" = WeakValueDictionary()


def _find(loop: "AbstractEventLoop") -> "LoopEngine | None":
    engine = _engines.get(id(loop))
    return engine if engine is not None and engine.is_of(loop) else None


def _get(loop: "AbstractEventLoop") -> "LoopEngine":
    engine = _find(loop)
    if engine is None:
        # Where objects are freed late, those of closed loops are still there.
        # Not values(): another thread may add its own meanwhile.
        for other in [reference() for reference in _engines.valuerefs()]:
            if other is not None and other.loop.is_closed():
                other.close()
        engine = _engines[id(loop)] = LoopEngine(loop)
    return engine


def add(loop: "AbstractEventLoop", targets: "Sequence[Target]") -> None:
    """Call ``target.key.tell(code)`` in the loop, for each target, once it has exited."""
    if targets:
        _get(loop).add(targets)


def discard(loop: "AbstractEventLoop", keys: "Iterable[Waiter]") -> None:
    """Do not tell these."""
    engine = _find(loop)
    if engine is not None:
        engine.discard(keys)


def discard_soon(loop: "AbstractEventLoop", keys: "Iterable[Waiter]") -> None:
    """The same, from any thread: when an object is freed."""
    if _find(loop) is not None:  # in a forked child the loop is a copy of the parent's
        call_soon(loop, discard, loop, keys)


def look(loop: "AbstractEventLoop") -> bool:
    """Look at all now; return whether an exit has been seen whose code is due any moment."""
    engine = _find(loop)
    if engine is None:
        return False
    has_told = engine.look(True)
    # What is known already keeps it from asking the system, which tells so many at a time.
    while has_told:
        has_told = engine.look()
    return engine.is_settling()
