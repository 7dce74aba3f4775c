# SPDX-License-Identifier: BSD-3-Clause
"""Telling the standard library's own functions in subprocess from hooks.

gevent replaces Popen by its own class, eventlet by a subclass; sentry_sdk, and tracers that use
wrapt, replace its methods. They do so before or after patch(), and some undo it later.
"""

from types import FunctionType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def standard_class(popen: "Any") -> "Any":
    """The standard library's Popen: this class, or a base of it; None for gevent's class."""
    for cls in getattr(popen, "__mro__", ()):
        if cls.__module__ == "subprocess" and "_execute_child" in vars(cls):
            return cls
    return None


def mark(function: "Any", beneath: "Any") -> None:
    """Tell all copies of this package that patch() put ``function`` in place of ``beneath``."""
    function._in_place_of = function, beneath


def under(function: "Any") -> "Any":
    """The function that patch() found where it put this one; else this one itself."""
    # functools.wraps copies the mark to a hook over ours: it counts only on the function in it.
    while type(function) is FunctionType:
        marked, beneath = getattr(function, "_in_place_of", (None, None))
        if marked is not function:
            break
        function = beneath
    return function


def own(function: "Any") -> "Any":
    """The standard library's own function, though patch() may be over it; None for a hook."""
    if type(function) is MethodType:
        function = function.__func__
    function = under(function)
    # Look at the type: a proxy made by wrapt has all attributes of what it wraps.
    if type(function) is FunctionType and function.__globals__.get("__name__") == "subprocess":
        return function
    return None


def parameters(function: "Any") -> "tuple[str, ...]":
    """The names of its parameters, except self."""
    code = function.__code__
    names: "tuple[str, ...]" = code.co_varnames
    return names[1 : code.co_argcount + code.co_kwonlyargcount]


def has_parameter(popen: "Any", name: str) -> bool:
    """Whether a standard Popen has the parameter; True if hooks hide its parameters."""
    if popen is None:
        return True
    functions = [own(vars(popen)[method]) for method in ("__init__", "_execute_child")]
    known = [parameters(function) for function in functions if function is not None]
    return not known or any(name in names for names in known)


def repeats_name(execute_child: "Any") -> bool:
    """Whether an error's text repeats the name of the missing file: before Python 3.8."""
    constants = execute_child.__code__.co_consts
    return ": " in [value for value in constants if isinstance(value, str)]
