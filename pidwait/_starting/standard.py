# SPDX-License-Identifier: BSD-3-Clause
"""The standard library's subprocess: its functions, and its arguments."""

import os
import sys
from functools import partial, update_wrapper
from operator import index
from types import FunctionType, MethodType

from .._base.errors import Failed, call

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
    group = checked_group(options.pop("process_group", None))
    if group >= 0:
        if os.name != "nt":
            options["preexec_fn"] = partial(enter_group, group, options.get("preexec_fn"))
        elif group:
            raise ValueError("process_group can only be 0 on Windows")
        else:
            options["creationflags"] = options.get("creationflags", 0) | _CREATE_NEW_PROCESS_GROUP
    return options


def checked_group(group: "Any") -> int:
    """Popen's ``process_group`` as a C int, as Python 3.11 takes it; -1 for none."""
    number = -1 if group is None else index(group)
    if not -(2**31) <= number < 2**31:
        raise OverflowError("process_group does not fit into a C int: %d" % number)
    return max(number, -1)


def enter_group(group: int, preexec_fn: "Callable[[], object] | None") -> None:
    try:
        call(os.setpgid, 0, group)
    except Failed as why:
        # The standard code would say "Exception occurred in preexec_fn". So tell it the error, as
        # its own code in C tells one that comes before exec.
        frame: "Any" = sys._getframe()
        while frame.f_code.co_name != "_execute_child":  # PyPy's partial is in between
            frame = frame.f_back
        if frame.f_globals.get("__name__") != "subprocess":  # gevent's tells it
            raise why.error from None
        os.write(frame.f_locals["errpipe_write"], b"OSError:%x:noexec" % why.errno)
        os._exit(255)
    if preexec_fn is not None:
        preexec_fn()
