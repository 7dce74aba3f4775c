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
from contextlib import ExitStack as _ExitStack
from contextlib import suppress as _suppress
from errno import ECHILD as _ECHILD
from subprocess import list2cmdline as list2cmdline

from . import _process, _systems
from ._base import checks as _checks
from ._base import deadline as _deadline
from ._base import errors as _errors
from ._base import handle as _handle
from ._starting import popen as _starts
from ._starting.standard import has_process_group, is_standard, with_globals, with_group
from ._systems import posix as _posix
from ._trees import popen as _popens
from ._waiting import owners as _owners

if not _starts.IS_WINDOWS:
    from ._starting import posix_spawn as _posix_spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Twice: of two things with one name, mypy takes the first, other checkers take the last.
    from ._types import Any
    from ._types import CalledProcessError as CalledProcessError
    from ._types import CompletedProcess as CompletedProcess
    from ._types import Popen as Popen
    from ._types import TimeoutExpired as TimeoutExpired
    from ._types import call as call
    from ._types import check_call as check_call
    from ._types import check_output as check_output
    from ._types import run as run
    from subprocess import *  # type: ignore[assignment]  # noqa: F403  # isort: skip
    from ._types import CalledProcessError, CompletedProcess, Popen, TimeoutExpired  # noqa: F401, F811  # isort: skip
    from ._types import call, check_call, check_output, run  # noqa: F401, F811  # isort: skip
else:
    from subprocess import *  # noqa: F403

__all__ = ["patch", "unpatch"]
__all__ += _standard.__all__


# ``original`` is the method that ours replaces, bound to ``self``.


def _poll_child(self: "Any", original: "Any") -> "Any":
    code = original()
    is_tree = getattr(self, "_tree", None) is not None  # the standard Popen has no such attribute
    if code is not None or is_tree or _starts.IS_WINDOWS or not is_standard(original):
        return code
    # It runs, or the lock is held: by another thread, or by what a signal handler has interrupted.
    try:
        code = _posix.look_at_child(self.pid)
    except _errors.Failed as why:
        if why.errno != _ECHILD:
            _errors.log("waitid, pid %d: %s", self.pid, why)
            return None
    return None if code is _handle.RUNNING else _reaped(self, code, _deadline.NOW)


def _reaped(self: "Any", seen: "Any", deadline: "Any") -> "Any":
    """Reap what has exited; if the lock is held until patience() ends, the code that was seen."""

    def reap() -> "Any":
        if self.returncode is None:
            self._internal_poll()
        return _handle.PENDING if self.returncode is None else self.returncode

    code = _handle.settled(reap, reap(), deadline)
    return seen if code is _handle.PENDING else code


