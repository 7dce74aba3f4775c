# SPDX-License-Identifier: BSD-3-Clause
"""The standard library's subprocess, but it starts by posix_spawn and waits without polling.

Popen is a subclass of the standard Popen; run, call, check_call and check_output use it. They
take the same arguments as the standard ones of this Python, ``process_group`` on every Python,
and ``tree`` and ``grace``: see Popen. All other names of subprocess.__all__, and list2cmdline,
are the standard library's.

patch() changes the standard Popen itself, in place.
"""

import _signal  # type: ignore[import-not-found]
import _thread
import functools
import os
import subprocess as _standard
import sys
from contextlib import ExitStack as _ExitStack
from contextlib import suppress as _suppress
from errno import ECHILD as _ECHILD
from subprocess import *  # noqa: F403
from subprocess import list2cmdline as list2cmdline
from types import MethodType

from . import _process, _systems
from ._base import deadline as _deadline
from ._base import errors as _errors
from ._base import handle as _handle
from ._starting.standard import is_standard, with_globals
from ._systems import posix as _posix
from ._trees import popen as _popens

if os.name != "nt":
    from ._starting import posix_spawn as _posix_spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

__all__ = ["patch", "unpatch"]
__all__ += _standard.__all__


def __dir__() -> "list[str]":
    return [*__all__, *(name for name in globals() if name[:2] == "__")]


_WINDOWS = os.name == "nt"
_CREATE_NEW_PROCESS_GROUP = 0x200  # subprocess has the name from Python 3.7 on
# On Windows the standard parameter does nothing.
_HAS_PROCESS_GROUP = not _WINDOWS and hasattr(_standard, "_fork_exec")  # both from 3.11 on
# gevent's os.close closes later, in its hub; that would not run while stdout is read to its end.
_close = os.close
# PyPy 3.11 has the same subprocess and forks.
_HAS_VFORK = sys.implementation.name == "cpython" and sys.platform == "linux"


# What the child gets for 0, 1 and 2, and our ends of the pipes.
_PAIRS = ("p2cread", "p2cwrite"), ("c2pwrite", "c2pread"), ("errwrite", "errread")


def _would_fork() -> bool:
    """Whether the standard code would fork: then posix_spawn is worthwhile."""
    # The switch is in Python 3.10 to 3.13, the function from 3.11 on. Its truth may raise.
    switch = getattr(_standard, "_USE_VFORK", hasattr(_standard, "_fork_exec"))
    return not (_HAS_VFORK and switch != 0) or _posix_spawn.is_start_taken_away()


# Our methods: ``beneath`` is the bound method that each one replaces.


def _is_tree(self: "Any") -> bool:
    return getattr(self, "_tree", None) is not None  # the standard Popen has no such attribute


def _init(beneath: "Any", self: "Any", *args: "Any", **kwargs: "Any") -> None:
    group = kwargs.pop("process_group", None)
    if group is not None and not isinstance(group, int):
        raise TypeError("process_group must be an int, not %s" % type(group).__name__)
    if group is not None and group >= 0:
        if not _WINDOWS:
            kwargs["preexec_fn"] = functools.partial(_enter_group, group, kwargs.get("preexec_fn"))
        elif group:
            raise ValueError("process_group can only be 0 on Windows")
        else:
            kwargs["creationflags"] = kwargs.get("creationflags", 0) | _CREATE_NEW_PROCESS_GROUP
    beneath(*args, **kwargs)


def _enter_group(group: int, preexec_fn: "Callable[[], object] | None") -> None:
    os.setpgid(0, group)
    if preexec_fn is not None:
        preexec_fn()


def _execute_child(beneath: "Any", self: "Any", *values: "Any", **named: "Any") -> None:
    if _is_tree(self):
        plan, group, preexec_fn = _plan(values, named)
        plan.update(process_group=group, preexec_fn=preexec_fn)
        self._start_tree(plan, _command, _start_alone)
        _close_ends(self, plan)
        return
    # A group may have become a preexec_fn. What is not standard is a hook, and must see each start.
    if (not _HAS_PROCESS_GROUP or _would_fork()) and is_standard(beneath):
        plan, group, preexec_fn = _plan(values, named)
        is_ours = preexec_fn is not plan["preexec_fn"] or _would_fork()
        if is_ours and preexec_fn is None and _start(self, plan, group):
            return
        values, named = (), plan
    if hasattr(self, "_is_told") and is_standard(beneath):
        vars(self).pop("_is_told", None)
        beneath = MethodType(_posix_spawn.untold(beneath.__func__), self)
    beneath(*values, **named)


