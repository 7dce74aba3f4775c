# SPDX-License-Identifier: BSD-3-Clause
"""The kinds of objects that stand for a process: whether they reap it, and how.

A kind of object is recognised by its attributes, not by its class: a program can contain two
copies of a library, and to name a class we would have to import its module.
"""

import os
from errno import ECHILD

from .._base.errors import Failed, log, raise_of_handler
from .._base.handle import RUNNING
from .._systems.posix import is_our_child, is_sibling, look_at_child
from .targets import OwnerTarget, PidTarget, Target, check_pid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Outcome, Proc

_CO_COROUTINE = 0x80  # as in inspect, which takes long to import
_importer = os.getpid()


class LoopTarget(OwnerTarget):
    """A process of asyncio, trio or anyio: its event loop reaps it, in its own time."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        try:
            return _checked(self.proc.returncode)
        except Exception as error:
            raise_of_handler(error)
            # In a thread that is not their loop's, trio's processes, and anyio's on trio, reap
            # and then raise. The Popen inside has the code.
            return _checked(_popen_inside(self.proc).returncode)

    def _settle(self, code: "Any") -> "Outcome":
        if code is not None:
            return code  # type: ignore[no-any-return]
        known = self._known()
        # A thread of asyncio's may have reaped it before we looked, and tell its loop soon.
        return self.not_told(None) if known is RUNNING else known


def _popen_inside(proc: "Any") -> "Any":
    while not hasattr(proc, "_waitpid_lock"):
        proc = proc._process if hasattr(proc, "_process") else proc._proc
    return proc


def _checked(code: "Any") -> "Outcome":
    """An owner's code; RUNNING if it has none."""
    if code is None:
        return RUNNING
    if not isinstance(code, int):
        raise TypeError("its exit code is a %s" % type(code).__name__)
    return code


class PopenTarget(OwnerTarget):
    """subprocess.Popen and its like: poll() reaps, and sets returncode."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        code = self.proc.returncode
        return RUNNING if code is None else _checked(code)

    def _confirm(self) -> "Outcome":
        known = self._known()
        if known is not RUNNING or os.name == "nt" or self.pid is None:
            return known
        try:
            return look_at_child(self.pid)
        except Failed as why:
            if why.errno != ECHILD:  # a policy, or there is no waitid
                log("waitid, pid %d: %s", self.pid, why)
                return RUNNING
        # Either somebody else has reaped the Popen's child (another thread's waitpid(-1), or
        # SIGCHLD is ignored), or the Popen is our parent's, and its child is our sibling.
        if os.getpid() == _importer or not is_sibling(self.pid):
            return None
        self._is_inherited = True
        return RUNNING

    def _settle(self, code: "Any") -> "Outcome":
        # In a forked child the Popen's lock may stay locked for ever.
        if self._is_inherited:
            return code  # type: ignore[no-any-return]
        lost = code is None and self._is_lost()
        # While another thread is in wait() or poll(), poll() returns None at once, even if the
        # process has exited.
        if self.proc.poll() is None:
            return self.not_reaped(code)
        if code:
            return code  # type: ignore[no-any-return]
        # Before Linux 5.17 a look shows the main thread's code, which is 0 if it ended first.
        return None if lost else self._known()

    def _is_lost(self) -> bool:
        """Whether somebody else has reaped it, which a Popen reports as exit code 0."""
        # Popen reaps and sets returncode under this lock. If the child is gone, the lock is free,
        # and there is no returncode, then it was not the Popen that reaped. If another thread
        # holds the lock, it is about to set returncode. gevent's Popen has no such lock, and
        # never makes up a code.
        lock = getattr(self.proc, "_waitpid_lock", None)
        if lock is None or os.name == "nt":  # Windows can always tell
            return False
        if not lock.acquire(False):
            return False
        try:
            if self.proc.returncode is not None:
                return False
        finally:
            lock.release()
        return self.pid is None or not is_our_child(self.pid)


class MultiprocessingTarget(OwnerTarget):
    """multiprocessing.Process and its like: reading exitcode reaps, or asks the fork server."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        code = _checked(self.proc.exitcode)
        if code is RUNNING or self._is_no_answer(code):
            return RUNNING
        self._join()
        return code

    def _join(self) -> None:
        """Have multiprocessing forget the process, which exitcode has reaped."""
        try:
            self.proc.join(0)
        except AssertionError:  # we are a fork of its parent: there is nothing to do
            log("pid %s is not our child", self.pid)

    def _confirm(self) -> "Outcome":
        known = self._known()
        if known is RUNNING and self._is_no_answer(self.proc.exitcode):
            return None
        return known

    def _settle(self, code: "Any") -> "Outcome":
        known = _checked(self.proc.exitcode)
        self._join()
        if known is RUNNING:
            known = _checked(self.proc.exitcode)
            if known is RUNNING:
                return self.not_reaped(code) if self._can_reap() else code
            self._join()  # the first join may have come too early
        return code if self._is_no_answer(known) else known

    def _can_reap(self) -> bool:
        """Whether exitcode may still be set: not for parent_process(), nor in a forked child."""
        parent = getattr(self.proc, "_parent_pid", os.getpid())
        return self._method() is not None and parent == os.getpid()

    def _method(self) -> "str | None":
        method: "str | None" = getattr(getattr(self.proc, "_popen", None), "method", None)
        return method

    def _is_no_answer(self, code: "Outcome") -> bool:
        """Whether it is 255 of a fork server, which need not be the exit code.

        It is also set if the server has died, on Python 3.6 for each signal, and if two threads
        ask at the same time: the server tells each code only once.
        """
        return code == 255 and self._method() == "forkserver"


