# SPDX-License-Identifier: BSD-3-Clause
"""Many processes: until all of them have exited, or as each does."""

import os
from _thread import TIMEOUT_MAX, RLock
from time import monotonic

from ._deadline import FOREVER, Deadline
from ._engine import Engine
from ._errors import TimeoutExpired, warn_unclosed
from ._targets import find, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any, TypeVar  # novm

    from ._engine import Exits
    from ._targets import HasPid, Proc, Target

    P = TypeVar("P", bound="int | HasPid")  # novm

__all__ = ["WaitSet", "as_completed", "wait_procs"]

# Windows' main thread is deaf to Ctrl-C while it waits for a lock.
_LOCK_SLICE = 0.1 if os.name == "nt" else TIMEOUT_MAX


def wait_procs(
    procs: "Iterable[P]",
    timeout: "float | None" = None,
    callback: "Callable[[P, int | None], object] | None" = None,
) -> "tuple[list[tuple[P, int | None]], list[P]]":
    """Wait until all of these processes have exited; return ``(exited, alive)``.

    ``procs`` are what wait() takes. ``exited`` is a list of ``(proc, exitcode)`` in
    the order in which they exited, ``alive`` a list of those that still run after
    ``timeout`` seconds, in the order given. A process given twice is reported twice. The
    exit codes are those that wait() would return.

    ``callback(proc, exitcode)`` is called at each exit; what it raises ends the call.
    ValueError or TypeError for what stands for no process; one that is not there has exited.
    """
    if callback is not None and not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)
    deadline = Deadline(timeout)
    given = list(procs)
    again = _given_again(given)
    exited: "list[tuple[Any, int | None]]" = []
    engine = _engine_with(given)
    try:
        for first, code in _exits(engine, deadline):
            for proc in again.get(key_of(first), (first,)):
                exited.append((proc, code))
                if callback is not None:
                    callback(proc, code)
        alive = [proc for proc in given if key_of(proc) in engine]
    finally:
        engine.close()
    return exited, alive


def as_completed(
    procs: "Iterable[P]", timeout: "float | None" = None
) -> "Iterator[tuple[P, int | None]]":
    """Iterate over ``(proc, exitcode)`` of these processes as they exit.

    As concurrent.futures.as_completed() does for futures: ``timeout`` counts from the
    call, and TimeoutExpired is raised if some are still running then. They are
    watched from the call on.
    """
    deadline = Deadline(timeout)
    given = list(procs)
    return _completions(_engine_with(given), _given_again(given), deadline)


def _completions(
    engine: Engine, again: "dict[object, list[Any]]", deadline: Deadline
) -> "Iterator[Any]":
    try:
        for first, code in _exits(engine, deadline):
            for proc in again.get(key_of(first), (first,)):
                yield proc, code
        for target in engine:
            raise TimeoutExpired(target.pid, deadline.timeout)
    finally:
        engine.close()


def _engine_with(procs: "list[Any]") -> Engine:
    targets = [find(proc) for proc in procs]
    engine = Engine(False)
    try:
        engine.add(targets)
    except BaseException:
        engine.close()
        raise
    return engine


def _exits(engine: Engine, deadline: Deadline) -> "Iterator[tuple[Any, int | None]]":
    """All exits until the deadline."""
    exits: "Exits" = []
    while engine:
        if engine.is_copy():
            engine.take_over()
        seconds = deadline.remaining()
        engine.sleep(seconds)
        engine.collect(exits, seconds == 0)
        for target, code in exits:
            yield target.proc, code
        if not exits and seconds == 0:
            return
        exits.clear()


def _given_again(procs: "list[Any]") -> "dict[object, list[Any]]":
    """key: all that were given for it, where that is more than one."""
    firsts: "dict[object, Any]" = {}
    again: "dict[object, list[Any]]" = {}
    for proc in procs:
        key = key_of(proc)
        if key in again:
            again[key].append(proc)
        elif key in firsts:
            again[key] = [firsts[key], proc]
        else:
            firsts[key] = proc
    return again


