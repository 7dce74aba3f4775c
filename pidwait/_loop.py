# SPDX-License-Identifier: BSD-3-Clause
"""What waits for the processes of an asyncio event loop: a core that the loop runs.

An owner's key is called in the loop once the process has exited: ``key(owner, code)``.
"""

import asyncio
from concurrent.futures import Future
from functools import partial
from os import getpid
from selectors import SelectSelector
from weakref import WeakValueDictionary, ref

from ._base.arguments import check_pid
from ._base.deadline import LONGEST_SLEEP
from ._base.errors import Failed, log, raise_of_handler
from ._base.handle import RUNNING
from ._systems.posix import reap_child
from ._waiting.core import Core
from ._waiting.members import Visit
from ._waiting.owners import PopenOwner
from ._watching import Watch, watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sys
    from asyncio import AbstractEventLoop

    from ._types import Any, Callable, Iterable, Owner, Self, Ts, Unpack

    if sys.platform == "win32" or sys.version_info >= (3, 14):
        AbstractChildWatcher = object
    else:
        from asyncio import AbstractChildWatcher
if not TYPE_CHECKING:
    AbstractChildWatcher = getattr(asyncio, "AbstractChildWatcher", object)

running_loop = getattr(asyncio, "get_running_loop", asyncio.get_event_loop)


class LoopCore(Core):
    """A core whose file descriptor the loop watches; it is used in the loop's thread alone.

    Only the loop's own handles refer to it, so it goes with the loop: closing a loop drops them.
    """

    fd = -1  # until the loop watches it, and after close()
    _timer: "Any" = None  # weakly: it refers to us

    def __init__(self, loop: "AbstractEventLoop") -> None:
        """Failed, OSError or NotImplementedError if the loop can't watch it."""
        super().__init__(False)
        self.loop = loop
        self._visit = Visit()
        try:
            fd = self.poller.fileno()
            if fd >= 1024 and isinstance(getattr(loop, "_selector", None), SelectSelector):
                raise NotImplementedError("select() can't watch fd %d" % fd)
            loop.add_reader(fd, self.report)
        except BaseException:
            super().close()
            raise
        self.fd = fd

    def report(self, late: "Iterable[Owner]" = ()) -> bool:
        """Report the exits, those of the polled in ``late``, too; return whether there were any."""
        if self.pid != getpid():  # a forked child has a copy, and shares the loop's epoll
            return False
        me = ref(self._visit)
        try:
            self.sleep(0)
            self.collect(me)
            for owner in late:
                for member in self.find(owner.key):
                    if member in self.rounds.members:
                        self.look(member, me)
            found = self.exited.copy()
            for member, code in found.items():  # twice, if an exception comes before its end
                member.owner.key(member.owner, code)  # type: ignore[operator]
                self.end(member)
        finally:
            # The coroutines that have got these exits run first: they may add processes.
            self.loop.call_soon(self.schedule)
        return bool(found)

    def schedule(self) -> None:
        """Have the loop call when it is time to look; close the core if it is not used."""
        timer = self._timer and self._timer()
        if timer is not None:
            timer.cancel()
        if not self.names or self.loop.is_closed():
            self.close()
            return
        delay = self.delay()
        if delay is not None:
            self._timer = ref(self.loop.call_later(min(delay, LONGEST_SLEEP), self.report))

    def fall_back_to_polling(self, why: Failed) -> None:
        self.loop.remove_reader(self.fd)  # all are polled now
        super().fall_back_to_polling(why)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd < 0 or self.pid != getpid():  # a forked child shares the loop's epoll
            return
        if not self.loop.is_closed():
            self.loop.remove_reader(fd)
        _cores.pop((id(self.loop), self.pid), None)
        super().close()
        for member in list(self.names):  # the loop has been closed
            child = member.owner.proc
            if isinstance(child, AsyncioChild) and not child.is_removed:
                child.leave()

    def __del__(self) -> None:
        self.close()


# By id(loop) and process: a forked child makes its own.
_cores: "WeakValueDictionary[tuple[int, int], LoopCore]" = WeakValueDictionary()


def find_core(loop: "AbstractEventLoop") -> "LoopCore | None":
    return _cores.get((id(loop), getpid()))