def _plan(values: "Any", named: "Any") -> "tuple[dict[str, Any], int, Any]":
    """The arguments by name; and the group and preexec_fn that were asked for."""
    code = _popens.own_execute_child().__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    plan = dict(zip(names, values), **named)
    group, preexec_fn = plan.get("process_group", -1), plan["preexec_fn"]
    if getattr(preexec_fn, "func", None) is _enter_group:
        group, preexec_fn = preexec_fn.args
    return plan, group, preexec_fn


def _command(plan: "dict[str, Any]") -> "tuple[list[Any], Any]":
    """The words and the program that execve(2) gets."""
    args, executable = plan["args"], plan["executable"]
    if plan["shell"]:
        android = hasattr(sys, "getandroidapilevel")
        args = [executable or ("/system/bin/sh" if android else "/bin/sh"), "-c", *args]
    return args, args[0] if executable is None else executable


def _start(self: "Any", plan: "dict[str, Any]", group: int) -> bool:
    """Start by posix_spawn. False if the standard code has to start it, or to raise an error."""
    args = plan["args"]
    # The standard code raises an error of pass_fds, or does not need it.
    if hasattr(args, "__fspath__") or not hasattr(plan["pass_fds"], "__iter__"):
        return False
    # Iterators can be read only once, and the standard code may need their items later.
    args = plan["args"] = [args] if isinstance(args, (str, bytes)) else list(args)
    plan["pass_fds"] = tuple(plan["pass_fds"])
    stdio = tuple(plan[child] for child, _ in _PAIRS)
    ends = [plan[parent] for _, parent in _PAIRS if plan[parent] != -1]
    if not _is_plain(plan, stdio + plan["pass_fds"], ends, group):
        return False
    args, executable = _command(plan)
    cwd, env = plan["cwd"], plan["env"]
    files = stdio, plan["close_fds"], plan["pass_fds"]
    attributes = group, plan["start_new_session"], plan["restore_signals"]
    try:
        request = _posix_spawn.SpawnRequest(args, executable, env, cwd, files, attributes)
    except Exception as error:  # anything: an object with __fspath__ may raise what it likes
        _errors.raise_of_handler(error)
        return False
    event: "tuple[Any, ...]" = ("subprocess.Popen", executable, args, cwd, env)
    event = () if hasattr(self, "_is_told") else event  # audit hooks have seen that of its tree
    try:
        if _posix_spawn.start_by_posix_spawn(request, *event) is None:
            if request.error is not None:
                self._is_told = True
            return False
    finally:
        if request.started[0]:
            # Also if a signal handler has raised: the caller never gets the Popen then, which has
            # its child reaped when it is freed.
            self.pid, self._child_created = request.started[0], True
    _close_ends(self, plan)
    return True


def _close_ends(self: "Any", plan: "dict[str, Any]") -> None:
    """Close the ends of pipes that only the child needs."""
    ends = {plan[child] for child, parent in _PAIRS if plan[parent] != -1}
    for fd in (ends | {getattr(self, "_devnull", -1)}) - {-1}:
        _close(fd)
    self._closed_child_pipe_fds = True  # so that __init__ does not, should it fail from here on


def _is_plain(plan: "dict[str, Any]", fds: "Any", ends: "list[int]", group: int) -> bool:
    """Whether all values are usual ones; others are left to the standard code."""
    return (
        # What posix_spawn can't do.
        all(plan.get(name) is None for name in ("gid", "gids", "uid"))
        and plan.get("umask", -1) == -1
        and plan["args"]
        and all(isinstance(plan[name], bool) for name in ("restore_signals", "start_new_session"))
        # fileno() can return anything.
        and all(isinstance(number, int) and -1 <= number < 2**31 for number in (*fds, group))
        and min(plan["pass_fds"], default=0) >= 0
        # os.get_exec_path() takes nothing less.
        and (plan["env"] is None or hasattr(plan["env"], "get"))
        # A pipe may have got the number of a closed fd: our end of it must not be passed on.
        and not any(end in fds for end in ends)
    )


