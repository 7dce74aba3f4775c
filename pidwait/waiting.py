# SPDX-License-Identifier: BSD-3-Clause
"""Many processes: until all of them have exited, or as each does."""

from ._deadline import Deadline
from ._errors import TimeoutExpired
from ._waitset import WaitSet, key_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, TypeVar

    from ._owners import HasPid
    from ._waitset import Exits

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
    ``timeout`` seconds, in the order given. What is given twice is there twice. The
    exit codes are those that wait() would return.

    ``callback(proc, exitcode)`` is called at each exit; what it raises ends the call.
    ValueError or TypeError for what is no process; one that is not there has exited.
    """
    if callback is not None and not callable(callback):
        raise TypeError("callback must be callable, not %s" % type(callback).__name__)
    deadline = Deadline(timeout)
    given = list(procs)
    again = _given_again(given)
    exited: "Exits" = []
    with WaitSet._private(given) as waiting:
        for first, code in waiting._completions(deadline):
            for proc in again.get(key_of(first), (first,)):
                exited.append((proc, code))
                if callback is not None:
                    callback(proc, code)
        alive = [proc for proc in given if proc in waiting]
    return exited, alive  # type: ignore[return-value]


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
    return _completions(WaitSet._private(given), _given_again(given), deadline)


def _completions(
    waiting: "WaitSet", again: "dict[object, list[Any]]", deadline: Deadline
) -> "Iterator[Any]":
    with waiting:
        for first, code in waiting._completions(deadline):
            for proc in again.get(key_of(first), (first,)):
                yield proc, code
        for owner in waiting._members.values():
            raise TimeoutExpired(owner.pid, deadline.timeout)


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