class WaitSet:
    """Processes of which each is reported once, when it has exited.

    What wait() takes can be in it: numbers, Popens, our own Processes, in any mixture,
    up to tens of thousands. Each object is in it once. They are waited for by one
    epoll(7), from Linux 5.3 on, or one kqueue(2), and the cost of an exit does not grow
    with their number. Pidfds are above the soft RLIMIT_NOFILE, if the hard one lets them
    be. On Windows each 63 after the first 61 have a thread. What can't be waited for is
    looked at again and again, which takes 5 % of a core at most.

    It may be used from several threads, and changed while another one waits. close()
    gives the system's resources back; a ``with`` block does it at its end.
    """

    # One thread at a time sleeps in the engine, and has the turn; the others that wait, wait
    # for the turn. Who changes the set ends the sleep if it has something to tell.

    _is_closed = True
    _warns = True

    def __init__(self, procs: "Iterable[Proc]" = ()) -> None:
        self._start()
        self._engine = Engine(True)
        self._is_shown = self._is_closed = False  # from here on, __del__ closes it
        try:
            self._add([find(proc) for proc in procs])
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._turn = RLock()
        # An entry for each thread inside sleep(), and wait(): more than one where a signal
        # handler waits, too.
        self._sleeping: "list[None]" = []
        self._waiting: "list[None]" = []

    def _take_over(self) -> None:
        """In a forked child: threads that are only in the parent may have had the turn."""
        if self._engine.is_copy():
            self._start()
            self._engine.take_over()

    def _check_open(self) -> None:
        self._take_over()
        if self._is_closed:
            raise ValueError("the set is closed")

    def add(self, proc: "Proc") -> None:
        """Wait for this process, too; nothing changes if it is there already.

        One that has exited, or is not there, is reported by the next wait(). A number whose
        process has exited stands for the one that has it now, besides.
        """
        self._add([find(proc)])

    def _add(self, targets: "list[Target]") -> None:
        self._check_open()
        try:
            self._engine.add(targets)
        finally:
            self._rearm()

    def discard(self, proc: "Proc") -> None:
        """Do not wait for this one any more, if it is there."""
        self._discard(key_of(proc))

    def _discard(self, key: object) -> None:
        self._check_open()
        try:
            self._engine.discard(key)
        finally:
            self._rearm()

    def __len__(self) -> int:
        """How many have not been reported yet."""
        return len(self._engine)

    def __contains__(self, proc: object) -> bool:
        return key_of(proc) in self._engine

    def __iter__(self) -> "Iterator[Proc]":
        """Those that have not been reported yet, as they are now."""
        return iter([target.proc for target in self._engine])

    def wait(self, timeout: "float | None" = None) -> "list[tuple[Any, int | None]]":
        """Wait until at least one has exited; return a list of ``(proc, exitcode)``.

        They are not in the set any more. The list is empty if none has exited after
        ``timeout`` seconds, or there is none left to wait for. Of several threads
        that wait, each exit goes to one.
        """
        exits: "Exits" = []
        try:
            self._wait(FOREVER if timeout is None else Deadline(timeout), exits)
            return [(target.proc, code) for target, code in exits]
        except BaseException:  # a signal handler's must not lose any
            self._engine.put_back(exits)
            self._rearm()
            raise

    def _wait(self, deadline: Deadline, exits: "Exits") -> None:
        self._take_over()
        engine = self._engine
        self._waiting.append(None)  # before the look whether it is closed: see close()
        try:
            self._check_open()
            last = False
            while not (exits or last):
                last = self._sleep(engine, deadline)
                engine.collect(exits, last)
                if self._sleeping:  # another thread, which may have more to do now, or no more
                    self._rearm()
                if not engine:
                    return
        finally:
            self._waiting.pop()
            if self._is_closed:
                self._close_unused()
            elif self._is_shown or engine.is_alarmed:
                self._rearm()

    def _sleep(self, engine: Engine, deadline: Deadline) -> bool:
        """Until there may be something to collect; whether the deadline is over."""
        while True:
            seconds = deadline.remaining()
            patience = _LOCK_SLICE if seconds is None else min(seconds, _LOCK_SLICE)
            if self._turn.acquire(True, patience):
                break
            if seconds == 0:
                return True
        try:
            # A change from here on finds us asleep; what was changed before is seen below.
            self._sleeping.append(None)
            if engine.is_alarmed and seconds != 0:
                engine.alarm(None)
            if engine:
                engine.sleep(seconds)
        finally:
            self._sleeping.pop()
            self._turn.release()
        return seconds == 0

    def _rearm(self) -> None:
        """Wake the thread that sleeps, and whoever polls fileno(), if there is work for them."""
        engine = self._engine
        when = delay = engine.delay()
        if self._sleeping and not engine:
            when = 0
        elif self._sleeping and delay is not None and monotonic() + delay < engine.wakes_at:
            when = 0
        elif not self._is_shown:
            when = None
        if when is not None or engine.is_alarmed:
            engine.alarm(when)

    def fileno(self) -> int:
        """A file descriptor that is readable when wait() has something to report, or to look at.

        It is the same for the life of the set, and works with members that are polled, too,
        by a timer. io.UnsupportedOperation (an OSError) on Windows, and for such members where
        the system has no timer.
        """
        self._check_open()
        fd = self._engine.fileno()
        self._is_shown = True
        self._rearm()
        return fd

    def close(self) -> None:
        """Give the system's resources back, once the waits that are under way have ended.

        All but the waits is a ValueError from then on.
        """
        if self._engine.is_copy():
            self._start()
        self._is_closed = True
        self._close_unused()

    def _close_unused(self) -> None:
        if not self._waiting:
            self._engine.close()

    def __enter__(self) -> "WaitSet":
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        value: "BaseException | None",
        traceback: "TracebackType | None",
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._is_closed:
            return
        try:
            if self._warns and not self._engine.is_copy():
                warn_unclosed(self)
        finally:
            self.close()

    def __reduce__(self) -> "Any":
        raise TypeError("a set of handles on processes can't be pickled or copied")

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return "<%s of %d processes, %s>" % (type(self).__name__, len(self), state)
