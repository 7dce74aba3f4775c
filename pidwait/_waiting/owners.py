# SPDX-License-Identifier: BSD-3-Clause
"""Targets: which process a caller's object stands for, whether the object reaps it, and how.

A kind of object is recognised by its attributes, not by its class: a program can contain two
copies of a library, and to name a class we would have to import its module.

A Target is made from the object; an Owner is a Target that reaps. The order of use:

                (a handle is opened by the pid)
    confirm()   the object may have the exit code already; if the process was reaped before the
                handle was opened, the pid may already belong to another process
    reap()      after the exit: has the owner reap, and never blocks. PENDING: call it again until
                patience() ends; then the code that was seen counts. RUNNING: others of a tree run

Both are called through guarded(), as the object's own code may do anything.
"""

import os
from errno import ECHILD

from .._base.arguments import check_pid
from .._base.deadline import GRACE, Deadline
from .._base.errors import PASSING, Failed, has, log, not_by_handler
from .._base.handle import PENDING, RUNNING
from .._base.steps import atomically_if
from .._systems import is_relative
from .._systems.posix import is_found, is_our_child, look_at_child

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Outcome, Proc

_CO_COROUTINE = 0x80  # as in inspect, which takes long to import
_importer = os.getpid()


def key_of(proc: "Any") -> object:
    """The key of a caller's ``proc``: its pid, or the identity of an object, hashable or not."""
    if type(proc) is int:
        return proc
    if hasattr(type(proc), "__index__") and not (isinstance(proc, bool) or has(proc, "pid")):
        return proc.__index__()
    return "id", id(proc)


class Target:
    """A pid, or an object with a pid that does not reap its process."""

    reaps = False
    # Slots, as a set has many of them.
    __slots__ = ("key", "on_exit", "pid", "proc")

    def __init__(self, proc: "Any", pid: "int | None", key: object = None) -> None:
        self.proc = proc
        self.pid: "Any" = pid
        self.key = key
        # What an event loop calls, with this target and its code.
        self.on_exit: "Callable[[Target, int | None], object] | None" = None

    def confirm(self) -> "Outcome":
        """RUNNING if the pid still belongs to the object's process; else its exit code or None."""
        return RUNNING

    def reap(self, code: "int | None") -> "Outcome":
        """Have the object reap the process, which has exited with a code as far as we have seen."""
        return code


def guarded(method: "Callable[..., Outcome]", *args: "Outcome") -> "Outcome":
    """``method(*args)`` of a target.

    If the object raises, the error is logged, and the wait goes on without its answer. An exception
    of a signal handler comes through.
    """
    try:
        return method(*args)
    except not_by_handler(Exception) as error:
        target: Target = method.__self__  # type: ignore[attr-defined]
        log("pid %s, %s: %r", target.pid, type(target.proc).__name__, error)
        if not args:
            return RUNNING
        # ImportError: no file descriptor is left, perhaps
        passes = isinstance(error, ImportError) or getattr(error, "errno", None) in PASSING
        return PENDING if passes and target.reaps else args[0]


def reap_by_owner(target: Target, seen: "Outcome") -> "Outcome":
    """Have the object reap the process; PENDING as long as neither it nor a look knows the code."""
    code = guarded(target.reap, None if seen is PENDING else seen)
    # None: somebody else reaps it, or the system, where SIGCHLD is ignored. While they do so, no
    # look shows the code: seen for 1 of 600 exits on Linux 6.18.
    return seen if code is None else code


class Owner(Target):
    """An object that reaps its process."""

    reaps = True


class LoopOwner(Owner):
    """A process of asyncio, trio or anyio: its event loop reaps it, in its own time."""

    def confirm(self) -> "Outcome":
        try:
            code = self.proc.returncode
            if code is None and has(self.proc, "proc"):  # tornado's: a Popen, which reaps as well
                code = getattr(self.proc.proc, "returncode", None)
            return _checked(code)
        except not_by_handler(Exception):
            # In another thread than their loop's, processes of trio, and of anyio on trio, reap
            # and then raise. The Popen inside has the code.
            return _checked(_popen_inside(self.proc).returncode)

    def reap(self, code: "int | None") -> "Outcome":
        if code is not None:
            return code
        known = self.confirm()
        # A thread of asyncio may have reaped it before we looked, and will notify its loop soon.
        return PENDING if known is RUNNING else known


def _popen_inside(proc: "Any") -> "Any":
    while not has(proc, "_waitpid_lock"):
        proc = proc._process if has(proc, "_process") else proc._proc
    return proc


