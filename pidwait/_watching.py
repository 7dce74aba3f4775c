# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks when processes exit, on one thread for all of them."""

import os
import sys
from _thread import RLock

from ._base.errors import log, raise_of_handler
from ._waiting.engine import Engine
from ._waiting.owners import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._types import Any, Callable, Generic, Outcome, P, P_co, Target
if not TYPE_CHECKING:
    P_co, Generic = "P", {"P": object}  # for class Watch(Generic[P_co])


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
    watch: "Watch[P]" = Watch(proc, callback)
    target = find(proc, watch)
    while not _watches().serve(target):
        pass  # its thread has just ended: take the next one
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

    __slots__ = ("callback", "proc")
    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters):  # called from Python 3.7 on
            return cls

    def __init__(self, proc: "P_co", callback: "Callable[[P_co, int | None], object]") -> None:
        self.proc: "P_co" = proc
        self.callback: "Callable[..., object]" = callback

    def cancel(self) -> None:
        """Cancel the callback. If it is already running, do not wait for it."""
        watches = _by_pid.get(os.getpid())
        if watches is not None:
            for target in watches.find(self):
                watches.drop(target)

    def _call(self, exitcode: "int | None") -> None:
        try:
            self.callback(self.proc, exitcode)
        except SystemExit:
            pass  # as in any thread: threading ignores it
        except BaseException:  # reported as threading does if a thread does not catch one
            import threading

            error = sys.exc_info()
            if hasattr(threading, "excepthook"):  # Python 3.8
                arguments = (*error, threading.current_thread())
                threading.excepthook(threading.ExceptHookArgs(arguments))  # novm
            else:
                sys.excepthook(*error)


class _Watches(Engine):
    """The watches of one process, and the thread that waits for them while there are any.

    Each watch is the key of its target, even if two are for the same process.
    """

    _thread: "Any" = None
    _is_closed = False

    def __init__(self) -> None:
        super().__init__(True)
        # Held while a thread is started, and while one decides to end.
        self._gate = RLock()
        # glibc loads this for pthread_exit(3), by which a thread ends before Python 3.9, and a
        # daemon thread with the interpreter before 3.14. Later there may be no file descriptor
        # left for that, and glibc would abort the process.
        try:
            __import__("_ctypes").dlopen("libgcc_s.so.1", os.RTLD_NOW)
        except (ImportError, AttributeError, OSError) as why:  # dlopen's has no errno for call()
            raise_of_handler(why)
            log("libgcc_s: %s", why)

    def serve(self, target: "Target") -> bool:
        """Call back for it; return False if the thread has ended, which closes this."""
        import threading

        try:
            with self._gate:
                if self._is_closed:
                    return False
                self.targets[target] = None  # from here on the thread does not end
            self.add(target)
            with self._gate:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._run, name=__name__, daemon=True)
                    self._thread.start()
        except BaseException:
            self.drop(target)
            raise
        self.rearm()
        return True

    def drop(self, target: "Target") -> None:
        self.discard(target)
        self.rearm()

    def rearm(self) -> None:
        try:
            super().rearm()
        except ValueError as why:  # the thread has just ended, and closed it
            log("watch: %s", why)

    def _settle(self, target: "Target", code: "Outcome") -> "Outcome":
        try:
            return super()._settle(target, code)
        except BaseException as error:  # the owner's: no signal handler runs in this thread
            log("pid %s, %s: %r", target.pid, type(target.proc).__name__, error)
            return code

    def _run(self) -> None:
        while self.pid == os.getpid():  # a callback may fork
            self.sleep(None)
            self.collect()
            self.rearm()  # or what has ended this sleep would end the next one
            for target, exitcode in list(self.codes.items()):
                if target in self.targets:  # else it has been cancelled
                    target.key._call(exitcode)  # type: ignore[attr-defined]
                    self.discard(target)
            with self._gate:
                if not self.targets:
                    self._is_closed = True
                    _by_pid.pop(self.pid, None)
                    break
        self.close()


# The watches of this process; a forked child also finds its parent's, and drops them.
_by_pid: "dict[int, _Watches]" = {}


def _watches() -> _Watches:
    pid = os.getpid()
    watches = _by_pid.get(pid)
    if watches is None:
        watches = _by_pid.setdefault(pid, _Watches())  # of two threads' sets, one is dropped
        for parent in set(_by_pid) - {pid}:
            copy = _by_pid.pop(parent, None)
            if copy is not None:
                copy.close()
    return watches
