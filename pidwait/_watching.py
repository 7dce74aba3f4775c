# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks when processes exit, on one thread for all of them."""

import os
import sys
from _thread import RLock

from ._base.errors import Failed, call, log, public
from ._sets import WaitSet
from ._waiting.owners import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._types import Any, Callable, Generic, P, P_co, Target
else:
    P_co, Generic = None, {None: object}  # for class Watch(Generic[P_co])


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
    return watch_target(find(proc), callback)


def watch_target(target: "Target", callback: "Callable[..., object]") -> "Watch[Any]":
    """The same for a target that has been made already."""
    watch: "Watch[Any]" = Watch(_watcher(), target.proc, callback)
    target.key = watch
    watch._watcher.add(watch, target)
    return watch


@public
class Watch(Generic[P_co]):
    """What watch() returns: it can cancel the callback.

    ``proc`` and ``callback`` are what watch() was given. The caller need not
    keep it: the callback is called without it, too.

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
        self._watcher.cancel(self)

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
    has_thread = False


class _Watcher:
    """The watches of one process, and the thread that waits for them while there are any."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = RLock()
        self._set: "_Watches | None" = None
        # glibc loads this for pthread_exit(3), by which a thread ends before Python 3.9, and a
        # daemon thread with the interpreter before 3.14. Later there may be no file descriptor
        # left for that, and glibc would abort the process.
        try:
            call(__import__("_ctypes").dlopen, "libgcc_s.so.1", os.RTLD_NOW)
        except (ImportError, AttributeError, Failed) as why:
            log("libgcc_s: %s", why)

    def add(self, watch: "Watch[Any]", target: "Target") -> None:
        while True:
            watches = self._set
            if watches is None:
                made = _Watches()  # without the lock, as it may write to the log
                with self._lock:
                    if self._set is None:
                        self._set = made
                    watches = self._set
                if watches is not made:  # another thread, or a signal handler, was quicker
                    made.close()
            try:
                watches._add(target)
                break
            except ValueError:
                if watches is self._set:
                    raise
                # Its thread has ended, and closed it: take the next one.
        try:
            with self._lock:
                if not watches.has_thread:
                    self._start(watches)
        except BaseException:
            watch.cancel()
            self._end_unused(watches)
            raise

    def cancel(self, watch: "Watch[Any]") -> None:
        watches = self._set
        if watches is not None and self.pid == os.getpid():
            try:
                watches._discard(watch)
            except ValueError:  # its thread has just ended
                return

    def _start(self, watches: _Watches) -> None:
        import threading

        thread = threading.Thread(target=self._run, args=(watches,), name=__name__)
        try:
            thread.daemon = True
            thread.start()
        except RuntimeError as error:
            raise RuntimeError("watch() needs a daemon thread: %s" % error) from error
        watches.has_thread = True

    def _run(self, watches: _Watches) -> None:
        try:
            while not self._end_unused(watches):
                for watch, exitcode in watches.wait():
                    watch._call(exitcode)  # type: ignore[union-attr]
        finally:
            watches.has_thread = False

    def _end_unused(self, watches: _Watches) -> bool:
        """Close the set if it is empty, before the next watch comes; return whether it was."""
        with self._lock:
            if watches and not watches._is_closed:
                return False
            if self._set is watches:
                self._set = None
            watches.close()
            return True


def _report() -> None:
    """Report the current exception as threading does if a thread does not catch one."""
    import threading

    if hasattr(threading, "excepthook"):  # Python 3.8
        arguments = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))  # novm
        threading.excepthook(arguments)  # novm
    else:
        sys.excepthook(*sys.exc_info())


# That of this process: a forked child makes another one.
_watchers: "list[_Watcher]" = []


def _watcher() -> _Watcher:
    if not _watchers or _watchers[0].pid != os.getpid():
        _watchers[:] = [_Watcher()]
    return _watchers[0]