def _checked(code: object) -> "Outcome":
    """An owner's code; RUNNING if it has none."""
    if code is None:
        return RUNNING
    if not isinstance(code, int):
        raise TypeError("exit code must be an int, not %s" % type(code).__name__)
    return code


class PopenOwner(Owner):
    """subprocess.Popen and its like: poll() reaps, and sets returncode."""

    _is_inherited = _was_lost = False
    reaps_by = "poll"

    def confirm(self) -> "Outcome":
        code = self.proc.returncode
        seen = _look(self.pid) if code is None and os.name != "nt" else _checked(code)
        if seen is not PENDING:
            return seen
        # Either somebody else has reaped the Popen's child (another thread's waitpid(-1), or
        # SIGCHLD is ignored), or the Popen and its child are our parent's or grandparent's.
        if os.getpid() == _importer or not is_relative(self.pid, _importer):
            return None
        self._is_inherited = True
        return RUNNING

    def reap(self, code: "int | None") -> "Outcome":
        # In a forked child the Popen's lock may stay locked for ever.
        if self._is_inherited:
            return code
        # Kept, as after one poll() the Popen has a code of its own, 0.
        self._was_lost = self._was_lost or (code is None and self._is_lost())
        # While another thread is in wait() or poll(), poll() returns None at once, even if the
        # process has exited.
        known = _checked(getattr(self.proc, self.reaps_by)())
        if known is RUNNING:
            return PENDING
        if code:
            return code
        # Before Linux 5.17 a look shows the main thread's code, which is 0 if it ended first.
        return None if self._was_lost else known

    def _is_lost(self) -> bool:
        """Whether somebody else has reaped it: the Popen then reports exit code 0."""
        # Popen reaps and sets returncode under this lock. If the child is gone, the lock is free,
        # and there is no returncode, then it was not the Popen that reaped. gevent's Popen has no
        # such lock, and never makes up a code. Windows always knows the code.
        lock = getattr(self.proc, "_waitpid_lock", None)
        if lock is None or os.name == "nt":
            return False
        # In one step: an exception of a handler in between would leave the lock held.
        known: "list[int | None]" = []
        read = known.extend, map(getattr, (self.proc,), ("returncode",))
        atomically_if((lock.acquire, False), read, (lock.release,))
        is_ours = is_our_child(self.pid) if known == [None] else True
        return not (is_found(self.pid) if is_ours is None else is_ours)


def _look(pid: int) -> "Outcome":
    """Look at our child without reaping; PENDING if it is not, or no longer, our child."""
    try:
        return look_at_child(pid)
    except Failed as why:
        if why.errno == ECHILD:
            return PENDING
        log("waitid, pid %d: %s", pid, why)  # a policy, or there is no waitid
        return RUNNING


class MultiprocessingOwner(Owner):
    """multiprocessing.Process and its like: reading exitcode reaps, or asks the fork server."""

    _until: "Deadline | None" = None  # for the code, if somebody else has reaped

    def _join(self) -> None:
        """Have multiprocessing forget the process, which exitcode has reaped."""
        if self._is_ours():
            self.proc.join(0)

    def _is_ours(self) -> bool:  # else join() raises
        return getattr(self.proc, "_parent_pid", os.getpid()) == os.getpid()

    def confirm(self) -> "Outcome":
        known = _checked(self.proc.exitcode)
        if self._is_no_answer(known):
            return None
        if known is RUNNING:
            seen = _look(self.pid) if self._has_own_child() else RUNNING
            return None if seen is PENDING else seen  # somebody else has reaped it
        self._join()
        return known

    def reap(self, code: "int | None") -> "Outcome":
        if self.proc.exitcode is None:  # else spare multiprocessing the imports of join(0)
            self._join()
        known = _checked(self.proc.exitcode)
        if known is RUNNING:
            # Another thread may have reaped the child, and be about to store the code.
            if self._has_own_child() and _look(self.pid) is PENDING:
                self._until = self._until or Deadline(GRACE)
                return code if self._until.expired() else PENDING
            return PENDING if self._can_reap() else code
        self._join()  # the first call may have come too early
        return code if self._is_no_answer(known) else known

    def _can_reap(self) -> bool:
        """Whether exitcode may still be set: not for parent_process(), nor in a forked child."""
        return self._method() is not None and self._is_ours()

    def _has_own_child(self) -> bool:
        """Whether waitid(2) finds the unreaped child: a fork server's child is not ours."""
        return os.name != "nt" and self._can_reap() and self._method() != "forkserver"

    def _method(self) -> "str | None":
        return getattr(getattr(self.proc, "_popen", None), "method", None)

    def _is_no_answer(self, code: "Outcome") -> bool:
        """Whether the code is 255 from a fork server, which need not be the exit code.

        255 is also set if the server has died, on Python 3.6 for each signal, and if two threads
        ask at the same time: the server reports each code only once.
        """
        return code == 255 and self._method() == "forkserver"


