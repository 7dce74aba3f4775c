# SPDX-License-Identifier: BSD-3-Clause
"""The kinds of objects that stand for a process: whether they reap it, and how.

A kind is recognised by its attributes, not by its class: a program can contain two copies of
a library, and to name a class we would have to import its module.
"""

import os

from ._errors import log, pass_over, raise_of_handler
from ._fork import importer
from ._outcome import RUNNING
from ._sources import exitcodes
from ._targets import GuardedTarget, OwnerTarget, Target, check_pid, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._outcome import Outcome
    from ._targets import Proc


class LoopTarget(OwnerTarget):
    """A process of asyncio, trio or anyio: its event loop reaps it, in its own time."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        code: "int | None"
        try:
            code = self.proc.returncode
        except Exception as error:
            raise_of_handler(error)
            # In a thread that is not their loop's, trio's processes, and anyio's on trio, reap
            # and then raise. The Popen inside has the code.
            code = _popen_inside(self.proc).returncode
        return RUNNING if code is None else code

    def _settle(self, code: "int | None", last: bool) -> "Outcome":
        if code is not None:
            return code
        known = self._known()
        # A thread of asyncio's may have reaped it before we looked, and tell its loop soon.
        return self.not_told(None, last) if known is RUNNING else known


def _popen_inside(proc: "Any") -> "Any":
    while not hasattr(proc, "_waitpid_lock"):
        proc = proc._process if hasattr(proc, "_process") else proc._proc
    return proc


class PopenTarget(OwnerTarget):
    """subprocess.Popen and its like: poll() reaps, and sets returncode."""

    __slots__ = ("_is_inherited", "is_child")

    def __init__(self, proc: "Any", pid: "int | None", key: object) -> None:
        super().__init__(proc, pid, key)
        self._is_inherited = self.is_child = False

    def _known(self) -> "Outcome":
        code: "int | None" = self.proc.returncode
        return RUNNING if code is None else code

    def _confirm(self) -> "Outcome":
        known = self._known()
        if known is not RUNNING or hasattr(self.proc, "_handle"):  # Windows
            return known
        if self.pid is None:
            return RUNNING
        try:
            code = exitcodes.look_at_child(self.pid)
            self.is_child = True
            return code
        except ChildProcessError as error:
            raise_of_handler(error)
            # Either somebody else has reaped the Popen's child (another thread's waitpid(-1), or
            # SIGCHLD is ignored), or the Popen is our parent's, and its child is our sibling.
            if importer.is_me() or not exitcodes.is_our_sibling(self.pid):
                return None
        except OSError as error:  # a policy, or there is no waitid
            pass_over(error, "waitid, pid %d", self.pid)
            return RUNNING
        self._is_inherited = True
        return RUNNING

    def _settle(self, code: "int | None", last: bool) -> "Outcome":
        # In a forked child the Popen's lock may stay locked for ever.
        if self._is_inherited:
            return code
        lost = code is None and self._is_lost()
        # While another thread is in wait() or poll(), poll() returns None at once, even if the
        # process has exited.
        if self.proc.poll() is None:
            return self.not_reaped(code, last)
        if code is None:
            return None if lost else self._known()
        # Before Linux 5.17 a look shows the main thread's code, which is 0 if it ended first.
        return code or self._known()

    def _is_lost(self) -> bool:
        """Whether somebody else has reaped it, which a Popen reports as exit code 0."""
        # Popen reaps and sets returncode under this lock. If the child is gone, the lock is free,
        # and there is no returncode, then it was not the Popen that reaped. If another thread
        # holds the lock, it is about to set returncode. gevent's Popen has no such lock, and
        # never makes up a code.
        lock = getattr(self.proc, "_waitpid_lock", None)
        if lock is None or hasattr(self.proc, "_handle"):  # Windows: it can always tell
            return False
        if not lock.acquire(False):
            return False
        try:
            if self.proc.returncode is not None:
                return False
        finally:
            lock.release()
        return self.pid is None or not exitcodes.is_our_child(self.pid)


class MultiprocessingTarget(OwnerTarget):
    """multiprocessing.Process and its like: reading exitcode reaps, or asks the fork server."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        code: "int | None" = self.proc.exitcode
        if code is None or self._is_no_answer(code):
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

    def _settle(self, code: "int | None", last: bool) -> "Outcome":
        known: "int | None" = self.proc.exitcode
        self._join()
        if known is None:
            known = self.proc.exitcode
            if known is None:
                return self.not_reaped(code, last) if self._can_reap() else code
            self._join()  # the first join may have come too early
        return code if self._is_no_answer(known) else known

    def _can_reap(self) -> bool:
        """Whether exitcode may still be set: not for parent_process(), nor in a forked child."""
        parent = getattr(self.proc, "_parent_pid", os.getpid())
        return self._method() is not None and parent == os.getpid()

    def _method(self) -> "str | None":
        method: "str | None" = getattr(getattr(self.proc, "_popen", None), "method", None)
        return method

    def _is_no_answer(self, code: "int | None") -> bool:
        """Whether it is 255 of a fork server, which need not be the exit code.

        It is also set if the server has died, on Python 3.6 for each signal, and if two threads
        ask at the same time: the server tells each code only once.
        """
        return code == 255 and self._method() == "forkserver"


