# SPDX-License-Identifier: BSD-3-Clause
"""The standard library's subprocess, started by posix_spawn and waited for by events.

Popen is a subclass of the standard one; run, call, check_call and check_output use it. They
take the arguments that the originals take on this Python, and ``process_group`` on every
Python. All other names are the standard ones.

patch() changes the standard Popen itself, in place.
"""

import functools
import os
import subprocess as _standard
import sys
import time
from types import BuiltinFunctionType, FunctionType

from . import _hooks, _process, _systems
from ._base.errors import TimeoutExpired as _TimeoutExpired
from ._base.errors import log as _log
from ._base.errors import raise_of_handler as _raise_of_handler

if os.name != "nt":
    from . import _popen_start, _posix_spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import *  # noqa: F403
    from typing import Any, Callable

__all__ = ["patch", "unpatch"]
__all__ += _standard.__all__

_WINDOWS = os.name == "nt"
_CREATE_NEW_PROCESS_GROUP = 0x200  # subprocess has the name from Python 3.7 on

# Looking for a name that a module lacks takes microseconds; its dict answers at once.
_names = vars(_standard)
_popen = _hooks.standard_class(_standard.Popen)


# From Python 3.11 on. On Windows the standard parameter does nothing.
_HAS_PROCESS_GROUP = not _WINDOWS and _hooks.has_parameter(_popen, "process_group")
# Whether the standard code may start processes as well as we do.
_MAY_VFORK = _HAS_PROCESS_GROUP and "_fork_exec" in _names
# Before Python 3.7 there is no _wait().
_WAIT = "_wait" if hasattr(_popen, "_wait") else "wait"
# From Python 3.15 on the standard Popen waits by events itself.
_WAITS = not _WINDOWS and hasattr(_popen, "_wait_pidfd")

_vforks: "list[bool]" = []  # the answer of _has_vfork(), if it is yes


def _has_vfork() -> bool:
    # CPython 3.10 and later, on Linux. PyPy 3.11 has the same subprocess and forks.
    if not _vforks and sys.platform == "linux":
        import sysconfig

        _vforks.extend([True] * bool(sysconfig.get_config_var("HAVE_VFORK")))
    return bool(_vforks)


def _would_fork() -> bool:
    """Whether the standard code would fork: then posix_spawn is worthwhile."""
    return (
        _names.get("_USE_VFORK") is False
        or not _has_vfork()
        # gevent takes the interpreter's own start away from the standard code: this is its name
        # from Python 3.11 on, and below the one before.
        or _names.get("_fork_exec", 0) is None
        or _names.get("_posixsubprocess", 0) is None
    )


def load() -> None:
    """Load what later starts and waits need: the program may change its root before them."""
    _would_fork()
    _systems.backend()
    if os.name != "nt":
        _posix_spawn.is_whole()


# Our methods: ``beneath`` is the bound method that each one replaces.


def _start(beneath: "Any", self: "Any", *args: "Any", **kwargs: "Any") -> None:
    if "process_group" in kwargs:
        self._process_group = _checked(kwargs.pop("process_group"))
    beneath(*args, **kwargs)


def _checked(group: "Any") -> int:
    if group is None:
        return -1
    if not isinstance(group, int):
        raise TypeError("process_group must be an int, not %s" % type(group).__name__)
    if group > 2**31 - 1:
        raise OverflowError("process_group is too large: %d" % group)
    if _WINDOWS and group > 0:
        raise ValueError("process_group can only be 0 on Windows")
    return group


def _execute_child(beneath: "Any", self: "Any", *values: "Any", **named: "Any") -> None:
    group = getattr(self, "_process_group", -1)
    lacking = group >= 0
    own = _hooks.own(beneath)
    if own is None:  # it is a hook, which must see each start
        if lacking:
            raise NotImplementedError("process_group: Popen._execute_child has been replaced")
        beneath(*values, **named)
        return
    plan = dict(zip(_hooks.parameters(own), values), **named)
    group = plan.get("process_group", group)
    if os.name == "nt":
        if lacking:
            plan["creationflags"] |= _CREATE_NEW_PROCESS_GROUP
    elif lacking or _would_fork():
        if _popen_start.start(self, plan, group, own):
            return
        if lacking:
            plan["preexec_fn"] = functools.partial(_enter_group, group, plan["preexec_fn"])
    beneath(**plan)