class TreeOwner(PopenOwner):
    """Our Popen of a tree. The tree ends with the command's exit, or later."""

    def reap(self, code: "int | None" = None) -> "Outcome":
        return _checked(self.proc._internal_poll())  # a subclass's poll() may raise TimeoutExpired

    confirm = reap


class PsutilTarget(Target):
    """psutil.Process: it does not reap, but knows when its process started."""

    def confirm(self) -> "Outcome":
        if self.proc.is_running():
            return RUNNING
        # psutil before 7.1 compares start times by a clock that can be set. Setting it moves all of
        # them by whole seconds; the ticks of another process would agree by chance only.
        try:
            moved = type(self.proc)(self.pid).create_time() - self.proc.create_time()
        except not_by_handler(Exception):
            return None
        return RUNNING if round(moved) and abs(moved - round(moved)) < 0.001 else None


class ProcessTarget(Target):
    """A Process of this package, or of another copy of it: it has a handle."""

    def confirm(self) -> "Outcome":
        if not self.proc.has_exited():
            return RUNNING
        return self.proc.exitcode  # type: ignore[no-any-return]

    def reap(self, code: "int | None") -> "Outcome":
        known = self.confirm()
        return code if known is None or known is RUNNING else known


class ChildOwner(Owner):
    """A Child of this package, or of another copy of it: wait() reaps. aio's Child contains one."""

    def confirm(self) -> "Outcome":
        child = getattr(self.proc, "_child", self.proc)
        # Not ``reaped`` alone: a copy in a forked child reaps nothing.
        is_over = child.reaped or (has(child, "has_exited") and child.has_exited())
        return child.exitcode if is_over else RUNNING

    def reap(self, code: "int | None") -> "Outcome":
        try:
            known: "int | None" = getattr(self.proc, "_child", self.proc).wait(0)
        except not_by_handler(TimeoutError):
            return PENDING
        return code if known is None else known


_KINDS = (
    (PopenOwner, ("returncode", "poll")),  # psutil's, too; and a mock, which has all names
    (ChildOwner, ("reaped", "exitcode")),
    (ProcessTarget, ("has_exited", "exitcode")),
    (LoopOwner, ("returncode",)),
    (PsutilTarget, ("is_running", "create_time")),
    (MultiprocessingOwner, ("exitcode", "join")),
    (ChildOwner, ("exitcode", "_child")),
)
# If this method is a coroutine function, the object is of another kind: trio's processes have a
# poll(), too; dask's have a join().
_COROUTINES: "dict[type[Target], tuple[str, type[Target]]]" = {
    PopenOwner: ("wait", LoopOwner),
    MultiprocessingOwner: ("join", Target),
}


def target_of(proc: "Proc", key: object = None) -> Target:
    """The target for a ``proc`` and a set's ``key``; TypeError or ValueError for a bad ``proc``."""
    if type(proc) is int or (hasattr(type(proc), "__index__") and not has(proc, "pid")):
        return Target(proc, check_pid(proc, "proc"), key)
    try:
        pid: "int | None" = proc.pid  # type: ignore[union-attr]
    except not_by_handler(AttributeError):
        several = isinstance(proc, (list, tuple, set, frozenset, dict))
        text = "proc must be a process ID or an object with a pid, not %s%s"
        more = ": use wait_procs() for several" if several else ""
        raise TypeError(text % (type(proc).__name__, more)) from None
    kind = _kind_of(proc)
    if pid is not None:
        pid = check_pid(pid, "proc.pid")
    elif kind not in (ProcessTarget, ChildOwner):  # a Process from a pidfd may have no pid
        raise ValueError("proc has no pid: it has not been started")
    return kind(proc, pid, key)


def _kind_of(proc: "Any") -> "type[Target]":
    kind: "type[Target]" = Target
    for one, names in _KINDS:
        try:
            for name in names:
                getattr(proc, name)
            kind = one
            break
        except not_by_handler(Exception) as error:
            if not isinstance(error, AttributeError):  # of trio's returncode: see LoopOwner
                kind = LoopOwner
                break
    if callable(getattr(type(proc), "returncode", None)):  # a method: invoke's
        return Target
    if kind is PopenOwner and hasattr(type(proc), "mechanism") and isinstance(proc.mechanism, str):
        return TreeOwner
    name, instead = _COROUTINES.get(kind, ("", kind))
    code = getattr(getattr(type(proc), name, None), "__code__", None)
    return instead if getattr(code, "co_flags", 0) & _CO_COROUTINE else kind
