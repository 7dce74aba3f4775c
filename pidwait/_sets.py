# SPDX-License-Identifier: BSD-3-Clause
"""Waits for many processes: until all have exited, for each exit in turn, or for the next exit."""

from os import getpid

from ._base.arguments import check_callback
from ._base.deadline import PATIENCE, Deadline
from ._base.errors import TimeoutExpired, refuse_copy, warn_unclosed
from ._waiting.core import Core
from ._waiting.members import Waiter
from ._waiting.owners import key_of, target_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import overload

    from ._types import Callable, Generic, Iterable, Iterator, NoReturn, P, Proc, Self, Target
    from ._waiting.members import Member
if not TYPE_CHECKING:
    P, Generic = "P", {"P": object}  # for class WaitSet(Generic[P])


if TYPE_CHECKING:
    # mypy infers [popen, 3] as list[object], and rejects it for an Iterable[P], but not for an
    # Iterable[Proc]. So there is a second signature.

    @overload
    def wait_procs(
        procs: "Iterable[P]",
        timeout: "float | None" = ...,
        callback: "Callable[[P, int | None], object] | None" = ...,
    ) -> "tuple[list[tuple[P, int | None]], list[P]]": ...
    @overload
    def wait_procs(  # type: ignore[overload-cannot-match]
        procs: "Iterable[Proc]",
        timeout: "float | None" = ...,
        callback: "Callable[[Proc, int | None], object] | None" = ...,
    ) -> "tuple[list[tuple[Proc, int | None]], list[Proc]]": ...


def wait_procs(
    procs: "Iterable[P]",
    timeout: "float | None" = None,
    callback: "Callable[[P, int | None], object] | None" = None,
) -> "tuple[list[tuple[P, int | None]], list[P]]":
    """Wait until all of these processes have exited; return ``(exited, alive)``.

    ``procs`` is an iterable of pids, or of objects as for wait(). ``exited`` is a list of
    ``(proc, exitcode)``, in the order of the exits, with the exit codes of wait(). ``alive``
    lists those that are still running after ``timeout`` seconds, in the order given. A
    process given twice is reported twice. A pid without a process counts as exited.

    Calls ``callback(proc, exitcode)`` at each exit. If the callback raises, so does
    wait_procs(). Raises ValueError or TypeError if an item can't be a process.

    >>> import subprocess, sys
    >>> command = [sys.executable, "-c", "raise SystemExit(3)"]
    >>> exited, alive = wait_procs([subprocess.Popen(command) for _ in range(2)], timeout=60)
    >>> [exitcode for popen, exitcode in exited], alive
    ([3, 3], [])
    """
    if callback is not None:
        check_callback(callback)
    deadline = Deadline(timeout)
    given = list(procs)
    exited: "list[tuple[P, int | None]]" = []
    for one in _exits(_core_with(given), given_again(given), deadline, False):
        exited.append(one)
        if callback is not None:
            callback(*one)
    # Not by the core's members: after a fork in the callback, another core reports them.
    done = {key_of(proc) for proc, _ in exited}
    return exited, [proc for proc in given if key_of(proc) not in done]


if TYPE_CHECKING:

    @overload
    def as_completed(
        procs: "Iterable[P]", timeout: "float | None" = ...
    ) -> "Iterator[tuple[P, int | None]]": ...
    @overload
    def as_completed(  # type: ignore[overload-cannot-match]
        procs: "Iterable[Proc]", timeout: "float | None" = ...
    ) -> "Iterator[tuple[Proc, int | None]]": ...


def as_completed(
    procs: "Iterable[P]", timeout: "float | None" = None
) -> "Iterator[tuple[P, int | None]]":
    """Iterate over ``(proc, exitcode)`` of these processes as they exit.

    ``procs`` is an iterable of pids, or of objects as for wait(). The wait for all of them, and
    ``timeout`` (in seconds), start with the call. If some are still running at the time-out, the
    iterator raises TimeoutExpired. Raises ValueError or TypeError if an item can't be a process.

    >>> import subprocess, sys
    >>> popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    >>> for proc, exitcode in as_completed([popen], timeout=60):
    ...     print(proc is popen, exitcode)
    True 3
    """
    deadline = Deadline(timeout)
    given = list(procs)
    return _exits(_core_with(given), given_again(given), deadline, True)


def _core_with(procs: "Iterable[Proc]", shared: bool = False) -> Core:
    targets = [target_of(proc, key_of(proc)) for proc in procs]
    core = Core(shared)
    for target in targets:
        core.add(target)
    return core


def _exits(
    core: Core, again: "dict[object, list[P]]", deadline: Deadline, raises: bool
) -> "Iterator[tuple[P, int | None]]":
    """Iterate over the exits until the deadline.

    ``raises``: whether to raise TimeoutExpired if some are still running then.
    """
    try:
        while core.tokens:
            if core.pid != getpid():
                core = core.forked()
            waiter = Waiter(deadline)
            core.wait(waiter)
            if not waiter.members:
                if not core.pending():
                    break
                waiter.deadline = Deadline(PATIENCE)  # a code is still to come
                core.wait(waiter)
            for member in waiter.members:
                for proc in again.get(member.target.key, (member.target.proc,)):
                    yield proc, waiter.codes[member]
        left = [member.target for member in core.tokens.copy()]
        if raises and left:
            raise _expired(left, deadline.timeout)
    finally:
        core.close()


