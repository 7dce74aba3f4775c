# SPDX-License-Identifier: BSD-3-Clause
"""The standard library's subprocess: its functions, and a number of Windows."""

from functools import update_wrapper
from types import FunctionType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any

CREATE_NEW_PROCESS_GROUP = 0x200  # subprocess has the name from Python 3.7 on


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
