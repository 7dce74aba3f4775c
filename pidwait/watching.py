# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks at the exit of processes, on one thread for all of them."""

import os
import sys
from _thread import RLock

from ._waitset import WaitSet, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._owners import Proc


def watch(proc: "Proc", callback: "Callable[[Any, int | None], object]") -> "Watch":
    """Have ``callback(proc, exitcode)`` called once the process has exited.

    ``proc`` is what wait() takes, and the exit code what it would return. One that
    has exited already, or is not there, is told of at once. The callbacks are called
    by one thread, one after the other; it is started with the first watch, is gone
    after the last, and does not keep the interpreter from ending. What a callback
    raises goes to threading.excepthook(), before Python 3.8 to sys.excepthook().

    A forked child has none of its parent's watches, and can have its own. Raises
    RuntimeError where the interpreter forbids such threads, as in an isolated
    subinterpreter.
    """
    if not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)
    if not _watchers or not _watchers[0].is_ours():
        _watchers[:] = [_Watcher()]
    watch = Watch(_watchers[0], proc, callback)
    _watchers[0].add(watch)
    return watch


class Watch:
    """What watch() returns: ``proc``, and a way to cancel it."""

    __slots__ = ("_watcher", "callback", "proc")

    def __init__(self, watcher: "_Watcher", proc: "Any", callback: "Callable[..., object]") -> None:
        self._watcher = watcher
        self.proc = proc
        self.callback = callback

    def cancel(self) -> None:
        """Do not call the callback any more; one that is running is not waited for."""
        if self._watcher.is_ours():
            self._watcher.remove(self)


class _Watcher:
    """The watches of one process, and their thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = RLock()
        # What a WaitSet knows a process by: all watches of it.
        self._watches: "dict[object, list[Watch]]" = {}
        # None where there is no thread.
        self._waiting: "WaitSet | None" = None

    def is_ours(self) -> bool:
        return self._pid == os.getpid()

    def add(self, watch: Watch) -> None:
        with self._lock:
            started = self._waiting is None
            waiting = WaitSet() if self._waiting is None else self._waiting
            watches = self._watches.setdefault(key_of(watch.proc), [])
            watches.append(watch)
            try:
                waiting.add(watch.proc)
                if started:
                    self._start(waiting)
            except BaseException:
                self.remove(watch)
                if started:
                    waiting.close()
                raise
            self._waiting = waiting

    def remove(self, watch: Watch) -> None:
        with self._lock:
            key = key_of(watch.proc)
            watches = self._watches.get(key, [])
            if watch in watches:
                watches.remove(watch)
            known = not watches and self._watches.pop(key, None) is not None
            if known and self._waiting is not None:
                self._waiting.discard(watch.proc)

    def _start(self, waiting: WaitSet) -> None:
        import threading

        thread = threading.Thread(target=self._run, args=(waiting,), name=__name__)
        try:
            thread.daemon = True
            thread.start()
        except RuntimeError as error:
            raise RuntimeError("watch() needs a daemon thread: %s" % error) from error

    def _run(self, waiting: WaitSet) -> None:
        with waiting:
            while True:
                for proc, exitcode in waiting.wait():
                    self._tell(proc, exitcode)
                with self._lock:
                    if not self._watches:
                        self._waiting = None
                        return

    def _tell(self, proc: "Any", exitcode: "int | None") -> None:
        key = key_of(proc)
        while True:
            with self._lock:
                watches = self._watches.get(key)
                watch = watches.pop(0) if watches else None
                if not watches:
                    self._watches.pop(key, None)
            if watch is None:
                return
            try:
                watch.callback(watch.proc, exitcode)
            except SystemExit:
                pass  # which ends no more than a thread, elsewhere too
            except BaseException:
                _report()


def _report() -> None:
    """As an exception that a thread did not catch."""
    import threading

    if hasattr(threading, "excepthook"):  # Python 3.8
        arguments = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))  # novm
        threading.excepthook(arguments)  # novm
    else:
        sys.excepthook(*sys.exc_info())


# The one of this process.
_watchers: "list[_Watcher]" = []
