# SPDX-License-Identifier: BSD-3-Clause
"""Waits in asyncio: a core that the event loop runs.

The loop calls a target's ``on_exit(target, code)`` once the process has exited.
"""

import asyncio
from os import getpid
from selectors import SelectSelector
from weakref import WeakValueDictionary, ref

from ._base.deadline import LONGEST_SLEEP
from ._base.errors import Failed, log, not_by_handler
from ._waiting.core import Core
from ._waiting.members import Waiter
from ._watching import Watch, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ._types import Any, Callable, Iterable, Target


class LoopCore(Core):
    """A core whose file descriptor the loop watches; it is used in the loop's thread alone.

    Only the loop's own handles refer to the core: closing the loop drops them, and so the core.
    """

    fd = -1  # until the loop watches it, and after close()
    _timer: "Any" = None  # weakly, if it can be: it refers to us

    def __init__(self, loop: "AbstractEventLoop") -> None:
        """Failed, OSError or NotImplementedError if the loop can't watch it."""
        super().__init__(False)
        self.loop = loop
        self._waiter = Waiter()
        try:
            fd = self.poller.fileno()
            if fd >= 1024 and isinstance(getattr(loop, "_selector", None), SelectSelector):
                raise NotImplementedError("select() can't watch fd %d" % fd)
            self.fd = fd
            loop.add_reader(fd, self.report)
        except BaseException as why:
            fd, self.fd = self.fd, -1
            if fd >= 0 and type(why) is not NotImplementedError:
                loop.remove_reader(fd)  # a signal handler may have raised after add_reader()
            super().close()
            raise

    def report(self, late: "Iterable[Target]" = ()) -> bool:
        """Report the exits; return whether there were any. ``late``: polled ones to look at now."""
        if self.pid != getpid():  # a forked child has a copy, and shares the loop's epoll
            return False
        me = ref(self._waiter)
        try:
            self.sleep(0)
            self.collect(me)
            for target in late:
                for member in self.members_of(target.key):
                    if member in self.schedule.members:
                        self.look(member, me)
            found = self.exited.copy()
            for member, code in found.items():  # reported twice if an exception prevents its end
                member.target.on_exit(member.target, code)  # type: ignore[misc]
                self.end(member)
        finally:
            # The coroutines that have got these exits run first: they may add processes.
            self.loop.call_soon(self.reschedule)
        return bool(found)

    def reschedule(self) -> None:
        """Set the loop's timer for the next look; close the core if it is unused."""
        timer = self._timer and self._timer()
        if timer is not None:
            timer.cancel()
        if not self.tokens or self.loop.is_closed():
            self.close()
            return
        delay = self.delay()
        if delay is not None:
            new = self.loop.call_later(min(delay, LONGEST_SLEEP), self.report)
            try:
                self._timer = ref(new)
            except not_by_handler(TypeError):  # rloop's
                self._timer = lambda: new

    def fall_back_to_polling(self, why: Failed) -> None:
        self.loop.remove_reader(self.fd)  # all are polled now
        super().fall_back_to_polling(why)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd < 0 or self.pid != getpid():  # a forked child shares the loop's epoll
            return
        _cores.pop((id(self.loop), self.pid), None)
        if not self.loop.is_closed():
            self.loop.remove_reader(fd)
        super().close()

    __del__ = close


# By id(loop) and process: a forked child makes its own.
_cores: "WeakValueDictionary[tuple[int, int], LoopCore]" = WeakValueDictionary()


def find_core(loop: "AbstractEventLoop") -> "LoopCore | None":
    return _cores.get((id(loop), getpid()))


def add_to_loop(loop: "AbstractEventLoop", targets: "Iterable[Target]") -> None:
    core = find_core(loop)
    if core is None:
        try:
            core = _cores[id(loop), getpid()] = LoopCore(loop)
        except not_by_handler(Failed, OSError, NotImplementedError) as why:
            log("the event loop can't watch file descriptors, so a thread waits: %r", why)
            for target in targets:
                _watch(loop, target)
            return
    for target in targets:
        core.add(target)
    core.report()  # what has exited by now: before what exits from now on


def _watch(loop: "AbstractEventLoop", target: "Target") -> None:
    """Have the thread of watch() wait; its Watch becomes the key."""
    on_exit: "Any" = target.on_exit
    target.key = watch(target.proc, lambda proc, code: call_soon(loop, on_exit, target, code))


def discard_from_loop(loop: "AbstractEventLoop", targets: "Iterable[Target]") -> None:
    core = find_core(loop)
    for target in targets:
        if isinstance(target.key, Watch):
            target.key.cancel()
        elif core is not None:
            core.discard(target.key)
    if core is not None:
        core.reschedule()


def call_soon(loop: "AbstractEventLoop", function: "Callable[..., object]", *args: object) -> None:
    """Call a function in the loop, from any thread; not at all if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    # Of a loop that another thread is closing: OSError or AttributeError, too.
    except not_by_handler(Exception) as error:
        log("can't wake an event loop: %r", error)


def in_thread(function: "Callable[..., Any]", *args: object, daemon: bool = False) -> "Any":
    """Call a function in a new thread; return a future. asyncio's executor has few threads."""
    from threading import Thread

    loop = asyncio.get_event_loop()
    future = loop.create_future()  # nobody may cancel it, as it is set later

    def run() -> None:
        try:
            call_soon(loop, future.set_result, function(*args))
        except StopIteration as error:  # a future takes none, and a coroutine raises RuntimeError
            call_soon(loop, future.set_exception, RuntimeError("it raised %r" % error))
        except BaseException as error:
            call_soon(loop, future.set_exception, error)

    Thread(target=run, name=__name__, daemon=daemon).start()
    return future
