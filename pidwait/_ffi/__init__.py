# SPDX-License-Identifier: BSD-3-Clause
"""System calls, for interpreters that have no public function for them.

Tables (linux.py, win32.py and others) hold prototypes, numbers and layouts. Two small adapters
turn them into functions: _ctypes.py, and _cffi.py for interpreters where ctypes is
missing, does not work, or is slower. No adapter is imported, and no library loaded,
before a call is needed that the interpreter lacks.

Two threads may make an adapter, or a function, at the same time: both work, and one stays.
"""

import os
import sys

from .. import _config
from .._errors import TRANSIENT, raise_of_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The system, which selects the table: sys.platform without the version that some append.
PLATFORM = sys.platform.rstrip("0123456789.")

# The faster one first: PyPy's ctypes is written in Python, on top of what cffi uses directly.
NAMES = ("cffi", "ctypes") if sys.implementation.name == "pypy" else ("ctypes", "cffi")

_loaded: "dict[str, Any]" = {}
# Why the others can't be used: a second try would look for their files once more.
_missing: "dict[str, str]" = {}


def forget() -> None:
    _missing.clear()


def load(name: str) -> "Any":
    """The adapter of that name; ImportError with the reason if it can't be used."""
    adapter = _loaded.get(name)
    if adapter is None:
        if name in _missing:
            raise ImportError(_missing[name])
        try:
            if name == "ctypes":
                from ._ctypes import Adapter
            else:
                from ._cffi import Adapter  # type: ignore[assignment]
            adapter = _loaded[name] = Adapter()
        # A damaged ctypes raises whatever it runs into: OSError for a library, MemoryError
        # where a policy forbids memory that is both writable and executable.
        except Exception as error:
            raise_of_handler(error)
            if getattr(error, "errno", None) in TRANSIENT:
                raise
            check_files()
            _missing[name] = reason = "%s: %s" % (type(error).__name__, error)
            raise ImportError(reason) from error
    return adapter


def check_files() -> None:
    """Raise EMFILE, say, if no file can be opened: an ImportError does not tell that."""
    if os.name != "nt":  # Windows can't open a directory
        os.close(os.open(os.sep, os.O_RDONLY))


def missing(name: str) -> "Exception | None":
    """The error that tells why an adapter can't be used; None if it can."""
    try:
        load(name)
    except (ImportError, OSError) as error:
        raise_of_handler(error)
        return error
    return None


def forced() -> "str | None":
    """The name of the adapter that the environment asks for; None if it asks for none."""
    name = _config.choice(_config.FFI, *NAMES)
    return None if name == "auto" else name


def adapter() -> "Any":
    """The adapter to use; ImportError with all reasons if none works."""
    name = forced()
    reasons = []
    for candidate in (name,) if name else NAMES:
        try:
            return load(candidate)
        except ImportError as error:
            reasons.append("%s: %s" % (candidate, error))
    raise ImportError("; ".join(reasons))
