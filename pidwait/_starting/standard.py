# SPDX-License-Identifier: BSD-3-Clause
"""The standard library's subprocess: its functions, and its arguments."""

import os
import sys
from functools import partial, update_wrapper
from types import FunctionType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any, Callable

_CREATE_NEW_PROCESS_GROUP = 0x200  # subprocess has the name from Python 3.7 on


def is_standard(function: "Any") -> bool:
    """Whether this is subprocess' own function: nobody has replaced it."""
    if type(function) is MethodType:
        function = function.__func__
    # Check the type: a proxy made by wrapt has all attributes of the wrapped function.
    return type(function) is FunctionType and function.__globals__.get("__name__") == "subprocess"


def with_globals(function: "Any", **names: "Any") -> "Any":
    """A copy of the function, with other values for these names of its module."""
    code, found = function.__code__, dict(function.__globals__, **names)
    copy = FunctionType(code, found, code.co_name, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return update_wrapper(copy, function)


def has_process_group() -> bool:
    """Whether the standard Popen has that parameter: from 3.11 on. On Windows it does nothing."""
    return os.name != "nt" and hasattr(sys.modules["subprocess"], "_fork_exec")


def with_group(options: "dict[str, Any]") -> "dict[str, Any]":
    """Popen's arguments, with ``process_group`` on every Python."""
    if has_process_group():
        return options
    group = options.pop("process_group", None)
    if group is not None and not isinstance(group, int):
        raise TypeError("process_group must be an int, not %s" % type(group).__name__)
    if group is not None and group >= 0:
        if os.name != "nt":
            options["preexec_fn"] = partial(enter_group, group, options.get("preexec_fn"))
        elif group:
            raise ValueError("process_group can only be 0 on Windows")
        else:
            options["creationflags"] = options.get("creationflags", 0) | _CREATE_NEW_PROCESS_GROUP
    return options


def enter_group(group: int, preexec_fn: "Callable[[], object] | None") -> None:
    os.setpgid(0, group)
    if preexec_fn is not None:
        preexec_fn()
