# SPDX-License-Identifier: BSD-3-Clause
"""How a Popen starts: by posix_spawn(3) if that can do it, else by the standard code."""

import os
import subprocess
import sys
from errno import ECHILD
from functools import lru_cache
from types import MethodType

from .._base.errors import not_by_handler
from .standard import enter_group, has_process_group, is_standard

IS_WINDOWS = os.name == "nt"
if not IS_WINDOWS:
    from .posix_spawn import SpawnRequest, is_start_taken_away, start_by_posix_spawn, without_audit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._types import Any

# gevent's os.close closes later, in its hub; that would not run while stdout is read to its end.
_close = os.close
# What the child gets for 0, 1 and 2, and our ends of the pipes.
PAIRS = ("p2cread", "p2cwrite"), ("c2pwrite", "c2pread"), ("errwrite", "errread")
_found_start: "Any" = getattr(subprocess.Popen, "_execute_child", None)

# PyPy 3.11 has the same subprocess and forks.
_HAS_VFORK = sys.implementation.name == "cpython" and sys.platform == "linux"


@lru_cache(None)
def own_start() -> "Any":
    """The interpreter's own Popen._execute_child(): a hook in its place takes any arguments."""
    found = _found_start
    while not is_standard(found) and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if not is_standard(found):  # a hook from before our import keeps it to itself
        names: "dict[str, Any]" = {"__name__": "subprocess"}
        exec(subprocess.__spec__.loader.get_code("subprocess"), names)  # type: ignore
        found = names["Popen"]._execute_child
    return found


def bound_arguments(values: "Any", named: "Any") -> "tuple[dict[str, Any], int, Any]":
    """Those of _execute_child() by name; and the group and preexec_fn that were asked for."""
    code = own_start().__code__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    plan = dict(zip(names, values), **named)
    group, preexec_fn = plan.get("process_group", -1), plan["preexec_fn"]
    if getattr(preexec_fn, "func", None) is enter_group:
        group, preexec_fn = preexec_fn.args
    return plan, group, preexec_fn


def command_of(plan: "dict[str, Any]") -> "tuple[list[Any], Any]":
    """The words and the program that execve(2) gets."""
    args, executable = plan["args"], plan["executable"]
    if plan["shell"]:
        android = hasattr(sys, "getandroidapilevel")
        args = [executable or ("/system/bin/sh" if android else "/bin/sh"), "-c", *args]
    return args, args[0] if executable is None else executable


def close_ends(popen: "Any", plan: "dict[str, Any]") -> None:
    """Close the ends of pipes that only the child needs."""
    ends = {plan[child] for child, parent in PAIRS if plan[parent] != -1}
    for fd in (ends | {getattr(popen, "_devnull", -1)}) - {-1}:
        _close(fd)
    popen._closed_child_pipe_fds = True  # so that __init__ does not, should it fail from here on


# The argument by which the standard _internal_poll() takes a Wait4: from Python 3.13 on, or before.
WAITPID = "_del_safe" if hasattr(subprocess, "_del_safe") else "_waitpid"


class Wait4:
    """Calls os.wait4() in place of os.waitpid(), and keeps the result: macOS and the BSDs."""

    WNOHANG, ECHILD = getattr(os, "WNOHANG", 0), ECHILD

    def __init__(self) -> None:
        self.result: "list[Any]" = [(0, 0, None)]

    def __call__(self, pid: int, flags: int) -> "Any":
        if not self.result[0][0]:
            # One call in C, as a signal handler may raise after it.
            self.result[:] = map(os.wait4, (pid,), (flags,))
        return self.result[0][:2]

    waitpid = __call__


def would_fork() -> bool:
    """Whether the standard code would fork: then posix_spawn is worthwhile."""
    # The switch is in Python 3.10 to 3.13, the function from 3.11 on. Its truth may raise.
    switch = getattr(subprocess, "_USE_VFORK", hasattr(subprocess, "_fork_exec"))
    return not (_HAS_VFORK and switch != 0) or is_start_taken_away()


def start_child(self: "Any", original: "Any", values: "Any", named: "Any") -> None:
    """_execute_child() of our Popen. ``original`` is the method that it replaces, bound."""
    # What is not standard is a hook, and must see each start.
    if is_standard(original) and not IS_WINDOWS:
        if not has_process_group() or would_fork():  # a group may have become a preexec_fn
            plan, group, preexec_fn = bound_arguments(values, named)
            is_ours = preexec_fn is not plan["preexec_fn"] or would_fork()
            if is_ours and preexec_fn is None and _start(self, plan, group):
                return
            values, named = (), plan
        if vars(self).pop("_is_audited", False):
            original = MethodType(without_audit(original.__func__), self)
    original(*values, **named)


def _start(self: "Any", plan: "dict[str, Any]", group: int) -> bool:
    """Start by posix_spawn. False if the standard code has to start it, or to raise an error."""
    args = plan["args"]
    # The standard code raises an error of pass_fds, or does not need it.
    if hasattr(args, "__fspath__") or not hasattr(plan["pass_fds"], "__iter__"):
        return False
    # Iterators can be read only once, and the standard code may need their items later.
    args = plan["args"] = [args] if isinstance(args, (str, bytes)) else list(args)
    plan["pass_fds"] = tuple(plan["pass_fds"])
    stdio = tuple(plan[child] for child, _ in PAIRS)
    ends = [plan[parent] for _, parent in PAIRS if plan[parent] != -1]
    if not _is_plain(plan, stdio + plan["pass_fds"], ends, group):
        return False
    args, executable = command_of(plan)
    cwd, env = plan["cwd"], plan["env"]
    files = stdio, plan["close_fds"], plan["pass_fds"]
    attributes = group, plan["start_new_session"], plan["restore_signals"]
    try:
        request = SpawnRequest(args, executable, env, cwd, files, attributes)
    except not_by_handler(Exception):  # anything: an object with __fspath__ may raise what it likes
        return False
    event: "tuple[Any, ...]" = ("subprocess.Popen", executable, args, cwd, env)
    event = () if hasattr(self, "_is_audited") else event  # audit hooks have seen that of its tree
    try:
        if start_by_posix_spawn(request, *event) is None:
            if request.error is not None:
                self._is_audited = True
            return False
    finally:
        if request.started[0]:
            # Also if a signal handler has raised: the caller never gets the Popen then, which has
            # its child reaped when it is freed.
            self.pid, self._child_created = request.started[0], True
    close_ends(self, plan)
    return True


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