def add_to_loop(loop: "AbstractEventLoop", owners: "Iterable[Owner]") -> None:
    """Have the exits of these reported."""
    core = find_core(loop)
    if core is None:
        try:
            core = _cores[id(loop), getpid()] = LoopCore(loop)
        except (Failed, OSError, NotImplementedError) as why:
            raise_of_handler(why)
            log("the event loop can't watch file descriptors, so a thread waits: %r", why)
            for owner in owners:
                _watch(loop, owner)
            return
    for owner in owners:
        core.add(owner)
    core.schedule()


def _watch(loop: "AbstractEventLoop", owner: "Owner") -> None:
    """Have the thread of watch() wait; its Watch becomes the key."""
    tell: "Any" = owner.key
    owner.key = watch(owner.proc, lambda proc, code: call_soon(loop, tell, owner, code))


def discard_from_loop(loop: "AbstractEventLoop", owners: "Iterable[Owner]") -> None:
    """Do not report these."""
    core = find_core(loop)
    for owner in owners:
        if isinstance(owner.key, Watch):
            owner.key.cancel()
        elif core is not None:
            core.discard(owner.key)
    if core is not None:
        core.schedule()


def call_soon(loop: "AbstractEventLoop", function: "Callable[..., object]", *args: object) -> None:
    """Call it in the loop, from any thread; not at all if the loop is closed."""
    try:
        loop.call_soon_threadsafe(function, *args)
    except Exception as error:  # if another thread is closing it, OSError or AttributeError, too
        raise_of_handler(error)
        log("can't wake an event loop: %r", error)


def in_thread(function: "Callable[..., Any]", *args: object, daemon: bool = False) -> "Any":
    """A future of what it returns, in a thread of its own: asyncio's executor has few."""
    from threading import Thread

    future: "Future[Any]" = Future()
    future.set_running_or_notify_cancel()  # from here on it can't be cancelled

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name=__name__, daemon=daemon).start()
    return asyncio.wrap_future(future)


class AsyncioChild:
    """A child that asyncio has started. For its owner it is a Popen, whose poll() reaps."""

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
            raise_of_handler(error)
            log("pid %d is not reaped: %s", self.pid, error)


class ChildWatcher(AbstractChildWatcher):
    """Makes asyncio wait for its own subprocesses in the event loop, without a thread.

    asyncio.set_child_watcher(ChildWatcher()) serves the event loops of all threads. Raises
    NotImplementedError on Windows, and from Python 3.14 on, which have no watchers. If other code
    reaps a child first and the system does not report its exit code, the code is 255, as with
    asyncio's watchers.
    """

    # From Python 3.12 on the base warns of all classes that are not in its own module.
    __module__ = AbstractChildWatcher.__module__

    def __init__(self) -> None:
        if AbstractChildWatcher is object:
            raise NotImplementedError("no child watchers on Windows, nor from Python 3.14 on")
        self._children: "dict[int, AsyncioChild]" = {}

    def add_child_handler(
        self, pid: int, callback: "Callable[[int, int, Unpack[Ts]], object]", *args: "Unpack[Ts]"
    ) -> None:
        """Call ``callback(pid, returncode, *args)`` after the child has exited; reap it."""
        loop: "Any" = running_loop()
        child = AsyncioChild(check_pid(pid))
        self.remove_child_handler(pid)
        self._children[pid] = child

        def tell(_: object, code: "int | None") -> None:
            if child.is_removed:
                return
            self.remove_child_handler(pid)
            if code is None:
                log("pid %d: reaped by other code, so the return code is reported as 255", pid)
            callback(pid, 255 if code is None else code, *args)

        add_to_loop(loop, [PopenOwner(child, pid, partial(loop.call_soon, tell))])

    def remove_child_handler(self, pid: int) -> bool:
        """Remove the handler of this pid, and do not reap; return whether there was one."""
        child = self._children.pop(pid, None)
        if child is not None:
            child.is_removed = True
        return child is not None

    def attach_loop(self, loop: "AbstractEventLoop | None") -> None:
        """Do nothing: a handler belongs to the loop that runs when it is added."""

    def is_active(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Remove all handlers."""
        for pid in list(self._children):
            self.remove_child_handler(pid)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        return
