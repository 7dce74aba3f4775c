# SPDX-License-Identifier: BSD-3-Clause
"""probe(): what this system offers for waiting, and why not more."""

import os
import sys

from ._base.checks import BACKEND, why_not
from ._base.errors import PASSING, Failed
from ._systems import backend, system
from ._systems.bindings import NAMES, load
from ._systems.calls import CALLS, origins
from ._trees import check_keeper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._systems.calls import Calls
    from ._types import Any, Check, Checks


def probe() -> "dict[str, Any]":
    """Report what this system offers for waiting, and why it does not offer more.

    Returns a dict that json can write. ``backend`` is the name of the backend in use.
    ``backends``, ``bindings`` and ``calls`` have an entry for each name: ``available``, and
    the ``reason`` if it is not (else None). For a call, ``via`` is the module or binding that
    makes it. The answers come from real calls, each made once. Trees use "job objects" on
    Windows; elsewhere they use a "keeper of trees", whose interpreter is started once to see that
    it can be, or are process groups.

    Environment variables force a choice: PIDWAIT_BACKEND is auto, pidfd, kqueue, win32 or
    polling; PIDWAIT_FFI is auto, ctypes or cffi; PIDWAIT_TREE, which only a start with a tree
    reads, is auto, reaper, job or group. Raises ValueError for any other value, and OSError if
    this system lacks the forced choice.

    >>> found = probe()
    >>> found["backends"][found["backend"]]["available"]
    True
    >>> found["backends"]["polling"]["reason"] is None
    True
    """
    best = backend()
    available = system.backends
    *checks, more_calls = _checks()
    return {
        "system": _system_name(),
        "python": "%s %s" % (sys.implementation.name, sys.version.split()[0]),
        "backend": best,
        "backends": {name: _row(_why(name, system.checks[name])) for name in available},
        "bindings": {name: _row(_load(name)) for name in sorted(NAMES)},
        "calls": {
            name: dict(_row(_why(of, check)), via=call and _via(call, more_calls))
            for of, rows in zip(available, checks)
            for name, call, check in rows
        },
    }


def _checks() -> "tuple[Checks, Checks, Calls]":
    """The rows of the report: the backend's checks, the others, and the table of their calls."""
    of_backend, others = system.checks_of
    if system.tree == "job":
        from ._systems.windows.jobs import JOB_CALLS, JOB_CHECKS

        return of_backend, [*others, *JOB_CHECKS], JOB_CALLS
    from ._starting.libc_spawn import SPAWN_CALLS
    from ._starting.posix_spawn import SPAWN_CHECKS

    others = [*others, ("keeper of trees", None, check_keeper), *SPAWN_CHECKS]
    return of_backend, others, SPAWN_CALLS


def _system_name() -> str:
    if sys.platform == "win32":
        version = "Windows %d.%d.%d" % sys.getwindowsversion()[:3]
        return "%s %s" % (version, os.environ.get("PROCESSOR_ARCHITECTURE", ""))
    name = os.uname()
    return "%s %s %s" % (name.sysname, name.release, name.machine)


def _why(name: str, check: "Check") -> "str | None":
    if name != "polling" and os.environ.get(BACKEND) == "polling":
        return "not checked: %s is polling" % BACKEND  # a filter may kill the caller
    why = why_not(check)
    return None if why is None or why.errno in PASSING else why.error.strerror or str(why)


def _load(name: str) -> object:
    try:
        return load(name)
    except Failed as why:  # no file descriptor is left
        return str(why)


def _row(found: object) -> "dict[str, Any]":
    reason = found if isinstance(found, str) else None
    return {"available": reason is None, "reason": reason}


def _via(name: str, more_calls: "Calls") -> "str | None":
    try:
        CALLS[name] if name in CALLS.rows else more_calls[name]
    except Failed:
        return None
    return origins[name]
