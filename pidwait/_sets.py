# SPDX-License-Identifier: BSD-3-Clause
"""Many processes: until all of them have exited, as each one exits, or whichever exits next."""

from _thread import get_ident
from os import getpid

from ._base.deadline import Deadline
from ._base.errors import TimeoutExpired, warn_unclosed
from ._waiting.engine import Engine
from ._waiting.owners import find, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import overload

    from ._types import Any, Callable, Exits, Generic, Iterable, Iterator, P, Proc, Self, Target
if not TYPE_CHECKING:
    P, Generic = "P", {"P": object}  # for class WaitSet(Generic[P])


if TYPE_CHECKING:
    # mypy takes [popen, 3] for a list[object], and refuses it for an Iterable[P]; for an
    # Iterable[Proc] it does not. So there is a second signature.

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
    lists the processes that still run after ``timeout`` seconds, in the order given. A
    process given twice is reported twice. A pid that no process has counts as exited.

    Calls ``callback(proc, exitcode)`` at each exit. If the callback raises, so does
    wait_procs(). Raises ValueError or TypeError if an item can't be a process. It does not
    raise TimeoutExpired.

    >>> import subprocess, sys
    >>> command = [sys.executable, "-c", "raise SystemExit(3)"]
    >>> exited, alive = wait_procs([subprocess.Popen(command) for _ in range(2)], timeout=60)
    >>> [exitcode for popen, exitcode in exited], alive
    ([3, 3], [])
    """
    if callback is not None and not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)
    deadline = Deadline(timeout)
    given = list(procs)
    exited: "list[tuple[Any, int | None]]" = []
    engine = _engine_with(given)
    try:
        for one in _exits(engine, given_again(given), deadline, False):
            exited.append(one)
            if callback is not None:
                callback(*one)
        alive = [proc for proc in given if key_of(proc) in engine]
    finally:
        engine.close()  # where the callback has raised, too
    return exited, alive


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

    ``procs`` is an iterable of pids, or of objects as for wait(). The call starts to watch
    all of them. ``timeout`` is in seconds from the call, as in
    concurrent.futures.as_completed(): if some still run then, the iterator raises
    TimeoutExpired. Raises ValueError or TypeError if an item can't be a process.

    >>> import subprocess, sys
    >>> popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    >>> for proc, exitcode in as_completed([popen], timeout=60):
    ...     print(proc is popen, exitcode)
    True 3
    """
    deadline = Deadline(timeout)
    given = list(procs)
    return _exits(_engine_with(given), given_again(given), deadline, True)


def _engine_with(procs: "list[Any]") -> Engine:
    targets = [find(proc, key_of(proc)) for proc in procs]
    engine = Engine(False)
    try:
        for target in targets:
            engine.add(target)
    except BaseException:
        engine.close()
        raise
    return engine


def _exits(
    engine: Engine, again: "dict[object, list[Any]]", deadline: Deadline, raises: bool
) -> "Iterator[tuple[Any, int | None]]":
    """Iterate over the exits until the deadline, and close the engine.

    ``raises``: whether to raise TimeoutExpired if some are still running then.
    """
    seconds: "float | None" = None
    try:
        while engine.targets:
            if engine.pid != getpid():
                engine.after_fork()
            exits: "Exits" = []
            seconds = deadline.remaining()
            engine.sleep(seconds)
            engine.collect(seconds == 0)
            engine.take(exits)
            for target, code in exits:
                for proc in again.get(target.key, (target.proc,)):
                    yield proc, code
            if seconds == 0 and not exits:
                break
        left = list(engine.targets)
        if raises and left:
            raise TimeoutExpired(left[0].pid, deadline.timeout, _description(left))
    finally:
        engine.close()


def _description(targets: "list[Target]") -> "str | None":
    """How many there are, and the first few with their commands; None for one."""
    if len(targets) == 1:
        return None
    few = []
    for target in targets[:3]:
        command = getattr(target.proc, "args", None)  # of a Popen or a Child
        few.append("%s%s" % (target.pid, "" if command is None else " %r" % (command,)))
    more = ", ..." if len(targets) > len(few) else ""
    return "%d processes (%s%s) were" % (len(targets), ", ".join(few), more)


def given_again(procs: "list[Any]") -> "dict[object, list[Any]]":
    """{key: all procs that were given for it}, for keys with more than one."""
    given: "dict[object, list[Any]]" = {}
    for proc in procs:
        given.setdefault(key_of(proc), []).append(proc)
    return {key: procs for key, procs in given.items() if len(procs) > 1}


