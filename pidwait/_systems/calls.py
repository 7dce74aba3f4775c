# SPDX-License-Identifier: BSD-3-Clause
"""System calls by name: the interpreter's own public function if it has one, else a binding's.

A call is resolved when it is first needed. Two threads may resolve a call at the same time: both
results are right, and the last one stays.
"""

import sys
from errno import ENOSYS

from .._base.checks import FFI, choice
from .._base.errors import Failed, call, not_by_handler
from .bindings import NAMES, PLATFORM, binding, check_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Function, Make, Rows

# A name that the module must have, too, or its function is incomplete: PyPy's select has kqueue,
# but lacks this name.
_WHOLE = {"kqueue": "KQ_NOTE_EXIT"}

# For each resolved call: the module, or the binding, that makes it.
origins: "dict[str, str]" = {}


class Calls(dict):  # type: ignore[type-arg]
    """{name: function}; a missing name is resolved by its row.

    Failed (ENOSYS) with the reason if there is no such function; KeyError if there is no row.
    """

    def __init__(self, rows: "Rows") -> None:
        super().__init__()
        self.rows = rows

    def __missing__(self, name: str) -> "Function":
        row = self.rows[name]
        try:
            function, origins[name] = _resolve(name, *row)
        except not_by_handler(LookupError) as error:
            raise Failed(ENOSYS, error.args[0]) from None
        except not_by_handler(ImportError, OSError) as error:
            check_files()  # a lack of file descriptors is transient
            raise Failed(ENOSYS, str(error)) from None
        self[name] = function
        return function


def _resolve(name: str, module: "str | None", make: "Make | None") -> "tuple[Function, str]":
    if module is not None and (make is None or choice(FFI, *NAMES) == "auto"):
        own = sys.modules.get(module) or __import__(module)
        function = getattr(own, name, None) or removed_type(module, name)
        if function is not None and hasattr(own, _WHOLE.get(name, "__name__")):
            return function, module.lstrip("_")
    if make is None:
        raise LookupError("the module %s has no %s" % (module, name))
    found = binding()
    return make(found, name), found.name


def removed_type(module: str, name: str) -> "type[object] | None":
    """A type in C that was removed from its module; None if there is none, as for a function.

    gevent and eventlet remove select's epoll, as it blocks.
    """
    shown = "<class '%s.%s'>" % (module, name)
    return next((one for one in object.__subclasses__() if type.__repr__(one) == shown), None)


def _find_calls() -> "tuple[Rows, dict[str, int]]":
    """This system's rows, and the numbers with which waitid(2) looks at our child."""
    if PLATFORM == "win":
        from .windows.calls import WINDOWS_ROWS

        return WINDOWS_ROWS, {}
    if PLATFORM in ("linux", "android"):
        from .linux.calls import LINUX_ROWS, LINUX_WAITID

        return LINUX_ROWS, LINUX_WAITID
    from .bsd.calls import KQUEUE_ROWS, TABLES, waitid_numbers

    if PLATFORM not in TABLES:
        raise ImportError("this package does not support %s" % PLATFORM)
    return KQUEUE_ROWS, waitid_numbers()


_rows, WAITID = _find_calls()
CALLS = Calls(_rows)


def ask(name: str, *args: object) -> "Any":
    """Make a call; Failed if the system refuses it."""
    return call(CALLS[name], *args)
