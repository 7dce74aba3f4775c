# SPDX-License-Identifier: BSD-3-Clause
"""System calls by name: the interpreter's own public function if it has one, else a binding's.

A call is resolved when it is first needed. Two threads may resolve one at the same time: either
answer is right, and the last one stays.
"""

import os
import sys
from errno import ENOSYS
from types import SimpleNamespace

from .._base.errors import TRANSIENT, Failed, call, failed
from .._base.probe import BACKEND, FFI, checks, choice, memories, why_not
from .bindings import NAMES, binding, check_files, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable, Check

# name: (module that may have the interpreter's own function, function that makes one of a
# binding); either can be None. The modules of each system add theirs.
CALLS: "dict[str, tuple[str | None, Any]]" = {}

# A name that the module must have, too, or its own function is incomplete: PyPy's select has
# kqueues, but lacks these.
_WHOLE = {"kqueue": "KQ_NOTE_EXIT", "kevent": "KQ_NOTE_EXIT"}

# The numbers with which waitid(2) looks at our child: P_PID, and WEXITED | WNOHANG | WNOWAIT.
WAITID: "dict[str, int]" = {}

_origins: "dict[str, str]" = {}


class _Resolved(dict):  # type: ignore[type-arg]
    """{name: function}; a name that is missing is resolved."""

    __slots__ = ()

    def __missing__(self, name: str) -> "Callable[..., Any]":
        try:
            function, _origins[name] = _resolve(name)
        except LookupError as error:
            raise failed(ENOSYS, error.args[0]) from None
        except ImportError as error:
            check_files()  # a lack of file descriptors is transient
            raise failed(ENOSYS, str(error)) from None
        self[name] = function
        return function


_resolved = _Resolved()
memories.append(_resolved.clear)


# The function of that name; Failed (ENOSYS) with the reason if there is none. It is the dict's own
# method: right after a sleep each function of ours that is called costs some 4 us.
native: "Callable[[str], Callable[..., Any]]" = _resolved.__getitem__


def ask(name: str, *args: "Any") -> "Any":
    """Make that call; Failed if the system refuses it."""
    return call(_resolved[name], *args)


def _resolve(name: str) -> "tuple[Callable[..., Any], str]":
    module, make = CALLS[name]
    if module is not None and (make is None or choice(FFI, *NAMES) == "auto"):
        own = __import__(module)
        if hasattr(own, name) and hasattr(own, _WHOLE.get(name, name)):
            return getattr(own, name), module.lstrip("_")
    if make is None:  # gevent, say, has removed it
        raise LookupError("the module %s has no %s" % (module, name))
    found = binding()
    return make(found, name), found.name


class WaitId:
    """os.waitid(), for an interpreter that lacks it: of its prototype, and offsets in siginfo_t."""

    def __init__(self, binding: "Any", prototype: "Any", offsets: "tuple[int, int, int]") -> None:
        self._function = binding.function("waitid", prototype)
        self._offsets = offsets

    def __call__(self, idtype: int, id_: int, options: int) -> "SimpleNamespace | None":
        info = bytearray(256)  # the largest siginfo_t has 136 bytes
        self._function(idtype, id_, info, options)
        code, pid, status = (
            int.from_bytes(info[at : at + 4], sys.byteorder, signed=True) for at in self._offsets
        )
        # With WNOHANG, si_pid is 0 if the child has not exited: waitid(2).
        return SimpleNamespace(si_code=code, si_pid=pid, si_status=status) if pid else None


# The system, which selects the table: sys.platform without the version that some append.
PLATFORM = sys.platform.rstrip("0123456789.")


def report(available: "tuple[str, ...]", backend: str) -> "dict[str, Any]":
    """What probe() returns."""
    rows = [(name, *row) for name in available for row in checks[name][name == "polling" :]]
    return {
        "system": _system(),
        "python": "%s %s" % (sys.implementation.name, sys.version.split()[0]),
        "backend": backend,
        "backends": {name: _row(_why(name, checks[name][0][2])) for name in available},
        "bindings": {name: _row(_load(name)) for name in sorted(NAMES)},
        "calls": {
            name: dict(_row(_why(of, check)), via=call and _via(call))
            for of, name, call, check in rows
        },
    }


def _system() -> str:
    if sys.platform == "win32":
        version = "Windows %d.%d.%d" % sys.getwindowsversion()[:3]
        return "%s %s" % (version, os.environ.get("PROCESSOR_ARCHITECTURE", ""))
    system = os.uname()
    return "%s %s %s" % (system[0], system[2], system[4])


def _why(name: str, check: "Check") -> "str | None":
    if name != "polling" and os.environ.get(BACKEND) == "polling":
        return "not asked, as %s is polling" % BACKEND  # a filter may kill who asks
    why = why_not(check)
    return None if why is None or why.errno in TRANSIENT else why.error.strerror or str(why)


def _load(name: str) -> object:
    try:
        return load(name)
    except Failed as why:  # no file descriptor is left
        return str(why)


def _row(found: object) -> "dict[str, Any]":
    reason = found if isinstance(found, str) else None
    return {"available": reason is None, "reason": reason}


def _via(name: str) -> "str | None":
    try:
        native(name)
    except Failed:
        return None
    return _origins[name]