def _enter_group(group: int, preexec_fn: "Callable[[], object] | None") -> None:
    os.setpgid(0, group)
    if preexec_fn is not None:
        preexec_fn()


def _wait(
    beneath: "Any", self: "Any", timeout: "float | None" = None, *endtime: "Any", **named: "Any"
) -> "int | None":
    # Before Python 3.7 there is an endtime, and no wait() of _over()'s for this.
    blocks = timeout is None and time.sleep is _sleep
    if blocks or endtime or named or _hooks.own(beneath) is None:
        code: "int | None" = beneath(timeout, *endtime, **named)
        return code
    if self.returncode is None:
        try:
            # With None it would be a blocking waitid(2).
            known = _process.wait(self, float("inf") if timeout is None else timeout)
            # If somebody else has reaped it meanwhile, the standard code has set 0; a code that
            # is known replaces that. gevent reaps all children once one of them is its own.
            self.returncode = self.returncode if known is None else known
        except _TimeoutExpired as error:
            _raise_of_handler(error)
            expired: "Any" = _standard.TimeoutExpired
            raise expired(self.args, timeout) from None
    return self.returncode  # type: ignore[no-any-return]


# A blocking waitpid(2) needs no events, and so none of our methods. But it would stop the hub of
# gevent or eventlet, which replace sleep() by a function written in Python, and on Windows Ctrl-C
# would not interrupt it.
_sleep = None if _WINDOWS or type(time.sleep) is not BuiltinFunctionType else time.sleep

_METHODS: "dict[str, Callable[..., Any]]" = {"_execute_child": _execute_child}
if not _HAS_PROCESS_GROUP:
    _METHODS["__init__"] = _start
if not _WAITS:
    _METHODS[_WAIT] = _wait


# Popen and the functions that use it


