# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks when processes exit, on one thread for all of them."""

import os
import sys
from _thread import RLock

from ._base.errors import Failed, call, log
from ._sets import WaitSet
from ._waiting.owners import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._types import Any, Callable, Generic, P, P_co, Target
if not TYPE_CHECKING:
    P_co, Generic = None, {None: object}  # for class Watch(Generic[P_co])


def watch(proc: "P", callback: "Callable[[P, int | None], object]") -> "Watch[P]":
    """Call ``callback(proc, exitcode)`` when the process has exited; return a Watch.

    ``proc`` and ``exitcode`` are as for wait(). If the process has exited already, the
    callback is called at once. One daemon thread calls all callbacks, one after the other.
    The thread starts with the first watch, and ends after the last one. An exception in a
    callback goes to threading.excepthook() (before Python 3.8, sys.excepthook()). A forked
    child does not inherit watches, but can start its own.

    Raises RuntimeError if the interpreter forbids daemon threads, as an isolated
    subinterpreter does, and ValueError or TypeError for invalid arguments.

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
    watch: "Watch[Any]" = Watch(target.proc, callback)
    target.key = watch
    try:
        while not _watches().serve(target):
            pass  # its thread has just ended: take the next one
    except BaseException:
        watch.cancel()
        raise
    return watch


class Watch(Generic[P_co]):
    """The result of watch(). cancel() cancels the callback.

    ``proc`` and ``callback`` are the arguments of watch(). You need not keep
    the Watch: the callback is called anyway.

    >>> import os
    >>> watching = watch(os.getpid(), print)
    >>> watching.proc == os.getpid()
    True
    >>> watching.cancel()
    """

    __slots__ = ("_is_cancelled", "callback", "proc")
    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters):  # called from Python 3.7 on
            return cls

    def __init__(self, proc: "P_co", callback: "Callable[[P_co, int | None], object]") -> None:
        self._is_cancelled = False
        self.proc: "P_co" = proc
        self.callback: "Callable[..., object]" = callback

    def cancel(self) -> None:
        """Cancel the callback. If it is already running, do not wait for it."""
        self._is_cancelled = True
        watches = _by_pid.get(os.getpid())
        try:
            if watches is not None:
                watches._discard(self)
        except ValueError:  # its thread has just ended
            return

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
    """The watches of one process, and the thread that waits for them while there are any.

    Each watch is a member, even if two are for the same process.
    """

    _warns = False
    _tells_keys = True
    _thread: "Any" = None

    def __init__(self) -> None:
        super().__init__()
        # Held while a thread is started, and while one decides to end.
        self._lock = RLock()
        # glibc loads this for pthread_exit(3), by which a thread ends before Python 3.9, and a
        # daemon thread with the interpreter before 3.14. Later there may be no file descriptor
        # left for that, and glibc would abort the process.
        try:
            call(__import__("_ctypes").dlopen, "libgcc_s.so.1", os.RTLD_NOW)
        except (ImportError, AttributeError, Failed) as why:
            log("libgcc_s: %s", why)

    def serve(self, target: "Target") -> bool:
        """Call back for it; return False if the thread has ended, which closes the set."""
        entry = object()
        self._calls[entry] = []  # before the check whether it is closed: see close()
        try:
            if self._is_closed:
                return False
            self._engine.add(target)
            self._rearm()
            with self._lock:
                if not self._is_closed:
                    self._start_thread()
                    return True
            is_served = target not in self._engine.targets  # but reported already
            self._engine.discard(target)
            return is_served
        finally:
            self._calls.pop(entry, None)
            if self._is_closed:
                self._close_unused()

    def _start_thread(self) -> None:
        import threading

        if self._thread is not None and self._thread.is_alive():
            return
        try:
            self._thread = threading.Thread(target=self._run, name=__name__, daemon=True)
            self._thread.start()
        except RuntimeError as error:
            raise RuntimeError("watch() needs a daemon thread: %s" % error) from error

    def _run(self) -> None:
        while not self._is_closed:
            for watch, exitcode in self.wait():
                watch._call(exitcode)  # type: ignore[union-attr]
            with self._lock:
                if not self:
                    self._is_closed = True  # for serve(); close() may write to the log
                    _by_pid.pop(self._engine.pid, None)
        self.close()


# The watches of this process; a forked child also finds its parent's, and drops them.
_by_pid: "dict[int, _Watches]" = {}


def _watches() -> _Watches:
    pid = os.getpid()
    watches = _by_pid.get(pid)
    if watches is None:
        watches = _by_pid.setdefault(pid, _Watches())  # of two threads' sets, one is dropped
        for parent in set(_by_pid) - {pid}:
            _by_pid.pop(parent, None)
    return watches


def _report() -> None:
    """Report the current exception as threading does if a thread does not catch one."""
    import threading

    if hasattr(threading, "excepthook"):  # Python 3.8
        arguments = threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))  # novm
        threading.excepthook(arguments)  # novm
    else:
        sys.excepthook(*sys.exc_info())
