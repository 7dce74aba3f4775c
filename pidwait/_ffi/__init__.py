# SPDX-License-Identifier: BSD-3-Clause
"""System calls, for interpreters that have no public function for them.

Tables (linux.py, win32.py) hold prototypes, numbers and layouts; two small adapters
make functions of them: _ctypes.py, and _cffi.py for interpreters where ctypes
is missing, does not work, or is the slower one. Nothing here is imported, and
no library loaded, before somebody needs a call that the interpreter lacks.
"""

import sys

from .. import _config
from .._errors import TRANSIENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Without the version that some have in it: which tables apply.
PLATFORM = sys.platform.rstrip("0123456789.")

# ctypes is written in Python on PyPy, on top of what cffi uses directly.
NAMES = ("cffi", "ctypes") if sys.implementation.name == "pypy" else ("ctypes", "cffi")

_loaded: "dict[str, Any]" = {}


def load(name: str) -> "Any":
    """The adapter of that name; ImportError with the reason where there is none."""
    adapter = _loaded.get(name)
    if adapter is None:
        try:
            if name == "ctypes":
                from ._ctypes import Adapter
            else:
                from ._cffi import Adapter  # type: ignore[assignment]
            adapter = _loaded[name] = Adapter()
        # A damaged ctypes raises whatever it met: OSError for a library, and
        # MemoryError where a policy forbids memory that can be written and run.
        except Exception as error:
            if getattr(error, "errno", None) in TRANSIENT:
                raise
            raise ImportError("%s: %s" % (type(error).__name__, error)) from error
    return adapter


def missing(name: str) -> "Exception | None":
    """Why there is no such adapter; None if there is."""
    try:
        load(name)
    except (ImportError, OSError) as error:
        return error
    return None


def forced() -> "str | None":
    """The adapter that the environment asks for."""
    name = _config.choice(_config.FFI, *NAMES)
    return None if name == "auto" else name


def adapter() -> "Any":
    """The one to use; ImportError with all reasons where none works."""
    name = forced()
    reasons = []
    for candidate in (name,) if name else NAMES:
        try:
            return load(candidate)
        except ImportError as error:
            reasons.append("%s: %s" % (candidate, error))
    raise ImportError("; ".join(reasons))