def _over(name: str) -> "Any":
    """Our method, for a subclass of Popen."""
    ours = _METHODS[name]

    def method(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        return ours(getattr(super(Popen, self), name), self, *args, **kwargs)

    # The common case of these two costs little: for an object of this very class, super() would
    # find what is called here.

    def start(*args: "Any", **kwargs: "Any") -> "Any":
        # As _would_fork() says, without a call. Python 3.14 has no _USE_VFORK.
        names: "Any" = _standard
        is_as_good = _vforks and names._fork_exec and _names.get("_USE_VFORK", True)
        if not is_as_good and _would_fork():
            return method(*args, **kwargs)
        if type(args[0]) is Popen:
            return _popen._execute_child(*args, **kwargs)
        return super(Popen, args[0])._execute_child(*args[1:], **kwargs)

    def wait(self: "Any", timeout: "Any") -> "Any":
        if timeout is not None or time.sleep is not _sleep:
            return method(self, timeout)
        if type(self) is Popen:
            return _popen._wait(self, timeout=timeout)
        return super(Popen, self)._wait(timeout=timeout)

    chosen: "Any" = method
    if name == "_wait":
        chosen = wait
    elif name == "_execute_child" and _MAY_VFORK:
        chosen = start
    return functools.wraps(getattr(_standard.Popen, name))(chosen)


def _subclass(popen: "Any") -> "Any":
    methods = {name: _over(name) for name in _METHODS}
    methods["_is_drop_in"] = True  # patch() adds nothing to it
    return type("Popen", (popen,), dict(methods, __doc__=popen.__doc__, __module__=__name__))


if not TYPE_CHECKING:  # type checkers see the standard one
    # A replacement, such as gevent's, starts and waits in a way of its own.
    Popen = _standard.Popen if _popen is None else _subclass(_standard.Popen)


def _rebind(names: "tuple[str, ...]") -> "dict[str, Any]":
    """The standard functions, with our Popen in place of theirs. A hook stays as it is."""
    bound = dict(vars(_standard), Popen=Popen)
    own = [name for name in names if _popen and _hooks.own(getattr(_standard, name)) is not None]
    for name in own:
        theirs = getattr(_standard, name)
        ours: "Any" = FunctionType(
            theirs.__code__, bound, name, theirs.__defaults__, theirs.__closure__
        )
        ours.__kwdefaults__ = theirs.__kwdefaults__
        bound[name] = functools.update_wrapper(ours, theirs)
        del ours.__wrapped__
    return {name: bound[name] for name in own}


# patch()


def _in_place_of(beneath: "Any", name: str) -> "Any":
    """Our method, for the standard class; it calls ``beneath`` while no patch() is in force."""
    ours = _METHODS[name]

    def method(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        bound = beneath.__get__(self, type(self))
        if hasattr(_popen, "_patched") and not hasattr(self, "_is_drop_in"):
            return ours(bound, self, *args, **kwargs)
        return bound(*args, **kwargs)

    def wait(self: "Any", timeout: "Any" = None, *args: "Any", **kwargs: "Any") -> "Any":
        if timeout is None and not args and not kwargs and time.sleep is _sleep:
            return beneath(self, timeout=timeout)
        return method(self, timeout, *args, **kwargs)

    chosen: "Any" = functools.wraps(beneath)(wait if name == _WAIT else method)
    _hooks.mark(chosen, beneath)
    return chosen


def _missing() -> "list[str]":
    """The names of our methods that the standard Popen needs on this Python."""
    names = list(_METHODS)
    if _HAS_PROCESS_GROUP and not _would_fork():
        names.remove("_execute_child")
    return names


class _Patch:
    def __enter__(self) -> None:
        """Do nothing: patch() has already been called."""

    def __exit__(self, *exc_info: object) -> None:
        unpatch()


# Neither of the two has a lock, as copies of the package would have none in common: a program
# that patches in several threads at the same time needs one of its own.
_ours = object()  # it tells this copy of the package from others


def patch() -> _Patch:
    """Change the standard library's Popen in place: it starts and waits as ours does.

    Each patch() needs its own unpatch(), or a ``with patch():`` block, which calls it at its
    end. Only the last unpatch() restores Popen, whichever copies of this package called
    patch(). What the interpreter does equally well is left alone, and so is a start or wait
    that somebody else has replaced; hooks that are put over ours later keep working.

    asyncio starts its subprocesses by Popen, so posix_spawn(3) starts them, too; asyncio
    waits for them by its own means as before.

    >>> import subprocess, sys
    >>> with patch():
    ...     subprocess.call([sys.executable, "-c", "raise SystemExit(3)"])
    3
    """
    load()
    if _popen is None:
        _log("patch() leaves %r alone: it is not the standard library's", _standard.Popen)
        return _Patch()
    if "_patched" not in vars(_popen):
        _popen._patched = {"methods": {}, "users": []}
    methods = _popen._patched["methods"]
    # Another copy, of another version, may have replaced fewer of them.
    for name in [name for name in _missing() if name not in methods]:
        found = _hooks.under(vars(_popen)[name])
        # Our __init__ adds an argument for our _execute_child; it may stand over a hook.
        if "_execute_child" in methods if name == "__init__" else _hooks.own(found):
            methods[name] = _in_place_of(found, name)
            setattr(_popen, name, methods[name])
        else:
            _log("patch() leaves Popen.%s alone: it is %r", name, found)
    _popen._patched["users"].append(_ours)
    return _Patch()


def unpatch() -> None:
    """Undo one patch() of this copy of the package; do nothing if there is none.

    >>> patching = patch()
    >>> unpatch()
    """
    state = vars(_popen).get("_patched") if _popen is not None else None
    if state is None or _ours not in state["users"]:
        return
    state["users"].remove(_ours)
    if not state["users"]:
        for name, method in state["methods"].items():
            if vars(_popen)[name] is method:  # else a hook has replaced it, and calls it
                setattr(_popen, name, _hooks.under(method))
        del _popen._patched


def _offered() -> "dict[str, Any]":
    """All that this module has for others."""
    names = {name: getattr(_standard, name) for name in _standard.__all__}
    names.update(patch=patch, unpatch=unpatch, Popen=Popen)
    names.update(
        _rebind(("call", "check_call", "run", "check_output", "getstatusoutput", "getoutput"))
    )
    return names


globals().update(_offered())
