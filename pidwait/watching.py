# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks at the exit of processes, on one thread for all of them."""

import os
import sys
from _thread import RLock

from ._deadline import FOREVER
from ._kinds import find
from ._waitset import WaitSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._engine import Exits
    from ._targets import Proc, Target


def watch(proc: "Proc", callback: "Callable[[Any, int | None], object]") -> "Watch":
    """Have ``callback(proc, exitcode)`` called once the process has exited.

    ``proc`` is what wait() takes, and the exit code what it would return. For one that
    has exited already, or is not there, it is called at once. The callbacks are called
    by one thread, one after the other; it is started with the first watch, is gone
    after the last, and does not keep the interpreter from ending. What a callback
    raises goes to threading.excepthook(), before Python 3.8 to sys.excepthook().

    A forked child has none of its parent's watches, and can have its own. Raises
    RuntimeError where the interpreter forbids such threads, as in an isolated
    subinterpreter.
    """
    if not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)
    watch = Watch(_watcher(), proc, callback)
    watch._watcher.add(watch)
    return watch


class Watch:
    """What watch() returns: ``proc``, and a way to cancel it."""

    __slots__ = ("_is_cancelled", "_watcher", "callback", "proc")

    def __init__(self, watcher: "_Watcher", proc: "Any", callback: "Callable[..., object]") -> None:
        self._watcher = watcher
        self._is_cancelled = False
        self.proc = proc
        self.callback = callback

    def cancel(self) -> None:
        """Do not call the callback any more; one that is running is not waited for."""
        self._is_cancelled = True
        self._watcher.remove(self)

    def _call(self, exitcode: "int | None") -> None:
        if self._is_cancelled:
            return
        try:
            self.callback(self.proc, exitcode)
        except SystemExit:
            pass  # it ends no more than a thread, elsewhere too
        except BaseException:
            _report()


class _Watches(WaitSet):
    """A set of watches: each is a member of its own, also of two on one process."""

    _warns = False

    def add_watch(self, target: "Target") -> None:
        self._add([target])

    def discard_watch(self, watch: Watch) -> None:
        self._discard(watch)

    def wait_for_watches(self) -> "Exits":
        exits: "Exits" = []
        self._wait(FOREVER, exits)
        return exits


class _Watcher:
    """The watches of one process, and their thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._lock = RLock()
        # By one key. A signal handler that comes while a set is made may make another one,
        # and the first that is in here counts.
        self._sets: "dict[None, _Watches]" = {}
        # The thread that takes it is the one that runs; another one ends at once.
        self._turn = [True]
        # A thread that has been started, and has not come to take the turn.
        self._coming: "list[object]" = []

    def add(self, watch: Watch) -> None:
        target = find(watch.proc, watch)
        try:
            with self._lock:
                self._set().add_watch(target)
                if self._turn and not self._coming:
                    self._start()
        except BaseException:
            self.remove(watch)
            if self._turn:
                self._is_needed()
            raise

    def _set(self) -> "_Watches":
        there = self._sets.get(None)
        if there is not None:
            return there
        made = _Watches()
        watches = self._sets.setdefault(None, made)
        if watches is not made:
            made.close()
        return watches

    def remove(self, watch: Watch) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            for watches in list(self._sets.values()):
                watches.discard_watch(watch)

    def _start(self) -> None:
        import threading

        thread = threading.Thread(target=self._run, name=__name__)
        try:
            self._coming.append(thread)
            thread.daemon = True
            thread.start()
        except BaseException as error:
            self._coming.clear()
            if isinstance(error, RuntimeError):
                raise RuntimeError("watch() needs a daemon thread: %s" % error) from error
            raise

    def _run(self) -> None:
        try:
            self._turn.pop()
        except IndexError:
            return
        finally:
            self._coming.clear()
        try:
            while self._is_needed():
                for watches in list(self._sets.values()):
                    for target, exitcode in watches.wait_for_watches():
                        target.key._call(exitcode)  # type: ignore[attr-defined]
        except BaseException:
            self._turn[:] = [True]
            raise

    def _is_needed(self) -> bool:
        """Whether the thread is to go on; if not, the turn is free before the next watch comes."""
        with self._lock:
            for watches in list(self._sets.values()):
                if watches:
                    return True
                del self._sets[None]
                watches.close()
            self._turn[:] = [True]
            return False


def _report() -> None:
    """As an exception that a thread did not catch."""
    import threading

    if hasattr(threading, "excepthook"):  # Python 3.8
        arguments = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))  # novm
        threading.excepthook(arguments)  # novm
    else:
        sys.excepthook(*sys.exc_info())


# That of this process, by its pid: a forked child makes another.
_watchers: "dict[int, _Watcher]" = {}


def _watcher() -> _Watcher:
    pid = os.getpid()
    for other in set(_watchers) - {pid}:
        _watchers.pop(other, None)
    # At once, as a signal handler may come here in the middle of it.
    return _watchers.setdefault(pid, _Watcher(pid))
