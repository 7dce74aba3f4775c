# SPDX-License-Identifier: BSD-3-Clause
"""Waiting for many processes: until all of them have exited, or as each one exits."""

from os import getpid

from ._deadline import FOREVER, Deadline
from ._engine import Engine
from ._errors import TimeoutExpired
from ._kinds import find
from ._targets import key_of
from ._waitset import WaitSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, overload

    from ._engine import Exits
    from ._generic import P
    from ._targets import Proc

__all__ = ["WaitSet", "as_completed", "wait_procs"]


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

    ``procs`` is an iterable of what wait() takes. ``exited`` is a list of ``(proc, exitcode)``
    in the order in which they exited, with the exit codes that wait() would return; ``alive``
    is a list of those that still run after ``timeout`` seconds, in the order given. A process
    given twice is reported twice. A pid that no process has counts as exited.

    ``callback(proc, exitcode)`` is called at each exit; an exception in it ends the call.
    Raises ValueError or TypeError for what can't stand for a process. It does not raise
    TimeoutExpired.

    >>> import subprocess, sys
    >>> command = [sys.executable, "-c", "raise SystemExit(3)"]
    >>> exited, alive = wait_procs([subprocess.Popen(command) for _ in range(2)], timeout=60)
    >>> [exitcode for popen, exitcode in exited], alive
    ([3, 3], [])
    """
    if callback is not None and not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)
    deadline = FOREVER if timeout is None else Deadline(timeout)
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

    ``procs`` is an iterable of what wait() takes; all are watched from the call on. As in
    concurrent.futures.as_completed(), ``timeout`` is in seconds and counts from the call:
    the iterator raises TimeoutExpired if some are still running then. Raises ValueError or
    TypeError for what can't stand for a process.

    >>> import subprocess, sys
    >>> popen = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    >>> for proc, exitcode in as_completed([popen], timeout=60):
    ...     print(proc is popen, exitcode)
    True 3
    """
    deadline = FOREVER if timeout is None else Deadline(timeout)
    given = list(procs)
    return _exits(_engine_with(given), given_again(given), deadline, True)


def _engine_with(procs: "list[Any]") -> Engine:
    targets = [find(proc) for proc in procs]
    engine = Engine(False)
    try:
        engine.add(targets)
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
    # After the sleep the caches are cold, and each name and call costs.
    exits: "Exits" = []
    members, sets = engine.members, engine.sets
    last = False
    try:
        while members and not last:
            if engine.pid != getpid():
                engine.take_over()
            seconds = None if deadline is FOREVER else deadline.remaining()
            sets.sleep(seconds)
            engine.collect(exits, seconds == 0)
            last = seconds == 0 and not exits
            for target, code in exits:
                if again:
                    for proc in again.get(target.key, (target.proc,)):
                        yield proc, code
                else:
                    yield target.proc, code
            exits.clear()
        if raises:
            for target in engine:
                raise TimeoutExpired(target.pid, deadline.timeout)
    finally:
        engine.close()


def given_again(procs: "list[Any]") -> "dict[object, list[Any]]":
    """{key: all procs that were given for it}, for keys with more than one."""
    firsts: "dict[object, Any]" = {}
    again: "dict[object, list[Any]]" = {}
    for proc in procs:
        key = key_of(proc)
        if key in again:
            again[key].append(proc)
        elif key in firsts:
            again[key] = [firsts[key], proc]
        else:
            firsts[key] = proc
    return again