def _poll(beneath: "Any", self: "Any") -> "Any":
    code = beneath()
    if code is not None or _is_tree(self) or not is_standard(beneath):
        return code
    # It runs, or the lock is held: by another thread, or by what a signal handler has interrupted.
    try:
        code = _posix.look_at_child(self.pid)
    except _errors.Failed as why:
        if why.errno != _ECHILD:
            _errors.log("waitid, pid %d: %s", self.pid, why)
            return None
    return None if code is _handle.RUNNING else _settled(self, code, _deadline.GRACE)


def _settled(self: "Any", code: "Any", patience: float) -> "Any":
    """Reap what has exited; if the lock is held for longer than the patience, the code seen."""
    deadline, backoff = _deadline.Deadline(patience), _deadline.Backoff()
    while self.returncode is None and backoff.pause(deadline):
        self._internal_poll()
    return code if self.returncode is None else self.returncode


def _wait(
    beneath: "Any", self: "Any", timeout: "Any" = None, *endtime: "Any", **named: "Any"
) -> "Any":
    if self.returncode is None and _is_tree(self):
        return self._wait_for_tree(timeout)
    if endtime or named or not is_standard(beneath):  # endtime: before Python 3.7
        return beneath(timeout, *endtime, **named)
    # One call costs less. It goes by the pid, so no thread, handler or system may reap before it.
    blocks = timeout is self.returncode is None and hasattr(os, "waitid") and not _thread._count()
    if blocks and _posix.may_block() and _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_DFL:
        with _suppress(_errors.Failed):  # what follows finds out why
            _errors.call(os.waitid, os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self._internal_poll()
    if self.returncode is not None:
        return self.returncode
    deadline = _deadline.Deadline(timeout)
    try:
        seen = _process.wait(self, timeout)
    except _errors.TimeoutExpired as error:
        _errors.raise_of_handler(error)
        raise _standard.TimeoutExpired(self.args, timeout) from None
    code = _settled(self, seen, max(_deadline.GRACE, deadline.at_most(1.0)))
    # If somebody else has reaped it meanwhile, the standard code has set 0; a code that is known
    # replaces that. gevent reaps all children once one of them is its own.
    if None not in (seen, self.returncode):
        self.returncode = code = seen
    return code


_METHODS: "dict[str, Callable[..., Any]]" = {}
if not _WINDOWS:  # Windows' Popen has no lock
    _METHODS["_execute_child"] = _execute_child
    _METHODS["poll"] = _poll
if not _HAS_PROCESS_GROUP:
    _METHODS["__init__"] = _init
_METHODS["_wait" if hasattr(_standard.Popen, "_wait") else "wait"] = _wait  # Python 3.6


def _method(name: str, beneath: "Any", is_patch: bool) -> "Any":
    """Our method, for a subclass of Popen or in place of the standard one."""

    @functools.wraps(beneath)
    def method(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        bound = beneath.__get__(self) if is_patch else getattr(super(_Started, self), name)
        if is_patch and not _users:  # there is a hook over it, which still calls it after unpatch()
            return bound(*args, **kwargs)
        return _METHODS[name](bound, self, *args, **kwargs)

    method._is_patch = is_patch  # type: ignore[attr-defined]
    return method


# None if Popen has been replaced, by gevent's, say, which starts and waits in a way of its own.
_Started: "Any" = None
_start_alone: "Any"
_started = _thread._local()
if type(_standard.Popen) is type and _standard.Popen.__module__ == "subprocess":
    _own = {name: _method(name, getattr(_standard.Popen, name), False) for name in _METHODS}
    _Started = type("_Started", (_standard.Popen,), dict(_own, __module__=__name__))
if _Started is not None and not TYPE_CHECKING:  # type checkers see the standard one

    class Popen(_popens.TreePopen, _Started):
        __doc__ = _popens.TreePopen.__doc__

    class _Alone(_Started):
        """A tree's keeper, or its command: audit hooks have seen the start of the tree."""

        _is_told = True

    def _start_alone(plan: "dict[str, Any]") -> "Any":
        names = "args executable preexec_fn close_fds pass_fds cwd env restore_signals"
        options = {name: plan[name] for name in (*names.split(), "start_new_session")}
        others = {"stdin": "p2cread", "stdout": "c2pwrite", "stderr": "errwrite", "umask": "umask"}
        others.update(user="uid", group="gid", extra_groups="gids", process_group="process_group")
        for name, ours in others.items():
            if plan.get(ours, -1) not in (-1, None):
                options[name] = plan[ours]
        return _Alone(**options)

    def _popen_of_run(*args: "Any", **options: "Any") -> "Any":
        _popens.of_run.is_next = options.get("tree")  # else a handler's Popen would take it
        try:
            popen = Popen(*args, **options)
        finally:
            vars(_popens.of_run).clear()  # a mock has not asked
        if issubclass(type(popen), _popens.TreePopen):  # a mock may say that it is an instance
            getattr(_started, "tell", id)(popen)  # aio.run's
        return popen

    def _call(name: str, *args: "Any", **options: "Any") -> "Any":
        return globals()[name](*args, **options)

    # The standard functions find Popen, and each other, in this module. A hook stays as it is.
    _names = {"Popen": _popen_of_run}
    _functions = "call", "check_call", "run", "check_output", "getstatusoutput", "getoutput"
    _names.update((_name, functools.partial(_call, _name)) for _name in _functions)
    for _name in _functions:
        if is_standard(getattr(_standard, _name)):
            globals()[_name] = with_globals(getattr(_standard, _name), **_names)


_users: "list[_ExitStack]" = []
# {name: (the standard method, ours in its place)}
_replaced: "dict[str, tuple[Any, Any]]" = {}


# Neither has a lock: several threads that patch at the same time need one of their own.


def patch() -> _ExitStack:
    """Change the standard library's Popen in place, to start and wait as this module's Popen.

    Each patch() needs its own unpatch(); a ``with patch():`` block calls it at its end. The
    last unpatch() restores Popen. patch() leaves alone the methods where this Python already does
    the same, and everything that other code (or another copy of this package) has replaced. A
    debugger's replacements of ``_posixsubprocess.fork_exec`` or ``os.posix_spawn`` stay in use,
    and so do hooks that other code sets after patch(). asyncio's subprocesses are started in this
    way, too, but asyncio waits for them as before.

    >>> import subprocess, sys
    >>> with patch():
    ...     subprocess.call([sys.executable, "-c", "raise SystemExit(3)"])
    3
    """
    # Load what later starts and waits need: the program may change its root before them.
    _systems.backend()
    if not _WINDOWS:
        _posix_spawn.has_whole_posix_spawn()
    popen = getattr(_Started, "__base__", None)
    is_there = popen in getattr(_standard.Popen, "__mro__", ())
    if not is_there:
        _errors.log("patch() does not change %r: other code has replaced Popen", _standard.Popen)
    for name in _METHODS if is_there else ():
        found = vars(popen)[name]
        if name == "_execute_child" and _HAS_PROCESS_GROUP and not _would_fork():
            continue
        # Our __init__ adds an argument, and hands on the rest: it may stand over a hook.
        if is_standard(found) or (name == "__init__" and not hasattr(found, "_is_patch")):
            _replaced[name] = found, _method(name, found, True)
            setattr(popen, name, _replaced[name][1])
        elif name not in _replaced:
            _errors.log("patch() leaves Popen.%s: other code has replaced it by %r", name, found)
    _users.append(_ExitStack())
    _users[-1].callback(unpatch)
    return _users[-1]


def unpatch() -> None:
    """Undo one patch() of this copy of the package. Nothing happens if none is left.

    >>> patching = patch()
    >>> unpatch()
    """
    del _users[-1:]
    if not _users:
        for name, (found, ours) in _replaced.copy().items():
            if vars(_Started.__base__)[name] is ours:  # else there is a hook over it
                setattr(_Started.__base__, name, found)
                del _replaced[name]
