# SPDX-License-Identifier: BSD-3-Clause
"""The standard library's subprocess, started by posix_spawn and waited for by events.

Popen is a subclass of the standard one; run, call, check_call and check_output use it,
and take what the originals take on this Python. ``process_group`` is there on every
one. All other names are the standard ones.

patch() does the same to the standard Popen itself, in place.
"""

import functools
import os
import subprocess as _standard
import sys
import warnings
from errno import ENOENT, EPERM
from subprocess import *  # noqa: F403
from types import FunctionType

from . import process
from ._errors import TimeoutExpired as _TimeoutExpired

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

__all__ = list(_standard.__all__) + ["patch", "unpatch"]

_WINDOWS = os.name == "nt"
_CREATE_NEW_PROCESS_GROUP = 0x200  # Python 3.7 has it, too


def _unpatched(name: str) -> "Any":
    """The standard Popen's own method, under what patch() of any copy put there."""
    function = getattr(_standard.Popen, name)
    return getattr(function, "__wrapped__", function)


def _parameters(function: "Any") -> "tuple[str, ...]":
    code = function.__code__
    names: "tuple[str, ...]" = code.co_varnames
    return names[1 : code.co_argcount + code.co_kwonlyargcount]


_init = _unpatched("__init__")
_execute = _unpatched("_execute_child")
_PARAMETERS = _parameters(_execute)
# Python 3.11. On Windows the parameter does nothing.
_HAS_PROCESS_GROUP = not _WINDOWS and "process_group" in _parameters(_init)
# Before Python 3.8 the text of the error has the name of what is missing, too.
_REPEATS_NAME = ": " in _execute.__code__.co_consts
# Before Python 3.7 wait() has it all.
_WAIT = "_wait" if hasattr(_standard.Popen, "_wait") else "wait"
_wait_busily = _unpatched(_WAIT)
# Python 3.15 waits by events itself.
_WAITS = not _WINDOWS and hasattr(_standard.Popen, "_wait_pidfd")


@functools.lru_cache(maxsize=None)
def _has_vfork() -> bool:
    # CPython 3.10 and later, on Linux. PyPy 3.11 has the same subprocess and forks.
    import sysconfig

    return sys.platform == "linux" and bool(sysconfig.get_config_var("HAVE_VFORK"))


def _would_fork() -> bool:
    """Whether the standard code would fork: posix_spawn is worth its while then."""
    return getattr(_standard, "_USE_VFORK", True) is False or not _has_vfork()


@functools.wraps(_init)
def _start(self: "Any", *args: "Any", **kwargs: "Any") -> None:
    if not _HAS_PROCESS_GROUP:
        self._process_group = _checked(kwargs.pop("process_group", None))
    _init(self, *args, **kwargs)


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


@functools.wraps(_execute)
def _execute_child(self: "Any", *values: "Any") -> None:
    if _HAS_PROCESS_GROUP and not _would_fork():
        _execute(self, *values)
        return
    plan = dict(zip(_PARAMETERS, values))
    group = plan.get("process_group", -1) if _HAS_PROCESS_GROUP else self._process_group
    lacking = group >= 0 and not _HAS_PROCESS_GROUP
    if _WINDOWS and lacking:
        plan["creationflags"] |= _CREATE_NEW_PROCESS_GROUP
    elif not _WINDOWS and (lacking or _would_fork()) and _spawn(self, plan, group):
        return
    elif lacking:
        plan["preexec_fn"] = functools.partial(_enter_group, group, plan["preexec_fn"])
    _execute(self, *[plan[name] for name in _PARAMETERS])


def _enter_group(group: int, preexec_fn: "Callable[[], object] | None") -> None:
    os.setpgid(0, group)
    if preexec_fn is not None:
        preexec_fn()


def _spawn(self: "Any", plan: "dict[str, Any]", group: int) -> bool:
    """Start by posix_spawn; False for what the standard code is to do, or to complain of."""
    if not isinstance(plan["args"], (str, bytes)) and not hasattr(plan["args"], "__fspath__"):
        plan["args"] = list(plan["args"])  # it may be an iterator
    if (
        plan["preexec_fn"] is not None
        or any(plan.get(name) is not None for name in ("gid", "gids", "uid"))
        or plan.get("umask", -1) >= 0
        or not plan["args"]
        or hasattr(plan["args"], "__fspath__")
    ):
        return False
    request = getattr(self, "_refused", None)  # by posix_spawn, which spawn() has asked
    if request is None:
        from . import _posix_spawn

        executable, args = _command(plan)
        try:
            request = _posix_spawn.Request(
                args=args,
                executable=executable,
                env=plan["env"],
                cwd=plan["cwd"],
                stdio=(plan["p2cread"], plan["c2pwrite"], plan["errwrite"]),
                close_fds=plan["close_fds"],
                pass_fds=plan["pass_fds"],
                group=group,
                session=plan["start_new_session"],
                restore_signals=plan["restore_signals"],
            )
        except (TypeError, ValueError):
            return False
        if hasattr(sys, "audit"):  # Python 3.8
            sys.audit("subprocess.Popen", executable, args, plan["cwd"], plan["env"])  # novm
        try:
            pid = _posix_spawn.start(request)
        except FileNotFoundError as error:
            if not _REPEATS_NAME:
                raise
            text = "%s: %r" % (error.strerror, error.filename)
            raise FileNotFoundError(ENOENT, text, error.filename) from None
        except (TypeError, ValueError, AttributeError):
            return False
        if pid is not None:
            self.pid = pid
            self._child_created = True
            _close_ends(self, plan)
            return True
    if request.group_is_refused and not _HAS_PROCESS_GROUP:
        # The standard code would call it an exception of preexec_fn.
        raise PermissionError(EPERM, os.strerror(EPERM))
    return False


