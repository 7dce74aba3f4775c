# SPDX-License-Identifier: BSD-3-Clause
"""Callbacks when processes exit, on one thread for all of them."""

import _thread
import os
import sys
from weakref import ref

from ._base.arguments import check_callback, check_pid
from ._base.errors import log, not_by_handler
from ._systems import system
from ._waiting.core import Core
from ._waiting.members import Waiter
from ._waiting.owners import target_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._types import Any, Callable, Generic, Outcome, P, P_co, Target
    from ._waiting.members import Member
if not TYPE_CHECKING:
    P_co, Generic = "P", {"P": object}  # for class Watch(Generic[P_co])


def watch(proc: "P", callback: "Callable[[P, int | None], object]") -> "Watch[P]":
    """Call ``callback(proc, exitcode)`` when the process has exited; return a Watch.

    ``proc`` and ``exitcode`` are as for wait(). If the process has exited already, the
    callback is called at once. One daemon thread calls all callbacks, one after the other.
    The thread starts with the first watch, and ends after the last one. An exception in a
    callback goes to threading.excepthook() (before Python 3.8, sys.excepthook()). A forked
    child does not inherit watches, but can start its own.

    Raises RuntimeError in a subinterpreter (before Python 3.12, in an isolated one): at its end,
    a daemon thread would abort the program. Raises ValueError or TypeError for invalid arguments.

    >>> import queue, subprocess, sys
    >>> exits = queue.Queue()
    >>> popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    >>> watching = watch(popen, lambda proc, exitcode: exits.put(exitcode))
    >>> exits.get(timeout=60)
    3
    """
    check_callback(callback)
    watch: "Watch[P]" = Watch(proc, callback)
    target = target_of(proc, watch)
    while not _watches().serve(target):
        pass  # its thread has just ended: start another one
    return watch


class Watch(Generic[P_co]):
    """Returned by watch(); do not create it yourself. cancel() cancels the callback.

    ``proc`` and ``callback`` are the arguments of watch(). The callback is called even if you do
    not keep the Watch.

    >>> import os
    >>> watching = watch(os.getpid(), print)
    >>> watching.proc == os.getpid()
    True
    >>> watching.cancel()
    True
    """

    __slots__ = ("_begun", "_watches", "callback", "proc")
    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters):  # called from Python 3.7 on
            return cls

    def __init__(self, proc: "P_co", callback: "Callable[[P_co, int | None], object]") -> None:
        self.proc: "P_co" = proc
        self.callback: "Callable[..., object]" = callback
        self._watches: "ref[_Watches] | None" = None
        self._begun = False

    def cancel(self) -> bool:
        """Cancel the callback; return True if it will not run, False if it has run or runs now."""
        watches = None if self._watches is None else self._watches()
        is_here = watches is not None and watches.pid == os.getpid()
        return is_here and watches.discard(self) or not self._begun  # type: ignore[union-attr]


def _report() -> None:
    """Report the exception as threading does for a thread that does not catch one."""
    threading: "Any" = sys.modules["threading"]  # serve() has loaded it
    error = sys.exc_info()
    try:
        if hasattr(threading, "excepthook"):  # Python 3.8
            arguments = (*error, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(arguments))  # novm
        elif error[0] is not SystemExit:
            sys.excepthook(*error)
    except BaseException as raised:
        log("watch: the hook for exceptions raised %r", raised)


def load_libgcc() -> None:
    """Load libgcc_s now: where that fails later (no file descriptor, a chroot), glibc aborts.

    glibc loads it for pthread_exit(3), which ends each thread before Python 3.9, and daemon threads
    at shutdown before 3.14.
    """
    try:
        __import__("_ctypes").dlopen("libgcc_s.so.1", os.RTLD_NOW)
    # The OSError of dlopen has no errno, which call() needs.
    except not_by_handler(ImportError, AttributeError, OSError) as why:
        log("libgcc_s: %s", why)


