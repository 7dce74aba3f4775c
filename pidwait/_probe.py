# SPDX-License-Identifier: BSD-3-Clause
"""The report for people: what this system offers for waiting, and why it does not offer more."""

import os
import sys

from . import _backends, _checks, _ffi, _parts
from ._errors import raise_of_handler
from ._ffi import calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._backends.contract import Checks


def forget() -> None:
    """Check again at the next need, as after a change of the environment variables."""
    _checks.forget()
    _backends.forget()
    _ffi.forget()
    calls.forget()


def probe() -> "dict[str, Any]":
    """What this system offers for waiting, and why it does not offer more.

    Returns a dict that json can write. ``backend`` is the name of the backend in use.
    ``backends``, ``bindings`` and ``calls`` have an entry for each name: whether it is
    ``available``, the ``reason`` if it is not (else None), and for a call the module or
    binding ``via`` which it is made. The answers come from real calls, each made once.

    Raises ValueError if the environment variable PIDWAIT_BACKEND or PIDWAIT_FFI has an
    unknown value (the message lists the known ones), and OSError if this system lacks what
    it asks for.

    >>> found = probe()
    >>> found["backends"][found["backend"]]["available"]
    True
    >>> found["backends"]["polling"]["reason"] is None
    True
    """
    known = _backends.known()
    more: "Checks" = known["polling"].checks[1:]
    if _parts.SPAWN and os.name != "nt":
        from . import _spawn_actions

        more += _spawn_actions.CALLS
    return {
        "system": _system(),
        "python": "%s %s" % (sys.implementation.name, sys.version.split()[0]),
        "backend": _backends.backend().name,
        "backends": {name: _row(_checks.ask(one.check)) for name, one in known.items()},
        "bindings": {name: _row(_ffi.missing(name)) for name in sorted(_ffi.NAMES)},
        "calls": {
            name: dict(_row(_checks.ask(check)), via=_via(call))
            for name, call, check in next(iter(known.values())).checks + more
        },
    }


def _system() -> str:
    if sys.platform == "win32":
        version = "Windows %d.%d.%d" % sys.getwindowsversion()[:3]
        return "%s %s" % (version, os.environ.get("PROCESSOR_ARCHITECTURE", ""))
    system = os.uname()
    return "%s %s %s" % (system[0], system[2], system[4])


def _row(error: "Exception | None") -> "dict[str, Any]":
    reason = None if error is None else getattr(error, "strerror", None) or str(error)
    return {"available": error is None, "reason": reason}


def _via(call: "str | None") -> "str | None":
    try:
        return call and calls.resolve(call)[1]
    except OSError as error:
        raise_of_handler(error)
        return None