def _command(plan: "dict[str, Any]") -> "tuple[Any, list[Any]]":
    """The executable, and the arguments, as the standard code makes them."""
    args, executable = plan["args"], plan["executable"]
    args = [args] if isinstance(args, (str, bytes)) else list(args)
    if plan["shell"]:
        android = hasattr(sys, "getandroidapilevel")
        args = ["/system/bin/sh" if android else "/bin/sh", "-c"] + args
        if executable:
            args[0] = executable
    return (args[0] if executable is None else executable), args


def _close_ends(self: "Any", plan: "dict[str, Any]") -> None:
    """Close what only the child needs, as the standard code does."""
    devnull = getattr(self, "_devnull", None)
    ends = (("p2cread", "p2cwrite"), ("c2pwrite", "c2pread"), ("errwrite", "errread"))
    for child, parent in ends:
        if plan[child] != -1 and plan[parent] != -1 and plan[child] != devnull:
            os.close(plan[child])
    if devnull is not None:
        os.close(devnull)
    self._closed_child_pipe_fds = True  # by __init__, should it fail from here on


@functools.wraps(_wait_busily)
def _wait(
    self: "Any", timeout: "float | None" = None, endtime: "float | None" = None
) -> "int | None":
    if endtime is not None:  # before Python 3.7
        text = "'endtime' argument is deprecated; use 'timeout'."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        timeout = self._remaining_time(endtime)
    if self.returncode is None:
        # A blocking waitpid(2) needs no events; Ctrl-C does not get through to Windows' wait.
        if timeout is None and not _WINDOWS:
            _wait_busily(self, timeout)
        else:
            try:
                process.wait(self, timeout)
            except _TimeoutExpired:
                expired: "Any" = _standard.TimeoutExpired
                raise expired(self.args, timeout) from None
    code: "int | None" = self.returncode
    return code


_METHODS: "dict[str, Any]" = {"_execute_child": _execute_child}
if not _HAS_PROCESS_GROUP:
    _METHODS["__init__"] = _start
if not _WAITS:
    _METHODS[_WAIT] = _wait

if not TYPE_CHECKING:  # for which it is the standard one
    Popen = type(
        "Popen",
        (_standard.Popen,),
        dict(_METHODS, __doc__=_standard.Popen.__doc__, __module__=__name__),
    )


def _rebind(names: "tuple[str, ...]") -> "dict[str, Any]":
    """The standard functions, with our Popen for theirs."""
    bound = dict(vars(_standard), Popen=Popen)
    for name in names:
        theirs = getattr(_standard, name)
        ours: "Any" = FunctionType(
            theirs.__code__, bound, name, theirs.__defaults__, theirs.__closure__
        )
        ours.__kwdefaults__ = theirs.__kwdefaults__
        bound[name] = functools.update_wrapper(ours, theirs)
        del ours.__wrapped__
    return {name: bound[name] for name in names}


globals().update(
    _rebind(("call", "check_call", "run", "check_output", "getstatusoutput", "getoutput"))
)


def _missing() -> "dict[str, Any]":
    """What of ours the standard Popen needs on this Python."""
    methods = dict(_METHODS)
    if _HAS_PROCESS_GROUP and not _would_fork():
        del methods["_execute_child"]
    return methods


class _Patch:
    def __enter__(self) -> None:
        """It is in force already."""

    def __exit__(self, *exc_info: object) -> None:
        unpatch()


_ours = object()  # which tells this copy of the package from others


def patch() -> _Patch:
    """Give the standard Popen, which everybody has imported, our start and our wait, in place.

    Each call needs an unpatch(), or a ``with patch():`` block, which ends with one: only
    the last one takes it back, whichever copies of this package patched. Whatever the
    interpreter does as well by itself is left alone.

    asyncio's subprocesses are started by Popen, so they are started by posix_spawn,
    too; they are waited for by asyncio's own means as before.
    """
    popen: "Any" = _standard.Popen
    state = vars(popen).get("_patched")
    if state is None:
        originals = {name: vars(popen)[name] for name in _missing()}
        state = popen._patched = {"originals": originals, "users": []}
        for name, method in _missing().items():
            setattr(popen, name, method)
    state["users"].append(_ours)
    return _Patch()


def unpatch() -> None:
    """Take one patch() back; nothing if there is none of this copy."""
    popen: "Any" = _standard.Popen
    state = vars(popen).get("_patched")
    if state is None or _ours not in state["users"]:
        return
    state["users"].remove(_ours)
    if not state["users"]:
        for name, method in state["originals"].items():
            setattr(popen, name, method)
        del popen._patched