def _expired(targets: "list[Target]", timeout: "float | None") -> TimeoutExpired:
    """The error; for several processes, it has their number and the first few commands."""
    error, few = TimeoutExpired(targets[0].pid, timeout), []
    for target in targets[:3]:
        command = getattr(target.proc, "args", None)  # of a Popen or a Child
        few.append("%s%s" % (target.pid, "" if command is None else " %r" % (command,)))
    shown = len(targets), ", ".join(few), ", ..." * (len(targets) > len(few)), timeout
    if len(targets) > 1:
        error.args = ("%d processes (%s%s) were still running after %s seconds" % shown,)
    return error


def given_again(procs: "list[P]") -> "dict[object, list[P]]":
    """{key: the procs given for it}, for keys that were given more than once."""
    given: "dict[object, list[P]]" = {}
    for proc in procs:
        given.setdefault(key_of(proc), []).append(proc)
    return {key: procs for key, procs in given.items() if len(procs) > 1}


class WaitSet(Generic[P]):
    """A set of processes; it reports each one once, after it has exited.

    Its members are pids, or objects as for wait(), in any mixture, up to tens of thousands.
    len(), ``in`` and iteration cover the members that have not been reported. For a type checker,
    the members of WaitSet() are Any; annotate the set to name their type: "WaitSet[Popen[bytes]]".

    One epoll(7) (Linux 5.3), one kqueue(2) or one completion port waits for all members, so
    the cost of an exit does not grow with their number. Pidfds are moved above the soft
    RLIMIT_NOFILE, if the hard limit allows it. A member without a pidfd, HANDLE or kqueue
    event is polled; all sets of a process together poll with at most 5 % of a core.

    Several threads may use the set at once, and change it while another thread waits. close()
    releases its resources; a ``with`` block calls close().

    >>> import subprocess, sys
    >>> with WaitSet() as waiting:
    ...     waiting.add(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]))
    ...     for popen, exitcode in waiting.wait(timeout=60):
    ...         print(exitcode, len(waiting))
    3 0
    """

    _core = None  # type: Core | None

    if TYPE_CHECKING:

        @overload
        def __init__(self, procs: "Iterable[P]" = ...) -> None: ...
        @overload  # for mixed lists: see wait_procs()
        def __init__(self: "WaitSet[Proc]", procs: "Iterable[Proc]" = ...) -> None: ...

    else:

        def __class_getitem__(cls, parameters):  # called from Python 3.7 on
            return cls

    def __init__(self, procs: "Iterable[Proc]" = ()) -> None:
        self._core = _core_with(procs, True)  # from here on, __del__ warns

    def _opened(self) -> Core:
        """The core, in a forked child a new one; ValueError if the set is closed."""
        core = self._core
        if core is None:
            raise ValueError("the set is closed")
        if core.pid != getpid():
            core = self._core = core.forked()
        return core

    def add(self, proc: "P") -> None:
        """Add a process. Nothing changes if it is in the set already.

        If it has exited, or no process has the pid, the next wait() reports it. If the process
        of a pid in the set has exited, you can add the pid again, for the next process.
        """
        target = target_of(proc, key_of(proc))
        core = self._opened()
        try:
            core.add(target)
        finally:
            core.wake()  # also after an exception: the target may have been added
        self._opened()  # another thread may have closed the set meanwhile

    def discard(self, proc: "P") -> None:
        """Remove a process. Nothing changes if it is not in the set."""
        self._opened().discard(key_of(proc))

    def __len__(self) -> int:
        """The number of processes that have not been reported yet."""
        core = self._core
        return 0 if core is None else len(core.tokens)

    def __contains__(self, proc: object) -> bool:
        return self._core is not None and bool(self._core.members_of(key_of(proc)))

    def __iter__(self) -> "Iterator[P]":
        """Iterate over a copy of the members."""
        return iter([member.target.proc for member in self._members()])

    def _members(self) -> "list[Member]":
        core = self._core
        return [] if core is None else list(core.tokens)

    def wait(self, timeout: "float | None" = None) -> "list[tuple[P, int | None]]":
        """Wait until at least one process has exited; return a list of ``(proc, exitcode)``.

        The processes in the list leave the set. The list is empty if no process has exited
        after ``timeout`` seconds, or if the set is or becomes empty. If several threads wait,
        each exit goes to one of them.
        """
        core, waiter = self._opened(), Waiter(Deadline(timeout))
        try:
            core.wait(waiter)
            return [(member.target.proc, waiter.codes[member]) for member in waiter.members]
        except BaseException:  # a signal handler's, perhaps
            try:
                core.requeue(waiter)
            finally:
                core.requeue(waiter)  # again, if another exception came
                core = waiter = None  # type: ignore[assignment]  # or the traceback would keep them
            raise

    def fileno(self) -> int:
        """Return a file descriptor. When it becomes readable, call wait(0).

        That call may return an empty list. The file descriptor stays the same until close().
        Raises io.UnsupportedOperation (an OSError) on Windows, and where no file descriptor was
        left for the set's epoll or kqueue.
        """
        return self._opened().fileno()

    def close(self) -> None:
        """Close the set. Its resources are released when the waits in progress have ended."""
        core, self._core = self._core, None
        if core is not None:
            core.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        core = self._core
        if core is not None and core.pid == getpid():
            warn_unclosed(self)

    def __reduce__(self) -> "NoReturn":
        refuse_copy(self)

    def __repr__(self) -> str:
        state = "closed" if self._core is None else "open"
        noun = "process" if len(self) == 1 else "processes"
        return "<%s of %d %s, %s>" % (type(self).__name__, len(self), noun, state)