class WaitSet(Generic[P]):
    """A set of processes; it reports each one once, after it has exited.

    Its members are pids, or objects as for wait(), in any mixture, up to tens of thousands.
    One epoll(7) (Linux 5.3), one kqueue(2) or one completion port waits for all members, so
    the cost of an exit does not grow with their number. Pidfds are moved above the soft
    RLIMIT_NOFILE, if the hard limit allows it. A member without a pidfd, HANDLE or kqueue
    event is polled; all polling takes at most 5 % of a core.

    Several threads may use it at once, and change it while another one waits. close()
    releases its resources; a ``with`` block calls it.

    >>> import subprocess, sys
    >>> with WaitSet() as waiting:
    ...     waiting.add(subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]))
    ...     for popen, exitcode in waiting.wait(timeout=60):
    ...         print(exitcode, len(waiting))
    3 0
    """

    _is_closed = True

    if TYPE_CHECKING:

        @overload
        def __init__(self, procs: "Iterable[P]" = ...) -> None: ...
        @overload  # for mixed lists: see wait_procs()
        def __init__(self: "WaitSet[Proc]", procs: "Iterable[Proc]" = ...) -> None: ...

    else:

        def __class_getitem__(cls, parameters):  # called from Python 3.7 on
            return cls

    def __init__(self, procs: "Iterable[Proc]" = ()) -> None:
        targets = [find(proc, key_of(proc)) for proc in procs]
        # By thread: the exits that its wait() is about to return. If a thread is in here already
        # when it calls wait(), two exceptions in a row have interrupted it.
        self._calls: "dict[int, Exits]" = {}
        self._engine = Engine(True)
        self._is_closed = False  # from here on, __del__ closes the set
        try:
            for target in targets:
                self._engine.add(target)
        except BaseException:
            self.close()
            raise

    def _entered(self) -> Engine:
        """The engine, in a forked child made anew; ValueError if the set is closed."""
        engine = self._engine
        if engine.pid != getpid():  # some calls are of threads that only the parent has
            self._calls = {}
            if not self._is_closed:
                engine.after_fork()
        if self._is_closed:
            raise ValueError("the set is closed")
        return engine

    def add(self, proc: "P") -> None:
        """Add a process. Nothing changes if it is in the set already.

        If it has exited, or no process has the pid, the next wait() reports it. If the process
        of a pid in the set has exited, you can add the pid again, for the next process.
        """
        target = find(proc, key_of(proc))
        engine = self._entered()
        try:
            engine.add(target)
        except BaseException:
            engine.is_suspect = True  # first, in case that another exception comes
            engine.discard(target)
            raise
        if self._is_closed and target in engine.targets:  # by another thread, meanwhile
            raise ValueError("the set is closed")
        engine.rearm()

    def discard(self, proc: "P") -> None:
        """Remove a process. Nothing changes if it is not in the set."""
        engine = self._entered()
        for target in engine.find(key_of(proc)):
            engine.discard(target)
        engine.rearm()

    def __len__(self) -> int:
        """The number of processes that have not been reported yet."""
        return len(self._engine.targets) + sum(map(len, list(self._calls.values())))

    def __contains__(self, proc: object) -> bool:
        return key_of(proc) in self._engine

    def __iter__(self) -> "Iterator[P]":
        """Iterate over a copy of the members."""
        return iter([target.proc for target in list(self._engine.targets)])

    def wait(self, timeout: "float | None" = None) -> "list[tuple[P, int | None]]":
        """Wait until at least one process has exited; return a list of ``(proc, exitcode)``.

        The processes in the list leave the set. The list is empty if no process has exited
        after ``timeout`` seconds, or if the set is or becomes empty. If several threads wait,
        only one of them gets each exit.
        """
        deadline = Deadline(timeout)
        engine, me = self._entered(), get_ident()
        taken: "Exits" = []
        # A signal handler's call, while another call of this thread sleeps; or see __init__().
        is_nested = me in self._calls
        if is_nested:
            engine.put_back(self._calls[me])
        try:
            self._calls[me] = taken
            if self._is_closed:  # by another thread, before it could see this call
                raise ValueError("the set is closed")
            while True:
                seconds = deadline.remaining()
                engine.sleep(seconds)
                # At the end look at all members, unless fileno() wakes the caller for a late code,
                # or that would take more than 5 % of a core.
                last = seconds == 0 and not (engine.is_shown or engine.looks.is_resting())
                # What an exception has left goes first: an owner may raise SystemExit each time.
                if not (engine.is_suspect and engine.codes):
                    engine.collect(last)
                engine.take(taken)
                if taken or seconds == 0 or not engine.targets:
                    break
                engine.rearm()  # or what has ended this sleep would end the next one
            self._leave(me, is_nested)
            return [(target.proc, code) for target, code in taken]
        except BaseException:  # if a signal handler raises, no exit must be lost
            engine.is_suspect = True  # first, in case that it raises again
            self._calls[me] = taken
            engine.put_back(taken)
            self._leave(me)
            raise

    def _leave(self, me: int, is_nested: bool = False) -> None:
        self._engine.sleeping.pop(me, None)
        if is_nested:  # the other call goes on with its sleep, and is woken if the set is empty
            self._engine.sleeping[me] = None
        if not self._is_closed:
            self._engine.rearm()
        self._calls.pop(me, None)  # last: an exception may come before
        if self._is_closed and not self._calls:
            self._engine.close()

    def fileno(self) -> int:
        """Return a file descriptor that is readable when you should call wait(0).

        That call may return an empty list. The file descriptor stays the same until close().
        Raises io.UnsupportedOperation (an OSError) on Windows, and if none was left for the set.
        """
        engine = self._entered()
        fd = engine.sleeper.fileno()
        engine.is_shown = True
        engine.rearm()
        return fd

    def close(self) -> None:
        """Close the set. Its resources are released when the waits in progress have ended."""
        if self._engine.pid != getpid():
            self._calls = {}
        self._is_closed = True
        if not self._calls:
            self._engine.close()

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._is_closed:
            return
        try:
            if self._engine.pid == getpid():
                warn_unclosed(self)
        finally:
            self.close()

    def __reduce__(self) -> "Any":
        raise TypeError("a set of handles on processes can't be pickled or copied")

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        noun = "process" if len(self) == 1 else "processes"
        return "<%s of %d %s, %s>" % (type(self).__name__, len(self), noun, state)