class _Watches(Core):
    """The watches of one process, and the thread that waits for them while there are any.

    Each watch is the key of its member, even if two are for the same process.
    """

    def __init__(self) -> None:
        super().__init__(True)
        self._waiter = Waiter()
        self._idle = {"token": True}  # the token is there while no thread runs
        load_libgcc()

    def serve(self, target: "Target") -> bool:
        """Watch a target; return False if the thread has ended before it could see the target."""
        import threading

        if not getattr(_thread, "_is_main_interpreter", lambda: True)():  # Python 3.12
            raise RuntimeError("a daemon thread would abort the program at this interpreter's end")
        watch: "Any" = target.key
        watch._watches = ref(self)
        try:
            self.add(target)
            if _by_pid.get(self.pid) is not self and self.discard(watch):
                return False
            # A thread that ends puts its token back before it looks for members: either it sees
            # this member, or we see the token. Of two threads that start, one gets the token.
            if self._idle:
                threading.Thread(target=self._run, name=__name__, daemon=True).start()
        except BaseException:
            self.discard(watch)
            raise
        self.wake()
        return True

    def _reap(self, member: "Member", status: "Outcome", waiter: "Any") -> "Outcome":
        try:
            return super()._reap(member, status, waiter)
        except BaseException as error:  # the owner's: no signal handler runs in this thread
            target = member.target
            log("pid %s, %s: %r", target.pid, type(target.proc).__name__, error)
            return status

    def _run(self) -> None:
        while self.tokens and self._idle.pop("token", False):  # else another thread has it
            try:
                self._call_back()
            except BaseException:
                _report()
                self._idle["token"] = True
                break  # the next watch starts a new thread
            if self.pid != os.getpid():  # a callback has forked
                return
            if _by_pid.get(self.pid) is self:
                del _by_pid[self.pid]
            self._idle["token"] = True
        self = None  # type: ignore[assignment]  # see _call_back()

    def _call_back(self) -> None:
        """Call back for each exit, until there are no watches."""
        me = ref(self._waiter)
        self.waiters[me] = None  # or nothing would end its sleep
        while self.tokens:
            self.sleep(None)
            self.collect(me)
            for member, code in self.exited.copy().items():
                watch: "Any" = member.target.key
                watch._begun = True  # before end(): cancel() may come in between
                if not self.end(member):
                    watch._begun = False  # it has been cancelled
                    continue
                try:
                    watch.callback(watch.proc, code)
                except BaseException:
                    _report()
                if self.pid != os.getpid():
                    return
        # The traceback of a callback's exception may keep this frame.
        self = member = watch = me = None  # type: ignore[assignment]


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
                copy.poller.close()
    return watches


def watch_parent(
    callback: "Callable[[], object]", parent: "int | None" = None, ancestors: bool = False
) -> Watch:
    """Call ``callback()`` after the process that started this one has exited; return a Watch.

    The thread of watch() calls it, once. A forked child does not inherit the watch.

    ``parent`` is the pid of that process, if it has passed its pid on: in the environment, say.
    If that process is not our parent (with ``ancestors``: not above us), it has exited, and the
    callback is called at once. Without ``parent``, an exit before this call can't be seen on
    POSIX systems.

    With ``ancestors``, each process above this one counts, up to ``parent``, or else up to pid 1.
    A launcher often lives on when the program that called it has exited: uv, npx, a shell, and on
    Windows the python.exe of a virtual environment. The ancestors are looked up once, by this call.

    Pid 1 never counts as exited, nor does a parent that is hidden in another PID namespace: the
    logger reports such a parent. Raises RuntimeError as watch() does, and ValueError or TypeError
    for invalid arguments.

    >>> watching = watch_parent(print)
    >>> watching.cancel()
    True
    """
    check_callback(callback)
    parent = None if parent is None else check_pid(parent, "parent")
    result: "Any" = _ParentWatch(os.getppid(), callback)  # type: ignore[arg-type]
    result.parts = []
    chain, below, above = [], os.getpid(), result.proc
    while above and above > 1:
        chain.append(_Ancestor(above, below))
        if not ancestors or above == parent:
            break
        below, above = above, system.parent_of(above)
    if parent not in (None, above) and (above or ancestors):
        chain = [_Ancestor(parent, os.getpid())]
    elif not above:
        log("the parent of pid %d can't be seen", below)
    for one in chain:
        result.parts.append(watch(one, result.call_once))
    if result._begun:
        result.cancel()  # the parts that were added after the callback
    return result  # type: ignore[no-any-return]


class _Ancestor:
    """A process for watch(): it has exited once it is no longer the parent of the child."""

    exitcode = None

    def __init__(self, pid: int, child: int) -> None:
        self.pid, self._child = pid, child

    def has_exited(self) -> bool:
        return system.parent_of(self._child) not in (None, self.pid)


class _ParentWatch(Watch):
    """One callback for several processes, at the first exit."""

    __slots__ = ("parts",)
    parts: "list[Watch[Any]]"

    def call_once(self, *exit: object) -> None:
        if not self._begun:
            self._begun = True
            self.cancel()
            self.callback()

    def cancel(self) -> bool:
        return False not in [one.cancel() for one in list(self.parts)]
