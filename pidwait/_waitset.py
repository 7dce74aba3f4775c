# SPDX-License-Identifier: BSD-3-Clause
"""WaitSet: many processes, and waiting for whichever exits next, from any number of threads."""

from os import getpid
from time import monotonic

from ._deadline import FOREVER, Deadline
from ._engine import Engine
from ._errors import warn_unclosed
from ._kinds import find
from ._targets import key_of
from ._turn import LOCKS_HEED_SIGNALS, Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Any

    from ._engine import Exits
    from ._targets import Proc, Target


def _is_sooner(delay: "float | None", moment: float) -> bool:
    return delay is not None and monotonic() + delay < moment


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
    # for the turn. A change ends the sleep if there is something to do sooner.
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
        self._pid = getpid()
        self._turn = Turn()
        # An entry for each call that is inside sleep(), and wait(): more than one of a thread
        # whose signal handler waits, too.
        self._sleeping: "dict[object, None]" = {}
        self._waiting: "dict[object, None]" = {}

    def _take_over(self) -> None:
        """In a forked child: threads that are only in the parent may have had the turn."""
        self._start()
        self._engine.take_over()

    def _check_open(self) -> None:
        if self._pid != getpid():
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
            found = []
            for target, code in exits:  # a comprehension would be a call
                found.append((target.proc, code))
            return found
        except BaseException:  # a signal handler's must not lose any
            self._engine.put_back(exits)
            self._rearm()
            raise

    def _wait(self, deadline: Deadline, exits: "Exits") -> None:
        # After the sleep the caches are cold, and each name and call costs.
        if self._pid != getpid():
            self._take_over()
        engine, sleeping, me = self._engine, self._sleeping, object()
        sets, last = engine.sets, False
        try:
            self._waiting[me] = None  # before the look whether it is closed: see close()
            if self._is_closed:
                raise ValueError("the set is closed")
            while not (exits or last):
                if deadline is FOREVER and LOCKS_HEED_SIGNALS:
                    with self._turn.lock:
                        # A change from here on finds us asleep; one before is seen below.
                        sleeping[me] = None
                        if sets.is_alarmed:
                            engine.alarm(None)
                        if engine.members or engine.superseded:
                            sets.sleep(None)
                    sleeping.pop(me, None)
                else:
                    last = self._sleep_until(deadline, me)
                engine.collect(exits, last, self._is_shown)
                if sleeping:  # another thread, which may have more to do now, or no more
                    self._rearm()
                if not (engine.members or engine.superseded):
                    return
        finally:
            sleeping.pop(me, None)
            self._waiting.pop(me, None)
            if self._is_closed:
                self._close_unused()
            elif self._is_shown or sets.is_alarmed:
                self._rearm()

    def _sleep_until(self, deadline: Deadline, me: object) -> bool:
        """Sleep once, when it is our turn; whether the deadline is over."""
        engine, seconds = self._engine, deadline.remaining()
        held: "list[Any]" = []
        try:
            try:
                self._turn.take(held, seconds)
                if held:
                    self._sleeping[me] = None
                    if engine.sets.is_alarmed and seconds != 0:
                        engine.alarm(None)
                    if engine:
                        engine.sets.sleep(seconds)
            finally:
                self._turn.give(held)
        finally:  # Ctrl-C may come anywhere, before the other one, too
            self._turn.give(held)
        self._sleeping.pop(me, None)
        return seconds == 0

    def _rearm(self) -> None:
        """Wake the thread that sleeps, and whoever polls fileno(), if there is work for them."""
        engine = self._engine
        when = delay = engine.delay()
        if self._sleeping and (not engine or _is_sooner(delay, engine.sets.wakes_at)):
            when = 0
        elif not self._is_shown:
            when = None
        if when is not None or engine.sets.is_alarmed:
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
        if self._pid != getpid():
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
            if self._warns and self._pid == getpid():
                warn_unclosed(self)
        finally:
            self.close()

    def __reduce__(self) -> "Any":
        raise TypeError("a set of handles on processes can't be pickled or copied")

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return "<%s of %d processes, %s>" % (type(self).__name__, len(self), state)