class PsutilTarget(Target):
    """psutil.Process: it does not reap, but knows when its process started."""

    __slots__ = ()

    def _confirm(self) -> "Outcome":
        if self.proc.is_running():
            return RUNNING
        # psutil before 7.1 compares start times by a clock that can be set. That moves all of them
        # by whole seconds; the ticks of another process would agree by chance only.
        try:
            moved = type(self.proc)(self.pid).create_time() - self.proc.create_time()
        except Exception as error:
            raise_of_handler(error)
            return None
        return RUNNING if round(moved) and abs(moved - round(moved)) < 0.001 else None


class ProcessTarget(Target):
    """Our Process, or that of another copy of this package: it has a handle."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        if not self.proc.has_exited():
            return RUNNING
        return self.proc.exitcode  # type: ignore[no-any-return]

    def _settle(self, code: "Any") -> "Outcome":
        known = self._known()
        return code if known is None or known is RUNNING else known


class ChildTarget(OwnerTarget):
    """Our Child, or that of another copy of this package: wait() reaps."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        return self.proc.exitcode if self.proc.reaped else RUNNING

    def _settle(self, code: "Any") -> "Outcome":
        try:
            known: "int | None" = self.proc.wait(0)
        except TimeoutError as error:
            raise_of_handler(error)
            return self.not_reaped(code)
        return code if known is None else known


_KINDS = (
    (PopenTarget, ("returncode", "poll")),  # psutil's, too; and a mock, which has all names
    (ChildTarget, ("reaped", "exitcode")),
    (ProcessTarget, ("has_exited", "exitcode")),
    (LoopTarget, ("returncode",)),
    (PsutilTarget, ("is_running", "create_time")),
    (MultiprocessingTarget, ("exitcode", "join")),
    (Target, ()),
)


def find(proc: "Proc", key: object = None) -> Target:
    """The target for a caller's ``proc``; TypeError or ValueError if it is not a process.

    ``key`` is that of a set for it.
    """
    if type(proc) is int:
        return PidTarget(proc, check_pid(proc, "proc"), key)
    if not hasattr(proc, "pid"):
        if hasattr(proc, "__index__"):
            return PidTarget(proc, check_pid(proc, "proc"), key)
        many = isinstance(proc, (list, tuple, set, frozenset, dict))
        raise TypeError(
            "proc must be a process ID or an object with a pid, not %s%s"
            % (type(proc).__name__, ": for several there is wait_procs()" if many else "")
        )
    kind = _kind_of(proc)
    pid = proc.pid
    if pid is not None:
        return kind(proc, check_pid(pid, "proc.pid"), key)
    if kind not in (ProcessTarget, ChildTarget):
        raise ValueError("proc has no pid: it has not been started")
    return kind(proc, None, key)  # a Process for a pidfd that we did not open


def _kind_of(proc: "Any") -> "type[Target]":
    try:
        kind = next(kind for kind, names in _KINDS if all(map(hasattr, (proc, proc), names)))
    except Exception as error:  # of trio's returncode: see LoopTarget
        raise_of_handler(error)
        kind = LoopTarget
    if kind is PopenTarget or kind is LoopTarget:
        if callable(getattr(type(proc), "returncode", None)):  # a method: invoke's
            return Target
        if _has_coroutine(proc, "wait"):  # trio's has a poll(), too
            return LoopTarget
    if kind is MultiprocessingTarget and _has_coroutine(proc, "join"):  # dask's
        return Target
    return kind


def _has_coroutine(proc: "Any", name: str) -> bool:
    code = getattr(getattr(type(proc), name, None), "__code__", None)
    return getattr(code, "co_flags", 0) & _CO_COROUTINE != 0