class PsutilTarget(GuardedTarget):
    """psutil.Process: it does not reap, but knows when its process started."""

    __slots__ = ()

    def _confirm(self) -> "Outcome":
        return RUNNING if self.proc.is_running() else None


class ProcessTarget(GuardedTarget):
    """Our Process, or that of another copy of this package: it has a handle."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        if not self.proc.has_exited():
            return RUNNING
        code: "int | None" = self.proc.exitcode
        return code

    def _settle(self, code: "int | None", last: bool) -> "Outcome":
        known = self._known()
        return code if known is None or known is RUNNING else known


class ChildTarget(OwnerTarget):
    """Our Child, or that of another copy of this package: wait() reaps."""

    __slots__ = ()

    def _known(self) -> "Outcome":
        if not self.proc.reaped:
            return RUNNING
        code: "int | None" = self.proc.exitcode
        return code

    def _settle(self, code: "int | None", last: bool) -> "Outcome":
        try:
            known: "int | None" = self.proc.wait(0)
        except TimeoutError as error:
            raise_of_handler(error)
            return self.not_reaped(code, last)
        return code if known is None else known


_CO_COROUTINE = 0x80  # as in inspect, which takes long to import
_KINDS = (
    (ChildTarget, ("reaped", "exitcode")),
    (ProcessTarget, ("backend", "has_exited", "exitcode")),
    (PopenTarget, ("returncode", "poll")),  # psutil's, too
    (LoopTarget, ("returncode",)),
    (PsutilTarget, ("is_running", "create_time")),
    (MultiprocessingTarget, ("exitcode", "join")),
    (Target, ()),
)


def find(proc: "Proc", key: object = None) -> Target:
    """The target for a caller's ``proc``; TypeError or ValueError if it is not a process.

    ``key`` is the engine's key for it, by default key_of().
    """
    key = key_of(proc) if key is None else key
    if hasattr(proc, "__index__"):
        return Target(proc, check_pid(proc, "proc"), key)
    if not hasattr(proc, "pid"):
        many = isinstance(proc, (list, tuple, set, frozenset, dict))
        raise TypeError(
            "proc must be a process ID or an object with a pid, not %s%s"
            % (type(proc).__name__, ": for several there is wait_procs()" if many else "")
        )
    kind = _kind_of(proc)
    if proc.pid is not None:
        return kind(proc, check_pid(proc.pid, "proc.pid"), key)
    if kind not in (ProcessTarget, ChildTarget):
        raise ValueError("proc has no pid: it has not been started")
    return kind(proc, None, key)  # a Process for a pidfd that we did not open


def _kind_of(proc: "Any") -> "type[Target]":
    try:
        kind = next(kind for kind, names in _KINDS if all(hasattr(proc, name) for name in names))
    except Exception as error:
        raise_of_handler(error)
        kind = next(kind for kind, names in _KINDS if all(_has(proc, name) for name in names))
    if kind is PopenTarget or kind is LoopTarget:
        if callable(getattr(type(proc), "returncode", None)):  # a method: invoke's
            return Target
        if _has_coroutine(proc, "wait"):  # trio's has a poll(), too
            return LoopTarget
    return kind


def _has(proc: "Any", name: str) -> bool:
    try:
        return hasattr(proc, name)
    except Exception as error:  # trio's returncode: see LoopTarget
        raise_of_handler(error)
        return True


def _has_coroutine(proc: "Any", name: str) -> bool:
    code = getattr(getattr(type(proc), name, None), "__code__", None)
    return getattr(code, "co_flags", 0) & _CO_COROUTINE != 0
