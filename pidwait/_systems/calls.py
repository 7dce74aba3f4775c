# SPDX-License-Identifier: BSD-3-Clause
"""System calls by name: the interpreter's own public function if it has one, else a binding's.

A call is resolved when it is first needed. Two threads may resolve one at the same time: either
answer is right, and the last one stays.
"""

import sys
from errno import ENOSYS
from types import SimpleNamespace

from .._base.errors import call, failed
from .._base.probe import FFI, choice, memories
from .bindings import NAMES, binding, check_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable

# name: (module that may have the interpreter's own function, function that makes one of a
# binding); either can be None. The modules of each system add theirs.
CALLS: "dict[str, tuple[str | None, Any]]" = {}

# A name that the module must have, too, or its own function is incomplete: PyPy's select has
# kqueues, but lacks these.
_WHOLE = {"kqueue": "KQ_NOTE_EXIT", "kevent": "KQ_NOTE_EXIT"}

# The numbers with which waitid(2) looks at our child: P_PID, and WEXITED | WNOHANG | WNOWAIT.
WAITID: "dict[str, int]" = {}

# What makes each of those that have been resolved: a module, or a binding.
origins: "dict[str, str]" = {}


class _Resolved(dict):  # type: ignore[type-arg]
    """{name: function}; a name that is missing is resolved."""

    __slots__ = ()

    def __missing__(self, name: str) -> "Callable[..., Any]":
        try:
            function, origins[name] = _resolve(name)
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
        # Modulo: cffi takes no -1 for an unsigned int, which a handle has once it is closed.
        self._function(idtype, id_ % 2**32, info, options)
        code, pid, status = (
            int.from_bytes(info[at : at + 4], sys.byteorder, signed=True) for at in self._offsets
        )
        # With WNOHANG, si_pid is 0 if the child has not exited: waitid(2).
        return SimpleNamespace(si_code=code, si_pid=pid, si_status=status) if pid else None


# The system, which selects the table: sys.platform without the version that some append.
PLATFORM = sys.platform.rstrip("0123456789.")
