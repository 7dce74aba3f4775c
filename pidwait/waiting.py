# SPDX-License-Identifier: BSD-3-Clause
"""Many processes: until all of them have exited, or as each does."""

from os import getpid

from ._deadline import Deadline
from ._engine import Engine
from ._errors import TimeoutExpired
from ._kinds import find
from ._targets import key_of
from ._waitset import WaitSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeVar  # novm

    from ._engine import Exits
    from ._targets import HasPid

    P = TypeVar("P", bound="int | HasPid")  # novm

__all__ = ["WaitSet", "as_completed", "wait_procs"]


def wait_procs(
    procs: "Iterable[P]",
    timeout: "float | None" = None,
    callback: "Callable[[P, int | None], object] | None" = None,
) -> "tuple[list[tuple[P, int | None]], list[P]]":
    """Wait until all of these processes have exited; return ``(exited, alive)``.

    ``procs`` are what wait() takes. ``exited`` is a list of ``(proc, exitcode)`` in
    the order in which they exited, ``alive`` a list of those that still run after
    ``timeout`` seconds, in the order given. A process given twice is reported twice. The
    exit codes are those that wait() would return.

    ``callback(proc, exitcode)`` is called at each exit; what it raises ends the call.
    ValueError or TypeError for what stands for no process; one that is not there has exited.
    """
    if callback is not None and not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)
    deadline = Deadline(timeout)
    given = list(procs)
    again = _given_again(given)
    exited: "list[tuple[Any, int | None]]" = []
    engine = _engine_with(given)
    try:
        for first, code in _exits(engine, deadline):
            for proc in again.get(key_of(first), (first,)):
                exited.append((proc, code))
                if callback is not None:
                    callback(proc, code)
        alive = [proc for proc in given if key_of(proc) in engine]
    finally:
        engine.close()
    return exited, alive


def as_completed(
    procs: "Iterable[P]", timeout: "float | None" = None
) -> "Iterator[tuple[P, int | None]]":
    """Iterate over ``(proc, exitcode)`` of these processes as they exit.

    As concurrent.futures.as_completed() does for futures: ``timeout`` counts from the
    call, and TimeoutExpired is raised if some are still running then. They are
    watched from the call on.
    """
    deadline = Deadline(timeout)
    given = list(procs)
    return _completions(_engine_with(given), _given_again(given), deadline)


def _completions(
    engine: Engine, again: "dict[object, list[Any]]", deadline: Deadline
) -> "Iterator[Any]":
    try:
        for first, code in _exits(engine, deadline):
            for proc in again.get(key_of(first), (first,)):
                yield proc, code
        for target in engine:
            raise TimeoutExpired(target.pid, deadline.timeout)
    finally:
        engine.close()


def _engine_with(procs: "list[Any]") -> Engine:
    targets = [find(proc) for proc in procs]
    engine = Engine(False)
    try:
        engine.add(targets)
    except BaseException:
        engine.close()
        raise
    return engine


def _exits(engine: Engine, deadline: Deadline) -> "Iterator[tuple[Any, int | None]]":
    """All exits until the deadline."""
    exits: "Exits" = []
    members = engine.members
    while members:
        if engine.pid != getpid():
            engine.take_over()
        seconds = deadline.remaining()
        engine.sleep(seconds)
        engine.collect(exits, seconds == 0)
        for target, code in exits:
            yield target.proc, code
        if not exits and seconds == 0:
            return
        exits.clear()


def _given_again(procs: "list[Any]") -> "dict[object, list[Any]]":
    """key: all that were given for it, where that is more than one."""
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
