# SPDX-License-Identifier: BSD-3-Clause
"""WaitSet: many processes, and waiting for whichever exits next, from any number of threads."""

from os import getpid
from time import monotonic

from ._deadline import FOREVER, Deadline
from ._engine import Engine
from ._errors import public, warn_unclosed
from ._generic import Generic, P
from ._kinds import find
from ._targets import key_of
from ._turn import LOCKS_HEED_SIGNALS, Turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, overload

    from typing_extensions import Self  # novm

    from ._engine import Exits
    from ._targets import Proc, Target


def _is_sooner(delay: "float | None", moment: float) -> bool:
    return delay is not None and monotonic() + delay < moment


@public
class WaitSet(Generic[P]):
    """A set of processes; it reports each one once, after it has exited.

    It takes what wait() takes, in any mixture, up to tens of thousands; an object added
    twice is in it once. One epoll(7) (Linux 5.3) or one kqueue(2) waits for all of them, so
    the cost of one exit does not grow with their number. Pidfds are moved above the soft
    RLIMIT_NOFILE, if the hard limit allows it. On Windows each 63 after the first 61 need a
    thread. What can't be waited for by events is polled, which takes 5 % of a core at most.

    Several threads may use it at once, and change it while another one waits. close()
    releases its resources; a ``with`` block calls it.

    >>> import subprocess, sys
    >>> with WaitSet() as waiting:
    ...     waiting.add(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]))
    ...     for popen, exitcode in waiting.wait(timeout=60):
    ...         print(exitcode, len(waiting))
    3 0
    """

    # One thread at a time sleeps in the engine: it has the turn. The other threads that wait
    # are waiting for the turn. A change ends the sleep if there is something to do sooner.
    # The engine has a lock; the dicts here are changed by single operations, which are atomic.
    _is_closed = True
    _warns = True
    _tells_keys = False  # whether wait() returns the members' keys, as watch() needs

    if TYPE_CHECKING:

        @overload
        def __init__(self, procs: "Iterable[P]" = ...) -> None: ...
        @overload  # for mixed lists: see waiting.py
        def __init__(self: "WaitSet[Proc]", procs: "Iterable[Proc]" = ...) -> None: ...

    else:

        def __class_getitem__(cls, parameters):  # called from Python 3.7 on
            return cls

    def __init__(self, procs: "Iterable[Proc]" = ()) -> None:
        self._start()
        self._engine = Engine(True)
        self._is_shown = self._is_closed = False  # from here on, __del__ closes the set
        try:
            self._add([find(proc) for proc in procs])
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._pid = getpid()
        self._turn = Turn()
        # An entry for each call that is in sleep(), and for each in wait(). A thread has more
        # than one if its signal handler waits, too.
        self._sleeping: "dict[object, None]" = {}
        self._waiting: "dict[object, None]" = {}

    def _take_over(self) -> None:
        """Go on in a forked child: threads that only the parent has may hold the turn."""
        self._start()
        self._engine.take_over()

    def _check_open(self) -> None:
        if self._pid != getpid():
            self._take_over()
        if self._is_closed:
            raise ValueError("the set is closed")

    def add(self, proc: "P") -> None:
        """Wait for this process, too; nothing changes if it is in the set already.

        If it has exited, or no process has the pid, the next wait() reports it. A pid can be
        added again once its process has exited: it then stands for the next process, too.
        """
        self._add([find(proc)])

    def _add(self, targets: "list[Target]") -> None:
        self._check_open()
        try:
            self._engine.add(targets)
        finally:
            self._rearm()

    def discard(self, proc: "P") -> None:
        """Do not wait for this process any more; nothing changes if it is not in the set."""
        self._discard(key_of(proc))

    def _discard(self, key: object) -> None:
        self._check_open()
        try:
            self._engine.discard(key)
        finally:
            self._rearm()

    def __len__(self) -> int:
        """How many processes have not been reported yet."""
        engine = self._engine
        return len(engine.members) + len(engine.superseded)  # as len(engine), without a call

    def __contains__(self, proc: object) -> bool:
        return key_of(proc) in self._engine

    def __iter__(self) -> "Iterator[P]":
        """Iterate over a copy of those that have not been reported yet."""
        return iter([target.proc for target in self._engine])

    def wait(self, timeout: "float | None" = None) -> "list[tuple[P, int | None]]":
        """Wait until at least one has exited; return a list of ``(proc, exitcode)``.

        The set forgets what it returns. The list is empty if none has exited after
        ``timeout`` seconds, or if none is left to wait for. If several threads wait, each
        exit is returned to one of them.
        """
        # After the sleep the caches are cold, and each name and call costs.
        if self._pid != getpid():
            self._take_over()
        deadline = FOREVER if timeout is None else Deadline(timeout)
        engine, sleeping, me = self._engine, self._sleeping, object()
        sets, last = engine.sets, False
        exits: "Exits" = []
        try:
            try:
                self._waiting[me] = None  # before the check whether it is closed: see close()
                if self._is_closed:
                    raise ValueError("the set is closed")
                while not (exits or last):
                    if deadline is FOREVER and LOCKS_HEED_SIGNALS:
                        with self._turn.lock:
                            # A change from here on finds this entry; an earlier one is seen below.
                            sleeping[me] = None
                            if sets.is_alarmed:
                                engine.alarm(None)
                            if engine.members or engine.superseded:
                                sets.sleep(None)
                        sleeping.pop(me, None)
                    else:
                        seconds = deadline.remaining()
                        self._turn.sleep(engine, sleeping, me, seconds)
                        last = seconds == 0
                    engine.collect(exits, last, self._is_shown)
                    if sleeping:  # another thread, whose work collect() may have changed
                        self._rearm()
                    if not (engine.members or engine.superseded):
                        break
            finally:
                sleeping.pop(me, None)
                self._waiting.pop(me, None)
                if self._is_closed:
                    self._close_unused()
                elif self._is_shown or sets.is_alarmed:
                    self._rearm()
            found: "list[Any]" = []
            for target, code in exits:  # a comprehension would be a call
                found.append((target.key if self._tells_keys else target.proc, code))
            return found
        except BaseException:  # if a signal handler raises, no exit must be lost
            engine.put_back(exits)
            self._rearm()
            raise

    def _rearm(self) -> None:
        """Wake the thread that sleeps, and make fileno() readable, if there is work for them."""
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

        It stays the same as long as the set is open. For polled members it is readable when a
        timer says so. Raises io.UnsupportedOperation (an OSError) on Windows, and for polled
        members if the system has no timer.
        """
        self._check_open()
        fd = self._engine.fileno()
        self._is_shown = True
        self._rearm()
        return fd

    def close(self) -> None:
        """Release the resources, as soon as the waits in progress have ended.

        After it, all other calls raise ValueError.
        """
        if self._pid != getpid():
            self._start()
        self._is_closed = True
        self._close_unused()

    def _close_unused(self) -> None:
        if not self._waiting:
            self._engine.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
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