def _wait_for_child(
    self: "Any", original: "Any", timeout: "Any" = None, *endtime: "Any", **named: "Any"
) -> "Any":
    # NaN ends no wait of the standard Popen, which has no _tree. endtime: before Python 3.7.
    is_odd = endtime or named or (timeout != timeout and not hasattr(self, "_tree"))
    if is_odd or not is_standard(original):
        return original(timeout, *endtime, **named)
    # One call costs less. It goes by the pid, so no thread, handler or system may reap before it.
    blocks = timeout is self.returncode is None and hasattr(os, "waitid") and not _thread._count()
    if blocks and _posix.may_block() and _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_DFL:
        with _suppress(_errors.Failed):  # what follows finds out why
            _errors.call(os.waitid, os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self._internal_poll()
    if self.returncode is not None:
        return self.returncode
    deadline = _deadline.Deadline(timeout)
    target: "Any" = _owners.PopenOwner(self, self.pid)
    target.reaps_by = "_internal_poll"  # a subclass's poll() may call wait()
    try:
        seen = _process.wait(target, timeout)
    except _errors.not_by_handler(_errors.TimeoutExpired):
        raise _standard.TimeoutExpired(self.args, timeout) from None
    code = _reaped(self, seen, deadline)
    # If somebody else has reaped it meanwhile, the standard code has set 0; a code that is known
    # replaces that. gevent reaps all children once one of them is its own.
    if None not in (seen, self.returncode):
        self.returncode = code = seen
    return code


# The standard Popen, in a list: programs replace it under each of its names. Empty if that has
# been done before, by gevent, say, whose Popen starts and waits in a way of its own.
_patchable = [_standard.Popen]
if type(_standard.Popen) is not type or _standard.Popen.__module__ != "subprocess":
    del _patchable[:]
_WAIT = "_wait" if hasattr(_standard.Popen, "_wait") else "wait"  # Python 3.6's
_started = _thread._local()
if _patchable and not TYPE_CHECKING:  # type checkers see that of _types.py

    class Popen(_popens.TreePopen, *_patchable):
        __doc__ = _popens.TreePopen.__doc__

        def _execute_child(self, *values, **named) -> None:
            if self._tree is None:
                _starts.start_child(self, super()._execute_child, values, named)
            else:
                self._start_tree(__class__, values, named)  # the name may be a mock's by now

        def poll(self):
            return _poll_child(self, super().poll)

        def _wait(self, timeout=None, *endtime, **named):
            if self.returncode is None and self._tree is not None:
                return self._wait_for_tree(timeout)
            return _wait_for_child(self, getattr(super(), _WAIT), timeout, *endtime, **named)

        if _WAIT == "wait":
            wait = _wait

    def _popen_of_run(*args: "Any", _made: "list[Any]", **options: "Any") -> "Any":
        _popens.of_run.is_next = options.get("tree")  # else a handler's Popen would take it
        try:
            popen = Popen(*args, **options)
        finally:
            vars(_popens.of_run).clear()  # a mock has not asked
        if issubclass(type(popen), _popens.TreePopen):  # a mock may say that it is an instance
            getattr(_started, "tell", id)(popen)  # aio.run's
            _made.append(popen)
        return popen

    def _call(name: str, *args: "Any", **options: "Any") -> "Any":
        function = globals()[name]
        if function is not _ours.get(name):
            options.pop("_made", None)
        return function(*args, **options)

    def _with_usage(function: "Any") -> "Any":
        @functools.wraps(function)
        def call(*args: "Any", **options: "Any") -> "Any":
            made = options.setdefault("_made", [])  # the Popen, once it is started
            try:
                done = function(*args, **options)
            except _errors.not_by_handler(_standard.SubprocessError) as error:
                error.usage = made[0].usage if made else None
                raise
            if isinstance(done, _standard.CompletedProcess):
                done.usage = made[0].usage if made else None
            return done

        return call

    # The standard functions find Popen, and each other, in this module. A hook stays as it is.
    _ours, _names = {}, {"Popen": _popen_of_run}
    _functions = "call", "check_call", "run", "check_output", "getstatusoutput", "getoutput"
    _names.update((_name, functools.partial(_call, _name)) for _name in _functions)
    for _name in _functions:
        if is_standard(getattr(_standard, _name)):
            _ours[_name] = with_globals(getattr(_standard, _name), **_names)
            if "output" not in _name:  # those call run()
                _ours[_name] = _with_usage(_ours[_name])
            _ours[_name].__module__ = __name__  # where pickle finds them
    globals().update(_ours)


_users: "list[_ExitStack]" = []
_replaced: "set[str]" = set()  # the methods in whose place ours are, perhaps with a hook over them


def _original(self: "Any", name: str) -> "Any":
    method = vars(_InPlace)[name].__wrapped__.__get__(self, type(self))
    # A hook over ours still calls ours after unpatch(); what is no method is only called.
    return method if _users else functools.partial(method)


class _InPlace:
    """What patch() puts in the place of the standard methods."""

    def __init__(self: "Any", *args: "Any", **options: "Any") -> None:
        _original(self, "__init__")(*args, **with_group(options))

    def _execute_child(self: "Any", *values: "Any", **named: "Any") -> None:
        _starts.start_child(self, _original(self, "_execute_child"), values, named)

    def poll(self: "Any") -> "Any":
        return _poll_child(self, _original(self, "poll"))

    def _wait(self: "Any", *args: "Any", **named: "Any") -> "Any":
        return _wait_for_child(self, _original(self, _WAIT), *args, **named)

    wait = _wait  # Python 3.6's name


_names_in_place = [_WAIT] + ["__init__"] * (not has_process_group())
_names_in_place += [] if _starts.IS_WINDOWS else ["_execute_child", "poll"]


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
    if not _starts.IS_WINDOWS:
        for _, _, check in _posix_spawn.SPAWN_CHECKS:
            _checks.works(check)
    popen = _patchable[0] if _patchable else None
    is_there = popen in getattr(_standard.Popen, "__mro__", ())
    if not is_there:
        _errors.log("patch() does not change %r: other code has replaced Popen", _standard.Popen)
    for name in _names_in_place if is_there else ():
        found, ours = vars(popen)[name], vars(_InPlace)[name]
        if name == "_execute_child" and has_process_group() and not _starts.would_fork():
            continue
        # Our __init__ adds an argument, and hands on the rest: it may stand over a hook.
        is_new = name not in _replaced and not hasattr(found, "_is_patch")
        if is_standard(found) or (name == "__init__" and is_new):
            functools.update_wrapper(ours, found)._is_patch = True  # type: ignore[attr-defined]
            _replaced.add(name)
            setattr(popen, name, ours)
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
        for name in _replaced.copy():
            ours = vars(_InPlace)[name]
            if vars(_patchable[0])[name] is ours:  # else there is a hook over it
                setattr(_patchable[0], name, ours.__wrapped__)
                _replaced.discard(name)
