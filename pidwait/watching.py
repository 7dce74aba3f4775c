# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks when processes exit, on one thread for all of them."""

import os
import sys
from _thread import RLock

from ._errors import public
from ._generic import Generic, P_co
from ._kinds import find
from ._waitset import WaitSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._generic import P
    from ._targets import Target


def watch(proc: "P", callback: "Callable[[P, int | None], object]") -> "Watch[P]":
    """Call ``callback(proc, exitcode)`` when the process has exited; return a Watch.

    ``proc`` is what wait() takes, ``exitcode`` what wait() would return. If the process has
    exited already, the callback is called at once. One thread calls all callbacks, one after
    the other. It starts with the first watch and ends after the last; it is a daemon thread.
    An exception in a callback goes to threading.excepthook(), before Python 3.8 to
    sys.excepthook(). A forked child inherits no watches, and can have its own.

    Raises RuntimeError where the interpreter forbids daemon threads, as in an isolated
    subinterpreter, and ValueError or TypeError for invalid arguments.

    >>> import queue, subprocess, sys
    >>> exits = queue.Queue()
    >>> popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    >>> watching = watch(popen, lambda proc, exitcode: exits.put(exitcode))
    >>> exits.get(timeout=60)
    3
    """
    if not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)
    watch = Watch(_watcher(), proc, callback)
    watch._watcher.add(watch)
    return watch


@public
class Watch(Generic[P_co]):
    """What watch() returns: it can cancel the callback.

    ``proc`` and ``callback`` are what watch() was given. It may be forgotten: the
    callback is called all the same.

    >>> import os
    >>> watching = watch(os.getpid(), print)
    >>> watching.proc == os.getpid()
    True
    >>> watching.cancel()
    """

    __slots__ = ("_is_cancelled", "_watcher", "callback", "proc")
    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters):  # called from Python 3.7 on
            return cls

    def __init__(
        self, watcher: "Any", proc: "P_co", callback: "Callable[[P_co, int | None], object]"
    ) -> None:
        self._watcher: "_Watcher" = watcher
        self._is_cancelled = False
        self.proc: "P_co" = proc
        self.callback: "Callable[..., object]" = callback

    def cancel(self) -> None:
        """Do not call the callback any more. If it is running now, this does not wait for it."""
        self._is_cancelled = True
        self._watcher.remove(self)

    def _call(self, exitcode: "int | None") -> None:
        if self._is_cancelled:
            return
        try:
            self.callback(self.proc, exitcode)
        except SystemExit:
            pass  # as in any thread: threading ignores it
        except BaseException:
            _report()


class _Watches(WaitSet):
    """A set of watches: each is a member, even if two are for the same process."""

    _warns = False
    _tells_keys = True

    def add_watch(self, target: "Target") -> None:
        self._add([target])

    def discard_watch(self, watch: "Watch[Any]") -> None:
        self._discard(watch)


class _Watcher:
    """The watches of one process, and their thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._lock = RLock()
        # One entry at most. While a set is being made, a signal handler may make another one:
        # the one that is entered first counts.
        self._sets: "dict[None, _Watches]" = {}
        # The thread that takes this entry runs; any other thread ends at once.
        self._turn = [True]
        # The thread that has been started, but has not taken the turn yet.
        self._coming: "list[object]" = []

    def add(self, watch: "Watch[Any]") -> None:
        target = find(watch.proc, watch)
        try:
            with self._lock:
                self._set().add_watch(target)
                if self._turn and not self._coming:
                    self._start()
        except BaseException:
            self.remove(watch)
            with self._lock:  # so that no other thread's watch starts the thread meanwhile
                if self._turn and not self._coming:
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

    def remove(self, watch: "Watch[Any]") -> None:
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
                    for watch, exitcode in watches.wait():
                        watch._call(exitcode)  # type: ignore[union-attr]
        except BaseException:
            self._turn[:] = [True]
            raise

    def _is_needed(self) -> bool:
        """Whether the thread has to go on; if not, free the turn before the next watch comes."""
        with self._lock:
            for watches in list(self._sets.values()):
                if watches:
                    return True
                del self._sets[None]
                watches.close()
            self._turn[:] = [True]
            return False


def _report() -> None:
    """Report the current exception as threading does if a thread does not catch one."""
    import threading

    if hasattr(threading, "excepthook"):  # Python 3.8
        arguments = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))  # novm
        threading.excepthook(arguments)  # novm
    else:
        sys.excepthook(*sys.exc_info())


# The watcher of this process, by its pid: a forked child makes another one.
_watchers: "dict[int, _Watcher]" = {}


def _watcher() -> _Watcher:
    pid = os.getpid()
    for other in set(_watchers) - {pid}:
        _watchers.pop(other, None)
    # In one call, as a signal handler may come here in the middle of it.
    return _watchers.setdefault(pid, _Watcher(pid))
